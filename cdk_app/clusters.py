"""Reads the clusters of cdk.json and checks them: one error lists every mistake, with its place and what is expected.

It reads no file, calls no AWS service and does not depend on CloudFormation.
"""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from cdk_app.config import Attachment, ClusterConfig, ConfigurationError, NewNetwork, NewServer, NewWorkers, Section
from cdk_app.endpoints import services_without_ipv6
from cdk_app.k3s_releases import checksums
from cdk_app.recorded_types import RecordError, recorded_types
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.instance_types import architecture_of, baseline_percent
from node_fleet.domain.model.k3s_version import is_newer
from node_fleet.settings import Settings
from node_fleet.settings.validation import surprises

SET_BY_DEPLOYMENT = {
    "cluster_id": "cluster_id belongs beside settings, not in it",
    "region": "region belongs beside settings, not in it",
    "topic_arn": "the deployment creates the topic",
    "alert_topic_arn": "the deployment creates the topic",
    "state_machine_arn": "the deployment creates the state machine",
    "subnets": "use network.zones (mode new) or attach.worker_subnets (mode attach)",
    "launch_template_id": "use attach.launch_template_id (mode attach)",
    "launch_template_version": "use attach.launch_template_version (mode attach)",
}
SET_IN_MODE_NEW = {
    "worker_volume_gib": "use workers.volume_gib (mode new)",
    "worker_public_address": "workers of mode new always have a public address",
}
MIRROR_SINCE = "v1.29.3+k3s1"
"""The first release of K3s whose embedded registry mirror takes the wildcard "*"."""


# Names that two clusters of one account and region must not share.
OWN_NAMES = (
    "state_table",
    "history_table",
    "events_table",
    "document_prefix",
    "prometheus_secret",
    "slack_secret",
)

SECTIONS: dict[str, type[Section]] = {
    "network": NewNetwork,
    "server": NewServer,
    "workers": NewWorkers,
    "attach": Attachment,
}
FOREIGN_SECTIONS = {
    "new": ("attach",),
    "attach": ("network", "server", "workers", "k3s_version", "k3s_sha256_amd64"),
}


def warnings(configs: Iterable[ClusterConfig]) -> list[str]:
    """What is no mistake in these clusters, and still surprises: a line for each."""
    return [f"node-fleet: {config.cluster_id}, {text}" for config in configs for text in surprises(config.settings)]


def read_clusters(raw: Any, records: Any = None) -> tuple[ClusterConfig, ...]:
    """Read context key `clusters` (a list, or the JSON text of one as `cdk -c clusters=...` gives it).

    records: the instance types that EC2 answered for instance_requirements (cdk_app.recorded_types), by cluster id.

    Raises:
        ConfigurationError: with every mistake of every cluster.
    """
    problems: list[str] = []
    entries = _entries(raw, problems)
    clusters = [_cluster(entry, f"clusters[{index}]", problems, records) for index, entry in enumerate(entries)]
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


def _cluster(raw: Any, path: str, problems: list[str], records: Any) -> ClusterConfig | None:
    if not isinstance(raw, dict):
        problems.append(f"{path}={_shown(raw)}: expected an object")
        return None
    before = len(problems)
    cluster = None
    wrong: set[str] = set()
    # The settings are read by their own class; the model checks everything else.
    try:
        cluster = ClusterConfig.model_validate({**raw, "settings": Settings()})
    except ValidationError as error:
        wrong = {str(each["loc"][0]) for each in error.errors()}
        path = path if "cluster_id" in wrong else f"clusters[{raw['cluster_id']}]"
        problems += _model_problems(error, raw, path)
    else:
        path = f"clusters[{cluster.cluster_id}]"
        problems += [*_network_problems(cluster, path), *_release_problems(cluster, path)]
    problems += _section_problems(raw, path)
    identity = {"cluster_id": "x" if "cluster_id" in wrong else raw["cluster_id"]}
    identity["region"] = "" if "region" in wrong else raw.get("region", ClusterConfig.model_fields["region"].default)
    settings = _settings(
        raw.get("settings", {}), raw.get("mode", "new"), identity, f"{path}.settings", problems, records=records
    )
    if cluster is None or settings is None:
        return None
    problems += _image_problems(cluster, settings, f"{path}.settings")
    if cluster.attach and settings.hibernate and not cluster.attach.server_instance_id:
        problems.append(
            f"{path}.attach.server_instance_id is missing: settings.hibernate stops and starts the server, and only an "
            "instance that is named here may be stopped: expected its id such as i-0123456789abcdef0, or no hibernate"
        )
    if not cluster.attach:
        given = raw.get("settings", {}).keys() & SET_IN_MODE_NEW.keys()
        problems += [f"{path}.settings.{key}: {SET_IN_MODE_NEW[key]}" for key in sorted(given)]
        settings = replace(settings, worker_volume_gib=cluster.workers.volume_gib, worker_public_address=True)
    return cluster.model_copy(update={"settings": settings}) if len(problems) == before else None


def _model_problems(error: ValidationError, raw: dict[str, Any], path: str) -> list[str]:
    """One problem for each wrong key, in the order of the models."""
    found: dict[str, str] = {}
    for each in error.errors():
        section, fields, values = path, ClusterConfig.model_fields, raw
        name, *inner = map(str, each["loc"])
        if inner and name in SECTIONS:
            section, fields, values = f"{path}.{name}", SECTIONS[name].model_fields, raw[name]
            name = inner[0]
        place = f"{section}.{name}"
        if each["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
            problem = f"{place} is not known{f' (nearest: {near[0]})' if near else ''}"
        elif name not in values:
            problem = f"{place} is missing"
        else:
            problem = f"{place}={_shown(values[name])}: expected {fields[name].description or 'an object'}"
        found.setdefault(place, problem)
    return list(found.values())


def _section_problems(raw: dict[str, Any], path: str) -> list[str]:
    """Sections of the other mode, and the section that mode attach needs."""
    mode = raw.get("mode", "new")
    found = [
        f"{path}.{section} does not belong to mode {mode}: remove it, or choose the other mode"
        for section in FOREIGN_SECTIONS.get(mode if isinstance(mode, str) else "", ())
        if section in raw
    ]
    if mode == "attach" and not raw.get("attach"):
        found.append(f"{path}.attach is missing: mode attach needs the ids of the existing resources")
    return found


def _network_problems(cluster: ClusterConfig, path: str) -> list[str]:
    """Services that the functions could not reach over IPv6, which is their only egress in these networks."""
    if cluster.attach and cluster.attach.function_egress != "ipv6":
        return []
    missing = services_without_ipv6(cluster.region)
    if not missing:
        return []
    return [
        f"{path}.region={cluster.region}: AWS publishes no name of {', '.join(missing)} that answers over IPv6 there: "
        "expected another region, or mode attach with function_egress existing"
    ]


def _image_problems(cluster: ClusterConfig, settings: Settings, path: str) -> list[str]:
    """What the bootstrap of mode new does about images, and the release of K3s that the registry mirror needs."""
    if cluster.attach:
        given = [("registry_mirror", settings.registry_mirror), ("image_wait_seconds", settings.image_wait_seconds)]
        return [
            f"{path}.{name}={_shown(value)}: the bootstrap of mode new does this, in mode attach yours: remove it"
            for name, value in given
            if value
        ]
    if settings.registry_mirror and is_newer(MIRROR_SINCE, cluster.k3s_version):
        return [f"{path}.registry_mirror=True: K3s {cluster.k3s_version} has none: expected {MIRROR_SINCE} or newer"]
    return []


def _release_problems(cluster: ClusterConfig, path: str) -> list[str]:
    """A release of K3s that nothing but its download page vouches for."""
    version, given, known = cluster.k3s_version, cluster.k3s_sha256_amd64, checksums()
    if not given and version not in known:
        return [
            f"{path}.k3s_version={version}: node-fleet ships no checksum of it: expected one of {', '.join(known)}, or"
            " its checksum from a second source in k3s_sha256_amd64"
        ]
    if given and known.get(version, given) != given:
        return [f"{path}.k3s_sha256_amd64={_shown(given)}: {version} has another checksum, {known[version]}: remove it"]
    return []


def _settings(
    raw: Any, mode: Any, identity: dict[str, str], path: str, problems: list[str], *, records: Any
) -> Settings | None:
    if not isinstance(raw, dict):
        problems.append(f"{path}={_shown(raw)}: expected an object")
        return None
    problems += [f"{path}.{key}: {reason}" for key, reason in SET_BY_DEPLOYMENT.items() if key in raw]
    beside = raw.keys() & ClusterConfig.model_fields.keys() - {"cluster_id", "region"}
    problems += [f"{path}.{key}: {key} stands beside settings: move it up, out of settings" for key in sorted(beside)]
    own = {key: value for key, value in raw.items() if key not in SET_BY_DEPLOYMENT and key not in beside}
    try:
        settings = _with_recorded_types({**own, **identity}, records)
    except InvalidSettingsError as error:
        problems += [f"{path}: {problem}" for problem in error.problems]
        return None
    problems += [f"{path}: {problem}" for problem in _deployment_problems(settings)]
    if mode == "new" and settings.node_name_rule != "instance-id":
        problems.append(
            f"{path}: node_name_rule={settings.node_name_rule}: expected instance-id, the name that the bootstrap of"
            " mode new gives every worker"
        )
    return settings


def _with_recorded_types(raw: dict[str, Any], records: Any) -> Settings:
    """The settings, whose instance_requirements stand for the recorded types where the cluster has a record."""
    requirements = Settings.requirements_of(raw)
    if requirements is None:
        return Settings.from_mapping(raw)
    try:
        types = recorded_types(records, raw["cluster_id"], raw["region"], requirements)
    except RecordError as error:
        raise InvalidSettingsError([f"instance_requirements: {error}"]) from error
    return Settings.from_mapping(raw, types)


def _deployment_problems(settings: Settings) -> list[str]:
    """What AWS requires of a setting beyond the rules of the settings themselves."""
    found = []
    if settings.interval_seconds % 60:
        found.append(f"interval_seconds={settings.interval_seconds}: expected whole minutes (a multiple of 60)")
    if not settings.instance_types:
        return [*found, "instance_types is empty: expected at least one worker type"]
    architectures = {architecture_of(instance_type) for instance_type in settings.instance_types}
    if len(architectures) > 1:
        found.append(f"instance_types={','.join(settings.instance_types)}: x86_64 and arm64 cannot share one image")
    fixed = [one for one in settings.instance_types if baseline_percent(one) is None]
    if settings.cpu_credits == "standard" and fixed and len(fixed) < len(settings.instance_types):
        found.append(
            f"cpu_credits=standard with instance_types={','.join(settings.instance_types)}: EC2 refuses a launch of "
            f"{fixed[0]} from a template that states CPU credits: expected burstable types only, or unlimited"
        )
    return found


def _collisions(clusters: list[ClusterConfig]) -> list[str]:
    owners: dict[tuple[str, str, str], str] = {}
    found = []
    for cluster in clusters:
        names = {name: typing.cast(str, getattr(cluster.settings, name)) for name in OWN_NAMES}
        names["cluster_id"] = cluster.cluster_id
        if cluster.mode == "new":
            names["server.token_secret"] = cluster.server.token_secret
            names["server.grafana_secret"] = cluster.server.grafana_secret
        for kind, name in names.items():
            key = (cluster.region, kind, name)
            if key in owners:
                found.append(
                    f"clusters[{cluster.cluster_id}] and clusters[{owners[key]}] share {kind}={name}: "
                    "give each its own, or both would change the same resource"
                )
            owners.setdefault(key, cluster.cluster_id)
    return found


def _shown(value: Any) -> str:
    return f"{value!s:.60}"
