"""Every place where the simulator changes moto and botocore, and nothing else.

Each patch states what it expects of the code that it replaces. After an upgrade that does not fit, PatchError names it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
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
