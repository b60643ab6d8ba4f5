"""Shows a simulation while it runs: a live picture on a terminal, plain lines elsewhere.

It decides nothing and changes nothing in the simulation.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic as real_monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from simulator.cluster.views import SnapshotLine
from simulator.report.story import changed_something, rows_of

if TYPE_CHECKING:
    from simulator.runner import Execution
    from simulator.scenario.model import Scenario
    from simulator.simulation import Simulation

FRAME_SECONDS = 0.12
REFRESHES_PER_SECOND = 4
"""How often the picture moves by itself, while the simulation starts or computes for long."""
LINES = 7
SPARKS = " ▁▂▃▄▅▆▇█"


class LiveView:
    """The picture of one simulation while it runs. A context manager; `show` is the simulation's progress call."""

    def __init__(self, scenario: Scenario, console: Console) -> None:
        self._scenario = scenario
        self._console = console
        self._printed: set[str] = set()
        self._lines: deque[Text] = deque(maxlen=LINES)
        self._loads: deque[float] = deque(maxlen=48)
        self._drawn_at = 0.0
        self._seen = 0
        self._spinner = Spinner("dots", Text("starting simulated AWS and the cluster", "dim"))
        live = Live(console=console, refresh_per_second=REFRESHES_PER_SECOND, transient=True)
        self._live = live if console.is_terminal else None
        self.executions: list[Execution] = []

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._live.update(self._panel(self._spinner), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def show(self, share: float, line: SnapshotLine) -> None:
        """Take the state of one moment; draw at most one frame every FRAME_SECONDS."""
        self._seen += 1
        self._collect()
        if self._seen % 2 == 0:
            self._loads.append(line.load_per_second)
        if self._live is not None and real_monotonic() - self._drawn_at >= FRAME_SECONDS:
            self._drawn_at = real_monotonic()
            self._live.update(self._picture(share, line), refresh=True)

    def close(self) -> None:
        """Remove the picture, so that other output has the terminal."""
        if self._live is not None:
            self._live.stop()

    def _collect(self) -> None:
        for execution in self.executions:
            if execution.running or execution.arn in self._printed:
                continue
            self._printed.add(execution.arn)
            if changed_something(execution) or execution.status != "SUCCEEDED":
                self._print(execution)

    def _print(self, execution: Execution) -> None:
        (row,) = rows_of([execution])
        before, after = row.workers_before, row.workers_after
        workers = f"{before} → {after} workers" if before is not None else row.status.lower()
        line = Text(f"{row.clock}  {row.trigger:<8} {row.decision:<12} {workers}  {row.reason}")
        line.truncate(max(40, self._console.width - 4), overflow="ellipsis")
        line.stylize("green" if execution.status == "SUCCEEDED" else "red", 0, 32)
        self._lines.append(line)
        if self._live is None:
            self._console.print(line)

    def _picture(self, share: float, line: SnapshotLine) -> Panel:
        top = Table.grid(padding=(0, 2))
        top.add_column(style="cyan", no_wrap=True)
        top.add_column(no_wrap=True)
        clock = dt.datetime.fromtimestamp(line.at, tz=dt.UTC).strftime("%H:%M")
        self._spinner.update(text=f"{clock} UTC, {share:4.0%} of {self._scenario.duration_seconds / 60:.0f} min")
        top.add_row("time", self._spinner)
        top.add_row("load", Text(f"{_sparks(self._loads)}  {line.load_per_second:.0f}/s"))
        top.add_row("pending", _pending(line))
        top.add_row("workers", _workers(line))
        bar = ProgressBar(total=1.0, completed=min(1.0, share), width=min(60, self._console.width - 8))
        return self._panel(Group(top, bar, *self._lines))

    def _panel(self, content: RenderableType) -> Panel:
        return Panel(content, title=escape(self._scenario.name), title_align="left", border_style="dim")


def _sparks(loads: deque[float]) -> str:
    top = max([*loads, 1.0])
    return "".join(SPARKS[min(8, round(load / top * 8))] for load in loads)


def _pending(line: SnapshotLine) -> Text:
    count = line.unschedulable_pods
    return Text("no pending pod" if not count else f"{'●' * min(count, 40)} {count} unschedulable pods", "yellow")


def _workers(line: SnapshotLine) -> Text:
    words = f"{line.workers_usable} usable"
    words += f", {line.workers_booting} joining" if line.workers_booting else ""
    words += f", {line.workers_cordoned} leaving" if line.workers_cordoned else ""
    return Text.assemble(
        ("■ " * line.workers_usable, "green"),
        ("□ " * line.workers_booting, "blue"),
        ("▨ " * line.workers_cordoned, "yellow"),
        words,
    )


@contextmanager
def simulated_live(scenario: Scenario, console: Console) -> Iterator[Simulation]:
    """The simulation of a scenario, run to its end and shown; open until the block is left."""
    with LiveView(scenario, console) as view:
        from simulator.simulation import Simulation  # takes a second, in which the view is already on the screen

        with Simulation(scenario, progress=view.show) as simulation:
            view.executions = simulation.executions
            simulation.run()
            view._collect()
            view.close()
            yield simulation
