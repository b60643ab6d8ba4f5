"""What the shell offers for arguments, and that it offers something without an account too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cli import cluster_completion, completion


def test_scenarios_policies_settings_and_their_values_are_offered() -> None:
    assert completion.scenarios("fl") == ["flash-sale"]
    assert "karpenter" in completion.policies("")
    assert completion.policies("no such") == []
    assert "min_workers=" in completion.settings("min")
    assert completion.settings("preset=ad") == ["preset=adaptive"]
    assert completion.settings("min_workers=3") == []


def test_explain_is_offered_now_the_workers_and_the_last_runs_and_protect_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = [SimpleNamespace(key=f"arn:aws:states:x:1:execution:m:run-{number}") for number in range(30)]
    services = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: 1000),
        ec2=SimpleNamespace(instances=lambda: [SimpleNamespace(instance_id="i-0aaaaaaaaaaaaaaa1")]),
        records=SimpleNamespace(events=lambda *_, **__: runs),
    )
    monkeypatch.setattr(cluster_completion, "Deployed", lambda cluster, region: SimpleNamespace(services=services))
    context: Any = SimpleNamespace(params={})
    offered = cluster_completion.subjects(context, "")
    assert offered[:3] == ["now", "i-0aaaaaaaaaaaaaaa1", "run-29"]
    assert len(offered) == 2 + cluster_completion.RUNS_OFFERED
    assert cluster_completion.workers(context, "i-") == ["i-0aaaaaaaaaaaaaaa1"]


def test_without_an_account_now_is_still_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("no credentials")

    monkeypatch.setattr(cluster_completion, "Deployed", refused)
    assert cluster_completion.subjects(SimpleNamespace(params={}), "n") == ["now"]  # type: ignore[arg-type]
