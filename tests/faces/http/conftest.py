"""Daemons with HTTP for the tests of a file that leave them as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.running import LOOPBACK, SOCK, Running, started
from tests.system.descriptors import actor


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    """A daemon with the module `m`, which does what its ops say."""
    with started(actor(), http=SOCK) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def at_loopback() -> Iterator[Running]:
    """A daemon without modules that serves HTTP at an address."""
    with started(http=LOOPBACK) as daemon:
        yield daemon
