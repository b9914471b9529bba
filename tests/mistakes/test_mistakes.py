"""Whatever a newcomer did wrong, in whatever language, is said in a sentence that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.markdown import read
from tests.factories import descriptor
from tests.kernel.conftest import ask, daemon_with
from tests.mistakes.cases import (
    AT_DEADLINE,
    AT_ONCE,
    AT_START_S,
    LANGUAGES,
    MISTAKES,
    Mistake,
    command,
    fields,
    page,
)

NEVER_S = 10_000


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.name)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_mistake_is_named(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, language: str, case: Mistake
) -> None:
    program = command(language, case, tmp_path, tmp_path_factory.getbasetemp())
    if program is None:
        pytest.skip(f"{language} is not installed")
    said = ""
    # Where it takes long to begin, it has to be given longer before it can be told what is wrong.
    for wait_s in (NEVER_S,) if case.when == AT_ONCE else (0.5, 2, 8, 30):
        timeouts = {
            "start_s": NEVER_S if case.when == AT_DEADLINE else wait_s,
            "invoke_s": NEVER_S if case.when == AT_START_S else wait_s,
            "health_s": NEVER_S,
            "describe_s": NEVER_S,
            "exit_s": 60,
        }
        said = await said_of(tmp_path, program, timeouts, case)
        if case.said in said:
            return
    pytest.fail(said)


async def said_of(
    folder: Path, program: list[str], timeouts: dict[str, float], case: Mistake
) -> str:
    """Return what a caller is told, or what the last process is said to have died of."""
    supervision: dict[str, Any] = {
        "timeouts": timeouts,
        "backoff": {"initial_s": NEVER_S, "max_s": NEVER_S},
        "start": "lazy",
    }
    module = descriptor(folder, program, supervision=supervision, **fields(case))
    async with daemon_with(folder, module) as daemon:
        document = await ask(daemon, "m", "go").document()
        if document["ok"] and not case.lines:
            warned = [f"{one['message']}: {one['line_excerpt']}" for one in document["warnings"]]
            return "; ".join(warned) or str(document["result"])
        if case.starts and not case.lines:
            return str(document["error"]["message"])
        fleet = daemon.fleet
        died = await fleet.wait_until(lambda: fleet.modules["m"].last_exit)
        return died.message


def test_the_page_is_up_to_date() -> None:
    assert read("docs/mistakes.md") == page()
