"""The Events and the status that the server's commands write: readable, bounded, and never a reason to fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node_fleet.domain.notify.cluster_report import ClusterEvent, ClusterReport
from simulator.cluster.api.errors import ApiError
from simulator.cluster.api.verbs import ApiVerbs
from tests.support.clusters import VirtualCluster
from tests.support.event_stories import (
    WORKER,
    drain,
    forget,
    interrupt_a_worker,
    prepared,
    record,
    remove_a_worker,
    repeat_with_other_words,
    report_a_run,
    report_a_thousand_reasons,
    shown,
    status,
    uncordon,
)
from tests.support.shipped_scripts import script

FULL_DISK = """def full_disk(*_, **__):
    raise OSError(28, "No space left on device")


def iso("""


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    made = VirtualCluster(1_000_000)
    prepared(made)
    yield made
    made.close()


def test_each_step_of_a_removal_is_an_event_on_the_worker(cluster: VirtualCluster) -> None:
    remove_a_worker(cluster)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [("spot", "SpotInterruption"), ("rebalance", "SpotInterruption"), ("scheduled", "ScheduledChange")],
)
def test_an_interruption_is_a_warning_on_the_worker(cluster: VirtualCluster, cause: str, reason: str) -> None:
    interrupt_a_worker(cluster, cause, reason)


def test_a_report_writes_the_status_and_its_events(cluster: VirtualCluster) -> None:
    report_a_run(cluster)


def test_a_worker_with_many_reasons_has_one_event(cluster: VirtualCluster) -> None:
    repeat_with_other_words(cluster, 12)


def test_a_report_with_a_thousand_reasons_writes_twenty_events(cluster: VirtualCluster) -> None:
    report_a_thousand_reasons(cluster)


def test_an_instance_whose_node_has_another_name_gets_its_event_there(cluster: VirtualCluster) -> None:
    cluster.instance_started(instance_id="i-0cccccccccccccccc", instance_type="t3.small", az="a", node_name="worker-9")
    cluster.wait(300)
    record(cluster, ClusterEvent(name="i-0cccccccccccccccc", reason="ScaleUp", message="launched"))
    assert shown(cluster) == [("Node", "worker-9", "ScaleUp", "Normal", 1)]


def test_refused_events_change_no_result(cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ApiError(code=403, reason="Forbidden", message="events is forbidden")

    monkeypatch.setattr(ApiVerbs, "create", refuse)
    assert uncordon(cluster).exit_code == 0
    drained = drain(cluster, OPERATION_ID="down-9-300")
    assert (drained.exit_code, drained.stdout.splitlines()[-1]) == (0, f"result: drained {WORKER}")
    assert f"the Event Draining of node {WORKER} could not be written" in drained.stderr
    cluster.instance_ended(WORKER)
    cluster.settle()
    assert forget(cluster).stdout.splitlines()[-1] == f"result: forgotten {WORKER}"
    assert record(cluster, ClusterEvent(name=WORKER, reason="ScaleUp", message="x")).exit_code == 69
    assert (shown(cluster), status(cluster)) == ([], "")


def test_the_status_leaves_what_another_user_put_into_the_config_map(cluster: VirtualCluster) -> None:
    marks = {"node-fleet.io/reported-at": "\u00b2"}
    metadata = {"name": "node-fleet-status", "namespace": "kube-system", "annotations": marks}
    cluster.create("configmaps", {"metadata": metadata, "data": {"mine": "kept", "status": "old"}})
    assert record(cluster, at=200, status="what: x\n").exit_code == 0
    found = cluster.find("configmaps", "kube-system", "node-fleet-status")
    assert found and found["data"] == {"mine": "kept", "status": "what: x\n"}


def test_a_full_disk_is_an_incomplete_report_and_no_error(cluster: VirtualCluster) -> None:
    text = script("record_events").replace("tempfile.NamedTemporaryFile(", "full_disk(").replace("def iso(", FULL_DISK)
    packed = ClusterReport(at=1, status="what: x\n").packed
    done = cluster.script(text, {"REPORT": packed})
    assert (done.exit_code, done.stdout) == (69, "result: incomplete the API server refused a part\n")
    assert done.stderr == ""


@pytest.mark.parametrize("report", ["", "e", "eJw", "AAAA", "x y", "../.."])
def test_a_report_that_cannot_be_read_writes_nothing(cluster: VirtualCluster, report: str) -> None:
    done = cluster.script(script("record_events"), {"REPORT": report})
    assert (done.exit_code, done.stdout) == (64, "result: bad-parameter REPORT\n")


@pytest.mark.parametrize("name", ["../nodes", "a/b", "A", "a?b", "", "-"])
def test_a_name_that_would_change_the_path_is_refused(cluster: VirtualCluster, name: str) -> None:
    made = ClusterEvent(namespace="shop", name=name, reason="ScaleUp", message="x")
    assert record(cluster, made).stdout == "result: recorded 0 events\n"
