"""What a reload does to a module whose file has another name: it is called so, and goes on."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import trio

from supervisor.kernel.kernel import Sources
from tests.factories import ACTOR, PYTHON, document
from tests.kernel.conftest import own
from tests.kernel.test_supervision_times import BACKOFF, NO_PROBES
from tests.kernel.virtual import Clock, Story, story
from tests.principals import ADA

SUPERVISION = {"health": NO_PROBES, "backoff": BACKOFF, "overlap": False}


async def reload(world: Story) -> dict[str, Any]:
    """Reload, and return what that did."""
    done: dict[str, Any] = await own(world.kernel, ADA, "reload")
    return {kind: found for kind, found in done.items() if found and kind != "reloads"}


async def test_a_file_that_was_renamed_is_named_and_its_module_goes_on(
    tmp_path: Path, mock_clock: Clock
) -> None:
    first, second = tmp_path / "modules" / "a.json", tmp_path / "modules" / "b.json"
    first.parent.mkdir()
    write = partial(document, supervision=SUPERVISION)
    first.write_text(json.dumps(write([*PYTHON, ACTOR, "m"])))
    sources = Sources.of_directories([first.parent])
    async with story(mock_clock, tmp_path, sources=sources, directories=[first.parent]) as world:
        assert await reload(world) == {"added": [{"name": "m", "descriptor": str(first)}]}
        await world.serve("m#1")
        first.rename(second)
        moved = {"name": "m", "descriptor": str(second), "from": str(first)}
        assert await reload(world) == {"moved": [moved], "unchanged": ["m"]}
        assert (await world.status())["descriptor"] == str(second)
        await world.serve("m#1")
        # One whose process is on its way out for the change before, too.
        second.write_text(json.dumps(write([*PYTHON, ACTOR, "m", "cancel"])))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reload, world)
            await world.is_in("stopping")
            second.rename(first)
            moved = {"name": "m", "descriptor": str(first), "from": str(second)}
            assert await reload(world) == {"moved": [moved], "unchanged": ["m"]}
        await world.serve("m#2")
        assert (await world.status())["descriptor"] == str(first)


async def test_a_changed_module_goes_on_until_a_changed_one_that_it_needs_serves(
    tmp_path: Path, mock_clock: Clock
) -> None:
    directory, gate = tmp_path / "modules", tmp_path / "gate"
    directory.mkdir()

    def write(name: str, *flags: str, begins: str = "", depends_on: tuple[str, ...] = ()) -> None:
        body = f"{begins} exec {' '.join((*PYTHON, ACTOR, name, *flags))}"
        supervision = {**SUPERVISION, "depends_on": depends_on}
        made = document(["sh", "-c", body], name=name, supervision=supervision)
        (directory / f"{name}.json").write_text(json.dumps(made))

    names = ("changed", "same", "m")
    for name in names:
        write(name, depends_on=("changed", "same") if name == "m" else ())
    sources = Sources.of_directories([directory])
    async with story(mock_clock, tmp_path, sources=sources, directories=[directory]) as world:
        # A service has no program whose files could change.
        service = {"type": "http", "url": "http://localhost:1/"}
        made = document([], name="service", supervision={"start": "lazy"})
        (directory / "service.json").write_text(json.dumps({**made, "transport": service}))
        added = [one["name"] for one in (await reload(world))["added"]]
        assert sorted(added) == sorted([*names, "service"])
        for name in names:
            await world.has(f"{name}#1", module=name)
            await world.is_in("ready", name)
        os.mkfifo(gate)
        write("changed", begins=f"read x < {gate};")
        write("m", "cancel", depends_on=("changed", "same"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reload, world)
            await world.has("changed#2", module="changed")
            await trio.testing.wait_all_tasks_blocked()
            await world.has("m#1")
            assert (await world.status())["state"] == "ready"
            await trio.to_thread.run_sync(gate.write_text, "\n")
            await world.serve("m#2")
        assert (await world.status("same"))["restarts"] == 0
        await world.has("same#1", module="same")
