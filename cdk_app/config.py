"""What cdk.json states about each cluster, as typed models.

The description of a field completes the sentence "expected ..." of an error message.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, WithJsonSchema, field_validator

from cdk_app.k3s_releases import checksums, shipped_version
from node_fleet.domain.model.instance_types import architecture_of
from node_fleet.domain.model.text import count_of
from node_fleet.settings import Settings

SUBNET_PREFIX_LENGTH = 20
SERVER_HOST_NUMBER = 10


class ConfigurationError(Exception):
    """cdk.json is wrong. `problems` lists every mistake, each with its path, its value and what is expected."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(f"{count_of(len(problems), 'mistake')} in the configuration:\n  - " + "\n  - ".join(problems))
        self.problems = problems


ZoneLetter = Annotated[str, Field(pattern=r"^[a-f]$")]
Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
SubnetId = Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")]
Image = Annotated[str, Field(pattern=r"^(ami-[0-9a-f]{8,17})?$")]
IMAGE_DESCRIPTION = "an image id such as ami-0123456789abcdef0, or nothing for Amazon Linux 2023"


class Section(BaseModel):
    """An object of cdk.json. An unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans_and_fractions(cls, value: Any) -> Any:
        """JSON's true and 1.0 would pass as the number 1."""
        if isinstance(value, bool | float):
            raise ValueError
        return value


class NewNetwork(Section):
    """The network that mode new creates: one nodes subnet and one functions subnet in each zone."""

    cidr: str = Field(default="10.20.0.0/16", description="a private network of /16 or /17 such as 10.20.0.0/16")
    zones: tuple[ZoneLetter, ...] = Field(
        default=("a", "b"), min_length=2, description="a list of 2 or more zone letters from a to f"
    )
    http_from: tuple[str, ...] = Field(default=(), description="a list of networks such as 203.0.113.0/24")

    @field_validator("cidr")
    @classmethod
    def _check_private_network(cls, value: str) -> str:
        network = ipaddress.IPv4Network(value)
        if not network.is_private or not 16 <= network.prefixlen <= 17:
            raise ValueError
        return str(network)

    @field_validator("http_from")
    @classmethod
    def _check_networks(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(ipaddress.ip_network(value)) for value in values)

    @property
    def server_address(self) -> str:
        """The private address of the server. It is fixed, so that workers find a rebuilt server."""
        return str(ipaddress.IPv4Network(self.cidr).network_address + SERVER_HOST_NUMBER)


class NewServer(Section):
    """The K3s server that mode new creates."""

    instance_type: str = Field(
        default="t3.medium", pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$", description="an instance type such as t3.medium"
    )
    volume_gib: int = Field(default=30, ge=16, le=1000, description="a whole number from 16 to 1000 GiB")
    image: Image = Field(default="", description=IMAGE_DESCRIPTION)
    flux_git_url: str = Field(
        default="",
        pattern=r"^(https://[a-z0-9.-]+(:\d{1,5})?/[\w./~-]+)?$",
        description="an https URL of a Git repository without user, password and query, or nothing",
    )
    token_secret: str = Field(
        default="node-fleet/k3s-token", pattern=r"^[\w/+=.@-]{1,200}$", description="the name of a secret"
    )
    grafana_secret: str = Field(
        default="node-fleet/grafana-auth", pattern=r"^[\w/+=.@-]{1,200}$", description="the name of a secret"
    )


class NewWorkers(Section):
    """The part of the workers' launch template that mode new takes from cdk.json."""

    volume_gib: int = Field(default=20, ge=8, le=1000, description="a whole number from 8 to 1000 GiB")
    image: Image = Field(default="", description=IMAGE_DESCRIPTION)


class Attachment(Section):
    """The existing resources that mode attach uses. The tag in settings.server_role_tag identifies the server."""

    vpc_id: str = Field(pattern=r"^vpc-[0-9a-f]{8,17}$", description="a VPC id such as vpc-0123456789abcdef0")
    function_subnets: tuple[SubnetId, ...] = Field(
        min_length=1, description="a list of subnet ids such as subnet-0123456789abcdef0"
    )
    function_egress: Literal["ipv6", "existing"] = Field(
        description="ipv6 (egress-only gateway, gateway endpoint for DynamoDB) or existing (NAT or endpoints)"
    )
    worker_subnets: dict[Zone, SubnetId] = Field(
        min_length=1, description='one subnet for each zone: {"ap-southeast-1a": "subnet-0123456789abcdef0"}'
    )
    launch_template_id: str = Field(
        pattern=r"^lt-[0-9a-f]{8,17}$", description="a launch template id such as lt-0123456789abcdef0"
    )
    launch_template_version: int = Field(ge=1, le=10000, description="a whole number from 1 to 10000")
    server_security_group: str = Field(
        pattern=r"^sg-[0-9a-f]{8,17}$", description="a security group id such as sg-0123456789abcdef0"
    )
    server_instance_id: str = Field(
        default="",
        pattern=r"^(i-[0-9a-f]{8,17})?$",
        description="the id of the server's instance such as i-0123456789abcdef0, which hibernate needs, or nothing",
    )
    worker_role_arn: str = Field(
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+$", description="the ARN of an IAM role"
    )


class ClusterConfig(Section):
    """One cluster of the app."""

    cluster_id: str = Field(
        pattern=r"^[a-z][a-z0-9-]{1,38}[a-z0-9]$",
        description="3 to 40 small letters, digits and dashes, such as node-fleet-prod",
    )
    mode: Literal["new", "attach"] = Field(default="new", description="new or attach")
    region: str = Field(
        default="ap-southeast-1", pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="an AWS region such as ap-southeast-1"
    )
    settings: Annotated[InstanceOf[Settings], WithJsonSchema({"type": "object"})]
    alarm_email: str = Field(
        default="", pattern=r"^([^@\s]+@[^@\s]+\.[^@\s]+)?$", description="an e-mail address, or nothing"
    )
    topic_encryption: Literal["kms", "none"] = Field(
        default="kms", description="kms (a key of the cluster, 1 USD a month) or none"
    )
    network: NewNetwork = NewNetwork()
    server: NewServer = NewServer()
    workers: NewWorkers = NewWorkers()
    k3s_version: str = Field(
        default=shipped_version(),
        pattern=r"^v1\.\d{1,3}\.\d{1,3}(-rc\d{1,3})?\+k3s\d{1,3}$",
        description="a release of K3s such as v1.35.5+k3s1",
    )
    k3s_sha256_amd64: str = Field(
        default="", pattern=r"^([0-9a-f]{64})?$", description="the SHA-256 of the release's k3s for amd64, or nothing"
    )
    attach: Attachment | None = None

    @property
    def zones(self) -> tuple[str, ...]:
        """Full names of the zones that workers run in."""
        if self.attach:
            return tuple(self.attach.worker_subnets)
        return tuple(self.region + letter for letter in self.network.zones)

    @property
    def alert_topic_name(self) -> str:
        """Fixed, so that the server's permission to publish does not depend on the stack of the topic."""
        return f"{self.cluster_id}-alerts"

    @property
    def topic_key_alias(self) -> str:
        """Fixed, for the same reason."""
        return f"alias/{self.cluster_id}-topics"

    @property
    def k3s_checksum(self) -> str:
        """The SHA-256 that K3s for amd64 must have."""
        return self.k3s_sha256_amd64 or checksums()[self.k3s_version]

    @property
    def worker_architecture(self) -> str:
        """The one architecture of all worker types: x86_64 or arm64."""
        return architecture_of(self.settings.instance_types[0])
