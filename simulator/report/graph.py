"""Draws a state machine from its definition in layers from top to bottom: SVG for pages, Mermaid for documents."""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 152, 30, 14, 24, 6
FAR_LAYERS = 4
"""An arrow over more layers than this is drawn faint, because it crosses unrelated states."""
SWEEPS = 8
SHAPES = {
    "Task": "[{}]",
    "Choice": "{{{}}}",
    "Wait": "([{}])",
    "Pass": "({})",
    "Succeed": "(({}))",
    "Fail": "(({}))",
    "Parallel": "[[{}]]",
    "Map": "[[{}]]",
}
"""The Mermaid node of each type of state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """One transition from a state to another; label is the condition or the error that causes it."""

    start: str
    end: str
    kind: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a state is drawn: the upper left corner of its box, in pixels."""

    x: float
    y: float


def flattened(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition with the states inside Parallel and Map moved beside their container, which leads to them."""
    states: dict[str, Any] = {}
    for name, state in definition["States"].items():
        inside = [*state.get("Branches", ())]
        inside += [state[key] for key in ("ItemProcessor", "Iterator") if key in state]
        states[name] = {**state, "Into": [part["StartAt"] for part in inside]} if inside else state
        for part in inside:
            states |= flattened(part)["States"]
    return {**definition, "States": states}


def arrows(definition: dict[str, Any]) -> list[Arrow]:
    """Every transition (next, choice, default, catch, and into a branch) in the order of the definition."""
    return [arrow for name, state in definition["States"].items() for arrow in _arrows_of(name, state)]


def all_edges(definition: dict[str, Any]) -> set[tuple[str, str]]:
    """The pairs of states that a definition connects, and a Parallel or Map with the start of each branch."""
    return {(arrow.start, arrow.end) for arrow in arrows(flattened(definition))}


def _arrows_of(name: str, state: dict[str, Any]) -> Iterator[Arrow]:
    if "Next" in state:
        yield Arrow(start=name, end=state["Next"], kind="next")
    for inner in state.get("Into", ()):
        yield Arrow(start=name, end=inner, kind="into")
    for rule in state.get("Choices", ()):
        yield Arrow(start=name, end=rule["Next"], kind="choice", label=_condition(rule))
    if "Default" in state:
        yield Arrow(start=name, end=state["Default"], kind="default")
    for catcher in state.get("Catch", ()):
        yield Arrow(start=name, end=catcher["Next"], kind="catch", label=", ".join(catcher["ErrorEquals"]))


def _condition(rule: dict[str, Any]) -> str:
    parts = rule.get("And") or rule.get("Or") or [rule]
    return " and ".join(_test(part) for part in parts if "IsPresent" not in part)


def _test(rule: dict[str, Any]) -> str:
    value = next((v for k, v in rule.items() if k not in ("Variable", "Next")), "")
    return f"{rule.get('Variable', '')[2:]} is {json.dumps(value)}"


def layout(definition: dict[str, Any]) -> dict[str, Place]:
    """A place for every state: the layer by the distance from the start, the order in it by the neighbours."""
    depth = _depths(definition)
    layers: dict[int, list[str]] = defaultdict(list)
    for name in definition["States"]:
        layers[depth[name]].append(name)
    _untangle(layers, definition)
    widest = max(len(names) for names in layers.values())
    return {
        name: Place(
            x=MARGIN + (widest - len(names)) * (WIDTH + GAP_X) / 2 + index * (WIDTH + GAP_X),
            y=MARGIN + level * (HEIGHT + GAP_Y),
        )
        for level, names in layers.items()
        for index, name in enumerate(names)
    }


def _depths(definition: dict[str, Any]) -> dict[str, int]:
    """The longest path from the start to each state; loops and the jumps of Resume do not count."""
    forward = _forward(definition)
    depth = dict.fromkeys(definition["States"], 0)
    for name in definition["States"]:
        for end in forward[name]:
            depth[end] = max(depth[end], depth[name] + 1)
    deepest = max(depth.values())
    reached = {end for ends in forward.values() for end in ends} | {definition["StartAt"]}
    return {name: level if name in reached else deepest for name, level in depth.items()}


def _forward(definition: dict[str, Any]) -> dict[str, list[str]]:
    forward: dict[str, list[str]] = {name: [] for name in definition["States"]}
    order = {name: index for index, name in enumerate(definition["States"])}
    for arrow in arrows(definition):
        if arrow.start != "Resume" and order[arrow.end] > order[arrow.start] and arrow.end not in forward[arrow.start]:
            forward[arrow.start].append(arrow.end)
    return forward


def _untangle(layers: dict[int, list[str]], definition: dict[str, Any]) -> None:
    near: dict[str, set[str]] = defaultdict(set)
    for arrow in arrows(definition):
        if arrow.kind != "catch":
            near[arrow.start].add(arrow.end)
            near[arrow.end].add(arrow.start)
    for _ in range(SWEEPS):
        spot = {name: index / max(1, len(row)) for row in layers.values() for index, name in enumerate(row)}
        for row in layers.values():
            row.sort(key=lambda name: sum(spot[n] for n in near[name]) / max(1, len(near[name])))


def svg(definition: dict[str, Any]) -> str:
    """The graph as one SVG element; data-state on boxes and data-edge="A>B" on arrows let a page highlight a path."""
    definition = flattened(definition)
    places = layout(definition)
    width = max(p.x for p in places.values()) + WIDTH + MARGIN
    height = max(p.y for p in places.values()) + HEIGHT + MARGIN
    lines = [_line(arrow, places) for arrow in _drawn(definition)]
    boxes = [_box(name, state, places[name]) for name, state in definition["States"].items()]
    return (
        f'<svg class="graph" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="Workflow with highlighted path">'
        f"{''.join(lines)}{''.join(boxes)}</svg>"
    )


FILE_STYLE = (
    "svg{background:#fff}.edge{fill:none;stroke:#b9b4a6;stroke-width:1.3}.edge.far{opacity:.45}.edge.catch{display:none}"
    ".state rect{fill:#f7f6f2;stroke:#8c8471}.state text{font:12px sans-serif;text-anchor:middle;fill:#1b2227}"
    ".task rect{stroke:#2b6a99;stroke-width:1.6}.fail rect{stroke:#b42318}.succeed rect{stroke:#0f7a57}"
    "@media(prefers-color-scheme:dark){svg{background:#12171a}.state rect{fill:#1a2024}.state text{fill:#eae8e2}}"
)


def picture(definition: dict[str, Any]) -> str:
    """The graph as a separate SVG file for documents; caught errors are left out."""
    drawn = svg(definition)
    start = drawn.index(">") + 1
    head = drawn[:start].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}<style>{FILE_STYLE}</style>{drawn[start:]}\n"


def _drawn(definition: dict[str, Any]) -> list[Arrow]:
    """One arrow for each pair of states; a catch is left out where another transition leads to the same state."""
    found: dict[tuple[str, str], Arrow] = {}
    for arrow in sorted(arrows(definition), key=lambda one: one.kind == "catch"):
        found.setdefault((arrow.start, arrow.end), arrow)
    return list(found.values())


def _line(arrow: Arrow, places: dict[str, Place]) -> str:
    a, b = places[arrow.start], places[arrow.end]
    x1, y1, x2, y2 = a.x + WIDTH / 2, a.y + HEIGHT, b.x + WIDTH / 2, b.y
    if b.y <= a.y:
        y1, y2 = a.y + HEIGHT / 2, b.y + HEIGHT / 2
        x1 += WIDTH / 2 if b.x >= a.x else -WIDTH / 2
        x2 += WIDTH / 2 if b.x >= a.x else -WIDTH / 2
        side = 26 if b.x >= a.x else -26
        path = f"M{x1:g} {y1:g}C{x1 + side:g} {y1:g} {x2 + side:g} {y2:g} {x2:g} {y2:g}"
    else:
        bend = max(14.0, (y2 - y1) / 2)
        path = f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"
    title = f"<title>{html.escape(f'{arrow.start} to {arrow.end} {arrow.label}'.strip())}</title>"
    edge = html.escape(f"{arrow.start}>{arrow.end}")
    far = " far" if abs(b.y - a.y) > FAR_LAYERS * (HEIGHT + GAP_Y) else ""
    return f'<path class="edge {arrow.kind}{far}" data-edge="{edge}" d="{path}">{title}</path>'


def _box(name: str, state: dict[str, Any], place: Place) -> str:
    shape = state["Type"].lower()
    title = f"<title>{html.escape(state.get('Comment', name))}</title>"
    text = f'<text x="{WIDTH / 2:g}" y="{HEIGHT / 2 + 4:g}">{html.escape(name)}</text>'
    radius = HEIGHT / 2 if shape in ("choice", "wait") else 6
    state_name = html.escape(name)
    return (
        f'<g class="state {shape}" data-state="{state_name}" transform="translate({place.x:g} {place.y:g})">{title}'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="{radius:g}"/>{text}</g>'
    )


def mermaid(definition: dict[str, Any]) -> str:
    """The graph as a Mermaid flowchart: solid arrows are transitions, dotted arrows are caught errors."""
    definition = flattened(definition)
    boxes = [f"  {name}{SHAPES[state['Type']].format(name)}" for name, state in definition["States"].items()]
    return "\n".join(["flowchart TD", *boxes, *dict.fromkeys(map(_mermaid_arrow, arrows(definition)))])


def _mermaid_arrow(arrow: Arrow) -> str:
    if arrow.kind == "catch":
        return f"  {arrow.start} -.-> {arrow.end}"
    label = "otherwise" if arrow.kind == "default" else arrow.label.replace('"', "'")
    shown = f'|"{label}"|' if label else ""
    return f"  {arrow.start} -->{shown} {arrow.end}"
