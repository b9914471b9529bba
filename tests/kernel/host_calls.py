"""Modules that call the host, what they are allowed, and what they are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import Kernel, OperatorPolicy
from tests.factories import PYTHON, descriptor
from tests.kernel.conftest import Asker, ask
from tests.principals import ADA

CALLER = str(Path(__file__).with_name("caller.py"))
ALL = ["module.*", "session.*", "event.*", "log"]
PROMPT = 'mode = "prompt"\n'
"""A policy that leaves what a descriptor asks for to people."""


def caller(folder: Path, name: str, *flags: str, **fields: Any) -> Descriptor:
    fields.setdefault("capabilities", ALL)
    fields.setdefault("supervision", {"concurrency": 8})
    return descriptor(folder, [*PYTHON, CALLER, name, *flags], name=name, **fields)


def allowing(folder: Path, text: str = 'mode = "permissive"\n') -> OperatorPolicy:
    path = folder / "policy.toml"
    path.write_text(text)
    return OperatorPolicy(path)


def payload(method: str, call_id: str = "c1", **params: Any) -> dict[str, Any]:
    return {"call_id": call_id, "capability": method, "method": method, "params": params}


async def results(daemon: Kernel, *calls: dict[str, Any], **content: Any) -> list[dict[str, Any]]:
    """Have the module `a` make calls, and return the payloads of their results."""
    args = {"calls": list(calls), "lines": content.pop("lines", [])}
    document = await ask(daemon, "a", "calls", args=args, **content).document()
    assert document["ok"], document
    found: list[dict[str, Any]] = document["result"]["results"]
    return found


def error(result: dict[str, Any], code: str, original: str) -> dict[str, Any]:
    """Return the error of a result, which has these codes."""
    assert result["is_error"] is True
    assert result["output"] == {}
    found: dict[str, Any] = result["error"]
    assert (found["code"], found["details"]["code"]) == (code, original), found
    return found


async def question(daemon: Kernel) -> dict[str, Any]:
    """Return the question that waits for a person, once there is one."""
    while not (found := daemon.approvals.waiting(ADA)):
        await trio.lowlevel.checkpoint()
    [one] = found
    return one


async def result(asker: Asker) -> dict[str, Any]:
    """Return the result of the one call that was made."""
    document = await asker.document()
    [one] = document["result"]["results"]
    found: dict[str, Any] = one
    return found
