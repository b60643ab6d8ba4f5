"""status and history: the state of the fleet, and what its runs decided and did. Both only read."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import typer

from cli.output import facts, print_json, say, table, working
from cli.target import JsonOption, Opening, Target, on_cluster, seconds_of
from node_fleet.adapters.launcher import launch_facts
from node_fleet.adapters.records import Event
from node_fleet.domain.cost.fleet_cost import fleet_hour, standby_hour
from node_fleet.domain.cost.prices import DATED, HOURS_PER_MONTH
from node_fleet.domain.cost.tariff import Cost, saved_usd_per_hour
from node_fleet.domain.disruption.budgets import allowed
from node_fleet.domain.disruption.drift import differences, expires_at
from node_fleet.domain.model.back_off import active
from node_fleet.domain.model.fleet_state import FleetState, times_of
from node_fleet.domain.model.hibernation import midnight_warning
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.model.spot_pools import noisy_pools
from node_fleet.domain.model.standby import READY
from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.timed_minimum import TimedMinimum, not_ended
from node_fleet.domain.scale_up.launch import fleet_weight
from node_fleet.domain.scaling.disruption import local_text
from node_fleet.domain.scaling.launch_version import launch_hold
from node_fleet.domain.scaling.schedule import open_window
from node_fleet.payload import to_payload
from node_fleet.settings import Settings
from node_fleet.settings.validation import ineffective
from simulator.report.story import QuietGroup, account_of, quiet_groups

DAY_SECONDS = 86400
WEEK_MINUTES = 7 * 24 * 60
LOOK_BACK_SECONDS = 2 * 3600
HISTORY_AT = "30m"
"""With --local: the moment of the scenario at which its history is read. explain finds what history lists there."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Examples: node-fleet status | node-fleet status --local --at 20m | node-fleet status --json")(
        status
    )
    app.command(epilog="Examples: node-fleet history --since 2h | node-fleet history --all --json")(history)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Everything that status shows."""

    place: str
    now: int
    state: FleetState
    instances: tuple[Instance, ...]
    last: Event | None
    settings: Settings
    cpu_percent: float | None = None
    kubelets: dict[str, str] = field(default_factory=dict)
    """The version of K3s that each worker's node states, in the last reading."""
    standby: tuple[Instance, ...] = ()

    @property
    def launch_version(self) -> str:
        """The version of the launch template that new workers get."""
        settings = self.settings
        return self.state.memory.roll_out.launch_version(settings.launch_template_version, settings.k3s_version)

    @property
    def hourly_cost(self) -> Cost:
        """The workers at the shipped prices and the last recorded CPU, and the volumes of the standby workers."""
        tariff = self.settings.tariff()
        running = fleet_hour(tariff, self.instances, self.cpu_percent)
        return Cost.total((running, standby_hour(tariff, len(self.standby))))


@on_cluster(at="14m")
def status(
    opening: Opening,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show the fleet, the lock, the last decision and why, cooldowns, the circuit breaker, and the next schedule."""
    with opening as target, working("reading the state item, the instances and the last decision"):
        found = read_status(target)
    if as_json:
        print_json(as_data(found))
        return
    facts(status_rows(found), title=found.place)
    say()
    images = ("images",) if any(one.images for one in found.instances) else ()
    table("Workers", ("instance", "zone", "type", "market", "state", "age", *images, "notice"), worker_rows(found))


def read_status(target: Target) -> ClusterStatus:
    """Read the state item, the instances and the last decision."""
    services = target.services
    now = services.clock.now()
    decisions = services.records.events(now - LOOK_BACK_SECONDS, now + 1, kind="decision")
    readings = services.records.readings(now - LOOK_BACK_SECONDS, now + 1)
    snapshot = services.records.latest_snapshot(now - LOOK_BACK_SECONDS)
    instances, standby = services.ec2.with_standby()
    return ClusterStatus(
        place=target.place,
        now=now,
        state=services.state.load(),
        instances=instances,
        last=decisions[-1] if decisions else None,
        settings=services.settings,
        cpu_percent=readings[-1].get("cpu_percent") if readings else None,
        kubelets={w.instance_id: w.kubelet_version for w in snapshot.workers} if snapshot else {},
        standby=standby,
    )


def as_data(found: ClusterStatus) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "cluster": found.settings.cluster_id,
        "at": found.now,
        "state": to_payload(found.state),
        "instances": [to_payload(one) for one in found.instances],
        "standby": [to_payload(one) for one in found.standby],
        "usd_per_hour": found.hourly_cost.usd,
        "missing": list(found.hourly_cost.missing),
        "last_decision": None if found.last is None else {"at": found.last.at, **decision_of(found.last)},
        "summary": dict(status_rows(found)),
    }


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


def worker_versions(instances: Iterable[Instance], kubelets: Mapping[str, str]) -> dict[str, str]:
    """The version of K3s of each worker: what its node states, else the tag of its launch, else empty."""
    return {one.instance_id: kubelets.get(one.instance_id) or one.k3s_version for one in instances}


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
    settings, memory = found.settings, found.state.memory
    cooldowns = (("up", settings.cooldown_up_seconds), ("down", settings.cooldown_down_seconds))
    left = {name: memory.last_action_at + seconds - found.now for name, seconds in cooldowns if memory.last_action_at}
    return ", ".join(f"{name} {span(value) if value > 0 else 'over'}" for name, value in left.items()) or "none"


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


def outdated_words(found: ClusterStatus, instance: Instance) -> str:
    """Why the worker is to be replaced; empty for a current one."""
    today = launch_facts(found.settings, found.state.memory.launch_image, found.launch_version)
    words = "; ".join(differences(instance, today, found.kubelets.get(instance.instance_id, "")))
    if words:
        return f"drifted: {words}"
    at = expires_at(instance.instance_id, instance.launched_at, found.settings.policy())
    return f"expired {ago(found.now - at)}" if at and at <= found.now else ""


@on_cluster(at=HISTORY_AT)
def history(
    opening: Opening,
    *,
    since: str = typer.Option("24h", "--since", help="How far to look back, such as 2h or 7d."),
    everything: bool = typer.Option(False, "--all", help="Also list the runs that changed nothing, by reason."),
    as_json: JsonOption = False,
) -> None:
    """List scale-ups, scale-downs, interruptions, clean-ups and failures."""
    seconds = seconds_of(since, "--since")
    with opening as target, working("reading the recorded runs"):
        now = target.services.clock.now()
        found = target.services.records.events(now - seconds, now + 1)
    events = [one for one in found if is_notable(one)]
    if as_json:
        shown = found if everything else events
        print_json([{"at": one.at, "kind": one.kind, "key": one.key, "data": one.data} for one in shown])
        return
    if events:
        table("", ("time (UTC)", "what", "workers", "why or how", "execution"), [_event_row(one) for one in events])
    quiet = [(short(one.key), one.at, account_of(one.data)) for one in found if not is_notable(one)]
    if everything:
        columns = ("from (UTC)", "to", "runs", "why nothing changed", "executions")
        table("Runs that changed nothing", columns, [_quiet_row(one) for one in quiet_groups(quiet)])
    elif not events:
        text = f"no run changed anything within {since}"
        say(f"{text}; --all lists the reasons of {count_of(len(quiet), 'run')}" if quiet else text)


def _quiet_row(group: QuietGroup) -> tuple[str, ...]:
    begin, end = clock(group.first_at, day=True), clock(group.last_at, day=True)
    names = dict.fromkeys((group.first, group.last))
    return begin, end, str(group.runs), group.reason, " to ".join(names)


def is_notable(event: Event) -> bool:
    """True for everything but a decision that changed nothing and did not fail."""
    data = event.data
    dry_run = (data.get("outcome") or {}).get("kind") == "dry_run"
    return event.kind != "decision" or dry_run or bool(data.get("operation") or data.get("failure"))


def _event_row(event: Event) -> tuple[str, ...]:
    data = event.data
    when = clock(event.at, day=True)
    if event.kind != "decision":
        return when, event.kind.replace("_", " "), "", str(data.get("text", "")), event.key
    account = account_of(data)
    before, after = ("" if account.before is None else str(account.before)), account.after
    workers = f"{before} → {after}" if after is not None and str(after) != before else before
    what = f"{account.what}, failed" if data.get("failure") else account.what
    return when, what, workers, account.text, short(event.key)


def decision_of(event: Event) -> dict[str, Any]:
    """The decision that a recorded run carries."""
    found: dict[str, Any] = event.data.get("decision") or {}
    return found


def short(execution: str) -> str:
    """The name at the end of an execution's ARN."""
    return execution.rsplit(":", 1)[-1]


def clock(epoch: float, *, day: bool = False) -> str:
    """A moment in UTC."""
    return dt.datetime.fromtimestamp(epoch, tz=dt.UTC).strftime("%Y-%m-%d %H:%M" if day else "%H:%M:%S")


def span(seconds: float) -> str:
    """'45 s', '12 min', '3 h', '2 d'."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / DAY_SECONDS:.0f} d"


def ago(seconds: float) -> str:
    """'12 min ago'."""
    return f"{span(max(0, seconds))} ago"
