"""The questions that modules ask the client of a request, before its answer.

    older era   each is a request to the client, which answers it
    newer era   questions are collected for a moment, and end the request with `input_required`; it
                is parked until the client asks the same again, with answers and the state it got

A state is signed, and valid once, for a while, and for the client that got it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.client import ClientQuestion
from protocol.dialects.mcp.vocabulary import ASK, HOST_METHODS, META
from protocol.errors import Failure, Success
from protocol.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, RpcError
from protocol.mcp_server.daemon_link import DaemonRequest
from protocol.mcp_server.request import SERVER, ClientRequest, refused
from protocol.mcp_server.tasks import TimerHandle
from protocol.problem import described

COLLECT_S = 0.02
"""Questions that a module asks at once come a pass of the daemon's loop apart."""

PARKED_S = 600.0
"""How long a request waits for its client to come back; its own deadline may be sooner."""

PARKED = 1024
"""The number of waiting requests; a further one ends the oldest."""

ASKED_BY = {ours: theirs for theirs, ours in HOST_METHODS.items()}
"""The methods of MCP by which a client is asked."""


class SigningKey:
    """Makes names and signatures that nobody but one server can know."""

    def __init__(self, key: bytes) -> None:
        """`key` is random, and of one server alone."""
        self._key = key
        self._numbers = 0

    def draw(self, purpose: str) -> str:
        """Return a name that was not drawn before, in hexadecimal digits."""
        self._numbers += 1
        return self.sign(f"{purpose} {self._numbers}".encode())

    def sign(self, data: bytes) -> str:
        import hashlib  # noqa: PLC0415 - OpenSSL is half a megabyte, and few clients need it
        import hmac  # noqa: PLC0415

        return hmac.new(self._key, data, hashlib.sha256).hexdigest()

    def is_signed(self, data: bytes, signature: str) -> bool:
        import hmac  # noqa: PLC0415

        return hmac.compare_digest(signature.encode(), self.sign(data).encode())


class Inquiry(msgspec.Struct, frozen=True):
    """A question of the daemon's that waits for the client."""

    asker: DaemonRequest
    asked: ClientQuestion

    def document(self) -> dict[str, Any]:
        """Return it as a request of MCP: its method and params."""
        call = self.asked.call
        params = call.params
        if call.method == ASK:
            message, form = params.get("message", ""), params.get("form")
            params = {"mode": "form", "message": message, "requestedSchema": form}
        return {"method": ASKED_BY[call.method], "params": params}

    def answer(self, answer: dict[str, Any] | RpcError) -> None:
        """Pass the client's answer on to the module."""
        if isinstance(answer, RpcError):
            self.asker.answer(self.asked, Failure(str(answer.code), answer.message))
        else:
            self.asker.answer(self.asked, Success(answer))


class Questions:
    """Those of all requests of one server."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self._sent: dict[str, ClientRequest] = {}
        """The requests with questions to a client of the older era, by the questions' ids."""
        self._parked: dict[str, tuple[ClientRequest, TimerHandle]] = {}
        """The parked requests by the names of their states, the oldest first."""

    def ask(self, request: ClientRequest, asker: DaemonRequest, asked: ClientQuestion) -> None:
        question, call = Inquiry(asker, asked), asked.call
        if request.client.is_modern:
            key = call.key or call.call_id
            given = request.early_answers.pop(key, None)
            if isinstance(given, dict) and given:
                question.answer(given)
                return
            if key in request.questions:  # another module in the call names its own so
                key = f"{key}-{call.call_id}"
            request.questions[key] = question
            request.gather(len(asked.line))
            self._end_round_soon(request)
        elif request.may_stream:
            named = f"stdiod-{self._key.draw('question')[:16]}"
            self._sent[named], request.questions[named] = request, question
            request.gather(len(asked.line))
            request.server.send(request, {"id": named, **question.document()})
        else:
            words = "the client takes no stream, and so cannot be asked"
            question.answer(RpcError(INVALID_REQUEST, words))

    def receive_answer(self, named: str, answer: dict[str, Any] | RpcError) -> None:
        """Take the answer of a client of the older era."""
        request = self._sent.pop(named, None)
        if request is not None:
            _taken(request, named).answer(answer)

    def withdraw(self, request: ClientRequest, call_id: str | None = None) -> None:
        """Withdraw the questions of a request, or that of one call; nobody needs the answer."""
        for key, question in tuple(request.questions.items()):
            if call_id in (None, question.asked.call.call_id):
                _taken(request, key)
                if not request.client.is_modern:
                    del self._sent[key]
                    params = {"requestId": key, "reason": "it is answered, or over"}
                    cancelled = {"method": "notifications/cancelled", "params": params}
                    request.server.send(request, cancelled)

    # The newer era.

    def _end_round_soon(self, request: ClientRequest) -> None:
        if not request.is_collecting:
            request.is_collecting = True
            request.server.tasks.call_later(COLLECT_S, lambda: self._end_round(request))

    def _end_round(self, request: ClientRequest) -> None:
        """Park a request if questions are open: its client is to come back with answers."""
        request.is_collecting = False
        if not request.questions or request.is_parked:
            return
        if len(self._parked) >= PARKED:
            self._give_up(next(iter(self._parked)))
        named = self._key.draw("state")
        timer = request.server.tasks.call_later(PARKED_S, lambda: self._give_up(named))
        self._parked[named] = request, timer
        result = {
            "resultType": "input_required",
            "inputRequests": {key: one.document() for key, one in request.questions.items()},
            "requestState": f"{named}.{self._key.sign(self._meant(named, request))}",
            "_meta": {f"{META}serverInfo": SERVER},
        }
        request.server.answer(request, result)
        request.is_parked = True

    def take_parked(self, again: ClientRequest) -> ClientRequest | None:
        """Return the request that a client comes back for, which is then to `resume`.

        None if it is for no parked one; it may bring answers all the same. Raises `RefusedError`.
        """
        answers = again.params.get("inputResponses", {})
        if not isinstance(answers, dict):
            words = f'"inputResponses" is {described(answers)}, it must be an object'
            raise refused(INVALID_PARAMS, words)
        again.early_answers = dict(answers)
        if "requestState" not in again.params:
            return None
        state = again.params["requestState"]
        named, _, signature = state.partition(".") if isinstance(state, str) else ("", "", "")
        good = self._key.is_signed(self._meant(named, again), signature)
        parked = self._parked[named][0] if good and named in self._parked else None
        if parked is None or parked.arguments_mark != again.arguments_mark:
            words = (
                "the requestState was not given to this client for this request, was used"
                f" before, or is older than {PARKED_S:g} s"
            )
            raise refused(INVALID_PARAMS, words)
        self._parked.pop(named)[1].cancel()
        parked.become(again)
        return parked

    def resume(self, request: ClientRequest) -> None:
        """Go on with a request that was parked; questions without an answer are asked again."""
        if request.outcome is not None:
            request.finish(request.outcome)
            return
        answers, request.early_answers = request.early_answers, {}
        for key in tuple(request.questions):
            answer = answers.get(key)
            if isinstance(answer, dict) and answer:  # each result has members: `{}` answers nothing
                _taken(request, key).answer(answer)
        self._end_round_soon(request)

    def close(self) -> None:
        """Cancel all that are parked."""
        for named in tuple(self._parked):
            self._give_up(named)

    def _give_up(self, named: str) -> None:
        parked, timer = self._parked.pop(named)
        timer.cancel()
        parked.let_go()
        parked.cancel()

    def _meant(self, named: str, request: ClientRequest) -> bytes:
        """Return what a state is good for: one caller's request for one thing."""
        params, caller = request.params, request.server.daemon.caller or {}
        said: list[Any] = [named, caller.get("name"), caller.get("face"), caller.get("modules")]
        said += [request.method, str(params.get("name", params.get("uri")))]
        return msgspec.json.encode(said)


def _taken(request: ClientRequest, key: str) -> Inquiry:
    """Return a question that is no longer open."""
    question = request.questions.pop(key)
    request.gather(-len(question.asked.line))
    return question
