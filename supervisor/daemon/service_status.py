"""Keep the service manager's STATUS line true: how many modules are ready, which are not well."""

from __future__ import annotations

from supervisor.daemon.sd_notify import Notifier
from supervisor.kernel.daemon import Daemon
from supervisor.policy.lifecycle import SERVES, State
from supervisor.runtime.supervision.fleet import Fleet

NAMED = 5
"""How many modules that are not well the line names."""

_UNWELL = frozenset({State.BACKOFF, State.FAILED, State.DEGRADED})


async def tell_status(daemon: Daemon, notifier: Notifier) -> None:
    """Say how things stand after each change, until cancelled."""
    said = ""

    def news() -> str | None:
        line = status_line(daemon.fleet)
        return line if line != said else None

    # Nobody listening is the common case; the line is not made for nobody.
    while notifier.listens:
        said = await daemon.fleet.wait_until(news)
        notifier.status(said)


def status_line(fleet: Fleet) -> str:
    """Put the state of the fleet into one line."""
    modules = list(fleet.modules.values())
    serving = sum(module.state in SERVES for module in modules)
    parts = [f"{serving} of {len(modules)} modules ready"]
    unwell = [f"{module.name} is {module.state}" for module in modules if module.state in _UNWELL]
    parts += unwell[:NAMED]
    if len(unwell) > NAMED:
        parts.append(f"{len(unwell) - NAMED} more are not well")
    if fleet.quarantined:
        parts.append(f"{len(fleet.quarantined)} quarantined")
    return "; ".join(parts)
