"""Find the daemon that a verb is about: that of the project here, else the user's own.

A project is a folder with a `stdiod.toml`, looked for from the working directory upwards.

    nobody said `stdiod trust`     the file is not read, and the user's own daemon is spoken with
    trusted                        its daemon is spoken with, and started by what the file says
    trusted, and changed since     its daemon is spoken with if it runs, and not started

Socket and data directory follow from the folder's path alone. The search ends below the home
directory and where another file system begins; what is another user's is passed over with a word.
Each verb looks here, so what only a project needs is imported when there is one.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from supervisor.cli.exit_status import NoError, remark
from supervisor.cli.terminal import one_line

if TYPE_CHECKING:
    from supervisor.daemon.config_file import Config
    from supervisor.daemon.project_trust import TrustedProject


FILE = "stdiod.toml"

_KEY = "stdiod.project"
_DIGITS = 16


class TrustState(Enum):
    UNTRUSTED = "untrusted"
    TRUSTED = "trusted"
    CHANGED = "changed"


class Project(NamedTuple):
    folder: Path
    standing: TrustState
    changed: str = ""
    """The file that has changed."""

    @property
    def file(self) -> Path:
        return self.folder / FILE

    @property
    def has_daemon(self) -> bool:
        """Whether verbs here speak with the project's own daemon."""
        return self.standing is not TrustState.UNTRUSTED

    @property
    def socket(self) -> Path:
        return runtime_folder() / "projects" / self._digest / "stdiod.sock"

    @property
    def data_dir(self) -> Path:
        return state_folder() / "projects" / self._digest

    @property
    def _digest(self) -> str:
        import hashlib

        return hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:_DIGITS]

    def words(self) -> str:
        """Explain why the project is not used, and what to do."""
        if self.standing is TrustState.CHANGED:
            return f"{one_line(self.changed)} has changed since it was trusted: {_TRUST}"
        return f"{one_line(str(self.file))} is not trusted, and not used: {_TRUST}"

    def config(self) -> Config:
        """Parse the trusted file. Raises `NoError` if it is not trusted, and `ConfigError`."""
        from supervisor.daemon.config_file import config_bytes, parse_config

        data = config_bytes(self.file)
        trusted = _trusted().get(str(self.folder))
        # The bytes that were judged are the bytes that are parsed.
        if trusted is None or not trusted.has(self.file, data):
            raise NoError(
                self._replace(standing=TrustState.CHANGED, changed=str(self.file)).words()
            )
        return parse_config(data, self.file, of_project=True)


_TRUST = "read it, then `stdiod trust`"


def here() -> Project | None:
    """Return the project of the working directory; reports an untrusted one once on stderr."""
    context = click.get_current_context(silent=True)
    known = {} if context is None else context.meta
    if _KEY not in known:
        known[_KEY] = project = _found()
        if project is not None and project.standing is not TrustState.TRUSTED:
            remark(f"{project.words()}")
    found: Project | None = known[_KEY]
    return found


def own_daemon() -> Project | None:
    """Return the project whose own daemon verbs here speak with; None for the user's."""
    project = here()
    return project if project is not None and project.has_daemon else None


def daemons_project() -> Project | None:
    """Return the result of an earlier `own_daemon` of this verb; looks at no file."""
    context = click.get_current_context(silent=True)
    project: Project | None = None if context is None else context.meta.get(_KEY)
    return project if project is not None and project.has_daemon else None


def stand_in(ctx: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    """Take a folder as the project here: `up` starts `run` from elsewhere."""
    if value is not None:
        ctx.meta[_KEY] = judged(value)
    return value


def stand_in_trusted(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Take a folder as the project here; raises `NoError` if it is not trusted."""
    if value is None:
        return None
    folder = value.resolve()
    words = why_none(folder)
    if words is not None:
        raise click.BadParameter(words, ctx, param)
    project = ctx.meta[_KEY] = judged(folder)
    if not project.has_daemon:
        raise NoError(project.words())
    return folder


def nearest(start: Path) -> Project | None:
    """Return the nearest project, from `start` upwards; reports skipped files on stderr."""
    for folder in _folders(start):
        words = why_none(folder)
        if words is None:
            return judged(folder)
        remark(f"{words}; it is ignored")
    return None


def judged(folder: Path) -> Project:
    """Return the project of a folder; its file is read only if it was trusted."""
    trusted = _trusted().get(str(folder))
    if trusted is None:
        return Project(folder, TrustState.UNTRUSTED)
    changed = trusted.changed()
    if changed is not None:
        return Project(folder, TrustState.CHANGED, changed)
    return Project(folder, TrustState.TRUSTED)


def why_none(folder: Path) -> str | None:
    """Return why a folder with a `stdiod.toml` is no project of this user; None if it is one."""
    file = folder / FILE
    shown = one_line(str(file))
    try:
        parts = ((file, file.lstat()), (file, file.stat()), (folder, folder.stat()))
    except OSError as error:
        return f"{shown} cannot be looked at: {os.strerror(error.errno or 0)}"
    for path, seen in parts:
        if seen.st_uid != os.geteuid():
            return f"{one_line(str(path))} belongs to {user_name(seen.st_uid)}"
        if seen.st_mode & stat.S_IWOTH and not stat.S_ISLNK(seen.st_mode):
            return f"{one_line(str(path))} may be written to by everybody"
    if not stat.S_ISREG(parts[1][1].st_mode):
        return f"{shown} is not a regular file"
    return None


def is_shared(folder: Path) -> bool:
    """Tell whether a folder holds all of a user's files: it cannot be a project."""
    return folder == folder.parent or folder == _home()


def _found() -> Project | None:
    try:
        return nearest(Path.cwd())
    except FileNotFoundError:  # the working directory was removed
        return None


def _folders(start: Path) -> Iterator[Path]:
    """Yield each folder with a `stdiod.toml` that may belong to a project, the nearest first."""
    device = None
    for folder in (start, *start.parents):
        if is_shared(folder):
            return
        try:
            here_on = folder.stat().st_dev
        except OSError:
            return
        if device is not None and here_on != device:
            return
        device = here_on
        if os.path.lexists(folder / FILE):
            yield folder


def _trusted() -> dict[str, TrustedProject]:
    from supervisor.daemon.project_trust import TrustStoreError, trusted_projects

    try:
        return trusted_projects().read()
    except TrustStoreError as error:
        remark(str(error))
        return {}


def _home() -> Path:
    try:
        return Path.home().resolve()
    except RuntimeError:
        return Path("/")


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


MAX_SOCKET_PATH_BYTES = 107
"""`sun_path` holds 108 bytes, the last one a NUL (unix(7))."""


def default_socket() -> Path:
    """Return $STDIOD_SOCKET, else that of the project here, else the user's own."""
    named = os.environ.get("STDIOD_SOCKET")
    if named:
        return Path(named)
    project = own_daemon()
    return runtime_folder() / "stdiod.sock" if project is None else project.socket


def default_data_dir() -> Path:
    """Return $STDIOD_DATA_DIR, else that of the project here, else the user's own."""
    named = os.environ.get("STDIOD_DATA_DIR")
    if named:
        return Path(named)
    project = own_daemon()
    return state_folder() if project is None else project.data_dir


def runtime_folder() -> Path:
    """Return the folder of sockets in the user's runtime directory."""
    from platformdirs import user_runtime_path

    with warnings.catch_warnings():
        # It warns if XDG_RUNTIME_DIR is not set; its other folder serves as well.
        warnings.simplefilter("ignore")
        return user_runtime_path("stdiod", appauthor=False)


def state_folder() -> Path:
    from platformdirs import user_state_path

    return user_state_path("stdiod", appauthor=False)


def absolute_socket(path: Path) -> Path:
    """Return the absolute path; raises `click.UsageError` if it is too long for a socket."""
    path = path.absolute()
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH_BYTES:
        message = (
            f"the socket path {path} has {size} bytes, and a Unix socket's path may have "
            f"{MAX_SOCKET_PATH_BYTES}; choose a shorter one with --socket or $STDIOD_SOCKET"
        )
        raise click.UsageError(message)
    return path


SOCKET_PASSED = "stdiod.socket_passed"
"""The key of a context under which `--socket` is known to be passed or not."""


def socket_option(socket: Path) -> str:
    """Return `--socket PATH ` for a hint, "" if the user passed none."""
    ctx = click.get_current_context(silent=True)
    passed = ctx is None or ctx.meta.get(SOCKET_PASSED, True)
    if not passed:
        return ""
    import shlex

    return f"--socket {shlex.quote(str(socket))} "


def way_to_start(socket: Path) -> str:
    """Return the command that starts a daemon on a socket, for a hint."""
    passed = socket_option(socket)
    project = daemons_project()
    if passed or project is None or project.socket != socket:
        return f"`stdiod {passed}up DIR`"
    return "`stdiod up`"
