"""What starts what: the schedule, alerts, EC2 notices, ended executions, messages to Slack, the weekly report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn

from cdk_app.components.findings import accept
from cdk_app.components.function import HandlerFunction
from cdk_app.config import ClusterConfig

FAILED_STATUSES = ["FAILED", "TIMED_OUT", "ABORTED"]
ASYNC_RETRIES = 2
"""Lambda retries one and two minutes after a failure; after the last retry, the topic receives the event."""
SPOT_NOTICE_MINUTES = 2
"""A Spot instance ends two minutes after its notice. Other events keep EventBridge's 185 retries in 24 hours."""
# Monday 03:00 UTC: before the working week starts in Asia and Europe.
WEEKLY = {"week_day": "MON", "hour": "3", "minute": "0"}


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """Creates every rule and subscription of a cluster."""

    stack: cdk.Stack
    config: ClusterConfig
    functions: Mapping[str, HandlerFunction]
    state_machines: Mapping[str, sfn.StateMachine]
    messages: sns.Topic
    alerts: sns.Topic
    undelivered: sqs.IQueue

    def create(self) -> None:
        self._start_ticks()
        self._clean_up_after_failures()
        self._handle_notices()
        _subscribe(self.alerts, self.functions["StartOnAlert"])
        _subscribe(self.messages, self.functions["SlackMessage"])
        if self.config.alarm_email:
            self.messages.add_subscription(subscriptions.EmailSubscription(self.config.alarm_email))
        self._report_weekly()

    def _rule_name(self, purpose: str) -> str:
        return f"{self.config.cluster_id}-{purpose}"

    def _start_ticks(self) -> None:
        interval = cdk.Duration.seconds(self.config.settings.interval_seconds)
        rule = events.Rule(
            self.stack,
            "Tick",
            rule_name=self._rule_name("autoscaler-trigger"),
            description="Starts one tick of the autoscaler; disable it to stop scaling in an emergency",
            schedule=events.Schedule.rate(interval),
        )
        tick = {"trigger": "schedule", "scheduled_at": events.EventField.time}
        rule.add_target(
            targets.SfnStateMachine(
                self.state_machines["autoscaler"],
                role=_starting_role(self.state_machines["autoscaler"]),
                input=events.RuleTargetInput.from_object(tick),
                retry_attempts=2,
                max_event_age=interval,
            )
        )

    def _clean_up_after_failures(self) -> None:
        rule = events.Rule(
            self.stack,
            "UncleanEnd",
            rule_name=self._rule_name("unclean-end"),
            description="An execution failed, timed out or was aborted: CleanUp closes the operation that it left open",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "status": FAILED_STATUSES,
                    "stateMachineArn": [machine.state_machine_arn for machine in self.state_machines.values()],
                },
            ),
        )
        clean_up = self.functions["CleanUp"]
        rule.add_target(targets.LambdaFunction(clean_up.version, dead_letter_queue=self.undelivered))
        self._report_last_failure("CleanUp")

    def _report_last_failure(self, name: str) -> None:
        """Publish the event of this function whose last try has failed; Lambda drops it otherwise."""
        handler = self.functions[name]
        # version.configure_async_invoke would add a grant of its own; permissions.py lists every grant.
        lambda_.CfnEventInvokeConfig(
            self.stack,
            f"{name}GivenUp",
            function_name=handler.function.function_name,
            qualifier=handler.version.version,
            maximum_retry_attempts=ASYNC_RETRIES,
            destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=self.messages.topic_arn)
            ),
        )

    def _handle_notices(self) -> None:
        machine = self.state_machines["interruption"]
        role, patterns = _starting_role(machine), _notice_patterns()
        if not self.config.settings.handle_rebalance:
            del patterns["Rebalance"]
        for construct_id, pattern in patterns.items():
            rule = events.Rule(
                self.stack,
                construct_id,
                rule_name=self._rule_name(_dashed(construct_id)),
                description="A notice of AWS about an instance; the workflow ignores instances outside this fleet",
                event_pattern=pattern,
            )
            age = cdk.Duration.minutes(SPOT_NOTICE_MINUTES) if construct_id == "SpotInterruption" else None
            rule.add_target(
                targets.SfnStateMachine(machine, role=role, max_event_age=age, dead_letter_queue=self.undelivered)
            )

    def _report_weekly(self) -> None:
        rule = events.Rule(
            self.stack,
            "EveryWeek",
            rule_name=self._rule_name("weekly-report"),
            description="Starts the weekly cost report",
            schedule=events.Schedule.cron(**WEEKLY),
        )
        rule.add_target(targets.LambdaFunction(self.functions["WeeklyReport"].version, retry_attempts=2))
        self._report_last_failure("WeeklyReport")


def undelivered_events(stack: cdk.Stack, config: ClusterConfig) -> sqs.Queue:
    """The queue of events that EventBridge could not deliver; each message keeps the event and the error."""
    queue = sqs.Queue(
        stack,
        "UndeliveredEvents",
        queue_name=f"{config.cluster_id}-undelivered-events",
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=cdk.Duration.days(14),
    )
    accept(queue, "SQS3", "the queue is itself the dead-letter queue of the EventBridge rules")
    return queue


def _starting_role(machine: sfn.StateMachine) -> iam.Role:
    """The role with which EventBridge starts this workflow; only a rule of this account can use it."""
    return iam.Role(
        machine,
        "EventsRole",
        assumed_by=iam.ServicePrincipal(
            "events.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": cdk.Stack.of(machine).account}}
        ),
    )


def _subscribe(topic: sns.Topic, handler: HandlerFunction) -> None:
    topic.add_subscription(subscriptions.LambdaSubscription(handler.version))
    reason = "SNS delivers to a published version as well as to a function"
    cdk.Validations.of(handler).acknowledge(cdk.Acknowledgment(id="CloudFormation-Validate::W3694", reason=reason))


def _notice_patterns() -> dict[str, events.EventPattern]:
    ec2 = {
        "SpotInterruption": "EC2 Spot Instance Interruption Warning",
        "Rebalance": "EC2 Instance Rebalance Recommendation",
    }
    found = {name: events.EventPattern(source=["aws.ec2"], detail_type=[kind]) for name, kind in ec2.items()}
    found["InstanceStateChange"] = events.EventPattern(
        source=["aws.ec2"],
        detail_type=["EC2 Instance State-change Notification"],
        detail={"state": ["stopped", "terminated"]},
    )
    found["ScheduledChange"] = events.EventPattern(
        source=["aws.health"],
        detail_type=["AWS Health Event"],
        detail={"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    )
    return found


def _dashed(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")
