"""The made-up dialects, as the registry would have them."""

from __future__ import annotations

from protocol.descriptor import Lifecycle, StdoutPolicy
from protocol.dialects import Dialect
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
