"""The Events and the status against a real API server: it accepts them, and kubectl shows them where operators look."""

from __future__ import annotations

import pytest

from node_fleet.domain.notify.cluster_report import ClusterEvent
from tests.support.event_stories import (
    WORKER,
    interrupt_a_worker,
    prepared,
    record,
    remove_a_worker,
    repeat_with_other_words,
    report_a_run,
    report_a_thousand_reasons,
    with_bare_pod,
)
from tests.support.real_plane.cluster import RealCluster

pytestmark = pytest.mark.whole


@pytest.fixture
def plain(cluster: RealCluster) -> RealCluster:
    prepared(cluster)
    return cluster


def test_each_step_of_a_removal_is_an_event_on_the_worker(plain: RealCluster) -> None:
    remove_a_worker(plain)


def test_an_interruption_is_a_warning_on_the_worker(plain: RealCluster) -> None:
    interrupt_a_worker(plain, "spot", "SpotInterruption")


def test_a_report_writes_the_status_and_its_events(plain: RealCluster) -> None:
    report_a_run(plain)


def test_a_worker_with_many_reasons_has_one_event(plain: RealCluster) -> None:
    repeat_with_other_words(plain, 5)


def test_a_report_with_a_thousand_reasons_writes_twenty_events(plain: RealCluster) -> None:
    report_a_thousand_reasons(plain)


def test_kubectl_describes_the_worker_and_the_pod_with_their_events(plain: RealCluster) -> None:
    with_bare_pod(plain)
    record(
        plain,
        ClusterEvent(name=WORKER, reason="NotEligible", message="kept: shop/cart has no controller"),
        ClusterEvent(namespace="shop", name="cart", reason="ScaleUp", message="node-fleet added 1 worker"),
        status='what: "added 1 worker"\n',
    )
    node = plain.kubectl("describe", "node", WORKER).stdout
    assert "NotEligible" in node and "kept: shop/cart has no controller" in node
    pod = plain.kubectl("describe", "pod", "cart", "-n", "shop").stdout
    assert "node-fleet added 1 worker" in pod
    listed = plain.kubectl("get", "events", "-n", "default", "--field-selector", "source=node-fleet", "-o", "name")
    assert len(listed.stdout.splitlines()) == 1
    found = plain.kubectl("get", "configmap", "node-fleet-status", "-n", "kube-system", "-o", "jsonpath={.data.status}")
    assert found.stdout == 'what: "added 1 worker"\n'
