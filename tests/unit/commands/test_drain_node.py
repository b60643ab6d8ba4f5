"""drain_node.sh does nothing when it is late, repeated, rolled back or blocked; otherwise it empties the node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node_fleet.domain.scale_down.lost_volumes import parse_lost_volumes
from simulator.cluster.load.applications import ApplicationSpec
from tests.support.server_site import FIRST, SECOND, Site
from tests.support.shipped_scripts import rules, script

DRAINED = f"node/{FIRST} drained"
SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
FLAGS = ["--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s", "--skip-wait-for-delete-timeout=10"]


def sent(site: Site, verb: str) -> list[list[str]]:
    """The commands with this verb, without the limit of their requests."""
    return [words[1:] for words in site.shell.double.commands if words[1] == verb]


def drains(site: Site) -> list[list[str]]:
    return sent(site, "drain")


def test_every_request_to_the_api_has_a_limit(site: Site) -> None:
    site.drain()
    site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID="down-1-100")
    assert {words[0] for words in site.shell.double.commands} == {"--request-timeout=15s", "--request-timeout=3s"}


def settle(site: Site, *applications: ApplicationSpec) -> None:
    for one in applications:
        site.world.add_application(one)
    site.clock.advance(60)


def test_it_cordons_and_annotates_in_one_patch_then_drains_with_exactly_our_flags(site: Site) -> None:
    settle(site, ApplicationSpec(name="web", replicas=4, min_available=2))
    started = int(site.clock.now())
    result = site.drain()
    assert result.exit_code == 0
    assert DRAINED in result.stdout.splitlines()
    assert drains(site) == [["drain", FIRST, *FLAGS]]
    assert len(sent(site, "patch")) == 1
    marks = site.mark(FIRST)
    assert (marks["cordoned-by"], int(marks["cordoned-at"])) == ("down-1-100", started)
    assert (site.look().cordoned, site.look().pods_left) == (True, 0)


@pytest.mark.parametrize(("late", "code"), [(0, 0), (1, 65), (600, 65)])
def test_it_does_not_start_after_its_time(site: Site, late: int, code: int) -> None:
    result = site.drain(NOT_AFTER=str(int(site.clock.now()) - late))
    assert result.exit_code == code
    assert site.look().cordoned is (code == 0)


def test_a_second_command_of_the_same_operation_changes_nothing(site: Site) -> None:
    settle(site, ApplicationSpec(name="web", replicas=4, min_available=2))
    site.drain()
    evicted = site.world.store.version
    result = site.drain()
    assert (result.exit_code, site.world.store.version) == (0, evicted)
    assert DRAINED in result.stdout.splitlines()


def test_after_an_undo_the_same_operation_drains_no_more(site: Site) -> None:
    site.drain()
    assert site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID="down-1-100").exit_code == 0
    result = site.drain()
    assert (result.exit_code, site.look().cordoned) == (70, False)


def test_an_undo_that_overtakes_the_drain_still_stops_it(site: Site) -> None:
    undo = site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID="down-1-100")
    assert "result: not-cordoned" in undo.stdout
    assert site.drain().exit_code == 70


def test_a_later_operation_may_drain_a_node_that_was_given_back(site: Site) -> None:
    site.drain()
    site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID="down-1-100")
    assert site.drain(operation="down-2-200").exit_code == 0
    assert site.mark(FIRST)["cordoned-by"] == "down-2-200"


@pytest.mark.parametrize("owner", ["", "down-9-9"])
def test_a_cordon_that_is_not_this_operations_is_respected(site: Site, owner: str) -> None:
    site.world.cordon(FIRST)
    if owner:
        site.annotate(FIRST, cordoned_by=owner)
    result = site.drain()
    assert (result.exit_code, drains(site)) == (67, [])
    assert site.mark(FIRST).get("cordoned-by", "") == owner


@pytest.mark.parametrize("node", ["i-0000000000000dead", "no-such-node", "a"])
def test_a_node_that_is_gone_is_said_to_be_gone(site: Site, node: str) -> None:
    assert site.drain(node).exit_code == 66


@pytest.mark.parametrize(
    ("application", "letter"),
    [
        (ApplicationSpec(name="db", kind="StatefulSet"), "s"),
        (ApplicationSpec(name="one"), "d"),
        (ApplicationSpec(name="files", volume="local-path", annotations=SAFE), "v"),
        (ApplicationSpec(name="pinned", replicas=2, annotations={next(iter(SAFE)): "false"}), "n"),
        (ApplicationSpec(name="busy", replicas=2, min_available=2), "p"),
    ],
)
def test_what_arrived_after_the_inspection_is_seen_under_the_cordon(
    site: Site, application: ApplicationSpec, letter: str
) -> None:
    site.world.cordon(SECOND)
    settle(site, application)
    before = {p["metadata"]["uid"] for p in site.world.pods_on(FIRST)}
    result = site.drain()
    assert result.exit_code == 68
    assert f":{letter}" in result.stdout
    assert {p["metadata"]["uid"] for p in site.world.pods_on(FIRST)} == before


@pytest.mark.parametrize("mode", ["voluntary", "not-ready"])
def test_a_claim_whose_volume_only_this_worker_has_refuses_the_drain(site: Site, mode: str) -> None:
    site.claim("data", FIRST)
    if mode == "not-ready":
        site.world.instance_ended(FIRST)
        site.clock.advance(100)
    result = site.drain(DRAIN_MODE=mode)
    assert (result.exit_code, drains(site)) == (68, [])
    assert "blocked shop/data:b=pv-data" in result.stdout
    (message,) = [
        event["message"] for event in site.world.objects("events", "default") if "operation" in event["message"]
    ]
    assert message.endswith(": claim shop/data is bound to a volume that no other node can attach")


def test_a_drain_before_a_deadline_names_the_volumes_that_end_with_the_worker_and_their_pods(site: Site) -> None:
    settle(site, ApplicationSpec(name="files", volume="local-path", node_selector={"kubernetes.io/hostname": FIRST}))
    site.claim("report", FIRST)
    site.claim("elsewhere", SECOND)
    [pod] = [p["metadata"]["name"] for p in site.world.objects("pods", "shop")]
    found = parse_lost_volumes(site.drain(DRAIN_MODE="deadline").stdout)
    assert [(volume.claim, volume.pod) for volume in sorted(found, key=lambda each: each.claim)] == [
        ("shop/files-data", f"shop/{pod}"),
        ("shop/report", "-"),
    ]


def test_volumes_that_cannot_be_read_do_not_stop_a_drain_before_a_deadline(site: Site) -> None:
    broken = script("drain_node").replace('"/api/v1/persistentvolumes"', '"/api/v1/nothing"')
    given = {"NODE_NAME": FIRST, "OPERATION_ID": "int-1", "NOT_AFTER": str(int(site.clock.now()) + 60)}
    result = site.shell.run(broken, {**given, "DRAIN_TIMEOUT_SECONDS": "60", "DRAIN_MODE": "deadline"})
    assert (result.exit_code, len(drains(site))) == (0, 1)
    assert f"the volumes of node {FIRST} could not be read" in result.stderr


def test_a_node_annotated_meanwhile_is_not_drained(site: Site) -> None:
    marks = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    site.world.update("nodes", "", FIRST, lambda n: n["metadata"].setdefault("annotations", {}).update(marks))
    assert site.drain().exit_code == 68


def test_force_is_used_only_when_every_bare_pod_says_it_may_go(site: Site) -> None:
    site.pod("scratch", annotations=SAFE)
    assert site.drain().exit_code == 0
    assert drains(site)[0][-1] == "--force"
    site.pod("scratch", SECOND, annotations=SAFE)
    site.pod("precious", SECOND)
    assert site.drain(SECOND).exit_code == 68
    assert len(drains(site)) == 1


@pytest.mark.parametrize(("name", "replicas"), [("web", 4), ("api", 6), ("cart", 8)])
def test_a_budget_that_closes_during_the_drain_ends_it_at_its_timeout_naming_pod_and_budget(
    site: Site, name: str, replicas: int
) -> None:
    settle(site, ApplicationSpec(name=name, replicas=replicas, min_available=replicas - 1))
    site.clock.at(
        site.clock.now() + 1,
        lambda: site.world.update(
            "poddisruptionbudgets", "shop", name, lambda b: b["spec"].update(minAvailable=replicas)
        ),
    )
    begun = site.clock.now()
    result = site.drain()
    assert result.exit_code == 1
    last = result.stdout.splitlines()[-1]
    assert last.startswith("result: drain-failed blocked shop/" + name)
    assert f":p={name}" in last
    assert 300 <= site.clock.now() - begun <= 310


@pytest.mark.parametrize("namespace", ["ci-588", "ci-589", "preview"])
def test_pods_of_a_namespace_that_is_being_deleted_do_not_fail_the_drain(site: Site, namespace: str) -> None:
    site.world.cordon(SECOND)
    settle(site, ApplicationSpec(name="x", namespace=namespace, replicas=3, grace_seconds=60, shutdown_seconds=40))
    site.world.uncordon(SECOND)
    site.world.delete("namespaces", "", namespace)
    result = site.drain()
    assert (result.exit_code, site.look().pods_left) == (0, 0)


@pytest.mark.parametrize("seconds", [1, 60, 200])
def test_the_drain_ends_only_when_slow_pods_have_shut_down(site: Site, seconds: int) -> None:
    settle(site, ApplicationSpec(name="cart", replicas=4, grace_seconds=250, shutdown_seconds=seconds))
    begun = site.clock.now()
    assert site.drain().exit_code == 0
    assert site.clock.now() - begun >= seconds
    assert site.look().pods_left == 0


def test_a_slower_pod_than_the_timeout_fails_the_drain(site: Site) -> None:
    settle(site, ApplicationSpec(name="cart", replicas=4, grace_seconds=900, shutdown_seconds=800))
    result = site.drain()
    assert result.exit_code == 1
    assert "drain-failed" in result.stdout


@pytest.mark.parametrize("dead_seconds", [400, 900, 1500])
def test_a_dead_node_is_drained_with_loss_and_does_not_hang(site: Site, dead_seconds: int) -> None:
    settle(site, ApplicationSpec(name="web", replicas=4), ApplicationSpec(name="db", kind="StatefulSet", replicas=2))
    site.world.fail_node(FIRST)
    site.clock.advance(dead_seconds)
    begun = site.clock.now()
    result = site.drain(DRAIN_MODE="not-ready")
    assert result.exit_code == 0, result
    assert site.clock.now() - begun < 300
    look = site.look()
    assert (look.ready, look.pods_left) == (False, look.pods_terminating)


def test_a_dead_node_with_a_volume_of_its_own_is_not_drained(site: Site) -> None:
    site.world.cordon(SECOND)
    settle(site, ApplicationSpec(name="files", volume="local-path"))
    site.world.fail_node(FIRST)
    site.clock.advance(1200)
    assert site.drain(DRAIN_MODE="not-ready").exit_code == 68


def test_before_a_deadline_nothing_refuses_and_budgets_give_way_at_last(site: Site) -> None:
    settle(
        site, ApplicationSpec(name="web", replicas=2, min_available=2), ApplicationSpec(name="db", kind="StatefulSet")
    )
    site.pod("debug")
    now = int(site.clock.now())
    result = site.drain(DRAIN_MODE="deadline", NOT_AFTER=str(now + 105), DRAIN_TIMEOUT_SECONDS="105")
    assert (result.exit_code, site.look().pods_left) == (0, 0)
    assert site.clock.now() - now <= 105
    assert all("--force" in words for words in drains(site))


def test_a_drain_that_fails_before_a_deadline_blames_no_pod_for_keeping_the_worker(site: Site) -> None:
    slow = ApplicationSpec(name="db", kind="StatefulSet", replicas=2, grace_seconds=900, shutdown_seconds=800)
    settle(site, slow)
    now = int(site.clock.now())
    result = site.drain(DRAIN_MODE="deadline", NOT_AFTER=str(now + 105), DRAIN_TIMEOUT_SECONDS="105")
    assert result.stdout.splitlines()[-1].startswith("result: drain-failed blocked shop/db-")
    failed = [e for e in site.world.objects("events", "default") if e["reason"] == "DrainFailed"]
    assert "shop/db-" in failed[0]["message"]
    assert [e for e in site.world.objects("events", "shop") if e["reason"] == "DrainFailed"] == []


@pytest.mark.parametrize("after", [0, 20, None])
def test_an_uncordon_during_a_deadline_drain_leaves_no_cordon_without_an_owner(site: Site, after: int | None) -> None:
    settle(site, ApplicationSpec(name="web", replicas=2, min_available=2))
    site.world.cordon(FIRST, actor="mira")
    now = int(site.clock.now())
    if after is not None:
        site.clock.at(now + after + 0.5, lambda: site.world.uncordon(FIRST, actor="mira"))
    result = site.drain(DRAIN_MODE="deadline", NOT_AFTER=str(now + 105), DRAIN_TIMEOUT_SECONDS="105")
    assert (result.exit_code, site.look().cordoned) == (0, True)
    assert site.mark(FIRST).get("cordoned-by", "mira's") == ("mira's" if after is None else "down-1-100")
    site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID="down-1-100")
    assert site.look().cordoned is (after is None)


def test_an_unreachable_api_changes_nothing(site: Site) -> None:
    site.shell.double.reachable = False
    assert site.drain().exit_code == 69


RESTART_BEGUN = rules.RESTART_BEGUN
SINGLE = ApplicationSpec(name="one", restart_before_drain=True, min_available=1, start_seconds=20, shutdown_seconds=3)


def single_replica_on_first(site: Site, *applications: ApplicationSpec) -> list[int]:
    """How many pods of them are available, after each change from then on."""
    site.world.cordon(SECOND)
    settle(site, *(applications or (SINGLE,)))
    site.clock.advance(max(one.start_seconds or 0 for one in applications or (SINGLE,)))
    site.world.uncordon(SECOND)
    counts: list[int] = []

    def count(_change: object) -> None:
        pods = [p for p in site.world.objects("pods", "shop") if "deletionTimestamp" not in p["metadata"]]
        ready = [c for p in pods for c in p["status"].get("conditions", ()) if c["type"] == "Ready"]
        counts.append(sum(c["status"] == "True" for c in ready))

    site.world.on_change(count)
    return counts


def marks_of_single(site: Site, name: str = "one") -> dict[str, str]:
    deployment = site.world.find("deployments", "shop", name)
    assert deployment is not None
    return dict(deployment["metadata"]["annotations"])


def test_an_only_replica_gets_a_second_pod_elsewhere_before_the_drain(site: Site) -> None:
    counts = single_replica_on_first(site)
    assert site.node(FIRST).blockers == ()
    result = site.drain()
    assert (result.exit_code, site.look().pods_left) == (0, 0), result
    assert (min(counts), max(counts)) == (1, 2)
    asked = [words[1:4] for words in site.shell.double.commands if words[1] in ("rollout", "drain")]
    one = "deployment/one"
    assert asked == [["rollout", "restart", one], ["rollout", "status", one], ["drain", FIRST, "--ignore-daemonsets"]]
    assert RESTART_BEGUN not in marks_of_single(site)
    assert [p["spec"]["nodeName"] for p in site.world.objects("pods", "shop")] == [SECOND]
    assert site.drain(operation="down-1-100").exit_code == 0
    assert [words[1] for words in site.shell.double.commands].count("rollout") == 2


def test_without_a_second_pod_in_time_the_first_one_stays_and_the_rollback_names_what_waits(site: Site) -> None:
    counts = single_replica_on_first(site)
    site.world.cordon(SECOND)
    begun = site.clock.now()
    result = site.drain()
    text = "no second pod of shop/one became available elsewhere within 200 s of its restart; its first pod still runs"
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, f"result: not-restarted {text}")
    assert (drains(site), min(counts), 200 <= site.clock.now() - begun <= 203) == ([], 1, True)
    [event] = [e["message"] for e in site.world.objects("events", "default") if e["reason"] == "DrainFailed"]
    assert event == f"the worker is not drained (operation down-1-100): {text}"
    assert site.drain().stdout.splitlines()[-1].endswith(":d=incomplete 0"), "no second restart"
    assert begun <= int(marks_of_single(site)[RESTART_BEGUN]) <= begun + 2
    waiting = site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID="down-1-100").stdout
    assert waiting.startswith("own-pods: 1 shop/one-")


def test_a_deployment_that_cannot_be_restarted_is_not_evicted(site: Site) -> None:
    counts = single_replica_on_first(site)
    given = {"NODE_NAME": FIRST, "OPERATION_ID": "down-1-100", "NOT_AFTER": str(int(site.clock.now()) + 60)}
    broken = script("drain_node").replace('restart "deployment/', 'restart "deployment/no-')
    result = site.shell.run(broken, {**given, "DRAIN_TIMEOUT_SECONDS": "300"})
    assert result.stdout.splitlines()[-1] == "result: not-restarted shop/one could not be restarted"
    assert (drains(site), set(counts)) == ([], {1})


@pytest.mark.parametrize(
    ("start", "fault", "text", "marked"),
    [
        (250, "no fault", "no second pod of shop/one became available", ["one"]),
        (20, 'restart "deployment/${each#*/}"', "shop/one could not be restarted", []),
    ],
    ids=["slow", "refused"],
)
def test_a_restart_that_fails_blocks_no_deployment_whose_restart_succeeded(
    site: Site, start: int, fault: str, text: str, marked: list[str]
) -> None:
    counts = single_replica_on_first(site, replace(SINGLE, start_seconds=start), replace(SINGLE, name="two"))
    text_of_script = script("drain_node").replace(fault, 'restart "deployment/$(echo "${each#*/}" | sed s/one/no/)"')
    given = {"NODE_NAME": FIRST, "OPERATION_ID": "down-1-100", "NOT_AFTER": str(int(site.clock.now()) + 60)}
    result = site.shell.run(text_of_script, {**given, "DRAIN_TIMEOUT_SECONDS": "300"})
    assert result.stdout.splitlines()[-1].startswith(f"result: not-restarted {text}")
    assert (drains(site), min(counts)) == ([], 2)
    assert [name for name in ("one", "two") if RESTART_BEGUN in marks_of_single(site, name)] == marked


def test_no_drain_begins_without_a_time_limit_when_the_restarts_took_all_of_it(site: Site) -> None:
    """kubectl drain takes a limit of 0 s for none."""
    single_replica_on_first(site, replace(SINGLE, start_seconds=2), replace(SINGLE, name="two", start_seconds=3))
    result = site.drain(DRAIN_TIMEOUT_SECONDS="5")
    text = "result: not-restarted the restarts took so long that no time is left to evict the other pods"
    assert (result.stdout.splitlines()[-1], drains(site)) == (text, [])


@pytest.mark.parametrize(("asked", "predicates"), [(True, ["f"]), (False, [])])
def test_the_first_pod_counts_in_the_topology_spread_of_the_second_one(
    site: Site, asked: bool, predicates: list[str]
) -> None:
    """The other worker of its zone accepts a pod only after the first one has ended; the other zone is full."""
    single_replica_on_first(site, replace(SINGLE, restart_before_drain=asked, min_available=None, annotations=SAFE))
    site.world.cordon(SECOND)
    site.world.add_worker("i-00000000000000003", az="us-east-1a")
    site.clock.advance(60)
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "one"}}
    [pod] = site.world.objects("pods", "shop")
    name = pod["metadata"]["name"]
    site.world.update("pods", "shop", name, lambda p: p["spec"].update(topologySpreadConstraints=[spread]))
    assert [blocker.letter for blocker in site.node(FIRST).blockers] == predicates


@pytest.mark.parametrize("mode", ["deadline", "not-ready"])
def test_only_a_drain_that_keeps_pods_available_restarts(site: Site, mode: str) -> None:
    """A worker that is Ready again when its drain begins is drained like every other one."""
    counts = single_replica_on_first(site, replace(SINGLE, min_available=None))
    site.drain(DRAIN_MODE=mode, NOT_AFTER=str(int(site.clock.now()) + 105), DRAIN_TIMEOUT_SECONDS="105")
    expected = {"not-ready": (["restart", "status"], 1), "deadline": ([], 0)}
    assert ([words[1] for words in sent(site, "rollout")], min(counts)) == expected[mode]


def test_many_refused_evictions_do_not_push_the_result_out_of_the_output(site: Site) -> None:
    settle(
        site,
        *(ApplicationSpec(name=f"web-{n}", replicas=4, grace_seconds=600, shutdown_seconds=500) for n in range(10)),
    )
    result = site.drain()
    assert result.stdout.splitlines()[-1].startswith("result: drain-failed")
    assert len(result.stdout) < 24_000
    assert len(result.stderr) < 8_000
