"""Examine the machine for `doctor`: Python, kernel, limits, environment, places, containment."""

from __future__ import annotations

import os
import platform
import resource
import stat
import sys
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec
import psutil

from protocol.problem import without_password
from supervisor.cli.client import deaf_daemon
from supervisor.cli.lock_file import lock_holder, socket_lock
from supervisor.cli.project import Project, TrustState, user_name
from supervisor.cli.quantities import size
from supervisor.kernel.journal import FILE
from supervisor.kernel.store.database import how_to_read, kept_aside
from supervisor.runtime.containment.ladder import RUNGS, ContainmentError, probe
from supervisor.runtime.files.directory import shown
from supervisor.runtime.process.environment import passes


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    """The thing checked works, but deserves attention."""
    BAD = "bad"
    """The thing checked does not work, or will fail later."""


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """`area` is the area examined, `subject` the object in it."""

    level: Level
    area: str
    subject: str | None = None
    message: str
    hint: str | None = None
    evidence: tuple[str, ...] = ()
    """Lines to show, such as the end of a module's stderr."""


def _finding(
    level: Level,
    area: str,
    message: str,
    hint: str | None = None,
    *,
    subject: str | None = None,
    evidence: tuple[str, ...] = (),
) -> DoctorFinding:
    return DoctorFinding(
        level=level,
        area=area,
        message=without_password(message),
        hint=hint,
        subject=subject,
        evidence=evidence,
    )


ok = partial(_finding, Level.OK)
warn = partial(_finding, Level.WARN)
bad = partial(_finding, Level.BAD)


FILES_PER_MODULE = 4
"""stdin, stdout, stderr and the pidfd."""

FILES_OF_THE_DAEMON = 64
"""Its own files, and those of some clients."""

_UNLIMITED = resource.RLIM_INFINITY


def examine_python() -> DoctorFinding:
    return ok("python", f"Python {platform.python_version()} ({sys.executable})")


def examine_kernel() -> DoctorFinding:
    """Check that pidfd_open works."""
    release = f"{platform.system()} {platform.release()}"
    hint = "stdiod needs Linux 5.3 or newer, and a sandbox that allows pidfd_open"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except AttributeError:
        return bad("kernel", f"{release}: this Python has no pidfd_open", hint)
    except OSError as error:
        words = os.strerror(error.errno or 0)
        return bad("kernel", f"{release}: a process cannot be watched (pidfd_open: {words})", hint)
    return ok("kernel", f"{release}: processes can be watched (pidfd)")


def examine_open_files(modules: int, daemon_pid: int | None) -> DoctorFinding:
    """Compare the limit and use of open files, the daemon's or this shell's, with the need."""
    # The hard limit: a daemon raises its soft limit to it.
    limit, used, whose = resource.getrlimit(resource.RLIMIT_NOFILE)[1], 0, "here"
    if daemon_pid is not None:
        seen = _files_of(daemon_pid)
        if seen is not None:
            (limit, used), whose = seen, f"to the daemon (pid {daemon_pid})"
    needed = FILES_OF_THE_DAEMON + FILES_PER_MODULE * modules
    words = f"{_number(limit)} open files are allowed {whose}; {modules} modules take {needed}"
    if used:
        words += f", and it has {used} open"
    hint = "raise it: `ulimit -Hn 65536` before `stdiod`, or LimitNOFILE=65536 in the systemd unit"
    if limit != _UNLIMITED and limit < max(needed, used + FILES_PER_MODULE):
        return bad("limits", words, hint)
    if limit != _UNLIMITED and limit < max(2 * needed, used * 5 // 4):
        return warn("limits", words, hint)
    return ok("limits", words)


def examine_processes(modules: int) -> DoctorFinding:
    """Compare the limit of the user's processes with the number of modules."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if limit == _UNLIMITED or os.getuid() == 0:
        why = "root is not limited" if os.getuid() == 0 else "no limit"
        return ok("limits", f"processes of this user: {why}")
    used = _threads_of_user(os.getuid())
    words = f"{limit} processes and threads are allowed for this user, and there are {used}"
    if used + modules > limit:
        hint = "raise it (`ulimit -u`, or LimitNPROC= in the systemd unit), or end some"
        return bad("limits", f"{words}; {modules} modules do not fit", hint)
    return ok("limits", words)


def _files_of(pid: int) -> tuple[int, int] | None:
    """Return the limit of open files of a process, and how many it has open."""
    try:
        daemon = psutil.Process(pid)
        return daemon.rlimit(resource.RLIMIT_NOFILE)[0], daemon.num_fds()
    except psutil.Error:
        return None  # the process is gone, or another user's


def _threads_of_user(uid: int) -> int:
    # RLIMIT_NPROC counts threads (getrlimit(2)).
    everybody = psutil.process_iter(["uids", "num_threads"])
    found = [one.info for one in everybody if one.info["uids"] is not None]
    return sum(one["num_threads"] or 0 for one in found if one["uids"].real == uid)


def _number(limit: int) -> str:
    return "any number of" if limit == _UNLIMITED else str(limit)


def daemon_environment(pid: int) -> dict[str, str] | None:
    """Return the environment that a daemon was started with, or None if it may not be read."""
    try:
        return psutil.Process(pid).environ()
    except psutil.Error:
        return None


def examine_environment(environment: Mapping[str, str], whose: str) -> DoctorFinding:
    """Report the variables that every module gets; others only if a descriptor names them."""
    names = sorted(name for name in environment if passes(name, ()))
    kept = len(environment) - len(names)
    words = f"modules inherit {', '.join(names) or 'nothing'} from {whose}"
    if kept:
        words += f"; {kept} other variables only where a descriptor names them"
    return ok("environment", words)


def examine_search_path(environment: Mapping[str, str], whose: str) -> list[DoctorFinding]:
    """Examine PATH, where commands without a slash are looked up."""
    named = environment.get("PATH")
    if not named:
        words = f"PATH is not set in {whose}; programs are looked up in {os.defpath}"
        return [warn("path", words, "set PATH where the daemon is started")]
    findings = [
        finding for entry in dict.fromkeys(named.split(":")) if (finding := _path_entry(entry))
    ]
    if not any(os.path.isdir(entry) for entry in named.split(":")):  # noqa: PTH112
        hint = "set PATH where the daemon is started"
        findings.append(bad("path", f"PATH of {whose} leads nowhere: {named}", hint))
    return findings or [ok("path", f"PATH of {whose}: {named}")]


def _path_entry(entry: str) -> DoctorFinding | None:
    if not os.path.isabs(entry):  # noqa: PTH117
        words = f"PATH holds {entry!r}, a relative path, which means another folder for each module"
        return warn("path", words, "write it as an absolute path, or take it out")
    try:
        mode = Path(entry).stat().st_mode
    except OSError:
        return None  # PATHs are full of folders that are not there, and no program is in them
    if not stat.S_ISDIR(mode):
        return warn("path", f"PATH holds {entry}, which is not a folder", "take it out")
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        words = f"PATH holds {entry}, where everybody may put a program"
        return warn("path", words, f"chmod o-w {entry}, or take it out of PATH")
    return None


LITTLE_SPACE_BYTES = 64 << 20
"""The logs of a module may take 15 MiB; with less space than this, logs are soon left out."""

ASIDE_NAMED = 10
"""The newest journals that were set aside are named."""

_PRIVATE = 0o077


def examine_socket(path: Path, data_dir: Path, *, answers: bool) -> list[DoctorFinding]:
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


def examine_project(project: Project) -> DoctorFinding:
    if project.standing is TrustState.TRUSTED:
        return ok("project", f"{project.file} is trusted")
    return warn("project", project.words(), "`stdiod trust --list` shows what is trusted")


def examine_data_dir(path: Path) -> list[DoctorFinding]:
    """Examine the data directory, or where it would be made."""
    area = "data_dir"
    if not os.path.lexists(path):
        return [
            *_folder(area, path, f"the data directory {path}"),
            ok(area, f"{path} does not exist; the first daemon creates it"),
        ]
    if not path.is_dir():
        return [bad(area, f"{path} is not a directory", "choose another one with --data-dir")]
    findings: list[DoctorFinding] = []
    if not os.access(path, os.W_OK | os.X_OK):
        owner = user_name(path.stat().st_uid)
        words = f"{path} belongs to {owner} and cannot be written to"
        findings.append(bad(area, words, "run stdiod as that user, or choose with --data-dir"))
    elif path.stat().st_mode & _PRIVATE:
        words = f"{path} can be read by other users, and logs may be private"
        findings.append(warn(area, words, f"chmod 700 {path}"))
    findings += _space(area, path)
    return findings or [ok(area, f"{path} can be written to")]


def examine_journals_aside(data_dir: Path, told: Collection[str]) -> list[DoctorFinding]:
    """Name the journals set aside, without those that the daemon has `told` of."""
    try:
        found = [shown(one) for one in kept_aside(data_dir / FILE)]
    except OSError:
        return []  # `examine_data_dir` reports the directory
    return [
        warn(
            "journal", f"a file that no daemon could use was set aside: {one}", hint_for_aside(one)
        )
        for one in [one for one in found if one not in told][-ASIDE_NAMED:]
    ]


def hint_for_aside(path: str) -> str:
    return f"{how_to_read(path)}; remove the file if you do not need it: nothing else reads it"


def _missing(path: Path, data_dir: Path) -> DoctorFinding:
    deaf = deaf_daemon(path, data_dir)
    if deaf is None:
        return ok("socket", f"{path} is not there: no daemon listens")
    return bad("socket", deaf.what, deaf.way_out)


def _silent(path: Path) -> DoctorFinding:
    """Explain a socket file on which nobody answers."""
    holder = lock_holder(socket_lock(path))
    if holder is None:
        words = f"{path} was left behind by a daemon that is gone"
        return warn("socket", words, "nothing needs to be done: the next daemon replaces it")
    words = f"{path} is held by pid {holder}, which does not answer"
    hint = f"it is stopped or stuck: look with `ps -p {holder}`; `kill -CONT {holder}` wakes it"
    return bad("socket", words, f"{hint}, `kill {holder}` ends it")


def _folder(area: str, path: Path, what: str) -> list[DoctorFinding]:
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


def _space(area: str, path: Path) -> list[DoctorFinding]:
    seen = os.statvfs(path)
    left = seen.f_bavail * seen.f_frsize
    hint = "make room: logs that do not fit are left out, and the daemon continues without them"
    if left < LITTLE_SPACE_BYTES:
        return [warn(area, f"{path} has {size(left)} left on its disk", hint)]
    if seen.f_files and not seen.f_favail:
        return [warn(area, f"{path} has no inode left on its disk", hint)]
    return []


def _unseen(area: str, path: Path, error: OSError) -> DoctorFinding:
    words = f"{path} cannot be looked at: {os.strerror(error.errno or 0)}"
    return bad(area, words, f"you are {user_name(os.getuid())}; choose another path")


_AUTO = 'containment = "auto" in the configuration takes the highest there is'
_HINT = "see docs/systemd.md: Delegate=yes gives the daemon a control group of its own"


def containment_in_force(rung: str, why_not_higher: str | None) -> DoctorFinding:
    """Examine the containment that a daemon reports."""
    return _containment(f"processes are contained by {rung}", rung, why_not_higher)


def new_containment(asked: str | None) -> DoctorFinding:
    """Examine a new daemon's containment; `asked` is the level in the configuration."""
    try:
        rung, why_not_higher = probe(asked)
    except ContainmentError as error:
        hint = f"{_HINT}; {_AUTO}"
        return bad("containment", f"a daemon would not start here: {error}", hint)
    words = f"a daemon started here would contain processes by {rung}"
    return _containment(words, rung, why_not_higher)


def _containment(words: str, rung: str, why_not_higher: str | None) -> DoctorFinding:
    if rung == RUNGS[0]:
        return ok("containment", words)
    if rung in RUNGS:
        stronger = ", ".join(RUNGS[: RUNGS.index(rung)])
        words += f"; {stronger} would be stronger"
    # One clause for each higher level, `NAME: why not`.
    refused = tuple(why_not_higher.split("; ")) if why_not_higher else ()
    chosen = any(clause.endswith(f"asks for {rung}") for clause in refused)
    return warn("containment", words, _AUTO if chosen else _HINT, evidence=refused)
