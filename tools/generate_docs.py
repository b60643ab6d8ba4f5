"""Writes the parts of docs/ that follow from the code: pictures of the workflows, permissions and alarms.

`python -m tools.generate_docs` updates the text between the markers; a test fails while the text is out of date.
"""

from __future__ import annotations

import re
from pathlib import Path

from cdk_app.alarms import ALARMS
from cdk_app.permissions import NEEDS, Grant
from cdk_app.workflow import ROOT, definitions, handlers
from node_fleet.domain.scale_up.refusals import REFUSALS, UNKNOWN_REFUSAL
from simulator.report.graph import mermaid

DOCS = ("docs/architecture.md", "docs/operations.md", "docs/scale-up.md", "docs/security.md")
_BLOCK = re.compile(r"(<!-- written from the code: (?P<name>[\w:]+) -->\n).*?(<!-- end -->)", re.DOTALL)
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


def updated(text: str) -> str:
    """The document with the current content in each marked block."""
    return _BLOCK.sub(lambda match: match[1] + _block(match["name"]) + "\n" + match[3], text)


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


def _refusals() -> str:
    lines = [
        "| EC2 error code | meaning | next | pools in back-off | alert | what you can do |",
        "|---|---|---|---|---|---|",
    ]
    for row in (*REFUSALS, UNKNOWN_REFUSAL):
        codes = ", ".join([*row.codes, *(f"{prefix}..." for prefix in row.prefixes)]) or "every other code"
        alert = f"`{row.alert}`" if row.alert else "-"
        cells = (codes, row.meaning, row.reaction, row.puts_in_back_off or "-", alert, row.advice or "-")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _block(name: str) -> str:
    if name.startswith("picture:"):
        return f"```mermaid\n{mermaid(definitions()[name.removeprefix('picture:')])}\n```"
    return {"permissions": _permissions, "alarms": _alarms, "refusals": _refusals}[name]()


def main() -> None:
    """Update every document."""
    for name in DOCS:
        path: Path = ROOT / name
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
