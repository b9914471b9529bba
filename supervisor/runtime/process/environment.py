"""What a process gets of variables, or a service in its headers, and what `${NAME}` stands for.

Of the daemon's own it gets those of an allow-list, so that no secret leaks. Env files are read at
each start, so this is for a thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from protocol.descriptor.loading import fetches
from protocol.descriptor.model import Descriptor, Transport
from supervisor.policy.env_file import EnvFileError, read_env_file
from supervisor.runtime.containment.ledger import INSTANCE_VARIABLE
from supervisor.runtime.files.whole_file import UnreadableError, read_whole

ALLOWED = re.compile(
    "PATH|HOME|USER|LANG|TZ|TMPDIR|LC_.*|XDG_.*|"
    "(HTTPS?|FTP|ALL|NO)_PROXY|(https?|ftp|all|no)_proxy|"
    "(NIX_)?SSL_CERT_FILE|SSL_CERT_DIR|(REQUESTS_CA|CURL_CA|AWS_CA)_BUNDLE|PIP_CERT|DENO_CERT|"
    "GIT_SSL_CA(INFO|PATH)|CARGO_HTTP_CAINFO|DENO_TLS_CA_STORE|NODE_EXTRA_CA_CERTS|"
    "NODE_USE_SYSTEM_CA|NODE_USE_ENV_PROXY|UV_SYSTEM_CERTS|UV_NATIVE_TLS"
)
"""Of the daemon's variables, those that each module gets."""

PACKAGE_TOOLS = re.compile(
    "NPM_CONFIG_(REGISTRY|CACHE|(USER|GLOBAL)CONFIG|CA|CAFILE|STRICT_SSL|(HTTPS_|NO)?PROXY|"
    "(PREFER_)?OFFLINE|LOGLEVEL|FETCH_.*)|PNPM_HOME|COREPACK_(HOME|NPM_REGISTRY)|"
    "YARN_(CACHE_FOLDER|NPM_REGISTRY_SERVER|HTTPS?_PROXY|HTTPS_CA_FILE_PATH)|"
    "BUN_(INSTALL(_CACHE_DIR)?|CONFIG_REGISTRY)|DENO_(DIR|INSTALL)|PIPX_(HOME|BIN_DIR)|"
    "UV_((DEFAULT_|EXTRA_)?INDEX(_URL|_STRATEGY)?|FIND_LINKS|CACHE_DIR|TOOL_(BIN_)?DIR|PYTHON|"
    "PYTHON_.*|HTTP_.*|OFFLINE|INSECURE_HOST|CONFIG_FILE|LINK_MODE|EXCLUDE_NEWER)|"
    "PIP_((EXTRA_)?INDEX_URL|TRUSTED_HOST|PROXY|CACHE_DIR|CONFIG_FILE|NO_INDEX|FIND_LINKS)|NETRC|"
    "DOCKER_(HOST|CONTEXT|CONFIG|TLS(_VERIFY)?|CERT_PATH|API_VERSION|DEFAULT_PLATFORM)|"
    "CONTAINER_HOST|CONTAINERS_CONF|NIX_(PATH|PROFILES|REMOTE)|NVM_(DIR|BIN)|FNM_DIR|VOLTA_HOME|"
    "PYENV_(ROOT|VERSION)|ASDF_(DIR|DATA_DIR|CONFIG_FILE)|MISE_(DATA|CONFIG)_DIR|NODENV_ROOT",
    re.IGNORECASE,
)
"""Those that a command gets that fetches its program. Never all of `npm_config_*`: those of an
`npm run` above the daemon break an `npx` below it."""

SECRET_NAME = re.compile("TOKEN|PASSWORD|AUTH|SECRET|KEY|PUBLISH|USERNAME", re.IGNORECASE)

ENV_FILE_BYTES = 1 << 20

SECRET_CHARS = 8
"""A shorter value of a variable in a header is no secret worth the name, and may be a part of any
word."""

CIDFILE = "STDIOD_CIDFILE"
"""Filled in at each start, by `containers`."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WITH_DEFAULT = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_UNFIT_FOR_HEADER = re.compile(r"[^\t\x20-\x7e]")


class HostVariables(dict[str, str]):
    """The daemon's variables, and the env files that its configuration names for all modules."""

    def __init__(self, variables: Mapping[str, str], env_files: Iterable[Path] = ()) -> None:
        super().__init__(variables)
        self.env_files = (*getattr(variables, "env_files", ()), *env_files)


class UnsetVariableError(Exception):
    """A descriptor refers to a variable, or an env file, that is not there or cannot be used."""

    hint = "put it into a file that transport.env_file names, or set it where the daemon is started"


def resolved(
    descriptor: Descriptor, host: Mapping[str, str], instance: str
) -> tuple[Descriptor, dict[str, str]]:
    """Return a descriptor with its variables filled in, and the environment of its process.

    Raises `UnsetVariableError`.
    """
    transport = descriptor.transport
    shared, own = _env_files(descriptor, host)
    known = {CIDFILE: f"${{{CIDFILE}}}", **host, **shared, **own}
    names = [name.removesuffix("?") for name in transport.pass_env]
    environment = {
        **{name: value for name, value in host.items() if passes(name, transport.command)},
        **shared,
        **{name: host[name] for name in names if name in host},
        **own,
    }
    for name, template in transport.env.items():
        field = f"transport.env.{name}"
        environment[name] = expanded(field, template, known, defaults=transport.expand)
    environment[INSTANCE_VARIABLE] = instance
    return replace(descriptor, transport=expanded_transport(transport, known)), environment


def known_variables(descriptor: Descriptor, host: Mapping[str, str]) -> dict[str, str]:
    """Return all that `${NAME}` may stand for; raises `UnsetVariableError`."""
    shared, own = _env_files(descriptor, host)
    return {**host, **shared, **own}


def passes(name: str, command: Sequence[str]) -> bool:
    """Tell whether a command gets a variable of the daemon that its descriptor does not name."""
    if ALLOWED.fullmatch(name):
        return True
    of_tools = PACKAGE_TOOLS.fullmatch(name) and not SECRET_NAME.search(name)
    return bool(of_tools and command) and fetches(command)


def unset_variables(transport: Transport, environment: Mapping[str, str]) -> list[str]:
    """Return the names in `pass_env`, but those with a `?`, that a process does without."""
    named = transport.pass_env
    return [name for name in named if not name.endswith("?") and name not in environment]


def unset_references(descriptor: Descriptor, host: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return each variable without a value that a descriptor uses, after the pointer to its field.

    Raises `UnsetVariableError` for an env file.
    """
    transport = descriptor.transport
    known = {CIDFILE: "", **known_variables(descriptor, host)}
    fields = {f"/transport/env/{name}": text for name, text in transport.env.items()}
    if transport.expand:
        fields |= {f"/transport/command/{at}": one for at, one in enumerate(transport.command)}
        fields["/transport/cwd"] = transport.cwd
    pattern = _WITH_DEFAULT if transport.expand else _REFERENCE
    return [
        (pointer, found[1])
        for pointer, text in fields.items()
        for found in pattern.finditer(text)
        if found[1] and found[1] not in known and (not transport.expand or found[2] is None)
    ]


def expanded_transport(transport: Transport, known: Mapping[str, str]) -> Transport:
    """Fill in the variables of command and folder, where the descriptor wants that."""
    if not transport.expand:
        return transport
    field = "prepare" if transport.command is transport.prepare else "command"
    command = tuple(
        expanded(f"transport.{field}[{at}]", one, known, defaults=True)
        for at, one in enumerate(transport.command)
    )
    cwd = expanded("transport.cwd", transport.cwd, known, defaults=True)
    return replace(transport, command=command, cwd=cwd)


def expanded(field: str, template: str, known: Mapping[str, str], *, defaults: bool = False) -> str:
    """Return a template with values in the places of their names.

    Raises `UnsetVariableError` if there is none for a name; `field` is where the template stands.
    With `defaults` it may have some, for what is unset or empty, and `$${` is a literal `${`.
    """

    def value_of(reference: re.Match[str]) -> str:
        name = reference[1]
        if name is None:
            return "${"
        default = reference[2] if defaults else None
        if name not in known and default is None:
            message = f"{field} uses ${{{name}}}, which the daemon has not set"
            raise UnsetVariableError(message)
        return known.get(name, "") or default or ""

    return (_WITH_DEFAULT if defaults else _REFERENCE).sub(value_of, template)


def service_headers(transport: Transport, host: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a descriptor; raises `UnsetVariableError`, which names no value."""
    found: dict[str, str] = {}
    for name, template in transport.headers.items():
        field = f"transport.headers.{name}"
        found[name] = expanded(field, template, host, defaults=transport.expand).strip()
        if _UNFIT_FOR_HEADER.search(found[name]):
            words = f"{field} has a character, from a variable, that no header may have"
            raise UnsetVariableError(words)
    return found


def header_secrets(transport: Transport, host: Mapping[str, str]) -> list[str]:
    """Return the values of the variables in the headers, the longest first."""
    used = (one for text in transport.headers.values() for one in _WITH_DEFAULT.finditer(text))
    names = {one[1] for one in used if one[1]}
    values = {host[name] for name in names if len(host.get(name, "")) >= SECRET_CHARS}
    return sorted(values, key=len, reverse=True)


def _env_files(
    descriptor: Descriptor, host: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the env files of all modules say, and what those of this one say."""
    transport = descriptor.transport
    shared: dict[str, str] = {}
    own: dict[str, str] = {}
    for path in getattr(host, "env_files", ()):
        shared |= _read("env_file of the configuration", path)
    for name in transport.env_file:
        if transport.expand:
            known = {**host, **shared, **own}
            name = expanded("transport.env_file", name, known, defaults=True)  # noqa: PLW2901
        own |= _read("transport.env_file", Path(descriptor.folder, name))
    return shared, own


def _read(field: str, path: Path) -> dict[str, str]:
    try:
        return read_env_file(read_whole(path, ENV_FILE_BYTES, "env file"))
    except (UnreadableError, EnvFileError) as error:
        which = "in which" if isinstance(error, EnvFileError) else "which"
        wrong = UnsetVariableError(f"{field} names {path}, {which} {error}")
        wrong.hint = "correct the file, or its path"
        raise wrong from None
