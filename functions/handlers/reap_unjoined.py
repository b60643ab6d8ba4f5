"""ReapUnjoined: terminates at most one orphan instance that certainly never joined; in doubt it terminates none.

From the same inspection it deletes the node of an ended instance, or removes the cordon of an ended operation. A
standby worker that the decision names is terminated instead: it runs no pod.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.adapters.leftovers import remove_cordon, remove_leftover
from node_fleet.adapters.node_listing import inspect_server, node_list_of
from node_fleet.domain.model.back_off import node_key
from node_fleet.domain.model.errors import TerminationRefusedError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.model.standby import STANDBY
from node_fleet.domain.scale_down.drain import alert_once
from node_fleet.domain.scale_up.join import unjoined_refusal_alert
from node_fleet.domain.scale_up.orphans import OrphanCheck, check_orphans, orphan_alert
from node_fleet.domain.scale_up.standby import kept_standby_alert
from node_fleet.domain.scaling.memory_update import record_failure
from node_fleet.logs import logger
from node_fleet.payload import add_alerts, put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `reap` ("reaped", "ended", "watching", "refused" or "dry_run") and the suspects in `memory`. Safe twice.

    An instance that is kept for inspection was reported when it was tagged, and is no candidate again. One that EC2
    refuses to terminate is reported once and stays a candidate; the run goes on.
    """
    services = load_services()
    run, memory = take(event, "run", Run), take(event, "memory", Memory)
    if event.get("decision", {}).get("rule") == STANDBY:
        return _end_standby(services, run, event)
    now, settings = services.clock.now(), services.settings
    snapshot, inspection = take(event, "snapshot", Snapshot), inspect_server(services.server)
    unjoined = snapshot.unjoined
    candidates = {w.instance_id: w for w in unjoined if not (w.join_failed and settings.keep_unjoined)}
    orphans = check_orphans(
        candidates.values(),
        node_list_of(inspection),
        memory.suspects,
        now=now,
        run_seconds=2 * settings.interval_seconds,
    )
    if snapshot.dead_nodes and inspection.known and not run.dry_run:
        alive = frozenset(i.instance_id for i in services.ec2.instances())
        if lost := remove_leftover(services, run, inspection, alive):
            event = add_alerts({**event, "notify": True}, alerts=lost)
    elif snapshot.has_leftovers and inspection.known and not run.dry_run:  # both commands may take longer than the step
        remove_cordon(services, inspection, services.state.renew(run))
    logger.info("orphan check", sentence=orphans.sentence, candidates=sorted(candidates))
    if run.dry_run or not orphans.terminate:
        status = "dry_run" if run.dry_run else "watching"
        return put(event, reap={"status": status, "detail": orphans.sentence}, memory=_with(memory, orphans))
    try:
        _terminate(services, run, orphans.terminate)
    except TerminationRefusedError as error:
        alert = unjoined_refusal_alert(orphans.terminate, str(error))
        memory, alerts = alert_once(_with(memory, orphans), alert, now, settings.alert_quiet_seconds)
        answer = put(event, reap={"status": "refused", "detail": str(error)}, memory=memory)
        return add_alerts({**answer, "notify": bool(alerts) or bool(event.get("notify"))}, alerts=alerts)
    alert = orphan_alert(candidates[orphans.terminate], now, kept=settings.keep_unjoined)
    answer = put(event, reap={"status": "reaped", "detail": orphans.sentence}, memory=_with(memory, orphans))
    return add_alerts(answer, alerts=[alert])


def _end_standby(services: Services, run: Run, event: dict[str, Any]) -> dict[str, Any]:
    """Terminate the standby worker that the decision names, unless it runs meanwhile: then it is a worker.

    One that EC2 refuses to terminate is reported once, and tried again after a back-off.
    """
    instance_id = event["decision"]["replace"]
    found = services.ec2.find_worker(instance_id)
    if run.dry_run or found is None or not found.is_standby:
        status = "dry_run" if run.dry_run else "watching"
        return put(event, reap={"status": status, "detail": f"{instance_id} is not terminated"})
    services.state.renew(run)
    try:
        services.ec2.terminate([instance_id])
    except TerminationRefusedError as error:
        now, policy = services.clock.now(), services.settings.policy()
        memory = record_failure(take(event, "memory", Memory), node_key(instance_id), now, policy)
        memory, alerts = alert_once(
            memory, kept_standby_alert(instance_id, str(error)), now, policy.alert_quiet_seconds
        )
        answer = put(event, reap={"status": "refused", "detail": str(error)}, memory=memory)
        return add_alerts({**answer, "notify": bool(alerts) or bool(event.get("notify"))}, alerts=alerts)
    logger.info("standby worker terminated", worker=instance_id, why=event["decision"]["sentence"])
    return put(event, reap={"status": "ended", "detail": f"standby worker {instance_id} is terminated"})


def _terminate(services: Services, run: Run, instance_id: str) -> None:
    services.state.renew(run)
    services.ec2.tag([instance_id], {"JoinFailed": "true"})
    if not services.settings.keep_unjoined:
        services.ec2.terminate([instance_id])


def _with(memory: Memory, orphans: OrphanCheck) -> Memory:
    return replace(memory, suspects=orphans.suspects)
