"""The synthesised template itself runs: a flash sale and a Spot interruption, on what the template's JSON says.

What the simulator holds is compared with the JSON as the deployment would get it, read here without the
simulator's reader. Nothing is typed again: names, handlers, environments, keys, rules and targets all come from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from cdk_app.synth import synthesise
from simulator.runner import Execution
from simulator.scenario.files import load_scenario
from simulator.scenario.model import Event, WorkerGroup
from simulator.simulation import Simulation

WARNED_AT_SECONDS = 22 * 60
DURATION_SECONDS = 60 * 60
FROM_ELSEWHERE = {"AWS_REGION", "MIN_NODES", "MAX_NODES"}
"""Lambda itself sets the first, the scenario the others."""


@pytest.fixture(scope="module")
def resources() -> list[tuple[str, dict[str, Any]]]:
    """(type, properties) of everything in the templates of cdk.json."""
    found = []
    for path in synthesise():
        template = json.loads(path.read_text(encoding="utf-8"))
        found += [(r["Type"], r.get("Properties", {})) for r in template["Resources"].values()]
    return found


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulation]:
    """The flash sale, with one Spot worker that AWS takes while the sale is on."""
    sale = load_scenario("flash-sale")
    scenario = sale.model_copy(
        update={
            "duration_seconds": DURATION_SECONDS,
            "workers": (WorkerGroup(count=1), WorkerGroup(count=1, market="spot")),
            "events": (Event(at_seconds=WARNED_AT_SECONDS, action="spot_interruption", workers=1),),
        }
    )
    with Simulation(scenario) as made:
        made.run()
        yield made


def of(resources: list[tuple[str, dict[str, Any]]], kind: str) -> list[dict[str, Any]]:
    return [properties for found, properties in resources if found == kind]


def runs(sim: Simulation, machine: str) -> list[Execution]:
    return [e for e in sim.executions if e.machine.endswith(machine)]


def test_every_function_of_the_template_is_there_with_its_handler_and_environment(
    sim: Simulation, resources: list[tuple[str, dict[str, Any]]]
) -> None:
    ours = {f["FunctionName"]: f for f in of(resources, "AWS::Lambda::Function") if "FunctionName" in f}
    there = sim.deployment.cloud.lambdas.functions
    assert set(there) == set(ours)
    for name, function in ours.items():
        environment = function["Environment"]["Variables"]
        assert set(there[name].environment) - FROM_ELSEWHERE == set(environment) - FROM_ELSEWHERE, name
        literal = {k: v for k, v in environment.items() if isinstance(v, str) and k not in FROM_ELSEWHERE}
        assert {k: there[name].environment[k] for k in literal} == literal
        module, _, attribute = function["Handler"].rpartition(".")
        assert (there[name].handler.__module__, there[name].handler.__name__) == (module, attribute)


def test_every_table_has_the_keys_of_the_template(sim: Simulation, resources: list[tuple[str, dict[str, Any]]]) -> None:
    client = sim.deployment.cloud.client("dynamodb")
    tables = of(resources, "AWS::DynamoDB::Table") + of(resources, "AWS::DynamoDB::GlobalTable")
    assert {t["TableName"] for t in tables} == set(client.list_tables()["TableNames"])
    for table in tables:
        assert client.describe_table(TableName=table["TableName"])["Table"]["KeySchema"] == table["KeySchema"]


def test_both_workflows_have_every_state_of_the_template_and_call_functions_of_it(
    sim: Simulation, resources: list[tuple[str, dict[str, Any]]]
) -> None:
    client = sim.deployment.cloud.client("stepfunctions")
    there = {m["name"]: m["stateMachineArn"] for m in client.list_state_machines()["stateMachines"]}
    machines = {m["StateMachineName"]: m["DefinitionString"] for m in of(resources, "AWS::StepFunctions::StateMachine")}
    assert set(there) == set(machines)
    for name, arn in there.items():
        definition = client.describe_state_machine(stateMachineArn=arn)["definition"]
        assert "${" not in definition
        assert set(json.loads(definition)["States"]) == set(json.loads(machines[name])["States"])


def test_every_rule_of_the_template_waits_with_its_pattern_or_schedule_and_its_targets(
    sim: Simulation, resources: list[tuple[str, dict[str, Any]]]
) -> None:
    there = {rule.name: rule for rule in sim.deployment.resources.rules}
    rules = of(resources, "AWS::Events::Rule")
    assert len(there) == len(rules)
    for rule in rules:
        found = there[rule["Name"]]
        assert found.schedule == rule.get("ScheduleExpression")
        assert len(found.targets) == len(rule["Targets"])
        given = {t["Arn"].rsplit(":", 1)[0].rsplit(":", 1)[-1] for t in found.targets if ":lambda:" in t["Arn"]}
        assert given <= set(sim.deployment.cloud.lambdas.functions)


def test_the_sale_grows_the_fleet_by_the_rule_that_ticks_and_shrinks_it_again(sim: Simulation) -> None:
    assert max(p.workers_usable for p in sim.points) >= 5
    assert any("LaunchNodes" in e.path and e.status == "SUCCEEDED" for e in runs(sim, "autoscaler"))
    assert any("ForgetNodes" in e.path and e.status == "SUCCEEDED" for e in runs(sim, "autoscaler"))
    assert all(e.status == "SUCCEEDED" for e in sim.executions)


def test_the_interruption_comes_by_its_rule_and_the_worker_is_drained_and_replaced_in_time(sim: Simulation) -> None:
    (response,) = [e for e in runs(sim, "interruption") if "NotifyResponse" in e.path]
    (warning,) = [e for e in sim.deployment.events if e["detail-type"] == "EC2 Spot Instance Interruption Warning"]
    assert response.started_at == datetime.fromisoformat(warning["time"]).timestamp()
    launch = next(
        c for c in sim.deployment.cloud.recorder.of("CreateFleet") if "LaunchReplacement" in (c.function or "")
    )
    assert 0 <= launch.at - response.started_at <= 5
    assert response.output_of("CheckDeadlineDrain")["drain"]["status"] == "drained"


def test_messages_of_both_reach_slack_through_the_topic_and_its_subscription(sim: Simulation) -> None:
    sent = " ".join(str(post) for post in sim.deployment.transport.slack)
    assert "scaled up" in sent
    assert "AWS reclaims this Spot instance" in sent
