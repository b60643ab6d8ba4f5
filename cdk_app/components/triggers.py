"""What starts what: the schedule, alerts, notices of EC2, ended executions, messages to Slack, the weekly report.

A function whose handler does not exist is not connected: the templates follow the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions

from cdk_app.components.function import HandlerFunction

if TYPE_CHECKING:
    from cdk_app.stacks.autoscaler import AutoscalerStack

UNCLEAN_ENDS = ["FAILED", "TIMED_OUT", "ABORTED"]
TRIES_AGAIN = 2
"""Lambda's own, one and two minutes after a failure; after the last one the topic is told what still stands."""
# Monday 03:00 UTC is morning in Dhaka, before the working week's first stand-up in Europe.
WEEKLY = {"week_day": "MON", "hour": "3", "minute": "0"}


def connect(stack: AutoscalerStack) -> None:
    """Make every rule and subscription whose target exists."""
    _schedule(stack)
    _clean_up(stack)
    _notices(stack)
    functions, config = stack.functions, stack.config
    for name, topic in {"StartOnAlert": stack.alert_topic, "SlackMessage": stack.topic}.items():
        if name in functions:
            _subscribe(topic, functions[name])
    if config.alarm_email:
        stack.topic.add_subscription(subscriptions.EmailSubscription(config.alarm_email))
    if "WeeklyReport" in functions:
        rule = events.Rule(
            stack,
            "EveryWeek",
            rule_name=f"{config.cluster_id}-weekly-report",
            description="Starts the weekly cost report",
            schedule=events.Schedule.cron(**WEEKLY),
        )
        rule.add_target(targets.LambdaFunction(functions["WeeklyReport"].version, retry_attempts=2))


def _subscribe(topic: sns.Topic, handler: HandlerFunction) -> None:
    topic.add_subscription(subscriptions.LambdaSubscription(handler.version))
    reason = "SNS delivers to a published version as well as to a function"
    cdk.Validations.of(handler).acknowledge(cdk.Acknowledgment(id="CloudFormation-Validate::W3694", reason=reason))


def _schedule(stack: AutoscalerStack) -> None:
    machine = stack.state_machines.get("autoscaler")
    if machine is None:
        return
    interval = cdk.Duration.seconds(stack.config.settings.interval_seconds)
    rule = events.Rule(
        stack,
        "Tick",
        rule_name=f"{stack.config.cluster_id}-autoscaler-trigger",
        description="Starts one tick of the autoscaler; disable it to stop scaling in an emergency",
        schedule=events.Schedule.rate(interval),
    )
    rule.add_target(
        targets.SfnStateMachine(
            machine,
            input=events.RuleTargetInput.from_object({"trigger": "schedule", "scheduled_at": events.EventField.time}),
            retry_attempts=2,
            max_event_age=interval,
        )
    )


def _clean_up(stack: AutoscalerStack) -> None:
    if "CleanUp" not in stack.functions or not stack.state_machines:
        return
    rule = events.Rule(
        stack,
        "UncleanEnd",
        rule_name=f"{stack.config.cluster_id}-unclean-end",
        description="An execution failed, timed out or was aborted: whatever it left is closed",
        event_pattern=events.EventPattern(
            source=["aws.states"],
            detail_type=["Step Functions Execution Status Change"],
            detail={
                "status": UNCLEAN_ENDS,
                "stateMachineArn": [machine.state_machine_arn for machine in stack.state_machines.values()],
            },
        ),
    )
    clean_up = stack.functions["CleanUp"]
    rule.add_target(targets.LambdaFunction(clean_up.version, retry_attempts=5))
    # Not version.configure_async_invoke: that grants by itself, and every grant stands in permissions.py.
    lambda_.CfnEventInvokeConfig(
        stack,
        "CleanUpGivenUp",
        function_name=clean_up.function.function_name,
        qualifier=clean_up.version.version,
        maximum_retry_attempts=TRIES_AGAIN,
        destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
            on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=stack.topic.topic_arn)
        ),
    )


def _notices(stack: AutoscalerStack) -> None:
    machine = stack.state_machines.get("interruption")
    if machine is None:
        return
    patterns = _notice_patterns()
    if not stack.config.settings.handle_rebalance:
        del patterns["RebalanceRecommendation"]
    for construct_id, pattern in patterns.items():
        rule = events.Rule(
            stack,
            construct_id,
            rule_name=f"{stack.config.cluster_id}-{_dashed(construct_id)}",
            description="AWS announces something about an instance; the workflow ignores those that are not ours",
            event_pattern=pattern,
        )
        rule.add_target(targets.SfnStateMachine(machine, retry_attempts=2, max_event_age=cdk.Duration.minutes(2)))


def _notice_patterns() -> dict[str, events.EventPattern]:
    ec2 = {
        "SpotInterruption": "EC2 Spot Instance Interruption Warning",
        "RebalanceRecommendation": "EC2 Instance Rebalance Recommendation",
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
