"""WebSocket: what a client says and is told, side by side, and who is parted from."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from tests.bounds import wait_until
from tests.faces.http.client import Client
from tests.faces.running import LOOPBACK, SOCK, Running, running, started
from tests.system.descriptors import actor, agent

GOING_AWAY, NOT_THE_PROTOCOL, NOT_ALLOWED, TOO_LONG = 1001, 1002, 1008, 1009
OPEN_REQUESTS = 256
"""Of a connection (docs/http.md)."""

HANDSHAKE = [
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]


class Socket:
    """The other side of a WebSocket."""

    def __init__(self, stream: trio.abc.Stream, left: bytes) -> None:
        self.stream = stream
        self._wire = Connection(ConnectionType.CLIENT, trailing_data=left)
        self._text = ""
        self._of_others: list[dict[str, Any]] = []

    async def write(self, event: Event) -> None:
        await self.stream.send_all(self._wire.send(event))

    async def say(self, message: Any) -> None:
        await self.write(TextMessage(message if isinstance(message, str) else json.dumps(message)))

    async def ask(self, message_id: str | None, action: str, **payload: Any) -> None:
        named = {} if message_id is None else {"id": message_id}
        await self.say({"type": "request", **named, "payload": {"action": action, **payload}})

    async def event(self) -> Event:
        while True:
            for event in self._wire.events():
                return event
            data = await self.stream.receive_some(65536)
            self._wire.receive_data(bytes(data) or None)

    async def frame(self) -> dict[str, Any]:
        while True:
            event = await self.event()
            if isinstance(event, TextMessage):
                self._text += event.data
                if event.message_finished:
                    text, self._text = self._text, ""
                    found: dict[str, Any] = json.loads(text)
                    return found
            assert not isinstance(event, CloseConnection), event

    async def frames(self, message_id: str | None, *, until: str) -> list[dict[str, Any]]:
        """Read the frames of a request, up to one of that kind or action; others are kept."""
        found, kept, self._of_others = [], self._of_others, []
        while True:
            frame = kept.pop(0) if kept else await self.frame()
            if frame.get("id") != message_id:
                self._of_others.append(frame)
                continue
            found.append(frame)
            if until in (frame["payload"].get("kind"), frame["payload"].get("action")):
                self._of_others += kept
                return found

    async def closed(self) -> tuple[int, str | None]:
        """Read on to the end; returns why it is closed."""
        while not isinstance(event := await self.event(), CloseConnection):
            pass
        return int(event.code), event.reason


async def upgraded(
    client: Client, query: str = "", headers: Iterable[tuple[str, str]] = (), **more: Any
) -> Socket:
    await client.send("GET", f"/ws{query}", headers=[*HANDSHAKE, *headers], **more)
    data = b""
    while b"\r\n\r\n" not in data:
        data += await client.stream.receive_some(65536)
    head, _, left = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head  # RFC 6455 1.3
    socket = Socket(client.stream, left)
    first = await socket.frame()
    assert (first["type"], first["payload"]["kind"]) == ("event", "connected")
    return socket


@asynccontextmanager
async def speaking(
    *others: Any, query: str = "?session_id=s"
) -> AsyncIterator[tuple[Running, Socket]]:
    async with running(agent(), *others, http=SOCK) as face, face.unix() as client:
        face.daemon.op("session.new", session_id="s", roles={"agent": "a"})
        yield face, await upgraded(client, query)


@pytest.fixture(scope="module")
def of_a_session() -> Iterator[Running]:
    """A daemon with the session `s`, and the module `m` beside its agent."""
    with started(agent(), actor(), http=SOCK) as face:
        face.daemon.op("session.new", session_id="s", roles={"agent": "a"})
        yield face


@asynccontextmanager
async def speaking_to(face: Running) -> AsyncIterator[Socket]:
    async with face.unix() as client:
        yield await upgraded(client)


def told(frames: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["type"], one["payload"]["kind"]) for one in frames]


async def test_a_prompt_is_answered_in_the_words_of_deployed_clients(of_a_session: Running) -> None:
    async with speaking_to(of_a_session) as socket:
        await socket.ask("1", "prompt", content="say one two", session_id="s", priority="normal")
        frames = await socket.frames("1", until="complete")
        assert told(frames) == [
            ("event", "prompt.received"), ("event", "prompt.started"), ("event", "message.start"),
            ("response", "chunk"), ("response", "chunk"), ("response", "complete"),
        ]  # fmt: skip
        assert frames[3]["payload"]["content"] == "one"
        await socket.ask("2", "prompt", content="fail", session_id="s")
        [error] = [one for one in await socket.frames("2", until="error") if one["type"] == "error"]
        assert (error["payload"]["error"], error["payload"]["code"]) == ("too wet", "TOOL_ERROR")


@pytest.mark.parametrize(
    ("query", "headers"),
    [("?vocabulary=documented", []), ("", [("Sec-WebSocket-Protocol", "x, documented")])],
)
async def test_who_asks_for_it_is_answered_in_the_documented_words(
    query: str, headers: list[tuple[str, str]], of_a_session: Running
) -> None:
    async with of_a_session.unix() as client:
        socket = await upgraded(client, query, headers)
        await socket.ask("1", "prompt", content="say one", session_id="s")
        frames = await socket.frames("1", until="complete")
        assert told(frames)[-3:] == [("response", "text")] * 2 + [("response", "complete")]
        assert frames[-2]["payload"] == {
            "kind": "text", "session_id": "s", "content": "one", "done": False,
        }  # fmt: skip
        assert frames[-1]["payload"]["done"] is True


async def test_a_prompt_runs_beside_a_ping_an_invocation_and_its_cancel() -> None:
    async with speaking(actor()) as (_, socket):
        await socket.ask("p", "prompt", content="hang")
        await socket.frames("p", until="agent.thinking")
        await socket.ask("?", "ping")
        assert (await socket.frames("?", until="pong"))[0]["type"] == "response"
        args = {
            "lines": ['{"version":"0","type":"log","level":"info","message":"x"}', '{"ok":true}']
        }
        await socket.ask("i", "invoke", module="m", op="say", args=args)
        event, answer = await socket.frames("i", until="invoked")
        assert (event["payload"]["kind"], event["payload"]["event"]["message"]) == ("log", "x")
        assert event["payload"]["event"]["requestId"] == event["id"]
        assert (answer["payload"]["ok"], answer["payload"]["module"]) == (True, "m")
        await socket.ask("q", "prompt", content="hang")
        await socket.frames("q", until="prompt.queued")
        await socket.ask("c", "cancel", request_id="q")
        cancelled = (await socket.frames("q", until="error"))[-1]["payload"]
        assert cancelled["code"] == "CANCELLED"
        assert (await socket.frames("c", until="cancelled"))[0]["payload"]["cancelled"] == 1
        await socket.ask("d", "cancel", force=False)
        assert (await socket.frames("p", until="error"))[-1]["payload"]["code"] == "CANCELLED"
        [answer] = await socket.frames("d", until="cancelled")
        assert (answer["payload"]["session_id"], answer["payload"]["cancelled"]) == ("s", 1)
        await socket.ask("f", "invoke", module="m", op="exit", args={"code": 3})
        [answer] = await socket.frames("f", until="invoked")
        assert (answer["type"], answer["payload"]["error"]["code"]) == ("response", "unreachable")


async def test_who_is_bound_or_subscribes_is_told_what_others_do() -> None:
    async with speaking() as (face, bound):
        await bound.ask("1", "subscribe", session_id="s")
        [answer] = await bound.frames("1", until="subscribed")
        assert answer["payload"] == {"action": "subscribed", "session_id": "s"}
        face.daemon.op("session.prompt", session_id="s", content="say hi")
        twice = await bound.frames(None, until="agent.idle")
        twice += await bound.frames(None, until="agent.idle")
        assert told(twice).count(("response", "chunk")) == 2
        await bound.ask("2", "cancel", request_id="1")
        await bound.frames("2", until="cancelled")
        face.daemon.op("session.end", session_id="s")
        await bound.frames(None, until="session.deleted")


async def test_a_handshake_that_is_none_is_refused_with_what_it_takes(
    of_a_session: Running,
) -> None:
    without = {name: [one for one in HANDSHAKE if one[0] != name] for name, _ in HANDSHAKE}
    bad: list[tuple[str, str, list[tuple[str, str]], int]] = [
        ("GET", "", [], 426),
        ("HEAD", "", [], 426),
        ("GET", "", without["Upgrade"], 426),
        ("GET", "", without["Sec-WebSocket-Version"], 426),
        ("GET", "", without["Sec-WebSocket-Key"], 400),
        ("GET", "", [*without["Sec-WebSocket-Key"], ("Sec-WebSocket-Key", "eA==")], 400),
        ("GET", "?vocabulary=latin", HANDSHAKE, 400),
        ("GET", "?session_id=none", HANDSHAKE, 404),
        ("GET", "", [*HANDSHAKE, ("Origin", "http://evil.example")], 403),
    ]
    for method, query, headers, status in bad:
        async with of_a_session.unix() as client:  # a refused handshake may end the connection
            reply = await client.ask(method, f"/ws{query}", headers=headers)
        assert reply.status == status, (query, headers)
        assert method == "HEAD" or reply.json["error"]
    # What else has these headers is answered as it is without.
    async with of_a_session.unix() as client:
        for _ in range(2):
            reply = await client.ask("GET", "/api/v1/health", headers=HANDSHAKE)
            assert reply.status == 200


@pytest.mark.parametrize(
    ("message", "code", "answered"),
    [
        ("{", "INVALID_JSON", None),
        ("[]", "VALIDATION_ERROR", None),
        ({"payload": {"action": "ping"}, "id": 5}, "INVALID_MESSAGE", None),
        ({"id": "1"}, "INVALID_MESSAGE", "1"),
        ({"id": "1", "type": "event", "payload": {"action": "ping"}}, "INVALID_MESSAGE", "1"),
        ({"id": "1", "payload": {}}, "UNSUPPORTED_ACTION", "1"),
        ({"id": "1", "payload": {"action": "promt"}}, "UNSUPPORTED_ACTION", "1"),
        ({"id": "1", "payload": {"action": "prompt", "session_id": "s"}}, "VALIDATION_ERROR", "1"),
        (
            {"id": "1", "payload": {"action": "prompt", "session_id": "none", "content": "x"}},
            "SESSION_NOT_FOUND",
            "1",
        ),
        ({"id": "1", "payload": {"action": "cancel"}}, "VALIDATION_ERROR", "1"),
        ({"id": "1", "payload": {"action": "subscribe", "session_id": 4}}, "VALIDATION_ERROR", "1"),
        ({"id": "1", "payload": {"action": "invoke", "op": "x"}}, "VALIDATION_ERROR", "1"),
        ('{"payload":' + '{"a":' * 300 + "1" + "}" * 301, "VALIDATION_ERROR", None),
    ],
)
async def test_a_message_that_is_no_good_is_an_error_and_the_next_is_served(
    message: Any, code: str, answered: str | None, of_a_session: Running
) -> None:
    async with of_a_session.unix() as client:
        socket = await upgraded(client)
        await socket.say(message)
        frame = await socket.frame()
        assert (frame["type"], frame.get("id"), frame["payload"]["code"]) == (
            "error", answered, code,
        )  # fmt: skip
        await socket.ask(None, "ping")
        assert (await socket.frame())["payload"] == {"action": "pong"}


async def test_what_is_said_of_a_message_fits_a_websocket(of_a_session: Running) -> None:
    async with speaking_to(of_a_session) as socket:
        await socket.say("roll the dice")
        assert (await socket.frame())["payload"]["error"] == "the message is not JSON"
        await socket.ask("1", "subscribe")
        await socket.frames("1", until="subscribed")
        await socket.ask("1", "ping")
        refusal = await socket.frame()
        assert (refusal["id"], refusal["payload"]["code"]) == (None, "CONFLICT")
        words = "the subscription '1' keeps its id until it is cancelled; ask with another id"
        assert refusal["payload"]["error"] == words
        await socket.ask("2", "invoke", module="m", op="echo", args={}, timeout=1)
        [warning] = (await socket.frames("2", until="invoked"))[-1]["payload"]["warnings"]
        assert warning["message"].endswith("did you mean 'timeout_s'?")


async def test_an_id_that_is_open_is_not_opened_again_and_only_so_many_are() -> None:
    async with speaking(actor(), query="") as (_, socket):
        for number in (*map(str, range(OPEN_REQUESTS)), "1", "more"):
            await socket.ask(number, "invoke", module="m", op="hang")
        codes = [(await socket.frame())["payload"]["code"] for _ in range(2)]
        assert codes == ["CONFLICT", "RATE_LIMITED"]


async def test_a_message_in_pieces_is_one_and_control_frames_come_between(
    of_a_session: Running,
) -> None:
    async with speaking_to(of_a_session) as socket:
        text = json.dumps({"id": "é", "payload": {"action": "ping"}}, ensure_ascii=False)
        await socket.write(TextMessage(text[:9], message_finished=False))
        await socket.write(Ping(b"are you there"))
        assert isinstance(event := await socket.event(), Pong)
        assert bytes(event.payload) == b"are you there"
        await socket.write(TextMessage(text[9:]))
        assert (await socket.frame())["id"] == "é"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (BytesMessage(b"x"), 1003),
        (CloseConnection(1000, "bye"), 1000),
        (b"\x81\x85\0\0\0\0ab\xff\xffc", 1007),
        (b"\xf1\x80\0\0\0\0", 1002),
        (b"\x81\x01x", 1002),
        (b"\x81\xff" + b"\xff" * 8 + b"\0\0\0\0", TOO_LONG),
    ],
)
async def test_what_is_no_text_ends_the_connection_with_the_code_for_it(
    raw: Event | bytes, code: int, of_a_session: Running
) -> None:
    async with of_a_session.unix() as client:
        files = of_a_session.gateway_files
        socket = await upgraded(client)
        if isinstance(raw, bytes):
            await socket.stream.send_all(raw)
        else:
            await socket.write(raw)
        told = (await socket.closed())[0]
        # A length with its first bit set is no length, and it is too long.
        assert told == code or (code == TOO_LONG and told == NOT_THE_PROTOCOL)
        await of_a_session.gateway_parts(files)  # its connection to the daemon is closed


@pytest.mark.fault(39)
async def test_a_message_that_is_slow_to_build_is_refused_unread(of_a_session: Running) -> None:
    async with of_a_session.unix() as client:
        socket = await upgraded(client)
        many = "[]," * (1 << 18) + "0"
        await socket.say('{"type":"request","payload":{"action":"ping","n":[' + many + "]}}")
        while (told := await socket.frame())["type"] != "error":
            pass
        assert told["payload"]["error"] == "the message holds more than 131072 values"
        await socket.ask("1", "ping")
        assert (await socket.frames("1", until="pong"))[-1]["payload"] == {"action": "pong"}


async def test_what_a_client_that_vanishes_had_open_is_cancelled() -> None:
    async with (
        running(agent(), http=SOCK) as face,
    ):
        face.daemon.op("session.new", session_id="s")
        for number in range(20):
            async with face.unix() as client:
                socket = await upgraded(client, "?session_id=s" if number % 2 else "")
                await socket.ask("1", "prompt", session_id="s", content="hang")
                if number % 3:
                    await socket.frames("1", until="prompt.received")
        # Nothing waits in the session: what is asked next is answered.
        assert face.daemon.op("session.prompt", session_id="s", content="say hi")
        await face.has_in_flight(0, "a")
        await wait_until(lambda: not face.held_bytes, "the end of all that is held")


async def test_messages_that_come_together_are_served_in_order(of_a_session: Running) -> None:
    async with speaking_to(of_a_session) as socket:
        wire, numbers = Connection(ConnectionType.CLIENT), [str(n) for n in range(1000)]
        messages = [{"id": number, "payload": {"action": "ping"}} for number in numbers]
        together = b"".join(wire.send(TextMessage(json.dumps(one))) for one in messages)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(socket.stream.send_all, together)
            assert [(await socket.frame())["id"] for _ in numbers] == numbers


async def test_over_tcp_it_needs_a_token_and_ends_with_it() -> None:
    async with (
        running(agent(), http=LOOPBACK) as face,
        face.tcp() as nobody,
        face.tcp() as client,
    ):
        assert (await nobody.ask("GET", "/ws", headers=HANDSHAKE)).status == 401
        socket = await upgraded(client, token=await face.token(scopes=["read"]))
        await socket.ask("1", "prompt", session_id="s", content="x")
        assert (await socket.frame())["payload"]["code"] == "FORBIDDEN"
        await socket.ask("2", "invoke", module="supervisor", op="ui.subscribe")
        await socket.frames("2", until="log")
        face.daemon.op("token.revoke", name="ada")
        assert (await socket.closed())[0] == NOT_ALLOWED


async def test_each_message_counts_for_the_rate_of_a_token() -> None:
    async with (
        running(http=LOOPBACK) as face,
        face.tcp() as client,
    ):
        socket = await upgraded(client, token=await face.token(rate_per_s=0.001))
        await socket.ask("1", "ping")
        frame = await socket.frame()
        assert (frame["id"], frame["payload"]["code"]) == ("1", "RATE_LIMITED")


async def test_a_daemon_that_ends_says_so() -> None:
    async with speaking() as (face, socket):
        face.daemon.process.terminate()
        assert (await socket.closed())[0] == GOING_AWAY
