"""What each route asks of the daemon, and how it is answered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol.trace_context import EXAMPLE, is_traceparent
from tests.bounds import wait_until
from tests.faces.http.client import Client
from tests.faces.running import SOCK, Running, running, started
from tests.system.descriptors import CALM, actor, agent, script

DEEP = b'{"state":' + b'{"a":' * 300 + b"1" + b"}" * 301
FAILS = {
    "op": "say",
    "args": {"lines": ['{"ok":false,"error":{"code":"odd","message":"no"}}']},
}


@asynccontextmanager
async def asking(*modules: Any, **options: Any) -> AsyncIterator[Client]:
    async with (
        running(*(modules or (actor(),)), http=SOCK, **options) as daemon,
        daemon.unix() as client,
    ):
        yield client


async def test_what_the_daemon_is_can_be_asked(shared: Running) -> None:
    async with shared.unix() as client:
        assert (await client.ask("GET", "/api/v1/health")).json == {"status": "ok"}
        info = (await client.ask("GET", "/api/v1/info")).json
        assert (info["name"], info["api_version"]) == ("supervisor", "v1")
        assert "events" in info["ops"]
        status = (await client.ask("GET", "/api/v1/status")).json
        assert [one["name"] for one in status["modules"]] == ["m"]
        modules = (await client.ask("GET", "/api/v1/modules")).json
        assert [one["name"] for one in modules["modules"]] == ["m"]
        one = await client.ask("GET", "/api/v1/modules/m?histogram=true")
        assert one.json["state"] == "ready"
        assert "histogram_us" in one.json["latency_ms"]


async def test_an_answer_that_is_json_ends_with_a_newline_which_its_length_counts(
    shared: Running,
) -> None:
    echo = {"op": "echo", "args": {"n": 1}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    asked: list[tuple[str, str, Any, int]] = [
        ("GET", "/api/v1/health", None, 200),
        ("GET", "/api/v1/status", None, 200),
        ("GET", "/api/v1/openapi.json", None, 200),
        ("GET", "/nothing", None, 404),
        ("POST", "/api/v1/modules/m/invoke", echo, 200),
        ("POST", "/api/v1/modules/m/invoke", FAILS, 422),
        ("POST", "/modules/m/invoke", echo, 200),
        ("POST", "/modules/m/describe", {}, 200),
        ("POST", "/api/v1/reload", b"{", 400),
        ("POST", "/logout", {}, 200),
        ("POST", "/mcp", hello, 400),
    ]
    async with shared.unix() as client:
        for method, path, body, status in asked:
            reply = await client.ask(method, path, body)
            assert (reply.status, reply.body[-2:]) == (status, b"}\n"), path
            assert reply.headers["content-length"] == str(len(reply.body))
            if method == "GET" and "status" not in path:  # whose figures vary
                head = await client.ask("HEAD", path)
                assert head.headers["content-length"] == reply.headers["content-length"]
                assert head.body == b""
        away = await client.ask("OPTIONS", "/api/v1/health")
        assert (away.status, away.body) == (204, b"")


async def test_tools_and_agents_are_modules_of_that_kind() -> None:
    one, two = actor(name="t"), actor("kind=agent", name="a", kind="agent")
    async with asking(one, two) as client:
        tools = (await client.ask("GET", "/api/v1/tools")).json["tools"]
        assert [one["name"] for one in tools] == ["t"]
        agents = (await client.ask("GET", "/api/v1/agents")).json["agents"]
        assert [one["name"] for one in agents] == ["a"]


async def test_an_invocation_is_answered_with_its_response(shared: Running) -> None:
    async with shared.unix() as client:
        reply = await client.ask(
            "POST", "/api/v1/modules/m/invoke", {"op": "echo", "args": {"n": 1}}
        )
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        document = reply.json
        assert (document["ok"], document["result"], document["module"]) == (True, {"n": 1}, "m")
        assert document["request_id"]


@pytest.fixture(scope="module")
def with_stopped() -> Iterator[Running]:
    """A daemon with a module that is stopped, and modules to be ended."""
    late = actor(name="late")
    stopped = actor(name="stopped", supervision={"start": "lazy", **CALM})
    with started(actor(), actor(name="dies"), late, stopped, http=SOCK) as daemon:
        daemon.daemon.op("stop", module="stopped")
        yield daemon


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("m", FAILS, 422, "odd"),
        ("nobody", {"op": "echo"}, 404, "bad_request"),
        ("m", {"op": "echo", "session_id": "none"}, 404, "bad_request"),
        ("m", {"args": {}}, 400, "bad_request"),
        ("late", {"op": "hang", "timeout_s": 0.05}, 504, "timeout"),
        ("dies", {"op": "exit", "args": {"code": 3}}, 502, "unreachable"),
        ("stopped", {"op": "echo"}, 502, "unreachable"),
    ],
)
async def test_a_failed_invocation_has_a_status(
    path: str, body: dict[str, Any], status: int, code: str | None, with_stopped: Running
) -> None:
    async with with_stopped.unix() as client:
        reply = await client.ask("POST", f"/api/v1/modules/{path}/invoke", body)
        assert reply.status == status, reply.body
        assert reply.json["ok"] is False
        assert code in (None, reply.json["error"]["code"])


@pytest.mark.parametrize(
    ("media", "path"),
    [
        ("text/event-stream", "/api/v1/modules/m/invoke"),
        ("application/x-ndjson", "/modules/m/invoke"),
    ],
)
async def test_a_streamed_invocation_tells_each_event_and_the_response_last(
    media: str, path: str, shared: Running
) -> None:
    async with shared.unix() as client:
        body = {"op": "events", "args": {"count": 3, "pad": ""}}
        reply = await client.ask("POST", path, body, headers=[("Accept", media)])
        assert (reply.status, reply.headers["content-type"]) == (200, media)
        if media == "application/x-ndjson":
            lines = [json.loads(line) for line in reply.body.splitlines()]
        else:
            blocks = [
                dict(line.split(": ", 1) for line in block.splitlines())
                for block in reply.body.decode().strip().split("\n\n")
            ]
            assert [one["event"] for one in blocks] == ["log", "log", "log", "done"]
            lines = [json.loads(one["data"]) for one in blocks]
        assert [one["type"] for one in lines[:-1]] == ["log"] * 3
        assert not any("requestId" in one for one in lines)  # it is between daemon and module
        assert lines[-1]["ok"]
        assert (await client.ask("GET", "/api/v1/health")).status == 200


async def test_a_stream_that_is_refused_at_once_has_its_status(shared: Running) -> None:
    async with shared.unix() as client:
        accept = [("Accept", "text/event-stream")]
        reply = await client.ask("POST", "/api/v1/modules/x/invoke", {"op": "a"}, headers=accept)
        assert (reply.status, reply.headers["content-type"]) == (404, "application/json")


async def test_a_module_is_stopped_started_restarted_and_tells_its_log(shared: Running) -> None:
    async with shared.unix() as client:
        stopped = await client.ask("POST", "/api/v1/modules/m/stop")
        assert (stopped.status, stopped.json["state"]) == (200, "down")
        assert (await client.ask("POST", "/api/v1/modules/m/start")).json["state"] == "ready"
        assert (await client.ask("POST", "/api/v1/modules/m/restart", {})).json["state"] == "ready"
        logs = (await client.ask("GET", "/api/v1/modules/m/logs?lines=1")).json
        assert (logs["module"], len(logs["lines"])) == ("m", 1)
        assert logs["lines"][0]["stream"] == "host"


async def test_module_protocol_is_plain_and_has_no_status(shared: Running) -> None:
    async with shared.unix() as client:
        health = await client.ask("POST", "/modules/m/health", {})
        assert (health.status, health.json) == (200, {"status": "ok"})
        assert (await client.ask("POST", "/modules/m/describe")).json["name"] == "m"
        invoked = await client.ask("POST", "/modules/m/invoke", {"op": "echo", "args": {"n": 2}})
        assert (invoked.status, invoked.json) == (200, {"ok": True, "result": {"n": 2}})
        failed = await client.ask("POST", "/modules/m/invoke", FAILS)
        assert (failed.status, failed.json["ok"]) == (200, False)
        assert failed.json["error"] == {"code": "odd", "message": "no"}
        nobody = await client.ask("POST", "/modules/x/health", {})
        assert (nobody.status, nobody.json["error"]["code"]) == (200, "bad_request")


async def test_a_session_is_begun_changed_and_ended() -> None:
    async with asking() as client:
        body = {"session_id": "s", "title": "T", "state": {"a": 1}}
        assert (await client.ask("POST", "/api/v1/sessions", body)).status == 201
        listed = (await client.ask("GET", "/api/v1/sessions?limit=5")).json
        assert [one["session_id"] for one in listed["sessions"]] == ["s"]
        state = await client.ask("GET", "/api/v1/sessions/s/state")
        assert (state.json, state.headers["etag"]) == ({"a": 1}, '"0"')
        tagged = [("If-Match", '"0"'), ("Content-Type", "application/merge-patch+json")]
        changed = await client.ask("PATCH", "/api/v1/sessions/s/state", {"b": 2}, headers=tagged)
        assert (changed.status, changed.headers["etag"]) == (200, '"1"')
        late = await client.ask("PATCH", "/api/v1/sessions/s/state", {"b": 3}, headers=tagged)
        assert (late.status, late.json["code"]) == (412, "CONFLICT")
        for tag, status in (('"abc"', 412), ("3", 400)):
            other = [("If-Match", tag), *tagged[1:]]
            wrong = await client.ask("PATCH", "/api/v1/sessions/s/state", {}, headers=other)
            assert wrong.status == status
        seen = [("If-None-Match", '"1"')]
        same = await client.ask("GET", "/api/v1/sessions/s/state", headers=seen)
        assert (same.status, same.body) == (304, b"")
        await client.ask("POST", "/api/v1/modules/m/invoke", {"op": "echo", "session_id": "s"})
        history = (await client.ask("GET", "/api/v1/sessions/s/history")).json
        assert [one["op"] for one in history["history"]] == ["echo"]
        forked = await client.ask("POST", "/api/v1/sessions/s/fork", {"new_id": "f"})
        assert (forked.status, forked.json["parent"]["session_id"]) == (201, "s")
        assert (await client.ask("DELETE", "/api/v1/sessions/f")).json["status"] == "ended"
        gone = await client.ask("GET", "/api/v1/sessions/none")
        assert (gone.status, gone.json["code"]) == (404, "SESSION_NOT_FOUND")


async def test_the_prompts_of_a_session_are_cancelled(shared: Running) -> None:
    async with shared.unix() as client:
        await client.ask("POST", "/api/v1/sessions", {"session_id": "s"})
        reply = await client.ask("POST", "/api/v1/sessions/s/cancel", {"queued": False})
        assert (reply.status, reply.json) == (200, {"session_id": "s", "cancelled": 0})


async def test_entries_of_the_journal_are_listed(shared: Running) -> None:
    async with shared.unix() as client:
        # Acknowledged when it is written down, and so is what was before it.
        await client.ask("POST", "/api/v1/sessions", {"session_id": "listed"})
        found = (await client.ask("GET", "/api/v1/events?since=0&limit=2")).json
        assert [one["event"] for one in found["events"]] == ["daemon:start", "mount:add"]
        assert [one["seq"] for one in found["events"]] == [1, 2]


async def test_who_follows_goes_on_where_he_was(shared: Running) -> None:
    async with shared.unix() as client:
        headers = [("Accept", "text/event-stream"), ("Last-Event-ID", "1")]
        bad = await client.ask("GET", "/api/v1/events?since=-1", headers=headers)
        assert (bad.status, bad.json["code"]) == (400, "VALIDATION_ERROR")
        await client.send("GET", "/api/v1/events?event=module:*", headers=headers)
        reply = await client.head()
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        told = b""
        while told.count(b"\n\n") < 3:
            told += await client.more() or b""
        blocks = [block.split(b"\n") for block in told.split(b"\n\n")]
        assert blocks[0][0] == b"event: message"
        number, name, data = blocks[1]
        entry = json.loads(data.removeprefix(b"data: "))
        assert number == b"id: %d" % entry["seq"]
        assert name == b"event: " + entry["event"].encode()


async def test_questions_are_listed_and_answered(shared: Running) -> None:
    async with shared.unix() as client:
        assert (await client.ask("GET", "/api/v1/approvals")).json == {"approvals": []}
        answer = await client.ask("POST", "/api/v1/approvals/ap-1", {"answer": "allow"})
        assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND")


async def test_a_reload_says_what_it_would_do(shared: Running) -> None:
    async with shared.unix() as client:
        assert (await client.ask("POST", "/api/v1/reload", {"dry_run": True})).status == 200


# What is no route, or not asked for rightly.


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        ("GET", "/else", None, (404, "NOT_FOUND")),
        ("GET", "/api/v1", None, (404, "NOT_FOUND")),
        ("GET", "/api/v1/modules/", None, (404, "NOT_FOUND")),
        ("GET", "/api/v1/modules/..%2f..%2fetc", None, (404, "NOT_FOUND")),
        ("GET", "/api/v1/assets/..%2f..%2fetc%2fpasswd/content", None, (404, "NOT_FOUND")),
        ("GET", "/api/v1/assets/../../../etc/passwd", None, (404, "NOT_FOUND")),
        ("GET", "/api/v1/modules/%zz", None, (400, "BAD_REQUEST")),
        ("GET", "/api/v1/modules/%ff", None, (400, "BAD_REQUEST")),
        ("PUT", "/api/v1/modules/m", None, (405, "BAD_REQUEST")),
        ("GET", "/api/v1/sessions?limit=many", None, (400, "VALIDATION_ERROR")),
        ("GET", "/api/v1/sessions?limit=0", None, (400, "VALIDATION_ERROR")),
        ("GET", "/api/v1/sessions?limt=1", None, (400, "VALIDATION_ERROR")),
        ("GET", "/api/v1/sessions?limit=1&limit=2", None, (400, "VALIDATION_ERROR")),
        ("POST", "/api/v1/sessions", b"{", (400, "INVALID_JSON")),
        ("POST", "/api/v1/sessions", b"[]", (400, "VALIDATION_ERROR")),
        ("POST", "/api/v1/sessions", {"titel": "x"}, (400, "VALIDATION_ERROR")),
        ("POST", "/api/v1/sessions", {"title": 1}, (400, "VALIDATION_ERROR")),
        ("POST", "/api/v1/modules/m/invoke", {"arg": {}}, (400, "VALIDATION_ERROR")),
        ("POST", "/api/v1/modules/m/invoke", {"module": "n"}, (400, "VALIDATION_ERROR")),
        ("POST", "/api/v1/modules/m/stop", {"x": 1}, (400, "VALIDATION_ERROR")),
        ("POST", "/api/v1/sessions", DEEP, (400, "VALIDATION_ERROR")),
        ("POST", "/api/v1/modules/x/start", {}, (404, "NOT_FOUND")),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_told_as_a_route_tells_it(
    method: str, path: str, body: Any, told: tuple[int, str], shared: Running
) -> None:
    async with shared.unix() as client:
        reply = await client.ask(method, path, body)
        assert (reply.status, reply.json["code"]) == told, reply.body
        assert reply.json["error"]


async def test_a_body_that_is_no_json_by_its_type_is_not_read(shared: Running) -> None:
    async with shared.unix() as client:
        headers = [("Content-Type", "text/plain")]
        reply = await client.ask("POST", "/api/v1/sessions", b"{}", headers=headers)
        assert reply.status == 415


async def test_every_path_has_head_and_options(shared: Running) -> None:
    async with shared.unix() as client:
        got = await client.ask("GET", "/api/v1/modules")
        head = await client.ask("HEAD", "/api/v1/modules")
        assert (head.status, head.body) == (200, b"")
        assert abs(int(head.headers["content-length"]) - len(got.body)) < 100
        options = await client.ask("OPTIONS", "/api/v1/sessions/s/state")
        assert (options.status, options.headers["allow"]) == (204, "HEAD, GET, PATCH, OPTIONS")
        assert (await client.ask("OPTIONS", "*")).status == 204


@pytest.fixture(scope="module")
def of_an_agent() -> Iterator[Running]:
    with started(agent(), http=SOCK) as daemon:
        yield daemon


@asynccontextmanager
async def prompting(daemon: Running) -> AsyncIterator[tuple[Client, str]]:
    """Yield a client, and the path of a new session."""
    async with daemon.unix() as client:
        reply = await client.ask("POST", "/api/v1/sessions", {})
        assert reply.status == 201
        yield client, f"/api/v1/sessions/{reply.json['session_id']}"


def named(session: str) -> str:
    return session.rpartition("/")[2]


def blocks(body: bytes) -> list[tuple[str, Any]]:
    """Cut an event stream into names and data."""
    found = []
    for block in body.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((fields["event"], json.loads(fields["data"])))
    return found


async def test_a_session_has_the_names_that_amcp_has_for_what_it_is() -> None:
    async with asking(agent()) as client:
        assert (await client.ask("POST", "/api/v1/sessions", {"session_id": "s"})).status == 201
        body = {"session_id": "b", "agent_name": "a", "cwd": "/srv"}
        made = await client.ask("POST", "/api/v1/sessions", body)
        assert made.status == 201
        for shown in (made, await client.ask("GET", "/api/v1/sessions/b")):
            told = shown.json
            assert (told["id"], told["session_id"]) == ("b", "b")
            assert (told["agent_name"], told["cwd"]) == ("a", "/srv")
        listed = (await client.ask("GET", "/api/v1/sessions")).json["sessions"]
        assert {one["id"]: one["agent_name"] for one in listed} == {"s": None, "b": "a"}
        wrong = await client.ask("POST", "/api/v1/sessions", {"agent_name": "m"})
        assert (wrong.status, wrong.json["code"]) == (404, "NOT_FOUND")


async def test_a_prompt_is_answered_whole(of_an_agent: Running) -> None:
    async with prompting(of_an_agent) as (client, session):
        for body in ({"content": "say one two"}, {"content": "say one two", "stream": False}):
            reply = await client.ask("POST", f"{session}/prompt", body)
            assert reply.status == 200
            told = reply.json
            assert (told["response"], told["content"], told["status"]) == (
                "onetwo", "onetwo", "complete",
            )  # fmt: skip
            assert (told["session_id"], told["result"]) == (named(session), {"words": 2})
            assert told["message_id"]


COURSE = [
    *("prompt.received", "prompt.started", "message.start"),
    *("message.chunk", "message.chunk", "message.complete"),
]


async def test_a_prompt_is_streamed_as_it_was_asked_for(of_an_agent: Running) -> None:
    body = {"content": "say one two"}
    sse = [("Accept", "text/event-stream")]
    async with prompting(of_an_agent) as (client, session):
        path, session_id = f"{session}/prompt", named(session)
        for where, more in ((path, body), (f"{path}/stream", body | {"stream": True})):
            reply = await client.ask("POST", where, more, headers=sse)
            assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
            told = blocks(reply.body)
            assert [name for name, _ in told] == COURSE
            assert all(
                (data["type"], data["session_id"]) == (name, session_id) for name, data in told
            )
            assert told[3][1]["payload"] == {"content": "one"}
        for where, more in ((f"{path}/stream", body), (path, body | {"stream": True})):
            reply = await client.ask("POST", where, more)
            assert reply.headers["content-type"] == "application/x-ndjson"
            lines = [json.loads(line) for line in reply.body.splitlines()]
            words = [*COURSE[:3], "chunk", "chunk", "complete"]
            assert [one["type"] for one in lines] == words
            assert (lines[3]["content"], lines[5]["content"]) == ("one", "onetwo")
        documented = await client.ask("POST", f"{path}/stream?vocabulary=documented", body)
        lines = [json.loads(line) for line in documented.body.splitlines()]
        assert [one["type"] for one in lines] == COURSE
        assert lines[3]["payload"] == {"content": "one"}
        whole = await client.ask("POST", f"{path}/stream", body | {"stream": False})
        assert whole.json["response"] == "onetwo"


async def test_a_prompt_that_fails_has_a_status_or_an_event_for_it(of_an_agent: Running) -> None:
    async with prompting(of_an_agent) as (client, session):
        path = f"{session}/prompt"
        failed = await client.ask("POST", path, {"content": "fail"})
        assert (failed.status, failed.json["code"], failed.json["error"]) == (
            422, "TOOL_ERROR", "too wet",
        )  # fmt: skip
        late = await client.ask("POST", path, {"content": "hang", "timeout_s": 0.05})
        assert (late.status, late.json["code"]) == (504, "TIMEOUT")
        streamed = await client.ask("POST", f"{path}/stream", {"content": "fail"})
        last = json.loads(streamed.body.splitlines()[-1])
        assert (last["type"], last["error"], last["code"]) == ("error", "too wet", "TOOL_ERROR")
        for where in (path, f"{path}/stream"):
            unknown = where.replace(named(session), "none")
            gone = await client.ask("POST", unknown, {"content": "x"})
            assert (gone.status, gone.json["code"]) == (404, "SESSION_NOT_FOUND")
        for body, query in (
            ({}, ""),
            ({"content": 1}, ""),
            ({"content": "x", "stream": "no"}, ""),
            ({"content": "x"}, "?vocabulary=latin"),
            ({"content": "x", "session_id": "t"}, ""),
        ):
            wrong = await client.ask("POST", path + query, body)
            assert (wrong.status, wrong.json["code"]) == (400, "VALIDATION_ERROR"), body


async def test_what_becomes_of_a_session_is_told_until_its_client_goes(
    of_an_agent: Running,
) -> None:
    face = of_an_agent
    async with face.unix() as client:
        path = "/api/v1/sessions/watched"
        for asked in ("HEAD", "GET"):
            none = await client.ask(asked, f"{path}/events")
            assert none.status == 404
        await client.ask("POST", "/api/v1/sessions", {"session_id": "watched"})
        head = await client.ask("HEAD", f"{path}/events")
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        async with face.unix() as watching:
            await watching.send("GET", f"{path}/events")
            assert (await watching.head()).status == 200
            seen = await watching.more() or b""
            assert [name for name, _ in blocks(seen)] == ["connected"]
            await client.send("POST", f"{path}/prompt", {"content": "hang"})
            while b"hanging" not in seen:
                seen += await watching.more() or b""
            async with face.unix() as other:
                body = {"content": "x", "conflict_strategy": "reject"}
                busy = await other.ask("POST", f"{path}/prompt", body)
                assert (busy.status, busy.json["code"]) == (409, "SESSION_BUSY")
                assert (await other.ask("POST", f"{path}/cancel", {"force": False})).json == {
                    "session_id": "watched", "cancelled": 1,
                }  # fmt: skip
                assert (await client.reply()).status == 499
                assert (await other.ask("DELETE", path)).json["status"] == "ended"
            while b"session.deleted" not in seen:
                seen += await watching.more() or b""
        names = [name for name, _ in blocks(seen)]
        for name in ("session.status_changed", "agent.thinking", "message.error", "agent.idle"):
            assert name in names
        assert "prompt.rejected" in names
        await wait_until(
            lambda: not face.daemon.op("status")["daemon"]["ui"]["subscribers"],
            "the end of the subscription",
        )


async def test_metrics_are_text_in_the_form_that_is_asked_for(shared: Running) -> None:
    async with shared.unix() as client:
        plain = await client.ask("GET", "/metrics")
        assert (plain.status, plain.headers["content-type"]) == (
            200,
            "text/plain; version=0.0.4; charset=utf-8",
        )
        assert b'\nstdiod_module_state{module="m",state="ready"} 1.0\n' in plain.body
        accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
        other = await client.ask("GET", "/metrics", headers=[("Accept", accept)])
        assert other.headers["content-type"].startswith("application/openmetrics-text; version=1")
        assert other.body.endswith(b"\n# EOF\n")


async def test_a_trace_is_passed_on_and_what_is_none_is_ignored() -> None:
    tells = """printf '{"version":"0","type":"done","ok":true,"result":"%s"}' "$TRACEPARENT" """
    wrong = EXAMPLE.upper(), f"{EXAMPLE}-x", "00-0-0-00"
    async with asking(script(tells)) as client:
        for path in ("/api/v1/modules/m/invoke", "/modules/m/invoke"):
            for said in (EXAMPLE, *wrong):
                headers = [("traceparent", said)]
                reply = await client.ask("POST", path, {"op": "a"}, headers=headers)
                heard = json.loads(reply.body)["result"]
                if said in wrong:
                    assert heard == "", (path, said)
                else:  # of its trace, and its parent another span
                    assert is_traceparent(heard), (path, said)
                    assert heard[:36] == EXAMPLE[:36]
                    assert heard != EXAMPLE
