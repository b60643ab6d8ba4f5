"""Reading the server's answer: exact when whole, unknown in every other case."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.drain_limits import DrainLimits
from node_fleet.domain.scale_down.inspection import (
    Inspection,
    parse_inspection,
    parse_node_check,
    seconds_ahead,
)
from node_fleet.payload import PLAIN_CHARACTERS, packed_lines, unpacked

A = "i-0123456789abcdef0"


def whole(*lines: str) -> str:
    body = ["nf1 1000 us-east-1a us-east-1b", *lines]
    return "\n".join([*body, f"end {len(body)} {zlib.crc32(chr(10).join(body).encode()):08x}"])


LINE = f"w {A} = 1 RCSTWF 60 4/2/1/3 850/2000/400/1900/110 1 down-1-1 D shop/db-0:s,shop/web-1:p=web 5/2 0a000107"


def test_every_field_of_a_line_is_read() -> None:
    found = parse_inspection(whole(LINE, "p i-0aaaaaaaaaaaaaaaa", "m 7"))
    node = found.nodes[0]
    assert (found.known, found.at, found.left_out, found.orphans) == (True, 1000, 7, ("i-0aaaaaaaaaaaaaaaa",))
    assert (node.instance_id, node.node_name, node.zone, node.age_seconds) == (A, A, "us-east-1b", 60)
    assert (node.ready, node.cordoned, node.server, node.tainted, node.worker, node.needs_force) == (True,) * 6
    assert (node.pods_to_move, node.daemon_pods, node.mirror_pods, node.finished_pods) == (4, 2, 1, 3)
    assert (node.cpu_requested_milli, node.cpu_allocatable_milli, node.idle_cpu_percent) == (850, 2000, 57.5)
    assert (node.memory_requested_mib, node.memory_allocatable_mib, node.pods_allocatable) == (400, 1900, 110)
    assert node.free == (1150, 1500, 103), "4 pods to move, 2 of DaemonSets and 1 mirror pod take a place"
    assert (node.disruptions_allowed, node.cordoned_by, node.more_blockers, node.more_lasting) == (1, "down-1-1", 5, 2)
    assert node.address == "10.0.1.7"
    assert node.protected_by == "cluster-autoscaler.kubernetes.io/scale-down-disabled"
    assert [(b.pod, b.letter, b.detail) for b in node.blockers] == [("shop/db-0", "s", ""), ("shop/web-1", "p", "web")]


def test_a_zone_that_the_answer_does_not_name_makes_it_unreadable() -> None:
    assert parse_inspection(whole(LINE)).nodes[0].zone == "us-east-1b"
    found = parse_inspection(whole(LINE.replace(" = 1 ", " = 2 ")))
    assert not found.known
    assert found.detail.endswith("a worker's line names zone number 2, expected a number under 2")


def test_dashes_mean_none() -> None:
    node = parse_inspection(whole(f"w - {A} 0 - 0 0/0/0/0 0/0/0/0/0 - - - - 0/0 -")).nodes[0]
    assert (node.instance_id, node.disruptions_allowed, node.cordoned_by, node.protected_by, node.blockers) == (
        "",
        None,
        "",
        "",
        (),
    )
    assert (node.ready, node.idle_cpu_percent) == (False, 0.0)


@given(st.integers(0, len(whole(LINE)) - 1))
def test_no_cut_answer_is_ever_known(length: int) -> None:
    assert not parse_inspection(whole(LINE)[:length]).known


@given(st.integers(0, len(whole(LINE)) - 1), st.characters(min_codepoint=33, max_codepoint=126))
def test_no_answer_with_a_changed_character_is_ever_known(place: int, changed: str) -> None:
    text = whole(LINE)
    spoiled = text[:place] + changed + text[place + 1 :]
    assert spoiled == text or not parse_inspection(spoiled).known


@pytest.mark.parametrize(
    ("line", "instance", "owner"),
    [
        (f"node {A} i-0123456789abcdef0 cordoned down-1 ready 1 0", "i-0123456789abcdef0", "down-1"),
        (f"node {A} - open - ready 1 0", "", ""),
    ],
)
def test_a_dash_stands_for_an_instance_or_an_owner_that_a_node_does_not_have(
    line: str, instance: str, owner: str
) -> None:
    found = parse_node_check(f"{line}\nend", A)
    assert (found.known, found.instance_id, found.cordoned_by) == (True, instance, owner)


@pytest.mark.parametrize(
    "line",
    [
        f"node {A} absent 1",
        f"node {A} - open - ready x 0",
        f"node {A} - open - ready 0 x",
        f"node {A} - open - ready 0",
    ],
)
def test_a_node_whose_line_has_one_word_too_many_or_lacks_a_count_is_unknown(line: str) -> None:
    assert parse_node_check(f"node {A} absent\nend", A).known
    assert not parse_node_check(f"{line}\nend", A).known


@given(st.text(max_size=200))
def test_any_text_is_read_or_unknown_and_never_an_error(text: str) -> None:
    read = [parse_inspection(text), parse_inspection(whole(text.replace("\n", " "))), parse_node_check(text, A)]
    assert all(one.known or one.detail for one in read)


@pytest.mark.parametrize(
    "line",
    [
        "w",
        "x 1",
        f"w {A} = 9 R 60 4/2/1/3 850/2000/400/1900/110 1 - - - 0/0 -",
        f"w {A} = 0 R sixty 4/2/1/3 850/2000/400/1900/110 1 - - - 0/0 -",
        f"w {A} = 0 R 60 4/2/1/3 850/2000 1 - - - 0/0 -",
        f"w {A} = 0 R 60 4/2 850/2000/400/1900/110 1 - - - 0/0 -",
        f"w {A} = 0 R 60 4/2/1/3 850/2000/400/1900/110 1 - - shop/db-0 0/0 -",
        f"w {A} = 0 R 60 4/2/1/3 850/2000/400/1900/110 1 - - - -1 -",
        f"w {A} = 0 R 60 4/2/1/3 850/2000/400/1900/110 1 - - - 0/0 0a00",
        f"w {A} = 0 R 60 4/2/1/3 850/2000/400/1900/110 1 - - - 0/0 10.0.1.7",
    ],
)
def test_a_line_of_another_form_makes_the_whole_answer_unknown(line: str) -> None:
    found = parse_inspection(whole(line))
    assert (found.known, found.nodes) == (False, ())
    assert found.detail.startswith("the answer of the server cannot be read: ")


@pytest.mark.parametrize(
    ("body", "known"),
    [("nf1 1000", True), ("nf2 1000 a", False), ("nf1", False), ("nf1 soon", False), ("nf1 -5", False), ("", False)],
)
def test_an_answer_begins_with_its_version_and_time(body: str, known: bool) -> None:
    assert parse_inspection(f"{body}\nend 1 {zlib.crc32(body.encode()):08x}").known is known


@pytest.mark.parametrize("line", ["p", "p Not_a_name", "m"])
def test_a_line_of_orphans_or_left_out_nodes_without_a_name_or_a_count_adds_none(line: str) -> None:
    found = parse_inspection(whole(line))
    assert (found.known, found.orphans, found.left_out) == (True, (), 0)


@given(st.text(alphabet="abc \n", min_size=1, max_size=3 * PLAIN_CHARACTERS).map(str.strip))
def test_an_answer_comes_back_from_the_payload_as_it_was(text: str) -> None:
    assert unpacked(packed_lines(text)) == text.splitlines()


def test_a_small_answer_can_be_read_in_the_console_and_a_large_one_is_packed() -> None:
    assert packed_lines(whole(LINE)) == whole(LINE).splitlines()
    large = whole(*[LINE] * 100)
    assert len(packed_lines(large)["packed"]) < len(large) / 2


@given(st.integers(0, 10**10), st.integers(0, 25), st.integers(-(10**6), 10**6), st.floats(0, 1))
def test_the_measured_difference_of_a_clock_is_never_more_than_the_true_one_and_misses_at_most_the_answer_time(
    sent: int, took: int, ahead: int, share: float
) -> None:
    at = sent + round(took * share) + ahead
    found = seconds_ahead(at, sent, sent + took)
    assert abs(found) <= abs(ahead) and found * ahead >= 0
    assert abs(ahead) - abs(found) <= took


@pytest.mark.parametrize(("at", "ahead"), [(99, -1), (100, 0), (105, 0), (110, 0), (111, 1), (200, 90), (10, -90)])
def test_a_clock_is_off_only_outside_the_time_of_the_command(at: int, ahead: int) -> None:
    assert seconds_ahead(at, 100, 110) == ahead


@pytest.mark.parametrize(("ahead", "words"), [(30, ""), (31, "31 s ahead"), (-30, ""), (-31, "31 s behind"), (0, "")])
def test_a_difference_beyond_the_tolerance_is_a_problem_that_names_it(ahead: int, words: str) -> None:
    problem = Inspection(known=True, seconds_ahead=ahead).clock_problem
    assert words in problem and bool(problem) == bool(words)


def test_a_drain_may_begin_later_by_the_tolerance_for_clocks() -> None:
    limits = DrainLimits(drain_seconds=300, delivery_seconds=40)
    assert limits.not_after(1000) == 1000 + 40 + 30
