"""Wrong use is answered in one line that says what to type instead, with the right exit code and no stack trace."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from moto import mock_aws

from cli import main as program
from cli.output import CommandError, ExitCode, WrongUseError, print_json, refuse
from cli.target import seconds_of

DOCS = Path(__file__).parents[3] / "docs" / "cli.md"
BAD_SCENARIO = "name: x\nduration: 5\nworkers:\n - {cout: 1}\nbogus: 2\n"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = program.main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statu"], "Did you mean 'status'?"),
        (["status", "--jsn"], "No such option: --jsn"),
        (["simulate"], "type one of: blocked-everywhere, "),
        (["simulate", "flash-sail"], "did you mean flash-sale?"),
        (["simulate", "/no/such.yaml"], "node-fleet simulate --list"),
        (["pause"], 'type: node-fleet pause --reason "kernel update" --for 2h'),
        (["pause", "--reason", "x", "--for", "soon"], "--for 'soon' is not a time; type it like 30m, 2h or 1h30m"),
        (["status", "--local", "--at", "early"], "--at 'early' is not a time"),
        (["status", "--local", "--at", "9h"], "--at 9h is after the end of flash-sale; it lasts 110m"),
        (["history", "--since", "x"], "--since 'x' is not a time"),
        (["demo", "--fixed", "0"], "Invalid value for '--fixed'"),
        (["explain", "a", "b"], "unexpected extra argument"),
    ],
)
def test_wrong_use_is_one_line_with_what_to_type_and_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *words)
    assert code == ExitCode.WRONG_USE
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("node-fleet: ")
    assert said in err
    assert "Traceback" not in err


def test_every_mistake_of_a_scenario_file_is_listed_with_line_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD_SCENARIO)
    code, _, err = run(capsys, "simulate", str(path))
    assert code == ExitCode.WRONG_USE
    lines = err.splitlines()
    assert [re.match(r"  line (\d+), ([\w.\[\]]+):", line) is not None for line in lines[:-1]] == [True] * 5
    assert "  line 4, workers[0].cout: unknown key; did you mean count?" in lines
    assert lines[-1].startswith("node-fleet: scenario") and "5 errors" in lines[-1]


@pytest.mark.parametrize("words", [["simulate"], ["status", "--local", "--scenario"]], ids=["simulate", "local"])
def test_a_scenario_that_contradicts_the_settings_of_cdk_json_is_refused_before_it_runs(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("name: own\ndescription: x\nduration: 1h\nworkers: [{count: 2}]\nsettings: {cpu_up_percent: 70}\n")
    code, out, err = run(capsys, *words, str(path))
    assert (code, out) == (ExitCode.WRONG_USE, "")
    assert words[0] == "status" or err.startswith("settings: ")
    assert err.splitlines()[-1] == (
        "node-fleet: scenario own with the settings of cdk.json: cpu_down_percent=75 must be below cpu_up_percent=70; "
        "give the scenario its own preset, for example preset: node-fleet"
    )


def test_without_a_command_the_help_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--help")
    assert code == ExitCode.OK and err == ""
    for name in ("demo", "simulate", "status", "explain", "history", "pause", "resume", "unlock", "run", "doctor"):
        assert f" {name} " in out
    assert "Exit codes" in out


def commands() -> list[str]:
    return sorted(str(one.name or getattr(one.callback, "__name__", "")) for one in program.app.registered_commands)


@pytest.mark.parametrize("name", [name for name in commands() if name not in ("synth", "test", "mutate", "bench")])
def test_every_commands_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == ExitCode.OK
    assert "Example" in out and f"node-fleet {name}" in " ".join(out.split())


def test_the_document_of_commands_names_every_command_and_exit_code() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name in commands():
        assert re.search(rf"`{name}[ `]", text), name
    for code in ExitCode:
        assert f"| {int(code)} |" in text


def test_an_account_without_the_cluster_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with mock_aws():
        code, _, err = run(capsys, "status", "--cluster", "shop", "--region", "eu-west-1")
    assert code == ExitCode.FAILED
    assert err.startswith("node-fleet: no cluster shop in eu-west-1: there is no function shop-AcquireLock; ")
    assert "--local" in err and err.count("\n") == 1


def test_an_unknown_region_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    code, _, err = run(capsys, "status", "--cluster", "not-in-cdk-json")
    assert code == ExitCode.FAILED
    assert err == (
        "node-fleet: which AWS region is meant? give --region, set AWS_REGION, add the cluster to cdk.json, "
        "or add --local to use the simulator\n"
    )


def test_a_fault_of_ours_is_one_line_too_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(program, "app", broken)
    code, _, err = run(capsys, "status")
    assert code == ExitCode.FAILED
    assert err == ("node-fleet: ZeroDivisionError: division by zero; set NODE_FLEET_DEBUG=1 to see the stack trace\n")
    monkeypatch.setenv("NODE_FLEET_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        program.main(["status"])


@pytest.mark.parametrize(
    ("words", "place", "left"),
    [
        (["status", "--local"], "cli.target.simulated", "nothing was changed and nothing is left"),
        (
            ["simulate", "flash-sale"],
            "simulator.simulation.Simulation.run",
            "no report was written and nothing is left",
        ),
        (
            ["pause", "--local", "--reason", "x"],
            "cli.operate.getpass.getuser",
            "the change may have been made; node-fl",
        ),
        (
            ["run", "--local"],
            "cli.operate.follow",
            " continues if it had begun; node-fleet history --all lists it when",
        ),
    ],
)
def test_ctrl_c_says_what_was_stopped_and_what_is_left(
    words: list[str], place: str, left: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, stop)
    monkeypatch.setattr("simulator.local_deployment.LocalDeployment.run_until", lambda *_, **__: None)
    code, _, err = run(capsys, *words)
    assert code == 130
    assert f"node-fleet: {words[0]} was stopped; " in err
    assert left in err.splitlines()[-1]


def test_a_no_to_a_question_is_not_a_stop(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*_: object, **__: object) -> None:
        raise typer.Abort

    monkeypatch.setattr(program, "app", refused)
    code, _, err = run(capsys, "unlock")
    assert (code, err) == (ExitCode.NOTHING_DONE, "node-fleet: nothing was done\n")


def test_a_file_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/srv/cache/synth")

    monkeypatch.setattr(program, "app", refused)
    code, _, err = run(capsys, "demo")
    assert code == ExitCode.FAILED
    assert err.startswith("node-fleet: cannot use /srv/cache/synth: Permission denied; check that ")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("2d", 172800), ("1d1h1m1s", 90061), (" 5m ", 300), ("0s", 0)],
)
def test_times_are_read_as_people_write_them(text: str, seconds: int) -> None:
    assert seconds_of(text, "--at") == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "1m1h", "-5m", "5 m", "1.5h", "ten"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(WrongUseError, match="is not a time"):
        seconds_of(text, "--at")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CommandError("a\n b"), "node-fleet: a b\n"),
        (CommandError("a", hint="do b"), "node-fleet: a; do b\n"),
        (WrongUseError("which?", hint="type b"), "node-fleet: which? type b\n"),
    ],
)
def test_an_error_is_one_line_whatever_it_holds(
    error: CommandError, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        refuse(error)
    assert end.value.code == error.code
    assert capsys.readouterr().err == line


def test_json_is_one_document_with_its_letters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "→", "b": Path("x")})
    assert json.loads(capsys.readouterr().out) == {"a": "→", "b": "x"}
