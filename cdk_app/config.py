"""Everything that cdk.json may say about a cluster: typed, and checked so that all mistakes are told at once.

It reads no file, asks no account and knows nothing of CloudFormation.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.settings import Settings

SUBNET_PREFIX_LENGTH = 20
SERVER_HOST_NUMBER = 10
BY_DEPLOYMENT = {
    "cluster_id": "cluster_id stands beside settings, not in it",
    "region": "region stands beside settings, not in it",
    "topic_arn": "the deployment makes the topic",
    "alert_topic_arn": "the deployment makes the topic",
    "state_machine_arn": "the deployment makes the state machine",
    "subnets": "use network.zones (mode new) or attach.worker_subnets (mode attach)",
    "launch_template_id": "use attach.launch_template_id (mode attach)",
    "launch_template_version": "use attach.launch_template_version (mode attach)",
}
# Names that two clusters of one account and region must not share.
OWN_NAMES = (
    "state_table",
    "history_table",
    "events_table",
    "document_prefix",
    "prometheus_secret",
    "slack_secret",
)


class ConfigurationError(Exception):
    """cdk.json is wrong. `problems` lists every mistake, each with its place, value and what would be right."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(f"{len(problems)} mistakes in the configuration:\n  - " + "\n  - ".join(problems))
        self.problems = problems


Parser = Callable[[Any], Any]


def _item(parse: Parser, default: Any = dataclasses.MISSING) -> Any:
    if default is dataclasses.MISSING:
        return field(metadata={"parse": parse})
    return field(default=default, metadata={"parse": parse})


def _pattern(expression: str, expected: str) -> Parser:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(expression, value):
            raise ValueError(f"expected {expected}")
        return value

    return parse


def _whole(low: int, high: int, unit: str = "") -> Parser:
    def parse(value: Any) -> int:
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}{unit and ' ' + unit}")
        return value

    return parse


def _list_of(parse: Parser, *, at_least: int = 0) -> Parser:
    def parse_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) < at_least:
            raise ValueError(f"expected a list of {at_least} or more")
        return tuple(parse(entry) for entry in value)

    return parse_all


def _zone_map(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError('expected {"zone": "subnet-id", ...}')
    zone, subnet = _pattern(r"[a-z]{2}(-[a-z]+)+-\d[a-z]", "a zone such as ap-southeast-1a"), SUBNET_ID
    return tuple((zone(key), subnet(entry)) for key, entry in value.items())


def _network(value: Any) -> str:
    try:
        network = ipaddress.IPv4Network(value)
    except (ValueError, TypeError):
        raise ValueError("expected an IPv4 network such as 10.20.0.0/16") from None
    if not network.is_private or not 16 <= network.prefixlen <= 17:
        raise ValueError("expected a private network of /16 or /17")
    return str(network)


def _source_range(value: Any) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError:
        raise ValueError("expected a network such as 203.0.113.0/24") from None


def _switch(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return str(value).lower() == "true"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value


SUBNET_ID = _pattern(r"subnet-[0-9a-f]{8,17}", "a subnet id such as subnet-0123456789abcdef0")
GROUP_ID = _pattern(r"sg-[0-9a-f]{8,17}", "a security group id such as sg-0123456789abcdef0")
INSTANCE_TYPE = _pattern(r"[a-z0-9-]+\.[a-z0-9-]+", "an instance type such as t3.medium")
IMAGE = _pattern(r"|ami-[0-9a-f]{8,17}", "an image id such as ami-0123456789abcdef0, or nothing for Amazon Linux 2023")
EMAIL = _pattern(r"|[^@\s]+@[^@\s]+\.[^@\s]+", "an e-mail address, or nothing")
ROLE_ARN = _pattern(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", "the ARN of an IAM role")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNetwork:
    """The network that mode new makes: one nodes subnet and one functions subnet in each zone."""

    cidr: str = _item(_network, "10.20.0.0/16")
    zones: tuple[str, ...] = _item(_list_of(_pattern(r"[a-f]", "a zone letter"), at_least=2), ("a", "b"))
    http_from: tuple[str, ...] = _item(_list_of(_source_range), ())

    @property
    def server_address(self) -> str:
        """The server's private address: fixed, so that a rebuilt server is found where the workers look for it."""
        return str(ipaddress.IPv4Network(self.cidr).network_address + SERVER_HOST_NUMBER)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewServer:
    """The K3s server that mode new makes."""

    instance_type: str = _item(INSTANCE_TYPE, "t3.medium")
    volume_gib: int = _item(_whole(16, 1000, "GiB"), 30)
    image: str = _item(IMAGE, "")
    flux_git_url: str = _item(_text, "")
    token_secret: str = _item(_pattern(r"[\w/+=.@-]{1,200}", "a secret's name"), "node-fleet/k3s-token")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorkers:
    """What mode new puts into the workers' launch template."""

    volume_gib: int = _item(_whole(8, 1000, "GiB"), 20)
    image: str = _item(IMAGE, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What mode attach takes as it stands. The server is found by its tag, see settings.server_role_tag."""

    vpc_id: str = _item(_pattern(r"vpc-[0-9a-f]{8,17}", "a VPC id such as vpc-0123456789abcdef0"))
    function_subnets: tuple[str, ...] = _item(_list_of(SUBNET_ID, at_least=1))
    function_egress: str = _item(_pattern("ipv6|existing", "ipv6 (egress-only gateway) or existing (NAT or endpoints)"))
    worker_subnets: tuple[tuple[str, str], ...] = _item(_zone_map)
    launch_template_id: str = _item(_pattern(r"lt-[0-9a-f]{8,17}", "a launch template id such as lt-0123456789abcdef0"))
    launch_template_version: int = _item(_whole(1, 10000))
    server_security_group: str = _item(GROUP_ID)
    worker_role_arn: str = _item(ROLE_ARN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One cluster of the app."""

    cluster_id: str
    mode: Literal["new", "attach"]
    region: str
    settings: Settings
    alarm_email: str
    network: NewNetwork
    server: NewServer
    workers: NewWorkers
    attach: Attachment | None

    @property
    def zones(self) -> tuple[str, ...]:
        """Full names of the zones that workers may stand in."""
        if self.attach:
            return tuple(zone for zone, _ in self.attach.worker_subnets)
        return tuple(self.region + letter for letter in self.network.zones)

    @property
    def worker_architecture(self) -> str:
        """The one architecture of all worker types: x86_64 or arm64."""
        return architecture_of(self.settings.instance_types[0])


def read_clusters(raw: Any) -> tuple[ClusterConfig, ...]:
    """Read context key `clusters` (a list, or the JSON text of one as `cdk -c clusters=...` gives it).

    Raises:
        ConfigurationError: with every mistake of every cluster.
    """
    problems: list[str] = []
    entries = _entries(raw, problems)
    clusters = [_cluster(entry, f"clusters[{index}]", problems) for index, entry in enumerate(entries)]
    complete = [cluster for cluster in clusters if cluster]
    problems += _collisions(complete)
    if problems:
        raise ConfigurationError(problems)
    return tuple(complete)


def _entries(raw: Any, problems: list[str]) -> list[Any]:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except json.JSONDecodeError as error:
            problems.append(f"clusters is not JSON: {error}")
            return []
    if not isinstance(raw, list) or not raw:
        problems.append('context clusters is missing: expected [{"cluster_id": "...", "mode": "new"}]')
        return []
    return raw


def _cluster(raw: Any, path: str, problems: list[str]) -> ClusterConfig | None:
    if not isinstance(raw, Mapping):
        problems.append(f"{path}={_shown(raw)}: expected an object")
        return None
    before = len(problems)
    cluster_id = _value(raw, "cluster_id", path, problems, _pattern(r"[a-z][a-z0-9-]{1,38}[a-z0-9]", _ID_RULE))
    path = f"clusters[{cluster_id}]" if cluster_id else path
    mode = _value(raw, "mode", path, problems, _pattern("new|attach", "new or attach"), "new")
    region = _value(
        raw, "region", path, problems, _pattern(r"[a-z]{2}(-[a-z]+)+-\d", "an AWS region"), "ap-southeast-1"
    )
    email = _value(raw, "alarm_email", path, problems, EMAIL, "")
    _unknown(raw, _KEYS[mode or "new"], path, problems)
    settings = _settings(raw.get("settings", {}), cluster_id or "x", region or "", path, problems)
    parts = {
        "network": _section(NewNetwork, raw.get("network", {}), f"{path}.network", problems),
        "server": _section(NewServer, raw.get("server", {}), f"{path}.server", problems),
        "workers": _section(NewWorkers, raw.get("workers", {}), f"{path}.workers", problems),
        "attach": _section(Attachment, raw.get("attach", {}), f"{path}.attach", problems) if mode == "attach" else None,
    }
    if len(problems) > before:
        return None
    assert settings is not None
    return ClusterConfig(cluster_id=cluster_id, mode=mode, region=region, alarm_email=email, settings=settings, **parts)


_ID_RULE = "3 to 40 small letters, digits and dashes, such as node-fleet-prod"
_COMMON_KEYS = ("cluster_id", "mode", "region", "alarm_email", "settings")
_KEYS = {"new": (*_COMMON_KEYS, "network", "server", "workers"), "attach": (*_COMMON_KEYS, "attach")}


def _value(  # noqa: PLR0917  (one line for each item is what makes _cluster readable)
    raw: Mapping[str, Any], key: str, path: str, problems: list[str], parse: Parser, default: Any = None
) -> Any:
    if key not in raw:
        if default is None:
            problems.append(f"{path}.{key} is missing")
        return default
    try:
        return parse(raw[key])
    except ValueError as error:
        problems.append(f"{path}.{key}={_shown(raw[key])}: {error}")
        return None


def _section(cls: Any, raw: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(raw, Mapping):
        problems.append(f"{path}={_shown(raw)}: expected an object")
        return None
    before = len(problems)
    fields = dataclasses.fields(cls)
    _unknown(raw, tuple(f.name for f in fields), path, problems)
    values = {}
    for f in fields:
        if f.name in raw or f.default is dataclasses.MISSING:
            values[f.name] = _value(raw, f.name, path, problems, f.metadata["parse"])
    return cls(**values) if len(problems) == before else None


def _unknown(raw: Mapping[str, Any], known: tuple[str, ...], path: str, problems: list[str]) -> None:
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            problems.append(f"{path}.{key} is not known{f' (nearest: {near[0]})' if near else ''}")


def _settings(raw: Any, cluster_id: str, region: str, path: str, problems: list[str]) -> Settings | None:
    path = f"{path}.settings"
    if not isinstance(raw, Mapping):
        problems.append(f"{path}={_shown(raw)}: expected an object")
        return None
    problems += [f"{path}.{key}: {why}" for key, why in BY_DEPLOYMENT.items() if key in raw]
    own = {key: value for key, value in raw.items() if key not in BY_DEPLOYMENT}
    try:
        settings = Settings.from_mapping({**own, "cluster_id": cluster_id, "region": region})
    except InvalidSettingsError as error:
        problems += [f"{path}: {problem}" for problem in str(error).split("; ")]
        return None
    problems += [f"{path}: {problem}" for problem in _deployable(settings)]
    return settings


def _deployable(settings: Settings) -> list[str]:
    """What a setting must also be when AWS is to carry it out."""
    found = []
    if settings.interval_seconds % 60:
        found.append(f"INTERVAL_SECONDS={settings.interval_seconds}: expected whole minutes (a multiple of 60)")
    if not settings.instance_types:
        return [*found, "INSTANCE_TYPES is empty: expected at least one worker type"]
    kinds = {architecture_of(kind) for kind in settings.instance_types}
    if len(kinds) > 1:
        found.append(f"INSTANCE_TYPES={','.join(settings.instance_types)}: x86_64 and arm64 cannot share one image")
    return found


def architecture_of(instance_type: str) -> str:
    """x86_64 or arm64, read from the type's family."""
    family = re.match(r"[a-z]+\d+([a-z]*)", instance_type)
    return "arm64" if instance_type.startswith("a1.") or (family and "g" in family[1]) else "x86_64"


def _collisions(clusters: list[ClusterConfig]) -> list[str]:
    seen: dict[tuple[str, str, str], str] = {}
    found = []
    for cluster in clusters:
        names = {name: typing.cast(str, getattr(cluster.settings, name)) for name in OWN_NAMES}
        names["cluster_id"] = cluster.cluster_id
        if cluster.mode == "new":
            names["server.token_secret"] = cluster.server.token_secret
        for kind, name in names.items():
            key = (cluster.region, kind, name)
            if key in seen:
                found.append(
                    f"clusters[{cluster.cluster_id}] and clusters[{seen[key]}] share {kind}={name}: "
                    "give each its own, or both would change the same thing"
                )
            seen.setdefault(key, cluster.cluster_id)
    return found


def _shown(value: Any) -> str:
    return f"{value!s:.60}"
