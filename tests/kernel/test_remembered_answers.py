"""Answers that people gave for always: shown, explained, kept, forgotten."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from supervisor.kernel.kernel import JournalOptions, Kernel
from tests.kernel.conftest import ask, daemon_with, own
from tests.kernel.host_calls import PROMPT, allowing, caller, payload, question
from tests.principals import ADA

CAPABILITIES = ["log", "module.invoke"]
LOG = payload("log", message="x")
INVOKE = payload("invoke", module="b", op="hang")


async def answered(daemon: Kernel, call: dict[str, Any], answer: str) -> None:
    """Have the module call the host, and a person answer for always."""
    asker = ask(daemon, "a", "calls", args={"calls": [call], "lines": []})
    await own(daemon, ADA, "approve", id=(await question(daemon))["id"], answer=answer)
    await asker.response()


async def test_an_answer_for_always_is_shown_and_explained_until_it_is_forgotten(
    tmp_path: Path,
) -> None:
    ticks = itertools.count(1000)
    options: dict[str, Any] = {
        "memory": JournalOptions(),
        "operator": allowing(tmp_path, PROMPT),
        "clock": lambda: float(next(ticks)),
    }

    async def explained(daemon: Kernel, capability: str, module: str = "a") -> Any:
        args = {"module": module, "capability": capability}
        found = await own(daemon, ADA, "policy.explain", **args)
        assert (found["module"], found["capability"], found["verdict"]) == (
            module, capability, "ask",
        )  # fmt: skip
        return found["remembered"]

    async def remembered(daemon: Kernel) -> list[dict[str, Any]]:
        shown = await own(daemon, ADA, "policy.show")
        found: list[dict[str, Any]] = shown["answers"]
        return found

    modules = [caller(tmp_path, name, capabilities=CAPABILITIES) for name in "ab"]
    async with daemon_with(tmp_path, *modules, **options) as daemon:
        assert await remembered(daemon) == []
        assert await explained(daemon, "log") is None
        await answered(daemon, INVOKE, "deny always")
        await answered(daemon, LOG, "allow always")
        first, second = await remembered(daemon)
        assert first["ts"] < second["ts"]
        assert first["program"] == second["program"]
        assert first == {
            "module": "a",
            "capability": "module.invoke:b.hang",
            "program": first["program"],
            "allowed": False,
            "ts": first["ts"],
        }
        allowed = {"allowed": True, "ts": second["ts"], "same_program": True}
        assert await explained(daemon, "log") == allowed
        assert await explained(daemon, "log", "b") is None
    changed = caller(tmp_path, "a", "plain", capabilities=CAPABILITIES)
    async with daemon_with(tmp_path, changed, **options) as daemon:
        assert await remembered(daemon) == [first, second]
        assert await explained(daemon, "log") == {**allowed, "same_program": False}
        assert await own(daemon, ADA, "policy.forget", module="b") == {"forgotten": []}
        forgotten = await own(daemon, ADA, "policy.forget", module="a")
        assert forgotten == {"forgotten": [first, second]}
        assert await remembered(daemon) == []
        assert await explained(daemon, "log") is None
    async with daemon_with(tmp_path, modules[0], **options) as daemon:
        assert await remembered(daemon) == []
        await answered(daemon, LOG, "allow always")
        [anew] = await remembered(daemon)
        assert {**anew, "ts": second["ts"]} == second
