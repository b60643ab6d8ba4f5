"""When a worker has drifted, in which words, and when it is expired; unknown facts are never a difference."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.disruption.drift import (
    LaunchFacts,
    differences,
    expires_at,
    expiry_words,
    is_image_due,
    with_drift,
)
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Instance, LaunchImage
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.outdated import outdated_checks, outdated_workers
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.payload import to_payload
from tests.support.decisions import START, snapshot, worker, workers

CURRENT = Instance(
    instance_id="i-0001",
    zone="ap-southeast-1a",
    instance_type="t3.small",
    market="spot",
    state="running",
    launched_at=START,
    template_id="lt-1",
    template_version="4",
    image_id="ami-2",
    bootstrap_hash="b2",
    k3s_version="v1.35.5+k3s1",
    subnet_id="subnet-1",
)
TODAY = LaunchFacts(
    template_id="lt-1",
    template_version="4",
    image_id="ami-2",
    image_at=START + 1,
    bootstrap_hash="b2",
    k3s_version="v1.35.5+k3s1",
    subnet_ids=("subnet-1", "subnet-2"),
    instance_types=("t3.small", "t3a.small"),
)
FACTS = ("template_version", "image_id", "bootstrap_hash", "k3s_version", "subnet_id", "template_id")


def test_a_worker_as_it_would_be_launched_today_has_no_difference() -> None:
    assert differences(CURRENT, TODAY) == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"template_version": "3"}, "launch template version 3, today 4"),
        ({"image_id": "ami-1"}, "image ami-1, today ami-2"),
        ({"bootstrap_hash": "b1"}, "bootstrap b1, today b2"),
        ({"k3s_version": "v1.34.1+k3s1"}, "K3s v1.34.1+k3s1, today v1.35.5+k3s1"),
        ({"subnet_id": "subnet-9"}, "subnet-9 is not a configured subnet"),
        ({"instance_type": "t3.large"}, "t3.large is not a configured instance type"),
        ({"rotate": "ana"}, "marked for rotation by ana"),
        ({"template_id": "lt-0", "template_version": "3"}, "launch template lt-0, today lt-1"),
    ],
)
def test_each_difference_is_named_with_both_values(change: dict[str, str], words: str) -> None:
    assert differences(replace(CURRENT, **change), TODAY) == (words,)


@pytest.mark.parametrize(("launched_at", "differs"), [(START, True), (START + 1, False), (START + 60, False)])
def test_a_worker_launched_after_the_image_was_named_may_have_a_newer_one(launched_at: int, differs: bool) -> None:
    own = replace(CURRENT, image_id="ami-3", launched_at=launched_at)
    assert bool(differences(own, TODAY)) is differs


def test_several_differences_are_all_named() -> None:
    old = replace(CURRENT, template_version="3", k3s_version="v1.34.1+k3s1")
    assert differences(old, TODAY) == (
        "launch template version 3, today 4",
        "K3s v1.34.1+k3s1, today v1.35.5+k3s1",
    )


@given(unknown=st.sets(st.sampled_from(FACTS)), other=st.sampled_from(["other", "9"]))
def test_what_is_unknown_of_the_worker_or_of_the_launch_is_never_a_difference(unknown: set[str], other: str) -> None:
    own = replace(CURRENT, **{name: "" if name in unknown else getattr(CURRENT, name) for name in FACTS})
    assert differences(own, TODAY) == ()
    different = replace(CURRENT, **dict.fromkeys(FACTS, other), instance_type="m5.large")
    assert differences(different, LaunchFacts()) == ()


def test_the_snapshot_shows_the_words_and_the_version_of_each_worker() -> None:
    shown = with_drift(
        snapshot(workers=workers(3)), (CURRENT, replace(CURRENT, instance_id="i-0002", template_version="3")), TODAY
    )
    assert [(w.template_version, w.drift) for w in shown.workers] == [
        ("", ""),
        ("4", ""),
        ("3", "launch template version 3, today 4"),
    ]


@pytest.mark.parametrize(("own", "today", "version"), [("lt-1", "lt-1", "4"), ("lt-0", "lt-1", ""), ("", "lt-1", "4")])
def test_a_version_of_another_template_is_none_that_can_be_launched(own: str, today: str, version: str) -> None:
    seen = snapshot(workers=workers(2), template_id=today)
    shown = with_drift(seen, (replace(CURRENT, template_id=own),), LaunchFacts())
    assert shown.workers[1].template_version == version


@pytest.mark.parametrize(
    ("known", "due"),
    [
        (LaunchImage(version="4", at=START), False),
        (LaunchImage(version="3", at=START), True),
        (LaunchImage(version="4", at=START - 3599), False),
        (LaunchImage(version="4", at=START - 3600), True),
        (LaunchImage(version="4", at=START + 1), True),
    ],
)
def test_the_image_is_asked_once_an_hour_and_after_a_new_version(known: LaunchImage, due: bool) -> None:
    assert is_image_due(known, "4", START) is due


def test_without_a_limit_no_worker_expires() -> None:
    assert expires_at("i-0001", 0, Policy()) == 0
    assert expiry_words(worker(1, launched_at=0), Policy(), START) == ""


@pytest.mark.parametrize(("age", "expired"), [(3599, False), (3600, True)])
def test_without_jitter_a_worker_expires_exactly_at_its_limit(age: int, expired: bool) -> None:
    policy = Policy(expire_after_seconds=3600, expire_jitter_percent=0)
    words = expiry_words(worker(1, launched_at=START - age), policy, START)
    assert words == (f"{age} s old, its limit is 3600 s" if expired else "")


@given(number=st.integers(0, 2**64), limit=st.integers(3600, 10**7), jitter=st.integers(0, 50))
def test_the_jitter_only_makes_a_worker_younger_and_is_the_same_at_every_tick(
    number: int, limit: int, jitter: int
) -> None:
    policy = Policy(expire_after_seconds=limit, expire_jitter_percent=jitter)
    at = expires_at(f"i-{number:017x}", START, policy)
    assert START + limit * (100 - jitter) // 100 <= at <= START + limit
    assert at == expires_at(f"i-{number:017x}", START, policy)


def test_a_fleet_that_was_launched_together_is_spread_over_the_whole_jitter() -> None:
    policy = Policy(expire_after_seconds=100_000, expire_jitter_percent=20)
    ends = sorted(expires_at(f"i-{n:017x}", 0, policy) for n in range(20))
    assert ends[0] < 84_000 and ends[-1] > 96_000
    assert max(b - a for a, b in itertools.pairwise(ends)) < 6_000


def test_drifted_workers_come_before_expired_ones_and_older_ones_first() -> None:
    policy = Policy(expire_after_seconds=3600, expire_jitter_percent=0)
    fleet = (
        worker(1, launched_at=START - 7200),
        worker(2, launched_at=START - 60, drift="image a, today b"),
        worker(3, launched_at=START - 120, drift="image a, today b"),
        worker(4, launched_at=START - 7300, under_notice=True),
        worker(5, launched_at=START - 60),
    )
    tick = make_tick(snapshot(workers=fleet), Memory(), policy, START)
    found = outdated_workers(tick)
    assert [(o.worker.instance_id, o.reason) for o in found] == [
        ("i-0003", "drifted"),
        ("i-0002", "drifted"),
        ("i-0001", "expired"),
    ]
    assert [check.text for check in outdated_checks(tick, found)] == [
        "2 of 4 workers drifted, first i-0003 drifted: image a, today b",
        "1 of 4 workers expired, first i-0001 expired: 7200 s old, its limit is 3600 s",
    ]


def test_a_decision_shows_drift_and_remembers_the_image() -> None:
    image = LaunchImage(version="4", image_id="ami-2", at=START)
    fleet = (*workers(3), worker(4, drift="image a, today b"))
    decision = decide(snapshot(workers=fleet, launch_image=image), Memory(), Policy(), START)
    assert "drifted" in {check.name for check in decision.evidence}
    assert decision.memory.launch_image == image


def test_the_words_of_a_thousand_drifted_workers_hardly_lengthen_the_payload() -> None:
    words = "launch template version 3, today 4; K3s v1.34.1+k3s1, today v1.35.5+k3s1; image ami-1, today ami-2"
    current = tuple(worker(n, template_version="4") for n in range(1000))
    drifted = tuple(replace(w, template_version="3", drift=words) for w in current)
    half = tuple(old if n % 2 else new for n, (old, new) in enumerate(zip(drifted, current, strict=True)))
    plain, *others = (len(json.dumps(to_payload(snapshot(workers=seen)))) for seen in (current, drifted, half))
    assert max(others) < plain + 2000


@pytest.mark.parametrize(
    ("kubelet", "tag", "words"),
    [
        ("v1.34.1+k3s1", "v1.35.5+k3s1", ("K3s v1.34.1+k3s1, today v1.35.5+k3s1",)),
        ("v1.35.5+k3s1", "v1.34.1+k3s1", ()),
        ("", "v1.34.1+k3s1", ("K3s v1.34.1+k3s1, today v1.35.5+k3s1",)),
        ("v1.34.1+k3s1", "", ("K3s v1.34.1+k3s1, today v1.35.5+k3s1",)),
    ],
)
def test_the_version_that_the_node_states_counts_before_the_tag_of_its_launch(
    kubelet: str, tag: str, words: tuple[str, ...]
) -> None:
    own = replace(CURRENT, k3s_version=tag)
    assert differences(own, TODAY, kubelet) == words
    seen = snapshot(workers=(worker(1, kubelet_version=kubelet),))
    assert with_drift(seen, (own,), TODAY).workers[0].drift == "; ".join(words)


def test_the_full_jitter_spreads_the_ages_over_the_whole_limit() -> None:
    policy = Policy(expire_after_seconds=1_000_000, expire_jitter_percent=100)
    ages = sorted(expires_at(f"i-{n:04}", START, policy) - START for n in range(1000))
    assert 0 < ages[0] < 5000 and 995_000 < ages[-1] <= 1_000_000
    assert all(later - earlier < 20_000 for earlier, later in itertools.pairwise(ages))


@pytest.mark.parametrize(
    ("kubelet", "server", "kept"),
    [
        ("v1.35.5+k3s1", "v1.35.5+k3s1", ""),
        ("v1.35.5+k3s1", "", ""),
        ("v1.35.5+k3s1", "v1.35.4+k3s1", "v1.35.5+k3s1"),
        ("v1.34.1+k3s1", "v1.35.5+k3s1", "v1.34.1+k3s1"),
    ],
)
def test_the_version_of_a_kubelet_is_kept_where_its_tag_differs_or_the_server_is_older(
    kubelet: str, server: str, kept: str
) -> None:
    own = replace(CURRENT, k3s_version="v1.35.5+k3s1")
    seen = snapshot(workers=(worker(1, kubelet_version=kubelet),), server_version=server)
    assert with_drift(seen, (own,), TODAY).workers[0].kubelet_version == kept
