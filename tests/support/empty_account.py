"""An AWS account of moto with its public images and nothing else, whatever this process simulated before."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from unittest import mock

from moto import mock_aws
from moto.core.base_backend import BackendDict


@contextlib.contextmanager
def empty_account() -> Iterator[None]:
    """Simulations leave moto's images out; here they are loaded again."""
    with mock.patch.dict(os.environ, MOTO_EC2_LOAD_DEFAULT_AMIS="true"), mock_aws():
        BackendDict.reset()
        yield
