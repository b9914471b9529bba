r"""The negotiation with a server: its era and revision; and the writer of lines in their form.

There is one handshake per process:

    server/discover --supports the newer revision--> modern
      |  \--supports older ones only, another error, 1 s of silence--> initialize
      \--the process ends--> a second process, once, with initialize

    initialize --a revision we know--> legacy
      |  \--an error that names the revisions it supports--> initialize with one of those, once
      \--anything else--> failed

After a silence both questions may be answered, since the server may only have been slow: the first
answer that agrees to something counts. Of a pinned era only its own question is asked. The
agreement is remembered for later processes, of later daemons too, which then have all of `start_s`
to answer. If it proves wrong, by a refusal or an exit, the other greeting is tried as if nothing
were known; a start that fails forgets it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.connection import Memory, Request, StartAgain, StartFailed, Wait
from protocol.descriptor.model import Descriptor, EraPin
from protocol.dialects.mcp.rpc import RpcError, RpcId, answer_line, request_line
from protocol.dialects.mcp.vocabulary import DISCOVER, INITIALIZE, LEGACY, META, MODERN, Era
from protocol.errors import Outcome
from protocol.frames import encode_line
from protocol.framing import Outgoing
from protocol.problem import quoted
from protocol.version import VERSION

DISCOVER_S = 1.0
"""A server of the older era may ignore an unknown method. Node and Python start up in less than
this, and a late answer is still taken."""

CLIENT = {"name": "stdiod", "version": VERSION}


class Agreed(msgspec.Struct, frozen=True):
    era: Era
    revision: str
    capabilities: dict[str, Any]
    server: dict[str, Any]
    instructions: str | None


class Question(msgspec.Struct, frozen=True):
    """The next question; the wait for its answer stands in `Greeting.waits`."""

    method: str
    params: dict[str, Any]


GreetingStep = Question | Agreed | StartFailed | None
"""None: wait."""


class Greeting:
    def __init__(
        self, descriptor: Descriptor, memory: Memory, client_capabilities: dict[str, Any]
    ) -> None:
        self.waits: tuple[Wait, ...] = ()
        self._pin = descriptor.transport.mcp.era
        self._start_s = descriptor.supervision.timeouts.start_s
        self._memory = memory
        self._client = client_capabilities
        self._remembered: str | None = None
        self._open: set[str] = set()
        """The questions without an answer."""
        self._offered: list[str] = []

    def begin(self) -> GreetingStep:
        self._remembered = self._memory.get("era")
        first_again = self._memory.pop("initialize_next", False)
        if self._pin is EraPin.LEGACY or (
            self._pin is EraPin.AUTO and (first_again or self._remembered == Era.LEGACY)
        ):
            return self._initialize(LEGACY[0])
        return self._discover()

    def answered(self, method: str, outcome: dict[str, Any] | RpcError) -> GreetingStep:
        self._open.discard(method)
        if method == DISCOVER:
            return self._discovered(outcome)
        return self._initialized(outcome)

    def time_passed(self, wait: Wait) -> GreetingStep:
        """Ask in another way, or give up."""
        if not self._offered and self._is_open_to_both:
            return self._initialize(LEGACY[0])
        words = f"gave no {wait.for_what[3:]} in {wait.seconds:g} s"
        return self.failed("start_deadline", words, "start_s")

    def failed(self, reason: str, words: str, bound: str = "") -> StartFailed:
        self._memory.pop("era", None)
        self.waits = ()
        return StartFailed(reason, words, bound)

    def exited(self) -> StartAgain | None:
        """Ask for a fresh process if this one ended before anything was agreed on."""
        known = self._memory.pop("era", None)
        if self._pin is not EraPin.AUTO or not self._open:
            return None
        if DISCOVER in self._open:
            # However late: the server may have been slow to read a question it does not know.
            self._memory["initialize_next"] = True
            words = (
                f"ended when it was asked {DISCOVER}, with which the newer MCP begins; some older"
            )
            return StartAgain(f"{words} servers do, so the next process is asked {INITIALIZE}")
        if known is None:
            return None
        return StartAgain(f"ended when it was asked {INITIALIZE}, as those before it were")

    @property
    def _is_open_to_both(self) -> bool:
        return self._pin is EraPin.AUTO and self._remembered is None

    def _discovered(self, outcome: dict[str, Any] | RpcError) -> GreetingStep:
        supported = _supported(outcome)
        if isinstance(outcome, dict) and MODERN in supported:
            server = _object(_object(outcome, "_meta"), f"{META}serverInfo")
            return self._agree(
                Era.MODERN, MODERN, outcome, server or _object(outcome, "serverInfo")
            )
        if INITIALIZE in self._open:
            return None  # the answer to the older question is still to come
        if self._offered:
            return self.failed("bad_start", f"refused {INITIALIZE} and {DISCOVER}")
        older = next((one for one in LEGACY if one in supported), None)
        if self._pin is EraPin.MODERN:
            return self.failed("bad_start", f"does not speak {MODERN}{_of(outcome, supported)}")
        if supported and older is None:
            return self.failed(
                "bad_start", f"speaks no revision known here{_of(outcome, supported)}"
            )
        return self._initialize(older or LEGACY[0])

    def _initialized(self, outcome: dict[str, Any] | RpcError) -> GreetingStep:
        if isinstance(outcome, dict):
            revision = outcome.get("protocolVersion")
            if revision in LEGACY:
                server = _object(outcome, "serverInfo")
                return self._agree(Era.LEGACY, str(revision), outcome, server)
            words = f"answered {INITIALIZE} with the revision {revision!r:.40}; known are "
            return self.failed("bad_start", words + ", ".join(LEGACY))
        supported = _supported(outcome)
        other = next((one for one in LEGACY if one in supported and one not in self._offered), None)
        if other is not None and len(self._offered) == 1:
            return self._initialize(other)
        if DISCOVER in self._open:
            return None  # it was only slow, and of the newer era
        if self._pin is EraPin.AUTO and self._remembered is not None:
            self._memory.pop("era", None)
            self._remembered = None
            return self._discover()
        return self.failed("bad_start", f"refused {INITIALIZE}{_of(outcome, supported)}")

    def _discover(self) -> Question:
        self._open.add(DISCOVER)
        seconds = DISCOVER_S if self._is_open_to_both and not self._offered else self._start_s
        self.waits = (Wait(seconds, f"an answer to {DISCOVER}"),)
        return Question(DISCOVER, {})

    def _initialize(self, revision: str) -> Question:
        self._open.add(INITIALIZE)
        self._offered.append(revision)
        self.waits = (Wait(self._start_s, f"an answer to {INITIALIZE}"),)
        capabilities = self._client
        return Question(
            INITIALIZE,
            {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": CLIENT},
        )

    def _agree(
        self, era: Era, revision: str, result: dict[str, Any], server: dict[str, Any]
    ) -> Agreed:
        self._memory["era"] = str(era)
        self.waits = ()
        instructions = result.get("instructions")
        return Agreed(
            era,
            revision,
            _object(result, "capabilities"),
            server,
            instructions if isinstance(instructions, str) else None,
        )


REQUEST_ID = "stdiod/requestId"
"""The host's id of a request, in its `_meta`: transcripts are read by it."""

LOG_LEVEL = "info"
"""The level asked of a server of the newer era; one of the older era chooses itself."""


class Speaker:
    """The writer of lines to one process, in the form of the agreed revision.

    Ids are numbers, counted from 1: many servers read them into an integer, and those that cannot
    read an id answer 0.
    """

    def __init__(self, client: dict[str, Any], outgoing: Outgoing) -> None:
        """`client` is the client capabilities."""
        self.outgoing = outgoing
        self.agreed: Agreed | None = None
        self.last_id = 0
        self._client = client

    @property
    def is_modern(self) -> bool:
        return self.agreed is not None and self.agreed.era is Era.MODERN

    def ask_own(self, method: str, params: dict[str, Any]) -> int:
        """Ask a question of the connection's own; returns its id."""
        self.last_id += 1
        self.outgoing.add(request_line(self.last_id, method, self._with_meta(method, params, {})))
        return self.last_id

    def ask(self, request: Request, method: str, params: dict[str, Any]) -> int:
        """Write a request of the host.

        Returns the id of the line, which is the token of its progress. Raises one of `UNENCODABLE`,
        and then writes nothing.
        """
        rpc_id = self.last_id + 1
        meta: dict[str, Any] = {"progressToken": rpc_id, REQUEST_ID: request.request_id}
        if request.traceparent is not None:
            meta["traceparent"] = request.traceparent
        line = request_line(rpc_id, method, self._with_meta(method, params, meta))
        self.outgoing.add(line, request.request_id)
        self.last_id = rpc_id
        return rpc_id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.outgoing.add(encode_line({"jsonrpc": "2.0", "method": method, "params": params}))

    def answer(self, rpc_id: RpcId, outcome: Outcome) -> None:
        self.outgoing.add(answer_line(rpc_id, outcome))

    def _with_meta(
        self, method: str, params: dict[str, Any], meta: dict[str, Any]
    ) -> dict[str, Any]:
        if self.is_modern or (self.agreed is None and method != INITIALIZE):
            meta = {
                **meta,
                f"{META}protocolVersion": MODERN,
                f"{META}clientInfo": CLIENT,
                f"{META}clientCapabilities": self._client,
            }
            if self.agreed is not None and "logging" in self.agreed.capabilities:
                meta[f"{META}logLevel"] = LOG_LEVEL
        return {**params, "_meta": meta} if meta else params


def _object(holder: dict[str, Any], field: str) -> dict[str, Any]:
    value = holder.get(field)
    return value if isinstance(value, dict) else {}


def _supported(outcome: dict[str, Any] | RpcError) -> list[str]:
    """Return the revisions that a server says it supports, in an answer or in an error."""
    if isinstance(outcome, dict):
        found = outcome.get("supportedVersions")
    else:
        found = outcome.data.get("supported") if isinstance(outcome.data, dict) else None
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _of(outcome: dict[str, Any] | RpcError, supported: list[str]) -> str:
    said = f": {quoted(outcome.message)}" if isinstance(outcome, RpcError) else ""
    if not supported:
        return said
    return f"{said} (it supports {', '.join(map(quoted, supported[:8]))})"
