"""Plays something on a copy of a prepared fleet: a forked process, which leaves the fleet of this one as it was."""

from __future__ import annotations

import gc
import multiprocessing
import random
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

from tests.support.recorded_calls import LEDGER

Found = TypeVar("Found")
FORK = multiprocessing.get_context("fork")


def on_a_copy(work: Callable[[], Found]) -> Found:
    """What `work` returns.

    Raises AssertionError with the other process's own account when `work` raises.
    """
    mine, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_answer, args=(theirs, work))
    process.start()
    theirs.close()
    try:
        account, found, ledger = mine.recv()
    except EOFError:
        raise AssertionError("the process that played it died without a word") from None
    finally:
        process.join()
        mine.close()
    LEDGER.merge(ledger)
    assert account == "", account
    return found  # type: ignore[no-any-return]


def _answer(answer: Connection, work: Callable[[], Found]) -> None:
    random.seed(0)  # a fork has a seed of its own otherwise
    gc.disable()  # it ends soon
    account, found = "", None
    try:
        found = work()
    except BaseException:  # whatever it is, the test that waits must hear of it
        account = traceback.format_exc()
    answer.send((account, found, LEDGER))
