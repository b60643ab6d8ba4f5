"""What `kubectl get -o` prints, in the styles that scripts and people use."""

from __future__ import annotations

import json
from typing import Any

import yaml

from simulator.cluster.api.store import RESOURCES
from simulator.cluster.api.tables import columns_of
from simulator.cluster.kubectl.command_line import CommandLine
from simulator.cluster.kubectl.jsonpath import custom_columns, render
from simulator.cluster.objects import Obj


class OutputStyleError(Exception):
    """An -o that kubectl does not know."""


class Verbatim(str):
    """Printed as it is, with no line end added."""

    __slots__ = ()


def printed(now: float, line: CommandLine, resource: str, objects: list[Obj], *, single: bool) -> list[str]:
    style = line.text("output")
    entry = RESOURCES[resource]
    whole: Any = (
        objects[0]
        if single
        else {"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {"resourceVersion": ""}}
    )
    if style == "name":
        kind = f"{entry.singular}.{entry.group}" if entry.group else entry.singular
        return [f"{kind}/{obj['metadata']['name']}" for obj in objects]
    if style == "json":
        return [json.dumps(whole, indent=4, sort_keys=True)]
    if style == "yaml":
        return [yaml.safe_dump(whole, sort_keys=True)]
    if style.startswith("jsonpath="):
        text = render(style.removeprefix("jsonpath="), whole)
        return [Verbatim(text)]
    if style.startswith("custom-columns="):
        return _aligned(custom_columns(style.removeprefix("custom-columns="), objects)[line.on("no-headers") :])
    if style in ("", "wide"):
        return _table(now, line, resource, objects)
    raise OutputStyleError(f'error: unable to match a printer suitable for the output format "{style}"')


def _table(now: float, line: CommandLine, resource: str, objects: list[Obj]) -> list[str]:
    wide = line.text("output") == "wide"
    columns = [column for column in columns_of(resource) if wide or column.priority == 0]
    rows = [[column.name.upper() for column in columns]]
    rows += [[column.value(obj, now) for column in columns] for obj in objects]
    if line.on("all-namespaces") and RESOURCES[resource].namespaced:
        rows[0].insert(0, "NAMESPACE")
        for row, obj in zip(rows[1:], objects, strict=True):
            row.insert(0, obj["metadata"]["namespace"])
    return _aligned(rows[line.on("no-headers") :])


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    return [
        "   ".join(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)) + f"   {row[-1]}"
        if len(row) > 1
        else row[0]
        for row in rows
    ]
