"""top: the fleet while it changes: each worker, the last decision with its countdowns, and the pods that wait.

It only reads what status reads: the state item, the instances and the last recorded run. With --local a scenario is
acted out in virtual time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import sys
import textwrap
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic  # the real one: with --local the simulator replaces the clocks in the module time
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cli.cluster_status import ClusterStatus, outdated_words, read_status
from cli.explain import explain_past, last_execution, show, write_execution
from cli.history import short
from cli.output import CommandError, console, working
from cli.status_rows import status_rows
from cli.target import Opening, Target, on_cluster
from cli.times import ago, clock
from node_fleet.domain.model.errors import NodeFleetError
from node_fleet.domain.model.snapshot import Instance, Phase, PodShape, Snapshot, Worker
from node_fleet.domain.model.text import count_of, span
from node_fleet.domain.model.value_class import value_class
from node_fleet.payload import from_payload

try:
    import termios
    import tty
except ImportError:  # Windows has no such terminal: the picture is printed once
    termios = None  # type: ignore[assignment]

WIDE = 110
"""From this width on, each worker's whole zone and price are shown."""
LEAST_WORKERS = 3
LEAST_FACT_WIDTH = 10
"""In a narrower terminal facts are wrapped by the terminal."""
FACT_LINES = 2
"""A longer fact is cut: explain shows all of it."""
OTHER_LINES = 4
"""The title, an empty line, the names of the columns, and the number of workers that are not shown."""
PENDING_SHOWN = 3
QUIET_FACTS = {"pause": "none", "lock": "free", "circuit breaker": "closed", "schedule": "none", "budgets": "none"}
"""Facts that are left out while they say this."""
HIDDEN_FACTS = ("last action", "under notice", "protected", "set aside", "drain back-off", "outdated")
"""Facts that stand in the workers' rows or would fill the screen."""
PHASES: dict[Phase, str] = {"usable": "ready", "not_ready": "NotReady", "unjoined": "did not join"}
"""Words for phases of a worker; every other phase is its own word."""
COLOURS = {"ready": "green", "NotReady": "red", "did not join": "red", "joining": "blue", "unknown": "red"}
KEYS = "space pauses, e explains the last run, r opens its page, q leaves"
LEAVING = ("q", "e")
"""Keys that leave the screen, for good or for the explanation."""
SPEED = 60


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples: node-fleet top | node-fleet top --local | node-fleet top --local --at 14m --once")(
        top
    )


@value_class
class WorkerRow:
    """One worker as it is shown. Amounts are text, empty when unknown; state: its phase, then what else holds."""

    instance_id: str
    zone: str
    instance_type: str
    market: str
    cpu: str
    memory: str
    pods: str
    age: str
    price: str
    state: str


@on_cluster(at="0s")
def top(
    opening: Opening,
    *,
    local: bool,
    every: Annotated[int, typer.Option("--every", min=1, help="Seconds between two readings.")] = 5,
    speed: Annotated[int, typer.Option("--speed", min=1, help="With --local: virtual seconds in a second.")] = SPEED,
    once: Annotated[bool, typer.Option("--once", help="Print the picture once and end.")] = False,
) -> None:
    """Watch the fleet: workers, the last decision with its countdowns, and pods that wait. Only reads."""
    with opening as target:
        with working("reading the cluster"):
            found = read_status(target)
        out = console()
        if once or termios is None or not (out.is_terminal and sys.stdin.isatty()):
            out.print(picture(found, out.width, out.height))
            return
        _Watch(target, out, 1 if local else every, speed).run(found)


class _Watch:
    """The screen while it is watched: reads, draws, and obeys keys."""

    def __init__(self, target: Target, out: Console, wait: float, speed: int) -> None:
        self._target = target
        self._out = out
        self._wait = wait
        self._speed = speed
        self._paused = False
        self._note = KEYS

    def run(self, found: ClusterStatus) -> None:
        """Until q or Ctrl-C. A key does not make the next reading earlier, however often it is pressed."""
        with _keys() as pressed:
            while True:
                with Live(console=self._out, screen=True, auto_refresh=False) as live:
                    key, due = "", monotonic() + self._wait
                    while key not in LEAVING:
                        live.update(self._picture(found), refresh=True)
                        key = pressed(max(0.0, due - monotonic()))
                        self._obey(key)
                        if key not in LEAVING and monotonic() >= due:
                            found = found if self._paused else self._read(found)
                            due = monotonic() + self._wait
                if key == "q":
                    return
                self._explain(found, pressed)

    def _picture(self, found: ClusterStatus) -> RenderableType:
        text = f"paused; {self._note}" if self._paused else self._note
        return Group(picture(found, self._out.width, self._out.height - 2), Text(text, "dim"))

    def _read(self, before: ClusterStatus) -> ClusterStatus:
        """The next reading; the last one with a note when it fails."""
        try:
            if not self._target.advance(self._wait * self._speed):
                self._paused, self._note = True, f"the scenario has ended; {KEYS}"
            else:
                self._note = KEYS
            return read_status(self._target)
        except _failures() as error:
            self._note = f"not read since {clock(before.now)} UTC: {error}; the next try is in {self._wait:.0f} s"
            return before

    def _obey(self, key: str) -> None:
        if key == " ":
            self._paused = not self._paused
        if key == "r":
            try:
                execution = last_execution(self._target)
                path = Path(f"{short(execution.name)}.html").resolve()
                write_execution(execution, path)
            except _failures() as error:
                self._note = str(error)
                return
            opened = webbrowser.open(path.as_uri())
            self._note = f"{path.name} is written{' and opened' if opened else ''}; {KEYS}"

    def _explain(self, found: ClusterStatus, pressed: Callable[[float | None], str]) -> None:
        """The explanation of the run that the screen shows, until a key is pressed. A long one can be scrolled."""
        try:
            if found.last is None:
                raise CommandError("no run has recorded a decision within two hours")
            show(explain_past(self._target, found.last.key))
        except _failures() as error:
            self._out.print(escape(str(error)))
        self._out.print("any key goes back", style="dim")
        pressed(None)


def _failures() -> tuple[type[Exception], ...]:
    """What a reading may raise: errors of commands and adapters, and those of AWS that no adapter translates."""
    from botocore.exceptions import BotoCoreError, ClientError

    return CommandError, NodeFleetError, BotoCoreError, ClientError


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float | None], str]]:
    """A function that waits so many seconds for a key (None: for ever) and returns it, or nothing; q when the terminal
    has ended."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def pressed(seconds: float | None) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        return (os.read(number, 64).decode(errors="replace")[:1] or "q") if ready else ""

    tty.setcbreak(number)
    try:
        yield pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def picture(found: ClusterStatus, width: int, height: int) -> RenderableType:
    """The whole screen: facts, pods that wait, and as many workers as there is room for."""
    seen = last_snapshot(found)
    rows = [*_facts(found), ("pending pods", pending_text(found, seen))]
    names = max(len(name) for name, _ in rows)
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="cyan", no_wrap=True, min_width=names)
    facts.add_column(overflow="fold")
    lines = 0
    for name, text in rows:
        columns = max(LEAST_FACT_WIDTH, width - names - 2)
        shown = textwrap.wrap(text, columns, max_lines=FACT_LINES, placeholder=" …")
        lines += len(shown)
        facts.add_row(name, escape("\n".join(shown)))
    title = Text.assemble((found.place.partition(", after")[0], "bold"), f"  {clock(found.now)} UTC")
    most = max(LEAST_WORKERS, height - lines - OTHER_LINES)
    return Group(title, facts, Text(), _workers(worker_rows(found, seen), is_wide=width >= WIDE, most=most))


def _facts(found: ClusterStatus) -> Iterator[tuple[str, str]]:
    for name, text in status_rows(found):
        if name not in HIDDEN_FACTS and QUIET_FACTS.get(name) != text:
            yield name, text


def last_snapshot(found: ClusterStatus) -> Snapshot | None:
    """What the last recorded run has read; None when none is recorded or it read nothing."""
    data = found.last.data.get("snapshot") if found.last else None
    return from_payload(Snapshot, data, path="snapshot") if data else None


def pending_text(found: ClusterStatus, seen: Snapshot | None) -> str:
    """How many pods wait, for how long, and the first of their shapes."""
    if seen is None or seen.pending is None:
        return "not known"
    age = ago(found.now - (seen.read_at or seen.at))
    if not seen.pending:
        return f"none ({age})"
    count, oldest = seen.pending_count or 0, max(shape.oldest_seconds for shape in seen.pending)
    shapes = ", ".join(_shape(shape) for shape in seen.pending[:PENDING_SHOWN])
    more = len(seen.pending) - PENDING_SHOWN
    others = f", and {count_of(more, 'other shape')}" if more > 0 else ""
    return f"{count} ({age}), the oldest waits for {span(oldest)}: {shapes}{others}"


def _shape(shape: PodShape) -> str:
    return f"{shape.count} x {shape.cpu_milli}m/{shape.memory_mib}Mi {shape.example}".rstrip()


def worker_rows(found: ClusterStatus, seen: Snapshot | None) -> list[WorkerRow]:
    """Each instance of the fleet, the oldest first."""
    known = {worker.instance_id: worker for worker in seen.workers} if seen else {}
    oldest_first = sorted(found.instances, key=lambda one: (one.launched_at, one.instance_id))
    return [_row(found, one, known.get(one.instance_id)) for one in oldest_first]


def _row(found: ClusterStatus, one: Instance, worker: Worker | None) -> WorkerRow:
    tariff = found.settings.tariff()
    cpu = worker.cpu_percent if worker else None
    memory = worker.memory if worker else None
    if cpu is None:  # its CPU credits are not known, and a worker that joins has used none
        price = tariff.without_credits(one.instance_type, one.market)
    else:
        price = tariff.hour(one.instance_type, one.market, cpu, zone=one.zone)
    return WorkerRow(
        instance_id=one.instance_id,
        zone=one.zone,
        instance_type=one.instance_type,
        market=one.market,
        cpu="" if cpu is None else f"{cpu:.0f} %",
        memory="" if memory is None else f"{100 * memory[0] / memory[1]:.0f} %",
        pods="" if worker is None or worker.pods is None else str(worker.pods),
        age=span(found.now - one.launched_at),
        price=found.settings.money.cost(price, digits=4),
        state=", ".join(states_of(found, one, worker)),
    )


def states_of(found: ClusterStatus, one: Instance, worker: Worker | None) -> Sequence[str]:
    """The phase of a worker, then everything that an operator must know about it."""
    state, now = found.state, found.now
    operation, instance_id = state.operation, one.instance_id
    target = next((t for t in operation.targets if t.instance_id == instance_id), None) if operation else None
    waiting = {slot.instance_id for slot in operation.waiting} if operation else set()
    phase: str = worker.phase if worker else "joining"
    words: list[str]
    if target is not None and target.phase not in ("skipped", "undone"):
        words = ["to be drained" if target.phase == "selected" else target.phase]
    elif one.state != "running" or instance_id in waiting:
        words = ["joining" if one.state in ("pending", "running") else one.state]
    else:
        words = [PHASES.get(worker.phase, phase) if worker else phase]
    noticed = next((n.kind for n in state.notices if n.instance_id == instance_id), "")
    failed = next((b for b in state.memory.back_offs if b.key == f"node:{instance_id}" and b.until > now), None)
    current = state.memory.roll_out.current
    return [
        *words,
        *([f"{noticed} notice"] if noticed else []),
        *(["set aside"] if instance_id in state.ids_set_aside else []),
        *(["protected"] if instance_id in state.active_protections(now) else []),
        *([f"in back-off for {span(failed.until - now)}"] if failed else []),
        *(["replacement"] if current and current.replacement == instance_id else []),
        *([outdated_words(found, one).split(":")[0].split(" ")[0]] if outdated_words(found, one) else []),
    ]


def _workers(rows: Sequence[WorkerRow], *, is_wide: bool, most: int) -> RenderableType:
    shown = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    names = [
        "worker",
        "zone",
        "type",
        "market",
        "CPU",
        "memory",
        "pods",
        "age",
        *(["an hour"] if is_wide else []),
        "state",
    ]
    for name in names:
        right = name in ("CPU", "memory", "pods", "age", "an hour")
        shown.add_column(
            name, no_wrap=True, justify="right" if right else "left", overflow="ellipsis", header_style="dim"
        )
    for row in rows[:most]:
        cells = dataclasses.asdict(row)
        price = cells.pop("price")
        state = cells.pop("state")
        if not is_wide:
            cells["zone"] = row.zone.rsplit("-", 1)[-1]
        colour = COLOURS.get(state.split(", ", 1)[0], "yellow")
        shown.add_row(*map(escape, cells.values()), *([price] if is_wide else []), Text(state, colour))
    if not rows:
        return Text("no worker runs", "yellow")
    left = len(rows) - most
    return Group(shown, Text(f"and {count_of(left, 'more worker')}", "dim")) if left > 0 else shown
