"""Slack's form: payloads within Block Kit's limits, escaped, without secrets, held to golden files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.cost.tariff import Cost, Currency
from node_fleet.domain.model.run import Alert
from node_fleet.domain.notify.message import Message
from node_fleet.domain.notify.slack_blocks import (
    BLOCKS_LIMIT,
    CUT,
    FALLBACK_LIMIT,
    FIELD_LIMIT,
    FIELDS_LIMIT,
    HEADER_LIMIT,
    SECTION_LIMIT,
    alarm_payload,
    cut,
    escaped,
    fallback_payload,
    message_payload,
    redacted,
    text_payload,
)

GOLDEN = Path(__file__).parents[2] / "fixtures" / "slack"
REGION = "ap-southeast-1"
ARN = "arn:aws:states:ap-southeast-1:123456789012:execution:node-fleet-prod-autoscaler:run-000007"
BDT = Currency(currency="BDT", per_usd=122.5)


def message(**changes: Any) -> Message:
    fields: dict[str, Any] = {
        "cluster_id": "node-fleet-prod",
        "level": "success",
        "what": "2 workers joined after 80 s; 4 workers now",
        "why": "pending 6 (unschedulable, oldest 13 s) -> +2; CPU 30.7 % under 70 %",
        "execution_id": ARN,
        "trigger": "alert",
        "workers_before": 2,
        "workers_after": 4,
        "placements": ("i-0aa t3.small spot ap-southeast-1a", "i-0bb t3.small on-demand ap-southeast-1b"),
        "hourly_cost_before": Cost(usd=0.0528),
        "hourly_cost_after": Cost(usd=0.0879),
    }
    return Message(**{**fields, **changes})


def shown(subject: Message, money: Currency = Currency()) -> dict[str, Any]:  # noqa: B008 - frozen
    return message_payload(subject, region=REGION, money=money)


CASES: dict[str, dict[str, Any]] = {
    "scaled_up": shown(message()),
    "scaled_up_in_bdt": shown(message(), BDT),
    "failed": shown(
        message(
            level="error",
            what="vCPU quota L-1216C47A is used up; ask for more in Service Quotas [QuotaExceededError]",
            workers_after=2,
            placements=(),
            alerts=(Alert(kind="quota", text="raise quota L-1216C47A"),),
            details=("round 1: 1 worker joined",),
        )
    ),
    "cut": shown(
        message(
            what="w" * 212,
            why='pods <none> & "quota"\nline2 ' * 200,
            alerts=tuple(Alert(kind=f"kind{n}", text="<t> & " * 300) for n in range(2)),
        )
    ),
    "alarm": alarm_payload(
        {
            "AlarmName": "node-fleet-prod-NoCompletedTick",
            "AlarmDescription": "No run completed for 10 minutes. Open the executions.",
            "NewStateValue": "ALARM",
            "NewStateReason": "Threshold Crossed: 1 datapoint [0.0] was less than the threshold (1.0).",
        }
    ),
    "text": text_payload("a plain <text> & more", "Weekly report"),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_payload_is_the_golden_one(name: str) -> None:
    wanted = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert CASES[name] == wanted, f"if the new form is meant: write CASES[{name!r}] to {GOLDEN.name}/{name}.json"


def check_limits(payload: dict[str, Any]) -> None:
    assert len(payload["blocks"]) <= BLOCKS_LIMIT == 50
    assert 0 < len(payload["text"]) <= SECTION_LIMIT
    for block in payload["blocks"]:
        if block["type"] == "header":
            assert 0 < len(block["text"]["text"]) <= HEADER_LIMIT == 150
            assert "\n" not in block["text"]["text"]
        if block["type"] == "section" and "text" in block:
            assert 0 < len(block["text"]["text"]) <= SECTION_LIMIT == 3000
        assert len(block.get("fields", ())) <= FIELDS_LIMIT == 10
        for field in block.get("fields", ()):
            assert 0 < len(field["text"]) <= FIELD_LIMIT == 2000
    assert json.loads(json.dumps(payload)) == payload


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_case_keeps_the_limits_of_block_kit(name: str) -> None:
    check_limits(CASES[name])


def test_more_than_50_blocks_become_50_and_the_last_says_how_many_are_missing() -> None:
    payload = shown(message(details=tuple(f"detail {n} " + "d" * 2900 for n in range(80))))
    check_limits(payload)
    assert len(payload["blocks"]) == 50
    assert payload["blocks"][-1]["elements"][0]["text"] == f"36 more blocks {CUT}"


texts = st.text(max_size=5000)


@given(what=texts, why=texts, details=st.lists(texts, max_size=60), alerts=st.lists(texts, max_size=90))
def test_no_text_ever_breaks_a_limit_or_leaves_a_control_character(
    what: str, why: str, details: list[str], alerts: list[str]
) -> None:
    payload = shown(
        message(
            what=what or "x",
            why=why,
            details=tuple(details),
            alerts=tuple(Alert(kind="k", text=text) for text in alerts),
        )
    )
    check_limits(payload)
    for block in payload["blocks"]:
        if block["type"] in ("header", "section") and "text" in block:
            text = block["text"]["text"]
            assert "<" not in text and ">" not in text
            for part in text.split("&")[1:]:
                assert part.startswith(("amp;", "lt;", "gt;"))


@pytest.mark.parametrize("blank", ["", " ", "\r", "\n\t", "\u2028"])
def test_a_message_of_blanks_still_has_a_text(blank: str) -> None:
    check_limits(shown(message(what=blank, why=blank)))


def test_long_and_raw_text_is_cut_with_a_mark_and_escaped() -> None:
    text = 'pods <none> & "quota"\nline2'
    payload = shown(message(what="h" * 212, why=(text * 201)[:5400]))
    header, what, why = payload["blocks"][:3]
    assert len(header["text"]["text"]) == 150 and header["text"]["text"].endswith(CUT)
    assert "h" * 212 in what["text"]["text"], "the header's cut text stands whole below it"
    assert len(why["text"]["text"]) <= 3000 and why["text"]["text"].endswith(CUT)
    assert 'pods &lt;none&gt; &amp; "quota"\nline2' in why["text"]["text"]


@pytest.mark.parametrize(("length", "kept"), [(149, True), (150, True), (151, False)])
def test_a_header_of_exactly_150_characters_is_left_as_it_is(length: int, kept: bool) -> None:
    text = cut("x" * length, HEADER_LIMIT)
    assert (text == "x" * length) is kept
    assert len(text) <= HEADER_LIMIT


def test_an_entity_is_never_cut_in_the_middle() -> None:
    for before in range(8):
        text = cut("x" * before + "&amp;" * 40, 60)
        assert len(text) <= 60
        assert text.removesuffix(CUT).replace("&amp;", "").strip("x") == ""


@pytest.mark.parametrize(
    "secret",
    [
        "https://hooks.slack.com/services/T000/B000/abcdef",
        "K10abcdef0123456789abcdef::server:abcdef",
        "AKIAABCDEFGHIJKLMNOP",
        "password=hunter2",
        '"token": "abc.def"',
        "http://user:pass@10.0.0.1:30090",
    ],
)
def test_secrets_never_reach_slack(secret: str) -> None:
    payload = json.dumps(shown(message(what=f"failed: {secret} was refused", details=(secret,))))
    for part in ("abcdef", "hunter2", "abc.def", "user:pass", "AKIAABCDEFGHIJKLMNOP"):
        assert part not in payload
    assert "[removed]" in redacted(secret)


def test_cost_and_counts_are_shown_before_and_after_and_in_the_configured_currency() -> None:
    fields = [field["text"] for block in shown(message(), BDT)["blocks"] for field in block.get("fields", ())]
    assert "*Workers*\n2 → 4" in fields
    assert "*Workers' cost per hour*\n6.4680 BDT → 10.7678 BDT" in fields


def test_the_execution_is_one_click_away() -> None:
    link = shown(message())["blocks"][-1]["elements"][0]["text"]
    assert link.startswith(f"<https://{REGION}.console.aws.amazon.com/states/home?region={REGION}#/v2/executions/")
    assert f"{ARN}|Open this execution>" in link
    assert link.endswith(f"region={REGION}#dashboards/dashboard/{message().cluster_id}|Open the dashboard>")


def test_a_message_of_an_interruption_shows_no_counts() -> None:
    subject = message(trigger="interruption", hourly_cost_before=None, hourly_cost_after=None, workers_after=0)
    assert "Workers" not in json.dumps(shown(subject))


def test_the_fallback_is_one_short_plain_text() -> None:
    plain = fallback_payload(CASES["cut"])
    assert set(plain) == {"text"}
    assert len(plain["text"]) <= FALLBACK_LIMIT


def test_escaping_is_done_once() -> None:
    assert escaped("a < b & c > d") == "a &lt; b &amp; c &gt; d"
