"""The commands on a deployed cluster, from a machine that has no route to its private addresses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli import main as program
from cli.output import ExitCode
from simulator.scenario.files import load_scenario
from simulator.simulation import Simulation
from tests.support.operator_machine import OperatorMachine, in_virtual_time, operator_machine

QUIET_AT = 8 * 60 + 70
"""Two workers are settled, no run is in progress, and the last tick was recorded 70 s ago."""
QUOTAS = ("On-Demand quota", "Spot quota")


@dataclass(slots=True, kw_only=True)
class Desk:
    """The command line of an operator, and the machine on which it runs."""

    machine: OperatorMachine
    simulation: Simulation
    capture: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        code = in_virtual_time(self.simulation.deployment, lambda: program.main(list(words)))
        captured = self.capture.readouterr()
        return code, captured.out, captured.err

    def doctor(self) -> tuple[int, dict[str, dict[str, str]], str]:
        code, out, err = self.run("doctor", "--json")
        return code, {one["name"]: one for one in json.loads(out)}, err


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    with Simulation(load_scenario("flash-sale"), overrides={"PRESET": "node-fleet"}) as found:
        found.deployment.run_until(found.scenario.start_at + QUIET_AT)
        yield found


@pytest.fixture
def desk(simulation: Simulation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    monkeypatch.setenv("COLUMNS", "200")
    with operator_machine(simulation.deployment) as machine:
        yield Desk(machine=machine, simulation=simulation, capture=capsys)


def test_doctor_ends_with_0_on_a_healthy_cluster(desk: Desk) -> None:
    code, found, err = desk.doctor()
    assert code == ExitCode.OK, err
    assert [name for name, one in found.items() if one["verdict"] != "ok"] == list(QUOTAS), "moto has no EC2 quotas"
    assert found["prices"]["saw"].startswith("t3.small On-Demand $0.0264 (live ")
    assert found["Prometheus queries"]["saw"] == "all answered, 2 usable workers"


def test_doctor_reports_a_prometheus_that_the_functions_cannot_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.simulation.deployment.transport, "fault", "unauthorized")
    code, found, err = desk.doctor()
    assert code == ExitCode.FAILED and "1 of 20 checks failed" in err
    assert "refuses the user name and password" in found["Prometheus queries"]["saw"]


def test_without_the_permission_to_invoke_doctor_names_it_and_the_age_of_the_recorded_reading(desk: Desk) -> None:
    desk.machine.may_invoke = False
    code, found, err = desk.doctor()
    assert code == ExitCode.OK, err
    finding = found["Prometheus queries"]
    assert finding["verdict"] == "warn"
    assert "CollectMetrics cannot be invoked" in finding["saw"] and "lambda:InvokeFunction" in finding["saw"]
    assert re.search(r"the reading that a run recorded \d+ s ago", finding["saw"])
    assert "VPC" in finding["fix"]


def test_explain_now_shows_the_decision_and_the_workers_without_the_lock_or_a_message(desk: Desk) -> None:
    deployment = desk.simulation.deployment
    executions, messages = len(deployment.executions), len(deployment.messages)
    code, out, err = desk.run("explain", "now", "--json")
    assert code == ExitCode.OK, err
    answer = json.loads(out)
    assert "workers 2 of 10" in answer["decision"]["sentence"] and not answer["note"]
    _, text, _ = desk.run("explain", "now")
    assert "CPU 17.9 % under 30" in text
    assert {one["instance"] for one in answer["workers"]} >= set(desk.simulation.starting_ids)
    started = deployment.executions[executions:]
    assert all(one.name.startswith("run-") for one in started), "only the schedule starts executions"
    assert len(deployment.messages) == messages


def test_explain_now_without_the_permission_decides_on_the_recorded_reading_and_names_its_age(desk: Desk) -> None:
    desk.machine.may_invoke = False
    code, out, err = desk.run("explain", "now")
    assert code == ExitCode.OK, err
    words = " ".join(out.split())
    assert "workers 2 of 10" in words and "lambda:InvokeFunction" in words
    assert re.search(r"the reading that a run recorded \d+ s ago", words)


def test_the_region_is_that_of_the_cluster_in_cdk_json_when_none_is_given(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    code, out, err = desk.run("status")
    assert code == ExitCode.OK, err
    assert "node-fleet-prod in ap-southeast-1" in out


def test_a_mistake_in_cdk_json_is_named_when_the_region_is_wanted_from_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = {"cluster_id": "node-fleet-prod", "region": "ap-southeast-1", "settings": {"max_wrokers": 5}}
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"clusters": [cluster]}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AWS_REGION", raising=False)
    code, _, err = desk.run("status")
    assert code == ExitCode.FAILED
    assert "max_wrokers is not a setting" in err and "give --region" in err


def test_a_pause_without_ticks_is_a_warning_of_doctor(desk: Desk) -> None:
    assert desk.run("pause", "--reason", "kernel update", "--for", "1h")[0] == ExitCode.OK
    desk.simulation.deployment.run_until(desk.simulation.deployment.clock.now() + 3600 - 600)
    code, found, err = desk.doctor()
    assert code == ExitCode.OK, err
    assert found["ticks"]["verdict"] == "warn" and "kernel update" in found["ticks"]["saw"]
    assert desk.run("resume")[0] == ExitCode.OK


def test_types_asks_ec2_which_types_meet_the_requirements_and_shows_live_prices(desk: Desk) -> None:
    code, out, err = desk.run("types", "--vcpus", "2", "--memory", "2-4", "--burstable", "--exclude", "t2.*", "--json")
    assert code == ExitCode.OK, err
    found = json.loads(out)
    excluded = {one["instance_type"]: one["excluded"] for one in found["types"]}
    assert {kind for kind, why in excluded.items() if not why} > {"t3.small", "t3a.medium", "c6i.large"}
    assert excluded["t2.small"] == "1 vCPU, under 2"
    assert excluded["c7i.large"] == "no price in ap-southeast-1", (
        "the Price List of this account has only shipped prices"
    )
    assert {kind for kind in excluded if kind.startswith(("inf1", "g4"))} == set()


def test_a_history_is_compared_on_lists_and_on_what_ec2_selects_at_live_prices(desk: Desk) -> None:
    required = '{"vcpus": [2, 2], "memory_gib": [2, 4], "burstable": "required", "excluded": ["t2.*"], "max_types": 3}'
    words = ["backtest", "history", "--past", "2h", "--types", "t3.small+t3.medium", "--types", required]
    code, out, err = desk.run(*words, "--json")
    assert code == ExitCode.OK, err
    fleets = [[kind["type"] for kind in one["types"]] for one in json.loads(out)["fleets"]]
    assert fleets[:2] == [["t3.small"], ["t3.small", "t3.medium"]]
    assert len(fleets[2]) == 3 and {*fleets[2]} < {"t3.small", "t3a.small", "t3.medium", "t3a.medium"}
    assert all(one["usd"] > 0 and not one["usd_missing"] for one in json.loads(out)["fleets"])
    _, out, err = desk.run(*words)
    assert re.search(r"instance prices of ap-southeast-1: live \d{4}-\d\d-\d\d", out + err)
