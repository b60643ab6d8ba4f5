"""Settings: names, defaults, ranges, presets, and checks of settings against each other."""

from node_fleet.domain.model.setting import Spec, spec_of
from node_fleet.settings.settings import Settings
from node_fleet.settings.validation import CREATE

__all__ = ["CREATE", "Settings", "Spec", "spec_of"]
