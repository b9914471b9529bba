"""Turn the bytes of a descriptor file into a `Descriptor`, or into words about its faults.

The order is: strict JSON (`protocol.json_document`), the shape and the rules between fields
(`protocol.descriptor.rules`), and only then the typed object, so that one reading reports every
fault. No file is read here.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.descriptor.model import Descriptor, Hook, Supervision
from protocol.descriptor.rules import DEFAULT_PROTOCOL, problems
from protocol.dialects.registry import DIALECTS, Dialect
from protocol.json_document import read_document
from protocol.problem import Problem, printable

FETCHING = frozenset(
    {
        *("npx", "npm", "pnpm", "yarn", "bunx", "bun", "deno"),
        *("uvx", "uv", "pipx", "docker", "podman", "nix"),
    }
)
"""Programs that may download the program they run."""

FETCH_S = 300.0
"""Default of `start_s` for a command that downloads its program, in a patient dialect."""

_RUNNERS = frozenset({"sh", "bash", "dash", "zsh", "env"})
"""Programs whose arguments name the program that is run."""

MAX_PROBLEMS = 100  # A generated file can have a million; nobody reads the second hundred.


class DescriptorError(Exception):
    """A descriptor file that cannot be used.

    `problems` has at least one, sorted by pointer. Its text is one line per problem: `FILE:
    /json/pointer: what is wrong and what would be right`. `name` is the module's name, if the file
    says it in spite of all.
    """

    def __init__(self, source: str, problems: tuple[Problem, ...], name: str | None = None) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems
        self.name = name

    @property
    def reason(self) -> str:
        """All problems, in one line and without the source."""
        return "; ".join(map(str, self.problems))

    def __str__(self) -> str:
        source = printable(self.source)
        return "\n".join(f"{source}: {problem}" for problem in self.problems)


def parse_descriptor(
    data: bytes, source: str, *, owner: str = "", folder: str | None = None
) -> Descriptor:
    """Parse and check a descriptor.

    `source` is the absolute path its bytes were read from. With a `folder` there is no file, and
    `source` is any name for people. Raises `DescriptorError` with every problem, and nothing else.
    """
    document = read_document(data)
    found = document if isinstance(document, list) else problems(document)
    if isinstance(document, list) or found:
        name = document.get("name") if isinstance(document, dict) else None
        raise DescriptorError(
            source, tuple(sorted(found)[:MAX_PROBLEMS]), name if isinstance(name, str) else None
        )
    whence = {
        "source": source,
        "folder": posixpath.dirname(source) if folder is None else folder,
        "owner": owner,
        "digest": hashlib.sha256(data).hexdigest(),
    }
    return _typed(document, whence)


def fetches(command: Sequence[str]) -> bool:
    """Tell whether a command may download its program before it runs it."""
    if posixpath.basename(command[0]) in _RUNNERS:
        command = " ".join(command).split()
    else:
        command = command[:1]
    return any(posixpath.basename(word) in FETCHING for word in command)


def _supervision(document: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    given = document.get("supervision", {})
    own = given.get("timeouts", {})
    timeouts = {**msgspec.structs.asdict(dialect.timeouts), **own}
    if dialect.patient:
        if fetches(document["transport"]["command"]):
            timeouts["start_s"] = own.get("start_s", FETCH_S)
        timeouts["total_s"] = own.get("total_s", max(timeouts["total_s"], timeouts["invoke_s"]))
    return {
        "concurrency": dialect.concurrency,
        "restart": dialect.restart,
        **given,
        "timeouts": timeouts,
    }


_NO_ARGS: dict[str, Any] = {"type": "object", "additionalProperties": False}


def _inputs_of_commands(document: dict[str, Any]) -> dict[str, Any]:
    """Return the `inputs` of command line tools: an op that has none takes no args."""
    transport = document["transport"]
    if transport.get("protocol") != "exec":
        return {}
    inputs = document.get("inputs", {})
    return {"inputs": {op: inputs.get(op, _NO_ARGS) for op in transport["exec"]["ops"]}}


def _typed(document: dict[str, Any], whence: dict[str, str]) -> Descriptor:
    transport = document["transport"]
    dialect = DIALECTS[transport.get("protocol", DEFAULT_PROTOCOL)]
    hook, env_file = document.get("hook"), transport.get("env_file")
    complete = {
        **document,
        **_inputs_of_commands(document),
        "transport": {
            "lifecycle": dialect.lifecycles[0],
            "stdout": dialect.stdout,
            "expand": transport.get("protocol") == "mcp",
            **transport,
            **({"env_file": [env_file]} if isinstance(env_file, str) else {}),
            **({} if transport["type"] == "stdio" else {"command": ()}),
        },
        # Not strict: an integer may be written 5.0. Everything else has been checked.
        "supervision": msgspec.convert(_supervision(document, dialect), Supervision, strict=False),
        "hook": None if hook is None else msgspec.convert(hook, Hook, strict=False),
        **whence,
    }
    return msgspec.convert(complete, Descriptor)
