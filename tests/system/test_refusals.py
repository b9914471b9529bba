"""What cannot be served is refused in words, at once, and nobody else notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon, shared
from tests.system.descriptors import descriptor, misbehaving, per_invocation, timeouts
from tests.system.liveness import Liveness

ROLL = {
    "type": "object",
    "properties": {"sides": {"type": "integer", "minimum": 2}},
    "required": ["sides"],
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    dice = misbehaving("dice")
    dice["inputs"] = {"roll": ROLL}
    documents = [
        dice,
        misbehaving("witness"),
        misbehaving("slow", "starting=5"),
        misbehaving("lazy", start="lazy"),
        misbehaving("one"),
        per_invocation("once"),
    ]
    with shared(*documents) as running:
        yield running


@pytest.fixture(autouse=True)
def undisturbed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "start_daemon" not in request.fixturenames:
        daemon: Daemon = request.getfixturevalue("daemon")
        assert daemon.invoke("witness", word="hello").result == {"word": "hello"}
        assert daemon.invoke("dice", "roll", sides=6).ok


@pytest.mark.parametrize("operation", ["invoke", "health", "describe"])
def test_an_unknown_module_is_named_with_the_nearest_known_one(
    daemon: Daemon, operation: str
) -> None:
    answer = daemon.client.answer(daemon.client.send("dcie", operation, {"op": "roll"}))
    assert answer.verdict == "bad_request/unknown_module"
    assert "'dice'" in answer.error["message"]


def test_an_op_that_is_not_listed_is_unsupported(daemon: Daemon) -> None:
    answer = daemon.invoke("dice", "rol")
    assert answer.verdict == "unsupported_op/unknown_op"
    assert "'roll'" in answer.error["message"]


def test_args_that_do_not_fit_their_schema_never_reach_the_module(daemon: Daemon) -> None:
    answer = daemon.invoke("dice", "roll", sides=1)
    assert answer.verdict == "bad_request/invalid_args"
    assert answer.details["pointer"] == "/sides"


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        ({}, "bad_request/missing_op"),
        ({"op": ""}, "bad_request/missing_op"),
        ({"op": 7}, "bad_request/missing_op"),
        ({"op": "roll", "args": [1]}, "bad_request/invalid_args"),
        ({"op": "roll", "args": None}, "bad_request/invalid_args"),
        ({"op": "roll", "args": {}, "session_id": 7}, "bad_request/malformed_request"),
        ({"op": "roll", "args": {}, "timeout_s": -1}, "bad_request/malformed_request"),
        ({"op": "roll", "args": {}, "timeout_s": "soon"}, "bad_request/malformed_request"),
    ],
)
def test_a_malformed_invoke_is_a_bad_request(
    daemon: Daemon, content: dict[str, Any], verdict: str
) -> None:
    assert daemon.client.answer(daemon.client.send("dice", "invoke", content)).verdict == verdict


@pytest.mark.parametrize(
    "line",
    [
        b"hello\n",
        b"[]\n",
        b"42\n",
        b"{}\n",
        b'{"requestId":"x"}\n',
        b'{"requestId":7,"tool":"dice","operation":"health"}\n',
        b'{"tool":"dice","operation":"levitate"}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_line_that_is_no_request_is_answered_and_the_connection_goes_on(
    daemon: Daemon, line: bytes
) -> None:
    with daemon.connect() as client:
        client.write(line)
        done = next(client.lines())
        assert done["error"]["code"] == "bad_request"
        assert done["error"]["details"]["reason"] == "malformed_request"
        assert client.invoke("witness", word="next").result == {"word": "next"}


def test_a_request_line_of_20_megabytes_is_refused_and_the_next_one_served(daemon: Daemon) -> None:
    with daemon.connect() as client:
        client.write(b'{"x":"' + b"x" * (20 << 20) + b'"}\n')
        assert next(client.lines())["error"]["details"]["reason"] == "malformed_request"
        assert client.invoke("witness", word="next").result == {"word": "next"}


def test_a_request_id_that_is_open_cannot_be_used_twice(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(misbehaving("one", env={"LIVENESS": str(liveness.path)}))
    with daemon.connect() as client:
        line = b'{"requestId":"twin","tool":"one","operation":"invoke","input":{"op":"go"%s}}\n'
        client.write(line % b',"args":{"fault":"gate"}')
        (waiting,) = liveness.wait_for("gate")
        client.write(line % b"")
        refusal = next(client.lines())
        assert refusal["error"]["details"]["reason"] == "malformed_request"
        waiting.release()
        assert next(client.lines())["ok"] is True


def test_a_full_queue_refuses_and_those_in_it_are_served(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(misbehaving("one", env={"LIVENESS": str(liveness.path)}, queue=2))
    client = daemon.client
    serving = client.send_invoke("one", fault="gate")
    (gate,) = liveness.wait_for("gate")
    waiting = [client.send_invoke("one", n=n) for n in range(2)]
    refused = client.invoke("one")
    assert refused.verdict == "unreachable/queue_full"
    assert daemon.status("one")["queued"] == 2
    gate.release()
    assert client.answer(serving).ok
    assert [client.answer(one).result["n"] for one in waiting] == [0, 1]


def test_a_stopped_module_says_so_and_how_to_start_it(daemon: Daemon) -> None:
    for module in ("one", "once"):
        daemon.op("stop", module=module)
        answer = daemon.invoke(module)
        assert answer.verdict == "unreachable/not_ready"
        assert answer.details["state"] == "down"
        assert "start" in answer.error["message"]
        daemon.op("start", module=module)
        assert daemon.invoke(module).ok


def test_a_lazy_module_starts_with_its_first_request(daemon: Daemon) -> None:
    assert daemon.status("lazy")["state"] == "down"
    assert daemon.invoke("lazy", word="hello").result == {"word": "hello"}
    assert daemon.status("lazy")["state"] == "ready"


def _programs(folder: Path) -> dict[str, list[str]]:
    folder.mkdir()
    texts = {
        "not_executable": ("#!/bin/sh\n", 0o644),
        "no_interpreter": ("#!/nowhere/python\n", 0o755),
        "carriage_return": ("#!/bin/sh\r\nexit 0\r\n", 0o755),
        "no_program": ("\x7fnothing\n", 0o755),
    }
    for name, (text, mode) in texts.items():
        path = folder / name
        path.write_bytes(text.encode())
        path.chmod(mode)
    commands = {name: [str(folder / name)] for name in texts}
    return {
        **commands,
        "missing": ["no-such-program-anywhere"],
        "missing_path": ["./no-such-file"],
        "folder": [str(folder)],
        "too_big": ["/bin/true", "x" * (1 << 18)],
    }


WORDS = {
    "not_executable": "not executable",
    "no_interpreter": "/nowhere/python",
    "carriage_return": "carriage return",
    "no_program": "not a program for this machine",
    "missing": "PATH",
    "missing_path": "is not there",
    "folder": "is a folder",
    "too_big": "larger than the system allows",
}


@pytest.mark.fault(20)
@pytest.mark.parametrize("form", ["persistent", "per-invocation"])
def test_what_cannot_be_started_says_why_in_words_and_is_tried_again(
    start_daemon: StartDaemon, folder: Path, form: str
) -> None:
    later = {"backoff": {"initial_s": 3600, "max_s": 3600, "jitter": 0}}
    documents = [
        descriptor(
            name,
            command,
            protocol="module" if form == "persistent" else "narratoria",
            supervision=later,
        )
        for name, command in _programs(folder / "programs").items()
    ]
    gone = descriptor("gone", ["sh"], cwd="nowhere", supervision=later)
    unset = descriptor("unset", ["sh"], env={"A": "${STDIOD_NOT_SET}"}, supervision=later)
    daemon = start_daemon(*documents, gone, unset, misbehaving("witness"))
    words = {**WORDS, "gone": "working folder", "unset": "STDIOD_NOT_SET"}
    for name, expected in words.items():
        answer = daemon.invoke(name)
        assert answer.verdict == "unreachable/spawn_failed", (name, answer)
        assert expected in answer.error["message"], (name, answer)
        if daemon.status(name)["state"] == "backoff":
            assert 0 < answer.details["retry_in_s"] <= 3600
    assert daemon.invoke("witness").ok


def test_a_program_that_appears_later_is_found_by_a_restart(
    start_daemon: StartDaemon, folder: Path
) -> None:
    program = folder / "late"
    daemon = start_daemon(
        descriptor("late", [str(program)], protocol="narratoria", supervision={"intensity": 0})
    )
    answer = daemon.invoke("late")
    assert answer.verdict == "unreachable/failed"
    assert answer.details["retry_in_s"] > 0
    program.write_text('#!/bin/sh\necho \'{"version":"0","type":"done","ok":true}\'\n')
    program.chmod(0o755)
    daemon.op("restart", module="late")
    assert daemon.invoke("late").ok


@pytest.mark.fault(20)
def test_a_failed_respawn_keeps_supervision(start_daemon: StartDaemon, folder: Path) -> None:
    # A per-invocation program that vanishes fails its invocations, one by one, and comes back.
    program = folder / "tool"
    text = '#!/bin/sh\necho \'{"version":"0","type":"done","ok":true}\'\n'
    program.write_text(text)
    program.chmod(0o755)
    daemon = start_daemon(descriptor("tool", [str(program)], protocol="narratoria"))
    assert daemon.invoke("tool").ok
    program.unlink()
    assert daemon.invoke("tool").verdict == "unreachable/spawn_failed"
    program.write_text(text)
    program.chmod(0o755)
    assert daemon.usable("tool").ok


BAD_STARTS: list[tuple[list[str], str | None]] = [
    (["start=hang"], "timeout/start_deadline"),
    (["start=spin"], "timeout/start_deadline"),
    (["start=stop_self"], "timeout/start_deadline"),
    (["deaf=yes"], "timeout/start_deadline"),
    (["starting=1000000"], "timeout/start_deadline"),
    (["start=exit", "code=3"], "unreachable/exited"),
    (["start=die", "signal=11"], "unreachable/signaled"),
    (["name=somebody_else"], "unreachable/not_ready"),
    (["kind=agent"], "unreachable/not_ready"),
    # A stray line before the first answer is quarantined.
    (["start=number", "ids=no"], None),
]
"""What is wrong with a start, and what is said of it."""


def test_a_bad_start_says_what_was_wrong(start_daemon: StartDaemon) -> None:
    later = {"initial_s": 3600, "max_s": 3600, "jitter": 0}

    def bad(number: int, words: list[str], verdict: str | None) -> dict[str, Any]:
        start_s = 0.5 if verdict == "timeout/start_deadline" else 60
        bounds = timeouts(start_s=start_s, describe_s=60, stop_s=0.2, exit_s=0.2)
        return misbehaving(f"bad{number}", *words, timeouts=bounds, backoff=later)

    documents = [bad(number, *one) for number, one in enumerate(BAD_STARTS)]
    daemon = start_daemon(*documents, misbehaving("witness"))
    well = {daemon.pid("witness")}
    for number, (words, verdict) in enumerate(BAD_STARTS):
        answer = daemon.invoke(f"bad{number}")
        if verdict is None:
            assert answer.ok, words
            well.add(daemon.pid(f"bad{number}"))
        else:
            assert answer.verdict == verdict, words
            assert answer.details["retry_in_s"] > 0
            assert daemon.status(f"bad{number}")["state"] == "backoff"
    assert set(daemon.processes()) == well
    assert daemon.invoke("witness").ok


def test_a_module_may_say_that_it_is_still_starting(daemon: Daemon) -> None:
    assert daemon.invoke("slow", word="hello").result == {"word": "hello"}
    assert daemon.status("slow")["restarts"] == 0
