"""Agents that do what a prompt says, and what is asked of sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import Kernel
from supervisor.policy.principals import Principal
from tests.factories import PYTHON, descriptor
from tests.kernel.conftest import begin
from tests.principals import ADA

AGENT = str(Path(__file__).with_name("agent.py"))


def agent(folder: Path, name: str = "a", kind: str = "agent", **fields: Any) -> Descriptor:
    command = [*PYTHON, AGENT, name, kind]
    return descriptor(folder, command, name=name, kind=kind, **fields)


async def op(daemon: Kernel, name: str, principal: Principal = ADA, **args: Any) -> Any:
    asker = begin(daemon, "supervisor", "invoke", {"op": name, "args": args}, principal)
    document = await asker.document()
    return document.get("result") or document["error"]
