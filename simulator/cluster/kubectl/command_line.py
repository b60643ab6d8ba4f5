"""The kubectl command lines that node-fleet's scripts send, parsed. Every other verb and flag is refused."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any, NoReturn

LINES_KEPT = 256


class UsageError(Exception):
    """A command line that the fake kubectl refuses; the message is what it prints."""


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"error: {message}")


def parse_command_line(argv: list[str]) -> argparse.Namespace:
    """The flags of one command line by name, with its verb. Equal lines, which scripts send often, share one answer."""
    return _parsed(tuple(argv))


@functools.lru_cache(maxsize=LINES_KEPT)
def _parsed(argv: tuple[str, ...]) -> argparse.Namespace:
    return _parser().parse_args(argv)


@functools.cache
def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kubectl")
    parser.add_argument("--request-timeout", type=seconds_of)
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=_Parser)

    get = verbs.add_parser("get")
    get.add_argument("resource", nargs="?", default="")
    get.add_argument("name", nargs="?", default="")
    get.add_argument("--raw")
    get.add_argument("-n", "--namespace", default="default")
    get.add_argument("-o", "--output", choices=("json", "name"))
    get.add_argument("--ignore-not-found", action="store_true")

    for verb in ("create", "replace"):
        raw = verbs.add_parser(verb)
        raw.add_argument("--raw", required=True)
        raw.add_argument("-f", "--filename", type=Path, required=True)

    delete = verbs.add_parser("delete")
    delete.add_argument("resource")
    delete.add_argument("name")
    delete.add_argument("-n", "--namespace", default="default")
    delete.add_argument("--ignore-not-found", action="store_true")
    delete.add_argument("--wait", choices=("false",), required=True)

    patch = verbs.add_parser("patch")
    patch.add_argument("resource")
    patch.add_argument("name")
    patch.add_argument("-n", "--namespace", default="default")
    patch.add_argument("--type", choices=("merge",), required=True)
    patch.add_argument("-p", "--patch", required=True)

    rollout = verbs.add_parser("rollout")
    rollout.add_argument("step", choices=("restart", "status"))
    rollout.add_argument("target")
    rollout.add_argument("-n", "--namespace", default="default")
    rollout.add_argument("--field-manager")
    rollout.add_argument("--timeout", type=seconds_of, default=0.0)

    drain = verbs.add_parser("drain")
    drain.add_argument("node")
    drain.add_argument("--ignore-daemonsets", action="store_true", required=True)
    drain.add_argument("--delete-emptydir-data", action="store_true", required=True)
    drain.add_argument("--force", action="store_true")
    drain.add_argument("--disable-eviction", action="store_true")
    drain.add_argument("--timeout", type=seconds_of, required=True)
    drain.add_argument("--skip-wait-for-delete-timeout", type=int, default=0)
    return parser


def seconds_of(duration: str) -> float:
    """A duration as the scripts write it: 300s."""
    return float(duration.removesuffix("s"))


def go_duration(seconds: float) -> str:
    """As Go prints it: 7s, 5m0s. The limits of a drain stay under an hour."""
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes}m{left}s" if minutes else f"{left}s"
