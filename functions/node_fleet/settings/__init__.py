"""Settings: names, defaults, ranges, presets, and what contradicts what."""

from node_fleet.settings.parsing import Spec, spec_of
from node_fleet.settings.settings import Settings

__all__ = ["Settings", "Spec", "spec_of"]
