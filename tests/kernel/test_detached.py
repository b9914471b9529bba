"""Requests that go on without a client, and the one that takes them up."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Reason, Success
from protocol.events import Log, Progress
from protocol.response import Response
from supervisor.kernel import detached
from supervisor.kernel.detached import DETACHED_S, KEPT_BYTES
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.parties import Handle, Party
from supervisor.policy.principals import Principal, Scope
from supervisor.policy.verdict import Stopped
from supervisor.runtime import held_bytes
from supervisor.runtime.supervision.call import Congestion
from tests.kernel.pipeline import World, pipeline
from tests.principals import ADA

BOB = Principal("bob", "test")


class Listener:
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.responses: list[Response] = []
        self.full = False
        self.told_late = False
        """Whether there was an event after the response."""

    def event(self, event: Progress, line: bytes | None) -> None:
        # Not an assertion, which would be the end of who tells it, and no more.
        self.told_late |= bool(self.responses)
        assert isinstance(event, Log)
        self.numbers.append(int(event.message.rstrip(".")))

    def finished(self, response: Response) -> None:
        self.responses.append(response)

    def congested(self) -> Congestion:
        return Congestion(self.full)

    @property
    def reason(self) -> str | None:
        """Why the request failed, None if it did not."""
        (response,) = self.responses
        error = response.document().get("error")
        return None if error is None else error["details"]["reason"]


def invoked(world: World, client: Listener, op: str = "one", party: Principal = ADA) -> Handle:
    handle = world.requests.begin(Party(party), "m", "invoke", {"op": op}, client)
    assert handle is not None
    return handle


def detach(world: World, handle: Handle) -> str:
    found = world.requests.detach(handle)
    assert found is not None
    return found


async def test_who_takes_a_request_up_gets_what_was_kept_and_goes_on(tmp_path: Path) -> None:
    first, second = Listener(), Listener()
    async with pipeline(tmp_path) as world:
        handle = invoked(world, first)
        world.module.say("one", 0)
        handle_id = detach(world, handle)
        world.module.say("one", 1)
        world.module.say("one", 2)
        assert world.requests.take_up(handle_id, ADA, second) is handle
        assert second.numbers == [1, 2]
        world.module.say("one", 3)
        world.module.answer("one")
    assert (first.numbers, first.responses) == ([0], [])
    assert (second.numbers, second.reason) == ([1, 2, 3], None)


async def test_what_has_ended_meanwhile_is_all_there(tmp_path: Path) -> None:
    client = Listener()
    async with pipeline(tmp_path) as world:
        handle_id = detach(world, invoked(world, Listener()))
        world.module.say("one", 1)
        world.module.answer("one")
        assert world.requests.take_up(handle_id, ADA, client) is None
    assert (client.numbers, client.reason) == ([1], None)


async def test_of_two_clients_one_gets_it_and_the_other_is_told(tmp_path: Path) -> None:
    first, second = Listener(), Listener()
    async with pipeline(tmp_path) as world:
        handle_id = detach(world, invoked(world, Listener()))
        assert world.requests.take_up(handle_id, ADA, first) is not None
        assert world.requests.take_up(handle_id, ADA, second) is None
        assert second.reason == "unknown_request"
        world.module.answer("one")
    assert first.reason is None


@pytest.mark.parametrize(
    "other",
    [BOB, Principal("ada", "http"), ADA.narrowed([Scope.READ]), ADA.narrowed(None, ["m"])],
    ids=["name", "face", "scopes", "modules"],
)
async def test_to_another_principal_it_is_as_if_it_were_not_there(
    tmp_path: Path, other: Principal
) -> None:
    asked, made_up = Listener(), Listener()
    async with pipeline(tmp_path) as world:
        handle_id = detach(world, invoked(world, Listener()))
        unknown = "x" * len(handle_id)
        assert world.requests.take_up(handle_id, other, asked) is None
        assert world.requests.take_up(unknown, other, made_up) is None
        said, of_none = asked.responses[0], made_up.responses[0]
        assert repr(said).replace(handle_id, unknown) == repr(of_none)
        assert world.requests.take_up(handle_id, ADA, Listener()) is not None


async def test_of_what_has_ended_only_the_answer_is_kept(tmp_path: Path) -> None:
    class Asked:
        """A request, as long as somebody holds it."""

        principal = ADA
        ended = False
        client: Any = Listener()

        def cancel(self, stopped: Stopped) -> None: ...

        def resume(self) -> None: ...

    async with pipeline(tmp_path) as world:
        asked = Asked()
        id_ = detach(world, asked)
        held = weakref.ref(asked)
        asked.client.finished(Response(Success({})))
        del asked
        assert held() is None
        client = Listener()
        assert world.requests.take_up(id_, ADA, client) is None
        assert client.reason is None


async def test_an_id_cannot_be_guessed(tmp_path: Path) -> None:
    async with pipeline(tmp_path) as world:
        ids = {detach(world, invoked(world, Listener(), str(one))) for one in range(100)}
    assert len(ids) == 100
    assert {len(one) for one in ids} == {24}  # 18 random bytes


async def test_the_second_absence_has_an_id_of_its_own(tmp_path: Path) -> None:
    client = Listener()
    async with pipeline(tmp_path) as world:
        handle = invoked(world, Listener())
        first_id = detach(world, handle)
        world.requests.take_up(first_id, ADA, Listener())
        second_id = detach(world, handle)
        assert world.requests.take_up(first_id, ADA, Listener()) is None
        assert world.requests.take_up(second_id, ADA, client) is handle


async def test_to_detach_it_twice_is_to_detach_it_once(tmp_path: Path) -> None:
    async with pipeline(tmp_path) as world:
        handle = invoked(world, Listener())
        handle_id = detach(world, handle)
        assert detach(world, handle) == handle_id
        assert world.requests.take_up(handle_id, ADA, Listener()) is handle


async def test_what_has_ended_cannot_be_detached(tmp_path: Path) -> None:
    client = Listener()
    async with pipeline(tmp_path) as world:
        handle = invoked(world, client)
        world.module.answer("one")
        assert world.requests.detach(handle) is None
    assert client.reason is None


async def test_what_nobody_takes_up_is_cancelled_at_the_bound(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    client = Listener()
    async with pipeline(tmp_path) as world:
        handle = invoked(world, Listener())
        handle_id = detach(world, handle)
        mock_clock.jump(DETACHED_S - 0.001)
        await trio.testing.wait_all_tasks_blocked()
        ended = [handle.ended]
        mock_clock.jump(0.001)
        await trio.testing.wait_all_tasks_blocked()
        assert [*ended, handle.ended] == [False, True]
        (call,) = world.module.calls.values()
        assert call.settled
        (entry,) = world.entries
        assert entry["by"] == {"name": "ada", "face": "test"}
        assert entry["error"] == {
            "code": "cancelled",
            "message": "its client left, and no other took it up within 60 s",
            "details": {"origin": "host", "reason": "disconnect"},
        }
        assert world.requests.take_up(handle_id, ADA, client) is None
    assert client.reason == "unknown_request"


async def test_an_answer_is_forgotten_at_the_bound(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    client = Listener()
    async with pipeline(tmp_path) as world:
        handle_id = detach(world, invoked(world, Listener()))
        world.module.answer("one")
        mock_clock.jump(DETACHED_S)
        await trio.testing.wait_all_tasks_blocked()
        assert world.requests.take_up(handle_id, ADA, client) is None
    assert client.reason == "unknown_request"


async def test_who_was_taken_up_is_not_cancelled_at_the_bound(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with pipeline(tmp_path) as world:
        handle = invoked(world, Listener())
        world.requests.take_up(detach(world, handle), ADA, Listener())
        mock_clock.jump(2 * DETACHED_S)
        await trio.testing.wait_all_tasks_blocked()
        assert not handle.ended


async def test_a_module_that_says_more_than_is_kept_is_paused(tmp_path: Path) -> None:
    client = Listener()
    async with pipeline(tmp_path) as world:
        handle_id = detach(world, invoked(world, Listener()))
        count = 0
        while not world.module.is_paused("one") and count < 1000:
            world.module.say("one", count, size=10_000)
            count += 1
        assert KEPT_BYTES * 0.9 < count * 10_000 < KEPT_BYTES * 1.1
        assert not world.module.resumed
        world.requests.take_up(handle_id, ADA, client)
        assert client.numbers == list(range(count))
        assert not world.module.is_paused("one")
        assert world.module.resumed["one"] == 1


async def test_what_was_paused_for_its_client_goes_on_once_that_has_left_it(
    tmp_path: Path,
) -> None:
    client = Listener()
    client.full = True
    async with pipeline(tmp_path) as world:
        handle = invoked(world, client)
        assert world.module.is_paused("one")
        detach(world, handle)
        assert not world.module.is_paused("one")
        assert world.module.resumed["one"] == 1


async def test_to_a_client_that_does_not_keep_up_it_stays_paused(tmp_path: Path) -> None:
    client = Listener()
    client.full = True
    async with pipeline(tmp_path) as world:
        handle = invoked(world, Listener())
        world.requests.take_up(detach(world, handle), ADA, client)
        assert world.module.is_paused("one")
        assert not world.module.resumed
        client.full = False
        handle.resume()
        assert world.module.resumed["one"] == 1


async def test_whoever_keeps_most_loses_its_oldest_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_bytes, "PARTY_BYTES", 9 * detached.REQUEST_COST_BYTES)
    async with pipeline(tmp_path) as world:
        modest = invoked(world, Listener(), "modest", BOB)
        detach(world, modest)
        greedy = [invoked(world, Listener(), str(one)) for one in range(12)]
        ids = [detach(world, one) for one in greedy]
        await trio.testing.wait_all_tasks_blocked()
        assert [one.ended for one in greedy] == [True] * 3 + [False] * 9
        assert not modest.ended
        client = Listener()
        assert world.requests.take_up(ids[2], ADA, client) is None
        assert client.reason == "unknown_request"
        assert world.requests.take_up(ids[3], ADA, Listener()) is not None


async def test_a_large_answer_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_bytes, "PARTY_BYTES", 100_000)
    client = Listener()
    async with pipeline(tmp_path) as world:
        handle_id = detach(world, invoked(world, Listener()))
        world.module.answer("one", "x" * 100_000)
        assert world.requests.take_up(handle_id, ADA, client) is None
    assert client.reason == "unknown_request"


async def test_an_op_of_the_daemon_goes_on_too(tmp_path: Path) -> None:
    client = Listener()
    async with pipeline(tmp_path) as world:
        args = {"name": "op"}
        handle = world.requests.begin(Party(ADA), "supervisor", "wait", args, Listener())
        assert handle is not None
        handle_id = detach(world, handle)
        world.told.channels["op"].send_nowait(Log(version="0", level="info", message="7"))
        await trio.testing.wait_all_tasks_blocked()
        assert world.requests.take_up(handle_id, ADA, client) is handle
        world.told.channels["op"].send_nowait(None)
        await trio.testing.wait_all_tasks_blocked()
    assert (client.numbers, client.reason) == ([7], None)


async def test_an_op_waits_where_too_much_is_kept(tmp_path: Path) -> None:
    client = Listener()
    async with pipeline(tmp_path) as world:
        args = {"name": "op"}
        handle = world.requests.begin(Party(ADA), "supervisor", "wait", args, Listener())
        assert handle is not None
        handle_id = detach(world, handle)
        send = world.told.channels["op"]
        for number in range(200):
            text = f"{number}{'.' * 10_000}"
            send.send_nowait(Log(version="0", level="info", message=text))
        await trio.testing.wait_all_tasks_blocked()
        assert 0 < send.statistics().current_buffer_used < 200
        world.requests.take_up(handle_id, ADA, client)
        await trio.testing.wait_all_tasks_blocked()
    assert client.numbers == list(range(200))


# All that can happen at once, in any order.

OPS = ("a", "b", "c")
STEP = st.one_of(
    st.tuples(st.just("say"), st.sampled_from(OPS)),
    st.tuples(st.just("say much"), st.sampled_from(OPS)),
    st.tuples(st.just("answer"), st.sampled_from(OPS)),
    st.tuples(st.just("cancel"), st.sampled_from(OPS)),
    st.tuples(st.just("detach"), st.sampled_from(OPS)),
    st.tuples(st.just("take up"), st.sampled_from(OPS)),
    st.tuples(st.just("take up again"), st.sampled_from(OPS)),
    st.tuples(st.just("bob takes up"), st.sampled_from(OPS)),
    st.tuples(st.just("expire"), st.sampled_from(OPS)),
    st.tuples(st.just("fill"), st.sampled_from(OPS)),
    st.tuples(st.just("run"), st.just("")),
    st.tuples(st.just("pass time"), st.just("")),
)


class Story:
    """One request, all its clients, and what has to be true of it."""

    def __init__(self, world: World, op: str, *, own: bool) -> None:
        self.world, self.op, self.own = world, op, own
        self.clients = [Listener()]
        self.said = itertools.count()
        self.ids: list[str] = []
        content = {"name": op} if own else {"op": op}
        tool, operation = ("supervisor", "wait") if own else ("m", "invoke")
        handle = world.requests.begin(Party(ADA), tool, operation, content, self.clients[0])
        assert handle is not None
        self.handle = handle
        self.answered_late = False

    def step(self, what: str) -> None:
        act: Callable[[], Any] = getattr(self, f"_{what.replace(' ', '_')}")
        act()

    def _say(self, size: int = 0) -> None:
        if self.own:
            text = f"{next(self.said)}{'.' * size}"
            log = Log(version="0", level="info", message=text)
            self.world.told.channels[self.op].send_nowait(log)
        # What a module says after its answer, or when it is paused, is not read.
        elif not self.world.module.calls[self.op].settled and not self._paused:
            self.world.module.say(self.op, next(self.said), size)

    def _say_much(self) -> None:
        self._say(KEPT_BYTES)

    @property
    def _paused(self) -> bool:
        return self.world.module.is_paused(self.op)

    def _answer(self) -> None:
        if self.own:
            self.world.told.channels[self.op].send_nowait(None)
        else:
            self.world.module.answer(self.op)

    def _cancel(self) -> None:
        self.handle.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))

    def _detach(self) -> None:
        found = self.world.requests.detach(self.handle)
        assert (found is None) == self.handle.ended
        if found is not None and found not in self.ids:
            self.ids.append(found)

    @property
    def _is_detached(self) -> bool:
        # What has ended knows nothing of who took its answer.
        return isinstance(self.handle.client, detached.Detached) and not self.answered_late

    def _take_up(self) -> None:
        if self.ids:
            client = Listener()
            self.world.requests.take_up(self.ids[-1], ADA, client)
            if not client.responses or client.reason != "unknown_request":
                self.clients.append(client)
                self.answered_late = bool(client.responses)

    def _take_up_again(self) -> None:
        if self.ids:
            self._take_up()
            late = Listener()
            assert self.world.requests.take_up(self.ids[-1], ADA, late) is None
            assert late.reason == "unknown_request"

    def _bob_takes_up(self) -> None:
        if self.ids:
            bob = Listener()
            assert self.world.requests.take_up(self.ids[-1], BOB, bob) is None
            assert bob.reason == "unknown_request"

    def _expire(self) -> None:
        if isinstance(self.handle, Invocation):
            self.handle.expired()  # its deadline

    def _fill(self) -> None:
        client = self.clients[-1]
        client.full = not client.full
        if not client.full:
            self.handle.resume()

    def check(self) -> None:
        """Hold it to what is promised, once nothing can happen any more."""
        assert self.handle.ended
        assert not any(client.told_late for client in self.clients)
        responses = [one for client in self.clients for one in client.responses]
        lost = self._is_detached  # nobody came in time, and nobody will
        assert len(responses) == (0 if lost else 1)
        if not lost:
            assert self.clients[-1].responses == responses
        told = [number for client in self.clients for number in client.numbers]
        assert told == list(range(len(told))), "lost, twice, or out of order"


async def tell(folder: Path, steps: list[tuple[str, str]], own: set[str], clock: Any) -> None:
    async with pipeline(folder) as world:
        stories = {op: Story(world, op, own=op in own) for op in OPS}
        await trio.testing.wait_all_tasks_blocked()
        for what, op in steps:
            match what:
                case "run":
                    await trio.testing.wait_all_tasks_blocked()
                case "pass time":
                    clock.jump(DETACHED_S / 2)
                    await trio.testing.wait_all_tasks_blocked()
                case _:
                    stories[op].step(what)
        for story in stories.values():
            story.clients[-1].full = False
            story.handle.resume()
            if not story.handle.ended:
                story.step("answer")
        await trio.testing.wait_all_tasks_blocked()
        clock.jump(2 * DETACHED_S)
        await trio.testing.wait_all_tasks_blocked()
        for story in stories.values():
            story.check()
        assert not world.requests._detached._all
        assert not world.requests._detached._accounts


@settings(max_examples=150)
@given(st.lists(STEP, max_size=30), st.sets(st.sampled_from(OPS)))
def test_whatever_happens_in_whatever_order_there_is_one_outcome(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]], own: set[str]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    clock = trio.testing.MockClock()
    trio.run(tell, folder, steps, own, clock, clock=clock)
