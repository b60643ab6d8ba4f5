"""The server behind the page `ui`: it answers one browser on this machine, and nothing else.

Every request needs the name or address of this machine in Host, the token of the address that was printed, and, when it
changes something or reads a file, this page as its Origin. The page loads nothing from elsewhere.
"""

from __future__ import annotations

import hmac
import itertools
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.wrappers import Request, Response

from backtest.compare import Assumptions
from backtest.model import Capacity, ModelError
from backtest.page import CHART_SCRIPT, CHECKED, NEED, STYLE, UNITS, assumed, charts_of, library, look_of
from backtest.summary import COLUMNS, answer, rows
from backtest.trace import DAY_SECONDS, Trace, TraceError, parse_file
from backtest.what_if import POLICIES, Progress, SupersededError, WhatIf
from cdk_app.config import ConfigurationError
from cli.backtest import capacity_of, scaling_of
from cli.output import CommandError
from cli.ui_settings import ConfiguredCluster, described
from node_fleet.settings import Settings

PAGE = Path(__file__).with_name("ui_page")
TOKEN_HEADER = "X-Node-Fleet-Token"
MOST_BYTES = 64 << 20
TRACES_KEPT = 4
SHOWN_DAYS = 7
LAST_TURN = 1 << 53
HTTP_PORT = 80
LINES = "application/x-ndjson"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MODEL: dict[str, tuple[float, float, float, str]] = {
    "full_workers": (8, 0.1, 1000, "Full workers that the highest load needs"),
    "unit_milli": (0, 0, 1_000_000, "Or: CPU milli of one unit of the load (0: not known)"),
    "pod_cpu": (250, 1, 100_000, "Request of a pod, CPU milli"),
    "pod_memory": (128, 1, 1_000_000, "Request of a pod, MiB"),
    "boot": (90, 10, 3600, "From launch to usable, s"),
    "drain": (60, 10, 3600, "From drain to the end of the bill, s"),
}
"""The model's numbers on the page: default, lowest, highest, label. They are those of the options of `backtest`."""

Reader = Callable[[str, str, str, str], Trace]
"""Reads (url, query, past, step) from a Prometheus."""


class RefusedError(Exception):
    """The request is not answered."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class Server:
    """The WSGI application. port: where it listens. prometheus_url: what the page offers at first."""

    port: int
    token: str
    cluster: ConfiguredCluster
    what_if: WhatIf
    read_prometheus: Reader
    may_write: bool = False
    prometheus_url: str = ""
    _traces: OrderedDict[int, Trace] = field(default_factory=OrderedDict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def address(self) -> str:
        """What a person opens."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def load(self, trace: Trace) -> dict[str, Any]:
        """Keep the trace, and describe it for the page."""
        number = next(self._numbers)
        self._traces[number] = trace
        while len(self._traces) > TRACES_KEPT:
            self._traces.popitem(last=False)
        return {"number": number, **_described(trace)}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ)
        request.max_content_length = MOST_BYTES
        response = self._answer(request)
        response.headers.update(HEADERS)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        try:
            self._check(request)
            return self._route(request)
        except RefusedError as error:
            return _error(str(error), error.status)
        except SupersededError:
            return Response(_line({"superseded": True}), content_type=LINES)
        except RequestEntityTooLarge:
            return _error(_too_large(), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        except (CommandError, TraceError, ModelError, ConfigurationError) as error:
            return _error(_sentence(error), HTTPStatus.BAD_REQUEST)
        except ClientDisconnected:
            return _error("the request ended early", HTTPStatus.BAD_REQUEST)
        except Exception as error:  # the page shows it, and the server goes on
            return _error(_sentence(error), HTTPStatus.INTERNAL_SERVER_ERROR)

    def _check(self, request: Request) -> None:
        """Refuse what another page, another machine or another user of this machine may have sent."""
        port = "" if self.port == HTTP_PORT else f":{self.port}"  # browsers leave it out
        hosts = {f"{name}{port}" for name in ("127.0.0.1", "localhost")}
        if request.headers.get("Host", "") not in hosts:
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, f"use the address {self.address.split('?')[0]}")
        is_page = request.path == "/"  # a link to it may stand anywhere: it needs the token, and changes nothing
        if not is_page and request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise RefusedError(HTTPStatus.FORBIDDEN, "another page has sent this request")
        origin = request.headers.get("Origin")
        if request.method == "POST" and origin not in {f"http://{host}" for host in hosts}:
            raise RefusedError(HTTPStatus.FORBIDDEN, "another page has sent this request")
        given = request.args.get("token", "") if is_page else request.headers.get(TOKEN_HEADER, "")
        is_secret = is_page or request.path not in FILES
        if is_secret and not hmac.compare_digest(given.encode(), self.token.encode()):
            raise RefusedError(HTTPStatus.FORBIDDEN, "open the whole address that the command has printed")

    def _route(self, request: Request) -> Response:
        if request.path in FILES and request.method in ("GET", "HEAD"):
            kind, read = FILES[request.path]
            return Response(read(), content_type=f"{kind}; charset=utf-8")
        routes: dict[tuple[str, str], Callable[[Request], Response]] = {
            ("GET", "/start"): self._start,
            ("POST", "/trace"): self._trace,
            ("POST", "/prometheus"): self._prometheus,
            ("POST", "/study"): self._study,
            ("POST", "/write"): self._write,
        }
        route = routes.get((request.method, request.path))
        if route is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no {request.method} {request.path}")
        return route(request)

    def _start(self, request: Request) -> Response:
        """What the page shows before anything is replayed."""
        found = self.cluster.changed({})
        number, trace = next(reversed(self._traces.items()))
        data = {
            "cluster": self.cluster.cluster_id,
            "file": self.cluster.path.name,
            "path": str(self.cluster.path),
            "may_write": self.may_write,
            "controls": described(found.settings),
            "model": [
                {"name": name, "value": value, "low": low, "high": high, "label": label}
                for name, (value, low, high, label) in MODEL.items()
            ],
            "trace": {"number": number, **_described(trace)},
            "prometheus_url": self.prometheus_url,
            "shown_days": SHOWN_DAYS,
            "columns": COLUMNS,
            "units": UNITS,
            "most_bytes": MOST_BYTES,
            "too_large": _too_large(),
            "need": NEED,
            "checked": CHECKED,
            "looks": [look_of(place)[:2] for place in range(len(POLICIES) + 1)],
        }
        return _json(data)

    def _trace(self, request: Request) -> Response:
        name = Path(request.args.get("name", "load.csv")).name
        return _json(self.load(parse_file(request.get_data(), name=name)))

    def _prometheus(self, request: Request) -> Response:
        given = _object(request)
        url, query, past, step = (_text(given, name) for name in ("url", "query", "past", "step"))
        return _json(self.load(self.read_prometheus(url, query, past, step)))

    def _study(self, request: Request) -> Response:
        """Lines of JSON: first the settings, then the study as it grows, with the progress in between."""
        given = _object(request)
        trace = self._asked_trace(given)
        found = self.cluster.changed(_mapping(given, "changed"))
        assumptions = _assumptions(found.settings, _mapping(given, "model")).with_unit_of(trace)
        days = _number(given, "days", 0, 36500)
        part = trace.between(trace.end - round(days * DAY_SECONDS), trace.end + 1) if days else trace
        page, turn = (int(_number(given, name, 0, LAST_TURN)) for name in ("page", "turn"))
        studies = self.what_if.studies(part, found.settings, assumptions, page=page, turn=turn)
        first = next(studies)  # what the model does not support is refused here
        settings = {
            "values": {one["name"]: _shown(getattr(found.settings, one["name"])) for one in described(found.settings)},
            "strategy": found.settings.strategy,
            "changes": found.changes,
            "settings": json.dumps(found.given, indent=2, ensure_ascii=False),
            "difference": found.difference,
            "digest": found.digest,
        }
        return Response(_lines(settings, first, studies), content_type=LINES)

    def _write(self, request: Request) -> Response:
        if not self.may_write:
            raise RefusedError(
                HTTPStatus.FORBIDDEN, "writing is off: end the command, and start it with the option --write"
            )
        given = _object(request)
        found = self.cluster.write(_mapping(given, "changed"), _text(given, "digest"))
        return _json({"changes": found.changes})

    def _asked_trace(self, given: Mapping[str, Any]) -> Trace:
        found = self._traces.get(int(_number(given, "trace", 0, LAST_TURN)))
        if found is None:
            text = f"this load is not kept: loads that were read after it, in any tab, have its place ({TRACES_KEPT})"
            raise CommandError(text, hint="choose it again, or reload the page for the newest one")
        return found


def _too_large() -> str:
    return f"the file has more than {MOST_BYTES >> 20} MiB; compress it with gzip, or use a shorter part"


def _described(trace: Trace) -> dict[str, Any]:
    days = (trace.end - trace.start) / DAY_SECONDS
    return {"name": trace.name, "readings": len(trace.values), "days": round(days, 2)}


def _lines(settings: dict[str, Any], first: Progress, others: Iterator[Progress]) -> Iterator[str]:
    """The answer, one JSON document a line. An error on the way is the last line."""
    try:
        yield _line(settings) + _line(_as_data(first))
        for progress in others:
            yield _line(_as_data(progress))
    except SupersededError:
        yield _line({"superseded": True})
    except Exception as error:  # the page shows it
        yield _line({"error": _sentence(error)})
    finally:
        others.close()  # type: ignore[attr-defined]


def _as_data(progress: Progress) -> dict[str, Any]:
    study = progress.study
    if study is None:
        return {"share": progress.share}
    names = [one.policy for one in (*study.results, study.bound)]
    return {
        "share": progress.share,
        "answer": answer(study),
        "assumed": assumed(study),
        "policies": names,
        "rows": rows(study),
        "best": study.cheapest_without_more_pending.policy,
        **charts_of(study),
    }


def _assumptions(settings: Settings, model: Mapping[str, Any]) -> Assumptions:
    known = {name: _number(model, name, low, high, value) for name, (value, low, high, _) in MODEL.items()}
    whole = {name: int(value) for name, value in known.items()}
    times = (f"{whole['boot']}s", f"{Capacity().start_seconds}s", f"{whole['drain']}s")
    capacity = capacity_of(settings, times, whole["pod_cpu"], whole["pod_memory"])
    full, unit = known["full_workers"], known["unit_milli"]
    return Assumptions(capacity=capacity, scaling=scaling_of("0s", jump=False, full_workers=full, unit_milli=unit))


def _object(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(request.get_data())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CommandError("the request is not a JSON object")
    return found


def _mapping(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = given.get(name, {})
    if not isinstance(found, dict):
        raise CommandError(f"{name} is not an object")
    return found


def _text(given: Mapping[str, Any], name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str) or not found.strip():
        raise CommandError(f"{name} is missing")
    return found.strip()


def _number(given: Mapping[str, Any], name: str, low: float, high: float, default: float = 0) -> float:
    """A number of the page; every label is in MODEL."""
    found = given.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not low <= found <= high:
        label = f"{MODEL[name][3]} ({name})" if name in MODEL else name
        raise CommandError(f"{label} is {found!r}, expected a number from {low:g} to {high:g}")
    return float(found)


def _shown(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, tuple) else value


def _sentence(error: Exception) -> str:
    if isinstance(error, BrokenExecutor):
        return "a process that replays has ended, for example for lack of memory; end the command and start it again"
    hint = getattr(error, "hint", "")
    known = isinstance(error, CommandError | TraceError | ModelError | ConfigurationError)
    text = str(error) if known else f"{type(error).__name__}: {error}"
    return f"{text}; {hint}" if hint else text


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, default=str) + "\n"


def _json(data: Mapping[str, Any]) -> Response:
    return Response(json.dumps(data, default=str), content_type="application/json")


def _error(text: str, status: HTTPStatus) -> Response:
    return Response(json.dumps({"error": text}), status=status, content_type="application/json")


def _file(name: str) -> Callable[[], str]:
    return lambda: (PAGE / name).read_text(encoding="utf-8")


FILES: dict[str, tuple[str, Callable[[], str]]] = {
    "/": ("text/html", _file("index.html")),
    "/page.js": ("text/javascript", _file("page.js")),
    "/page.css": ("text/css", lambda: STYLE + _file("page.css")()),
    "/charts.js": ("text/javascript", lambda: CHART_SCRIPT),
    "/plotly.js": ("text/javascript", library),
}
"""Path -> type and text. Only the first one needs the token: the others are the same for everyone."""
