"""What the answer of a drain, of a look at the node and of a command means, and what becomes of the target.

An outcome that is not known is never success. Sending, cancelling and looking are the adapters' business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import DownPhase, Operation, Target, TargetPhase
from node_fleet.domain.model.run import Alert
from node_fleet.domain.scale_down.inspection import NodeCheck

DrainStatus = Literal["waiting", "drained", "failed", "blocked", "withdrawn", "skipped"]

NOT_SHOWN_SECONDS = 30
"""SSM may answer InvocationDoesNotExist that long after a command was sent."""

OUTPUT_LIMIT = 24_000
"""GetCommandInvocation cuts longer output."""

_RESULT = re.compile(r"^result: (?P<word>[a-z-]+) ?(?P<detail>.*)$", re.MULTILINE)
_BUDGET = re.compile(r"(?P<pod>[^\s,:]+):[pt]=(?P<budget>\S+?)[,\s]")
_REFUSED_POD = re.compile(r'pods?/"(?P<pod>[^"]+)" -n "(?P<namespace>[^"]+)"[^\n]*disruption budget')
_FORBIDDEN = re.compile(r"forbidden", re.IGNORECASE)
_WORDS: dict[str, tuple[DrainStatus, str]] = {
    "no-node": ("skipped", "its node is gone"),
    "foreign-cordon": ("skipped", "somebody else cordoned it meanwhile"),
    "undone": ("skipped", "this operation was called off for it"),
    "blocked": ("blocked", "a pod came that may not be moved"),
    "too-late": ("failed", "the command reached the server too late and did nothing"),
    "busy": ("failed", "another command works on that node"),
    "unreadable": ("failed", "the server could not read the cluster"),
    "bad-parameter": ("failed", "the server refused the command's parameters"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command on the server stands. exit_code is -1 while there is none.

    final: SSM will not change its answer. known: the script ran to its end, so exit code and output mean something.
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
        """Ended by itself with exit status 0, and its output is whole."""
        return self.known and self.exit_code == 0 and len(self.stdout) < OUTPUT_LIMIT

    @property
    def word(self) -> str:
        """The word of the script's last "result:" line; empty when there is none."""
        found = list(_RESULT.finditer(self.stdout))
        return found[-1]["word"] if found else ""

    @property
    def detail(self) -> str:
        """What the script's last "result:" line says after its word."""
        found = list(_RESULT.finditer(self.stdout))
        return found[-1]["detail"] if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainVerdict:
    """Where a drain stands, in one sentence. alert: kind of alert that a person should get, if any."""

    status: DrainStatus
    detail: str
    alert: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationVerdict:
    """Where a termination stands; phase: what the target becomes, None while nothing changes."""

    status: Literal["waiting", "terminated", "timeout"]
    detail: str
    phase: TargetPhase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainLimits:
    """kubectl's timeout < the command's execution timeout < how long the state machine waits for it. In seconds."""

    drain_seconds: int
    delivery_seconds: int

    @property
    def execution_seconds(self) -> int:
        """SSM kills the script after that."""
        return self.drain_seconds + 60

    @property
    def state_seconds(self) -> int:
        """After that the command is cancelled."""
        return self.execution_seconds + self.delivery_seconds + 30

    def not_after(self, now: int) -> int:
        """Epoch seconds until which a command sent now may still begin."""
        return now + self.delivery_seconds + 30


def judge_drain(result: CommandResult, target: Target, limits: DrainLimits, now: int) -> DrainVerdict:
    """What SSM's answer about a drain command means. "drained" still needs a look at the node."""
    waited = now - target.started_at
    if not result.final:
        return _unfinished(result, waited, limits)
    if not result.known:
        text = f"outcome unknown: SSM says {result.status}; the command is cancelled and the node looked at"
        return DrainVerdict(status="failed", detail=text, alert="drain_unknown")
    if result.exit_code == 0:
        return _ended_well(result, target)
    return _ended_badly(result)


def judge_check(
    look: NodeCheck, target: Target, operation_id: str, *, dead: bool, waited: int, limit: int
) -> DrainVerdict:
    """What the look at a node after its drain means: only an empty node under our cordon is drained.

    dead: the worker was NotReady for long; pods that nobody can confirm as gone count as lost, not as left.
    """
    over = waited > limit
    if not look.known:
        status: DrainStatus = "failed" if over else "waiting"
        return DrainVerdict(
            status=status,
            detail=look.detail or "the node could not be looked at",
            alert="drain_unknown" if over else "",
        )
    if not look.present:
        return DrainVerdict(status="skipped", detail="its node is gone")
    if look.instance_id != target.instance_id:
        return DrainVerdict(
            status="failed", detail=f"node {target.node_name} now belongs to {look.instance_id or 'nobody'}"
        )
    if not look.cordoned or look.cordoned_by != operation_id:
        return DrainVerdict(status="failed", detail="somebody took its cordon away while it was drained")
    lost = look.pods_terminating if dead and not look.ready else 0
    if look.pods_left > lost:
        text = f"{look.pods_left} pods are still shutting down on it"
        return DrainVerdict(status="failed" if over else "waiting", detail=text)
    if lost:
        return DrainVerdict(status="drained", detail=f"drained with loss: {lost} pods were lost with the dead node")
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


def after_target(operation: Operation) -> str:
    """Where the loop over targets goes on: "target", "done" when somebody went, "failed" when nobody did."""
    if operation.current is not None:
        return "target"
    return "done" if operation.forgotten else "failed"


def judge_termination(ec2_state: str, still_ready: bool, waited: int, limit: int) -> TerminationVerdict:
    """What EC2 says of the machine. One that runs although it was terminated is looked at again before a new try."""
    gone = ec2_state in ("terminated", "gone")
    if gone and not (still_ready and waited <= limit):
        return TerminationVerdict(status="terminated", detail=f"EC2 says {ec2_state}", phase="terminated")
    if gone:
        return TerminationVerdict(status="waiting", detail="its node is still shown as ready")
    if ec2_state in ("running", "pending") and waited > NOT_SHOWN_SECONDS * 2:
        text = f"EC2 says {ec2_state} {waited} s after it was told to terminate it"
        return TerminationVerdict(status="timeout", detail=text, phase="drained")
    if waited > limit:
        return TerminationVerdict(status="timeout", detail=f"EC2 says {ec2_state} after {waited} s")
    return TerminationVerdict(status="waiting", detail=f"EC2 says {ec2_state}")


def alert_once(memory: Memory, alert: Alert, now: int, quiet_seconds: int) -> tuple[Memory, tuple[Alert, ...]]:
    """The alert, unless one of its kind was told within the quiet time; and the memory that it was told."""
    if now - memory.alerted.get(alert.kind, -quiet_seconds) < quiet_seconds:
        return memory, ()
    return replace(memory, alerted={**memory.alerted, alert.kind: now}), (alert,)


def must_stay_open(operation: Operation, *, expired: bool) -> bool:
    """A machine being terminated is finished by a later run; a cordon that may stand is undone, until the limit."""
    phases = {t.phase for t in operation.targets}
    return bool(phases & {"terminating", "terminated"}) or (bool(phases & {"draining", "drained"}) and not expired)


def removal_sentence(operation: Operation, left: int | None) -> str:
    """What became of every target, for people."""
    parts = [f"{t.instance_id} ({t.zone}, {t.market}): {t.detail or t.phase}" for t in operation.targets]
    after = "" if left is None else f"; {operation.workers_before} -> {left} workers"
    went = len(operation.forgotten)
    head = f"removed {went} of {operation.requested} workers" if went else "no worker was removed"
    return f"{head}{after}: {'; '.join(parts) or 'nobody was chosen'}"


def undone_sentence(target: Target, word: str, why: str) -> str:
    """What UndoDrain did about one node."""
    did = {
        "uncordoned": "is uncordoned again",
        "not-cordoned": "was not cordoned",
        "foreign-cordon": "stays cordoned, by somebody else",
        "no-node": "is gone",
    }.get(word, "is as it was")
    return f"node {target.node_name} {did}: {why or 'the drain did not end'}"


_DOWN_PHASE: dict[str, DownPhase] = {
    "selected": "draining",
    "draining": "draining",
    "drained": "draining",
    "terminating": "terminating",
    "terminated": "forgetting",
}


def _unfinished(result: CommandResult, waited: int, limits: DrainLimits) -> DrainVerdict:
    if waited > limits.state_seconds:
        text = f"outcome unknown: no end after {waited} s, SSM says {result.status}; the command is cancelled"
        return DrainVerdict(status="failed", detail=text, alert="drain_unknown")
    if result.status == "InvocationDoesNotExist":
        late = "" if waited <= NOT_SHOWN_SECONDS else f" after {waited} s"
        return DrainVerdict(status="waiting", detail=f"SSM does not show the command yet{late}")
    return DrainVerdict(status="waiting", detail=f"draining for {waited} s, SSM says {result.status}")


def _ended_well(result: CommandResult, target: Target) -> DrainVerdict:
    if f"node/{target.node_name} drained" in result.stdout.splitlines():
        return DrainVerdict(status="drained", detail="kubectl says it is drained")
    text = f"outcome unknown: the answer lacks the line node/{target.node_name} drained, so it was cut"
    return DrainVerdict(status="failed", detail=text, alert="drain_unknown")


def _ended_badly(result: CommandResult) -> DrainVerdict:
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
        text = f"kubectl drain ended with {result.exit_code}: {_last_line(result.stderr) or 'it said nothing'}"
    return DrainVerdict(status="failed", detail=text, alert="drain_failed")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else ""
