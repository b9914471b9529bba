"""A stream whose descriptor is closed."""

from __future__ import annotations

import os

from supervisor.faces import byte_stream


async def test_reading_from_a_closed_side_is_its_end() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    os.set_blocking(reading, False)
    assert await byte_stream.read_some(reading) == b""
    os.close(reading)
    assert await byte_stream.read_some(reading) == b""
