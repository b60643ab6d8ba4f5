"""Every failure that Step Functions or a person must tell apart; the class name is the ASL error name.

A class exists only where its Retry, its Catch or what the operator does next differs from the others.
"""

from __future__ import annotations


class NodeFleetError(Exception):
    """Base for catching in Python only; Step Functions never sees this name."""


class InvalidInputError(NodeFleetError):
    """The execution input or a payload is malformed. Mend the caller; a retry cannot help."""


class InvalidSettingsError(NodeFleetError):
    """One or more settings are wrong; the message lists every one with name, value and what is allowed."""


class LeaseLostError(NodeFleetError):
    """Another owner holds the lock, or the lease expired: change nothing more, release nothing."""


class PausedError(NodeFleetError):
    """An operator paused the fleet while this run was at work: no further change."""


class StateStoreError(NodeFleetError):
    """DynamoDB refused or could not be reached; the message names the table and the cause."""


class MetricsUnavailableError(NodeFleetError):
    """Prometheus cannot be read and no young enough reading is cached."""


class ServerNotFoundError(NodeFleetError):
    """No running K3s server carries the configured tag."""


class ServerUnreachableError(NodeFleetError):
    """The K3s server is not managed by SSM, or a command on it has no known outcome."""


class LaunchError(NodeFleetError):
    """No instance could be launched; the message says what was tried and what EC2 answered."""


class LaunchConfigurationError(NodeFleetError):
    """RunInstances can never succeed as configured (launch template, permission, subnet): mend, then retry."""


class QuotaExceededError(NodeFleetError):
    """An AWS quota forbids more instances; the message names the quota to raise."""


class NoCapacityError(NodeFleetError):
    """Every pool that may be tried is out of capacity for now."""


class Ec2Error(NodeFleetError):
    """EC2 refused or could not be reached for a reason that no other class names."""


class NothingJoinedError(NodeFleetError):
    """None of the launched workers became usable within the join limit."""


class DrainFailedError(NodeFleetError):
    """A drain did not end with an empty node; nothing was terminated."""


class CleanUpUnfinishedError(NodeFleetError):
    """Something of a dead execution cannot be settled yet; Lambda gives the clean-up two more tries, minutes apart."""


class NotificationError(NodeFleetError):
    """The message could not be published; it never changes a scaling result."""


class RunFailedError(NodeFleetError):
    """Raised by ReleaseLock after the lock is free, so that a failed run ends red; carries the first fault."""
