"""The alert path in the simulator: at most a scrape and an evaluation after pods find no node, once an episode."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from node_fleet.domain.notify.alert_input import execution_name, read_alert, reason_to_ignore
from simulator.clock import VirtualClock
from simulator.fakes.alertmanager import EVALUATION_SECONDS, REPEAT_SECONDS, SCRAPE_SECONDS, FakeAlertmanager

START = 1_780_300_800.0
TOPIC = "arn:aws:sns:ap-southeast-1:123456789012:alerts"


@dataclass(slots=True)
class LocalDeployment:
    """A clock, two settings, and what was published."""

    clock: VirtualClock
    topic: str = TOPIC
    published: list[tuple[float, str, str]] = field(default_factory=list)
    transport: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(fault=""))

    @property
    def resources(self) -> SimpleNamespace:
        values = {"ALERT_TOPIC_ARN": self.topic, "CLUSTER_ID": "shop"}
        return SimpleNamespace(setting=lambda name, default="": values.get(name, default))

    def publish(self, topic: str, message: str, subject: str) -> None:
        self.published.append((self.clock.now() - START, topic, message))


@dataclass(slots=True)
class SimulatedCluster:
    waiting: int = 0

    def has_unschedulable_pods(self) -> bool:
        return self.waiting > 0


@pytest.fixture
def deployment() -> LocalDeployment:
    return LocalDeployment(VirtualClock(START))


def started(deployment: LocalDeployment, cluster: SimulatedCluster) -> None:
    FakeAlertmanager(deployment, cluster).start()  # type: ignore[arg-type]


def test_waiting_pods_are_told_within_a_scrape_and_an_evaluation(deployment: LocalDeployment) -> None:
    cluster = SimulatedCluster()
    started(deployment, cluster)
    deployment.clock.advance(61)
    cluster.waiting = 3
    deployment.clock.advance(SCRAPE_SECONDS + EVALUATION_SECONDS)
    ((at, topic, message),) = deployment.published
    assert at == 75 + EVALUATION_SECONDS
    assert topic == TOPIC
    assert reason_to_ignore(read_alert(message), "shop") == ""


def test_an_episode_is_repeated_under_the_same_name_and_a_new_one_has_a_new_name(deployment: LocalDeployment) -> None:
    cluster = SimulatedCluster(waiting=1)
    started(deployment, cluster)
    deployment.clock.advance(2 * REPEAT_SECONDS + 60)
    names = {execution_name(read_alert(message)) for _, _, message in deployment.published}
    assert len(deployment.published) >= 2 and len(names) == 1
    cluster.waiting = 0
    deployment.clock.advance(60)
    cluster.waiting = 1
    deployment.clock.advance(60)
    assert len({execution_name(read_alert(message)) for _, _, message in deployment.published}) == 2


def test_pods_that_found_a_place_before_the_evaluation_are_not_told(deployment: LocalDeployment) -> None:
    cluster = SimulatedCluster(waiting=1)
    started(deployment, cluster)
    deployment.clock.advance(SCRAPE_SECONDS + EVALUATION_SECONDS / 2)
    cluster.waiting = 0
    deployment.clock.advance(300)
    assert [json.loads(message)["status"] for _, _, message in deployment.published] in ([], ["firing"])


def test_without_a_topic_or_with_prometheus_down_nobody_is_told(deployment: LocalDeployment) -> None:
    deployment.transport.fault = "down"
    started(deployment, SimulatedCluster(waiting=1))
    deployment.clock.advance(600)
    assert deployment.published == []
    silent = LocalDeployment(VirtualClock(START), topic="")
    started(silent, SimulatedCluster(waiting=1))
    silent.clock.advance(600)
    assert silent.published == []
