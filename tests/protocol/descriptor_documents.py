"""Descriptors to test with: small, complete, and strategies that spoil them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import strategies as st

from protocol.descriptor.loading import DescriptorError, parse_descriptor
from protocol.descriptor.model import Descriptor

SOURCE = "/etc/stdiod/dice/module.json"

SMALL: dict[str, Any] = {
    "name": "dice",
    "kind": "tool",
    "transport": {"type": "stdio", "command": ["python3", "dice.py"]},
    "capabilities": ["fs.read"],
}

# The example of the format's description: everything that has a default, with that default.
COMPLETE: dict[str, Any] = {
    "name": "dice",
    "kind": "tool",
    "version": "1.0.0",
    "description": "rolls dice",
    "transport": {
        "type": "stdio",
        "command": ["python3", "dice.py"],
        "protocol": "module",
        "lifecycle": "persistent",
        "input": "envelope",
        "stdout": "tolerant",
        "cwd": ".",
        "env": {"KEY": "value ${HOME}"},
        "pass_env": ["OPENAI_API_KEY"],
    },
    "capabilities": ["fs.read"],
    "inputs": {"roll": {"type": "object", "properties": {"sides": {"type": "integer"}}}},
    "outputs": {"roll": {"type": "array", "items": {"type": "integer"}}},
    "supervision": {
        "start": "eager",
        "restart": "permanent",
        "restart_on": [],
        "never_on": [],
        "intensity": 5,
        "period_s": 60,
        "backoff": {"initial_s": 0.5, "factor": 2, "max_s": 60, "jitter": 0.25},
        "retry_failed_s": 300,
        "depends_on": ["kv"],
        "timeouts": {
            "start_s": 10,
            "health_s": 2,
            "describe_s": 5,
            "invoke_s": 30,
            "total_s": 3600.0,
            "silence_s": None,
            "exit_s": 2,
            "linger_s": 10,
            "stop_s": 5,
            "prepare_s": 600,
        },
        "health": {"interval_s": 10, "failures": 3},
        "limits": {
            "memory_bytes": None,
            "line_bytes": 8388608,
            "open_files": None,
            "processes": None,
            "cpu_s": None,
        },
        "concurrency": 1,
        "queue": 1024,
        "instances": {
            "min": 1,
            "max": 1,
            "idle_stop_s": None,
            "max_requests": None,
            "max_age_s": None,
        },
        "warm": 0,
        "overlap": True,
        "watch": False,
    },
}

GATE: dict[str, Any] = {
    "name": "gate",
    "kind": "hook",
    "transport": {"type": "stdio", "command": ["python3", "gate.py"]},
    "capabilities": [],
    "inputs": {"on_event": {"type": "object"}},
    "hook": {
        "observe": ["module:*"],
        "gate": ["tool:pre"],
        "modules": ["*"],
        "priority": 50,
        "on_failure": "closed",
        "timeout_s": 5,
        "queue": 1000,
        "drop": "oldest",
    },
}


def encoded(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def refusal(data: bytes) -> DescriptorError:
    """Return the error that the bytes of a descriptor are refused with."""
    with pytest.raises(DescriptorError) as caught:
        parse_descriptor(data, SOURCE)
    return caught.value


def verdict(data: bytes) -> Descriptor | DescriptorError:
    """Return what the bytes are read as, or the error they are refused with."""
    try:
        return parse_descriptor(data, SOURCE)
    except DescriptorError as error:
        return error


def changed(pointer: str, value: Any, document: dict[str, Any] = SMALL) -> dict[str, Any]:
    """Return a copy with the value at a JSON pointer set, making objects on the way."""
    result = copy.deepcopy(document)
    target = result
    *path, last = pointer[1:].split("/")
    for key in path:
        target = target.setdefault(key, {})
    target[last] = value
    return result


def without(pointer: str, document: dict[str, Any] = SMALL) -> dict[str, Any]:
    """Return a copy without the member at a JSON pointer."""
    result = copy.deepcopy(document)
    target = result
    *path, last = pointer[1:].split("/")
    for key in path:
        target = target[key]
    del target[last]
    return result


_ODD_TEXTS = (
    "",
    ".",
    "..",
    "a/b",
    "x\n",
    "\x7f",
    "\x00",
    "A=b",
    "n" * 129,
    "\u00e9" * 128,
    "null",
    "1",
)
_KNOWN_TEXTS = (
    "dice", "kv", "supervisor", "tool", "stdio", "http", "module", "narratoria", "mcp",
    "persistent", "per-invocation", "flat", "envelope", "strict", "lazy", "transient", "integer",
    "#", "http://e.x/y", "SIGKILL", "hook", "tool:post",
)  # fmt: skip
_ODD_NUMBERS = (
    8,
    255,
    256,
    1023,
    1024,
    2**20,
    2**53 - 1,
    2**53,
    5.0,
    0.0,
    -0.0,
    1e-9,
    1e300,
    2.0**53,
)
_TEXTS = st.sampled_from(_ODD_TEXTS + _KNOWN_TEXTS) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=4
)
_SCALARS = (
    _TEXTS
    | st.none()
    | st.booleans()
    | st.integers(-2, 20)
    | st.sampled_from(_ODD_NUMBERS)
    | st.floats(-2, 2)
)
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXTS, inner, max_size=2),
    max_leaves=4,
)


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    return [at] * bool(at) + [p for key, member in members for p in _paths(member, (*at, key))]


@st.composite
def spoilt_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a descriptor with up to three members replaced, removed or added anywhere."""
    document: dict[str, Any] = copy.deepcopy(draw(st.sampled_from([SMALL, COMPLETE, GATE])))
    for _ in range(draw(st.integers(0, 3))):
        paths = _paths(document)
        *path, last = draw(st.sampled_from(paths))
        target: Any = document
        for key in path:
            target = target[key]
        match draw(st.sampled_from(["replace", "replace", "remove", "add"])):
            case "replace":
                target[last] = draw(VALUES)
            case "remove" if len(paths) > 1:
                del target[last]
            case "add" if isinstance(target, dict):
                names = [key for each in paths for key in each if isinstance(key, str)]
                others = [*names, "url", "typo", "$ref", "hook"]
                target[draw(st.sampled_from(others))] = draw(VALUES)
    return document
