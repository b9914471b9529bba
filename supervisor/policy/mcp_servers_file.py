"""What an `mcpServers` file of another program comes to: a descriptor for each server, and words.

Claude Desktop and Cursor keep servers under `mcpServers`, VS Code under `servers` (or, in its
settings, under `mcp`). Rules that live here, and nowhere else:

- a variable stays a variable: `${NAME}` and `${env:NAME}`; what VS Code would ask for
  (`${input:X}`) becomes the variable that it is for;
- what looks like a secret is not written to a descriptor: in `env` it becomes `pass_env`, in `args`
  the server is left out;
- folders that the other program knows (`${workspaceFolder}`, `${userHome}`) are written out;
- whatever else cannot be carried over is said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from pathlib import PurePath
from typing import Any

import msgspec

from protocol.descriptor.loading import FETCH_S, fetches
from protocol.descriptor.model import NAME_LIMIT
from protocol.problem import Problem, described, quoted, step
from supervisor.policy.fetching_commands import fetched

MOST_SECONDS = 3600
"""A `timeout` up to this is in seconds, as Cline and Roo Code have it (an hour at the most); a
longer one is in milliseconds, as Claude Code, Gemini CLI and others have it. Four seconds are not
what anybody allows a server."""

_CARRIED = frozenset(
    {"command", "args", "env", "cwd", "type", "url", "disabled", "name", "envFile", "timeout"}
)
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_INPUT = re.compile(r"\$\{input:[^}]*\}")
_OTHER = re.compile(r"\$\{[^}]*\}")
_PLAIN = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|_KEY$|^KEY$|_PAT$|AUTH(?!OR)|DSN|CONNECTION_STRING",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"^(sk-|gh[pousr]_|github_pat_|xox[abp]-|glpat-|AKIA|Bearer )|://[^/@]+:[^/@]+@"
)
_NOT_IN_NAMES = re.compile(r"[/\x00-\x1f\x7f-\x9f]")
_VARIABLE_NAME = re.compile(r"[^=\x00]+")


class Imported(msgspec.Struct, frozen=True):
    """One server: its descriptor, or None if it cannot be one, and what is to be said of it."""

    name: str
    descriptor: dict[str, Any] | None
    remarks: tuple[Problem, ...] = ()


class _LeftOutError(Exception):
    """The server cannot be carried over, for what stands at a place in it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class Surroundings(msgspec.Struct, frozen=True):
    """What a file of servers does not say itself."""

    folder: PurePath
    """Of the project, or of the file."""
    home: PurePath
    read: Callable[[PurePath], str | None]
    """Gives the text of a file, or None if it can't be read."""


class _Server:
    """One server on its way to a descriptor, and what there is to be said of it."""

    def __init__(self, at: str, server: Any, around: Surroundings) -> None:
        self.at = at
        self.server = server
        self.around = around
        self.remarks: list[Problem] = []
        self.places = {
            "workspaceFolder": str(around.folder),
            "userHome": str(around.home),
            "pathSeparator": "/",
        }

    def pointer(self, *steps: str | int) -> str:
        """Return the pointer of what stands there."""
        return reduce(step, steps, self.at)

    def say(self, words: str, *steps: str | int) -> None:
        """Remark on what stands there."""
        self.remarks.append(Problem(self.pointer(*steps), words))

    def left_out(self, words: str, *steps: str | int) -> _LeftOutError:
        """Return the error that it can't be carried over."""
        return _LeftOutError(Problem(self.pointer(*steps), words))


def servers_of(document: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Return the servers of a file by name, after their pointer; None if it has none."""
    if not isinstance(document, dict):
        return None
    inner = document.get("mcp")
    for pointer, holder in (("", document), ("/mcp", inner)):
        for field in ("mcpServers", "servers"):
            found = holder.get(field) if isinstance(holder, dict) else None
            if isinstance(found, dict):
                return step(pointer, field), found
    return None


def imported(at: str, servers: Mapping[str, Any], around: Surroundings) -> Iterator[Imported]:
    """Yield what each of the servers at a place of the file comes to."""
    taken: set[str] = set()
    for given, server in servers.items():
        one = _Server(step(at, given), server, around)
        name = _NOT_IN_NAMES.sub("-", given).strip()[:NAME_LIMIT] or "server"
        if name in {".", "..", "supervisor"}:
            name = f"{name}-server"
        if name in taken:
            words = f"another one is called {quoted(name)} already"
            yield Imported(given, None, (Problem(one.at, words),))
            continue
        taken.add(name)
        if name != given:
            one.say(f"is called {quoted(name)} here")
        try:
            descriptor = _descriptor(name, one)
        except _LeftOutError as error:
            yield Imported(name, None, (*one.remarks, error.problem))
        else:
            yield Imported(name, descriptor, tuple(one.remarks))


def _descriptor(name: str, one: _Server) -> dict[str, Any]:
    transport = _transport(one)
    supervision: dict[str, Any] = {}
    found = fetched(transport["command"])
    if found is not None:
        transport |= {"command": found.command, "prepare": found.prepare}
        one.say(found.remark, "command")
    elif fetches(transport["command"]):
        one.say(f"may download its program first, so it has {FETCH_S:g} s to start", "command")
    if "timeout" in one.server:
        supervision |= _timeouts(one)
    if one.server.get("disabled") is True:
        supervision["start"] = "lazy"
        one.say("is true, so it starts with its first request only", "disabled")
    more = {"supervision": supervision} if supervision else {}
    return {"name": name, "kind": "tool", "capabilities": [], "transport": transport, **more}


def _timeouts(one: _Server) -> dict[str, Any]:
    """Return what a `timeout` comes to in `supervision`."""
    given = one.server["timeout"]
    if type(given) not in {int, float} or given <= 0:
        one.say(f"is {described(given)}, and is not carried over", "timeout")
        return {}
    unit = "seconds" if given <= MOST_SECONDS else "milliseconds"
    invoke_s = given if given <= MOST_SECONDS else given / 1000
    one.say(f"is taken for {unit}: a call may be silent for {invoke_s:g} s (invoke_s)", "timeout")
    return {"timeouts": {"invoke_s": invoke_s}}


def _transport(one: _Server) -> dict[str, Any]:
    server = one.server
    if not isinstance(server, dict):
        raise one.left_out(f"is {described(server)}, must be an object")
    for field in ("url", "type"):
        if field in server and server[field] != "stdio":
            raise one.left_out("means HTTP; stdiod runs MCP servers over stdio only", field)
    command = server.get("command")
    if not isinstance(command, str) or not command:
        raise one.left_out(f"is {described(command)}, must be a string", "command")
    args = server.get("args", [])
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise one.left_out("must be an array of strings", "args")
    whole = [_written_out(command, one, "command")]
    whole += [_written_out(word, one, "args", index) for index, word in enumerate(args)]
    _look_for_secrets(whole, one)
    transport: dict[str, Any] = {"type": "stdio", "protocol": "mcp", "command": whole}
    if isinstance(server.get("cwd"), str):
        transport["cwd"] = _written_out(server["cwd"], one, "cwd")
    elif PurePath(command).parent != PurePath() and not PurePath(command).is_absolute():
        transport["cwd"] = one.places["workspaceFolder"]
    transport |= _environment(one)
    for field in sorted(server.keys() - _CARRIED):
        one.say("is not carried over", field)
    return transport


def _written_out(text: str, one: _Server, *steps: str | int) -> str:
    """Return a text that has no variables any more; raises `_LeftOutError`."""
    for name, value in one.places.items():
        text = text.replace(f"${{{name}}}", value)
    left = _OTHER.search(text)
    if left is not None:
        raise one.left_out(f"has {quoted(left[0])}, where no variable can be", *steps)
    return text


def _look_for_secrets(command: list[str], one: _Server) -> None:
    before = ""
    for index, word in enumerate(command[1:]):
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        named = option if equals else before
        # `-e NAME=value`, as docker has it
        variable, _, assigned = value.partition("=")
        is_secret = (
            _SECRET_VALUE.search(value)
            or (named and value and _is_secret_option(named))
            or (assigned and (_is_secret_option(variable) or _SECRET_VALUE.search(assigned)))
        )
        if is_secret:
            words = "looks like a secret; give it in a variable, if the program takes one"
            raise one.left_out(words, "args", index)
        before = word if word.startswith("-") and not equals else ""


def _is_secret_option(option: str) -> bool:
    return _SECRET_NAME.search(option.strip("-").replace("-", "_")) is not None


def _environment(one: _Server) -> dict[str, Any]:
    env = one.server.get("env") or {}
    if not isinstance(env, dict):
        raise one.left_out(f"is {described(env)}, must be an object", "env")
    kept: dict[str, str] = {}
    passed: list[str] = []
    of_file = _of_env_file(one)
    for name, given in {**of_file, **env}.items():
        steps = ("env", name) if name in env else ("envFile",)
        if not _VARIABLE_NAME.fullmatch(name) or isinstance(given, dict | list):
            one.say(f"is {described(given)}, and is not carried over", *steps)
            continue
        value = _value(name, given, one, steps)
        if value is None:
            passed.append(name)
        else:
            kept[name] = value
    found: dict[str, Any] = {}
    if kept:
        found["env"] = kept
    if passed:
        found["pass_env"] = passed
    return found


def _value(name: str, given: Any, one: _Server, steps: tuple[str, ...]) -> str | None:
    """Return what a variable is set to; None if the daemon's own is passed on."""
    value = "" if given is None else given if isinstance(given, str) else json.dumps(given)
    value = _INPUT.sub(f"${{{name}}}", value)
    for place, path in one.places.items():
        value = value.replace(f"${{{place}}}", path)
    value = _VARIABLE.sub(r"${\1}", value)
    others = [word for word in _OTHER.findall(value) if not _PLAIN.fullmatch(word)]
    of_file = f"has {name}, which " if steps == ("envFile",) else ""
    if value == f"${{{name}}}":
        if _INPUT.search(str(given)):
            one.say(f"{of_file}is asked for there: set {name} for the daemon", *steps)
        return None
    if others:
        one.say(f"{of_file}has {quoted(others[0])}: set {name} for the daemon", *steps)
        return None
    literal = _OTHER.sub("", value)
    if literal and (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value)):
        words = "looks like a secret and is not copied: set"
        one.say(f"{of_file}{words} {name} for the daemon", *steps)
        return None
    return value


def _of_env_file(one: _Server) -> dict[str, str]:
    """Return the variables of `envFile` (lines of NAME=value, VS Code), whose place `env` takes."""
    given = one.server.get("envFile")
    if given is None:
        return {}
    path = _written_out(given, one, "envFile") if isinstance(given, str) else ""
    text = one.around.read(one.around.folder / path) if path else None
    if text is None:
        one.say(f"is {described(given)}, which cannot be read: set its variables in env", "envFile")
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not equals or name.startswith("#"):
            continue
        value = value.strip()
        quote = value[:1]
        if quote in ("'", '"') and value[1:].endswith(quote):
            value = value[1:-1]
        found[name.strip()] = value
    return found
