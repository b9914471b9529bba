"""Bounds on what logins hold (`login.open`), small ones."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.kernel.kernel import Capacity, HeldBounds
from tests.faces.in_process import connected
from tests.faces.test_logins import Gateway, reason
from tests.factories import actor
from tests.kernel.conftest import daemon_with


async def test_of_a_login_with_too_much_open_requests_are_refused_and_of_no_other(
    tmp_path: Path,
) -> None:
    held = HeldBounds(party=1 << 20)
    modules = actor(tmp_path), actor(tmp_path, name="n")
    async with (
        daemon_with(tmp_path, *modules, bounds=Capacity(held=held)) as daemon,
        connected(daemon) as client,
    ):
        one = Gateway(client)
        first, second = await one.opened(uid=os.geteuid()), await one.opened(uid=os.geteuid())
        for number in range(3):
            args = {"pad": "x" * 600_000}
            await one.begin(f"big{number}", "m", "invoke", {"op": "hang", "args": args}, first)
        assert reason(await one.done("big2")) == "unreachable/queue_full"
        assert reason(await one.invoke(first, "echo")) == "unreachable/queue_full"
        assert (await one.invoke(second, "echo", "n"))["ok"]
        assert (await one.invoke(None, "echo", "n"))["ok"]
