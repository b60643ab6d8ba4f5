"""Adds to the payload what people should hear: notes as sentences, alerts as records. Sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from node_fleet.domain.model.snapshot import Alert
from node_fleet.payload import from_payload, to_payload


def tell(event: Mapping[str, Any], *, notes: Iterable[str] = (), alerts: Iterable[Alert] = ()) -> dict[str, Any]:
    """The payload with these added after what earlier states told; the same thing is told once."""
    told: tuple[Alert, ...] = from_payload(tuple[Alert, ...], event.get("alerts", []))
    return {
        **event,
        "notes": list(dict.fromkeys([*event.get("notes", []), *(note for note in notes if note)])),
        "alerts": to_payload(tuple(dict.fromkeys([*told, *alerts]))),
    }
