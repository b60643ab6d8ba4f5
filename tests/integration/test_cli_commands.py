"""The operator's commands against the simulator, and the AWS side of them against the same cloud over its API."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cli import main as program
from cli import target as targets
from cli.cost import metrics_of_a_page
from cli.output import ExitCode
from cli.target import Deployed, LocalTarget
from cli.usage_per_run import PROFILES
from node_fleet.domain.model.fleet_state import Notice, Pause, Protection
from node_fleet.domain.model.operation import Operation, Target, TargetPhase
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.payload import table_rows
from simulator.report.billed_usage import counted
from simulator.scenario.files import load_scenario
from simulator.simulation import Simulation

MINUTES = 60
SCALING_AT = 12 * MINUTES + 45
"""The alert of the flash sale has started a run, which waits for its workers to join."""


@dataclass(slots=True, kw_only=True)
class Desk:
    """One scenario that stands still, asked by the real command line."""

    simulation: Simulation
    target: LocalTarget
    capture: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        code = program.main([words[0], "--local", *words[1:]])
        captured = self.capture.readouterr()
        return code, captured.out, captured.err

    def json(self, *words: str) -> Any:
        code, out, err = self.run(*words, "--json")
        assert code == ExitCode.OK, err
        return json.loads(out)


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    with Simulation(load_scenario("flash-sale"), overrides={"PRESET": "node-fleet"}) as found:
        found.deployment.run_until(found.scenario.start_at + SCALING_AT)
        yield found


@pytest.fixture
def desk(simulation: Simulation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    target = LocalTarget(simulation, "the desk")

    @contextlib.contextmanager
    def stands(scenario: str, at: str) -> Iterator[LocalTarget]:
        yield target

    monkeypatch.setattr(targets, "simulated", stands)
    monkeypatch.setenv("COLUMNS", "200")
    yield Desk(simulation=simulation, target=target, capture=capsys)
    target.services.state.clear_pause()


def test_status_shows_the_lock_the_operation_and_the_workers(desk: Desk) -> None:
    code, out, _ = desk.run("status")
    assert code == ExitCode.OK
    words = " ".join(out.split())
    assert "4 of 2 to 10" in words
    assert "held by alert-" in words
    assert "scale_up" in words and "phase verify" in words
    answer = desk.json("status")
    assert answer["state"]["operation"]["kind"] == "scale_up"
    live = {one.id for one in desk.simulation.deployment.cloud.ec2.instances() if one.state in ("pending", "running")}
    assert {one["instance_id"] for one in answer["instances"]} == live - {desk.simulation.deployment.server_id}
    machines = 2 * 0.0264 + 2 * 0.0087 + 4 * (20 * 0.096 / 730 + 0.005)
    last = desk.target.services.records.readings(0, int(desk.target.clock.now()) + 1)[-1]
    credits = 4 * 2 * max(0.0, last["cpu_percent"] - 20) / 100 * 0.05
    assert answer["usd_per_hour"] == pytest.approx(machines + credits)
    assert answer["missing"] == [] and "(prices shipped 2025-11)" in words


def test_explain_now_decides_as_a_tick_would_and_says_why_each_worker_is_eligible(desk: Desk) -> None:
    before = len(desk.simulation.deployment.cloud.recorder.changes())
    answer = desk.json("explain", "now")
    names = [check["name"] for check in rows(answer["decision"]["evidence"])]
    assert {"pending", "cpu", "memory", "cooldown"} <= set(names)
    reasons = {one["instance"]: one["reason"] for one in answer["workers"]}
    assert reasons[desk.simulation.deployment.server_id] == "it is the server"
    for worker in desk.simulation.starting_ids:
        assert worker in reasons
    changes = [
        call for call in list(desk.simulation.deployment.cloud.recorder.changes())[before:] if call.function is None
    ]
    assert {call.operation for call in changes} <= {"SendCommand"}, "explaining changes no worker"
    code, out, _ = desk.run("explain", "now")
    assert code == ExitCode.OK and "Evidence" in out and "cpu_up_percent" in out


def test_explain_a_past_run_shows_what_it_recorded(desk: Desk) -> None:
    name = next(one.name for one in desk.simulation.executions if one.status == "SUCCEEDED")
    answer = desk.json("explain", name)
    recorded = desk.target.execution(name).output_of("Decide")["decision"]
    assert answer["decision"]["sentence"] == recorded["sentence"]
    code, _, err = desk.run("explain", "run-999999")
    assert code == ExitCode.FAILED and "node-fleet history --all lists them" in err and err.count("\n") == 1


def test_explain_writes_an_execution_as_a_page(desk: Desk, tmp_path: Path) -> None:
    page = tmp_path / "new" / "run.html"
    name = next(one.name for one in desk.simulation.executions if one.status == "SUCCEEDED")
    code, out, _ = desk.run("explain", name, "--html", str(page))
    assert code == ExitCode.OK and str(page) in out.replace("\n", "")
    assert name in page.read_text(encoding="utf-8")
    code, _, err = desk.run("explain", name, "--html", "/proc/nowhere/run.html")
    assert code == ExitCode.FAILED and "name another file with --html" in err


def test_history_is_quiet_about_quiet_runs_unless_asked(desk: Desk) -> None:
    quiet = desk.json("history", "--all")
    assert len(quiet) == sum(one.status == "SUCCEEDED" for one in desk.simulation.executions)
    code, out, _ = desk.run("history")
    assert code == ExitCode.OK and f"--all lists the reasons of {len(quiet)} runs" in out
    code, out, _ = desk.run("history", "--all")
    assert code == ExitCode.OK and "Runs that changed nothing" in out and "-> no change" in out


def test_a_worker_and_a_pod_are_explained(desk: Desk) -> None:
    kept, (server, worker) = desk.json("explain", "now"), (desk.simulation.deployment.server_id, "i-0123456789abcdef0")
    for row in kept["workers"]:
        answer = desk.json("explain", row["instance"])["answer"]
        assert answer.startswith(row["instance"]) and row["reason"] in answer
    assert "kept: it is the server" in desk.json("explain", server)["answer"]
    for unknown in (worker, "i-zz"):
        assert desk.json("explain", unknown)["answer"].startswith(
            f"{unknown} is not a worker of this fleet; workers: i-"
        )
    absent = desk.json("explain", "default/absent-1")["answer"]
    assert absent.startswith("default/absent-1 is not among the pods that the scheduler found no worker for; ")


def test_a_pause_is_seen_by_the_next_run_recorded_and_ended(desk: Desk) -> None:
    answer = desk.json("pause", "--reason", "kernel <update>", "--for", "2h")
    assert answer["pause"]["until"] - answer["pause"]["since"] == 7200
    assert answer["run_in_progress"] is True
    assert "kernel <update>" in desk.json("status")["summary"]["pause"]
    events = [one for one in desk.json("history") if one["kind"] == "pause"]
    assert "kernel <update>" in events[-1]["data"]["text"]
    code, out, _ = desk.run("resume")
    assert code == ExitCode.OK and out.startswith("resumed")
    code, _, err = desk.run("resume")
    assert code == ExitCode.NOTHING_DONE and "no pause was in force" in err


def test_a_protected_worker_is_shown_recorded_and_kept_until_the_operator_ends_it(desk: Desk) -> None:
    worker = desk.simulation.starting_ids[0]
    answer = desk.json("protect", worker, "--for", "90m", "--reason", "a long <job>")
    assert answer["protection"]["until"] - answer["protection"]["since"] == 5400
    assert answer["notes"] == []
    assert f"{worker}: by" in desk.json("status")["summary"]["protected"]
    (row,) = [one for one in desk.json("explain")["workers"] if one["instance"] == worker]
    assert row["eligible"] == "no" and "it is protected by" in row["reason"] and "a long <job>" in row["reason"]
    events = [one for one in desk.json("history") if one["kind"] == "protect"]
    assert events[-1]["key"] == worker and "for 90m: a long <job>" in events[-1]["data"]["text"]
    code, out, _ = desk.run("protect", worker, "--end")
    assert code == ExitCode.OK and out == f"the protection of {worker} has ended\n"
    assert "protected" not in desk.json("status")["summary"]
    code, _, err = desk.run("protect", worker, "--end")
    assert code == ExitCode.NOTHING_DONE and f"{worker} is not protected" in err


def test_capacity_for_a_time_is_priced_confirmed_recorded_shown_and_withdrawn(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = ("scale", "+3", "--for", "2h", "--why", "a <sale>")
    monkeypatch.setattr("typer.confirm", lambda text, **_: False)
    code, out, err = desk.run(*order)
    assert code == ExitCode.NOTHING_DONE and "nothing was ordered" in err
    assert "at least 7 workers (3 more than 4) from" in out and "price: about $" in out
    assert desk.target.services.state.load().timed_minimums == ()
    monkeypatch.setattr("typer.confirm", lambda text, **_: True)
    code, out, _ = desk.run(*order)
    (first,) = desk.target.services.state.load().timed_minimums
    assert code == ExitCode.OK and f"withdraw it with: node-fleet scale --cancel {first.name}" in out
    second = desk.json("scale", "+1", "--at", "23:00", "--for", "1h", "--why", "a test", "--yes")
    assert second["order"]["workers"] == 5 and 0 < second["usd"] <= second["usd_at_most"]
    shown = desk.json("status")["summary"]["capacity for a time"]
    assert f"{second['order']['name']}: at least 5 workers from" in shown
    code, out, _ = desk.run("explain")
    assert "capacity for a time" in out and "a <sale>" in out
    events = {one["key"]: one["data"]["text"] for one in desk.json("history") if one["kind"] == "scale"}
    assert "at least 7 workers until" in events[first.name], "both have the same time, and names are random"
    code, _, err = desk.run("scale", "--cancel", "nope")
    assert code == ExitCode.NOTHING_DONE and "no order nope" in err and first.name in err
    code, out, _ = desk.run("scale", "--cancel", first.name)
    assert code == ExitCode.OK and f"withdrawn: {first.name}, 7 workers" in out
    assert [one["name"] for one in desk.json("scale", "--cancel", "all")["withdrawn"]] == [second["order"]["name"]]
    code, _, err = desk.run("scale", "--cancel", "all")
    assert code == ExitCode.NOTHING_DONE and "no order holds or will hold" in err
    assert "capacity for a time" not in desk.json("status")["summary"]
    assert len([one for one in desk.json("history") if one["kind"] == "scale"]) == 4


def test_an_order_needs_a_number_a_time_a_reason_and_a_place_among_twenty(desk: Desk) -> None:
    for words, expected in (
        ((), "how many workers?"),
        (("+1",), "for how long?"),
        (("+1", "--for", "1h"), "an order needs a reason of 1 to 200 characters, this one has 0"),
        (("+1", "--for", "1h", "--why", "x" * 201), "this one has 201"),
        (("+1", "--cancel", "all"), "--cancel stands beside other options"),
    ):
        code, _, err = desk.run("scale", *words)
        assert code == ExitCode.WRONG_USE and expected in err
    state, now = desk.target.services.state, desk.target.services.clock.now()
    full = tuple(
        TimedMinimum(name=f"o{n}", workers=3, since=now, until=now + 600, by="mira", reason="x") for n in range(20)
    )
    state.change_timed_minimums(lambda _: full)
    code, _, err = desk.run("scale", "+1", "--for", "1h", "--why", "x", "--yes")
    assert code == ExitCode.FAILED and "20 orders have not ended, which is the limit" in err
    ended = replace(full[0], since=now - 600, until=now)
    state.change_timed_minimums(lambda _: (ended, *full[1:]))
    answer = desk.json("scale", "+1", "--for", "1h", "--why", "x" * 200, "--yes")
    kept = {one.name for one in state.load().timed_minimums}
    assert kept == {*(f"o{n}" for n in range(1, 20)), answer["order"]["name"]}
    state.change_timed_minimums(lambda _: ())


def test_an_order_of_someone_else_meanwhile_stops_one_that_would_add_to_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, now = desk.target.services.state, desk.target.services.clock.now()
    rival = TimedMinimum(name="b2", workers=6, since=now, until=now + 600, by="ben", reason="x")

    def slow(text: str, **_: Any) -> bool:
        state.change_timed_minimums(lambda _: (rival,))
        return True

    monkeypatch.setattr("typer.confirm", slow)
    code, _, err = desk.run("scale", "+1", "--for", "1h", "--why", "x")
    assert code == ExitCode.NOTHING_DONE and "another order was made meanwhile; run the command again" in err
    code, _, _ = desk.run("scale", "8", "--for", "1h", "--why", "x")
    assert code == ExitCode.OK and len(state.load().timed_minimums) == 2
    state.change_timed_minimums(lambda _: ())


def test_a_protection_is_refused_for_no_worker_for_too_long_and_beyond_the_limit(desk: Desk) -> None:
    code, _, err = desk.run("protect", "i-0123456789ab")
    assert code == ExitCode.FAILED and "no worker i-0123456789ab in" in err
    code, _, err = desk.run("protect", "i-0123456789ab", "--for", "8d")
    assert code == ExitCode.WRONG_USE and "--for 8d is too long; at most 7d" in err
    state, now = desk.target.services.state, desk.target.services.clock.now()
    for number in range(20):
        state.protect(Protection(instance_id=f"i-{number}", by="mira", since=now, until=now + 600))
    code, _, err = desk.run("protect", desk.simulation.starting_ids[0])
    assert code == ExitCode.FAILED and "20 workers are protected, which is the limit" in err
    for number in range(20):
        state.end_protection(f"i-{number}")


@pytest.mark.parametrize(
    ("phase", "code", "words"),
    [
        ("draining", ExitCode.OK, "its drain has begun: the run withdraws it at its next check"),
        ("drained", ExitCode.OK, "its drain has begun"),
        ("selected", ExitCode.OK, "is protected until"),
        ("terminating", ExitCode.NOTHING_DONE, "cannot be kept: its termination has begun; nothing was changed"),
    ],
)
def test_a_protection_during_a_removal_says_what_happens_to_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, phase: TargetPhase, code: ExitCode, words: str
) -> None:
    worker = desk.simulation.starting_ids[0]
    services = desk.target.services
    real = services.state.protect
    removal = Operation(
        operation_id="down-1",
        kind="scale_down",
        phase="draining",
        started_at=0,
        requested=1,
        reason="idle",
        execution_id="x",
        targets=(Target(instance_id=worker, node_name=worker, phase=phase),),
    )
    monkeypatch.setattr(services.state, "protect", lambda order: replace(real(order), operation=removal))
    found, out, err = desk.run("protect", worker)
    assert (found, words in out + err) == (code, True), out + err
    assert bool(services.state.load().protections) is (code == ExitCode.OK)
    services.state.end_protection(worker)


def test_a_protection_of_a_worker_under_notice_says_that_aws_may_take_it(desk: Desk) -> None:
    worker, state = desk.simulation.starting_ids[0], desk.target.services.state
    state.add_notice(Notice(instance_id=worker, kind="spot", at=desk.target.services.clock.now()))
    answer = desk.json("protect", worker)
    assert answer["notes"] == [
        "it is under interruption notice: AWS may reclaim it, and it is drained and replaced as any other"
    ]
    state.drop_notice(worker)
    state.end_protection(worker)


def test_a_worker_under_notice_is_counted_again_after_the_operator_says_so(desk: Desk) -> None:
    worker = desk.simulation.starting_ids[0]
    counted = desk.json("status")["summary"]["workers"]
    notice = Notice(instance_id=worker, kind="scheduled", at=desk.target.services.clock.now() - 60)
    assert desk.target.services.state.add_notice(notice)
    assert desk.json("status")["summary"]["workers"] != counted
    answer = desk.json("resume", "--worker", worker)
    assert answer["removed"]["instance_id"] == worker
    assert desk.json("status")["summary"]["workers"] == counted
    (event,) = [one for one in desk.json("history") if one["kind"] == "notice"]
    assert f"removed the interruption notice of {worker} (scheduled, 60 s ago)" in event["data"]["text"]
    code, _, err = desk.run("resume", "--worker", worker)
    assert code == ExitCode.NOTHING_DONE and f"{worker} is under no interruption notice" in err


def test_the_circuit_breaker_is_not_closed_beside_a_run_at_work(desk: Desk) -> None:
    code, _, err = desk.run("resume", "--breaker")
    assert code == ExitCode.FAILED and "the circuit breaker was not closed" in err and "lock" in err


def test_a_run_while_the_lock_is_held_does_nothing_and_says_so(desk: Desk) -> None:
    code, out, err = desk.run("run", "--dry-run")
    assert code == ExitCode.NOTHING_DONE
    assert "AcquireLock > AlreadyScaling" in out
    assert "nothing was done: AlreadyScaling" in err


def test_unlock_shows_the_owner_and_leaves_the_lock_when_it_is_not_confirmed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    code, out, err = desk.run("unlock")
    assert code == ExitCode.NOTHING_DONE
    assert "held by alert-" in out and "open operation: scale_up, phase verify" in out
    assert "the lock was not released" in err
    assert desk.target.services.state.load().lease is not None


def test_rotate_marks_workers_after_a_question_and_status_shows_them_until_the_mark_is_removed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted(one.instance_id for one in desk.target.services.ec2.instances())[:2]
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda question, **_: bool(asked.append(question)))
    code, _, err = desk.run("rotate", first)
    assert code == ExitCode.NOTHING_DONE and "no worker was marked" in err
    assert asked == [f"Replace 1 worker, one after the other: {first}?"]
    assert desk.json("rotate", first, second, "--yes")["workers"] == [first, second]
    _, out, _ = desk.run("status")
    assert "drifted: marked for rotation by" in " ".join(out.split())
    rows = {row["instance"]: row["reason"] for row in desk.json("explain", "now")["workers"]}
    assert "drifted: marked for rotation by" in rows[first]
    assert "marked for rotation" in [one for one in desk.json("history") if one["kind"] == "rotate"][-1]["data"]["text"]
    code, _, err = desk.run("rotate", first, "--yes")
    assert code == ExitCode.NOTHING_DONE and "marked for rotation already" in err
    assert desk.json("rotate", "--undo")["workers"] == [first, second]
    _, out, _ = desk.run("status")
    assert "marked for rotation" not in out


def test_rotate_names_an_instance_that_is_no_worker_of_the_fleet(desk: Desk) -> None:
    code, _, err = desk.run("rotate", "i-0000000000000dead", "--yes")
    assert code == ExitCode.WRONG_USE
    assert "i-0000000000000dead: no worker of this fleet that runs" in err and "the workers are i-" in err


def test_a_roll_out_that_is_not_stopped_cannot_be_resumed(desk: Desk) -> None:
    code, _, err = desk.run("resume", "--roll-out")
    assert code == ExitCode.NOTHING_DONE and "no roll-out is stopped" in err


def test_doctor_finds_everything_and_names_the_fix_of_what_is_missing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = desk.json("doctor")
    assert {one["verdict"] for one in answer} <= {"ok", "warn"}
    warned = {one["name"]: one for one in answer if one["verdict"] == "warn"}
    assert list(warned) == ["CPU credits"], "AWS in the simulator has no quotas to warn of"
    assert "over a baseline of 20 % costs" in warned["CPU credits"]["saw"]
    assert warned["CPU credits"]["fix"].startswith("put t3a.small first in instance_types, which saves $")
    assert {one["name"]: one["saw"] for one in answer}["settings of costs"] == (
        "20 GiB, with public address, CPU credits unlimited"
    )
    monkeypatch.setattr(desk.simulation.deployment.transport, "fault", "unauthorized")
    code, out, err = desk.run("doctor", "--token-secret", "no/such")
    assert code == ExitCode.FAILED
    assert "2 of 17 checks failed" in err
    assert "secret no/such cannot be read" in out and "put-secret-value --secret-id no/such" in out.replace("\n", "")


def test_cost_adds_up_line_by_line(desk: Desk) -> None:
    answer = desk.json("cost", "--fixed", "5")
    cpu, beside = answer["cpu_percent"], 20 * 0.096 / 730 + 0.005
    credits = 4 * 2 * max(0.0, cpu - 20) / 100 * 0.05
    assert cpu > 20
    assert answer["workers_usd_per_month"] == pytest.approx((2 * 0.0264 + 2 * 0.0087 + 4 * beside + credits) * 730)
    fixed_credits = 5 * 2 * max(0.0, cpu * 4 / 5 - 20) / 100 * 0.05
    assert answer["fixed_usd_per_month"] == pytest.approx((5 * (0.0264 + beside) + fixed_credits) * 730)
    assert {one["basis"] for one in answer["workers"]} >= {"shipped 2025-11"}
    server = {one["name"]: one["usd"] for one in answer["server"]}
    assert server["t3.medium: instance, on-demand"] == pytest.approx(0.0528 * 730)
    assert server["t3.medium: CPU credits"] is None
    assert answer["missing"] == ["the CPU credits of t3.medium, whose CPU is not measured"]
    total = answer["workers_usd_per_month"] + answer["control_plane_usd_per_month_after_free_tier"]
    assert answer["saved_percent"] == pytest.approx(100 * (1 - total / answer["fixed_usd_per_month"]))
    lines = answer["control_plane"]
    assert answer["control_plane_usd_per_month"] == pytest.approx(sum(one["usd"] for one in lines))
    assert answer["control_plane_usd_per_month_after_free_tier"] == pytest.approx(
        sum(one["usd_after_free"] for one in lines)
    )
    found = {one["name"]: one["quantity"] for one in lines}
    assert (found["CloudWatch alarms"], found["CloudWatch dashboards"]) == (
        10,
        1,
    )  # one of the nine alarms has two metrics
    assert "NAT gateway (off by default)" not in found
    assert answer["control_plane_usd_per_month_after_free_tier"] < 10
    assert found["CloudWatch requests of Grafana"] == 20 * 120 * metrics_of_a_page()
    code, out, _ = desk.run("cost", "--grafana-hours", "0")
    assert code == ExitCode.OK and "Step Functions" in out and "always-free" in out and "Grafana" not in out
    assert "the K3s server costs at least $" in " ".join(out.split())
    assert "Not counted, because no reading has them: data between zones" in " ".join(out.split())


def test_cost_prices_the_chosen_headroom(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    services = desk.target.services
    assert desk.json("cost")["headroom_usd_per_month"] == 0
    monkeypatch.setattr(services, "settings", replace(services.settings, headroom_workers=2))
    answer, beside = desk.json("cost"), 20 * 0.096 / 730 + 0.005
    share = services.settings.spot_percent / 100
    expected = 2 * (share * 0.0087 + (1 - share) * 0.0264 + beside) * 730
    assert answer["headroom_workers"] == 2
    assert answer["headroom_usd_per_month"] == pytest.approx(expected)
    _, out, _ = desk.run("cost")
    assert f"The chosen headroom, 2 workers that are kept free, costs ${expected:.2f} a month" in " ".join(out.split())


def test_types_lists_the_choices_first_and_why_the_others_are_none(desk: Desk) -> None:
    listed = {one["instance_type"]: one for one in desk.json("types", "c7i.large", "--memory", "4-8")["types"]}
    assert (listed["t3.medium"]["excluded"], listed["t3.small"]["excluded"]) == ("", "2 GiB, under 4")
    assert listed["t3.medium"]["spot"] == {"": 0.0174}
    assert listed["c7i.large"]["excluded"] == "no price in ap-southeast-1"
    code, out, _ = desk.run("types")
    assert code == ExitCode.OK and "Prices: shipped 2025-11" in " ".join(out.split())


def test_the_counted_use_of_a_quiet_run_is_what_the_cost_command_multiplies(desk: Desk) -> None:
    found = counted(desk.simulation).profiles["quiet"]
    known = PROFILES["quiet"]
    assert found.transitions == pytest.approx(known.transitions, rel=0.05)
    assert found.invocations == pytest.approx(known.invocations, rel=0.05)
    assert found.gb_seconds == pytest.approx(known.gb_seconds, rel=0.25)
    assert found.write_units == pytest.approx(known.write_units, rel=0.4)
    assert found.log_kb == pytest.approx(known.log_kb, rel=0.4)


def test_against_aws_the_settings_and_histories_come_from_what_is_deployed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = desk.simulation.deployment.cloud.lambdas.environment_of(
        next(iter(desk.simulation.deployment.resources.functions.values()))
    )
    monkeypatch.setattr(Deployed, "_environment", lambda self, cluster: environment)
    deployed = Deployed("node-fleet-prod", desk.simulation.deployment.cloud.region)
    assert deployed.services.settings.max_workers == 10
    wanted = next(one for one in desk.simulation.executions if one.status == "SUCCEEDED")
    found = deployed.execution(wanted.name)
    assert (found.path, found.status, found.input) == (wanted.path, wanted.status, wanted.input)
    assert found.output == wanted.output
    assert deployed.services.state.load() == desk.target.services.state.load()
    with pytest.raises(targets.CommandError, match="no execution run-999999"):
        deployed.execution("run-999999")


def test_unlock_frees_exactly_that_lock_and_records_it(desk: Desk) -> None:
    """Last: it takes the lock from the run that the other tests look at."""
    answer = desk.json("unlock", "--yes")
    assert answer["released"]["owner"].rsplit(":", 1)[-1].startswith("alert-")
    assert desk.target.services.state.load().lease is None
    assert "unlocked by" in [one for one in desk.json("history") if one["kind"] == "unlock"][-1]["data"]["text"]
    code, _, err = desk.run("unlock", "--yes")
    assert code == ExitCode.NOTHING_DONE and "the lock is free" in err


def test_a_paused_fleet_ends_a_run_with_nothing_done(desk: Desk) -> None:
    now = desk.target.services.clock.now()
    desk.target.services.state.set_pause(Pause(reason="x", by="mira", since=now, until=now + 600))
    code, out, err = desk.run("run")
    assert code == ExitCode.NOTHING_DONE
    assert "AcquireLock > Paused" in out and "nothing was done: Paused" in err


def rows(table: Any) -> list[dict[str, Any]]:
    """Records, whether the codec wrote them as a table or as a list."""
    if isinstance(table, dict):
        return table_rows(table)
    return list(table)
