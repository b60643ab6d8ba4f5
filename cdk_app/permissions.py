"""The permissions of each function: the AWS actions that its code calls, on which resource, under which condition.

Plain data. components/resources.py translates resources and conditions into ARNs and policies; docs/security.md lists
the reasons; a test compares the actions with the calls that simulated AWS records.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grant:
    """Actions on a resource (a name of components/resources.py). by_aws: AWS checks it, no code calls the action.

    setting: without this setting, by its name in cdk.json, it is not granted.
    """

    actions: tuple[str, ...]
    resource: str
    reason: str
    condition: str = ""
    by_aws: bool = False
    setting: str = ""


@dataclass(frozen=True, slots=True)
class FunctionNeeds:
    """The permissions and limits of one function."""

    grants: tuple[Grant, ...] = ()
    prometheus: bool = False
    memory_mib: int = 256
    timeout_seconds: int = 30
    """For functions outside the state machines; the others end before the TimeoutSeconds of their state."""


OWN = "own_items"
READ_STATE = Grant(("dynamodb:GetItem",), "state_table", "reads the state item", condition=OWN)
HOLD_LEASE = Grant(
    ("dynamodb:UpdateItem",), "state_table", "checks and renews its lease before it changes anything", condition=OWN
)
BEGIN_RESPONSE = Grant(
    ("dynamodb:UpdateItem",), "state_table", "stops counting a worker whose change is near", condition=OWN
)
RECORD_LOST_VOLUMES = Grant(
    ("dynamodb:UpdateItem",), "state_table", "records that the lost volumes of a worker are reported", condition=OWN
)
RECORD_EVENT = Grant(("dynamodb:PutItem",), "events_table", "records what happened", condition=OWN)
READ_EVENTS = Grant(("dynamodb:Query",), "events_table", "reads what happened", condition=OWN)
RECORD_READING = Grant(("dynamodb:PutItem",), "history_table", "stores the reading", condition=OWN)
READ_HISTORY = Grant(("dynamodb:Query",), "history_table", "reads past readings", condition=OWN)
LIST_INSTANCES = Grant(("ec2:DescribeInstances",), "anything", "lists the fleet and finds the server by its tag")
READ_LAUNCH_IMAGE = (
    Grant(("ec2:DescribeLaunchTemplateVersions",), "anything", "reads which image new workers are launched from"),
    Grant(
        ("ssm:GetParameters",),
        "image_parameter",
        "EC2 resolves the public parameter of the image for the caller",
        by_aws=True,
    ),
)
READ_STATUS_CHECKS = Grant(("ec2:DescribeInstanceStatus",), "anything", "finds workers whose status check is impaired")
READ_CONSOLE = Grant(
    ("ec2:GetConsoleOutput",), "instances", "reports why an instance did not join or stay Ready", condition="our_worker"
)
LIST_VOLUMES = Grant(("ec2:DescribeVolumes",), "anything", "finds volumes of the fleet that no instance uses")
READ_PROMETHEUS_PASSWORD = Grant(
    ("secretsmanager:GetSecretValue",), "prometheus_secret", "Prometheus requires a password"
)
READ_SLACK_SECRET = Grant(
    ("secretsmanager:GetSecretValue",), "slack_secret", "the address of the webhook or the token of the bot is a secret"
)
INCIDENT_THREADS = (
    Grant(("dynamodb:GetItem",), "events_table", "finds the thread of an incident in Slack", condition=OWN),
    Grant(("dynamodb:PutItem",), "events_table", "remembers the thread of an incident in Slack", condition=OWN),
)
PUBLISH_MESSAGE = (
    Grant(("sns:Publish",), "topic", "publishes the message of a run"),
    Grant(
        ("kms:GenerateDataKey", "kms:Decrypt"),
        "topic_key",
        "SNS encrypts the message with the key of the topics",
        condition="through_sns",
        by_aws=True,
    ),
)
"""The second one only where the topics have a key."""
PUBLISH_FAILURE = Grant(
    ("sns:Publish",), "messages_topic", "Lambda publishes the event when the last retry has failed", by_aws=True
)
START_RUN = Grant(("states:StartExecution",), "autoscaler", "starts a run of the workflow")
READ_COMMAND = Grant(("ssm:GetCommandInvocation",), "anything", "reads the outcome of a command")
CANCEL_COMMAND = Grant(("ssm:CancelCommand",), "anything", "stops a command whose outcome is unknown")
TERMINATE = Grant(("ec2:TerminateInstances",), "instances", "removes a worker", condition="our_worker")
REBOOT = Grant(
    ("ec2:RebootInstances",), "instances", "reboots an unhealthy worker before it is replaced", condition="our_worker"
)
SWITCH_SERVER = Grant(
    ("ec2:StopInstances", "ec2:StartInstances"),
    "server_machine",
    "switches the server off and on, only where `hibernate` is set",
    condition="tagged_server",
    setting="hibernate",
)
STOP_STANDBY = Grant(
    ("ec2:StopInstances",), "instances", "stops a standby worker", condition="our_worker", setting="standby_workers"
)
START_STANDBY = Grant(
    ("ec2:StartInstances",), "instances", "starts a standby worker", condition="our_standby", setting="standby_workers"
)
TAG_STANDBY = Grant(
    ("ec2:CreateTags",),
    "instances",
    "marks a standby worker",
    condition="our_worker_standby_tag",
    setting="standby_workers",
)
TAG_WORKER = Grant(
    ("ec2:CreateTags",), "instances", "tags an instance that did not join", condition="our_worker_join_failed"
)
LAUNCH = (
    Grant(("ec2:CreateFleet",), "launch_inputs", "launches from the named template into the named subnets"),
    Grant(
        ("ec2:CreateFleet",),
        "fleet_kinds",
        "the fleet, its instances and their volumes must carry the tags of a worker of the fleet",
        condition="tags_of_ours",
        by_aws=True,
    ),
    Grant(
        ("ec2:CreateFleet",),
        "template_parts",
        "RunInstances allows only the image, security group and key pair of the template",
        by_aws=True,
    ),
    Grant(("ec2:CreateFleet",), "interfaces", "an instance has a network interface", by_aws=True),
    Grant(
        ("ec2:RunInstances",),
        "launch_inputs",
        "a fleet runs its instances with the role of the function, from the named template into the named subnets",
        condition="our_template",
        by_aws=True,
    ),
    Grant(
        ("ec2:RunInstances",),
        "template_parts",
        "image, security group and key pair are those of the template",
        condition="set_by_our_template",
        by_aws=True,
    ),
    Grant(
        ("ec2:RunInstances",),
        "instances",
        "the instance must carry the tags of a worker of the fleet",
        condition="tagged_as_ours",
        by_aws=True,
    ),
    Grant(
        ("ec2:RunInstances",),
        "launch_parts",
        "an instance has a volume and a network interface",
        condition="our_template",
        by_aws=True,
    ),
    Grant(("ec2:CreateTags",), "fleet_kinds", "the launch sets the tags", condition="worker_tags", by_aws=True),
    Grant(
        ("ec2:CreateTags",),
        "interfaces",
        "the template of an attached cluster may tag network interfaces",
        condition="while_launching",
        by_aws=True,
    ),
    Grant(
        ("iam:PassRole",),
        "worker_role",
        "the launched worker gets the role of the workers",
        condition="to_ec2",
        by_aws=True,
    ),
)
LAUNCH_IMAGE = Grant(
    ("ssm:GetParameters",),
    "image_parameter",
    "the template refers to Amazon Linux by its public parameter",
    by_aws=True,
)


def send(document: str, why: str) -> tuple[Grant, ...]:
    """The permissions to start one SSM document on the server."""
    return (
        Grant(("ssm:SendCommand",), f"document:{document}", why),
        Grant(
            ("ssm:SendCommand",),
            "instances",
            "only the K3s server may receive commands",
            condition="the_server",
            by_aws=True,
        ),
        Grant(("ssm:DescribeInstanceInformation",), "anything", "checks that the agent of the server answers"),
        LIST_INSTANCES,
    )


def command(document: str, why: str) -> tuple[Grant, ...]:
    """The permissions to run one SSM document on the server and read its outcome."""
    return (*send(document, why), READ_COMMAND)


INSPECT = command("InspectNodes", "inspects the workers with kubectl")
LIST_PENDING = command("ListPendingPods", "lists the pending pods and what they demand with kubectl")
CHECK_NODE = command("CheckNode", "checks that the node is still empty and cordoned by this operation")
HIBERNATE = command("HibernateServer", "asks what forbids to switch the cluster off, and copies its datastore")
DRAIN = send("DrainNode", "starts the drain")
UNCORDON = command("UncordonNode", "removes a cordon of node-fleet")
FORGET = command("ForgetNode", "deletes the Node and its password secret")
RECORD_EVENTS = send("RecordEvents", "writes Events and the status of the run into the cluster")
LEASE_AND_STATE = (HOLD_LEASE, READ_STATE)

NEEDS: dict[str, FunctionNeeds] = {
    "AcquireLock": FunctionNeeds((HOLD_LEASE,)),
    "CheckSetAside": FunctionNeeds((HOLD_LEASE, *FORGET, *UNCORDON, CANCEL_COMMAND)),
    "Hibernate": FunctionNeeds(
        (HOLD_LEASE, *INSPECT, *HIBERNATE, READ_PROMETHEUS_PASSWORD, SWITCH_SERVER), prometheus=True
    ),
    "CollectMetrics": FunctionNeeds(
        (
            READ_STATE,
            *READ_LAUNCH_IMAGE,
            READ_STATUS_CHECKS,
            READ_CONSOLE,
            *INSPECT,
            *LIST_PENDING,
            READ_PROMETHEUS_PASSWORD,
            RECORD_READING,
            READ_HISTORY,
            READ_EVENTS,
        ),
        prometheus=True,
    ),
    "Decide": FunctionNeeds(memory_mib=128),
    "LaunchNodes": FunctionNeeds((*LEASE_AND_STATE, LIST_INSTANCES, *LAUNCH, LAUNCH_IMAGE, START_STANDBY)),
    "CheckJoin": FunctionNeeds((HOLD_LEASE, READ_PROMETHEUS_PASSWORD, *INSPECT), prometheus=True),
    "AbandonUnjoined": FunctionNeeds(
        (*LEASE_AND_STATE, READ_PROMETHEUS_PASSWORD, *INSPECT, TAG_WORKER, READ_CONSOLE, TERMINATE), prometheus=True
    ),
    "CompleteScaleUp": FunctionNeeds((*LEASE_AND_STATE, LIST_INSTANCES, TAG_STANDBY)),
    "FailScaleUp": FunctionNeeds(LEASE_AND_STATE),
    "ReapUnjoined": FunctionNeeds((HOLD_LEASE, *INSPECT, *UNCORDON, *FORGET, TAG_WORKER, TERMINATE)),
    "InspectNodes": FunctionNeeds(INSPECT),
    "SelectNodes": FunctionNeeds((HOLD_LEASE, *UNCORDON, *FORGET, *RECORD_EVENTS)),
    "StartDrain": FunctionNeeds((HOLD_LEASE, *DRAIN)),
    "CheckDrain": FunctionNeeds((HOLD_LEASE, *CHECK_NODE, READ_PROMETHEUS_PASSWORD), prometheus=True),
    "UndoDrain": FunctionNeeds((HOLD_LEASE, *UNCORDON, CANCEL_COMMAND)),
    "TerminateNodes": FunctionNeeds((HOLD_LEASE, *CHECK_NODE, *INSPECT, TERMINATE, REBOOT, STOP_STANDBY, TAG_STANDBY)),
    "ConfirmTermination": FunctionNeeds((HOLD_LEASE, *CHECK_NODE, TAG_STANDBY)),
    "ForgetNodes": FunctionNeeds((HOLD_LEASE, *FORGET)),
    "CompleteScaleDown": FunctionNeeds((HOLD_LEASE, LIST_INSTANCES)),
    "FailScaleDown": FunctionNeeds((HOLD_LEASE,)),
    "Notify": FunctionNeeds((*PUBLISH_MESSAGE, *RECORD_EVENTS)),
    "ReleaseLock": FunctionNeeds((HOLD_LEASE, RECORD_EVENT)),
    "ClaimNotices": FunctionNeeds((*LEASE_AND_STATE, LIST_INSTANCES, *PUBLISH_MESSAGE)),
    "BeginResponse": FunctionNeeds((READ_STATE, BEGIN_RESPONSE, LIST_INSTANCES)),
    "StartDeadlineDrain": FunctionNeeds((READ_STATE, READ_EVENTS, *DRAIN, CANCEL_COMMAND)),
    "CheckDeadlineDrain": FunctionNeeds((LIST_INSTANCES, READ_COMMAND)),
    "LaunchReplacement": FunctionNeeds((*LEASE_AND_STATE, LIST_INSTANCES, *LAUNCH, LAUNCH_IMAGE)),
    "NotifyResponse": FunctionNeeds((RECORD_EVENT, RECORD_LOST_VOLUMES, *PUBLISH_MESSAGE)),
    "CheckOutcome": FunctionNeeds((READ_STATE, LIST_INSTANCES)),
    "ForgetInterrupted": FunctionNeeds(FORGET),
    "ReinstateWorker": FunctionNeeds((*LEASE_AND_STATE, *CHECK_NODE, *UNCORDON, TERMINATE)),
    "CloseNotice": FunctionNeeds((*LEASE_AND_STATE, RECORD_EVENT, *PUBLISH_MESSAGE)),
    "CleanUp": FunctionNeeds(
        (*LEASE_AND_STATE, RECORD_EVENT, *UNCORDON, *FORGET, CANCEL_COMMAND, *PUBLISH_MESSAGE, PUBLISH_FAILURE),
        timeout_seconds=120,
    ),
    "StartOnAlert": FunctionNeeds((START_RUN,), memory_mib=128),
    "SlackMessage": FunctionNeeds((READ_SLACK_SECRET, *INCIDENT_THREADS)),
    "WeeklyReport": FunctionNeeds((READ_EVENTS, LIST_VOLUMES, *PUBLISH_MESSAGE, PUBLISH_FAILURE), timeout_seconds=120),
}
