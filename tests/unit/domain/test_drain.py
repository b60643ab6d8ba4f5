"""What an answer means: every SSM status has one next step and one sentence, and unknown is never success."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.budget import Budget
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target, TargetPhase
from node_fleet.domain.model.run import Alert
from node_fleet.domain.scale_down.drain import (
    CommandResult,
    DrainLimits,
    DrainVerdict,
    after_target,
    alert_once,
    closing_budget,
    describe_own_pods,
    drain_failed_alert,
    judge_check,
    judge_drain,
    moved,
    removals_paused_alert,
    undone_sentence,
)
from node_fleet.domain.scale_down.inspection import NodeCheck
from node_fleet.domain.scale_down.termination import judge_termination, must_stay_open, removal_sentence

NODE = "i-0123456789abcdef0"
LIMITS = DrainLimits(drain_seconds=300, delivery_seconds=30)
SENT = 1_000_000
TARGET = Target(instance_id=NODE, node_name=NODE, phase="draining", command_id="c-1", started_at=SENT)
WHOLE = f"evicting pod shop/web-1\nnode/{NODE} drained\nresult: drained {NODE}\n"
PDB = (
    'error when evicting pods/"web-1" -n "shop" (will retry after 5s): '
    "Cannot evict pod as it would violate the pod's disruption budget."
)


def answer(status: str, code: int = -1, stdout: str = "", stderr: str = "") -> CommandResult:
    final = status not in ("Pending", "InProgress", "Delayed", "Cancelling", "InvocationDoesNotExist")
    known = status in ("Success", "Failed")
    return CommandResult(status=status, exit_code=code, stdout=stdout, stderr=stderr, final=final, known=known)


TABLE = [
    # what SSM answers, seconds after it was sent -> drain.status, words the operator reads
    (answer("InvocationDoesNotExist"), 5, "waiting", "SSM does not show the command yet"),
    (answer("InvocationDoesNotExist"), 30, "waiting", "SSM does not show the command yet."),
    (answer("InvocationDoesNotExist"), 31, "waiting", "yet after 31 s"),
    (answer("InvocationDoesNotExist"), 421, "failed", "outcome unknown: not finished after 421 s"),
    (answer("Pending"), 10, "waiting", "SSM status Pending"),
    (answer("Delayed"), 10, "waiting", "SSM status Delayed"),
    (answer("InProgress"), 420, "waiting", "draining for 420 s"),
    (answer("InProgress"), 421, "failed", "the command is cancelled"),
    (answer("Cancelling"), 10, "waiting", "SSM status Cancelling"),
    (answer("ExecutionTimedOut"), 361, "failed", "outcome unknown: SSM status ExecutionTimedOut"),
    (answer("DeliveryTimedOut"), 31, "failed", "outcome unknown: SSM status DeliveryTimedOut"),
    (answer("Undeliverable"), 31, "failed", "outcome unknown: SSM status Undeliverable"),
    (answer("Cancelled"), 31, "failed", "outcome unknown: SSM status Cancelled"),
    (answer("Terminated"), 31, "failed", "outcome unknown: SSM status Terminated"),
    (answer("Success", 0, WHOLE), 31, "drained", "kubectl reports it drained"),
    (answer("Success", 0, WHOLE[:30]), 31, "failed", f"lacks the line node/{NODE} drained"),
    (answer("Success", 0, f"node/{NODE} drained, almost"), 31, "failed", "outcome unknown"),
    (answer("Success", 0, f"node/{NODE}9 drained"), 31, "failed", "outcome unknown"),
    (answer("Success", 1, "result: drain-failed free", PDB), 31, "failed", "blocked_by_pdb: shop/web-1"),
    (answer("Failed", 1, "result: drain-failed blocked shop/web-1:p=web 0"), 31, "failed", "shop/web-1 (budget web)"),
    (answer("Failed", 1, "", 'error: pods "x" is forbidden: User "a" cannot'), 31, "failed", "RBAC: "),
    (answer("Failed", 1, "", "error: global timeout reached: 5m0s"), 31, "failed", "global timeout reached"),
    (answer("Failed", 1), 31, "failed", "no error text"),
    (answer("Failed", 1, "result: not-restarted no second pod"), 31, "failed", "was evicted: no second pod"),
    (answer("Failed", 65, "result: too-late it may"), 31, "failed", "too late and changed nothing"),
    (answer("Failed", 66, f"result: no-node {NODE}"), 31, "skipped", "its node does not exist"),
    (answer("Failed", 67, "result: foreign-cordon -"), 31, "skipped", "another user or operation cordoned it"),
    (
        answer("Failed", 68, "result: blocked shop/db-0:s 0"),
        31,
        "blocked",
        "a pod that must not be moved was scheduled on it",
    ),
    (answer("Failed", 69, "result: unreadable the node"), 31, "failed", "could not read the cluster"),
    (answer("Failed", 70, "result: undone x"), 31, "skipped", "rolled back"),
    (answer("Failed", 75, "result: busy x"), 31, "failed", "another command works on that node"),
]


@pytest.mark.parametrize(("more", "detail"), [("", ""), (" web-1", ": web-1")])
def test_the_words_of_an_answer_end_with_its_detail(more: str, detail: str) -> None:
    verdict = judge_drain(answer("Failed", 75, f"result: busy{more}"), TARGET, LIMITS, SENT + 31)
    assert verdict.detail == f"another command works on that node{detail}"


def alert_of(verdict: DrainVerdict) -> str:
    """The kind of alert that belongs to the sentence."""
    if verdict.status != "failed" or any(verdict.detail.startswith(text) for text in WITHOUT_ALERT):
        return ""
    kinds = {"outcome unknown": "drain_unknown", "RBAC": "rbac"}
    return kinds.get(verdict.detail.partition(":")[0], "drain_failed")


WITHOUT_ALERT = ("the command reached", "another command", "the server could not", "no pod of it")
"""The server evicted nothing: UndoDrain reports the failure."""


@pytest.mark.parametrize(("result", "waited", "status", "words"), TABLE)
def test_each_answer_of_ssm_has_its_next_state_and_its_sentence(
    result: CommandResult, waited: int, status: str, words: str
) -> None:
    verdict = judge_drain(result, TARGET, LIMITS, SENT + waited)
    assert (verdict.status, words in f"{verdict.detail}.") == (status, True), verdict
    assert verdict.alert == alert_of(verdict)


@given(
    status=st.sampled_from(["Pending", "TimedOut", "Undeliverable", "Failed", "Success", "Cancelled", "Odd"]),
    code=st.integers(-1, 255),
    stdout=st.text(max_size=80),
    waited=st.integers(0, 2000),
)
def test_only_success_with_code_0_and_the_exact_line_is_ever_drained(
    status: str, code: int, stdout: str, waited: int
) -> None:
    verdict = judge_drain(answer(status, code, stdout), TARGET, LIMITS, SENT + waited)
    proven = status == "Success" and code == 0 and f"node/{NODE} drained" in stdout.splitlines()
    assert (verdict.status == "drained") is proven


@pytest.mark.parametrize(("drain", "delivery"), [(300, 30), (30, 60), (3600, 45)])
def test_the_limits_nest(drain: int, delivery: int) -> None:
    limits = DrainLimits(drain_seconds=drain, delivery_seconds=delivery)
    assert (limits.execution_seconds, limits.state_seconds) == (drain + 60, drain + delivery + 90)
    assert limits.not_after(SENT) == SENT + delivery + 30 < SENT + limits.state_seconds


@pytest.mark.parametrize(
    ("result", "succeeded"),
    [
        (answer("Success", 0, "x" * 23_999), True),
        (answer("Success", 0, "x" * 24_000), False),
        (answer("Success", 1), False),
        (answer("Cancelled", 0), False),
    ],
    ids=["whole", "cut", "another exit code", "not ended by itself"],
)
def test_a_command_has_succeeded_when_it_ended_by_itself_with_whole_output(
    result: CommandResult, succeeded: bool
) -> None:
    assert result.succeeded is succeeded


def test_the_last_result_of_a_command_counts() -> None:
    twice = answer("Success", 0, "result: busy x\nresult: drained i-1 at once\nmore")
    assert (twice.word, twice.detail, twice.answer) == ("drained", "i-1 at once", "drained i-1 at once")
    assert (answer("TimedOut").word, answer("TimedOut").answer) == ("", "SSM status TimedOut")
    assert answer("Success", 0, "result: undone").answer == "undone"


@pytest.mark.parametrize(("ago", "is_new"), [(None, True), (0, False), (599, False), (600, True)])
def test_an_alert_is_sent_again_when_its_cause_was_absent_for_the_quiet_time(ago: int | None, is_new: bool) -> None:
    alert, other = Alert(kind="rbac", text="t"), {"other": 1}
    memory = Memory(alerted=other if ago is None else {**other, "rbac": SENT - ago})
    after, sent = alert_once(memory, alert, SENT, 600)
    assert (after.alerted, sent) == ({**other, "rbac": SENT}, (alert,) if is_new else ())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ""),
        ("own-pods: 1 shop/web-1", "1 pod of this worker found no place on another one, such as shop/web-1"),
        ("x\nown-pods: 3 shop/web-1\ny", "3 pods of this worker found no place on another one, such as shop/web-1"),
        ("own-pods: many shop/web-1", ""),
    ],
)
def test_the_own_pods_of_a_drained_worker_are_counted_and_one_is_named(text: str, sentence: str) -> None:
    assert describe_own_pods(answer("Success", 0, text)) == sentence


def test_the_sentences_of_a_drain_that_did_not_end() -> None:
    assert undone_sentence(TARGET, "uncordoned", "") == f"node {NODE} is uncordoned: the drain did not end"
    assert undone_sentence(TARGET, "odd", "paused") == f"node {NODE} is unchanged: paused"
    failed = drain_failed_alert(TARGET, "drain_failed", "why", 600)
    assert failed.kind == f"drain_failed:{NODE}" and "no run drains it again for 10 min: why" in failed.text
    assert "removes no worker for 16 h;" in removals_paused_alert("why", 57_600).text


def look(**changed: object) -> NodeCheck:
    fields: dict[str, object] = {
        "known": True,
        "present": True,
        "instance_id": NODE,
        "cordoned": True,
        "cordoned_by": "down-1",
        "ready": True,
    }
    return NodeCheck(**{**fields, **changed})  # type: ignore[arg-type]


LOOKS = [
    (look(), False, 10, "drained"),
    (look(pods_left=1), False, 420, "waiting"),
    (look(pods_left=1), False, 421, "failed"),
    (look(pods_left=1, pods_terminating=1), False, 421, "failed"),
    (look(cordoned=False), False, 10, "failed"),
    (look(cordoned_by=""), False, 10, "failed"),
    (look(cordoned_by="down-2"), False, 10, "failed"),
    (look(instance_id="i-0aaaaaaaaaaaaaaaa"), False, 10, "failed"),
    (look(instance_id=""), False, 10, "failed"),
    (look(present=False), False, 10, "skipped"),
    (look(known=False), False, 420, "waiting"),
    (look(known=False), False, 421, "failed"),
    (look(ready=False, pods_left=2, pods_terminating=2), True, 10, "drained"),
    (look(ready=False, pods_left=2, pods_terminating=1), True, 10, "waiting"),
    (look(ready=True, pods_left=2, pods_terminating=2), True, 10, "waiting"),
    (look(ready=False, pods_left=2, pods_terminating=2), False, 10, "waiting"),
]


@pytest.mark.parametrize(("seen", "dead", "waited", "status"), LOOKS)
def test_only_an_empty_node_under_our_cordon_is_drained(seen: NodeCheck, dead: bool, waited: int, status: str) -> None:
    verdict = judge_check(seen, TARGET, "down-1", dead=dead, waited=waited, limit=420)
    is_unknown = not seen.known and waited > 420
    assert (verdict.status, verdict.alert) == (status, "drain_unknown" if is_unknown else "")
    assert verdict.detail


@pytest.mark.parametrize(("instance_id", "owner"), [("i-0a", "instance i-0a"), ("", "no instance")])
def test_a_node_of_another_instance_is_reported_with_its_owner(instance_id: str, owner: str) -> None:
    verdict = judge_check(look(instance_id=instance_id), TARGET, "down-1", dead=False, waited=1, limit=420)
    assert verdict.detail == f"node {TARGET.node_name} belongs to {owner}"


@pytest.mark.parametrize("lost", [1, 2, 9])
def test_pods_lost_with_a_dead_node_are_told(lost: int) -> None:
    seen = look(ready=False, pods_left=lost, pods_terminating=lost)
    verdict = judge_check(seen, TARGET, "down-1", dead=True, waited=1, limit=420)
    assert f"drained with loss: {lost} pod" in verdict.detail


TERMINATIONS = [
    ("shutting-down", False, 10, "waiting", None),
    ("shutting-down", False, 600, "waiting", None),
    ("shutting-down", False, 601, "set_aside", "set_aside"),
    ("stopping", False, 601, "set_aside", "set_aside"),
    ("terminated", False, 10, "terminated", "terminated"),
    ("gone", False, 10, "terminated", "terminated"),
    ("terminated", True, 10, "waiting", None),
    ("terminated", True, 600, "waiting", None),
    ("terminated", True, 601, "terminated", "terminated"),
    ("running", False, 60, "waiting", None),
    ("running", False, 61, "not_terminated", "drained"),
    ("pending", False, 61, "not_terminated", "drained"),
    ("stopped", False, 600, "waiting", None),
    ("stopped", False, 601, "set_aside", "set_aside"),
]


@pytest.mark.parametrize(("ec2", "ready", "waited", "status", "phase"), TERMINATIONS)
def test_a_node_is_forgotten_only_after_its_machine_is_gone(
    ec2: str, ready: bool, waited: int, status: str, phase: str | None
) -> None:
    verdict = judge_termination(ec2, still_ready=ready, waited=waited, limit=600, standby=False)
    assert (verdict.status, verdict.phase) == (status, phase)


def operation(*phases: TargetPhase) -> Operation:
    return Operation(
        operation_id="down-1",
        kind="scale_down",
        phase="draining",
        started_at=SENT,
        requested=len(phases),
        reason="idle",
        execution_id="e",
        targets=tuple(Target(instance_id=f"i-{n}", node_name=f"i-{n}", phase=p) for n, p in enumerate(phases)),
        workers_before=5,
    )


@pytest.mark.parametrize(
    ("phases", "where"),
    [
        (("selected",), "target"),
        (("forgotten",), "done"),
        (("undone",), "failed"),
        (("skipped", "selected"), "target"),
        (("forgotten", "undone"), "done"),
        (("skipped", "undone"), "failed"),
        (("forgotten", "draining"), "target"),
    ],
)
def test_the_loop_goes_on_while_somebody_is_left(phases: tuple[TargetPhase, ...], where: str) -> None:
    assert after_target(operation(*phases)) == where


@pytest.mark.parametrize(
    ("phases", "stays"),
    [
        (("terminating",), True),
        (("forgotten", "terminated"), True),
        (("draining",), False),
        (("drained",), False),
        (("set_aside", "skipped"), False),
        (("undone", "skipped"), False),
    ],
)
def test_only_a_termination_that_has_begun_stays_open(phases: tuple[TargetPhase, ...], stays: bool) -> None:
    assert must_stay_open(operation(*phases)) is stays


def test_progress_is_recorded_for_the_current_target_alone() -> None:
    begun = moved(operation("forgotten", "selected", "selected"), "draining", SENT + 5, detail="x", command_id="c-9")
    assert [t.phase for t in begun.targets] == ["forgotten", "draining", "selected"]
    assert (begun.targets[1].started_at, begun.targets[1].command_id, begun.phase_at) == (SENT + 5, "c-9", SENT + 5)
    after = moved(begun, "drained", SENT + 60)
    kept = after.targets[1]
    assert (kept.started_at, kept.command_id, kept.detail) == (SENT + 5, "c-9", "x")
    assert [moved(after, phase, SENT).phase for phase in ("terminating", "terminated", "forgotten")] == [
        "terminating",
        "forgetting",
        "draining",
    ]
    assert moved(after, "terminating", SENT, command_id="").targets[1].command_id == ""
    assert moved(operation("undone"), "draining", SENT) == operation("undone")


def test_the_sentence_names_every_target_and_the_counts() -> None:
    text = removal_sentence(operation("forgotten", "undone"), 4)
    assert text.startswith("removed 1 of 2 workers; 5 -> 4 workers: i-0")
    assert "i-1 (, on-demand): undone" in text


def test_the_sentence_leaves_out_a_count_that_is_not_known() -> None:
    assert removal_sentence(operation("forgotten", "undone"), None).startswith("removed 1 of 2 workers: i-0")


class TestClosingBudget:
    """At the start of its drain a worker must still be one that the budgets allow."""

    def found(self, nodes: str, *, workers: int = 10, **target: Any) -> str:
        operation = Operation(
            operation_id="down-1", kind="scale_down", phase="draining", started_at=SENT, requested=1, reason="idle",
            execution_id="e", targets=(replace(TARGET, **target),), workers_before=workers, phase_at=SENT,
        )  # fmt: skip
        return closing_budget(operation, operation.targets[0], (Budget(nodes=nodes),), SENT)

    @pytest.mark.parametrize(("nodes", "workers"), [("1", 10), ("1", 0), ("10%", 1), ("10%", 0)])
    def test_one_worker_that_the_budget_allows_is_drained(self, nodes: str, workers: int) -> None:
        assert self.found(nodes, workers=workers) == ""

    def test_a_budget_of_none_is_named_unless_the_worker_was_not_ready_for_long(self) -> None:
        assert self.found("0") == "at most 0 workers"
        assert self.found("0", not_ready=True) == ""
