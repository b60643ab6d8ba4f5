"""explain: a decision with its evidence, and which workers are eligible for removal; or an execution as a page.

`now` reads the cluster by the function that reads it for a run, and decides with the same code. No worker is changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdk_app.workflow import definitions
from cli import cluster_completion
from cli.cluster_status import LOOK_BACK_SECONDS
from cli.history import HISTORY_AT, decision_of, short
from cli.observation import observe
from cli.output import CommandError, console, facts, print_json, say, table, working, write_page
from cli.target import JsonOption, Opening, Target, on_cluster
from cli.times import clock
from cli.why import why_pod, why_worker
from node_fleet.adapters.records import Event
from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_down.eligibility import Eligibility, judge_workers
from node_fleet.domain.scaling.decision import Check, Decision, decide
from node_fleet.domain.scaling.disruption import allowance_for, held_text
from node_fleet.domain.scaling.launch_version import K3S_CHECK
from node_fleet.domain.scaling.minimum_size import TIMED
from node_fleet.domain.scaling.outdated import outdated_workers
from node_fleet.domain.scaling.spot_return import SPOT_CHECK
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.domain.scaling.unhealthy import recovering
from node_fleet.payload import from_payload, to_payload
from simulator.report.page import Report, render
from simulator.report.story import Account, account_of, rows_of

if TYPE_CHECKING:
    from simulator.runner import Execution

DAYS_BACK = 90 * 86400
NOW, AT_NOW = "now", "14m"
KEPT = re.compile(r"worker (?P<worker>\S+): kept, (?P<reason>.*)", re.DOTALL)
"""The sentence of a worker that is not eligible, as SelectNodes records it."""
SHOWN = {
    TIMED: "capacity for a time",
    K3S_CHECK: "K3s upgrade",
    SPOT_CHECK: "Spot pools",
    "roll_out:on-demand": "return to Spot",
    "headroom_cost": "headroom",
    "scale_down_delay": "scale-down delay",
}
"""Checks that the sentence of the decision may leave out, under the name of their row."""
COLOURS = {
    "up": "green",
    "down": "yellow",
    "blocked": "red",
    "hold": "cyan",
    "waiting": "magenta",
    "missing": "red",
    "ok": "dim",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples: node-fleet explain now | node-fleet explain run-000012 | "
        "node-fleet explain run-000012 --html run.html | node-fleet explain i-0123456789abcdef0 | "
        "node-fleet explain shop/big-1"
    )(explain)


@value_class
class Explained:
    """A decision as it is printed. account: of a run that has ended. answer: to a question about a worker or a pod."""

    title: str
    decision: Decision
    workers: tuple[tuple[str, str, str], ...] = ()
    note: str = ""
    account: Account | None = None
    answer: str = ""


def is_about_now(subject: str) -> bool:
    """False for the name of an execution, which may have ended long ago."""
    return subject == NOW or is_worker(subject) or is_pod(subject)


def is_worker(subject: str) -> bool:
    """True for the id of an instance, also a mistyped one: no execution has such a name."""
    return subject.startswith("i-")


def is_pod(subject: str) -> bool:
    """True for namespace/name; an ARN has colons."""
    return "/" in subject and ":" not in subject


@on_cluster(at=lambda given: AT_NOW if is_about_now(given["subject"]) else HISTORY_AT)
def explain(
    opening: Opening,
    *,
    subject: Annotated[
        str,
        typer.Argument(
            autocompletion=cluster_completion.subjects,
            help="'now', an execution's name or ARN, a worker (i-...), or a pod (namespace/name).",
        ),
    ] = NOW,
    html: Annotated[Path | None, typer.Option("--html", help="Write the execution as a page instead.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a decision, why a worker is still here (i-...), or why there is no worker for a pod (namespace/name)."""
    about_now = is_about_now(subject)
    with opening as target:
        if html is not None:
            write_execution(last_execution(target) if about_now else target.execution(subject), html)
            say(f"Page: {html}")
            return
        with working("reading the cluster" if about_now else "reading the recorded runs"):
            found = explain_now(target, subject) if about_now else explain_past(target, subject)
    if as_json:
        print_json(
            {
                "title": found.title,
                "decision": to_payload(found.decision),
                "workers": [dict(zip(("instance", "eligible", "reason"), row, strict=True)) for row in found.workers],
                "note": found.note,
                "answer": found.answer,
            }
        )
        return
    show(found)


def show(found: Explained) -> None:
    """The answer or the sentence first, then each check, then each worker."""
    decision, account = found.decision, found.account
    console().print(found.title, markup=False, style="bold")
    say(found.answer or (account.text if account else decision.sentence))
    say()
    planned = f"{decision.action} {decision.count or ''}".strip()
    before, after = decision.workers_before, decision.workers_after
    facts(
        [
            ("action", account.what if account else planned),
            ("rule", decision.rule),
            ("workers", f"{account.before} → {account.after}" if account else f"{before} → {after}"),
            ("blocked by", ", ".join(decision.blocked_by) or "nothing"),
            *((SHOWN[check.name], check.text) for check in decision.evidence if check.name in SHOWN),
        ]
    )
    table("Evidence", ("check", "verdict", "value", "mark", "readings", "setting"), map(_check_row, decision.evidence))
    if found.workers:
        table("Workers", ("instance", "eligible", "reason"), found.workers)
    if found.note:
        say(found.note)


def _check_row(check: Check) -> tuple[str, ...]:
    readings = f"{check.readings} of {check.needed}" if check.needed else ""
    return check.name, check.verdict, _number(check.value), _number(check.threshold), readings, check.setting


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def explain_now(target: Target, subject: str = NOW) -> Explained:
    """Decide for this moment, without the lock. The reading is recorded as that of a run; nothing else changes.

    subject: a worker or a pod that is asked about.
    """
    services = target.services
    hibernation, now = services.state.load().hibernation, services.clock.now()
    if hibernation.phase not in ("on", "draining"):
        text = f"the fleet is off or starting: {hibernation.detail}; switch it on with: node-fleet wake"
        return Explained(title=f"{target.place}: now, {clock(now)} UTC", decision=_undecided(text))
    found = observe(target)
    snapshot = found.snapshot
    memory, policy = services.state.load().memory, services.settings.policy()
    decision = decide(snapshot, memory, policy, snapshot.at)
    rows, note = _workers(target, snapshot, decision)
    problem = found.recorded or snapshot.problem
    answer = ""
    if is_worker(subject):
        answer = why_worker(subject, rows, decision) if rows else note
    elif is_pod(subject):
        answer = why_pod(subject, snapshot, memory, policy, decision)
    return Explained(
        answer=answer,
        title=f"{target.place}: now, {clock(snapshot.at)} UTC",
        decision=decision,
        workers=rows,
        note="\n".join(filter(None, (problem, note))),
    )


def _workers(target: Target, snapshot: Snapshot, decision: Decision) -> tuple[tuple[tuple[str, str, str], ...], str]:
    """Which workers are eligible for removal, judged as SelectNodes does; a note when the server does not answer."""
    services = target.services
    state = services.state.load()
    try:
        inspection = target.call(services.server.inspect)
    except (ServerUnreachableError, ServerNotFoundError) as error:
        return (), f"Which workers are eligible for removal is unknown: {error}"
    if problem := inspection.clock_problem or ("" if inspection.known else inspection.detail):
        return (), f"Which workers are eligible for removal is unknown: {problem}"
    judged = judge_workers(
        inspection,
        services.ec2.instances(),
        under_notice=state.ids_under_notice,
        back_offs=state.memory.back_offs,
        now=services.clock.now(),
        cpu_percent={worker.instance_id: worker.cpu_percent for worker in snapshot.workers},
        not_ready=decision.replace if decision.rule == "not_ready" else "",
        set_aside=state.ids_set_aside,
        protections=state.active_protections(services.clock.now()),
    )
    tick = make_tick(snapshot, state.memory, services.settings.policy(), services.clock.now())
    allowance = allowance_for(tick, "idle")
    rows = _judged_rows(judged, "" if allowance.number else held_text(tick, allowance, "idle"))
    outdated = {one.worker.instance_id: f"{one.reason}: {one.words}" for one in outdated_workers(tick)}
    outdated |= {i: f"rebooted, has {left} s left to become healthy" for i, left in recovering(tick).items()}
    return tuple((name, eligible, _joined(why, outdated.get(name, ""))) for name, eligible, why in rows), ""


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _judged_rows(judged: Eligibility, held: str) -> tuple[tuple[str, str, str], ...]:
    """One row for each worker. held: why a budget keeps every eligible one now; empty when none does."""
    free = [
        (one.node.instance_id, "no" if held else "yes", held or f"{one.idle_percent:.0f} % idle")
        for one in judged.candidates
    ]
    kept = [(one.instance_id, "no", one.sentence.split(": kept, ", 1)[-1]) for one in judged.kept]
    return tuple(sorted([*free, *kept]))


def explain_past(target: Target, name: str) -> Explained:
    """The decision that a run recorded."""
    event = _recorded(target, name)
    data = {name: value for name, value in decision_of(event).items() if name != "tell"}
    title = f"{target.place}: {short(event.key)}, {clock(event.at, day=True)} UTC"
    if not data and event.data.get("hibernate"):
        account = account_of({"detail": event.data["hibernate"]["detail"], **event.data})
        return Explained(title=title, decision=_undecided(account.text), account=account)
    if not data:
        failure = event.data.get("failure") or {}
        text = (
            f"{short(event.key)} made no decision: {failure.get('Error', 'it ended early')} {failure.get('Cause', '')}"
        )
        raise CommandError(text.strip(), hint=f"see node-fleet explain {short(event.key)} --html page.html")
    decision: Decision = from_payload(Decision, {**data, "memory": {}}, path="decision")
    kept = [KEPT.fullmatch(text) for text in (event.data.get("selection") or {}).get("kept", ())]
    return Explained(
        title=title,
        decision=decision,
        account=account_of(event.data),
        workers=tuple((one["worker"], "no", one["reason"]) for one in kept if one),
    )


def _undecided(sentence: str) -> Decision:
    """In place of a decision, of a run that switched the fleet off or on."""
    return Decision(action="none", count=0, rule="hibernate", sentence=sentence, reasons=())


def _recorded(target: Target, name: str) -> Event:
    services = target.services
    now = services.clock.now()
    for begin, end in ((now - LOOK_BACK_SECONDS, now + 1), (now - DAYS_BACK, now - LOOK_BACK_SECONDS)):
        for event in reversed(services.records.events(begin, end, kind="decision")):
            if short(event.key) == short(name):
                return event
    raise CommandError(f"no execution {short(name)} is recorded", hint="node-fleet history --all lists them")


def last_execution(target: Target) -> Execution:
    """The newest execution that recorded a decision."""
    services = target.services
    now = services.clock.now()
    events = services.records.events(now - LOOK_BACK_SECONDS, now + 1, kind="decision")
    if not events:
        raise CommandError("no execution within two hours", hint="node-fleet history --since 7d --all lists them")
    return target.execution(events[-1].key)


def write_execution(execution: Execution, path: Path) -> None:
    """One execution as a self-contained page."""
    write_page(path, render(execution_report(execution)), "--html")


def execution_report(execution: Execution) -> Report:
    """The report of one execution."""
    (row,) = rows_of([execution])
    took = "still runs" if row.ended_at is None else f"{row.ended_at - row.started_at:.0f} s"
    shown: dict[str, Any] = {"decision": row.decision, "status": row.status.lower(), "took": took}
    if row.workers_before is not None:
        shown["workers"] = f"{row.workers_before} → {row.workers_after}"
    return Report(
        title=execution.name,
        sentence=row.reason or f"This execution ended as {row.status.lower()} without a decision.",
        figures=shown,
        points=(),
        executions=(execution,),
        definitions=definitions(),
        subtitle=f"Execution of {execution.machine}, started {clock(row.started_at, day=True)} UTC by {row.trigger}",
        everything=True,
    )
