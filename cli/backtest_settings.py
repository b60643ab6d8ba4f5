"""The settings that `backtest` replays: of cdk.json, of another file, or of a deployed cluster, with those of --set."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from backtest.compare import policy_names
from cdk_app.json_file import configuration_file
from cdk_app.recorded_types import RecordError, read_records, recorded_types
from cli.output import CommandError, WrongUseError
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.settings import Settings, spec_of


def configuration(config: Path | None, cluster: str, deployed: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """Where the settings come from, and their names and values: the file, the deployed cluster, or cdk.json."""
    if deployed and not config:
        return f"cluster {deployed['cluster_id']} as deployed", deployed
    path = config or configuration_file()
    found = _file(path, cluster)
    return f"cluster {found['cluster_id']} of {path}" if "cluster_id" in found else str(path), found


def changes_of(changed: list[str], region: str) -> dict[str, Any]:
    """Settings by field name, from --region and --set."""
    changes: dict[str, Any] = {"region": region} if region else {}
    for pair in changed:
        name, equals, value = pair.partition("=")
        if not equals:
            raise WrongUseError(f"--set {pair}", hint="type it like --set idle_seconds=300")
        changes[name.strip()] = value
    return changes


def overridden(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The base with the given settings in their place; of the list of types and the requirements only the given one."""
    other = {"instance_types": "instance_requirements", "instance_requirements": "instance_types"}
    replaced = {other[name] for name in given if name in other}
    return {**{name: value for name, value in base.items() if name not in replaced}, **given}


def settings_of(raw: dict[str, Any]) -> Settings:
    try:
        return Settings.from_mapping(raw)
    except InvalidSettingsError as error:
        raise CommandError(str(error)) from error


def configurations_beside(beside: list[str]) -> dict[str, Settings]:
    """Settings from the files among the --with values, by file name. Refuses what is neither file nor policy."""
    files = [name for name in beside if name not in policy_names()]
    missing = [name for name in files if not Path(name).exists()]
    if missing:
        hint = f"name a file of settings, or one of {', '.join(policy_names())}"
        raise WrongUseError(f"unknown policy {missing[0]!r}", hint=hint)
    return {Path(name).stem: settings_of(_file(Path(name))) for name in files}


def as_names(settings: Settings) -> dict[str, Any]:
    """The settings in force by field name. The list of types stands for the requirements that it was decided from."""
    names = {spec_of(f).env: f.name for f in fields(Settings)}
    found = {names[env]: text for env, text in settings.to_env().items()}
    return {**found, "instance_types": settings.instance_types, "instance_requirements": None}


def _file(path: Path, cluster: str = "") -> dict[str, Any]:
    """The settings in a file; for a cdk.json those of this cluster, by default of its first one."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise CommandError(f"{path} is not a file of settings: {str(error).splitlines()[0]}") from error
    if isinstance(data, dict) and "context" in data:
        clusters = data["context"].get("clusters") or [{}]
        entry = next((one for one in clusters if one.get("cluster_id") == cluster), None if cluster else clusters[0])
        if entry is None:
            known = ", ".join(one.get("cluster_id", "") for one in clusters)
            raise CommandError(f"{path} has no cluster {cluster}", hint=f"give --cluster with one of these: {known}")
        data = {**entry.get("settings", {}), **{key: entry[key] for key in ("cluster_id", "region") if key in entry}}
        if "volume_gib" in entry.get("workers", {}):
            data["worker_volume_gib"] = entry["workers"]["volume_gib"]
        data = _with_recorded_types(path, entry, data)
    if not isinstance(data, dict):
        raise CommandError(f"{path} holds {type(data).__name__}, expected names and values of settings")
    return dict(data)


def _with_recorded_types(path: Path, cluster: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """The settings, with the types that are recorded for their requirements beside that cdk.json."""
    requirements, settings = Settings.requirements_of(data), settings_of(data)
    if requirements is None:
        return data
    try:
        types = recorded_types(read_records(path), cluster.get("cluster_id", ""), settings.region, requirements)
    except RecordError as error:
        raise CommandError(str(error)) from error
    return overridden(data, {"instance_types": types}) if types else data
