"""Those who take part in an invocation: who asked, who guards it, who serves its module's calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from protocol.connection import HostCalled
from protocol.errors import Outcome
from protocol.events import Progress
from protocol.response import Response
from supervisor.policy.verdict import Stopped
from supervisor.runtime.host_results import HostResults

if TYPE_CHECKING:
    from supervisor.kernel.begin_order import BeginOrder
    from supervisor.kernel.invocation import Invocation


class Client(Protocol):
    """Whoever asked; none of its methods may block."""

    def event(self, event: Progress, line: bytes | None) -> None:
        """Take an event of the invocation.

        `line` is the module's own (`EventReceived.line`), if the event is as the module made it.
        """

    def finished(self, response: Response) -> None:
        """Take the response; called once, and last."""

    def congested(self) -> bool:
        """Whether events should not come faster for now."""


class Guard(Protocol):
    """Whoever decides whether a request is served, and what of its outcome is told."""

    injected: list[dict[str, Any]]
    """What is to be put into the context; it goes into the response."""

    def begin(self) -> None:
        """Decide; then have it served (`proceed`) or refused (`refuse`)."""

    def takes(self, outcome: Outcome) -> bool:
        """Take an outcome to decide on, and `conclude` later; False if there is nothing to say."""

    def give_up(self, stopped: Stopped) -> Stopped:
        """Decide nothing any more; returns the reason, with what was waited for."""

    @property
    def question(self) -> str | None:
        """The id of the question to a person that is open, if one is."""


class Calls(Protocol):
    """The calls to the host that a module makes while it serves one request."""

    def take(self, asked: HostCalled, results: HostResults) -> None:
        """Accept a call, or refuse it at once."""

    def end(self, stopped: Stopped) -> None:
        """End all: the request has ended."""

    @property
    def waiting(self) -> bool:
        """Whether the module waits for the host to answer one."""

    @property
    def questions(self) -> list[str]:
        """The ids of the questions to people, whether a call is allowed, that are open."""


class Submit(Protocol):
    """The way in for invocations (kernel.invocations)."""

    def __call__(
        self,
        tool: str,
        content: Mapping[str, Any],
        client: Client,
        *,
        parent: Invocation | None = None,
        order: BeginOrder | None = None,
    ) -> Invocation | None:
        """Accept an invocation, or answer at once why not."""
