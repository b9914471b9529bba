"""The codes and reasons of failed requests, and the two kinds of outcome.

`Code` is the reserved vocabulary of Error Schema v1 (plus `cancelled`, which is ours); a module
may report any other code and it passes through untouched. `Reason` says which of the host's own
findings led to the code: each belongs to one, in this place only.

`details` keeps the host's evidence apart from a module's words: `origin` says whose error it is,
and all else there is the host's own, but for `reported`. That has the words of a module, which may
be another host's, whole and once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self, final

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
    """The host's findings, `details.reason` of every error that the host makes; and their codes."""

    code: Code

    # Of a word alone, the call looks up the member.
    def __new__(cls, word: str, code: Code = Code.INTERNAL) -> Self:
        made = str.__new__(cls, word)
        made._value_, made.code = word, code
        return made

    DEADLINE = "deadline", Code.TIMEOUT
    SILENCE = "silence", Code.TIMEOUT
    EXIT_DEADLINE = "exit_deadline", Code.TIMEOUT
    START_DEADLINE = "start_deadline", Code.TIMEOUT

    MEMORY_LIMIT = "memory_limit", Code.OOM
    CGROUP_OOM = "cgroup_oom", Code.OOM

    SPAWN_FAILED = "spawn_failed", Code.UNREACHABLE
    # A persistent instance that dies is unreachable; a per-invocation process that exits badly is
    # a protocol-level failure (Spec 001 5.3). `policy.verdict` says `internal` there.
    EXITED = "exited", Code.UNREACHABLE
    SIGNALED = "signaled", Code.UNREACHABLE
    NOT_READY = "not_ready", Code.UNREACHABLE
    FAILED = "failed", Code.UNREACHABLE
    QUEUE_FULL = "queue_full", Code.UNREACHABLE
    STOPPING = "stopping", Code.UNREACHABLE
    RATE_LIMITED = "rate_limited", Code.UNREACHABLE
    BROKEN_PIPE = "broken_pipe", Code.UNREACHABLE
    SLOW_READER = "slow_reader", Code.UNREACHABLE
    REFUSED = "refused", Code.UNREACHABLE
    NO_CONNECTION = "no_connection", Code.UNREACHABLE
    TLS = "tls", Code.UNREACHABLE
    RESET = "reset", Code.UNREACHABLE
    CUT_STREAM = "cut_stream", Code.UNREACHABLE
    BAD_HTTP = "bad_http", Code.UNREACHABLE
    BAD_STATUS = "bad_status", Code.UNREACHABLE
    REDIRECTED = "redirected", Code.UNREACHABLE
    WRONG_TYPE = "wrong_type", Code.UNREACHABLE
    DAEMON_RESTART = "daemon_restart", Code.UNREACHABLE
    """The daemon itself ended while the request was in flight; only its journal says so."""

    UNKNOWN_MODULE = "unknown_module", Code.BAD_REQUEST
    MISSING_OP = "missing_op", Code.BAD_REQUEST
    INVALID_ARGS = "invalid_args", Code.BAD_REQUEST
    MALFORMED_REQUEST = "malformed_request", Code.BAD_REQUEST
    REENTRANT_CALL = "reentrant_call", Code.BAD_REQUEST
    UNKNOWN_SESSION = "unknown_session", Code.BAD_REQUEST
    SESSION_ENDED = "session_ended", Code.BAD_REQUEST
    SESSION_EXISTS = "session_exists", Code.BAD_REQUEST
    SESSION_BUSY = "session_busy", Code.BAD_REQUEST
    """The session has a prompt already, and the caller would not wait."""
    NO_AGENT = "no_agent", Code.BAD_REQUEST
    """The session names no module for its prompts, and no other one is the obvious choice."""
    REVISION_CONFLICT = "revision_conflict", Code.BAD_REQUEST
    LIMIT_REACHED = "limit_reached", Code.BAD_REQUEST
    UNKNOWN_ASSET = "unknown_asset", Code.BAD_REQUEST
    ASSET_CHANGED = "asset_changed", Code.BAD_REQUEST
    BEYOND_END = "beyond_end", Code.BAD_REQUEST
    UNKNOWN_APPROVAL = "unknown_approval", Code.BAD_REQUEST

    CAPABILITY = "capability", Code.FORBIDDEN
    HOOK = "hook", Code.FORBIDDEN
    SCOPE = "scope", Code.FORBIDDEN
    WRONG_LOGIN = "wrong_login", Code.FORBIDDEN
    """A token or a code that lets nobody in."""
    LOGIN_OVER = "login_over", Code.FORBIDDEN
    """The login as which something is asked is over, or never was."""

    MISSING_DONE = "missing_done", Code.INTERNAL
    UNKNOWN_TYPE = "unknown_type", Code.INTERNAL
    BAD_VERSION = "bad_version", Code.INTERNAL
    MALFORMED_JSON = "malformed_json", Code.INTERNAL
    NOT_OBJECT = "not_object", Code.INTERNAL
    INVALID_UTF8 = "invalid_utf8", Code.INTERNAL
    INVALID_EVENT = "invalid_event", Code.INTERNAL
    TRUNCATED_LINE = "truncated_line", Code.INTERNAL
    LINE_TOO_LONG = "line_too_long", Code.INTERNAL
    UNREADABLE_OUTPUT = "unreadable_output", Code.INTERNAL
    """The output of a command does not match its descriptor."""
    REPORTED = "reported", Code.INTERNAL

    STORAGE = "storage", Code.INTERNAL
    """The state that the answer would acknowledge cannot be stored: a full disk, a read-only data
    directory."""

    UNKNOWN_OP = "unknown_op", Code.UNSUPPORTED_OP

    CLIENT = "client", Code.CANCELLED
    DISCONNECT = "disconnect", Code.CANCELLED
    SHUTDOWN = "shutdown", Code.CANCELLED
    PARENT_ENDED = "parent_ended", Code.CANCELLED
    """The request was made on behalf of a request that has ended."""


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
        return cls(reason.code, message, details)

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
