"""The clauses of a module that is a service over HTTP: each request has a connection to itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import trio

from protocol.connection import Answered, Events, Notice, Request, Warned
from protocol.errors import Failure, Outcome, Success
from protocol.replies import Operation
from protocol.service_answer import ServiceAnswer, request_body
from protocol.transcript import EntrySource
from supervisor.conformance.clauses import ClauseStatus
from supervisor.conformance.examination import Examination
from supervisor.conformance.plays import ODD_FIELDS
from supervisor.conformance.trial import PATIENCE, TimedAnswer, Timing, Traffic, Watched
from supervisor.runtime.process.environment import UnsetVariableError
from supervisor.runtime.supervision.description import misfit_of
from supervisor.runtime.supervision.service_client import ServiceClient, UnreachableError


async def examine(exam: Examination, environment: Mapping[str, str]) -> None:
    try:
        client = await trio.to_thread.run_sync(ServiceClient, exam.descriptor, environment)
    except UnsetVariableError as error:
        exam.find("service", ClauseStatus.FAILS, f"it cannot be asked: {error}")
        return
    try:
        await _examine(exam, client)
    finally:
        await client.close()


async def _examine(exam: Examination, client: ServiceClient) -> None:
    description = await _introduced(exam, client)
    if description is None:
        return
    outputs = exam.take_description(description)
    for clause, odd in ODD_FIELDS.items():
        await _healthy(exam, client, clause, **odd)
    if exam.descriptor.supervision.concurrency > 1:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_healthy, exam, client, "two at once")
    for op, args in exam.args.items():
        exam.called.append(op)
        asked = _Asked(exam, exam.request(Operation.INVOKE, op, args))
        outcome = await asked.judged(client, "answers", "invoke_s", op)
        exam.note(asked.notices, asked, op)
        if outcome is not None:
            exam.find("answers", ClauseStatus.HOLDS, op=op)
            if not any(one.reason == "unknown_field" for one in asked.notices):
                exam.judge_result(op, outcome, outputs, asked)


async def _introduced(exam: Examination, client: ServiceClient) -> dict[str, Any] | None:
    """Ask `health` and `describe`; None, and a finding, without an answer."""
    if not await _healthy(exam, client, "health"):
        return None
    asked = _Asked(exam, exam.request(Operation.DESCRIBE))
    outcome = await asked.judged(client, "describe", "describe_s")
    if isinstance(outcome, Failure):
        exam.find(
            "describe", ClauseStatus.FAILS, f"it answered {outcome.code}: {outcome.message}", asked
        )
    if not isinstance(outcome, Success):
        return None
    description: dict[str, Any] = outcome.result
    contradiction = misfit_of(description, exam.descriptor)
    if contradiction is not None:
        exam.find("describe", ClauseStatus.FAILS, f"it {contradiction}", asked)
        return None
    exam.has_started = True
    for clause in ("service", "describe"):
        exam.find(clause, ClauseStatus.HOLDS)
    return description


async def _healthy(exam: Examination, client: ServiceClient, clause: str, **unknown: Any) -> bool:
    asked = _Asked(exam, exam.request(Operation.HEALTH), **unknown)
    outcome = await asked.judged(client, clause, "health_s")
    exam.judge_health(clause, outcome, asked)
    return isinstance(outcome, Success)


class _Asked(Watched):
    """A request to a service, and the answer that came over HTTP."""

    def __init__(self, exam: Examination, request: Request, **unknown: Any) -> None:
        self.exchange = Traffic()
        self.notices: list[Notice] = []
        self._exam = exam
        self._request = request
        self._unknown = unknown
        self._answered: Answered | None = None

    async def judged(
        self, client: ServiceClient, clause: str, bound: str, op: str | None = None
    ) -> Outcome | None:
        """Post the request; returns its outcome, if it has one."""
        began, bound_s = trio.current_time(), getattr(self._exam.timeouts, bound)
        bound += f" ({bound_s:g} s)"
        try:
            with trio.move_on_after(PATIENCE * bound_s):
                await self._post(client)
        except UnreachableError as error:
            shown = "" if error.shown is None else f": {error.shown}"
            words = f"it {error.message}{shown}"
            # If the service has answered before, this request's clause is to blame.
            of = clause if self._exam.has_started else "service"
            self._exam.find(of, ClauseStatus.FAILS, words, self, op)
            return None
        if self._answered is None:
            words = f"no answer came within {bound}, or within twice that time"
            self._exam.find(clause, ClauseStatus.FAILS, words, self, op)
            return None
        is_late = trio.current_time() - began > bound_s
        timing = Timing.LATE if is_late else Timing.IN_TIME
        reply = TimedAnswer(self._answered, timing, bound)
        return self._exam.judge_answer(clause, self, reply, op)

    async def _post(self, client: ServiceClient) -> None:
        request, body = self._request, request_body(self._request)
        if self._unknown:
            body = msgspec.json.encode({**msgspec.json.decode(body), **self._unknown})
        self.exchange.said(
            "", EntrySource.HOST, f"POST /{request.operation} ".encode() + body + b"\n"
        )
        async with client.post(request.operation, body) as reply:
            answer = ServiceAnswer(reply.media, self._exam.descriptor, request, client.secrets)
            async for chunk in reply.chunks:
                self.exchange.said("", EntrySource.MODULE, chunk)
                self._take(answer.receive_data(chunk))
                if answer.is_over:
                    return
            self._take(answer.receive_eof())

    def _take(self, events: Events) -> None:
        for item in events:
            if isinstance(item, Answered):
                self._answered = item
            elif isinstance(item, Warned):
                self.notices.append(item.notice)
