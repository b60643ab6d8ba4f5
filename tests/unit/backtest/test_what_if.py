"""Studies of changing settings: what is replayed again, in which order it is shown, and when a replay ends."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from backtest import what_if
from backtest.compare import CONFIGURED, REFERENCES, Assumptions, study
from backtest.model import ModelError
from backtest.trace import from_rows
from backtest.what_if import PAGES, POLICIES, Board, Progress, SupersededError, Task, WhatIf, join, processes, run_task
from node_fleet.settings import Settings
from tests.support.replays import InThisProcess

TRACE = from_rows([(1_780_272_000 + 300 * n, 40.0 + 30 * (n % 5)) for n in range(9)], name="short")
SAME = len(POLICIES) - 1
"""Replays of the shipped settings, which are the preset node-fleet."""


@pytest.fixture
def board() -> Iterator[Board]:
    one = Board()
    join(one)
    yield one
    what_if._board.clear()


def last(studies: Iterator[Progress]) -> Progress:
    return list(studies)[-1]


def test_the_study_grows_in_a_fixed_order_and_is_that_of_the_back_test(board: Board) -> None:
    found = list(WhatIf(InThisProcess(), board).studies(TRACE, Settings(), Assumptions(), page=0, turn=1))
    names = [[one.policy for one in progress.study.results] for progress in found if progress.study]
    assert names[0] == [CONFIGURED] and names[-1] == list(POLICIES)
    assert all(shorter == longer[: len(shorter)] for shorter, longer in itertools.pairwise(names))
    whole = study(TRACE, Settings(), Assumptions(), POLICIES[1:])
    assert found[-1].share == 1.0 and found[-1].study is not None
    assert [replace(one, points=()) for one in found[-1].study.results] == list(whole.results)
    assert found[-1].study.bound == whole.bound


def test_only_what_a_change_concerns_is_replayed_again(board: Board) -> None:
    executor = InThisProcess()
    one = WhatIf(executor, board)

    def replayed(turn: int, **settings: Any) -> list[str]:
        executor.replayed.clear()
        complete = last(one.studies(TRACE, Settings(**settings), Assumptions(), page=0, turn=turn))
        assert complete.study is not None and len(complete.study.results) == len(POLICIES)
        assert executor.replayed == sorted(
            executor.replayed, key=(CONFIGURED, "adaptive", "node-fleet", *REFERENCES).index
        )
        return sorted(executor.replayed, key=POLICIES.index)

    assert replayed(1) == [*POLICIES[: SAME - 1], "adaptive"], "the shipped settings are a preset: once for both"
    assert replayed(2, idle_seconds=300) == [CONFIGURED]
    assert replayed(3) == [] == replayed(4, idle_seconds=300)
    assert replayed(5, max_workers=9) == [*POLICIES[: SAME - 1], "adaptive"]
    assert replayed(6, spot_percent=0) == [CONFIGURED, "adaptive"], "no reference knows the market of a worker"
    assert replayed(7, cpu_credits="standard")[1:-1] == list(REFERENCES)


def test_a_later_turn_of_the_page_ends_the_earlier_one_and_no_other_page(board: Board) -> None:
    def newer(task: Task) -> None:
        if task.turn == 7 and task.policy == "karpenter":
            board.begin(task.page, 8)

    one = WhatIf(InThisProcess(newer), board)
    for _ in range(2):
        with pytest.raises(SupersededError):
            list(one.studies(TRACE, Settings(), Assumptions(), page=3, turn=7))
    assert last(one.studies(TRACE, Settings(), Assumptions(), page=4, turn=1)).share == 1.0


def test_each_of_many_pages_has_its_own_turns(board: Board) -> None:
    one = WhatIf(InThisProcess(), board)
    list(one.studies(TRACE, Settings(), Assumptions(), page=0, turn=1))
    for number in range(2 * PAGES):
        page, turn = 1_000_000 * number, 100 - number
        changed = Settings(idle_seconds=number)
        assert last(one.studies(TRACE, changed, Assumptions(), page=page, turn=turn)).share == 1.0


def test_a_page_that_is_closed_ends_its_replays(board: Board) -> None:
    tasks: list[Task] = []
    studies = WhatIf(InThisProcess(tasks.append), board).studies(TRACE, Settings(), Assumptions(), page=7, turn=1)
    next(studies)
    assert board.is_newest(tasks[0].page, 1)
    studies.close()  # type: ignore[attr-defined]
    with pytest.raises(SupersededError):
        run_task(tasks[0])


def test_progress_is_reported_while_nothing_is_done_and_ends_when_the_page_wants_more(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Waiting(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            return Future()

    monkeypatch.setattr(what_if, "REPORT_SECONDS", 0)
    studies = WhatIf(Waiting(), board).studies(TRACE, Settings(), Assumptions(), page=1, turn=1)
    assert next(studies) == Progress(share=0.0)
    board.publish(0, "karpenter", 0.5)
    assert next(studies).share == 0.5 / SAME
    board.end_all()
    with pytest.raises(SupersededError):
        next(studies)


def test_a_replay_publishes_its_share_and_ends_when_it_is_superseded(board: Board) -> None:
    executor, tasks = InThisProcess(), []
    executor._before = tasks.append
    list(WhatIf(executor, board).studies(TRACE, Settings(), Assumptions(), page=0, turn=1))
    assert all(0.9 < board.share(0, task.policy) <= 1.0 for task in tasks if task.policy != "fixed-5")
    board.begin(0, 2)
    with pytest.raises(SupersededError):
        run_task(tasks[0])


def test_what_the_model_does_not_support_is_refused_at_once(board: Board) -> None:
    short = from_rows([(1_780_272_000, 1.0), (1_780_272_005, 2.0)], name="short")
    with pytest.raises(ModelError, match="trace short covers 5 s, expected readings over 10 s or more"):
        next(WhatIf(InThisProcess(), board).studies(short, Settings(), Assumptions(), page=0, turn=1))


def test_no_more_results_than_allowed_are_kept(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "KEPT", 3)
    one = WhatIf(InThisProcess(), board)
    list(one.studies(TRACE, Settings(), Assumptions(), page=0, turn=1))
    assert len(one._kept) == 3


@pytest.mark.whole
def test_processes_replay_and_end_with_their_parent_even_when_it_is_killed() -> None:
    board = Board()
    with processes(board) as executor:
        complete = last(WhatIf(executor, board).studies(TRACE, Settings(), Assumptions(), page=0, turn=1))
        assert complete.study is not None and len(complete.study.results) == len(POLICIES)
    script = (
        "import os, time\nfrom backtest.what_if import *\n"
        "with processes(Board()) as executor:\n"
        "    print(executor.submit(os.getpid).result(), flush=True)\n    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait(20)
    parent.stdout.close()
    until = time.monotonic() + 20
    while _runs(child):
        assert time.monotonic() < until, "the process has outlived its parent"
        time.sleep(0.02)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
