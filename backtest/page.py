"""One HTML page of a study: the answer, the table, and linked charts. It loads nothing from the network."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from backtest.compare import Study
from backtest.measures import Measures
from backtest.summary import COLUMNS, answer, rows
from simulator.report.template import as_json, render_page

COLOURS = ("#0b6e4f", "#c1121f", "#4361ee", "#e07a1f", "#7b2cbf", "#00838f", "#8d6e63", "#ad1457", "#546e7a", "#9e9d24")
NEED = "workers needed"
CHECKED = (
    "The model was checked against simulations of the shipped workflow: on five scenarios the same actions, and "
    "worker-hours within 3 %. It has no interruptions and no blocked removals; docs/backtest.md lists all its limits."
)

STYLE = """
:root{color-scheme:light dark;--bg:#f7f6f2;--fg:#1b2227;--soft:#56616a;--line:#dcd8cd;--card:#fff}
@media (prefers-color-scheme:dark){:root{--bg:#12171a;--fg:#eae8e2;--soft:#a3adb4;--line:#2f373d;--card:#1a2024}}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 20px 72px}
h1{font-size:24px;line-height:1.25;margin:0 0 4px}h2{font-size:17px;margin:32px 0 10px}
.lead{font-size:19px;max-width:70ch}.soft{color:var(--soft);font-size:13px}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:7px 12px;text-align:right;border-top:1px solid var(--line)}thead th{border-top:0}
th:first-child,td:first-child{text-align:left}
.chart{background:var(--card);border:1px solid var(--line);border-radius:10px}
"""

SCRIPT = """
const dark = matchMedia('(prefers-color-scheme: dark)');
const ink = () => dark.matches ? '#eae8e2' : '#1b2227', rule = () => dark.matches ? '#2f373d' : '#e2ded3';
const paper = {paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)'};
const styled = layout => {
  const axes = Object.keys(layout).filter(name => /^[xy]axis/.test(name));
  axes.forEach(name => Object.assign(layout[name], {gridcolor: rule(), zerolinecolor: rule()}));
  return Object.assign(layout, paper, {font: {color: ink(), family: 'system-ui, sans-serif'}});
};
const charts = JSON.parse(document.getElementById('charts').textContent);
const options = {responsive: true, displaylogo: false};
for (const [name, chart] of Object.entries(charts)) Plotly.newPlot(name, chart.data, styled(chart.layout), options);
dark.addEventListener('change', () => Object.entries(charts).forEach(
  ([name, chart]) => Plotly.react(name, document.getElementById(name).data, styled(chart.layout), options)));
const time = document.getElementById('time'), map = document.getElementById('map');
const isolate = policy => Plotly.restyle(time, {
  visible: time.data.map(t => [policy, charts.need].includes(t.legendgroup) || 'legendonly')});
map.on('plotly_click', event => isolate(event.points[0].text));
document.querySelectorAll('tbody tr').forEach(row => row.addEventListener('click', () => isolate(row.dataset.policy)));
"""


TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>Back-test of {{ name }}</title><style>{{ style }}</style></head>
<body><main>
<h1>Back-test of {{ name }}</h1>
<p class="lead">{{ answer }}.</p>
<p class="soft">{{ assumed }}</p>
<p class="soft">{{ checked }}</p>
<h2>Policies</h2><div class="scroll"><table>
<thead><tr>{% for column in columns %}<th>{{ column }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in rows %}<tr data-policy="{{ row[0] }}">
{%- for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</tbody></table></div>
<h2>Over time</h2><p class="soft">Both charts share their time axis: zoom one and the other follows.
A click on a row above or on a point below shows that policy alone; a click in the legend shows the others again.</p>
<div class="chart" id="time"></div>
<h2>Cost and waiting</h2><div class="chart" id="map"></div>
</main>
<script type="application/json" id="charts">{{ charts }}</script>
<script>PLOTLY</script><script>SCRIPT</script></body></html>
"""


def render(study: Study, said: str = "") -> str:
    """The page as text, led by what is said or else by the answer.

    The study needs points for charts (chart_seconds).
    """
    from plotly.offline import get_plotlyjs

    script = SCRIPT.replace("charts.need", json.dumps(NEED))
    return render_page(
        TEMPLATE.replace("SCRIPT", script).replace("PLOTLY", get_plotlyjs()),
        name=study.load.name,
        style=Markup(STYLE),
        answer=said or answer(study),
        assumed=_assumed(study),
        checked=CHECKED,
        columns=COLUMNS,
        rows=rows(study),
        charts=as_json({"time": _over_time(study), "map": _map(study)}),
    )


def _assumed(study: Study) -> str:
    capacity, scaling = study.assumptions.capacity, study.assumptions.scaling
    load = study.load
    return (
        f"{load.seconds / 86400:.1f} days; {load.min_workers} to {load.max_workers} workers of type "
        f"{capacity.instance_type} with {load.pods_per_worker} pods each; boot {capacity.boot_seconds} s, drain "
        f"{capacity.drain_seconds} s; the load {scaling.interpolation}s between readings; CPU target of the pod "
        f"autoscaler {scaling.target_percent:g} %. Bound: the cheapest fleet that knows the load beforehand."
    )


def _over_time(study: Study) -> dict[str, Any]:
    """The workers, and below them the pending pods, on one time axis."""
    need = _need(study)
    traces = [need]
    for number, measures in enumerate(study.results):
        visible = True if measures in (study.configured, study.cheapest_without_more_pending) else "legendonly"
        traces += _lines(measures, COLOURS[number % len(COLOURS)], visible)
    layout = {
        "height": 620,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 40},
        "hovermode": "x unified",
        "legend": {"orientation": "h", "y": -0.1},
        "xaxis": {"type": "date", "anchor": "y2", "domain": [0, 1]},
        "yaxis": {"title": {"text": "workers"}, "domain": [0.42, 1], "rangemode": "tozero"},
        "yaxis2": {"title": {"text": "pending pods"}, "domain": [0, 0.34], "rangemode": "tozero"},
    }
    return {"data": traces, "layout": layout}


def _need(study: Study) -> dict[str, Any]:
    """The workers that the load needs at the points of the first policy."""
    load, at = study.load, [point.at for point in study.configured.points]
    changes = [change for phase in load.phases for change in phase.changes]
    needed, index = [], 0
    for moment in at:
        while index + 1 < len(changes) and changes[index + 1][0] <= moment:
            index += 1
        needed.append(load.workers_for(changes[index][1]))
    line = {"color": "#8c8471", "width": 1, "shape": "hv"}
    return {"x": _times(at), "y": needed, "name": NEED, "legendgroup": NEED, "line": line, "fill": "tozeroy"}


def _lines(measures: Measures, colour: str, visible: bool | str) -> list[dict[str, Any]]:
    common = {
        "x": _times([point.at for point in measures.points]),
        "name": measures.policy,
        "legendgroup": measures.policy,
        "visible": visible,
        "line": {"color": colour, "width": 2, "shape": "hv"},
    }
    workers = {**common, "y": [point.workers for point in measures.points]}
    pending = {**common, "y": [point.pending for point in measures.points], "yaxis": "y2", "showlegend": False}
    return [workers, pending]


def _map(study: Study) -> dict[str, Any]:
    """Each policy as a point of cost and waiting, the configuration as a star, and a line through the best of them."""
    every = (*study.results, study.bound)
    best = sorted((study.times_bound(m), m.avoidable_per_day) for m in study.results if not _is_beaten(study, m))
    line = {"x": [x for x, _ in best], "y": [y for _, y in best], "mode": "lines", "hoverinfo": "skip"}
    points = {
        "x": [study.times_bound(m) for m in every],
        "y": [m.avoidable_per_day for m in every],
        "text": [m.policy for m in every],
        "mode": "markers+text",
        "textposition": "top center",
        "marker": {
            "size": [18 if m is study.configured else 11 for m in every],
            "symbol": ["star" if m is study.configured else "circle" for m in every],
            "color": [COLOURS[i % len(COLOURS)] for i in range(len(every))],
        },
        "hovertemplate": "%{text}: %{x:.3f} times the bound, %{y:.1f} pod-minutes a day<extra></extra>",
    }
    layout = {
        "height": 420,
        "margin": {"l": 64, "r": 16, "t": 16, "b": 48},
        "showlegend": False,
        "xaxis": {"title": {"text": "worker-hours, times those of the clairvoyant fleet"}},
        "yaxis": {"title": {"text": "avoidable pending pod-minutes a day"}, "rangemode": "tozero"},
    }
    return {"data": [points, {**line, "line": {"color": "#8c8471", "width": 1, "dash": "dot"}}], "layout": layout}


def _is_beaten(study: Study, one: Measures) -> bool:
    """Whether another policy costs no more and waits no longer, and is better in one of them."""
    return any(
        other.worker_hours <= one.worker_hours
        and other.avoidable_per_day <= one.avoidable_per_day
        and (other.worker_hours, other.avoidable_per_day) != (one.worker_hours, one.avoidable_per_day)
        for other in study.results
    )


def _times(at: list[int]) -> list[str]:
    return [datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S") for moment in at]
