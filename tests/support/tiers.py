"""Which tests a run has: a sample of the long ones, or all of them, or those that the changed files reach.

The quick tier draws the sample from a seed that changes by the day, so that over time it covers what the whole suite
covers. The report names the seed; `--sample-seed` repeats it.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import subprocess
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from node_fleet.domain.model.value_class import value_class
from tests.support.changed_files import ROOT, changed_files, reached_tests

SEED = "NODE_FLEET_SAMPLE_SEED"
WHOLE, SAMPLE, SAMPLED = "whole", "sample", "sampled"
"""Marks: a test that only the whole suite has, one that stands for such tests in the quick tier, and a test of whose
cases, or a file of whose tests, the quick tier draws some.
"""

QUICK_PROFILE, QUICK_EXAMPLES = "quick", 25
"""Of each property the quick tier draws so many examples; others run each day."""


@value_class
class Tier:
    """How much of the long tests runs, and from which seed it is drawn."""

    whole: bool
    seed: int
    schedules: int
    clusters: int
    judged_clusters: int

    def __str__(self) -> str:
        """For the report's header."""
        size = "every test" if self.whole else "a sample of the long tests (--all runs every test)"
        return f"{size}, drawn with --sample-seed {self.seed}"


def add_options(parser: pytest.Parser) -> None:
    """The options of `./node-fleet test` that pytest itself does not have."""
    group = parser.getgroup("node-fleet")
    group.addoption("--all", action="store_true", dest="whole", help="run every test; CI does")
    group.addoption("--sample-seed", type=int, help="draw schedules, clusters and faults with this seed")
    group.addoption("--schedules", type=int, help="random schedules of faults (50; 500 with --all)")
    group.addoption("--judged-clusters", type=int, default=40, help="clusters whose fit the real scheduler judges (40)")
    group.addoption("--record", action="store_true", help="write the answers of the real control plane to fixtures")
    group.addoption("--changed", action="store_true", help="only the tests that the changed files reach")
    group.addoption("--since", help="with --changed: changes since this commit (default: since main)")


def refuse_wrong_words(config: pytest.Config) -> None:
    """What does not exist ends the run with its name, before several processes stumble over it without a word."""
    for word in config.args:
        path = config.invocation_params.dir / word.partition("::")[0]
        if not path.exists():
            raise pytest.UsageError(f"{word}: no such file or folder; name tests as in tests/unit/test_words.py")
    if config.option.changed:
        reached_by_changes(config)


def choose_seed(config: pytest.Config) -> None:
    """Without --sample-seed the seed is the day, and 0 with --all. The environment passes it to other processes."""
    if config.option.sample_seed is None:
        seed = 0 if config.option.whole else dt.datetime.now(tz=dt.UTC).date().toordinal()
        given = os.environ.setdefault(SEED, str(seed))
        if not given.isdecimal():
            raise pytest.UsageError(f"{SEED}={given}: expected a whole number, as in --sample-seed 739950")
        config.option.sample_seed = int(given)


def tier_of(config: pytest.Config) -> Tier:
    """The tier that the options select."""
    whole, number = config.option.whole, config.option.schedules
    return Tier(
        whole=whole,
        seed=config.option.sample_seed,
        schedules=number or (500 if whole else 50),
        clusters=200 if whole else 20,
        judged_clusters=config.option.judged_clusters,
    )


def examples(number: int) -> settings:
    """For a property that needs another number of examples than Hypothesis draws; the quick tier has its own limit."""
    is_quick = settings.get_current_profile_name() == QUICK_PROFILE
    return settings(max_examples=min(number, QUICK_EXAMPLES) if is_quick else number)


def is_left_out(config: pytest.Config, path: Path) -> bool:
    """Whether it is a test file that no changed file reaches."""
    if not config.option.changed or not path.name.startswith("test_"):
        return False
    reached = reached_by_changes(config)
    return reached is not None and path.relative_to(ROOT).as_posix() not in reached


def reached_by_changes(config: pytest.Config) -> frozenset[str] | None:
    """The test files of --changed; None for all of them."""
    try:
        return reached_tests(changed_files(config.option.since))
    except subprocess.CalledProcessError as error:
        raise pytest.UsageError(f"--changed: {error.stderr.strip()}; name a commit with --since") from error
    except FileNotFoundError as error:
        raise pytest.UsageError("--changed: git was not found, and it names the changed files: install git") from error


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other tier. A test that is named by its id, or failed before, stays."""
    if getattr(config.option, "lf", False) or any("::" in word for word in config.args):
        return
    whole = config.option.whole
    left_out = {item for item in items if item.get_closest_marker(SAMPLE if whole else WHOLE)}
    if not whole:
        short = [item for item in items if item not in left_out]
        left_out |= not_drawn(config.option.sample_seed, short, config.args)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def not_drawn(seed: int, items: Sequence[pytest.Item], named: Collection[str] = ()) -> set[pytest.Item]:
    """The tests marked `sampled` beyond the number of the mark: of a test's cases, then of a file's tests.

    Each test and each file is drawn by itself. named: paths of test files of which every test runs.
    """
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    numbers: dict[str, int] = {}
    for item in items:
        for node, mark in item.iter_markers_with_node(SAMPLED):
            group = item.nodeid.partition("[")[0] if node is item else node.nodeid
            groups[group].append(item)
            numbers[group] = mark.args[0]
    found: set[pytest.Item] = set()
    for group in sorted(groups, key=lambda name: "::" not in name):
        left = [item for item in groups[group] if item not in found]
        if group.partition("::")[0] not in named:
            drawn = random.Random(f"{seed} {group}").sample(left, min(numbers[group], len(left)))
            found |= {*left} - {*drawn}
    return found
