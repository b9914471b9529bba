"""Of `test_policy_prompts.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

from supervisor.kernel.host_calls.docket import Docket
from tests.kernel.conftest import Asker, daemon_with
from tests.kernel.host_calls import PROMPT, allowing, caller, error, payload, question, result
from tests.principals import ADA


async def test_a_deadline_that_a_question_outlasts_names_it(tmp_path: Path) -> None:
    operator = allowing(tmp_path, PROMPT)
    calls = {"calls": [payload("log", message="x")], "lines": []}
    async with daemon_with(tmp_path, caller(tmp_path, "a"), operator=operator) as daemon:
        asker = Asker()
        content = {"op": "calls", "args": calls, "timeout_s": 60}
        submitted = daemon.requests.invoke(ADA, "a", content, asker)
        assert submitted is not None
        id_ = (await question(daemon))["id"]
        submitted.expired()
        said = (await asker.document())["error"]
        assert said["details"]["reason"] == "deadline"
        assert f"`stdiod approve {id_}`" in said["message"]


async def test_a_time_of_a_call_that_a_question_outlasts_names_it(tmp_path: Path) -> None:
    operator = allowing(tmp_path, PROMPT)
    async with daemon_with(tmp_path, caller(tmp_path, "a"), operator=operator) as daemon:
        calls = {"calls": [payload("log", message="x")], "lines": []}
        asker = Asker()
        submitted = daemon.requests.invoke(ADA, "a", {"op": "calls", "args": calls}, asker)
        assert submitted is not None
        id_ = (await question(daemon))["id"]
        docket = submitted.guard()._host_calls
        assert isinstance(docket, Docket)
        (call,) = docket._open.values()
        call._expired()
        words = error(await result(asker), "timeout", "timeout")["message"]
        assert f"`stdiod approve {id_}`" in words
