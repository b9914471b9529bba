r"""The start of a server: the greeting, then its lists, then their changes (`Listening`).

    greeting --agreed--> its lists, all at once --the last page of the last--> Ready
       \--failed              \--no list of tools--> StartFailed

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
    Memory,
    ModuleLog,
    Ready,
    Received,
    Request,
    StartAgain,
    StartFailed,
    Unanswered,
    Wait,
)
from protocol.descriptor.model import Descriptor
from protocol.dialects.mcp.catalogue import CHANGED, COMPLAINTS, ServerLists
from protocol.dialects.mcp.greeting import Agreed, Greeting, GreetingStep, Speaker
from protocol.dialects.mcp.offers import LISTS, TOOLS
from protocol.dialects.mcp.rpc import RpcError, RpcId, meant_id, refused
from protocol.dialects.mcp.vocabulary import DISCOVER, EXTRAS, INITIALIZE, LISTEN, META, SUBSCRIBE
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log
from protocol.json_line import Fault
from protocol.problem import quoted

LOOK_AGAIN_S = 1.0
"""Requests for unknown tools, however many, cost the server one list a second."""


class Introduction:
    def __init__(
        self,
        descriptor: Descriptor,
        speaker: Speaker,
        memory: Memory,
        client: dict[str, Any],
        listening: Listening,
    ) -> None:
        self.waits: tuple[Wait, ...] = ()
        self.catalogue: ServerLists | None = None
        """The server's lists, once the greeting is over."""
        self.is_ready = False
        self._descriptor = descriptor
        self._speaker = speaker
        self._greeting: Greeting | None = Greeting(descriptor, memory, client)
        self._asked: dict[RpcId, str] = {}
        """The methods of open questions, by id."""
        self._listening = listening
        self._outdated: set[str] = set()
        self._lookups: list[str] = []
        """The ids of requests that wait for the tools."""
        self._may_look = True
        """Whether the list of tools is old enough to be fetched anew for those."""
        self.left: dict[Wait, tuple[str, dict[str, Any]]] = {}
        """Pages with entries left for another turn: the list, and the page."""

    def begin(self, received: list[Received]) -> None:
        assert self._greeting is not None  # noqa: S101 - it is begun once
        self._follow(self._greeting.begin(), received)

    def exited(self) -> StartAgain | None:
        """Return `StartAgain` if the process ended before the greeting was over."""
        greeting, self._greeting = self._greeting, None
        self._asked, self.waits, self._lookups = {}, (), []
        return None if greeting is None else greeting.exited()

    def time_passed(self, wait: Wait, received: list[Received]) -> None:
        """Greet in another way, go on without optional lists, or give up."""
        if self._greeting is not None:
            self._follow(self._greeting.time_passed(wait), received)
        elif wait in self.left:
            name, page = self.left.pop(wait)
            if self.catalogue is not None and self.catalogue.is_coming(name):
                self._answered_list(self.catalogue, name, page, received)
        elif self.is_ready:
            self._may_look, self.waits = True, ()
        elif self.catalogue is not None:
            if not self.catalogue.has_tools:
                words = f"did not list its tools in {wait.seconds:g} s"
                self._fail(words, received, "describe_s")
                return
            for name in [one for one in LISTS if self.catalogue.is_coming(one)]:
                self.catalogue.give_up(name, f"no answer in {wait.seconds:g} s")
            self._listed(received)

    @property
    def is_greeting(self) -> bool:
        return self._greeting is not None

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
            self.fail_start(refused(method, outcome), received)
        elif method in (DISCOVER, INITIALIZE):
            if self._greeting is not None:
                if isinstance(outcome, Fault):
                    outcome = RpcError(0, outcome.message)
                self._follow(self._greeting.answered(method, outcome), received)
        elif self.catalogue is not None and self.catalogue.is_coming(method):
            self._answered_list(self.catalogue, method, outcome, received)

    def changed(self, method: str, params: dict[str, Any]) -> bool:
        """Fetch the list that a notification says has changed; False if there is none."""
        if self.catalogue is None:
            return False
        if self._speaker.is_modern and not self._listening.is_of_lists(params):
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

    def fail_start(self, words: str, received: list[Received]) -> None:
        if self._greeting is not None:
            self._follow(self._greeting.failed("bad_start", words), received)
        elif self.catalogue is not None:
            self._fail(words, received)

    def sent(self, rpc_id: RpcId, method: str) -> None:
        catalogue = self.catalogue
        if self.is_ready and catalogue and method in LISTS and not catalogue.is_coming(method):
            catalogue.begin(method)  # a replay: nobody looks again in it
        self._asked = {known: one for known, one in self._asked.items() if one != method}
        self._asked[rpc_id] = method

    def _ask(self, method: str, params: dict[str, Any]) -> None:
        self.sent(self._speaker.ask_own(method, params), method)

    def _follow(self, step: GreetingStep, received: list[Received]) -> None:
        assert self._greeting is not None  # noqa: S101 - whose step it is
        self.waits = self._greeting.waits
        if isinstance(step, Agreed):
            self._greeting = None
            self._agreed(step, received)
        elif isinstance(step, StartFailed):
            self._greeting = None
            received.append(step)
        elif step is not None:
            self._ask(step.method, step.params)

    def _agreed(self, agreed: Agreed, received: list[Received]) -> None:
        self._asked = {}
        self._speaker.agreed = agreed
        catalogue = self.catalogue = ServerLists(agreed)
        if catalogue.extras:
            named = ", ".join(map(quoted, catalogue.extras[:8]))
            words = f"has extensions or experimental capabilities ({named}): MCP clients get "
            words += "them, and their notifications, only through a view of this module alone"
            received.append(ModuleLog(Log(version="0", level="info", message=words)))
        if not self._speaker.is_modern:
            self._speaker.notify("notifications/initialized", {})
        seconds = self._descriptor.supervision.timeouts.describe_s
        self.waits = (Wait(seconds, "its lists of tools, prompts and resources"),)
        self._list(catalogue, catalogue.offered or [TOOLS])
        self._listed(received)

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
                self._fail(words, received)
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
        how = DISCOVER if self._speaker.is_modern else INITIALIZE
        received.append(Ready(description, f"answered {how} ({catalogue.agreed.revision})"))
        if self._speaker.is_modern:
            self._listening.begin(catalogue.agreed.capabilities)
        self._list_anew(catalogue)

    def _list_anew(self, catalogue: ServerLists) -> None:
        """Ask again for the lists that changed while they were being fetched."""
        outdated, self._outdated = self._outdated, set()
        self._list(catalogue, sorted(outdated))

    def _fail(self, words: str, received: list[Received], bound: str = "") -> None:
        self.catalogue, self.waits, self._asked = None, (), {}
        received.append(StartFailed("bad_describe", words, bound))


def _warning(words: str) -> ModuleLog:
    return ModuleLog(Log(version="0", level="warn", message=words), is_finding=True)


class Listening:
    r"""The notifications of a server of the newer era: one `subscriptions/listen` for all of them.

        wanted otherwise --> listen again --acknowledged--> the one before is cancelled
                                    \--refused--> the one before goes on

    So nothing is missed between the two, and there are two at the most: further wishes wait until
    the newer one is acknowledged. Requests of the host follow resources (`resources/subscribe`);
    they are answered when the server has acknowledged the resource.

    A server of the older era notifies of its lists unasked, and has a request for each resource.
    """

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
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
            self._speaker.notify("notifications/cancelled", {"requestId": former})
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
            received.append(ModuleLog(Log(version="0", level="warn", message=words)))
        else:
            words = f"the server has ended {LISTEN}"
        if newest:
            self._settle([], Failure.because(Reason.INVALID_ARGS, words), received)

    def sent(self, rpc_id: RpcId) -> None:
        self._open = [*self._open[-1:], rpc_id]
        self._acknowledged = False

    def _listen(self) -> None:
        wanted: dict[str, Any] = dict(self._lists)
        if self._resources:
            wanted["resourceSubscriptions"] = list(self._resources)
        self.sent(self._speaker.ask_own(LISTEN, {"notifications": wanted}))

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
