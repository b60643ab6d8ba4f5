"""CollectMetrics: live, cached or none, what is recorded, and when history is fetched."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.collect_metrics import handler
from node_fleet.domain.model.errors import Ec2Error
from node_fleet.domain.model.fleet_state import Reservation
from node_fleet.domain.model.memory import Memory, Replacement, RollOut
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import (
    STATUS_CHECK,
    HourlyLoad,
    LaunchImage,
    NodeReading,
    PodShape,
    Reading,
    Snapshot,
)
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.prediction import predict
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.domain.scaling.unhealthy import is_status_due
from node_fleet.payload import from_payload, to_payload
from node_fleet.settings import Settings
from tests.support.handlers.fakes import NOW, A, B, C, FakeServices, inspection_text, instance, worker_line
from tests.support.tiers import examples

FIGURES = ("cpu_percent", "cpu_max_percent", "memory_percent", "memory_max_percent")
EMPTY = {"cpu_percent": None, "memory_percent": None, "pending": None}
PROBLEM = "Prometheus at http://10.0.0.1:30090 does not answer"


@pytest.fixture
def one(services: FakeServices) -> FakeServices:
    """A fleet of one worker, which Prometheus shows with 42 % of its CPU."""
    services.settings = Settings(cached_reading_seconds=300)
    services.ec2.fleet = services.ec2.fleet[:1]
    node = NodeReading(
        node_name=A,
        provider_id=f"aws:///a/{A}",
        ready=True,
        cores=2.0,
        cpu_percent=42.0,
        memory_used_mib=1,
        memory_total_mib=2,
    )
    figures: dict[str, Any] = dict.fromkeys(FIGURES, 42.0)
    services.prometheus.reading = Reading(at=NOW, **figures, pending=(), nodes=(node,))
    return services


def collect(**event: Any) -> Snapshot:
    answer = handler({"status": "acquired", "memory": to_payload(Memory()), **event}, None)
    assert answer["status"] == "acquired"
    snapshot: Snapshot = from_payload(Snapshot, answer["snapshot"])
    return snapshot


def test_a_live_reading_is_recorded_once(one: FakeServices) -> None:
    snapshot = collect()
    assert (snapshot.source, snapshot.cpu_percent, snapshot.pending_count, snapshot.problem) == ("live", 42, 0, "")
    assert one.records.readings == [snapshot]


@pytest.mark.parametrize(("age", "source"), [(120, "cached"), (300, "cached"), (301, "none"), (None, "none")])
def test_without_prometheus_a_young_reading_stands_in_and_the_instances_are_still_there(
    one: FakeServices, age: int | None, source: str
) -> None:
    if age:
        one.records.snapshot = replace(collect(), at=NOW - age, read_at=NOW - age)
        one.records.readings.clear()
    one.prometheus.down = True
    snapshot = collect()
    assert (snapshot.source, snapshot.problem) == (source, PROBLEM)
    assert (snapshot.cpu_percent, snapshot.pending) == ((42, ()) if source == "cached" else (None, None))
    (worker,) = snapshot.workers
    assert worker.instance_id == A and (worker.phase == "unknown" or source == "cached")
    assert one.records.readings == []


def test_the_order_that_holds_now_is_in_every_snapshot_also_without_prometheus(one: FakeServices) -> None:
    now, later = (
        TimedMinimum(name=name, workers=5, since=since, until=NOW + 900, by="ana", reason="a sale")
        for name, since in (("now", NOW), ("later", NOW + 1))
    )
    one.state.item = replace(one.state.item, timed_minimums=(later,))
    one.records.snapshot = replace(collect(), at=NOW - 60, read_at=NOW - 60)
    assert one.records.snapshot.timed_minimum is None
    one.state.item = replace(one.state.item, timed_minimums=(now, later))
    assert collect().timed_minimum == now
    one.prometheus.down = True
    assert (collect().source, collect().timed_minimum) == ("cached", now)
    one.records.snapshot = None
    assert (collect().source, collect().timed_minimum) == ("none", now)


def test_the_use_of_each_limit_is_in_the_snapshot_with_reservations_and_without_workers_under_notice(
    one: FakeServices,
) -> None:
    assert collect().limits == ()
    one.settings = Settings(max_vcpu=8, spot_percent=0, instance_types=("t3.small", "t3.xlarge"))
    held = Reservation(key="x:1", until=NOW + 60, pool="a/t3.xlarge/on-demand")
    one.state.item = replace(one.state.item, reservations=(held,))
    (use,) = collect().limits
    assert (use.name, use.most, use.used) == ("max_vcpu", 8, 6)
    assert use.of_kind == {"t3.small/on-demand": 2, "t3.xlarge/on-demand": 4}


def test_a_reading_in_which_all_is_missing_is_live_and_names_it_and_is_not_recorded(one: FakeServices) -> None:
    nothing: dict[str, Any] = dict.fromkeys(FIGURES)
    one.prometheus.reading = Reading(at=NOW, **nothing, pending=None, nodes=(), missing=("nodes", "pending"))
    snapshot = collect()
    assert one.records.readings == []
    assert snapshot.source == "live"
    assert snapshot.missing == ("nodes", "pending", "cpu_percent", "memory_percent")


@pytest.mark.parametrize(
    ("changes", "source"),
    [
        ({}, "cached"),
        ({"read_at": NOW - 300}, "cached"),
        ({"read_at": NOW - 301}, "none"),
        ({"source": "cached"}, "none"),
        (EMPTY, "none"),
    ],
    ids=["live", "at its limit", "too old", "not live", "without values"],
)
def test_without_prometheus_the_live_reading_of_the_round_before_stands_in(
    one: FakeServices, changes: dict[str, Any], source: str
) -> None:
    before = replace(collect(), **changes)
    one.prometheus.down = True
    assert collect(snapshot=to_payload(before)).source == source


def test_notices_of_the_state_item_reach_the_snapshot(one: FakeServices) -> None:
    one.notice(A)
    assert collect().workers[0].under_notice


@pytest.mark.parametrize(
    ("age", "flags", "stale", "asked"),
    [
        (301, "RW", True, True),
        (301, "W", False, True),
        (301, "", False, True),
        (301, None, False, False),
        (300, "RW", False, False),
    ],
    ids=["Ready in the API", "NotReady in the API", "not in the API", "no answer", "within the join limit"],
)
def test_a_ready_node_that_kube_state_metrics_does_not_show_makes_its_figures_missing(
    one: FakeServices, age: int, flags: str | None, stale: bool, asked: bool
) -> None:
    one.ec2.fleet = (instance(A), replace(instance(B), launched_at=NOW - age))
    if flags is not None:
        lines = [worker_line(A), *([worker_line(B, flags)] if flags else [])]
        one.server.says("InspectNodes", inspection_text(*lines))
    else:
        one.server.unreachable = True
    snapshot = collect()
    assert (snapshot.source, snapshot.cpu_percent, bool(one.server.commands)) == ("live", 42, asked)
    assert ("nodes" in snapshot.missing, "pending" in snapshot.missing, snapshot.pending is None) == (stale,) * 3
    assert (B in snapshot.problem, "kube-state-metrics is stale" in snapshot.problem) == (stale, stale)
    assert {w.phase for w in snapshot.workers if w.instance_id == A} == {"unknown" if stale else "usable"}


@pytest.mark.parametrize(
    ("predictive", "zone", "minute", "asked"),
    [
        (True, "UTC", 49, False),
        (True, "UTC", 50, True),
        (True, "UTC", 59, True),
        (False, "UTC", 55, False),
        (True, "Asia/Kolkata", 49, False),
        (True, "Asia/Kolkata", 50, True),
    ],
)
def test_history_is_fetched_only_in_the_minutes_of_prediction(
    one: FakeServices, predictive: bool, zone: str, minute: int, asked: bool
) -> None:
    one.settings = Settings(predictive=predictive, timezone=zone)
    one.clock.time = NOW // 3600 * 3600 + minute * 60
    assert bool(collect().hourly) is asked
    assert one.records.asked == ([(one.clock.time - 14 * 86_400, one.clock.time)] if asked else [])


@pytest.mark.parametrize(("needed", "days"), [(13, 14), (14, 15), (30, 31)])
def test_the_history_has_one_day_more_than_a_prediction_needs(one: FakeServices, needed: int, days: int) -> None:
    one.settings = Settings(predictive=True, predictive_min_days=needed)
    one.clock.time = NOW // 3600 * 3600 + 55 * 60
    collect()
    assert one.records.asked == [(one.clock.time - days * 86_400, one.clock.time)]


def test_the_history_is_rounded_to_one_digit_for_the_payload(
    one: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.settings = Settings(predictive=True)
    one.clock.time = NOW // 3600 * 3600 + 55 * 60
    hour = HourlyLoad(hour_epoch=0, cpu_percent=12.345, workers=3.456, readings=30)
    monkeypatch.setattr(one.records, "hourly_loads", lambda *_: (hour,))
    assert collect().hourly == (replace(hour, cpu_percent=12.3, workers=3.5),)


@hypothesis.settings(examples(60), suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@given(
    zone=st.sampled_from(
        ("UTC", "Asia/Dhaka", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns")
    ),
    second=st.integers(0, 14 * 86_400),
    minute=st.integers(0, 59),
)
def test_the_history_is_fetched_exactly_when_a_prediction_is_made(
    one: FakeServices, zone: str, second: int, minute: int
) -> None:
    one.settings = Settings(predictive=True, timezone=zone, predictive_minute=minute)
    one.clock.time = NOW + second
    one.prometheus.reading = replace(one.prometheus.reading, at=one.clock.time)
    tick = make_tick(collect(), Memory(), one.settings.policy(), one.clock.time)
    assert bool(tick.snapshot.hourly) == bool(predict(tick).hour_judged)


def listing(*lines: dict[str, Any]) -> str:
    body = "\n".join(json.dumps(line) for line in ({"labels": {"disk": "ssd"}, "taints": []}, *lines))
    return f"{body}\nend {len(lines) + 1} {zlib.crc32(body.encode()):08x}"


def waiting(one: FakeServices) -> None:
    shape = PodShape(cpu_milli=500, memory_mib=256, count=2, example="shop/web-7d9-abcde")
    one.prometheus.reading = replace(one.prometheus.reading, pending=(shape,))


def test_pending_pods_are_listed_by_the_api_with_what_they_demand(one: FakeServices) -> None:
    waiting(one)
    demand = {"requests": {"cpu": 500, "memory": 2**28 + 1, "pods": 1}, "ports": [[80, "TCP", ""]]}
    group = {"count": 2, "oldest": 9, "example": "shop/web-7d9-abcde", "owner": "", "demand": demand, "problem": ""}
    one.server.says("ListPendingPods", listing(group, {"more": 7}))
    snapshot = collect()
    listed, others = snapshot.pending or ()
    assert (listed.cpu_milli, listed.memory_mib, listed.count, listed.demand) == (500, 257, 2, demand)
    assert (others.count, others.problem) == (7, "they did not fit into the answer of the server")
    assert (snapshot.worker_labels, snapshot.unlisted) == ({"disk": "ssd"}, "")


def test_pods_that_the_api_leaves_out_still_count_as_unschedulable_later_in_the_run(one: FakeServices) -> None:
    waiting(one)
    one.server.says("ListPendingPods", listing())
    assert (collect().pending, collect().pending_count) == ((), 2)


def test_a_quiet_tick_does_not_ask_the_server(one: FakeServices) -> None:
    collect()
    assert one.server.commands == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "the server's list of pending pods was cut"),
        (listing({"count": 1}), "the server's list of pending pods cannot be read: 'demand'"),
        (listing()[:-1], "the server's list of pending pods was cut"),
        (listing().replace("ssd", "hdd"), "the server's list of pending pods was cut"),
        (listing().replace("end 1", "end 2"), "the server's list of pending pods was cut"),
        ("end 0 00000000", "the server's list of pending pods was cut"),
    ],
)
def test_an_answer_that_cannot_be_read_leaves_the_pods_unlisted(one: FakeServices, answer: str, why: str) -> None:
    waiting(one)
    one.server.says("ListPendingPods", answer)
    snapshot = collect()
    assert (snapshot.unlisted, snapshot.pending_count) == (why, 2)


def test_a_server_that_cannot_be_asked_leaves_the_pods_unlisted(one: FakeServices) -> None:
    waiting(one)
    one.server.says("ListPendingPods", code=1)
    assert collect().unlisted == "the list of pending pods has no answer: SSM status Failed"
    one.server.unreachable = True
    assert collect().unlisted == "the K3s server is not managed by SSM"


@pytest.mark.parametrize(("seconds_ago", "launched"), [(10, 0), (119, 0), (120, 1)])
def test_a_replacement_that_ec2_does_not_list_yet_counts_for_the_minimum(
    services: FakeServices, seconds_ago: int, launched: int
) -> None:
    """The interruption workflow launched it; for a while EC2 may not list a new instance."""
    services.notice(A)
    nodes = tuple(NodeReading(node_name=i, provider_id=f"aws:///a/{i}", ready=True, cores=2.0) for i in (A, B, C))
    services.prometheus.reading = Reading(at=NOW, pending=(), nodes=nodes)
    promised = Reservation(
        key=f"int-{A}:1", instance_id="i-0new", until=NOW + 800, pool="b/t3.small/spot", at=NOW - seconds_ago
    )
    services.state.item = replace(services.state.item, reservations=(promised,))
    decision = decide(collect(), Memory(), Policy(min_workers=3), NOW)
    assert (decision.action == "scale_up", decision.count) == (bool(launched), launched)


@pytest.fixture
def templated(one: FakeServices) -> FakeServices:
    """A worker of version 3 and its image, where version 4 of the template is deployed."""
    one.settings = replace(one.settings, launch_template_id="lt-1", launch_template_version="4")
    one.ec2.fleet = (replace(one.ec2.fleet[0], template_version="3", image_id="ami-1"),)
    one.ec2.images = {"4": "ami-2"}
    return one


def test_a_worker_of_an_older_template_is_shown_with_what_differs(templated: FakeServices) -> None:
    snapshot = collect()
    (worker,) = snapshot.workers
    assert worker.template_version == "3"
    assert worker.drift == "launch template version 3, today 4; image ami-1, today ami-2"
    assert snapshot.launch_image == LaunchImage(version="4", image_id="ami-2", at=NOW, answered_at=NOW)


@pytest.mark.parametrize(
    ("known", "questions"),
    [
        (LaunchImage(version="4", image_id="ami-3", at=NOW - 3599), 0),
        (LaunchImage(version="4", image_id="ami-3", at=NOW - 3600), 1),
    ],
)
def test_the_image_that_the_memory_knows_is_not_asked_again_within_the_hour(
    templated: FakeServices, known: LaunchImage, questions: int
) -> None:
    snapshot = collect(memory=to_payload(Memory(launch_image=known)))
    assert templated.ec2.image_questions == questions
    assert snapshot.launch_image.image_id == ("ami-2" if questions else "ami-3")


@pytest.mark.parametrize(("version", "image", "answered_at"), [("4", "ami-3", 7), ("3", "", 0)])
def test_a_refusal_of_ec2_never_fails_the_reading_and_leaves_what_was_known_of_that_version(
    templated: FakeServices, version: str, image: str, answered_at: int
) -> None:
    templated.ec2.error = Ec2Error("EC2: cannot read version 4: UnauthorizedOperation")
    known = LaunchImage(version=version, image_id="ami-3", answered_at=7)
    snapshot = collect(memory=to_payload(Memory(launch_image=known)))
    assert snapshot.source == "live"
    assert snapshot.launch_image == LaunchImage(version="4", image_id=image, at=NOW, answered_at=answered_at)


def test_with_drift_off_nothing_is_compared(templated: FakeServices) -> None:
    templated.settings = replace(templated.settings, drift="off")
    assert [w.drift for w in collect().workers] == [""]


@pytest.mark.parametrize(
    ("since", "repair", "shown"),
    [(NOW - 1800, True, (STATUS_CHECK,)), (NOW - 1799, True, ()), (NOW - 1800, False, ())],
)
def test_a_status_check_that_is_impaired_for_long_is_a_condition_of_the_worker(
    one: FakeServices, since: int, repair: bool, shown: tuple[str, ...]
) -> None:
    one.settings = replace(one.settings, repair=repair, interval_seconds=600, interval_jitter_seconds=0)
    one.ec2.impaired_since = {A: since, "i-other": since}
    assert [w.conditions for w in collect().workers] == [shown]


def test_without_an_answer_about_status_checks_the_reading_stands(one: FakeServices) -> None:
    one.settings = replace(one.settings, interval_seconds=600)
    one.ec2.error = Ec2Error("EC2: cannot read the status checks of instances: RequestLimitExceeded")
    assert [w.conditions for w in collect().workers] == [()]


def test_status_checks_are_asked_every_ten_minutes_and_in_each_tick_of_a_repair() -> None:
    at = NOW - NOW % 600
    assert [is_status_due(Memory(), at + s, 120) for s in (0, 119, 120, 599, 600)] == [True, True, False, False, True]
    repairing = RollOut(current=Replacement(worker=A, reason="unhealthy", replacement=B))
    drifting = RollOut(current=Replacement(worker=A, reason="drifted", replacement=B))
    assert is_status_due(Memory(roll_out=repairing), at + 120, 120)
    assert not is_status_due(Memory(roll_out=drifting), at + 120, 120)


@pytest.mark.parametrize(("error", "shown"), [(None, "k3s: exit 1"), (Ec2Error("EC2: denied"), "EC2: denied")])
def test_the_console_of_a_replacement_that_lost_ready_is_read(
    one: FakeServices, error: Exception | None, shown: str
) -> None:
    one.ec2.consoles, one.ec2.error = {A: "booting\nk3s: exit 1\n"}, error
    reading = one.prometheus.reading
    assert reading is not None
    ready = Memory(roll_out=RollOut(current=Replacement(worker=B, reason="drifted", replacement=A)))
    assert collect(memory=to_payload(ready)).console == ""
    one.prometheus.reading = replace(reading, nodes=(replace(reading.nodes[0], ready=False),))
    one.ec2.fleet = (replace(one.ec2.fleet[0], launched_at=NOW - 3600),)
    assert collect(memory=to_payload(ready)).console.endswith(shown)


@pytest.mark.parametrize(
    ("read", "known", "version"),
    [
        ("v1.35.5+k3s1", "", "3"),
        ("", "v1.35.5+k3s1", "3"),
        ("v1.36.2+k3s1", "v1.35.5+k3s1", "4"),
        ("", "", "4"),
    ],
)
def test_no_worker_drifts_to_a_version_newer_than_the_server(
    templated: FakeServices, read: str, known: str, version: str
) -> None:
    templated.settings = replace(templated.settings, k3s_version="v1.36.2+k3s1")
    templated.ec2.images["3"] = "ami-1"
    templated.prometheus.reading = replace(templated.prometheus.reading, server_version=read)
    snapshot = collect(memory=to_payload(Memory(roll_out=RollOut(good_version="3", server_version=known))))
    assert snapshot.server_version == read
    assert snapshot.launch_image.version == version
    assert bool(snapshot.workers[0].drift) is (version == "4")
    assert ("node-fleet upgrade" in snapshot.launch_hold) is (version == "3")


def test_no_worker_drifts_while_the_configured_version_waits_and_no_earlier_one_is_known(
    templated: FakeServices,
) -> None:
    templated.settings = replace(templated.settings, k3s_version="v1.36.2+k3s1")
    templated.prometheus.reading = replace(templated.prometheus.reading, server_version="v1.35.5+k3s1")
    snapshot = collect()
    assert [w.drift for w in snapshot.workers] == [""]
    assert templated.ec2.image_questions == 0
