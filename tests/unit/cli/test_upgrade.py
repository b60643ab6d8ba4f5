"""The plan of an upgrade: what is read from the server, and what is said about the workers."""

from __future__ import annotations

import pytest

from cli.output import CommandError
from cli.upgrade import Plan, ServerVersions, plan_of, plan_rows, versions_of
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
