"""The settings of one cluster in cdk.json, with changes from the page `ui`: checked, compared, and written.

Only the changed values are replaced in the text of the file, so that everything else in it stays as it is.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cdk_app.config import ClusterConfig, ConfigurationError
from cli.configured import clusters_of
from cli.output import CommandError
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings, spec_of

INSTEAD = {"instance_types": "instance_requirements"}
"""A setting, and the one that cannot stand beside it."""
_DECODER = json.JSONDecoder()


@value_class
class Control:
    """One setting that the page moves. step 0: it is not a number. strategy: shown with this strategy only.

    is_rule: a change of it ends when another preset is chosen, which brings its own.
    """

    name: str
    label: str
    step: float = 1
    most: float = 0
    strategy: str = ""
    is_rule: bool = True


CONTROLS = (
    Control(name="min_workers", label="Fewest workers", most=20, is_rule=False),
    Control(name="max_workers", label="Most workers", most=40, is_rule=False),
    Control(name="instance_types", label="Instance type (the first of a list is replayed)", step=0, is_rule=False),
    Control(name="spot_percent", label="Share of Spot, %", is_rule=False),
    Control(name="cpu_credits", label="CPU beyond the baseline of burstable types", step=0, is_rule=False),
    Control(name="preset", label="Preset", step=0, is_rule=False),
    Control(name="cpu_up_percent", label="Scale up above CPU, %", strategy="thresholds"),
    Control(name="cpu_urgent_percent", label="Two workers at once above CPU, %", strategy="thresholds"),
    Control(name="cpu_down_percent", label="Scale down under CPU, %", strategy="thresholds"),
    Control(name="idle_seconds", label="Idle before a scale-down, s", step=60, most=3600, strategy="thresholds"),
    Control(name="cooldown_down_seconds", label="Cooldown of a scale-down, s", step=60, most=3600),
    Control(name="wait_cost", label="Price of a waiting pod (wait_cost)", step=0.5, most=20, strategy="adaptive"),
    Control(name="change_cost", label="Price of a change (change_cost)", step=5, most=200, strategy="adaptive"),
)
"""most: the end of the slider, where the setting itself allows more; the number beside it takes every allowed value."""


def described(settings: Settings) -> list[dict[str, Any]]:
    """What the page needs to draw the controls."""
    specs = {one.name: spec_of(one) for one in fields(settings)}
    return [
        {
            "name": one.name,
            "label": one.label,
            "step": one.step,
            "strategy": one.strategy,
            "is_rule": one.is_rule,
            "low": specs[one.name].low,
            "high": specs[one.name].high,
            "most": one.most or specs[one.name].high,
            "choices": specs[one.name].choices,
        }
        for one in CONTROLS
    ]


@value_class
class Changed:
    """cdk.json with the changes: what they set, the settings of the whole cluster, and the text of the file.

    given: the names and values in the file's settings. digest: of the text before the changes.
    """

    changes: Mapping[str, Any]
    given: Mapping[str, Any]
    settings: Settings
    text: str
    difference: str
    digest: str


class ConfiguredCluster:
    """One cluster in a cdk.json."""

    def __init__(self, path: Path, cluster_id: str) -> None:
        self.path, self.cluster_id = path, cluster_id
        self._writing = threading.Lock()

    def changed(self, wanted: Mapping[str, Any]) -> Changed:
        """The file as it would be. A change without effect is left out.

        Raises:
            CommandError: the file cannot be used, it has no such cluster, or the page does not move such a setting.
            ConfigurationError: the settings are wrong; it lists every mistake.
        """
        unknown = wanted.keys() - {one.name for one in CONTROLS}
        if unknown:
            raise CommandError(f"{min(unknown)} is no setting of this page", hint="change it in cdk.json")
        text = self._text()
        self._entry(text)
        self._settings(text)  # what is wrong in the file is refused as that
        complete = self._settings(self._edited(text, wanted))
        changes = {name: _plain(getattr(complete, name)) for name in wanted}
        for name in wanted:
            others = {other: value for other, value in changes.items() if other != name}
            if getattr(self._settings_or_none(self._edited(text, others)), name, None) == getattr(complete, name):
                changes = others
        edited = self._edited(text, changes)
        before, after = text.splitlines(keepends=True), edited.splitlines(keepends=True)
        name = self.path.name
        return Changed(
            changes=changes,
            given=self._entry(edited)[1].get("settings", {}),
            settings=self._settings(edited),
            text=edited,
            difference="".join(difflib.unified_diff(before, after, name, f"{name}, changed", n=2)),
            digest=_digest(text),
        )

    def write(self, wanted: Mapping[str, Any], digest: str) -> Changed:
        """Write the changes into the file, whole or not at all.

        Raises:
            CommandError: also when the text is not the one that the page has shown, or the file cannot be written.
        """
        with self._writing:
            found = self.changed(wanted)
            if found.digest != digest:
                hint = "look at the new difference, then write it"
                raise CommandError(f"{self.path} has changed since the page showed the difference", hint=hint)
            try:
                _replace(self.path.resolve(), found.text.encode())
            except OSError as error:
                text = f"{self.path} cannot be written: {error.strerror}"
                raise CommandError(text, hint="copy the settings instead") from error
            return found

    def _text(self) -> str:
        try:
            return self.path.read_bytes().decode()
        except OSError as error:
            raise CommandError(f"{self.path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise CommandError(f"{self.path} is not UTF-8 text", hint="save it as UTF-8") from error

    def _edited(self, text: str, changes: Mapping[str, Any]) -> str:
        """The text with these values in the settings of the cluster."""
        if not changes:
            return text
        index, entry = self._entry(text)
        place = ("context", "clusters", index)
        if "settings" not in entry:
            return put(text, place, "settings", dict(changes))
        for name, value in changes.items():
            text = put(text, (*place, "settings"), name, value, instead_of=INSTEAD.get(name))
        return text

    def _entry(self, text: str) -> tuple[int, dict[str, Any]]:
        """The place of the cluster in the list, and its entry."""
        try:
            clusters = json.loads(text)["context"]["clusters"]
            found = [at for at, one in enumerate(clusters) if one["cluster_id"] == self.cluster_id]
            known = ", ".join(str(one["cluster_id"]) for one in clusters) or "none is there"
            if not found:
                raise CommandError(
                    f"{self.path} has no cluster {self.cluster_id}", hint=f"give --cluster with one of these: {known}"
                )
            return found[0], dict(clusters[found[0]])
        except json.JSONDecodeError as error:
            raise CommandError(f"{self.path}, line {error.lineno}, column {error.colno}: {error.msg}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise CommandError(
                f"{self.path} has no list context.clusters of objects with a cluster_id", hint="correct cdk.json"
            ) from error

    def _settings(self, text: str) -> Settings:
        clusters: tuple[ClusterConfig, ...] = clusters_of(json.loads(text)["context"]["clusters"])
        return next(one.settings for one in clusters if one.cluster_id == self.cluster_id)

    def _settings_or_none(self, text: str) -> Settings | None:
        try:
            return self._settings(text)
        except ConfigurationError:
            return None


def put(text: str, place: tuple[str | int, ...], name: str, value: Any, *, instead_of: str | None = None) -> str:
    """The JSON text with this value of this name in the object at that place; every other character stays.

    instead_of: a name that the new one replaces.
    """
    at = _skip(text, 0)
    for part in place:
        at = [one for one in _members(text, at) if one.name == part][-1].begin
    members = list(_members(text, at))
    written = json.dumps(value, ensure_ascii=False)
    for one in reversed(members):
        if one.name == name:
            return text[: one.begin] + written + text[one.end :]
    for one in reversed(members):
        if one.name == instead_of:
            return f"{text[: one.key]}{json.dumps(name)}: {written}{text[one.end :]}"
    member = f"{json.dumps(name)}: {written}"
    if not members:
        return f"{text[: at + 1]} {member} {text[_skip(text, at + 1) :]}"
    last = members[-1]
    before = text[text.rfind("\n", 0, last.key) + 1 : last.key]
    line_end = "\r\n" if "\r\n" in text else "\n"
    between = f",{line_end}{before}" if before.isspace() else ", "
    return text[: last.end] + between + member + text[last.end :]


@dataclass(frozen=True, slots=True)
class _Member:
    """A value of an object or a list: its name or index, where its key begins, and where its value begins and ends."""

    name: str | int
    key: int
    begin: int
    end: int


def _members(text: str, at: int) -> Iterator[_Member]:
    is_object, at, index = text[at] == "{", _skip(text, at + 1), 0
    while text[at] not in "]}":
        name: str | int = index
        key = begin = at
        if is_object:
            name, begin = _DECODER.raw_decode(text, at)
            begin = _skip(text, _skip(text, begin) + 1)
        _, end = _DECODER.raw_decode(text, begin)
        yield _Member(name, key, begin, end)
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
        index += 1


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _plain(value: Any) -> Any:
    """A value for JSON; a whole number without a fraction."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _replace(path: Path, data: bytes) -> None:
    """Put the data in the place of the file; a reader sees the whole old file or the whole new one."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            shutil.copymode(path, file.name)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
