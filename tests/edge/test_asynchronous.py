"""The asyncio client: many requests at a time, back pressure both ways, and every end."""

from __future__ import annotations

import asyncio
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from protocol.client import Answer, ClientQuestion, ConnectionEndedError, EndCause, RequestEvent
from protocol.errors import Success
from protocol.frames import encode_line
from supervisor.edge.bindings.asynchronous import UNREAD_BYTES, AsyncClient
from tests.bounds import until
from tests.cli.conftest import socket_path
from tests.cli.fake_daemon import log, ok
from tests.faces.running import Running, started
from tests.system.descriptors import actor

__all__ = ["socket_path"]

T = TypeVar("T")

SOCKET_BYTES = 1 << 20
"""More than the kernel holds of a Unix socket's stream."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Running]:
    with started(actor()) as running:
        yield running


def played(play: Callable[[], Awaitable[T]]) -> T:
    async def within() -> T:
        return await play()

    return asyncio.run(within())


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[AsyncClient, socket.socket]]:
    """Yield a client and the daemon's end of its connection, which does not block."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    theirs.settimeout(0)
    with theirs:
        async with AsyncClient(ours) as client:
            yield client, theirs


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def of(request_id: str, event: dict[str, Any]) -> bytes:
    return encode_line({"version": "0", **event, "requestId": request_id})


async def lines_of(theirs: socket.socket, number: int) -> list[bytes]:
    """Read so many lines that the client writes."""
    data = b""
    while data.count(b"\n") < number:
        data += await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
    return data.splitlines()


# --- A daemon ----------------------------------------------------------------


def test_many_requests_over_one_connection_have_their_own_answers(daemon: Running) -> None:
    async def play() -> None:
        async def echo(number: int) -> None:
            given = {"op": "echo", "args": {"n": number}}
            async with await client.request("m", "invoke", given) as stream:
                assert (await stream.answer()).result == {"n": number}

        async with await AsyncClient.connect(daemon.daemon.socket) as client:
            await asyncio.gather(*map(echo, range(300)))

    played(play)


def test_a_stream_has_its_events_in_their_order_and_ends_with_the_answer(daemon: Running) -> None:
    async def play() -> None:
        async with await AsyncClient.connect(daemon.daemon.socket) as client:
            given = {"op": "events", "args": {"count": 2000}}
            async with await client.request("m", "invoke", given) as stream:
                *events, answer = [event async for event in stream]
        assert isinstance(answer, Answer)
        assert answer.ok
        said = [event.document["message"] for event in events if isinstance(event, RequestEvent)]
        assert said == [f"{number} " for number in range(2000)]

    played(play)


async def serves(running: Running, number: int) -> None:
    """Wait until the module has so many calls."""

    def has_so_many() -> bool:
        status = running.daemon.status("m")
        return bool(status["in_flight"] + status["queued"] == number)

    await asyncio.to_thread(until, has_so_many, f"{number} calls")


async def ask(client: AsyncClient, op: str) -> Answer:
    async with await client.request("supervisor", "invoke", {"op": op}) as stream:
        return await stream.answer()


def test_to_leave_a_stream_cancels_its_request_and_no_other(daemon: Running) -> None:
    async def play() -> None:
        async with await AsyncClient.connect(daemon.daemon.socket) as client:
            kept = await client.request("m", "invoke", {"op": "hang"})
            async with await client.request("m", "invoke", {"op": "hang"}) as stream:
                await serves(daemon, 2)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert (await ask(client, "narrow")).ok
            await serves(daemon, 1)
        with pytest.raises(ConnectionEndedError):
            await kept.answer()
        await serves(daemon, 0)

    played(play)


def test_a_task_that_is_cancelled_while_it_waits_cancels_its_request(daemon: Running) -> None:
    async def play() -> None:
        async with await AsyncClient.connect(daemon.daemon.socket) as client:
            with pytest.raises(TimeoutError):
                async with (
                    asyncio.timeout(0.01),
                    await client.request("m", "invoke", {"op": "hang"}) as stream,
                ):
                    await stream.answer()
            assert (await ask(client, "narrow")).ok
            await serves(daemon, 0)

    played(play)


def test_a_daemon_that_is_killed_fails_what_is_open_and_whoever_waits_for_its_end() -> None:
    async def play(running: Running) -> None:
        async with await AsyncClient.connect(running.daemon.socket) as client:
            stream = await client.request("m", "invoke", {"op": "hang"})
            await serves(running, 1)
            running.daemon.process.kill()
            with pytest.raises(ConnectionEndedError) as raised:
                await stream.answer()
            assert raised.value.was_written
            await client.ended.wait()
            with pytest.raises(ConnectionEndedError) as raised:
                await client.request("m", "invoke", {})
            assert not raised.value.was_written

    with (
        pytest.raises(AssertionError, match="the daemon ended with -9"),
        started(actor()) as running,
    ):
        played(lambda: play(running))


# --- Connecting --------------------------------------------------------------


def test_a_listener_with_a_full_backlog_is_waited_for(socket_path: Path) -> None:
    async def play() -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(socket_path))
            listener.listen(0)
            with socket.socket(socket.AF_UNIX) as first:
                first.connect(str(socket_path))
                connecting = asyncio.create_task(AsyncClient.connect(socket_path))
                await turns()
                assert not connecting.done()
                listener.accept()[0].close()
                async with await connecting:
                    pass

    played(play)


def test_a_socket_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        played(lambda: AsyncClient.connect(tmp_path / "s"))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_end_shows_also_when_the_daemon_has_left_requests_unread(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            stream = await client.request("m", "invoke", {})
            await turns()
            theirs.send(of("c1", log("begun")))
            theirs.close()
            assert isinstance(await anext(stream), RequestEvent)
            with pytest.raises(ConnectionEndedError):
                await anext(stream)

    run(play())


# --- Back pressure -----------------------------------------------------------


def test_a_reader_that_does_not_read_stops_the_daemon_and_loses_nothing() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            loop = asyncio.get_running_loop()
            stream = await client.request("m", "invoke", {})
            event = of("c1", log("x" * 1000))
            number = 3 * (SOCKET_BYTES + UNREAD_BYTES) // len(event)
            sending = asyncio.create_task(loop.sock_sendall(theirs, event * number))
            await turns(1000)
            assert not sending.done()
            assert UNREAD_BYTES < stream.unread_bytes < 2 * UNREAD_BYTES
            for _ in range(number):
                assert isinstance(await anext(stream), RequestEvent)
            await sending
            assert (
                stream.unread_bytes == len(event) - 1
            )  # the last one, until the next is asked for

    played(play)


def test_a_stream_that_was_not_read_and_is_left_holds_up_nobody_any_more() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            loop = asyncio.get_running_loop()
            async with await client.request("m", "invoke", {}):
                event = of("c1", log("x" * 1000))
                flood = event * (3 * (SOCKET_BYTES + UNREAD_BYTES) // len(event))
                sending = asyncio.create_task(loop.sock_sendall(theirs, flood))
                await turns(1000)
                assert not sending.done()
            other = await client.request("n", "invoke", {})
            await sending
            await loop.sock_sendall(theirs, of("c2", ok("served")))
            assert (await other.answer()).result == "served"

    played(play)


def test_a_daemon_that_does_not_read_holds_up_requests_and_the_end_says_which_it_never_got() -> (
    None
):
    async def play() -> None:
        async with pair() as (client, theirs):
            big = {"text": "x" * SOCKET_BYTES}
            first = await client.request("a", "invoke", big)
            second = await client.request("b", "invoke", big)
            await turns()
            third = asyncio.create_task(client.request("c", "invoke", {}))
            await turns()
            assert not third.done()
            theirs.close()
            for stream, was_written in ((first, True), (second, False)):
                with pytest.raises(ConnectionEndedError) as raised:
                    await stream.answer()
                assert raised.value.was_written is was_written
            with pytest.raises(ConnectionEndedError) as raised:
                await third
            assert not raised.value.was_written

    played(play)


def test_requests_that_waited_for_room_go_on_when_the_daemon_reads() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            big = {"text": "x" * SOCKET_BYTES}
            asking = [asyncio.create_task(client.request("m", "invoke", big)) for _ in range(5)]
            await turns()
            late = asyncio.create_task(client.request("m", "invoke", {}))
            await turns()
            assert not late.done()
            assert len(await lines_of(theirs, 6)) == 6
            await asyncio.gather(*asking, late)

    played(play)


def test_requests_of_one_turn_are_written_together() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            for _ in range(5):
                await client.request("m", "invoke", {})
            await turns(2)
            assert theirs.recv(1 << 16).count(b"\n") == 5

    played(play)


# --- What a daemon may write -------------------------------------------------


def test_a_question_comes_in_its_stream_and_is_answered() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            stream = await client.request("m", "invoke", {}, asks=["user.ask"])
            await lines_of(theirs, 1)
            payload = {"call_id": "q", "method": "user.ask", "params": {"message": "Sure?"}}
            theirs.sendall(of("c1", {"type": "host_call", "payload": payload}))
            question = await anext(stream)
            assert isinstance(question, ClientQuestion)
            await client.answer(question, Success({"action": "decline"}))
            (line,) = await lines_of(theirs, 1)
            assert b'"output":{"action":"decline"}' in line

    played(play)


@pytest.mark.parametrize("nonsense", [b"SSH-2.0-x\r\n", b"\xff\n", b"[]\n"])
def test_what_no_daemon_writes_ends_all_streams(nonsense: bytes) -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            streams = [await client.request("m", "invoke", {}) for _ in range(2)]
            theirs.sendall(nonsense)
            for stream in streams:
                with pytest.raises(ConnectionEndedError) as raised:
                    await stream.answer()
                assert raised.value.end.cause is EndCause.NOT_A_DAEMON

    played(play)


def test_a_refusal_without_an_id_is_there_when_the_connection_has_ended() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            stream = await client.request("m", "invoke", {})
            theirs.sendall(encode_line({"type": "done", "ok": False, "error": {}}))
            theirs.close()
            with pytest.raises(ConnectionEndedError):
                await stream.answer()
            assert client.refusal is not None

    played(play)


def test_a_daemon_that_hung_up_before_it_was_asked_was_written_nothing() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            refusal = encode_line({"type": "done", "ok": False, "error": {}})
            theirs.sendall(refusal)
            theirs.close()
            streams = [await client.request("m", "invoke", {}) for _ in range(2)]
            for stream in streams:
                with pytest.raises(ConnectionEndedError) as raised:
                    await stream.answer()
                assert not raised.value.was_written
            assert client.refusal is not None
            assert client.refusal.line + b"\n" == refusal

    played(play)


def test_a_daemon_that_goes_without_having_read_has_ended() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            stream = await client.request("m", "invoke", {})
            await turns(2)
            theirs.close()
            with pytest.raises(ConnectionEndedError):
                await stream.answer()

    played(play)


@pytest.mark.parametrize("ends", ["by what follows", "by us"])
def test_what_a_slow_reader_was_sent_before_the_end_is_there_after_it(ends: str) -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            stream = await client.request("m", "invoke", {})
            event = of("c1", log("x" * UNREAD_BYTES))
            last = b"nonsense\n" if ends == "by what follows" else b""
            await asyncio.get_running_loop().sock_sendall(theirs, event + last)
            await turns(100)
            assert stream.unread_bytes
            client.close()
            assert isinstance(await anext(stream), RequestEvent)
            with pytest.raises(ConnectionEndedError):
                await anext(stream)

    played(play)


def test_a_stream_that_was_left_is_kept_by_nobody() -> None:
    async def play() -> None:
        async with pair() as (client, _):
            async with await client.request("m", "invoke", {}) as stream:
                left = weakref.ref(stream)
            del stream
            assert left() is None

    played(play)


def test_what_was_answered_before_the_daemon_went_can_still_be_taken() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            answered = await client.request("m", "invoke", {})
            other = await client.request("m", "invoke", {})
            theirs.sendall(of("c1", log("at work")) + of("c1", ok(1)))
            theirs.close()
            await client.ended.wait()
            assert (await answered.answer()).result == 1
            with pytest.raises(StopAsyncIteration):
                await anext(answered)
            with pytest.raises(ConnectionEndedError):
                await other.answer()

    played(play)


def test_a_client_that_is_closed_fails_what_is_open() -> None:
    async def play() -> None:
        async with pair() as (client, theirs):
            stream = await client.request("m", "invoke", {})
            waiting = asyncio.create_task(stream.answer())
            await turns()
            client.close()
            with pytest.raises(ConnectionEndedError):
                await waiting
            assert theirs.recv(1 << 16).endswith(b"\n")
            assert theirs.recv(1 << 16) == b""

    played(play)


def test_what_came_together_is_taken_together() -> None:
    async def play() -> list[list[str]]:
        async with pair() as (client, theirs):
            stream = await client.request("m", "invoke", {})
            await lines_of(theirs, 1)
            theirs.sendall(of("c1", log("one")) + of("c1", log("two")))
            first = await stream.some()
            theirs.sendall(of("c1", ok(None)))
            return [[type(one).__name__ for one in some] for some in (first, await stream.some())]

    assert played(play) == [["RequestEvent", "RequestEvent"], ["Answer"]]


def test_who_asks_on_the_connection_itself_gets_its_events_and_may_hold_them_up() -> None:
    async def play() -> tuple[list[str], list[str]]:
        async with pair() as (client, theirs):
            taken: list[str] = []
            slow = object()
            client.receiver = lambda event: taken.append(type(event).__name__)
            request_id = client.connection.request("m", "invoke", {})
            client.write_soon()
            await lines_of(theirs, 1)
            client.hold(slow)
            theirs.sendall(of(request_id, log("one")))
            await turns()
            theirs.sendall(of(request_id, ok(None)))
            await turns()
            held = list(taken)
            client.release(slow)
            theirs.close()
            await client.ended.wait()
            return held, taken

    held, taken = played(play)
    assert held in ([], ["RequestEvent"])  # what is there when it is held may be read
    assert taken == ["RequestEvent", "Answer", "ConnectionEnd"]
