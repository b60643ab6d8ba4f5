"""The configuration is typed, and everything that is wrong with it is reported at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdk_app.clusters import read_clusters
from cdk_app.config import ConfigurationError
from cdk_app.endpoints import endpoint_names
from cdk_app.k3s_releases import checksums, shipped_version
from cdk_app.synth import attach_context, project_context


def problems_of(raw: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_clusters(raw)
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    return caught.value.problems


def attached(**changes: Any) -> dict[str, Any]:
    cluster = attach_context()["clusters"][0]
    return {**cluster, "attach": {**cluster["attach"], **changes}}


def test_the_projects_own_configuration_is_valid() -> None:
    (cluster,) = read_clusters(project_context()["clusters"])
    assert (cluster.cluster_id, cluster.mode, cluster.settings.min_workers) == ("node-fleet-prod", "new", 2)
    assert cluster.zones == ("ap-southeast-1a", "ap-southeast-1b")


@pytest.mark.parametrize(("mode", "is_refused"), [("new", True), ("attach", False)])
def test_only_an_attached_cluster_may_name_its_nodes_by_private_dns_name(mode: str, is_refused: bool) -> None:
    entry = {"cluster_id": "shop", "mode": mode, "settings": {"node_name_rule": "private-dns-name"}}
    found = problems_of([{**entry, "regoin": "x"}])
    assert any("node_name_rule=private-dns-name: expected instance-id" in problem for problem in found) is is_refused


def test_only_the_bootstrap_of_mode_new_prepares_images_and_the_mirror_needs_a_k3s_that_has_it() -> None:
    wanted = {"registry_mirror": True, "image_wait_seconds": 60}
    entry = attached()
    found = problems_of([{**entry, "settings": {**entry["settings"], **wanted}}])
    place = f"clusters[{entry['cluster_id']}].settings"
    end = "the bootstrap of mode new does this, in mode attach yours: remove it"
    assert found == [f"{place}.registry_mirror=True: {end}", f"{place}.image_wait_seconds=60: {end}"]
    old = {"k3s_version": "v1.29.2+k3s1", "k3s_sha256_amd64": "0" * 64}
    found = problems_of([{"cluster_id": "shop", "settings": wanted, **old}])
    text = "registry_mirror=True: K3s v1.29.2+k3s1 has none: expected v1.29.3+k3s1 or newer"
    assert found == [f"clusters[shop].settings.{text}"]
    (since,) = read_clusters([{"cluster_id": "shop", "settings": wanted, **old, "k3s_version": "v1.29.3+k3s1"}])
    assert since.settings.image_wait_seconds == 60


@pytest.mark.parametrize(
    "url",
    [
        "http://git.example/fleet.git",
        "https://user:password@git.example/fleet.git",  # pragma: allowlist secret
        "https://git.example/fleet.git?token=x",
        "https://git.example/$(id)",
        'https://git.example/"; rm -rf /',
        "https://git.example/a\nb",
        "ssh://git@git.example/fleet.git",
        "file:///etc/passwd",
    ],
)
def test_a_repository_of_flux_that_is_no_plain_https_address_is_refused(url: str) -> None:
    found = problems_of([{"cluster_id": "shop", "server": {"flux_git_url": url}}])
    assert any("server.flux_git_url" in problem and "expected an https URL" in problem for problem in found)


def test_the_example_of_mode_attach_is_valid() -> None:
    (cluster,) = read_clusters(attach_context()["clusters"])
    assert cluster.attach is not None
    assert cluster.zones == ("ap-southeast-1a", "ap-southeast-1b")


def test_clusters_may_come_as_text_from_the_command_line() -> None:
    text = json.dumps(project_context()["clusters"])
    assert read_clusters(text) == read_clusters(project_context()["clusters"])


def test_every_mistake_of_every_cluster_is_listed_at_once() -> None:
    found = problems_of(
        [
            {
                "cluster_id": "Prod_1",
                "mode": "newer",
                "regoin": "x",
                "network": {"cidr": "8.8.8.0/24", "zones": ["a"], "http_from": ["everywhere"]},
                "server": {"volume_gib": 4, "instance_type": "big"},
                "settings": {"min_workers": 5, "max_workers": 3, "cpu_up_percnt": 60, "interval_seconds": 90},
            },
            {"mode": "attach", "attach": {"vpc_id": "vpc-x", "launch_template_version": "$Latest"}},
        ]
    )
    wanted = (
        "cluster_id=Prod_1: expected 3 to 40 small letters",
        "mode=newer: expected new or attach",
        "regoin is not known (nearest: region)",
        "network.cidr=8.8.8.0/24: expected a private network",
        "network.zones=['a']: expected a list of 2 or more",
        "network.http_from=['everywhere']: expected a list of networks",
        "server.volume_gib=4: expected a whole number from 16 to 1000 GiB",
        "server.instance_type=big: expected an instance type",
        "cpu_up_percnt is not a setting (nearest: cpu_up_percent)",
        "min_workers=5 must be at most max_workers=3",
        "clusters[1].cluster_id is missing",
        "attach.vpc_id=vpc-x: expected a VPC id",
        "attach.launch_template_version=$Latest: expected a whole number",
        "attach.function_subnets is missing",
        "attach.worker_role_arn is missing",
    )
    missing = [text for text in wanted if not any(text in problem for problem in found)]
    assert not missing, found


@pytest.mark.parametrize("raw", [None, [], {}, "no json", 7])
def test_a_missing_or_malformed_list_says_what_is_expected(raw: Any) -> None:
    assert any("clusters is" in problem for problem in problems_of(raw))


@pytest.mark.parametrize(
    ("settings", "problem_text"),
    [
        ({"interval_seconds": 90}, "interval_seconds=90: expected whole minutes"),
        ({"instance_types": []}, "instance_types is empty"),
        ({"instance_types": ["t3.small", "t4g.small"]}, "x86_64 and arm64 cannot share one image"),
        (
            {"instance_types": ["t3.small", "m5.large"], "cpu_credits": "standard"},
            "cpu_credits=standard with instance_types=t3.small,m5.large: EC2 refuses a launch of m5.large",
        ),
        ({"worker_volume_gib": 40}, "settings.worker_volume_gib: use workers.volume_gib (mode new)"),
        ({"worker_public_address": False}, "settings.worker_public_address: workers of mode new always have"),
        ({"topic_arn": "arn:x"}, "settings.topic_arn: the deployment creates the topic"),
        ({"subnets": "a=subnet-1"}, "settings.subnets: use network.zones"),
        ({"cluster_id": "other"}, "settings.cluster_id: cluster_id belongs beside settings"),
    ],
)
def test_a_setting_that_cannot_be_deployed_is_refused(settings: dict[str, Any], problem_text: str) -> None:
    assert any(problem_text in problem for problem in problems_of([{"cluster_id": "shop", "settings": settings}]))


def test_the_form_of_a_worker_reaches_the_settings_from_its_section() -> None:
    (cluster,) = read_clusters([{"cluster_id": "shop", "workers": {"volume_gib": 40}}])
    assert (cluster.settings.worker_volume_gib, cluster.settings.worker_public_address) == (40, True)
    assert cluster.settings.to_env()["WORKER_VOLUME_GIB"] == "40"


@pytest.mark.parametrize(
    ("instance_type", "architecture"),
    [
        ("t3.small", "x86_64"),
        ("t4g.small", "arm64"),
        ("g4dn.xlarge", "x86_64"),
        ("m7gd.large", "arm64"),
        ("a1.large", "arm64"),
    ],
)
def test_the_image_follows_the_family_of_the_type(instance_type: str, architecture: str) -> None:
    (cluster,) = read_clusters([{"cluster_id": "shop", "settings": {"instance_types": [instance_type]}}])
    assert cluster.worker_architecture == architecture


def test_two_clusters_that_would_share_a_table_are_refused() -> None:
    found = problems_of([{"cluster_id": "shop"}, {"cluster_id": "warehouse"}])
    assert (
        "clusters[warehouse] and clusters[shop] share state_table=k3s-autoscaler-state: give each its own, or both "
        in "\n".join(found)
    )


def test_two_clusters_in_two_regions_may_use_the_same_names() -> None:
    clusters = read_clusters([{"cluster_id": "shop"}, {"cluster_id": "warehouse", "region": "eu-west-1"}])
    assert [c.region for c in clusters] == ["ap-southeast-1", "eu-west-1"]


@pytest.mark.parametrize(
    "changes",
    [
        {"launch_template_version": 0},
        {"server_security_group": "sg"},
        {"function_egress": "nat"},
        {"worker_subnets": {"a": "b"}},
    ],
)
def test_an_attachment_names_its_wrong_part(changes: dict[str, Any]) -> None:
    (name,) = changes
    assert [name in problem for problem in problems_of([attached(**changes)])] == [True]


REGIONS_WITHOUT_DUAL_STACK_EC2 = [
    "ap-east-2",
    "ap-northeast-3",
    "ap-south-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-west-1",
    "eu-central-2",
    "eu-south-2",
    "il-central-1",
    "me-central-1",
    "mx-central-1",
]


@pytest.mark.parametrize("region", [*REGIONS_WITHOUT_DUAL_STACK_EC2, "cn-north-1"])
def test_mode_new_is_refused_where_its_functions_could_not_reach_ec2(region: str) -> None:
    (cluster,) = project_context()["clusters"]
    (problem,) = problems_of([{**cluster, "region": region}])
    assert f"clusters[node-fleet-prod].region={region}: AWS publishes no name of ec2" in problem
    assert "mode attach with function_egress existing" in problem


def test_mode_attach_is_refused_there_only_when_its_functions_use_ipv6() -> None:
    there = {"region": "ap-southeast-3"}
    (problem,) = problems_of([{**attached(function_egress="ipv6"), **there}])
    assert "AWS publishes no name of ec2" in problem
    assert read_clusters([{**attached(function_egress="existing"), **there}])


def test_mode_new_is_accepted_in_every_other_region_of_the_table() -> None:
    (cluster,) = project_context()["clusters"]
    others = set(endpoint_names()["regions"]) - set(REGIONS_WITHOUT_DUAL_STACK_EC2)
    assert len(others) == 22
    for region in others:
        assert read_clusters([{**cluster, "region": region}])[0].region == region


CHECKSUM = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"k3s_version": "1.36"}, "k3s_version=1.36: expected a release of K3s such as v1.35.5+k3s1"),
        ({"k3s_version": "v1.36.99+k3s1"}, "node-fleet ships no checksum of it: expected one of v1.35.5+k3s1, "),
        ({"k3s_sha256_amd64": "abc"}, "k3s_sha256_amd64=abc: expected the SHA-256"),
        ({"k3s_sha256_amd64": CHECKSUM}, "v1.35.5+k3s1 has another checksum, 267d18da"),
    ],
)
def test_a_release_of_k3s_without_a_checksum_of_a_second_source_is_refused(
    change: dict[str, str], problem: str
) -> None:
    (raw,) = project_context()["clusters"]
    (found,) = problems_of([{**raw, **change}])
    assert problem in found


def test_a_release_of_k3s_with_its_checksum_is_accepted() -> None:
    (raw,) = project_context()["clusters"]
    (shipped,) = read_clusters([raw])
    assert (shipped.k3s_version, shipped.k3s_checksum) == (shipped_version(), checksums()[shipped_version()])
    for version, given in {"v1.36.99+k3s1": CHECKSUM, "v1.36.4+k3s1": checksums()["v1.36.4+k3s1"]}.items():
        (cluster,) = read_clusters([{**raw, "k3s_version": version, "k3s_sha256_amd64": given}])
        assert (cluster.k3s_version, cluster.k3s_checksum) == (version, given)
    (known,) = read_clusters([{**raw, "k3s_version": "v1.36.4+k3s1"}])
    assert known.k3s_checksum == checksums()["v1.36.4+k3s1"]


@pytest.mark.parametrize("key", ["k3s_version", "k3s_sha256_amd64"])
def test_the_k3s_of_an_attached_cluster_is_not_configured_here(key: str) -> None:
    (raw,) = attach_context()["clusters"]
    value = shipped_version() if key == "k3s_version" else checksums()[shipped_version()]
    (found,) = problems_of([{**raw, key: value}])
    assert f"{key} does not belong to mode attach" in found


def test_the_release_beside_the_mode_is_no_setting() -> None:
    (raw,) = project_context()["clusters"]
    (found,) = problems_of([{**raw, "settings": {**raw["settings"], "k3s_version": "v1.36.4+k3s1"}}])
    assert "k3s_version stands beside settings" in found


def test_an_attached_server_that_is_switched_off_is_named_in_the_configuration() -> None:
    nights = {"hibernate": "Mon-Fri 20:00-07:00"}
    entry = attached()
    (found,) = problems_of([{**entry, "settings": {**entry["settings"], **nights}}])
    assert found.startswith("clusters[shop-k3s].attach.server_instance_id is missing: settings.hibernate stops")
    named = attached(server_instance_id="i-0123456789abcdef0")
    (cluster,) = read_clusters([{**named, "settings": {**named["settings"], **nights}}])
    assert cluster.settings.hibernate
    assert "expected the id of the server's instance" in problems_of([attached(server_instance_id="i-1")])[0]
