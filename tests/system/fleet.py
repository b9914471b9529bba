"""The modules of the verdict tests, on one daemon: one of each lifecycle and dialect.

After each verdict a witness must still answer and the module in question be usable: a fault
disturbs nobody else, and nothing for long.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.daemon import Daemon
from tests.system.descriptors import misbehaving, narratoria, per_invocation, timeouts

SHORT_S = 0.3
"""A bound that is meant to run out."""


def modules(warm: int = 0, instances: int = 1) -> list[dict[str, object]]:
    """Return the descriptors; `warm` is for those that start a process per invocation.

    Not for one that does not wait for its input. `instances` is for the others, but the witness.
    """
    pool: dict[str, Any] = {"instances": {"min": instances, "max": instances}}
    hasty = timeouts(health_s=SHORT_S, stop_s=SHORT_S)
    quiet = {**timeouts(stop_s=SHORT_S), "silence_s": SHORT_S}
    strict = misbehaving("strict", **pool)
    strict["transport"]["stdout"] = "strict"
    tolerant = narratoria("tolerant", warm=warm)
    tolerant["transport"]["stdout"] = "tolerant"
    return [
        misbehaving("witness"),
        misbehaving("steady", **pool),
        misbehaving("hasty", health={"interval_s": 3600}, timeouts=hasty, **pool),
        misbehaving(
            "nameless", "ids=no", timeouts=timeouts(exit_s=SHORT_S, stop_s=SHORT_S), **pool
        ),
        strict,
        per_invocation("once", concurrency=4, warm=warm),
        narratoria("tool", concurrency=4, warm=warm),
        tolerant,
        narratoria(
            "hasty_tool",
            timeouts=timeouts(exit_s=SHORT_S, linger_s=SHORT_S, stop_s=SHORT_S),
            warm=warm,
        ),
        narratoria("heedless", "start=no_newline+exit"),
        narratoria("quiet_tool", timeouts=quiet, warm=warm),
        misbehaving("quiet", timeouts=quiet, **pool),
    ]


def assert_undisturbed(daemon: Daemon, module: str, witness_pid: int) -> None:
    """Fail unless the module serves again, and the witness as it always did."""
    assert daemon.usable(module).ok
    assert daemon.invoke("witness", word="hello").result == {"word": "hello"}
    assert daemon.pid("witness") == witness_pid


def module_of(request: pytest.FixtureRequest, otherwise: str) -> str:
    """Return the parameter `module` of a test."""
    callspec = getattr(request.node, "callspec", None)
    return otherwise if callspec is None else str(callspec.params.get("module", otherwise))
