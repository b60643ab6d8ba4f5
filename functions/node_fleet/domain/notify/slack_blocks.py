"""Messages as Slack Block Kit payloads, within Slack's limits, escaped, and without secrets.

adapters/slack.py sends them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from node_fleet.domain.cost.tariff import Currency
from node_fleet.domain.model.secret_text import redacted
from node_fleet.domain.model.text import printable
from node_fleet.domain.notify.message import UNCOUNTED, Message

HEADER_LIMIT = 150
SECTION_LIMIT = 3000
FIELD_LIMIT = 2000
FIELDS_LIMIT = 10
BLOCKS_LIMIT = 50
FALLBACK_LIMIT = 400
CUT = "… (cut)"

_SIGNS = {"info": "ℹ️", "success": "✅", "warning": "⚠️", "error": "🔴"}  # noqa: RUF001 - the sign is meant
_BROKEN_ENTITY = re.compile(r"&[a-z]{0,3}$")


def text_payload(text: str, subject: str) -> dict[str, Any]:
    """The payload of a message that is neither a run's nor an alarm."""
    return _payload(subject or "node-fleet", [_section(text)], fallback=subject or text)


def message_payload(message: Message, *, region: str, money: Currency) -> dict[str, Any]:
    """One run's message: what, why, counts, cost, placement, every alert, and a link to the execution."""
    title = f"{_SIGNS[message.level]} {message.what}"
    blocks = [] if _fits_header(title) else [_section(message.what)]
    if message.why and message.why != message.what:
        blocks.append(_section(f"*Why:* {escaped(message.why)}", raw=False))
    blocks.append(_fields(_facts(message, money)))
    blocks += _lists("Placement", message.placements)
    blocks += _lists("Alerts", [f"{alert.kind}: {alert.text}" for alert in message.alerts])
    blocks += _lists("More", [detail for detail in message.details if detail != message.what])
    if message.execution_id.startswith("arn:"):
        links = (
            f"<{execution_link(message.execution_id, region)}|Open this execution>",
            f"<{dashboard_link(message.cluster_id, region)}|Open the dashboard>",
        )
        blocks.append(_context("  ".join(links)))
    return _payload(title, blocks, fallback=message.what)


def alarm_payload(alarm: Mapping[str, Any]) -> dict[str, Any]:
    """A CloudWatch alarm; its description says what the operator can do."""
    name, state = str(alarm["AlarmName"]), str(alarm.get("NewStateValue", "ALARM"))
    sign = "✅" if state == "OK" else "⚠️"
    blocks = [_section(str(alarm.get("AlarmDescription") or "no description"))]
    if alarm.get("NewStateReason"):
        blocks.append(_section(f"*Measured:* {escaped(str(alarm['NewStateReason']))}", raw=False))
    return _payload(f"{sign} {name}: {state}", blocks, fallback=f"{name}: {state}")


def dropped_event_payload(event: Mapping[str, Any]) -> dict[str, Any]:
    """The failure of an asynchronous event after its last try: which function, why, after how many tries."""
    context, answer = event["requestContext"], event.get("responsePayload") or {}
    function = str(context.get("functionArn", "a function")).partition(":function:")[2].partition(":")[0]
    why = str(answer.get("errorMessage") or context.get("condition") or "no answer")
    kind = str(answer.get("errorType") or "no answer")
    tries = context.get("approximateInvokeCount", "all")
    title = f"⚠️ {function} gave up after {tries} tries"
    blocks = [_section(why), _section(f"What to do: docs/operations.md, row {kind}")]
    return _payload(title, blocks, fallback=f"{title}: {why}")


def fallback_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """One short plain message, for use after Slack refused the blocks."""
    return {"text": cut(f"{payload['text']} (Slack refused the details; open the execution)", FALLBACK_LIMIT)}


def execution_link(arn: str, region: str) -> str:
    """The Step Functions console at this execution."""
    home = f"https://{region}.console.aws.amazon.com/states/home?region={region}"
    return f"{home}#/v2/executions/details/{arn}"


def dashboard_link(cluster_id: str, region: str) -> str:
    """The cluster's dashboard in the CloudWatch console."""
    return f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}#dashboards/dashboard/{cluster_id}"


def escaped(text: str) -> str:
    """The text with Slack's three control characters as entities and without secrets."""
    return printable(redacted(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, with a mark where text was cut, and never half an entity."""
    if len(text) <= limit:
        return text
    return _BROKEN_ENTITY.sub("", text[: limit - len(CUT)]) + CUT


def _facts(message: Message, money: Currency) -> list[tuple[str, str]]:
    shown = [("Cluster", message.cluster_id), ("Trigger", message.trigger)]
    if message.trigger not in UNCOUNTED:
        shown.append(("Workers", _change(str(message.workers_before), str(message.workers_after))))
    before, after = message.hourly_cost_before, message.hourly_cost_after
    if before is not None and after is not None:
        shown.append(("Workers' cost per hour", _change(money.cost(before, digits=4), money.cost(after, digits=4))))
    return shown


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _mrkdwn(text: str) -> dict[str, Any]:
    """verbatim: Slack turns no name in the text into a link or a mention."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _section(text: str, *, raw: bool = True) -> dict[str, Any]:
    return {"type": "section", "text": _mrkdwn(cut(escaped(text) if raw else text, SECTION_LIMIT))}


def _fields(facts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    texts = [cut(f"*{name}*\n{escaped(value)}", FIELD_LIMIT) for name, value in facts[:FIELDS_LIMIT]]
    return {"type": "section", "fields": [_mrkdwn(text) for text in texts]}


def _lists(title: str, lines: Iterable[str]) -> list[dict[str, Any]]:
    """Bullets in as many sections as they need; a line longer than a section is cut."""
    sections: list[str] = []
    for line in lines:
        bullet = cut(f"• {escaped(' '.join(line.split()))}", SECTION_LIMIT - len(title) - 4)
        if sections and len(sections[-1]) + len(bullet) + 1 <= SECTION_LIMIT:
            sections[-1] += f"\n{bullet}"
        else:
            sections.append(bullet if sections else f"*{title}*\n{bullet}")
    return [{"type": "section", "text": _mrkdwn(text)} for text in sections]


def _context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [_mrkdwn(cut(text, SECTION_LIMIT))]}


def _fits_header(title: str) -> bool:
    return len(escaped(title)) <= HEADER_LIMIT and "\n" not in title


def _payload(title: str, blocks: list[dict[str, Any]], *, fallback: str) -> dict[str, Any]:
    head = {
        "type": "header",
        "text": {"type": "plain_text", "emoji": True, "text": cut(escaped(" ".join(title.split())), HEADER_LIMIT)},
    }
    whole = [head, *blocks]
    if len(whole) > BLOCKS_LIMIT:
        more = len(whole) - BLOCKS_LIMIT + 1
        whole = [*whole[: BLOCKS_LIMIT - 1], _context(f"{more} more blocks {CUT}")]
    plain = printable(" ".join(fallback.split())) or "node-fleet"  # Slack refuses a message without text
    return {"text": cut(escaped(plain), SECTION_LIMIT), "blocks": whole}
