"""Examine the environment as modules see it: what they inherit, and where PATH leads."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import psutil

from protocol.descriptor.model import Transport
from supervisor.cli.doctor.finding import Finding, bad, ok, warn
from supervisor.runtime.containment.ledger import INSTANCE_VARIABLE
from supervisor.runtime.process.environment import module_environment


def daemon_environment(pid: int) -> dict[str, str] | None:
    """Return the environment a daemon was started with, or None if it may not be read."""
    try:
        return psutil.Process(pid).environ()
    except psutil.Error:
        return None


def inherited(environment: Mapping[str, str], whose: str) -> Finding:
    """Say which variables every module gets, and that no other is passed on by itself."""
    names = sorted(module_environment(Transport(command=()), environment, ""))
    names.remove(INSTANCE_VARIABLE)
    kept = len(environment) - len(names)
    words = f"modules inherit {', '.join(names) or 'nothing'} from {whose}"
    if kept:
        words += f"; {kept} other variables only where transport.pass_env or env names them"
    return ok("environment", words)


def search_path(environment: Mapping[str, str], whose: str) -> list[Finding]:
    """Examine PATH, in which commands without a slash are looked up."""
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
