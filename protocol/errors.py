"""The codes and reasons of failed requests, and the two kinds of outcome.

`Code` is the reserved vocabulary of Error Schema v1 (plus `cancelled`, which is ours); a module
may report any other code and it passes through untouched. `Reason` says which of the host's own
findings led to the code. Each reason belongs to one code: `CODE_OF` is that table, and the only
place that knows it.

`details` keeps the host's evidence apart from a module's words: `origin` says whose error it is,
and all else there is the host's own, but for `reported`. That has the words of a module, which may
be another host's, whole and once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, final

import msgspec


class Code(StrEnum):
    TIMEOUT = "timeout"
    OOM = "oom"
    UNREACHABLE = "unreachable"
    BAD_REQUEST = "bad_request"
    FORBIDDEN = "forbidden"
    INTERNAL = "internal"
    UNSUPPORTED_OP = "unsupported_op"
    CANCELLED = "cancelled"


class Origin(StrEnum):
    HOST = "host"
    MODULE = "module"


class Reason(StrEnum):
    """The host's findings: `details.reason` of every error that the host makes."""

    DEADLINE = "deadline"
    SILENCE = "silence"
    EXIT_DEADLINE = "exit_deadline"
    START_DEADLINE = "start_deadline"

    MEMORY_LIMIT = "memory_limit"
    CGROUP_OOM = "cgroup_oom"

    SPAWN_FAILED = "spawn_failed"
    EXITED = "exited"
    SIGNALED = "signaled"
    NOT_READY = "not_ready"
    FAILED = "failed"
    QUEUE_FULL = "queue_full"
    STOPPING = "stopping"
    BROKEN_PIPE = "broken_pipe"
    SLOW_READER = "slow_reader"
    REFUSED = "refused"
    NO_CONNECTION = "no_connection"
    TLS = "tls"
    RESET = "reset"
    CUT_STREAM = "cut_stream"
    BAD_HTTP = "bad_http"
    BAD_STATUS = "bad_status"
    REDIRECTED = "redirected"
    WRONG_TYPE = "wrong_type"
    DAEMON_RESTART = "daemon_restart"
    """The daemon itself ended while the request was in flight; only its journal says so."""

    UNKNOWN_MODULE = "unknown_module"
    MISSING_OP = "missing_op"
    INVALID_ARGS = "invalid_args"
    MALFORMED_REQUEST = "malformed_request"
    REENTRANT_CALL = "reentrant_call"
    UNKNOWN_SESSION = "unknown_session"
    SESSION_ENDED = "session_ended"
    SESSION_EXISTS = "session_exists"
    SESSION_BUSY = "session_busy"
    """The session has a prompt already, and the caller would not wait."""
    NO_AGENT = "no_agent"
    """The session names no module for its prompts, and no other one is the obvious choice."""
    REVISION_CONFLICT = "revision_conflict"
    LIMIT_REACHED = "limit_reached"
    UNKNOWN_ASSET = "unknown_asset"
    ASSET_CHANGED = "asset_changed"
    BEYOND_END = "beyond_end"
    UNKNOWN_APPROVAL = "unknown_approval"

    CAPABILITY = "capability"
    HOOK = "hook"
    SCOPE = "scope"

    MISSING_DONE = "missing_done"
    UNKNOWN_TYPE = "unknown_type"
    BAD_VERSION = "bad_version"
    MALFORMED_JSON = "malformed_json"
    NOT_OBJECT = "not_object"
    INVALID_UTF8 = "invalid_utf8"
    INVALID_EVENT = "invalid_event"
    TRUNCATED_LINE = "truncated_line"
    LINE_TOO_LONG = "line_too_long"
    UNREADABLE_OUTPUT = "unreadable_output"
    """The output of a command does not match its descriptor."""
    REPORTED = "reported"

    STORAGE = "storage"
    """The state that the answer would acknowledge cannot be stored: a full disk, a read-only data
    directory."""

    UNKNOWN_OP = "unknown_op"

    CLIENT = "client"
    DISCONNECT = "disconnect"
    SHUTDOWN = "shutdown"
    PARENT_ENDED = "parent_ended"
    """The request was made on behalf of a request that has ended."""


CODE_OF: dict[Reason, Code] = {
    Reason.DEADLINE: Code.TIMEOUT,
    Reason.SILENCE: Code.TIMEOUT,
    Reason.EXIT_DEADLINE: Code.TIMEOUT,
    Reason.START_DEADLINE: Code.TIMEOUT,
    Reason.MEMORY_LIMIT: Code.OOM,
    Reason.CGROUP_OOM: Code.OOM,
    Reason.SPAWN_FAILED: Code.UNREACHABLE,
    # A persistent instance that dies is unreachable; a per-invocation process that exits badly is
    # a protocol-level failure (Spec 001 5.3). `policy.verdict` says `internal` there.
    Reason.EXITED: Code.UNREACHABLE,
    Reason.SIGNALED: Code.UNREACHABLE,
    Reason.NOT_READY: Code.UNREACHABLE,
    Reason.FAILED: Code.UNREACHABLE,
    Reason.QUEUE_FULL: Code.UNREACHABLE,
    Reason.STOPPING: Code.UNREACHABLE,
    Reason.BROKEN_PIPE: Code.UNREACHABLE,
    Reason.SLOW_READER: Code.UNREACHABLE,
    Reason.REFUSED: Code.UNREACHABLE,
    Reason.NO_CONNECTION: Code.UNREACHABLE,
    Reason.TLS: Code.UNREACHABLE,
    Reason.RESET: Code.UNREACHABLE,
    Reason.CUT_STREAM: Code.UNREACHABLE,
    Reason.BAD_HTTP: Code.UNREACHABLE,
    Reason.BAD_STATUS: Code.UNREACHABLE,
    Reason.REDIRECTED: Code.UNREACHABLE,
    Reason.WRONG_TYPE: Code.UNREACHABLE,
    Reason.DAEMON_RESTART: Code.UNREACHABLE,
    Reason.UNKNOWN_MODULE: Code.BAD_REQUEST,
    Reason.MISSING_OP: Code.BAD_REQUEST,
    Reason.INVALID_ARGS: Code.BAD_REQUEST,
    Reason.MALFORMED_REQUEST: Code.BAD_REQUEST,
    Reason.REENTRANT_CALL: Code.BAD_REQUEST,
    Reason.UNKNOWN_SESSION: Code.BAD_REQUEST,
    Reason.SESSION_ENDED: Code.BAD_REQUEST,
    Reason.SESSION_EXISTS: Code.BAD_REQUEST,
    Reason.SESSION_BUSY: Code.BAD_REQUEST,
    Reason.NO_AGENT: Code.BAD_REQUEST,
    Reason.REVISION_CONFLICT: Code.BAD_REQUEST,
    Reason.LIMIT_REACHED: Code.BAD_REQUEST,
    Reason.UNKNOWN_ASSET: Code.BAD_REQUEST,
    Reason.ASSET_CHANGED: Code.BAD_REQUEST,
    Reason.BEYOND_END: Code.BAD_REQUEST,
    Reason.UNKNOWN_APPROVAL: Code.BAD_REQUEST,
    Reason.CAPABILITY: Code.FORBIDDEN,
    Reason.HOOK: Code.FORBIDDEN,
    Reason.SCOPE: Code.FORBIDDEN,
    Reason.STORAGE: Code.INTERNAL,
    Reason.MISSING_DONE: Code.INTERNAL,
    Reason.UNKNOWN_TYPE: Code.INTERNAL,
    Reason.BAD_VERSION: Code.INTERNAL,
    Reason.MALFORMED_JSON: Code.INTERNAL,
    Reason.NOT_OBJECT: Code.INTERNAL,
    Reason.INVALID_UTF8: Code.INTERNAL,
    Reason.INVALID_EVENT: Code.INTERNAL,
    Reason.TRUNCATED_LINE: Code.INTERNAL,
    Reason.LINE_TOO_LONG: Code.INTERNAL,
    Reason.UNREADABLE_OUTPUT: Code.INTERNAL,
    Reason.REPORTED: Code.INTERNAL,
    Reason.UNKNOWN_OP: Code.UNSUPPORTED_OP,
    Reason.CLIENT: Code.CANCELLED,
    Reason.DISCONNECT: Code.CANCELLED,
    Reason.SHUTDOWN: Code.CANCELLED,
    Reason.PARENT_ENDED: Code.CANCELLED,
}


class Pieces(msgspec.Struct, frozen=True):
    """A JSON value as bytes in pieces: joining tens of megabytes takes one long step."""

    parts: list[bytes]

    def together(self) -> msgspec.Raw:
        """Join the pieces, for a reader that needs one value."""
        return msgspec.Raw(b"".join(self.parts))


class Success(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A request that ended well: any JSON value, and the module's summary, if any.

    A value is built only when it is used: `said` may be the module's own bytes (`msgspec.Raw`), or
    `Pieces`, which are passed on unread; `result` builds them.
    """

    said: Any = None
    summary: str | None = None
    whole: dict[str, Any] | None = None
    """The whole answer in the module's protocol, if `said` is a part of it."""

    @property
    def result(self) -> Any:
        said = self.encodable
        return msgspec.json.decode(said) if isinstance(said, msgspec.Raw) else said

    @property
    def encodable(self) -> Any:
        return self.said.together() if type(self.said) is Pieces else self.said

    def __eq__(self, other: object) -> bool:
        """Compare values, not forms."""
        if not isinstance(other, Success):
            return NotImplemented
        return bool(self.result == other.result and self.summary == other.summary)

    __hash__ = None  # type: ignore[assignment] # a value may be a list


@final
class Failure(msgspec.Struct, frozen=True):
    """A request that ended badly, as Error Schema v1: code, message, details."""

    code: str
    message: str
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    summary: str | None = None

    @classmethod
    def because(cls, reason: Reason, message: str, **evidence: Any) -> Failure:
        """Build a host-made failure: the code follows from the reason.

        `evidence` is listed in docs/operating.md (`instance`, `pid`, `exit_code`, `signal`,
        `uptime_s`, `stderr_tail`, `line_excerpt`, `retry_in_s`); None is left out.
        """
        details: dict[str, Any] = {"origin": _HOST, "reason": str(reason)}
        details.update((key, value) for key, value in evidence.items() if value is not None)
        return cls(CODE_OF[reason], message, details)

    @classmethod
    def reported(
        cls,
        code: str,
        message: str,
        details: dict[str, Any] | None = None,
        summary: str | None = None,
        **known: Any,
    ) -> Failure:
        said = {"reported": details} if details else {}
        return cls(code, message, {"origin": _MODULE, **known, **said}, summary)

    @property
    def as_reported(self) -> dict[str, Any]:
        said = {"code": self.code, "message": self.message}
        details = self.details.get("reported")
        return {**said, "details": details} if details else said


_HOST, _MODULE = str(Origin.HOST), str(Origin.MODULE)

Outcome = Success | Failure
