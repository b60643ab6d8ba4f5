"""Settings: names, defaults, ranges, presets, and checks of settings against each other."""

from node_fleet.domain.model.setting import Spec, spec_of
from node_fleet.settings.settings import Settings

__all__ = ["Settings", "Spec", "spec_of"]
