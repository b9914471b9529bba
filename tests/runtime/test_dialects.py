"""The made-up dialects (tests/dialects) with real processes: starts of many kinds, and bad ones."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio

from protocol.connection import Answered, Events, Request, StartAgain, Wait
from protocol.dialects.registry import DIALECTS, Dialect
from protocol.errors import Failure, Outcome, Reason
from protocol.transcript import EntrySource, Happened
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.supervision import containers
from supervisor.runtime.supervision.call import Call, Listener
from supervisor.runtime.supervision.module import Module
from supervisor.transcripts.recording import Recording
from tests.dialects.argued import ArguedConnection
from tests.dialects.fallback import FallbackConnection
from tests.dialects.registry import FAKES, speaking
from tests.factories import (
    GENEROUS_S,
    call,
    children,
    open_files,
    opened_since,
    pass_time,
)
from tests.runtime.conftest import Running

pytestmark = pytest.mark.usefixtures("made_up_dialects")

NEVER_S = 1000
CALM = {"health": {"interval_s": NEVER_S}, "backoff": {"initial_s": NEVER_S, "max_s": NEVER_S}}
BOUNDED = {
    **CALM,
    "timeouts": {"start_s": GENEROUS_S, "describe_s": GENEROUS_S, "exit_s": 0.2, "stop_s": 60},
}


async def ask(module: Module, op: str = "echo", **args: Any) -> Any:
    one, heard = call(op, **args)
    module.submit(one)
    return (await heard.success()).result


def recorded(module: Module) -> Recording:
    recording = Recording()
    module.taps.attach(recording)
    return recording


def told(recording: Recording) -> list[tuple[str, Any]]:
    """Return what the host wrote: to which instance, and the message."""
    return [
        (one.instance or "", json.loads(one.content()))
        for one in recording.take()
        if one.source is EntrySource.HOST and one.is_line
    ]


@pytest.mark.parametrize("dialect", ["silent", "paged", "fallback", "carrier"])
async def test_each_gets_ready_in_its_own_way_serves_and_stops(
    running: Running, tmp_path: Path, dialect: str
) -> None:
    before = open_files()
    module = await running.ready(speaking(tmp_path, dialect))
    assert await ask(module, text="hi") == {"op": "echo", "text": "hi"}
    assert (module.restarts, module.last_exit) == (0, None)
    await running.down()
    assert children() == []
    assert not opened_since(before)


async def test_what_is_answered_silently_is_written_before_anything_else_happens(
    running: Running, tmp_path: Path
) -> None:
    module = running(speaking(tmp_path, "silent"))
    recording = recorded(module)
    module.start("the test")
    await running.until(module.is_ready)
    await ask(module)
    kinds = [next(iter(message)) for _, message in told(recording)]
    assert kinds == ["hello", "pong", "id", "pong"]
    await running.down()


async def test_pages_make_one_description(running: Running, tmp_path: Path) -> None:
    module = await running.ready(speaking(tmp_path, "paged"))
    validator = module.descriptions.renewed()
    assert validator is not None
    assert tuple(validator.ops) == ("echo", "roll", "shake", "tell")
    await running.down()


async def test_who_says_nothing_is_asked_otherwise_and_that_is_remembered(
    running: Running, tmp_path: Path
) -> None:
    module = running(speaking(tmp_path, "fallback"))
    recording = recorded(module)
    module.start("the test")
    await running.until(module.is_ready)
    module.restart("the test")
    await running.until(lambda: module.workers[0].instance == "dice#2" and module.is_ready())
    greetings = [(who, one["hello"]) for who, one in told(recording) if "hello" in one]
    assert greetings == [("dice#1", "new"), ("dice#1", "old"), ("dice#2", "old")]
    await running.down()


async def test_a_start_that_takes_a_second_process_is_no_crash(
    running: Running, tmp_path: Path
) -> None:
    module = running(speaking(tmp_path, "fallback", "touchy"))
    recording = recorded(module)
    module.start("the test")
    await running.until(module.is_ready)
    assert running.states == [State.STARTING, State.READY]
    assert (module.restarts, module.last_exit) == (0, None)
    assert module.workers[0].instance == "dice#2"
    assert [one.id for one in module.workers[0].life.instances()] == ["dice#2"]  # type: ignore[union-attr]
    assert await ask(module) == {"op": "echo"}
    entries = list(recording.take())
    spawned = [one.instance for one in entries if one.event is Happened.SPAWNED]
    assert spawned == ["dice#1", "dice#2"]
    await running.down()
    assert children() == []


class Again(Listener):
    """Asks anew as soon as it is refused."""

    def __init__(self, module: Module, times: int) -> None:
        self.left = times
        self._module = module

    def ask(self) -> None:
        one, _ = call("echo")
        one.listener = self
        self._module.submit(one)

    def answered(self, outcome: Outcome, call: Call) -> None:
        self.left -= 1
        if self.left:
            self.ask()


class Refusing(FallbackConnection):
    """It answers each request itself."""

    def ask(self, request: Request) -> Events:
        return [Answered(request.request_id, Failure("no", "it will not"))]


class Insatiable(FallbackConnection):
    """Its handshake never has enough."""

    def start(self) -> Events:
        return [StartAgain("has had a bad beginning")]


async def test_a_second_process_is_all_that_a_start_gets(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = FAKES["fallback"]
    insatiable = Dialect(Insatiable, kind.lifecycles, kind.stdout, answers_probes=True)
    monkeypatch.setitem(DIALECTS, "fallback", insatiable)
    unhurried = {**CALM, "timeouts": {"stop_s": 0.2, "exit_s": 0.2}}
    module = running(speaking(tmp_path, "fallback", supervision=unhurried))
    module.start("the test")
    await running.until(lambda: module.state is State.BACKOFF)
    died = module.last_exit
    assert died is not None
    assert died.reason == "bad_start"
    assert died.message == "has had a bad beginning, for the second time"
    assert children() == []


@pytest.mark.parametrize("hurried", [False, True])
async def test_a_stop_between_two_processes_of_a_start_ends_it(
    running: Running, tmp_path: Path, hurried: bool
) -> None:
    module = running(speaking(tmp_path, "fallback", "touchy"))
    module.start("the test")
    await running.until(lambda: module.state is State.STARTING)
    module.stop("the test")
    if hurried:
        module.hurry()
    await running.until(lambda: module.state is State.DOWN)
    assert children() == []


# What a bad peer comes to, whatever it does and when.

STEPS = {"silent": 2, "paged": 3, "fallback": 2, "carrier": 1}
"""How many lines each reads before it is ready."""

EXPECTED = {
    "die": {"exited"},
    "flood": {"start_deadline"},
    "lie": {"start_deadline", "bad_greeting", "bad_page"},
}


@pytest.mark.parametrize("fault", EXPECTED)
@pytest.mark.parametrize(
    ("dialect", "step"),
    [(name, step) for name, steps in STEPS.items() for step in range(1, steps + 1)],
)
async def test_a_peer_that_dies_floods_or_lies_while_it_starts_fails_that_start_alone(
    running: Running, tmp_path: Path, dialect: str, step: int, fault: str
) -> None:
    before = open_files()
    if (dialect, fault) == ("fallback", "die"):
        step = 1  # its end after the first line alone is what the dialect asks otherwise for
    made = speaking(tmp_path, dialect, "--fault", fault, str(step), supervision=BOUNDED)
    module = running(made)
    module.start("the test")
    if fault != "die":
        while not module.counters.quarantined_lines:
            await trio.lowlevel.checkpoint()
        pass_time(running.host.deadlines, 2 * GENEROUS_S)
    await running.until(lambda: module.state is State.BACKOFF)
    died = module.last_exit
    assert died is not None
    assert died.reason in EXPECTED[fault]
    one, heard = call("echo")
    module.submit(one)
    assert (await heard.failure()).code in ("unreachable", "timeout")
    await running.down()
    assert children() == []
    await module.log.last_lines(1)  # by the thread that writes logs, which has none open then
    assert not opened_since(before)


WITH_A_CALL = [(name, steps + 1) for name, steps in STEPS.items()] + [("silent", 4), ("argued", 1)]
"""Which line is the request, or one that is read before its answer."""

BRIEF = {
    **CALM,
    "backoff": {"initial_s": 0.001, "max_s": 0.001, "jitter": 0},
    "timeouts": {"health_s": 0.1, "invoke_s": 0.1, "exit_s": 0.1, "stop_s": 60},
}
LATE = Stopped(Reason.DEADLINE, "it had its time")


@pytest.mark.parametrize("fault", EXPECTED)
@pytest.mark.parametrize(("dialect", "step"), WITH_A_CALL)
async def test_a_peer_that_dies_floods_or_lies_while_a_call_is_open_fails_that_call_alone(
    running: Running, tmp_path: Path, dialect: str, step: int, fault: str
) -> None:
    before = open_files()
    made = speaking(tmp_path, dialect, "--fault", fault, str(step), supervision=BRIEF)
    module = await running.ready(made)
    recording = recorded(module)
    one, heard = call("echo", text="hi\n")
    module.submit(one)
    if fault != "die":

        def is_heard() -> bool:
            if dialect == "argued":  # what it prints is no lines
                return any(entry.source is EntrySource.MODULE for entry in recording.take())
            return module.counters.quarantined_lines > 0

        while not is_heard():
            await trio.lowlevel.checkpoint()
        assert not heard.outcomes  # nothing of it is an answer
        module.give_up(one, LATE)
    failure = await heard.failure()
    if fault == "die":
        assert failure.details["reason"] == "exited"
        assert failure.details["exit_code"] == 3
    else:
        assert (failure.code, failure.details["reason"]) == ("timeout", "deadline")
    if dialect != "argued":
        await running.until(lambda: module.restarts == 1 and module.state is State.READY)
        assert [one.id for one, _ in module.instances()] == ["dice#2"]
    await running.down()
    assert children() == []
    module.taps.detach(recording)
    await module.log.last_lines(1)  # by the thread that writes logs, which has none open then
    assert not opened_since(before)


async def test_no_handshake_is_without_an_end(running: Running, tmp_path: Path) -> None:
    module = running(speaking(tmp_path, "silent", "fallback", supervision=BOUNDED))
    module.start("the test")
    while not module.instances():
        await trio.lowlevel.checkpoint()
    pass_time(running.host.deadlines, 2 * GENEROUS_S)
    await running.until(lambda: module.state is State.BACKOFF)
    died = module.last_exit
    assert died is not None
    assert died.message.startswith(f"was not ready within {2 * GENEROUS_S} s; it used ")
    # The end of its stdin came first: it may have sufficed.
    assert died.exit.stopped_by_host
    assert (died.exit.exit_code, died.exit.signal) in ((0, None), (None, signal.SIGTERM))


# Arguments and input of a request.


async def test_a_command_has_arguments_and_input_for_each_request(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(speaking(tmp_path, "argued"))
    assert await ask(module, text="hi", times=3) == "--times 3 HI"
    assert await ask(module, text="there") == "--times 1 THERE"
    assert await ask(module, text="x" * 300_000) == "--times 1 " + "X" * 300_000
    await running.down()


@pytest.mark.parametrize(
    "argument", ["a\0b", "\ud800", "x" * (1 << 20)], ids=["nul", "half", "long"]
)
async def test_arguments_that_no_program_can_have_fail_their_request_and_no_other(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str
) -> None:
    usual = ArguedConnection.ask

    def ask_oddly(self: ArguedConnection, request: Request) -> Events:
        events = usual(self, request)
        self.arguments = (argument,) if request.args.get("odd") else self.arguments
        return events

    monkeypatch.setattr(ArguedConnection, "ask", ask_oddly)
    module = await running.ready(speaking(tmp_path, "argued", supervision={"concurrency": 2}))
    one, heard = call("echo", odd=True)
    module.submit(one)
    assert (await heard.failure()).details["reason"] == "spawn_failed"
    assert module.state is State.READY
    assert await ask(module, text="hi", times=3) == "--times 3 HI"
    await running.down()


async def test_what_a_dialect_refuses_itself_takes_no_process(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(speaking(tmp_path, "argued"))
    recording = recorded(module)
    one, heard = call("echo", times="many")
    module.submit(one)
    failure = await heard.failure()
    assert (failure.code, failure.details["reason"]) == ("bad_request", "invalid_args")
    assert [one.event for one in recording.take() if one.event is not None] == []
    await running.down()


class Hesitant(ArguedConnection):
    """A dialect that waits for something as soon as it is asked."""

    waited: ClassVar[list[Wait]] = []

    def ask(self, request: Request) -> Events:
        self.waits = (Wait(0.01, "nothing"),)
        return super().ask(request)

    def time_passed(self, wait: Wait) -> Events:
        self.waited.append(wait)
        return super().time_passed(wait)


@pytest.mark.parametrize("times", ["many", 1], ids=["answered", "not spawned"])
async def test_of_a_process_that_never_was_nothing_is_waited_for(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: Any
) -> None:
    kind = FAKES["argued"]
    hesitant = Dialect(Hesitant, kind.lifecycles, kind.stdout, answers_probes=False)
    monkeypatch.setitem(DIALECTS, "argued", hesitant)
    module = await running.ready(speaking(tmp_path, "argued"))

    async def no_spawn(*_: object, **__: object) -> None:
        raise SpawnError("there is nothing to spawn it with")

    monkeypatch.setattr(containers, "spawn", no_spawn)
    one, heard = call("echo", times=times)
    module.submit(one)
    await heard.failure()
    over = trio.Event()
    running.host.deadlines.after(0.05, over.set)
    await over.wait()
    assert Hesitant.waited == []
    await running.down()


async def test_a_persistent_module_that_is_refused_by_its_dialect_again_and_again_costs_no_depth(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever asks again at each refusal would otherwise be called within its own call.
    kind = FAKES["fallback"]
    refusing = Dialect(Refusing, kind.lifecycles, kind.stdout, answers_probes=True)
    monkeypatch.setitem(DIALECTS, "fallback", refusing)
    module = await running.ready(speaking(tmp_path, "fallback"))
    again = Again(module, 5000)
    again.ask()
    assert again.left == 0
    await running.down()
