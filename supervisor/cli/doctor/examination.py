"""All examinations, in the order in which a daemon needs their subjects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supervisor.cli.client import DaemonClient, NoAnswerError
from supervisor.cli.doctor import (
    containment,
    descriptors,
    machine,
    places,
    policy,
    running,
)
from supervisor.cli.doctor.finding import Finding, bad, ok
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.project import Project
from supervisor.runtime.files.directory import shown
from supervisor.runtime.process.environment import HostVariables

STATUS_S = 10.0
"""How long the daemon may take to answer `status`; a slower one is a finding."""


def examine(
    directories: Sequence[Path],
    socket: Path,
    data_dir: Path,
    *,
    data_dir_chosen: bool,
    asked_containment: str | None = None,
    policy_file: Path | None = None,
    env_files: Sequence[Path] = (),
    project: Project | None = None,
) -> list[Finding]:
    """Return all findings.

    Without `directories`, those of the daemon are examined. `data_dir_chosen`: `data_dir` was named
    by the user; else the running daemon's is used. `asked_containment` is the level that the
    configuration requires, `policy_file` the policy that the user named, else the running daemon's,
    and `project` the project here.
    """
    status, words = _status(socket)
    one = {} if status is None else status["daemon"]
    pid: int | None = one.get("pid")
    if not data_dir_chosen and one.get("data_dir"):
        data_dir = Path(one["data_dir"])
    if not directories:
        directories = [Path(name) for name in one.get("directories", ())]
    environment, whose = _environment(pid)
    environment = HostVariables(environment, env_files)
    found, unreadable = descriptors.found_in(directories)
    count = len(found.descriptors)
    findings = [
        machine.python(),
        machine.kernel(),
        machine.open_files(count, pid),
        machine.processes(count),
        *(() if project is None else (places.project_place(project),)),
        *places.socket_place(socket, data_dir, answers=status is not None),
        *places.data_place(data_dir),
        *places.journals_aside(data_dir, running.told_aside(one)),
        machine.inherited(environment, whose),
        *machine.search_path(environment, whose),
        *unreadable,
        *descriptors.examine(found, environment, directories),
        *policy.examine(policy_file, status, found.descriptors),
    ]
    if not directories:
        findings.append(ok("descriptor", "none were examined; `stdiod doctor DIR` examines some"))
    if status is None:
        findings += [words, containment.of_a_new_daemon(asked_containment)]
    else:
        seen = {one.subject for one in findings if one.area == descriptors.AREA}
        # Missing directories are among the findings already.
        seen.update(shown(one) for one in directories if not one.is_dir())
        held = [one for one in running.quarantined(status) if one.subject not in seen]
        findings += [*held, *running.daemon(status), *running.modules(status)]
    return findings


def _status(socket: Path) -> tuple[dict[str, Any] | None, Finding]:
    """Ask the daemon, if there is one, for `status`; the finding reports the attempt."""
    try:
        client = DaemonClient(socket)
    except NoDaemonError:
        return None, ok("daemon", f"no daemon answers on {socket}")
    try:
        with client:
            answer = client.own("status", timeout_s=STATUS_S)
    except NoDaemonError as error:
        # The listener is not a daemon.
        words = f"{socket} can be connected to, but gives no answer: {error.message}"
        hint = "the daemon's own log says why; `fuser` shows the listener, `--socket` names another"
        return None, bad("daemon", words, hint)
    except NoAnswerError:
        words = f"the daemon on {socket} did not answer `status` in {STATUS_S:g} s"
        hint = "it is stopped or stuck; `ps` shows which, and a service manager may restart it"
        return None, bad("daemon", words, hint)
    if not answer.ok:
        words = f"the daemon refused `status`: {answer.error.get('message')}"
        return None, bad("daemon", words, "is it another version? `stdiod down` ends it")
    return answer.result, ok("daemon", "answers")


def _environment(pid: int | None) -> tuple[dict[str, str], str]:
    if pid is not None:
        environment = machine.daemon_environment(pid)
        if environment is not None:
            return environment, f"the daemon (pid {pid})"
    return dict(os.environ), "this shell"
