"""The made-up dialects, as the registry would have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from protocol.descriptor.model import Descriptor, Lifecycle, StdoutPolicy
from protocol.dialects.registry import Dialect
from tests import factories
from tests.dialects import peers
from tests.dialects.argued import ArguedConnection
from tests.dialects.carrier import CarrierConnection
from tests.dialects.fallback import FallbackConnection
from tests.dialects.paged import PagedConnection
from tests.dialects.silent import SilentConnection


def _persistent(connect: type) -> Dialect:
    return Dialect(connect, (Lifecycle.PERSISTENT,), StdoutPolicy.TOLERANT, answers_probes=True)


FAKES: dict[str, Dialect] = {
    "silent": _persistent(SilentConnection),
    "paged": _persistent(PagedConnection),
    "fallback": _persistent(FallbackConnection),
    "carrier": _persistent(CarrierConnection),
    "argued": Dialect(
        ArguedConnection, (Lifecycle.PER_INVOCATION,), StdoutPolicy.TOLERANT, answers_probes=False
    ),
}


def speaking(folder: Path, dialect: str, *options: str, **fields: Any) -> Descriptor:
    """Make the descriptor of a module that speaks a made-up dialect; its process is a peer.

    The first of the `options` is the kind of peer, if that is not the dialect's own.
    """
    own = () if options and not options[0].startswith("-") else (dialect,)
    command = [*factories.PYTHON, str(Path(peers.__file__)), *own, *options]
    made = factories.descriptor(folder, command, name=peers.NAME, **fields)
    lifecycle = FAKES[dialect].lifecycles[0]
    transport = replace(made.transport, protocol=dialect, lifecycle=lifecycle)
    return replace(made, transport=transport)
