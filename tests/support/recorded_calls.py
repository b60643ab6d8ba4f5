"""Compares every AWS call that the simulator records in any test with the permissions of the function that made it.

A call that no grant covers fails its test at once. Grants that no test uses are known only after the whole suite:
`judge` finds them in the uses that every test process has saved.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdk_app.permissions import NEEDS
from cdk_app.workflow import handlers
from node_fleet.settings import Settings

Use = tuple[str, str, str]  # function, action, the resource as the grant names it
DEFAULTS = Settings()
TABLES = {getattr(DEFAULTS, f"{word}_table"): f"{word}_table" for word in ("state", "history", "events")}
SECRETS = {DEFAULTS.prometheus_secret: "prometheus_secret", DEFAULTS.slack_secret: "slack_secret"}
IAM_PREFIX = {"stepfunctions": "states"}
# One call of CreateFleet is judged by AWS against several resources; the launch template stands for them.
FIXED = {
    "ec2:CreateFleet": "launch_inputs",
    "ec2:TerminateInstances": "instances",
    "ec2:RebootInstances": "instances",
    "ec2:GetConsoleOutput": "instances",
    "ec2:CreateTags": "instances",
    "sns:Publish": "topic",
    "states:StartExecution": "autoscaler",
}
SWITCHES = ("ec2:StopInstances", "ec2:StartInstances")
"""Of the server in Hibernate, of standby workers elsewhere."""


def granted() -> set[Use]:
    """Every use that the code itself may make of a grant."""
    present = set(handlers()) & set(NEEDS)
    return {(f, a, g.resource) for f in present for g in NEEDS[f].grants if not g.by_aws for a in g.actions}


def use_of(call: Any) -> Use | None:
    """What a recorded call of one of our functions needs; None for a call of any other caller."""
    function = next((name for name in NEEDS if (call.function or "").endswith(f"-{name}")), None)
    if function is None:
        return None
    action = f"{IAM_PREFIX.get(call.service, call.service)}:{call.operation}"
    if action in SWITCHES:
        return function, action, "server_machine" if function == "Hibernate" else "instances"
    return function, action, _resource(action, call.parameters)


def _resource(action: str, parameters: Any) -> str:
    if action.startswith("dynamodb:"):
        return TABLES.get(parameters["TableName"], "state_table")
    if action == "ssm:SendCommand":
        return "document:" + parameters["DocumentName"].removeprefix(DEFAULTS.document_prefix)
    if action == "secretsmanager:GetSecretValue":
        return SECRETS.get(parameters["SecretId"], "prometheus_secret")
    return FIXED.get(action, "anything")


@dataclass
class Ledger:
    """The granted uses of the functions, and their calls without a grant."""

    seen: set[Use] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    allowed: set[Use] = field(default_factory=granted)
    reported: int = 0
    edges: set[tuple[str, str]] = field(default_factory=set)
    """Edges of the autoscaler's definition that executions took."""

    def watch(self) -> None:
        """Note every call of the simulator's recorder from here on, if its module is loaded."""
        module: Any = sys.modules.get("simulator.aws.recorder")
        if module is None or hasattr(module.Recorder, "watched"):
            return
        add = module.Recorder.add

        def watched_add(recorder: Any, call: Any) -> None:
            add(recorder, call)
            self.note(call)

        module.Recorder.add = watched_add
        module.Recorder.watched = True

    def note(self, call: Any) -> None:
        """Note one call."""
        use = use_of(call)
        if use is None:
            return
        self.seen.add(use)
        if use not in self.allowed:
            self.wrong.append("{} calls {} on {}, which cdk_app/permissions.py does not grant it".format(*use))

    def merge(self, other: Ledger) -> None:
        """Add what a forked process, which began with a copy of this ledger, has noted."""
        self.seen |= other.seen
        self.wrong += other.wrong[len(self.wrong) :]

    def new_wrongs(self) -> list[str]:
        """Calls without a grant since the last question, of tests and of fixtures that many tests share."""
        found = sorted(set(self.wrong[self.reported :]))
        self.reported = len(self.wrong)
        return found

    def write(self, file: Path) -> None:
        """Save uses and edges for `judge`."""
        file.write_text(json.dumps({"uses": sorted(self.seen), "edges": sorted(self.edges)}), encoding="utf-8")


LEDGER = Ledger()
"""The ledger of this process."""


def judge(folder: Path, allowed: Iterable[Use], edges: Iterable[tuple[str, str]] = ()) -> list[str]:
    """After a whole suite: idle functions, grants that no recorded call used, and edges that no execution took."""
    saved = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")]
    seen = {tuple(use) for one in saved for use in one["uses"]}
    taken = {tuple(edge) for one in saved for edge in one["edges"]}
    unused = sorted(set(allowed) - seen)
    idle = {function for function, _, _ in allowed} - {function for function, _, _ in seen}
    return [
        *(f"{function} made no call in any test" for function in sorted(idle)),
        *("{} may {} on {}, but no test uses it".format(*use) for use in unused if use[0] not in idle),
        *("no test takes the edge {} -> {} of the autoscaler".format(*edge) for edge in sorted(set(edges) - taken)),
    ]
