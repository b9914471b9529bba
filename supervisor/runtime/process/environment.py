"""Build a module's environment: an allow-list, so that the daemon's secrets do not leak."""

from __future__ import annotations

import re
from collections.abc import Mapping

from protocol.descriptor.model import Transport
from supervisor.runtime.containment.ledger import INSTANCE_VARIABLE

ALLOWED = frozenset({"PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"})
ALLOWED_PREFIXES = ("LC_", "XDG_")

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class UnsetVariableError(Exception):
    """A descriptor's `env` refers to a variable that the daemon does not have."""


def module_environment(
    transport: Transport, host: Mapping[str, str], instance: str
) -> dict[str, str]:
    """Return the variables a process gets: the allowed ones, `pass_env`, then `env`.

    `${NAME}` in an `env` value is the daemon's own NAME; raises `UnsetVariableError` if it has
    none. A name in `pass_env` that is not set is passed on as just that: not set.
    """
    environment = {
        name: value
        for name, value in host.items()
        if name in ALLOWED or name.startswith(ALLOWED_PREFIXES) or name in transport.pass_env
    }
    for name, template in transport.env.items():
        environment[name] = _expand(name, template, host)
    environment[INSTANCE_VARIABLE] = instance
    return environment


def _expand(name: str, template: str, host: Mapping[str, str]) -> str:
    def value_of(match: re.Match[str]) -> str:
        try:
            return host[match[1]]
        except KeyError:
            message = f"transport.env.{name} uses ${{{match[1]}}}, which the daemon has not set"
            raise UnsetVariableError(message) from None

    return _REFERENCE.sub(value_of, template)
