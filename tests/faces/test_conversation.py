from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.faces.lines import request
from tests.faces.running import Running, running
from tests.system.descriptors import CALM, actor
from tests.system.liveness import BOUND_S

OPEN_REQUESTS = 8192
REQUEST_BYTES = 16 << 20
"""Bounds of a connection, and of a request (docs/protocol.md)."""


def error(done: dict[str, Any]) -> tuple[str, str]:
    assert done["ok"] is False
    return done["error"]["code"], done["error"]["details"]["reason"]


async def test_an_invocation_is_answered_by_one_done_with_its_id(shared: Running) -> None:
    async with shared.lines() as client:
        await client.send(request("a", "m", op="echo", args={"n": 1}))
        done = await client.done()
        assert (done["requestId"], done["ok"], done["result"]) == ("a", True, {"n": 1})
        assert (done["version"], done["module"], done["op"]) == ("0", "m", "echo")


async def test_events_carry_the_clients_id_and_come_before_the_end(shared: Running) -> None:
    async with shared.lines() as client:
        await client.send(request("mine", "m", op="events", args={"count": 3}))
        await client.stream.send_eof()
        lines = await client.rest()
        assert [line["type"] for line in lines] == ["log", "log", "log", "done"]
        assert {line["requestId"] for line in lines} == {"mine"}


@pytest.mark.parametrize(
    "line",
    [b"hello\n", b"[1]\n", b"\xff\n", b'"x"\n', b"{\n", b'{"requestId":5}\n', b"[" * 5000 + b"\n"],
)
async def test_a_malformed_line_is_answered_and_the_next_one_served(
    line: bytes, shared: Running
) -> None:
    async with shared.lines() as client:
        await client.send(line, request("a", "m", op="echo"))
        first, second = await client.done(), await client.done()
        assert error(first) == ("bad_request", "malformed_request")
        assert "requestId" not in first
        assert first["error"]["details"]["line_excerpt"]
        assert (second["requestId"], second["ok"]) == ("a", True)


@pytest.mark.parametrize(
    "fields",
    [
        {"tool": "m", "operation": "invoke", "input": "x"},
        {"tool": 5, "operation": "invoke"},
        {"tool": "m"},
        {"operation": "invoke"},
        {"tool": "m", "operation": "fly"},
        {},
        {"tool": "m", "operation": "invoke", "input": {"op": "echo", "args": "DEEP"}},
    ],
)
async def test_a_bad_request_that_has_an_id_is_answered_with_it(
    fields: dict[str, Any], shared: Running
) -> None:
    async with shared.lines() as client:
        deep: Any = {}
        for _ in range(300):
            deep = {"d": deep}
        if fields.get("input") and "args" in fields["input"]:
            fields = {**fields, "input": {"op": "echo", "args": deep}}
        await client.send({"requestId": "a", **fields})
        done = await client.done()
        assert done["requestId"] == "a"
        assert error(done) == ("bad_request", "malformed_request")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b'"\xe9"', "is not UTF-8"),
        (b"NaN", "`NaN`"),
        (b"[" * 100_000, "nested too deeply"),
        (b'"\\ud83d"', "half of a surrogate pair"),
    ],
)
async def test_a_line_that_cannot_be_read_is_answered_with_the_id_that_it_shows(
    value: bytes, words: str, shared: Running
) -> None:
    line = (
        b'{"requestId":"a","tool":"m","operation":"invoke","input":{"op":"echo","args":{"x":%b}}}\n'
    )
    async with shared.lines() as client:
        await client.send(line % value)
        done = await client.done()
        assert done["requestId"] == "a"
        assert words in done["error"]["message"]


async def test_nameless_requests_are_answered_without_a_name() -> None:
    made = actor(supervision={**CALM, "concurrency": 3})
    async with running(made) as daemon, daemon.lines() as client:
        await client.send(*(request(None, "m", op="echo", args={"n": n}) for n in range(3)))
        dones = [await client.done() for _ in range(3)]
        assert sorted(done["result"]["n"] for done in dones) == [0, 1, 2]
        assert not any("requestId" in done for done in dones)


async def test_an_id_that_is_open_already_is_refused_and_the_first_goes_on(shared: Running) -> None:
    async with shared.lines() as client:
        await client.send(request("a", "m", op="hang"), request("a", "m", op="echo"))
        refusal = await client.done()
        assert error(refusal) == ("bad_request", "malformed_request")
        assert "requestId" not in refusal
        await client.send({"requestId": "a", "operation": "cancel"})
        assert error(await client.done()) == ("cancelled", "client")
        await client.send(request("a", "m", op="echo"))  # free again
        assert (await client.done())["ok"] is True


async def test_a_cancel_of_what_is_not_open_is_nothing(shared: Running) -> None:
    async with shared.lines() as client:
        await client.send(
            {"requestId": "none", "operation": "cancel"},
            {"operation": "cancel"},
            request("a", "m", op="echo"),
        )
        assert (await client.line() or {})["requestId"] == "a"


async def test_an_overlong_line_is_dropped_and_the_next_one_served(shared: Running) -> None:
    async with shared.lines() as client:
        await client.send(request("open", "m", op="hang"))
        for number, named in ((1, 1), ("open", None), ("long", "long")):
            long = request(number, "m", op="echo", args={"text": "x" * (REQUEST_BYTES + 1)})
            await client.send(long, request("a", "supervisor", "health"))
            refusal = await client.done()
            assert error(refusal) == ("bad_request", "malformed_request")
            assert refusal.get("requestId") == (None if number == 1 else named)
            words = f"longer than {REQUEST_BYTES} bytes, which a request may have"
            assert words in refusal["error"]["message"]
            assert (await client.done())["requestId"] == "a"


MISSPELT = [
    ({"op": "echo", "arg": {"n": 1}}, "'arg' is not a field of input; did you mean 'args'?"),
    ({"op": "echo", "session": "s"},
     "'session' is not a field of input; did you mean 'session_id'?"),
    ({"op": "echo", "args": {}, "timeout": 1},
     "'timeout' is not a field of input; did you mean 'timeout_s'?"),
    ({"ops": "echo"}, "'ops' is not a field of input; did you mean 'op'?"),
    # Unknown fields are ignored (docs/protocol.md): a later version may know them.
    ({"op": "echo", "args": {"arg": 1}, "priority": 1}, ""),
    ({"op": "echo", "args": {}, "arg": {}}, ""),
    ({"op": "echo", **{f"arg{n}": n for n in range(1000)}}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("content", "words"), MISSPELT)
async def test_a_field_of_input_that_is_probably_misspelt_is_a_warning_in_the_answer(
    content: dict[str, Any], words: str, shared: Running
) -> None:
    async with shared.lines() as client:
        await client.send(request("a", "m", **content))
        done = await client.done()
        assert done["ok"] == ("op" in content)
        assert done["warnings"] == (
            [{"reason": "unknown_field", "message": words}] if words else []
        )


async def test_an_op_of_the_daemon_itself_warns_of_misspelt_fields_too(shared: Running) -> None:
    async with shared.lines() as client:
        await client.send(request("a", "supervisor", op="status", arg={"module": "m"}))
        [warning] = (await client.done())["warnings"]
        assert "did you mean 'args'?" in warning["message"]
        await client.send(request("a", "supervisor", op="status", args={}))
        assert "warnings" not in await client.done()
        await client.send(request("a", "supervisor", op="statsu"))
        message = (await client.done())["error"]["message"]
        assert message == "the daemon has no op 'statsu'; did you mean 'status'?"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"GET /api/v1/modules HTTP/1.1\r\n", "`stdiod up --http HOST:PORT` serves HTTP"),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n', "`stdiod mcp`"),
    ],
)
async def test_a_client_of_another_protocol_is_told_where_that_is_spoken(
    line: bytes, words: str, shared: Running
) -> None:
    async with shared.lines() as client:
        await client.send(line)
        done = await client.done()
        assert error(done) == ("bad_request", "malformed_request")
        assert words in done["error"]["message"]


async def test_too_many_open_requests_are_refused_by_name(shared: Running) -> None:
    async with shared.lines() as client:
        wait = {"for": "down", "modules": ["m"]}
        asked = [request(f"a{n}", "supervisor", "wait", **wait) for n in range(OPEN_REQUESTS + 1)]
        await client.send(*asked)
        done = await client.done()
        assert done["requestId"] == f"a{OPEN_REQUESTS}"
        assert error(done) == ("unreachable", "queue_full")


@pytest.mark.parametrize(
    "form",
    [
        request("a", "supervisor", "status", module="m"),
        request("a", "supervisor", "invoke", op="status", args={"module": "m"}),
    ],
)
async def test_the_daemons_own_ops_come_in_two_forms(form: dict[str, Any], shared: Running) -> None:
    async with shared.lines() as client:
        await client.send(form)
        done = await client.done()
        assert (done["requestId"], done["result"]["name"]) == ("a", "m")


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (request("a", "supervisor", "fly"), "unknown_op"),
        (request("a", "supervisor", "invoke"), "missing_op"),
        (request("a", "supervisor", "invoke", op="x" * 257), "malformed_request"),
        (request("a", "supervisor", "invoke", op="status", args=5), "invalid_args"),
        (request("a", "supervisor", "stop"), "invalid_args"),
        (request("a", "supervisor", "stop", module="nobody"), "unknown_module"),
        (request("a", "nobody", "health"), "unknown_module"),
        (request("a", "nobody", "invoke", op="x"), "unknown_module"),
        ({"requestId": "a", "tool": "supervisor"}, "missing_op"),
    ],
)
async def test_what_the_daemon_cannot_do_is_refused_by_name(
    form: dict[str, Any], reason: str, shared: Running
) -> None:
    async with shared.lines() as client:
        await client.send(form)
        done = await client.done()
        assert done["requestId"] == "a"
        assert error(done)[1] == reason


async def test_the_daemon_is_a_module_with_health_and_describe(shared: Running) -> None:
    async with shared.lines() as client:
        await client.send(
            request("h", "supervisor", "health"),
            request("d", "supervisor", "describe"),
        )
        assert (await client.done())["result"] == {"status": "ok"}
        assert (await client.done())["result"]["name"] == "supervisor"
        await client.send(request("mh", "m", "health"), request("md", "m", "describe"))
        found = {(done := await client.done())["requestId"]: done["result"] for _ in range(2)}
        assert found["mh"]["status"] == "ok"
        assert found["md"]["name"] == "m"


async def test_a_module_is_invoked_through_the_daemon_too(shared: Running) -> None:
    async with shared.lines() as client:
        inner = {"module": "m", "op": "echo", "args": {"n": 1}}
        await client.send(request("a", "supervisor", "invoke", op="invoke", args=inner))
        assert (await client.done())["result"] == {"n": 1}


async def test_an_op_of_the_daemon_can_be_cancelled(shared: Running) -> None:
    async with shared.lines() as client:
        follow = {"module": "m", "lines": 1, "follow": True}
        await client.send(request("a", "supervisor", "logs", **follow))
        assert (await client.line() or {})["type"] == "log"
        await client.send({"requestId": "a", "operation": "cancel"})
        assert error(await client.done()) == ("cancelled", "client")
        await client.stream.send_eof()
        assert await client.rest() == []


async def test_a_thousand_requests_at_once_get_one_done_each() -> None:
    made = actor(supervision={**CALM, "concurrency": 16})
    async with running(made) as daemon, daemon.lines() as client:
        requests = [request(str(n), "m", op="echo", args={"n": n}) for n in range(1000)]
        await client.send(*requests)
        await client.stream.send_eof()
        lines = await client.rest()
        assert sorted(int(line["requestId"]) for line in lines) == list(range(1000))
        assert all(line["result"]["n"] == int(line["requestId"]) for line in lines)


async def test_a_request_behind_a_stop_finds_the_module_stopped(tmp_path: Path) -> None:
    gate = trio.Path(tmp_path / "gate")
    os.mkfifo(gate)
    patient = {"timeouts": {"exit_s": BOUND_S}}
    made = actor(f"gate={gate}", supervision=patient)
    async with running(made) as daemon, daemon.lines() as client:
        await client.send(
            request("before", "m", op="echo"),
            request("stop", "supervisor", "stop", module="m"),
            request("after", "m", op="echo"),
            request("status", "supervisor", "status", module="m"),
        )
        dones = {(done := await client.done())["requestId"]: done for _ in range(3)}
        assert dones["before"]["ok"] is True
        assert dones["after"]["ok"] is False
        assert dones["status"]["result"]["state"] == "stopping"
        await gate.write_bytes(b"")
        assert (await client.done())["result"]["state"] == "down"


async def test_a_request_behind_a_start_waits_for_the_module() -> None:
    async with running(actor()) as daemon, daemon.lines() as client:
        await client.send(request("stop", "supervisor", "stop", module="m"))
        assert (await client.done())["ok"] is True
        await client.send(
            request("before", "m", op="echo"),
            request("start", "supervisor", "start", module="m"),
            request("after", "m", op="echo"),
        )
        dones = {(done := await client.done())["requestId"]: done for _ in range(3)}
        assert error(dones["before"])[1] == "not_ready"
        assert dones["start"]["result"]["state"] == "ready"
        assert dones["after"]["ok"] is True


async def test_a_request_behind_a_restart_is_served_by_the_next_process() -> None:
    async with running(actor()) as daemon, daemon.lines() as client:
        await client.send(
            request("before", "m", op="whoami"),
            request("restart", "supervisor", "restart", module="m"),
            request("after", "m", op="whoami"),
        )
        dones = {(done := await client.done())["requestId"]: done for _ in range(3)}
        (instance,) = dones["restart"]["result"]["instances"]
        before, after = (dones[one]["result"]["pid"] for one in ("before", "after"))
        assert before != after == instance["pid"]


async def test_an_op_that_takes_long_holds_up_nobody() -> None:
    async with running(actor()) as daemon, daemon.lines() as client:
        await client.send(
            request("wait", "supervisor", "wait", modules=["m"], **{"for": "down"}),
            request("echo", "m", op="echo"),
        )
        assert (await client.done())["requestId"] == "echo"
        await client.send(request("stop", "supervisor", "stop", module="m"))
        assert {(await client.done())["requestId"] for _ in range(2)} == {"wait", "stop"}
