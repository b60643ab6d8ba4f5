"""Every alert and every error that node-fleet sends: how severe it is, its consequence, what follows, and what to do.

Messages and docs/operations.md show these rows. A kind may carry the object after a colon: "drain_failed:i-0ab".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from node_fleet.domain.model.value_class import value_class

Severity = Literal["info", "warning", "critical"]
End = Literal["reading", "quiet", "none"]
_ORDER = ("critical", "warning", "info")


@value_class
class Incident:
    """One kind of alert or error. severity: critical means that load is not served, or that data or money is at risk.

    meaning: what it is and its consequence. next_step: what node-fleet does by itself. action: what a person can do.
    end: how its end is known. "reading": every complete reading looks for the cause; "quiet": it has not occurred for
    alert_quiet_seconds; "none": it is over when it is reported, or only a person can know.
    cause: of an error, the kind of alert with the same cause.
    """

    name: str
    severity: Severity
    meaning: str
    next_step: str
    action: str
    end: End = "quiet"
    cause: str = ""

    @property
    def sentence(self) -> str:
        """The row in one line, for a message."""
        do = f"What you can do: {self.action}" if self.action != "nothing" else "You need to do nothing"
        return f"{self.name} ({self.severity}): {self.meaning} Next: {self.next_step}. {do} ({self.link})"

    @property
    def link(self) -> str:
        """Where the documents describe it."""
        return f"docs/operations.md, row {self.name}"


def _row(
    name: str,
    severity: Severity,
    meaning: str,
    next_step: str,
    action: str,
    *,
    end: End = "quiet",
    cause: str = "",
) -> Incident:
    return Incident(
        name=name, severity=severity, meaning=meaning, next_step=next_step, action=action, end=end, cause=cause
    )


_NEXT_RUN = "the next run tries again, within two minutes"
_BACK_OFF = "no run drains this worker again until its back-off ends; other workers can be removed"

ALERTS = (
    _row(
        "at_maximum",
        "critical",
        "The load asks for a worker and the maximum or a limit forbids it: pods stay pending, or the load stays high.",
        "every run checks again",
        "raise `max_workers`, or the limit that it names (`max_usd_per_hour`, `max_vcpu`), or lower the pods' requests",
        end="reading",
    ),
    _row(
        "circuit_breaker",
        "critical",
        "Several scale-ups in a row ended without a joined worker, so launches wait: pods stay pending.",
        "one launch is tried when the back-off ends",
        "fix the cause that the alert names, then `node-fleet resume --breaker`",
        end="reading",
    ),
    _row(
        "clock_difference",
        "warning",
        "The clock of the server differs from that of AWS, so pods' ages are wrong and no drain begins.",
        _NEXT_RUN,
        "start the time service on the server, as the alert describes",
    ),
    _row(
        "drain_failed",
        "warning",
        "A worker could not be drained: a pod or a PodDisruptionBudget refused. It is uncordoned and keeps its pods; "
        "one that AWS reclaims ends with its pods.",
        _BACK_OFF,
        "loosen the PodDisruptionBudget that the alert names, or annotate the node to keep it",
    ),
    _row(
        "drain_unknown",
        "warning",
        "It is unknown how a drain ended, because the server did not answer. No instance was terminated.",
        _BACK_OFF,
        "check that the server's SSM agent is online",
    ),
    _row(
        "exporter_stale",
        "warning",
        "Prometheus shows fewer nodes than EC2: no worker is removed, and none is launched for pending pods.",
        "every run checks again",
        "check the pod of kube-state-metrics and the targets of Prometheus",
        end="reading",
    ),
    _row(
        "figures_refused",
        "warning",
        "A metric has an impossible value and counts as missing.",
        "every run checks again",
        "find the worker or target that the alert names, and replace that worker",
        end="reading",
    ),
    _row(
        "hibernate_failed",
        "warning",
        "The fleet was to be switched off, and a step failed: its workers or its server still run and cost money.",
        "the next runs try again; after half an hour beyond the drain the fleet stays on until the end of the time off",
        "fix what the alert names, then `node-fleet sleep`",
    ),
    _row(
        "hibernate_kept_on",
        "warning",
        "The fleet is to be off for an hour and something forbids it: a Job, a metric, a label, a pod or a protection.",
        "every run checks again; it is switched off when nothing forbids it any more",
        "end or move what the alert names, or leave it",
    ),
    _row(
        "inspection_unknown",
        "warning",
        "The nodes and pods could not be read on the server, so no worker is removed.",
        _NEXT_RUN,
        "read the reason in the alert; `node-fleet doctor` checks the server",
    ),
    _row(
        "interruption_unsettled",
        "warning",
        "It is unknown whether AWS reclaimed a worker under notice. The worker stays cordoned and uncounted.",
        "none: the notice stays until a person or the next event settles it",
        "as the alert describes: `node-fleet resume --worker ID` when the instance runs",
        end="none",
    ),
    _row(
        "join_failed",
        "warning",
        "A launched worker did not join in time. It is terminated, unless `keep_unjoined` is set.",
        "the next run launches again, after a back-off that grows",
        "read the tag `BootstrapError` and the console output of the instance",
    ),
    _row(
        "join_unknown",
        "warning",
        "It is unknown whether a launched worker joined, so its instance is kept and counted.",
        "the next runs check it again",
        "check Prometheus and the server",
    ),
    _row(
        "launch_configuration",
        "critical",
        "EC2 refuses the launch as it is configured: launch template, subnet, image or permission.",
        "the next run tries again after a back-off",
        "fix what the alert names, and deploy",
    ),
    _row(
        "lock_taken_over",
        "info",
        "An earlier run ended without releasing the lock; this run took the lock over.",
        "this run continues the operation that was open",
        "nothing, unless it repeats: then read the earlier execution",
        end="none",
    ),
    _row(
        "many_not_ready",
        "critical",
        "Many workers are NotReady at once while their instances run: the cause is likely the server or the network.",
        "no worker is launched before a second reading confirms it",
        "check the K3s server and the network between it and the workers",
        end="reading",
    ),
    _row(
        "many_unhealthy",
        "critical",
        "Many workers are unhealthy at once, so the cause is likely shared: none of them is rebooted or replaced.",
        "every run checks again; repair continues when fewer are unhealthy",
        "check the K3s server, the network and the image of the workers",
        end="reading",
    ),
    _row(
        "metrics_missing",
        "warning",
        "Some metrics have been missing for several readings: no worker is removed.",
        "every run checks again",
        "check the targets page of Prometheus",
        end="reading",
    ),
    _row(
        "metrics_unavailable",
        "critical",
        "Prometheus cannot be read: only the minimum is enforced, so a rising load gets no worker.",
        "every run checks again",
        "`node-fleet doctor` shows the error of the function that reads Prometheus",
        end="reading",
    ),
    _row(
        "no_capacity",
        "critical",
        "EC2 has no capacity in any allowed pool: pods stay pending.",
        "the pools are tried again when their back-off ends",
        "add instance types or zones",
    ),
    _row(
        "node_disputed",
        "warning",
        "Several Nodes claim one instance, or a Node claims an instance that is not its own. The instance is kept.",
        "every run checks again",
        "find the machine that registered the wrong Node, and delete that Node",
        end="reading",
    ),
    _row(
        "not_forgotten",
        "warning",
        "The instance is terminated, but its Node could not be deleted.",
        "one of the next runs deletes it",
        "nothing at first; later, on the server: `sudo /usr/local/bin/k3s kubectl delete node NAME`",
        end="none",
    ),
    _row(
        "not_ready",
        "warning",
        "A worker has been NotReady for long; its pods do not run or their state is unknown.",
        "node-fleet replaces the worker when the minimum and the cooldown allow it",
        "read the journal of `k3s-agent` on the worker",
        end="reading",
    ),
    _row(
        "own_pods_waiting",
        "warning",
        "The pods of a drained worker found no place, so the drain was rolled back and the worker is uncordoned.",
        _BACK_OFF,
        "nothing; when it repeats, set `headroom_workers` so that removals leave more free capacity",
    ),
    _row(
        "pod_too_large",
        "warning",
        "A pod requests more than any worker of the configured types offers; it stays pending.",
        "the pod is listed and not counted",
        "lower its requests, or add a larger instance type",
        end="reading",
    ),
    _row(
        "pod_unfit",
        "warning",
        "No new worker could run a pod: selector, taint, volume, affinity or spread. It stays pending.",
        "the pod is listed and not counted",
        "`node-fleet explain NAMESPACE/POD` gives the reason",
        end="reading",
    ),
    _row(
        "pods_not_helped",
        "warning",
        "Pods stayed unschedulable after launches for them, so they are not counted for a while.",
        "they are counted again at the time that the alert names",
        "`kubectl describe pod` gives the scheduler's reason",
        end="reading",
    ),
    _row(
        "quota_exceeded",
        "critical",
        "An AWS quota is used up: no further worker can be launched.",
        "the next run tries again after a back-off",
        "request an increase in Service Quotas; the alert names the quota",
    ),
    _row(
        "rbac",
        "warning",
        "The command on the server has no permission to drain.",
        _BACK_OFF,
        "restart the server for the current permissions, or restore the cluster role",
    ),
    _row(
        "removals_paused",
        "warning",
        "So many removals are set aside that no further worker is removed. Launches continue.",
        "removals continue when one of them is settled",
        "settle them as their alerts describe, or raise `set_aside_limit`",
        end="reading",
    ),
    _row(
        "replaced_worker_kept",
        "warning",
        "The replacement of a worker runs, but the worker itself cannot be removed: one more than needed runs.",
        "the next runs try to remove it, or the idle rule removes a worker",
        "`node-fleet explain ID` says what keeps the worker",
    ),
    _row(
        "replacement_failed",
        "critical",
        "No replacement was launched for a worker that AWS reclaims.",
        "the next run does not count the reclaimed worker, and launches one when the minimum or the load asks for it",
        "read the reason in the alert",
        end="none",
    ),
    _row(
        "roll_out_stopped",
        "critical",
        "A worker of the new version did not prove itself, so no further drifted or expired worker is replaced.",
        "new workers are launched from the last good version, if there is one, until a newer one is deployed",
        "read the reason and the console output, then deploy a newer version or `node-fleet resume --roll-out`",
        end="none",
    ),
    _row(
        "scale_up_failed",
        "critical",
        "A scale-up ended without a worker.",
        "the next run tries again after a back-off",
        "read the cause, or open the execution",
    ),
    _row(
        "server_unreachable",
        "critical",
        "SSM does not reach the K3s server, so no worker is removed.",
        _NEXT_RUN,
        "check that the server runs and that its SSM agent is online",
    ),
    _row(
        "set_aside",
        "warning",
        "A removal did not end in time; it is set aside so that other operations can run.",
        "every run checks it and settles it when the instance has ended or the node can be uncordoned",
        "as the alert describes",
        end="reading",
    ),
    _row(
        "termination_refused",
        "critical",
        "EC2 refuses for good to terminate workers: removals pause and cost continues. Launches continue.",
        "removals are tried again when the pause ends",
        "turn termination protection off or fix the permission, then `node-fleet resume --breaker`",
    ),
    _row(
        "unjoined_kept",
        "warning",
        "An instance that never joined keeps running and costs money, because `keep_unjoined` is set.",
        "none: the instance stays",
        "inspect it, then terminate it",
        end="none",
    ),
    _row(
        "standby_kept",
        "info",
        "A worker could not be drained and stopped to become a standby worker, or EC2 refuses to terminate one to be "
        "renewed.",
        "a usual worker becomes a standby worker when it is removed as idle; the renewal is tried again in quiet time",
        "nothing, or remove what the alert names",
        end="none",
    ),
    _row(
        "standby_refused",
        "info",
        "EC2 had no capacity for a new standby worker, or did not stop one, which is terminated: fewer than "
        "standby_workers are ready. No load waits for it.",
        "the next one is launched after a back-off that grows, in quiet time",
        "add instance types or zones, fix what the alert names, or lower standby_workers",
        end="none",
    ),
    _row(
        "volumes_lost",
        "critical",
        "A worker ended with local volumes: their data is lost.",
        "none: node-fleet cannot restore data",
        "restore the data from your backup; the alert names the claims",
        end="none",
    ),
    _row(
        "worker_stopped",
        "warning",
        "AWS or a person stopped a worker instead of terminating it; it still costs its volume.",
        "none: the instance stays stopped",
        "terminate the instance, or start it and run `node-fleet resume --worker ID`",
        end="none",
    ),
    _row(
        "wake_failed",
        "critical",
        "The fleet is to be on, and its server is not healthy yet: nothing is served.",
        "every run tries again: it starts the server when it is stopped, and checks it when it runs. The alert is sent "
        "again every 15 minutes until it is healthy",
        "read the reason in the alert; start the server by hand, or check K3s on it with `journalctl -u k3s`",
    ),
)
"""By the kind of Alert."""


ERRORS = (
    _row(
        "MetricsUnavailableError",
        "critical",
        "Prometheus cannot be read, and no recent reading is cached. Only the minimum is enforced.",
        _NEXT_RUN,
        'see the row "Functions cannot reach Prometheus" of docs/operations.md',
        cause="metrics_unavailable",
    ),
    _row(
        "ServerNotFoundError",
        "critical",
        "No running instance has the server's tag, or several have it.",
        _NEXT_RUN,
        "tag the server `Role=k3s-master`, `Cluster=CLUSTER`",
        cause="server_unreachable",
    ),
    _row(
        "ServerUnreachableError",
        "critical",
        "SSM does not manage the server, or the outcome of a command is unknown.",
        "the drain is rolled back; the next run tries again",
        "check that the instance runs and that its agent is online: `aws ssm describe-instance-information`",
        cause="server_unreachable",
    ),
    _row(
        "LaunchError",
        "warning",
        "EC2 launched no instance.",
        "a later run tries again after a back-off, and usually succeeds",
        "read the message, which lists every try",
        cause="scale_up_failed",
    ),
    _row(
        "NoCapacityError",
        "critical",
        "EC2 refused a launch in every pool, and every pool is in back-off.",
        "the pools are tried again when their back-off ends",
        "add instance types or zones",
        cause="no_capacity",
    ),
    _row(
        "LaunchConfigurationError",
        "critical",
        "A launch cannot succeed with this configuration.",
        "the next run tries again after a back-off",
        "fix the template, subnet or permission that the message names, and deploy",
        cause="launch_configuration",
    ),
    _row(
        "QuotaExceededError",
        "critical",
        "An AWS quota is used up.",
        "the next run tries again after a back-off",
        "request an increase; the message names the quota",
        cause="quota_exceeded",
    ),
    _row(
        "NothingJoinedError",
        "critical",
        "None of the launched workers joined.",
        "they are terminated; the next run launches again after a back-off",
        'see the row "Workers do not join" of docs/operations.md',
        cause="join_failed",
    ),
    _row(
        "TerminationRefusedError",
        "critical",
        "EC2 refuses for good to terminate a worker (termination protection or a missing permission). The worker is "
        "uncordoned. Launches continue.",
        "removals pause for an hour, then longer",
        "fix what the message names, then `node-fleet resume --breaker`",
        cause="termination_refused",
    ),
    _row(
        "DrainFailedError",
        "warning",
        "A drain did not end with an empty node. No instance was terminated, and the worker is uncordoned.",
        _BACK_OFF,
        "loosen the PodDisruptionBudget that the message names, or annotate the node to keep it",
        cause="drain_failed",
    ),
    _row(
        "LeaseLostError",
        "info",
        "Another run acquired the lock, or the lock expired; this run made no further change.",
        "the other run continues",
        "nothing, unless it repeats",
        end="none",
    ),
    _row(
        "PausedError",
        "info",
        "An operator paused the fleet during this run, or protected the worker whose drain had just ended.",
        "the run rolls back what it began",
        "nothing",
        end="none",
    ),
    _row(
        "StateStoreError",
        "critical",
        "DynamoDB returned an error or did not respond; the message names the table.",
        _NEXT_RUN,
        "check that the table exists and that the settings name it",
    ),
    _row(
        "Ec2Error",
        "warning",
        "EC2 returned another error, or an instance still runs after its termination; that worker is uncordoned and in "
        "back-off.",
        _NEXT_RUN,
        "read the Cause",
    ),
    _row(
        "InvalidInputError",
        "warning",
        "The input, the payload or a stored value, such as the open operation, is malformed.",
        "none for an input, whose execution has ended; with a stored value every run ends the same way",
        "fix the caller that starts the execution. When the message names a stored value, remove its attribute from "
        'the state item: see the section "The manual unlock" of docs/operations.md',
        end="none",
    ),
    _row(
        "InvalidSettingsError",
        "critical",
        "Settings are invalid; the message lists all of them. The fleet is not scaled.",
        "every run ends the same way",
        "fix `cdk.json` and deploy",
        end="none",
    ),
    _row(
        "CleanUpUnfinishedError",
        "warning",
        "The clean-up cannot close the notice of a worker yet (the date of the notice is in the future, the drain "
        "still runs, or the server does not respond), or cannot delete the node of a terminated instance yet.",
        'Lambda retries the event after one and three minutes; after the third failure the topic receives "CleanUp '
        'gave up", and one of the next ticks deletes a remaining node',
        "nothing at first. For a notice see the row NoticesOpen. For a node run `sudo /usr/local/bin/k3s kubectl "
        "delete node INSTANCE_ID` on the server",
        end="none",
    ),
    _row(
        "NotificationError",
        "warning",
        "No topic accepted the message; scaling is not affected.",
        "the next run sends again the alerts whose cause lasts, and critical ones that are over with their report",
        "check the topic and the permission",
        end="none",
    ),
    _row(
        "RunFailedError",
        "warning",
        "The error of a failed run after the lock is released; the Cause is the first failure.",
        "as for that failure",
        "as for that failure",
        end="none",
    ),
)
"""By the class name of errors.py, which is the Error of a failed execution."""

RUN_FAILED = "RunFailedError"
"""The incident of every failed run, whatever its cause: the alarms about failed runs belong to it."""
OF_ALARM = {
    "NoCompletedTick": RUN_FAILED,
    "ScalingFailures": RUN_FAILED,
    "PrometheusUnavailable": "metrics_unavailable",
    "AtMaximum": "at_maximum",
    "JoinFailures": "join_failed",
    "DrainFailures": "drain_failed",
    "QuotaExceeded": "quota_exceeded",
}
"""Alarm -> the incident that has the same cause; any other alarm is an incident of its own."""
CRITICAL_ALARMS = ("NoCompletedTick", "PrometheusUnavailable", "AtMaximum", "QuotaExceeded", "LockHeld")
"""Their severity is critical, that of the others warning."""

ALWAYS_SHOWN = ("NoCompletedTick", "wake_failed")
"""What every channel shows each time: the alarm, because there may be no run left that could report the incident to
which it belongs, and the fleet that does not wake up, because it is reported again until it does."""

_BY_NAME = {one.name: one for one in (*ALERTS, *ERRORS)}


def incidents_of(kinds: Iterable[str]) -> tuple[Incident, ...]:
    """The rows of these kinds, each once, the most severe first."""
    found = dict.fromkeys(one for one in map(incident_of, kinds) if one)
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.severity)))


def incident_of_error(error: str) -> str:
    """The kind of the incident to which a failure with this error belongs."""
    row = _BY_NAME.get(error)
    return row.cause if row and row.cause else error


def most_severe(kinds: Iterable[str]) -> Severity:
    """The highest severity among these kinds; info when none has a row."""
    rows = incidents_of(kinds)
    return rows[0].severity if rows else "info"


def incident_of(kind: str) -> Incident | None:
    """The row of an alert's kind or of an error's class; None for a kind that a later version sends."""
    return _BY_NAME.get(kind.partition(":")[0])
