"""Images before pods: what the server's service opens and publishes, and what a worker pulls and reports."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.server_bootstrap import VALUES as SERVER_VALUES
from tests.support.server_bootstrap import Run as ServerRun
from tests.support.server_bootstrap import k3s_config
from tests.support.shipped_scripts import load_server
from tests.support.stub_commands import Reply, Stubs
from tests.unit.cluster.test_worker_bootstrap import INSTANCE, VALUES, failure_tag
from tests.unit.cluster.test_worker_bootstrap import stubs as worker_stubs

service = load_server("images")
BORN = datetime(2026, 11, 30, 0, 53, 20, tzinfo=UTC)


def node(report: str | None = None, limit: str = "180", *others: dict[str, str]) -> dict[str, Any]:
    marks = {} if report is None else {service.REPORT: report}
    taint = {"key": service.TAINT, "value": limit, "effect": "NoSchedule"}
    created = BORN.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {"name": "i-1", "annotations": marks, "creationTimestamp": created, "resourceVersion": "7"},
        "spec": {"taints": [taint, *others]},
    }


@pytest.mark.parametrize(
    ("report", "limit", "age", "reason"),
    [
        ("4/4/20", "180", 20, "4 of 4 images were pulled in 20 s"),
        ("0/0/0", "180", 0, "0 of 0 images were pulled in 0 s"),
        (None, "180", 179, ""),
        (None, "180", 180, "its images were not reported within 180 s"),
        ("soon", "180", 179, ""),
        (None, "9999", 899, ""),
        (None, "9999", 900, "its images were not reported within 900 s"),
        (None, "", 0, "its images were not reported within 0 s"),
        (None, "-5", 0, "its images were not reported within 0 s"),
    ],
)
def test_a_worker_takes_pods_when_its_images_are_reported_or_its_time_is_over(
    report: str | None, limit: str, age: int, reason: str
) -> None:
    assert service.reason_to_open(node(report, limit), BORN.timestamp() + age) == reason


class Server:
    """kubectl with these workers and Deployments; patches are kept, or refused."""

    def __init__(self, nodes: list[dict[str, Any]], deployments: list[dict[str, Any]] | None = None) -> None:
        self.nodes, self.deployments, self.patches = nodes, deployments, []  # type: ignore[var-annotated]
        self.refuses = False

    def __call__(self, *words: str) -> str:
        if words[0] == "patch":
            if self.refuses:
                raise OSError("the object has been modified")
            self.patches.append((words[2], json.loads(words[-1])))
            return ""
        items = self.nodes if words[-1] == service.WORKERS else self.deployments
        if items is None:
            raise OSError("the server does not answer")
        return json.dumps({"items": items})


def test_only_its_own_taint_is_removed_and_only_from_the_version_that_was_read() -> None:
    other = {"key": "team", "value": "a", "effect": "NoSchedule"}
    server = Server([node("1/1/3", "180", other), node(), {**node(), "spec": {}}])
    assert service.open_workers(server, 0.0) is True, "the second one waits"
    assert server.patches == [("i-1", {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [other]}})]
    assert service.open_workers(alone := Server([node("1/1/3")]), 0.0) is False
    assert alone.patches[0][1]["spec"] == {"taints": None}


def test_a_refused_change_is_tried_again() -> None:
    server = Server([node("1/1/3")])
    server.refuses = True
    assert service.open_workers(server, 0.0) is True


def deployment(name: str, *images: str, available: int = 1, **pod: Any) -> dict[str, Any]:
    replicas, spec = pod.pop("replicas", 1), {"containers": [{"image": image} for image in images], **pod}
    return {
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"replicas": replicas, "template": {"spec": spec}},
        "status": {"availableReplicas": available} if available else {},
    }


def test_the_list_has_the_images_that_run_on_workers_once_and_the_most_used_first() -> None:
    given = [
        deployment("one", "a:1", "b:1"),
        deployment("many", "b:1", "c@sha256:00", available=9, initContainers=[{"image": "init:2"}]),
        deployment("broken", "missing:1", available=0),
        deployment("dns", "coredns:1", nodeSelector={service.SERVER_LABEL: "true"}),
        deployment("odd", "x y; reboot", "-flag", available=5),
    ]
    assert service.wanted_images(given) == ["init:2", "b:1", "c@sha256:00", "a:1"]
    many = [deployment(f"d{number}", f"image:{number}") for number in range(41)]
    assert len(service.wanted_images(many)) == 40


def test_an_outage_of_all_workers_removes_no_image_that_was_listed_and_adds_none(tmp_path: Path) -> None:
    """After a night off every pod waits for the workers that pull this list."""
    file, server = tmp_path / "images.txt", Server([], [deployment("one", "a:1"), deployment("two", "b:1")])
    service.publish(server, file)
    for given, listed in (
        ([deployment("one", "a:1", "new:1", available=0), deployment("two", "b:1", available=0)], "a:1\nb:1\n"),
        ([deployment("one", "a:1", available=0), deployment("two", "b:1", available=0, replicas=0)], "a:1\n"),
        ([deployment("one", "a:2", available=0), deployment("two", "b:1")], "b:1\n"),
        ([], ""),
    ):
        server.deployments = given
        service.publish(server, file)
        assert file.read_text() == listed


def test_the_list_is_published_every_minute_and_a_failure_waits_for_the_next_round(tmp_path: Path) -> None:
    file, server = tmp_path / "static/images.txt", Server([], [deployment("one", "a:1")])
    assert service.work(server, file, 1000.0, wait_seconds=180, published_at=0.0) == (10, 1000.0)
    assert file.read_text() == "a:1\n"
    server.deployments = [deployment("two", "b:1")]
    assert service.work(server, file, 1059.0, wait_seconds=180, published_at=1000.0) == (10, 1000.0)
    assert file.read_text() == "a:1\n"
    assert service.work(server, file, 1060.0, wait_seconds=180, published_at=1000.0) == (10, 1060.0)
    assert file.read_text() == "b:1\n"
    server.deployments = None
    assert service.work(server, file, 1120.0, wait_seconds=180, published_at=1060.0) == (10, 1060.0)
    assert file.read_text() == "b:1\n"


@pytest.mark.parametrize(("nodes", "pause"), [([], 60), ([node()], 10)])
def test_without_the_setting_a_leftover_taint_is_still_removed_and_nothing_is_published(
    tmp_path: Path, nodes: list[dict[str, Any]], pause: int
) -> None:
    file = tmp_path / "images.txt"
    assert service.work(Server(nodes), file, 0.0, wait_seconds=0, published_at=0.0) == (pause, 0.0)
    assert not file.exists()


# the bootstraps ------------------------------------------------------------------------------------------------------

Worker = Callable[..., tuple[Any, Stubs, Path]]


@pytest.fixture
def worker(tmp_path: Path, cluster: Path, filled: Callable[[Path, dict[str, str]], Path]) -> Worker:
    """Runs the bootstrap of a worker; `list` is what the server publishes."""
    stubs: Stubs = worker_stubs.__wrapped__(tmp_path)  # type: ignore[attr-defined]

    def start(images: Reply | str = "web:1\ndb:2\n", **changed: str) -> tuple[Any, Stubs, Path]:
        root = tmp_path / "root"
        stubs.on("curl", "6443/static/node-fleet/images.txt$", images)
        script = filled(cluster / "worker/user_data.sh", {**VALUES, "IMAGE_WAIT_SECONDS": "180", **changed})
        return stubs.run(script, {"NODE_FLEET_ROOT": str(root)}), stubs, root

    return start


def pulled(stubs: Stubs) -> list[str]:
    return [call[-1] for call in stubs.calls("kubectl", "crictl pull")]


def image_tag(stubs: Stubs) -> str:
    tags = [part for call in stubs.calls("aws", "create-tags") for part in call if "ImagePull" in part]
    return tags[-1].removeprefix("Key=ImagePull,Value=") if tags else ""


def test_a_worker_registers_with_the_taint_pulls_the_list_and_reports_it(worker: Worker) -> None:
    result, stubs, root = worker()
    assert result.returncode == 0, result.stderr
    config = yaml.safe_load((root / "etc/rancher/k3s/config.yaml").read_text())
    assert "node-taint" not in config and config["kubelet-arg"], "a later Node has the images"
    assert pulled(stubs) == ["web:1", "db:2"]
    [asked] = stubs.calls("curl", "images.txt")
    assert asked[asked.index("--cacert") + 1].endswith("/agent/server-ca.crt")
    [mark] = stubs.calls("kubectl", "annotate")
    assert mark[-1].startswith("node-fleet.io/images=2/2/") and service.REPORTED.fullmatch(mark[-1].partition("=")[2])
    assert mark[mark.index("node") + 1] == INSTANCE and "kubelet.kubeconfig" in " ".join(mark)
    assert image_tag(stubs).startswith("2 of 2 in ")
    calls = stubs.calls()
    assert calls.index(mark) > max(calls.index(call) for call in stubs.calls("aws", "create-tags"))


def test_the_node_is_registered_with_the_taint(worker: Worker, tmp_path: Path) -> None:
    _, stubs, root = worker()
    stubs.on("systemctl", "is-active", Reply(exit=3))
    assert stubs.run(tmp_path / "user_data.sh", {"NODE_FLEET_ROOT": str(root)}).returncode != 0
    config = yaml.safe_load((root / "etc/rancher/k3s/config.yaml").read_text())
    assert config["node-taint"] == ["node-fleet.io/starting=180:NoSchedule"]
    assert config["node-name"] == INSTANCE


def test_without_the_setting_a_worker_has_no_taint_and_pulls_nothing(worker: Worker) -> None:
    result, stubs, root = worker(IMAGE_WAIT_SECONDS="0")
    assert result.returncode == 0
    assert "node-taint" not in (root / "etc/rancher/k3s/config.yaml").read_text()
    assert (pulled(stubs), stubs.calls("curl", "images.txt"), image_tag(stubs)) == ([], [], "")
    assert not (root / "etc/rancher/k3s/registries.yaml").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("images", "report"),
    [
        (Reply(exit=22, stderr="curl: (22) 404\n"), "0 of 0 in "),
        ("", "0 of 0 in "),
        ("web:1\n$(reboot)\n-x\nweb:2; reboot\n\n", "1 of 1 in "),
        ("".join(f"web:{n}\n" for n in range(60)), "40 of 40 in "),
    ],
    ids=["no list", "an empty list", "hostile lines", "a long list"],
)
def test_a_list_never_ends_the_bootstrap(worker: Worker, images: Reply | str, report: str) -> None:
    result, stubs, _ = worker(images)
    assert (result.returncode, failure_tag(stubs)) == (0, "")
    assert image_tag(stubs).startswith(report)
    assert all(service.IMAGE.fullmatch(image) for image in pulled(stubs))


def test_what_cannot_be_pulled_or_reported_is_left_to_the_kubelet_and_the_time_limit(
    worker: Worker, tmp_path: Path
) -> None:
    _, stubs, _ = worker("ours/private:1\nweb:1\n")
    stubs.on("kubectl", "crictl pull ours", Reply(exit=1, stderr="401\n"))
    stubs.on("kubectl", "annotate", Reply(exit=1, stderr="forbidden\n"))
    stubs.on("aws", "create-tags", Reply(exit=1, stderr="denied\n"))
    again = stubs.run(tmp_path / "user_data.sh", {"NODE_FLEET_ROOT": str(tmp_path / "root")})
    assert again.returncode == 0
    assert "ours/private:1 was not pulled; the kubelet pulls it for the first pod that needs it" in again.stderr
    assert "1 of 2 images were pulled" in again.stderr
    assert "the server lets pods onto this worker when the limit has passed" in again.stderr
    assert "FAILED" not in again.stderr


def test_with_the_mirror_a_worker_shares_the_images_of_every_registry(worker: Worker) -> None:
    _, _, own = worker(REGISTRY_MIRROR="true", IMAGE_WAIT_SECONDS="0")
    assert yaml.safe_load((own / "etc/rancher/k3s/registries.yaml").read_text()) == {"mirrors": {"*": None}}


def test_the_server_shares_images_and_runs_the_service_also_when_monitoring_cannot_be_installed(
    run: ServerRun, root: Path, cluster: Path, stubs: Stubs
) -> None:
    """Without the service no new worker would ever take pods."""
    assert SERVER_VALUES["IMAGE_WAIT_SECONDS"] == "0"
    stubs.on("aws", "get-parameter .*dashboards", Reply(exit=1, stderr="denied\n"))
    assert run(REGISTRY_MIRROR="true", IMAGE_WAIT_SECONDS="240").returncode != 0
    assert yaml.safe_load((root / "etc/rancher/k3s/registries.yaml").read_text()) == {"mirrors": {"*": None}}
    assert k3s_config(root)["embedded-registry"] is True
    unit = (root / "etc/systemd/system/node-fleet-images.service").read_text()
    assert "Environment=IMAGE_WAIT_SECONDS=240 KUBECONFIG=/etc/rancher/k3s/k3s.yaml" in unit
    assert (root / "opt/node-fleet/images.py").read_text() == (cluster / "server/images.py").read_text()
    assert stubs.calls("systemctl", "restart .*node-fleet-images")


@pytest.mark.whole
def test_switching_the_mirror_off_restarts_k3s_without_it(run: ServerRun, root: Path, stubs: Stubs) -> None:
    run(REGISTRY_MIRROR="true")
    assert run().returncode == 0
    file = root / "etc/rancher/k3s/registries.yaml"
    assert (file.exists(), "embedded-registry" in k3s_config(root)) == (False, False)
    assert len(stubs.calls("systemctl", "restart .*k3s$")) == 2


OWN = "# Written by node-fleet for registry_mirror.\n"


@pytest.mark.parametrize(
    ("before", "mirror", "after"),
    [
        (None, "true", OWN + 'mirrors:\n  "*":\n'),
        (None, "false", None),
        (OWN, "false", None),
        ("configs: {}\n", "true", "configs: {}\n"),
        ("configs: {}\n", "false", "configs: {}\n"),
    ],
)
def test_a_file_of_registries_that_an_image_or_a_person_wrote_stays(
    tmp_path: Path, cluster: Path, before: str | None, mirror: str, after: str | None
) -> None:
    file = tmp_path / "etc/rancher/k3s/registries.yaml"
    file.parent.mkdir(parents=True)
    if before is not None:
        file.write_text(before)
    script = f'ROOT="{tmp_path}" REGISTRY_MIRROR="{mirror}"; . "{cluster}/bootstrap/k3s.sh"; write_registries'
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    assert (file.read_text() if file.exists() else None) == after
    is_kept = mirror == "true" and before == after
    assert ("was not written by node-fleet and stays" in done.stderr) is is_kept
