"""The descriptors of the modules that the page is shown with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.system.descriptors import AT_ONCE, PATIENT, descriptor
from tests.system.test_hooks import hook

FOLDER = Path(__file__).parent
PYTHON = [sys.executable, "-I", "-S"]

TEXT = {"type": "string"}
INPUTS: dict[str, Any] = {
    "say": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "description": "What is to be said"},
            "times": {"type": "integer", "minimum": 1, "maximum": 9},
            "tone": {"enum": ["low", "high"]},
            "aloud": {"type": "boolean"},
            "tags": {"type": "array", "items": TEXT},
            "more": {"type": "object"},
        },
        "required": ["text"],
        "additionalProperties": False,
        "examples": [{"text": "one two three"}],
    },
    **{op: {"type": "object"} for op in ("wait", "die", "fail", "make", "ask")},
    "patch": {"type": "object", "properties": {"patch": {"type": "object"}}, "required": ["patch"]},
}

RESTARTED_BY_HAND = {"initial_s": 3600, "factor": 1, "max_s": 3600, "jitter": 0}


def actor(name: str, *, back_at_once: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a module that does what it is asked to (actor.py)."""
    backoff = AT_ONCE if back_at_once else RESTARTED_BY_HAND
    supervision = {
        "concurrency": 4, "intensity": 1000, "backoff": backoff, "timeouts": PATIENT
    }  # fmt: skip
    made = descriptor(name, [*PYTHON, str(FOLDER / "actor.py"), name], supervision=supervision)
    return {
        **made,
        "description": f"{name} is there to be looked at",
        "capabilities": ["user.ask"],
        "inputs": INPUTS,
        **fields,
    }


def gate(of: str) -> dict[str, Any]:
    """Return a hook that asks a person before each call of a module."""
    question = {
        "action": "ask_user",
        "approval_prompt": f"may {of} be called?",
        "approval_options": ["allow once", "deny"],
    }
    return hook("gate", {"tool:pre": question}, gate=["tool:pre"], modules=[of])


def still(name: str) -> dict[str, Any]:
    """Return a module that costs nothing: it has no process before it is asked."""
    made = descriptor(name, ["true"], supervision={"start": "lazy"})
    return {**made, "description": "nobody has asked it yet"}


def broken(name: str) -> dict[str, Any]:
    """Return a module whose program is not there."""
    return descriptor(name, [f"/nowhere/{name}"], supervision={"retry_failed_s": 3600})
