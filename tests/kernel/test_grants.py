"""What modules are granted: the policy as it is read, and answers that are remembered."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import Kernel, OperatorPolicy
from tests.factories import PYTHON, descriptor
from tests.kernel.conftest import daemon_with
from tests.kernel.host_calls import CALLER, allowing, error, payload, results


def own_program(folder: Path) -> tuple[Descriptor, Path]:
    """Return a caller whose program is a file of its own, and that file."""
    program = folder / "program.py"
    program.write_text(Path(CALLER).read_text())
    made = descriptor(
        folder, [*PYTHON, str(program), "a"], name="a", capabilities=["log", "session.read"]
    )
    return made, program


async def logged(daemon: Kernel) -> dict[str, Any]:
    [result] = await results(daemon, payload("log", message="x"))
    return result


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
async def test_a_file_that_became_none_keeps_neither_a_reload_nor_the_end_waiting(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    module, _ = own_program(tmp_path)
    operator = allowing(tmp_path, 'allow = ["log"]')
    path = tmp_path / "policy.toml"
    with trio.fail_after(60):
        async with daemon_with(tmp_path, module, operator=operator) as daemon:
            path.unlink()
            make(path)
            await daemon.reloads.reload("a test", if_needed=True)
            assert "policy.toml: " in (operator.problem or "")
            assert operator.policy.everywhere.allow


def test_a_file_that_became_bad_leaves_the_last_good_one_in_use(tmp_path: Path) -> None:
    operator = allowing(tmp_path, 'allow = ["log"]')
    path = tmp_path / "policy.toml"
    before = operator.policy
    path.write_text("allow = 1")
    with structlog.testing.capture_logs() as logged_lines:
        operator.take(operator.look())
    assert operator.policy is before
    status = operator.status([])
    assert status is not None
    [line] = logged_lines
    assert line["event"] == "the policy is bad; the last good one stays in use"
    assert line["words"] == status["problem"]
    assert "policy.toml: allow" in status["problem"]
    path.write_text('mode = "prompt"\n[modules.nobody]\n')
    operator.take(operator.look())
    status = operator.status(["somebody"])
    assert status is not None
    assert (status["mode"], status["problem"]) == ("prompt", None)
    assert "nobody" in status["findings"][0]


def test_without_a_file_there_is_nothing_to_read_or_show() -> None:
    operator = OperatorPolicy()
    operator.take(operator.look())
    assert operator.status(["m"]) is None
    assert operator.findings(["m"]) == []


async def test_a_reload_reads_the_policy_again(tmp_path: Path) -> None:
    module, _ = own_program(tmp_path)
    operator = allowing(tmp_path, "")
    async with daemon_with(tmp_path, module, operator=operator) as daemon:
        error(await logged(daemon), "denied", "forbidden")
        (tmp_path / "policy.toml").write_text('allow = ["log"]')
        await daemon.reloads.reload("a test", if_needed=True)
        assert not operator.problem
        assert operator.policy.everywhere.allow
