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
    """A descriptor refers to a variable that the daemon does not have, or that cannot be used."""


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
        environment[name] = expanded(f"transport.env.{name}", template, host)
    environment[INSTANCE_VARIABLE] = instance
    return environment


def expanded(field: str, template: str, host: Mapping[str, str]) -> str:
    """Return a template with the daemon's variables in the places of their names.

    Raises `UnsetVariableError` if it has none of a name; `field` is where the template stands.
    """

    def value_of(name: str) -> str:
        try:
            return host[name]
        except KeyError:
            message = f"{field} uses ${{{name}}}, which the daemon has not set"
            raise UnsetVariableError(message) from None

    return _REFERENCE.sub(lambda match: value_of(match[1]), template)


def variables_in(template: str) -> list[str]:
    """Return the names of the variables that a template uses."""
    return _REFERENCE.findall(template)
