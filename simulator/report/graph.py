"""Draws a state machine from its definition, as ELK has laid it out: SVG for pages and documents."""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from node_fleet.domain.model.value_class import value_class

WIDTH, HEIGHT = 152, 30
LAYOUTS = Path(__file__).with_name("layout.json")
"""Written by `python -m tools.layout`."""


@value_class
class Arrow:
    """One transition from a state to another; label is the condition or the error that causes it."""

    start: str
    end: str
    kind: str
    label: str = ""


@value_class
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


@value_class
class Layout:
    """Where ELK put the boxes of a workflow and how it routes the arrows ("A>B"), in pixels."""

    width: int
    height: int
    places: dict[str, Place]
    routes: dict[str, tuple[tuple[int, int], ...]]


def layout(definition: dict[str, Any]) -> Layout:
    """The layout of that workflow, with the states inside Parallel and Map.

    Raises:
        LayoutError: the file of layouts was made for other states or transitions.
    """
    states, edges = set(definition["States"]), {f"{one.start}>{one.end}" for one in drawn(definition)}
    for found in _layouts():
        if found.places.keys() == states and found.routes.keys() == edges:
            return found
    raise LayoutError(f"{LAYOUTS} is out of date: run python -m tools.layout")


class LayoutError(ValueError):
    """No layout belongs to the workflow."""


@functools.cache
def _layouts() -> tuple[Layout, ...]:
    raw = json.loads(LAYOUTS.read_text(encoding="utf-8"))
    return tuple(
        Layout(
            width=one["width"],
            height=one["height"],
            places={name: Place(x=x, y=y) for name, (x, y) in one["places"].items()},
            routes={edge: tuple((x, y) for x, y in points) for edge, points in one["routes"].items()},
        )
        for one in raw.values()
    )


MARKERS = (
    "<defs>"
    + "".join(
        f'<marker id="{name}" class="{name}" markerWidth="7" markerHeight="7" refX="6" refY="3.5" orient="auto"'
        ' markerUnits="userSpaceOnUse"><path d="M0 0L7 3.5L0 7z"/></marker>'
        for name in ("arrow", "arrow-on", "arrow-bad")
    )
    + "</defs>"
)
"""The heads of arrows: of all, of the highlighted path, and of its failures. A page has them once."""


def svg(definition: dict[str, Any]) -> str:
    """The graph as one SVG element; data-state on boxes and data-edge="A>B" on arrows let a page highlight a path."""
    definition = flattened(definition)
    found = layout(definition)
    lines = [_line(arrow, found) for arrow in drawn(definition)]
    boxes = [_box(name, state, found.places[name]) for name, state in definition["States"].items()]
    return (
        f'<svg class="graph" viewBox="0 0 {found.width} {found.height}" role="group" aria-label="Workflow">'
        f"{''.join(lines)}{''.join(boxes)}</svg>"
    )


FILE_STYLE = (
    "svg{background:#fff}.edge{fill:none;stroke:#8a8578;stroke-width:1.3;marker-end:url(#arrow)}.edge.catch{display:none}"
    "marker{fill:#8a8578}"
    ".state rect{fill:#f7f6f2;stroke:#8c8471}.state text{font:14px sans-serif;text-anchor:middle;fill:#1b2227}"
    ".task rect{stroke:#2b6a99;stroke-width:1.6}.fail rect{stroke:#b42318}.succeed rect{stroke:#0f7a57}"
    "@media(prefers-color-scheme:dark){svg{background:#12171a}.state rect{fill:#1a2024}.state text{fill:#eae8e2}}"
)


def picture(definition: dict[str, Any]) -> str:
    """The graph as a separate SVG file for documents; caught errors are left out."""
    whole = svg(definition)
    start = whole.index(">") + 1
    head = whole[:start].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}<style>{FILE_STYLE}</style>{MARKERS}{whole[start:]}\n"


def drawn(definition: dict[str, Any]) -> list[Arrow]:
    """One arrow for each pair of states; a catch is left out where another transition leads to the same state."""
    found: dict[tuple[str, str], Arrow] = {}
    for arrow in sorted(arrows(definition), key=lambda one: one.kind == "catch"):
        found.setdefault((arrow.start, arrow.end), arrow)
    return list(found.values())


def _line(arrow: Arrow, found: Layout) -> str:
    edge = f"{arrow.start}>{arrow.end}"
    path = "M" + "L".join(f"{x} {y}" for x, y in found.routes[edge])
    title = f"<title>{html.escape(f'{arrow.start} to {arrow.end} {arrow.label}'.strip())}</title>"
    return f'<path class="edge {arrow.kind}" data-edge="{html.escape(edge)}" d="{path}">{title}</path>'


def _box(name: str, state: dict[str, Any], place: Place) -> str:
    shape = state["Type"].lower()
    title = f"<title>{html.escape(state.get('Comment', name))}</title>"
    text = f'<text x="{WIDTH / 2:g}" y="{HEIGHT / 2 + 5:g}">{html.escape(name)}</text>'
    radius = HEIGHT / 2 if shape in ("choice", "wait") else 6
    state_name = html.escape(name)
    return (
        f'<g class="state {shape}" data-state="{state_name}" transform="translate({place.x:g} {place.y:g})">{title}'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="{radius:g}"/>{text}</g>'
    )
