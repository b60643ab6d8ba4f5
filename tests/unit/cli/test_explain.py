"""The rows of explain that say why each worker is eligible for removal or kept."""

from __future__ import annotations

import pytest

from cli.explain import Explained, _judged_rows, show
from node_fleet.domain.scale_down.eligibility import Candidate, Eligibility, Kept
from node_fleet.domain.scaling.check import Check, Decision
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


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("spot_pools", "Spot pools"),
        ("roll_out:on-demand", "return to Spot"),
        ("headroom_cost", "headroom"),
        ("scale_down_delay", "scale-down delay"),
        ("cpu", ""),
    ],
)
def test_what_a_choice_costs_is_shown_although_the_sentence_leaves_it_out(
    name: str, row: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check = Check(name=name, verdict="ok", text="costs 0.0177 USD an hour more", aside=True)
    decision = Decision(action="none", count=0, rule="none", sentence="quiet", reasons=(), evidence=(check,))
    show(Explained(title="now", decision=decision))
    shown = [line for line in capsys.readouterr().out.splitlines() if "0.0177" in line]
    assert [row in line for line in shown] == [True] * bool(row)
