"""kubectl's command line taken apart: verb, arguments, flags; an unknown one is refused in kubectl's words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

GLOBAL_FLAGS: Final = {
    "kubeconfig": "text",
    "context": "text",
    "cluster": "text",
    "server": "text",
    "request-timeout": "text",
    "namespace": "text",
    "cache-dir": "text",
    "insecure-skip-tls-verify": "switch",
    "v": "text",
}
_DRAIN: Final = {
    "ignore-daemonsets": "switch",
    "delete-emptydir-data": "switch",
    "force": "switch",
    "disable-eviction": "switch",
    "timeout": "text",
    "grace-period": "text",
    "skip-wait-for-delete-timeout": "text",
    "selector": "text",
    "pod-selector": "text",
    "chunk-size": "text",
}
VERB_FLAGS: Final[dict[str, dict[str, str]]] = {
    "get": {
        "output": "text",
        "selector": "text",
        "field-selector": "text",
        "all-namespaces": "switch",
        "ignore-not-found": "switch",
        "no-headers": "switch",
        "raw": "text",
        "chunk-size": "text",
        "show-labels": "switch",
    },
    "cordon": {"selector": "text"},
    "uncordon": {"selector": "text"},
    "drain": _DRAIN,
    "delete": {
        "selector": "text",
        "all": "switch",
        "ignore-not-found": "switch",
        "wait": "switch",
        "now": "switch",
        "force": "switch",
        "grace-period": "text",
        "timeout": "text",
        "output": "text",
        "cascade": "text",
    },
    "annotate": {"overwrite": "switch", "selector": "text", "all": "switch", "output": "text"},
    "label": {"overwrite": "switch", "selector": "text", "all": "switch", "output": "text"},
    "patch": {"type": "text", "patch": "text", "output": "text", "subresource": "text"},
    "taint": {"overwrite": "switch", "selector": "text"},
    "wait": {"for": "text", "timeout": "text", "selector": "text", "all": "switch"},
    "version": {"output": "text", "client": "switch"},
}
_SHORT: Final = {
    "n": "namespace",
    "o": "output",
    "l": "selector",
    "A": "all-namespaces",
    "p": "patch",
    "s": "server",
    "v": "v",
}


class UsageError(Exception):
    """A command line that kubectl refuses; the message is what it prints."""


@dataclass(slots=True, kw_only=True)
class CommandLine:
    """verb, then words, then flags by long name."""

    verb: str
    words: list[str] = field(default_factory=list)
    flags: dict[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        return self.flags.get(name, default)

    def on(self, name: str, *, default: bool = False) -> bool:
        return self.flags.get(name, str(default).lower()) == "true"

    @property
    def namespace(self) -> str:
        return "" if self.on("all-namespaces") else self.text("namespace", "default")


def parse_command_line(argv: list[str]) -> CommandLine:
    words, flags, rest = [], {}, list(argv)
    verb = next((word for word in argv if word in VERB_FLAGS), "")
    known = {**GLOBAL_FLAGS, **VERB_FLAGS.get(verb, {})}
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if word.startswith("-") and len(word) > 1:
            name, value = _flag(word, rest, known, verb)
            flags[name] = value
        else:
            words.append(word)
    if not words or words[0] not in VERB_FLAGS:
        raise UsageError(f'error: unknown command "{words[0] if words else ""}" for "kubectl"')
    return CommandLine(verb=words[0], words=words[1:], flags=flags)


def _flag(word: str, rest: list[str], known: dict[str, str], verb: str) -> tuple[str, str]:
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        shown = f"unknown flag: --{name}"
    else:
        name, value = _SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
        equals = "=" if value else ""
        shown = f"unknown shorthand flag: {word[1]!r} in {word}"
    if name not in known:
        raise UsageError(f"error: {shown}\nSee 'kubectl {verb} --help' for usage.")
    if equals:
        return name, value
    if known[name] == "switch":
        return name, "true"
    if not rest:
        raise UsageError(f"error: flag needs an argument: {word}")
    return name, rest.pop(0)


_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def seconds_of(text: str, flag: str) -> float:
    """Go's durations: 300s, 5m, 1h30m, 0."""
    if re.fullmatch(r"\d+", text or "0") and int(text or "0") == 0:
        return 0.0
    if not re.fullmatch(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+", text):
        raise UsageError(f'error: invalid argument "{text}" for "--{flag}" flag: time: invalid duration "{text}"')
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", text))


def go_duration(seconds: float) -> str:
    """As Go prints it: 7s, 5m0s, 1h0m0s."""
    whole = int(seconds)
    hours, minutes, left = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"
