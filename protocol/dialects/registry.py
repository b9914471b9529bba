"""The dialects that a descriptor may name: one file each, and one line each in `DIALECTS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from protocol.connection import Connection, Memory, NewId, Request
from protocol.descriptor.model import Descriptor, Lifecycle, Restart, StdoutPolicy, Timeouts
from protocol.dialects.exec import ExecConnection
from protocol.dialects.mcp.calls import span_attributes
from protocol.dialects.mcp.connection import McpConnection
from protocol.dialects.module import ModuleConnection
from protocol.dialects.narratoria import NarratoriaConnection
from protocol.errors import Outcome

SpanAttributes = Callable[[Mapping[str, Any] | None, Request, Outcome], dict[str, str]]


class Dialect(msgspec.Struct, frozen=True):
    """Facts about a dialect that the daemon needs before a process exists."""

    connect: Callable[[Descriptor, NewId, Memory], Connection]
    lifecycles: tuple[Lifecycle, ...]
    """The first one is the default."""
    stdout: StdoutPolicy
    answers_probes: bool
    """Whether a process can be asked `health` and `describe`; else the host answers."""
    remembers: bool = False
    """Whether the `Memory` of its connections is kept beyond the daemon's life."""
    restart: Restart = Restart.PERMANENT
    """The default: servers of others may end when they are idle."""
    keeps_warm: bool = True
    """Whether a process per invocation can be started before its request is known."""
    concurrency: int = 1
    timeouts: Timeouts = Timeouts()
    patient: bool = False
    """Whether a process may work at one call for long, and at later ones meanwhile. Then unread
    requests in its pipe are no reason to replace it. `invoke_s` counts from the handing over of
    a call, and anew from each event of the call, up to `total_s`."""
    span_attributes: SpanAttributes | None = None
    """Attributes of a request for the journal, beside its op; from the description, if there is
    one. A request in a dialect with this has a `traceparent`, whether its caller had one or not."""


DIALECTS: dict[str, Dialect] = {
    "exec": Dialect(
        connect=ExecConnection,
        lifecycles=(Lifecycle.PER_INVOCATION,),
        stdout=StdoutPolicy.TOLERANT,
        answers_probes=False,
        keeps_warm=False,
    ),
    "mcp": Dialect(
        connect=McpConnection,
        lifecycles=(Lifecycle.PERSISTENT,),
        stdout=StdoutPolicy.TOLERANT,
        answers_probes=True,
        remembers=True,
        concurrency=16,
        timeouts=Timeouts(start_s=60.0, invoke_s=120.0),
        patient=True,
        restart=Restart.ON_DEMAND,
        span_attributes=span_attributes,
    ),
    "module": Dialect(
        connect=ModuleConnection,
        lifecycles=(Lifecycle.PERSISTENT, Lifecycle.PER_INVOCATION),
        stdout=StdoutPolicy.TOLERANT,
        answers_probes=True,
    ),
    "narratoria": Dialect(
        connect=NarratoriaConnection,
        lifecycles=(Lifecycle.PER_INVOCATION,),
        stdout=StdoutPolicy.STRICT,
        answers_probes=False,
    ),
}
