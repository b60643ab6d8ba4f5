"""Hostile text on its way out and in: terminal, JSON, Slack, packed payloads, alerts and the answers of Prometheus."""

from __future__ import annotations

import binascii
import gzip
import io
import json
import sys
import unicodedata
import zlib
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from urllib3 import HTTPResponse

from cli import output
from node_fleet.adapters.prometheus.http import MAX_ANSWER_BYTES
from node_fleet.domain.interruption.announcement import read_announcement
from node_fleet.domain.model.errors import InvalidInputError, MetricsUnavailableError
from node_fleet.domain.model.secret_text import redacted
from node_fleet.domain.model.text import printable
from node_fleet.domain.notify.alert_input import read_alert
from node_fleet.domain.notify.slack_blocks import text_payload
from node_fleet.payload import UNPACKED_BYTES, unpacked
from tests.support.fake_prometheus import NOW, Bench

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "\u202egnp.exe\u2066",
    "\r\x08\x7f",
    "\ud800",
    "\u200b\ufeff",
    "[bold]x[/]",
)
texts = st.text(max_size=40) | st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3).map("".join)
DEEP = "[" * 100_000


def hidden(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"} | set(text) & set(
        "\u202e\u2066"
    )


@given(texts)
def test_no_text_controls_the_terminal_by_any_way_of_printing(text: str) -> None:
    before, sys.stdout = sys.stdout, io.StringIO()
    try:
        output.say(text)
        output.table(text, [text or "a"], [[text]])
        output.facts([(text, text)], title=text)
        output.console().print(text, markup=False)
        output.print_json({"text": text})
        printed = sys.stdout.getvalue()
    finally:
        sys.stdout = before
    assert not hidden(printed)
    printed.encode()


EMBEDDINGS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
MARKS = "\u061c\u200e\u200f"
"""The bidirectional characters: classes of the Unicode data of Python, and the three marks, which have none."""


def test_every_control_c1_and_bidirectional_character_is_removed_and_no_letter_is() -> None:
    every = [chr(point) for point in range(0x3000)]
    obeyed = {c for c in every if unicodedata.category(c) == "Cc" or unicodedata.bidirectional(c) in EMBEDDINGS}
    removed = {c for c in every if not printable(c)}
    assert removed >= (obeyed | set(MARKS)) - {"\n", "\t"}
    assert not {c for c in removed if unicodedata.category(c)[0] in "LNPSZ" and c not in "\u2028\u2029"}


@given(texts)
def test_json_keeps_every_text_as_it_is(text: str) -> None:
    before, sys.stdout = sys.stdout, io.StringIO()
    try:
        output.print_json([text])
        printed = sys.stdout.getvalue()
    finally:
        sys.stdout = before
    assert json.loads(printed) == [text]


@given(texts | st.sampled_from(["<!channel>", "<!here> <@U1>", "<https://evil.example|click>", "@here #general"]))
def test_slack_gets_no_mention_no_link_and_no_hidden_character(text: str) -> None:
    payload = text_payload(text, "subject")
    shown = [block["text"] for block in payload["blocks"] if block["text"]["type"] == "mrkdwn"]
    assert shown and all(
        one["verbatim"] is True and "<" not in one["text"] and not hidden(one["text"]) for one in shown
    )


SECRETS = {
    "Authorization: Basic dXNlcjpwYXNzd29yZA==": "dXNlcjpwYXNzd29yZA",
    '{"Authorization": "Bearer eyJhbGciOi.J9.abc-def"}': "eyJhbGciOi",
    "key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY refused": "wJalrXUtnFEMI",  # pragma: allowlist secret
    "for ASIAJJJJJJJJJJJJJJJJ": "JJJJ",  # pragma: allowlist secret
    "aws_secret_access_key=abc/def": "abc/def",  # pragma: allowlist secret
    '"SecretAccessKey": "abc/def+1"': "abc/def",  # pragma: allowlist secret
    "aws_session_token = FwoGZXIv": "FwoGZXIv",
    "curl https://user:hunter2@host/x failed": "hunter2",  # pragma: allowlist secret
}
"""A message, and the part of it that no channel may show."""


@pytest.mark.parametrize(("message", "secret"), SECRETS.items(), ids=range(len(SECRETS)))
def test_secrets_in_a_message_are_removed(message: str, secret: str) -> None:
    assert secret in message and secret not in redacted(message)


def test_ids_and_sentences_of_node_fleet_are_no_secrets() -> None:
    sentence = "worker i-0123456789abcdef0: kept, shop/orders-db-0 is a StatefulSet pod (arn:aws:states:eu-west-1:1:x)"
    assert redacted(sentence) == sentence


@pytest.mark.parametrize("data", [zlib.compress(b" " * (UNPACKED_BYTES + 1)), zlib.compress(DEEP.encode()), b"x", b""])
def test_a_packed_value_that_would_fill_the_memory_or_is_damaged_is_one_error(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        unpacked({"packed": binascii.b2a_base64(data).decode()})


@pytest.mark.parametrize("text", [DEEP, "\ud800", "{}", "null", '{"alertname": 1}', "9" * 5000])
def test_an_alert_that_is_no_alert_is_one_short_error(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_alert(text)
    assert len(str(refused.value)) < 200


DATES = ["9999-99-99", "", None, 5, "0001-01-01T00:00:00+23:59", "Fri, 32 Foo 99999 00:00:00 -0000", {"a": 1}]


@pytest.mark.parametrize("date", DATES)
@pytest.mark.parametrize("kind", ["AWS Health Event", "EC2 Spot Instance Interruption Warning", "x"])
def test_an_impossible_date_of_an_event_is_one_error_or_no_date(date: Any, kind: str) -> None:
    change = {"service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": date, "affectedEntities": []}
    for event in (
        {"time": date, "detail-type": kind, "detail": {"instance-id": "i-1", **change}},
        {"detail": date},
        {},
    ):
        try:
            read_announcement(event)
        except InvalidInputError as error:
            assert len(str(error)) < 300


def answer(body: bytes, **headers: str) -> requests.Response:
    response = requests.Response()
    response.status_code = 200
    response.headers.update(headers)
    response.raw = HTTPResponse(io.BytesIO(body), headers=headers, preload_content=False)
    return response


def test_an_answer_that_unpacks_to_more_than_its_limit_is_refused_before_it_fills_the_memory() -> None:
    found, bomb = Bench(), gzip.compress(b" " * (MAX_ANSWER_BYTES + 2**20))
    found.session.script = [answer(bomb, **{"Content-Encoding": "gzip", "Content-Type": "application/json"})]
    with pytest.raises(MetricsUnavailableError, match="the answer is larger than 32 MiB"):
        found.reader.read(NOW)


@pytest.mark.parametrize(
    "body", [DEEP.encode(), b'{"status": "success", "data": ' + DEEP.encode(), b"\xff\xfe", b"nan"]
)
def test_an_answer_that_is_no_json_of_prometheus_is_one_sentence(body: bytes) -> None:
    found = Bench()
    found.session.script = [answer(body)]
    with pytest.raises(MetricsUnavailableError, match="does not answer as Prometheus does"):
        found.reader.read(NOW)
