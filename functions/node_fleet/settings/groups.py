"""The settings that no scaling rule reads, in groups by concern: places, access to Prometheus, launches, timing, cost.

SettingValues is every setting of one cluster. Secrets are named, never held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from node_fleet.domain.model.drain_limits import DrainLimits
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.instance_types import CpuCredits
from node_fleet.domain.model.policy import InterruptionTimes, PlacementOrder, Policy
from node_fleet.domain.model.setting import setting

CpuSource = Literal["node-exporter", "cadvisor"]
NodeNameRule = Literal["instance-id", "private-dns-name"]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Names and places"""

    cluster_id: str = setting("CLUSTER_ID", "node-fleet-prod")
    """The name of the cluster, used for its state item, tags and alarms."""
    region: str = setting("AWS_REGION", "ap-southeast-1")
    """The AWS region."""
    state_table: str = setting("DYNAMODB_TABLE", "k3s-autoscaler-state")
    """The DynamoDB table of the state item."""
    history_table: str = setting("METRICS_HISTORY_TABLE", "k3s-metrics-history")
    """The DynamoDB table of readings."""
    events_table: str = setting("EVENTS_TABLE", "k3s-autoscaler-events")
    """The DynamoDB table of decisions and outcomes."""
    history_days: int = setting("HISTORY_DAYS", 30, 8, 400)
    """Days that readings are kept."""
    event_days: int = setting("EVENT_DAYS", 90, 1, 3650)
    """Days that decisions and outcomes are kept."""
    node_name_rule: NodeNameRule = setting("NODE_NAME_RULE", "instance-id", choices=get_args(NodeNameRule))
    """The name of a worker's Node: its instance id, or its private DNS name, whole or the first label."""
    server_role_tag: str = setting("SERVER_ROLE_TAG", "k3s-master")
    """The value of the tag Role by which node-fleet finds the K3s server."""
    slack_secret: str = setting("SLACK_SECRET", "node-fleet/slack-webhook")
    """The secret with the Slack webhook URL, or with the bot_token and the channel of a Slack bot."""
    topic_arn: str = setting("SNS_TOPIC_ARN", "")
    """The SNS topic for notifications."""
    alert_topic_critical: str = setting("ALERT_TOPIC_CRITICAL", "")
    """The SNS topic that also receives critical incidents and alarms: an ARN, "create", or empty for none."""
    alert_topic_arn: str = setting("ALERT_TOPIC_ARN", "")
    """The SNS topic whose messages (alerts of Alertmanager) start a run."""
    state_machine_arn: str = setting("STATE_MACHINE_ARN", "")
    """The state machine of the autoscaler, for the functions that start it."""
    document_prefix: str = setting("SSM_DOCUMENT_PREFIX", "node-fleet-")
    """The prefix of node-fleet's SSM documents."""


@dataclass(frozen=True, kw_only=True)
class PrometheusAccess:
    """Prometheus"""

    prometheus_url: str = setting("PROMETHEUS_URL", "")
    """The address of Prometheus when it does not run on the K3s server; empty: http://SERVER:PROMETHEUS_PORT."""
    prometheus_port: int = setting("PROMETHEUS_PORT", 30090, 1, 65535)
    """The NodePort of Prometheus on the K3s server."""
    prometheus_secret: str = setting("PROMETHEUS_SECRET", "node-fleet/prometheus-auth")
    """The secret with the username and password for Prometheus."""
    prometheus_timeout_seconds: int = setting("PROMETHEUS_TIMEOUT_SECONDS", 10, 1, 20, "s")
    """Time limit of one request to Prometheus."""
    prometheus_retries: int = setting("PROMETHEUS_RETRIES", 2, 0, 5)
    """Retries of one failed request."""
    prometheus_budget_seconds: int = setting("PROMETHEUS_BUDGET_SECONDS", 25, 5, 50, "s")
    """Time limit of all requests of one step together."""
    cpu_source: CpuSource = setting("CPU_SOURCE", "node-exporter", choices=get_args(CpuSource))
    """The exporter that measures CPU."""


@dataclass(frozen=True, kw_only=True)
class Launches:
    """Launches"""

    launch_template_id: str = setting("LAUNCH_TEMPLATE_ID", "")
    """The launch template of the workers."""
    launch_template_version: str = setting("LAUNCH_TEMPLATE_VERSION", "1")
    """The version of the launch template, a number."""
    bootstrap_hash: str = setting("BOOTSTRAP_HASH", "")
    """The hash of the workers' bootstrap, set by the deployment in mode new; drift names it."""
    k3s_version: str = setting("K3S_VERSION", "")
    """The release of K3s that the bootstrap installs, which the deployment takes from k3s_version beside mode."""
    instance_requirements: InstanceRequirements | None = setting("INSTANCE_REQUIREMENTS", None)
    """Instead of instance_types: what a type must meet, as a JSON object. The deployment decides the list from it."""
    placement: PlacementOrder = setting("PLACEMENT", "fewest", choices=get_args(PlacementOrder))
    """Which zone a new worker gets: the one with the fewest workers, or each in turn."""
    spot_max_price: str = setting("SPOT_MAX_PRICE", "")
    """The highest Spot price in USD/h; empty: no limit below the on-demand price, with the fewest interruptions."""
    cpu_credits: CpuCredits = setting("CPU_CREDITS", "unlimited", choices=get_args(CpuCredits))
    """Whether T2, T3, T3a and T4g workers use CPU above their baseline at a price, or only with credits they earned."""
    pool_back_off_seconds: int = setting("POOL_BACK_OFF_SECONDS", 600, 60, 7200, "s", old_env="DRY_POOL_SECONDS")
    """How long node-fleet does not try a capacity pool again after EC2 refused a launch there."""
    launch_time_seconds: int = setting("LAUNCH_TIME_SECONDS", 60, 10, 90, "s")
    """How long one step may repeat requests to EC2."""
    max_rounds: int = setting("MAX_ROUNDS", 3, 1, 3)
    """Scale-ups in one execution while pods stay unschedulable."""
    registry_mirror: bool = setting("REGISTRY_MIRROR", False)
    """Whether nodes give each other the images that they have: the embedded registry mirror of K3s, in mode new."""
    image_wait_seconds: int = setting("IMAGE_WAIT_SECONDS", 0, 0, 900, "s")
    """How long a new worker pulls the images of the Deployments before pods start on it, in mode new; 0: not at all."""
    keep_unjoined: bool = setting("KEEP_UNJOINED", False)
    """Whether an instance that never joined keeps running, for inspection, instead of being terminated."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Timing of the workflow"""

    join_poll_seconds: int = setting("JOIN_POLL_SECONDS", 10, 2, 60, "s")
    """Pause between two checks of joining workers."""
    drain_timeout_seconds: int = setting("DRAIN_TIMEOUT_SECONDS", 300, 30, 3600, "s")
    """Time limit of a drain."""
    drain_poll_seconds: int = setting("DRAIN_POLL_SECONDS", 10, 2, 60, "s")
    """Pause between two checks of a drain."""
    terminate_poll_seconds: int = setting("TERMINATE_POLL_SECONDS", 15, 2, 60, "s")
    """Pause between two checks of a terminating instance."""
    terminate_limit_seconds: int = setting("TERMINATE_LIMIT_SECONDS", 300, 60, 3600, "s")
    """How long a run waits until a terminated instance has ended; after that the removal is set aside."""
    lease_seconds: int = setting("LEASE_SECONDS", 360, 60, 3600, "s")
    """How long the lock stays valid after its owner last renewed it."""
    lease_skew_seconds: int = setting("LEASE_SKEW_SECONDS", 5, 0, 60, "s")
    """Margin for clocks that differ."""
    operation_limit_seconds: int = setting("OPERATION_LIMIT_SECONDS", 900, 300, 7200, "s")
    """The age at which the next run closes an unfinished scale-up or scale-down."""
    delivery_timeout_seconds: int = setting("SSM_DELIVERY_TIMEOUT_SECONDS", 30, 30, 60, "s")
    """How long SSM may take to deliver a command."""
    command_wait_seconds: int = setting("SSM_COMMAND_WAIT_SECONDS", 20, 5, 20, "s")
    """How long a function waits for the result of a short command."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Costs"""

    currency: str = setting("CURRENCY", "USD")
    """The currency of costs in messages and reports, such as BDT."""
    currency_per_usd: float = setting("CURRENCY_PER_USD", 1.0, 0.0001, 1000000)
    """How much of that currency one USD is."""
    baseline_workers: int = setting("BASELINE_WORKERS", 5, 1, 1000)
    """The number of workers of the fixed fleet with which costs are compared."""
    worker_volume_gib: int = setting("WORKER_VOLUME_GIB", 20, 0, 16384, "GiB")
    """The gp3 volume of one worker, for its cost. Mode new takes it from workers.volume_gib of cdk.json."""
    worker_public_address: bool = setting("WORKER_PUBLIC_ADDRESS", True)
    """Whether a worker has a public IPv4 address, for its cost. In mode attach the subnet decides what it has."""


@dataclass(frozen=True, kw_only=True)
class SettingValues(Policy, Launches, Timing, InterruptionTimes, Costs, PrometheusAccess, Places):
    """The values of all settings of one cluster."""

    @property
    def zones(self) -> dict[str, str]:
        """Availability zone -> subnet id, in the configured order."""
        return dict(entry.split("=", 1) for entry in self.subnets)

    @property
    def drain_limits(self) -> DrainLimits:
        """The time limits of the drain in a scale-down."""
        return DrainLimits(drain_seconds=self.drain_timeout_seconds, delivery_seconds=self.delivery_timeout_seconds)
