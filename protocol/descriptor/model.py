"""Module descriptors as frozen values, with every default filled in.

The shape is docs/descriptor.md: Module Descriptor v1 plus optional fields.
`protocol.descriptor.loading` turns bytes into a `Descriptor`, or into words about its faults.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

HOOK_OP = "on_event"
"""The op of a hook (Module Protocol v1): args are the event's name and its data."""

RESERVED_NAMES = frozenset({"supervisor"})
NAME_LIMIT = 128
MAX_EXIT_CODE = 255
ENDING_SIGNALS = (
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL",
    "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGXCPU",
    "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSYS",
)  # fmt: skip
"""The signals that end a process unless it catches them (signal(7)), real-time ones aside."""


class Kind(StrEnum):
    PROVIDER = "provider"
    TOOL = "tool"
    AGENT = "agent"
    HOOK = "hook"
    ORCHESTRATOR = "orchestrator"
    CONTEXT = "context"


class Lifecycle(StrEnum):
    PERSISTENT = "persistent"
    PER_INVOCATION = "per-invocation"


class InputForm(StrEnum):
    """What a Spec 001 tool reads: the section 6 envelope, or the args with requestId merged in."""

    ENVELOPE = "envelope"
    FLAT = "flat"


class StdoutPolicy(StrEnum):
    """Whether a line that is no event ends the invocation, or is quarantined with a warning."""

    STRICT = "strict"
    TOLERANT = "tolerant"


class Start(StrEnum):
    EAGER = "eager"
    LAZY = "lazy"


class Restart(StrEnum):
    """OTP's restart types: always, after an abnormal end only, never; and one more."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"
    ON_DEMAND = "on-demand"
    """Always, but after an end with 0 while idle only when a request comes."""


class Gate(StrEnum):
    """The gates of an invocation, by the event that each is told with."""

    PRE = "tool:pre"
    POST = "tool:post"
    ERROR = "tool:error"


class OnFailure(StrEnum):
    """What the failure of a gate comes to (crash, timeout, absence): a denial, or nothing."""

    CLOSED = "closed"
    OPEN = "open"


class Drop(StrEnum):
    """Which event an observer loses when its queue is full."""

    OLDEST = "oldest"
    NEWEST = "newest"


class EraPin(StrEnum):
    """Which era of MCP a server is greeted in; `auto` finds out."""

    AUTO = "auto"
    MODERN = "modern"
    LEGACY = "legacy"


class McpTransport(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of MCP servers only: the era, and the folders offered as roots."""

    era: EraPin = EraPin.AUTO
    roots: tuple[str, ...] = ()


class ExecOutput(StrEnum):
    """What a command's output becomes: a text, a JSON value, a list of lines, an asset."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    LINES = "lines"
    BYTES = "bytes"


class ExecOp(msgspec.Struct, frozen=True, kw_only=True):
    """An op of a command line tool; `args` and `stdin` are templates (`dialects.exec`).

    `ok_codes` are exit codes that are as good as 0, `options` lets values be options, and
    `media_type` is that of an output of `bytes`.
    """

    args: tuple[str, ...] = ()
    stdin: str = ""
    stdout: ExecOutput = ExecOutput.TEXT
    ok_codes: tuple[int, ...] = ()
    options: bool = False
    media_type: str = "application/octet-stream"


class ExecTransport(msgspec.Struct, frozen=True, kw_only=True):
    ops: dict[str, ExecOp] = {}


class Transport(msgspec.Struct, frozen=True, kw_only=True):
    """How the module is reached; `type` says which of the other fields mean something."""

    type: str = "stdio"
    command: tuple[str, ...] = ()
    """Empty for a service, so that whatever looks for its program sees that there is none."""
    prepare: tuple[str, ...] = ()
    protocol: str = "module"
    lifecycle: Lifecycle = Lifecycle.PERSISTENT
    input: InputForm = InputForm.ENVELOPE
    stdout: StdoutPolicy = StdoutPolicy.TOLERANT
    exec: ExecTransport = ExecTransport()
    mcp: McpTransport = McpTransport()
    url: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    cwd: str = "."
    env: dict[str, str] = msgspec.field(default_factory=dict)
    env_file: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()
    expand: bool = False


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential backoff between restarts; `jitter` is the share of a delay drawn at random."""

    initial_s: float = 0.5
    factor: float = 2.0
    max_s: float = 60.0
    jitter: float = 0.25


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on each wait, in seconds; None for `silence_s` means no bound.

    These and `concurrency` may have another default in a dialect (`dialects.Dialect`); `total_s`
    means something only in one that is `patient`.
    """

    start_s: float = 10.0
    health_s: float = 2.0
    describe_s: float = 5.0
    invoke_s: float = 30.0
    total_s: float = 3600.0
    silence_s: float | None = None
    exit_s: float = 2.0
    linger_s: float = 10.0
    stop_s: float = 5.0
    prepare_s: float = 600.0


class HealthChecks(msgspec.Struct, frozen=True, kw_only=True):
    """How often an idle instance is probed, and how many misses in a row replace it."""

    interval_s: float = 10.0
    failures: int = 3


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    memory_bytes: int | None = None
    line_bytes: int = 8 << 20
    open_files: int | None = None
    processes: int | None = None
    cpu_s: int | None = None


class Instances(msgspec.Struct, frozen=True, kw_only=True):
    """How many processes serve a persistent module, and when one is replaced."""

    min: int = 1
    max: int = 1
    idle_stop_s: float | None = None
    max_requests: int | None = None
    max_age_s: float | None = None


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """How the module is started, watched, restarted and bounded.

    `restart_on` and `never_on` hold exit codes and names of signals (`ENDING_SIGNALS`).
    """

    start: Start = Start.EAGER
    restart: Restart = Restart.PERMANENT
    restart_on: tuple[int | str, ...] = ()
    never_on: tuple[int | str, ...] = ()
    intensity: int = 5
    period_s: float = 60.0
    backoff: Backoff = Backoff()
    retry_failed_s: float = 300.0
    depends_on: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()
    health: HealthChecks = HealthChecks()
    limits: Limits = Limits()
    concurrency: int = 1
    queue: int = 1024
    instances: Instances = Instances()
    overlap: bool = True
    warm: int = 0
    watch: bool = False


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """What a module of kind hook observes, and which invocations it gates.

    `observe` holds globs of event names, `modules` globs of the names of the modules it gates.
    `queue` and `drop` are for observed events, all else is for gates.
    """

    observe: tuple[str, ...] = ()
    gate: tuple[Gate, ...] = ()
    modules: tuple[str, ...] = ("*",)
    priority: int = 50
    on_failure: OnFailure = OnFailure.CLOSED
    timeout_s: float = 5.0
    queue: int = 1000
    drop: Drop = Drop.OLDEST


WHENCE = frozenset({"source", "folder", "owner", "digest"})
"""The fields of a `Descriptor` that say where it is from; no document has them."""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One module, as its descriptor declares it.

    `source` is the place of that, which no other has: a file's absolute path, or words; `folder`
    is the directory its relative paths start from, and `digest` the SHA-256 (hex) of its bytes:
    equal digests mean an unchanged one. `owner` is whose it is, and with whom it goes: the
    directory it was found in, or who lent it; empty for a file by itself.
    """

    name: str
    kind: Kind
    transport: Transport
    capabilities: tuple[str, ...] = ()
    version: str | None = None
    description: str | None = None
    inputs: dict[str, Any] | None = None
    outputs: dict[str, Any] | None = None
    hook: Hook | None = None
    enabled: bool = True
    supervision: Supervision = Supervision()
    source: str
    folder: str
    owner: str = ""
    digest: str
