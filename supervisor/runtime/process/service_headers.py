"""The headers that a service gets, with the daemon's variables in them, and what is secret of that.

No part of the HTTP client: `validate` and `doctor` ask here, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from protocol.descriptor.model import Transport
from supervisor.runtime.process.environment import UnsetVariableError, expanded, variables_in

SECRET_CHARS = 8
"""A shorter value of a variable is no secret worth the name, and may be a part of any word."""

_UNFIT = re.compile(r"[^\t\x20-\x7e]")


def service_headers(transport: Transport, host: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a descriptor; raises `UnsetVariableError`, which names no value."""
    found: dict[str, str] = {}
    for name, template in transport.headers.items():
        field = f"transport.headers.{name}"
        found[name] = expanded(field, template, host, defaults=transport.expand).strip()
        if _UNFIT.search(found[name]):
            words = f"{field} has a character, from a variable, that no header may have"
            raise UnsetVariableError(words)
    return found


def header_secrets(transport: Transport, host: Mapping[str, str]) -> list[str]:
    """Return the values of the variables in the headers, the longest first."""
    names = {name for template in transport.headers.values() for name in variables_in(template)}
    values = {host[name] for name in names if len(host.get(name, "")) >= SECRET_CHARS}
    return sorted(values, key=len, reverse=True)
