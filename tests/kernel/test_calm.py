"""When little is open, so that all that lives may be looked through for garbage."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.kernel.kernel import CALM_TASKS
from tests import factories
from tests.budget.conftest import CALM
from tests.budget.fake_process import without_processes
from tests.budget.turns import taking_turns
from tests.kernel.conftest import ask, daemon_with


async def test_a_daemon_of_many_open_requests_is_not_calm_though_they_have_no_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with taking_turns() as turns:
        without_processes(turns, monkeypatch)
        made = factories.descriptor(tmp_path, ["true"], supervision=CALM)
        async with daemon_with(tmp_path, made) as daemon:
            assert daemon.is_calm()
            askers = [ask(daemon, "m") for _ in range(CALM_TASKS + 1)]
            assert not daemon.is_calm()
            for asker in askers:
                assert (await asker.response()).ok
            assert daemon.is_calm()
