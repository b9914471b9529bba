"""Examine the socket, the lock beside it, and the data directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from supervisor.cli.doctor.finding import Finding, bad, ok, warn
from supervisor.cli.lock_file import lock_holder, socket_lock
from supervisor.cli.missing_socket import deaf_daemon
from supervisor.cli.project import Project, Standing, user_name
from supervisor.cli.quantities import size
from supervisor.kernel.journal import FILE
from supervisor.kernel.store.database import how_to_read, kept_aside
from supervisor.runtime.files.directory import shown

LITTLE_SPACE_BYTES = 64 << 20
"""The logs of a module may take 15 MiB; with less space than this, logs are soon left out."""

ASIDE_NAMED = 10
"""The newest journals that were set aside are named."""

_PRIVATE = 0o077


def socket_place(path: Path, data_dir: Path, *, answers: bool) -> list[Finding]:
    """Examine the path of the socket; `answers`: a daemon listens there."""
    findings = _folder("socket", path.parent, f"the socket {path}")
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return [*findings, _missing(path, data_dir)]
    except OSError as error:
        return [*findings, _unseen("socket", path, error)]
    if not stat.S_ISSOCK(seen.st_mode):
        hint = "move it away, or choose another path with --socket or $STDIOD_SOCKET"
        return [*findings, bad("socket", f"{path} exists and is not a socket", hint)]
    if seen.st_uid != os.getuid():
        words = f"{path} belongs to {user_name(seen.st_uid)}, and only that user may connect"
        hint = "run stdiod as that user, or choose another path with --socket"
        return [*findings, bad("socket", words, hint)]
    if seen.st_mode & _PRIVATE:
        words = f"{path} may be used by others (mode {stat.S_IMODE(seen.st_mode):04o})"
        findings.append(warn("socket", words, f"chmod 600 {path}"))
    if not answers:
        findings.append(_silent(path))
    elif not findings:
        findings.append(ok("socket", f"a daemon listens on {path}"))
    return findings


def project_place(project: Project) -> Finding:
    if project.standing is Standing.TRUSTED:
        return ok("project", f"{project.file} is trusted")
    return warn("project", project.words(), "`stdiod trust --list` shows what is trusted")


def data_place(path: Path) -> list[Finding]:
    """Examine the data directory, or where it would be made."""
    area = "data_dir"
    if not os.path.lexists(path):
        return [
            *_folder(area, path, f"the data directory {path}"),
            ok(area, f"{path} does not exist; the first daemon creates it"),
        ]
    if not path.is_dir():
        return [bad(area, f"{path} is not a directory", "choose another one with --data-dir")]
    findings: list[Finding] = []
    if not os.access(path, os.W_OK | os.X_OK):
        owner = user_name(path.stat().st_uid)
        words = f"{path} belongs to {owner} and cannot be written to"
        findings.append(bad(area, words, "run stdiod as that user, or choose with --data-dir"))
    elif path.stat().st_mode & _PRIVATE:
        words = f"{path} can be read by other users, and logs may be private"
        findings.append(warn(area, words, f"chmod 700 {path}"))
    findings += _space(area, path)
    return findings or [ok(area, f"{path} can be written to")]


def journals_aside(data_dir: Path, told: Collection[str]) -> list[Finding]:
    """Name the journals set aside, without those that the daemon has `told` of."""
    try:
        found = [shown(one) for one in kept_aside(data_dir / FILE)]
    except OSError:
        return []  # `data_place` reports the directory
    return [
        warn(
            "journal", f"a file that no daemon could use was set aside: {one}", hint_for_aside(one)
        )
        for one in [one for one in found if one not in told][-ASIDE_NAMED:]
    ]


def hint_for_aside(path: str) -> str:
    return f"{how_to_read(path)}; remove the file if you do not need it: nothing else reads it"


def _missing(path: Path, data_dir: Path) -> Finding:
    deaf = deaf_daemon(path, data_dir)
    if deaf is None:
        return ok("socket", f"{path} is not there: no daemon listens")
    return bad("socket", deaf.what, deaf.way_out)


def _silent(path: Path) -> Finding:
    """Explain a socket file on which nobody answers."""
    holder = lock_holder(socket_lock(path))
    if holder is None:
        words = f"{path} was left behind by a daemon that is gone"
        return warn("socket", words, "nothing needs to be done: the next daemon replaces it")
    words = f"{path} is held by pid {holder}, which does not answer"
    hint = f"it is stopped or stuck: look with `ps -p {holder}`; `kill -CONT {holder}` wakes it"
    return bad("socket", words, f"{hint}, `kill {holder}` ends it")


def _folder(area: str, path: Path, what: str) -> list[Finding]:
    """Return the obstacles to making a file in a folder, which may not exist yet."""
    there = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    if not there.is_dir():
        words = f"{what} cannot be made: {there} is not a directory"
        return [bad(area, words, "choose another path")]
    if not os.access(there, os.W_OK | os.X_OK):
        words = f"{what} cannot be made: {there} belongs to {user_name(there.stat().st_uid)}"
        return [bad(area, words, f"you are {user_name(os.getuid())}; choose another path")]
    mode = there.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        words = f"{there} may be written to by everybody, who could replace {what}"
        return [warn(area, words, f"chmod o-w {there}")]
    return []


def _space(area: str, path: Path) -> list[Finding]:
    seen = os.statvfs(path)
    left = seen.f_bavail * seen.f_frsize
    hint = "make room: logs that do not fit are left out, and the daemon continues without them"
    if left < LITTLE_SPACE_BYTES:
        return [warn(area, f"{path} has {size(left)} left on its disk", hint)]
    if seen.f_files and not seen.f_favail:
        return [warn(area, f"{path} has no inode left on its disk", hint)]
    return []


def _unseen(area: str, path: Path, error: OSError) -> Finding:
    words = f"{path} cannot be looked at: {os.strerror(error.errno or 0)}"
    return bad(area, words, f"you are {user_name(os.getuid())}; choose another path")
