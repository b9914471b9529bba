"""The shape of a descriptor: every field of docs/descriptor.md with the rule for its value.

`schemas/stdiod-descriptor.v1.json` is made from these by `scripts/file_schemas.py`. The rules
between fields are in `protocol.descriptor.rules`, the defaults in `protocol.descriptor.model`.
"""

from __future__ import annotations

import re

from protocol.assets import is_media_type
from protocol.descriptor.model import (
    ENDING_SIGNALS,
    MAX_EXIT_CODE,
    NAME_LIMIT,
    RESERVED_NAMES,
    Drop,
    EraPin,
    ExecOutput,
    Gate,
    InputForm,
    Kind,
    Lifecycle,
    OnFailure,
    Restart,
    Start,
    StdoutPolicy,
)
from protocol.dialects.registry import DIALECTS
from protocol.problem import quoted
from protocol.shape import (
    ANY_TEXT,
    Array,
    Choice,
    Fields,
    Map,
    NumberOrWord,
    OneOrMore,
    Scalar,
    integer,
    number,
    seconds,
    text,
)

NUL = r"\u0000"
_NOT_IN_NAMES = re.compile(r"[/\u0000-\u001f\u007f-\u009f]")
_NOT_NAMES = frozenset({".", ".."}) | RESERVED_NAMES


def _is_name(value: str) -> bool:
    if not 0 < len(value) <= NAME_LIMIT or value in _NOT_NAMES:
        return False
    return _NOT_IN_NAMES.search(value) is None


_NAME = Scalar(
    f"a name of 1 to {NAME_LIMIT} characters without '/' and control characters, none of "
    + ", ".join(quoted(name) for name in sorted(_NOT_NAMES)),
    (str,),
    _is_name,
    {
        "type": "string",
        "minLength": 1,
        "maxLength": NAME_LIMIT,
        "not": {"anyOf": [{"pattern": _NOT_IN_NAMES.pattern}, {"enum": sorted(_NOT_NAMES)}]},
    },
)
_ARGUMENT = text("a string without NUL", forbidden=NUL, empty=True)
_HEADER = text("the name of an HTTP header", forbidden="^!#$%&'*+.^_`|~0-9A-Za-z-")
_FILE = text("the path of a file, such as '.env', without NUL", forbidden=NUL)
_VARIABLE = text("the name of an environment variable, without '=' and NUL", forbidden="=" + NUL)

URL = re.compile(
    r"^https?://(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?"
    r"(/[0-9A-Za-z._~!$&'()*+,;=:@%/-]*)?$(?!\n)"
)
"""Where a service is: without a user, a password and a query, so that it can be shown."""

EXEC_OP = Fields(
    {
        "args": Array('an array of strings such as ["-w", "{file}"]', _ARGUMENT),
        "stdin": text("a string such as '{text}', without NUL", forbidden=NUL, empty=True),
        "stdout": Choice(tuple(ExecOutput)),
        "ok_codes": Array(
            "an array of exit codes such as [1]",
            number(
                f"an exit code from 0 to {MAX_EXIT_CODE}",
                lambda value: value == int(value) and 0 <= value <= MAX_EXIT_CODE,
                {"type": "integer", "minimum": 0, "maximum": MAX_EXIT_CODE},
            ),
        ),
        "options": Scalar("true or false", (bool,)),
        "media_type": Scalar(
            "a MIME type such as 'image/png'", (str,), is_media_type, {"type": "string"}
        ),
    },
    closed=True,
    elsewhere=dict.fromkeys(
        ("timeout", "timeout_s", "timeouts"), "/supervision/timeouts/invoke_s, for all ops"
    ),
)

EXEC = Fields(
    {
        "ops": Map(
            'an object of ops such as {"count":{"args":["-w"],"stdin":"{text}"}}',
            text("the name of an op, not empty"),
            EXEC_OP,
        )
    },
    required=("ops",),
    closed=True,
)

MCP = Fields(
    {
        "era": Choice(tuple(EraPin)),
        "roots": Array(
            'an array of folders such as ["."]',
            text("the path of a folder, such as '.', without NUL", forbidden=NUL),
        ),
    },
    closed=True,
)

TRANSPORT = Fields(
    {
        "type": Choice(("stdio", "http")),
        "command": Array('an array of strings such as ["python3","dice.py"]', _ARGUMENT, least=1),
        "prepare": Array('an array of strings such as ["make"]', _ARGUMENT),
        "url": ANY_TEXT,
        "headers": Map(
            'an object of strings such as {"Authorization":"Bearer ${TOKEN}"}',
            _HEADER,
            text("a string of printable ASCII characters", forbidden="^ -~", empty=True),
        ),
        "protocol": Choice(tuple(DIALECTS)),
        "lifecycle": Choice(tuple(Lifecycle)),
        "input": Choice(tuple(InputForm)),
        "stdout": Choice(tuple(StdoutPolicy)),
        "exec": EXEC,
        "mcp": MCP,
        "cwd": text("the path of a folder, such as '.', without NUL", forbidden=NUL),
        "env": Map(
            'an object of strings such as {"LOG_LEVEL":"debug"}',
            _VARIABLE,
            text("a string without NUL", forbidden=NUL, empty=True),
        ),
        "env_file": OneOrMore("the path of a file, such as '.env', or an array of such", _FILE),
        "pass_env": Array('an array of names such as ["OPENAI_API_KEY"]', _VARIABLE),
        "expand": Scalar("true or false", (bool,)),
    },
    required=("type",),
)

BACKOFF = Fields(
    {
        "initial_s": seconds("0.5"),
        "factor": number(
            "a number of at least 1, such as 2", lambda value: value >= 1, {"minimum": 1}
        ),
        "max_s": seconds("60"),
        "jitter": number(
            "a number from 0 to 1, such as 0.25",
            lambda value: 0 <= value <= 1,
            {"minimum": 0, "maximum": 1},
        ),
    },
    closed=True,
)

TIMEOUTS = Fields(
    {
        "start_s": seconds("10"),
        "health_s": seconds("2"),
        "describe_s": seconds("5"),
        "invoke_s": seconds("30"),
        "total_s": seconds("3600"),
        "silence_s": seconds("15", or_null=True),
        "exit_s": seconds("2"),
        "linger_s": seconds("10"),
        "stop_s": seconds("5"),
        "prepare_s": seconds("600"),
    },
    closed=True,
)

HEALTH = Fields({"interval_s": seconds("10"), "failures": integer(1, "3")}, closed=True)

# The least a program can run with; a smaller number is a slip of the unit.
_LEAST_MEMORY_BYTES = 1 << 20
_LEAST_LINE_BYTES = 1 << 10
_LEAST_OPEN_FILES = 8

LIMITS = Fields(
    {
        "memory_bytes": integer(_LEAST_MEMORY_BYTES, "268435456", or_null=True),
        "line_bytes": integer(_LEAST_LINE_BYTES, "8388608"),
        "open_files": integer(_LEAST_OPEN_FILES, "256", or_null=True),
        "processes": integer(1, "16", or_null=True),
        "cpu_s": integer(1, "60", or_null=True),
    },
    closed=True,
)

INSTANCES = Fields(
    {
        "min": integer(0, "1"),
        "max": integer(1, "4"),
        "idle_stop_s": seconds("300", or_null=True),
        "max_requests": integer(1, "1000", or_null=True),
        "max_age_s": seconds("3600", or_null=True),
    },
    closed=True,
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

SUPERVISION = Fields(
    {
        "start": Choice(tuple(Start)),
        "restart": Choice(tuple(Restart)),
        "restart_on": _ENDS,
        "never_on": _ENDS,
        "intensity": integer(0, "5"),
        "period_s": seconds("60"),
        "backoff": BACKOFF,
        "retry_failed_s": seconds("300"),
        "depends_on": Array(
            'an array of module names such as ["kv"]', text("the name of another module")
        ),
        "timeouts": TIMEOUTS,
        "health": HEALTH,
        "limits": LIMITS,
        "concurrency": integer(1, "1"),
        "queue": integer(0, "1024"),
        "instances": INSTANCES,
        "overlap": Scalar("true or false", (bool,)),
        "warm": integer(0, "0"),
        "watch": Scalar("true or false", (bool,)),
    },
    closed=True,
)

HOOK = Fields(
    {
        "observe": Array(
            'an array of globs of event names such as ["module:*"]',
            text("a glob of event names, such as 'module:*'"),
        ),
        "gate": Array('an array of gates such as ["tool:pre"]', Choice(tuple(Gate))),
        "modules": Array(
            'an array of globs of module names such as ["*"]',
            text("a glob of module names, such as 'db-*'"),
            least=1,
        ),
        "priority": integer(0, "50"),
        "on_failure": Choice(tuple(OnFailure)),
        "timeout_s": seconds("5"),
        "queue": integer(1, "1000"),
        "drop": Choice(tuple(Drop)),
    },
    closed=True,
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

DESCRIPTOR = Fields(
    {
        "name": _NAME,
        "kind": Choice(tuple(Kind)),
        "transport": TRANSPORT,
        "capabilities": Array(
            'an array of strings such as ["fs.read"]; [] for none',
            text("a string that is not empty"),
        ),
        "version": ANY_TEXT,
        "description": ANY_TEXT,
        "inputs": _OPS,
        "outputs": _OPS,
        "hook": HOOK,
        "enabled": Scalar("true or false", (bool,)),
        "supervision": SUPERVISION,
    },
    required=("name", "kind", "transport"),
)
