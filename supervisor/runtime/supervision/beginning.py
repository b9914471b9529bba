"""Begin with a process of a module: its dialogue and its incarnation, as its descriptor says."""

from __future__ import annotations

import msgspec

from protocol.descriptor.model import Descriptor
from protocol.dialects import DIALECTS
from supervisor.runtime.process.dialogue import Dialogue, Receiver
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.process.opening import Opening
from supervisor.runtime.supervision.life import Setting

TRACEPARENT = "TRACEPARENT"
"""The variable in which a process has the trace context of its request, as of OpenTelemetry."""


def begin_dialogue(setting: Setting, instance: str, receiver: Receiver) -> Dialogue:
    connect = DIALECTS[setting.descriptor.transport.protocol].connect
    host = setting.host
    connection = connect(setting.descriptor, host.next_request_id, setting.recollection.memory)
    return Dialogue(instance, connection, receiver, host.deadlines, setting.taps)


async def incarnate(
    setting: Setting,
    dialogue: Dialogue,
    opening: Opening | None = None,
    traceparent: str | None = None,
) -> Incarnation:
    """Start a process for a dialogue, which gave the `opening`; raises `SpawnError`.

    The `traceparent` is that of its one request. Until it is run it is not read, nor seen to end.
    """
    host, timeouts = setting.host, setting.descriptor.supervision.timeouts
    descriptor = _with_arguments(setting.descriptor, dialogue.arguments)
    variables = {} if traceparent is None else {TRACEPARENT: traceparent}
    process = await host.containers.spawn(descriptor, dialogue.instance, opening, variables)
    setting.unset_variables[:] = process.unset_variables
    return Incarnation(
        dialogue.instance,
        process,
        dialogue,
        setting.log,
        exit_s=timeouts.exit_s,
        stop_s=timeouts.stop_s,
        taps=setting.taps,
        parting=lambda: host.shutting_down,
    )


def _with_arguments(descriptor: Descriptor, arguments: tuple[str, ...]) -> Descriptor:
    if not arguments:
        return descriptor
    transport = descriptor.transport
    transport = msgspec.structs.replace(transport, command=(*transport.command, *arguments))
    return msgspec.structs.replace(descriptor, transport=transport)
