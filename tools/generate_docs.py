"""Writes the parts of docs/ that follow from the code: tables and pictures of the workflows.

`python -m tools.generate_docs` updates the text between the markers; a test fails while the text is out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from cdk_app.alarms import ALARMS, AlarmRule
from cdk_app.permissions import NEEDS, Grant
from cdk_app.workflow import ROOT, definitions, handlers
from node_fleet.domain.notify.incidents import ALERTS, ERRORS, OF_ALARM
from node_fleet.domain.scale_up.refusals import REFUSALS, UNKNOWN_REFUSAL
from node_fleet.settings import Settings, spec_of
from node_fleet.settings.parsing import written
from simulator.report.graph import picture
from tools.cost_tables import bills, required_types, types_by_load

DOCS = ROOT / "docs"
MARKED = ("cost.md", "operations.md", "scale-up.md", "security.md", "settings.md")
LONGEST_DEFAULT = 60
_BLOCK = re.compile(r"(<!-- written from the code: (?P<name>[\w:-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_CONDITIONS = {
    "own_items": "only items of this cluster",
    "our_worker": "only instances tagged ManagedBy=node-fleet and Cluster=this one",
    "our_worker_join_failed": "only the tag JoinFailed, only instances with the tags of this cluster",
    "our_standby": "only stopped standby workers of this cluster",
    "our_worker_standby_tag": "only the tag Standby, only instances with the tags of this cluster",
    "our_template": "only from that template",
    "set_by_our_template": "only those that the launch template names",
    "tagged_as_ours": "only from that template, only with the tags of a worker in the same call",
    "tags_of_ours": "only with the tags of a worker in the same call",
    "worker_tags": "only inside CreateFleet and RunInstances, only the tags of a worker of this cluster",
    "while_launching": "only inside CreateFleet and RunInstances",
    "to_ec2": "only to EC2",
    "the_server": "only the instance with the server's tag",
    "tagged_server": "only the instance with the server's tag",
    "through_sns": "only through SNS",
}
_RESOURCES = {
    "anything": "the action supports no resource",
    "autoscaler": "the autoscaler's state machine",
    "instances": "instances",
    "image_parameter": "Amazon Linux's public parameter",
    "launch_inputs": "the launch template and the workers' subnets",
    "launch_parts": "volumes and network interfaces",
    "fleet_kinds": "fleets, their instances and the volumes of these",
    "server_machine": "the server's instance, only where `hibernate` is set",
    "template_parts": "images, security groups (mode attach: key pairs)",
    "interfaces": "network interfaces",
    "topic_key": "the key of the topics",
}


def documents() -> dict[Path, str]:
    """The current text of every document with generated parts, by its file."""
    texts = {DOCS / name: _updated((DOCS / name).read_text(encoding="utf-8")) for name in MARKED}
    return texts | {DOCS / f"{name}.svg": picture(one) for name, one in definitions().items()}


def _updated(text: str) -> str:
    """The document with the current content in each marked block."""
    return _BLOCK.sub(lambda match: match[1] + _block(match["name"]) + "\n" + match[3], text)


def _block(name: str) -> str:
    tables = {
        "permissions": _permissions,
        "incidents": _incidents,
        "incident-alarms": _incident_alarms,
        "refusals": _refusals,
        "settings": settings_tables,
        "bills": bills,
        "types-by-load": types_by_load,
        "required-types": required_types,
    }
    return tables[name]()


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *escaped))


def _permissions() -> str:
    rows: list[Sequence[str]] = []
    for name in sorted(set(handlers()) & set(NEEDS)):
        grants = dict.fromkeys(NEEDS[name].grants)
        rows += [_permission(name, grant) for grant in grants] or [(name, "nothing", "", "only computes")]
    return _table(("function", "may", "on", "because it"), rows)


def _permission(name: str, grant: Grant) -> tuple[str, ...]:
    place = _RESOURCES.get(grant.resource, grant.resource.replace("document:", "document ").replace("_", " "))
    limit = f"{place}, {_CONDITIONS[grant.condition]}" if grant.condition else place
    return name, ", ".join(grant.actions), limit, grant.reason


def _incidents() -> str:
    """Every alarm, alert and error that can reach a person."""
    rows = [(r.name, "alarm", r.severity, f"{_condition(r)}. {r.description}", r.next_step, r.action) for r in ALARMS]
    for kind, incidents in (("alert", ALERTS), ("error", ERRORS)):
        rows += [(one.name, kind, one.severity, one.meaning, one.next_step, one.action) for one in incidents]
    return _table(
        ("name", "kind", "severity", "meaning and consequence", "next automatic step", "what you can do"), rows
    )


def _incident_alarms() -> str:
    """The incident that each alarm belongs to."""
    rows = [(r.name, OF_ALARM.get(r.name, "its own"), r.severity) for r in ALARMS]
    return _table(("alarm", "incident", "severity"), rows)


def _condition(rule: AlarmRule) -> str:
    """When the alarm fires."""
    sign = "below" if "LESS" in rule.comparison.name else "at least"
    limit = "max_workers" if isinstance(rule.threshold, str) else f"{rule.threshold:g}"
    minutes = rule.period_seconds * rule.periods // 60
    names = {"SampleCount": "the number of samples of ", "Minimum": "the lowest ", "Maximum": "the highest "}
    return f"Fires when {names.get(rule.statistic, '')}{rule.metric} is {sign} {limit} for {minutes} minutes"


def _refusals() -> str:
    rows = []
    for row in (*REFUSALS, UNKNOWN_REFUSAL):
        codes = (
            ", ".join([*row.codes.split(), *(f"{prefix}..." for prefix in row.prefixes.split())]) or "every other code"
        )
        alert = f"`{row.alert}`" if row.alert else "-"
        rows.append((codes, row.meaning, row.reaction, row.puts_in_back_off or "-", alert, row.advice or "-"))
    return _table(("EC2 error code", "meaning", "next", "pools in back-off", "alert", "what you can do"), rows)


def settings_tables() -> str:
    """Every setting by group: its name in cdk.json, environment name, default, range and meaning."""
    parts = []
    for group in Settings.__mro__:
        if meanings := meanings_of(group):
            rows = [_setting(name, meaning) for name, meaning in meanings.items()]
            table = _table(("In cdk.json", "Environment", "Default", "Range", "Meaning"), rows)
            parts.append(f"## {inspect.cleandoc(group.__doc__ or '')}\n\n{table}")
    return "\n\n".join(parts)


@functools.cache
def meanings_of(group: type) -> dict[str, str]:
    """The string below each field of the class, by the field's name."""
    if group.__module__.partition(".")[0] != "node_fleet":
        return {}
    (definition,) = ast.parse(inspect.getsource(group)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            assert isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant), statement.target.id
            found[statement.target.id] = str(below.value.value)
    return found


def _setting(name: str, meaning: str) -> tuple[str, ...]:
    spec = spec_of(next(field for field in dataclasses.fields(Settings) if field.name == name))
    text = written(getattr(Settings(), name))
    default = f"`{text}`" if text else "empty"
    default = default if len(default) <= LONGEST_DEFAULT else "[built-in metrics](decision-rules.md)"
    return name, spec.env, default, spec.range, meaning + (f" Earlier name: `{spec.old_env}`." if spec.old_env else "")


def main() -> None:
    """Update every document."""
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
