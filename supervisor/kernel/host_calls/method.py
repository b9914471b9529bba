"""A method that a module can call, and the services that methods use.

A call is checked by `params` and `required` first. `capability` is made from it, and refuses calls
that make no sense; `begin` does at once what can be done at once. Both may raise `RefusedError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import trio

from protocol.errors import Failure, Reason
from protocol.problem import described, did_you_mean
from supervisor.kernel.grants.grants import Grants
from supervisor.kernel.hooks.approvals import Approvals
from supervisor.kernel.host_calls.open_call import OpenCall
from supervisor.kernel.parties import Invoke, RefusedError
from supervisor.kernel.taking_effect import Effects
from supervisor.runtime.checking.checks import Checks
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.supervision.fleet import Fleet


class Host(msgspec.Struct, frozen=True, kw_only=True):
    invoke: Invoke
    effects: Effects
    grants: Grants
    approvals: Approvals
    checks: Checks
    deadlines: Deadlines
    fleet: Fleet
    nursery: trio.Nursery


class Method:
    names: tuple[str, ...]
    """Its names; the first is the one in the documents."""

    params: Mapping[str, type] = MappingProxyType({})
    """Its params; a float may be written as a whole number."""

    required: tuple[str, ...] = ()
    """The params that must be there."""

    def capability(self, call: OpenCall, host: Host) -> str:
        """Return the capability that the call needs; raises `RefusedError` over a bad call."""
        del call, host
        return self.names[0]

    def begin(self, call: OpenCall, host: Host) -> None:
        """Do it, or begin to; the call is then answered once. Raises `RefusedError`."""
        raise NotImplementedError


_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def check_params(method: Method, params: Mapping[str, Any]) -> None:
    """Check the params of a call; raises `RefusedError`."""
    known = method.params
    for key, value in params.items():
        wanted = known.get(key)
        if wanted is None:
            near = did_you_mean(key, known) or f"; there are {', '.join(known) or 'none'}"
            raise RefusedError(invalid(f"there is no param {described(key)}{near}"))
        if not _is(value, wanted):
            words = f'"{key}" is {described(value)}, it must be {_KINDS[wanted]}'
            raise RefusedError(invalid(words))
    for key in method.required:
        if key not in params:
            raise RefusedError(invalid(f'"{key}" is missing, it must be {_KINDS[known[key]]}'))


def _is(value: object, wanted: type) -> bool:
    if wanted is bool or not isinstance(value, bool):
        return isinstance(value, (int, float) if wanted is float else wanted)
    return False


def invalid(words: str) -> Failure:
    """Return the failure of a call whose params are wrong."""
    return Failure.because(Reason.MALFORMED_REQUEST, f"params of the call: {words}")
