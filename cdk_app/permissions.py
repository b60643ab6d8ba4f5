"""Who may do what: for each function the AWS actions that its code calls, on which resource, under which condition.

Plain data. The autoscaler stack turns resource and condition words into ARNs and policies; docs/security.md prints the
reasons; a test holds the actions against the calls that the laptop cloud records.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grant:
    """Actions on a resource (a word of components/resources.py). by_aws: AWS checks it on the way, no code calls it."""

    actions: tuple[str, ...]
    on: str
    why: str
    when: str = ""
    by_aws: bool = False


@dataclass(frozen=True, slots=True)
class FunctionNeeds:
    """What one function is given."""

    grants: tuple[Grant, ...] = ()
    prometheus: bool = False
    memory_mib: int = 256
    timeout_seconds: int = 30
    """Only for functions outside the state machines; the others end before their state's TimeoutSeconds."""


OWN = "own_items"
READ_STATE = Grant(("dynamodb:GetItem",), "state_table", "reads the state item", when=OWN)
HOLD_LEASE = Grant(
    ("dynamodb:UpdateItem",), "state_table", "proves and renews its lease before it changes anything", when=OWN
)
RECORD_EVENT = Grant(("dynamodb:PutItem",), "events_table", "records what happened", when=OWN)
READ_EVENTS = Grant(("dynamodb:Query",), "events_table", "reads what happened", when=OWN)
RECORD_READING = Grant(("dynamodb:PutItem",), "history_table", "stores the reading", when=OWN)
READ_HISTORY = Grant(("dynamodb:Query",), "history_table", "reads past readings", when=OWN)
SEE_INSTANCES = Grant(("ec2:DescribeInstances",), "anything", "lists the fleet and finds the server by its tag")
SEE_VOLUMES = Grant(("ec2:DescribeVolumes",), "anything", "looks for volumes of ours that no instance uses")
PROMETHEUS_LOGIN = Grant(("secretsmanager:GetSecretValue",), "prometheus_secret", "Prometheus asks for a password")
SLACK_HOOK = Grant(("secretsmanager:GetSecretValue",), "slack_secret", "the webhook's address is a secret")
TELL_PEOPLE = Grant(("sns:Publish",), "topic", "publishes the message of a run")
GIVEN_UP = Grant(("sns:Publish",), "topic", "Lambda tells people when the last try has failed", by_aws=True)
START_RUN = Grant(("states:StartExecution",), "autoscaler", "starts a run of the workflow")
WATCH_COMMAND = Grant(("ssm:GetCommandInvocation",), "anything", "reads how a command ended")
SEE_MANAGED = Grant(
    ("ssm:DescribeInstanceInformation",), "anything", "asks whether Systems Manager reaches the server before it sends"
)
CANCEL_COMMAND = Grant(("ssm:CancelCommand",), "anything", "stops a command whose outcome is unknown")
TERMINATE = Grant(("ec2:TerminateInstances",), "instances", "removes a worker", when="our_worker")
TAG_WORKER = Grant(("ec2:CreateTags",), "instances", "marks an instance that did not join", when="our_worker")
LAUNCH = (
    Grant(("ec2:RunInstances",), "launch_inputs", "launches from our template into our subnets"),
    Grant(("ec2:RunInstances",), "instances", "the instance must carry our tags", when="tagged_as_ours", by_aws=True),
    Grant(("ec2:RunInstances",), "launch_parts", "an instance brings a volume and a network interface", by_aws=True),
    Grant(("ec2:CreateTags",), "launched_kinds", "tags arrive with the launch", when="while_launching", by_aws=True),
    Grant(("iam:PassRole",), "worker_role", "the launched worker gets the workers' role", when="to_ec2", by_aws=True),
)
LAUNCH_IMAGE = Grant(
    ("ssm:GetParameters",), "image_parameter", "the template names Amazon Linux by its public parameter", by_aws=True
)


def send(document: str, why: str) -> tuple[Grant, ...]:
    """What a function needs to start one of our documents on the server."""
    return (
        Grant(("ssm:SendCommand",), f"document:{document}", why),
        Grant(("ssm:SendCommand",), "instances", "only the K3s server may be told", when="the_server", by_aws=True),
        Grant(("ssm:DescribeInstanceInformation",), "anything", "asks whether the server's agent answers"),
        SEE_INSTANCES,
    )


def command(document: str, why: str) -> tuple[Grant, ...]:
    """What a function needs to run one of our documents on the server and read how it ended."""
    return (*send(document, why), WATCH_COMMAND)


INSPECT = command("InspectNodes", "looks at the workers through kubectl")
CHECK_NODE = command("CheckNode", "looks whether the node is still empty and ours")
DRAIN = send("DrainNode", "starts the drain")
UNCORDON = command("UncordonNode", "takes back this operation's cordon")
FORGET = command("ForgetNode", "deletes the Node and its password secret")
BOTH = (HOLD_LEASE, READ_STATE)

NEEDS: dict[str, FunctionNeeds] = {
    "AcquireLock": FunctionNeeds((HOLD_LEASE,)),
    "CollectMetrics": FunctionNeeds(
        (READ_STATE, SEE_INSTANCES, PROMETHEUS_LOGIN, RECORD_READING, READ_HISTORY), prometheus=True
    ),
    "Decide": FunctionNeeds(memory_mib=128),
    "LaunchNodes": FunctionNeeds((*BOTH, SEE_INSTANCES, *LAUNCH, LAUNCH_IMAGE)),
    "CheckJoin": FunctionNeeds((HOLD_LEASE, PROMETHEUS_LOGIN, *INSPECT), prometheus=True),
    "AbandonUnjoined": FunctionNeeds((*BOTH, PROMETHEUS_LOGIN, *INSPECT, TAG_WORKER, TERMINATE), prometheus=True),
    "CompleteScaleUp": FunctionNeeds((*BOTH, SEE_INSTANCES)),
    "FailScaleUp": FunctionNeeds(BOTH),
    "ReapUnjoined": FunctionNeeds((HOLD_LEASE, *INSPECT, TAG_WORKER, TERMINATE)),
    "InspectNodes": FunctionNeeds(INSPECT),
    "SelectNodes": FunctionNeeds((HOLD_LEASE, *UNCORDON, *FORGET)),
    "StartDrain": FunctionNeeds((HOLD_LEASE, *DRAIN)),
    "CheckDrain": FunctionNeeds((HOLD_LEASE, *CHECK_NODE, PROMETHEUS_LOGIN), prometheus=True),
    "UndoDrain": FunctionNeeds((HOLD_LEASE, *UNCORDON, CANCEL_COMMAND)),
    "TerminateNodes": FunctionNeeds((HOLD_LEASE, *CHECK_NODE, *INSPECT, TERMINATE)),
    "ConfirmTermination": FunctionNeeds((HOLD_LEASE, *CHECK_NODE)),
    "ForgetNodes": FunctionNeeds((HOLD_LEASE, *FORGET)),
    "CompleteScaleDown": FunctionNeeds((HOLD_LEASE, SEE_INSTANCES)),
    "FailScaleDown": FunctionNeeds((HOLD_LEASE,)),
    "Notify": FunctionNeeds((TELL_PEOPLE,)),
    "ReleaseLock": FunctionNeeds((HOLD_LEASE, RECORD_EVENT)),
    "ClaimNotices": FunctionNeeds((*BOTH, SEE_INSTANCES)),
    "StartDeadlineDrain": FunctionNeeds((READ_STATE, READ_HISTORY, *DRAIN, CANCEL_COMMAND)),
    "CheckDeadlineDrain": FunctionNeeds((SEE_INSTANCES, WATCH_COMMAND)),
    "LaunchReplacement": FunctionNeeds((*BOTH, SEE_INSTANCES, *LAUNCH, LAUNCH_IMAGE)),
    "NotifyResponse": FunctionNeeds((RECORD_EVENT, TELL_PEOPLE)),
    "CheckOutcome": FunctionNeeds((READ_STATE, SEE_INSTANCES)),
    "ForgetInterrupted": FunctionNeeds(FORGET),
    "ReinstateWorker": FunctionNeeds((*BOTH, *CHECK_NODE, *UNCORDON, TERMINATE)),
    "CloseNotice": FunctionNeeds((HOLD_LEASE, RECORD_EVENT, TELL_PEOPLE)),
    "CleanUp": FunctionNeeds((*BOTH, RECORD_EVENT, *UNCORDON, *FORGET, CANCEL_COMMAND, GIVEN_UP), timeout_seconds=120),
    "StartOnAlert": FunctionNeeds((START_RUN,), memory_mib=128),
    "SlackMessage": FunctionNeeds((SLACK_HOOK,)),
    "WeeklyReport": FunctionNeeds((READ_EVENTS, SEE_VOLUMES, TELL_PEOPLE), timeout_seconds=120),
}
