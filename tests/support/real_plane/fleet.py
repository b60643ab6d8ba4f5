"""The shipped workflow with a real control plane: moto as AWS, and everything else real.

`LocalDeployment` talks to a cluster in three places only: it tells of servers and instances that start and end
(`ClusterSide`), it sends scripts to the server (`CommandRunner`), and it asks Prometheus (`PrometheusHandler`). Here
these are a `RealCluster`, a shell with kubectl, and a running Prometheus; the clock is that of the machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from node_fleet.settings import Settings
from simulator.aws.moto_patches.ec2 import Ec2Delays
from simulator.aws.moto_patches.ssm import CommandResult
from simulator.aws.template import Template
from simulator.clock import VirtualClock
from simulator.local_deployment import LocalDeployment
from tests.support.real_plane.clock import RealTimeClock
from tests.support.real_plane.cluster import RealCluster
from tests.support.real_plane.monitoring import PrometheusServer

POLL_SECONDS = 0.1
DELAYS = Ec2Delays(pending_seconds=1.0, shutting_down_seconds=2.0)


class ServerCommands:
    """Runs the scripts that Systems Manager delivers to the server, with kubectl and in real time."""

    def __init__(self, cluster: RealCluster, clock: VirtualClock, folder: Path) -> None:
        self._environment = cluster.script_environment()
        self._clock = clock
        self._folder = folder
        self._count = 0

    def __call__(self, script: str, *, instance_id: str, execution_timeout: float) -> CommandResult:
        self._count += 1
        out, err = (self._folder / f"command-{self._count}.{stream}" for stream in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                ["sh", "-c", script], env=self._environment, stdout=stdout, stderr=stderr, start_new_session=True
            )
            try:
                while process.poll() is None:
                    self._clock.wait(POLL_SECONDS)
            finally:  # Systems Manager may stop the command while it waits
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return CommandResult(exit_code=process.returncode, stdout=out.read_text(), stderr=err.read_text())


@contextlib.contextmanager
def real_fleet(
    cluster: RealCluster, monitoring: PrometheusServer, template: Template, folder: Path, **settings: Any
) -> Iterator[LocalDeployment]:
    """The deployed template with these settings. The cluster has only its server."""
    deployment = LocalDeployment.from_template(
        template,
        clock=RealTimeClock(),
        settings_overrides=Settings.from_mapping(settings).env_of(settings),
        cluster=lambda _clock: cluster,
        prometheus=lambda _cluster, _clock: monitoring,
        commands=lambda _cluster, clock: ServerCommands(cluster, clock, folder),
    )
    deployment.cloud.ec2.delays = DELAYS
    with deployment:
        yield deployment
