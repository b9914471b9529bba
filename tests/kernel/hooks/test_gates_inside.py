"""Of `test_gates.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.events import Log
from supervisor.kernel.hooks.registry import Gates
from tests.factories import actor
from tests.kernel.conftest import ask, daemon_with
from tests.kernel.hooks.parties import denied, hook, reload, seen
from tests.kernel.hooks.test_gates import answered, deny
from tests.kernel.hooks.test_observing_inside import begin


async def test_a_message_about_what_a_module_asked_for_reaches_the_first_client(
    tmp_path: Path,
) -> None:
    answers = {"*": {"user_message": "careful"}}
    gate = hook(tmp_path, answers=answers, gate=["tool:pre"], modules=["x"])
    parties = actor(tmp_path), actor(tmp_path, name="x"), gate
    async with daemon_with(tmp_path, *parties) as daemon:
        own, asker = begin(daemon, "m", "hang")
        _, inner = begin(daemon, "x", "echo", own)
        assert (await inner.response()).ok
        assert not inner.events
        (said,) = asker.events
    assert isinstance(said, Log)
    assert (said.message, said.fields) == ("careful", {"hook": "h", "about": "x.echo"})


async def test_a_gate_stands_before_the_modules_it_names_and_before_no_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = [
        hook(tmp_path, "h", {"*": deny()}, gate=["tool:pre"], modules=["m*"]),
        hook(tmp_path, "mine", {"*": deny()}, gate=["tool:pre"], modules=["m*", "h"]),
    ]
    async with daemon_with(tmp_path, actor(tmp_path), actor(tmp_path, name="x"), *gates) as daemon:
        assert denied(await answered(daemon))
        assert (await ask(daemon, "x").response()).ok
        assert await seen(daemon, "mine") == []
        monkeypatch.setattr(Gates, "before", None)
        await reload(daemon, actor(tmp_path))
        assert (await answered(daemon)).responses[0].ok  # nobody is even looked for


async def test_a_gate_is_not_asked_about_what_is_done_on_its_behalf(tmp_path: Path) -> None:
    gates = [hook(tmp_path, one, {"mine": "hang"}, gate=["tool:pre"]) for one in ("h", "i")]
    async with daemon_with(tmp_path, actor(tmp_path), *gates) as daemon:
        own, _ = begin(daemon, "h", "on_event")
        _, child = begin(daemon, "m", "echo", own)
        assert (await child.response()).ok
        asked = {name: [one["event"] for one in await seen(daemon, name)] for name in ("h", "i")}
    assert asked == {"h": ["mine"], "i": ["tool:pre"]}
