"""The nine alarms as data: the metric, the condition under which each fires, and what the operator does about it."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk.aws_cloudwatch import ComparisonOperator, TreatMissingData

from node_fleet.domain.notify.incidents import Severity

AT_LEAST = ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
BELOW = ComparisonOperator.LESS_THAN_THRESHOLD
MISSING_IS_FINE = TreatMissingData.NOT_BREACHING
MISSING_FIRES = TreatMissingData.BREACHING


@dataclass(frozen=True, kw_only=True)
class AlarmRule:
    """One alarm. `log_of` with `pattern` counts log lines of that function, or reads their field `value`.

    `log_of` "states" uses a metric of Step Functions, and "queue" one of the queue of undelivered events.
    `while_off` False: it does not fire while `hibernate` has switched the fleet off, when nothing is measured.
    `while_held` False: it does not fire while ticks find the lock held, because a run writes its figures when it ends.
    `threshold` "maximum" means the setting max_workers. `description`: what happened and its consequence. `action`:
    what a person can do.
    """

    name: str
    description: str
    action: str
    metric: str
    comparison: ComparisonOperator = AT_LEAST
    threshold: float | str = 1
    period_seconds: int = 300
    periods: int = 1
    missing: TreatMissingData = MISSING_IS_FINE
    statistic: str = "Sum"
    log_of: str = ""
    pattern: str = ""
    value: str = "1"
    severity: Severity = "warning"
    next_step: str = "every run tries again"
    while_off: bool = True
    while_held: bool = True

    @property
    def text(self) -> str:
        """The description that CloudWatch shows and sends."""
        link = f"docs/operations.md, row {self.name}"
        return f"{self.description} {self.action} Severity: {self.severity}. Next: {self.next_step}. ({link})"


def _alert_pattern(*kinds: str) -> str:
    """Matches a log line of Notify whose alerts name one of these kinds."""
    return "{ " + " || ".join(f'$.alerts = "*{kind}*"' for kind in kinds) + " }"


ALARMS = (
    AlarmRule(
        name="NoCompletedTick",
        description="No run of the autoscaler completed for 10 minutes, so the fleet is not scaled.",
        action="Open the executions of the state machine. If they failed, read the Cause of the newest one. If none "
        "started, check that the rule ...-autoscaler-trigger is enabled.",
        metric="ExecutionsSucceeded",
        comparison=BELOW,
        periods=2,
        missing=MISSING_FIRES,
        log_of="states",
        severity="critical",
        next_step="EventBridge starts a run every two minutes as long as its rule is enabled",
    ),
    AlarmRule(
        name="ScalingFailures",
        description="A run ended with a failure.",
        action="Open the failed execution: the Cause of its last state names what failed and what remains; "
        "docs/operations.md lists every failure end.",
        metric="ScalingFailures",
        severity="warning",
        next_step="node-fleet cleans up by itself and tries again at the next tick",
    ),
    AlarmRule(
        name="PrometheusUnavailable",
        description="No CPU figure for 10 minutes: node-fleet removes no worker and adds workers only up to the "
        "minimum size.",
        action="On the server, check that the Prometheus pod runs, that its port answers, and that the password in the "
        "secret is right.",
        metric="CpuPercent",
        comparison=BELOW,
        periods=2,
        missing=MISSING_FIRES,
        statistic="SampleCount",
        severity="critical",
        next_step="every run tries to read it again",
        while_off=False,
        while_held=False,
    ),
    AlarmRule(
        name="AtMaximum",
        description="The fleet has been at max_workers for 15 minutes.",
        action="If pods are pending, raise max_workers in cdk.json and deploy. If none is pending, find the pods whose "
        "requests keep the workers from being removed.",
        metric="CurrentNodeCount",
        threshold="maximum",
        periods=3,
        statistic="Minimum",
        severity="critical",
        next_step="every run checks again",
    ),
    AlarmRule(
        name="JoinFailures",
        description="A launched worker did not join in time; node-fleet terminates it and tries again.",
        action="Read the tag BootstrapError of the instance and its console output. The usual cause is an old join "
        "token in Secrets Manager or a rebuilt server.",
        metric="JoinFailures",
        log_of="Notify",
        pattern=_alert_pattern("join_failed"),
        severity="warning",
        next_step="the next run launches again, after a back-off that grows",
    ),
    AlarmRule(
        name="DrainFailures",
        description="A drain failed or timed out. node-fleet reinstates the worker, which then stays in back-off.",
        action="The message names the pod or PodDisruptionBudget that refused: loosen that budget, or annotate the "
        "node with cluster-autoscaler.kubernetes.io/scale-down-disabled=true.",
        metric="DrainFailures",
        log_of="Notify",
        pattern=_alert_pattern("drain_failed", "drain_unknown", "rbac"),
        severity="warning",
        next_step="other workers can be removed; this one is drained again after its back-off",
    ),
    AlarmRule(
        name="QuotaExceeded",
        description="AWS refused a launch because a quota is used up; the message names the quota.",
        action="Request an increase in Service Quotas (EC2, Running On-Demand or All Spot instances), or lower "
        "max_workers.",
        metric="QuotaExceeded",
        log_of="Notify",
        pattern=_alert_pattern("quota_exceeded"),
        severity="critical",
        next_step="the next run tries again after a back-off",
    ),
    AlarmRule(
        name="LockHeld",
        description="Every tick of the last 30 minutes found the lock held, so no tick scaled the fleet.",
        action="Find the execution that still runs. If none runs, run ./node-fleet unlock, which releases the lock "
        "safely and reports the open operation.",
        metric="LockHeld",
        periods=6,
        statistic="Minimum",
        log_of="AcquireLock",
        pattern='{ $.message = "lock" }',
        value="$.held",
        severity="critical",
        next_step="a lock whose owner has died expires after 6 minutes, and the next run takes it over",
    ),
    AlarmRule(
        name="EventsUndelivered",
        description="EventBridge could not deliver an event: a Spot notice within two minutes, any other notice or a "
        "failed execution within 24 hours. node-fleet did not respond to it; the next tick replaces a worker "
        "that has ended.",
        action="Read the event and its error in the queue ...-undelivered-events, and see docs/operations.md for what "
        "to do with it.",
        metric="ApproximateNumberOfMessagesVisible",
        statistic="Maximum",
        log_of="queue",
        severity="warning",
        next_step="the next tick replaces a worker that has ended",
    ),
)
