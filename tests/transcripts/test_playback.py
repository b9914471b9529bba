"""A module is asked again what it was asked, in step: when as much is answered as was then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.framing import Line
from protocol.transcript import Entry, read_transcript
from supervisor.runtime.supervision.host import Host
from supervisor.transcripts.playback import Played, play
from tests.factories import PYTHON, descriptor, script
from tests.protocol.test_transcript import HEADER, lines

ASK = {"from": "host", "request_id": "r1", "operation": "invoke", "op": "go"}
ASK_2 = {**ASK, "request_id": "r2"}
ANSWER = {"from": "host", "request_id": "r1", "call_id": "c1", "outcome": {"ok": True}}
GIVEN_UP = {**ASK, "outcome": {"ok": False, "error": {"details": {"reason": "client"}}}}
DONE = {"from": "module", "line": '{"version":"0","type":"done","ok":true}'}
REPLY = {"from": "module", "line": '{"ok":true}'}
LOG = {"from": "module", "line": '{"version":"0","type":"log","level":"info","message":"m"}'}
CALLED = {
    "from": "module",
    "line": '{"version":"0","type":"host_call","requestId":"r1","payload":{"call_id":"c1",'
    '"method":"log","params":{}}}',
}
CLOSED = {"from": "process", "event": "stdin_closed"}
EXITED = {"from": "process", "event": "exited", "exit_code": 0}
PATIENT = {"timeouts": {"exit_s": 1000}}

BEGINNING = """
import json, select, sys
def say(**said):
    print(json.dumps(said), flush=True)
def hear():
    return json.loads(sys.stdin.readline() or "null")
hear(); say(status="ok")
hear(); say(name="m", kind="tool", capabilities=[], features=["cancel", "host_call"])
"""


def text(line: Line) -> bytes:
    assert isinstance(line, bytes)
    return line


def entries(*said: dict[str, Any]) -> list[Entry]:
    placed = [{"at_s": 0, "instance": "m#1", **one} for one in said]
    return list(read_transcript(lines(HEADER, *placed), "t").entries)


async def played(host: Host, made: Any, *said: dict[str, Any]) -> Played:
    return await play(entries(*said), made, host, timeout_s=60)


def module(folder: Path, body: str) -> Any:
    return descriptor(folder, [*PYTHON, "-c", BEGINNING + body], supervision=PATIENT)


async def test_a_tool_gets_its_input_and_the_end_of_it(host: Host, tmp_path: Path) -> None:
    made = script(tmp_path, "cat; echo end", supervision=PATIENT)
    heard = await played(host, made, ASK, CLOSED, DONE, EXITED)
    asked = {"requestId": "r1", "tool": "m", "operation": "go", "input": {}}
    assert [json.loads(text(heard.lines[0])), *heard.lines[1:]] == [asked, b"end"]
    assert (heard.exit.exit_code, heard.unsent, heard.overdue) == (0, 0, False)


async def test_a_tool_whose_input_was_never_written_sees_its_end(
    host: Host, tmp_path: Path
) -> None:
    made = script(tmp_path, "cat; echo end", supervision=PATIENT)
    assert (await played(host, made, DONE, EXITED)).lines == (b"end",)


async def test_a_module_that_goes_on_after_its_last_line_is_ended(
    host: Host, tmp_path: Path
) -> None:
    made = module(tmp_path, "hear(); say(ok=True); hear(); print('bye')")
    heard = await played(host, made, ASK, REPLY)
    assert heard.lines == (b'{"ok": true}', b"bye")


@pytest.mark.parametrize("more", [(LOG,), (LOG, LOG)])
async def test_the_next_request_is_made_once_the_one_before_it_is_answered(
    host: Host, tmp_path: Path, more: tuple[dict[str, Any], ...]
) -> None:
    body = """
hear(); say(version="0", type="log", level="info", message="m")
say(ok=True, result=bool(select.select([sys.stdin], [], [], 0)[0]))
hear(); say(ok=True, result=2)
"""
    heard = await played(host, module(tmp_path, body), ASK, *more, REPLY, ASK_2, REPLY, EXITED)
    assert heard.lines[1:] == (b'{"ok": true, "result": false}', b'{"ok": true, "result": 2}')


async def test_requests_that_were_open_together_are_open_together(
    host: Host, tmp_path: Path
) -> None:
    made = module(tmp_path, "hear(); hear(); say(ok=True); say(ok=True)")
    heard = await played(host, made, ASK, ASK_2, REPLY, REPLY, EXITED)
    assert (len(heard.lines), heard.unsent, heard.overdue) == (2, 0, False)


async def test_a_call_is_answered_as_it_was_whatever_its_id_is_now(
    host: Host, tmp_path: Path
) -> None:
    body = """
asked = hear()["requestId"]
call = {"call_id": "other", "method": "log", "params": {}}
say(version="0", type="host_call", requestId=asked, payload=call)
say(ok=True, requestId=asked, result=hear()["payload"]["call_id"])
"""
    heard = await played(host, module(tmp_path, body), ASK, CALLED, ANSWER, REPLY, EXITED)
    assert json.loads(text(heard.lines[-1]))["result"] == "other"


async def test_a_request_is_given_up_once_the_module_has_said_as_much_as_then(
    host: Host, tmp_path: Path
) -> None:
    body = """
hear(); ahead = bool(select.select([sys.stdin], [], [], 0)[0])
say(version="0", type="log", level="info", message="m", requestId="r1")
say(noise=[ahead, hear()["operation"]])
"""
    heard = await played(host, module(tmp_path, body), ASK, LOG, GIVEN_UP, EXITED)
    assert heard.lines[-1] == b'{"noise": [false, "cancel"]}'


async def test_of_a_recording_that_began_in_the_middle_no_answer_is_awaited_that_cannot_come(
    host: Host, tmp_path: Path
) -> None:
    made = module(tmp_path, "hear(); say(ok=True); say(ok=True); hear()")
    heard = await played(host, made, REPLY, ASK, REPLY)
    assert (heard.unsent, heard.overdue) == (0, False)


async def test_what_came_after_the_end_of_the_input_is_not_awaited_before_it(
    host: Host, tmp_path: Path
) -> None:
    made = module(tmp_path, "hear(); say(ok=True); hear(); print('bye')")
    heard = await played(host, made, ASK, REPLY, CLOSED, {"from": "module", "line": "bye"})
    assert (heard.lines[-1], heard.overdue) == (b"bye", False)
