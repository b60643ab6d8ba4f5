"""The version of the launch template for new workers: the configured one, or the last one that proved itself.

A version whose K3s is newer than that of the server waits for the upgrade of the server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from node_fleet.domain.model.errors import LaunchConfigurationError
from node_fleet.domain.model.k3s_version import is_newer
from node_fleet.domain.model.memory import RollOut
from node_fleet.domain.model.snapshot import Snapshot, Worker
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.roll_out_stop import resumed
from node_fleet.domain.scaling.tick import Tick

if TYPE_CHECKING:
    pass


K3S_CHECK = "k3s"
"""The check of a decision while the configured version of the launch template waits for the server."""


def version_to_launch(roll_out: RollOut, configured: str, k3s_version: str) -> str:
    """The version of the launch template for a launch now.

    Raises:
        LaunchConfigurationError: it would install a newer K3s than the server has, and no earlier version is known.
    """
    version = roll_out.launch_version(configured, k3s_version)
    if not version and roll_out.waits_for_server(k3s_version):
        hold = launch_hold(roll_out, configured, k3s_version)
        raise LaunchConfigurationError(f"no worker was launched: no earlier version is known, and {hold}")
    return version


def launch_hold(roll_out: RollOut, configured: str, k3s_version: str) -> str:
    """Why workers are not launched from the configured version before the server is upgraded; empty when they are."""
    if not roll_out.waits_for_server(k3s_version):
        return ""
    return (
        f"version {configured} of the launch template waits: it installs K3s {k3s_version}, which is newer than "
        f"{roll_out.server_version} of the server. What you can do: node-fleet upgrade"
    )


def launch_checks(tick: Tick) -> list[Check]:
    """One check while the configured version of the launch template waits for the server."""
    if not tick.snapshot.launch_hold:
        return []
    return [Check(name=K3S_CHECK, verdict="ok", text=tick.snapshot.launch_hold, setting="k3s_version", aside=True)]


def with_good_version(tick: Tick) -> RollOut:
    """The roll-out with the configured version as the good one, as soon as one of its workers has proved itself."""
    roll_out, configured = _of_this_template(tick), tick.snapshot.template_version
    proven = {w.template_version for w in tick.usable if w.template_version and _has_proved_itself(tick, w)}
    if proven:
        proven -= _newer_than_server(tick, roll_out)
    if not tick.live or not proven:
        return roll_out
    if configured in proven and not roll_out.is_stopped(configured) and not tick.snapshot.launch_hold:
        return replace(roll_out, good_version=configured)
    older = proven - {configured}
    if not roll_out.good_version and older:
        return replace(roll_out, good_version=max(older, key=lambda version: (len(version), version)))
    return roll_out


def _newer_than_server(tick: Tick, roll_out: RollOut) -> set[str]:
    """The versions of the launch template whose workers have a newer K3s than the server."""
    return {w.template_version for w in tick.usable if is_newer(w.kubelet_version, roll_out.server_version)}


def _of_this_template(tick: Tick) -> RollOut:
    """The roll-out with the server's version, without those of a launch template that is not configured any more."""
    roll_out, template_id = with_server_version(tick.memory.roll_out, tick.snapshot), tick.snapshot.template_id
    if not tick.live or template_id in ("", roll_out.template_id):
        return roll_out
    known = replace(resumed(roll_out), good_version="") if roll_out.template_id else roll_out
    return replace(known, template_id=template_id)


def with_server_version(roll_out: RollOut, snapshot: Snapshot) -> RollOut:
    """The roll-out with the version of the server that was read now; the last known one when none was.

    A server that went back leaves no version good: the workers of the last one may be newer than it.
    """
    known, read = roll_out.server_version, snapshot.server_version
    if read in ("", known):
        return roll_out
    good_version = "" if is_newer(known, read) else roll_out.good_version
    return replace(roll_out, server_version=read, good_version=good_version)


def _has_proved_itself(tick: Tick, worker: Worker) -> bool:
    """Usable for bake_seconds; a worker that is not known as new has been usable for longer."""
    seen = tick.memory.fresh.get(worker.instance_id)
    if seen is None:
        return tick.now - worker.launched_at > tick.policy.join_limit_seconds + tick.policy.bake_seconds
    return tick.now - seen >= tick.policy.bake_seconds
