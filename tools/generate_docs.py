"""Writes the parts of docs/ that are facts of the code: pictures of the workflows, permissions, alarms.

`python -m tools.generate_docs` renews what stands between the markers; a test fails when it would change something.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cdk_app.alarms import ALARMS
from cdk_app.permissions import NEEDS, Grant
from cdk_app.workflow import ROOT, Workflow, handlers, workflows

DOCS = ("docs/architecture.md", "docs/operations.md", "docs/security.md")
_BLOCK = re.compile(r"(<!-- written from the code: (?P<name>[\w:]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHAPES = {
    "Task": '["{}"]',
    "Choice": '{{"{}"}}',
    "Wait": '(["{}"])',
    "Pass": '("{}")',
    "Succeed": '(("{}"))',
    "Fail": '(("{}"))',
    "Parallel": '[["{}"]]',
    "Map": '[["{}"]]',
}
_WHEN = {
    "own_items": "only items of this cluster",
    "our_worker": "only instances tagged ManagedBy=node-fleet and Cluster=this one",
    "tagged_as_ours": "only with our tags in the same call",
    "while_launching": "only inside RunInstances",
    "to_ec2": "only to EC2",
    "the_server": "only the instance with the server's tag",
}
_ON = {
    "anything": "AWS knows no resource for it",
    "autoscaler": "the autoscaler's state machine",
    "instances": "instances",
    "image_parameter": "Amazon Linux's public parameter",
    "launch_inputs": "the launch template and the workers' subnets",
    "launch_parts": "volumes and network interfaces",
    "launched_kinds": "what the launch makes",
}


def renewed(text: str) -> str:
    """The document with each marked block written anew."""
    return _BLOCK.sub(lambda match: match[1] + _block(match["name"]) + "\n" + match[3], text)


def picture(flow: Workflow) -> str:
    """The workflow as a Mermaid flowchart: solid arrows are ways, dotted ones are caught errors."""
    lines = ["```mermaid", "flowchart TD"]
    lines += _drawn(flow.definition, "  ")
    return "\n".join([*lines, "```"])


def _drawn(definition: dict[str, Any], indent: str) -> Iterator[str]:
    for name, state in definition["States"].items():
        yield indent + name + _SHAPES[state["Type"]].format(name)
        yield from (indent + way for way in _ways(name, state))
        for number, inner in enumerate(_inner(state), 1):
            yield f'{indent}subgraph {name}_{number}["{name}, part {number}"]'
            yield from _drawn(inner, indent + "  ")
            yield f"{indent}end"
            yield f"{indent}{name} --> {inner['StartAt']}"


def _inner(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [i for i in [*state.get("Branches", []), state.get("ItemProcessor"), state.get("Iterator")] if i]


def _ways(name: str, state: dict[str, Any]) -> Iterator[str]:
    for choice in state.get("Choices", []):
        yield f'{name} -->|"{_condition(choice)}"| {choice["Next"]}'
    if "Default" in state:
        yield f"{name} -->|otherwise| {state['Default']}"
    if "Next" in state:
        yield f"{name} --> {state['Next']}"
    for target in dict.fromkeys(catcher["Next"] for catcher in state.get("Catch", [])):
        yield f"{name} -.-> {target}"


def _condition(choice: dict[str, Any]) -> str:
    if "And" in choice or "Or" in choice:
        word = "And" if "And" in choice else "Or"
        return f" {word.lower()} ".join(_condition(part) for part in choice[word])
    if "Not" in choice:
        return f"not {_condition(choice['Not'])}"
    operator, value = next((k, v) for k, v in choice.items() if k not in ("Variable", "Next", "Comment"))
    subject = choice["Variable"].removeprefix("$.")
    if value == "":
        return f"no {subject}"
    sign = "=" if "Equals" in operator else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", operator).lower()
    return f"{subject} {sign} {str(value).lower() if isinstance(value, bool) else value}"


def _permissions() -> str:
    rows = ["| function | may | on | because it |", "| --- | --- | --- | --- |"]
    for name in sorted(set(handlers()) & set(NEEDS)):
        grants = dict.fromkeys(NEEDS[name].grants)
        rows += [_permission(name, grant) for grant in grants] or [f"| {name} | nothing | | only computes |"]
    return "\n".join(rows)


def _permission(name: str, grant: Grant) -> str:
    place = _ON.get(grant.resource, grant.resource.replace("document:", "document ").replace("_", " "))
    limit = f"{place}, {_WHEN[grant.condition]}" if grant.condition else place
    return f"| {name} | {', '.join(grant.actions)} | {limit} | {grant.reason} |"


def _alarms() -> str:
    rows = ["| alarm | fires when | what it means and what to do |", "| --- | --- | --- |"]
    for rule in ALARMS:
        sign = "below" if "LESS" in rule.comparison.name else "at least"
        limit = rule.threshold if isinstance(rule.threshold, str) else f"{rule.threshold:g}"
        minutes = rule.period_seconds * rule.periods // 60
        rows.append(f"| {rule.name} | {rule.metric} {sign} {limit} for {minutes} minutes | {rule.description} |")
    return "\n".join(rows)


def _block(name: str) -> str:
    pictures = {f"picture:{flow.name}": flow for flow in workflows()}
    if name in pictures:
        return picture(pictures[name])
    tables: dict[str, Callable[[], str]] = {"permissions": _permissions, "alarms": _alarms}
    return tables[name]()


def main() -> None:
    """Renew every document."""
    for name in DOCS:
        path: Path = ROOT / name
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
