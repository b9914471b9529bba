"""Of `test_asking_people.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

import trio

from tests.kernel.conftest import Asker, daemon_with
from tests.kernel.host_calls import allowing, caller, payload, question
from tests.kernel.test_asking_people import MAY
from tests.principals import ADA


async def test_a_question_dies_with_its_request_and_names_itself(tmp_path: Path) -> None:
    module = caller(tmp_path, "a", capabilities=MAY)
    async with daemon_with(tmp_path, module, operator=allowing(tmp_path)) as daemon:
        asker = Asker()
        calls = {"calls": [payload("user.ask", message="Who?")], "lines": []}
        content = {"op": "calls", "args": calls, "timeout_s": 60}
        submitted = daemon.requests.invoke(ADA, "a", content, asker)
        assert submitted is not None
        id_ = (await question(daemon))["id"]
        submitted.expired()
        assert f"`stdiod approve {id_}`" in (await asker.document())["error"]["message"]
        while daemon.approvals.waiting(ADA):
            await trio.lowlevel.checkpoint()
