from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from protocol.errors import Reason
from supervisor.kernel.kernel import Congestion, Party
from supervisor.kernel.request_checks import MAX_TIMEOUT_S
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from tests.factories import actor, children, open_files, opened_since, script
from tests.kernel.conftest import Asker, ask, daemon_with
from tests.principals import ADA
from tests.schemas.local_registry import validator

LOG = """echo '{"version":"0","type":"log","level":"info","message":"hi"}'\n"""
DONE = """echo '{"version":"0","type":"done","ok":true}'\n"""
GONE = Stopped(Reason.CLIENT, "the client cancelled the request")
INPUTS = {
    "echo": {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "a/b": {"type": "string"}},
        "required": ["n"],
    }
}


@pytest.mark.parametrize(
    ("tool", "content", "reason", "words"),
    [
        ("nobody", {"op": "x"}, "unknown_module", "there is no module 'nobody'"),
        ("mm", {"op": "x"}, "unknown_module", "did you mean 'm'"),
        ("", {}, "unknown_module", "''"),
        ("m", {}, "missing_op", "names no op"),
        ("m", {"op": ""}, "missing_op", "names no op"),
        ("m", {"op": 5}, "missing_op", "names no op"),
        ("m", {"op": "x" * 257}, "malformed_request", "has 257 characters, and may have 256"),
        ("m", {"op": "echo", "args": []}, "invalid_args", "must be a JSON object"),
        ("m", {"op": "echo", "args": None}, "invalid_args", "must be a JSON object"),
        ("m", {"op": "echo", "session_id": 5}, "malformed_request", "session_id"),
        ("m", {"op": "echo", "timeout_s": "5"}, "malformed_request", "timeout_s"),
        ("m", {"op": "echo", "timeout_s": True}, "malformed_request", "timeout_s"),
        ("m", {"op": "echo", "timeout_s": 0}, "malformed_request", "timeout_s"),
        ("m", {"op": "echo", "timeout_s": -1}, "malformed_request", "timeout_s"),
        ("m", {"op": "echo", "timeout_s": MAX_TIMEOUT_S * 2}, "malformed_request", "timeout_s"),
    ],
)
async def test_a_bad_request_is_refused_at_once_in_words(
    tmp_path: Path, tool: str, content: dict[str, Any], reason: str, words: str
) -> None:
    async with daemon_with(
        tmp_path, actor(tmp_path, name="m", supervision={"start": "lazy"})
    ) as daemon:
        asker = Asker()
        assert daemon.begin(Party(ADA), tool, "invoke", content, asker) is None
        (response,) = asker.responses
        document = response.document()
        assert document["error"]["code"] == "bad_request"
        assert document["error"]["details"]["reason"] == reason
        assert words in document["error"]["message"]
        assert daemon.fleet.modules["m"].state is State.DOWN  # nobody was bothered


@pytest.mark.parametrize(
    ("op", "args", "pointer", "reason"),
    [
        ("echo", {}, "/n", "invalid_args"),
        ("echo", {"n": "x"}, "/n", "invalid_args"),
        ("echo", {"n": 1, "a/b": 2}, "/a~1b", "invalid_args"),
        ("ecko", {}, None, "unknown_op"),
    ],
)
async def test_args_are_validated_before_the_module_is_bothered(
    tmp_path: Path, op: str, args: dict[str, Any], pointer: str | None, reason: str
) -> None:
    made = actor(tmp_path, inputs=INPUTS, supervision={"start": "lazy"})
    async with daemon_with(tmp_path, made) as daemon:
        document = await ask(daemon, "m", op, args=args).document()
        details = document["error"]["details"]
        assert (details["reason"], details.get("pointer")) == (reason, pointer)
        assert daemon.fleet.modules["m"].state is State.DOWN
        if reason == "unknown_op":
            assert document["error"]["code"] == "unsupported_op"
            assert "did you mean 'echo'" in document["error"]["message"]
            assert details["ops"] == ["echo"]


def _tree(depth: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"d0": {"type": "object"}}
    for n in range(depth):
        defs[f"d{n + 1}"] = {"allOf": [{"$ref": f"#/$defs/d{n}"}, {"$ref": f"#/$defs/d{n}"}]}
    return {"$defs": defs, "$ref": f"#/$defs/d{depth}"}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"properties": {"a": {"pattern": r"^(?=a)(a*)*\1$"}}}, "too many steps to be matched"),
        (_tree(24), "would take too much work to be validated"),
    ],
    ids=["pattern", "tree"],
)
@pytest.mark.fault(29)
async def test_args_that_take_for_ever_to_check_are_refused(
    tmp_path: Path, schema: dict[str, Any], why: str
) -> None:
    made = actor(tmp_path, inputs={"echo": schema, "other": {}}, supervision={"start": "lazy"})
    async with daemon_with(tmp_path, made) as daemon:
        document = await ask(daemon, "m", args={"a": "a" * 50 + "b"}).document()
        error = document["error"]
        assert (error["code"], error["details"]["reason"]) == ("bad_request", "invalid_args")
        assert why in error["message"]
        document = await ask(daemon, "m", "other", args={"a": "b"}).document()
        assert "schema" not in str(document)
        tally = daemon.fleet.modules["m"].tally
        assert tally.invocations == 1  # the other one's


async def test_a_response_has_the_shape_of_its_schema(tmp_path: Path) -> None:
    shape = validator("response.v1")
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        daemon.sessions.new(ADA, "s-1")
        for asker in (
            ask(daemon, "m", "echo", args={"n": 1}, session_id="s-1"),
            ask(daemon, "m", "exit", args={"code": 3}),
            ask(daemon, "nobody"),
            ask(daemon, "m", None),
        ):
            document = json.loads(msgspec.json.encode(await asker.document()))
            shape.validate(document)
            assert document["request_id"].startswith("r")
            assert document["duration_ms"] >= 0


async def test_a_good_one_carries_all_there_is(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        daemon.sessions.new(ADA, "s-1")
        document = await ask(daemon, "m", "echo", args={"n": 1}, session_id="s-1").document()
        assert document.pop("duration_ms") >= 0
        assert document.pop("request_id")
        assert document == {
            "ok": True,
            "result": {"n": 1},
            "module": "m",
            "op": "echo",
            "session_id": "s-1",
            "warnings": [],
        }


async def test_the_modules_own_timeout_bounds_a_request_and_a_request_may_set_another(
    tmp_path: Path,
) -> None:
    made = actor(
        tmp_path, supervision={"timeouts": {"invoke_s": 0.05, "stop_s": 0.1}, "concurrency": 2}
    )
    async with daemon_with(tmp_path, made) as daemon:
        patient = ask(daemon, "m", "hang", timeout_s=1000)
        document = await ask(daemon, "m", "hang").document()
        assert document["error"]["message"].startswith("m.hang gave no answer in 0.05 s")
        assert document["error"]["details"]["reason"] == "deadline"
        assert document["error"]["details"]["instance"] == "m#1"
        document = await ask(daemon, "m", "hang", timeout_s=0.01).document()
        assert document["error"]["message"].startswith("m.hang gave no answer in 0.01 s")
        assert patient.responses == []


async def test_silence_is_measured_from_the_last_event_and_not_while_it_waits(
    tmp_path: Path,
) -> None:
    supervision = {"timeouts": {"silence_s": 2, "stop_s": 0.1}}
    body = f"[ -e second ] && {{ {DONE} exit 0; }}\ntouch second\n{LOG}exec sleep 1000"
    async with daemon_with(tmp_path, script(tmp_path, body, supervision=supervision)) as daemon:
        first, waiting = ask(daemon, "m"), ask(daemon, "m")
        document = await first.document()
        assert document["error"]["code"] == "timeout"
        assert document["error"]["details"]["reason"] == "silence"
        assert len(first.events) == 1
        assert (await waiting.document())["ok"] is True  # though it waited longer than that


async def test_while_nobody_reads_the_module_is_not_silent(tmp_path: Path) -> None:
    supervision = {"timeouts": {"silence_s": 0.05}}
    async with daemon_with(tmp_path, actor(tmp_path, supervision=supervision)) as daemon:
        asker = Asker()
        asker.slow = Congestion.SLOW
        daemon.begin(Party(ADA), "m", "invoke", {"op": "hang", "timeout_s": 0.3}, asker)
        document = await asker.document()
        assert document["error"]["details"]["reason"] == "deadline"


async def test_a_cancel_ends_a_request_in_flight_and_one_that_waits(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        askers = [Asker(), Asker()]
        invocations = [
            daemon.begin(Party(ADA), "m", "invoke", {"op": "hang"}, one) for one in askers
        ]
        assert daemon.fleet.modules["m"].queued == 1
        for invocation, asker in reversed(list(zip(invocations, askers, strict=True))):
            assert invocation is not None
            invocation.cancel(GONE)
            invocation.cancel(GONE)
            (response,) = asker.responses
            error = response.document()["error"]
            assert (error["code"], error["details"]["reason"]) == ("cancelled", "client")
        assert (await ask(daemon, "m").document())["ok"] is True


async def test_a_real_answer_and_a_cancel_in_the_same_tick_give_one_response(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, actor(tmp_path, supervision={"concurrency": 8})) as daemon:
        askers = []
        for number in range(200):
            asker = Asker()
            invocation = daemon.begin(
                Party(ADA), "m", "invoke", {"op": "echo", "timeout_s": 0.01}, asker
            )
            askers.append(asker)
            if number % 3 == 0 and invocation is not None:
                await trio.lowlevel.checkpoint()
                invocation.cancel(GONE)
        for asker in askers:
            await asker.response()
        tally = daemon.fleet.modules["m"].tally
        assert tally.invocations == 200


async def test_warnings_are_bounded(tmp_path: Path) -> None:
    body = "for n in $(seq 100); do echo x; done\n" + DONE
    made = script(tmp_path, body, transport={"stdout": "tolerant"})
    async with daemon_with(tmp_path, made) as daemon:
        document = await ask(daemon, "m").document()
        assert document["ok"] is True
        assert len(document["warnings"]) == 33
        assert document["warnings"][-1]["reason"] == "more_warnings"


async def test_a_daemon_that_ends_answers_what_is_open_and_leaves_nothing(tmp_path: Path) -> None:
    before = open_files()
    made = actor(
        tmp_path, "ignore-term", supervision={"timeouts": {"stop_s": 0.05, "exit_s": 0.05}}
    )
    async with daemon_with(tmp_path, made) as daemon:
        flying, waiting = ask(daemon, "m", "hang"), ask(daemon, "m", "hang")
    for asker in (flying, waiting):
        (response,) = asker.responses
        error = response.document()["error"]
        assert (error["code"], error["details"]["reason"]) == ("cancelled", "shutdown")
    assert children() == []
    assert not opened_since(before)


async def test_a_daemon_whose_block_fails_leaves_nothing(tmp_path: Path) -> None:
    before = open_files()
    with pytest.raises(BaseExceptionGroup):
        async with daemon_with(tmp_path, actor(tmp_path, "ignore-term")):
            raise RuntimeError
    assert children() == []
    assert not opened_since(before)
