"""Every Kubernetes object of the bundle against the schemas of the pinned version, and what must hold beyond them."""

from __future__ import annotations

import datetime
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cdk_app.k3s_releases import shipped_version
from cdk_app.scripts import read_script
from cluster.render import placeholders, render

CLUSTER = Path(__file__).resolve().parents[3] / "cluster"
ADDRESS = "10.0.1.10"
ON_SERVER = {"node-role.kubernetes.io/control-plane": "true"}
FLUX_KINDS = {
    "GitRepository": ("source.toolkit.fluxcd.io/v1", {"interval", "url", "ref"}),
    "Kustomization": ("kustomize.toolkit.fluxcd.io/v1", {"interval", "path", "prune", "sourceRef"}),
}


def versions() -> dict[str, str]:
    lines = (CLUSTER / "versions.env").read_text().splitlines()
    pinned = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {"K3S_VERSION": shipped_version(), **pinned}


def values() -> dict[str, str]:
    return {
        **versions(),
        "CONFIG_HASH": "0123456789abcdef",
        "DASHBOARDS_HASH": "fedcba9876543210",
        "CLUSTER_ID": "node-fleet-prod",
        "PRIVATE_ADDRESS": ADDRESS,
        "AWS_REGION": "ap-southeast-1",
        "ALERT_TOPIC_ARN": "arn:aws:sns:ap-southeast-1:123456789012:node-fleet-alerts",
        "FLUX_GIT_URL": "https://example.com/fleet.git",
    }


def objects(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted((CLUSTER / folder).glob("*.yaml")):
        for document in yaml.safe_load_all(render(file.read_text(), values())):
            yield f"{file.name}: {document['kind']} {document['metadata']['name']}", document


FLUX = [(name, o) for name, o in objects("demo/flux") if o["kind"] in FLUX_KINDS]
FLUX_ACCESS = [(name, o) for name, o in objects("demo/flux") if o["kind"] not in FLUX_KINDS]
EVERYTHING = [*objects("monitoring/manifests"), *objects("demo/app/manifests"), *FLUX_ACCESS]
NATIVE = [(name, o) for name, o in EVERYTHING if o["kind"] != "HelmChartConfig"]
WORKLOADS = [(name, o) for name, o in NATIVE if o["kind"] in ("Deployment", "DaemonSet")]
named = pytest.mark.parametrize(("name", "document"), NATIVE, ids=[name for name, _ in NATIVE])
workloads = pytest.mark.parametrize(("name", "document"), WORKLOADS, ids=[name for name, _ in WORKLOADS])


def pinned_kubernetes() -> str:
    return versions()["K3S_VERSION"].removeprefix("v").rsplit(".", 1)[0]


@named
def test_an_object_fits_the_strict_schema_of_the_pinned_kubernetes(name: str, document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, pinned_kubernetes(), strict=True)


def test_the_schemas_really_refuse_a_wrong_field() -> None:
    document = next(o for _, o in NATIVE if o["kind"] == "PodDisruptionBudget")
    wrong = {**document, "spec": {**document["spec"], "maxUnavailible": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, pinned_kubernetes(), strict=True)


@pytest.mark.parametrize(("name", "document"), FLUX, ids=[name for name, _ in FLUX])
def test_a_flux_object_has_the_served_version_and_its_required_fields(name: str, document: dict[str, Any]) -> None:
    # No package ships Flux's schemas, so this looks at version and required fields only.
    version, required = FLUX_KINDS[document["kind"]]
    assert document["apiVersion"] == version
    assert required <= set(document["spec"])
    assert document["metadata"]["namespace"] == "flux-system"


def build(folder: Path) -> list[dict[str, Any]]:
    """The objects that kustomize makes of a folder."""
    kubectl = Path(sys.executable).with_name("kubectl")
    built = subprocess.run(
        [str(kubectl if kubectl.exists() else "kubectl"), "kustomize", str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    return list(yaml.safe_load_all(built.stdout))


def test_flux_follows_a_folder_that_exists_and_builds() -> None:
    paths = [o["spec"]["path"] for _, o in objects("demo/flux") if o["kind"] == "Kustomization"]
    assert [(CLUSTER.parent / path / "kustomization.yaml").exists() for path in paths] == [True]
    documents = build(CLUSTER / "demo/app")
    for document in documents:
        kubernetes_validate.validate(document, pinned_kubernetes(), strict=True)
    program = next(o["data"]["app.py"] for o in documents if o["kind"] == "ConfigMap")
    assert program == (CLUSTER / "demo/app/app.py").read_text()


@workloads
def test_monitoring_stays_on_the_server_and_only_what_measures_workers_leaves_it(
    name: str, document: dict[str, Any]
) -> None:
    pod = document["spec"]["template"]["spec"]
    if document["metadata"]["name"] in ("node-exporter", "demo-app"):
        assert pod["nodeSelector"] == {"node-fleet.io/role": "worker"}
    else:
        assert pod["nodeSelector"] == ON_SERVER
        assert {
            "key": "node-role.kubernetes.io/control-plane",
            "operator": "Exists",
            "effect": "NoSchedule",
        } in pod["tolerations"]


@workloads
def test_every_container_has_a_pinned_image_requests_a_memory_limit_and_a_readiness_probe(
    name: str, document: dict[str, Any]
) -> None:
    for container in document["spec"]["template"]["spec"]["containers"]:
        assert re.search(r":v?\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?$", container["image"]), container["image"]
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert "readinessProbe" in container
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


@workloads
def test_a_pod_template_carries_the_labels_that_select_it(name: str, document: dict[str, Any]) -> None:
    wanted = document["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= document["spec"]["template"]["metadata"]["labels"].items()


def test_a_service_leads_to_a_workload_and_a_named_port() -> None:
    for name, service in NATIVE:
        if service["kind"] == "Service":
            wanted = service["spec"]["selector"].items()
            templates = [o["spec"]["template"] for _, o in WORKLOADS]
            found = [t["spec"] for t in templates if wanted <= t["metadata"]["labels"].items()]
            assert len(found) == 1, name
            ports = {p["name"] for c in found[0]["containers"] for p in c["ports"]}
            assert {p["targetPort"] for p in service["spec"]["ports"]} <= ports, name


def test_the_seeds_addresses_are_prometheus_30090_and_grafana_30030() -> None:
    ports = {
        o["metadata"]["name"]: o["spec"]["ports"][0]["nodePort"]
        for _, o in NATIVE
        if o["kind"] == "Service" and o["spec"].get("type") == "NodePort"
    }
    assert ports == {"prometheus": 30090, "grafana": 30030}


def listening_host(container: dict[str, Any]) -> str:
    """The address on which a program listens; empty for all of them, as is the default of each."""
    arguments = dict(a.split("=", 1) for a in container.get("args", ()) if "=" in a)
    environment = {e["name"]: e.get("value", "") for e in container.get("env", ())}
    return environment.get("GF_SERVER_HTTP_ADDR", arguments.get("--web.listen-address", "").rpartition(":")[0])


def test_nothing_in_the_host_network_of_the_server_listens_on_the_addresses_of_the_pod_network() -> None:
    pods = {o["metadata"]["name"]: o["spec"]["template"]["spec"] for _, o in WORKLOADS}
    shared = {name: pod for name, pod in pods.items() if pod.get("hostNetwork") and pod["nodeSelector"] == ON_SERVER}
    hosts = {name: listening_host(container) for name, pod in shared.items() for container in pod["containers"]}
    assert hosts == {"prometheus": ADDRESS, "grafana": ADDRESS, "alertmanager": "127.0.0.1"}


def test_grafana_reads_prometheus_where_it_listens() -> None:
    text = render((CLUSTER / "monitoring/grafana/datasources.yml").read_text(), values())
    (url,) = [source["url"] for source in yaml.safe_load(text)["datasources"] if source["uid"] == "prometheus"]
    (listening,) = [a for a in container_arguments("prometheus") if a.startswith("--web.listen-address=")]
    assert url == f"http://{listening.partition('=')[2]}"


def container_arguments(workload: str) -> list[str]:
    document = next(o for _, o in WORKLOADS if o["metadata"]["name"] == workload)
    arguments = document["spec"]["template"]["spec"]["containers"][0]["args"]
    assert isinstance(arguments, list)
    return arguments


def test_every_target_may_state_only_the_metrics_of_its_job_in_bounded_number_and_size() -> None:
    config = yaml.safe_load((CLUSTER / "monitoring/prometheus/prometheus.yml").read_text())
    for job in config["scrape_configs"]:
        kept = [rule for rule in job["metric_relabel_configs"] if rule.get("action") == "keep"]
        assert [rule["source_labels"] for rule in kept] == [["__name__"]], job["job_name"]
        assert bool(re.fullmatch(kept[0]["regex"], "kube_pod_status_phase")) == (
            job["job_name"] == "kube-state-metrics"
        )
        assert 0 < job["sample_limit"] <= 500_000
        assert job["body_size_limit"] in ("8MB", "256MB")
    own_labels = [job["job_name"] for job in config["scrape_configs"] if job.get("honor_labels")]
    assert own_labels == ["kube-state-metrics"]


def test_prometheus_keeps_seven_days_behind_a_password() -> None:
    arguments = container_arguments("prometheus")
    assert "--storage.tsdb.retention.time=7d" in arguments
    assert "--web.config.file=/etc/prometheus-web/web.yml" in arguments
    assert not [a for a in arguments if "admin-api" in a or "lifecycle" in a or "remote-write" in a]


def test_alertmanager_listens_on_the_loopback_address_alone() -> None:
    arguments = container_arguments("alertmanager")
    assert "--web.listen-address=127.0.0.1:9093" in arguments
    assert "--cluster.listen-address=" in arguments


def test_the_exporter_sees_the_kinds_that_decisions_need_and_may_read_no_more() -> None:
    resources = next(a for a in container_arguments("kube-state-metrics") if a.startswith("--resources="))
    kinds = set(resources.removeprefix("--resources=").split(","))
    assert kinds == {"nodes", "pods", "poddisruptionbudgets"}
    role = next(o for _, o in NATIVE if o["kind"] == "ClusterRole")
    assert {r for rule in role["rules"] for r in rule["resources"]} == kinds
    assert {v for rule in role["rules"] for v in rule["verbs"]} == {"list", "watch"}


def test_the_pinned_exporter_knows_gated_pods() -> None:
    major, minor = re.search(r":v(\d+)\.(\d+)", versions()["KUBE_STATE_METRICS_IMAGE"]).groups()  # type: ignore[union-attr]
    assert (int(major), int(minor)) >= (2, 19)


def test_traefik_is_bound_to_the_server_through_its_chart() -> None:
    # No package ships the schema of K3s's chart resources, so this looks at the fields themselves.
    (document,) = [o for _, o in objects("monitoring/manifests") if o["kind"] == "HelmChartConfig"]
    assert document["apiVersion"] == "helm.cattle.io/v1"
    assert document["metadata"] == {"name": "traefik", "namespace": "kube-system"}
    assert yaml.safe_load(document["spec"]["valuesContent"]) == {"nodeSelector": ON_SERVER}


def test_the_demo_app_never_runs_as_a_single_replica_and_its_budget_lets_one_go() -> None:
    scaling = next(o for _, o in NATIVE if o["kind"] == "HorizontalPodAutoscaler")
    budget = next(o for _, o in NATIVE if o["kind"] == "PodDisruptionBudget")
    deployment = next(o for _, o in WORKLOADS if o["metadata"]["name"] == "demo-app")
    assert scaling["spec"]["minReplicas"] >= 2
    assert "replicas" not in deployment["spec"], "the autoscaler of pods owns the number"
    assert budget["spec"]["maxUnavailable"] == 1
    probes = deployment["spec"]["template"]["spec"]["containers"][0]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(probes)


def test_each_version_has_one_home() -> None:
    files = [f for f in CLUSTER.rglob("*") if f.is_file() and f.suffix != ".pyc"]
    assert not [f for f in files if re.search(r"v1\.\d+\.\d+\+k3s", f.read_text())]
    deployment = next(o for _, o in WORKLOADS if o["metadata"]["name"] == "demo-app")
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == versions()["DEMO_APP_IMAGE"]
    for file in (CLUSTER / "monitoring/manifests").glob("*.yaml"):
        assert not re.search(r"image: [\"']?[a-z]", file.read_text()), file.name


WITHOUT_DIGEST = {
    "ALERTMANAGER_IMAGE": "no public source other than its registry states the digest of this version yet",
}
"""Images that are pinned by their tag alone, and why."""


def test_every_image_is_pinned_by_a_digest_or_listed_with_its_reason() -> None:
    images = {name: image for name, image in versions().items() if name.endswith("_IMAGE")}
    pinned = {name for name, image in images.items() if re.search(r":v?\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}$", image)}
    assert images.keys() - pinned == WITHOUT_DIGEST.keys()


def test_the_documentation_names_the_versions_that_are_pinned() -> None:
    text = (CLUSTER.parent / "docs/cluster.md").read_text()
    assert [version for version in versions().values() if f"`{version}`" not in text] == []


def test_every_placeholder_of_the_bundle_is_one_that_the_bootstrap_fills() -> None:
    for folder in (
        "monitoring/manifests",
        "monitoring/prometheus",
        "monitoring/alertmanager",
        "monitoring/grafana",
        "demo/flux",
    ):
        for file in (*(CLUSTER / folder).glob("*.yaml"), *(CLUSTER / folder).glob("*.yml")):
            assert set(placeholders(file.read_text())) <= set(values()), file.name


def test_a_missing_value_is_named_and_nothing_is_rendered_half() -> None:
    module = runpy.run_path(str(CLUSTER / "render.py"))
    with pytest.raises(module["RenderError"], match=r"no value for FIRST, SECOND"):
        module["render"]("${SECOND} ${FIRST} ${KNOWN}", {"KNOWN": "x", "FIRST": ""})


@pytest.mark.parametrize("part", ["server", "worker"])
def test_user_data_stays_under_what_ec2_takes(part: str) -> None:
    assert len(read_script(CLUSTER / part / "user_data.sh").encode()) < 16 * 1024


SUPPORTED = {
    "K3s": "K3S_VERSION",
    "Prometheus": "PROMETHEUS_IMAGE",
    "Alertmanager": "ALERTMANAGER_IMAGE",
    "Grafana": "GRAFANA_IMAGE",
}


def end_of_support(name: str) -> datetime.date:
    """The date that docs/cluster.md gives for the shipped minor version."""
    version = re.search(r"(\d+\.\d+)\.\d+", versions()[SUPPORTED[name]])
    assert version
    documented = (CLUSTER.parent / "docs/cluster.md").read_text()
    row = re.search(rf"^\| {name} {re.escape(version[1])} \| ([0-9-]{{10}}) \| .*https://", documented, re.M)
    assert row, f"docs/cluster.md gives no end of support with its source for {name} {version[1]}"
    return datetime.date.fromisoformat(row[1])


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_shipped_version_is_supported_today(name: str) -> None:
    end = end_of_support(name)
    today = datetime.datetime.now(datetime.UTC).date()
    assert today <= end, f"{name} has had no support since {end}: ship a later version and correct docs/cluster.md"


def test_the_manifest_of_flux_is_pinned_by_its_checksum() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", versions()["FLUX_SHA256"])
