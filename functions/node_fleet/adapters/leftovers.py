"""Removes what ended workers and operations left behind: a node or a password secret, and a cordon, one a run."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_down.inspection import Inspection
from node_fleet.domain.scale_down.lost_volumes import lost_volumes_alert
from node_fleet.domain.scale_down.selection import leftovers, stray_cordons
from node_fleet.logs import logger

CHECKED_IN_EC2 = 20


def remove_leftover(services: Any, run: Run, inspection: Inspection, alive: frozenset[str]) -> tuple[Alert, ...]:
    """Delete at most one dead node or secret. alive: the instances that EC2 lists as pending or running.

    Returns the alert about volumes that ended with the node, unless a message has named them.
    """
    found = leftovers(inspection, alive)[:CHECKED_IN_EC2]
    listed = services.ec2.find(instance_id for _, instance_id in found)
    for node_name, instance_id in [pair for pair in found if _has_ended(listed.get(pair[1]))][:1]:
        state = services.state.renew(run)
        result = services.server.forget(node_name, instance_id)
        logger.info("dead node", node=node_name, instance=instance_id, answer=result.word)
        if result.succeeded and not state.has_reported_volumes(instance_id):
            return lost_volumes_alert(instance_id, result.volumes)
    return ()


def remove_cordon(services: Any, inspection: Inspection, state: FleetState) -> None:
    """Remove at most one cordon of an ended operation. state: read after the inspection."""
    for node_name, operation_id in stray_cordons(inspection, state.ids_under_notice | state.ids_set_aside)[:1]:
        result = services.server.uncordon(node_name, operation_id)
        logger.info("cordon of an ended operation", node=node_name, operation=operation_id, answer=result.word)


def _has_ended(instance: Instance | None) -> bool:
    """A standby worker is stopped: it registers its Node anew when it is started."""
    return instance is None or instance.state == "terminated" or (instance.is_standby and instance.state == "stopped")
