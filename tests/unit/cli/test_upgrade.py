"""The plan of an upgrade, and the upgrade itself: the pause around it, and what follows from each end."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from cli.output import CommandError, ExitCode
from cli.upgrade import back_up, perform
from cli.upgrade_plan import Plan, ServerVersions, plan_of, plan_rows, versions_of
from node_fleet.domain.model.errors import ServerUnreachableError
from node_fleet.domain.model.fleet_state import FleetState, Lease, Pause
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.settings import Settings

OLD, NEW = "v1.35.5+k3s1", "v1.36.2+k3s1"
ANSWER = (
    f"server {OLD} ready\nn server {OLD} ready i-server\nn worker {OLD} ready i-a i-c\nn worker {NEW} not-ready i-b\n"
    "result: checked\n"
)


def result(stdout: str, exit_code: int = 0, stderr: str = "") -> CommandResult:
    return CommandResult(status="Success", exit_code=exit_code, stdout=stdout, stderr=stderr, final=True, known=True)


def rows(found: ServerVersions, **settings: object) -> dict[str, str]:
    plan = plan_of(found, NEW, "0" * 64, Settings.from_mapping(settings))
    return dict(plan_rows(plan, Settings.from_mapping(settings)))


def test_the_check_names_the_server_and_every_worker() -> None:
    workers = {"i-a": OLD, "i-c": OLD, "i-b": NEW}
    assert versions_of(result(ANSWER)) == ServerVersions(installed=OLD, running=OLD, is_ready=True, workers=workers)


def test_a_server_whose_node_is_not_ready_is_not_upgraded() -> None:
    found = versions_of(result(ANSWER.replace("ready i-server", "not-ready i-server")))
    assert not found.is_ready
    assert "or its node is not Ready" in rows(found)["version skew"]


def test_a_binary_that_does_not_run_yet_is_named() -> None:
    found = versions_of(result(ANSWER.replace(f"server {OLD} ready\nn", f"server {NEW} ready\nn")))
    assert (found.installed, found.running) == (NEW, OLD)
    assert f"{NEW} is installed on the server, but {OLD} runs: restart K3s there" in rows(found)["version skew"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (result("server v1.35.5+k3s1 not-ready\nresult: unreadable the API", 69), "unreadable the API"),
        (result("", 127, "bash: not found"), "SSM status Success bash: not found"),
        (CommandResult(status="DeliveryTimedOut", final=True), "SSM status DeliveryTimedOut"),
        (result("result: checked"), "checked"),
    ],
)
def test_an_incomplete_check_is_an_error_with_its_reason(answer: CommandResult, reason: str) -> None:
    with pytest.raises(CommandError) as caught:
        versions_of(answer)
    assert reason in caught.value.text and "nothing was changed" in caught.value.hint


def test_the_plan_counts_the_workers_and_names_the_budgets() -> None:
    found = ServerVersions(installed=OLD, is_ready=True, workers={"i-a": OLD, "i-b": OLD})
    shown = rows(found, bake_seconds=240, disruption_budgets=[{"nodes": "1"}])
    assert shown["workers"] == f"2: 2 {OLD}"
    assert shown["5. workers"].startswith("2 workers replaced, one after the other") and "240 s" in shown["5. workers"]
    assert shown["budgets"] == "at most 1 worker"


@pytest.mark.parametrize("drift", ["report", "off"])
def test_the_plan_says_when_workers_stay(drift: str) -> None:
    found = ServerVersions(installed=OLD, is_ready=True, workers={"i-a": OLD})
    assert (
        rows(found, drift=drift)["5. workers"]
        == f"1 worker not replaced, drift is {drift}: node-fleet rotate marks them"
    )


def test_a_server_that_has_the_release_is_not_upgraded_again() -> None:
    shown = rows(ServerVersions(installed=NEW, is_ready=True, workers={"i-a": OLD, "i-b": NEW}))
    assert "3. server" not in shown and shown["workers to replace"].startswith("1 worker replaced")


def test_an_empty_fleet_has_nothing_to_replace() -> None:
    shown = rows(ServerVersions(installed=OLD, is_ready=True))
    assert (shown["workers"], shown["5. workers"], shown["budgets"]) == ("none", "none is to be replaced", "none")


def test_a_plan_that_breaks_a_rule_ends_with_the_reason() -> None:
    shown = rows(ServerVersions(installed="v1.34.1+k3s1", is_ready=False))
    assert list(shown) == ["server", "workers", "version skew"]
    assert "the API of the server is not ready" in shown["version skew"]
    assert "leaves out minor versions" in shown["version skew"]


def test_a_plan_is_done_when_the_server_has_the_target() -> None:
    plan = Plan(server=NEW, target=NEW, checksum="", workers={}, problems=(), replaced=0, budgets=())
    assert plan.is_done


# the upgrade -------------------------------------------------------------------------------------------------------

NOW, PAUSED = 1_000_000, 2100
PLAN = Plan(server=OLD, target=NEW, checksum="0" * 64, workers={}, problems=(), replaced=0, budgets=())
OWN = (f"K3s upgrade to {NEW}", NOW + PAUSED)


class Site:
    """The state, the clock and the server as an upgrade meets them. The command ends `takes` seconds after its start.

    during: reason and end of the pause at the start of the command, None before it.
    """

    def __init__(self, answer: CommandResult | None = None, *, takes: int = 0, **state: Any) -> None:
        self.state = FleetState(cluster_id="test", **state)
        self.answer = answer or result("result: upgraded 20")
        self.takes, self.time, self.during = takes, NOW, None
        self.sent: list[dict[str, str]] = []
        self.texts: list[str] = []
        self.refusals: list[Exception] = []
        clock = SimpleNamespace(now=lambda: self.time, sleep=self.sleep)
        kept = SimpleNamespace(load=lambda: self.state, set_pause=self.set_pause, clear_pause=self.set_pause)
        records = SimpleNamespace(put_event=lambda kind, at, data: self.texts.append(data["text"]))
        server = SimpleNamespace(send=self.send, result=self.result)
        self.services = SimpleNamespace(clock=clock, state=kept, records=records, server=server)

    def sleep(self, seconds: float) -> None:
        self.time += int(seconds)

    def set_pause(self, pause: Pause | None = None) -> None:
        self.state = replace(self.state, pause=pause)

    def pause(self) -> tuple[str, int] | None:
        return (self.state.pause.reason, self.state.pause.until) if self.state.pause else None

    def send(self, document: str, parameters: dict[str, str]) -> str:
        self.sent.append(parameters)
        self.during = self.pause()
        if self.refusals:
            raise self.refusals[0] from self.refusals[0].__cause__
        return "c-1"

    def result(self, command: str) -> CommandResult:
        if self.time < NOW + self.takes:
            raise ServerUnreachableError("SSM does not answer")
        return self.answer


def holiday(seconds: int) -> Pause:
    return Pause(reason="holiday", by="ana", since=NOW - 60, until=NOW + seconds)


@pytest.fixture(autouse=True)
def _with_backup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.upgrade.back_up", lambda *_: ["snap-1"])
    monkeypatch.setattr("cli.upgrade.read_plan", lambda _: PLAN)


@pytest.mark.parametrize(
    ("earlier", "during", "after"),
    [
        (None, OWN, None),
        (holiday(0), OWN, None),
        (holiday(30), OWN, None),
        (holiday(31), OWN, ("holiday", NOW + 31)),
        (holiday(PAUSED - 1), OWN, ("holiday", NOW + PAUSED - 1)),
        (holiday(PAUSED), ("holiday", NOW + PAUSED), ("holiday", NOW + PAUSED)),
    ],
    ids=["none", "over", "over at the end", "not over at the end", "shorter", "as long"],
)
def test_scaling_is_paused_during_the_upgrade_and_a_pause_that_lasts_longer_is_put_back(
    earlier: Pause | None, during: tuple[str, int], after: tuple[str, int] | None
) -> None:
    site = Site(takes=30, pause=earlier)
    assert perform(site, PLAN) == (["snap-1"], 20)
    assert (site.during, site.pause()) == (during, after)


@pytest.mark.parametrize(("left", "waits"), [(0, 0), (1, 5), (300, 300), (301, None)])
def test_a_run_in_progress_has_five_minutes_to_stop_before_the_server_is_upgraded(left: int, waits: int | None) -> None:
    site = Site(lease=Lease(owner="run", fence=1, acquired_at=NOW - 60, expires_at=NOW + left))
    if waits is not None:
        perform(site, PLAN)
        assert (site.time, len(site.sent)) == (NOW + waits, 1)
        return
    with pytest.raises(CommandError, match="a run is still in progress after 5 min") as caught:
        perform(site, PLAN)
    assert (caught.value.code, site.sent, site.pause()) == (ExitCode.NOTHING_DONE, [], None)


OPEN = Operation(
    operation_id="up-1", kind="scale_up", phase="launching", started_at=NOW, requested=1, reason="x", execution_id="run"
)


@pytest.mark.parametrize(
    ("changes", "operation", "error"),
    [
        ({"problems": ("i-a: x", "i-b: y")}, None, "has changed since the plan: i-a: x; i-b: y"),
        ({"server": "v1.35.6+k3s1"}, None, "has changed since the plan: the server has v1.35.6+k3s1"),
        ({}, OPEN, "an operation is open: scale_up up-1, phase launching"),
    ],
    ids=["a newer worker", "another version of the server", "an open operation"],
)
def test_what_has_changed_since_the_plan_stops_the_upgrade_and_ends_its_pause(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], operation: Operation | None, error: str
) -> None:
    monkeypatch.setattr("cli.upgrade.read_plan", lambda _: replace(PLAN, **changes))
    site = Site(operation=operation)
    with pytest.raises(CommandError) as caught:
        perform(site, PLAN)
    assert error in caught.value.text and "the server was not changed" in caught.value.hint
    assert (site.sent, site.pause()) == ([], None)


@pytest.mark.parametrize(
    ("answer", "is_paused", "error"),
    [
        (result("result: upgraded 20"), False, ""),
        (result("result: unchanged"), False, ""),
        (result("result: restored", 70), False, f"{NEW} did not become healthy; {OLD} runs again"),
        (result("result: broken no API", 70), True, "the server is broken: no API. Scaling stays paused"),
        (result("result: busy another", 75), True, "this command did not upgrade the server: busy another"),
        (result("result: other-version x", 75), False, "this command did not upgrade the server: other-version x"),
        (result("result: failed no disk", 1, "df: 0"), False, "the server was not upgraded: failed no disk df: 0"),
        (
            CommandResult(status="Undeliverable", final=True),
            True,
            "unknown: SSM status Undeliverable; scaling stays",
        ),
    ],
    ids=lambda value: value.stdout or value.status if isinstance(value, CommandResult) else "",
)
def test_scaling_stays_paused_only_where_k3s_may_not_run_and_the_history_has_each_end(
    answer: CommandResult, is_paused: bool, error: str
) -> None:
    site = Site(answer)
    if error:
        with pytest.raises(CommandError) as caught:
            perform(site, PLAN)
        assert error in caught.value.text and "the backup is snap-1" in caught.value.hint
    else:
        assert perform(site, PLAN) == (["snap-1"], 20 if "20" in answer.stdout else 0)
    assert (site.pause() is not None) is is_paused
    (text,) = site.texts
    end = "did not upgrade the server" if error and answer.known else "unknown" if error else "upgraded the server"
    assert end in text and f"{OLD} to {NEW}" in text


@pytest.mark.parametrize(("takes", "is_known"), [(1920, True), (1921, False)])
def test_the_end_of_the_command_is_awaited_beyond_its_time_limit_and_within_the_pause(
    takes: int, is_known: bool
) -> None:
    site = Site(takes=takes)
    if is_known:
        perform(site, PLAN)
    else:
        with pytest.raises(CommandError, match="the end of the upgrade is unknown: SSM status no answer"):
            perform(site, PLAN)
    assert site.sent[0]["ExecutionTimeoutSeconds"] == "1800"
    assert (site.time, site.pause()) == (NOW + 1920, None if is_known else OWN)


@pytest.mark.parametrize("is_lost", [True, False], ids=["the answer was lost", "refused"])
def test_a_command_that_may_have_started_leaves_scaling_paused(is_lost: bool) -> None:
    site = Site()
    refused = ServerUnreachableError("no SendCommand")
    refused.__cause__ = ReadTimeoutError(endpoint_url="ssm") if is_lost else None
    site.refusals.append(refused)
    with pytest.raises(CommandError, match="has no answer" if is_lost else "the server cannot be upgraded"):
        perform(site, PLAN)
    assert site.pause() == (OWN if is_lost else None)


# the backup --------------------------------------------------------------------------------------------------------


class Snapshots:
    """EC2 with a server of two volumes. Each snapshot is in its first state until it ends `takes` seconds later."""

    def __init__(self, *, takes: int = 0, first: str = "pending", last: tuple[str, ...] = ("completed",) * 2) -> None:
        self.takes, self.first, self.last, self.time = takes, first, last, NOW
        clock = SimpleNamespace(now=lambda: self.time, sleep=self.sleep)
        server = SimpleNamespace(server=lambda: SimpleNamespace(instance_id="i-server"))
        self.services = SimpleNamespace(clock=clock, settings=Settings.from_mapping({}), ec2=server)

    def client(self, service: str) -> Snapshots:
        assert service == "ec2"
        return self

    def sleep(self, seconds: float) -> None:
        self.time += int(seconds)

    def create_snapshots(self, **given: Any) -> dict[str, Any]:
        assert given["InstanceSpecification"] == {"InstanceId": "i-server"}
        return {"Snapshots": [{"SnapshotId": f"snap-{number}"} for number, _ in enumerate(self.last)]}

    def describe_snapshots(self, **given: Any) -> dict[str, Any]:
        assert given == {"SnapshotIds": [f"snap-{number}" for number, _ in enumerate(self.last)]}
        if self.time >= NOW + self.takes:
            return {"Snapshots": [{"State": state} for state in self.last]}
        if self.first == "pending":
            return {"Snapshots": [{"State": "pending"}, *({"State": state} for state in self.last[1:])]}
        raise ClientError({"Error": {"Code": self.first}}, "DescribeSnapshots")


@pytest.mark.parametrize("first", ["pending", "InvalidSnapshot.NotFound"])
@pytest.mark.parametrize("takes", [0, 1, 3600])
def test_the_backup_is_complete_before_the_server_is_upgraded(takes: int, first: str) -> None:
    site = Snapshots(takes=takes, first=first)
    assert back_up(site, PLAN) == ["snap-0", "snap-1"]
    assert NOW + takes <= site.time < NOW + takes + 5


@pytest.mark.parametrize(
    ("site", "error"),
    [
        (Snapshots(takes=3601), "the backup snap-0, snap-1 did not complete"),
        (Snapshots(last=("completed", "error")), "the backup snap-0, snap-1 did not complete"),
        (Snapshots(last=()), "did not complete"),
        (Snapshots(takes=1, first="UnauthorizedOperation"), "no backup of the server could be taken"),
    ],
    ids=["too slow", "failed", "no volume", "not allowed"],
)
def test_without_a_complete_backup_the_upgrade_ends_and_nothing_was_changed(site: Snapshots, error: str) -> None:
    with pytest.raises(CommandError) as caught:
        back_up(site, PLAN)
    assert error in caught.value.text and "nothing was changed" in caught.value.hint
