"""A `host_call` line of a module: a call to serve, a call to refuse, or a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from protocol.connection import HostCalled, Notice, Stray, Warned
from protocol.errors import Reason
from protocol.host_call import FEATURE, BadCall, read_host_call
from protocol.json_line import Fault, excerpt
from protocol.replies import Operation

if TYPE_CHECKING:
    from protocol.dialects.module_lines import OpenRequest


class Refused(msgspec.Struct, frozen=True):
    """A call that is refused, with the words; `stray`: its request is not open."""

    request_id: str | None
    call_id: str
    message: str
    stray: bool = False


def received_call(
    line: bytes, document: dict[str, Any], request: OpenRequest | None, open_requests: int
) -> HostCalled | Refused | Warned | Stray:
    """Read a line; `request` is the one it names or can only mean, if there is one."""
    named = document.get("requestId")
    call = read_host_call(document)
    if isinstance(call, BadCall):
        if call.call_id is not None:
            return _refused(request, named, call.call_id, call.message)
        if request is None:
            return Stray(excerpt(line))
        return Warned(request.request_id, Notice("bad_host_call", call.message, excerpt(line)))
    if request is None:
        return _refused(request, named, call.call_id, _no_request(named, open_requests))
    if request.operation is not Operation.INVOKE:
        words = f"a module can call the host while it serves an invoke, not a {request.operation}"
        return _refused(request, named, call.call_id, words)
    return HostCalled(request.request_id, call, len(line))


def unannounced(line: bytes, *, reads_results: bool) -> Fault:
    """Say why a call is not accepted.

    The module announced none, or could read no result. `reads_results` is whether its input stays
    open after the request.
    """
    words = f'the module\'s answer to describe does not say "features": ["{FEATURE}"]'
    if not reads_results:
        words = 'only a module with transport.lifecycle "persistent" can call the host'
    words = f"{FEATURE!r} is not an event type here: {words}"
    return Fault(Reason.UNKNOWN_TYPE, words, excerpt(line))


def _refused(request: OpenRequest | None, named: object, call_id: str, words: str) -> Refused:
    if request is not None:
        return Refused(request.request_id, call_id, words)
    return Refused(named if isinstance(named, str) else None, call_id, words, stray=True)


def _no_request(named: object, count: int) -> str:
    if named is None:
        state = "none is open" if count == 0 else f"{count} are open"
        return f'the call names no "requestId", and {state}'
    if not isinstance(named, str):
        return '"requestId" of the call must be a string'
    return f"the request {named!r:.80} of the call is not open"
