"""The kinds of life there are, by what a transport says; asked here and nowhere else.

A new kind is a subclass of `life.Life` and an entry in `LIVES`. What is written down
there is all that supervision knows of a kind: worker, module and fleet never ask which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from protocol.descriptor.model import Lifecycle, Transport
from supervisor.runtime.supervision.life import Life, Setting
from supervisor.runtime.supervision.per_invocation import PerInvocationLife
from supervisor.runtime.supervision.persistent import PersistentLife
from supervisor.runtime.supervision.preparing import PreparingLife
from supervisor.runtime.supervision.service import ServiceLife

if TYPE_CHECKING:
    from supervisor.runtime.supervision.worker import Worker


class LifeKind(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known of a kind of life before one begins."""

    begin: Callable[[Setting, Worker], Life]
    takes_turn: bool
    """Whether a start is work for this machine, of which only so much is begun at once."""
    is_instance: bool
    """Whether a state is that of an instance, and told with its id; else it is the module's own."""


LIVES: dict[tuple[str, Lifecycle], LifeKind] = {
    ("stdio", Lifecycle.PERSISTENT): LifeKind(
        begin=PersistentLife, takes_turn=True, is_instance=True
    ),
    # Nothing runs here, and so there is nothing to wait for.
    ("http", Lifecycle.PERSISTENT): LifeKind(begin=ServiceLife, takes_turn=False, is_instance=True),
    # A check of a program is no start to speak of, and no process of the module's made it ready.
    ("stdio", Lifecycle.PER_INVOCATION): LifeKind(
        begin=PerInvocationLife, takes_turn=False, is_instance=False
    ),
}

PREPARING = LifeKind(begin=PreparingLife, takes_turn=True, is_instance=True)
"""What comes before the first of a module that has a `prepare`, whatever its transport."""


def life_kind(transport: Transport) -> LifeKind:
    return LIVES[transport.type, transport.lifecycle]
