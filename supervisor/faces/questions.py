"""The questions to a client of lines in the course of its requests (docs/protocol.md).

The daemon is a module to its clients, so it asks as modules do: it writes a `host_call` with the
`requestId` of the request whose line had the method in `asks`, and the client answers with a
`host_result`. A question that somebody else has answered, or whose time is over, is withdrawn by a
`host_cancel`; those of a request that has its answer are over with that.

What a gate or the policy asks a person is asked by `user.ask`, too, beside the events that tell the
client of it. The answer is then given as the op `approve` gives it, with the rights of the request.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from protocol.errors import Failure, Outcome, Reason, Success
from protocol.host_call import (
    UNENCODABLE,
    BadCall,
    encode_call,
    encode_withdrawal,
    read_host_result,
)
from protocol.host_events import ApprovalUiEvent
from protocol.json_line import Fault, read_object
from protocol.problem import named
from supervisor.faces.outbox import Outbox
from supervisor.kernel.hooks.approvals import REQUEST
from supervisor.kernel.parties import DAEMON, Answered, Begin, OutcomeOnly, Party, Withdraw
from supervisor.policy.capabilities import USER_ASK

OPEN_QUESTIONS = 1024
"""The most open questions to one client; a further one fails."""


class ClientQuestions:
    """The open questions of one connection."""

    def __init__(self, outbox: Outbox, begin: Begin) -> None:
        self.begin = begin
        self._outbox = outbox
        self._numbers = itertools.count(1)
        self._open: dict[str, tuple[str, Answered]] = {}
        """By `call_id`, which is no other one's on this connection: request, and what to tell."""

    def ask(
        self,
        request_id: str,
        key: str,
        method: str,
        params: Mapping[str, Any],
        answered: Answered,
    ) -> Withdraw:
        """Ask the client; returns the function that withdraws the question.

        `key` is the asker's own name for it.
        """
        call_id = f"q{next(self._numbers)}"
        refusal = None
        try:
            line = encode_call(request_id, call_id, method, params, key)
        except UNENCODABLE as error:
            line = b""
            words = f"the question cannot be passed on: {type(error).__name__}"
            refusal = Failure.because(Reason.INVALID_EVENT, words)
        if len(self._open) >= OPEN_QUESTIONS:
            words = f"{OPEN_QUESTIONS} questions to the client are open"
            refusal = Failure.because(Reason.LIMIT_REACHED, words)
        elif self._outbox.congested and not self._outbox.account.takes_answer(len(line)):
            words = "the client does not read, so it can't be asked"
            refusal = Failure.because(Reason.SLOW_READER, words)
        if refusal is not None:
            answered(refusal)
        else:
            self._open[call_id] = request_id, answered
            self._outbox.put(line)
        return partial(self._withdraw, request_id, call_id)

    def answer(self, line: bytes) -> Failure | None:
        """Take a `host_result`; returns why it is refused, and the question stays open."""
        document = read_object(line)
        if isinstance(document, Fault):
            return Failure.because(
                Reason.MALFORMED_REQUEST, document.message, line_excerpt=document.excerpt
            )
        result = read_host_result(document)
        if isinstance(result, BadCall):
            return Failure.because(Reason.MALFORMED_REQUEST, result.message)
        request_id, answered = self._open.get(result.call_id, (None, None))
        if answered is None or request_id != result.request_id:
            words = f"no question {named(result.call_id, 80)} of the request"
            words += f" {named(result.request_id, 80)} is open: it was answered, withdrawn, or"
            words += " never asked"
            return Failure.because(Reason.MALFORMED_REQUEST, words)
        del self._open[result.call_id]
        answered(result.outcome)
        return None

    def is_open(self, line: bytes) -> bool:
        """Tell whether a line names an open question; it may be no `host_result`."""
        try:
            return _CALL_ID.decode(line).payload.call_id in self._open
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False

    def end(self, request_id: str) -> None:
        """Forget the questions of a request that has its answer."""
        for call_id in [one for one, (asker, _) in self._open.items() if asker == request_id]:
            del self._open[call_id]

    def _withdraw(self, request_id: str, call_id: str) -> None:
        if self._open.pop(call_id, None) is not None:
            self._outbox.put(encode_withdrawal(request_id, call_id))


class _Payload(msgspec.Struct):
    call_id: str


class _ResultLine(msgspec.Struct):
    payload: _Payload


_CALL_ID = msgspec.json.Decoder(_ResultLine)


class RequestQuestions:
    """What one request may ask its client, and what it has asked on behalf of people's answers."""

    def __init__(
        self, questions: ClientQuestions, request_id: str, methods: frozenset[str], party: Party
    ) -> None:
        self.methods = methods
        self._questions = questions
        self._request_id = request_id
        self._party = party
        self._withdraw: dict[str, Withdraw] = {}
        """What withdraws a question to a person, by the id of its approval."""

    def ask(self, key: str, method: str, params: Mapping[str, Any], answered: Answered) -> Withdraw:
        return self._questions.ask(self._request_id, key, method, params, answered)

    def told(self, event: ApprovalUiEvent) -> None:
        """Ask the client what a person is asked, or withdraw that: it is decided."""
        if USER_ASK not in self.methods:
            return
        withdraw = self._withdraw.pop(event.approval, None)
        if withdraw is not None:
            withdraw()
        if event.event == REQUEST and isinstance(event.payload, dict):
            self._ask_person(event.payload)

    def end(self) -> None:
        self._questions.end(self._request_id)

    def _ask_person(self, question: Mapping[str, Any]) -> None:
        form = question.get("form")
        if form is None:
            choices = {"type": "string", "enum": list(question.get("options", ()))}
            form = {"type": "object", "properties": {"answer": choices}, "required": ["answer"]}
        params = {"message": question.get("prompt", ""), "form": form}
        answered = partial(self._person_answered, question)
        key = str(question.get("call_id", question["id"]))
        self._withdraw[question["id"]] = self.ask(key, USER_ASK, params, answered)

    def _person_answered(self, question: Mapping[str, Any], outcome: Outcome) -> None:
        """Decide the approval as the client's person has; ask again if that does not fit."""
        del self._withdraw[question["id"]]
        said = outcome.result if isinstance(outcome, Success) else {}
        content = said.get("content")
        content = content if isinstance(content, dict) else {}
        decided: dict[str, Any] = {"id": question["id"], "answer": "deny"}
        if said.get("action") == "accept":
            if "form" in question:
                decided |= {"answer": "allow", "content": content}
            else:
                decided["answer"] = str(content.get("answer", "allow"))

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Failure) and outcome.details["reason"] == Reason.INVALID_ARGS:
                self._ask_person(question)

        client = OutcomeOnly(lambda response: told(response.outcome))
        self._questions.begin(self._party, DAEMON, "approve", decided, client)
