"""The plays: the clauses of a module's processes, in the order in which they are tried.

A persistent module is of the dialect `module` or `mcp`. One with a process per invocation may be of
any other: a probe must never run such a tool, so without a permitted op hardly anything is tried.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from protocol.connection import Flow, StartFailed
from protocol.dialects.registry import DIALECTS
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.replies import Operation, completed
from supervisor.conformance.clauses import ClauseStatus
from supervisor.conformance.examination import Examination
from supervisor.conformance.trial import PATIENCE, Timing, Trial
from supervisor.policy.verdict import on_invocation
from supervisor.runtime.containment import procfs
from supervisor.runtime.process.incarnation import StopStep
from supervisor.runtime.supervision.description import misfit_of
from supervisor.runtime.supervision.life import SLOW

ODD_FIELDS: dict[str, dict[str, Any]] = {
    "unknown fields": {"unknown": {"as": ["yet", None]}, "unknownToo": "x"},
    "long line": {"padding": "x" * (1 << 20)},
}
"""Fields in a request that no protocol knows, by the clause that they try."""

ODD_ID = 'check "é✓😀" \\ /'
"""Quotes, a backslash, and characters of two, three and four bytes."""

SETTLING_CALLS, ALL_CALLS = 500, 1000
GROWTH_BYTES = 16 << 20
"""Growth of a garbage-collected heap that is no leak (Node: 6 MiB)."""
QUICK_S = 0.005
"""A slower op is not called a thousand times."""
MEMORY_S = 20.0
"""The time for the calls of `memory`."""

_PARTS = ("version", "capabilities", "inputs", "outputs")


async def examine_persistent(exam: Examination) -> None:
    trial = await _started(exam)
    if trial is None or trial.ready is None:
        return
    description = trial.ready.description
    if exam.descriptor.transport.protocol == "module":
        _judge_introduction(exam, trial, description)
    else:
        exam.find("introduction", ClauseStatus.HOLDS)
        if trial.findings:
            words = "of its lists, clients get some definitions mended, or not at all"
            told = tuple(trial.findings)
            exam.find("introduction", ClauseStatus.WARNING, words, exchanged=told)
    exam.inapplicable |= {"cancel", "flow"}.difference(description.get("features", ()))
    outputs = exam.take_description(description)
    plays: list[Callable[[Examination, Trial], Awaitable[None]]] = [
        *(partial(_healthy, clause=clause, **odd) for clause, odd in ODD_FIELDS.items()),
        _any_id,
        _two_at_once,
        partial(_ops, outputs),
        _cancel,
        _flow,
        _memory,
        _late_answer,
        _end_of_input,
        judge_sigterm,
    ]
    for play in plays:
        if trial.exit is not None or trial.is_out_of_step:
            await exam.end(trial)
            again = await _started(exam)
            if again is None:
                return
            trial = again
        await play(exam, trial)
    await exam.end(trial)


# The start.


async def _started(exam: Examination) -> Trial | None:
    """Start a process and wait until it is ready; None, and a finding, if it fails."""
    trial = await _begun(exam)
    if trial is not None and trial.again:
        await exam.end(trial)
        trial = await _begun(exam)
    if trial is None:
        return None
    if trial.ready is not None:
        contradiction = misfit_of(trial.ready.description, exam.descriptor)
        if contradiction is None:
            exam.has_started = True
            exam.find("starts", ClauseStatus.HOLDS)
            exam.find("stays", ClauseStatus.HOLDS)
            return trial
        exam.find("describe", ClauseStatus.FAILS, f"it {contradiction}", trial)
    elif trial.exit is not None:
        _judge_early_exit(exam, trial)
    else:
        await _judge_failed_start(exam, trial, trial.start_failed)
    await exam.end(trial)
    return None


async def _begun(exam: Examination) -> Trial | None:
    """Start a process and wait until its start has succeeded or failed."""
    trial = exam.trial()
    if not await exam.begin(trial):
        return None
    bound_s = exam.timeouts.start_s + exam.timeouts.describe_s
    await trial.until(lambda: trial.ready or trial.start_failed or trial.again, bound_s + 1)
    return trial


def _judge_early_exit(exam: Examination, trial: Trial) -> None:
    assert trial.exit is not None  # noqa: S101 - whose end it is
    known, fix = trial.known()
    if trial.answered:
        words = f"it {trial.exit.words} after its first answer{known}"
        exam.find("stays", ClauseStatus.FAILS, words, trial, fix=fix)
        return
    said = f"; {trial.noise[-1].in_place_of_answer}" if trial.noise else ""
    trial.noise.clear()  # it is told here
    words = f"it {trial.exit.words} and answered nothing{said}{known}"
    exam.find("starts", ClauseStatus.FAILS, words, trial)


async def _judge_failed_start(exam: Examination, trial: Trial, failed: StartFailed | None) -> None:
    words = "it did not answer" if failed is None else f"it {failed.message}"
    clause = "introduction"
    if exam.descriptor.transport.protocol == "module":
        clause = "describe" if Operation.HEALTH in trial.replies else "health"
    last = list(trial.answered.values())[-1:]
    if last and last[0].fault is not None:
        exam.blame(last[0].fault.reason, words, trial, of=clause)
        return
    if trial.connection.unfinished_line is not None:
        exam.find("lines", ClauseStatus.FAILS, words, trial)
        return
    if trial.strays:
        trial.strays.clear()
        exam.find("request ids", ClauseStatus.FAILS, words, trial)
        return
    fix = trial.noise[-1].reason if trial.noise else ""
    if not fix and failed is not None and failed.bound:
        known, fix = trial.known()
        words += known
    if not trial.process.times_heard:
        start_s = exam.timeouts.start_s
        later = trial.until(lambda: trial.process.times_heard, start_s / PATIENCE)
        if await later is not Timing.NEVER:
            words = f"it first printed something later than start_s ({start_s:g} s) after its start"
            exam.find("starts", ClauseStatus.FAILS, words, trial, fix="slow")
            return
        trial.process.close_stdin()
        heard = trial.until(lambda: trial.process.times_heard, exam.timeouts.exit_s)
        if await heard is not Timing.NEVER:
            words = "it answered nothing until its stdin was closed, and then at once; "
            words += SLOW.format("start_s")
            exam.find("flush", ClauseStatus.FAILS, words, trial)
            return
    trial.noise.clear()  # it is told in the words
    exam.find(clause, ClauseStatus.FAILS, words, trial, fix=fix)


def _judge_introduction(exam: Examination, trial: Trial, description: dict[str, Any]) -> None:
    replies = trial.replies
    declined = [
        operation
        for operation in (Operation.HEALTH, Operation.DESCRIBE)
        if "unsupported_op" in str(replies.get(operation, {}).get("error"))
    ]
    for operation in (Operation.HEALTH, Operation.DESCRIBE):
        if operation in declined:
            words = "it answers unsupported_op, so it is taken to be well"
            if operation is Operation.DESCRIBE:
                words = "it answers unsupported_op, so it is what its descriptor says"
            exam.find(str(operation), ClauseStatus.SUPPLIED, words)
    extra = sorted(set(description["capabilities"]) - set(exam.descriptor.capabilities))
    said = replies.get(Operation.DESCRIBE, {})
    said = said["result"] if isinstance(said.get("result"), dict) else said
    absent = [part for part in _PARTS if said.get(part) is None]
    if extra:
        words = f"it names capabilities that its descriptor has not: {', '.join(extra)}"
        exam.find("describe", ClauseStatus.WARNING, words, trial)
    elif absent:
        words = f"{', '.join(absent)}: not in its answer, taken from the descriptor"
        exam.find("describe", ClauseStatus.SUPPLIED, words)
    exam.find("health", ClauseStatus.HOLDS)
    exam.find("describe", ClauseStatus.HOLDS)
    ids = [one.get("requestId") for one in replies.values()]
    if all(ids):
        exam.find("request ids", ClauseStatus.HOLDS)
    elif exam.descriptor.supervision.concurrency > 1:
        words = "its answers have no requestId, and it says that it serves several at a time"
        exam.find("request ids", ClauseStatus.FAILS, words, trial)
    else:
        words = "its answers have none: it is asked one thing at a time, and replaced when late"
        exam.find("request ids", ClauseStatus.SUPPLIED, words)


# With one process that is ready.


async def _healthy(exam: Examination, trial: Trial, clause: str, **unknown: Any) -> None:
    request = exam.request(Operation.HEALTH)
    trial.ask(request, **unknown)
    reply = await trial.answer(request.request_id, "health_s")
    exam.judge_health(clause, exam.judge(clause, trial, reply), trial)


async def _any_id(exam: Examination, trial: Trial) -> None:
    if exam.descriptor.transport.protocol != "module":
        return
    request = exam.request(Operation.HEALTH)
    request = type(request)(ODD_ID, request.operation)
    trial.ask(request)
    reply = await trial.answer(ODD_ID, "health_s")
    if exam.judge("any id", trial, reply) is not None:
        exam.find("any id", ClauseStatus.HOLDS)


async def _two_at_once(exam: Examination, trial: Trial) -> None:
    if exam.descriptor.supervision.concurrency == 1:
        return
    requests = [exam.request(Operation.HEALTH) for _ in range(2)]
    for one in requests:
        trial.ask(one)
    for one in requests:
        reply = await trial.answer(one.request_id, "health_s")
        if exam.judge("two at once", trial, reply) is None:
            return
    exam.find("two at once", ClauseStatus.HOLDS)


async def _cancel(exam: Examination, trial: Trial) -> None:
    """Cancel a request that is not open, and a running call, if one may be made."""
    if "cancel" in exam.inapplicable:
        return
    trial.tell({"requestId": "not open", "operation": "cancel"})
    if exam.good:
        request = exam.request(Operation.INVOKE, exam.good[0], exam.args[exam.good[0]])
        trial.ask(request)
        trial.give_up(request.request_id)
    await _healthy(exam, trial, "cancel")


async def _flow(exam: Examination, trial: Trial) -> None:
    """Pause and resume a request that is not open, and a call, if one may be made."""
    if "flow" in exam.inapplicable:
        return
    for operation in Flow:
        trial.tell({"requestId": "not open", "operation": operation})
    if not exam.good:
        await _healthy(exam, trial, "flow")
        return
    request = exam.request(Operation.INVOKE, exam.good[0], exam.args[exam.good[0]])
    trial.ask(request)
    for operation in Flow:
        trial.process.flow(request.request_id, operation)
    reply = await trial.answer(request.request_id, "invoke_s")
    if exam.judge("flow", trial, reply) is not None:
        exam.find("flow", ClauseStatus.HOLDS)


async def _ops(outputs: Any, exam: Examination, trial: Trial) -> None:
    for op, args in exam.args.items():
        if trial.exit is not None or trial.is_out_of_step:
            exam.find("answers", ClauseStatus.NOT_TRIED, "the process had ended before", op=op)
            continue
        exam.called.append(op)
        began = trio.current_time()
        outcome = await _call(exam, trial, op, args)
        if isinstance(outcome, Success):
            exam.good.append(op)
            if trio.current_time() - began < QUICK_S:
                exam.quick.append(op)
        exam.note(trial.notices, trial, op)
        is_misspelt = any(one.reason == "unknown_field" for one in trial.notices)
        trial.notices.clear()
        if outcome is not None:
            exam.find("answers", ClauseStatus.HOLDS, op=op)
        if outcome is not None and not is_misspelt:
            exam.judge_result(op, outcome, outputs, trial)


async def _call(exam: Examination, trial: Trial, op: str, args: Any) -> Outcome | None:
    request = exam.request(Operation.INVOKE, op, args)
    trial.ask(request)
    reply = await trial.answer(request.request_id, "invoke_s")
    if reply.answered is None and trial.exit is None:
        trial.is_out_of_step = True
    return exam.judge("answers", trial, reply, op)


async def _memory(exam: Examination, trial: Trial) -> None:
    """Measure with the first op that answered well and fast, else with `health`."""
    assert trial.process.pid is not None  # noqa: S101 - it was spawned
    good = exam.quick
    used = [0, 0]
    done = False
    with trio.move_on_after(MEMORY_S):
        for number in range(1, ALL_CALLS + 1):
            if good:
                request = exam.request(Operation.INVOKE, good[0], exam.args[good[0]])
            else:
                request = exam.request(Operation.HEALTH)
            trial.ask(request)
            reply = await trial.answer(request.request_id, "invoke_s")
            if reply.answered is None:
                break
            del trial.answered[request.request_id]
            if number == SETTLING_CALLS:
                used[0] = procfs.rss_bytes_of_process(trial.process.pid)
        else:
            used[1] = procfs.rss_bytes_of_process(trial.process.pid)
            done = True
    what = f"calls of {good[0]}" if good else "questions for its health"
    if trial.exit is not None:
        known, fix = trial.known()
        words = f"in the midst of {ALL_CALLS} {what} it {trial.exit.words}{known}"
        exam.find("stays", ClauseStatus.FAILS, words, trial, fix=fix)
    elif not done:
        trial.is_out_of_step = True
        words = f"{ALL_CALLS} {what} took longer than {MEMORY_S:g} s"
        exam.find("memory", ClauseStatus.NOT_JUDGED, words)
    elif used[1] - used[0] > GROWTH_BYTES:
        kib = (used[1] - used[0]) >> 10
        words = f"it grew by {kib} KiB from {what} {SETTLING_CALLS} to {ALL_CALLS}"
        exam.find("memory", ClauseStatus.WARNING, words, trial)
    else:
        exam.find("memory", ClauseStatus.HOLDS)


async def _late_answer(exam: Examination, trial: Trial) -> None:
    """Give a request up while the process is stopped, and ask again once it continues."""
    if exam.has_failed("cancel") or exam.has_failed("flow"):
        return  # that would be told of it again
    containment = trial.process.containment
    containment.signal(signal.SIGSTOP)
    request = exam.request(Operation.HEALTH)
    trial.ask(request)
    trial.give_up(request.request_id)
    containment.signal(signal.SIGCONT)
    if trial.is_out_of_step:
        words = "it echoes no requestId, so a process that was late is replaced"
        exam.find("late answer", ClauseStatus.SUPPLIED, words)
        return
    await _healthy(exam, trial, "late answer")


# Its end.


async def _end_of_input(exam: Examination, trial: Trial) -> None:
    trial.process.close_stdin()
    if not await exam.ends(trial, "end of input", "exit_s", "its stdin had ended"):
        return
    if trial.exit is not None and trial.exit.abnormal:
        words = f"it {trial.exit.words} when its stdin ended, as if it had crashed"
        exam.find("end of input", ClauseStatus.WARNING, words, trial)
    else:
        exam.find("end of input", ClauseStatus.HOLDS)


async def judge_sigterm(exam: Examination, trial: Trial) -> None:
    trial.stop(StopStep.TERMINATE)
    if await exam.ends(trial, "SIGTERM", "stop_s", "SIGTERM"):
        exam.find("SIGTERM", ClauseStatus.HOLDS)


# A process per invocation: `narratoria`, `exec`, `module`.


async def examine_single_use(exam: Examination) -> None:
    descriptor = exam.descriptor
    exam.find("starts", ClauseStatus.HOLDS)
    description = completed(Operation.DESCRIBE, Success({}), descriptor)
    assert isinstance(description, Success)  # noqa: S101 - the descriptor is all it needs
    stated = description.result
    if DIALECTS[descriptor.transport.protocol].answers_probes:
        for operation in (Operation.HEALTH, Operation.DESCRIBE):
            outcome = await _serve(exam, str(operation), operation)
            if not isinstance(outcome, Success):
                return
            exam.find(str(operation), ClauseStatus.HOLDS)
            stated = outcome.result if operation is Operation.DESCRIBE else stated
    exam.judge_schemas(stated)
    exam.choose_ops(stated.get("inputs"))
    for op, args in exam.args.items():
        exam.called.append(op)
        outcome = await _serve(exam, exam.op_clause, Operation.INVOKE, op, args)
        if outcome is not None:
            exam.find(exam.op_clause, ClauseStatus.HOLDS, op=op)
            exam.judge_result(op, outcome, stated.get("outputs"), None)
            exam.good.append(op)
    if exam.good and descriptor.transport.protocol != "exec":
        await _robust(exam, exam.good[0])


async def _robust(exam: Examination, op: str) -> None:
    args = exam.args[op]
    for clause, odd in ODD_FIELDS.items():
        outcome = await _serve(exam, clause, Operation.INVOKE, op, args, **odd)
        if outcome is not None:
            exam.find(clause, ClauseStatus.HOLDS)
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
        exam.find(exam.op_clause, ClauseStatus.NOT_TRIED, words, op=shown)
        return None
    if not await exam.begin(trial, single_use=True):
        return None
    if not await exam.ends(trial, clause, "invoke_s", "its request", shown):
        return None
    return _judge_end(exam, trial, clause, shown)


def _judge_end(exam: Examination, trial: Trial, clause: str, op: str | None) -> Outcome | None:
    assert trial.exit is not None  # noqa: S101 - whose end is judged
    exam.note(trial.notices, trial, op)
    outcome = on_invocation(trial.said, trial.exit, None, f"{exam.descriptor.name}.{op}")
    if trial.strays:
        words = f"a line came after done: {trial.strays[0]}"
        exam.find("done", ClauseStatus.FAILS, words, trial, op)
    if isinstance(outcome, Success) or outcome.details.get("origin") == "module":
        return outcome
    reason = Reason(outcome.details.get("reason", Reason.REPORTED))
    words = outcome.message
    if "line_excerpt" in outcome.details:
        words += f": {outcome.details['line_excerpt']}"
    if clause in ODD_FIELDS:
        exam.find(clause, ClauseStatus.FAILS, words, trial)
    else:
        of = "events" if reason is Reason.INVALID_EVENT else clause
        exam.blame(reason, words, trial, of=of, op=op)
    return None
