"""What the tests of the workflows share. An interpreter that is not moto's runs every ended execution again."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from simulator.runner import Execution, Runner
from tests.support import asl_tools
from tests.support.compared_calls import compared_calls
from tests.support.handlers.bench import Bench, bench
from tests.support.interruptions import prepare
from tests.support.second_interpreter import ENDED_BY_ITSELF, SecondInterpreter
from tests.support.tiers import Tier

ONE_CALL_IN = 40
"""In the quick tier about every fortieth call of a workflow test is compared: that takes longer than the call."""


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """At most four workers, all of them Spot, with the settings of the nearest mark `settings`, and the workflow."""
    mark = request.node.get_closest_marker("settings")
    with bench(**{"max_workers": 4, "spot_percent": 100, **(mark.kwargs if mark else {})}) as made:
        prepare(made)
        yield made


@pytest.fixture(scope="session")
def second_interpreter() -> Iterator[SecondInterpreter | None]:
    """None where npm cannot bring it; in CI that is an error."""
    try:
        packages = asl_tools.installed()
    except asl_tools.ToolsMissing:
        if os.environ.get("CI"):
            raise
        yield None
        return
    interpreter = SecondInterpreter(packages)
    yield interpreter
    interpreter.close()


@pytest.fixture(autouse=True)
def _both_interpreters_agree(
    second_interpreter: SecondInterpreter | None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Both visit the same states, with the same payloads, in every execution of the test that ends by itself."""
    ended: list[tuple[Execution, dict[str, Any]]] = []
    finished = Runner.finished

    def record(runner: Runner, execution: Any) -> None:
        one = runner.get(execution.exec_arn)
        finished(runner, execution)
        if one.status in ENDED_BY_ITSELF:
            ended.append((one, json.loads(execution.state_machine.definition)))

    monkeypatch.setattr(Runner, "finished", record)
    yield
    if second_interpreter is not None:
        for execution, definition in ended:
            found = second_interpreter.differences(execution, definition)
            assert not found, "\n".join(found)


@pytest.fixture(autouse=True)
def _direct_answers_are_those_of_the_wire(request: pytest.FixtureRequest, tier: Tier) -> Iterator[None]:
    """In every call with --all, in some of each test's calls in the quick tier."""
    seed = zlib.crc32(f"{tier.seed} {request.node.nodeid}".encode())
    with compared_calls(one_in=1 if tier.whole else ONE_CALL_IN, seed=seed) as differences:
        yield
    assert differences == []
