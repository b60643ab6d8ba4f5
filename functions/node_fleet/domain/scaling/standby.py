"""Standby workers in quiet time: one is renewed, refilled, or stopped after it has joined. One step a tick.

Every other rule goes first, so that a standby worker is never a reason to launch, remove or wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from node_fleet.domain.model import back_off
from node_fleet.domain.model.memory import BackOff
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import NewWorker, StandbyWorker, Worker
from node_fleet.domain.model.standby import STANDBY
from node_fleet.domain.model.text import count_of, span
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.cooldown import (
    evaluate_cooldown,
    evaluate_launch_back_off,
    evaluate_removal_back_off,
)
from node_fleet.domain.scaling.roll_out_hold import budget_hold
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.tick import Tick

STOP_SECONDS = 1800
"""How long a worker that was launched to become a standby worker is tried to be stopped; then it stays a worker."""
RETRY_SECONDS = 86_400
"""While such a worker runs above the minimum, and for no longer than this after its launch, no other is launched."""


@value_class
class StandbyStep:
    """The next step, on which worker, and why; "none" while nothing may or must be done."""

    action: Literal["refill", "stop", "renew", "none"]
    check: Check
    worker: str = ""
    alerts: tuple[Alert, ...] = ()


def evaluate_standby(
    tick: Tick, pending_pods: PendingPods | None, least: int, checks: Iterable[Check]
) -> StandbyStep | None:
    """The step of this tick; None when no standby worker is wanted or exists.

    least: usable workers that must remain. checks: those of the other rules.
    """
    wanted = tick.policy.standby_workers
    if not wanted and not tick.snapshot.standby:
        return None
    ready = [w for w in tick.snapshot.standby if not w.is_broken]
    missing, text = wanted - len(ready), f"{len(ready)} of {count_of(wanted, 'standby worker')}"
    kept = _kept_running(tick) if missing > 0 and len(tick.usable) > least else []
    if why := _waits(tick, pending_pods, checks):
        step = _nothing(text, why)
    elif ended := _to_end(tick, ready, missing):
        check = _check("down", f"{text}, {ended.instance_id} is terminated: {ended.unfit or 'it is one too many'}")
        step = StandbyStep(action="renew", check=check, worker=ended.instance_id)
    elif missing > 0:
        step = _stop(tick, least, text) or _refill(tick, kept, least, checks, text)
    else:
        step = _nothing(text, "")
    failed = {b.key for b in tick.memory.back_offs}
    return replace(step, alerts=tuple(_kept_alert(w) for w in kept if back_off.node_key(w.instance_id) in failed))


def _stop(tick: Tick, least: int, text: str) -> StandbyStep | None:
    """The step that drains and stops a worker that was launched for it; None without one."""
    found = [w for w in tick.usable if w.refill and tick.now - w.launched_at < STOP_SECONDS]
    if not found:
        return None
    worker = found[0].instance_id
    if why := _no_stop(tick, worker, least):
        return _nothing(text, why)
    return StandbyStep(
        action="stop", check=_check("down", f"{text}, {worker} has joined and is stopped"), worker=worker
    )


def _refill(tick: Tick, kept: list[Worker], least: int, checks: Iterable[Check], text: str) -> StandbyStep:
    why = f"{kept[0].instance_id} was not stopped and serves" if kept else _no_launch(tick, least, checks)
    return _nothing(text, why) if why else StandbyStep(action="refill", check=_check("up", f"{text}, quiet"))


def _nothing(text: str, why: str) -> StandbyStep:
    return StandbyStep(action="none", check=_check("ok", f"{text}, {why}" if why else text))


def _to_end(tick: Tick, ready: Sequence[StandbyWorker], missing: int) -> StandbyWorker | None:
    """The standby worker to terminate: one that did not join again, then one that differs or is one too many.

    One that differs may still be started, so it ends only while no other is missing. One that EC2 refused to terminate
    waits for its back-off.
    """
    stopped = [w for w in tick.snapshot.standby if not w.is_stopping and not _own_back_off(tick, w.instance_id)]
    broken = [w for w in stopped if w.is_broken]
    unfit = [w for w in stopped if w.unfit and not w.is_broken] if missing <= 0 else []
    surplus = [w for w in reversed(stopped) if w in ready] if missing < 0 else []
    return next(iter([*broken, *unfit, *surplus]), None)


def _kept_running(tick: Tick) -> list[Worker]:
    """Workers above the minimum that were not stopped in time after they were launched to become standby workers.

    Whatever the cause is, it may keep the next one too. Reported are those whose drain failed.
    """
    since, until = tick.now - RETRY_SECONDS, tick.now - STOP_SECONDS
    return [w for w in tick.usable if w.refill and since < w.launched_at <= until]


def _own_back_off(tick: Tick, instance_id: str) -> BackOff | None:
    return back_off.active(tick.memory.back_offs, back_off.node_key(instance_id), tick.now)


def _waits(tick: Tick, pending_pods: PendingPods | None, checks: Iterable[Check]) -> str:
    """Why this is no quiet time; empty when it is."""
    if not tick.live or tick.snapshot.problem or tick.unknown > len(tick.snapshot.disputes) or pending_pods is None:
        return "waits for a complete reading"
    if pending_pods.waiting:
        return "waits while pods are pending"
    if tick.joining or tick.not_ready or tick.snapshot.unjoined:
        return "waits until every worker has joined"
    if tick.memory.roll_out.current is not None:
        return "waits for a replacement"
    if tick.snapshot.set_aside:
        return "waits while a removal is set aside"
    blocked = next((c for c in checks if c.verdict == "blocked"), None)
    return f"waits: {blocked.text}" if blocked else ""


def _no_stop(tick: Tick, worker: str, least: int) -> str:
    """Why a worker that was launched to become a standby worker is not stopped now; empty when it is."""
    if len(tick.usable) <= least:
        return f"{worker} serves: {count_of(len(tick.usable), 'usable worker')}, minimum {least}"
    if own := _own_back_off(tick, worker):
        return f"{worker} could not be drained, next try in {span(own.until - tick.now)}"
    if blocked := evaluate_removal_back_off(tick):
        return blocked.text
    return budget_hold(tick, "idle")


def _no_launch(tick: Tick, least: int, checks: Iterable[Check]) -> str:
    """Why no worker may be launched to become a standby worker; empty when one may."""
    if failed := back_off.active(tick.memory.back_offs, STANDBY, tick.now):
        return f"the last one was not launched or not stopped, next try in {span(failed.until - tick.now)}"
    if tick.snapshot.launch_hold:
        return "waits while workers are launched from an earlier version"
    on_demand = NewWorker(pools=tuple(f"any/{kind}/on-demand" for kind in tick.policy.instance_types))
    launchable = tick.launchable((on_demand,))
    if not launchable.wanted or not launchable.count:
        return f"waits: {launchable.against}"
    if len(tick.usable) > least and any(c.name == "idle" and c.verdict == "waiting" for c in checks):
        return "waits for an idle worker that may become one"
    cooldown = evaluate_cooldown(tick, "scale_up")
    blocked = evaluate_launch_back_off(tick) or evaluate_removal_back_off(tick)
    if blocked or cooldown.verdict == "blocked":
        return (blocked or cooldown).text
    return budget_hold(tick, "idle")


def _kept_alert(worker: Worker) -> Alert:
    text = (
        f"{worker.instance_id} was launched to become a standby worker and could not be drained and stopped "
        f"within {STOP_SECONDS // 60} min: it stays a usual worker, and becomes a standby worker when it is removed as "
        f"idle; until then node-fleet launches no other for {RETRY_SECONDS // 3600} h. What you can do: nothing, or "
        "move the pods that its drain waits for"
    )
    return Alert(kind=f"standby_kept:{worker.instance_id}", text=text)


def _check(verdict: Verdict, text: str) -> Check:
    return Check(name=STANDBY, verdict=verdict, text=text, setting="standby_workers", aside=verdict == "ok")
