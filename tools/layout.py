"""Places the states of both workflows and routes their arrows with ELK, for the pictures in pages and documents.

    python -m tools.layout

It needs npm once. The result is a file of the simulator, so that pages need neither npm nor a network.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from cdk_app.workflow import definitions
from simulator.report.graph import HEIGHT, LAYOUTS, WIDTH, drawn, flattened
from tools.npm_packages import installed, program

ELK = Path(__file__).with_name("elk")
OPTIONS = {
    "elk.algorithm": "layered",
    "elk.direction": "DOWN",
    "elk.edgeRouting": "ORTHOGONAL",
    "elk.layered.mergeEdges": "true",
    "elk.layered.cycleBreaking.strategy": "MODEL_ORDER",
    "elk.layered.considerModelOrder.strategy": "PREFER_EDGES",
    "elk.layered.crossingMinimization.thoroughness": "60",
    "elk.spacing.nodeNode": "14",
    "elk.spacing.edgeNode": "9",
    "elk.spacing.edgeEdge": "7",
    "elk.layered.spacing.nodeNodeBetweenLayers": "24",
    "elk.layered.spacing.edgeNodeBetweenLayers": "9",
    "elk.layered.spacing.edgeEdgeBetweenLayers": "7",
}
"""https://eclipse.dev/elk/reference.html. Arrows with one end in common share a line until they part."""


def placed(definition: dict[str, Any]) -> dict[str, Any]:
    """The places of the states and the routes of the arrows, in whole pixels."""
    flat = flattened(definition)
    graph = {
        "id": "workflow",
        "layoutOptions": OPTIONS,
        "children": [{"id": name, "width": WIDTH, "height": HEIGHT} for name in flat["States"]],
        "edges": [
            {"id": f"{one.start}>{one.end}", "sources": [one.start], "targets": [one.end]} for one in drawn(flat)
        ],
    }
    command = [program("node"), str(ELK / "layout.cjs"), str(installed(ELK).resolve())]
    ended = subprocess.run(command, input=json.dumps(graph), capture_output=True, text=True, check=True)
    found = json.loads(ended.stdout)
    return {
        "width": round(found["width"]),
        "height": round(found["height"]),
        "places": {one["id"]: [round(one["x"]), round(one["y"])] for one in found["children"]},
        "routes": {one["id"]: _points(one["sections"][0]) for one in found["edges"]},
    }


def _points(section: dict[str, Any]) -> list[list[int]]:
    points = [section["startPoint"], *section.get("bendPoints", ()), section["endPoint"]]
    return [[round(point["x"]), round(point["y"])] for point in points]


def layouts() -> str:
    """The content of the file."""
    found = {name: placed(definition) for name, definition in definitions().items()}
    lines = (f"{json.dumps(name)}: {json.dumps(one, separators=(',', ':'))}" for name, one in found.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write the file."""
    LAYOUTS.write_text(layouts(), encoding="utf-8")
    print(f"written: {LAYOUTS.name}")


if __name__ == "__main__":
    main()
