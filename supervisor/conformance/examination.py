"""Examine one module by its clauses: which are tried, on which processes, with which result."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

import trio

from protocol.args_schema import ArgsSchema, op_schemas, ops_problems
from protocol.connection import Memory, Notice, Request
from protocol.descriptor.model import HOOK_OP, Descriptor, Lifecycle
from protocol.errors import Failure, Outcome, Reason
from protocol.frames import encode
from protocol.hook_result import Invalid, read_hook_result
from protocol.json_line import excerpt
from protocol.problem import without_password
from protocol.replies import Operation
from supervisor.conformance.clauses import (
    CLAUSES,
    FIXES,
    OF_FAULT,
    ClauseStatus,
    Finding,
    Report,
    suite,
)
from supervisor.conformance.sample_args import sample_args, sample_event
from supervisor.conformance.trial import PATIENCE, TimedAnswer, Timing, Trial, TrialHost, Watched
from supervisor.runtime.process.incarnation import StopStep
from supervisor.runtime.process.preflight import obstacle
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.supervision.prepare import prepare_once

UNASKED = "no op was called: say which may be (--op NAME, --all-ops, examples in its inputs)"

OF_NOTICE = {
    "unknown_field": ("fields", ClauseStatus.FAILS),
    "lone_surrogate": ("utf-8", ClauseStatus.WARNING),
}


class Permission(NamedTuple):
    """Which ops may be called: those with args, those named, those with examples, or all."""

    args: dict[str, dict[str, Any] | None]
    """By op; None where they have to be made."""
    all_ops: bool = False


class Examination:
    def __init__(
        self,
        descriptor: Descriptor,
        place: TrialHost,
        permission: Permission,
        nursery: trio.Nursery,
    ) -> None:
        self.descriptor = descriptor
        self.timeouts = descriptor.supervision.timeouts
        self.findings: list[Finding] = []
        self.has_started = False
        self.called: list[str] = []
        self.good: list[str] = []
        """The ops that answered with a result."""
        self.quick: list[str] = []
        """Those of them that are fast enough to be called again and again."""
        self.args: dict[str, dict[str, Any]] = {}
        """Of each op that may be called."""
        self.inapplicable: set[str] = set()
        self._place = place
        self._permission = permission
        self._nursery = nursery
        self._memory: Memory = {}
        self._numbers = itertools.count(1)
        self._trials: list[Trial] = []
        self._suite = {one.name for one in suite(descriptor)}

    # Processes.

    def new_id(self) -> str:
        return f"check-{next(self._numbers)}"

    def trial(self) -> Trial:
        one = Trial(self.descriptor, self._place, self._memory, self.new_id)
        self._trials.append(one)
        return one

    async def begin(self, trial: Trial, *, single_use: bool = False) -> bool:
        """Start a process; False, and a finding, if it cannot be started."""
        self._place.progress(f"{self.descriptor.name}: starts")
        try:
            await trial.begin(single_use=single_use)
        except SpawnError as error:
            self.find("starts", ClauseStatus.FAILS, f"it could not be started: {error}")
            return False
        self._nursery.start_soon(trial.run)
        return True

    async def prepare(self) -> bool:
        """Run the `prepare` command, if there is one; False, and a finding, if it fails."""
        if not self.descriptor.transport.prepare:
            return True
        host = self._place.host
        wrong = await prepare_once(self.descriptor, host.environment, host.registry, host.log_files)
        if wrong is not None:
            printed = tuple(f"! {excerpt(one.encode())}" for one in wrong.printed)
            self.find("prepare", ClauseStatus.FAILS, wrong.words, exchanged=printed)
            return False
        self.find("prepare", ClauseStatus.HOLDS)
        return True

    async def can_start(self) -> bool:
        """Tell whether the command can be run; False, and a finding, if it cannot."""
        found = await trio.to_thread.run_sync(
            obstacle, self.descriptor, self._place.host.environment
        )
        if found is None:
            return True
        self.find("starts", ClauseStatus.FAILS, f"{found.words}; {found.hint}")
        return False

    async def end(self, trial: Trial) -> None:
        """Kill a process and all it left."""
        trial.stop(StopStep.KILL)
        while trial.process.pid is not None and trial.exit is None:
            await trial.until(lambda: trial.exit is not None, 60)

    async def ends(
        self, trial: Trial, clause: str, bound: str, after: str, op: str | None = None
    ) -> bool:
        """Wait for a process's end; False, and a finding, if it does not come within its bound."""
        bound_s = getattr(self.timeouts, bound)
        timing = await trial.until(lambda: trial.exit is not None, bound_s)
        if timing is Timing.IN_TIME:
            return True
        words, fix = f"it took longer than {bound} ({bound_s:g} s) to end", "late"
        if trial.exit is None or trial.exit.signal == signal.SIGKILL:
            known, fix = trial.known() if bound == "invoke_s" else ("", "")
            words = f"it still ran {PATIENCE * bound_s:g} s after {after}{known}"
        self.find(clause, ClauseStatus.FAILS, words, trial, op, fix=fix)
        await self.end(trial)
        return False

    def request(self, operation: Operation, op: str = "", args: Any = None) -> Request:
        self._place.progress(f"{self.descriptor.name}: {operation} {op}")
        return Request(self.new_id(), operation, op, args or {})

    # Findings.

    def find(
        self,
        clause: str,
        status: ClauseStatus,
        words: str = "",
        trial: Watched | None = None,
        op: str | None = None,
        *,
        exchanged: tuple[str, ...] = (),
        fix: str = "",
    ) -> None:
        """Record the finding of a clause: once for each op, and failures before all else."""
        if clause not in self._suite:
            clause = "answers" if "answers" in self._suite else "results"
        shown = trial is not None and status in (ClauseStatus.FAILS, ClauseStatus.WARNING)
        lines = exchanged or (trial.exchange.lines if trial is not None and shown else ())
        words, lines = without_password(words), tuple(map(without_password, lines))
        fix = FIXES.get(fix) or CLAUSES[clause].fix
        found = Finding(clause=clause, status=status, words=words, op=op, exchanged=lines, fix=fix)
        for at, one in enumerate(self.findings):
            if (one.clause, one.op) == (clause, op):
                if one.status in (ClauseStatus.HOLDS, ClauseStatus.NOT_TRIED):
                    self.findings[at] = found
                return
        self.findings.append(found)

    def blame(
        self, reason: Reason, words: str, trial: Watched, *, of: str, op: str | None = None
    ) -> None:
        """Record a failure of the clause that the fault violates, else of the request's clause."""
        own = f"{self.descriptor.transport.protocol} {reason}"
        fix = own if own in FIXES else reason
        self.find(OF_FAULT.get(reason, of), ClauseStatus.FAILS, words, trial, op, fix=fix)

    def judge(
        self, clause: str, trial: Trial, reply: TimedAnswer, op: str | None = None
    ) -> Outcome | None:
        """Judge an answer by its form and its time; returns its outcome, if it has one."""
        if reply.answered is None:
            self._judge_silence(clause, trial, reply.bound, op)
            return None
        return self.judge_answer(clause, trial, reply, op)

    def judge_answer(
        self, clause: str, trial: Watched, reply: TimedAnswer, op: str | None = None
    ) -> Outcome | None:
        """Judge an answer that came; returns its outcome, if it has one."""
        answered, timing, bound = reply
        assert answered is not None  # noqa: S101 - it came
        if answered.fault is not None:
            fault = answered.fault
            self.blame(fault.reason, f"{fault.message}: {fault.excerpt}", trial, of=clause, op=op)
            return None
        if timing is Timing.LATE:
            words = f"its answer took longer than {bound}"
            self.find(clause, ClauseStatus.FAILS, words, trial, op, fix="late")
            return None
        return answered.outcome

    def _judge_silence(self, clause: str, trial: Trial, bound: str, op: str | None) -> None:
        words, fix = f"no answer came within {bound}, or within twice that time", ""
        if trial.exit is not None:
            known, fix = trial.known()
            words = f"instead of an answer, the process {trial.exit.words}{known}"
        elif trial.strays:
            words = f"its answer names another request: {trial.strays[-1]}"
            trial.strays.clear()
            clause = "request ids" if op is not None else clause
        elif trial.connection.unfinished_line is not None:
            words = f"its answer has no newline: {trial.connection.unfinished_line}"
            clause = "lines"
        elif trial.noise:
            notice = trial.noise.pop()
            words, fix = f"{words}; {notice.in_place_of_answer}", notice.reason
        else:
            known, fix = trial.known()
            words += known
        self.find(clause, ClauseStatus.FAILS, words, trial, op, fix=fix)

    def judge_health(self, clause: str, outcome: Outcome | None, trial: Watched) -> None:
        if isinstance(outcome, Failure):
            words = f"it answered {outcome.code}: {outcome.message}"
            self.find(clause, ClauseStatus.FAILS, words, trial)
        elif outcome is not None:
            self.find(clause, ClauseStatus.HOLDS)

    def has_failed(self, clause: str) -> bool:
        return any(
            one.clause == clause and one.status is ClauseStatus.FAILS for one in self.findings
        )

    def judge_result(self, op: str, outcome: Outcome, outputs: Any, trial: Watched | None) -> None:
        """Check a result against the schema of its op, and a gate's against HookResult."""
        if op == HOOK_OP and "hook result" in self._suite and not isinstance(outcome, Failure):
            read = read_hook_result(outcome.result)
            if isinstance(read, Invalid):
                self.find("hook result", ClauseStatus.FAILS, read.problem, trial, op)
            else:
                self.find("hook result", ClauseStatus.HOLDS, op=op)
        schema = outputs.get(op) if isinstance(outputs, dict) else None
        if isinstance(outcome, Failure):
            words = f"it answered {outcome.code}: {outcome.message}"
            self.find("results", ClauseStatus.NOT_TRIED, words, op=op)
        elif not isinstance(schema, dict | bool):
            self.inapplicable.add("results")  # unless there is a finding of another op
        else:
            problem = ArgsSchema(schema).fault(outcome.result)
            if problem is None:
                self.find("results", ClauseStatus.HOLDS, op=op)
            else:
                words = f"the result{problem.pointer and ' at ' + problem.pointer} "
                self.find("results", ClauseStatus.FAILS, words + problem.message, trial, op)

    def take_description(self, description: dict[str, Any]) -> Any:
        """Check its schemas, and choose the ops that are called; returns its `outputs`."""
        # As a daemon does: what the descriptor says of args counts.
        stated = {"inputs": self.descriptor.inputs, "outputs": self.descriptor.outputs}
        description = {**description, **{key: value for key, value in stated.items() if value}}
        self.judge_schemas(description)
        self.choose_ops(description.get("inputs"))
        return description.get("outputs")

    def judge_schemas(self, description: dict[str, Any]) -> None:
        for key in ("inputs", "outputs"):
            schemas = description.get(key)
            if schemas and op_schemas(schemas) is None:
                words = f"{key} is not a map of ops to schemas, so it is not checked"
                self.find("schemas", ClauseStatus.WARNING, words)
                return
            problems = ops_problems(schemas, f"/{key}") if schemas else []
            if problems:
                # The tools of an MCP server are served all the same; args are not held to this.
                is_mcp = self.descriptor.transport.protocol == "mcp"
                words = "; ".join(map(str, problems if is_mcp else problems[:1]))
                self.find("schemas", ClauseStatus.WARNING if is_mcp else ClauseStatus.FAILS, words)
                return
        if description.get("inputs") or self.descriptor.hook is not None:
            self.find("schemas", ClauseStatus.HOLDS)
        else:
            add = encode({"inputs": {op: {} for op in self._permission.args or ("OP",)}}).decode()
            words = "/inputs: neither the module nor its descriptor says which ops it has"
            words += f"; add {add[1:-1]} to the descriptor, with the JSON Schema of each op's args"
            self.find("schemas", ClauseStatus.WARNING, words)

    def choose_ops(self, inputs: Any) -> None:
        schemas = op_schemas(inputs) or {}
        hook = self.descriptor.hook
        if hook is not None and not schemas:
            schemas = {HOOK_OP: {"type": "object"}}  # every hook has it
        for op in {**schemas, **self._permission.args}:
            if schemas and op not in schemas:
                words = f"it has no such op; it has {', '.join(schemas)}"
                self.find(self.op_clause, ClauseStatus.NOT_TRIED, words, op=op)
                continue
            given = self._permission.args.get(op)
            schema = schemas.get(op, {})
            has_examples = isinstance(schema, dict) and bool(schema.get("examples"))
            if op not in self._permission.args and not (self._permission.all_ops or has_examples):
                words = f"not called: say --op {op}, or --all-ops, or give it examples"
                self.find(self.op_clause, ClauseStatus.NOT_TRIED, words, op=op)
                continue
            if given is None and hook is not None and op == HOOK_OP and not has_examples:
                given = sample_event(hook)
            args = sample_args(schema) if given is None else given
            if args is None:
                words = f"no args could be made from its schema: say --op '{op}={{...}}'"
                self.find(self.op_clause, ClauseStatus.NOT_TRIED, words, op=op)
            else:
                self.args[op] = args

    @property
    def op_clause(self) -> str:
        return "answers" if "answers" in self._suite else "exit status"

    def note(self, notices: Sequence[Notice], trial: Watched, op: str | None = None) -> None:
        """Record what was not accepted of a request's lines."""
        for notice in notices:
            clause, status = OF_NOTICE.get(notice.reason, ("assets", ClauseStatus.FAILS))
            self.find(clause, status, notice.words, trial, op, fix=notice.reason)

    def conclude(self) -> Report:
        """Judge all output and all leftovers, and report."""
        # The rest of an object over several lines is noise, too.
        for trial in () if self.has_failed("lines") else self._trials:
            odd = [("stdout", one.words, str(one.reason)) for one in trial.noise]
            if self.descriptor.transport.lifecycle is Lifecycle.PERSISTENT:
                words = "a line came that answers no open request: "
                odd += [("stdout", f"{words}{one}", "stray") for one in trial.strays]
            if trial.twice:
                odd.append(("request ids", trial.twice, "twice"))
            for name, words, fix in odd:
                self.find(name, ClauseStatus.FAILS, words, exchanged=trial.odd_lines, fix=fix)
        found = {one.clause for one in self.findings}
        failed = sorted({one.clause for one in self.findings if one.status is ClauseStatus.FAILS})
        for clause in suite(self.descriptor):
            if clause.name in found or clause.name in self.inapplicable:
                continue
            if clause.needs_op and not self.called:
                self.find(clause.name, ClauseStatus.NOT_TRIED, UNASKED)
            elif clause.shown_by != "its play" and (self.has_started or self.called):
                self.find(clause.name, ClauseStatus.HOLDS)
            elif failed:
                self.find(clause.name, ClauseStatus.NOT_TRIED, f"{failed[0]!r} has to hold first")
            else:
                self.find(clause.name, ClauseStatus.NOT_TRIED, UNASKED)
        order = list(CLAUSES)
        transport = self.descriptor.transport
        return Report(
            module=self.descriptor.name,
            descriptor=self.descriptor.source,
            protocol=transport.protocol,
            lifecycle=str(transport.lifecycle),
            findings=tuple(sorted(self.findings, key=lambda one: order.index(one.clause))),
        )
