"""Be `stdiod`, with an event loop that blocks for a while at each SIGUSR1."""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from supervisor.cli.main import main
from supervisor.daemon import serve
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.turns import SERVING

BLOCKED_S: Final = 0.3
CULPRIT: Final = "the soak"


def block() -> None:
    """Keep the event loop waiting, in the midst of a turn."""
    SERVING.begin(CULPRIT, "a deliberate wait")
    time.sleep(BLOCKED_S)
    SERVING.end()


def run(loop: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
    """Run the event loop as the daemon does, and listen for the signal."""

    async def listening(*given: Any) -> Any:
        token = trio.lowlevel.current_trio_token()
        signal.signal(signal.SIGUSR1, lambda *_: token.run_sync_soon(block))
        return await loop(*given)

    return run_timed(listening, *args, **options)


if __name__ == "__main__":
    serve.run_timed = run  # type: ignore[assignment, attr-defined]
    main()
