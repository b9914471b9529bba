"""It answers silently: a `ping` has no event, and goes nowhere before its `pong` is written.

    {"ping": 1}                                       -> {"pong": 1}
    {"call": "c1", "method": ..., "params": ...}      -> {"result_of": "c1", "said": ...}

Its calls are of no request.
"""

from __future__ import annotations

from typing import Any

from protocol.connection import NOTHING, Events, HostCalled, Quarantined
from protocol.host_call import BadCall, read_host_call
from protocol.json_line import Fault, excerpt
from tests.dialects.lines import GreetedConnection


class SilentConnection(GreetedConnection):
    def hears(self, message: dict[str, Any], line: bytes) -> Events:
        if "ping" in message:
            self.tell(pong=message["ping"])
            return NOTHING
        if "call" in message:
            payload = {"call_id": message["call"], **message}
            call = read_host_call({"payload": payload})
            if isinstance(call, BadCall):
                return [Quarantined(Fault("invalid_event", call.message, excerpt(line)))]  # type: ignore[arg-type]
            return [HostCalled(None, call, len(line))]
        return super().hears(message, line)
