"""One request of an MCP client, and the questions to its client in the course of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.dialects.mcp.greeting import META
from protocol.dialects.mcp.inquiries import ASK
from protocol.dialects.mcp.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RpcError,
    RpcId,
)
from protocol.errors import Failure, Outcome
from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.host_events import RegisteredAsset
from protocol.mcp_server.client import MISSING_CAPABILITY, McpClient
from protocol.mcp_server.lines import error_document
from protocol.mcp_server.mending import result_for, strict_result
from protocol.mcp_server.results import (
    EmbeddedAsset,
    embedded,
    linked,
    own_error,
)
from protocol.problem import described
from protocol.trace_context import is_traceparent
from protocol.version import VERSION
from supervisor.faces.mcp.call import FILE_BYTES, Channel, File, FileRead, McpCall, TakeOutcome
from supervisor.faces.mcp.questions import CAPABILITIES as ASKED_FOR
from supervisor.faces.mcp.questions import (
    COLLECT_S,
    ELICIT,
    Inquiry,
    decision_of,
    form_of,
)
from supervisor.faces.mcp.table import Table, laying_out
from supervisor.faces.mcp.table_on_its_way import TableOnItsWay
from supervisor.kernel.operations.offers import LOOKED_AT
from supervisor.kernel.parties import DAEMON, OutcomeOnly, Party
from supervisor.policy.mcp_views import View
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import Congestion
from supervisor.runtime.supervision.deadlines import Timer

if TYPE_CHECKING:
    from supervisor.faces.mcp.server import McpServer

FRAME_BYTES = 1024
"""The length of an answer beside its result; its id may be longer, and is the client's own."""

SERVER = {"name": "stdiod", "title": "stdiod", "version": VERSION}
"""The server information in answers."""

Given = dict[str, Mapping[str, dict[str, Any]]]
"""The lists as a client knows them, by field."""


class ClientRequest(msgspec.Struct, frozen=True):
    rpc_id: RpcId
    method: str
    params: dict[str, Any]
    client: McpClient
    party: Party
    view: View
    given: Given
    headers: Mapping[str, str] | None = None
    """Over HTTP, in the newer era: args that headers repeat have to match them."""

    @property
    def token(self) -> RpcId | None:
        """The progress token, if there is one."""
        meta = self.params.get("_meta")
        found = meta.get("progressToken") if isinstance(meta, dict) else None
        return found if isinstance(found, str) or type(found) is int else None

    @property
    def traceparent(self) -> dict[str, Any]:
        """The trace context, as args of an invocation; {} without a valid one."""
        meta = self.params.get("_meta")
        found = meta.get("traceparent") if isinstance(meta, dict) else None
        return {"traceparent": found} if is_traceparent(found) else {}


class McpRequest:
    """A request from its beginning to its answer, in however many rounds."""

    def __init__(self, server: McpServer, asked: ClientRequest, told: Channel) -> None:
        self.server = server
        self.asked = asked
        self.told = told
        self.ended = False
        self.has_output_schema = False
        """Whether the result has to have structured content."""
        self._call: McpCall | FileRead | TableOnItsWay | _Awaiting | None = None
        self._inquiries: dict[str, Inquiry] = {}
        """Questions to the client, in the newer era."""
        self._given: Mapping[str, Any] = {}
        """The client's answers that came before the questions."""
        self._withdraw: dict[str, Callable[[], None]] = {}
        self._round: Timer | None = None
        self._needed: dict[str, dict[str, Any]] = {}

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Answer the request; in the newer era with the fields that each result has there."""
        self.ended = True
        self._call = None
        if self._round is not None:
            self._round.cancel()
        if self._needed and self.asked.client.is_modern and _is_error(outcome):
            words = f"the client has to be able to do this: {', '.join(self._needed)}"
            data = {"requiredCapabilities": self._needed}
            outcome = RpcError(MISSING_CAPABILITY, words, data)
        if not isinstance(outcome, RpcError) and self.asked.client.is_modern:
            said = outcome.get("_meta")
            meta = {f"{META}serverInfo": SERVER, **(said if isinstance(said, dict) else {})}
            outcome = {"resultType": "complete", **outcome, "_meta": meta}
        if not isinstance(outcome, RpcError):
            outcome = strict_result(self.asked.method, outcome, self.asked.params.get("uri"))
            outcome = result_for(self.asked.client.revision, outcome)
        most_bytes = self.told.most_bytes
        if most_bytes is not None:
            outcome = self._bounded(outcome, most_bytes)
        self.told.finish(outcome)

    def _bounded(
        self, outcome: Mapping[str, Any] | RpcError, most_bytes: int
    ) -> Mapping[str, Any] | RpcError:
        """Return an answer within the bound: in the place of a result, perhaps a link to it."""
        try:
            data = encode(error_document(outcome) if isinstance(outcome, RpcError) else outcome)
        except UNENCODABLE:
            return outcome  # nor can it be written
        if len(data) + FRAME_BYTES <= most_bytes:
            return outcome
        if isinstance(outcome, RpcError) or "content" not in outcome:
            words = f"the answer has {len(data)} bytes, and what was told before it has made it"
            return RpcError(
                INTERNAL_ERROR, f"{words} an event of a stream: that takes {most_bytes}"
            )
        uri = self.server.set_aside.keep(data, self.asked.party.principal)
        return linked(outcome, uri, len(data), has_schema=self.has_output_schema)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.told.notify(method, params)

    def congested(self) -> Congestion:
        return self.told.congested()

    def cancel(self, stopped: Stopped) -> None:
        if self._call is not None:
            self._call.cancel(stopped)

    def resume(self) -> None:
        if isinstance(self._call, McpCall):  # nothing else has events
            self._call.resume()

    # What its client is asked.

    @property
    def whose(self) -> tuple[Principal, str, str]:
        """The key under which the client may come back to the request."""
        asked = self.asked
        named = str(asked.params.get("name", asked.params.get("uri")))
        return asked.party.principal, asked.method, named

    @property
    def comes_back(self) -> bool:
        """Whether the client brings answers to questions."""
        return any(name in self.asked.params for name in ("requestState", "inputResponses"))

    def resumed(self) -> McpRequest:
        """Return the request that continues with the answers: a parked one, or itself."""
        params = self.asked.params
        answers = params.get("inputResponses", {})
        if not isinstance(answers, dict):
            words = f'"inputResponses" is {described(answers)}, it must be an object'
            self.finish(RpcError(INVALID_PARAMS, words))
        elif "requestState" not in params:
            self._given = answers
            self.server.start(self)
        else:
            state, arguments = params["requestState"], params.get("arguments")
            waited = self.server.parked.take(state, self.whose, arguments)
            if isinstance(waited, McpRequest):
                waited.go_on(self.asked, self.told, answers)
                return waited
            self.finish(waited)
        return self

    def go_on(self, asked: ClientRequest, told: Channel, answers: Mapping[str, Any]) -> None:
        """Continue for a client that has come back; unanswered questions are asked again."""
        left, self.asked, self.told = self.told, asked, told
        if isinstance(left, Absent) and left.outcome is not None:
            told.finish(left.outcome)
            return
        for key in tuple(self._inquiries):
            answer = answers.get(key)
            if (
                isinstance(answer, dict) and answer
            ):  # `{}` answers nothing: every result has members
                self._inquiries.pop(key).answered(answer)
        self._begin_round()

    def may_be_asked(self, method: str) -> bool:
        """Whether the client says that it can answer that."""
        return ASKED_FOR[method] in self.asked.client.capabilities

    def was_needed(self, method: str) -> None:
        """Note that only the client could have answered."""
        if not self.may_be_asked(method):
            self._needed[ASKED_FOR[method]] = {}

    def ask(
        self,
        key: str,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[dict[str, Any] | RpcError], None],
    ) -> Callable[[], None]:
        """Ask the client; returns a function that withdraws the question."""
        if not self.asked.client.is_modern:
            return self.told.ask(method, params, answered)
        given = self._given.get(key)
        if isinstance(given, dict) and given:
            self._given = {one: value for one, value in self._given.items() if one != key}
            answered(given)
            return lambda: None
        self._inquiries[key] = Inquiry(method, params, answered)
        self._begin_round()

        def withdraw() -> None:
            self._inquiries.pop(key, None)

        return withdraw

    def ask_person(self, question: Mapping[str, Any]) -> None:
        """Pass a question of the daemon's to the client, if it can ask its person."""
        if not self.may_be_asked(ASK):
            return  # somebody else may answer it: `stdiod approve`

        def answered(answer: dict[str, Any] | RpcError) -> None:
            def decided(outcome: Outcome) -> None:
                if isinstance(outcome, Failure) and not self.ended:
                    self.ask_person(question)  # it does not fit

            decision = decision_of(question, answer)
            _Awaiting(decided).begin(self.server, self.asked.party, "approve", decision)

        key = str(question.get("call_id", question["id"]))
        self._withdraw[question["id"]] = self.ask(key, ELICIT, form_of(question), answered)

    def person_answered(self, approval: str) -> None:
        """Withdraw the question: another answer came, or the time is over."""
        withdraw = self._withdraw.pop(approval, None)
        if withdraw is not None:
            withdraw()

    def _begin_round(self) -> None:
        if self._round is None:
            self._round = self.server.deadlines.after(COLLECT_S, self._end_round)

    def _end_round(self) -> None:
        """Send the collected questions to the client."""
        self._round = None
        if not self._inquiries or self.ended or isinstance(self.told, Absent):
            return
        requests = {
            key: {"method": one.method, "params": one.params}
            for key, one in self._inquiries.items()
        }
        told, self.told = self.told, Absent()
        told.finish(
            {
                "resultType": "input_required",
                "inputRequests": requests,
                "requestState": self.server.parked.park(self),
                "_meta": {f"{META}serverInfo": SERVER},
            }
        )

    # For the methods.

    def text(self, name: str) -> str | None:
        """Return a param that has to be a string; None if it was refused."""
        value = self.asked.params.get(name)
        if isinstance(value, str):
            return value
        found = f"is {described(value)}" if name in self.asked.params else "is missing"
        self.finish(RpcError(INVALID_PARAMS, f'"{name}" {found}, it must be a string'))
        return None

    def given(self, *names: str) -> dict[str, Any]:
        """Return the params of these names; null counts as missing."""
        params = self.asked.params
        return {name: params[name] for name in names if params.get(name) is not None}

    def meaning(self, name: str) -> tuple[str, str] | None:
        """Return the op of a tool's present or former name."""
        return self.server.meaning(self.asked.view, self.asked.party.principal, name)

    def unlisted(self, name: str) -> tuple[str, str] | None:
        """Return module and op of a name that no list has, if a module is called so."""
        return self.server.unlisted(self.asked.view, self.asked.party.principal, name)

    def with_table(
        self,
        then: Callable[[Table], None],
        *,
        look_again: Sequence[str] | None = None,
        wait: bool = True,
    ) -> None:
        """Call `then` with the table; with `wait` it includes modules that are starting.

        With `look_again` the table is made anew, and these modules are asked for more. A refusal of
        the daemon is the answer.
        """
        asked = self.asked
        principal = asked.party.principal
        kept = self.server.kept(asked.view, principal, wait=wait)
        if kept is not None and look_again is None:
            then(kept)
            return

        def answered(outcome: Outcome) -> None:
            self._call = None
            if isinstance(outcome, Failure):
                self.finish(own_error(outcome))
                return
            offers = outcome.result
            version, offered = offers["version"], offers["modules"]
            had = self.server.had(asked.view, principal)
            steps = laying_out(version, asked.view, principal, offered, has_waited=wait, had=had)
            self._call = TableOnItsWay(asked.party.label, steps, self.server.deadlines, made)
            self._call.begin()

        def made(table: Table | Failure) -> None:
            self._call = None
            if isinstance(table, Failure):
                self.finish(own_error(table))
                return
            self.server.keep(asked.view, principal, table)
            then(table)

        awaiting = self._call = _Awaiting(answered)
        args = {"wait": wait, "look_again": list(look_again or ())[:LOOKED_AT]}
        awaiting.begin(self.server, asked.party, "offers", args)

    def invoke(self, module: str, op: str, args: dict[str, Any], answered: TakeOutcome) -> None:
        """Call an op; `answered` takes the outcome."""
        asked = self.asked
        call = self._call = McpCall(self.server.begin, self, answered)
        call.invoke(module, op, args, **asked.traceparent)

    def read(self, asset: str, answered: Callable[[File | Failure], None]) -> None:
        reading = self._call = FileRead(self.server.begin, self.asked.party, answered)
        reading.read(asset)

    def finish_with(self, result: Mapping[str, Any], assets: Mapping[str, RegisteredAsset]) -> None:
        """Answer with a result that embeds the bytes of some files."""
        if not embedded(result):
            self.finish(result)
            return
        whole = copy.deepcopy(dict(result))  # others hold the result, too
        self._fill(whole, embedded(whole), assets, 0)

    def _fill(
        self,
        result: dict[str, Any],
        places: list[EmbeddedAsset],
        assets: Mapping[str, RegisteredAsset],
        size: int,
    ) -> None:
        if not places:
            self.finish(result)
            return
        place, *others = places
        if place.asset_id not in assets:
            place.leave_out("the file was not taken in")
            self._fill(result, others, assets, size)
            return
        registered = assets[place.asset_id].registered
        if size + registered.bytes > FILE_BYTES:
            place.leave_out(f"the files of an answer take at most {FILE_BYTES} bytes")
            self._fill(result, others, assets, size)
            return

        def read(found: File | Failure) -> None:
            if isinstance(found, Failure):
                place.leave_out(found.message)
            else:
                place.put(found.data)
            self._fill(result, others, assets, size + registered.bytes)

        self.read(registered.id, read)


class Absent:
    """Null client: its client is to come back, or there is none."""

    most_bytes = None

    def __init__(self) -> None:
        self.outcome: Mapping[str, Any] | RpcError | None = None

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Keep nothing."""

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Keep the answer."""
        self.outcome = outcome

    def congested(self) -> Congestion:
        return Congestion.NONE

    def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[dict[str, Any] | RpcError], None],
    ) -> Callable[[], None]:
        """Ask nobody: only the older era asks so, and its clients stay."""
        del method, params, answered
        return lambda: None


def _is_error(outcome: Mapping[str, Any] | RpcError) -> bool:
    return isinstance(outcome, RpcError) or outcome.get("isError") is True


class _Awaiting:
    """A request to the daemon itself."""

    def __init__(self, then: Callable[[Outcome], None]) -> None:
        self._then = then
        self._handle: Any = None

    def begin(self, server: McpServer, party: Party, op: str, args: dict[str, Any]) -> None:
        content = {"op": op, "args": args}
        client = OutcomeOnly(lambda response: self._then(response.outcome))
        self._handle = server.begin(party, DAEMON, "invoke", content, client)

    def cancel(self, stopped: Stopped) -> None:
        if self._handle is not None:
            self._handle.cancel(stopped)
