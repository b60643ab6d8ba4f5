"""Every failure that Step Functions or an operator must distinguish; the class name is the ASL error name.

A class exists only where its Retry, its Catch or what the operator does next differs from the others.
"""

from __future__ import annotations

from collections.abc import Sequence


class NodeFleetError(Exception):
    """Base for catching in Python only; Step Functions never sees this name."""


class InvalidInputError(NodeFleetError):
    """The execution input or a payload is malformed: fix the caller. A retry cannot help."""


class InvalidSettingsError(NodeFleetError):
    """One or more settings are wrong; `problems` has a sentence for each, with name, value and allowed range."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class LeaseLostError(NodeFleetError):
    """Another run owns the lock, or the lease expired: this run changes and releases nothing more."""


class PausedError(NodeFleetError):
    """An operator paused the fleet, or protected the worker that this run removes: the run makes no further change."""


class StateStoreError(NodeFleetError):
    """DynamoDB refused or could not be reached; the message names the table and the cause."""


class MetricsUnavailableError(NodeFleetError):
    """Prometheus does not answer and no cached reading is young enough."""


class ServerNotFoundError(NodeFleetError):
    """No running K3s server carries the configured tag."""


class ServerUnreachableError(NodeFleetError):
    """SSM cannot reach the K3s server, or the outcome of a command on it is unknown."""


class LaunchError(NodeFleetError):
    """EC2 launched no instance; the message lists what was tried and what EC2 answered."""


class LaunchConfigurationError(NodeFleetError):
    """A launch cannot succeed as configured: fix the launch template, the permission or the subnet, then retry."""


class QuotaExceededError(NodeFleetError):
    """An AWS quota forbids more instances; the message names the quota to increase."""


class NoCapacityError(NodeFleetError):
    """Every capacity pool that the settings allow is in back-off or has no capacity."""


class Ec2Error(NodeFleetError):
    """EC2 refused a request or did not answer, for a reason that no other class names."""


class TerminationRefusedError(Ec2Error):
    """EC2 refuses for good to terminate an instance, for example because termination protection is on."""


class NothingJoinedError(NodeFleetError):
    """No launched worker became usable within the join limit."""


class DrainFailedError(NodeFleetError):
    """A drain ended without an empty node; no instance was terminated."""


class CleanUpUnfinishedError(NodeFleetError):
    """A part of a dead execution cannot be cleaned up yet; Lambda retries the clean-up twice, minutes apart."""


class NotificationError(NodeFleetError):
    """The notification could not be published; the scaling result stays as it is."""


class RunFailedError(NodeFleetError):
    """ReleaseLock raises it after the lock is free, so that a failed run ends as failed; carries the first fault."""
