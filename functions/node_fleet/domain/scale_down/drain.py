"""What the result of a command, of a drain and of the check after it means for the target of a scale-down.

An unknown outcome is never success. Commands are sent and cancelled by adapters/server.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from node_fleet.domain.disruption.budgets import allowed
from node_fleet.domain.model.budget import Budget
from node_fleet.domain.model.drain_limits import DrainLimits
from node_fleet.domain.model.hibernation import Times
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import DownPhase, Operation, Target, TargetPhase
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.text import count_of, span
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_down.inspection import NodeCheck
from node_fleet.domain.scale_down.lost_volumes import LostVolume, parse_lost_volumes

DrainStatus = Literal["waiting", "drained", "failed", "blocked", "withdrawn", "skipped"]

NOT_SHOWN_SECONDS = 30
"""For this long after a command was sent SSM may answer InvocationDoesNotExist."""

OUTPUT_LIMIT = 24_000
"""GetCommandInvocation cuts longer output."""

_RESULT = re.compile(r"^result: (?P<word>[a-z-]+) ?(?P<detail>.*)$", re.MULTILINE)
_BUDGET = re.compile(r"(?P<pod>[^\s,:]+):[pt]=(?P<budget>\S+?)[,\s]")
_REFUSED_POD = re.compile(r'pods?/"(?P<pod>[^"]+)" -n "(?P<namespace>[^"]+)"[^\n]*disruption budget')
_OWN_PODS = re.compile(r"^own-pods: (?P<count>[0-9]{1,6}) (?P<pod>[a-z0-9./-]{1,320})$", re.MULTILINE)
_FORBIDDEN = re.compile(r"forbidden", re.IGNORECASE)
_WORDS: dict[str, tuple[DrainStatus, str]] = {
    "no-node": ("skipped", "its node does not exist"),
    "foreign-cordon": ("skipped", "another user or operation cordoned it meanwhile"),
    "undone": ("skipped", "this operation was rolled back on that node before"),
    "blocked": ("blocked", "a pod that must not be moved was scheduled on it"),
    "too-late": ("failed", "the command reached the server too late and changed nothing"),
    "not-restarted": ("failed", "no pod of it was evicted"),
    "busy": ("failed", "another command works on that node"),
    "unreadable": ("failed", "the server could not read the cluster"),
    "bad-parameter": ("failed", "the server refused the command's parameters"),
}


@value_class
class CommandResult:
    """The state of a command on the server. exit_code is -1 while there is none.

    final: SSM will not change its answer. known: the script ran to its end, so exit code and output are meaningful.
    """

    status: str
    exit_code: int = -1
    stdout: str = ""
    stderr: str = ""
    final: bool = False
    known: bool = False
    command_id: str = ""

    @property
    def succeeded(self) -> bool:
        """True when it ended by itself with exit status 0 and its output is complete."""
        return self.known and self.exit_code == 0 and len(self.stdout) < OUTPUT_LIMIT

    @property
    def word(self) -> str:
        """The first word of the script's last "result:" line; empty when there is none."""
        return self._last_line()[0]

    @property
    def detail(self) -> str:
        """The text after the first word of the script's last "result:" line."""
        return self._last_line()[1]

    @property
    def volumes(self) -> tuple[LostVolume, ...]:
        """The volumes that the script printed."""
        return parse_lost_volumes(self.stdout)

    @property
    def answer(self) -> str:
        """Word and detail for an error message; SSM's status when the script printed no result."""
        return f"{self.word} {self.detail}".strip() or f"SSM status {self.status}"

    def _last_line(self) -> tuple[str, str]:
        found = list(_RESULT.finditer(self.stdout))
        return (found[-1]["word"], found[-1]["detail"]) if found else ("", "")


@value_class
class DrainVerdict:
    """The state of a drain and one sentence about it. alert: the kind of alert to send, if any."""

    status: DrainStatus
    detail: str
    alert: str = ""


def judge_drain(result: CommandResult, target: Target, limits: DrainLimits, now: int) -> DrainVerdict:
    """What SSM's answer about a drain command means. "drained" must be confirmed by a check of the node."""
    waited = now - target.started_at
    if not result.final:
        return _unfinished(result, waited, limits)
    if not result.known:
        text = f"outcome unknown: SSM status {result.status}; the command is cancelled and the node is uncordoned"
        return DrainVerdict(status="failed", detail=text, alert="drain_unknown")
    if result.exit_code == 0:
        return _successful(result, target)
    return _unsuccessful(result)


def judge_check(
    check: NodeCheck, target: Target, operation_id: str, *, dead: bool, waited: int, limit: int
) -> DrainVerdict:
    """What the check of a node after its drain means: only an empty node under the operation's cordon is drained.

    dead: the worker was NotReady for long; terminating pods whose end cannot be confirmed count as lost, not as left.
    """
    over = waited > limit
    if not check.known:
        return DrainVerdict(
            status="failed" if over else "waiting",
            detail=check.detail or "the check of the node has no answer",
            alert="drain_unknown" if over else "",
        )
    if not check.present:
        return DrainVerdict(status="skipped", detail="its node does not exist")
    if check.instance_id != target.instance_id:
        owner = f"instance {check.instance_id}" if check.instance_id else "no instance"
        return DrainVerdict(status="failed", detail=f"node {target.node_name} belongs to {owner}")
    if not check.cordoned or check.cordoned_by != operation_id:
        return DrainVerdict(status="failed", detail="its cordon was removed while it was drained")
    lost = check.pods_terminating if dead and not check.ready else 0
    if check.pods_left > lost:
        text = f"{count_of(check.pods_left, 'pod')} still terminating on it"
        return DrainVerdict(status="failed" if over else "waiting", detail=text)
    if lost:
        text = f"drained with loss: {count_of(lost, 'pod')} lost with the dead node"
        return DrainVerdict(status="drained", detail=text)
    return DrainVerdict(status="drained", detail="it is empty")


def moved(
    operation: Operation, phase: TargetPhase, now: int, *, detail: str = "", command_id: str | None = None
) -> Operation:
    """The operation with its current target in a new phase; unchanged when there is none left."""
    target = operation.current
    if target is None:
        return operation
    changed = replace(
        target,
        phase=phase,
        detail=detail or target.detail,
        command_id=target.command_id if command_id is None else command_id,
        started_at=now if phase == "draining" and target.phase == "selected" else target.started_at,
    )
    return replace(operation.with_target(changed), phase=_DOWN_PHASE.get(phase, operation.phase), phase_at=now)


def closing_budget(operation: Operation, target: Target, budgets: Sequence[Budget], now: int) -> str:
    """The budget that forbids to begin this drain, because its window closed after the decision; empty without one.

    A drain that has begun is finished. A worker that is NotReady for long asks no budget.
    """
    if target.not_ready or operation.hibernate:  # the times off are windows of their own
        return ""
    workers = max(operation.workers_before, len(operation.targets))
    found = allowed(budgets, operation.budget_reason, now=now, workers=workers, disrupted=0)
    return "" if found.number else found.budget


def to_be_on(times: Times, operation: Operation, now: int) -> str:
    """Why the fleet is not to be switched off any more; empty while it is."""
    if not operation.hibernate or times.stays_off(now):
        return ""
    order = times.order
    by = f", ordered by {order.by}" if order and order.kind == "wake" and order.is_active(now) else ""
    return f"the fleet is to be on{by}"


def left_for_later(times: Times, operation: Operation, limit_seconds: int, now: int) -> str:
    """Why the rest of the workers of a fleet that is switched off is not drained in this run; empty otherwise."""
    if operation.hibernate and now - operation.started_at > limit_seconds:
        return "left for the next run"
    return to_be_on(times, operation, now)


def after_target(operation: Operation) -> str:
    """The next step of the loop over targets: "target", "done" when one was removed or rebooted, "failed" when none.

    "end" instead of "target": the next one is ended without a drain.
    """
    if operation.current is not None:
        return "end" if operation.hibernate == "end" else "target"
    return "done" if operation.removed or operation.rebooted else "failed"


def alert_once(memory: Memory, alert: Alert, now: int, quiet_seconds: int) -> tuple[Memory, tuple[Alert, ...]]:
    """The alert, unless its cause was present within the quiet time; and the memory that records the cause."""
    known = now - memory.alerted.get(alert.kind, -quiet_seconds) < quiet_seconds
    return replace(memory, alerted={**memory.alerted, alert.kind: now}), () if known else (alert,)


def alert_again(memory: Memory, alert: Alert, now: int, every_seconds: int) -> tuple[Memory, tuple[Alert, ...]]:
    """The same for a cause that is reported again after every_seconds for as long as it lasts."""
    if now - memory.alerted.get(alert.kind, -every_seconds) < every_seconds:
        return memory, ()
    return replace(memory, alerted={**memory.alerted, alert.kind: now}), (alert,)


def describe_own_pods(result: CommandResult) -> str:
    """The pods of the drained worker that found no other place, in the answer of its rollback; empty when all did."""
    found = _OWN_PODS.search(result.stdout)
    if found is None:
        return ""
    pods = count_of(int(found["count"]), "pod")
    return f"{pods} of this worker found no place on another one, such as {found['pod']}"


def undone_sentence(target: Target, word: str, why: str) -> str:
    """What UndoDrain did about one node; word: the first word of the server's answer."""
    did = {
        "uncordoned": "is uncordoned",
        "not-cordoned": "was not cordoned",
        "foreign-cordon": "stays cordoned by another user or operation",
        "no-node": "does not exist",
    }.get(word, "is unchanged")
    return f"node {target.node_name} {did}: {why or 'the drain did not end'}"


def drain_failed_alert(target: Target, kind: str, why: str, seconds: int) -> Alert:
    """One worker could not be drained and is in back-off."""
    text = f"worker {target.instance_id} could not be drained; no run drains it again for {span(seconds)}: {why}"
    return Alert(kind=f"{kind}:{target.instance_id}", text=text)


def removals_paused_alert(why: str, seconds: int) -> Alert:
    """EC2 refuses for good to terminate a worker. It would refuse the next one too, so every removal pauses."""
    text = (
        f"EC2 refuses to terminate workers: {why}. The worker is uncordoned, and node-fleet removes no worker for "
        f"{span(seconds)}; it launches workers as before. Turn termination protection off, or fix the permission "
        "that EC2 names, then run: node-fleet resume --breaker"
    )
    return Alert(kind="termination_refused", text=text)


_DOWN_PHASE: dict[str, DownPhase] = {
    "selected": "draining",
    "draining": "draining",
    "drained": "draining",
    "terminating": "terminating",
    "terminated": "forgetting",
}


def _unfinished(result: CommandResult, waited: int, limits: DrainLimits) -> DrainVerdict:
    if waited > limits.state_seconds:
        text = f"outcome unknown: not finished after {waited} s, SSM status {result.status}; the command is cancelled"
        return DrainVerdict(status="failed", detail=text, alert="drain_unknown")
    if result.status == "InvocationDoesNotExist":
        late = "" if waited <= NOT_SHOWN_SECONDS else f" after {waited} s"
        return DrainVerdict(status="waiting", detail=f"SSM does not show the command yet{late}")
    return DrainVerdict(status="waiting", detail=f"draining for {waited} s, SSM status {result.status}")


def _successful(result: CommandResult, target: Target) -> DrainVerdict:
    if f"node/{target.node_name} drained" in result.stdout.splitlines():
        return DrainVerdict(status="drained", detail="kubectl reports it drained")
    text = f"outcome unknown: the answer lacks the line node/{target.node_name} drained, so it was cut"
    return DrainVerdict(status="failed", detail=text, alert="drain_unknown")


def _unsuccessful(result: CommandResult) -> DrainVerdict:
    if result.word in _WORDS:
        status, text = _WORDS[result.word]
        return DrainVerdict(status=status, detail=f"{text}: {result.detail}" if result.detail else text)
    if found := _BUDGET.search(result.detail + " "):
        text = f"blocked_by_pdb: {found['pod']} (budget {found['budget']})"
    elif refused := _REFUSED_POD.search(result.stderr):
        text = f"blocked_by_pdb: {refused['namespace']}/{refused['pod']}"
    elif _FORBIDDEN.search(result.stderr):
        return DrainVerdict(status="failed", detail=f"RBAC: {_last_line(result.stderr)}", alert="rbac")
    else:
        text = f"kubectl drain ended with exit code {result.exit_code}: {_last_line(result.stderr) or 'no error text'}"
    return DrainVerdict(status="failed", detail=text, alert="drain_failed")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else ""
