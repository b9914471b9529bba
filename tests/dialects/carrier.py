"""It emits bytes, and says anew what it is whenever it likes.

{"id": "r1", "bytes": base64, "of": asset, "last": bool}
{"now": description}
{"alive": "r1" or null}
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from protocol.connection import Alive, Described, EventReceived, Events, Quarantined
from protocol.errors import Reason
from protocol.events import AssetBytes
from protocol.json_line import Fault, excerpt
from protocol.replies import DescribeReply
from tests.dialects.lines import GreetedConnection


class CarrierConnection(GreetedConnection):
    def hears(self, message: dict[str, Any], line: bytes) -> Events:
        try:
            if message.get("id") in self.open and "bytes" in message:
                return [EventReceived(message["id"], carried(message))]
            if "now" in message:
                msgspec.convert(message["now"], DescribeReply)
                return [Described(message["now"])]
        except (msgspec.ValidationError, binascii.Error, TypeError) as error:
            return [Quarantined(Fault(Reason.INVALID_EVENT, str(error), excerpt(line)))]
        if "alive" in message:
            return [Alive()]
        return super().hears(message, line)


def carried(message: dict[str, Any]) -> AssetBytes:
    return AssetBytes(
        asset_id=str(message.get("of")),
        kind="image",
        media_type="image/png",
        data=base64.b64decode(message["bytes"], validate=True),
        last=bool(message.get("last")),
    )
