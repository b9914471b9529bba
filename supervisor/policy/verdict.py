"""The outcome of a request after its process ended: the table of docs/protocol.md.

The rows are tried from the top; the first that applies is the verdict:

1. the host stopped the process for a reason of its own (deadline, silence, cancel, ...): the
   request was settled then, whatever the process did on its way out;
2. it passed a memory limit, with figures to show for it: `oom` (docs/operating.md; never because of
   an exit code or a signal alone: 137 may be anybody's SIGKILL);
3. a protocol fault that ended processing - except that a line cut off in the middle tells less
   than a bad exit does;
4. the process exited with a code other than 0 (or what its descriptor says is as good), or was
   killed (Spec 001 5.3: regardless of events);
5. no `done`;
6. what `done` said.

For a persistent instance (`on_death`) there are three: 2; a fault of the last line, if the process
exited with code 0; else how it ended. Too many processes are a limit too, but no lack of memory:
such an end is what its signal says, with the figures beside it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.errors import Code, Failure, Origin, Outcome, Reason, Success
from protocol.json_line import Fault


class Breach(msgspec.Struct, frozen=True):
    """A limit that was exceeded: its use, and the bound.

    `limit` is its name; `used` is the use when it was exceeded, of the whole tree - of all modules
    together for `memory_ceiling_bytes`, and then `share` is this module's part.
    """

    limit: str
    allowed: int
    used: int
    share: int | None = None
    by_kernel: bool = False
    """Whether the kernel's own count says so (cgroup memory.events), and not a sample of ours."""

    @property
    def is_memory(self) -> bool:
        """Whether it is about memory, so that the verdict is `oom`."""
        return self.limit != "processes"

    @property
    def reason(self) -> Reason:
        """`memory_limit` after a sample, `cgroup_oom` where the kernel counted."""
        if self.by_kernel:
            return Reason.CGROUP_OOM
        return Reason.MEMORY_LIMIT if self.is_memory else Reason.SIGNALED

    @property
    def words(self) -> str:
        """Return a clause: `used 300 of the 256 bytes ...`."""
        if not self.is_memory:
            return f"had {self.used} processes, and {self.allowed} is its limit"
        if self.share is not None:
            return (
                f"used most, {self.share} bytes, when all modules used {self.used} bytes, "
                f"and {self.allowed} is their ceiling"
            )
        return f"used {self.used} bytes of memory, and {self.allowed} is its limit"


class Tracer(msgspec.Struct, frozen=True):
    """A process that holds another by ptrace(2): a debugger, strace."""

    pid: int
    name: str

    @property
    def words(self) -> str:
        return f"{self.name or 'a process'} (pid {self.pid})"


class Exit(msgspec.Struct, frozen=True):
    """The end of a process, with its evidence."""

    exit_code: int | None = None
    signal: int | None = None
    instance: str | None = None
    pid: int | None = None
    uptime_s: float | None = None
    stderr_tail: tuple[str, ...] = ()
    survivors: tuple[int, ...] = ()
    """The pids of processes it left that could not be killed."""
    breach: Breach | None = None
    """The limit it was ended for; without this evidence no end is called `oom`."""
    stopped_by_host: bool = False
    """Whether the stop ladder had begun: then a SIGTERM or SIGKILL was the host's."""
    traced_by: Tracer | None = None
    """The process that keeps the dead one from being reaped."""
    remark: str = ""
    """A clause that follows `words`, from its output."""

    @property
    def abnormal(self) -> bool:
        """Whether the process ended in any way but exit code 0."""
        return self.exit_code != 0

    @property
    def reason(self) -> Reason:
        if self.breach is not None:
            return self.breach.reason
        return Reason.EXITED if self.signal is None else Reason.SIGNALED

    @property
    def words(self) -> str:
        """The end as a clause: `exited with code 3`, `was killed by SIGKILL`."""
        if self.breach is not None:
            return f"{self.breach.words}, so it was ended"
        if self.signal is not None:
            return f"was killed by {signal_name(self.signal)}"
        return "ended" if self.exit_code is None else f"exited with code {self.exit_code}"

    def evidence(self) -> dict[str, Any]:
        return {
            "instance": self.instance,
            "pid": self.pid,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "uptime_s": self.uptime_s,
            "stderr_tail": list(self.stderr_tail),
            "survivors": list(self.survivors) or None,
            "limit": None if self.breach is None else msgspec.structs.asdict(self.breach),
            "stopped_by_host": self.stopped_by_host or None,
            "traced_by": None if self.traced_by is None else msgspec.structs.asdict(self.traced_by),
        }


class Said(msgspec.Struct, frozen=True):
    """The module's words on a request before its process ended."""

    answer: Outcome | None = None
    fault: Fault | None = None
    error: Failure | None = None
    """The failure in its last `error` event."""
    codes: tuple[int, ...] = (0,)
    """The exit codes with which its answer stands."""

    def bears(self, end: Exit) -> bool:
        """Whether the process ended in a way that lets its answer stand."""
        return end.exit_code in self.codes

    @property
    def reported(self) -> dict[str, Any] | None:
        """The error that it reported, by its answer or before, for `details.reported`."""
        answer = self.answer
        if isinstance(answer, Failure) and answer.details.get("origin") == Origin.MODULE:
            return answer.as_reported
        return None if self.error is None else self.error.as_reported

    @property
    def carried(self) -> dict[str, Any] | None:
        """The error in its answer, for `details.reported`; without one, the error before it."""
        match self.answer:
            case Success(result=result, summary=summary):
                told = {"ok": True, "result": result}
                return told if summary is None else {**told, "summary": summary}
            case Failure() as failure:
                return {"ok": False, "error": failure.as_reported}
            case _:
                return self.reported


class Stopped(msgspec.Struct, frozen=True):
    """The host's own reason for ending a request, in words."""

    reason: Reason
    message: str


def on_invocation(said: Said, end: Exit, stopped: Stopped | None, what: str) -> Outcome:
    """Judge a per-invocation process; `what` names the request (`chart.draw`)."""
    evidence = {**end.evidence(), "reported": said.reported}
    if stopped is not None:
        return Failure.because(stopped.reason, stopped.message, **evidence)
    if end.breach is not None and end.breach.is_memory:
        return Failure.because(end.reason, f"{what}: its process {end.words}", **evidence)
    cut_off = said.fault is not None and said.fault.reason is Reason.TRUNCATED_LINE
    if said.fault is not None and not (cut_off and end.abnormal):
        return said.fault.failure(**evidence)
    if not said.bears(end):
        words = f"{what}: its process {end.words}{end.remark}"
        failure = Failure.because(end.reason, words, **evidence)
        # Spec 001 5.3: a protocol-level failure, where a persistent instance is `unreachable`.
        return msgspec.structs.replace(failure, code=Code.INTERNAL)
    if said.answer is None:
        return Failure.because(
            Reason.MISSING_DONE,
            f"{what}: its process exited with code 0 and no `done` event{end.remark}",
            **evidence,
        )
    return said.answer


def on_death(end: Exit, fault: Fault | None, what: str, error: Failure | None = None) -> Failure:
    """Judge a request in flight on a persistent instance that ended.

    `error` is the last one that the module reported.
    """
    evidence = {**end.evidence(), "reported": None if error is None else error.as_reported}
    if fault is not None and not end.abnormal and end.breach is None:
        return fault.failure(**evidence)
    return Failure.because(
        end.reason,
        f"{what}: {end.instance or 'its process'} {end.words} before it answered{end.remark}",
        **evidence,
    )


_NAMES_AN_ERROR = re.compile(
    r"(?=\S).*(error|exception|panic|fatal|cannot|can't|could not|denied|no such|not found)",
    re.IGNORECASE,
)


_SAYS_NOTHING = re.compile(
    r"npm (error|ERR!) (A complete log of this run|.*Note that you can)|npm notice"
    r"|npm (error|ERR!)( \d{3})?\s*$|npm (error|ERR!) \d{3} tarball, folder|[\s)}\]]*$"
)
"""Lines behind the cause that name none: npm's, and the end of Node's report."""


def last_words(stderr_tail: Sequence[str]) -> str:
    """Return the last line, preceded by the last one that names an error if that is another.

    Reports of errors end with where it happened, or with the runtime's version; such lines are
    indented, or name no error. Empty without any line.
    """
    if not stderr_tail:
        return ""
    said = [line for line in stderr_tail if not _SAYS_NOTHING.match(line)] or stderr_tail
    last = said[-1]
    named = (line for line in reversed(said) if _NAMES_AN_ERROR.match(line))
    telling = next(named, last)
    return last if telling == last else f"{telling} ... {last}"


def telling_tail(stderr_tail: Sequence[str], most: int) -> list[str]:
    """Return the last lines, with the last one that names an error in place of the first."""
    shown = list(stderr_tail[-most:])
    named = [
        one for one in stderr_tail if _NAMES_AN_ERROR.match(one) and not _SAYS_NOTHING.match(one)
    ]
    return shown if not named or named[-1] in shown else [named[-1], *shown[1:]]


def unset_remark(names: Sequence[str]) -> str:
    """Say as a clause that unset variables may be the cause; nothing if none was unset."""
    verb = "is" if len(names) == 1 else "are"
    return f"; {', '.join(names)}, which pass_env names, {verb} not set" if names else ""


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9; real-time signals by number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
