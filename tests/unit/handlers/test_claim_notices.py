"""ClaimNotices: each worker once, and only ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.claim_notices import handler
from tests.support.handlers.interruption import running
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


def warning(instance_id: str) -> dict[str, Any]:
    what = "EC2 Spot Instance Interruption Warning"
    return {"detail-type": what, "time": "2026-09-21T14:14:20Z", "detail": {"instance-id": instance_id}}


def test_the_second_execution_is_told_who_answers(fleet: Bench) -> None:
    taken = running(fleet).instance_id
    first = handler({"event": warning(taken), "execution_id": "first"}, None)
    second = handler({"event": warning(taken), "execution_id": "second"}, None)
    again = handler({"event": warning(taken), "execution_id": "first"}, None)
    assert first["status"] == "claimed" and again == first
    assert second["status"] == "ignored" and "first" in second["ignored"][taken]


def test_the_plan_names_another_pool(fleet: Bench) -> None:
    taken = running(fleet)
    answer = handler({"event": warning(taken.instance_id), "execution_id": "first"}, None)
    assert answer["interruptions"][0]["slot"]["zone"] != taken.zone


def test_a_foreign_machine_is_told_apart(fleet: Bench) -> None:
    answer = handler({"event": warning("i-0123456789abcdef0"), "execution_id": "first"}, None)
    assert answer["ignored"] == {"i-0123456789abcdef0": "not a worker of this fleet"}
