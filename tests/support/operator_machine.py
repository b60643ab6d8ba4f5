"""The operator's machine beside a simulated deployment: it reaches the APIs of AWS, and no private address.

moto has no function of the deployment, so the two Lambda calls of the command line are answered by the simulator. moto
has no Price List API either: the answer has the shipped prices.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import requests

from cli import target as targets
from node_fleet.domain.cost.prices import PriceList
from simulator.aws.recorder import current_function
from simulator.fakes.http import Transport
from simulator.local_deployment import LocalDeployment

Answer = Callable[[dict[str, Any]], tuple[Any, dict[str, Any]]]
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
        usage, unit, price = "APS1-EBS:VolumeUsage.gp3", "GB-Mo", shipped.gp3_gib_month
        if "instanceType" in asked:
            usage, unit = f"APS1-BoxUsage:{asked['instanceType']}", "Hrs"
            price = shipped.instance(asked["instanceType"], "on-demand")
        assert price is not None
        dimension = {"unit": unit, "pricePerUnit": {"USD": str(price.usd)}}
        product = {
            "product": {"attributes": {"usagetype": usage}},
            "terms": {"OnDemand": {"term": {"priceDimensions": {"dimension": dimension}}}},
        }
        return OK, {"PriceList": [json.dumps(product)]}

    def _configuration(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        variables = self._lambdas.environment_of(self._lambdas.find(given["FunctionName"]))
        return OK, {"Environment": {"Variables": variables}}


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
        return machine.client(found) if service in ("lambda", "pricing") else found

    with mock.patch.object(Transport, "answer", answer), mock.patch.object(targets.Deployed, "client", client):
        yield machine


def in_virtual_time(deployment: LocalDeployment, work: Callable[[], int]) -> int:
    """The result of a command that may wait, while the clock of the deployment runs."""
    results: list[int] = []
    deployment.clock.spawn(lambda: results.append(work()), name="operator")
    assert deployment.run_until(lambda: bool(results), limit_seconds=900)
    return results[0]
