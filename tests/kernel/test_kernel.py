"""The kernel as whoever opens it sees it: requests, its end, its bounds and times."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import (
    Capacity,
    DataInUseError,
    HeldBounds,
    JournalOptions,
    Kernel,
    Party,
    Times,
)
from supervisor.policy.findings import Found
from tests import journals
from tests.bounds import WAIT_S
from tests.factories import actor
from tests.kernel.conftest import Asker, ask, own
from tests.principals import ADA


def kernel(folder: Path, *modules: Descriptor, **options: object) -> Kernel:
    return Kernel(Found(modules), data_dir=folder / "data", **options)  # type: ignore[arg-type]


async def test_a_request_has_its_events_and_one_response(tmp_path: Path) -> None:
    async with kernel(tmp_path, actor(tmp_path)) as opened:
        await opened.wait_ready()
        asker = ask(opened, "m", "events", args={"count": 3})
        assert (await asker.response()).ok
    assert len(asker.events) == 3


@pytest.mark.parametrize(
    ("tool", "operation", "reason"),
    [
        ("nobody", "invoke", "unknown_module"),
        ("m", "dance", "malformed_request"),
        (None, None, "malformed_request"),
    ],
)
async def test_what_cannot_be_begun_is_refused_in_its_response(
    tmp_path: Path, tool: str | None, operation: str | None, reason: str
) -> None:
    asker = Asker()
    async with kernel(tmp_path, actor(tmp_path)) as opened:
        opened.begin(Party(ADA), tool, operation, {"op": "echo"}, asker)
        response = await asker.document()
    assert response["error"]["details"]["reason"] == reason


async def test_its_end_answers_what_is_open_and_frees_the_data_directory(tmp_path: Path) -> None:
    async with kernel(tmp_path, actor(tmp_path), memory=JournalOptions()) as opened:
        await opened.wait_ready()
        asker = ask(opened, "m", "hang")
        with pytest.raises(DataInUseError):
            async with kernel(tmp_path):
                pass
    assert opened.fleet_stopped
    assert (await asker.document())["error"]["details"]["reason"] == "shutdown"
    async with kernel(tmp_path):
        pass
    (stop,) = journals.of(tmp_path / "data" / "journal.db", "daemon:stop")
    assert stop["data"]["cause"] == "the end"


async def test_bounds_times_and_the_clock_are_those_it_was_given(tmp_path: Path) -> None:
    ticks = itertools.count(1_000_000)
    options = {
        "bounds": Capacity(held=HeldBounds(party=1234)),
        "times": Times(flush_s=WAIT_S),
        "clock": lambda: float(next(ticks)),
        "memory": JournalOptions(),
    }
    async with kernel(tmp_path, **options) as opened:
        status = await own(opened, ADA, "status")
        assert status["daemon"]["held_bytes"]["party_limit"] == 1234
    (start,) = journals.of(tmp_path / "data" / "journal.db", "daemon:start")
    assert 1_000_000 <= start["ts"] < next(ticks)
