"""Replays for a page on which a person moves settings: the configuration beside every other policy, again and again.

Results are kept, so that a change that concerns the configuration alone replays nothing else. Replays run in processes,
which publish the share that they have done, and which end when newer settings are wanted.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from ctypes import c_double, c_longlong
from dataclasses import replace
from multiprocessing.connection import wait as wait_for
from multiprocessing.sharedctypes import RawArray

from backtest.bound import clairvoyant
from backtest.compare import CONFIGURED, REFERENCES, Assumptions, Study, left_out, load_of, policy_of, preset_settings
from backtest.fleet import Fleet
from backtest.load import Load
from backtest.measures import Action, Measures
from backtest.replay import Sizer, replay
from backtest.trace import Trace
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings

POLICIES = (CONFIGURED, *REFERENCES, "node-fleet", "adaptive")
"""In the order in which they are shown: the quick ones before the two presets."""
STARTED_FIRST = (CONFIGURED, "adaptive", "node-fleet")
"""The configuration, then the longest replays, so that all of them end early."""
PAGES, KEPT, POINTS = 16, 256, 1000
MOST_PROCESSES = 4
REPORT_SECONDS = 0.2
"""Between two reports of progress."""
LAST_TURN = 1 << 62
"""A turn after every other: it ends all replays."""


class SupersededError(Exception):
    """The page wants a study of newer settings."""


class Board:
    """What processes share: for each page its newest turn, and for each of its policies the share that is done."""

    def __init__(self) -> None:
        self._turns = RawArray(c_longlong, PAGES)
        self._shares = RawArray(c_double, PAGES * len(POLICIES))

    def begin(self, page: int, turn: int) -> None:
        """Later turns of the page end the replays of the earlier ones."""
        self._turns[page] = max(turn, self._turns[page])

    def give(self, page: int) -> None:
        """Let the place belong to another page, which begins with any turn."""
        self._turns[page] = -1

    def is_newest(self, page: int, turn: int) -> bool:
        return bool(self._turns[page] == turn)

    def end_all(self) -> None:
        """End every replay that still runs."""
        for page in range(PAGES):
            self._turns[page] = LAST_TURN

    def publish(self, page: int, policy: str, share: float) -> None:
        self._shares[page * len(POLICIES) + POLICIES.index(policy)] = share

    def share(self, page: int, policy: str) -> float:
        return float(self._shares[page * len(POLICIES) + POLICIES.index(policy)])


@value_class
class Task:
    """One policy to replay for a page."""

    page: int
    turn: int
    policy: str
    load: Load
    settings: Settings
    assumptions: Assumptions


@value_class
class Progress:
    """The share of the replays that is done, and the study of the policies that are known, when it has grown."""

    share: float
    study: Study | None = None


class WhatIf:
    """Studies of changing settings. executor: calls run_task() where join(board) was called before."""

    def __init__(self, executor: Executor, board: Board) -> None:
        self._executor, self._board = executor, board
        self._kept: OrderedDict[str, Measures] = OrderedDict()
        self._places: OrderedDict[int, int] = OrderedDict()
        self._lock = threading.Lock()

    def studies(
        self, trace: Trace, settings: Settings, assumptions: Assumptions, *, page: int, turn: int
    ) -> Iterator[Progress]:
        """The study each time that it grows, and the progress in between. The last one has every policy.

        page: any number that no other page has. Closing the iterator ends the replays.

        Raises:
            SupersededError: a later turn of this page has begun.
            ModelError: the model does not support the settings.
        """
        page = self._place_of(page)
        self._board.begin(page, turn)
        load = load_of(trace, settings, assumptions)
        known = Study(
            load=load,
            assumptions=assumptions,
            bound=clairvoyant(load, assumptions.capacity, settings.cpu_credits),
            results=(),
            tariff=settings.tariff(),
            spot_percent=settings.spot_percent,
            left_out=left_out(settings, assumptions.capacity.instance_type),
        )
        keys = {name: _key(name, trace, settings, assumptions) for name in POLICIES}
        wanted: dict[str, str] = {}
        for name, key in keys.items():
            wanted.setdefault(key, name)
        found = {key: measures for key in wanted if (measures := self._take(key))}
        started = {
            key: self._start(
                Task(page=page, turn=turn, policy=name, load=load, settings=settings, assumptions=assumptions)
            )
            for key, name in sorted(wanted.items(), key=lambda one: (*STARTED_FIRST, one[1]).index(one[1]))
            if key not in found
        }
        futures = {key: started[key] for key in wanted if key in started}
        try:
            if keys[CONFIGURED] in found:
                yield Progress(share=0.0 if futures else 1.0, study=replace(known, results=_in_order(keys, found)))
            for key, future in futures.items():
                while not wait([future], timeout=REPORT_SECONDS).done:
                    if not self._board.is_newest(page, turn):
                        raise SupersededError
                    yield Progress(share=self._share(page, wanted, futures))
                found[key] = self._keep(key, future.result())
                share = self._share(page, wanted, futures)
                yield Progress(share=share, study=replace(known, results=_in_order(keys, found)))
        finally:
            self._board.begin(page, turn + 1)
            for future in futures.values():
                future.cancel()

    def _place_of(self, page: int) -> int:
        """The page's place on the board; the page that has not asked for the longest time gives its own away."""
        with self._lock:
            if page not in self._places:
                place = len(self._places)
                if place == PAGES:
                    _, place = self._places.popitem(last=False)
                self._board.give(place)
                self._places[page] = place
            self._places.move_to_end(page)
            return self._places[page]

    def _start(self, task: Task) -> Future[Measures]:
        self._board.publish(task.page, task.policy, 0.0)
        return self._executor.submit(run_task, task)

    def _share(self, page: int, wanted: Mapping[str, str], futures: Mapping[str, Future[Measures]]) -> float:
        done = (1.0 if one.done() else self._board.share(page, wanted[key]) for key, one in futures.items())
        return sum(done) / len(futures)

    def _take(self, key: str) -> Measures | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: str, measures: Measures) -> Measures:
        with self._lock:
            self._kept[key] = measures
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return measures


def _in_order(keys: Mapping[str, str], found: Mapping[str, Measures]) -> tuple[Measures, ...]:
    """The policies up to the first that is not known, so that each keeps its place and its colour."""
    known = itertools.takewhile(lambda name: keys[name] in found, POLICIES)
    return tuple(replace(found[keys[name]], policy=name) for name in known)


def _key(name: str, trace: Trace, settings: Settings, assumptions: Assumptions) -> str:
    """All that the replay of the policy depends on. Policies that are the same have the same key."""
    if name in REFERENCES:
        own: object = (name, settings.min_workers, settings.max_workers)
    else:
        own = (settings if name == CONFIGURED else preset_settings(name, settings)).policy(), settings.spot_percent
    return repr((own, hash(trace), settings.cpu_credits, assumptions))


_board: list[Board] = []
"""The board of this process."""


def join(board: Board) -> None:
    """Let run_task() in this process obey the board."""
    _board[:] = [board]


def run_task(task: Task) -> Measures:
    """Replay one policy.

    Raises:
        SupersededError: the page wants newer settings.
    """
    watched = _Watched(policy_of(task.policy, task.settings, task.assumptions), task, _board[0])
    points = max(60, task.load.seconds // POINTS // 60 * 60)
    return replay(
        task.load,
        task.assumptions.capacity,
        watched,
        cpu_credits=task.settings.cpu_credits,
        chart_seconds=points,
    )


class _Watched:
    """A policy that publishes the share of the load that is replayed, and that ends when it is superseded."""

    def __init__(self, policy: Sizer, task: Task, board: Board) -> None:
        self.name = policy.name
        self._policy, self._task, self._board = policy, task, board
        self._begin, self._end = task.load.phases[0].start, task.load.phases[-1].end

    @property
    def actions(self) -> list[Action]:
        return self._policy.actions

    def start(self, fleet: Fleet) -> None:
        self._policy.start(fleet)

    def wakes_at(self) -> int:
        return self._policy.wakes_at()

    def act(self, fleet: Fleet) -> None:
        task = self._task
        if not self._board.is_newest(task.page, task.turn):
            raise SupersededError
        self._board.publish(task.page, task.policy, (fleet.now - self._begin) / (self._end - self._begin))
        self._policy.act(fleet)


@contextmanager
def processes(board: Board) -> Iterator[Executor]:
    """The processes that replay. They end with the block, and with this process, whatever ends it.

    Start them before any thread: they are forked where the system can.
    """
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None)
    number = max(2, min(MOST_PROCESSES, os.cpu_count() or 1))
    executor = ProcessPoolExecutor(number, context, initializer=_begin_process, initargs=(board,))
    try:
        executor.submit(os.getpid).result()
        yield executor
    finally:
        board.end_all()
        executor.shutdown(cancel_futures=True)


def _begin_process(board: Board) -> None:
    """Ctrl-C ends the parent, which ends this process; so does the end of the parent without a word."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    join(board)
    parent = multiprocessing.parent_process()
    if parent:
        threading.Thread(target=lambda: (wait_for([parent.sentinel]), os._exit(1)), daemon=True).start()
