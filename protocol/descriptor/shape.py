"""The shape of a descriptor: the rules of the model's fields, as rules of its objects."""

from __future__ import annotations

import re

from protocol.assets import is_media_type
from protocol.descriptor.model import (
    WHENCE,
    Descriptor,
    ExecOp,
    ExecTransport,
    Hook,
    McpTransport,
    Supervision,
    Transport,
)
from protocol.dialects.registry import DIALECTS
from protocol.shape import Choice, Map, Scalar, object_of, text

URL = re.compile(
    r"^https?://(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?"
    r"(/[0-9A-Za-z._~!$&'()*+,;=:@%/-]*)?$(?!\n)"
)
"""Where a service is: without a user, a password and a query, so that it can be shown."""


_EXEC_OP = object_of(
    ExecOp,
    closed=True,
    media_type=Scalar("a MIME type such as 'image/png'", (str,), is_media_type, {"type": "string"}),
    elsewhere=dict.fromkeys(
        ("timeout", "timeout_s", "timeouts"), "/supervision/timeouts/invoke_s, for all ops"
    ),
)
_EXEC = object_of(
    ExecTransport,
    closed=True,
    ops=Map(
        'an object of ops such as {"count":{"args":["-w"],"stdin":"{text}"}}',
        text("the name of an op, not empty"),
        _EXEC_OP,
    ),
    required=("ops",),
)
TRANSPORT = object_of(
    Transport,
    required=("type",),
    protocol=Choice(tuple(DIALECTS)),
    exec=_EXEC,
    mcp=object_of(McpTransport, closed=True),
)
SUPERVISION = object_of(Supervision, closed=True)
HOOK = object_of(Hook, closed=True)
DESCRIPTOR = object_of(
    Descriptor, without=WHENCE, transport=TRANSPORT, hook=HOOK, supervision=SUPERVISION
)
