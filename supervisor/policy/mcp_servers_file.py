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

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from protocol.descriptor.model import NAME_LIMIT
from protocol.problem import described, quoted

FETCHING = frozenset({"npx", "uvx", "docker", "bunx", "pnpm", "pipx", "podman"})
FETCH_S = 300
"""What a command that downloads its program may take to start."""

_CARRIED = frozenset({"command", "args", "env", "cwd", "type", "url", "disabled", "name"})
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
    remarks: tuple[str, ...] = ()


class _LeftOutError(Exception):
    """The server cannot be carried over; the words say why."""


def servers_of(document: Any) -> Mapping[str, Any] | None:
    """Return the servers of a file by name, or None if it has none."""
    if not isinstance(document, dict):
        return None
    inner = document.get("mcp")
    for holder, field in ((document, "mcpServers"), (document, "servers"), (inner, "servers")):
        found = holder.get(field) if isinstance(holder, dict) else None
        if isinstance(found, dict):
            return found
    return None


def imported(servers: Mapping[str, Any], folder: PurePath, home: PurePath) -> Iterator[Imported]:
    """Yield what each server comes to; `folder` is that of the project, or of the file."""
    taken: set[str] = set()
    for given, server in servers.items():
        remarks: list[str] = []
        name = _NOT_IN_NAMES.sub("-", given).strip()[:NAME_LIMIT] or "server"
        if name in {".", "..", "supervisor"}:
            name = f"{name}-server"
        if name in taken:
            yield Imported(given, None, (f"another one is called {quoted(name)} already",))
            continue
        taken.add(name)
        if name != given:
            remarks.append(f"it is called {quoted(name)} here")
        places = {"workspaceFolder": str(folder), "userHome": str(home), "pathSeparator": "/"}
        try:
            transport = _transport(server, places, remarks)
        except _LeftOutError as error:
            yield Imported(name, None, (*remarks, str(error)))
            continue
        descriptor: dict[str, Any] = {
            "name": name,
            "kind": "tool",
            "capabilities": [],
            "transport": transport,
        }
        supervision: dict[str, Any] = {}
        if PurePath(transport["command"][0]).name in FETCHING:
            supervision["timeouts"] = {"start_s": FETCH_S}
            remarks.append(
                f"its command may download the program first, so it has {FETCH_S} s to start"
            )
        if server.get("disabled") is True:
            supervision["start"] = "lazy"
            remarks.append("it is disabled there, so it starts with its first request only")
        if supervision:
            descriptor["supervision"] = supervision
        yield Imported(name, descriptor, tuple(remarks))


def _transport(server: Any, places: Mapping[str, str], remarks: list[str]) -> dict[str, Any]:
    if not isinstance(server, dict):
        raise _LeftOutError(f"it is {described(server)}, it must be an object")
    if "url" in server or server.get("type", "stdio") != "stdio":
        raise _LeftOutError("it speaks over HTTP; this version runs servers over stdio only")
    command = server.get("command")
    if not isinstance(command, str) or not command:
        raise _LeftOutError(f'its "command" is {described(command)}, it must be a string')
    args = server.get("args", [])
    if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
        raise _LeftOutError('its "args" must be an array of strings')
    whole = [_written_out(one, places) for one in (command, *args)]
    _look_for_secrets(whole)
    transport: dict[str, Any] = {"type": "stdio", "protocol": "mcp", "command": whole}
    if isinstance(server.get("cwd"), str):
        transport["cwd"] = _written_out(server["cwd"], places)
    elif PurePath(command).parent != PurePath() and not PurePath(command).is_absolute():
        transport["cwd"] = places["workspaceFolder"]
    transport |= _environment(server.get("env") or {}, places, remarks)
    left = sorted(server.keys() - _CARRIED)
    if left:
        remarks.append(f"not carried over: {', '.join(map(quoted, left))}")
    return transport


def _written_out(text: str, places: Mapping[str, str]) -> str:
    """Return a text that has no variables any more; raises `_LeftOutError`."""
    for name, value in places.items():
        text = text.replace(f"${{{name}}}", value)
    left = _OTHER.search(text)
    if left is not None:
        words = f"{quoted(left[0])} stands in its command or folder, where no variable can"
        raise _LeftOutError(words)
    return text


def _look_for_secrets(command: list[str]) -> None:
    before = ""
    for one in command[1:]:
        option, equals, value = one.partition("=") if one.startswith("-") else ("", "", one)
        named = option if equals else before
        if _SECRET_VALUE.search(value) or (named and value and _is_secret_option(named)):
            words = "its arguments hold what looks like a secret"
            raise _LeftOutError(f"{words}; give it in a variable, if the program takes one")
        before = one if one.startswith("-") and not equals else ""


def _is_secret_option(option: str) -> bool:
    return _SECRET_NAME.search(option.strip("-").replace("-", "_")) is not None


def _environment(env: Any, places: Mapping[str, str], remarks: list[str]) -> dict[str, Any]:
    if not isinstance(env, dict):
        raise _LeftOutError(f'its "env" is {described(env)}, it must be an object')
    kept: dict[str, str] = {}
    passed: list[str] = []
    for name, given in env.items():
        if not _VARIABLE_NAME.fullmatch(name) or isinstance(given, dict | list):
            remarks.append(f"its variable {quoted(name)} is not carried over")
            continue
        value = "" if given is None else given if isinstance(given, str) else str(given)
        value = _INPUT.sub(f"${{{name}}}", value)
        for place, path in places.items():
            value = value.replace(f"${{{place}}}", path)
        value = _VARIABLE.sub(r"${\1}", value)
        literal = _OTHER.sub("", value)
        others = [one for one in _OTHER.findall(value) if not _PLAIN.fullmatch(one)]
        if value == f"${{{name}}}":
            passed.append(name)
        elif others:
            passed.append(name)
            remarks.append(f"{quoted(others[0])} is not known here: set {name} for the daemon")
        elif literal and (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value)):
            passed.append(name)
            remarks.append(f"{name} looks like a secret and is not copied: set it for the daemon")
        else:
            kept[name] = value
    found: dict[str, Any] = {}
    if kept:
        found["env"] = kept
    if passed:
        found["pass_env"] = passed
    return found
