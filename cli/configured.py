"""What cdk.json states about a cluster, for commands that address a deployed one. It calls no AWS service."""

from __future__ import annotations

from typing import Any

from cdk_app.clusters import read_clusters
from cdk_app.config import ClusterConfig, ConfigurationError
from cdk_app.json_file import JsonFileError, configuration_file, read_json
from cdk_app.recorded_types import RecordError, read_records
from cli.output import CommandError


def configured_clusters() -> tuple[ClusterConfig, ...]:
    """Every cluster of cdk.json.

    Raises:
        ConfigurationError: lists every mistake.
    """
    path = configuration_file()
    try:
        clusters = read_json(path)["context"]["clusters"]
    except JsonFileError as error:
        raise ConfigurationError([str(error)]) from error
    except (KeyError, TypeError) as error:
        expected = '"context": {"clusters": [{"cluster_id": "...", "mode": "new"}]}'
        raise ConfigurationError([f"{path} has no list context.clusters: expected {expected}"]) from error
    return clusters_of(clusters)


def clusters_of(raw: Any) -> tuple[ClusterConfig, ...]:
    """The clusters of that context, with the instance types that are recorded beside cdk.json.

    Raises:
        ConfigurationError: lists every mistake.
    """
    try:
        return read_clusters(raw, read_records(configuration_file()))
    except RecordError as error:
        raise ConfigurationError([str(error)]) from error


def cluster_named(cluster_id: str) -> ClusterConfig:
    """The cluster's entry in cdk.json.

    Raises:
        CommandError: cdk.json has a mistake, or no such cluster.
    """
    try:
        clusters = configured_clusters()
    except ConfigurationError as error:
        raise CommandError(str(error), hint="correct cdk.json") from error
    found = next((one for one in clusters if one.cluster_id == cluster_id), None)
    if found is None:
        known = ", ".join(one.cluster_id for one in clusters)
        raise CommandError(f"cdk.json has no cluster {cluster_id}", hint=f"give --cluster with one of these: {known}")
    return found


def configured(cluster_id: str) -> ClusterConfig | None:
    """The cluster's entry in cdk.json; None without one, or while cdk.json has a mistake."""
    try:
        clusters = configured_clusters()
    except ConfigurationError:
        return None
    return next((one for one in clusters if one.cluster_id == cluster_id), None)


def region_of(cluster_id: str) -> str:
    """The region of the cluster in cdk.json; nothing without an entry.

    Raises:
        CommandError: cdk.json has a mistake.
    """
    if not configuration_file().exists():
        return ""
    try:
        return next((one.region for one in configured_clusters() if one.cluster_id == cluster_id), "")
    except ConfigurationError as error:
        text = f"the region of {cluster_id} is unknown: {error}"
        raise CommandError(text, hint="correct the file, or give --region") from error
