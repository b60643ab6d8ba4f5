"""One HTML page of a study: the answer, the table, and linked charts. It loads nothing from the network."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import string
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from backtest.compare import Study
from backtest.measures import Measures
from backtest.summary import COLUMNS, answer, rows
from simulator.report.template import render_page

COLOURS = ("#0b7a57", "#c1121f", "#4361ee", "#c65d07", "#8e44ad", "#00838f", "#7a5c50")
DASHES, SYMBOLS = ("solid", "dash", "dot"), ("circle", "diamond", "square")
"""A policy has its own pair of colour and dash, and of colour and symbol: 21 differ, also without seeing colours."""
NEED = "workers needed"
CHECKED = (
    "The model was checked against simulations of the shipped workflow: on five scenarios the same actions, and "
    "worker-hours within 3 %. It has no interruptions and no blocked removals; docs/backtest.md lists all its limits."
)

_SAFE = str.maketrans("&<>`", ",./:")
"""The digits of Python's base 85 that are markup in HTML, and what stands for them."""
ALPHABET = (string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~").translate(
    _SAFE
)
"""The digits by their value: those of base64.b85encode, which are those of RFC 1924."""

UNITS = (
    ("hours", "worker-hours: the sum of the time that each instance costs"),
    ("USD", "the whole bill of the workers: instances, volumes, addresses, CPU credits"),
    ("instances", "the part of it for the instances alone, in USD"),
    ("saved", "against five On-Demand workers that run all the time"),
    ("/ bound", "worker-hours as a multiple of those of the cheapest fleet that knows the load beforehand"),
    ("pending", "pod-minutes: pods that waited for a worker, times the minutes that each waited"),
    ("avoidable/d", "pending pod-minutes a day that a larger fleet would have avoided"),
    ("overload", "minutes in which the pods needed more CPU than the workers have"),
    ("actions", "completed scale-ups and scale-downs"),
    ("changes/d", "changes between scale-up and scale-down a day"),
)
"""What each column of the table counts."""

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
tbody tr{cursor:pointer}tbody tr:focus-visible{outline:2px solid #7b5cd6;outline-offset:-2px}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 14px;margin:10px 0}
dl{font-size:13px;color:var(--soft)}
dt{font-weight:600}dd{margin:0}
"""

CHART_SCRIPT = """
const dark = matchMedia('(prefers-color-scheme: dark)');
const ink = () => dark.matches ? '#eae8e2' : '#1b2227', rule = () => dark.matches ? '#2f373d' : '#e2ded3';
const paper = {paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)'};
const styled = layout => {
  const axes = Object.keys(layout).filter(name => /^[xy]axis/.test(name));
  axes.forEach(name => Object.assign(layout[name], {gridcolor: rule(), zerolinecolor: rule()}));
  return Object.assign(layout, paper, {font: {color: ink(), family: 'system-ui, sans-serif'}});
};
const options = {responsive: true, displaylogo: false};
"""
"""What every page with charts needs: colours by the mode of the browser."""

SCRIPT = """
function draw({charts, times}) {
for (const trace of charts.time.data) trace.x = times[trace.x];
for (const [name, chart] of Object.entries(charts)) Plotly.newPlot(name, chart.data, styled(chart.layout), options);
dark.addEventListener('change', () => Object.entries(charts).forEach(
  ([name, chart]) => Plotly.react(name, document.getElementById(name).data, styled(chart.layout), options)));
const time = document.getElementById('time'), map = document.getElementById('map');
const isolate = policy => Plotly.restyle(time, {
  visible: time.data.map(t => [policy, charts.need].includes(t.legendgroup) || 'legendonly')});
map.on('plotly_click', event => isolate(event.points[0].data.name));
document.querySelectorAll('tbody tr').forEach((row, place, all) => {
  row.addEventListener('click', () => isolate(row.dataset.policy));
  row.addEventListener('keydown', event => {
    const next = all[place + ({ArrowDown: 1, ArrowUp: -1}[event.key] ?? 0)];
    if (event.key === 'Enter' || event.key === ' ') isolate(row.dataset.policy);
    else if (!next || next === row) return;
    else { all.forEach(one => one.tabIndex = one === next ? 0 : -1); next.focus(); }
    event.preventDefault();
  });
});
document.documentElement.dataset.drawn = 'yes';
}
const digits = new Map([...ALPHABET].map((digit, value) => [digit, value]));
async function unpacked(id) {
  const from = document.getElementById(id), text = from.textContent;
  const view = new DataView(new ArrayBuffer(text.length / 5 * 4));
  for (let group = 0; group < text.length / 5; group++) {
    let value = 0;
    for (let place = 0; place < 5; place++) value = value * 85 + digits.get(text[5 * group + place]);
    view.setUint32(4 * group, value);
  }
  const bytes = new Blob([new Uint8Array(view.buffer, 0, Number(from.dataset.bytes))]);
  return new Response(bytes.stream().pipeThrough(new DecompressionStream('gzip'))).text();
}
Promise.all([unpacked('library'), unpacked('charts')]).then(([source, charts]) => {
  const script = document.createElement('script');
  script.textContent = source;
  document.head.append(script);
  draw(JSON.parse(charts));
});
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
<tbody>{% for row in rows %}<tr data-policy="{{ row[0] }}" tabindex="{{ 0 if loop.first else -1 }}">
{%- for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</tbody></table></div>
<dl>{% for name, text in units %}<dt>{{ name }}</dt><dd>{{ text }}</dd>{% endfor %}</dl>
<h2>Over time</h2><p class="soft">Both charts share their time axis: zoom one and the other follows.
A click on a row above or on a point below, or Enter on a row, shows that policy alone; a click in the legend shows
the others again. The arrow keys move through the rows.</p>
<div class="chart" id="time" role="group" aria-label="Workers and pending pods over time"></div>
<h2>Cost and waiting</h2>
<div class="chart" id="map" role="group" aria-label="Cost and waiting of each policy, as in the table"></div>
</main>
{% for id, (text, bytes) in packed.items() -%}
<script type="text/plain" id="{{ id }}" data-bytes="{{ bytes }}">{{ text }}</script>
{% endfor -%}
<script>SCRIPT</script></body></html>
"""


class _Times:
    """The time axes of the chart, each once: policies that are sampled at the same moments share one."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self._places: dict[tuple[int, ...], int] = {}

    def place_of(self, at: list[int]) -> int:
        """The number of the axis with these moments (epoch seconds)."""
        key = tuple(at)
        if key not in self._places:
            self._places[key] = len(self.lists)
            self.lists.append([datetime.fromtimestamp(one, UTC).strftime("%Y-%m-%d %H:%M:%S") for one in at])
        return self._places[key]


def render(study: Study, said: str = "") -> str:
    """The page as text, led by what is said or else by the answer.

    The study needs points for charts (chart_seconds).
    """
    script = SCRIPT.replace("charts.need", json.dumps(NEED)).replace("ALPHABET", json.dumps(ALPHABET))
    packed = json.dumps(charts_of(study), separators=(",", ":"))
    return render_page(
        TEMPLATE.replace("SCRIPT", CHART_SCRIPT + script),
        trusted=(library(),),
        packed={"library": compressed(library()), "charts": compressed(packed)},
        units=UNITS,
        name=study.load.name,
        style=Markup(STYLE),
        answer=said or answer(study),
        assumed=assumed(study),
        checked=CHECKED,
        columns=COLUMNS,
        rows=rows(study),
    )


def charts_of(study: Study) -> dict[str, Any]:
    """Both charts for Plotly, and the time axes that the traces of the first one name by their place."""
    times = _Times()
    charts = {"time": _over_time(study, times), "map": cost_and_waiting(study)}
    return {"charts": charts, "times": times.lists}


def compressed(text: str) -> tuple[str, int]:
    """The text for the page, compressed and in base 85 without characters that HTML escapes; and the bytes in it."""
    data = gzip.compress(text.encode(), 9, mtime=0)
    return base64.b85encode(data, pad=True).decode().translate(_SAFE), len(data)


@functools.cache
def library() -> str:
    """Plotly. A page that is written carries it compressed, at less than half of its size."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def assumed(study: Study) -> str:
    """The model of the study in one line."""
    capacity, scaling = study.assumptions.capacity, study.assumptions.scaling
    load = study.load
    return (
        f"{load.seconds / 86400:.1f} days; {load.min_workers} to {load.max_workers} workers of type "
        f"{capacity.instance_type} with {load.pods_per_worker} pods each; boot {capacity.boot_seconds} s, drain "
        f"{capacity.drain_seconds} s; the load {scaling.interpolation}s between readings; CPU target of the pod "
        f"autoscaler {scaling.target_percent:g} %. Bound: the cheapest fleet that knows the load beforehand."
        f"{study.left_out and f' {study.left_out}'}"
    )


def _over_time(study: Study, times: _Times) -> dict[str, Any]:
    """The workers, and below them the pending pods, on one time axis."""
    need = _need(study, times)
    traces = [need]
    for number, measures in enumerate(study.results):
        visible = True if measures in (study.configured, study.cheapest_without_more_pending) else "legendonly"
        traces += _lines(measures, number, visible, times)
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


def _need(study: Study, times: _Times) -> dict[str, Any]:
    """The workers that the load needs at the points of the first policy."""
    load, at = study.load, [point.at for point in study.configured.points]
    changes = [change for phase in load.phases for change in phase.changes]
    needed, index = [], 0
    for moment in at:
        while index + 1 < len(changes) and changes[index + 1][0] <= moment:
            index += 1
        needed.append(load.workers_for(changes[index][1]))
    line = {"color": "#8c8471", "width": 1, "shape": "hv"}
    return {"x": times.place_of(at), "y": needed, "name": NEED, "legendgroup": NEED, "line": line, "fill": "tozeroy"}


def look_of(number: int) -> tuple[str, str, str]:
    """Colour, dash and symbol of the policy of that place."""
    turn = number // len(COLOURS) % len(DASHES)
    return COLOURS[number % len(COLOURS)], DASHES[turn], SYMBOLS[turn]


def _lines(measures: Measures, number: int, visible: bool | str, times: _Times) -> list[dict[str, Any]]:
    colour, dash, _ = look_of(number)
    common = {
        "x": times.place_of([point.at for point in measures.points]),
        "name": measures.policy,
        "legendgroup": measures.policy,
        "visible": visible,
        "line": {"color": colour, "dash": dash, "width": 2, "shape": "hv"},
    }
    workers = {**common, "y": [point.workers for point in measures.points]}
    pending = {**common, "y": [point.pending for point in measures.points], "yaxis": "y2", "showlegend": False}
    return [workers, pending]


def cost_and_waiting(study: Study) -> dict[str, Any]:
    """Each policy as a point of cost and waiting, the configuration as a star, and a line through the best of them."""
    every = (*study.results, study.bound)
    best = sorted((study.times_bound(m), m.avoidable_per_day) for m in study.results if not _is_beaten(study, m))
    line = {"x": [x for x, _ in best], "y": [y for _, y in best], "mode": "lines", "hoverinfo": "skip"}
    points = [_point(study, measures, number) for number, measures in enumerate(every)]
    layout = {
        "height": 520,
        "margin": {"l": 64, "r": 16, "t": 16, "b": 48},
        "legend": {"orientation": "h", "y": -0.2},
        "xaxis": {"title": {"text": "worker-hours, times those of the clairvoyant fleet"}},
        "yaxis": {"title": {"text": "avoidable pending pod-minutes a day"}, "rangemode": "tozero"},
    }
    best_of_them = {
        **line,
        "name": "none is cheaper and waits less",
        "line": {"color": "#8c8471", "width": 1, "dash": "dot"},
    }
    return {"data": [*points, best_of_them], "layout": layout}


def _point(study: Study, measures: Measures, number: int) -> dict[str, Any]:
    """The names stand in the legend: beside the points they would cover each other."""
    colour, _, symbol = look_of(number)
    is_configured = measures is study.configured
    return {
        "x": [study.times_bound(measures)],
        "y": [measures.avoidable_per_day],
        "name": measures.policy,
        "mode": "markers",
        "marker": {"size": 18 if is_configured else 11, "symbol": "star" if is_configured else symbol, "color": colour},
        "hovertemplate": "%{fullData.name}: %{x:.3f} times the bound, %{y:.1f} pod-minutes a day<extra></extra>",
    }


def _is_beaten(study: Study, one: Measures) -> bool:
    """Whether another policy costs no more and waits no longer, and is better in one of them."""
    return any(
        other.worker_hours <= one.worker_hours
        and other.avoidable_per_day <= one.avoidable_per_day
        and (other.worker_hours, other.avoidable_per_day) != (one.worker_hours, one.avoidable_per_day)
        for other in study.results
    )
