"""A descriptor changes: its successor starts beside it, or after it; what fails is not used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from protocol.errors import Success
from supervisor.policy.lifecycle import State
from supervisor.runtime.supervision.module import Module
from tests.factories import Heard, call
from tests.runtime.conftest import Running
from tests.runtime.fakes import Stage, staged


def one(folder: Path, version: str, **supervision: Any) -> Descriptor:
    return staged(folder, version=version, supervision={"backoff": {"jitter": 0}, **supervision})


def up(running: Running, stage: Stage, folder: Path, **supervision: Any) -> Module:
    module = running(one(folder, "1", **supervision))
    module.start("the test")
    stage.life.get_ready()
    return module


def offer(module: Module, descriptor: Descriptor) -> None:
    module.succession.offer(descriptor, "its descriptor changed", anew=False)


def ask(module: Module) -> Heard:
    asked, heard = call()
    module.submit(asked)
    return heard


def refusal(module: Module) -> str:
    refused = module.succession.refused
    return "" if refused is None else refused.reason


async def test_the_one_that_serves_goes_on_until_its_successor_is_ready(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, stage, tmp_path)
    old = stage.life
    in_flight, waits = ask(module), ask(module)
    offer(module, one(tmp_path, "2"))
    assert (module.descriptor.version, module.state, old.endings) == ("1", State.READY, [])
    stage.life.get_ready()
    assert (module.descriptor.version, module.state, old.endings) == ("2", State.READY, [False])
    stage.life.answer("new")
    assert waits.outcomes == [Success("new")]
    assert in_flight.outcomes == []
    old.answer("old")
    assert in_flight.outcomes == [Success("old")]
    await old.die(0)
    assert stage.alive == ["m#2"]


async def test_a_successor_that_fails_changes_nothing_and_a_crash_restarts_the_good_one(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, stage, tmp_path)
    old = stage.life
    offer(module, one(tmp_path, "2"))
    assert module.succession.undecided
    await stage.life.fail_to_spawn()
    assert (module.descriptor.version, module.state, old.endings) == ("1", State.READY, [])
    assert "no such program" in refusal(module)
    assert "last good version stays in use" in refusal(module)
    assert (module.succession.undecided, stage.alive) == (False, ["m#1"])
    await old.die()
    stage.life.get_ready()
    assert (module.descriptor.version, stage.alive) == ("1", ["m#3"])


async def test_one_that_stands_no_second_copy_ends_first_and_comes_back_if_the_new_one_fails(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, stage, tmp_path, overlap=False)
    offer(module, one(tmp_path, "2"))  # the one that runs has the last word, too
    assert (module.state, stage.life.endings, stage.alive) == (State.STOPPING, [False], ["m#1"])
    waits = ask(module)
    await stage.life.die(0)
    assert (module.descriptor.version, stage.alive) == ("2", ["m#2"])
    await stage.life.fail_to_spawn()
    assert (module.descriptor.version, stage.alive) == ("1", ["m#3"])
    assert waits.outcomes == []
    stage.life.get_ready()
    stage.life.answer("served")
    assert waits.outcomes == [Success("served")]
    assert "no such program" in refusal(module)


@pytest.mark.fault(12)
async def test_of_many_offers_the_newest_counts_and_two_live_at_the_most(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, stage, tmp_path)
    for version in range(2, 50):
        offer(module, one(tmp_path, str(version)))
    assert stage.alive == ["m#1", "m#2"]
    await stage.life.die(0)
    assert stage.alive == ["m#1", "m#3"]
    stage.life.get_ready()
    assert module.descriptor.version == "49"
    offer(module, one(tmp_path, "50"))
    assert stage.alive == ["m#1", "m#3"]
    await stage.lives[0].die(0)
    assert stage.alive == ["m#3", "m#4"]


async def test_what_is_as_it_was_before_its_successor_was_ready_is_not_touched(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, stage, tmp_path)
    offer(module, one(tmp_path, "2"))
    offer(module, one(tmp_path, "1"))
    await stage.lives[1].die(0)
    assert (stage.alive, stage.lives[0].endings) == (["m#1"], [])
    assert not module.succession.undecided


async def test_what_is_stopped_meanwhile_starts_by_its_new_descriptor(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, stage, tmp_path)
    offer(module, one(tmp_path, "2"))
    module.stop("a command")
    for life in stage.lives:
        assert life.endings == [False]
        await life.die(0)
    assert (module.state, module.is_down) == (State.DOWN, True)
    module.start("a command")
    stage.life.get_ready()
    assert module.descriptor.version == "2"


async def test_one_that_was_never_ready_is_given_up_for_its_successor(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = running(one(tmp_path, "1"))
    module.start("the test")
    await stage.life.fail_to_spawn()
    assert module.succession.hopeless
    offer(module, one(tmp_path, "2"))
    assert stage.alive == ["m#2"]
    await stage.life.fail_to_spawn()
    await trio.testing.wait_all_tasks_blocked()
    assert (module.descriptor.version, module.state) == ("2", State.BACKOFF)
    assert module.succession.refused is None
