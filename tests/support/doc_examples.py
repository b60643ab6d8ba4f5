"""Reads the worked examples of docs/decision-rules.md: fenced YAML blocks that say what is seen and what is answered.

Run as a program it writes the sentences that the rules give today into the page; the test holds the page to them.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from node_fleet.domain.model.memory import BackOff, Memory, Streak
from node_fleet.domain.model.snapshot import CustomReading, Snapshot, Worker
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.settings import Settings
from tests.support.decisions import START, TICK, pods, snapshot, worker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "decision-rules.md"
BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
KNOWN = {"settings", "before", "seen", "answer", "says", "alert"}


@value_class
class Example:
    """One worked example: the block as written and as data."""

    text: str
    data: dict[str, Any]

    @property
    def now(self) -> int:
        at = self.data.get("seen", {}).get("at")
        return int(datetime.fromisoformat(at).timestamp()) if at else START

    def decided(self) -> Decision:
        settings = Settings.from_mapping(self.data.get("settings", {}))
        return decide(self.snapshot(), self.memory(), settings.policy(), self.now)

    def snapshot(self) -> Snapshot:
        """Workers by phase, load in percent, pods of one size."""
        seen = dict(self.data.get("seen", {}))
        source = seen.get("source", "live")
        return snapshot(
            self.now,
            source=source,
            read_at=self.now - seen.get("reading_age", 0),
            cpu_percent=seen.get("cpu", 50.0),
            memory_percent=seen.get("memory", 40.0),
            pending=pods(
                seen.get("pending", 0),
                seen.get("pod_milli", 500),
                seen.get("pod_mib", 256),
                oldest_seconds=seen.get("oldest", 95),
            ),
            custom=tuple(CustomReading(name=name, value=value) for name, value in seen.get("custom", {}).items()),
            workers=self._workers(seen),
            problem=seen.get("problem", ""),
            timed_minimum=self._ordered(seen),
        )

    def memory(self) -> Memory:
        """The last action, the runs of readings, the failures."""
        before, now = dict(self.data.get("before", {})), self.now
        since = {
            name: Streak(since=now - seconds, last=now - TICK, readings=max(1, seconds // TICK))
            for name, seconds in before.get("since", {}).items()
        }
        hold = before.get("hold", {})
        return Memory(
            last_action=before.get("action", ""),
            last_action_at=now - before["seconds_ago"] if "action" in before else 0,
            since=since,
            back_offs=tuple(
                BackOff(key=key, failures=off["failures"], until=now + off["seconds_left"])
                for key, off in before.get("back_offs", {}).items()
            ),
            predictive_hold_workers=hold.get("workers", 0),
            predictive_hold_until=now + hold.get("seconds_left", 0),
        )

    def _ordered(self, seen: dict[str, Any]) -> TimedMinimum | None:
        if "ordered" not in seen:
            return None
        order = dict(seen["ordered"])
        until = self.now + 60 * order.pop("minutes")
        return TimedMinimum(name="a1", since=self.now, until=until, **order)

    def _workers(self, seen: dict[str, Any]) -> tuple[Worker, ...]:
        requested = {"cpu_requested_milli": seen["requested_milli"]} if "requested_milli" in seen else {}
        usable = [worker(n, **requested) for n in range(seen.get("workers", 4))]
        joining = [worker(f"j{n}", "joining", launched_at=self.now - 60) for n in range(seen.get("joining", 0))]
        lost = [worker(f"n{n}", "not_ready", not_ready_seconds=s) for n, s in enumerate(seen.get("not_ready", []))]
        return (*usable, *joining, *lost)


def examples(text: str) -> list[Example]:
    """Every block of the page that is a decision, in order."""
    found = []
    for match in BLOCK.finditer(text):
        data = yaml.safe_load(match.group(1))
        if isinstance(data, dict) and "says" in data:
            assert set(data) <= KNOWN, f"unknown keys {set(data) - KNOWN} in {match.group(1)}"
            found.append(Example(text=match.group(0), data=data))
    return found


def answer_of(decision: Decision) -> str:
    """'+1', '-1' or 'none'."""
    return {"scale_up": f"+{decision.count}", "scale_down": f"-{decision.count}", "none": "none"}[decision.action]


def written_anew(text: str) -> str:
    """The page with each example's sentence as the rules give it now."""
    for example in examples(text):
        decision = example.decided()
        block = re.sub(r"says: .*", lambda _: f'says: "{decision.sentence}"', example.text)  # noqa: B023
        block = re.sub(r"answer: .*", lambda _: f'answer: "{answer_of(decision)}"', block)  # noqa: B023
        text = text.replace(example.text, block)
    return text


if __name__ == "__main__":
    PAGE.write_text(written_anew(PAGE.read_text()))
