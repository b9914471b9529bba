"""Requests to the kernel for an MCP client (kernel.parties.Client): a call, or a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from protocol.dialects.mcp.inquiries import ASK
from protocol.dialects.mcp.rpc import RpcError
from protocol.errors import Failure, Outcome, Reason
from protocol.events import Log, Progress, UiEvent, built
from protocol.host_events import ApprovalUiEvent, RegisteredAsset
from protocol.problem import EXCERPT_CHARS, printable
from protocol.response import Response
from supervisor.faces.mcp.questions import METHODS, outcome_of
from supervisor.kernel.parties import DAEMON, Begin, Client, Handle, Party
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import Congestion

if TYPE_CHECKING:
    from supervisor.faces.mcp.request import McpRequest

FILE_BYTES = 16 << 20
"""The longest file in an answer, and all files of one answer together."""

TakeOutcome = Callable[[Outcome, Mapping[str, RegisteredAsset]], None]
"""Takes the outcome of a call, and the files that it handed over, by the module's own ids."""


class File(msgspec.Struct, frozen=True):
    media_type: str
    data: bytes


class Channel(Protocol):
    """The way to a client that is told of one request, and can be asked something back."""

    @property
    def most_bytes(self) -> int | None:
        """How long the answer may be; None for any length."""

    def notify(self, method: str, params: dict[str, Any]) -> None: ...

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Give the answer; called once, and last."""

    def congested(self) -> Congestion: ...

    def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[dict[str, Any] | RpcError], None],
    ) -> Callable[[], None]:
        """Ask the client in turn, in the older era; the returned function drops its answer."""


class McpCall(Client):
    """An invocation; events with a counterpart in MCP are passed on as they come."""

    def __init__(
        self,
        begin: Begin,
        request: McpRequest,
        answered: TakeOutcome,
    ) -> None:
        self._begin = begin
        self._party = request.asked.party
        self._client = request.asked.client
        self._request = request
        self._answered = answered
        self._token = request.asked.token
        self._module = DAEMON
        self._done = float("-inf")
        self._assets: dict[str, RegisteredAsset] = {}
        self._handle: Handle | None = None

    def invoke(self, module: str, op: str, args: dict[str, Any], **more: Any) -> None:
        self._module = module
        content = {"op": op, "args": args, **more}
        self._handle = self._begin(self._party, module, "invoke", content, self)

    def cancel(self, stopped: Stopped) -> None:
        if self._handle is not None:
            self._handle.cancel(stopped)

    def resume(self) -> None:
        if self._handle is not None:
            self._handle.resume()

    # What the kernel tells.

    def event(self, event: Progress, line: bytes | None) -> None:
        del line
        match event:
            case Log():
                self._log(event)
            case RegisteredAsset():
                self._assets[event.asset_id] = event
            case ApprovalUiEvent(event="approval.request", payload=dict(question)):
                self._request.ask_person(question)
                if not self._request.may_be_asked(ASK):
                    self._say_who_answers(question)
            case ApprovalUiEvent(approval=approval):
                self._request.person_answered(approval)
            case UiEvent(event="progress"):
                self._progress(built(event.payload))

    def finished(self, response: Response) -> None:
        self._handle = None
        self._answered(response.outcome, self._assets)

    def congested(self) -> Congestion:
        return self._request.congested()

    # What a module asks its client (kernel.parties.Askable).

    def may_be_asked(self, method: str) -> bool:
        """Whether the client says that it can answer that."""
        return self._request.may_be_asked(method)

    def was_needed(self, method: str) -> None:
        """Note that only the client could have answered."""
        self._request.was_needed(method)

    def ask(
        self,
        key: str,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[Outcome], None],
    ) -> Callable[[], None]:
        """Ask the client; returns a function that withdraws the question."""
        return self._request.ask(
            key, METHODS[method], params, lambda answer: answered(outcome_of(answer))
        )

    def _say_who_answers(self, question: Mapping[str, Any]) -> None:
        """Tell a client that can't ask its person what the call waits for."""
        words = printable(str(question.get("prompt", "a person is asked")), EXCERPT_CHARS)
        words += f" (this client can't ask: type `stdiod approve {question['id']}`, or --deny with"
        words += " it; `stdiod approvals` shows the whole question)"
        level = self._client.wants("warn")
        if self._token is not None:
            done = max(self._done, 0)  # it has to grow, and the module's own to be told after it
            done = done if done > self._done else math.nextafter(done, math.inf)
            self._progress({"done": done, "message": words})
        elif level is not None:
            params = {"level": level, "logger": self._module, "data": words}
            self._request.notify("notifications/message", params)

    def _log(self, event: Log) -> None:
        level = self._client.wants(event.level)
        if level is None:
            return
        logger = built(event.fields).get("logger", self._module)
        params = {"level": level, "logger": str(logger), "data": event.message}
        self._request.notify("notifications/message", params)

    def _progress(self, payload: dict[str, Any]) -> None:
        if self._token is None:
            return
        done: Any = payload.get("done")
        if not _is_number(done) or done <= self._done:
            return  # it has to grow
        self._done = done
        params: dict[str, Any] = {"progressToken": self._token, "progress": done}
        if _is_number(payload.get("total")):
            params["total"] = payload["total"]
        if isinstance(payload.get("message"), str):
            params["message"] = payload["message"]
        self._request.notify("notifications/progress", params)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class FileRead(Client):
    """A file of an asset, read into memory."""

    def __init__(
        self, begin: Begin, party: Party, answered: Callable[[File | Failure], None]
    ) -> None:
        self._begin = begin
        self._party = party
        self._answered = answered
        self._handle: Handle | None = None
        self._known: Mapping[str, Any] = {}
        self._data = bytearray()

    def read(self, asset: str) -> None:
        content = {"op": "asset.content", "args": {"asset": asset}}
        self._handle = self._begin(self._party, DAEMON, "invoke", content, self)

    def cancel(self, stopped: Stopped) -> None:
        if self._handle is not None:
            self._handle.cancel(stopped)

    def event(self, event: Progress, line: bytes | None) -> None:
        """Take the description of the file, then its pieces."""
        del line
        if not isinstance(event, Log) or not isinstance(event.fields, dict):
            return
        if "data" in event.fields:
            self._data += event.fields["data"]
            return
        self._known = event.fields
        if event.fields["size"] > FILE_BYTES and self._handle is not None:
            words = f"it has {event.fields['size']} bytes, and an answer takes {FILE_BYTES};"
            words += f" `stdiod asset open {event.fields['asset']}` and HTTP have no such limit"
            self._handle.cancel(Stopped(Reason.LIMIT_REACHED, words))

    def finished(self, response: Response) -> None:
        self._handle = None
        outcome = response.outcome
        if isinstance(outcome, Failure):
            self._answered(outcome)
        else:
            self._answered(File(self._known["media_type"], bytes(self._data)))
