from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.cli import results
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, log, not_ok, ok
from tests.factories import open_files, opened_since

RESPONSE = {
    "request_id": "r3",
    "module": "dice",
    "op": "roll",
    "duration_ms": 12,
    "warnings": [],
}


def test_the_request_is_the_frame_of_design_9(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [ok(7, **RESPONSE)])
    arguments = ("--args", '{"dice":"3d6"}', "--session", "s-1", "--timeout", "5")
    run("invoke", "dice", "roll", *arguments)
    given = {"op": "roll", "args": {"dice": "3d6"}, "session_id": "s-1", "timeout_s": 5.0}
    assert daemon.frames == [
        {"requestId": "c1", "tool": "dice", "operation": "invoke", "input": given}
    ]


def test_the_result_goes_to_stdout_and_everything_else_to_stderr(run: Run, serve: Serve) -> None:
    events = [
        log("thinking", n=3),
        {"type": "state_patch", "patch": {"lit": True}},
        {"type": "state_patch", "patch": {"n": 1}, "revision": 2},
        {"type": "asset", "assetId": "a", "kind": "image", "mediaType": "image/svg+xml",
         "path": "/tmp/x.svg"},
        {"type": "ui_event", "event": "toast", "payload": {"text": "hi"}},
        {"type": "error", "errorCode": "E1", "errorMessage": "not so good"},
    ]  # fmt: skip
    serve(lambda frame: [*events, ok({"total": 7}, summary="rolled", **RESPONSE)])
    ended = run("invoke", "dice", "roll")
    assert ended.exit_code == 0
    assert json.loads(ended.stdout) == {"total": 7}
    assert ended.stderr.splitlines() == [
        "info   thinking  n=3",
        'state  {"lit":true}',
        'state  {"n":1} (revision 2)',
        "asset  /tmp/x.svg (image/svg+xml, image, id a)",
        'ui     toast {"text":"hi"}',
        "error  E1: not so good",
        "ok     rolled (12ms)",
    ]


def test_chunks_of_a_message_run_on_until_something_else_is_said(run: Run, serve: Serve) -> None:
    chunks: list[Frame | bytes] = [
        {"type": "ui_event", "event": "message.chunk", "payload": {"content": content}}
        for content in ("Once ", "upon\n", "a time")
    ]
    serve(lambda frame: [*chunks, log("pause"), ok(None, **RESPONSE)])
    stderr = run("invoke", "crowd", "complete").stderr
    assert stderr == "Once upon\na time\ninfo   pause\nok     done (12ms)\n"


def test_with_json_each_event_is_a_line_and_the_response_is_the_last(
    run: Run, serve: Serve
) -> None:
    serve(lambda frame: [log("thinking"), ok({"total": 7}, **RESPONSE)])
    ended = run("invoke", "dice", "roll", "--json")
    event, response = map(json.loads, ended.stdout.splitlines())
    assert event["type"] == "log"
    assert response == {"ok": True, "result": {"total": 7}, **RESPONSE}
    assert ended.stderr == ""


STEERING = "\x7f\x9b31m\u202e\u2066\u200f\u061c\u2028"


@pytest.mark.fault(33)
@pytest.mark.parametrize("terminal", [True, False])
def test_on_a_terminal_json_holds_nothing_that_steers_it(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(results, "is_terminal", lambda _: terminal)
    serve(lambda frame: [log(STEERING), ok({"said": STEERING}, **RESPONSE)])
    printed = run("invoke", "dice", "roll", "--json").output
    assert any(char in printed for char in STEERING[:2]) is not terminal
    event, response = map(json.loads, printed.splitlines() if terminal else printed.split("\n")[:2])
    assert (event["message"], response["result"]) == (STEERING, {"said": STEERING})


def test_with_json_a_failure_is_a_response_too(run: Run, serve: Serve) -> None:
    serve(lambda frame: [not_ok("timeout", "too late", of=RESPONSE, reason="deadline")])
    ended = run("invoke", "dice", "roll", "--json")
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)["error"]["details"] == {"reason": "deadline"}
    assert ended.stderr == ""


def test_numbers_pass_through_exactly(run: Run, serve: Serve) -> None:
    number = "123456789012345678901234567890"
    done = f'{{"version":"0","type":"done","requestId":"c1","ok":true,"result":{number}}}\n'
    serve(lambda frame: [done.encode()])
    assert run("invoke", "dice", "roll").stdout == f"{number}\n"


def test_a_failure_is_told_as_what_happened_the_evidence_and_what_to_do(
    run: Run, serve: Serve
) -> None:
    evidence = {
        "reason": "signaled",
        "instance": "dice#4",
        "pid": 4711,
        "signal": 9,
        "uptime_s": 3.25,
        "stderr_tail": [f"line {n}" for n in range(30)],
        "line_excerpt": "Traceback (most recent",
        "retry_in_s": 4,
        "weather": {"sky": "grey"},
    }
    serve(lambda frame: [not_ok("unreachable", "dice.roll: it died", of=RESPONSE, **evidence)])
    ended = run("invoke", "dice", "roll")
    assert ended.exit_code == 1
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert lines[:5] == [
        "dice.roll failed: dice.roll: it died",
        "  why       its process was killed (unreachable, signaled)",
        "  process   dice#4, pid 4711, killed by SIGKILL (signal 9), ran for 3.2s",
        "  next try  in 4.0s",
        "  line      Traceback (most recent",
    ]
    assert lines[5] == "  stderr    line 20"
    assert lines[-2] == '  weather   {"sky":"grey"}'
    assert lines[-1] == "  try       `stdiod logs dice` shows what it wrote."


def test_an_error_the_module_made_up_is_told_as_its_own(run: Run, serve: Serve) -> None:
    serve(lambda frame: [not_ok("no_dice", "the dice are lost", of=RESPONSE, origin="module")])
    stderr = run("invoke", "dice", "roll").stderr
    assert "reported by dice (no_dice)" in stderr


def test_warnings_are_shown_with_the_line_they_are_about(run: Run, serve: Serve) -> None:
    warning = {"reason": "malformed_json", "message": "not JSON", "line_excerpt": "Hi!"}
    serve(lambda frame: [ok(1, **{**RESPONSE, "warnings": [warning]})])
    assert "warning: not JSON: Hi!" in run("invoke", "dice", "roll").stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{dice:1}", "--args: is not JSON at line 1 column 2"),
        ('{"a":1,\n "b":}', "--args: is not JSON at line 2 column 6"),
        ('{"a":', "--args: the JSON ends in the middle, line 1 column 6"),
        ("[1]", "--args: is an array, must be one JSON object"),
        ("", "--args: is empty, must be one JSON object"),
        ('{"a":1,"a":2}', '/a: the key "a" stands here more than once'),
        ('{"a":NaN}', "/a: is NaN, which JSON does not have"),
        ("@/no/such/file", "--args: /no/such/file cannot be read: No such file or directory"),
    ],
)
def test_args_that_are_no_json_object_are_refused_before_anybody_is_asked(
    run: Run, given: str, words: str
) -> None:
    ended = run("invoke", "dice", "roll", "--args", given)
    assert ended.exit_code == 2
    assert words in ended.stderr


def test_args_come_from_a_file_or_from_stdin(run: Run, serve: Serve, tmp_path: Path) -> None:
    daemon = serve(lambda frame: [ok(1, **RESPONSE)])
    path = tmp_path / "args.json"
    path.write_text('{"from":"file"}')
    run("invoke", "dice", "roll", "--args", f"@{path}")
    run("invoke", "dice", "roll", "--args", "-", input='{"from":"stdin"}')
    assert [frame["input"]["args"] for frame in daemon.frames] == [
        {"from": "file"},
        {"from": "stdin"},
    ]


ECHO = """\
import json, sys
print("hello from stderr", file=sys.stderr, flush=True)
request = json.loads(sys.stdin.readline())
for event in (
    {"type": "log", "level": "info", "message": "at work"},
    {"type": "done", "ok": True, "result": request["input"]},
):
    print(json.dumps({"version": "0", **event}), flush=True)
"""


@pytest.fixture
def descriptor(tmp_path: Path) -> Path:
    (tmp_path / "echo.py").write_text(ECHO)
    path = tmp_path / "module.json"
    path.write_text(
        json.dumps(
            {
                "name": "echo",
                "kind": "tool",
                "capabilities": [],
                "transport": {
                    "type": "stdio",
                    "command": ["python3", "echo.py"],
                    "protocol": "narratoria",
                },
                "supervision": {"depends_on": ["kv"]},
            }
        )
    )
    return path


def test_with_a_descriptor_a_module_is_invoked_without_a_daemon(run: Run, descriptor: Path) -> None:
    before = open_files()
    ended = run("invoke", "echo", "say", "--args", '{"a":1}', "--descriptor", str(descriptor))
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout) == {"a": 1}
    assert "echo depends on kv, which is not started here" in ended.stderr
    assert "info   at work" in ended.stderr
    assert not opened_since(before)


def test_with_a_descriptor_the_json_is_that_of_a_daemon(run: Run, descriptor: Path) -> None:
    ended = run("invoke", "echo", "say", "--json", "--descriptor", str(descriptor))
    event, response = map(json.loads, ended.stdout.splitlines())
    assert event == {
        "version": "0",
        "type": "log",
        "requestId": "c1",
        "level": "info",
        "message": "at work",
    }
    assert response["ok"] is True
    assert response["module"] == "echo"


def test_without_a_daemon_nothing_is_kept_warm(run: Run, descriptor: Path) -> None:
    program = descriptor.parent / "echo.py"
    program.write_text(f"print(file=open('starts', 'a'))\n{program.read_text()}")
    document = json.loads(descriptor.read_text())
    document["transport"]["lifecycle"] = "per-invocation"
    document["supervision"] = {"warm": 3}
    descriptor.write_text(json.dumps(document))
    ended = run("invoke", "echo", "say", "--descriptor", str(descriptor))
    assert ended.exit_code == 0
    assert len((descriptor.parent / "starts").read_text()) == 1


def test_a_descriptor_is_invoked_by_its_own_name(run: Run, descriptor: Path) -> None:
    ended = run("invoke", "dice", "roll", "--descriptor", str(descriptor))
    assert ended.exit_code == 2
    assert "describes 'echo', not 'dice'" in ended.stderr


def test_a_descriptor_that_is_not_valid_says_what_is_wrong_with_it(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"name":"echo","kind":"tol"}')
    ended = run("invoke", "echo", "say", "--descriptor", str(path))
    assert ended.exit_code == 1
    assert f'{path}: /kind: is "tol"' in ended.stderr


def test_a_failure_without_a_daemon_gives_no_advice_that_needs_one(
    run: Run, descriptor: Path
) -> None:
    (descriptor.parent / "echo.py").write_text("import sys; sys.exit('oh no')")
    ended = run("invoke", "echo", "say", "--descriptor", str(descriptor))
    assert ended.exit_code == 1
    assert ended.stderr.count("oh no") == 1
    assert "exit code 1" in ended.stderr
    assert "`stdiod " not in ended.stderr
