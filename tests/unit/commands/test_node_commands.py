"""check_node.sh, uncordon_node.sh and forget_node.sh: exact about one node, harmless twice and late."""

from __future__ import annotations

import ast
import re

import pytest

from node_fleet.domain.scale_down.drain import CommandResult, describe_own_pods
from node_fleet.domain.scale_down.inspection import parse_node_check
from node_fleet.domain.scale_down.lost_volumes import LostVolume, parse_lost_volumes
from simulator.cluster.load.applications import ApplicationSpec
from tests.support.server_site import FIRST, SECOND, Site
from tests.support.shipped_scripts import COMMANDS, script

OPERATION = "down-1-100"
ALL = sorted(path.stem for path in COMMANDS.glob("*.sh"))


def test_a_check_reports_cordon_owner_readiness_and_remaining_pods(site: Site) -> None:
    site.world.add_application(ApplicationSpec(name="web", replicas=4))
    site.clock.advance(60)
    look = site.look()
    assert (look.present, look.ready, look.cordoned, look.cordoned_by, look.instance_id) == (
        True,
        True,
        False,
        "",
        FIRST,
    )
    assert look.pods_left == 2


@pytest.mark.parametrize("pods", [1, 2, 3])
def test_pods_that_still_shut_down_are_counted_as_left(site: Site, pods: int) -> None:
    for n in range(pods):
        site.pod(f"cart-{n}")
    site.clock.advance(20)
    for n in range(pods):
        site.world.delete("pods", "shop", f"cart-{n}", grace_seconds=120)
    assert site.look().pods_left == site.look().pods_terminating == pods


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_cases_12_and_13_finished_mirror_and_daemonset_pods_leave_a_node_empty(site: Site, phase: str) -> None:
    site.pod("done", phase=phase)
    site.pod("haproxy", namespace="kube-system", annotations={"kubernetes.io/config.mirror": "x"})
    assert site.look().pods_left == 0


@pytest.mark.parametrize("cut", [1, 4, 5, 30])
def test_a_cut_look_is_unknown(site: Site, cut: int) -> None:
    text = site.run("check_node", NODE_NAME=FIRST).stdout.strip()
    assert not parse_node_check(text[:-cut], FIRST).known
    assert not parse_node_check(text, SECOND).known


def test_a_node_that_is_gone_is_known_to_be_gone(site: Site) -> None:
    look = site.look("no-such-node")
    assert (look.known, look.present) == (True, False)


def test_an_api_that_does_not_answer_says_nothing_of_the_node(site: Site) -> None:
    site.shell.double.reachable = False
    assert not site.look().known


@pytest.mark.parametrize("again", [1, 2, 3])
def test_uncordon_takes_back_its_own_cordon_and_is_harmless_again(site: Site, again: int) -> None:
    site.drain()
    said = [site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID=OPERATION).stdout for _ in range(again)]
    words = [text.split("result: ")[1].split()[0] for text in said]
    assert words == ["uncordoned", *["not-cordoned"] * (again - 1)]
    assert (site.look().cordoned, site.mark(FIRST)) == (False, {"undone": OPERATION})


@pytest.mark.parametrize("owner", ["", "down-2-2", "spot-i-1"])
def test_the_cordon_of_another_user_is_never_removed(site: Site, owner: str) -> None:
    site.world.cordon(FIRST)
    if owner:
        site.annotate(FIRST, cordoned_by=owner)
    result = site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID=OPERATION)
    assert "result: foreign-cordon" in result.stdout
    assert site.look().cordoned
    assert site.mark(FIRST).get("cordoned-by", "") == owner


def test_a_person_who_uncordoned_and_cordoned_again_keeps_the_cordon_only_if_the_mark_is_gone(site: Site) -> None:
    site.drain()
    site.world.uncordon(FIRST)
    assert "result: not-cordoned" in site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID=OPERATION).stdout


def uncordoned(site: Site, operation: str = OPERATION) -> CommandResult:
    done = site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID=operation)
    return CommandResult(status="Success", exit_code=done.exit_code, stdout=done.stdout, final=True, known=True)


def one_pod_on_each_worker(site: Site) -> None:
    """Two pods of one Deployment, each of which fills most of a worker."""
    site.world.add_application(ApplicationSpec(name="web", replicas=2, cpu_request_milli=1200))
    site.clock.advance(60)
    assert site.look(FIRST).pods_left == site.look(SECOND).pods_left == 1


def test_a_rollback_names_the_pods_of_its_worker_that_found_no_other_place(site: Site) -> None:
    one_pod_on_each_worker(site)
    assert site.drain().exit_code == 0
    result = uncordoned(site)
    assert result.word == "uncordoned"
    assert re.fullmatch(
        r"1 pod of this worker found no place on another one, such as shop/web-\S+", describe_own_pods(result)
    )
    site.clock.advance(30)
    assert describe_own_pods(uncordoned(site)) == "", "its pod runs on it again"


def test_a_rollback_names_no_pods_that_wait_for_another_reason_or_another_operation(site: Site) -> None:
    site.world.add_application(ApplicationSpec(name="small", replicas=2, cpu_request_milli=100))
    site.clock.advance(60)
    site.drain()
    site.world.add_application(ApplicationSpec(name="large", replicas=1, cpu_request_milli=9000))
    site.clock.advance(30)
    assert describe_own_pods(uncordoned(site)) == ""


def test_pods_that_wait_since_the_drain_of_another_operation_are_not_named(site: Site) -> None:
    one_pod_on_each_worker(site)
    site.drain()
    assert describe_own_pods(uncordoned(site, "down-9-9")) == ""


def test_a_rollback_succeeds_when_nothing_is_known_of_the_drained_pods(site: Site) -> None:
    site.world.cordon(FIRST)
    site.annotate(FIRST, cordoned_by=OPERATION)
    result = uncordoned(site)
    assert (result.word, describe_own_pods(result)) == ("uncordoned", "")


@pytest.mark.parametrize("waits", [0, 60, 3600])
def test_forgetting_removes_the_node_and_its_password(site: Site, waits: int) -> None:
    site.world.instance_ended(FIRST)
    site.clock.advance(100 + waits)
    assert site.run("forget_node", NODE_NAME=FIRST, INSTANCE_ID=FIRST).exit_code == 0
    assert site.world.find("nodes", "", FIRST) is None
    assert site.world.find("secrets", "kube-system", f"{FIRST}.node-password.k3s") is None
    assert site.run("forget_node", NODE_NAME=FIRST, INSTANCE_ID=FIRST).exit_code == 0


@pytest.mark.parametrize("runs", [1, 2])
def test_the_volumes_of_an_ended_worker_are_named_each_time_its_node_is_deleted(site: Site, runs: int) -> None:
    site.claim("data", FIRST)
    for name, created in (("job-1", "2026-01-01"), ("job-2", "2026-01-02"), ("other", "2026-01-03")):
        site.pod(name, SECOND, creationTimestamp=f"{created}T00:00:00Z")
        claim = "data" if name.startswith("job") else "more"
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        site.world.update("pods", "shop", name, lambda pod, volumes=volumes: pod["spec"].update(volumes=volumes))
    site.world.instance_ended(FIRST)
    site.clock.advance(100)
    for _ in range(runs):
        found = parse_lost_volumes(site.run("forget_node", NODE_NAME=FIRST, INSTANCE_ID=FIRST).stdout)
    assert found == (LostVolume(claim="shop/data", volume="pv-data", pod="shop/job-2"),)


def test_volumes_that_cannot_be_read_do_not_keep_the_node_of_an_ended_worker(site: Site) -> None:
    site.world.instance_ended(FIRST)
    site.clock.advance(100)
    broken = script("forget_node").replace('"/api/v1/persistentvolumes"', '"/api/v1/nothing"')
    result = site.shell.run(broken, {"NODE_NAME": FIRST, "INSTANCE_ID": FIRST})
    assert (result.exit_code, site.world.find("nodes", "", FIRST)) == (0, None)
    assert "could not be read" in result.stderr


def test_a_password_without_a_node_is_removed_too(site: Site) -> None:
    site.world.create(
        "secrets", {"metadata": {"name": "old.node-password.k3s", "namespace": "kube-system"}, "type": "Opaque"}
    )
    assert site.run("forget_node", NODE_NAME="old", INSTANCE_ID="i-0123456789abcdef0").exit_code == 0
    assert site.world.find("secrets", "kube-system", "old.node-password.k3s") is None


@pytest.mark.parametrize("node", [FIRST, SECOND])
def test_a_node_whose_agent_still_runs_is_not_forgotten(site: Site, node: str) -> None:
    assert site.run("forget_node", NODE_NAME=node, INSTANCE_ID=node).exit_code == 71
    assert site.world.find("nodes", "", node) is not None


def test_a_node_of_another_instance_is_not_forgotten(site: Site) -> None:
    site.world.instance_ended(FIRST)
    site.clock.advance(100)
    assert site.run("forget_node", NODE_NAME=FIRST, INSTANCE_ID=SECOND).exit_code == 72
    assert site.world.find("nodes", "", FIRST) is not None


@pytest.mark.parametrize("name", sorted(path.stem for path in COMMANDS.glob("*.sh")))
def test_the_python_of_a_script_runs_on_the_server_and_defines_each_name_once(name: str) -> None:
    """Amazon Linux 2023 has Python 3.9; the modules that a script contains share one namespace."""
    for part in re.findall(r"<<'PYTHON'\n(.*?)^PYTHON$", script(name), re.DOTALL | re.MULTILINE):
        tree = ast.parse(part, feature_version=(3, 9))
        named = (ast.FunctionDef, ast.ClassDef)
        defined = [node.name for node in tree.body if isinstance(node, named)]
        defined += [
            t.id for node in tree.body if isinstance(node, ast.Assign) for t in node.targets if hasattr(t, "id")
        ]
        assert sorted(defined) == sorted(set(defined))
        assert "import node_fleet" not in part and "from node_fleet" not in part
