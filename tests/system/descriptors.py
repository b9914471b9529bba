"""Write the descriptors of the tests' modules."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MISBEHAVE = Path(__file__).with_name("misbehave.py")
PYTHON = [sys.executable, "-I", "-S", str(MISBEHAVE)]

AT_ONCE = {"initial_s": 0.01, "factor": 1, "max_s": 0.01, "jitter": 0}
"""A backoff that is none, for tests that are not about it."""

PATIENT = {"start_s": 60, "health_s": 60, "describe_s": 60, "invoke_s": 60, "stop_s": 60}
"""No timeout of the module's own runs out while a test watches, however slow the machine."""

ECHO_SH = r"""
while read -r line; do
  id=${line#*\"requestId\":\"}; id=${id%%\"*}
  n=${line##*\"n\":}; n=${n%%\}*}
  printf '{"version":"0","type":"done","requestId":"%s","ok":true,"result":{"n":%s}}\n' "$id" "$n"
done
"""


def descriptor(name: str, command: list[str], **transport: Any) -> dict[str, Any]:
    """Return a descriptor without supervision; those of its keys are given as `supervision`."""
    supervision = transport.pop("supervision", {})
    return {
        "name": name,
        "kind": "tool",
        "capabilities": [],
        "transport": {"type": "stdio", "command": command, **transport},
        "supervision": supervision,
    }


def misbehaving(
    name: str, *words: str, env: dict[str, str] | None = None, **supervision: Any
) -> dict[str, Any]:
    """Return a persistent misbehaving module; restarts are at once and without end."""
    supervision = {"intensity": 1000, "backoff": AT_ONCE, "timeouts": PATIENT, **supervision}
    return descriptor(name, [*PYTHON, *words], env=env or {}, supervision=supervision)


def per_invocation(name: str, *words: str, **supervision: Any) -> dict[str, Any]:
    """Return a misbehaving module with a process per invocation."""
    document = misbehaving(name, *words, **supervision)
    document["transport"]["lifecycle"] = "per-invocation"
    return document


def narratoria(name: str, *words: str, **supervision: Any) -> dict[str, Any]:
    """Return a misbehaving Spec 001 tool."""
    document = misbehaving(name, "speaks=events", *words, **supervision)
    document["transport"]["protocol"] = "narratoria"
    return document


def timeouts(**seconds: float) -> dict[str, float]:
    """Return patient timeouts, except for these."""
    return {**PATIENT, **seconds}


def write(folder: Path, *descriptors: dict[str, Any]) -> None:
    """Write descriptors into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for document in descriptors:
        (folder / f"{document['name']}.json").write_text(json.dumps(document))


RUNTIME = Path(__file__).parents[1] / "runtime"
KERNEL = Path(__file__).parents[1] / "kernel"
CALM = {"timeouts": {"stop_s": 0.1, "exit_s": 0.1}}
"""The module need not end by itself when the test does."""


def actor(*flags: str, name: str = "m", **top: Any) -> dict[str, Any]:
    """Return a persistent module that does what its ops say (runtime/actor.py)."""
    supervision = top.pop("supervision", CALM)
    command = [sys.executable, "-I", "-S", str(RUNTIME / "actor.py"), name, *flags]
    return {**descriptor(name, command, supervision=supervision), **top}


def script(body: str, name: str = "m") -> dict[str, Any]:
    """Return a per-invocation tool: a shell script with this body."""
    return descriptor(name, ["sh", "-c", body], protocol="narratoria")


def agent(name: str = "a", kind: str = "agent", **supervision: Any) -> dict[str, Any]:
    """Return an agent that does what its prompts say (kernel/agent.py)."""
    command = [sys.executable, "-I", "-S", str(KERNEL / "agent.py"), name, kind]
    return {**descriptor(name, command, supervision={**CALM, **supervision}), "kind": kind}
