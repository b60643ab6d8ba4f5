"""The operator's machine beside a simulated deployment: it reaches the APIs of AWS, and no private address.

moto has no function of the deployment, so the two Lambda calls of the command line are answered by the simulator. moto
has no Price List API either: the answer has the shipped prices. It does not select instance types by requirements: the
answer follows from the descriptions of types that moto has from AWS.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import requests
from moto.ec2.models.instance_types import INSTANCE_TYPES

from cli import target as targets
from node_fleet.domain.cost.prices import Price, PriceList
from simulator.aws.recorder import current_function
from simulator.fakes.http import Transport
from simulator.local_deployment import LocalDeployment

Answer = Callable[[dict[str, Any]], tuple[Any, dict[str, Any]]]
GP3_USAGE = "APS1-EBS:VolumeUsage.gp3"
OK = SimpleNamespace(status_code=200)
REFUSED = {"Error": {"Code": "AccessDeniedException", "Message": "not authorized to perform: lambda:InvokeFunction"}}


class OperatorMachine:
    """What the Lambda API answers to the operator. `may_invoke` is the permission lambda:InvokeFunction."""

    def __init__(self, deployment: LocalDeployment) -> None:
        self.may_invoke = True
        self._lambdas = deployment.cloud.lambdas

    def client(self, made: Any) -> Any:
        """The boto3 client, whose requests the simulator answers after botocore has checked them."""
        answers: dict[str, Answer] = {
            "lambda.Invoke": self._invoke,
            "lambda.GetFunctionConfiguration": self._configuration,
            "pricing.GetProducts": self._products,
            "ec2.GetInstanceTypesFromInstanceRequirements": self._selection,
        }
        for name, answer in answers.items():
            given: dict[str, Any] = {}
            events = made.meta.events
            events.register(f"before-parameter-build.{name}", lambda params, given=given, **_: given.update(params))
            events.register(f"before-call.{name}", lambda given=given, answer=answer, **_: answer(given))
        return made

    def _invoke(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if not self.may_invoke:
            return SimpleNamespace(status_code=403), REFUSED
        reply = self._lambdas.invoke(given["FunctionName"], given["Payload"])
        failed = {"FunctionError": reply.function_error} if reply.function_error else {}
        return OK, {"Payload": io.BytesIO(json.dumps(reply.payload).encode()), **failed}

    def _products(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        asked = {one["Field"]: one["Value"] for one in given["Filters"]}
        shipped = PriceList.shipped(asked["regionCode"])
        if "volumeApiName" in asked:
            return OK, {"PriceList": [_product({"usagetype": GP3_USAGE}, "GB-Mo", shipped.gp3_gib_month)]}
        types = [asked["instanceType"]] if "instanceType" in asked else shipped.types
        prices = {kind: shipped.instance(kind, "on-demand") for kind in types}
        return OK, {"PriceList": [_product({"instanceType": kind}, "Hrs", usd) for kind, usd in prices.items() if usd]}

    def _selection(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        wanted = given["InstanceRequirements"]
        named = [
            re.compile(one.replace(".", r"\.").replace("*", ".*")) for one in wanted.get("ExcludedInstanceTypes", ())
        ]
        burstable = {"included": (True, False), "excluded": (False,), "required": (True,)}

        def is_selected(kind: str, raw: dict[str, Any]) -> bool:
            return (
                bool({*raw["ProcessorInfo"]["SupportedArchitectures"]} & {*given["ArchitectureTypes"]})
                and _is_within(raw["VCpuInfo"]["DefaultVCpus"], wanted["VCpuCount"])
                and _is_within(raw["MemoryInfo"]["SizeInMiB"], wanted["MemoryMiB"])
                and raw["BurstablePerformanceSupported"] in burstable[wanted["BurstablePerformance"]]
                and ("current" if raw["CurrentGeneration"] else "previous") in wanted["InstanceGenerations"]
                and not {"GpuInfo", "FpgaInfo", "InferenceAcceleratorInfo", "MediaAcceleratorInfo"} & raw.keys()
                and not raw["BareMetal"]
                and not any(one.fullmatch(kind) for one in named)
            )

        found = [kind for kind, raw in INSTANCE_TYPES.items() if is_selected(kind, raw)]
        return OK, {"InstanceTypes": [{"InstanceType": kind} for kind in found]}

    def _configuration(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        variables = self._lambdas.environment_of(self._lambdas.find(given["FunctionName"]))
        return OK, {"Environment": {"Variables": variables}}


def _product(attributes: dict[str, str], unit: str, price: Price | None) -> str:
    assert price is not None
    dimension = {"unit": unit, "pricePerUnit": {"USD": str(price.usd)}}
    terms = {"OnDemand": {"term": {"priceDimensions": {"dimension": dimension}}}}
    return json.dumps({"product": {"attributes": attributes}, "terms": terms})


def _is_within(value: int, limits: dict[str, int]) -> bool:
    return limits["Min"] <= value <= limits.get("Max", value)


@contextlib.contextmanager
def operator_machine(deployment: LocalDeployment) -> Iterator[OperatorMachine]:
    """While open, `cli.target.Deployed` addresses this deployment over the API, as from outside its network."""
    machine, reached, made = OperatorMachine(deployment), Transport.answer, targets.Deployed.client

    def answer(this: Transport, request: requests.PreparedRequest, timeout: float | None) -> Any:
        if current_function.get() is None:
            raise requests.ConnectTimeout(f"no route to the private address {request.url}", request=request)
        return reached(this, request, timeout)

    def client(this: targets.Deployed, service: str, region: str = "") -> Any:
        found = made(this, service, region)
        return machine.client(found) if service in ("lambda", "pricing", "ec2") else found

    with mock.patch.object(Transport, "answer", answer), mock.patch.object(targets.Deployed, "client", client):
        yield machine


def in_virtual_time(deployment: LocalDeployment, work: Callable[[], int]) -> int:
    """The result of a command that may wait, while the clock of the deployment runs."""
    results: list[int] = []
    deployment.clock.spawn(lambda: results.append(work()), name="operator")
    assert deployment.run_until(lambda: bool(results), limit_seconds=900)
    return results[0]
