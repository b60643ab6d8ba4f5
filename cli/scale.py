"""scale: capacity for a time. Orders at least so many workers until a moment, priced before they are confirmed."""

from __future__ import annotations

import datetime as dt
import getpass
import re
import secrets
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Annotated

import typer

from cli.operate import MAYBE_DONE
from cli.output import CommandError, ExitCode, WrongUseError, leaving, print_json, say
from cli.status_rows import order_text
from cli.target import JsonOption, Opening, ScenarioTimeOption, on_cluster, seconds_of
from node_fleet.domain.cost.fleet_cost import idle_workers
from node_fleet.domain.cost.prices import DATED
from node_fleet.domain.cost.tariff import Cost
from node_fleet.domain.model.budget import duration_text
from node_fleet.domain.model.fleet_state import FleetState, times_of
from node_fleet.domain.model.hibernation import CHECK_SECONDS
from node_fleet.domain.model.local_time import instants, zone
from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.timed_minimum import MOST_ORDERS, TimedMinimum, not_ended
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import MILLION
from node_fleet.domain.scaling.disruption import local_text
from node_fleet.domain.scaling.schedule import open_window
from node_fleet.payload import to_payload
from node_fleet.services import Services
from node_fleet.settings import Settings

LONGEST_SECONDS = 7 * 86_400
FURTHEST_SECONDS = 30 * 86_400
LONGEST_REASON = 200
EXAMPLE = 'node-fleet scale +3 --for 2h --why "sale"'
MOMENT = re.compile(r"(?:(?P<day>\d{4}-\d\d-\d\d)[ T])?(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=f'Examples: {EXAMPLE} | node-fleet scale 8 --at 18:00 --for 3h --why "match" | '
        "node-fleet scale --cancel all"
    )(scale)


@value_class
class Plan:
    """An order before it is confirmed. base: the workers that a relative number is added to.

    minimum: what holds at that time without the order. notes: what the person must know besides.
    """

    order: TimedMinimum
    base: int
    minimum: int
    is_relative: bool
    about: Cost
    at_most: Cost
    notes: tuple[str, ...] = field(default_factory=tuple)


@on_cluster(at="14m", at_option=ScenarioTimeOption)
def scale(
    opening: Opening,
    *,
    wanted: Annotated[
        str, typer.Argument(metavar="[+N|N]", help="How many workers more (+3), or at least how many (8).")
    ] = "",
    length: Annotated[str, typer.Option("--for", help="How long, such as 30m, 2h or 1d; at most 7d.")] = "",
    begin: Annotated[
        str, typer.Option("--at", help="From when, in the cluster's time zone: 18:00 or '2026-11-27 18:00'.")
    ] = "",
    why: Annotated[str, typer.Option("--why", help="The reason, shown in status, explain and history.")] = "",
    cancel: Annotated[str, typer.Option("--cancel", help="Withdraw the order of that name, or all.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Order more workers for a time: shows the price, asks for confirmation, ends by itself, and is recorded."""
    if cancel and (wanted or length or begin or why):
        raise WrongUseError(
            "--cancel stands beside other options", hint=f"type: node-fleet scale --cancel {cancel}, or {EXAMPLE}"
        )
    if cancel:
        with opening as target:
            withdrawn = _withdraw(target.services, cancel)
        print_json({"withdrawn": [to_payload(one) for one in withdrawn]}) if as_json else _show_withdrawn(withdrawn)
        return
    is_relative, number = number_of(wanted)
    seconds = length_of(length)
    reason = why.strip()
    if not 1 <= len(reason) <= LONGEST_REASON:
        raise WrongUseError(
            f"an order needs a reason of 1 to {LONGEST_REASON} characters, this one has {len(reason)}",
            hint=f"type: {EXAMPLE}",
        )
    with opening as target:
        services = target.services
        now, settings, state = services.clock.now(), services.settings, services.state.load()
        since = start_of(begin, settings.timezone, now) if begin else now
        order = TimedMinimum(
            name=secrets.token_hex(3),
            workers=number,
            since=since,
            until=since + seconds,
            by=getpass.getuser(),
            reason=reason,
        )
        running = sum(one.instance_id not in state.ids_under_notice for one in services.ec2.instances())
        plan = plan_order(order, settings, state, now=now, running=running, is_relative=is_relative)
        lines = plan_lines(plan, settings, now)
        for line in [] if as_json else lines:
            say(line)
        if not yes and not typer.confirm("Order it?", default=False, err=True):
            raise CommandError("nothing was ordered", code=ExitCode.NOTHING_DONE)
        _store(services, plan, running)
    if as_json:
        money = {"usd": plan.about.known_usd, "usd_at_most": plan.at_most.known_usd}
        print_json({"order": to_payload(plan.order), **money, "text": lines})
        return
    then = "the next run launches what is missing" if since <= now else "the first run after that launches it"
    say(f"ordered: {plan.order.name}; {then}; withdraw it with: node-fleet scale --cancel {plan.order.name}")


def number_of(text: str) -> tuple[bool, int]:
    """Whether the number is relative, and the number: "+3" or "8"."""
    found = re.fullmatch(r"(\+?)(\d{1,4})", text.strip())
    if not found or int(found[2]) == 0:
        text = f"{text!r} is no number of workers" if text else "how many workers?"
        raise WrongUseError(text, hint=f"+3 for three more, 8 for at least eight; type: {EXAMPLE}")
    return bool(found[1]), int(found[2])


def length_of(text: str) -> int:
    """The seconds of --for."""
    if not text:
        raise WrongUseError("for how long?", hint=f"type: {EXAMPLE}")
    seconds = seconds_of(text, "--for")
    if seconds > LONGEST_SECONDS:
        raise WrongUseError(f"--for {text} is too long", hint="at most 7d; for longer, set schedules in cdk.json")
    return seconds


def start_of(text: str, timezone: str, now: int) -> int:
    """The next moment of that wall-clock time, or that moment of the date that it names. Epoch seconds.

    Of a time that comes twice the next one counts; of one that the clock skips the earlier reading, as in a schedule.
    """
    found = MOMENT.fullmatch(text.strip())
    today = dt.datetime.fromtimestamp(now, zone(timezone)).date()
    try:
        days = [dt.date.fromisoformat(found["day"])] if found and found["day"] else [today, today + dt.timedelta(1)]
    except ValueError:
        found = None
    if not found:
        raise WrongUseError(f"--at {text!r} is no time", hint=f"type 18:00 or '{today:%Y-%m-%d} 18:00', in {timezone}")
    minute = 60 * int(found["hour"]) + int(found["minute"])
    ahead = [moment for day in days for moment in _moments(day, minute, timezone) if moment >= now]
    if not ahead:
        raise WrongUseError(f"--at {text} is in the past", hint=f"it is {local_text(now, timezone)}")
    if min(ahead) - now > FURTHEST_SECONDS:
        raise WrongUseError(f"--at {text} is too far ahead", hint="at most 30 days; set schedules in cdk.json")
    return min(ahead)


def _moments(day: dt.date, minute: int, timezone: str) -> tuple[int, ...]:
    """The earlier reading of a time that the clock skips; both of a time that comes twice."""
    first, second = instants(day, minute, timezone)
    return (second,) if second < first else (first, second)


def plan_order(
    order: TimedMinimum, settings: Settings, state: FleetState, *, now: int, running: int, is_relative: bool
) -> Plan:
    """The order with its number of workers, its price and what it meets. running: workers that count now.

    Raises:
        CommandError: it raises nothing, no run would see it, or the maximum or the number of orders forbids it.
    """
    orders = not_ended(state.timed_minimums, now)
    base, minimum = base_of(order, settings, orders, running)
    workers = base + order.workers if is_relative else order.workers
    if order.until - order.since < settings.interval_seconds:
        raise CommandError(
            f"{order.until - order.since} s are less than the {settings.interval_seconds} s between two runs",
            hint="give a longer --for",
        )
    if workers > settings.max_workers:
        most = settings.max_workers - base
        raise CommandError(
            f"{workers} workers are above max_workers={settings.max_workers}",
            hint=(f"+{most} at most" if is_relative and most > 0 else f"at most {settings.max_workers}")
            + ", or raise max_workers in cdk.json and deploy",
        )
    if text := _over_limits(settings, workers):
        raise CommandError(text, hint="give a lower number, or raise the limit in cdk.json and deploy")
    if workers <= minimum:
        raise CommandError(
            f"at least {count_of(minimum, 'worker')} run at that time anyway",
            hint="give a higher number, or +N for N more",
            code=ExitCode.NOTHING_DONE,
        )
    return Plan(
        order=replace(order, workers=workers),
        base=base,
        minimum=minimum,
        is_relative=is_relative,
        about=_about(settings, order, workers - minimum),
        at_most=_at_most(settings, order, workers - minimum),
        notes=tuple(_notes(order, state, orders, settings, now)),
    )


def _over_limits(settings: Settings, workers: int) -> str:
    """Why the limits in money and vCPUs forbid so many workers, even all of the lightest type; empty when they do not.

    On-Demand, because Spot may have no capacity.
    """
    limits = settings.limits()
    if limits is None:
        return ""
    least = limits.least("on-demand")
    usd, vcpu = workers * least.micro_usd, workers * least.vcpu
    found = [f"max_usd_per_hour={settings.max_usd_per_hour:g}: {workers} workers need {usd / MILLION:.4f} USD an hour"]
    found = found if usd > limits.most.micro_usd else []
    found += [f"max_vcpu={settings.max_vcpu}: {workers} workers need {vcpu} vCPU"] * (vcpu > limits.most.vcpu)
    return "; ".join(found)


def base_of(order: TimedMinimum, settings: Settings, orders: Iterable[TimedMinimum], running: int) -> tuple[int, int]:
    """What a relative number is added to, and the minimum that holds at that time without the order.

    The orders of the same time count, so that +3 and +2 are five more whoever runs first.
    """
    window = open_window(settings.schedules, settings.timezone, order.since)
    beside = [o.workers for o in orders if o.since < order.until and order.since < o.until]
    minimum = min(settings.max_workers, max(settings.min_workers, window.minimum if window else 0, *beside))
    return max(running, minimum), minimum


def _about(settings: Settings, order: TimedMinimum, more: int) -> Cost:
    """So many workers of the first type in the wanted shares of Spot and On-Demand, for that time."""
    hours = (order.until - order.since) / 3600
    return idle_workers(settings.tariff(), settings.instance_types[0], settings.spot_percent, more, hours)


def _at_most(settings: Settings, order: TimedMinimum, more: int) -> Cost:
    """The same, all On-Demand and of the dearest type."""
    hours, tariff = (order.until - order.since) / 3600, settings.tariff()
    prices = [idle_workers(tariff, kind, 0, more, hours) for kind in settings.instance_types]
    missing = tuple(name for price in prices for name in price.missing)
    return replace(max(prices, key=lambda price: price.usd), missing=missing)


def _notes(
    order: TimedMinimum, state: FleetState, orders: Iterable[TimedMinimum], settings: Settings, now: int
) -> Iterable[str]:
    pause = state.active_pause(now)
    if pause and pause.until > order.since:
        until = local_text(pause.until, settings.timezone)
        yield f"the fleet is {pause.sentence}: no worker is launched before {until}"
    off = state.hibernate_order
    if off and off.kind == "sleep" and off.is_active(order.since):
        ordered = f"the fleet is off until {local_text(off.until, settings.timezone)}, ordered by {off.by}"
        yield f"{ordered}: no worker is launched before; to switch it on: node-fleet wake"
    elif state.hibernation.phase in ("stopping", "off") and order.since <= now + times_of(settings, state).lead_seconds:
        checks = f"a check follows within {CHECK_SECONDS // 60} min"
        yield f"the fleet is off and is switched on first: {checks}; to switch it on at once: node-fleet wake"
    for other in orders:
        if other.since < order.until and order.since < other.until:
            yield f"at the same time {order_text(other, settings.timezone, now)}; the highest number holds"


def plan_lines(plan: Plan, settings: Settings, now: int) -> list[str]:
    """What a person confirms: the workers, the time, the price."""
    order, money, place = plan.order, settings.money, settings.timezone
    more = count_of(order.workers - plan.minimum, "worker")
    added = f" ({order.workers - plan.base} more than {plan.base})" if plan.is_relative else ""
    price = f"about {money.cost(plan.about)}, at most {money.cost(plan.at_most)}" if plan.at_most.is_complete else ""
    missing = ", ".join(dict.fromkeys((*plan.about.missing, *plan.at_most.missing)))
    return [
        f"at least {count_of(order.workers, 'worker')}{added} from {local_text(order.since, place)} to "
        f"{local_text(order.until, place)}, {duration_text(order.until - order.since)}",
        f"price: {price or f'unknown: {missing}'}, for {more} above the minimum of {plan.minimum} "
        f"(prices shipped {DATED})",
        *plan.notes,
    ]


def _store(services: Services, plan: Plan, running: int) -> None:
    """Add the order by one conditional write, and record it."""
    order, settings, now = plan.order, services.settings, services.clock.now()

    def add(state: FleetState) -> tuple[TimedMinimum, ...]:
        orders = not_ended(state.timed_minimums, now)
        if any(o.name == order.name for o in orders):  # a repeated write
            return orders
        if len(orders) >= MOST_ORDERS:
            hint = "withdraw one with --cancel; node-fleet status lists them"
            raise CommandError(f"{len(orders)} orders have not ended, which is the limit", hint=hint)
        if plan.is_relative and base_of(order, settings, orders, running)[0] != plan.base:
            hint = "run the command again to see what it adds to"
            raise CommandError("another order was made meanwhile", hint=hint, code=ExitCode.NOTHING_DONE)
        return (*orders, order)

    with leaving(MAYBE_DONE):
        services.state.change_timed_minimums(add)
        text = f"{order_text(order, settings.timezone, now)}; {settings.money.cost(plan.about)}"
        services.records.put_event("scale", now, {"text": f"capacity for a time {text}"}, key=order.name)


def _withdraw(services: Services, name: str) -> tuple[TimedMinimum, ...]:
    """Remove that order, or all of them, and record it."""
    now = services.clock.now()
    removed: tuple[TimedMinimum, ...] = ()

    def remove(state: FleetState) -> tuple[TimedMinimum, ...]:
        nonlocal removed
        orders = not_ended(state.timed_minimums, now)
        removed = tuple(o for o in orders if name in ("all", o.name))
        if not removed:
            names = ", ".join(o.name for o in orders)
            text = "no order holds or will hold" if name == "all" or not orders else f"no order {name}"
            hint = f"there {'is' if len(orders) == 1 else 'are'} {names}" if names else "nothing was changed"
            raise CommandError(text, hint=hint, code=ExitCode.NOTHING_DONE)
        return tuple(o for o in orders if o not in removed)

    with leaving(MAYBE_DONE):
        services.state.change_timed_minimums(remove)
        for order in removed:
            text = f"{getpass.getuser()} withdrew {order_text(order, services.settings.timezone, now)}"
            services.records.put_event("scale", now, {"text": text}, key=order.name)
    return removed


def _show_withdrawn(withdrawn: tuple[TimedMinimum, ...]) -> None:
    for order in withdrawn:
        say(f"withdrawn: {order.name}, {count_of(order.workers, 'worker')}, {order.text}")
    say("workers that are not needed are removed by the rules of every scale-down")
