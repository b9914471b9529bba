from __future__ import annotations

from pathlib import Path

import pytest

from protocol.events import Progress
from supervisor.kernel.kernel import RefusedError
from tests.kernel.conftest import daemon_with, run_op


async def nobody(event: Progress | None) -> None:
    raise AssertionError(event)


@pytest.mark.fault(29)
@pytest.mark.parametrize("pattern", ["*a", "a*b", "a*b*", "**", "*a*" * 60 + "b"])
async def test_a_star_that_is_not_the_end_of_a_name_is_refused(
    pattern: str, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path) as daemon:
        with pytest.raises(RefusedError, match="has a `\\*` that is not its end") as refused:
            await run_op(daemon, "ui.subscribe", {"events": ["toast", pattern]}, nobody)
        assert refused.value.failure.details["pointer"] == "/events/1"
