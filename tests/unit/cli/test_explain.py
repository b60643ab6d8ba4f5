"""The rows of explain that say why each worker is eligible for removal or kept."""

from __future__ import annotations

from cli.explain import _judged_rows
from node_fleet.domain.scale_down.eligibility import Candidate, Eligibility, Kept
from tests.support.handlers.fakes import A, B, instance
from tests.support.inspected_nodes import inspected_node

JUDGED = Eligibility(
    candidates=(Candidate(instance=instance(A), node=inspected_node(A), cpu_percent=12.0),),
    kept=(Kept(instance_id=B, reason="it is the server"),),
    usable=(A,),
)


def test_an_eligible_worker_shows_its_idle_share() -> None:
    assert _judged_rows(JUDGED, "") == ((A, "yes", "88 % idle"), (B, "no", "it is the server"))


def test_a_budget_keeps_every_eligible_worker_and_no_other() -> None:
    held = "no idle worker is removed: at most 0 workers"
    assert _judged_rows(JUDGED, held) == ((A, "no", held), (B, "no", "it is the server"))
