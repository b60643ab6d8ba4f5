"""The judgement of settings on loads that did not choose them: folds, the choice, intervals, the clause."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from backtest.generated import DAYS, FAMILIES, generated_traces
from backtest.judge import Figures, Judged, chosen, combinations, interval, main, means, out_of_fold, report
from node_fleet.domain.model.errors import InvalidSettingsError
from tests.support.backtest_loads import START


def load(name: str, group: str, *, peer: tuple[float, float, float], **settings: tuple[float, float, float]) -> Judged:
    return Judged(
        name=name,
        group=group,
        settings={key: Figures(*value, 1.0) for key, value in settings.items()},
        peers={"cluster-autoscaler": Figures(*peer, 1.0)},
    )


EASY = {"cheap": (1.0, 40.0, 5.0), "dear": (1.2, 10.0, 5.0)}
HARD = {"cheap": (1.0, 60.0, 5.0), "dear": (1.2, 45.0, 5.0)}
PEER = (1.1, 100.0, 5.0)


class TestChosen:
    def test_the_cheapest_setting_with_half_of_the_peers_waiting_is_chosen(self) -> None:
        assert chosen([load("a", "traces", peer=PEER, **EASY)]) == "cheap"

    def test_a_dearer_one_is_chosen_when_the_cheapest_waits_too_long(self) -> None:
        assert chosen([load("a", "traces", peer=PEER, **HARD)]) == "dear"

    def test_no_more_changes_than_the_peer_come_before_cost(self) -> None:
        settings = {"cheap": (1.0, 40.0, 5.1), "dear": (1.2, 40.0, 5.0)}
        assert chosen([load("a", "traces", peer=PEER, **settings)]) == "dear"

    def test_the_nearest_is_chosen_when_none_meets_the_clause(self) -> None:
        settings = {"cheap": (1.0, 90.0, 9.0), "dear": (1.2, 51.0, 5.0)}
        assert chosen([load("a", "traces", peer=PEER, **settings)]) == "dear"

    def test_the_generated_loads_are_a_side_of_their_own(self) -> None:
        """Means over all three loads would meet the clause."""
        loads = [load(name, "traces", peer=PEER, **EASY) for name in "ab"]
        assert chosen([*loads, load("g_0", "g", peer=PEER, **HARD)]) == "dear"


class TestFolds:
    def test_a_trace_is_judged_by_the_choice_of_the_others(self) -> None:
        loads = [load("easy", "traces", peer=PEER, **EASY), load("hard", "traces", peer=PEER, **HARD)]
        assert {name: setting for name, (setting, _) in out_of_fold(loads).items()} == {"easy": "dear", "hard": "cheap"}

    def test_a_family_is_held_out_as_a_whole(self) -> None:
        loads = [
            load("t", "traces", peer=PEER, **EASY),
            load("g_0", "g", peer=PEER, **HARD),
            load("g_1", "g", peer=PEER, **HARD),
        ]
        found = out_of_fold(loads)
        assert [found[name][0] for name in ("t", "g_0", "g_1")] == ["dear", "cheap", "cheap"]
        assert found["g_0"][1] == loads[1].settings["cheap"]


def test_the_interval_contains_the_mean_and_is_a_point_for_equal_differences() -> None:
    low, high = interval([0.0, 1.0, 2.0, 3.0])
    assert 0.0 <= low < 1.5 < high <= 3.0
    assert interval([0.25] * 5) == (0.25, 0.25)
    assert interval([0.0, 1.0, 2.0, 3.0]) == (low, high), "the same resamples each time"


def test_the_mean_of_figures_is_taken_one_by_one() -> None:
    assert means([Figures(1.0, 10.0, 2.0, 1.0), Figures(2.0, 30.0, 4.0, 3.0)]) == Figures(1.5, 20.0, 3.0, 2.0)


def test_the_report_names_what_holds_and_what_does_not() -> None:
    text = report([load("a", "traces", peer=PEER, only=(1.2, 40.0, 5.0))], ["cluster-autoscaler"])
    assert "FAILS  cost at most that of cluster-autoscaler: 1.200, limit 1.100" in text
    assert "holds  at most half of its waiting: 40.000, limit 50.000" in text
    assert "cost     difference   +0.100  [+0.100, +0.100]" in text
    assert "worst load: 40 pod-minutes a day, 5 changes a day" in text
    assert "traces (1), one setting" in text, "nothing was chosen, so nothing is out of fold"


def test_combinations_are_all_of_them_and_a_wrong_value_is_refused() -> None:
    found = combinations({"wait_cost": "1,2", "change_cost": "9"})
    assert [(s.wait_cost, s.change_cost, s.preset) for s in found.values()] == [(1, 9, "adaptive"), (2, 9, "adaptive")]
    assert list(found) == ["wait_cost=1 change_cost=9", "wait_cost=2 change_cost=9"]
    assert list(combinations({})) == ["shipped"]
    with pytest.raises(InvalidSettingsError, match=r"(?i)wait_cost"):
        combinations({"wait_cost": "-1"})


class TestGenerated:
    def test_the_same_seed_gives_the_same_loads_and_another_one_others(self) -> None:
        first, again, other = (next(generated_traces(range(seed, seed + 1))) for seed in (3, 3, 4))
        assert first.values == again.values and first.values != other.values

    def test_each_family_gives_a_week_of_loads_without_negative_values(self) -> None:
        traces = list(generated_traces(range(1), minutes=5))
        assert [trace.name for trace in traces] == [f"{family}_0" for family in FAMILIES]
        for trace in traces:
            assert len(trace.values) == DAYS * 288 and min(trace.values) >= 0
            assert max(trace.values) > min(trace.values)

    def test_a_reading_is_the_mean_of_its_minutes(self) -> None:
        single, mean = (next(generated_traces(range(1), minutes=minutes)) for minutes in (1, 5))
        assert mean.values[0] == pytest.approx(sum(islice(single.values, 5)) / 5)


def test_the_command_judges_the_traces_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{START + 300 * n},{10 + 40 * (n % 24 < 8)}\n" for n in range(96))
    (tmp_path / "steps.csv").write_text(f"time,value\n{rows}", encoding="utf-8")
    asked: list[range] = []
    monkeypatch.setattr("backtest.judge.generated_traces", lambda seeds, **_: asked.append(seeds) or iter(()))
    words = [str(tmp_path), "--choose", "wait_cost=1,4", "--seeds", "2", "--first-seed", "500"]
    main([*words, "--peers", "cluster-autoscaler"])
    out = capsys.readouterr().out
    assert asked == [range(500, 502)]
    assert "steps\n    wait_cost=1: " in out and "traces (1), out of fold" in out
    assert "generated" not in out and "chosen by all: wait_cost=" in out
