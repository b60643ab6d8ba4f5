"""The rows of status that name what waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from cli.cluster_status import ClusterStatus
from cli.findings import settings_finding
from cli.status_rows import status_rows, worker_rows
from node_fleet.adapters.records import Event
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.memory import Memory, RollOut, SpotPool
from node_fleet.domain.scaling.decision import decide
from node_fleet.payload import to_payload
from node_fleet.settings import Settings
from tests.support.decisions import START, snapshot, worker
from tests.support.handlers.fakes import NOW, A, B, C, aside, instance


@pytest.mark.parametrize("kind", ["termination", "rollback"])
def test_status_names_each_removal_that_is_set_aside_its_age_and_its_cause(
    kind: Literal["termination", "rollback"],
) -> None:
    state = FleetState(cluster_id="c", set_aside=(aside(A, kind=kind, detail="EC2 state shutting-down"),))
    found = ClusterStatus(place="here", now=NOW, state=state, instances=(), last=None, settings=Settings())
    rows = [text for name, text in status_rows(found) if name == "set aside"]
    assert rows == [f"{A}: {kind}, 10 min ago: EC2 state shutting-down"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "none"),
        ({"disruption_budgets": [{"nodes": "1"}]}, "1 idle worker may be removed now: at most 1 worker"),
        ({"disruption_budgets": [{"nodes": "0", "reasons": ["drifted"]}]}, "3 idle workers may be removed now"),
        ({"disruption_budgets": [{"nodes": "0"}]}, "no idle worker is removed: at most 0 workers"),
        (
            {"removal_windows": "never: 2026-09-21 00:00-24:00"},
            "no idle worker is removed: removal windows 'never: 2026-09-21 00:00-24:00' (UTC), "
            "next opening Tue 2026-09-22 00:00 UTC",
        ),
    ],
)
def test_status_names_the_budget_that_holds_idle_workers(settings: dict[str, Any], expected: str) -> None:
    state = FleetState(cluster_id="c")
    found = ClusterStatus(
        place="here",
        now=START,
        state=state,
        instances=tuple(instance(one) for one in (A, B, C)),
        last=None,
        settings=Settings.from_mapping(settings),
    )
    assert dict(status_rows(found))["budgets"] == expected


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ({}, "up over, down over"),
        (
            {"cpu_requested_milli": None, "memory_requested_mib": None},
            "up 3 min, down 8 min, those of the preset node-fleet, whose rules decide",
        ),
    ],
)
def test_status_shows_the_cooldowns_of_the_rules_that_decide(requested: dict[str, Any], expected: str) -> None:
    settings, memory = Settings.from_mapping({"preset": "adaptive"}), Memory(last_action_at=START - 100)
    seen = snapshot(workers=tuple(worker(n, **requested) for n in range(3)))
    decision = to_payload(decide(seen, memory, settings.policy(), START))
    found = ClusterStatus(
        place="here",
        now=START,
        state=FleetState(cluster_id="c", memory=memory),
        instances=(),
        last=Event(kind="decision", at=START, key="run", data={"decision": decision}),
        settings=settings,
    )
    assert dict(status_rows(found))["cooldown"] == expected


def test_status_shows_the_time_in_which_images_were_pulled_when_workers_report_it(capsys: Any) -> None:
    state = FleetState(cluster_id="c")
    pulled = replace(instance(A), images="4 of 4 in 45 s")
    for workers, cell in (((pulled, instance(B)), ("4 of 4 in 45 s", "")), ((instance(A), instance(B)), None)):
        found = ClusterStatus(place="here", now=NOW, state=state, instances=workers, last=None, settings=Settings())
        cells = [row[6:-1] for row in worker_rows(found)]
        assert cells == ([(text,) for text in cell] if cell else [(), ()])


def test_status_names_each_limit_and_what_is_used_of_it() -> None:
    settings = Settings(max_usd_per_hour=0.2, max_vcpu=8, worker_volume_gib=0, worker_public_address=False)
    fleet = tuple(replace(instance(one), instance_type="t3.small", market="on-demand") for one in (A, B, C))
    state = FleetState(cluster_id="c")
    for given, rows in (
        (settings, ["max_usd_per_hour: 0.0792 of 0.2 USD an hour", "max_vcpu: 6 of 8 vCPU"]),
        (Settings(), []),
    ):
        found = ClusterStatus(place="here", now=START, state=state, instances=fleet, last=None, settings=given)
        assert [text for name, text in status_rows(found) if name == "limit"] == rows


def shown(server: str, configured: str, kubelets: dict[str, str]) -> dict[str, str]:
    roll_out = RollOut(server_version=server, good_version="3")
    state = FleetState(cluster_id="c", memory=Memory(roll_out=roll_out))
    found = ClusterStatus(
        place="here",
        now=START,
        state=state,
        instances=tuple(replace(instance(one), k3s_version="v1.35.5+k3s1") for one in (A, B, C)),
        last=None,
        settings=Settings(k3s_version=configured, launch_template_version="4"),
        kubelets=kubelets,
    )
    return dict(status_rows(found))


def test_status_shows_how_far_an_upgrade_has_come() -> None:
    rows = shown("v1.36.2+k3s1", "v1.36.2+k3s1", {A: "v1.36.2+k3s1", B: ""})
    assert rows["K3s"] == (
        "server v1.36.2+k3s1; 2 workers v1.35.5+k3s1, 1 worker v1.36.2+k3s1; configured v1.36.2+k3s1, "
        "1 of 3 workers have it"
    )
    assert "K3s upgrade" not in rows


def test_status_says_that_workers_wait_for_the_server() -> None:
    rows = shown("v1.35.5+k3s1", "v1.36.2+k3s1", {})
    assert rows["K3s"].endswith("configured v1.36.2+k3s1, 0 of 3 workers have it")
    assert rows["K3s upgrade"] == (
        "workers are launched from version 3: version 4 of the launch template waits: it installs K3s v1.36.2+k3s1, "
        "which is newer than v1.35.5+k3s1 of the server. What you can do: node-fleet upgrade"
    )


def test_without_a_known_version_of_the_server_status_says_nothing_about_k3s() -> None:
    assert not {"K3s", "K3s upgrade"} & shown("", "v1.36.2+k3s1", {}).keys()


@pytest.mark.parametrize(
    ("ago", "then"),
    [(240, "; unless it is healthy in 6 min, it is replaced"), (900, "; not rebooted again")],
)
def test_status_names_each_rebooted_worker_and_what_follows(ago: int, then: str) -> None:
    state = FleetState(cluster_id="c", memory=Memory(rebooted={A: NOW - ago}))
    found = ClusterStatus(place="here", now=NOW, state=state, instances=(), last=None, settings=Settings())
    assert dict(status_rows(found))["rebooted"] == f"{A}, {ago // 60} min ago{then}"


@pytest.mark.parametrize(("maximum", "kept"), [(3, "; none is replaced, because max_workers is min_workers"), (4, "")])
def test_status_says_when_no_outdated_worker_can_be_replaced(maximum: int, kept: str) -> None:
    settings = {"min_workers": 3, "max_workers": maximum, "expire_after_seconds": 86_400}
    found = ClusterStatus(
        place="here",
        now=NOW,
        state=FleetState(cluster_id="c"),
        instances=tuple(replace(instance(one), launched_at=NOW - 2 * 86_400) for one in (A, B, C)),
        last=None,
        settings=Settings.from_mapping(settings),
    )
    assert dict(status_rows(found))["outdated"] == f"3 of 3 workers, listed below{kept}"


@pytest.mark.parametrize(
    ("settings", "verdict", "words"),
    [
        ({"min_workers": 3, "max_workers": 4}, "ok", "none"),
        ({"min_workers": 3, "max_workers": 3}, "warn", "ever replaced (drift=replace, repair=true), because"),
        (
            {"min_workers": 3, "max_workers": 3, "drift": "report", "repair": False, "expire_after_seconds": 86_400},
            "warn",
            "ever replaced (expire_after_seconds=86400), because",
        ),
        (
            {"min_workers": 3, "max_workers": 3, "drift": "off", "repair": False, "spot_learning": "return"},
            "warn",
            "ever replaced (spot_learning=return), because",
        ),
        ({"min_workers": 3, "max_workers": 3, "drift": "report", "repair": False}, "ok", "none"),
        ({"hibernate": "Sun-Fri 20:00-07:00; Sat-Sun"}, "ok", "none"),
    ],
)
def test_doctor_and_preflight_warn_of_replacements_that_can_never_happen(
    settings: dict[str, Any], verdict: str, words: str
) -> None:
    finding = settings_finding(Settings.from_mapping(settings))
    assert finding.verdict == verdict and words in finding.saw
    assert ("set max_workers above min_workers" in finding.fix) is (verdict == "warn")


@pytest.mark.parametrize(
    ("settings", "is_warned"),
    [
        ({"preset": "adaptive", "idle_seconds": 300}, True),
        ({"preset": "adaptive"}, False),
        ({"idle_seconds": 300}, False),
    ],
)
def test_doctor_and_preflight_warn_of_an_idle_time_that_the_preset_replaces(
    settings: dict[str, Any], is_warned: bool
) -> None:
    finding = settings_finding(Settings.from_mapping(settings))
    assert (finding.verdict == "warn", "lower change_cost" in finding.fix) == (is_warned, is_warned)
    assert ("idle_seconds=300 acts only while the pod requests" in finding.saw) is is_warned


def test_doctor_and_preflight_warn_of_a_day_that_begins_on_after_a_day_off() -> None:
    finding = settings_finding(Settings.from_mapping({"hibernate": "Mon-Fri 20:00-07:00; Sat-Sun"}))
    assert (finding.verdict, finding.fix) == ("warn", "change hibernate, or leave it when that is meant")
    assert "hibernate: the fleet is on from 00:00 on Mon, while other nights end at 07:00" in finding.saw


@pytest.mark.parametrize(
    ("learning", "on_demand", "minimum", "expected"),
    [
        ("off", 3, 0, []),
        ("avoid", 1, 0, ["noisy Spot pool"]),
        ("avoid", 3, 1, ["noisy Spot pool", "Spot share"]),
        ("avoid", 3, 3, ["noisy Spot pool"]),
    ],
)
def test_status_shows_noisy_pools_and_what_the_missing_spot_workers_would_save(
    learning: str, on_demand: int, minimum: int, expected: list[str]
) -> None:
    zone, names = "ap-southeast-1a", (A, B, C)
    pool = SpotPool(pool=f"{zone}/t3.small", lost=4.0, lost_at=START, seen=4)
    found = ClusterStatus(
        place="here",
        now=START,
        state=FleetState(cluster_id="c", memory=Memory(spot_pools=(pool,), spot_at=START)),
        instances=tuple(
            replace(instance(one), zone=zone, market="on-demand" if n < on_demand else "spot")
            for n, one in enumerate(names)
        ),
        last=None,
        settings=Settings.from_mapping({"spot_learning": learning, "on_demand_minimum": minimum}),
    )
    rows = [(name, text) for name, text in status_rows(found) if "Spot" in name]
    assert [name for name, _ in rows] == expected
    texts = {
        "noisy Spot pool": (
            f"{zone}/t3.small: 2.0 interruptions per 100 h (4.0 in 0 h); new workers use it last, for 3 d more"
        ),
        "Spot share": "0 of 3 workers Spot, 70 % wanted; 2 more save $25.84 a month",
    }
    assert dict(rows) == {name: texts[name] for name in expected}


def test_status_names_the_standby_workers_and_their_cost_is_that_of_their_volumes() -> None:
    def found(**changes: Any) -> ClusterStatus:
        values: dict[str, Any] = {"settings": Settings(standby_workers=2), **changes}
        state = FleetState(cluster_id="c")
        return ClusterStatus(place="here", now=NOW, state=state, instances=(), last=None, **values)

    stopped = replace(instance(A), state="stopped", standby="ready")
    broken = replace(instance(B), state="stopped", standby="failed")
    shown = dict(status_rows(found(standby=(stopped, broken))))["standby workers"]
    assert shown == f"1 of 2 ready: {A} (t3.small in a, stopped), {B} (t3.small in a, to be renewed)"
    assert dict(status_rows(found()))["standby workers"] == "0 of 2 ready"
    assert "standby workers" not in dict(status_rows(found(settings=Settings())))
    volume = 20 * 0.096 / 730
    assert found(standby=(stopped, broken)).hourly_cost.usd == pytest.approx(2 * volume)
