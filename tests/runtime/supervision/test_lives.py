"""What a kind of life says of itself is all that supervision knows of it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import trio.testing

from protocol.descriptor.loading import DescriptorError
from protocol.descriptor.model import Lifecycle
from protocol.descriptor.shape import TRANSPORT
from protocol.shape import Choice
from supervisor.kernel.status import module_status
from supervisor.policy.lifecycle import State
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.worker import LIVES, life_kind
from tests.factories import descriptor
from tests.runtime.conftest import Running
from tests.runtime.fakes import STAGE, Stage, staged

ONCE = {"lifecycle": "per-invocation"}


def told(module: Module) -> list[tuple[str, str]]:
    """Return the list that gets what is told of a module: of which instance, and what."""
    lines: list[tuple[str, str]] = []
    module.log.follow(lambda line: lines.append((line.instance, line.text)))
    return lines


def test_every_transport_that_a_descriptor_may_have_has_a_life(tmp_path: Path) -> None:
    types = TRANSPORT.fields["type"]
    assert isinstance(types, Choice)
    valid = set()
    for transport, lifecycle in product(types._words, Lifecycle):
        fields = {"type": transport, "lifecycle": lifecycle, "url": "http://127.0.0.1/"}
        try:
            made = descriptor(tmp_path, ["x"], transport=fields)
        except DescriptorError:
            continue
        valid.add((made.transport.type, made.transport.lifecycle))
        assert life_kind(made.transport)
    assert valid == set(LIVES)


async def test_a_stage_is_a_transport_of_the_tests_and_has_no_process(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = running(staged(tmp_path))
    assert (module.descriptor.transport.type, module.descriptor.transport.command) == (STAGE, ())
    module.start("the test")
    stage.life.get_ready()
    (shown,) = module_status(module)["instances"]
    assert (shown["id"], shown["pid"], shown["rss_bytes"]) == ("m#1", None, None)


async def test_a_life_that_takes_no_turn_starts_beside_any_number_of_others(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    held = [running.host.starts.turn(urgent=False)]
    while held[-1].came:
        held.append(running.host.starts.turn(urgent=False))
    behind, beside = running(staged(tmp_path)), running(staged(tmp_path, transport=ONCE))
    behind.start("the test")
    beside.start("the test")
    await trio.testing.wait_all_tasks_blocked()
    assert [life.begun for life in stage.lives] == [False, True]
    for turn in held:
        turn.give_back()
    await trio.testing.wait_all_tasks_blocked()
    assert [life.begun for life in stage.lives] == [True, True]


@pytest.mark.parametrize("transport", [{}, ONCE])
async def test_a_state_is_told_of_the_instance_or_of_the_module(
    running: Running, stage: Stage, tmp_path: Path, transport: dict[str, str]
) -> None:
    module = running(staged(tmp_path, transport=transport))
    lines = told(module)
    module.start("the test")
    stage.life.get_ready()
    whose = "m" if transport else "m#1"
    assert lines[-1] == (whose, "starting -> ready: answered health and describe")


async def test_a_module_whose_kind_of_life_changes_is_told_of_by_each_in_turn(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = running(staged(tmp_path))
    module.start("the test")
    stage.life.get_ready()
    lines = told(module)
    module.succession.offer(staged(tmp_path, transport=ONCE), "its descriptor changed", anew=False)
    stage.life.get_ready()
    await stage.lives[0].die(0)
    assert module.state is State.READY
    assert [instance for instance, _ in lines] == ["m", "m", "m#1", "m#1"]
