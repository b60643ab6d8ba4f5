"""The measurement of a new user's first commands: what counts as a silence, and what the set-up shows meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.first_hour import SILENCE_SECONDS, STEPS, Moment, Step, Watched, last_line, problems_of, watch

SCRIPT = "import sys; print('first'); print('\\x1b[2msecond \\u2500\\x1b[0m'); sys.exit(3)"


def watched(*seconds: float, status: int = 0) -> Watched:
    """Outputs at these times; the first is the start and the last the end."""
    return Watched(
        moments=tuple(Moment(seconds=at, processor_seconds=at / 2, text=f"at {at}") for at in seconds), status=status
    )


@pytest.mark.parametrize(
    ("seconds", "silence", "after"),
    [((0, 1, 5, 6), 4, "at 1"), ((0, 3, 4), 3, "at 0"), ((0, 1, 7), 6, "at 1")],
    ids=["between", "at the start", "at the end"],
)
def test_the_silence_is_the_longest_time_between_two_outputs(
    seconds: tuple[float, ...], silence: float, after: str
) -> None:
    found = watched(*seconds).silence
    assert (found.seconds, found.processor_seconds, found.after) == (silence, silence / 2, after)


@pytest.mark.parametrize(
    ("limit", "seconds", "status", "words"),
    [
        (4, (0, 2, 4), 0, []),
        (0, (0, 2, 4), 0, []),
        (4, (0, 2, 4, 5), 0, ["took more than 4 s"]),
        (0, (0, 2, 4.1), 0, ["silent for 2.1 s after 'at 2'"]),
        (0, (0, 1), 3, ["ended with status 3"]),
    ],
)
def test_a_step_names_each_thing_that_is_wrong(
    limit: float, seconds: tuple[float, ...], status: int, words: list[str]
) -> None:
    step = Step(name="x", words=(), limit_seconds=limit)
    assert problems_of(step, watched(*seconds, status=status)) == words
    assert SILENCE_SECONDS == 2


def test_a_command_is_watched_on_a_terminal_from_its_start_to_its_end(tmp_path: Path) -> None:
    found = watch([sys.executable, "-c", SCRIPT + " if sys.stdout.isatty() else 0"], tmp_path)
    shown = "".join(moment.text for moment in found.moments[1:-1])
    assert "first" in shown and "second" in shown
    assert found.status == 3
    assert found.moments[0].seconds == 0 and found.moments[-1].text == "the end"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a line\r\nthe last\r\n", "the last"),
        ("\rone\rtwo", "two"),
        ("\x1b[2m---\x1b[0m", "[2m---[0m"),
        ("---", "a frame"),
    ],
)
def test_the_line_before_a_silence_is_the_last_one_with_words(text: str, line: str) -> None:
    assert last_line(text) == line


def test_the_steps_are_those_of_the_read_me_with_the_promised_limits() -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    commands = {step.words[0]: step.limit_seconds for step in STEPS}
    assert commands == {"--version": 0, "demo": 90, "status": 0, "backtest": 20}
    assert all(f"./node-fleet {name}" in text for name in commands if name != "--version")
