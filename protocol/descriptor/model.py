"""Module descriptors as frozen values: every field of docs/descriptor.md, its default and its rule.

A field's rule is that of its type, or it is annotated with it. `protocol.descriptor.shape` collects
them, `scripts/file_schemas.py` makes `schemas/stdiod-descriptor.v1.json` of them, and
`protocol.descriptor.loading` turns bytes into a `Descriptor`, or into words about its faults. What
concerns more than one field is in `protocol.descriptor.rules`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from protocol.problem import quoted
from protocol.shape import (
    ANY_TEXT,
    Array,
    Choice,
    Map,
    NumberOrWord,
    OneOrMore,
    Scalar,
    integer,
    number,
    seconds,
    text,
)

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

NUL = r"\u0000"
_NOT_IN_NAMES = re.compile(r"[/\u0000-\u001f\u007f-\u009f]")
_NOT_NAMES = frozenset({".", ".."}) | RESERVED_NAMES

_NAME = Scalar(
    f"a name of 1 to {NAME_LIMIT} characters without '/' and control characters, none of "
    + ", ".join(quoted(name) for name in sorted(_NOT_NAMES)),
    (str,),
    lambda value: (
        0 < len(value) <= NAME_LIMIT
        and value not in _NOT_NAMES
        and _NOT_IN_NAMES.search(value) is None
    ),
    {
        "type": "string",
        "minLength": 1,
        "maxLength": NAME_LIMIT,
        "not": {"anyOf": [{"pattern": _NOT_IN_NAMES.pattern}, {"enum": sorted(_NOT_NAMES)}]},
    },
)
_ARGUMENT = text("a string without NUL", forbidden=NUL, empty=True)
_FILE = text("the path of a file, such as '.env', without NUL", forbidden=NUL)
_FOLDER = text("the path of a folder, such as '.', without NUL", forbidden=NUL)
_VARIABLE = text("the name of an environment variable, without '=' and NUL", forbidden="=" + NUL)
_HEADERS = Map(
    'an object of strings such as {"Authorization":"Bearer ${TOKEN}"}',
    text("the name of an HTTP header", forbidden="^!#$%&'*+.^_`|~0-9A-Za-z-"),
    text("a string of printable ASCII characters", forbidden="^ -~", empty=True),
)
_EXIT_CODE = number(
    f"an exit code from 0 to {MAX_EXIT_CODE}",
    lambda value: value == int(value) and 0 <= value <= MAX_EXIT_CODE,
    {"type": "integer", "minimum": 0, "maximum": MAX_EXIT_CODE},
)
_ENDS = Array(
    'an array of exit codes and names of signals such as [75, "SIGKILL"]',
    NumberOrWord(
        f"an exit code from 0 to {MAX_EXIT_CODE}, or the name of a signal that can end a process, "
        'such as "SIGKILL"',
        MAX_EXIT_CODE,
        ENDING_SIGNALS,
    ),
)
_OPS = Map(
    'an object of ops and JSON Schemas such as {"roll":{"type":"object"}}',
    ANY_TEXT,
    Scalar(
        "a JSON Schema",
        (str, bool, int, float, list, dict, type(None)),  # checked elsewhere
        schema={"$ref": "https://json-schema.org/draft/2020-12/schema"},
    ),
)

# The least a program can run with; a smaller number is a slip of the unit.
_LEAST_MEMORY_BYTES = 1 << 20
_LEAST_LINE_BYTES = 1 << 10
_LEAST_OPEN_FILES = 8


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
    roots: Annotated[tuple[str, ...], Array('an array of folders such as ["."]', _FOLDER)] = ()


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

    args: Annotated[
        tuple[str, ...], Array('an array of strings such as ["-w", "{file}"]', _ARGUMENT)
    ] = ()
    stdin: Annotated[
        str, text("a string such as '{text}', without NUL", forbidden=NUL, empty=True)
    ] = ""
    stdout: ExecOutput = ExecOutput.TEXT
    ok_codes: Annotated[
        tuple[int, ...], Array("an array of exit codes such as [1]", _EXIT_CODE)
    ] = ()
    options: bool = False
    media_type: str = "application/octet-stream"


class ExecTransport(msgspec.Struct, frozen=True, kw_only=True):
    ops: dict[str, ExecOp] = {}


class Transport(msgspec.Struct, frozen=True, kw_only=True):
    """How the module is reached; `type` says which of the other fields mean something."""

    type: Annotated[str, Choice(("stdio", "http"))] = "stdio"
    command: Annotated[
        tuple[str, ...],
        Array('an array of strings such as ["python3","dice.py"]', _ARGUMENT, least=1),
    ] = ()
    """Empty for a service, so that whatever looks for its program sees that there is none."""
    prepare: Annotated[
        tuple[str, ...], Array('an array of strings such as ["make"]', _ARGUMENT)
    ] = ()
    url: Annotated[str, ANY_TEXT] = ""
    headers: Annotated[dict[str, str], _HEADERS] = msgspec.field(default_factory=dict)
    protocol: str = "module"
    lifecycle: Lifecycle = Lifecycle.PERSISTENT
    input: InputForm = InputForm.ENVELOPE
    stdout: StdoutPolicy = StdoutPolicy.TOLERANT
    exec: ExecTransport = ExecTransport()
    mcp: McpTransport = McpTransport()
    cwd: Annotated[str, _FOLDER] = "."
    env: Annotated[
        dict[str, str],
        Map('an object of strings such as {"LOG_LEVEL":"debug"}', _VARIABLE, _ARGUMENT),
    ] = msgspec.field(default_factory=dict)
    env_file: Annotated[
        tuple[str, ...],
        OneOrMore("the path of a file, such as '.env', or an array of such", _FILE),
    ] = ()
    pass_env: Annotated[
        tuple[str, ...], Array('an array of names such as ["OPENAI_API_KEY"]', _VARIABLE)
    ] = ()
    expand: bool = False


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential backoff between restarts; `jitter` is the share of a delay drawn at random."""

    initial_s: Annotated[float, seconds("0.5")] = 0.5
    factor: Annotated[
        float,
        number("a number of at least 1, such as 2", lambda value: value >= 1, {"minimum": 1}),
    ] = 2.0
    max_s: Annotated[float, seconds("60")] = 60.0
    jitter: Annotated[
        float,
        number(
            "a number from 0 to 1, such as 0.25",
            lambda value: 0 <= value <= 1,
            {"minimum": 0, "maximum": 1},
        ),
    ] = 0.25


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on each wait, in seconds; None for `silence_s` means no bound.

    These and `concurrency` may have another default in a dialect (`dialects.Dialect`); `total_s`
    means something only in one that is `patient`.
    """

    start_s: Annotated[float, seconds("10")] = 10.0
    health_s: Annotated[float, seconds("2")] = 2.0
    describe_s: Annotated[float, seconds("5")] = 5.0
    invoke_s: Annotated[float, seconds("30")] = 30.0
    total_s: Annotated[float, seconds("3600")] = 3600.0
    silence_s: Annotated[float | None, seconds("15", or_null=True)] = None
    exit_s: Annotated[float, seconds("2")] = 2.0
    linger_s: Annotated[float, seconds("10")] = 10.0
    stop_s: Annotated[float, seconds("5")] = 5.0
    prepare_s: Annotated[float, seconds("600")] = 600.0


class HealthChecks(msgspec.Struct, frozen=True, kw_only=True):
    """How often an idle instance is probed, and how many misses in a row replace it."""

    interval_s: Annotated[float, seconds("10")] = 10.0
    failures: Annotated[int, integer(1, "3")] = 3


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    memory_bytes: Annotated[int | None, integer(_LEAST_MEMORY_BYTES, "268435456", or_null=True)] = (
        None
    )
    line_bytes: Annotated[int, integer(_LEAST_LINE_BYTES, "8388608")] = 8 << 20
    open_files: Annotated[int | None, integer(_LEAST_OPEN_FILES, "256", or_null=True)] = None
    processes: Annotated[int | None, integer(1, "16", or_null=True)] = None
    cpu_s: Annotated[int | None, integer(1, "60", or_null=True)] = None


class Instances(msgspec.Struct, frozen=True, kw_only=True):
    """How many processes serve a persistent module, and when one is replaced."""

    min: Annotated[int, integer(0, "1")] = 1
    max: Annotated[int, integer(1, "4")] = 1
    idle_stop_s: Annotated[float | None, seconds("300", or_null=True)] = None
    max_requests: Annotated[int | None, integer(1, "1000", or_null=True)] = None
    max_age_s: Annotated[float | None, seconds("3600", or_null=True)] = None


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """How the module is started, watched, restarted and bounded.

    `restart_on` and `never_on` hold exit codes and names of signals (`ENDING_SIGNALS`).
    """

    start: Start = Start.EAGER
    restart: Restart = Restart.PERMANENT
    restart_on: Annotated[tuple[int | str, ...], _ENDS] = ()
    never_on: Annotated[tuple[int | str, ...], _ENDS] = ()
    intensity: Annotated[int, integer(0, "5")] = 5
    period_s: Annotated[float, seconds("60")] = 60.0
    backoff: Backoff = Backoff()
    retry_failed_s: Annotated[float, seconds("300")] = 300.0
    depends_on: Annotated[
        tuple[str, ...],
        Array('an array of module names such as ["kv"]', text("the name of another module")),
    ] = ()
    timeouts: Timeouts = Timeouts()
    health: HealthChecks = HealthChecks()
    limits: Limits = Limits()
    concurrency: Annotated[int, integer(1, "1")] = 1
    queue: Annotated[int, integer(0, "1024")] = 1024
    instances: Instances = Instances()
    overlap: bool = True
    warm: Annotated[int, integer(0, "0")] = 0
    watch: bool = False


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """What a module of kind hook observes, and which invocations it gates.

    `observe` holds globs of event names, `modules` globs of the names of the modules it gates.
    `queue` and `drop` are for observed events, all else is for gates.
    """

    observe: Annotated[
        tuple[str, ...],
        Array(
            'an array of globs of event names such as ["module:*"]',
            text("a glob of event names, such as 'module:*'"),
        ),
    ] = ()
    gate: Annotated[
        tuple[Gate, ...], Array('an array of gates such as ["tool:pre"]', Choice(tuple(Gate)))
    ] = ()
    modules: Annotated[
        tuple[str, ...],
        Array(
            'an array of globs of module names such as ["*"]',
            text("a glob of module names, such as 'db-*'"),
            least=1,
        ),
    ] = ("*",)
    priority: Annotated[int, integer(0, "50")] = 50
    on_failure: OnFailure = OnFailure.CLOSED
    timeout_s: Annotated[float, seconds("5")] = 5.0
    queue: Annotated[int, integer(1, "1000")] = 1000
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

    name: Annotated[str, _NAME]
    kind: Kind
    transport: Transport
    capabilities: Annotated[
        tuple[str, ...],
        Array(
            'an array of strings such as ["fs.read"]; [] for none',
            text("a string that is not empty"),
        ),
    ] = ()
    version: Annotated[str | None, ANY_TEXT] = None
    description: Annotated[str | None, ANY_TEXT] = None
    inputs: Annotated[dict[str, Any] | None, _OPS] = None
    outputs: Annotated[dict[str, Any] | None, _OPS] = None
    hook: Hook | None = None
    enabled: bool = True
    supervision: Supervision = Supervision()
    source: str
    folder: str
    owner: str = ""
    digest: str
