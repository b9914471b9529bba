"""Examine the machine: Python, the kernel, its limits, and the environment of modules."""

from __future__ import annotations

import os
import platform
import resource
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from supervisor.cli.doctor.finding import Finding, bad, ok, warn
from supervisor.runtime.process.environment import passes

FILES_PER_MODULE = 4
"""stdin, stdout, stderr and the pidfd."""

FILES_OF_THE_DAEMON = 64
"""Its own files, and those of some clients."""

_UNLIMITED = resource.RLIM_INFINITY


def python() -> Finding:
    return ok("python", f"Python {platform.python_version()} ({sys.executable})")


def kernel() -> Finding:
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


def open_files(modules: int, daemon_pid: int | None) -> Finding:
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


def processes(modules: int) -> Finding:
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


def inherited(environment: Mapping[str, str], whose: str) -> Finding:
    """Report the variables that every module gets; others only if a descriptor names them."""
    names = sorted(name for name in environment if passes(name, ()))
    kept = len(environment) - len(names)
    words = f"modules inherit {', '.join(names) or 'nothing'} from {whose}"
    if kept:
        words += f"; {kept} other variables only where a descriptor names them"
    return ok("environment", words)


def search_path(environment: Mapping[str, str], whose: str) -> list[Finding]:
    """Examine PATH, where commands without a slash are looked up."""
    named = environment.get("PATH")
    if not named:
        words = f"PATH is not set in {whose}; programs are looked up in {os.defpath}"
        return [warn("path", words, "set PATH where the daemon is started")]
    findings = [
        finding for entry in dict.fromkeys(named.split(":")) if (finding := _examine(entry))
    ]
    if not any(os.path.isdir(entry) for entry in named.split(":")):  # noqa: PTH112
        hint = "set PATH where the daemon is started"
        findings.append(bad("path", f"PATH of {whose} leads nowhere: {named}", hint))
    return findings or [ok("path", f"PATH of {whose}: {named}")]


def _examine(entry: str) -> Finding | None:
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
