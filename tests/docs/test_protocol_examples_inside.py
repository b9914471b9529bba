"""Of `test_protocol_examples.py`, what is bound to the structure."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from protocol.connection import (
    Answered,
    Connection,
    EventReceived,
    Events,
    Flow,
    HostCalled,
    Logged,
    Quarantined,
    Request,
    Stray,
    Violated,
    Warned,
)
from protocol.descriptor.model import Limits
from protocol.errors import Outcome, Success
from protocol.replies import Operation
from supervisor.faces.conversation import Conversation
from supervisor.kernel.kernel import Kernel, Party
from supervisor.policy.lifecycle import SERVES
from supervisor.policy.verdict import Exit, Said, on_invocation
from supervisor.runtime.files.module_log import log_text
from supervisor.runtime.files.sources import scan
from supervisor.runtime.turns import LoopTime, Turn
from tests.docs.markdown import ROOT, Block
from tests.docs.test_protocol_examples import BLOCKS, at_line
from tests.docs.transcript import fits
from tests.modules.samples import take_time
from tests.principals import ADA
from tests.protocol.wire import announce, connected, descriptor, give_up

PATIENCE_S = 60.0
REPLAYS = [one for one in BLOCKS if "replay" in one.said]
OF_A_PROCESS = [one for one in REPLAYS if one.said["replay"] != "socket"]
OF_A_CLIENT = [one for one in REPLAYS if one.said["replay"] == "socket"]

Line = tuple[str, str]


def lines(block: Block) -> Iterator[Line]:
    for text in block.text.splitlines():
        if text.startswith("=> "):
            yield "=>", text[3:]
        elif text == "...":
            yield "daemon", text
        elif text:
            who, _, said = text.partition(":")
            yield who, said.strip()
        else:
            yield "again", ""


class Replay:
    """Plays the host's part of an example to a connection."""

    def __init__(self, dialect: str, tool: str, *features: str) -> None:
        made = descriptor(stdout="strict" if dialect == "narratoria" else "tolerant")
        limits = Limits(line_bytes=8 << 20)
        supervision = msgspec.structs.replace(made.supervision, limits=limits)
        made = msgspec.structs.replace(made, name=tool, supervision=supervision)
        self.connection: Connection = connected(dialect, made)
        if features:
            announce(self.connection, *features)
        self.calls: dict[str, HostCalled] = {}
        self.gave_up: dict[str, bool] = {}
        self.said = Said()
        self.op = ""

    def send(self, expected: str) -> None:
        """Send what the line says, unless it is one that the connection sends by itself."""
        frame = json.loads(expected)
        if frame.get("type") == "host_result":
            self._answer(frame["payload"])
            return
        request_id, operation = frame["requestId"], frame["operation"]
        if operation == "cancel":
            self.give_up(request_id)
        elif operation in tuple(Flow):
            self.connection.flow(request_id, Flow(operation))
        elif operation in tuple(Operation):
            given = frame["input"]
            self.op = given.get("op", "")
            self.connection.ask(
                Request(
                    request_id,
                    Operation(operation),
                    self.op,
                    given.get("args", {}),
                    given.get("session_id"),
                )
            )
        else:
            self.op = operation
            self.connection.ask(Request(request_id, Operation.INVOKE, operation, frame["input"]))

    def give_up(self, request_id: str) -> bool:
        """Tell whether the process is kept."""
        if request_id not in self.gave_up:
            self.gave_up[request_id] = give_up(self.connection, request_id)
        return self.gave_up[request_id]

    def _answer(self, payload: dict[str, Any]) -> None:
        """Answer a call as the host does; one that is refused was answered already."""
        asked = self.calls.get(payload["call_id"])
        if asked is not None:
            self.connection.answer(asked, Success(payload["output"]))

    def exited(self, how: str) -> str:
        end = Exit(exit_code=int(how)) if how.isdigit() else Exit(signal=signal.Signals[how])
        return self._outcome("r1", on_invocation(self.said, end, None, f"dice.{self.op}"))

    def words(self, received: Events) -> Iterator[str]:
        """Say what was received as the document does."""
        for item in received:
            match item:
                case EventReceived(request_id, event):
                    yield f"{request_id}: event {type(event).__struct_config__.tag}"
                case Answered(request_id, outcome):
                    self.said = msgspec.structs.replace(self.said, answer=outcome)
                    if not self.connection.closes_stdin:
                        yield self._outcome(request_id, outcome)
                case Warned(request_id, notice):
                    yield f"{request_id}: warning {notice.reason}"
                case Violated(request_id, fault):
                    self.said = msgspec.structs.replace(self.said, fault=fault)
                    yield f"{request_id}: fault {fault.reason}"
                case Quarantined(fault):
                    yield f"set aside: {fault.reason}"
                case Stray():
                    yield "dropped"
                case HostCalled(request_id, call):
                    self.calls[call.call_id] = item
                    yield f"{request_id}: host call {call.call_id}: {call.method}"
                case Logged(event):
                    yield f"log of the module: {log_text(event)}"

    @staticmethod
    def _outcome(request_id: str, outcome: Outcome) -> str:
        if isinstance(outcome, Success):
            return f"{request_id}: ok {msgspec.json.encode(outcome.result).decode()}"
        reason = outcome.details.get("reason")
        return f"{request_id}: {outcome.code}{f'/{reason}' if reason else ''}: {outcome.message}"


@pytest.mark.parametrize("block", OF_A_PROCESS, ids=at_line)
def test_an_example_of_the_wire_goes_as_it_is_shown(block: Block) -> None:
    dialect, *given = block.said["replay"].split()
    features = [one.removeprefix("features=") for one in given]
    tool = str(next(json.loads(text) for who, text in lines(block) if who == "host")["tool"])
    replay = Replay(dialect, tool, *features)
    made: list[str] = []
    shown: list[str] = []
    writes: list[str] = []
    for who, text in [*lines(block), ("again", "")]:
        if who != "host" and writes:
            assert replay.connection.outgoing.take().decode().splitlines() == writes
            writes = []
        match who:
            case "host":
                writes.append(text)
                if not text.startswith('{"requestId":"r2.sync"'):
                    replay.send(text)
            case "module":
                made += replay.words(replay.connection.receive_data(f"{text}\n".encode()))
            case "exit":
                made += replay.words(replay.connection.receive_eof())
                made.append(replay.exited(text))
            case "give up":
                kept = replay.give_up(text)
                made.append(f"the process is {'kept' if kept else 'replaced'}")
            case "=>":
                shown.append(text)
            case "again":
                assert fits(shown, made, {}), (shown, made)
                replay, made, shown = Replay(dialect, tool, *features), [], []
            case _:
                pytest.fail(f"{who!r} is nobody")


@pytest.mark.parametrize("block", OF_A_CLIENT, ids=at_line)
async def test_an_example_of_the_control_socket_goes_as_it_is_shown(
    block: Block, tmp_path: Path
) -> None:
    for name in ("dice", "planner"):
        shutil.copytree(ROOT / "modules" / name, tmp_path / "modules" / name)
    take_time(tmp_path / "modules")
    async with Kernel(scan([tmp_path / "modules"]), data_dir=tmp_path) as daemon:
        modules = daemon.fleet.modules.values()
        with trio.fail_after(PATIENCE_S):
            await daemon.fleet.wait_until(
                lambda: all(one.state in SERVES for one in modules) or None
            )
        conversation = Conversation(daemon, Party(ADA))
        conversation.turn = Turn(loop=LoopTime(lambda: 0.0))  # nobody serves what a turn leaves
        shown: list[str] = []
        for who, text in [*lines(block), ("client", "")]:
            if who == "daemon":
                shown.append(text)
            else:
                await expect(shown, conversation)
                shown = []
                conversation.receive_data(f"{text}\n".encode())


async def expect(shown: list[str], conversation: Conversation) -> None:
    """Take what is written to the client until it fits what is shown."""
    answers: list[str] = []
    with trio.move_on_after(PATIENCE_S) as scope:
        while not fits(shown, answers, {}):
            answers += (await conversation.outbox.take()).decode().splitlines()
    assert not scope.cancelled_caught, (shown, answers)
