"""What the wire and `stdiod --json` are expected to carry, but for what differs from run to run."""

from __future__ import annotations

from typing import Any

from scripts.demo.likeness import SOME_INT, SOME_NUMBER, SOME_TEXT, Like

Json = dict[str, Any]


def chunk(content: str) -> Json:
    """Expect a piece of text that is streamed."""
    return event("ui_event", event="message.chunk", payload={"content": content})


def log(message: Any, level: str = "info", **more: Any) -> Json:
    """Expect a log line."""
    return event("log", level=level, message=message, **more)


def event(name: str, /, **fields: Any) -> Json:
    """Expect an event."""
    return {"version": "0", "type": name, "requestId": SOME_TEXT, **fields}


def response(module: str, op: str, **fields: Any) -> Json:
    """Expect the response of an invocation."""
    known = {"request_id": SOME_TEXT, "module": module, "op": op}
    return {"ok": True, **fields, **known, "duration_ms": SOME_INT, "warnings": []}


def failure(module: str, op: str, code: str, message: str | Like, **details: Any) -> Json:
    """Expect a response that says why not, with the evidence."""
    known = {
        "origin": "host",
        "instance": Like(rf"{module}#\d+"),
        "pid": SOME_INT,
        "uptime_s": SOME_NUMBER,
        "stderr_tail": [],
    }
    error = {"code": code, "message": message, "details": known | details}
    return response(module, op, ok=False, error=error)
