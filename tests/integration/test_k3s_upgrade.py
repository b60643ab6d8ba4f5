"""The upgrade of K3s in the simulator: the server first, then the workers, and the way back; and the command itself."""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import cli.upgrade
from cli import target as targets
from cli.doctor import k3s_versions
from cli.main import main
from cli.output import ExitCode
from cli.upgrade_plan import read_plan
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.scale_down.drain import CommandResult
from simulator.aws.faults import REPLY_LOST, FaultRule
from simulator.fakes.server_machine import binary
from simulator.scenario.files import load_scenario
from simulator.scenario.model import Event
from simulator.simulation import Simulation
from tests.support.scenario_watch import FleetWatch, watched

pytestmark = pytest.mark.sampled(5)  # with --all, every one

OLD, NEW = "v1.35.5+k3s1", "v1.36.2+k3s1"
MINUTE = 60


def versions(sim: Simulation) -> set[str]:
    """Of the workers that run."""
    machines = sim.cluster.state.machines.values()
    return {one.k3s_version for one in machines if one.powered and one.role == "worker"}


def launches(watch: FleetWatch) -> list[float]:
    """Minutes of the scenario at which workers were launched."""
    return sorted((at - watch.sim.scenario.start_at) / MINUTE for at in watch.launched.values())


def never_fewer_and_never_newer(watch: FleetWatch) -> None:
    start = watch.sim.scenario.worker_count
    assert min(point.workers_usable for point in watch.sim.points) == start
    assert max(point.workers_usable for point in watch.sim.points) <= start + 1
    assert max(point.unschedulable_pods for point in watch.sim.points) == 0
    assert watch.sim.cluster.kubelets.newer_joins == []
    watch.checker.assert_only_safe_removals()


def test_the_workers_wait_for_the_server_and_are_then_replaced_within_the_budget() -> None:
    with watched("k3s-upgrade") as watch:
        assert watch.sim.cluster.server_version == NEW and versions(watch.sim) == {NEW}
        assert not set(watch.sim.starting_ids) & watch.workers
        assert len(launches(watch)) == 6 and launches(watch)[0] > 15
        never_fewer_and_never_newer(watch)


@pytest.mark.whole
def test_the_way_back_within_a_minor_version_takes_the_workers_first() -> None:
    with watched("k3s-rollback") as watch:
        assert watch.sim.cluster.server_version == OLD and versions(watch.sim) == {OLD}
        times = launches(watch)
        assert len(times) == 6 and times[2] < 50 < times[3] and times[5] < 100
        never_fewer_and_never_newer(watch)


# the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulation]:
    """The scenario at minute 10: the new K3s is deployed, and the server has the old one."""
    scenario = load_scenario("k3s-upgrade")
    with Simulation(without_upgrade(scenario)) as made:
        made.deployment.run_until(made.scenario.start_at + 10 * MINUTE)
        monkeypatch.setattr("cli.target.simulated", lambda name, at: contextlib.nullcontext(local(made)))
        yield made


def without_upgrade(scenario: Any) -> Any:
    return scenario.model_copy(update={"events": scenario.events[:1]})


def local(sim: Simulation) -> targets.LocalTarget:
    """What a command opens: its settings are those of the functions at that moment."""
    return targets.LocalTarget(sim, "the simulator")


def upgrade(*words: str) -> int:
    return main(["upgrade", "--local", *words])


def deploy(sim: Simulation, release: str) -> None:
    sim.events.inject(Event.model_validate({"at": "0s", "do": "new_k3s", "k3s": release}))


def pause_of(sim: Simulation) -> Any:
    return local(sim).services.state.load().pause


def snapshots(sim: Simulation) -> list[dict[str, Any]]:
    client = sim.deployment.cloud.client("ec2")
    return [
        one
        for one in client.describe_snapshots(OwnerIds=["self"])["Snapshots"]
        if {"Key": "Project", "Value": "node-fleet"} in one.get("Tags", ())
    ]


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_a_dry_run_shows_the_plan_and_changes_nothing(sim: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    assert upgrade("--dry-run") == ExitCode.OK
    shown = one_line(capsys.readouterr().out)
    for part in (
        f"{OLD}, configured {NEW}",
        f"6: 6 {OLD}",
        "a worker is never newer than the server, and at most 3 minor versions older: kept",
        "about 1 min; at most 12 min",
        "6 workers replaced, one after the other, each when its replacement has been Ready for 180 s",
        "at most 1 worker",
    ):
        assert part in shown
    assert '"checksum"' not in shown, "JSON only with --json"
    assert sim.cluster.server_version == OLD and not snapshots(sim) and pause_of(sim) is None


def test_the_server_is_backed_up_upgraded_and_checked_while_scaling_is_paused(
    sim: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert upgrade("--yes", "--json") == ExitCode.OK
    answer = json.loads(capsys.readouterr().out)
    assert (answer["server"], answer["target"], answer["replaced"]) == (OLD, NEW, 6)
    assert answer["seconds_without_api"] == 20
    assert answer["backup"] == [one["SnapshotId"] for one in snapshots(sim)] != []
    assert sim.cluster.server_version == NEW and pause_of(sim) is None
    assert f" upgraded the server, {OLD} to {NEW}" in recorded(sim)
    sim.deployment.run_until(sim.deployment.clock.now() + 20 * MINUTE)
    assert NEW in versions(sim) and sim.cluster.kubelets.newer_joins == []


def test_workers_that_nothing_replaces_are_not_promised(sim: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    sim.deployment.resources.override_environment({"DRIFT": "report"})
    assert upgrade("--yes") == ExitCode.OK
    assert "workers: 6 workers not replaced, drift is report" in one_line(capsys.readouterr().out)


def test_without_confirmation_nothing_is_changed(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert upgrade() == ExitCode.NOTHING_DONE
    assert sim.cluster.server_version == OLD and not snapshots(sim)


def test_during_an_open_operation_no_backup_is_taken(
    sim: Simulation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = Operation(
        operation_id="up-1",
        kind="scale_up",
        phase="launching",
        started_at=1,
        requested=1,
        reason="x",
        execution_id="run",
    )
    store = local(sim).services.state
    opened = replace(store.load(), operation=operation)
    monkeypatch.setattr(type(store), "load", lambda _: opened)
    assert upgrade("--yes") == ExitCode.NOTHING_DONE
    assert "an operation is open: scale_up up-1, phase launching" in one_line(capsys.readouterr().err)
    assert sim.cluster.server_version == OLD and not snapshots(sim)


def test_a_second_upgrade_does_nothing(sim: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    assert upgrade("--yes") == ExitCode.OK
    assert upgrade("--yes") == ExitCode.NOTHING_DONE
    assert f"the server runs {NEW} already" in one_line(capsys.readouterr().err)
    assert len(snapshots(sim)) == 1


@pytest.mark.parametrize(
    ("release", "reason"),
    [
        ("v1.37.0+k3s1", "leaves out minor versions"),
        ("v1.34.1+k3s1", "an earlier minor version than v1.35.5+k3s1"),
        ("v1.35.4+k3s1", "v1.35.5+k3s1 is newer than v1.35.4+k3s1 of the server"),
    ],
)
def test_a_release_that_breaks_the_rules_is_refused(
    sim: Simulation, capsys: pytest.CaptureFixture[str], release: str, reason: str
) -> None:
    deploy(sim, release)
    for words in ((), ("--dry-run",), ("--yes",)):
        assert upgrade(*words) == ExitCode.FAILED
        found = capsys.readouterr()
        assert reason in one_line(found.err) and "nothing was changed" in one_line(found.err)
    assert sim.cluster.server_version == OLD and not snapshots(sim)


def test_a_release_that_does_not_become_healthy_leaves_the_old_one_and_the_workers(
    sim: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    sim.events.inject(Event.model_validate({"at": "0s", "do": "broken_k3s", "k3s": NEW}))
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert f"{NEW} did not become healthy; {OLD} runs again, with the datastore as it was before" in text
    assert "the backup is snap-" in text
    assert sim.cluster.server_version == OLD and pause_of(sim) is None
    assert f" did not upgrade the server, {OLD} to {NEW}: restored" in recorded(sim)
    sim.deployment.run_until(sim.deployment.clock.now() + 20 * MINUTE)
    assert versions(sim) == {OLD}


def test_a_binary_without_the_deployed_checksum_is_not_installed(
    sim: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    client = sim.deployment.cloud.client("ssm")
    name = "/node-fleet/node-fleet-prod/k3s"
    client.put_parameter(Name=name, Value=f"{NEW} {'0' * 64}", Type="String", Overwrite=True)
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert "does not have its published checksum, or not the one that is pinned" in text
    assert f"the server still runs {OLD}" in text
    assert sim.cluster.server_version == OLD and pause_of(sim) is None


def test_a_server_that_ssm_cannot_reach_is_named(sim: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    sim.deployment.cloud.commands.lost.add(sim.deployment.server_id)
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert "the versions on the server cannot be read" in text and sim.deployment.server_id in text


def test_an_api_that_does_not_answer_is_no_start_of_an_upgrade(
    sim: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    sim.shells[0].double.reachable = False
    assert upgrade("--yes") == ExitCode.FAILED
    assert "the API of the server does not list its nodes" in one_line(capsys.readouterr().err)
    assert not snapshots(sim)


def test_an_upgrade_whose_end_is_unknown_leaves_scaling_paused(
    sim: Simulation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.upgrade.back_up", lambda *_: ["snap-1"])
    monkeypatch.setattr("cli.upgrade._compare_again", lambda *_: sim.events.inject(ssm_down()))
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert "the end of the upgrade is unknown: SSM status DeliveryTimedOut" in text and "the backup is snap-1" in text
    assert sim.cluster.server_version == OLD
    assert pause_of(sim).reason == f"K3s upgrade to {NEW}"
    assert recorded(sim).startswith("the end of the upgrade by ")


def recorded(sim: Simulation) -> str:
    """What the history has about the upgrade."""
    services = local(sim).services
    now = services.clock.now()
    (event,) = [one for one in services.records.events(now - 7200, now + 1) if one.kind == "upgrade"]
    return str(event.data["text"])


def test_a_command_whose_answer_is_lost_leaves_scaling_paused(
    sim: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    """SSM has started it."""
    lost = FaultRule(operation="SendCommand", code=REPLY_LOST, when=lambda given: "FromRelease" in given["Parameters"])
    sim.deployment.cloud.faults.inject(lost)
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert "the end of the upgrade is unknown: SSM status not known, SendCommand has no answer" in text
    assert pause_of(sim).reason == f"K3s upgrade to {NEW}"


def test_a_server_that_does_not_come_back_leaves_scaling_paused_and_names_the_way_back(
    sim: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    for release in (OLD, NEW):
        sim.events.inject(Event.model_validate({"at": "0s", "do": "broken_k3s", "k3s": release}))
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert f"the server is broken: neither {NEW} nor {OLD} became healthy in 240 s" in text
    assert "docs/upgrades.md#when-k3s-does-not-come-back; the backup is snap-" in text
    assert pause_of(sim).reason == f"K3s upgrade to {NEW}"


def meanwhile(sim: Simulation, monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """The change happens while the backup is taken."""
    monkeypatch.setattr("cli.upgrade.back_up", lambda *_: change() or ["snap-1"])


def test_a_worker_that_became_newer_than_the_release_during_the_backup_stops_the_upgrade(
    sim: Simulation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = next(one for one in sim.cluster.state.machines.values() if one.role == "worker")

    def change() -> None:
        with sim.cluster.changing():
            sim.cluster.kubelets.change_version(worker, "v1.36.4+k3s1")

    meanwhile(sim, monkeypatch, change)
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert f"the cluster has changed since the plan: {worker.instance_id}: v1.36.4+k3s1 is newer than {NEW}" in text
    assert sim.cluster.server_version == OLD and pause_of(sim) is None


def test_a_release_that_was_deployed_during_the_backup_stops_the_upgrade(
    sim: Simulation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(sim, monkeypatch, lambda: deploy(sim, "v1.36.4+k3s1"))
    assert upgrade("--yes") == ExitCode.FAILED
    assert "end the deployment first" in one_line(capsys.readouterr().err)
    assert sim.cluster.server_version == OLD and pause_of(sim) is None


def test_a_server_that_another_person_upgraded_during_the_backup_is_left_alone(
    sim: Simulation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change() -> None:
        with sim.cluster.changing():
            sim.cluster.restart_server(NEW)
        (sim.shells[0].machine.root / "usr/local/bin/k3s").write_text(binary(NEW))

    meanwhile(sim, monkeypatch, change)
    assert upgrade("--yes") == ExitCode.FAILED
    assert f"the cluster has changed since the plan: the server has {NEW}" in one_line(capsys.readouterr().err)
    assert pause_of(sim) is None


def test_an_instance_that_has_not_joined_yet_counts_with_the_version_of_its_launch(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = local(sim)
    (worker, *others) = target.services.ec2.instances()
    booting = replace(worker, instance_id="i-0123456789abcdef0", k3s_version="v1.36.4+k3s1")
    tagged = replace(worker, k3s_version="v1.36.4+k3s1")
    monkeypatch.setattr(target.services.ec2, "instances", lambda: (tagged, booting, *others))
    plan = target.call(lambda: read_plan(target))
    assert plan.problems == (f"{booting.instance_id}: v1.36.4+k3s1 is newer than {NEW} of the server",)
    assert (plan.workers[worker.instance_id], len(plan.workers)) == (OLD, 7), "the Node states more than the tag"


def test_a_binary_that_does_not_run_yet_is_named(sim: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    assert upgrade("--dry-run") == ExitCode.OK
    (sim.shells[0].machine.root / "usr/local/bin/k3s").write_text(binary(NEW))
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert f"{NEW} is installed on the server, but {OLD} runs: restart K3s there" in text


@pytest.mark.parametrize(("by", "stays"), [("ana", True), ("", False)], ids=["another person", "the same person"])
def test_the_pause_of_an_upgrade_to_the_same_release_ends_with_that_upgrade(
    sim: Simulation, by: str, stays: bool
) -> None:
    state, now = local(sim).services.state, local(sim).services.clock.now()
    earlier = Pause(reason=f"K3s upgrade to {NEW}", by=by or getpass.getuser(), since=now, until=now + 600)
    state.set_pause(earlier)
    assert upgrade("--yes") == ExitCode.OK
    assert pause_of(sim) == (earlier if stays else None)


def test_a_pause_that_ends_before_the_upgrade_is_extended_and_put_back(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, now, seen = local(sim).services.state, local(sim).services.clock.now(), []
    earlier = Pause(reason="holiday", by="ana", since=now, until=now + 600)
    state.set_pause(earlier)
    run = cli.upgrade._run
    monkeypatch.setattr("cli.upgrade._run", lambda *both: seen.append(pause_of(sim)) or run(*both))
    assert upgrade("--yes") == ExitCode.OK
    assert [(one.reason, one.until >= now + 2100) for one in seen] == [(f"K3s upgrade to {NEW}", True)]
    assert pause_of(sim) == earlier


def test_a_record_that_cannot_be_written_does_not_hide_that_the_server_was_upgraded(
    sim: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    sim.deployment.cloud.faults.inject(FaultRule(operation="PutItem", code="AccessDeniedException"))
    assert upgrade("--yes") == ExitCode.OK
    found = capsys.readouterr()
    assert "the upgrade may be missing in the history" in one_line(found.err)
    assert f"the server runs {NEW}" in one_line(found.out)


def test_a_snapshot_that_ec2_does_not_show_yet_is_waited_for(sim: Simulation) -> None:
    rule = FaultRule(operation="DescribeSnapshots", code="InvalidSnapshot.NotFound", count=2)
    sim.deployment.cloud.faults.inject(rule)
    assert upgrade("--yes") == ExitCode.OK
    assert sim.cluster.server_version == NEW


@pytest.mark.parametrize("word", ["busy another upgrade of the server runs", "other-version v1.36.4+k3s1 is installed"])
def test_what_another_upgrade_does_is_not_called_the_earlier_release(
    sim: Simulation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    answer = CommandResult(status="Failed", exit_code=75, stdout=f"result: {word}", final=True, known=True)
    monkeypatch.setattr("cli.upgrade._run", lambda *_: answer)
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert f"this command did not upgrade the server: {word}" in text and "still runs" not in text


def ssm_down() -> Event:
    return Event.model_validate({"at": "0s", "do": "ssm_down"})


def test_without_a_backup_nothing_is_changed(sim: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    sim.deployment.cloud.faults.inject(FaultRule(operation="CreateSnapshots", code="UnauthorizedOperation"))
    assert upgrade("--yes") == ExitCode.FAILED
    text = one_line(capsys.readouterr().err)
    assert "no backup of the server could be taken" in text and "ec2:CreateSnapshots" in text
    assert sim.cluster.server_version == OLD and pause_of(sim) is None


def test_a_deployment_that_has_not_ended_is_no_basis(sim: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    sim.deployment.resources.override_environment({"K3S_VERSION": "v1.36.4+k3s1"})
    assert upgrade("--yes") == ExitCode.FAILED
    assert "end the deployment first" in one_line(capsys.readouterr().err)


def test_a_cluster_of_mode_attach_is_left_to_its_owner(sim: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    sim.deployment.resources.override_environment({"K3S_VERSION": ""})
    assert upgrade("--dry-run") == ExitCode.FAILED
    assert "not node-fleet's (mode attach)" in one_line(capsys.readouterr().err)


def test_a_pause_of_someone_else_stays(sim: Simulation) -> None:
    sim.events.inject(Event.model_validate({"at": "0s", "do": "pause", "reason": "holiday", "for": "2h"}))
    assert upgrade("--yes") == ExitCode.OK
    assert pause_of(sim).reason == "holiday" and sim.cluster.server_version == NEW


# what explain and doctor say ---------------------------------------------------------------------------------------


def test_explain_says_what_new_workers_wait_for(sim: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--local"]) == ExitCode.OK
    shown = one_line(capsys.readouterr().out)
    assert (
        f"it installs K3s {NEW}, which is newer than {OLD} of the server. What you can do: node-fleet upgrade" in shown
    )


def test_doctor_names_what_waits_and_a_worker_that_is_newer_than_the_server(sim: Simulation) -> None:
    found = k3s_versions(local(sim))
    assert found.verdict == "warn" and NEW in found.saw and found.fix == "node-fleet upgrade --dry-run"
    worker = next(one for one in sim.cluster.state.machines.values() if one.role == "worker")
    with sim.cluster.changing():
        sim.cluster.kubelets.change_version(worker, NEW)
    sim.deployment.run_until(sim.deployment.clock.now() + MINUTE)
    found = k3s_versions(local(sim))
    assert found.verdict == "fail" and found.saw == f"{worker.instance_id}: {NEW} is newer than {OLD} of the server"
    assert upgrade("--yes") == ExitCode.OK
    sim.deployment.run_until(sim.deployment.clock.now() + MINUTE)
    found = k3s_versions(local(sim))
    assert (found.verdict, found.saw) == ("ok", f"server {NEW}, no worker is newer")
