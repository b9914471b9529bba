"""The import of a client's file of MCP servers: a descriptor for each server, and remarks.

`servers_of` finds the servers by the shape of the document, whatever the file is called. Rules of
`imported`, which live here and nowhere else:

- a variable stays one, as `${NAME}` or `${NAME:-default}`; `${workspaceFolder}` and `~` do not;
- a value that looks like a secret is in no descriptor and no remark, but in that server's env file;
- a remote server becomes a module that bridges to it with `npx -y mcp-remote`;
- a remark reports each change, and each server that cannot be imported.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import reduce
from itertools import chain, count
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

import msgspec

from protocol.descriptor.loading import FETCH_S, fetches
from protocol.descriptor.model import NAME_LIMIT
from protocol.problem import Problem, kind, quoted, step

MOST_SECONDS = 3600
"""A `timeout` up to this is in seconds, as Cline and Roo Code have it (an hour at the most); a
longer one is in milliseconds, as Claude Code, Gemini CLI and others have it. No client allows a
server four seconds only."""

_ALIASES = (
    dict.fromkeys(("httpUrl", "serverUrl", "uri"), "url")
    | dict.fromkeys(("environment", "envs"), "env")
    | dict.fromkeys(("working_directory", "workingDirectory"), "cwd")
    | {"cmd": "command", "env_file": "envFile", "http_headers": "headers"}
    | {"transportType": "type", "tool_timeout_sec": "timeout"}
)
"""Fields with other names in some clients, and the usual name."""

_CARRIED = frozenset(_ALIASES.values()) | {
    *("args", "name", "disabled", "enabled", "source", "env_vars"),
    *("bearer_token_env_var", "env_http_headers", "startup_timeout_sec", "startup_timeout_ms"),
}
_REMOTE = frozenset({"http", "streamablehttp", "sse", "remote"})

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?!\$\{)[^}])*))?\}")
_ADDRESS = re.compile(r"(https?://)(?:([^/?#$\s]*)@)?(\[[^\s/]+\]|[^\s/?#:@]+)(?=\S*\Z)")
_NESTED = re.compile(r"\$\{\w+:-[^}]*\$\{")
_OF_ENVIRONMENT = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_OF_OPENCODE = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_INPUT = re.compile(r"\$\{input:([^}]*)\}")
_NOT_IN_NAMES = re.compile(r"[/\x00-\x1f\x7f-\x9f]")
_TILDE = re.compile(r"^((?:--?[\w-]+=)?)~(?=/|$)")
_SHELL = re.compile(r"[|;<>&`]|\$\(")
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASS(?!IVE)|PWD|CRED|AUTH(?!OR(?!I[ZS]))|BEARER|COOKIE|SESSION|PRIVATE|_PAT$|DSN"
    r"|(?<!MON)(?<!HOT)KEY(?!WORD|BOARD|CLOAK)|CONNECTION_?STRING|DATABASE_URL|WEBHOOK",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY"
    r"|\bey[\w-]{8,}\.ey[\w-]{8,}\."  # JWT
    r"|\b(?:sk|rk)[-_]|\bgh[opusr]_|\bgithub_pat_|\bglpat-|\bxox[abeprs]-|\bxapp-|\bA[KS]IA[A-Z0-9]"
    r"|\bAIza|\bya29\.|\bnpm_\w|\bpypi-|\bhf_\w|\bSG\.\w|\blin_api_|\bntn_|\bsecret_|\bfigd_"
    r"|\bdop_v1_|\bdapi[0-9a-f]{8}|\bglsa_|\bsntry[su]_|\bpplx-|\bgsk_|\bxai-|\btvly-|\bATATT"
    r"|\bPMAK-|\bshpat_|\bhvs\.|\bAGE-SECRET-KEY-|\bops_ey|\br8_\w|\bsbp_|\b\d{5,16}:AA[\w-]{30}"
    r"|hooks\.slack\.com/services/|(?i:\b(?:bearer|basic)\s+)[^\s$]{3,}"
    r"|://[^/\s@]*:[^/\s@]+@|://[^/\s@:$]{8,}@|(?i:\b(?:password|pwd)=)[^;&\s]"
    r"|(?i:[?&][\w-]*(?:token|key|secret|sig|signature|password|auth)=)[^&]"
)
_RUN_FLAGS = {
    *("-d", "--detach", "--disable-content-trust", "--init", "-i", "--interactive", "-P", "-q"),
    *("--no-healthcheck", "--oom-kill-disable", "--privileged", "--publish-all", "--quiet"),
    *("--read-only", "--rm", "--sig-proxy", "-t", "--tty", "--env-host", "--http-proxy"),
    *("--no-hosts", "--no-hostname", "--passwd", "--read-only-tmpfs", "--replace", "--rmi"),
    *("--rootfs", "--tls-verify", "--unsetenv-all", "--use-api-socket"),
}
"""Options of `docker run` and `podman run` without a value; all others have one."""

_HELD = ("--init", "--rm", "--cidfile", "${STDIOD_CIDFILE}")


class Surroundings(msgspec.Struct, frozen=True):
    folder: PurePath
    home: PurePath
    exists: Callable[[str], bool]


class Servers(msgspec.Struct, frozen=True):
    """The servers at one place of a file, by name; `off` names those that are disabled there."""

    at: str
    by_name: Mapping[str, Any]
    client: str = ""
    folder: PurePath | None = None
    off: frozenset[str] = frozenset()


class Imported(msgspec.Struct, frozen=True):
    """One server: its descriptor, if it can have one, remarks, and the contents of its env file."""

    name: str
    descriptor: dict[str, Any] | None
    remarks: tuple[Problem, ...] = ()
    enabled: bool = True
    secrets: Mapping[str, str] = {}


class _LeftOutError(Exception):
    """The server cannot be imported; the argument is the `Problem`."""


class _Server:
    def __init__(self, name: str, at: str, server: Any, of: Servers, around: Surroundings) -> None:
        self.name = name
        self.at = at
        self.client = of.client
        self.folder = str(of.folder or around.folder)
        self.around = around
        self.remarks: list[Problem] = []
        self.env: dict[str, str] = {}
        self.secrets: dict[str, str] = {}
        self.pass_env: list[str] = []
        self.aliases: dict[str | int, str] = {}
        self.server = self._plain(server) if isinstance(server, dict) else server

    def _plain(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return a server with the fields' usual names; `command` is text, `args` follows it."""
        server = dict(given)
        for alias in _ALIASES.keys() & server.keys():
            self.aliases[_ALIASES[alias]] = alias
            server[_ALIASES[alias]] = server.pop(alias)
        command, args = server.get("command"), server.get("args") or []
        if isinstance(command, dict):  # an older form of Zed
            path, others = command.get("path"), command.keys() - {"path"}
            return server | {field: command[field] for field in others} | {"command": path}
        if isinstance(command, list):  # OpenCode
            more = args if isinstance(args, list) else []
            server |= {"command": next(iter(command), None), "args": [*command[1:], *more]}
        return server

    def pointer(self, *steps: str | int) -> str:
        return reduce(step, (self.aliases.get(one, one) for one in steps), self.at)

    def say(self, words: str, *steps: str | int) -> None:
        self.remarks.append(Problem(self.pointer(*steps), words))

    def left_out(self, words: str, *steps: str | int) -> _LeftOutError:
        return _LeftOutError(Problem(self.pointer(*steps), words))


def servers_of(document: Any) -> list[Servers]:
    """Return the servers of a file, place by place."""
    if not isinstance(document, dict):
        return []
    found: list[Servers] = []

    def take(at: str, servers: Any, client: str = "", **more: Any) -> None:
        if isinstance(servers, dict):
            found.append(Servers(at, servers, client, **more))

    mcp = document.get("mcp")
    mcp = mcp if isinstance(mcp, dict) else {}
    servers, allowed = document.get("mcpServers"), mcp.get("allowed")
    off = _strings(mcp.get("excluded"))
    if isinstance(allowed, list) and isinstance(servers, dict):
        off |= servers.keys() - _strings(allowed)
    take("/mcpServers", servers, off=off)
    take("/servers", document.get("servers"), "vscode")
    for field in ("servers", "mcpServers"):
        take(f"/mcp/{field}", mcp.get(field), "vscode")
    # The `mcp` of Gemini CLI is settings, which are no objects.
    own = {name: one for name, one in mcp.items() if isinstance(one, dict)}
    own = {name: one for name, one in own.items() if name not in {"servers", "mcpServers"}}
    take("/mcp", own or None, "opencode")
    take("/context_servers", document.get("context_servers"), "zed")
    take("/mcp_servers", document.get("mcp_servers"), "codex")
    projects = document.get("projects")
    for path, one in projects.items() if isinstance(projects, dict) else ():
        if isinstance(one, dict):
            off = _strings(one.get("disabledMcpServers"))
            at = step("/projects", path) + "/mcpServers"
            take(at, one.get("mcpServers"), folder=PurePath(path), off=off)
    bare = {"command", "cmd", "url", "httpUrl", "serverUrl"}
    if not found and all(isinstance(one, dict) and one.keys() & bare for one in document.values()):
        take("", document or None)
    return found


def _strings(value: Any) -> frozenset[str]:
    return frozenset(one for one in (value if isinstance(value, list) else ()) if type(one) is str)


def imported(places: Collection[Servers], around: Surroundings) -> Iterator[Imported]:
    taken: set[str] = set()
    exact = {given for place in places for given in place.by_name if _free_name(given, ()) == given}
    for place in places:
        for given, server in place.by_name.items():
            name = given if given in exact - taken else _free_name(given, taken | exact)
            one = _Server(name, step(place.at, given), server, place, around)
            taken.add(name)
            if name != given:
                one.say(f"is called {quoted(name)} here")
            own = server if isinstance(server, dict) else {}
            flags = [str(own.get(flag)).lower() for flag in ("disabled", "enabled")]
            enabled = given not in place.off and flags[0] != "true" and flags[1] != "false"
            try:
                yield _imported(one, given, enabled=enabled)
            except _LeftOutError as error:
                enabled = enabled and not error.args[0].message.startswith(_NO_SERVER)
                yield Imported(name, None, (*one.remarks, error.args[0]), enabled)


_NO_SERVER = "is not a server to import"


def _free_name(given: str, taken: Collection[str]) -> str:
    name = _NOT_IN_NAMES.sub("-", given).strip() or "server"
    name = f"{name}-server" if name == "supervisor" else name
    # Of a name with its ending, 128 characters and 255 bytes are the most.
    name = name[: NAME_LIMIT - 8].encode()[:200].decode(errors="ignore")
    return next(one for one in _numbered(name, "-") if one not in taken)


def _numbered(name: str, before: str) -> Iterator[str]:
    return chain([name], (f"{name}{before}{number}" for number in count(2)))


def _imported(one: _Server, given: str, *, enabled: bool) -> Imported:
    """Return a server's descriptor with remarks and variables; raises `_LeftOutError`."""
    if given.startswith("."):
        raise one.left_out("begins with a dot, and such files are not read: call it otherwise")
    if not isinstance(one.server, dict):
        raise one.left_out(f"is {kind(one.server)}, must be an object")
    if not one.server.keys() & {"command", "url"} and one.client in {"zed", "opencode"}:
        raise one.left_out(f"{_NO_SERVER}: it has no command and no address of its own")
    transport = _transport(one)
    for field in sorted(one.server.keys() - _CARRIED):
        words = "; all its tools can be called" if "tools" in field.lower() else ""
        one.say(f"is not carried over{words}", field)
    timeouts = _timeouts(one, transport["command"])
    descriptor = {
        "name": one.name,
        "kind": "tool",
        "capabilities": [],
        **({} if enabled else {"enabled": False}),
        "transport": transport,
        **({"supervision": {"timeouts": timeouts}} if timeouts else {}),
    }
    return Imported(one.name, descriptor, tuple(one.remarks), enabled, one.secrets)


def _transport(one: _Server) -> dict[str, Any]:
    transport: dict[str, Any] = {"type": "stdio", "protocol": "mcp"}
    _set_variables(one)
    said = re.sub("[-_]", "", str(one.server.get("type") or "").lower())
    if said not in {"", "stdio", "local", *_REMOTE}:
        raise one.left_out(f"is {quoted(said)}, which stdiod has no bridge for", "type")
    bridged = "url" in one.server and (said in _REMOTE or "command" not in one.server)
    if {"url", "command"} <= one.server.keys():
        unused, used = ("command", "url") if bridged else ("url", "command")
        one.say(f"is not carried over: the server has a {used}", unused)
    if bridged:
        command = _bridge(one, one.server["url"], said)
    else:
        cwd = one.server.get("cwd") or one.folder
        if not isinstance(cwd, str):
            raise one.left_out(f"is {kind(cwd)}, must be the path of a folder", "cwd")
        transport["cwd"] = _path(one, _text(one, cwd, "cwd"), one.folder)
        command = _command(one, transport["cwd"])
    transport["command"] = _without_secrets(one, command)
    if fetches(command):
        words = f"may download its program first, so by default it has {FETCH_S:g} s to start"
        one.say(f"{words} (timeouts.start_s)", "command")
    env_file, env_files = one.server.get("envFile"), []
    if isinstance(env_file, str) and env_file:
        env_files = [_path(one, _text(one, env_file, "envFile"), one.folder)]
    elif env_file is not None:
        one.say("must be the path of a file, and is not carried over", "envFile")
    env_files += [f"{one.name}.env"] if one.secrets else []
    more = {"env": one.env, "env_file": env_files, "pass_env": [*dict.fromkeys(one.pass_env)]}
    return transport | {field: value for field, value in more.items() if value}


def _timeouts(one: _Server, command: list[str]) -> dict[str, float]:
    """Return the timeouts of a server, in the unit of its client."""
    unit = {"zed": 1.0, "codex": 1.0, "opencode": 0.001}.get(one.client)
    factors = {"timeout": unit, "startup_timeout_ms": 0.001, "startup_timeout_sec": 1.0}
    found: dict[str, float] = {}
    for field, factor in factors.items():
        name = "invoke_s" if field == "timeout" else "start_s"
        given = one.server.get(field, 0)
        if type(given) not in {int, float} or not 0 <= given < MOST_SECONDS * 1_000_000:
            one.say("is no number above 0, and is not carried over", field)
        elif given:
            used = factor or (1.0 if given <= MOST_SECONDS else 0.001)
            least = FETCH_S if name == "start_s" and fetches(command) else 0
            found[name] = max(round(given * used, 3), least)
            words = "seconds" if used == 1.0 else "milliseconds"
            one.say(f"is taken for {words}: {name} is {found[name]:g}", field)
    return found


def _text(one: _Server, text: str, *steps: str | int) -> str:
    """Return a text with variables in our form only; raises `_LeftOutError`."""
    if "\0" in text:
        raise one.left_out("holds a NUL character, which no program can be given", *steps)
    if one.client == "opencode":
        text = _OF_OPENCODE.sub(r"${\1}", text)
        if "{file:" in text:
            raise one.left_out("has {file:...}, which is not read: give it in a variable", *steps)
    places = {"workspaceFolder": one.folder, "userHome": str(one.around.home), "pathSeparator": "/"}
    for name, value in places.items():
        text = text.replace(f"${{{name}}}", value)
    text = _OF_ENVIRONMENT.sub(r"${\1}", text)
    for found in _INPUT.finditer(text):
        name = _variable(found[1])
        words = f"the client asks for {found[0]} when it starts the server; here it is the variable"
        one.say(f"{words} {name}: put {name}=... into an env file of the module", *steps)
        text = text.replace(found[0], f"${{{name}}}")
    if _NESTED.search(text):
        words = "has a variable whose default is a variable: ${A:-${B}}; write one of the two"
        raise one.left_out(words, *steps)
    other = re.search(r"\$\{\w*", _VARIABLE.sub("", text))
    if other:
        raise one.left_out(f"has {quoted(other[0] + '...}')}, which stdiod cannot expand", *steps)
    return text


def _variable(text: str) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").upper() or "VALUE"
    return f"V_{name}" if name[0].isdigit() else name


def _path(one: _Server, path: str, folder: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = str(one.around.home) + path[1:]
    return path if path.startswith("${") else posixpath.normpath(posixpath.join(folder, path))


def _is_secret(name: str, value: str) -> bool:
    defaults = [default for _, default in _VARIABLE.findall(value)]
    if any(map(_SECRET_VALUE.search, (_VARIABLE.sub("", value), *defaults))):
        return True
    plain = defaults or value.lower() in {"", "true", "false"}
    return not plain and bool(_SECRET_NAME.search(name))


def _hidden(one: _Server, name: str, value: str, *steps: str | int) -> str:
    """Put a secret into the env file; return the text with a variable in its place."""
    if any(_SECRET_VALUE.search(default) for _, default in _VARIABLE.findall(value)):
        words = "holds a secret as the default of a variable: set the variable, without a default"
        raise one.left_out(words, *steps)
    wanted = name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else _variable(name)
    pieces = re.split(r"(\$\{[^}]*\})", value)
    variables = []
    for at in (at for at in range(0, len(pieces), 2) if re.search(r"\w", pieces[at])):
        taken = {*one.env, *(key for key in one.secrets if one.secrets[key] != pieces[at])}
        variables.append(next(one for one in _numbered(wanted, "_") if one not in taken))
        one.secrets[variables[-1]] = pieces[at]
        pieces[at] = f"${{{variables[-1]}}}"
    named = " and ".join(variables)
    one.say(f"looks like a secret: it is {named} in {one.name}.env, not in the descriptor", *steps)
    return "".join(pieces)


def _set(one: _Server, name: str, value: str, *steps: str | int) -> None:
    one.env.pop(name, None)
    text = _hidden(one, name, value, *steps) if _is_secret(name, value) else value
    if value == f"${{{name}}}":
        one.pass_env.append(name)
    elif text != f"${{{name}}}":
        one.env[name] = text


def _set_variables(one: _Server) -> None:
    env = one.server.get("env") or {}
    if not isinstance(env, dict):
        raise one.left_out(f"is {kind(env)}, must be an object", "env")
    for name, given in env.items():
        if given is None:  # VS Code: not set
            continue
        if not name or "=" in name or "\0" in name or isinstance(given, dict | list):
            raise one.left_out("is no variable with a value", "env", name)
        text = _text(one, given if isinstance(given, str) else json.dumps(given), "env", name)
        if name == "PATH" and one.client == "vscode" and "${PATH}" not in text:
            text = f"${{PATH}}:{text}"  # VS Code appends it
        _set(one, name, text, "env", name)
    one.pass_env += [f"{name}?" for name in sorted(_strings(one.server.get("env_vars")))]


def _command(one: _Server, cwd: str) -> list[str]:
    """Return program and arguments; raises `_LeftOutError`."""
    given, args = one.server.get("command"), one.server.get("args") or []
    if not isinstance(given, str) or not given.strip():
        raise one.left_out(f"is {kind(given)}, must be the name of a program", "command")
    if not isinstance(args, list) or any(isinstance(word, dict | list | None) for word in args):
        raise one.left_out("must be an array of strings", "args")
    program, *words = _line(one, given, cwd)
    for index, word in enumerate(args):
        words.append(_text(one, word if isinstance(word, str) else json.dumps(word), "args", index))
    while re.match(r"[A-Za-z_]\w*=", program):  # as a shell has it: A=b program
        if not words:
            raise one.left_out("names no program", "command")
        name, _, value = program.partition("=")
        _set(one, name, value, "command")
        one.say(f"sets {name}, which is carried over as a variable", "command")
        program, *words = words
    name = posixpath.basename(program)
    if name == "stdiod" and words[:1] == ["mcp"]:
        raise one.left_out(f"{_NO_SERVER}: it is stdiod itself")
    if "/" in program or program.startswith("~"):
        program = _path(one, program, cwd)
    words = [_TILDE.sub(lambda found: f"{found[1]}{one.around.home}", word) for word in words]
    if name in {"docker", "podman"}:
        words = _container(one, words)
    elif re.search(r"(?<![\w-])(docker|podman)\s(.*\s)?run\b", " ".join((program, *words))):
        one.say("runs a container, which may be left over when it ends", "command")
    return [program, *words]


def _line(one: _Server, given: str, cwd: str) -> list[str]:
    """Return the words of a `command`; the whole is one word if there is such a file."""
    path = _text(one, given, "command")
    if not re.search(r"\s", given) or one.around.exists(_path(one, path, cwd)):
        return [path]
    if _SHELL.search(given):
        raise one.left_out('is a line for a shell: write "sh", with args "-c", LINE', "command")
    try:
        words = [_text(one, word, "command") for word in shlex.split(given)]
    except ValueError as error:
        raise one.left_out(f"cannot be split into words: {error}", "command") from None
    one.say("is split at its blanks into program and arguments", "command")
    return words


def _bridge(one: _Server, url: Any, said: str) -> list[str]:
    """Return the command that bridges to a remote server; raises `_LeftOutError`."""
    url = _text(one, url, "url") if isinstance(url, str) else ""
    address = _ADDRESS.match(url)
    if not address and not url.startswith("${"):
        raise one.left_out("must be an address such as https://example.com/mcp", "url")
    scheme, login, host = address.groups() if address else ("", None, "")
    headers, by_name = (one.server.get(of) or {} for of in ("headers", "env_http_headers"))
    for field, value in {"headers": headers, "env_http_headers": by_name}.items():
        if not isinstance(value, dict):
            raise one.left_out(f"is {kind(value)}, must be an object", field)
    token = one.server.get("bearer_token_env_var")
    headers = headers | {header: f"${{{name}}}" for header, name in by_name.items()}
    headers |= {"Authorization": f"Bearer ${{{token}}}"} if token else {}
    if address and login is not None:
        # fetch() takes no address with a password, and mcp-remote would log it.
        user, _, password = login.partition(":")
        basic = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        headers.setdefault("Authorization", f"Basic {basic}")
        url = scheme + url[address.start(3) :]
    words = ["npx", "-y", "mcp-remote", url, "--enable-proxy"]
    if scheme == "http://" and host not in {"localhost", "127.0.0.1"}:
        words.append("--allow-http")
        one.say("is not encrypted, and --allow-http lets mcp-remote use it all the same", "url")
    if said in {"http", "streamablehttp", "sse"}:
        words += ["--transport", "sse-only" if said == "sse" else "http-only"]
    for header, given in headers.items():
        value = _text(one, given, "headers", header) if isinstance(given, str) else ""
        if not re.fullmatch(r"[\w-]+", header, re.ASCII) or not re.fullmatch(r".+", value):
            raise one.left_out("is not a header of one line", "headers", header)
        if _VARIABLE.search(value) or _is_secret(header, value):
            # mcp-remote puts it in from its environment: it is in no list of processes.
            name = f"{_variable(one.name)}_{_variable(header)}"
            _set(one, name, value, "headers", header)
            value = f"$${{{name}}}"
        words += ["--header", f"{header}:{value}"]
    words_ = "is bridged by `npx -y mcp-remote`; if the server wants a sign-in, run that with its"
    one.say(f"{words_} address once in a terminal", "url")
    return words


def _container(one: _Server, words: list[str]) -> list[str]:
    """Return a `docker run` that is stopped by the id of its container, and has no terminal."""
    at = 0
    while words[at : at + 1] and words[at].startswith("-"):  # an option, and perhaps its value
        at += 1 if "=" in words[at] or words[at + 1 : at + 2] in (["run"], ["container"]) else 2
    at += words[at : at + 1] == ["container"]
    if words[at : at + 1] != ["run"]:
        one.say("is no `run`: a container that it uses may be left when it ends", "command")
        return words
    options, rest = _run_options(words[at + 1 :])
    kept, dropped = list[str](), list[str]()
    for name, given in options:
        value = given or ""
        if name in {"-t", "--tty", "-d", "--detach", "--cidfile", "--restart"}:
            dropped += [name] if value != "false" else []
            continue
        if name in {"-e", "--env"}:
            variable, assigned, literal = value.partition("=")
            if assigned and (_is_secret(variable, literal) or _VARIABLE.search(literal)):
                _set(one, variable, literal, "args")
                value = variable
            elif variable and not assigned and variable not in {*one.env, *one.secrets}:
                one.pass_env.append(variable)
        as_flag = name if given is None else f"{name}={value}"
        kept += [as_flag] if name in _RUN_FLAGS else [name, value]
    added = [] if {"-i", "--interactive"} & set(kept) else ["-i"]
    without = f" and without {', '.join(dropped)}" if dropped else ""
    held_by = f"runs with {' '.join([*_HELD[:3], *added])}{without}"
    one.say(f"{held_by}: stdiod speaks with it, and removes its container", "command")
    held = [word for word in _HELD if word not in kept]
    return [*words[: at + 1], *held, *added, *kept, *rest]


def _run_options(words: list[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
    """Return the options of `docker run` with their values, and the image with its arguments."""
    found, rest = list[tuple[str, str | None]](), list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not name.startswith("--") and len(word) > len("-e"):  # -it is -i -t, -eA is -e A
            tail = word[2:].removeprefix("=")
            rest[:0] = [word[:2], f"-{tail}" if word[:2] in _RUN_FLAGS else tail]
        elif equals or name in _RUN_FLAGS:
            found.append((name, value if equals else None))
        else:
            found.append((name, rest.pop(0) if rest else ""))
    return found, rest


def _without_secrets(one: _Server, words: list[str]) -> list[str]:
    program, *words = words
    if "/" not in program and _SECRET_VALUE.search(program):
        raise one.left_out("looks like a secret, not like a program", "command")
    found, before = [program], ""
    for word in words:
        label, before, head, value = before, "", "", word
        if option := re.match(r"-(?!----)[^=\s]*(?:=|\Z)", word):  # but no -----BEGIN
            label, head, value = option[0], option[0], word[option.end() :]
            if not label.endswith("="):
                before = label
                found.append(word)
                continue
        inner = re.match(r"([A-Za-z][\w-]*)(?:=|:\s*)(?=\S)", value)  # NAME=value, Header: value
        if inner and _SECRET_NAME.search(inner[1]):
            label, head, value = inner[1], head + inner[0], value[inner.end() :]
        label = re.sub(r"\W+", "_", label).strip("_")
        if _is_secret(label, value):
            label = label or ("URL" if "://" in value else "ARG")
            value = _hidden(one, f"{_variable(one.name)}_{_variable(label)}", value, "args")
        found.append(f"{head}{value}")
    return found
