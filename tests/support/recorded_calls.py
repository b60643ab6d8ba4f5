"""Holds every AWS call that any simulator test records against the permissions of the function that made it.

A call that no grant covers fails its test at once. What was granted and never used is known only when the whole suite
has run: `judge` answers that, from what every test process has written down.
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

Use = tuple[str, str, str]  # function, action, what the grant calls the resource
DEFAULTS = Settings()
TABLES = {getattr(DEFAULTS, f"{word}_table"): f"{word}_table" for word in ("state", "history", "events")}
SECRETS = {DEFAULTS.prometheus_secret: "prometheus_secret", DEFAULTS.slack_secret: "slack_secret"}
IAM_PREFIX = {"stepfunctions": "states"}
# One call of RunInstances is judged by AWS against several resources; the launch template stands for them.
FIXED = {
    "ec2:RunInstances": "launch_inputs",
    "ec2:TerminateInstances": "instances",
    "ec2:CreateTags": "instances",
    "sns:Publish": "topic",
    "states:StartExecution": "autoscaler",
}


def granted() -> set[Use]:
    """Every use that code itself may make of a grant."""
    present = set(handlers()) & set(NEEDS)
    return {(f, a, g.resource) for f in present for g in NEEDS[f].grants if not g.by_aws for a in g.actions}


def use_of(call: Any) -> Use | None:
    """What a recorded call of one of our functions needs; None for anybody else's call."""
    function = next((name for name in NEEDS if (call.function or "").endswith(f"-{name}")), None)
    if function is None:
        return None
    action = f"{IAM_PREFIX.get(call.service, call.service)}:{call.operation}"
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
    """What functions used, and what they used without leave."""

    seen: set[Use] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    allowed: set[Use] = field(default_factory=granted)
    told: int = 0

    def watch(self) -> None:
        """Listen to the simulator's recorder, once it is loaded."""
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
        """Write one call down."""
        use = use_of(call)
        if use is None:
            return
        self.seen.add(use)
        if use not in self.allowed:
            self.wrong.append("{} calls {} on {}, which cdk_app/permissions.py does not grant it".format(*use))

    def merge(self, other: Ledger) -> None:
        """What a forked process, which had a copy of this, has noted since."""
        self.seen |= other.seen
        self.wrong += other.wrong[len(self.wrong) :]

    def new_wrongs(self) -> list[str]:
        """What was done without leave since this was last asked, by tests and by fixtures that many tests share."""
        found = sorted(set(self.wrong[self.told :]))
        self.told = len(self.wrong)
        return found

    def write(self, file: Path, arms: Iterable[str] = ()) -> None:
        """Leave what was seen for `judge`, with the arms of the handlers that ran."""
        file.write_text(json.dumps({"uses": sorted(self.seen), "arms": sorted(arms)}), encoding="utf-8")


LEDGER = Ledger()
"""This process's."""


def judge(folder: Path, allowed: Iterable[Use], arms: Iterable[str] = ()) -> list[str]:
    """After a whole suite: grants that no recorded call used, functions that made no call, arms that never ran."""
    left = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")]
    seen = {tuple(use) for one in left for use in one["uses"]}
    ran = {arm for one in left for arm in one["arms"]}
    unused = sorted(set(allowed) - seen)
    idle = {function for function, _, _ in allowed} - {function for function, _, _ in seen}
    return [
        *(f"{function} was never exercised" for function in sorted(idle)),
        *("{} may {} on {}, but no test ever needed it".format(*use) for use in unused if use[0] not in idle),
        *(f"functions/handlers/{arm}: no test ran this branch" for arm in sorted(set(arms) - ran)),
    ]
