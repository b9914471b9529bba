"""One daemon for the tests of a file that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.running import Running, started
from tests.system.descriptors import actor


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    """A daemon with the module `m`, which does what its ops say."""
    with started(actor()) as daemon:
        yield daemon
