r"""The start of a server: its era is negotiated, then its lists are fetched (`lists`).

    server/discover --supports the newer revision--> modern
      |  \--supports older ones only, another error, 1 s of silence--> initialize
      \--the process ends--> a second process, once, with initialize

    initialize --a revision we know--> legacy
      |  \--an error that names the revisions it supports--> initialize with one of those, once
      \--anything else--> StartFailed

After a silence both questions may be answered, since the server may only have been slow: the first
answer that agrees to something counts. Of a pinned era only its own question is asked. The
agreement is remembered for later processes, of later daemons too, which then have all of `start_s`
to answer. If it proves wrong, by a refusal or an exit, the other question is asked as if nothing
were known; a negotiation that fails forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from protocol.connection import Memory, Received, StartAgain, StartFailed, Wait
from protocol.descriptor.model import Descriptor, EraPin
from protocol.dialects.mcp.requests import CLIENT, Agreed, McpRequests, OwnQuestion
from protocol.dialects.mcp.vocabulary import DISCOVER, INITIALIZE, LEGACY, META, MODERN, Era
from protocol.json_line import Fault
from protocol.jsonrpc import RpcError, RpcReply
from protocol.problem import quoted

DISCOVER_S = 1.0
"""A server of the older era may ignore an unknown method. Node and Python start up in less than
this, and a late answer is still taken."""


class Negotiation:
    def __init__(
        self,
        descriptor: Descriptor,
        requests: McpRequests,
        memory: Memory,
        events: list[Received],
        agree: Callable[[Agreed], None],
    ) -> None:
        """`agree` takes the result, unless the start fails."""
        self.waits: tuple[Wait, ...] = ()
        self.is_open = True
        self._pin = descriptor.transport.mcp.era
        self._start_s = descriptor.supervision.timeouts.start_s
        self._requests = requests
        self._memory = memory
        self._events = events
        self._agree = agree
        self._questions = self._negotiate()

    def begin(self) -> None:
        next(self._questions)

    def fail(self, words: str) -> None:
        """End it because of what the server printed."""
        if self.is_open:
            self._end(_bad_start(words))

    def exited(self) -> StartAgain | None:
        """Return `StartAgain` if the process ended because of a question, as it seems."""
        self.waits = ()
        if not self.is_open:
            return None
        self.is_open = False
        known = self._memory.pop("era", None)
        if self._pin is not EraPin.AUTO:
            return None
        if self._requests.asks(DISCOVER):
            # However late: the server may have been slow to read a question it does not know.
            self._memory["initialize_next"] = True
            words = (
                f"ended when it was asked {DISCOVER}, with which the newer MCP begins; some older"
            )
            return StartAgain(f"{words} servers do, so the next process is asked {INITIALIZE}")
        if known is None or not self._requests.asks(INITIALIZE):
            return None
        return StartAgain(f"ended when it was asked {INITIALIZE}, as those before it were")

    def _negotiate(self) -> Generator[None, tuple[str, RpcReply] | Wait, Agreed | StartFailed]:
        """Ask one question after the other until a revision is agreed on, or there is no use."""
        known = self._memory.get("era")
        again = self._memory.pop("initialize_next", False) or known == Era.LEGACY
        is_older = self._pin is EraPin.LEGACY or (self._pin is EraPin.AUTO and again)
        question, revision = INITIALIZE if is_older else DISCOVER, LEGACY[0]
        offered: list[str] = []
        is_brief = False
        while True:
            if question == DISCOVER:
                is_brief = self._pin is EraPin.AUTO and known is None and not offered
                self._ask(DISCOVER, {}, DISCOVER_S if is_brief else self._start_s)
            elif question == INITIALIZE:
                is_brief = False
                offered.append(revision)
                capabilities = {"capabilities": self._requests.client, "clientInfo": CLIENT}
                self._ask(INITIALIZE, {"protocolVersion": revision, **capabilities}, self._start_s)
            question = ""
            heard = yield
            if isinstance(heard, Wait):
                if not is_brief:
                    words = f"gave no {heard.for_what[3:]} in {heard.seconds:g} s"
                    return StartFailed("start_deadline", words, "start_s")
                question = INITIALIZE
                continue
            method, reply = heard
            supported = _supported(reply)
            said = _said(reply, supported)
            older = next((one for one in LEGACY if one in supported and one not in offered), None)
            if method == DISCOVER:
                if isinstance(reply, dict) and MODERN in supported:
                    server = _object(_object(reply, "_meta"), f"{META}serverInfo")
                    return _agreed(Era.MODERN, MODERN, reply, server)
                if not self._requests.asks(INITIALIZE):  # else its answer is still to come
                    words = self._why_over(said, offered, is_known=not supported or bool(older))
                    if words:
                        return _bad_start(words)
                    question, revision = INITIALIZE, older or LEGACY[0]
            elif isinstance(reply, dict):
                return _legacy(reply)
            elif isinstance(reply, Fault):
                return _bad_start(refused(INITIALIZE, reply))
            elif older is not None and len(offered) == 1:
                question, revision = INITIALIZE, older
            elif not self._requests.asks(DISCOVER):  # else it was only slow, and of the newer era
                if self._pin is not EraPin.AUTO or known is None:
                    return _bad_start(f"refused {INITIALIZE}{said}")
                self._memory.pop("era", None)
                known, question = None, DISCOVER

    def _why_over(self, said: str, offered: list[str], *, is_known: bool) -> str:
        """Return why `initialize` is of no use after a refused `server/discover`; empty if it is.

        `is_known`: a revision of the older era may be spoken.
        """
        if offered:
            return f"refused {INITIALIZE} and {DISCOVER}"
        if self._pin is EraPin.MODERN:
            return f"does not speak {MODERN}{said}"
        return "" if is_known else f"speaks no revision known here{said}"

    def _ask(self, method: str, params: dict[str, Any], seconds: float) -> None:
        self.waits = (Wait(seconds, f"an answer to {method}"),)
        self._requests.ask_own(method, params, self._answered)

    def _answered(self, question: OwnQuestion, reply: RpcReply) -> None:
        if self.is_open:
            self.go_on((question.method, reply))

    def go_on(self, heard: tuple[str, RpcReply] | Wait) -> None:
        """Take the method and answer of an open question, or the wait that is over."""
        try:
            self._questions.send(heard)
        except StopIteration as end:
            self._end(end.value)

    def _end(self, result: Agreed | StartFailed) -> None:
        self.is_open, self.waits = False, ()
        if isinstance(result, StartFailed):
            self._memory.pop("era", None)
            self._events.append(result)
        else:
            self._memory["era"] = str(result.era)
            self._requests.forget()
            self._requests.follow(result)
            self._agree(result)


def refused(method: str, reply: RpcError | Fault) -> str:
    """Say as a clause that a question was refused."""
    if isinstance(reply, Fault):
        return f"gave no answer to {method} that can be taken: {reply.message}"
    return f"answered {method} with the error {reply.code}: {quoted(reply.message)}"


def _bad_start(words: str) -> StartFailed:
    return StartFailed("bad_start", words)


def _legacy(result: dict[str, Any]) -> Agreed | StartFailed:
    revision = result.get("protocolVersion")
    if revision not in LEGACY:
        words = f"answered {INITIALIZE} with the revision {revision!r:.40}; known are "
        return _bad_start(words + ", ".join(LEGACY))
    return _agreed(Era.LEGACY, str(revision), result, {})


def _agreed(era: Era, revision: str, result: dict[str, Any], server: dict[str, Any]) -> Agreed:
    server = server or _object(result, "serverInfo")
    instructions = result.get("instructions")
    instructions = instructions if isinstance(instructions, str) else None
    return Agreed(era, revision, _object(result, "capabilities"), server, instructions)


def _object(holder: dict[str, Any], field: str) -> dict[str, Any]:
    value = holder.get(field)
    return value if isinstance(value, dict) else {}


def _supported(reply: RpcReply) -> list[str]:
    """Return the revisions that a server says it supports, in an answer or in an error."""
    if isinstance(reply, dict):
        found = reply.get("supportedVersions")
    else:
        data = reply.data if isinstance(reply, RpcError) else None
        found = data.get("supported") if isinstance(data, dict) else None
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _said(reply: RpcReply, supported: list[str]) -> str:
    """Return the words of a refusal and the revisions in it, to end a clause."""
    said = "" if isinstance(reply, dict) else f": {quoted(reply.message)}"
    if not supported:
        return said
    return f"{said} (it supports {', '.join(map(quoted, supported[:8]))})"
