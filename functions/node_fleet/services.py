"""The clients and adapters of one function. Each is created once, on first use, so that a handler loads only its own.

boto3 and requests are imported inside the members: `decide` uses neither and starts without them.
"""

from __future__ import annotations

import os
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from node_fleet.adapters.clock import SystemClock
from node_fleet.settings import Settings

if TYPE_CHECKING:
    from node_fleet.adapters.ec2 import Ec2Fleet
    from node_fleet.adapters.prometheus.reader import PrometheusReader
    from node_fleet.adapters.records import Records
    from node_fleet.adapters.reinstatement import Reinstatement
    from node_fleet.adapters.secrets import Secrets
    from node_fleet.adapters.server import ServerCommands
    from node_fleet.adapters.sns import Publisher
    from node_fleet.adapters.state_store import StateStore

ORDINARY_NAMES_ONLY = ("dynamodb",)
"""AWS publishes dual-stack names of DynamoDB in few regions; the gateway endpoint serves the ordinary name."""


class Services:
    """The services of one function. A client that cannot connect fails within seconds and names its service."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = SystemClock()

    @cached_property
    def state(self) -> StateStore:
        """The state item."""
        from node_fleet.adapters.state_store import StateStore

        return StateStore(self._client("dynamodb"), self.settings, self.clock)

    @cached_property
    def records(self) -> Records:
        """History and events."""
        from node_fleet.adapters.records import Records

        return Records(self._client("dynamodb"), self.settings)

    @cached_property
    def ec2(self) -> Ec2Fleet:
        """The fleet's instances. Launches have their own retries, so boto3 does not retry them."""
        from node_fleet.adapters.ec2 import Ec2Fleet

        return Ec2Fleet(self._client("ec2"), self.settings, launcher=self._client("ec2", attempts=1))

    @cached_property
    def server(self) -> ServerCommands:
        """Commands on the K3s server."""
        from node_fleet.adapters.server import ServerCommands

        return ServerCommands(self._client("ssm"), self.ec2, self.settings, self.clock)

    @cached_property
    def reports(self) -> ServerCommands:
        """Commands that only report. They are sent once, so that an SSM that hangs delays a run by seconds."""
        from node_fleet.adapters.server import ServerCommands

        return ServerCommands(self._client("ssm", attempts=1), self.ec2, self.settings, self.clock)

    @property
    def reinstatement(self) -> Reinstatement:
        """Reinstates workers that were under notice and were not reclaimed."""
        from node_fleet.adapters.reinstatement import Reinstatement

        return Reinstatement(
            ec2=self.ec2, state=self.state, server=self.server, clock=self.clock, settings=self.settings
        )

    @cached_property
    def secrets(self) -> Secrets:
        """Secrets Manager."""
        from node_fleet.adapters.secrets import Secrets

        return Secrets(self._client("secretsmanager"))

    @cached_property
    def prometheus(self) -> PrometheusReader:
        """Prometheus on the server."""
        from node_fleet.adapters.prometheus.http import PrometheusClient
        from node_fleet.adapters.prometheus.reader import PrometheusReader
        from node_fleet.adapters.prometheus.session import DeadlineSession

        client = PrometheusClient(
            DeadlineSession(self.clock),
            self.settings,
            address=lambda: self.ec2.server().private_ip,
            credentials=lambda fresh: self.secrets.credentials(self.settings.prometheus_secret, fresh=fresh),
            clock=self.clock,
        )
        return PrometheusReader(client, self.settings)

    @cached_property
    def publisher(self) -> Publisher:
        """The SNS topic for messages and alerts."""
        from node_fleet.adapters.sns import Publisher

        return Publisher(self._client("sns"), self.settings)

    @cached_property
    def workflows(self) -> Any:
        """The Step Functions client, for the functions that start or read executions."""
        return self._client("stepfunctions")

    def _client(self, service: str, *, attempts: int = 3) -> Any:
        return _client(service, self.settings.region, attempts)


def load_services() -> Services:
    """The services for this function's environment; the same object while the environment stays the same."""
    return _services_for(tuple(os.environ.items()))


@lru_cache(maxsize=64)
def _services_for(environment: tuple[tuple[str, str], ...]) -> Services:
    return Services(Settings.from_env(dict(environment)))


@lru_cache(maxsize=64)
def _client(service: str, region: str, attempts: int) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=4,
        read_timeout=10,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        use_dualstack_endpoint=False if service in ORDINARY_NAMES_ONLY else None,
    )
    make: Any = boto3.client
    return make(service, region_name=region, config=config)
