"""One cell of the matrix: a story is played, one fault strikes one state, clean ticks follow, the invariants decide."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from node_fleet.domain.model.value_class import value_class
from tests.support.chaos.copies import on_a_copy
from tests.support.chaos.faults import Fault, Injection
from tests.support.chaos.fleet import Fleet
from tests.support.chaos.invariants import COMES_HOME, Watch
from tests.support.chaos.stories import STORIES, Story, course, on_stage, story_of

FAILED_AFTER_SECONDS = 15 * 60


@value_class
class Result:
    """What became of a cell. struck: where and when it hit; not_applicable: why it cannot; broken: what broke."""

    state: str
    fault: str
    story: str = ""
    struck: tuple[tuple[str, float], ...] = ()
    not_applicable: str = ""
    broken: tuple[str, ...] = ()
    ticks_to_come_home: int = 0
    paths: tuple[str, ...] = field(default=())


class PreparedStories:
    """The fleet of one story at a time, ready to begin. To make it takes longer than to play most cells."""

    def __init__(self, stories: Iterable[Story] = STORIES) -> None:
        self._stage = contextlib.ExitStack()
        self._story: Story | None = None
        for story in stories:
            course(story)  # while no other fleet stands

    def perform(self, story: Story, act: Callable[[Fleet, Watch], Result]) -> Result:
        """What `act` finds on a copy of the story's fleet."""
        if story != self._story:
            self.close()
            self._fleet, self._watch = self._stage.enter_context(on_stage(story))
            self._story = story
        return on_a_copy(lambda: act(self._fleet, self._watch))

    def close(self) -> None:
        self._stage.close()
        self._story = None


def play(state: str, fault: Fault, stories: PreparedStories, story: Story | None = None) -> Result:
    """Play the cell of that state and fault, in the first story that walks through the state unless one is named."""
    story = story or story_of(state)
    if story is None:
        return Result(state=state, fault=fault.name, broken=(f"no story walks through {state}: tell one",))
    why = fault.not_applicable(state, course(story).uses[state])
    if why:
        return Result(state=state, fault=fault.name, story=story.name, not_applicable=why)

    def act(fleet: Fleet, watch: Watch) -> Result:
        injection = fault.aim(fleet, state)
        story.begin(fleet)
        _until_struck(fleet, watch, injection, story)
        home = _come_home(fleet, watch, injection, course(story).workers) if injection.struck else 0
        watch.finish()
        return Result(
            state=state,
            fault=fault.name,
            story=story.name,
            struck=tuple(injection.struck),
            broken=tuple(watch.broken),
            ticks_to_come_home=home,
            paths=tuple(f"{e.machine} {e.status} {e.error or ''}: {' > '.join(e.path)}" for e in fleet.sim.executions),
        )

    return stories.perform(story, act)


def _until_struck(fleet: Fleet, watch: Watch, injection: Injection, story: Story) -> None:
    for _ in range(story.ticks + 1):
        fleet.tick()
        if injection.struck:
            watch.disturbed(max(0.0, injection.lasts_until - fleet.deployment.clock.now()))
            return


def _come_home(fleet: Fleet, watch: Watch, injection: Injection, workers: int) -> int:
    """Clean ticks until all is settled as in the undisturbed course; the number that it took."""
    settings = fleet.settings
    cooldown = max(settings.cooldown_up_seconds, settings.cooldown_down_seconds)
    limit = settings.lease_seconds + FAILED_AFTER_SECONDS + cooldown
    while not injection.over(fleet.deployment.clock.now()):
        fleet.tick()
    begun, ticks = fleet.deployment.clock.now(), 0
    fleet.clear_faults()
    while unsettled := not_home(fleet, workers):
        if fleet.deployment.clock.now() - begun > limit:
            watch.wrong(COMES_HOME, f"after {ticks} clean ticks {unsettled}")
            return ticks
        fleet.tick()
        ticks += 1
    return ticks


def not_home(fleet: Fleet, workers: int) -> str:
    """What is still to be settled; empty when the fleet is where it should be."""
    usable = _usable(fleet)
    wrong = f"; the workers are not {workers}: {sorted(usable)}" if len(usable) != workers else ""
    return not_settled(fleet) + wrong


def not_settled(fleet: Fleet) -> str:
    """What is still open; empty when no work is left over, however many workers there are."""
    item = fleet.raw()
    nodes = fleet.sim.cluster.nodes()
    phase = (item.get("hibernation") or {}).get("phase", "on")
    found = {
        "the lock is held": item.get("lock_owner"),
        "an operation is open": (item.get("operation") or {}).get("operation_id"),
        "room is still promised": _promised(item, fleet.workers(), fleet.now()),
        "instances are under notice": [name for name in item if name.startswith("notice#")],
        "removals are set aside": [name for name in item if name.startswith("set_aside#")],
        "nodes are cordoned": [n.name for n in nodes if n.unschedulable],
        "nodes of no machine are left": [n.name for n in nodes if not n.machine_up],
        "executions run": [e.arn for e in fleet.cloud.runner.running()],
        "stopped instances have no mark": sorted(
            {i.id for i in fleet.stopped()} - set(fleet.standby()) - {fleet.deployment.server_id}
        ),
        "EC2 runs others than are usable": sorted(set(fleet.workers()) ^ _usable(fleet)),
        "it is neither on nor off": phase if phase not in ("on", "off") else "",
        "fewer workers than the minimum": phase == "on" and len(_usable(fleet)) < fleet.settings.min_workers,
    }
    return "; ".join(f"{words}: {value}" for words, value in found.items() if value)


def _usable(fleet: Fleet) -> set[str]:
    nodes = fleet.sim.cluster.nodes()
    return {n.instance_id for n in nodes if n.role != "server" and n.ready and not n.unschedulable}


def _promised(item: dict[str, Any], workers: list[str], now: int) -> list[Any]:
    """Reservations that still take room: neither expired nor those of a worker that EC2 lists itself."""
    held = item.get("reservations") or []
    rows = [dict(zip(held["columns"], row, strict=True)) for row in held["rows"]] if isinstance(held, dict) else held
    return [row for row in rows if row["until"] > now and row["instance_id"] not in workers]
