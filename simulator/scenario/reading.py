"""Takes a scenario file's sections apart. Nothing here raises: problems gather in the sections' shared list."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.settings import Settings, spec_of
from simulator.clock import DEFAULT_START
from simulator.cluster.load.applications import ApplicationSpec, Autoscale
from simulator.cluster.load.curves import (
    Curve,
    CurveError,
    constant,
    diurnal,
    flash_sale,
    linear,
    series,
    steps,
)
from simulator.cluster.machines import MACHINE_TYPES
from simulator.cluster.model import BootRule
from simulator.cluster.state import ClusterSettings
from simulator.scenario.model import (
    AZ,
    DEFAULT_AZS,
    EVENT_KEYS,
    KILL_WAYS,
    MARKETS,
    NAME,
    QUOTA_KINDS,
    BarePod,
    Event,
    Scenario,
    WorkerGroup,
)
from simulator.scenario.yaml_reading import REQUIRED, Section, duration_seconds, nearest


class ScenarioReader:
    """Reads one file; `directory` is where its series files are looked for."""

    def __init__(self, root: Section, directory: Path) -> None:
        self._root = root
        self._directory = directory

    def scenario(self) -> Scenario:
        root = self._root
        duration = root.duration("duration", low=60.0)
        applications = tuple(self._application(section) for section in root.sections("applications"))
        names = [f"{spec.namespace}/{spec.name}" for spec in applications]
        for name in {name for name in names if names.count(name) > 1}:
            root.problem("applications", f"{name} is given twice")
        scenario = Scenario(
            name=root.text("name", pattern=NAME),
            description=root.text("description"),
            duration_seconds=duration,
            seed=root.whole("seed", 1),
            start_at=self._start(),
            server_type=_instance_type(root, "server_type", "t3.medium"),
            workers=tuple(self._workers(section) for section in root.sections("workers", REQUIRED)),
            settings=self._settings(),
            cluster=self._cluster(),
            boot_rules=tuple(self._boot_rule(section) for section in root.sections("boot")),
            applications=applications,
            pods=tuple(self._pod(section) for section in root.sections("pods")),
            events=tuple(
                sorted(
                    (self._event(section, names, duration) for section in root.sections("events")),
                    key=lambda event: event.at_seconds,
                )
            ),
        )
        root.finish()
        return scenario

    def _start(self) -> float:
        value = self._root.value("start")
        if value is None:
            return DEFAULT_START
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError:
            self._root.problem("start", f"expected a time such as 2026-06-01T08:00:00Z, found {value!r}")
            return DEFAULT_START
        if moment.tzinfo is None:
            self._root.problem("start", f"expected a time with its zone, such as {moment.isoformat()}Z")
            return DEFAULT_START
        return moment.timestamp()

    def _workers(self, section: Section) -> WorkerGroup:
        group = WorkerGroup(
            count=section.whole("count", low=1, high=1000),
            instance_type=_instance_type(section, "instance_type", "t3.small"),
            market=section.text("market", "on-demand", choices=MARKETS),
            azs=section.texts("azs", DEFAULT_AZS),
        )
        for az in group.azs:
            if not re.fullmatch(AZ, az):
                section.problem("azs", f"{az!r} is no availability zone, expected one such as ap-southeast-1a")
        if not group.azs:
            section.problem("azs", "expected at least one zone")
        section.finish()
        return group

    def _settings(self) -> dict[str, Any]:
        section = self._root.section("settings")
        if section is None:
            return {}
        names = {spec_of(entry).env: entry.name for entry in fields(Settings)}
        values = {names.get(key, key): section.value(key) for key in section.names}
        try:
            Settings.from_mapping(values)
        except InvalidSettingsError as error:
            for message in str(error).split("; "):
                section.problem(_setting_key(message, section.names, names), message)
        return values

    def _cluster(self) -> ClusterSettings:
        section = self._root.section("world")
        seed = self._root.whole("seed", 1)
        if section is None:
            return ClusterSettings(seed=seed)
        cluster = ClusterSettings(
            seed=seed,
            boot_seconds=section.duration("boot", 60.0),
            container_start_seconds=section.duration("container_start", 5.0),
            shutdown_seconds=section.duration("shutdown", 2.0),
            pod_eviction_timeout_seconds=section.duration("pod_eviction_timeout", 300.0),
            load_step_seconds=section.duration("load_step", 60.0, low=1.0),
            server_is_tainted=section.switch("server_is_tainted", True),
        )
        section.finish()
        return cluster

    def _boot_rule(self, section: Section) -> BootRule:
        kinds = ("normal", "slow", "never_joins", "not_ready", "uninitialized")
        kind = section.text("kind", choices=kinds)
        rule = BootRule(
            kind=kind,
            seconds=section.duration("seconds", 240.0 if kind == "slow" else None),
            ready_after_seconds=section.duration("ready_after", None),
            first=section.whole("first", 1, low=1),
            count=section.whole("count", None, low=1),
            instance_type=_instance_type(section, "instance_type", ""),
            az=section.text("az", "", pattern=AZ),
            market=section.text("market", "", choices=MARKETS),
        )
        section.finish()
        return rule

    def _application(self, section: Section) -> ApplicationSpec:
        name, kind = section.text("name", pattern=NAME), section.text("kind", "Deployment", choices=_KINDS)
        request = section.whole("cpu_milli", 250, low=1, high=128_000)
        budget = self._budget(section)
        curve = self._curve(section, "load")
        spec = ApplicationSpec(
            name=name,
            namespace=section.text("namespace", "shop", pattern=NAME),
            kind=kind,
            cpu_request_milli=request,
            memory_request_mib=section.whole("memory_mib", 128, low=1, high=1_000_000),
            cpu_limit_milli=section.whole("cpu_limit_milli", 2 * request, low=1, high=128_000),
            replicas=section.whole("replicas", 1, high=10_000),
            curve=curve or constant(0.0),
            cpu_milli_per_request=section.number("cpu_milli_per_request", 10.0, low=0.001),
            autoscale=self._autoscale(section),
            base_latency_ms=section.number("base_latency_ms", 40.0, low=0.1),
            queues=section.switch("queues", False),
            memory_usage_mib=section.number("memory_usage_mib", None, low=1),
            min_available=budget[0],
            max_unavailable=budget[1],
            grace_seconds=section.whole("grace_seconds", 30, high=3600),
            shutdown_seconds=section.duration("shutdown", None),
            start_seconds=section.duration("start", None),
            volume=section.text("volume", "none", choices=("none", "emptyDir", "local-path")),
            annotations=section.text_map("annotations"),
            node_selector=section.text_map("node_selector"),
        )
        section.finish()
        return spec

    def _autoscale(self, section: Section) -> Autoscale | None:
        inner = section.section("autoscale")
        if inner is None:
            return None
        low = inner.whole("min", low=1, high=10_000)
        autoscale = Autoscale(
            min_replicas=low,
            max_replicas=inner.whole("max", low=low, high=10_000),
            target_percent=inner.number("target_percent", 70.0, low=1, high=400),
            evaluation_seconds=inner.duration("every", 15.0, low=1.0),
            scale_down_stabilisation_seconds=inner.duration("stabilisation", 300.0),
        )
        inner.finish()
        return autoscale

    @staticmethod
    def _budget(section: Section) -> tuple[int | str | None, int | str | None]:
        inner = section.section("budget")
        if inner is None:
            return None, None
        if inner.has("min_available") == inner.has("max_unavailable"):
            section.problem("budget", "expected exactly one of min_available and max_unavailable")
        found = _share(inner, "min_available"), _share(inner, "max_unavailable")
        inner.finish()
        return found

    def _pod(self, section: Section) -> BarePod:
        pod = BarePod(
            name=section.text("name", pattern=NAME),
            namespace=section.text("namespace", "default", pattern=NAME),
            cpu_request_milli=section.whole("cpu_milli", 100, low=1),
            memory_request_mib=section.whole("memory_mib", 64, low=1),
            annotations=section.text_map("annotations"),
        )
        section.finish()
        return pod

    def _event(self, section: Section, applications: list[str], duration: float) -> Event:
        at = section.duration("at")
        if self._root.has("duration") and at > duration:
            section.problem("at", f"is after the scenario's end at {duration:g} s")
        action = section.text("do", choices=tuple(EVENT_KEYS))
        allowed = EVENT_KEYS[action]
        for key in section.names:
            if key in _EVENT_FIELDS and key not in allowed:
                section.problem(key, f"means nothing to {action}; it takes {', '.join(('at', 'do', *allowed))}")
        event = Event(
            at_seconds=at,
            action=action,
            for_seconds=section.duration("for", None, low=1.0),
            workers=section.whole(
                "workers", None if "share_percent" in allowed and section.has("share_percent") else 1
            ),
            share_percent=section.number("share_percent", None, high=100.0),
            notice_seconds=section.duration("notice", 120.0),
            az=section.text("az", "", pattern=AZ),
            instance_type=_instance_type(section, "instance_type", ""),
            market=section.text("market", "", choices=MARKETS),
            kind=section.text("kind", "vcpus" if action == "quota" else "", choices=QUOTA_KINDS),
            limit=section.whole("limit", REQUIRED if action == "quota" else None),
            call=section.text("call", "RunInstances" if action == "throttle" else ""),
            how=section.text("how", "instance", choices=KILL_WAYS),
            reason=section.text("reason", REQUIRED if action == "pause" else ""),
            application=section.text("application", REQUIRED if action == "load" else ""),
            load=self._curve(section, "load", required=action == "load"),
        )
        if event.application and event.application not in applications:
            known = nearest(event.application, applications) or f"; there are: {', '.join(applications) or 'none'}"
            section.problem("application", f"no application {event.application!r}{known}")
        section.finish()
        return event

    def _curve(self, section: Section, key: str, *, required: bool = False) -> Curve | None:
        if required and not section.has(key):
            section.problem(key, "is missing")
        inner = section.section(key)
        if inner is None:
            return None
        kinds = inner.names
        if len(kinds) != 1 or kinds[0] not in _CURVES:
            hint = nearest(kinds[0], _CURVES) if kinds else ""
            section.problem(key, f"expected exactly one of {', '.join(_CURVES)}, found {kinds}{hint}")
            return None
        try:
            return _CURVES[kinds[0]](inner, self._directory)
        except (CurveError, OSError) as error:
            inner.problem(kinds[0], str(error))
            return None


_KINDS: Final = ("Deployment", "StatefulSet")
_EVENT_FIELDS: Final = {key for keys in EVENT_KEYS.values() for key in keys}


def _constant(section: Section, _directory: Path) -> Curve:
    return constant(section.number("constant"))


def _points(section: Section, key: str) -> list[tuple[float, float]]:
    value = section.value(key)
    points = []
    for pair in value if isinstance(value, list) else [value]:
        seconds = duration_seconds(pair[0]) if isinstance(pair, list) and len(pair) == 2 else None
        rate = pair[1] if seconds is not None else None
        if seconds is None or isinstance(rate, bool) or not isinstance(rate, int | float) or rate < 0:
            section.problem(key, f"expected pairs of time and requests per second such as [10m, 50], found {pair!r}")
            return [(0.0, 0.0)]
        points.append((seconds, float(rate)))
    return points


def _steps(section: Section, _directory: Path) -> Curve:
    return steps(_points(section, "steps"))


def _linear(section: Section, _directory: Path) -> Curve:
    return linear(_points(section, "linear"))


def _diurnal(section: Section, _directory: Path) -> Curve:
    inner = section.section("diurnal")
    assert inner is not None
    curve = diurnal(
        low=inner.number("low"),
        high=inner.number("high"),
        peak_hour=inner.number("peak_hour", 14.0, high=24.0),
        start_hour=inner.number("start_hour", 0.0, high=24.0),
    )
    inner.finish()
    return curve


def _flash_sale(section: Section, _directory: Path) -> Curve:
    inner = section.section("flash_sale")
    assert inner is not None
    curve = flash_sale(
        base=inner.number("base"),
        peak=inner.number("peak"),
        start_seconds=inner.duration("start"),
        ramp_seconds=inner.duration("ramp", low=1.0),
        hold_seconds=inner.duration("hold", low=1.0),
        fall_seconds=inner.duration("fall", low=1.0),
    )
    inner.finish()
    return curve


def _series(section: Section, directory: Path) -> Curve:
    inner = section.section("series")
    assert inner is not None
    path = directory / inner.text("file")
    scale, step = inner.number("scale", 1.0), inner.duration("step", 60.0, low=1.0)
    inner.finish()
    if not path.is_file():
        raise CurveError(f"there is no file {path}")
    return series(path, scale=scale, step_seconds=step)


_CURVES: Final[dict[str, Callable[[Section, Path], Curve]]] = {
    "constant": _constant,
    "steps": _steps,
    "linear": _linear,
    "diurnal": _diurnal,
    "flash_sale": _flash_sale,
    "series": _series,
}


def _instance_type(section: Section, key: str, default: str) -> str:
    return str(
        section.text(key, default, choices=tuple(MACHINE_TYPES)) if section.has(key) else section.text(key, default)
    )


def _share(section: Section, key: str) -> int | str | None:
    value = section.value(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    if isinstance(value, str) and re.fullmatch(r"(100|[1-9]?\d)%", value):
        return value
    section.problem(key, f"expected a count or a share such as 50%, found {value!r}")
    return None


def _setting_key(message: str, keys: list[str], names: dict[str, str]) -> str:
    """The key in the file that a message of the settings is about."""
    words = set(re.findall(r"\w+", message))
    return next(
        (key for key in keys if key in words or names.get(key) in words or _env_of(key, names) in words), keys[0]
    )


def _env_of(key: str, names: dict[str, str]) -> str:
    return next((env for env, name in names.items() if name == key), key)
