"""What a host said is said again in step: when as much has been answered as had been then."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.connection import NOTHING, LocalError, Request
from protocol.dialects.module import ModuleConnection
from protocol.framing import Written
from protocol.replies import Operation
from protocol.transcript import Entry, read_transcript
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.supervision.host import Host
from supervisor.transcripts.playback import Played, Script, play
from tests.factories import descriptor, script
from tests.protocol.test_transcript import HEADER, lines

ASK_1, ASK_2 = (
    f'{{"requestId":"{one}","tool":"m","operation":"invoke","input":{{"op":"go"}}}}'
    for one in ("r1", "r2")
)
CANCEL = '{"requestId":"r2","operation":"cancel"}'
LOG = '{"version":"0","type":"log","level":"info","message":"m"}'
DONE = '{"version":"0","type":"done","ok":true}'
REPLY = '{"ok":true}'
PATIENT = {"timeouts": {"exit_s": 1000}}


def entries(*said: tuple[str, str]) -> list[Entry]:
    """Make entries of (`host` or `module`, line) and (`process`, event)."""
    documents: list[dict[str, Any]] = []
    for source, what in said:
        key = "event" if source == "process" else "line"
        more = {"exit_code": 0} if what == "exited" else {}
        documents.append({"at_s": 0, "instance": "m#1", "from": source, key: what, **more})
    return list(read_transcript(lines(HEADER, *documents), "t").entries)


def playing(*said: tuple[str, str]) -> Script:
    made = descriptor(Path("/"), ["m"])
    script = Script(
        entries(*said),
        lambda: ModuleConnection(made, str, {}),
        closes_stdin=False,
        line_bytes=1 << 20,
    )
    script.start()
    return script


def hear(script: Script, *texts: str) -> None:
    script.receive_data("".join(f"{text}\n" for text in texts).encode())


def test_the_next_line_is_said_once_the_one_before_it_is_answered() -> None:
    script = playing(("host", ASK_1), ("module", LOG), ("module", DONE), ("host", ASK_2))
    assert script.outgoing.take() == f"{ASK_1}\n".encode()
    hear(script, LOG, LOG)
    assert script.outgoing.take() == b""
    assert script.unsent == 1
    hear(script, REPLY)  # in the place of the `done`
    assert script.outgoing.take() == f"{ASK_2}\n".encode()
    assert not script.unsent


def test_lines_that_were_said_together_are_said_together() -> None:
    script = playing(("host", ASK_1), ("host", ASK_2), ("module", REPLY), ("module", REPLY))
    assert script.outgoing.take() == f"{ASK_1}\n{ASK_2}\n".encode()
    hear(script, REPLY)
    assert not script.complete
    hear(script, REPLY)
    assert script.complete


def test_a_cancel_waits_for_what_had_been_said_before_it() -> None:
    script = playing(("host", ASK_2), ("module", LOG), ("host", CANCEL), ("module", DONE))
    script.outgoing.take()
    assert script.outgoing.take() == b""
    hear(script, LOG)
    assert script.outgoing.take() == f"{CANCEL}\n".encode()


def test_a_result_of_a_call_waits_for_the_call() -> None:
    called = '{"version":"0","type":"host_call","requestId":"r1","payload":{}}'
    result = '{"type":"host_result","requestId":"r1","payload":{"call_id":"c1"}}'
    script = playing(("host", ASK_1), ("module", called), ("host", result), ("module", REPLY))
    script.outgoing.take()
    hear(script, called)
    assert script.outgoing.take() == f"{result}\n".encode()


def test_of_a_recording_that_began_in_the_middle_no_answer_is_awaited_that_cannot_come() -> None:
    script = playing(("module", REPLY), ("host", ASK_1), ("module", REPLY))
    assert script.outgoing.take() == f"{ASK_1}\n".encode()


def test_what_came_after_the_end_of_the_input_is_not_awaited_before_it() -> None:
    script = playing(
        ("host", ASK_1), ("module", REPLY), ("process", "stdin_closed"), ("module", "bye")
    )
    script.outgoing.take()
    hear(script, REPLY)
    assert script.complete


def test_nothing_but_the_transcript_is_said() -> None:
    script = playing(("host", ASK_1))
    with pytest.raises(LocalError):
        script.ask(Request("r9", Operation.HEALTH))
    assert script.cancel("r1", Written.ALL) == NOTHING
    assert script.outgoing.take() == f"{ASK_1}\n".encode()


async def played(host: Host, folder: Path, body: str, said: list[Entry]) -> Played:
    made = script(folder, body, supervision=PATIENT)
    environment = os.environ
    return await play(said, made, environment, Custody.bare(), host.log_files, timeout_s=60)


async def test_a_tool_gets_its_input_and_the_end_of_it(host: Host, tmp_path: Path) -> None:
    said = entries(
        ("host", ASK_1), ("process", "stdin_closed"), ("module", DONE), ("process", "exited")
    )
    heard = await played(host, tmp_path, "cat; echo end", said)
    assert heard.lines == (ASK_1.encode(), b"end")
    assert (heard.exit.exit_code, heard.unsent, heard.overdue) == (0, 0, False)


async def test_a_tool_whose_input_was_never_written_sees_its_end(
    host: Host, tmp_path: Path
) -> None:
    said = entries(("module", DONE), ("process", "exited"))
    heard = await played(host, tmp_path, "cat; echo end", said)
    assert heard.lines == (b"end",)


async def test_a_module_that_goes_on_after_its_last_line_is_ended(
    host: Host, tmp_path: Path
) -> None:
    loop = "while read line; do echo '{\"ok\":true}'; done; echo bye"
    said = entries(("host", ASK_1), ("module", REPLY))
    made = descriptor(tmp_path, ["sh", "-c", loop], supervision=PATIENT)
    with trio.fail_after(60):
        heard = await play(said, made, os.environ, Custody.bare(), host.log_files, timeout_s=1000)
    assert heard.lines == (REPLY.encode(), b"bye")
