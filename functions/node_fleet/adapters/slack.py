"""Posts to Slack's incoming webhook. An answer of Slack never raises an error.

Status 429 is retried after Retry-After when the time left allows it; a message that may have arrived is not sent twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import requests

from node_fleet.domain.model.errors import NotificationError
from node_fleet.domain.notify.slack_blocks import fallback_payload

CONNECT_SECONDS = 3.0
READ_SECONDS = 8.0
TRIES = 4
LEAST_SECONDS = 1.0
OK = 200
BAD_REQUEST = 400
TOO_MANY = 429
DEFAULT_RETRY_SECONDS = 5.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Outcome = Literal["sent", "sent_plain", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The result. detail never holds the webhook's address."""

    outcome: Outcome
    tries: int
    detail: str = ""


class SlackHook:
    """One webhook. `secret`: the address, or JSON with `webhook_url`. `time_left`: seconds left in this invocation."""

    def __init__(
        self,
        session: requests.Session,
        secret: str,
        *,
        sleep: Callable[[float], None],
        time_left: Callable[[], float],
    ) -> None:
        self._session = session
        self._address = address_in(secret)
        self._sleep = sleep
        self._time_left = time_left

    def send(self, payload: Mapping[str, Any]) -> Sent:
        """Post the payload; when Slack refuses its blocks, post one short plain message instead."""
        first = self._post(payload, outcome="sent")
        if first.outcome == "failed" and first.detail.startswith(f"{BAD_REQUEST} "):
            second = self._post(fallback_payload(payload), outcome="sent_plain")
            return Sent(outcome=second.outcome, tries=first.tries + second.tries, detail=first.detail)
        return first

    def _post(self, payload: Mapping[str, Any], *, outcome: Outcome) -> Sent:
        body = json.dumps(payload).encode()
        detail = "no time was left"
        tries = 0
        while tries < TRIES and self._time_left() > LEAST_SECONDS:
            tries += 1
            try:
                answer = self._session.post(
                    self._address,
                    data=body,
                    headers={"Content-Type": "application/json"},
                    timeout=(CONNECT_SECONDS, min(READ_SECONDS, self._time_left())),
                    allow_redirects=False,
                )
            except requests.RequestException as error:
                return Sent(outcome="failed", tries=tries, detail=f"{type(error).__name__} from the webhook")
            if answer.status_code == OK:
                return Sent(outcome=outcome, tries=tries)
            detail = _words(answer)
            if answer.status_code != TOO_MANY:
                break
            pause = _retry_after(answer)
            if pause + LEAST_SECONDS >= self._time_left():
                return Sent(outcome="failed", tries=tries, detail=f"{detail}; no time to wait {pause:.0f} s")
            self._sleep(pause)
        return Sent(outcome="failed", tries=tries, detail=detail)


def address_in(secret: str) -> str:
    """The webhook's address. Raises NotificationError, whose text does not show the secret."""
    text = secret.strip()
    if text.startswith("{"):
        try:
            data = json.loads(text)
        except ValueError:
            raise NotificationError("the Slack secret is not JSON, expected an address or webhook_url") from None
        text = str(data.get("webhook_url", "")) if isinstance(data, dict) else ""
    parts = urlsplit(text)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise NotificationError("the Slack secret holds no https address, expected one of an incoming webhook")
    return text


def _retry_after(answer: requests.Response) -> float:
    try:
        return max(0.0, float(answer.headers.get("Retry-After", DEFAULT_RETRY_SECONDS)))
    except ValueError:
        return DEFAULT_RETRY_SECONDS


def _words(answer: requests.Response) -> str:
    """For example 400 invalid_blocks: the status and the first 80 characters of Slack's answer."""
    return f"{answer.status_code} {' '.join(answer.text.split())[:80]}"
