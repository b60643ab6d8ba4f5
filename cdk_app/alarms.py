"""The eight alarms as data: what is measured, when it rings, and what the person who is woken up does about it."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk.aws_cloudwatch import ComparisonOperator, TreatMissingData

AT_LEAST = ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
BELOW = ComparisonOperator.LESS_THAN_THRESHOLD
QUIET = TreatMissingData.NOT_BREACHING
SILENCE_IS_TROUBLE = TreatMissingData.BREACHING


@dataclass(frozen=True, kw_only=True)
class AlarmRule:
    """One alarm. `log_of` with `pattern` counts log lines of that function; "states" asks Step Functions itself.

    `threshold` "maximum" means the setting MAX_NODES.
    """

    name: str
    description: str
    metric: str
    comparison: ComparisonOperator
    threshold: float | str
    period_seconds: int
    periods: int
    missing: TreatMissingData
    statistic: str = "Sum"
    log_of: str = ""
    pattern: str = ""


def _told(*kinds: str) -> str:
    return "{ " + " || ".join(f'$.alerts = "*{kind}*"' for kind in kinds) + " }"


ALARMS = (
    AlarmRule(
        name="NoCompletedTick",
        description="No run of the autoscaler completed for 10 minutes. Open the state machine's executions: all "
        "failed? read the Cause of the newest; none started? see whether the rule ...-autoscaler-trigger is enabled.",
        metric="ExecutionsSucceeded",
        comparison=BELOW,
        threshold=1,
        period_seconds=300,
        periods=2,
        missing=SILENCE_IS_TROUBLE,
        log_of="states",
    ),
    AlarmRule(
        name="ScalingFailures",
        description="A run ended with a failure. Open the red execution: the Cause of its last state says what failed "
        "and what was left; docs/operations.md lists every failure end. Nothing needs undoing by hand.",
        metric="ScalingFailures",
        comparison=AT_LEAST,
        threshold=1,
        period_seconds=300,
        periods=1,
        missing=QUIET,
    ),
    AlarmRule(
        name="PrometheusUnavailable",
        description="No CPU figure for 10 minutes: workers are not removed, and added only up to the minimum. On the "
        "server: is the Prometheus pod running, does it answer on its port, is the secret's password still right?",
        metric="CpuPercent",
        comparison=BELOW,
        threshold=1,
        period_seconds=300,
        periods=2,
        missing=SILENCE_IS_TROUBLE,
        statistic="SampleCount",
    ),
    AlarmRule(
        name="AtMaximum",
        description="The fleet has been at MAX_NODES for 15 minutes. If pods wait, raise max_workers in cdk.json and "
        "deploy; if none waits, look which pods' requests keep the workers from being removed.",
        metric="CurrentNodeCount",
        comparison=AT_LEAST,
        threshold="maximum",
        period_seconds=300,
        periods=3,
        missing=QUIET,
        statistic="Minimum",
    ),
    AlarmRule(
        name="JoinFailures",
        description="A launched worker did not join in time. Read the instance's tag BootstrapError and its console "
        "output; most often the join token in Secrets Manager is old or the server was rebuilt.",
        metric="JoinFailures",
        comparison=AT_LEAST,
        threshold=1,
        period_seconds=300,
        periods=1,
        missing=QUIET,
        log_of="Notify",
        pattern=_told("join_failed"),
    ),
    AlarmRule(
        name="DrainFailures",
        description="A drain failed or timed out; its worker was given back and is left alone for a while. The message "
        "names the pod or budget that refused: loosen that budget, or mark the worker scale-down-disabled.",
        metric="DrainFailures",
        comparison=AT_LEAST,
        threshold=1,
        period_seconds=300,
        periods=1,
        missing=QUIET,
        log_of="Notify",
        pattern=_told("drain_failed", "drain_unknown", "rbac"),
    ),
    AlarmRule(
        name="QuotaExceeded",
        description="AWS refused a launch because a quota is used up; the message names it. Ask for more in Service "
        "Quotas (EC2, Running On-Demand or All Spot instances), or lower max_workers.",
        metric="QuotaExceeded",
        comparison=AT_LEAST,
        threshold=1,
        period_seconds=300,
        periods=1,
        missing=QUIET,
        log_of="Notify",
        pattern=_told("quota_exceeded"),
    ),
    AlarmRule(
        name="LockHeld",
        description="Every tick of the last 30 minutes found the lock held. Look for an execution that still runs; if "
        "none does, run ./node-fleet unlock, which frees the lock with its fence and says what was open.",
        metric="LockHeld",
        comparison=AT_LEAST,
        threshold=1,
        period_seconds=300,
        periods=6,
        missing=QUIET,
        log_of="AcquireLock",
        pattern='{ $.message = "lock" && $.status = "held" }',
    ),
)
