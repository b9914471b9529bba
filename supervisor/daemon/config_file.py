"""Read what `--config FILE` or a project's `stdiod.toml` says: TOML, strict, all faults at once.

An option that is misspelt and silently ignored is a limit that is not kept, so an unknown key, a
wrong type and a bad value are errors. Relative paths are relative to the file's folder, since a
service has no working directory worth the name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from protocol.problem import did_you_mean, printable, quoted
from supervisor.policy.http_exposure import ExposureError, read_origin
from supervisor.policy.mcp_views import ALWAYS, MOST_S, McpOptions, read_mcp
from supervisor.policy.toml_document import NotTomlError, Remark, decoded, read_toml, told
from supervisor.runtime.files.whole_file import UnreadableError, read_whole
from supervisor.runtime.threads import NO_ANSWER, NoAnswerError, Threads

LOG_FORMATS = ("console", "json")
DURABILITIES = ("process", "power")
ASSETS = ("in_place", "copy")
FOR_MODULES = ("own", "user")
CONTAINMENTS = ("auto", "cgroup2", "subreaper", "process_group")

CONFIG_BYTES = 1 << 20
"""A larger file is no configuration, and is not read into memory."""


MIN_JOURNAL_BYTES = 1 << 20
"""Less is no journal; and what a session needs to be restored is not removed anyway."""

MAX_DAYS = 36_500

SCHEMA_KEY = "$schema"
"""Names the file's schema for editors; ignored here."""

OWN_OF_PROJECTS = ("socket", "data_dir")
"""The project's path decides these, so that each command finds its daemon without reading the file.
"""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a file; None where the file does not set one."""

    directories: tuple[Path, ...] | None = None
    socket: Path | None = None
    socket_for_modules: str | None = None
    data_dir: Path | None = None
    log_format: str | None = None
    containment: str | None = None
    memory_ceiling_bytes: int | None = None
    watch: bool | None = None
    journal_days: float | None = None
    journal_bytes: int | None = None
    durability: str | None = None
    assets: str | None = None
    asset_store_bytes: int | None = None
    env_file: tuple[Path, ...] | None = None
    policy: Path | None = None
    http: str | None = None
    http_cert: Path | None = None
    http_key: Path | None = None
    http_insecure: bool | None = None
    http_origins: tuple[str, ...] | None = None
    mcp: McpOptions | None = None


class ConfigKey(msgspec.Struct, frozen=True):
    """A key of the file: how its value is read, and its JSON Schema."""

    read: Callable[[Any, Path], Any]
    schema: dict[str, Any]


class ConfigError(Exception):
    """A file that cannot be used; its text is one line per fault: `FILE: KEY: what is wrong`.

    Only a fault of the syntax has a line.
    """

    def __init__(self, path: Path, faults: Sequence[Remark]) -> None:
        super().__init__(path, faults)
        self.path = path
        self.faults = faults

    def __str__(self) -> str:
        source = str(self.path)
        return "\n".join(told(source, one) for one in self.faults)


class _Fault(Exception):  # noqa: N818 - it never leaves this file
    pass


def read_config(path: Path) -> Config:
    """Read and check a file; raises `ConfigError` with every fault found, and nothing else."""
    return parse_config(config_bytes(path), path)


def config_bytes(path: Path) -> bytes:
    """Return the bytes of a file; raises `ConfigError`."""
    try:
        return Threads().look_at(path, partial(read_whole, path, CONFIG_BYTES, "configuration"))
    except NoAnswerError:
        raise ConfigError(path, [Remark(NO_ANSWER)]) from None
    except UnreadableError as error:
        raise ConfigError(path, [Remark(str(error))]) from None


def parse_config(data: bytes, path: Path, *, of_project: bool = False) -> Config:
    """Check what a file holds; raises `ConfigError`, as `read_config`.

    That of a project has to name directories, and cannot say where socket and data are.
    """
    try:
        document = read_toml(decoded(data))
    except NotTomlError as error:
        raise ConfigError(path, [error.remark]) from None
    folder = path.absolute().parent
    values: dict[str, Any] = {}
    faults: list[Remark] = []
    for key, value in document.items():
        known = KEYS.get(key)
        if known is None:
            near = did_you_mean(key, KEYS) or f"; the keys are {', '.join(KEYS)}"
            near = _DESCRIBED if key in _OF_PROGRAMS else near
            faults.append(Remark(f"{printable(key)}: there is no such key{near}"))
        elif of_project and key in OWN_OF_PROJECTS:
            words = f"{key}: a project has its own, which its path decides; leave it out"
            faults.append(Remark(words))
        else:
            try:
                values[key] = known.read(value, folder)
            except _Fault as fault:
                faults.append(Remark(f"{key}: {fault}"))
    if of_project and "directories" not in document:
        words = 'directories: is missing; say where the modules are: directories = ["modules"]'
        faults.append(Remark(words))
    if faults:
        raise ConfigError(path, faults)
    values.pop(SCHEMA_KEY, None)
    return Config(**values)


def _paths(value: Any, folder: Path) -> tuple[Path, ...]:
    if not isinstance(value, list):
        raise _Fault(f"must be an array of paths, not {_kind(value)}")
    if not value:
        raise _Fault("must name at least one")
    return tuple(_path(one, folder) for one in value)


def _files(value: Any, folder: Path) -> tuple[Path, ...]:
    return _paths([value] if isinstance(value, str) else value, folder)


def _path(value: Any, folder: Path) -> Path:
    if not isinstance(value, str):
        raise _Fault(f"must be a path in quotes, not {_kind(value)}")
    if not value or "\0" in value:
        raise _Fault(f"{quoted(value)} is not a path")
    try:
        return folder / Path(value).expanduser()
    except RuntimeError:
        raise _Fault(f"{quoted(value)} names the home folder of a user there is not") from None


def _text(value: Any, _: Path) -> str:
    if not isinstance(value, str):
        raise _Fault(f"must be a string, not {_kind(value)}")
    return value


def _word(words: tuple[str, ...]) -> ConfigKey:
    def read(value: Any, _: Path) -> str:
        allowed = ", ".join(f'"{word}"' for word in words)
        if not isinstance(value, str):
            raise _Fault(f"must be one of {allowed}, not {_kind(value)}")
        if value not in words:
            near = did_you_mean(value, words)
            raise _Fault(f"must be one of {allowed}, not {quoted(value)}{near}")
        return value

    return ConfigKey(read, {"enum": list(words)})


def _bytes(otherwise: str) -> ConfigKey:
    def read(value: Any, _: Path) -> int:
        size = _whole(value)
        if size <= 0:
            raise _Fault(f"must be above 0, not {size}; leave it out for {otherwise}")
        return size

    return ConfigKey(read, {"type": "integer", "exclusiveMinimum": 0})


def _journal_bytes(value: Any, _: Path) -> int:
    size = _whole(value)
    if size < MIN_JOURNAL_BYTES:
        raise _Fault(f"must be at least {MIN_JOURNAL_BYTES}, not {size}")
    return size


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Fault(f"must be a whole number of bytes, not {_kind(value)}")
    return value


def _days(value: Any, _: Path) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _Fault(f"must be a number of days, not {_kind(value)}")
    if not 0 < value <= MAX_DAYS:
        raise _Fault(f"must be above 0 and at most {MAX_DAYS}, not {value}")
    return float(value)


def _http(value: Any, _: Path) -> str:
    if not isinstance(value, str):
        raise _Fault(f'must be "off", "sock" or "HOST:PORT", not {_kind(value)}')
    return value


def _origins(value: Any, _: Path) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _Fault(f"must be an array of origins, not {_kind(value)}")
    for one in value:
        if not isinstance(one, str):
            raise _Fault(f"must be an array of origins in quotes, one is {_kind(one)}")
    try:
        return tuple(read_origin(one) for one in value)
    except ExposureError as error:
        raise _Fault(str(error)) from None


def _flag(value: Any, _: Path) -> bool:
    if not isinstance(value, bool):
        raise _Fault(f"must be true or false, not {_kind(value)}")
    return value


def _mcp(value: Any, _: Path) -> McpOptions:
    found = read_mcp(value)
    if isinstance(found, list):
        raise _Fault("; ".join(found))
    return found


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {quoted(value)}"
        case int() | float():
            return f"the number {value}"
        case list():
            return "an array"
        case dict():
            return "a table"
        case _:
            return "a date or time"


_PATH = {"type": "string", "minLength": 1}
_FLAG = ConfigKey(_flag, {"type": "boolean"})
_TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}

_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_S}

_OF_PROGRAMS = frozenset({"module", "modules", "program", "programs", "service", "services"})
_DESCRIBED = (
    "; a program is described by a module.json in a folder of its own, below one of `directories`:"
    " `stdiod new NAME --lang exec -- COMMAND` writes one for a command"
)

KEYS = {
    "directories": ConfigKey(_paths, {"type": "array", "items": _PATH, "minItems": 1}),
    "socket": ConfigKey(_path, _PATH),
    "socket_for_modules": _word(FOR_MODULES),
    "data_dir": ConfigKey(_path, _PATH),
    "log_format": _word(LOG_FORMATS),
    "containment": _word(CONTAINMENTS),
    "memory_ceiling_bytes": _bytes("no ceiling"),
    "watch": _FLAG,
    "journal_days": ConfigKey(
        _days, {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_DAYS}
    ),
    "journal_bytes": ConfigKey(_journal_bytes, {"type": "integer", "minimum": MIN_JOURNAL_BYTES}),
    "durability": _word(DURABILITIES),
    "assets": _word(ASSETS),
    "asset_store_bytes": _bytes("1 GiB"),
    "env_file": ConfigKey(_files, {**_TEXTS, "type": ["string", "array"]}),
    "policy": ConfigKey(_path, _PATH),
    "http": ConfigKey(_http, {"type": "string"}),
    "http_cert": ConfigKey(_path, _PATH),
    "http_key": ConfigKey(_path, _PATH),
    "http_insecure": _FLAG,
    "http_origins": ConfigKey(_origins, {"type": "array", "items": {"type": "string"}}),
    "mcp": ConfigKey(
        _mcp,
        {
            "type": "object",
            "properties": {
                "views": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {
                            "modules": _TEXTS,
                            "prefix": {"type": "boolean"},
                            "for": _TEXTS,
                        },
                        "additionalProperties": False,
                    },
                },
                "session_idle_s": _SECONDS,
                "keep": {"anyOf": [{"const": ALWAYS}, _SECONDS]},
            },
            "additionalProperties": False,
        },
    ),
    SCHEMA_KEY: ConfigKey(_text, {"type": "string"}),
}
"""All keys of a file, explained in docs/operating.md; the schema is generated from both."""
