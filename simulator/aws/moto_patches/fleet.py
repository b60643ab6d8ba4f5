"""EC2 Fleets of type instant. moto's own CreateFleet launches all instances from one override, and never fails.

Added here: client tokens, errors of an override with the rest taken from the others, the strategies lowest-price and
prioritized of On-Demand and price-capacity-optimized of Spot, and tags of volumes. For each instance a fleet runs
RunInstances in the pool of an override, so faults of RunInstances are those of the pool. A pool has capacity or has
none: of the pools with capacity, price-capacity-optimized takes the one with the lowest shipped price.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node_fleet.domain.cost.prices import PriceList
from simulator.aws.faults import Faults
from simulator.aws.moto_patches import expect, swapped
from simulator.aws.recorder import AwsCall
from simulator.clock import VirtualClock

TOKEN_SECONDS = 24 * 3600.0
REQUEST = (
    "LaunchTemplateConfigs",
    "TargetCapacitySpecification",
    "SpotOptions",
    "OnDemandOptions",
    "TagSpecifications",
    "Type",
)
Run = Callable[[Mapping[str, Any], str], Any]
"""Runs one instance with the parameters of RunInstances and a client token, and returns moto's instance."""


class FleetTokenMismatchError(Exception):
    """A client token came again with other parameters."""


@dataclass(slots=True, kw_only=True)
class _Override:
    """One override of a request, with what came of it."""

    template: Mapping[str, Any]
    values: Mapping[str, Any]
    instances: list[Any] = field(default_factory=list)
    error: tuple[str, str] | None = None

    @property
    def answer(self) -> dict[str, Any]:
        return {"LaunchTemplateSpecification": dict(self.template), "Overrides": dict(self.values)}


class InstantFleets:
    """The instant fleets of one region. prices: USD an hour of Spot by type, where not the shipped ones."""

    def __init__(self, clock: VirtualClock, faults: Faults, *, region: str) -> None:
        self.prices: dict[str, float] = {}
        self._clock = clock
        self._faults = faults
        self._shipped = PriceList.shipped(region)
        self._answers: dict[str, tuple[float, str, dict[str, Any]]] = {}

    def create(self, wanted: Mapping[str, Any], token: str, fleet_id: str, run: Run) -> dict[str, Any]:
        """The answer to CreateFleet; for a token that is known, the answer that was given before."""
        now, fingerprint = self._clock.now(), repr(sorted(wanted.items()))
        self._answers = {t: known for t, known in self._answers.items() if now - known[0] < TOKEN_SECONDS}
        if token in self._answers:
            _, before, answer = self._answers[token]
            if before != fingerprint:
                raise FleetTokenMismatchError(token)
            return answer
        answer = {"FleetId": fleet_id, **self._launch(wanted, token, run)}
        if token:
            self._answers[token] = (now, fingerprint, answer)
        return answer

    def _launch(self, wanted: Mapping[str, Any], token: str, run: Run) -> dict[str, Any]:
        capacity = wanted["TargetCapacitySpecification"]
        market = capacity.get("DefaultTargetCapacityType", "on-demand")
        overrides = self._in_order(wanted, market)
        missing, numbers = int(capacity["TotalTargetCapacity"]), itertools.count()
        for override in overrides:
            while missing and override.error is None:
                parameters = _parameters(override, market, wanted.get("TagSpecifications", ()))
                override.error = self._refusal(parameters)
                if override.error is None:
                    override.instances.append(run(parameters, f"{token}/{next(numbers)}"))
                    missing -= 1
        return {
            "Errors": [
                {
                    "LaunchTemplateAndOverrides": each.answer,
                    "Lifecycle": market,
                    "ErrorCode": each.error[0],
                    "ErrorMessage": each.error[1],
                }
                for each in overrides
                if each.error
            ],
            "Instances": [
                {
                    "LaunchTemplateAndOverrides": each.answer,
                    "Lifecycle": market,
                    "InstanceIds": [instance.id for instance in each.instances],
                    "InstanceType": each.values["InstanceType"],
                }
                for each in overrides
                if each.instances
            ],
        }

    def _in_order(self, wanted: Mapping[str, Any], market: str) -> Sequence[_Override]:
        found = [
            _Override(template=config["LaunchTemplateSpecification"], values=values)
            for config in wanted["LaunchTemplateConfigs"]
            for values in config["Overrides"]
        ]
        if market == "on-demand" and (wanted.get("OnDemandOptions") or {}).get("AllocationStrategy") == "prioritized":
            return sorted(found, key=lambda override: float(override.values.get("Priority", "inf")))
        return sorted(found, key=lambda override: self._price(override.values["InstanceType"], market))

    def _price(self, instance_type: str, market: str) -> float:
        if market == "spot" and instance_type in self.prices:
            return self.prices[instance_type]
        shipped = self._shipped.instance(instance_type, market)
        return shipped.usd if shipped else float("inf")

    def _refusal(self, parameters: Mapping[str, Any]) -> tuple[str, str] | None:
        call = AwsCall(
            service="ec2",
            operation="RunInstances",
            parameters=parameters,
            function=None,
            at=self._clock.now(),
            protocol="ec2",
        )
        rule = self._faults.refuse(call)
        return (rule.code, rule.message or f"injected fault: {rule.code}") if rule else None


def _parameters(override: _Override, market: str, tags: Sequence[Any]) -> dict[str, Any]:
    """What a fleet asks RunInstances for."""
    return {
        "LaunchTemplate": dict(override.template),
        "InstanceType": override.values["InstanceType"],
        "SubnetId": override.values["SubnetId"],
        "TagSpecifications": [each for each in tags if each["ResourceType"] != "fleet"],
        **({"InstanceMarketOptions": {"MarketType": "spot"}} if market == "spot" else {}),
    }


@contextlib.contextmanager
def instant_fleets(fleets: InstantFleets) -> Iterator[None]:
    """CreateFleet of type instant as described above; fleets of other types stay moto's."""
    from moto.core.responses import ActionResult
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.responses.fleets import Fleets
    from moto.ec2.utils import convert_tag_spec, random_fleet_id

    create = expect(Fleets, "create_fleet", "self")

    def create_fleet(this: Any) -> Any:
        if this._get_param("Type") != "instant":
            return create(this)
        this.error_on_dryrun()

        def run(parameters: Mapping[str, Any], token: str) -> Any:
            reservation = this.ec2_backend.run_instances(
                None,
                1,
                None,
                [],
                instance_type=parameters["InstanceType"],
                is_instance_type_default=False,
                region_name=this.region,
                subnet_id=parameters["SubnetId"],
                launch_template=parameters["LaunchTemplate"],
                instance_market_options=parameters.get("InstanceMarketOptions", {}).get("MarketType", {}),
                tags=convert_tag_spec(parameters["TagSpecifications"]),
                client_token=token,
            )
            return reservation.instances[0]

        wanted = {name: value for name in REQUEST if (value := this._get_param(name)) is not None}
        for config in wanted["LaunchTemplateConfigs"]:
            template = config["LaunchTemplateSpecification"]
            this.ec2_backend.get_launch_template(template["LaunchTemplateId"]).get_version(template["Version"])
        try:
            return ActionResult(fleets.create(wanted, this._get_param("ClientToken") or "", random_fleet_id(), run))
        except FleetTokenMismatchError:
            text = "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
            raise EC2ClientError("IdempotentParameterMismatch", text) from None

    with swapped(Fleets, "create_fleet", create_fleet):
        yield
