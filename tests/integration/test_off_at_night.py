"""The scenario off-at-night: off at 20:00, and on at 07:00 although EC2 refuses the first start."""

from __future__ import annotations

import pytest

from simulator.scenario.files import load_scenario
from simulator.simulation import Simulation

HOUR = 3600


@pytest.mark.whole
def test_the_fleet_is_off_by_night_and_the_workers_of_the_morning_are_ready_at_seven() -> None:
    with Simulation(load_scenario("off-at-night")) as sim:
        begin, ec2 = sim.scenario.start_at, sim.deployment.cloud.ec2
        sim.deployment.run_until(begin + 1.5 * HOUR)
        assert ec2.instance(sim.deployment.server_id).state == "stopped"
        assert ec2.live_ids() == []
        known = len(sim.executions)
        sim.deployment.run_until(begin + 10.5 * HOUR)
        night = [one for one in sim.executions[known:] if one.machine.endswith("autoscaler")]
        ended = [one for one in night if one.path[-1] == "SwitchedOff"]
        assert len(ended) >= 0.75 * len(night) and len(night) >= 9 * 30
        sim.deployment.run_until(begin + 11.5 * HOUR)
        ready = [n for n in sim.cluster.nodes() if n.role != "server" and n.ready]
        assert len(ready) == 4, "the schedule of 07:00, although its minimum begins then"
        subjects = [one["Subject"] for one in sim.deployment.messages]
        assert any("wake_failed" in one["Message"] for one in sim.deployment.messages), subjects
