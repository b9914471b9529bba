r"""The lists of a server that has agreed to a revision, and its subscriptions.

    its lists, all at once --the last page of the last--> Ready
                    \--no list of tools--> StartFailed

A start can do without lists of prompts and resources that do not come. A list that changes is
fetched anew, once for any number of changes meanwhile; until that is done, the old one counts. So
are tools when a request names an unknown one (`look_again`): not within the list's `ttlMs`, and
once in `LOOK_AGAIN_S` unless the server has served a request meanwhile.

A definition is kept as the server wrote it, with all fields; only the name must make sense.
Definitions that do not fit are left out with a word for the log, and the rest is served. Members
that strict clients refuse are logged, too: those clients get them mended (`protocol.mcp_server`).
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import count, islice
from typing import Any

import msgspec

from protocol.connection import (
    Answered,
    Described,
    Logged,
    Ready,
    Received,
    Request,
    StartFailed,
    Unanswered,
    Wait,
)
from protocol.descriptor.model import Descriptor
from protocol.dialects.mcp.catalogue import CHANGED, LISTS, OPS, TOOLS, OpOfServer, op_of_server
from protocol.dialects.mcp.requests import Agreed, McpRequests, OwnQuestion
from protocol.dialects.mcp.start import refused
from protocol.dialects.mcp.vocabulary import DISCOVER, EXTRAS, INITIALIZE, LISTEN, META, SUBSCRIBE
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log
from protocol.frames import encode
from protocol.json_line import Fault
from protocol.jsonrpc import RpcError, RpcReply, meant_id
from protocol.mcp_server.mending import changes, definition_for, strict_definition
from protocol.problem import described, quoted
from protocol.weight import is_deeper

LOOK_AGAIN_S = 1.0
"""Requests for unknown tools, however many, cost the server one list a second."""

PAGES = 100
"""A server that pages by ones may have this many pages; one whose cursors never end is cut off."""

DEFINITIONS = 2_000
"""Of one list. No model can choose among more, and each daemon holds them for each process."""

TURN = 100
"""Entries per turn; odd ones take 0.1 ms each."""

LIST_BYTES = 4 << 20
"""Per list, as JSON. The largest servers seen have 200 tools in 300 kB."""

TTL_S = 86_400.0
"""A list with a longer ttl is still looked at again for an unknown op."""

PROBLEMS = 8
"""Told of one definition."""

COMPLAINTS = 20
"""Definitions that one warning names; further ones are only counted."""

DEPTH = 64
"""How deep a definition may nest: it is encoded again for each client."""

EXTRAS_BYTES = 64 << 10
"""Per capability of those, as JSON."""

Reading = Generator[dict[str, Any] | None, Any, None]
"""Reads a list: yields the params of the next request and is sent the page, or yields None where
the entries so far are enough for one turn."""


class ServerLists:
    def __init__(
        self,
        descriptor: Descriptor,
        agreed: Agreed,
        requests: McpRequests,
        subscriptions: Subscriptions,
        events: list[Received],
    ) -> None:
        self.is_ready = False
        self._complaints: list[str] = []
        """The omitted definitions and why, as clauses."""
        capabilities = dict(agreed.capabilities)
        for field in EXTRAS:
            self._mend_extras(capabilities, field)
        self._agreed = msgspec.structs.replace(agreed, capabilities=capabilities)
        self._descriptor = descriptor
        self._requests = requests
        self._subscriptions = subscriptions
        self._events = events
        self._lists: dict[str, dict[str, dict[str, Any]]] = {}
        self._tools: dict[str, dict[str, Any]] = {}
        self._unlisted: dict[str, str] = {}
        """Why lists could not be fetched, by name."""
        self._coming: dict[str, Reading] = {}
        self._outdated: set[str] = set()
        """The lists that have changed since they were asked for."""
        self._lookups: list[str] = []
        """The ids of requests that wait for the tools."""
        self._ttl_s = 0.0
        """How long the server's tools stay valid, as it says."""
        self._may_look = True
        """Whether the list of tools is old enough to be fetched anew for those."""
        self._bound: tuple[Wait, ...] = ()
        """The bound on all lists at the start; later the rest before the next look at the tools."""
        self._paused: dict[Wait, str] = {}
        """The lists with entries left for another turn."""

    @property
    def waits(self) -> tuple[Wait, ...]:
        return (*self._bound, *self._paused) if self._paused else self._bound

    def begin(self) -> None:
        if self.extras:
            named = ", ".join(map(quoted, self.extras[:8]))
            words = f"has extensions or experimental capabilities ({named}): MCP clients get "
            words += "them, and their notifications, only through a view of this module alone"
            self._events.append(Logged(Log(version="0", level="info", message=words)))
        if not self._requests.is_modern:
            self._requests.notify("notifications/initialized", {})
        seconds = self._descriptor.supervision.timeouts.describe_s
        self._bound = (Wait(seconds, "its lists of tools, prompts and resources"),)
        self._fetch(self._offered or [TOOLS])
        self._report()

    def time_passed(self, wait: Wait) -> None:
        """Go on with a list, go on without optional lists, or give up."""
        if wait in self._paused:
            self._read_on(self._paused.pop(wait))
        elif self.is_ready:
            self._may_look, self._bound = True, ()
        elif not self._has_tools:
            self.fail(f"did not list its tools in {wait.seconds:g} s", "describe_s")
        else:
            for name in tuple(self._coming):
                self._give_up(name, f"no answer in {wait.seconds:g} s")
            self._report()

    def exited(self) -> None:
        self._bound, self._paused, self._lookups = (), {}, []

    def changed(self, method: str, params: dict[str, Any]) -> bool:
        """Fetch the lists that a notification says have changed; False if it is of no one."""
        if self._requests.is_modern and not self._subscriptions.is_of_lists(params):
            return False
        names = {one for one in CHANGED[method] if one in self._offered}
        if self.is_ready:
            self._fetch(sorted(names))
        else:
            self._outdated |= names  # a server that goes on changing is to get ready at last
        return True

    def look_again(self, request: Request) -> None:
        """Answer with the description once the list of tools is fetched, anew if it is old."""
        self._lookups.append(request.request_id)
        self._look()
        self._answer_lookups()

    def served(self) -> None:
        """Take note that the server has answered a request, which may have changed its tools."""
        if not self._ttl_s:
            self._may_look = True

    def fail(self, words: str, bound: str = "") -> None:
        """End the start, unless it has failed before; `bound` is the timeout that was exceeded."""
        if not self._bound:
            return
        self._requests.forget()
        self._coming.clear()
        self._bound, self._paused = (), {}
        self._events.append(StartFailed("bad_describe", words, bound))

    # One list after the other.

    def _fetch(self, names: list[str]) -> None:
        for name in names:
            if name in self._coming:
                self._outdated.add(name)
            else:
                self._coming[name] = self._read(name)
                self._read_on(name)

    def _read_on(self, name: str, page: dict[str, Any] | None = None) -> None:
        try:
            params = self._coming[name].send(page)
        except StopIteration:
            del self._coming[name]
            if name == TOOLS and self.is_ready and self._ttl_s:
                self._rest(self._ttl_s)
            self._ended(name)
        else:
            if params is None:
                self._paused[Wait(0.0, f"the rest of {name}")] = name
            else:
                self._requests.forget(name)
                self._requests.ask_own(name, params, self._answered)

    def _answered(self, question: OwnQuestion, reply: RpcReply) -> None:
        name = question.method
        if name not in self._coming:
            return
        if isinstance(reply, dict):
            self._read_on(name, reply)
            return
        words = refused(name, reply)
        self._give_up(name, f"the server {words}")
        if name == TOOLS and not (self.is_ready or self._has_tools):
            self.fail(words)
            return
        if self._lookups:
            self._look()
        self._ended(name)

    def _give_up(self, name: str, why: str) -> None:
        """Keep a list as it was."""
        del self._coming[name]
        self._paused = {wait: one for wait, one in self._paused.items() if one != name}
        if name in self._offered:  # else it was asked in case, and there is none
            self._complaints.append(f"{name}: {why}")
            if name not in self._lists:
                self._unlisted[name] = why

    def _ended(self, name: str) -> None:
        """Report a list that has come or was given up, and fetch it again if it has changed."""
        if name in self._outdated and self.is_ready:
            self._fetch_outdated()
        self._report()

    def _fetch_outdated(self) -> None:
        outdated, self._outdated = self._outdated, set()
        self._fetch(sorted(outdated))

    def _report(self) -> None:
        """Report complaints; and the description, if all has come or a request waits for tools."""
        complaints, self._complaints = self._complaints, []
        if len(complaints) > COMPLAINTS:
            rest = f"and {len(complaints) - COMPLAINTS} more of the like"
            complaints = [*complaints[:COMPLAINTS], rest]
        self._events += [
            Logged(Log(version="0", level="warn", message=words), is_finding=True)
            for words in complaints
        ]
        if self._coming and not self._lookups:
            return
        if self.is_ready:
            self._events.append(Described(self.description()))
            self._answer_lookups()
            return
        self.is_ready, self._bound = True, ()
        if self._ttl_s:
            self._rest(self._ttl_s)
        how = DISCOVER if self._requests.is_modern else INITIALIZE
        why = f"answered {how} ({self._agreed.revision})"
        self._events.append(Ready(self.description(), why))
        if self._requests.is_modern:
            self._subscriptions.begin(self._agreed.capabilities)
        self._fetch_outdated()

    def _look(self) -> None:
        if self._may_look and TOOLS in self._offered and TOOLS not in self._coming:
            self._rest(LOOK_AGAIN_S)
            self._fetch([TOOLS])

    def _rest(self, seconds: float) -> None:
        self._may_look = False
        self._bound = (Wait(seconds, "its list of tools to be old"),)

    def _answer_lookups(self) -> None:
        if self._lookups and TOOLS not in self._coming:
            described_as = Success(self.description())
            self._events += [Answered(one, described_as) for one in self._lookups]
            self._lookups = []

    # One list, page by page.

    def _read(self, name: str) -> Reading:
        kind = LISTS[name]
        found: dict[str, dict[str, Any]] = {}
        mended: dict[str, dict[str, Any]] = {}
        size_bytes, cursors = 0, set[str]()
        params: dict[str, Any] = {}
        page: dict[str, Any] = {}
        for number in count(1):
            page = yield params
            problem: str | None = None
            entries = page.get(kind.field)
            if not isinstance(entries, list):
                entries, problem = [], f"has no {quoted(kind.field)}"
            for at, entry in enumerate(entries):
                if at and not at % TURN:
                    yield None
                left_out = _entry_problem(entry, kind.named_by, found)
                if left_out is not None:
                    self._complaints.append(f"{name}: an entry is left out: {left_out}")
                    continue
                size_bytes += len(encode(entry))
                problem = _bound_problem(len(found), size_bytes)
                if problem is not None:
                    break
                named = entry[kind.named_by]
                found[named], mended[named] = entry, self._mended(name, named, entry)
            cursor = page.get("nextCursor")
            if problem is None and cursor is not None:
                problem = _cursor_problem(cursor, cursors, number)
            if problem is not None:
                self._complaints.append(f"{name}: page {number} {problem}; the list ends there")
            elif cursor is not None:
                cursors.add(cursor)
                params = {"cursor": cursor}
                continue
            break
        if found and name not in self._offered:
            words = "the server announces no capabilities and has tools all the same: they are used"
            self._complaints.append(f"{name}: {words}")
        self._lists[name] = found
        self._unlisted.pop(name, None)
        if name == TOOLS:
            self._tools, self._ttl_s = mended, _ttl_s(page.get("ttlMs"))

    def _mended(self, name: str, named: str, entry: dict[str, Any]) -> dict[str, Any]:
        """Return a definition as the revision has it; reports what that changes."""
        newest = strict_definition(entry, LISTS[name].of)
        mended = definition_for(self._agreed.revision, newest)
        if newest is not entry or len(mended) < len(entry):
            # Definitions that are only counted need no words.
            told = changes(entry, mended) if len(self._complaints) < COMPLAINTS else ()
            words = "; ".join(islice(told, PROBLEMS))
            self._complaints.append(f"{name}: {quoted(named)}: {words}")
        return mended

    # The module as its lists describe it.

    @property
    def _offered(self) -> list[str]:
        """The lists that the server announces; and tools, which it may have unannounced."""
        announced = self._agreed.capabilities
        return [
            name
            for name, one in LISTS.items()
            if one.capability in announced or self._lists.get(name)
        ]

    @property
    def _has_tools(self) -> bool:
        """Whether the list of tools is known, if the server has tools."""
        return TOOLS in self._lists or TOOLS not in self._offered

    @property
    def extras(self) -> list[str]:
        return [one for field in EXTRAS for one in self._agreed.capabilities.get(field, ())]

    def _mend_extras(self, capabilities: dict[str, Any], field: str) -> None:
        said = capabilities.pop(field, None)
        entries = said if isinstance(said, dict) else {}
        kept = {
            name: one
            for name, one in entries.items()
            if isinstance(one, dict) and not is_deeper(one, DEPTH)
        }
        kept = kept if len(encode(kept)) <= EXTRAS_BYTES else {}
        if kept:
            capabilities[field] = kept
        if said is not None and kept != said:
            words = f"which is to be objects up to {DEPTH} levels deep in {EXTRAS_BYTES} bytes"
            self._complaints.append(f"{field} of its capabilities, {words}: the rest is left out")

    def op_of_server(self, op: str) -> OpOfServer | None:
        """Return the request of MCP that an op names, unless a tool has that name."""
        is_tool = op in self._lists.get(TOOLS, ())
        return None if is_tool else op_of_server(op, self._agreed.capabilities)

    def description(self) -> dict[str, Any]:
        """Return the answer to `describe`, with the definitions as they came."""
        agreed, tools = self._agreed, self._tools
        inputs = {op: one.args for op in OPS if (one := self.op_of_server(op)) is not None}
        inputs |= {op: one["inputSchema"] for op, one in tools.items()}
        version = agreed.server.get("version")
        said: dict[str, Any] = {
            "name": self._descriptor.name,
            "version": version if isinstance(version, str) else None,
            "kind": str(self._descriptor.kind),
            "capabilities": list(self._descriptor.capabilities),
            "inputs": inputs,
            "outputs": {
                op: one["outputSchema"] for op, one in tools.items() if "outputSchema" in one
            },
            "mcp": {
                "era": str(agreed.era),
                "revision": agreed.revision,
                "server": agreed.server,
                "capabilities": agreed.capabilities,
            },
        }
        if self._unlisted:
            unlisted = {LISTS[name].told_as: why for name, why in self._unlisted.items()}
            said["mcp"]["unlisted"] = unlisted
        if agreed.instructions is not None:
            said["instructions"] = agreed.instructions
        for name in self._offered:
            said[LISTS[name].told_as] = list(self._lists.get(name, {}).values())
        return said


def _cursor_problem(cursor: object, known: set[str], number: int) -> str | None:
    if not isinstance(cursor, str):
        return f"has the cursor {described(cursor)}, which is not a string"
    if cursor in known:
        return "has a cursor that was there before"
    if number >= PAGES:
        return f"is the last of {PAGES}, which is the most there may be"
    return None


def _bound_problem(entries: int, size_bytes: int) -> str | None:
    if entries >= DEFINITIONS:
        return f"has more entries than {DEFINITIONS}, which is the most there may be"
    if size_bytes > LIST_BYTES:
        return f"makes it longer than {LIST_BYTES} bytes, which is the most it may be"
    return None


def _entry_problem(entry: Any, named_by: str, known: dict[str, Any]) -> str | None:
    if not isinstance(entry, dict):
        return f"it is {described(entry)}, it must be an object"
    named = entry.get(named_by)
    if not isinstance(named, str) or not named:
        return f"its {quoted(named_by)} is {described(named)}, it must be a string"
    if named in known:
        return f"{quoted(named)} stands there twice"
    if is_deeper(entry, DEPTH):
        return f"{quoted(named)} is nested more than {DEPTH} levels deep"
    return None


def _ttl_s(ttl_ms: Any) -> float:
    if type(ttl_ms) not in (int, float) or not ttl_ms > 0:
        return 0.0
    return float(min(ttl_ms / 1000, TTL_S))


class Subscriptions:
    r"""The notifications of a server of the newer era: one `subscriptions/listen` for all of them.

        wanted otherwise --> listen again --acknowledged--> the one before is cancelled
                                    \--refused--> the one before goes on

    So nothing is missed between the two, and there are two at the most: further wishes wait until
    the newer one is acknowledged. Requests of the host follow resources (`resources/subscribe`);
    they are answered when the server has acknowledged the resource.

    A server of the older era notifies of its lists unasked, and has a request for each resource.
    """

    def __init__(self, requests: McpRequests, events: list[Received]) -> None:
        self._requests = requests
        self._events = events
        self._lists: dict[str, bool] = {}
        self._resources: dict[str, None] = {}
        self._waiting: dict[str, str] = {}
        """The resources that requests of the host wait for, by their ids."""
        self._open: list[OwnQuestion] = []
        """The open `subscriptions/listen`, the newest last."""
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

    def ask(self, request: Request) -> None:
        uri = request.args["uri"]
        if request.op == SUBSCRIBE:
            self._resources[uri] = None
            self._waiting[request.request_id] = uri
        else:
            self._resources.pop(uri, None)
            self._events.append(Answered(request.request_id, Success({})))
        if self._acknowledged:
            self._listen()
        else:
            self._outdated = True

    def cancel(self, request_id: str) -> None:
        uri = self._waiting.pop(request_id, None)
        if uri is not None and uri not in self._waiting.values():
            self._resources.pop(uri, None)

    def exited(self) -> None:
        self._events += map(Unanswered, self._waiting)
        self._waiting.clear()
        self._open.clear()

    # Answers and notifications of the server.

    @property
    def is_open(self) -> bool:
        """Whether a `subscriptions/listen` is open; it is answered when it ends."""
        return bool(self._open)

    def is_of(self, params: dict[str, Any]) -> bool:
        """Tell whether a notification belongs to a subscription of ours."""
        return self._named(params) is not None

    def is_of_lists(self, params: dict[str, Any]) -> bool:
        """Tell whether a notification is about the server's lists as they are now.

        A server that refuses to be listened to, or names no subscription, may notify all the same.
        """
        meta = params.get("_meta")
        names_none = not isinstance(meta, dict) or f"{META}subscriptionId" not in meta
        return names_none or not self._open or self.is_of(params)

    def _named(self, params: dict[str, Any]) -> OwnQuestion | None:
        meta = params.get("_meta")
        named = meta.get(f"{META}subscriptionId") if isinstance(meta, dict) else None
        rpc_id = meant_id(named)
        return next((one for one in self._open if one.rpc_id == rpc_id), None)

    def acknowledged(self, params: dict[str, Any]) -> bool:
        """Take an acknowledgement; False if it is not of the newest subscription."""
        if self._acknowledged or not self._open or self._named(params) is not self._open[-1]:
            return False
        *former, newest = self._open
        for one in former:
            self._requests.cancel(one.rpc_id)
        self._open = [newest]
        told = params.get("notifications")
        resources = told.get("resourceSubscriptions") if isinstance(told, dict) else None
        known = resources if isinstance(resources, list) else []
        words = "the server will not tell when that resource changes"
        self._settle(known, Failure.because(Reason.INVALID_ARGS, words))
        return True

    def _ended(self, subscription: OwnQuestion, reply: RpcReply) -> None:
        """Take the end of a subscription: no more notifications come because of it."""
        is_newest = self._open[-1] is subscription
        self._open.remove(subscription)
        words = f"the server has ended {LISTEN}"
        if isinstance(reply, RpcError | Fault):
            words = f"{LISTEN} was refused: {quoted(reply.message)}"
            self._events.append(Logged(Log(version="0", level="warn", message=words)))
        if is_newest:
            self._settle([], Failure.because(Reason.INVALID_ARGS, words))

    def _listen(self) -> None:
        wanted: dict[str, Any] = dict(self._lists)
        if self._resources:
            wanted["resourceSubscriptions"] = list(self._resources)
        newest = self._requests.ask_own(LISTEN, {"notifications": wanted}, self._ended)
        self._open = [*self._open[-1:], newest]
        self._acknowledged = False

    def _settle(self, known: list[Any], refusal: Failure) -> None:
        """Answer the requests that wait for a resource, and subscribe to resources wanted since."""
        self._acknowledged = True
        for request_id, uri in tuple(self._waiting.items()):
            if self._outdated and uri not in known:
                continue  # it was perhaps not asked for yet
            del self._waiting[request_id]
            outcome: Outcome = Success({}) if uri in known else refusal
            if isinstance(outcome, Failure):
                self._resources.pop(uri, None)
            self._events.append(Answered(request_id, outcome))
        if self._outdated:
            self._outdated = False
            self._listen()
