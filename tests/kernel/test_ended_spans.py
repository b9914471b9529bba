"""What is told of each invocation that has ended, to whoever wants spans; and how errors count."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec

from protocol.trace_context import EXAMPLE
from supervisor.kernel.kernel import JournalOptions
from tests.factories import actor
from tests.kernel.conftest import ask, daemon_with, own
from tests.kernel.host_calls import allowing, caller, payload
from tests.kernel.noted import noted
from tests.principals import ADA


class Spans:
    """Somebody who wants spans."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def ended(self, span: Any) -> None:
        self.told.append(msgspec.structs.asdict(span))

    def status(self) -> dict[str, Any]:
        return {}


async def test_a_span_says_what_was_invoked_by_whom_and_how_it_ended(tmp_path: Path) -> None:
    ticks = itertools.count(1000)
    spans = Spans()
    modules = caller(tmp_path, "a", capabilities=["module.invoke"]), actor(tmp_path)
    options: dict[str, Any] = {
        "operator": allowing(tmp_path),
        "clock": lambda: float(next(ticks)),
    }
    async with daemon_with(tmp_path, *modules, **options) as daemon:
        assert (await ask(daemon, "m", "echo").response()).ok
        daemon.requests.tell_spans(spans)
        await own(daemon, ADA, "session.new", session_id="s")
        calls = {"calls": [payload("invoke", module="m", op="exit", args={"code": 3})], "lines": []}
        given = {"args": calls, "session_id": "s", "traceparent": EXAMPLE}
        response = await ask(daemon, "a", "calls", **given).response()
        child, first = spans.told
        plain = await ask(daemon, "m", "echo").response()
    assert EXAMPLE[:36] == first["traceparent"][:36] == child["traceparent"][:36]
    assert len({EXAMPLE, first["traceparent"], child["traceparent"]}) == 3
    assert first["began"] < child["began"] < child["ended"] < first["ended"]
    assert first == {
        "traceparent": first["traceparent"],
        "parent": EXAMPLE,
        "by_module": False,
        "began": first["began"],
        "ended": first["ended"],
        "module": "a",
        "op": "calls",
        "request_id": response.request_id,
        "session_id": "s",
        "outcome": "ok",
        "words": None,
    }
    assert child == {
        **child,
        "parent": first["traceparent"],
        "by_module": True,
        "module": "m",
        "op": "exit",
        "session_id": None,
        "outcome": "unreachable",
    }
    assert child["words"] == "m.exit: m#1 exited with code 3 before it answered"
    assert spans.told[2] == {
        **spans.told[2], "parent": None, "request_id": plain.request_id, "session_id": None,
    }  # fmt: skip


async def test_sixteen_errors_of_a_request_are_noted_and_all_are_counted(tmp_path: Path) -> None:
    line = {"version": "0", "type": "error", "errorCode": "wet", "errorMessage": "too wet"}

    def lines(count: int) -> dict[str, Any]:
        done = {"version": "0", "type": "done", "ok": True}
        return {"lines": [*[json.dumps(line)] * count, json.dumps(done)]}

    async with daemon_with(tmp_path, actor(tmp_path), memory=JournalOptions()) as daemon:
        for count in (0, 1, 16, 17):
            assert (await ask(daemon, "m", "say", args=lines(count)).response()).ok
        ends = [one["data"].get("errors") for one in await noted(daemon, "module:invoke")]
        assert ends == [None, 1, 16, 17]
        errors = await noted(daemon, "module:error")
        assert len(errors) == 1 + 16 + 16
        assert errors[0]["error"]["code"] == "wet"
        assert errors[0]["data"] == {"op": "say"}


async def test_the_journal_has_no_more_than_8192_bytes_of_the_details_of_an_error(
    tmp_path: Path,
) -> None:
    async def kept(text: str) -> Any:
        error = {"code": "c" * 201, "message": "m" * 2001, "details": {"text": text}}
        line = json.dumps({"version": "0", "type": "done", "ok": False, "error": error})
        assert not (await ask(daemon, "m", "say", args={"lines": [line]}).response()).ok
        noted_error = (await noted(daemon, "module:invoke"))[-1]["error"]
        assert noted_error["message"] == "m" * 2000
        return noted_error["details"]

    async with daemon_with(tmp_path, actor(tmp_path), memory=JournalOptions()) as daemon:
        least = len(json.dumps(await kept(""), separators=(",", ":")))
        fits = "x" * (8192 - least)
        assert await kept(fits) == {"origin": "module", "reported": {"text": fits}}
        assert await kept(f"{fits}x") == {"origin": "module", "cut": True}
