"""Reads the settings of one cluster, from the environment or from names and values, and writes them back.

The deployment sets the environment that to_env() gives; the functions read it with from_env().
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.setting import spec_of
from node_fleet.settings.groups import SettingValues
from node_fleet.settings.parsing import nearest, parsed, shown, written
from node_fleet.settings.presets import PRESETS
from node_fleet.settings.validation import contradictions, limit_problems

if TYPE_CHECKING:
    from node_fleet.domain.cost.limits import Limits
    from node_fleet.domain.cost.prices import PriceList
    from node_fleet.domain.cost.tariff import Currency, Tariff

_OLD_NAMES = {spec.old_env: spec.env for f in fields(SettingValues) if (spec := spec_of(f)).old_env}
_OLD_NAMES |= {spec.old_env.lower(): f.name for f in fields(SettingValues) if (spec := spec_of(f)).old_env}
"""Earlier name -> name, for names in the environment and names in cdk.json."""
_FILE_NAMES = {spec_of(f).env: f.name for f in fields(SettingValues)}
"""Name in the environment -> name in cdk.json."""


class Settings(SettingValues):
    """All settings of one cluster. A setting that is not given takes its default from the preset."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read every setting from environment variables.

        Raises:
            InvalidSettingsError: lists all wrong settings, each with its name in cdk.json, value and what is allowed.
        """
        return cls._checked(*cls._read_env(env))

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any], resolved_types: tuple[str, ...] = ()) -> Settings:
        """Read settings by field name (cdk.json, scenario files); texts are parsed as in the environment.

        instance_requirements stand for resolved_types, else for the types of the shipped table that meet them.

        Raises:
            InvalidSettingsError: as from_env.
        """
        settings, problems = cls._read(*_with_current_names(raw))
        if settings.instance_requirements is None:
            return cls._checked(settings, problems)
        if "instance_types" in raw:
            problems.append(
                f"instance_types={shown(raw['instance_types'])} beside instance_requirements: keep one of them"
            )
            return cls._checked(settings, problems)
        from node_fleet.domain.cost.type_choice import types_meeting  # no function needs it: they get resolved types

        types = resolved_types or types_meeting(
            settings.instance_requirements, settings.tariff(), settings.spot_percent
        )
        if not types:
            text = written(settings.instance_requirements)
            problems.append(
                f"instance_requirements={text}: no type with a shipped price in {settings.region} meets it, expected "
                "wider ranges, or the answer of EC2 recorded with node-fleet types --record"
            )
        return cls._checked(replace(settings, instance_types=types), problems)

    @classmethod
    def requirements_of(cls, raw: Mapping[str, Any]) -> InstanceRequirements | None:
        """The instance_requirements in names and values; None without them, or with wrong ones."""
        settings, _ = cls._read({name: raw[name] for name in ("instance_requirements",) if name in raw}, [])
        return settings.instance_requirements

    @classmethod
    def _checked(cls, settings: Settings, problems: list[str]) -> Settings:
        if found := [*problems, *contradictions(settings), *limit_problems(settings, settings.limits())]:
            raise InvalidSettingsError(found)
        return settings

    @classmethod
    def _read_env(cls, env: Mapping[str, str]) -> tuple[Settings, list[str]]:
        current, problems = _with_current_names(env)
        return cls._read({f.name: current[e] for f in fields(cls) if (e := spec_of(f).env) in current}, problems)

    @classmethod
    def _read(cls, raw: Mapping[str, Any], problems: list[str]) -> tuple[Settings, list[str]]:
        known = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in raw.items():
            if name not in known:
                problems.append(f"{name} is not a setting{_hint(name)}")
                continue
            try:
                values[name] = parsed(known[name], value)
            except ValueError as error:
                problems.append(f"{name}={shown(value)}: {error}")
        preset = values.get("preset", "node-fleet")
        return cls(**{**PRESETS[preset], **values}), problems

    def to_env(self) -> dict[str, str]:
        """The environment that gives these settings back; only what differs from the preset's defaults."""
        base = Settings(**{**PRESETS[self.preset], "preset": self.preset})
        differing = {f.name for f in fields(self) if getattr(self, f.name) != getattr(base, f.name)}
        return self.env_of({"cluster_id", "preset", *differing})

    def env_of(self, names: Iterable[str]) -> dict[str, str]:
        """The environment of just these settings, by field name, whether or not they differ from a default."""
        return {spec_of(f).env: written(getattr(self, f.name)) for f in fields(self) if f.name in names}

    def policy(self) -> Policy:
        """The settings that decide() obeys."""
        return self._policy

    @cached_property
    def _policy(self) -> Policy:
        return Policy(**{f.name: getattr(self, f.name) for f in fields(Policy)})

    def tariff(self, prices: PriceList | None = None) -> Tariff:
        """What these workers cost, at the shipped prices of the region unless others are given."""
        from node_fleet.domain.cost.prices import PriceList  # Decide asks for no cost: its start need not wait for them
        from node_fleet.domain.cost.tariff import Tariff

        return Tariff(
            prices=prices or PriceList.shipped(self.region),
            volume_gib=self.worker_volume_gib,
            public_address=self.worker_public_address,
            cpu_credits=self.cpu_credits,
        )

    def limits(self) -> Limits | None:
        """The limits in money and vCPUs; None when neither is set, which loads no prices."""
        if not self.max_usd_per_hour and not self.max_vcpu:
            return None
        from node_fleet.domain.cost.limits import Limits

        return Limits(
            max_usd_per_hour=self.max_usd_per_hour,
            max_vcpu=self.max_vcpu,
            tariff=self.tariff(),
            types=self.instance_types,
            spot_percent=self.spot_percent,
        )

    @property
    def headroom_in_workers(self) -> float:
        """The chosen headroom in workers of the first type; pods count by the larger of their two shares."""
        size, pods = offered(self.instance_types[0]) if self.instance_types else None, self.headroom_pods
        if pods is None or size is None:
            return float(self.headroom_workers)
        return pods.count * max(pods.cpu_milli / size[0], pods.memory_mib / size[1])

    @property
    def money(self) -> Currency:
        """The currency of messages and reports."""
        from node_fleet.domain.cost.tariff import Currency

        return Currency(currency=self.currency, per_usd=self.currency_per_usd)

    @cached_property
    def policy_env(self) -> dict[str, str]:
        """The part of to_env() that decisions obey."""
        decisive = {spec_of(f).env for f in fields(Policy)}
        return {name: value for name, value in self.to_env().items() if name in decisive}


def _hint(name: str) -> str:
    """The name in cdk.json of a name in the environment, else the nearest setting."""
    if name in _FILE_NAMES:
        return f" (in cdk.json: {_FILE_NAMES[name]})"
    return nearest(name, Settings.__dataclass_fields__)


def _with_current_names(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The same values under current names, with one warning for each earlier name; a problem where both are given."""
    current, problems = dict(raw), []
    for old in _OLD_NAMES.keys() & raw.keys():
        new = _OLD_NAMES[old]
        value = current.pop(old)
        if new in raw:
            problems.append(f"{old} and {new} are the same setting and both are given: remove {old}")
        else:
            warnings.warn(f"{old} is deprecated: use {new}, which means the same", FutureWarning, stacklevel=4)
            current[new] = value
    return current, problems
