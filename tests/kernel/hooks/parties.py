"""Hooks, and the modules they stand before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import trio

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import Kernel, Party
from supervisor.policy.findings import Reading
from supervisor.policy.reload_plan import Running, plan
from tests import factories, journals
from tests.kernel.conftest import Asker, ask
from tests.principals import ADA

HOOK = str(Path(__file__).parent / "hook.py")


def hook(
    folder: Path,
    name: str = "h",
    answers: dict[str, Any] | None = None,
    *,
    supervision: dict[str, Any] | None = None,
    capabilities: tuple[str, ...] = (),
    **fields: Any,
) -> Descriptor:
    """Make the descriptor of a hook that answers as told (hook.py); fields are those of `hook`."""
    return factories.descriptor(
        folder,
        [*factories.PYTHON, HOOK, name, json.dumps(answers or {})],
        name=name,
        kind="hook",
        capabilities=list(capabilities),
        hook=fields,
        # One that hangs at the end of a test is not waited for.
        supervision={"concurrency": 8, "timeouts": {"stop_s": 0.05}, **(supervision or {})},
    )


async def seen(daemon: Kernel, name: str = "h") -> list[dict[str, Any]]:
    """Return what a hook was given, each as {"event","data"}."""
    document = await ask(daemon, name, "seen").document()
    assert document["ok"], document
    result: list[dict[str, Any]] = document["result"]
    return result


async def given(daemon: Kernel, count: int, name: str = "h") -> list[dict[str, Any]]:
    """Wait until a hook was given so many events."""
    while len(found := await seen(daemon, name)) < count:
        await trio.lowlevel.checkpoint()
    return found


async def then(daemon: Kernel, name: str = "h", **answers: Any) -> None:
    """Have a hook answer otherwise from now on; those who hang get `held`."""
    assert (await ask(daemon, name, "then", args=answers).document())["ok"]


async def waits(daemon: Kernel, name: str = "h") -> None:
    """Wait until an event hangs in a hook; one call of `seen` is not counted."""
    module = daemon.fleet.modules[name]
    while not module.in_flight:
        await trio.lowlevel.checkpoint()


def denied(asker: Asker) -> dict[str, Any]:
    """Return the details of a request that a hook denied."""
    (response,) = asker.responses
    error: dict[str, Any] = response.document()["error"]
    assert (error["code"], error["details"]["reason"]) == ("forbidden", "hook"), error
    details: dict[str, Any] = error["details"]
    return {**details, "message": error["message"]}


async def unemitted(event: Any) -> None:
    raise AssertionError(event)


def entries(folder: Path, event: str | None = None) -> list[dict[str, Any]]:
    """Return what the journal of an ended daemon has."""
    found = [entry for _, entry in journals.read(folder / "data" / "journal.db")]
    return [one for one in found if event in (None, one["event"])]


async def reload(daemon: Kernel, *descriptors: Descriptor) -> None:
    current = {name: Running(one.descriptor) for name, one in daemon.fleet.modules.items()}
    await daemon.fleet.apply(plan(current, Reading(descriptors)))
    successions = [one.succession for one in daemon.fleet.modules.values()]
    await daemon.fleet.wait_until(lambda: not any(one.undecided for one in successions) or None)


def begin(daemon: Kernel, tool: str, op: str, **bounds: float) -> tuple[Any, Asker]:
    """Begin an invocation; the handle is None if it has ended with that."""
    asker = Asker()
    return daemon.begin(Party(ADA), tool, "invoke", {"op": op, "args": {}, **bounds}, asker), asker
