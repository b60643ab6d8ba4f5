"""Writes one self-contained HTML page: the answer first, then charts, executions, and the workflow with its path lit.

No network, no library: the page must open from a mail attachment on a phone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from node_fleet.domain.model.value_class import value_class
from simulator.report.graph import MARKERS, svg
from simulator.report.story import Row, changed_something, quiet_runs, rows_of
from simulator.report.template import as_json, render_page

if TYPE_CHECKING:
    from simulator.runner import Execution

TEMPLATE = Path(__file__).with_name("page.html")
CONTAINERS = ("Map", "Parallel")
PAYLOAD_LIMIT = 60_000
"""Characters of one state's input that the page keeps; a longer one is cut with a mark."""


@value_class
class Point:
    """The cluster at one moment. Times are epoch seconds, load is in the scenario's own unit."""

    at: float
    load: float
    pending: int
    usable: int
    joining: int
    leaving: int


@value_class
class Report:
    """All that the page shows. `figures` are the numbers of the headline and `definitions` the workflows, by name."""

    title: str
    sentence: str
    figures: dict[str, str]
    points: Sequence[Point]
    executions: Sequence[Execution]
    definitions: Mapping[str, dict[str, Any]]
    subtitle: str = ""
    everything: bool = False


def render(report: Report) -> str:
    """The page as text: executions that changed something or failed, then the last of those with each other reason."""
    groups = [] if report.everything else quiet_runs(report.executions)
    alike = {group.last: group.runs for group in groups}
    shown = [e for e in report.executions if report.everything or changed_something(e) or e.status != "SUCCEEDED"]
    shown += [e for e in report.executions if e.name in alike]
    data = {
        "points": [[p.at, p.load, p.pending, p.usable, p.joining, p.leaving] for p in report.points],
        "runs": list(_runs(shown, rows_of(shown), tuple(report.definitions), alike)),
    }
    return render_page(
        TEMPLATE.read_text(encoding="utf-8"),
        title=report.title,
        sentence=report.sentence,
        figures=report.figures,
        subtitle=report.subtitle,
        markers=Markup(f'<svg width="0" height="0" aria-hidden="true">{MARKERS}</svg>'),
        graphs=Markup("").join(_graph(name, one) for name, one in report.definitions.items()),
        data=as_json(data),
    )


def _graph(name: str, definition: dict[str, Any]) -> Markup:
    return Markup('<div class="graph-box" data-machine="{}">{}</div>').format(name, Markup(svg(definition)))


def _runs(
    executions: Iterable[Execution], rows: Iterable[Row], machines: Sequence[str], alike: Mapping[str, int]
) -> Iterable[dict[str, Any]]:
    """alike: the name of an execution that stands for others which changed nothing for its reason -> how many."""
    for execution, row in zip(executions, rows, strict=True):
        yield {
            "name": row.name,
            "machine": next((one for one in machines if one in execution.machine.lower()), machines[0]),
            "at": row.started_at,
            "end": row.ended_at,
            "clock": row.clock,
            "trigger": row.trigger,
            "decision": row.decision,
            "alike": alike.get(row.name, 0),
            "reason": row.reason,
            "path": row.path,
            "status": row.status,
            "before": row.workers_before,
            "after": row.workers_after,
            "edges": sorted(f"{a}>{b}" for a, b in execution.edges),
            "steps": _steps(execution),
        }


def _steps(execution: Execution) -> dict[str, Any]:
    """The visits with their payloads stored once: a state's input is mostly the output of the one before."""
    texts: dict[str, int] = {}

    def keep(value: Any) -> int:
        text = json.dumps(value, indent=1, default=str)
        if len(text) > PAYLOAD_LIMIT:
            text = f"{text[:PAYLOAD_LIMIT]} ... cut, {len(text)} characters in all"
        return texts.setdefault(text, len(texts))

    visits = [
        [v.name, v.entered_at, v.exited_at, keep(v.input), keep(v.output), v.type in CONTAINERS]
        for v in execution.history
    ]
    return {"visits": visits, "texts": list(texts)}
