"""A module that opens its daemon's control socket has what it is granted, not what its user may."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.kernel.test_scopes import ARGS
from tests.system.daemon import Daemon
from tests.system.descriptors import PATIENT, descriptor, misbehaving

REACHER = Path(__file__).with_name("reacher.py")

POLICY = """
[modules.reacher]
allow = ["module.invoke:m.echo"]
deny = ["module.invoke:n"]
mode = "prompt"
"""

ALLOWED = {"tool": "m", "operation": "invoke", "input": {"op": "echo", "args": {"a": 1}}}
DENIED = {"tool": "n", "operation": "invoke", "input": {"op": "echo"}}
NOT_LISTED = {"tool": "reacher", "operation": "invoke", "input": {"op": "reach"}}
ADMIN = {"tool": "supervisor", "operation": "token.list", "input": {}}
WHO = {"tool": "supervisor", "operation": "narrow", "input": {}}


@contextmanager
def reached(*options: str, config: str = "") -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="stdiod-") as name:
        folder = Path(name)
        policy, file = folder / "policy.toml", folder / "stdiod.toml"
        policy.write_text(POLICY)
        file.write_text(config)
        options = (*options, "--policy", str(policy), "--config", str(file))
        command = [sys.executable, "-I", str(REACHER)]
        reacher = descriptor("reacher", command, supervision={"timeouts": PATIENT})
        reacher["capabilities"] = ["module.invoke:m", "module.invoke:n"]
        lazy = misbehaving("asleep", start="lazy")
        modules = reacher, misbehaving("m"), misbehaving("n"), lazy
        with Daemon(folder, *modules, options=options) as one:
            yield one


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with reached() as one:
        yield one


def reach(daemon: Daemon, how: str, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    args: dict[str, Any] = {"how": how, "socket": str(daemon.socket), "requests": list(requests)}
    answers: list[dict[str, Any]] = daemon.invoke("reacher", "reach", **args).result
    return answers


def reason(done: dict[str, Any]) -> str:
    return "ok" if done["ok"] else str(done["error"]["details"]["reason"])


@pytest.mark.fault(46)
def test_each_process_of_a_module_has_what_its_descriptor_and_policy_grant(rung: str) -> None:
    with reached(config=f'containment = "{rung}"\n') as daemon:
        for how in ("itself", "child", "escapee", "bare", "inherited"):
            answers = reach(daemon, how, WHO, ALLOWED, DENIED, NOT_LISTED, ADMIN)
            shown = answers[0]["result"]
            assert (shown["name"], shown["face"]) == ("module:reacher", "module")
            assert answers[1]["result"] == {"a": 1}
            assert list(map(reason, answers[2:])) == ["capability"] * 3
            assert "deny[0]" in answers[2]["error"]["message"]
            assert "socket_for_modules" in answers[4]["error"]["message"]


@pytest.mark.fault(46)
def test_a_process_of_which_it_is_not_known_whose_it_is_has_no_more_than_a_module(
    rung: str,
) -> None:
    with reached(config=f'containment = "{rung}"\n') as daemon:
        # By the lowest rung, nothing tells the one that hides from any other (docs/limits.md).
        for how in ("gone",) if rung == "process_group" else ("gone", "hidden"):
            answers = reach(daemon, how, DENIED, NOT_LISTED, ADMIN)
            assert list(map(reason, answers)) == ["capability"] * 3


def test_no_op_of_the_daemon_is_a_modules_on_the_socket(daemon: Daemon) -> None:
    ops = [op for op in ARGS if op not in ("narrow", "invoke")]
    asked = [{"tool": "supervisor", "operation": op, "input": ARGS[op]} for op in ops]
    detours = [
        {"tool": "supervisor", "operation": "invoke", "input": {"op": op, "args": ARGS[op]}}
        for op in ARGS
    ]
    looks = [{"tool": "m", "operation": one} for one in ("health", "describe")]
    as_another = [{**ALLOWED, "as": "h1"}]
    answers = reach(daemon, "itself", *asked, *detours, *looks, *as_another)
    assert {*map(reason, answers[:-1])} == {"capability"}
    assert reason(answers[-1]) == "scope"
    assert daemon.status("m")["state"] == "ready"


def test_a_person_is_asked_where_the_policy_says_so(daemon: Daemon) -> None:
    asks = {"tool": "m", "operation": "invoke", "input": {"op": "other", "args": {"b": 2}}}
    with daemon.connect() as operator:
        args: dict[str, Any] = {"how": "itself", "socket": str(daemon.socket), "requests": [asks]}
        asked = operator.send_invoke("reacher", "reach", **args)
        until(lambda: daemon.op("approvals")["approvals"], "the question")
        (question,) = daemon.op("approvals")["approvals"]
        assert question["prompt"] == "May reacher use module.invoke:m.other?"
        daemon.op("approve", id=question["id"])
        (answer,) = operator.answer(asked).result
    assert answer["result"] == {"b": 2}


def test_the_configuration_can_give_modules_what_their_user_may() -> None:
    with reached(config='socket_for_modules = "user"\n') as daemon:
        answers = reach(daemon, "itself", WHO, DENIED, ADMIN)
        assert list(map(reason, answers)) == ["ok"] * 3
        assert ":" not in answers[0]["result"]["name"]
