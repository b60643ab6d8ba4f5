"""Makes a recorded decision once more from what was recorded with it. Reads and changes nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.payload import from_payload, to_payload, unpacked
from node_fleet.settings import Settings


def decide_again(record: Mapping[str, Any]) -> Decision:
    """The decision that follows from a stored event's snapshot, memory before and settings.

    Raises:
        InvalidInputError: the event lacks one of them, or holds what this version does not know.
    """
    snapshot: Snapshot = from_payload(Snapshot, record.get("snapshot"), path="snapshot")
    memory: Memory = from_payload(Memory, unpacked(record.get("memory_before")), path="memory_before")
    policy = Settings.policy_from_env(record.get("decision", {}).get("settings", {}))
    return decide(snapshot, memory, policy, snapshot.at)


def differences(record: Mapping[str, Any]) -> list[str]:
    """Names of what came out otherwise than recorded; empty when the decision is the same."""
    recorded = dict(record.get("decision", {}))
    again = to_payload(replace(decide_again(record), settings=recorded.get("settings", {})))
    again.pop("memory")
    return sorted(name for name in again.keys() | recorded.keys() if again.get(name) != recorded.get(name))
