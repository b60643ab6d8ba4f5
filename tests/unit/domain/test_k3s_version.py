"""The order of K3s versions, and the skew rule at its boundaries."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.k3s_version import (
    deploy_problem,
    is_newer,
    lowest_version,
    minors_behind,
    parse_version,
    skew_problem,
    upgrade_problems,
)

RISING = [
    "v1.9.12+k3s1",
    "v1.34.12+k3s1",
    "v1.35.5-rc2+k3s1",
    "v1.35.5-rc10+k3s1",
    "v1.35.5+k3s1",
    "v1.35.5+k3s2",
    "v1.35.5+k3s10",
    "v1.35.10+k3s1",
    "v1.36.0+k3s1",
    "v2.0.0+k3s1",
]


@pytest.mark.parametrize(("older", "newer"), list(itertools.combinations(RISING, 2)))
def test_a_later_version_is_newer_and_never_the_other_way_round(older: str, newer: str) -> None:
    assert is_newer(newer, older) and not is_newer(older, newer)


@pytest.mark.parametrize("text", RISING)
def test_a_version_is_not_newer_than_itself(text: str) -> None:
    assert not is_newer(text, text)


@pytest.mark.parametrize(
    "text", ["", "1.35.5+k3s1", "v1.35", "v1.35.5+k3s1 ", "v1.35.5+k3s", "latest", "v1.35.5;reboot"]
)
def test_what_is_no_version_is_unknown_and_breaks_no_rule(text: str) -> None:
    assert parse_version(text) is None
    assert not is_newer(text, "v1.0.0+k3s1") and not is_newer("v9.0.0+k3s1", text)
    assert skew_problem("v9.0.0+k3s1", text) == skew_problem(text, "v1.0.0+k3s1") == ""


def test_versions_of_other_distributions_have_an_order_too() -> None:
    assert is_newer("v1.30.4+rke2r2", "v1.30.4+rke2r1")
    assert parse_version("v1.30.4") is not None


@given(st.permutations(RISING))
def test_the_lowest_version_does_not_depend_on_the_order(versions: list[str]) -> None:
    assert lowest_version([*versions, "unknown"]) == "v1.9.12+k3s1"


def test_without_a_version_there_is_no_lowest() -> None:
    assert lowest_version(["", "unknown"]) == ""


@pytest.mark.parametrize(
    ("kubelet", "problem"),
    [
        ("v1.35.5+k3s1", ""),
        ("v1.35.4+k3s9", ""),
        ("v1.32.0+k3s1", ""),
        ("v1.31.99+k3s1", "v1.31.99+k3s1 is more than 3 minor versions older than v1.35.5+k3s1 of the server"),
        ("v1.35.5+k3s2", "v1.35.5+k3s2 is newer than v1.35.5+k3s1 of the server"),
        ("v1.35.6+k3s1", "v1.35.6+k3s1 is newer than v1.35.5+k3s1 of the server"),
        ("v1.36.0-rc1+k3s1", "v1.36.0-rc1+k3s1 is newer than v1.35.5+k3s1 of the server"),
    ],
)
def test_a_worker_is_never_newer_than_the_server_and_at_most_three_minor_versions_older(
    kubelet: str, problem: str
) -> None:
    assert skew_problem(kubelet, "v1.35.5+k3s1") == problem


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("v1.35.5+k3s1", ""),
        ("v1.35.9+k3s1", ""),
        ("v1.36.0+k3s1", ""),
        ("v1.35.4+k3s1", ""),
        ("v1.37.0+k3s1", "leaves out minor versions"),
        ("v2.35.5+k3s1", "leaves out minor versions"),
        ("v1.34.9+k3s1", "an earlier minor version"),
        ("1.36", "cannot be read"),
    ],
)
def test_the_server_goes_one_minor_version_up_or_stays_in_its_own(target: str, problem: str) -> None:
    found = upgrade_problems("v1.35.5+k3s1", target, {})
    assert [problem in one for one in found] == ([True] if problem else [])


def test_the_server_goes_back_only_when_no_worker_is_newer_than_the_target() -> None:
    workers = {"i-a": "v1.35.5+k3s1", "i-b": "v1.35.4+k3s1", "i-c": ""}
    assert upgrade_problems("v1.35.5+k3s1", "v1.35.4+k3s1", workers) == [
        "i-a: v1.35.5+k3s1 is newer than v1.35.4+k3s1 of the server"
    ]


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, " and 1 more")])
def test_the_workers_of_one_version_are_named_in_one_sentence(count: int, more: str) -> None:
    workers = {f"i-{number}": "v1.35.5+k3s1" for number in range(count)}
    (first, second) = upgrade_problems("v1.35.5+k3s1", "v1.35.4+k3s1", {**workers, "i-b": "v1.35.6+k3s1"})
    assert first == f"i-0, i-1, i-2, i-3, i-4{more}: v1.35.5+k3s1 is newer than v1.35.4+k3s1 of the server"
    assert second == "i-b: v1.35.6+k3s1 is newer than v1.35.4+k3s1 of the server"


@pytest.mark.parametrize(("worker", "allowed"), [("v1.33.0+k3s1", True), ("v1.32.99+k3s1", False)])
def test_the_server_is_not_upgraded_beyond_the_oldest_worker(worker: str, allowed: bool) -> None:
    assert (upgrade_problems("v1.35.5+k3s1", "v1.36.2+k3s1", {"i-a": worker}) == []) is allowed


def test_an_unknown_version_of_the_server_allows_no_upgrade() -> None:
    assert upgrade_problems("", "v1.36.2+k3s1", {}) == ["the version of the server cannot be read"]


def test_minor_versions_are_counted_within_one_major_version() -> None:
    assert minors_behind("v1.33.9+k3s1", "v1.35.0+k3s1") == 2
    assert minors_behind("v1.36.0+k3s1", "v1.35.0+k3s1") == -1
    assert minors_behind("v1.33.9+k3s1", "v2.35.0+k3s1") == 0


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("v1.36.9+k3s1", ""),
        ("v1.37.0+k3s1", "leaves out minor versions"),
        ("v2.35.5+k3s1", "leaves out minor versions"),
        ("v1.34.1+k3s1", ""),
        ("v1.32.0+k3s1", ""),
        ("v1.31.9+k3s1", "more than 3 minor versions older"),
        ("", ""),
    ],
)
def test_a_deployment_names_a_version_that_the_server_or_its_workers_can_have(target: str, problem: str) -> None:
    found = deploy_problem("v1.35.5+k3s1", target)
    assert problem in found and bool(found) is bool(problem)
    assert deploy_problem("", target) == ""
