"""Whatever a newcomer did wrong, in whatever language, is said in a sentence that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.policy.lifecycle import State
from tests.docs.markdown import read
from tests.factories import descriptor
from tests.mistakes.cases import LANGUAGES, MISTAKES, Mistake, command, page
from tests.runtime.conftest import Running, host, running  # noqa: F401 - fixtures

NEVER_S = 10_000


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.name)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_mistake_is_named(
    running: Running,  # noqa: F811
    tmp_path: Path,
    language: str,
    case: Mistake,
) -> None:
    program = command(language, case, tmp_path)
    if program is None:
        pytest.skip(f"{language} is not installed")
    said = ""
    # Where it takes long to begin, it has to be given longer before it can be told what is wrong.
    for start_s in (0.5, 2, 8, 30) if case.when == "at start_s" else (60,):
        timeouts = {"start_s": start_s, "exit_s": 60}
        backoff = {"initial_s": NEVER_S, "max_s": NEVER_S}
        supervision = {"timeouts": timeouts, "backoff": backoff}
        module = running(descriptor(tmp_path, program, supervision=supervision))
        module.start("the test")
        await running.until(lambda: running.module.state is State.BACKOFF)
        assert module.last_exit is not None
        said = module.last_exit.message
        if case.said in said:
            return
    pytest.fail(said)


def test_the_page_is_up_to_date() -> None:
    assert read("docs/mistakes.md") == page()
