"""The tables of the document: written between their marks, for one policy or all, without any other change."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtest.__main__ import BEGIN, END, TABLES, Figure, main, means, write_between_marks


def figure(policy: str, trace: str, value: float) -> Figure:
    return Figure(
        trace=trace,
        policy=policy,
        times_bound=value,
        avoidable=value,
        changes_of_direction=value,
        overload=value,
        instances_usd=value,
        usd=value,
    )


def test_each_trace_has_the_same_weight_in_the_mean() -> None:
    (mean,) = means([figure("karpenter", "a", 1.0), figure("karpenter", "b", 2.0)])
    assert (mean.trace, mean.times_bound, mean.changes_of_direction) == ("mean", 1.5, 1.5)


def test_only_text_between_the_marks_changes_and_other_policies_keep_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "doc.md"
    path.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    write_between_marks(path, [figure("karpenter", "nab_x", 1.0), figure("adaptive", "nab_x", 2.0)])
    write_between_marks(path, [figure("adaptive", "nab_x", 3.0)])
    text = path.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert text.count("| policy | x |") == len(TABLES)
    assert "| karpenter | 1.000 |" in text
    assert "| adaptive | 3.000 |" in text
    assert "| adaptive | 2.000 |" not in text
    assert text.index("| adaptive |") < text.index("| karpenter |")


def test_every_trace_of_a_folder_is_replayed_and_a_variant_gives_other_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{1_780_272_000 + k * 300},{40 + 30 * (k // 12 % 2)}" for k in range(100)]
    (tmp_path / "x.csv").write_text("time,value\n" + "\n".join(rows) + "\n")
    main([str(tmp_path), "karpenter"])
    usual = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in usual] == [["x", "karpenter"], ["mean", "karpenter"]]
    for variant in (["--boot", "180"], ["--jump"], ["--stay-up", "300"], ["--part", "first"]):
        main([str(tmp_path), "karpenter", *variant])
        assert capsys.readouterr().out.splitlines() != usual
