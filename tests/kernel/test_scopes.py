"""What each op needs, asked by everybody there can be, and held to the table."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from protocol.errors import Reason
from supervisor.kernel.kernel import JournalOptions, Kernel, Party
from supervisor.kernel.operations import OPS
from supervisor.kernel.operations.op import OfModule
from supervisor.kernel.requests import LOOKS
from supervisor.policy.principals import (
    ALL_SCOPES,
    EVERYTHING,
    GLOBS,
    WILDCARDS,
    Principal,
    Scope,
)
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.conftest import Asker, daemon_with, own
from tests.principals import ADA

SCOPES = {
    **{name: one.scope for name, one in OPS.items()},
    **dict.fromkeys(("health", "describe"), LOOKS),
}
ALL_MODULES = {name for name, one in OPS.items() if one.all_modules}
WHOLE_MODULE = {name for name, one in OPS.items() if one.whole_module}
LOGINS = {name for name, one in OPS.items() if one.for_logins}

ARGS: dict[str, dict[str, Any]] = {
    "status": {},
    "metrics": {},
    "reload": {"dry_run": True},
    "reloaded": {"number": 0},
    "shutdown": {},
    "narrow": {},
    "mcp": {},
    "start": {"module": "m"},
    "stop": {"module": "m"},
    "restart": {"module": "m"},
    "wait": {"modules": ["m"], "for": "verdict"},
    "logs": {"module": "m"},
    "offers": {"wait": False},
    "resource.follow": {"module": "m", "uri": "note://1"},
    "record": {"module": "m"},
    "events": {},
    "session.new": {},
    "session.list": {},
    "session.show": {"session_id": "s"},
    "session.fork": {"session_id": "s"},
    "session.end": {"session_id": "s"},
    "session.patch": {"session_id": "s", "patch": {}},
    "session.prompt": {"session_id": "s", "content": "hello"},
    "session.cancel": {"session_id": "s"},
    "asset.list": {},
    "asset.show": {"asset": "a"},
    "asset.read": {"asset": "a"},
    "asset.content": {"asset": "a"},
    "ui.subscribe": {},
    "policy.show": {},
    "policy.explain": {"module": "m", "capability": "log"},
    "policy.forget": {"module": "m"},
    "approvals": {"follow": True},
    "approve": {"id": "ap-1"},
    "token.new": {"name": "t", "scopes": []},
    "token.list": {},
    "token.revoke": {"name": "t"},
    "page.login": {},
    "login.open": {"uid": 0},
    "login.close": {"handle": "h1"},
    "login.follow": {},
    "unordered": {},
    "invoke": {"module": "m", "op": "hang"},
}
"""What each op can be asked with; those that would not end are cancelled."""

OF_MODULES: dict[str, dict[str, Any]] = {
    "health": {},
    "describe": {},
    "invoke": {"op": "hang"},
}

COMBINATIONS = [
    frozenset(some)
    for count in range(len(Scope) + 1)
    for some in itertools.combinations(Scope, count)
]

GONE = Stopped(Reason.CLIENT, "the client cancelled the request")


async def reason(daemon: Kernel, who: Principal, tool: str, what: str, **content: Any) -> str:
    """Return why a request is refused, or what else became of it."""
    asker = Asker()
    handle = daemon.begin(Party(who), tool, what, content, asker)
    await trio.testing.wait_all_tasks_blocked()
    if handle is not None:
        handle.cancel(GONE)
    response = await asker.document()
    return "ok" if response["ok"] else str(response["error"]["details"]["reason"])


def test_each_op_has_a_scope_and_there_is_no_other() -> None:
    assert set(ARGS) == set(OPS)
    assert {op for op, scope in SCOPES.items() if scope is None} == {"narrow", "mcp"}


@pytest.mark.parametrize("one", sorted(WHOLE_MODULE))
def test_what_needs_a_whole_module_names_it(one: str) -> None:
    assert issubclass(OPS[one].args, OfModule)


@pytest.mark.parametrize("has", COMBINATIONS, ids=lambda has: "+".join(sorted(has)) or "none")
async def test_every_op_needs_its_scope_and_no_other(tmp_path: Path, has: frozenset[Scope]) -> None:
    who = Principal("ada", "test", has, EVERYTHING)
    lazy = actor(tmp_path, supervision={"start": "lazy"})
    async with daemon_with(tmp_path, lazy, memory=JournalOptions()) as daemon:
        refused: dict[str, bool] = {}
        for op, args in sorted(ARGS.items(), key=lambda one: one[0] == "shutdown"):
            direct = await reason(daemon, who, "supervisor", op, **args) if op != "invoke" else ""
            named = await reason(daemon, who, "supervisor", "invoke", op=op, args=args)
            refused[op] = named == "scope"
            assert (direct == "scope") == refused[op] or op == "invoke"
        for operation in ("health", "describe"):
            refused[operation] = await reason(daemon, who, "supervisor", operation) == "scope"
        # No party of these came over the control socket.
        assert refused == {
            op: op in LOGINS or scope not in {*has, None} for op, scope in SCOPES.items()
        }
        assert daemon.ending is (Scope.ADMIN in has)
        for operation, content in OF_MODULES.items():
            found = await reason(daemon, who, "m", operation, **content)
            assert (found == "scope") == (SCOPES[operation] not in has), operation


async def test_who_may_do_nothing_learns_nothing_but_that(tmp_path: Path) -> None:
    nobody = Principal("ada", "test", frozenset(), EVERYTHING)
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        for tool, operation in itertools.product(("m", "n"), OF_MODULES):
            content = {"op": "echo"} if operation == "invoke" else {}
            assert await reason(daemon, nobody, tool, operation, **content) == "scope"
        for op, args in ARGS.items():
            if "module" in args:
                args = {**args, "module": "n"}  # noqa: PLW2901 - one that is not there
                found = await reason(daemon, nobody, "supervisor", "invoke", op=op, args=args)
                assert found == "scope"


@pytest.mark.parametrize("op", sorted(ALL_MODULES))
@pytest.mark.parametrize("modules", [("m",), ("m", "*.echo"), ("?",), ()])
async def test_what_concerns_all_modules_is_not_for_who_has_some(
    tmp_path: Path, op: str, modules: tuple[str, ...]
) -> None:
    who = Principal("ada", "test", ALL_SCOPES, modules)
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        assert await reason(daemon, who, "supervisor", op) == "scope"
        assert not daemon.ending
        assert daemon.reloads.count == 0


WHOLE = sorted((*WHOLE_MODULE, "health", "describe", "invoke", "status", "wait"))


@pytest.mark.parametrize("op", WHOLE)
@pytest.mark.parametrize(
    ("modules", "expected"),
    [(("m",), ""), (("m.hang",), "part"), (("x", "y.*"), "unknown_module"), ((), "unknown_module")],
    ids=["all of it", "an op of it", "another", "none"],
)
async def test_a_module_is_used_as_far_as_it_is_covered(
    tmp_path: Path, op: str, modules: tuple[str, ...], expected: str
) -> None:
    who = Principal("ada", "test", ALL_SCOPES, modules)
    lazy = actor(tmp_path, supervision={"start": "lazy"})
    async with daemon_with(tmp_path, lazy) as daemon:
        if op in OF_MODULES:
            found = await reason(daemon, who, "m", op, **OF_MODULES[op])
        else:
            args = {**ARGS[op], "module": "m"} if op != "wait" else ARGS[op]
            found = await reason(daemon, who, "supervisor", op, **args)
        if expected == "part":
            expected = "scope" if op in WHOLE_MODULE else ""
        if expected:
            assert found == expected
        else:
            assert found not in {"scope", "unknown_module"}


async def test_of_a_module_that_is_covered_in_part_other_ops_are_forbidden(
    tmp_path: Path,
) -> None:
    who = Principal("ada", "test", ALL_SCOPES, ("m.echo",))
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        assert await reason(daemon, who, "m", "invoke", op="whoami") == "scope"
        assert await reason(daemon, who, "m", "invoke") == "missing_op"
        through = {"op": "invoke", "args": {"module": "m", "op": "whoami"}}
        assert await reason(daemon, who, "supervisor", "invoke", **through) == "scope"
        asker = Asker()
        daemon.begin(Party(who), "m", "invoke", {"op": "echo"}, asker)
        assert (await asker.response()).ok


@pytest.mark.parametrize("tool", ["m", "n"])
async def test_what_one_may_not_see_is_answered_as_what_is_not_there(
    tmp_path: Path, tool: str
) -> None:
    who = Principal("ada", "test", ALL_SCOPES, ("mm", "other*"))
    parties = [actor(tmp_path, name=name) for name in ("m", "mm")]
    async with daemon_with(tmp_path, *parties) as daemon:
        answers = []
        for operation, content in OF_MODULES.items():
            asker = Asker()
            daemon.begin(Party(who), tool, operation, content, asker)
            answers.append((await asker.document())["error"])
        said = {"origin": "host", "reason": "unknown_module", "module": tool}
        words = f"there is no module '{tool}'"
        hint = "; did you mean 'mm'?" if tool == "m" else ""
        assert answers == [{"code": "bad_request", "message": words + hint, "details": said}] * len(
            OF_MODULES
        )


async def test_a_refusal_says_what_is_missing(tmp_path: Path) -> None:
    reader = Principal("ada", "test", frozenset({Scope.READ}), ("m.echo", "n"))
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        asker = Asker()
        daemon.begin(Party(reader), "m", "invoke", {"op": "echo"}, asker)
        error = (await asker.document())["error"]
        assert error == {
            "code": "forbidden",
            "message": "ada may not invoke m.echo: that needs the scope invoke, and it has read",
            "details": {"origin": "host", "reason": "scope", "scope": "invoke"},
        }
        asker = Asker()
        daemon.begin(Party(reader), "supervisor", "logs", {"module": "m"}, asker)
        error = (await asker.document())["error"]
        assert error == {
            "code": "forbidden",
            "message": "ada may not use m as a whole; what it may use is m.echo, n",
            "details": {"origin": "host", "reason": "scope", "module": "m"},
        }


@pytest.mark.fault(29)
@pytest.mark.parametrize("op", ["narrow", "token.new", "page.login"])
async def test_globs_that_take_long_to_look_for_are_refused(op: str, tmp_path: Path) -> None:
    args = {"name": "max"} if op == "token.new" else {}
    many = ["*a" * WILDCARDS, "*a" * (WILDCARDS + 1)]
    async with daemon_with(tmp_path) as daemon:
        assert await own(daemon, ADA, op, **args, modules=many) == (
            '"*a*a*a*a*a" has 5 `*`, and may have 4'
        )
        words = await own(daemon, ADA, op, **args, modules=["a"] * (GLOBS + 1))
        assert words.startswith(f"the args of {op} are not valid: /modules: ")
        found = await own(daemon, ADA, op, **args, modules=["*a*b*c*"] * GLOBS)
        assert "modules" in found


async def test_a_connection_is_not_narrowed_to_more_globs_than_it_may_have(tmp_path: Path) -> None:
    ours = ["a*", *(f"c{number}" for number in range(30))]
    theirs = ["c*", *(f"a{number}" for number in range(30))]
    async with daemon_with(tmp_path) as daemon:
        who = ADA.narrowed(None, ours)
        assert await own(daemon, who, "narrow", modules=theirs) == (
            "it takes 60 globs to say what both sides cover, and there may be 50"
        )
        assert len((await own(daemon, who, "narrow", modules=theirs[:-10]))["modules"]) == GLOBS
