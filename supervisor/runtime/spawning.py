"""Spawn a process of a module and hold it, as its descriptor says."""

from __future__ import annotations

from protocol.connection import Connection
from supervisor.runtime.incarnation import Incarnation
from supervisor.runtime.life import Setting
from supervisor.runtime.opening import Opening
from supervisor.runtime.process import spawn


async def incarnate(
    setting: Setting, instance: str, connection: Connection, opening: Opening | None = None
) -> Incarnation:
    """Start a process that speaks over `connection`; raises `SpawnError`.

    It is to be run: until then nobody reads it, and nobody sees it end. The `opening` was taken
    from the connection.
    """
    host, timeouts = setting.host, setting.descriptor.supervision.timeouts
    process = await spawn(setting.descriptor, host.environment, instance, host.custody, opening)
    return Incarnation(
        instance,
        process,
        connection,
        setting.log,
        exit_s=timeouts.exit_s,
        stop_s=timeouts.stop_s,
        taps=setting.taps,
        parting=lambda: host.shutting_down,
    )
