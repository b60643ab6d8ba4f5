"""The values of a scenario file: times, counts, names and zones, each with the message for a wrong one."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
)

from simulator.cluster.machines import MACHINE_TYPES

DEFAULT_AZS: Final = ("ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c")
_DURATION: Final = r"^(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?$"
_PART_SECONDS: Final = (86_400.0, 3_600.0, 60.0, 1.0)


def duration_seconds(value: Any) -> float:
    """'90s', '45m', '1h30m', '24h' or a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    found = re.match(_DURATION, value) if isinstance(value, str) and value else None
    if not found:
        raise ValueError(f"expected a time such as 90s, 45m or 24h, found {value!r}")
    return sum(float(number) * unit for number, unit in zip(found.groups(), _PART_SECONDS, strict=True) if number)


def _epoch(value: Any) -> float:
    try:
        moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"expected a time such as 2026-06-01T08:00:00Z, found {value!r}") from None
    if moment.tzinfo is None:
        raise ValueError(f"expected a time with its zone, such as {moment.isoformat()}Z")
    return moment.timestamp()


def _count_or_share(value: Any) -> Any:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not is_count and not (isinstance(value, str) and re.fullmatch(r"(100|[1-9]?\d)%", value)):
        raise ValueError(f"expected a count or a share such as 50%, found {value!r}")
    return value


def _pair(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"expected a pair of time and requests per second such as [10m, 50], found {value!r}")
    return value


def unknown(word: Any, names: Iterable[str]) -> str:
    """The message about a name that is not among the known ones."""
    known = list(names)
    return f"{word!r} is not known{nearest(str(word), known) or '; known: ' + ', '.join(known)}"


def nearest(word: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(names), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


def one_of(names: Collection[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError(unknown(value, names))
        return value

    return AfterValidator(check)


_TIME_SCHEMA: Final = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _DURATION}]}
_SHARE_SCHEMA: Final = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\d+%$"}]}
Seconds = Annotated[float, BeforeValidator(duration_seconds), WithJsonSchema(_TIME_SCHEMA)]
LongSeconds = Annotated[Seconds, Field(ge=1.0)]
StartTime = Annotated[float, BeforeValidator(_epoch), WithJsonSchema({"type": "string", "format": "date-time"})]
Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Share = Annotated[int | str, PlainValidator(_count_or_share), WithJsonSchema(_SHARE_SCHEMA)]
Points = list[Annotated[tuple[Seconds, Annotated[Number, Field(ge=0)]], BeforeValidator(_pair)]]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
Az = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
InstanceType = Annotated[str, one_of(MACHINE_TYPES), Field(json_schema_extra={"enum": list(MACHINE_TYPES)})]
ImageId = Annotated[str, Field(pattern=r"^ami-[a-z0-9]+$")]
K3sRelease = Annotated[str, Field(pattern=r"^v1\.\d{1,3}\.\d{1,3}(-rc\d{1,3})?\+k3s\d{1,3}$")]
Market = Literal["on-demand", "spot"]
