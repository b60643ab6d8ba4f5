"""Drift and expiry: how a worker differs from one that would be launched today, and when it has reached its age limit.

Facts that are unknown, of the worker or of the launch, are never a difference.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from node_fleet.domain.model.k3s_version import is_newer
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Instance, LaunchImage, Snapshot, StandbyWorker, Worker
from node_fleet.domain.model.standby import READY
from node_fleet.domain.model.value_class import value_class

MARKED = "marked for rotation by"
IMAGE_SECONDS = 3600
"""How long the image of a template version counts as known: its public parameter changes a few times a month."""


@value_class
class LaunchFacts:
    """What a worker would be launched from today. An empty value is unknown and is compared with nothing.

    image_at: when EC2 named the image. A later worker may have a newer one, so its image is compared after the next
    answer only.
    """

    template_id: str = ""
    template_version: str = ""
    image_id: str = ""
    image_at: int = 0
    bootstrap_hash: str = ""
    k3s_version: str = ""
    subnet_ids: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()


def differences(instance: Instance, today: LaunchFacts, kubelet_version: str = "") -> tuple[str, ...]:
    """Each difference in words, for example "launch template version 3, today 4"; empty for a current worker.

    kubelet_version: what the worker's Node states; without it, the tag of its launch counts.
    """
    return tuple(_differences(instance, today, kubelet_version or instance.k3s_version))


def _differences(instance: Instance, today: LaunchFacts, k3s_version: str) -> Iterator[str]:
    if instance.rotate:
        yield f"{MARKED} {instance.rotate}"
    same_template = not instance.template_id or not today.template_id or instance.template_id == today.template_id
    if not same_template:
        yield f"launch template {instance.template_id}, today {today.template_id}"
    pairs = (
        ("launch template version", instance.template_version, today.template_version if same_template else ""),
        ("K3s", k3s_version, today.k3s_version),
        ("bootstrap", instance.bootstrap_hash, today.bootstrap_hash),
        ("image", instance.image_id, today.image_id if instance.launched_at < today.image_at else ""),
    )
    for name, own, wanted in pairs:
        if own and wanted and own != wanted:
            yield f"{name} {own}, today {wanted}"
    if instance.subnet_id and today.subnet_ids and instance.subnet_id not in today.subnet_ids:
        yield f"{instance.subnet_id} is not a configured subnet"
    if instance.instance_type and today.instance_types and instance.instance_type not in today.instance_types:
        yield f"{instance.instance_type} is not a configured instance type"


def with_drift(snapshot: Snapshot, instances: Iterable[Instance], today: LaunchFacts) -> Snapshot:
    """The snapshot with the template version of each worker, and its differences in words.

    A version of another launch template than the configured one is none that can be launched. The version of a kubelet
    stays only where it is not that of the worker's tag, or newer than the server: the payload is small.
    """
    ours: Mapping[str, Instance] = {i.instance_id: i for i in instances}

    def drifted(worker: Worker) -> Worker:
        instance = ours.get(worker.instance_id)
        if instance is None:
            return worker
        words = "; ".join(differences(instance, today, worker.kubelet_version))
        is_ours = instance.template_id in ("", snapshot.template_id) or not snapshot.template_id
        version = instance.template_version if is_ours else ""
        is_tagged = worker.kubelet_version == instance.k3s_version
        is_usual = is_tagged and not is_newer(worker.kubelet_version, snapshot.server_version)
        kubelet = "" if is_usual else worker.kubelet_version
        return replace(worker, template_version=version, drift=words, kubelet_version=kubelet)

    return replace(snapshot, workers=tuple(drifted(w) for w in snapshot.workers))


def with_standby_workers(
    snapshot: Snapshot, standby: Iterable[Instance], today: LaunchFacts, policy: Policy
) -> Snapshot:
    """The snapshot with the stopped standby workers, and why one of them is to be renewed."""

    def unfit(instance: Instance) -> str:
        if instance.standby != READY:
            return "it did not join again after its start"
        if why := _not_startable(instance, policy):
            return why
        words = "; ".join(differences(instance, today))
        words = words if policy.drift == "replace" or words.startswith(MARKED) else ""
        expires = expires_at(instance.instance_id, instance.launched_at, policy)
        return words or ("it has reached its age limit" if expires and expires <= snapshot.at else "")

    workers = (
        StandbyWorker(
            instance_id=one.instance_id,
            zone=one.zone,
            instance_type=one.instance_type,
            launched_at=one.launched_at,
            is_stopping=one.state == "stopping",
            is_broken=one.standby != READY,
            unfit=unfit(one),
        )
        for one in standby
    )
    return replace(snapshot, standby=tuple(workers))


def _not_startable(standby: Instance, policy: Policy) -> str:
    """Why no scale-up can start the standby worker, whatever `drift` is; empty when one can."""
    if policy.zone_names and standby.zone not in policy.zone_names:
        return f"it cannot be started: {standby.zone} is not a configured zone"
    if standby.instance_type not in policy.instance_types:
        return f"it cannot be started: {standby.instance_type} is not a configured instance type"
    return ""


def is_image_due(known: LaunchImage, version: str, now: int) -> bool:
    """Whether EC2 must be asked which image this template version gives."""
    return known.version != version or not 0 <= now - known.at < IMAGE_SECONDS


def expires_at(instance_id: str, launched_at: int, policy: Policy) -> int:
    """The moment (epoch) from which a worker is expired; 0 when workers have no age limit.

    The jitter shortens the age of each worker by a share that follows from its id: a fleet that was launched together
    does not end together, and no worker becomes older than expire_after_seconds.
    """
    limit = policy.expire_after_seconds
    if not limit:
        return 0
    share = zlib.crc32(instance_id.encode()) / 2**32
    return launched_at + limit - int(limit * policy.expire_jitter_percent / 100 * share)


def expiry_words(worker: Worker, policy: Policy, now: int) -> str:
    """Why the worker is expired, for example "86400 s old, its limit is 86000 s"; empty while it is not."""
    at = expires_at(worker.instance_id, worker.launched_at, policy)
    if not at or now < at:
        return ""
    return f"{now - worker.launched_at} s old, its limit is {at - worker.launched_at} s"
