"""The shape of a descriptor: the rules of the model's fields, as rules of its objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, get_type_hints

import msgspec

from protocol.assets import is_media_type
from protocol.descriptor.model import (
    WHENCE,
    Descriptor,
    ExecOp,
    ExecTransport,
    Hook,
    Supervision,
    Transport,
)
from protocol.dialects.registry import DIALECTS
from protocol.shape import Choice, Fields, Map, Rule, Scalar, text

URL = re.compile(
    r"^https?://(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?"
    r"(/[0-9A-Za-z._~!$&'()*+,;=:@%/-]*)?$(?!\n)"
)
"""Where a service is: without a user, a password and a query, so that it can be shown."""


def _fields(
    kind: type[msgspec.Struct],
    *,
    required: tuple[str, ...] = (),
    closed: bool = True,
    elsewhere: Mapping[str, str] = {},
    **rules: Rule,
) -> Fields:
    """Return the rule of an object; `rules` are those of fields that the model cannot name."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {
        name: rules[name] if name in rules else _rule(hint)
        for name, hint in hints.items()
        if name not in WHENCE
    }
    return Fields(fields, required=required, closed=closed, elsewhere=elsewhere)


def _rule(hint: Any) -> Rule:
    """Return the rule that a type is annotated with, or else that of the type."""
    for one in getattr(hint, "__metadata__", ()):
        if isinstance(one, Rule):
            return one
    if hint is bool:
        return Scalar("true or false", (bool,))
    return Choice(tuple(hint)) if issubclass(hint, StrEnum) else _fields(hint)


_EXEC_OP = _fields(
    ExecOp,
    media_type=Scalar("a MIME type such as 'image/png'", (str,), is_media_type, {"type": "string"}),
    elsewhere=dict.fromkeys(
        ("timeout", "timeout_s", "timeouts"), "/supervision/timeouts/invoke_s, for all ops"
    ),
)
_EXEC = _fields(
    ExecTransport,
    ops=Map(
        'an object of ops such as {"count":{"args":["-w"],"stdin":"{text}"}}',
        text("the name of an op, not empty"),
        _EXEC_OP,
    ),
    required=("ops",),
)
TRANSPORT = _fields(
    Transport, protocol=Choice(tuple(DIALECTS)), exec=_EXEC, required=("type",), closed=False
)
SUPERVISION = _fields(Supervision)
HOOK = _fields(Hook)
DESCRIPTOR = _fields(
    Descriptor,
    transport=TRANSPORT,
    hook=HOOK,
    supervision=SUPERVISION,
    required=("name", "kind", "transport"),
    closed=False,
)
