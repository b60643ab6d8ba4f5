"""hibernate_server.sh: what forbids to switch the cluster off, and the copy of the datastore before the stop."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.domain.scale_down.hibernation import guard_in
from simulator.cluster.load.applications import ApplicationSpec
from tests.support.server_site import FIRST, Site
from tests.support.shipped_scripts import script
from tests.support.stub_commands import Reply, Stubs

Backup = Callable[..., "subprocess.CompletedProcess[str]"]


def guard(site: Site) -> str:
    done = site.run("hibernate_server", HIBERNATE_MODE="check")
    result = CommandResult(status="Success", exit_code=done.exit_code, stdout=done.stdout, final=True, known=True)
    return guard_in(result, with_jobs=True)


def annotated(site: Site, **annotations: str) -> None:
    site.pod("cart-0", annotations={name.replace("__", "/").replace("_", "-"): v for name, v in annotations.items()})


def labelled(site: Site) -> None:
    site.world.update(
        "namespaces", "", "shop", lambda n: n["metadata"].update(labels={"node-fleet.io/hibernate": "never"})
    )


def job(site: Site, active: int) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "main"}]}}, "suspend": True}
    made = {"metadata": {"namespace": "shop", "name": "report"}, "spec": spec, "status": {"active": active}}
    site.world.create("jobs", made)
    site.world.update("jobs", "shop", "report", lambda found: found.update(status={"active": active}))


def test_deployments_and_their_budgets_forbid_nothing(site: Site) -> None:
    site.world.add_application(ApplicationSpec(name="web", replicas=1, min_available=1))
    site.world.add_application(ApplicationSpec(name="db", kind="StatefulSet", replicas=1))
    site.clock.advance(60)
    version = site.world.store.version
    assert guard(site) == ""
    assert site.world.store.version == version, "it changes nothing"


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda s: job(s, 1), "Job shop/report runs"),
        (labelled, "namespace shop has the label node-fleet.io/hibernate=never"),
        (lambda s: s.pod("cart-0"), "pod shop/cart-0 has no controller that would start it again"),
        (
            lambda s: annotated(s, **{"cluster-autoscaler.kubernetes.io__safe_to_evict": "false"}),
            'pod shop/cart-0 is annotated safe-to-evict "false"',
        ),
        (lambda s: s.claim("data", FIRST), "claim shop/data is bound to a volume that no other node can attach"),
    ],
    ids=["job", "namespace", "bare pod", "annotation", "volume"],
)
def test_what_would_be_lost_or_must_not_end_is_named(site: Site, prepare: Any, said: str) -> None:
    prepare(site)
    assert guard(site) == said


def test_a_job_that_has_ended_forbids_nothing(site: Site) -> None:
    job(site, 0)
    assert guard(site) == ""


def test_a_worker_that_is_annotated_forbids_it(site: Site) -> None:
    mark = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    site.world.update("nodes", "", FIRST, lambda n: n["metadata"].setdefault("annotations", {}).update(mark))
    assert guard(site) == f"worker {FIRST} is annotated cluster-autoscaler.kubernetes.io/scale-down-disabled"


def test_an_api_that_does_not_answer_forbids_it(site: Site) -> None:
    site.shell.double.reachable = False
    assert guard(site) == "the server did not say what runs: unreadable the API of the server does not answer"


def test_a_drain_of_the_whole_fleet_moves_what_a_removal_keeps(site: Site) -> None:
    site.world.add_application(ApplicationSpec(name="db", kind="StatefulSet", replicas=2))
    site.clock.advance(60)
    assert site.drain().exit_code == 68
    site.run("uncordon_node", NODE_NAME=FIRST, OPERATION_ID="down-1-100")
    assert site.drain(operation="off-1-100", DRAIN_MODE="hibernate").exit_code == 0
    site.pod("cart-0", node="i-00000000000000002")
    refused = site.drain("i-00000000000000002", "off-1-100", DRAIN_MODE="hibernate")
    assert (refused.exit_code, "shop/cart-0:c" in refused.stdout) == (68, True)


# the copy ----------------------------------------------------------------------------------------------------------

DB = "var/lib/rancher/k3s/server/db/state.db"
KEPT = "var/lib/rancher/k3s/before-hibernation"


def free(kib: int) -> str:
    return f"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/nvme0n1p1 31444972 1 {kib} 1% /\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / DB).parent.mkdir(parents=True)
    (root / DB).write_text("tonight")
    return root


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    stubs = Stubs(tmp_path / "stubs", ("systemctl", "flock", "df", "timeout"))
    stubs.on("timeout", "", Reply(run=shutil.which("timeout") or "timeout"))
    stubs.on("systemctl", "")
    stubs.on("flock", "")
    stubs.on("df", "", free(525_000))
    return stubs


@pytest.fixture
def backup(tmp_path: Path, stubs: Stubs, root: Path) -> Backup:
    def run(mode: str = "backup") -> subprocess.CompletedProcess[str]:
        text = tmp_path / "hibernate.sh"
        text.write_text(script("hibernate_server"))
        own = {"NODE_FLEET_ROOT": str(root), "NODE_FLEET_LOCK_DIRECTORY": str(tmp_path), "TMPDIR": str(tmp_path)}
        return stubs.run(text, {"HIBERNATE_MODE": mode, **own})

    return run


def result(done: subprocess.CompletedProcess[str]) -> str:
    return re.findall(r"^result: (.*)$", done.stdout, re.M)[-1]


def orders(stubs: Stubs) -> list[str]:
    return [" ".join(call[1:]) for call in stubs.calls("systemctl")]


def test_the_datastore_is_copied_while_k3s_is_stopped_and_replaces_the_copy_before(
    backup: Backup, stubs: Stubs, root: Path
) -> None:
    for text in ("yesterday", "tonight"):
        (root / DB).write_text(text)
        done = backup()
        assert (done.returncode, result(done)) == (0, f"kept {root}/{KEPT}"), done.stderr
        assert (root / KEPT / "state.db").read_text() == text
    assert orders(stubs) == ["stop k3s", "start --no-block k3s"] * 2
    assert not (root / f"{KEPT}.new").exists()


def test_without_space_k3s_is_not_stopped(backup: Backup, stubs: Stubs, root: Path) -> None:
    stubs.on("df", "", free(0))
    done = backup()
    assert (done.returncode, orders(stubs)) == (68, []) and result(done).startswith("not-kept")
    assert not (root / KEPT).exists()


def test_a_copy_that_fails_keeps_the_one_before_and_starts_k3s_again(backup: Backup, stubs: Stubs, root: Path) -> None:
    backup()
    stubs.on("systemctl", "stop k3s", Reply(exit=1))
    done = backup()
    assert (done.returncode, result(done).split()[0]) == (68, "not-kept")
    assert (root / KEPT / "state.db").read_text() == "tonight"
    assert orders(stubs)[-1] == "start --no-block k3s"


def test_a_copy_that_takes_too_long_ends_before_the_command_and_k3s_starts_again(
    backup: Backup, stubs: Stubs, root: Path
) -> None:
    stubs.on("timeout", "", Reply(exit=124))
    done = backup()
    assert (done.returncode, result(done).split()[0]) == (68, "not-kept")
    assert [call[1] for call in stubs.calls("timeout")] == ["400"]
    assert (orders(stubs)[-1], (root / KEPT).exists()) == ("start --no-block k3s", False)


def test_a_datastore_elsewhere_needs_no_copy(backup: Backup, stubs: Stubs, root: Path) -> None:
    (root / DB).unlink()
    (root / DB).parent.rmdir()
    done = backup()
    assert (done.returncode, result(done), orders(stubs)) == (0, "external", [])


def test_a_second_backup_or_an_upgrade_in_progress_is_not_disturbed(backup: Backup, stubs: Stubs) -> None:
    stubs.on("flock", "", Reply(exit=1))
    done = backup()
    assert (done.returncode, result(done).split()[0], orders(stubs)) == (75, "busy", [])


def test_an_unknown_mode_is_refused(backup: Backup, stubs: Stubs) -> None:
    done = backup("stop")
    assert (done.returncode, result(done), orders(stubs)) == (64, "bad-parameter HIBERNATE_MODE", [])
