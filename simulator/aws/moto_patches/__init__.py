"""Every place where the simulator changes moto and botocore, and nothing else.

Each patch states what it expects of the code that it replaces. After an upgrade that does not fit, PatchError names it.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock


class PatchError(RuntimeError):
    """moto or botocore is not what a patch was written for."""


def expect(owner: Any, name: str, *parameters: str) -> Any:
    """The attribute that a patch replaces, checked against the parameters it was written for."""
    where = f"{getattr(owner, '__name__', owner)}.{name}"
    if not hasattr(owner, name):
        raise PatchError(f"patch {where}: it does not exist; find its new place and move the patch")
    found = getattr(owner, name)
    if parameters:
        actual = tuple(inspect.signature(found).parameters)
        if actual != parameters:
            raise PatchError(f"patch {where}: takes {actual}, the patch was written for {parameters}")
    return found


@contextlib.contextmanager
def swapped(owner: Any, name: str, value: Any, *parameters: str) -> Iterator[Any]:
    """Replaces an attribute for as long as the context is open, after checking what stood there."""
    original = expect(owner, name, *parameters)
    with mock.patch.object(owner, name, value):
        yield original


class _Offerings(dict[str, Any]):
    """The instance types that the regions offer, by one kind of location. A region is read when it is asked for."""

    def __init__(self, location_type: str, read: Callable[[str], Any]) -> None:
        self._location_type = location_type
        self._read = read

    def get(self, region: str, default: Any = None) -> Any:
        if region not in self:
            with contextlib.suppress(FileNotFoundError):
                found = self._read(f"ec2/resources/{OFFERINGS}/{self._location_type}/{region}.json")
                self[region] = [{**offering, "LocationType": self._location_type} for offering in found]
        return super().get(region, default)


OFFERINGS = "instance_type_offerings"


def _import_instance_types() -> None:
    """Import moto's instance types before anything else does, without the offerings of all regions: 600,000 objects."""
    resources = importlib.import_module("moto.utilities.utils")
    read = expect(resources, "load_resource", "resource")

    def read_all_but_offerings(resource: str) -> Any:
        return [] if OFFERINGS in resource else read(resource)

    with swapped(resources, "load_resource", read_all_but_offerings):
        types = importlib.import_module("moto.ec2.models.instance_types")
    offerings = expect(types, "INSTANCE_TYPE_OFFERINGS")
    offerings.update({location_type: _Offerings(location_type, read) for location_type in offerings})


_import_instance_types()
