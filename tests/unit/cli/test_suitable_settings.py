"""demo and simulate with wrong settings: one sentence that names the file, the value and what would be right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdk_app.synth import SynthesisError
from cli.demo import suitable
from cli.output import WrongUseError


def test_a_mistake_in_cdk_json_is_a_wrong_use_that_names_the_file_and_the_value() -> None:
    mistake = "min_workers=2 must be at most max_workers=1"
    scenario = cast(Any, SimpleNamespace(name="rush"))
    with pytest.raises(WrongUseError, match=rf"^/.*cdk\.json: 1 mistake .*{mistake}$"), suitable(scenario):
        raise SynthesisError(f"node-fleet: 1 mistake in the configuration: {mistake}")
