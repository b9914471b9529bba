"""Ask one module many things at once, over one connection to the control socket."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ANSWERS_WITHIN_S = 30.0


@dataclass
class Crowd:
    """What came back."""

    chunks: dict[str, list[str]] = field(default_factory=dict)
    """What was streamed, by request."""
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The `done` events, by request; there is to be one each."""
    begun_before_first_end: int = 0


def requests(number: int) -> dict[str, dict[str, Any]]:
    """Return that many requests, each with a prompt of its own."""
    return {
        f"q{n}": {
            "requestId": f"q{n}",
            "tool": "crowd",
            "operation": "invoke",
            "input": {"op": "complete", "args": {"prompt": f"Verse {n}", "delay_ms": 25}},
        }
        for n in range(1, number + 1)
    }


def ask_all(path: Path, asked: dict[str, dict[str, Any]]) -> Crowd:
    """Write all requests at once and read until each is answered."""
    crowd = Crowd()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(ANSWERS_WITHIN_S)
        client.connect(str(path))
        client.sendall("".join(json.dumps(request) + "\n" for request in asked.values()).encode())
        with client.makefile("r", encoding="utf-8", newline="\n") as lines:
            while len(crowd.answers) < len(asked) and (line := lines.readline()):
                _take(crowd, json.loads(line))
    return crowd


def _take(crowd: Crowd, event: dict[str, Any]) -> None:
    name = event["requestId"]
    if event["type"] == "done":
        if not crowd.answers:
            crowd.begun_before_first_end = len(crowd.chunks)
        crowd.answers.setdefault(name, []).append(event)
    else:
        crowd.chunks.setdefault(name, []).append(event["payload"]["content"])
