"""Each refusal of a request: its code, its words, its details, and its count in `status`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.kernel import Kernel
from supervisor.policy.findings import QuarantinedFile
from supervisor.policy.principals import Scope
from tests.factories import actor
from tests.kernel.conftest import ask, begin, daemon_with, own
from tests.principals import ADA

INPUTS = {
    "echo": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
    "whoami": {"type": "object"},
}
OPS = {"ops": ["echo", "whoami"]}
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WEEK_S = 7 * 24 * 3600
BAD = QuarantinedFile("/x/bad.json", "it is bad")
NARROW = ADA.narrowed([Scope.INVOKE], ("m.echo", "fr*"))

NO_OP = 'invoke of m names no op; it needs {"op":"...","args":{...}}'
TIMEOUT = f'"timeout_s" must be a number above 0 and at most {WEEK_S}'


def cut(name: str, chars: int = 128) -> str:
    """Return a name as messages repeat it."""
    return repr(name) if len(repr(name)) <= chars else f"{repr(name)[: chars - 1]}…"


Case = tuple[str, dict[str, Any], str, str, dict[str, Any]]
"""Who is asked, what, and the reason, the words and the further details of the refusal."""

LONG = "n" * 129
CASES: list[Case] = [
    ("m", {}, "missing_op", NO_OP, {}),
    ("m", {"op": ""}, "missing_op", NO_OP, {}),
    ("m", {"op": 7}, "missing_op", NO_OP, {}),
    (
        "m",
        {"op": "o" * 257},
        "malformed_request",
        f'"op" has 257 characters, and may have 256: {cut("o" * 257, 40)}',
        {},
    ),
    ("m", {"op": "ecko"}, "unknown_op", "m has no op 'ecko'; did you mean 'echo'?", OPS),
    ("m", {"op": "z" * 256}, "unknown_op", f"m has no op {cut('z' * 256)}", OPS),
    (
        "m",
        {"op": "echo", "args": [1]},
        "invalid_args",
        '"args" of m.echo must be a JSON object',
        {"pointer": ""},
    ),
    (
        "m",
        {"op": "echo", "args": {}},
        "invalid_args",
        "the args of m.echo are not valid: /n: is missing",
        {"pointer": "/n"},
    ),
    (
        "m",
        {"op": "echo", "args": {"n": "x"}},
        "invalid_args",
        'the args of m.echo are not valid: /n: "x" is not an integer',
        {"pointer": "/n"},
    ),
    (
        "free",
        {"op": "echo", "session_id": 7},
        "malformed_request",
        '"session_id" must be a string',
        {},
    ),
    *(
        ("free", {"op": "echo", "timeout_s": wrong}, "malformed_request", TIMEOUT, {})
        for wrong in (0, -1, True, "5", WEEK_S + 0.5)
    ),
    ("free", {"op": "echo", "args": {}, "timeout_s": 0}, "malformed_request", TIMEOUT, {}),
    (
        "free",
        {"op": "echo", "traceparent": "00-x"},
        "malformed_request",
        f'"traceparent" is "00-x", it must be one of W3C such as {TRACEPARENT}',
        {},
    ),
    (
        "fre",
        {"op": "echo"},
        "unknown_module",
        "there is no module 'fre'; did you mean 'free'?",
        {"module": "fre"},
    ),
    (
        "bad",
        {"op": "echo"},
        "unknown_module",
        "there is no module 'bad'; /x/bad.json is quarantined: it is bad",
        {"module": "bad"},
    ),
    (
        LONG,
        {"op": "echo"},
        "unknown_module",
        f"there is no module {cut(LONG)}",
        {"module": LONG[:128]},
    ),
]
OF_NARROW: list[Case] = [
    (
        "m",
        {"op": "whoami"},
        "scope",
        "ada may not use m.whoami; what it may use is m.echo, fr*",
        {"module": "m"},
    ),
    *(
        (name, {"op": "x"}, "unknown_module", f"there is no module {name!r}", {"module": name})
        for name in ("other", "othe", "bad")
    ),
    ("m", {"op": ""}, "missing_op", NO_OP, {}),
]
CODES = {"unknown_op": "unsupported_op", "scope": "forbidden"}


@asynccontextmanager
async def asked(folder: Path) -> AsyncIterator[Kernel]:
    modules = (
        actor(folder, inputs=INPUTS),
        actor(folder, name="free"),
        actor(folder, name="other"),
    )
    async with daemon_with(folder, *modules, quarantined=(BAD,)) as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("who", "cases"), [(ADA, CASES), (NARROW, OF_NARROW)], ids=["full", "narrow"]
)
async def test_each_refusal_says_what_is_wrong_and_is_counted(
    who: Any, cases: list[Case], tmp_path: Path
) -> None:
    counts: dict[str, int] = {}
    async with asked(tmp_path) as daemon:
        for tool, content, reason, words, more in cases:
            document = await begin(daemon, tool, "invoke", content, who).document()
            assert not document["ok"]
            assert document["error"] == {
                "code": CODES.get(reason, "bad_request"),
                "message": words,
                "details": {"origin": "host", "reason": reason, **more},
            }
            op = content.get("op")
            assert (document["module"], document["op"]) == (tool, op if isinstance(op, str) else "")
            assert document["warnings"] == []
            counts[reason] = counts.get(reason, 0) + 1
        shown = (await own(daemon, ADA, "status"))["daemon"]["refused"]
        assert shown == counts


async def test_a_session_is_named_by_a_string_also_where_it_means_nothing(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path), with_sessions=False) as daemon:
        refused = await ask(daemon, "m", session_id=7).document()
        assert refused["error"]["message"] == '"session_id" must be a string'
        assert (await ask(daemon, "m", session_id="7").document())["ok"]


async def test_what_is_at_a_bound_or_null_is_taken(tmp_path: Path) -> None:
    taken: list[dict[str, Any]] = [
        {"op": "o" * 256},
        {"op": "echo", "timeout_s": WEEK_S},
        {"op": "echo", "timeout_s": 60, "args": {}},
        {"op": "echo", "traceparent": TRACEPARENT},
        {"op": "echo", "session_id": None, "timeout_s": None, "traceparent": None},
    ]
    async with asked(tmp_path) as daemon:
        for content in taken:
            document = await begin(daemon, "free", "invoke", content).document()
            assert (document["ok"], document["warnings"]) == (True, []), content
        assert (await own(daemon, ADA, "status"))["daemon"]["refused"] == {}


@pytest.mark.parametrize(
    ("fields", "near"),
    [
        ({"sesion_id": "x"}, {"sesion_id": "session_id"}),
        ({"timeout": 3, "arg": {}}, {"timeout": "timeout_s", "arg": "args"}),
        ({"tags": 1, "total_s": 2}, {}),
        ({"arg": {}, "args": {}}, {}),
        ({"arg": {}, **{f"x{n}": n for n in range(15)}}, {"arg": "args"}),
        ({"arg": {}, **{f"x{n}": n for n in range(16)}}, {}),
    ],
)
@pytest.mark.parametrize("op", ["echo", "ecko"])
async def test_a_field_that_looks_like_a_known_one_is_warned_of(
    op: str, fields: dict[str, Any], near: dict[str, str], tmp_path: Path
) -> None:
    module = {"echo": "free", "ecko": "m"}[op]
    async with asked(tmp_path) as daemon:
        document = await ask(daemon, module, op, **fields).document()
    assert document["ok"] is (op == "echo")
    assert document["warnings"] == [
        {
            "reason": "unknown_field",
            "message": f"{field!r} is not a field of input; did you mean {meant!r}?",
        }
        for field, meant in near.items()
    ]


OF_PROBES: list[tuple[Any, str | None, str | None, str, str]] = [
    (ADA, "m", "dance", "malformed_request", "'dance' is not one of health, describe, invoke"),
    *(
        (
            ADA,
            None,
            operation,
            "malformed_request",
            'a request needs "tool" and "operation": {"requestId","tool","operation","input"}',
        )
        for operation in ("invoke", None)
    ),
    (
        NARROW,
        "m",
        "health",
        "scope",
        "ada may not ask m for its health: that needs the scope read, and it has invoke",
    ),
    (
        NARROW,
        "supervisor",
        "invoke",
        "scope",
        "ada may not use status: that needs the scope read, and it has invoke",
    ),
    (
        NARROW.narrowed([]),
        "free",
        "invoke",
        "scope",
        "ada may not invoke free.status: that needs the scope invoke, and it has none",
    ),
]


@pytest.mark.parametrize("case", OF_PROBES)
async def test_what_is_no_invocation_is_refused_in_its_words(
    case: tuple[Any, str | None, str | None, str, str], tmp_path: Path
) -> None:
    who, tool, operation, reason, words = case
    async with asked(tmp_path) as daemon:
        asker = begin(daemon, tool, operation, {"op": "status"}, who)  # type: ignore[arg-type]
        error = (await asker.document())["error"]
    assert (error["message"], error["details"]["reason"]) == (words, reason)
    assert error["code"] == CODES.get(reason, "bad_request")


async def test_a_module_is_stopped_by_nobody_who_may_use_a_part_of_it(tmp_path: Path) -> None:
    part = ADA.narrowed(None, ("m.echo", "fr*"))
    async with asked(tmp_path) as daemon:
        words = "ada may not use m as a whole; what it may use is m.echo, fr*"
        assert await own(daemon, part, "stop", module="m") == words
        assert await own(daemon, part, "stop", module="other") == "there is no module 'other'"
        assert (await own(daemon, part, "stop", module="free"))["state"] == "down"
        assert (await own(daemon, ADA, "status", module="m"))["state"] == "ready"


@pytest.mark.parametrize("number", [100, 101])
async def test_as_many_ops_are_named_as_may_be(number: int, tmp_path: Path) -> None:
    ops = [f"op{one:03}" for one in range(number)]
    made = actor(tmp_path, inputs={op: {"type": "object"} for op in ops})
    async with daemon_with(tmp_path, made) as daemon:
        error = (await ask(daemon, "m", "nothing").document())["error"]
        assert error["details"]["ops"] == ops[:100]
