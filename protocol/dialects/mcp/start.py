r"""The start of a server: its era is negotiated, then its lists are fetched; and their changes.

    server/discover --supports the newer revision--> modern
      |  \--supports older ones only, another error, 1 s of silence--> initialize
      \--the process ends--> a second process, once, with initialize

    initialize --a revision we know--> legacy
      |  \--an error that names the revisions it supports--> initialize with one of those, once
      \--anything else--> StartFailed

    modern, legacy --> its lists, all at once --the last page of the last--> Ready
                          \--no list of tools--> StartFailed

After a silence both questions may be answered, since the server may only have been slow: the first
answer that agrees to something counts. Of a pinned era only its own question is asked. The
agreement is remembered for later processes, of later daemons too, which then have all of `start_s`
to answer. If it proves wrong, by a refusal or an exit, the other question is asked as if nothing
were known; a negotiation that fails forgets it.

A start can do without lists of prompts and resources that do not come. A list that changes is
fetched anew, once for any number of changes meanwhile. So are tools when a request names an unknown
one (`look_again`): not within the list's `ttlMs`, and once in `LOOK_AGAIN_S` unless the server has
served a request meanwhile. All questions here are the connection's own: one of each at the most,
and no request of the host reports them.
"""

from __future__ import annotations

from typing import Any

from protocol.connection import (
    Answered,
    Described,
    Logged,
    Memory,
    Ready,
    Received,
    Request,
    StartAgain,
    StartFailed,
    Unanswered,
    Wait,
)
from protocol.descriptor.model import Descriptor, EraPin
from protocol.dialects.mcp.catalogue import CHANGED, COMPLAINTS, LISTS, TOOLS, ServerLists
from protocol.dialects.mcp.vocabulary import (
    DISCOVER,
    EXTRAS,
    INITIALIZE,
    LEGACY,
    LISTEN,
    META,
    MODERN,
    SUBSCRIBE,
    Era,
)
from protocol.dialects.mcp.writer import CLIENT, Agreed, McpWriter
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log
from protocol.json_line import Fault
from protocol.jsonrpc import RpcError, RpcId, meant_id
from protocol.problem import quoted

DISCOVER_S = 1.0
"""A server of the older era may ignore an unknown method. Node and Python start up in less than
this, and a late answer is still taken."""

LOOK_AGAIN_S = 1.0
"""Requests for unknown tools, however many, cost the server one list a second."""


class ServerStart:
    def __init__(
        self,
        descriptor: Descriptor,
        writer: McpWriter,
        memory: Memory,
        client: dict[str, Any],
        subscriptions: Subscriptions,
    ) -> None:
        """`client` is the client capabilities."""
        self.waits: tuple[Wait, ...] = ()
        self.is_negotiating = True
        self.is_ready = False
        self.catalogue: ServerLists | None = None
        """The server's lists, once a revision is agreed on."""
        self.left: dict[Wait, tuple[str, dict[str, Any]]] = {}
        """Pages with entries left for another turn: the list, and the page."""
        self._descriptor = descriptor
        self._writer = writer
        self._memory = memory
        self._client = client
        self._subscriptions = subscriptions
        self._pin = descriptor.transport.mcp.era
        self._start_s = descriptor.supervision.timeouts.start_s
        self._asked: dict[RpcId, str] = {}
        """The methods of open questions, by id."""
        self._remembered: str | None = None
        self._offered: list[str] = []
        """The revisions that `initialize` named so far."""
        self._outdated: set[str] = set()
        """The lists that have changed since they were asked for."""
        self._lookups: list[str] = []
        """The ids of requests that wait for the tools."""
        self._may_look = True
        """Whether the list of tools is old enough to be fetched anew for those."""

    def begin(self) -> None:
        self._remembered = self._memory.get("era")
        first_again = self._memory.pop("initialize_next", False)
        if self._pin is EraPin.LEGACY or (
            self._pin is EraPin.AUTO and (first_again or self._remembered == Era.LEGACY)
        ):
            self._initialize(LEGACY[0])
        else:
            self._discover()

    def exited(self) -> StartAgain | None:
        """Return `StartAgain` if the process ended before a revision was agreed on."""
        asked, self._asked = self._asked.values(), {}
        self.waits, self._lookups = (), []
        if not self.is_negotiating:
            return None
        self.is_negotiating = False
        known = self._memory.pop("era", None)
        if self._pin is not EraPin.AUTO or not asked:
            return None
        if DISCOVER in asked:
            # However late: the server may have been slow to read a question it does not know.
            self._memory["initialize_next"] = True
            words = (
                f"ended when it was asked {DISCOVER}, with which the newer MCP begins; some older"
            )
            return StartAgain(f"{words} servers do, so the next process is asked {INITIALIZE}")
        if known is None:
            return None
        return StartAgain(f"ended when it was asked {INITIALIZE}, as those before it were")

    def time_passed(self, wait: Wait, received: list[Received]) -> None:
        """Negotiate in another way, go on without optional lists, or give up."""
        if self.is_negotiating and not self._offered and self._is_open_to_both:
            self._initialize(LEGACY[0])
        elif self.is_negotiating:
            words = f"gave no {wait.for_what[3:]} in {wait.seconds:g} s"
            self._fail("start_deadline", words, received, "start_s")
        elif wait in self.left:
            name, page = self.left.pop(wait)
            if self.catalogue is not None and self.catalogue.is_coming(name):
                self._answered_list(self.catalogue, name, page, received)
        elif self.is_ready:
            self._may_look, self.waits = True, ()
        elif self.catalogue is not None:
            if not self.catalogue.has_tools:
                words = f"did not list its tools in {wait.seconds:g} s"
                self._fail("bad_describe", words, received, "describe_s")
                return
            for name in [one for one in LISTS if self.catalogue.is_coming(one)]:
                self.catalogue.give_up(name, f"no answer in {wait.seconds:g} s")
            self._listed(received)

    @property
    def waiting(self) -> list[RpcId]:
        return list(self._asked)

    def takes(self, rpc_id: RpcId | None) -> bool:
        return rpc_id in self._asked

    def answered(
        self, rpc_id: RpcId, outcome: dict[str, Any] | RpcError | Fault, received: list[Received]
    ) -> None:
        """Take the answer to a question, or the bad line that stands in its place."""
        method = self._asked.pop(rpc_id)
        if isinstance(outcome, Fault) and method == INITIALIZE:
            self.fail(refused(method, outcome), received)
        elif method in (DISCOVER, INITIALIZE):
            if self.is_negotiating:
                if isinstance(outcome, Fault):
                    outcome = RpcError(0, outcome.message)
                take = self._discovered if method == DISCOVER else self._initialized
                take(outcome, received)
        elif self.catalogue is not None and self.catalogue.is_coming(method):
            self._answered_list(self.catalogue, method, outcome, received)

    def changed(self, method: str, params: dict[str, Any]) -> bool:
        """Fetch the list that a notification says has changed; False if there is none."""
        if self.catalogue is None:
            return False
        if self._writer.is_modern and not self._subscriptions.is_of_lists(params):
            return False
        names = {one for one in CHANGED[method] if one in self.catalogue.offered}
        if self.is_ready:
            self._list(self.catalogue, sorted(names))
        else:
            self._outdated |= names  # a server that goes on changing is to get ready at last
        return True

    def look_again(self, request: Request, received: list[Received]) -> None:
        """Answer with the description once the list of tools is fetched, anew if it is old."""
        catalogue = self.catalogue
        assert catalogue is not None  # noqa: S101 - it is ready
        self._lookups.append(request.request_id)
        self._look(catalogue)
        self._answer_lookups(catalogue, received)

    def served(self) -> None:
        """Take note that the server has answered a request, which may have changed its tools."""
        if self.catalogue is not None and not self.catalogue.ttl_s:
            self._may_look = True

    def _look(self, catalogue: ServerLists) -> None:
        if self._may_look and TOOLS in catalogue.offered and not catalogue.is_coming(TOOLS):
            self._rest(LOOK_AGAIN_S)
            self._list(catalogue, [TOOLS])

    def _rest(self, seconds: float) -> None:
        self._may_look = False
        self.waits = (Wait(seconds, "its list of tools to be old"),)

    def _answer_lookups(self, catalogue: ServerLists, received: list[Received]) -> None:
        if self._lookups and not catalogue.is_coming(TOOLS):
            described = Success(catalogue.description(self._descriptor))
            lookups, self._lookups = self._lookups, []
            received += [Answered(one, described) for one in lookups]

    def fail(self, words: str, received: list[Received]) -> None:
        """End the start, if it is under way, because of what the server printed."""
        if self.is_negotiating:
            self._fail("bad_start", words, received)
        elif self.catalogue is not None:
            self._fail("bad_describe", words, received)

    def _fail(self, reason: str, words: str, received: list[Received], bound: str = "") -> None:
        if self.is_negotiating:
            self.is_negotiating = False
            self._memory.pop("era", None)
        else:
            self.catalogue, self._asked = None, {}
        self.waits = ()
        received.append(StartFailed(reason, words, bound))

    def _ask(self, method: str, params: dict[str, Any]) -> None:
        self._asked = {known: one for known, one in self._asked.items() if one != method}
        self._asked[self._writer.ask_own(method, params)] = method

    # The negotiation.

    @property
    def _is_open_to_both(self) -> bool:
        return self._pin is EraPin.AUTO and self._remembered is None

    def _discovered(self, outcome: dict[str, Any] | RpcError, received: list[Received]) -> None:
        supported = _supported(outcome)
        older = next((one for one in LEGACY if one in supported), None)
        if isinstance(outcome, dict) and MODERN in supported:
            server = _object(_object(outcome, "_meta"), f"{META}serverInfo")
            server = server or _object(outcome, "serverInfo")
            self._agree(Era.MODERN, MODERN, outcome, server, received)
        elif INITIALIZE in self._asked.values():
            pass  # the answer to the older question is still to come
        elif self._offered:
            self._fail("bad_start", f"refused {INITIALIZE} and {DISCOVER}", received)
        elif self._pin is EraPin.MODERN:
            words = f"does not speak {MODERN}{_of(outcome, supported)}"
            self._fail("bad_start", words, received)
        elif supported and older is None:
            words = f"speaks no revision known here{_of(outcome, supported)}"
            self._fail("bad_start", words, received)
        else:
            self._initialize(older or LEGACY[0])

    def _initialized(self, outcome: dict[str, Any] | RpcError, received: list[Received]) -> None:
        if isinstance(outcome, dict):
            revision = outcome.get("protocolVersion")
            if revision in LEGACY:
                server = _object(outcome, "serverInfo")
                self._agree(Era.LEGACY, str(revision), outcome, server, received)
            else:
                words = f"answered {INITIALIZE} with the revision {revision!r:.40}; known are "
                self._fail("bad_start", words + ", ".join(LEGACY), received)
            return
        supported = _supported(outcome)
        other = next((one for one in LEGACY if one in supported and one not in self._offered), None)
        if other is not None and len(self._offered) == 1:
            self._initialize(other)
        elif DISCOVER in self._asked.values():
            pass  # it was only slow, and of the newer era
        elif self._pin is EraPin.AUTO and self._remembered is not None:
            self._memory.pop("era", None)
            self._remembered = None
            self._discover()
        else:
            words = f"refused {INITIALIZE}{_of(outcome, supported)}"
            self._fail("bad_start", words, received)

    def _discover(self) -> None:
        seconds = DISCOVER_S if self._is_open_to_both and not self._offered else self._start_s
        self.waits = (Wait(seconds, f"an answer to {DISCOVER}"),)
        self._ask(DISCOVER, {})

    def _initialize(self, revision: str) -> None:
        self._offered.append(revision)
        self.waits = (Wait(self._start_s, f"an answer to {INITIALIZE}"),)
        params = {"protocolVersion": revision, "capabilities": self._client, "clientInfo": CLIENT}
        self._ask(INITIALIZE, params)

    def _agree(
        self,
        era: Era,
        revision: str,
        result: dict[str, Any],
        server: dict[str, Any],
        received: list[Received],
    ) -> None:
        self._memory["era"] = str(era)
        self.is_negotiating, self._asked = False, {}
        instructions = result.get("instructions")
        agreed = Agreed(
            era,
            revision,
            _object(result, "capabilities"),
            server,
            instructions if isinstance(instructions, str) else None,
        )
        self._writer.follow(agreed)
        catalogue = self.catalogue = ServerLists(agreed)
        if catalogue.extras:
            named = ", ".join(map(quoted, catalogue.extras[:8]))
            words = f"has extensions or experimental capabilities ({named}): MCP clients get "
            words += "them, and their notifications, only through a view of this module alone"
            received.append(Logged(Log(version="0", level="info", message=words)))
        if not self._writer.is_modern:
            self._writer.notify("notifications/initialized", {})
        seconds = self._descriptor.supervision.timeouts.describe_s
        self.waits = (Wait(seconds, "its lists of tools, prompts and resources"),)
        self._list(catalogue, catalogue.offered or [TOOLS])
        self._listed(received)

    # The lists.

    def _list(self, catalogue: ServerLists, names: list[str]) -> None:
        for name in names:
            if catalogue.is_coming(name):
                self._outdated.add(name)
            else:
                catalogue.begin(name)
                self._ask(name, {})

    def _answered_list(
        self,
        catalogue: ServerLists,
        name: str,
        outcome: dict[str, Any] | RpcError | Fault,
        received: list[Received],
    ) -> None:
        if isinstance(outcome, RpcError | Fault):
            words = refused(name, outcome)
            catalogue.give_up(name, f"the server {words}")
            if name == TOOLS and not (self.is_ready or catalogue.has_tools):
                self._fail("bad_describe", words, received)
                return
            if self._lookups:
                self._look(catalogue)
        elif (page := catalogue.add_some(name, outcome)) is not None:
            self.left[Wait(0.0, f"the rest of {name}")] = (name, page)
            return
        else:
            cursor = catalogue.add_page(name, outcome)
            if cursor is not None:
                self._ask(name, {"cursor": cursor})
                return
            if name == TOOLS and self.is_ready and catalogue.ttl_s:
                self._rest(catalogue.ttl_s)
        if name in self._outdated and self.is_ready:
            self._list_anew(catalogue)
        self._listed(received)

    def _listed(self, received: list[Received]) -> None:
        """Report the description if all lists have come, or a request waits for the tools."""
        catalogue = self.catalogue
        assert catalogue is not None  # noqa: S101 - it has been asked for its lists
        complaints, catalogue.complaints = catalogue.complaints, []
        if len(complaints) > COMPLAINTS:
            rest = f"and {len(complaints) - COMPLAINTS} more of the like"
            complaints = [*complaints[:COMPLAINTS], rest]
        received += map(_warning, complaints)
        if any(catalogue.is_coming(name) for name in LISTS) and not self._lookups:
            return
        description = catalogue.description(self._descriptor)
        if self.is_ready:
            received.append(Described(description))
            self._answer_lookups(catalogue, received)
            return
        self.is_ready = True
        self.waits = ()
        if catalogue.ttl_s:
            self._rest(catalogue.ttl_s)
        how = DISCOVER if self._writer.is_modern else INITIALIZE
        received.append(Ready(description, f"answered {how} ({catalogue.agreed.revision})"))
        if self._writer.is_modern:
            self._subscriptions.begin(catalogue.agreed.capabilities)
        self._list_anew(catalogue)

    def _list_anew(self, catalogue: ServerLists) -> None:
        """Ask again for the lists that changed while they were being fetched."""
        outdated, self._outdated = self._outdated, set()
        self._list(catalogue, sorted(outdated))


def _warning(words: str) -> Logged:
    return Logged(Log(version="0", level="warn", message=words), is_finding=True)


def refused(method: str, outcome: RpcError | Fault) -> str:
    """Say as a clause that a question was refused."""
    if isinstance(outcome, Fault):
        return f"gave no answer to {method} that can be taken: {outcome.message}"
    return f"answered {method} with the error {outcome.code}: {quoted(outcome.message)}"


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


class Subscriptions:
    r"""The notifications of a server of the newer era: one `subscriptions/listen` for all of them.

        wanted otherwise --> listen again --acknowledged--> the one before is cancelled
                                    \--refused--> the one before goes on

    So nothing is missed between the two, and there are two at the most: further wishes wait until
    the newer one is acknowledged. Requests of the host follow resources (`resources/subscribe`);
    they are answered when the server has acknowledged the resource.

    A server of the older era notifies of its lists unasked, and has a request for each resource.
    """

    def __init__(self, writer: McpWriter) -> None:
        self._writer = writer
        self._lists: dict[str, bool] = {}
        self._resources: dict[str, None] = {}
        self._waiting: dict[str, str] = {}
        """The resources that requests of the host wait for, by their ids."""
        self._open: list[RpcId] = []
        """The ids of the open `subscriptions/listen`, the newest last."""
        self._acknowledged = True
        """Whether the server has acknowledged the newest one."""
        self._outdated = False

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting

    def begin(self, capabilities: dict[str, Any]) -> None:
        """Subscribe to the lists that may change."""
        self._lists = {
            f"{one}ListChanged": True
            for one in ("tools", "prompts", "resources")
            if isinstance(capabilities.get(one), dict) and capabilities[one].get("listChanged")
        }
        if self._lists or any(one in capabilities for one in EXTRAS):
            self._listen()

    def ask(self, request: Request, received: list[Received]) -> None:
        uri = request.args["uri"]
        if request.op == SUBSCRIBE:
            self._resources[uri] = None
            self._waiting[request.request_id] = uri
        else:
            self._resources.pop(uri, None)
            received.append(Answered(request.request_id, Success({})))
        if self._acknowledged:
            self._listen()
        else:
            self._outdated = True

    def forget(self, request_id: str) -> None:
        uri = self._waiting.pop(request_id, None)
        if uri is not None and uri not in self._waiting.values():
            self._resources.pop(uri, None)

    def exited(self) -> list[Received]:
        left: list[Received] = [Unanswered(one) for one in self._waiting]
        self._waiting.clear()
        self._open.clear()
        return left

    # Answers and notifications of the server.

    @property
    def is_open(self) -> bool:
        """Whether a `subscriptions/listen` is open; it is answered when it ends."""
        return bool(self._open)

    def takes(self, rpc_id: RpcId | None) -> bool:
        return rpc_id in self._open

    def is_of(self, params: dict[str, Any]) -> bool:
        """Tell whether a notification belongs to a subscription of ours."""
        meta = params.get("_meta")
        named = meta.get(f"{META}subscriptionId") if isinstance(meta, dict) else None
        return meant_id(named) in self._open

    def is_of_lists(self, params: dict[str, Any]) -> bool:
        """Tell whether a notification is about the server's lists as they are now.

        A server that refuses to be listened to, or names no subscription, may notify all the same.
        """
        meta = params.get("_meta")
        names_none = not isinstance(meta, dict) or f"{META}subscriptionId" not in meta
        return names_none or not self._open or self.is_of(params)

    def acknowledged(self, params: dict[str, Any], received: list[Received]) -> bool:
        if not self.is_of(params) or self._acknowledged:
            return False
        if meant_id(params["_meta"][f"{META}subscriptionId"]) != self._open[-1]:
            return False
        for former in self._open[:-1]:
            self._writer.cancel(former)
        del self._open[:-1]
        told = params.get("notifications")
        resources = told.get("resourceSubscriptions") if isinstance(told, dict) else None
        known = resources if isinstance(resources, list) else []
        words = "the server will not tell when that resource changes"
        self._settle(known, Failure.because(Reason.INVALID_ARGS, words), received)
        return True

    def answered(
        self, rpc_id: RpcId, outcome: dict[str, Any] | RpcError, received: list[Received]
    ) -> None:
        """Take the end of a `subscriptions/listen`: no more notifications come because of it."""
        newest = self._open[-1] == rpc_id
        self._open.remove(rpc_id)
        if isinstance(outcome, RpcError):
            words = f"{LISTEN} was refused: {quoted(outcome.message)}"
            received.append(Logged(Log(version="0", level="warn", message=words)))
        else:
            words = f"the server has ended {LISTEN}"
        if newest:
            self._settle([], Failure.because(Reason.INVALID_ARGS, words), received)

    def _listen(self) -> None:
        wanted: dict[str, Any] = dict(self._lists)
        if self._resources:
            wanted["resourceSubscriptions"] = list(self._resources)
        rpc_id = self._writer.ask_own(LISTEN, {"notifications": wanted})
        self._open = [*self._open[-1:], rpc_id]
        self._acknowledged = False

    def _settle(self, known: list[Any], refusal: Failure, received: list[Received]) -> None:
        """Answer the requests that wait for a resource, and subscribe to resources wanted since."""
        self._acknowledged = True
        for request_id, uri in tuple(self._waiting.items()):
            if self._outdated and uri not in known:
                continue  # it was perhaps not asked for yet
            del self._waiting[request_id]
            outcome: Outcome = Success({}) if uri in known else refusal
            if isinstance(outcome, Failure):
                self._resources.pop(uri, None)
            received.append(Answered(request_id, outcome))
        if self._outdated:
            self._outdated = False
            self._listen()
