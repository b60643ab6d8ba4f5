"""Shell scripts on the simulated server: they really run, and their waiting is virtual."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from simulator.clock import VirtualClock
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.model import SimulatedCluster
from simulator.fakes.shell import ServerShell
from tests.support.shipped_scripts import script

Laid = tuple[VirtualClock, SimulatedCluster, ServerShell]


@pytest.fixture
def laid() -> Iterator[Laid]:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock)
    cluster.add_server("i-server", "eu-west-1a")
    for number in range(2):
        cluster.add_worker(f"i-w{number}")
    shell = ServerShell(cluster, clock.advance)
    yield clock, cluster, shell
    shell.close()


def test_kubectl_date_and_sleep_live_in_virtual_time(laid: Laid) -> None:
    clock, _, shell = laid
    start = int(clock.now())
    done = shell.run("date +%s; sleep 100; date +%s; kubectl get node i-w0 -o name; echo oops >&2; exit 3")
    assert done.stdout.split() == [str(start), str(start + 100), "node/i-w0"]
    assert (done.exit_code, done.stderr, clock.now()) == (3, "oops\n", start + 100)


def test_a_given_date_is_left_as_it_is(laid: Laid) -> None:
    _, _, shell = laid
    assert shell.run("date -u -d @0 +%Y").stdout == "1970\n"


def test_a_drain_of_many_virtual_minutes_runs_at_once(laid: Laid) -> None:
    clock, cluster, shell = laid
    cluster.add_application(
        ApplicationSpec(name="slow", replicas=4, max_unavailable=1, grace_seconds=600, shutdown_seconds=240)
    )
    clock.advance(10)
    start = clock.now()
    done = shell.run("kubectl drain i-w0 --ignore-daemonsets --delete-emptydir-data --timeout=900s")
    assert done.stdout.splitlines()[-1] == "node/i-w0 drained"
    assert 240 <= clock.now() - start <= 600


def test_a_script_is_stopped_at_its_limit_of_virtual_seconds(laid: Laid) -> None:
    clock, _, shell = laid
    start = clock.now()
    done = shell.run("echo begun; sleep 500; echo never", limit_seconds=60)
    assert done.timed_out
    assert (done.stdout, clock.now() - start) == ("begun\n", 60)


def test_an_error_during_a_wait_ends_the_script_and_is_raised(laid: Laid) -> None:
    _, cluster, _ = laid

    def refuse(_seconds: float) -> None:
        raise KeyError("killed while waiting")

    shell = ServerShell(cluster, refuse)
    with pytest.raises(KeyError, match="killed while waiting"):
        shell.run("sleep 5; touch never")
    shell.close()


def test_a_lock_that_another_script_holds_is_waited_for_in_virtual_time(laid: Laid) -> None:
    clock, _, shell = laid
    take = 'exec 9>"$NODE_FLEET_LOCK_DIRECTORY/a.lock"; flock -w 30 9 || { echo busy; exit 75; }; '
    script = f"{take}echo mine; kubectl get nodes -o name"
    held = shell.run(f"exec 8>\"$NODE_FLEET_LOCK_DIRECTORY/a.lock\"; flock 8; sh -c '{script}'")
    assert (held.exit_code, held.stdout) == (75, "busy\n")
    free_at = clock.now()
    assert shell.run(script).stdout.startswith("mine\n")
    assert clock.now() == free_at


def test_an_unreachable_server_is_reported_as_kubectl_reports_it(laid: Laid) -> None:
    _, _, shell = laid
    shell.double.reachable = False
    done = shell.run("kubectl get nodes -o name")
    assert done.exit_code == 1
    assert "was refused - did you specify the right host or port?" in done.stderr


def test_a_drain_whose_server_becomes_unreachable_does_not_print_drained(laid: Laid) -> None:
    clock, cluster, shell = laid
    cluster.add_application(ApplicationSpec(name="slow", replicas=2, grace_seconds=600, shutdown_seconds=240))
    clock.advance(10)
    clock.at(clock.now() + 60, lambda: setattr(shell.double, "reachable", False))
    done = shell.run("kubectl drain i-w0 --ignore-daemonsets --delete-emptydir-data --timeout=900s")
    assert done.exit_code == 1
    assert "drained" not in done.stdout
    assert "was refused" in done.stderr


def test_what_the_scripts_asked_is_recorded(laid: Laid) -> None:
    _, _, shell = laid
    shell.run("kubectl get nodes -o name && kubectl get --raw /api/v1/pods")
    assert shell.double.commands == [["get", "nodes", "-o", "name"], ["get", "--raw", "/api/v1/pods"]]


def test_a_python_program_of_a_script_has_its_streams_words_variables_and_directory(laid: Laid) -> None:
    _, _, shell = laid
    done = shell.run(
        """echo before; cd /; export WORD=exported
echo given | python3 -c 'import os, sys
print(sys.stdin.read().strip(), sys.argv[1:], os.environ["WORD"], os.getcwd())' a "b c"
echo between >&2
found="$(python3 - <<'END'
import sys
print("from a text", __name__)
print("to the errors", file=sys.stderr)
sys.exit(7)
END
)" || echo "$found, $?"
"""
    )
    assert done.stdout == "before\ngiven ['a', 'b c'] exported /\nfrom a text __main__, 7\n"
    assert (done.stderr, done.exit_code) == ("between\nto the errors\n", 0)


RUN = """
import subprocess
try:
    done = subprocess.run(["kubectl", "get", "node", "{name}", "-o", "name"], {options})
    print(done.returncode, done.stdout, done.stderr, flush=True)
except subprocess.CalledProcessError as error:
    print(error.returncode, error.stdout, error.stderr)
"""


@pytest.mark.parametrize(
    "options",
    [
        "check=False",
        "check=True, stdout=-1",
        "stdout=-1, stderr=-1",
        "stderr=-3",
        "stdout=-1, stderr=subprocess.STDOUT",
        "capture_output=True",
    ],
)
@pytest.mark.parametrize("name", ["i-w0", "é"])
def test_a_python_program_gets_from_kubectl_what_the_shim_answers(laid: Laid, name: str, options: str) -> None:
    _, _, shell = laid
    direct, by_shim = (
        shell.run(f"python3 - <<'END'{RUN.format(name=name, options=options + more)}END\n")
        for more in ("", ", env=None")  # with another option it starts the shim
    )
    assert (direct.stdout, direct.stderr, direct.exit_code) == (by_shim.stdout, by_shim.stderr, 0)
    assert direct.stdout.splitlines()[-1].startswith("0 " if name == "i-w0" else "1 ")
    assert shell.double.commands == [["get", "node", name, "-o", "name"]] * 2


@pytest.mark.parametrize("name", ["check_node", "inspect_nodes", "list_pending_pods"])
def test_the_programs_that_run_in_every_tick_start_no_process_for_kubectl(laid: Laid, name: str) -> None:
    _, _, shell = laid
    (shell.directory / "bin" / "kubectl").write_text("#!/bin/sh\nexit 99\n")
    done = shell.run(script(name), {"NODE_NAME": "i-w0"})
    assert (done.exit_code, done.stdout.splitlines()[-1].split()[0]) == (0, "end"), done.stderr
    assert shell.double.commands, "the program asks for nothing"


@pytest.mark.parametrize(
    ("program", "code", "error"),
    [
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('why')", 1, "why\n"),
        ("import os; os.kill(os.getpid(), 9)", 137, ""),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("not a program", 1, "SyntaxError: invalid syntax\n"),
    ],
)
def test_a_python_program_ends_with_its_status(laid: Laid, program: str, code: int, error: str) -> None:
    _, _, shell = laid
    first, second = (shell.run(f'python3 -c "{program}"; echo $?') for _ in range(2))
    assert (first.stdout, first.stderr.endswith(error)) == (f"{code}\n", True)
    assert (second.stdout, second.stderr) == (first.stdout, first.stderr)
    assert "forking_python" not in first.stderr


def test_a_program_and_its_patterns_are_compiled_once(laid: Laid) -> None:
    _, _, shell = laid
    program = """
import re, sys
print((str, "a+[bc]", re.ASCII.value) in re._cache)
re.compile("a+[bc]", re.ASCII)
sys.exit(3)
"""
    ended = [shell.run(f"python3 - <<'END'{program}END\n") for _ in range(2)]
    assert [(one.stdout, one.exit_code) for one in ended] == [("False\n", 3), ("True\n", 3)]


def test_a_patch_that_is_no_json_is_refused(laid: Laid) -> None:
    _, _, shell = laid
    done = shell.run("kubectl patch node i-w0 --type merge -p '{'")
    assert (done.exit_code, done.stderr) == (1, "error: this patch is not JSON: {\n")


def test_a_python_program_has_ended_when_its_script_was_stopped(laid: Laid) -> None:
    _, _, shell = laid
    program = """
import os, subprocess, time
print(os.getpid(), flush=True)
subprocess.run(["sleep", "500"])
time.sleep(1000)
"""
    done = shell.run(f"python3 - <<'END'{program}END\n", limit_seconds=60)
    assert done.timed_out
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
