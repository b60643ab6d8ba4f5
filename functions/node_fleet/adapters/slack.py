"""Posts to Slack, by an incoming webhook or with a bot token. An answer of Slack never raises an error.

A webhook answers without the id of its message, so that only a bot can reply in a thread (chat.postMessage).

A connection that cannot be made is tried again, and status 429, or a bot's answer that it is rate limited, after
Retry-After when the time left allows it; a message that may have arrived is not sent twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from node_fleet.domain.model.errors import NotificationError
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.notify.slack_blocks import fallback_payload

CONNECT_SECONDS = 3.0
CONNECT_RETRIES = 2
READ_SECONDS = 8.0
TRIES = 4
LEAST_SECONDS = 1.0
OK = 200
BAD_REQUEST = 400
TOO_MANY = 429
DEFAULT_RETRY_SECONDS = 5.0
POST_MESSAGE = "https://slack.com/api/chat.postMessage"
TOKEN_PREFIX = "xoxb-"
REFUSED_FORM = ("invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long")
"""Answers to a bot's message that a short plain one does not get."""
RATE_LIMITED = ("rate_limited", "ratelimited")
"""Answers to a bot with status 200 that mean the same as status 429."""
MAY_HAVE_ARRIVED = ("fatal_error", "internal_error", "request_timeout", "service_unavailable")
"""Answers after which the message may be in the channel all the same."""
_CODE = re.compile(r"[a-z][a-z_]*")
"""How Slack names the refusal of a message of a bot, such as cannot_reply_to_message; no failure of the network."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Outcome = Literal["sent", "sent_plain", "known", "failed"]


@value_class
class Sent:
    """The result. detail never holds the webhook's address or the token. ts: Slack's id of a message with a thread."""

    outcome: Outcome
    tries: int
    detail: str = ""
    ts: str = ""


@value_class
class SlackAccess:
    """Where messages go. token and channel are those of a bot, and empty for a webhook."""

    address: str
    token: str = ""
    channel: str = ""


def slack_session() -> requests.Session:
    """A session that tries a connection again which could not be made, but no message that was sent."""
    session, retries = requests.Session(), Retry(CONNECT_RETRIES, read=False, backoff_factor=0.5)
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=retries))
    return session


class SlackHook:
    """One webhook or one bot. `secret`: see access_in. `time_left`: seconds left in this invocation."""

    def __init__(
        self,
        session: requests.Session,
        secret: str,
        *,
        sleep: Callable[[float], None],
        time_left: Callable[[], float],
    ) -> None:
        self._session = session
        self._access = access_in(secret)
        self._sleep = sleep
        self._time_left = time_left

    @property
    def can_reply(self) -> bool:
        """Whether messages have threads."""
        return bool(self._access.token)

    @property
    def channel(self) -> str:
        """The channel of a bot; empty for a webhook."""
        return self._access.channel

    def send(self, payload: Mapping[str, Any], *, thread_ts: str = "", broadcast: bool = False) -> Sent:
        """Post the payload; when Slack refuses its blocks, post one short plain message instead.

        thread_ts: the id of the thread's first message. A reply that Slack refuses is posted as a message instead.
        """
        bot = {"channel": self._access.channel} if self.can_reply else {}
        reply = {"thread_ts": thread_ts, "reply_broadcast": broadcast} if self.can_reply and thread_ts else {}
        first = self._post({**payload, **bot, **reply}, outcome="sent")
        if reply and _is_refused_reply(first):
            reply, first = {}, self._post({**payload, **bot}, outcome="sent")
        is_refused = first.detail.startswith(f"{BAD_REQUEST} ") or first.detail in REFUSED_FORM
        if first.outcome == "failed" and is_refused:
            second = self._post({**fallback_payload(payload), **bot, **reply}, outcome="sent_plain")
            first = replace(second, tries=first.tries + second.tries, detail=first.detail)
        return replace(first, ts="") if reply else first

    def _post(self, payload: Mapping[str, Any], *, outcome: Outcome) -> Sent:
        body = json.dumps(payload).encode()
        detail = "no time was left"
        tries = 0
        while tries < TRIES and self._time_left() > LEAST_SECONDS:
            tries += 1
            try:
                answer = self._session.post(
                    self._access.address,
                    data=body,
                    headers=self._headers,
                    timeout=(CONNECT_SECONDS, min(READ_SECONDS, self._time_left())),
                    allow_redirects=False,
                )
            except requests.RequestException as error:
                return Sent(outcome="failed", tries=tries, detail=f"{type(error).__name__} from Slack")
            if answer.status_code == OK:
                sent = self._answered(answer, outcome, tries)
                if sent.detail not in RATE_LIMITED:
                    return sent
            detail = _words(answer)
            if answer.status_code not in (OK, TOO_MANY):
                break
            pause = _retry_after(answer)
            if pause + LEAST_SECONDS >= self._time_left():
                return Sent(outcome="failed", tries=tries, detail=f"{detail}; no time to wait {pause:.0f} s")
            self._sleep(pause)
        return Sent(outcome="failed", tries=tries, detail=detail)

    @property
    def _headers(self) -> dict[str, str]:
        bot = {"Authorization": f"Bearer {self._access.token}"} if self._access.token else {}
        return {"Content-Type": "application/json; charset=utf-8", **bot}

    def _answered(self, answer: requests.Response, outcome: Outcome, tries: int) -> Sent:
        """A bot's refusal has status 200 as well, and names its error."""
        if not self._access.token:
            return Sent(outcome=outcome, tries=tries)
        data = _fields(answer)
        if data.get("ok") is True:
            return Sent(outcome=outcome, tries=tries, ts=str(data.get("ts", "")))
        return Sent(outcome="failed", tries=tries, detail=str(data.get("error", "no answer of chat.postMessage"))[:80])


def access_in(secret: str) -> SlackAccess:
    """The address of a webhook, or JSON with `webhook_url`, or JSON with `bot_token` and `channel`.

    Raises NotificationError, whose text does not show the secret.
    """
    text, data = secret.strip(), {}
    if text.startswith("{"):
        try:
            data = json.loads(text)
        except ValueError:
            raise NotificationError(
                "the Slack secret is not JSON, expected an address, webhook_url, or bot_token and channel"
            ) from None
        text = str(data.get("webhook_url", ""))
    token, channel = str(data.get("bot_token", "")), str(data.get("channel", ""))
    if token or channel:
        if not token.startswith(TOKEN_PREFIX) or not channel:
            raise NotificationError(
                f"the Slack secret is incomplete, expected bot_token (it begins with {TOKEN_PREFIX}) and channel"
            )
        return SlackAccess(address=POST_MESSAGE, token=token, channel=channel)
    parts = urlsplit(text)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise NotificationError("the Slack secret holds no https address, expected one of an incoming webhook")
    return SlackAccess(address=text)


def _is_refused_reply(sent: Sent) -> bool:
    """Whether a message that is no reply may succeed, for example because the thread is locked."""
    others = (*REFUSED_FORM, *MAY_HAVE_ARRIVED)
    return sent.outcome == "failed" and bool(_CODE.fullmatch(sent.detail)) and sent.detail not in others


def _fields(answer: requests.Response) -> dict[str, Any]:
    try:
        data = answer.json()
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _retry_after(answer: requests.Response) -> float:
    try:
        return max(0.0, float(answer.headers.get("Retry-After", DEFAULT_RETRY_SECONDS)))
    except ValueError:
        return DEFAULT_RETRY_SECONDS


def _words(answer: requests.Response) -> str:
    """For example 400 invalid_blocks: the status and the first 80 characters of Slack's answer."""
    return f"{answer.status_code} {' '.join(answer.text.split())[:80]}"
