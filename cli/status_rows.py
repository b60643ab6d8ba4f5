"""The rows of status: a name and a sentence for each part of the state, and a row for each worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from cli.cluster_status import ClusterStatus, outdated_words, worker_versions
from cli.history import decision_of
from cli.times import ago, clock
from node_fleet.domain.cost.prices import DATED, HOURS_PER_MONTH
from node_fleet.domain.cost.tariff import saved_usd_per_hour
from node_fleet.domain.disruption.budgets import allowed
from node_fleet.domain.model.back_off import active
from node_fleet.domain.model.fleet_state import FleetState, times_of
from node_fleet.domain.model.hibernation import midnight_warning
from node_fleet.domain.model.spot_pools import noisy_pools
from node_fleet.domain.model.standby import READY
from node_fleet.domain.model.text import count_of, span
from node_fleet.domain.model.timed_minimum import TimedMinimum, not_ended
from node_fleet.domain.scale_up.launch import fleet_weight
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.disruption import local_text
from node_fleet.domain.scaling.launch_version import launch_hold
from node_fleet.domain.scaling.schedule import open_window
from node_fleet.domain.scaling.strategies.adaptive.preset import DEFAULT_RULES, with_default_rules
from node_fleet.payload import take
from node_fleet.settings import Settings
from node_fleet.settings.validation import ineffective

WEEK_MINUTES = 7 * 24 * 60


def status_rows(found: ClusterStatus) -> Iterator[tuple[str, str]]:
    """Names and sentences, the most important first."""
    state, settings, now = found.state, found.settings, found.now
    counted = sum(one.instance_id not in state.ids_under_notice for one in found.instances)
    yield "workers", f"{counted} of {settings.min_workers} to {settings.max_workers}"
    yield from _standby_rows(found)
    yield "cost", _cost(found)
    yield from _limit_rows(found)
    yield "lock", _lock(state, now)
    yield "pause", _pause(state, now)
    yield from _off_rows(found)
    if state.operation is not None:
        one = state.operation
        yield (
            "operation",
            f"{one.kind} {one.operation_id}, phase {one.phase}, begun {ago(now - one.started_at)}: {one.reason}",
        )
    yield "last decision", _last(found)
    yield "last action", _last_action(found)
    yield "cooldown", _cooldown(found)
    yield "circuit breaker", _breaker(found)
    for back_off in state.memory.back_offs:
        if back_off.key.startswith("node:") and back_off.until > now:
            yield "drain back-off", f"{back_off.key[5:]} for {span(back_off.until - now)}: its drain failed"
    for pool in state.memory.dry_pools:
        if pool.until > now:
            yield "pool in back-off", f"{pool.instance_type} {pool.market} in {pool.zone}, for {span(pool.until - now)}"
    yield from _spot_rows(found)
    yield from _k3s_rows(found)
    yield from _roll_out_rows(found)
    for removal in state.set_aside:
        yield "set aside", f"{removal.instance_id}: {removal.kind}, {ago(now - removal.since)}: {removal.detail}"
    yield from _order_rows(found)
    for notice in state.notices:
        until = "" if notice.is_due else f"; it counts until its change in {span(notice.deadline - now)} is near"
        yield "under notice", f"{notice.instance_id}: {notice.kind}, {ago(now - notice.at)}{until}"
    yield "schedule", _schedule(settings, now)
    yield "budgets", _budgets(found)
    for problem in state.problems:
        yield "problem", problem


def _order_rows(found: ClusterStatus) -> Iterator[tuple[str, str]]:
    """What people ordered for a time: workers that are kept, and capacity."""
    state, settings, now = found.state, found.settings, found.now
    for protection in state.active_protections(now).values():
        reason = f": {protection.reason}" if protection.reason else ""
        yield (
            "protected",
            f"{protection.instance_id}: by {protection.by}, for {span(protection.until - now)} more{reason}",
        )
    for order in not_ended(state.timed_minimums, now):
        yield "capacity for a time", order_text(order, settings.timezone, now)


def _spot_rows(found: ClusterStatus) -> Iterator[tuple[str, str]]:
    """The noisy Spot pools, and what the missing share of Spot costs."""
    settings, memory = found.settings, found.state.memory
    if settings.spot_learning == "off":
        return
    for one in noisy_pools(memory, settings.spot_noisy_per_100_hours, found.now):
        yield "noisy Spot pool", f"{one.sentence}; new workers use it last, for {span(one.until - found.now)} more"
    total, on_demand = len(found.instances), [one for one in found.instances if one.market == "on-demand"]
    spot = total - len(on_demand)
    missing = min(round(settings.spot_percent * total / 100) - spot, len(on_demand) - settings.on_demand_minimum)
    if missing <= 0:
        return
    text = f"{spot} of {count_of(total, 'worker')} Spot, {settings.spot_percent} % wanted"
    first = on_demand[0]
    saved = saved_usd_per_hour(first.zone, first.instance_type)
    month = "" if saved is None else f"; {missing} more save {settings.money.text(missing * saved * HOURS_PER_MONTH)}"
    yield "Spot share", f"{text}{month and f'{month} a month'}"


def _k3s_rows(found: ClusterStatus) -> Iterator[tuple[str, str]]:
    """The versions of K3s of the server and the workers, and what new workers wait for."""
    roll_out, settings = found.state.memory.roll_out, found.settings
    if not roll_out.server_version:
        return
    versions = worker_versions(found.instances, found.kubelets)
    counts = Counter(versions.values())
    shown = ", ".join(f"{count_of(counts[version], 'worker')} {version or 'unknown'}" for version in sorted(counts))
    wanted = settings.k3s_version
    target = f"; configured {wanted}, {counts[wanted]} of {count_of(len(versions), 'worker')} have it" if wanted else ""
    yield "K3s", f"server {roll_out.server_version}; {shown or 'no worker'}{target}"
    if hold := launch_hold(roll_out, settings.launch_template_version, settings.k3s_version):
        version = found.launch_version
        now = f"workers are launched from version {version}" if version else "no worker is launched"
        yield "K3s upgrade", f"{now}: {hold}"


def _roll_out_rows(found: ClusterStatus) -> Iterator[tuple[str, str]]:
    """The replacement in progress, why it is stopped, and how many workers are outdated."""
    state, settings, now = found.state, found.settings, found.now
    if replacing := state.memory.roll_out.current:
        by = replacing.replacement or "a worker that is still to be launched"
        yield "roll-out", f"{replacing.worker} ({replacing.reason}) is replaced by {by}"
    if state.memory.roll_out.is_stopped(settings.launch_template_version):
        stopped = state.memory.roll_out.stopped
        yield "roll-out stopped", f"workers are launched from version {found.launch_version}: {stopped}"
    for instance_id, at in state.memory.rebooted.items():
        left = at + settings.reboot_wait_seconds - now
        then = f"; unless it is healthy in {span(left)}, it is replaced" if left > 0 else "; not rebooted again"
        yield "rebooted", f"{instance_id}, {ago(now - at)}{then}"
    if outdated := [words for one in found.instances if (words := outdated_words(found, one))]:
        kept = "; none is replaced, because max_workers is min_workers" if ineffective(settings) else ""
        yield "outdated", f"{len(outdated)} of {count_of(len(found.instances), 'worker')}, listed below{kept}"


def _cost(found: ClusterStatus) -> str:
    cost, money = found.hourly_cost, found.settings.money
    month = replace(cost, usd=cost.usd * HOURS_PER_MONTH)
    words = f"{money.cost(cost, digits=4)} an hour, {money.cost(month)} a month (prices shipped {DATED})"
    return words + (f"; not known: {', '.join(cost.missing)}" if cost.missing else "")


def _limit_rows(found: ClusterStatus) -> Iterator[tuple[str, str]]:
    """Each limit in money or vCPUs, and what the workers and the reservations take of it."""
    if limits := found.settings.limits():
        for use in limits.uses(fleet_weight(found.instances, found.state, limits, found.now)):
            yield "limit", use.text


def _standby_rows(found: ClusterStatus) -> Iterator[tuple[str, str]]:
    """How many are ready to be started, and which; what is stopping or did not join again is named."""
    wanted = found.settings.standby_workers
    if not wanted and not found.standby:
        return
    states = {one.instance_id: one.state if one.standby == READY else "to be renewed" for one in found.standby}
    ready = sum(state == "stopped" for state in states.values())
    listed = ", ".join(
        f"{one.instance_id} ({one.instance_type} in {one.zone}, {states[one.instance_id]})" for one in found.standby
    )
    yield "standby workers", f"{ready} of {wanted} ready{listed and f': {listed}'}"


def _lock(state: FleetState, now: int) -> str:
    lease = state.lease
    if lease is None:
        return "free"
    name = lease.owner.rsplit(":", 1)[-1]
    left = lease.expires_at - now
    return f"held by {name} (fence {lease.fence}), " + (f"for {span(left)}" if left > 0 else f"expired {ago(-left)}")


def _pause(state: FleetState, now: int) -> str:
    if state.pause is None or state.pause.until <= now:
        return "none"
    pause = state.pause
    return f"by {pause.by}, {ago(now - pause.since)}, for {span(pause.until - now)} more: {pause.reason}"


def _off_rows(found: ClusterStatus) -> Iterator[tuple[str, str]]:
    if found.settings.hibernate or not found.state.hibernation.is_settled:
        warning = midnight_warning(found.settings.hibernate)
        yield "off times", f"{_off_times(found)}{warning and f'; {warning}'}"


def _off_times(found: ClusterStatus) -> str:
    """Whether the fleet is off, what keeps it on, and the next change."""
    state, now = found.state, found.now
    known, order = state.hibernation, state.hibernate_order
    times = times_of(found.settings, state)
    if known.phase != "on":
        words = {"draining": "being switched off", "stopping": "being switched off", "off": "off", "waking": "starting"}
        return f"{words[known.phase]}, {ago(now - known.since)}: {known.detail}"
    if known.kept_since:
        return f"to be off, kept on, {ago(now - known.kept_since)}: {known.detail}"
    if order is not None and order.kind == "wake" and order.is_active(now):
        return f"on until {clock(order.until, day=True)} UTC, ordered by {order.by}"
    begin = times.off_again(now)
    if begin is None:
        return "none within eight days"
    return f"off from {clock(begin, day=True)} to {clock(times.on_again(begin), day=True)} UTC"


def _last(found: ClusterStatus) -> str:
    if found.last is None:
        return "none within two hours"
    return f"{clock(found.last.at)}: {decision_of(found.last).get('sentence', 'none was made')}"


def _last_action(found: ClusterStatus) -> str:
    memory = found.state.memory
    if not memory.last_action:
        return "none yet"
    return f"{memory.last_action} at {clock(memory.last_action_at)}: {memory.last_reason}"


def _cooldown(found: ClusterStatus) -> str:
    """What is left of the cooldowns of the rules that made the last decision."""
    policy, last_action_at, whose = found.settings.policy(), found.state.memory.last_action_at, ""
    if not last_action_at:
        return "none"
    decision = decision_of(found.last) if found.last else {}
    if any(check.name == DEFAULT_RULES for check in take(decision, "evidence", tuple[Check, ...], default=())):
        policy, whose = with_default_rules(policy), ", those of the preset node-fleet, whose rules decide"
    ends = {"up": policy.cooldown_up_seconds, "down": policy.cooldown_down_seconds}
    left = {name: last_action_at + seconds - found.now for name, seconds in ends.items()}
    return ", ".join(f"{name} {span(value) if value > 0 else 'over'}" for name, value in left.items()) + whose


def _breaker(found: ClusterStatus) -> str:
    """Open after JOIN_FAILURES_TO_OPEN scale-ups in a row without a joined worker."""
    breaker = next((one for one in found.state.memory.back_offs if one.key == "join"), None)
    if breaker is None:
        return "closed"
    if breaker.failures < found.settings.join_failures_to_open:
        return f"closed, {breaker.failures} of {found.settings.join_failures_to_open} scale-ups in a row without a join"
    in_back_off = active(found.state.memory.back_offs, "join", found.now)
    return f"open, next launch {f'in {span(in_back_off.until - found.now)}' if in_back_off else 'possible now'}"


def _schedule(settings: Settings, now: int) -> str:
    """The minimum size in force by schedule, or the next that begins within a week."""
    if not settings.schedules:
        return "none"
    current = open_window(settings.schedules, settings.timezone, now)
    if current is not None:
        return f"now at least {current.minimum} workers"
    for minute in range(0, WEEK_MINUTES, 5):
        when = now - now % 300 + minute * 60
        window = open_window(settings.schedules, settings.timezone, when)
        if window is not None:
            return f"at least {window.minimum} workers from {clock(when, day=True)} UTC"
    return "none within a week"


def _budgets(found: ClusterStatus) -> str:
    """Whether budgets and windows allow the removal of an idle worker now. Only notices count as disruptions here."""
    policy = found.settings.policy()
    if not policy.budgets:
        return "none"
    noticed = sum(one.instance_id in found.state.ids_under_notice for one in found.instances)
    allowance = allowed(policy.budgets, "idle", now=found.now, workers=len(found.instances), disrupted=noticed)
    if allowance.number:
        return f"{count_of(allowance.number, 'idle worker')} may be removed now" + (
            allowance.budget and f": {allowance.budget}"
        )
    opening = allowance.next_opening
    later = "" if opening is None else f", next opening {local_text(opening, policy.timezone)}"
    return f"no idle worker is removed: {allowance.budget}{later}"


def order_text(order: TimedMinimum, timezone: str, now: int) -> str:
    """For example: a1b2c3: at least 7 workers until Mon 2026-11-30 20:00 UTC, ordered by ana: a sale."""
    begins = f" from {local_text(order.since, timezone)}" if order.since > now else ""
    text = f"at least {count_of(order.workers, 'worker')}{begins} until {local_text(order.until, timezone)}"
    return f"{order.name}: {text}, {order.text}"


def worker_rows(found: ClusterStatus) -> Iterable[tuple[str, ...]]:
    """The rows of the table; with a cell for the images when a worker reports them."""
    noticed = {notice.instance_id: notice.kind for notice in found.state.notices}
    is_shown = any(one.images for one in found.instances)
    for one in found.instances:
        age = span(found.now - one.launched_at)
        yield (
            one.instance_id,
            one.zone,
            one.instance_type,
            one.market,
            one.state,
            age,
            *((one.images,) if is_shown else ()),
            "; ".join(filter(None, (noticed.get(one.instance_id, ""), outdated_words(found, one)))),
        )
