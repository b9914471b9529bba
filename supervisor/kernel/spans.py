"""The spans of invocations that ended, where spans are wanted (docs/metrics.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from protocol.errors import Failure
from protocol.response import Response
from supervisor.policy.tally import OK, outcome_of

if TYPE_CHECKING:
    from supervisor.kernel.invocation import Invocation


class EndedSpan(msgspec.Struct, frozen=True, gc=False):
    """An invocation from acceptance to response; times are Unix time (s)."""

    traceparent: str
    """Its own: the trace and the span's id."""
    parent: str | None
    """The traceparent of the invocation that it was made for, in the same trace."""
    by_module: bool
    """Whether a module made it."""
    began: float
    ended: float
    module: str
    op: str
    request_id: str
    session_id: str | None
    outcome: str
    """One of `policy.tally.OUTCOMES`."""
    words: str | None
    """Why it failed."""


class Spans(Protocol):
    def ended(self, span: EndedSpan) -> None:
        """Take one; returns at once, and never raises."""

    def status(self) -> dict[str, Any]: ...


def ended_span(one: Invocation, response: Response) -> EndedSpan | None:
    """Return the span of an invocation; None if it began before spans were wanted."""
    traceparent = one.request.traceparent
    if traceparent is None:
        return None
    parent = one.parent
    failure = response.outcome if isinstance(response.outcome, Failure) else None
    return EndedSpan(
        traceparent,
        one.traceparent if parent is None else parent.request.traceparent,
        parent is not None,
        one.span.began,
        one.setting.host.wall_clock(),
        one.module.name,
        one.request.op,
        one.request_id,
        one.session_id,
        OK if failure is None else outcome_of(failure),
        None if failure is None else failure.message,
    )
