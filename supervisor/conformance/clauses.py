"""The clauses of conformance, as data, and the report on them; `plays` and `service` play them.

A suite lists the clauses of one protocol and lifecycle, in the order of the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from xml.etree import ElementTree as ET

import msgspec

from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.errors import Reason


class Clause(msgspec.Struct, frozen=True):
    """A duty of a module, the document that sets it, and the fix for a module that fails it."""

    name: str
    must: str
    source: str
    fix: str
    shown_by: str = "its play"
    """`its play`; or `all output`, `all ops`: it holds if nothing that was printed contradicts it.
    """
    needs_op: bool = False
    """Whether only calling an op can show it."""


OUTPUT, OPS = "all output", "all ops"

_ALL = (
    Clause(
        "prepare",
        "prepare ends with exit code 0 within prepare_s",
        "docs/operating.md#preparing",
        "run the command by hand in the descriptor's folder; its output says what is wrong",
    ),
    Clause(
        "service",
        "each POST is answered with status 200 and JSON, JSON lines or server-sent events",
        "docs/http.md#a-module-that-is-a-service",
        "answer POST URL/health, URL/describe and URL/invoke as docs/http.md shows",
    ),
    Clause(
        "starts",
        "the command can be run, and answers within start_s before it ends",
        "docs/descriptor.md#transport-how-the-module-is-run",
        "run the command by hand in the descriptor's folder; its stderr says what is missing",
    ),
    Clause(
        "stays",
        "a persistent process keeps reading until its stdin ends",
        "docs/writing-a-module.md#a-persistent-module",
        'read stdin in a loop, or say "lifecycle":"per-invocation" in the transport',
    ),
    Clause(
        "health",
        'health is answered with {"status":"ok"}',
        "docs/protocol.md#dialect-module",
        'print {"status":"ok"} for a line whose "operation" is "health"',
    ),
    Clause(
        "describe",
        "describe is answered with the name and kind of the descriptor, and what else is known",
        "docs/protocol.md#dialect-module",
        'print {"name","version","kind","capabilities","inputs","outputs"} as the descriptor has '
        'them for a line whose "operation" is "describe"',
    ),
    Clause(
        "introduction",
        "server/discover or initialize is answered, and then the lists of tools and the rest",
        "docs/mcp.md#which-revision-of-mcp",
        "answer initialize with protocolVersion, capabilities and serverInfo, then tools/list",
    ),
    Clause(
        "schemas",
        "inputs and outputs are maps of ops to JSON Schemas (2020-12) that refer to nothing "
        "elsewhere",
        "docs/descriptor.md#name-kind-and-the-rest-of-the-top-level",
        "add or correct the schema at the pointer that is named",
    ),
    Clause(
        "lines",
        "each line is one whole JSON object that ends with a newline",
        "docs/protocol.md#lines",
        "print each object compactly on a line of its own, with \\n at its end",
        OUTPUT,
    ),
    Clause(
        "flush",
        "each line is flushed when it is printed",
        "docs/writing-a-module.md#a-persistent-module",
        "flush stdout after each line (print(..., flush=True), $| = 1, setvbuf), and answer each "
        "line before you read the next one",
        OUTPUT,
    ),
    Clause(
        "utf-8",
        "stdout is UTF-8",
        "docs/protocol.md#lines",
        "encode what is printed as UTF-8, whatever the locale is",
        OUTPUT,
    ),
    Clause(
        "stdout",
        "stdout carries nothing but the protocol",
        "docs/protocol.md#lines",
        "print what is for people to stderr",
        OUTPUT,
    ),
    Clause(
        "request ids",
        "each request has one answer, which repeats its requestId",
        "docs/protocol.md#which-request-a-line-belongs-to",
        'copy "requestId" from each request into all that you print for it',
    ),
    Clause(
        "any id",
        "a requestId is opaque: any text may stand in it",
        "docs/protocol.md#which-request-a-line-belongs-to",
        "read stdin and write stdout as UTF-8, whatever the locale is; parse the line as JSON, and "
        "encode the id as JSON again",
    ),
    Clause(
        "unknown fields",
        "fields that are not known are ignored",
        "docs/protocol.md#lines",
        "look only at the fields that you know, and allow others",
    ),
    Clause(
        "long line",
        "a request of 1 MiB is read like any other",
        "docs/protocol.md#lines",
        "read whole lines, however long: no buffer of a fixed size",
    ),
    Clause(
        "two at once",
        "with a concurrency above 1, two requests that come together are both answered, each with "
        "its own requestId",
        "docs/descriptor.md#supervision-how-it-is-watched",
        'keep the requestId of each request beside its work, or have a "concurrency" of 1',
    ),
    Clause(
        "late answer",
        "a process that was stopped for longer than a request's deadline answers the next one",
        "docs/protocol.md#giving-up-and-cancel",
        "repeat the requestId, and continue with the next line after a late answer",
    ),
    Clause(
        "cancel",
        "a cancel ends one request, and the next one is answered; for a request that is not open "
        "it is ignored",
        "docs/protocol.md#giving-up-and-cancel",
        'stop the work on the id that "operation":"cancel" names, if there is any; it owes no '
        "answer",
    ),
    Clause(
        "flow",
        "a request that is told to pause and to resume is answered; for one that is not open both "
        "are ignored",
        "docs/protocol.md#unread-events",
        'hold back the events of the id that "operation":"pause" names until "resume"; they owe '
        "no answer",
    ),
    Clause(
        "end of input",
        "the end of stdin ends the process, with exit code 0, within exit_s",
        "docs/writing-a-module.md#a-persistent-module",
        "leave the loop when stdin ends, and end all threads with it",
    ),
    Clause(
        "SIGTERM",
        "SIGTERM ends the process within stop_s",
        "docs/writing-a-module.md#a-persistent-module",
        "do not ignore SIGTERM; a handler has to end the process",
    ),
    Clause(
        "answers",
        "an op is answered with a result, or with an error that has a code and a message",
        "docs/protocol.md#dialect-module",
        'print {"ok":true,"result":...} or {"ok":false,"error":{"code","message"}}',
        needs_op=True,
    ),
    Clause(
        "fields",
        "no field of an answer is a misspelling of one that has a meaning",
        "docs/protocol.md#lines-that-are-not-the-protocol",
        "spell the field as the message says",
        OPS,
        needs_op=True,
    ),
    Clause(
        "events",
        'each event has "version":"0", a type of Spec 001 and the fields of that type',
        "docs/protocol.md#events",
        "correct the event as the message says",
        OPS,
        needs_op=True,
    ),
    Clause(
        "assets",
        "each asset has an id of its own, a media type and a path",
        "docs/protocol.md#assets",
        "correct the asset event as the message says",
        OPS,
        needs_op=True,
    ),
    Clause(
        "done",
        "an invocation ends with exactly one done event, and nothing after it",
        "docs/protocol.md#dialect-narratoria",
        'print {"version":"0","type":"done","ok":true} last, and then exit',
        OPS,
        needs_op=True,
    ),
    Clause(
        "exit status",
        "the process exits with 0 (or a code of ok_codes), whatever it said",
        "docs/protocol.md#verdicts",
        'exit with 0; report a failure that was foreseen by done with "ok":false',
        OPS,
        needs_op=True,
    ),
    Clause(
        "output",
        "the command prints what the op's stdout says",
        "docs/exec.md#output-and-end",
        'set another "stdout" for the op, or have the command print what it says',
        OPS,
        needs_op=True,
    ),
    Clause(
        "results",
        "a result fits the schema of its op in outputs",
        "docs/protocol.md#dialect-module",
        "correct the result, or the schema of the op in outputs",
        needs_op=True,
    ),
    Clause(
        "hook result",
        "a gate answers on_event with a HookResult, null or {}",
        "docs/protocol.md#hooks",
        'answer {"action":"continue"}, or another action with its fields, spelt as they are there',
        needs_op=True,
    ),
    Clause(
        "memory",
        "memory does not grow from call 500 to call 1000",
        "docs/writing-a-module.md#a-persistent-module",
        "look for something that is kept for each request and never released",
    ),
)

CLAUSES = {one.name: one for one in _ALL}

_PROCESS = ("prepare", "starts")
_STREAM = (*_PROCESS, "stays")
_LINES = ("lines", "flush", "utf-8", "stdout")
_SINGLE = ("lines", "utf-8", "stdout")
_ROBUST = ("unknown fields", "long line", "two at once", "late answer")
_ENDS = ("end of input", "SIGTERM", "memory")
_OPS = ("answers", "fields", "events", "assets", "results", "hook result")

SUITES: dict[tuple[str, Lifecycle], tuple[str, ...]] = {
    ("module", Lifecycle.PERSISTENT): (
        *_STREAM, "health", "describe", "schemas", *_LINES, "request ids", "any id", *_ROBUST,
        "cancel", "flow", *_ENDS, *_OPS,
    ),
    ("module", Lifecycle.PER_INVOCATION): (
        *_PROCESS, "health", "describe", "schemas", *_SINGLE, "unknown fields", "long line",
        "SIGTERM", *_OPS, "exit status",
    ),
    ("mcp", Lifecycle.PERSISTENT): (
        *_STREAM, "introduction", "schemas", *_LINES, *_ROBUST, *_ENDS, "answers", "results",
        "hook result",
    ),
    ("narratoria", Lifecycle.PER_INVOCATION): (
        *_PROCESS, "schemas", *_SINGLE, "unknown fields", "long line", "SIGTERM", "events",
        "assets", "done", "exit status", "results", "hook result",
    ),
    ("exec", Lifecycle.PER_INVOCATION): (
        *_PROCESS, "schemas", "output", "exit status", "results", "hook result",
    ),
}  # fmt: skip

OF_SERVICES = (
    "service", "health", "describe", "schemas", "lines", "utf-8", "unknown fields", "long line",
    "two at once", "answers", "fields", "events", "results", "hook result",
)  # fmt: skip
"""The suite of a module over HTTP."""

OF_FAULT = {
    Reason.INVALID_UTF8: "utf-8",
    Reason.MALFORMED_JSON: "lines",
    Reason.NOT_OBJECT: "lines",
    Reason.TRUNCATED_LINE: "lines",
    Reason.LINE_TOO_LONG: "lines",
    Reason.BAD_VERSION: "events",
    Reason.UNKNOWN_TYPE: "events",
    Reason.MISSING_DONE: "done",
    Reason.EXITED: "exit status",
    Reason.SIGNALED: "exit status",
    Reason.UNREADABLE_OUTPUT: "output",
}
"""The clause that a bad line or end violates; others violate the clause of their request."""


FIXES = {
    "twice": "answer each request once: look for a second print, or for one behind the loop",
    "stray": "print one line for each request, with its requestId, and all else to stderr",
    "crash": "the line of stderr above says why it ended; catch what one request can cause, and "
    "answer it with an error",
    "slow": "read stdin before the slow work, or raise supervision.timeouts.start_s",
    "late": "be quicker, or raise the bound in supervision.timeouts",
    "busy": "look for a loop that does not end; more time does not help it",
    "silent": "answer each request, and flush what is printed; a bound in supervision.timeouts "
    "allows more time",
    "memory": "keep less in memory, or raise supervision.limits.memory_bytes",
    f"exec {Reason.EXITED}": "name the exit codes that mean success in the op's ok_codes, such as "
    "the 1 of grep; any other one is a failure of the command",
    Reason.LINE_TOO_LONG: "print less on a line, hand over what is large as an asset, or raise "
    "supervision.limits.line_bytes",
    "lone_surrogate": "print whole characters: a string was cut within a pair of \\u escapes",
    Reason.MALFORMED_JSON: "print what a JSON library makes, with keys in double quotes, on one "
    "line; print all else to stderr",
}
"""Fixes by fault, for faults whose clause has too general a fix."""


def suite(descriptor: Descriptor) -> list[Clause]:
    transport, hook = descriptor.transport, descriptor.hook
    is_service = transport.type == "http"
    names = OF_SERVICES if is_service else SUITES[transport.protocol, transport.lifecycle]
    applies = {
        "prepare": bool(transport.prepare),
        "two at once": descriptor.supervision.concurrency > 1,
        "hook result": hook is not None and bool(hook.gate),
    }
    return [CLAUSES[name] for name in names if applies.get(name, True)]


# The findings, and the verdict on a module.


class ClauseStatus(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    WARNING = "warning"
    SUPPLIED = "supplied"
    """The module leaves it to the host, which takes it from the descriptor."""
    NOT_JUDGED = "not judged"
    """The calls for `memory` took too long for a measurement."""
    NOT_TRIED = "not tried"


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105 - no password
    PARTIAL = "partial"
    """Nothing failed, but not all was tried or could be judged."""
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a clause; `op` is the op that was called, if any.

    `exchanged` are the last lines, with `>` those that were sent and `<` those that came, `!` those
    of stderr.
    """

    clause: str
    status: ClauseStatus
    words: str = ""
    op: str | None = None
    exchanged: tuple[str, ...] = ()
    fix: str = ""

    @property
    def must(self) -> str:
        return CLAUSES[self.clause].must

    @property
    def source(self) -> str:
        return CLAUSES[self.clause].source


class Report(msgspec.Struct, frozen=True, kw_only=True):
    module: str
    descriptor: str
    protocol: str
    lifecycle: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        found = {one.status for one in self.findings}
        if ClauseStatus.FAILS in found:
            return Verdict.FAIL
        left = found & {ClauseStatus.NOT_TRIED, ClauseStatus.NOT_JUDGED}
        return Verdict.PARTIAL if left else Verdict.PASS

    def document(self) -> dict[str, object]:
        findings = [
            {**msgspec.to_builtins(one), "must": one.must, "source": one.source}
            for one in self.findings
        ]
        return {**msgspec.to_builtins(self), "verdict": self.verdict, "findings": findings}


def junit(reports: Sequence[Report]) -> bytes:
    """Return reports as JUnit XML: a suite for each module, a case for each finding."""
    root = ET.Element("testsuites")
    for report in reports:
        cases = report.findings
        failed = sum(one.status is ClauseStatus.FAILS for one in cases)
        skipped = sum(
            one.status in (ClauseStatus.NOT_TRIED, ClauseStatus.NOT_JUDGED) for one in cases
        )
        counts = {"tests": len(cases), "failures": failed, "errors": 0, "skipped": skipped}
        facts = {"name": report.module, **{key: str(value) for key, value in counts.items()}}
        suite = ET.SubElement(root, "testsuite", facts)
        for one in cases:
            name = one.clause if one.op is None else f"{one.clause} {_text(one.op)}"
            case = ET.SubElement(suite, "testcase", name=name, classname=report.module)
            told = "\n".join([one.words, f"must: {one.must}", f"fix: {one.fix}", *one.exchanged])
            match one.status:
                case ClauseStatus.FAILS:
                    failure = ET.SubElement(case, "failure", message=_text(one.words))
                    failure.text = _text(told)
                case ClauseStatus.NOT_TRIED | ClauseStatus.NOT_JUDGED:
                    words = f"{one.status}: {one.words}"
                    ET.SubElement(case, "skipped", message=_text(words))
                case ClauseStatus.WARNING | ClauseStatus.SUPPLIED:
                    ET.SubElement(case, "system-out").text = _text(f"{one.status}: {told}")
                case ClauseStatus.HOLDS:
                    pass
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _text(words: str) -> str:
    """Replace characters that XML 1.0 does not allow."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in words)
