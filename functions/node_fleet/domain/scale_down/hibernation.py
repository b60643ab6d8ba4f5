"""Switching the fleet off: what forbids it, which workers are drained, and the operations that end the workers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.hibernation import MOST_TARGETS
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scale_down.blocker_reasons import REASONS
from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.domain.scale_down.eligibility import judge_workers
from node_fleet.domain.scale_down.inspection import Inspection

_LINE = re.compile(r"^(?P<kind>server|job|namespace|node|pod) (?P<name>\S+)$", re.MULTILINE)


def guard_in(result: CommandResult, *, with_jobs: bool) -> str:
    """What forbids to switch the cluster off, in the answer of the server; empty when nothing does.

    Without a complete answer it is unknown, which forbids it too.
    """
    if not result.succeeded or result.word != "checked":
        return f"the server did not say what runs: {result.answer}"
    found: dict[str, list[str]] = {}
    for line in _LINE.finditer(result.stdout):
        found.setdefault(line["kind"], []).append(line["name"])
    servers = found.get("server", [])
    if len(servers) != 1:
        names = ", ".join(servers) or "none"
        return (
            f"the cluster has {count_of(len(servers), 'server')} ({names}), and only a single one can be switched off"
        )
    if jobs := found.get("job", []) if with_jobs else []:
        return f"Job {jobs[0]} runs"
    if spaces := found.get("namespace", []):
        return f"namespace {spaces[0]} has the label node-fleet.io/hibernate=never"
    if nodes := found.get("node", []):
        name, _, mark = nodes[0].partition(":")
        return f"worker {name} is annotated {mark}"
    if pods := found.get("pod", []):
        name, _, letter = pods[0].rpartition(":")
        return f"{'claim' if letter == 'b' else 'pod'} {name} {REASONS.get(letter, 'cannot be judged')}"
    return ""


def protected_guard(state: FleetState, now: int) -> str:
    """The protection of a worker that forbids it; empty without one."""
    held = sorted(state.active_protections(now).items())
    return f"worker {held[0][0]} stays: {held[0][1].sentence}" if held else ""


def metric_guard(query: str, values: Iterable[float]) -> str:
    """What the configured query says; empty when it forbids nothing. No value at all is no answer."""
    most = max(values, default=None)
    if most is None:
        return f"hibernate_unless has no value: {query:.80}"
    if most > 0:
        return f"hibernate_unless is {most:g}: {query:.80}"
    return ""


def drainable(
    inspection: Inspection, instances: Iterable[Instance], state: FleetState, memory: Memory, now: int
) -> tuple[Target, ...]:
    """The workers that can be drained now, by name.

    Their pods need no other place, and kubectl drain waits for budgets. A worker under notice is drained by the
    interruption workflow, and one whose last drain failed waits.
    """
    nodes = tuple(replace(n, blockers=(), more_blockers=0, more_lasting=0) for n in inspection.nodes)
    judged = judge_workers(
        replace(inspection, nodes=nodes),
        instances,
        under_notice=state.ids_under_notice,
        back_offs=memory.back_offs,
        now=now,
        set_aside=state.ids_set_aside,
    )
    found = sorted(judged.candidates, key=lambda c: c.instance.instance_id)
    return tuple(_target(c.instance, c.node.node_name) for c in found)


def ending(instances: Iterable[Instance], inspection: Inspection, now: int) -> tuple[Target, ...]:
    """All workers, to be ended without a drain. A worker without a Node has its own id as the name."""
    names = {n.instance_id: n.node_name for n in inspection.nodes}
    found = sorted(instances, key=lambda i: i.instance_id)
    targets = (_target(i, names.get(i.instance_id, i.instance_id)) for i in found)
    return tuple(replace(t, phase="drained", started_at=now, detail="not drained in time") for t in targets)


def switch_off(
    targets: tuple[Target, ...], *, operation_id: str, execution_id: str, now: int, workers: int, reason: str
) -> Operation:
    """The operation that drains these workers, or ends them where they count as drained."""
    chosen = targets[:MOST_TARGETS]
    return Operation(
        operation_id=operation_id,
        kind="scale_down",
        phase="draining",
        started_at=now,
        requested=len(chosen),
        reason=reason,
        execution_id=execution_id,
        targets=chosen,
        workers_before=workers,
        phase_at=now,
        hibernate="end" if chosen[0].phase == "drained" else "drain",
    )


def _target(instance: Instance, node_name: str) -> Target:
    return Target(instance_id=instance.instance_id, node_name=node_name, zone=instance.zone, market=instance.market)


def forgotten(memory: Memory) -> Memory:
    """The memory without what is over when no worker is left: conditions, suspects, and the replacement of a worker."""
    roll_out = replace(memory.roll_out, current=None)
    return replace(memory, since={}, suspects={}, fresh={}, rebooted={}, readings=(), roll_out=roll_out)
