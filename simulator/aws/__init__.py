"""The AWS side of the simulator. All reaching into moto and botocore stands in `moto_patches`."""

from simulator.aws.cloud import Cloud
from simulator.aws.faults import FaultRule
from simulator.aws.lambdas import InvocationKilledError

__all__ = ["Cloud", "FaultRule", "InvocationKilledError"]
