"""The clauses of a module with a process per invocation: `narratoria`, `exec`, `module`.

A probe must never run such a tool, so without a permitted op hardly anything is tried.
"""

from __future__ import annotations

from typing import Any

from protocol.dialects.registry import DIALECTS
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.replies import Operation, completed
from supervisor.conformance.examination import Examination
from supervisor.conformance.persistent import ODD_FIELDS, judge_sigterm
from supervisor.conformance.report import Status
from supervisor.conformance.trial import Trial
from supervisor.policy.verdict import on_invocation


async def examine(exam: Examination) -> None:
    descriptor = exam.descriptor
    exam.find("starts", Status.HOLDS)
    description = completed(Operation.DESCRIBE, Success({}), descriptor)
    assert isinstance(description, Success)  # noqa: S101 - the descriptor is all it needs
    stated = description.result
    if DIALECTS[descriptor.transport.protocol].answers_probes:
        for operation in (Operation.HEALTH, Operation.DESCRIBE):
            outcome = await _serve(exam, str(operation), operation)
            if not isinstance(outcome, Success):
                return
            exam.find(str(operation), Status.HOLDS)
            stated = outcome.result if operation is Operation.DESCRIBE else stated
    exam.judge_schemas(stated)
    exam.choose_ops(stated.get("inputs"))
    for op, args in exam.args.items():
        exam.called.append(op)
        outcome = await _serve(exam, exam.op_clause, Operation.INVOKE, op, args)
        if outcome is not None:
            exam.find(exam.op_clause, Status.HOLDS, op=op)
            exam.judge_result(op, outcome, stated.get("outputs"), None)
            exam.good.append(op)
    if exam.good and descriptor.transport.protocol != "exec":
        await _robust(exam, exam.good[0])


async def _robust(exam: Examination, op: str) -> None:
    args = exam.args[op]
    for clause, odd in ODD_FIELDS.items():
        outcome = await _serve(exam, clause, Operation.INVOKE, op, args, **odd)
        if outcome is not None:
            exam.find(clause, Status.HOLDS)
    trial = exam.trial()
    if await exam.begin(trial):
        await trial.settle(exam.timeouts.start_s)
        await judge_sigterm(exam, trial)
        await exam.end(trial)


async def _serve(
    exam: Examination,
    clause: str,
    operation: Operation,
    op: str = "",
    args: Any = None,
    **unknown: Any,
) -> Outcome | None:
    """Run a process for one request; returns its outcome if it breaks no clause."""
    trial = exam.trial()
    request = exam.request(operation, op, args)
    trial.ask(request, **unknown)
    shown = op or None
    if trial.said.answer is not None:  # it takes no process to say so
        answer = trial.said.answer
        words = answer.message if isinstance(answer, Failure) else ""
        exam.find(exam.op_clause, Status.NOT_TRIED, words, op=shown)
        return None
    if not await exam.begin(trial, single_use=True):
        return None
    if not await exam.ends(trial, clause, "invoke_s", "its request", shown):
        return None
    return _judge(exam, trial, clause, shown)


def _judge(exam: Examination, trial: Trial, clause: str, op: str | None) -> Outcome | None:
    assert trial.exit is not None  # noqa: S101 - whose end is judged
    exam.note(trial.notices, trial, op)
    outcome = on_invocation(trial.said, trial.exit, None, f"{exam.descriptor.name}.{op}")
    if trial.strays:
        words = f"a line came after done: {trial.strays[0]}"
        exam.find("done", Status.FAILS, words, trial, op)
    if isinstance(outcome, Success) or outcome.details.get("origin") == "module":
        return outcome
    reason = Reason(outcome.details.get("reason", Reason.REPORTED))
    words = outcome.message
    if "line_excerpt" in outcome.details:
        words += f": {outcome.details['line_excerpt']}"
    if clause in ODD_FIELDS:
        exam.find(clause, Status.FAILS, words, trial)
    else:
        of = "events" if reason is Reason.INVALID_EVENT else clause
        exam.blame(reason, words, trial, of=of, op=op)
    return None
