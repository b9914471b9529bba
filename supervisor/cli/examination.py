"""The examinations of `stdiod doctor`, in the order in which a daemon needs their subjects."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol.descriptor.model import Descriptor
from protocol.version import VERSION
from supervisor.cli.client import DaemonClient
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.machine import (
    DoctorFinding,
    bad,
    containment_in_force,
    daemon_environment,
    examine_data_dir,
    examine_environment,
    examine_journals_aside,
    examine_kernel,
    examine_open_files,
    examine_processes,
    examine_project,
    examine_python,
    examine_search_path,
    examine_socket,
    hint_for_aside,
    new_containment,
    ok,
    warn,
)
from supervisor.cli.project import Project, default_data_dir
from supervisor.cli.quantities import count, duration, size, utc_second
from supervisor.cli.status_text import recent_exit, warning
from supervisor.cli.terminal import shell_word
from supervisor.edge.bindings.blocking import RequestTimeoutError
from supervisor.kernel.grants.operator_policy import read_policy
from supervisor.policy.capabilities import is_about_a_method
from supervisor.policy.findings import Found
from supervisor.policy.hook_findings import hook_findings
from supervisor.policy.policy_file import PolicyError, unknown_modules
from supervisor.policy.toml_document import Remark, told
from supervisor.runtime.files.directory import MissingDirectoryError, none_found, shown
from supervisor.runtime.files.sources import scan
from supervisor.runtime.process.environment import (
    HostVariables,
    UnsetVariableError,
    resolved,
    unset_variables,
)
from supervisor.runtime.process.preflight import first_obstacle
from supervisor.runtime.process.program import find_program, of_prepare

STATUS_S = 10.0
"""How long the daemon may take to answer `status`; a slower one is a finding."""


def examine(
    directories: Sequence[Path],
    socket: Path,
    data_dir: Path | None,
    *,
    asked_containment: str | None = None,
    policy_file: Path | None = None,
    env_files: Sequence[Path] = (),
    project: Project | None = None,
) -> list[DoctorFinding]:
    """Return all findings.

    Without `directories`, `data_dir` and `policy_file`, which the user may name, those of the
    running daemon are examined. `asked_containment` is the level that the configuration requires,
    and `project` the project here.
    """
    status, words = _status(socket)
    one = {} if status is None else status["daemon"]
    pid: int | None = one.get("pid")
    if data_dir is None:
        data_dir = Path(one["data_dir"]) if one.get("data_dir") else default_data_dir()
    if not directories:
        directories = [Path(name) for name in one.get("directories", ())]
    environment, whose = _environment(pid)
    environment = HostVariables(environment, env_files)
    found, unreadable = found_in(directories)
    count = len(found.descriptors)
    told_aside = {aside["path"] for aside in (one.get("journal") or {}).get("set_aside", ())}
    findings = [
        examine_python(),
        examine_kernel(),
        examine_open_files(count, pid),
        examine_processes(count),
        *(() if project is None else (examine_project(project),)),
        *examine_socket(socket, data_dir, answers=status is not None),
        *examine_data_dir(data_dir),
        *examine_journals_aside(data_dir, told_aside),
        examine_environment(environment, whose),
        *examine_search_path(environment, whose),
        *unreadable,
        *examine_descriptors(found, environment, directories),
        *examine_policy(policy_file, status, found.descriptors),
    ]
    if not directories:
        findings.append(ok("descriptor", "none were examined; `stdiod doctor DIR` examines some"))
    if status is None:
        findings += [words, new_containment(asked_containment)]
    else:
        seen = {one.subject for one in findings if one.area == "descriptor"}
        # Missing directories are among the findings already.
        seen.update(shown(one) for one in directories if not one.is_dir())
        held = [one for one in examine_quarantined(status) if one.subject not in seen]
        findings += [*held, *examine_daemon(status), *examine_modules(status)]
    return findings


def _status(socket: Path) -> tuple[dict[str, Any] | None, DoctorFinding]:
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
    except RequestTimeoutError:
        words = f"the daemon on {socket} did not answer `status` in {STATUS_S:g} s"
        hint = "it is stopped or stuck; `ps` shows which, and a service manager may restart it"
        return None, bad("daemon", words, hint)
    if not answer.ok:
        words = f"the daemon refused `status`: {answer.error.get('message')}"
        return None, bad("daemon", words, "is it another version? `stdiod down` ends it")
    return answer.result, ok("daemon", "answers")


def _environment(pid: int | None) -> tuple[dict[str, str], str]:
    if pid is not None:
        environment = daemon_environment(pid)
        if environment is not None:
            return environment, f"the daemon (pid {pid})"
    return dict(os.environ), "this shell"


def found_in(directories: Sequence[Path]) -> tuple[Found, list[DoctorFinding]]:
    """Read directories as a daemon would; unreadable ones are findings."""
    findings: list[DoctorFinding] = []
    readable: list[Path] = []
    for directory in directories:
        try:
            scan([directory])
        except MissingDirectoryError as error:
            findings.append(
                bad("descriptor", str(error), "make it again, or name another directory")
            )
        else:
            readable.append(directory)
    found = scan(readable)
    if readable and not found.descriptors and not found.quarantined:
        findings.append(
            warn("descriptor", none_found(readable), "`stdiod validate FILE` checks a single file")
        )
    return found, findings


def correct_it(directories: Iterable[str | Path]) -> str:
    """Return the hint for an invalid descriptor.

    It names all directories: a single file does not show a duplicate name or a circle.
    """
    words = " ".join(shell_word(str(directory)) for directory in directories)
    return f"correct it; `stdiod validate {words}` shows each problem"


def examine_descriptors(
    found: Found, environment: Mapping[str, str], directories: Sequence[Path]
) -> list[DoctorFinding]:
    """Examine each descriptor in `directories`; `environment` is the daemon's, or would be."""
    hint = correct_it(one for one in directories if one.is_dir())
    findings = [
        bad("descriptor", one.reason, hint, subject=one.descriptor) for one in found.quarantined
    ]
    for descriptor in found.descriptors:
        findings += _descriptor(descriptor, environment, found.descriptors)
    return findings


def _descriptor(
    descriptor: Descriptor, environment: Mapping[str, str], fleet: Sequence[Descriptor]
) -> list[DoctorFinding]:
    name, transport = descriptor.name, descriptor.transport
    first = of_prepare(descriptor) if transport.prepare else descriptor
    given: Mapping[str, str] = environment
    with contextlib.suppress(UnsetVariableError):  # reported below as an obstacle
        first, given = resolved(first, environment, name)
    findings = [
        warn(
            "descriptor",
            f"transport.pass_env names {variable}, which the daemon has not set",
            f"put {variable}=... into a file that transport.env_file names, or set it where the"
            f' daemon is started; if it is optional, write "{variable}?" in pass_env',
            subject=name,
        )
        for variable in unset_variables(transport, given)
    ]
    findings += [
        warn(
            "descriptor",
            str(one),
            "correct it if it is a mistake; the hook runs as it is",
            subject=name,
        )
        for one in hook_findings(descriptor, fleet)
    ]
    found = first_obstacle(descriptor, environment)
    if not descriptor.enabled:
        return [
            ok(
                "descriptor",
                f"is disabled{'' if found is None else f'; {found.words}'}",
                subject=name,
            )
        ]
    if found is not None:
        return [*findings, bad("descriptor", found.words, found.hint, subject=name)]
    if not transport.command:
        return findings or [ok("descriptor", f"is a service at {transport.url}", subject=name)]
    does = "is prepared by" if transport.prepare else "runs"
    program = find_program(first, given)
    return findings or [ok("descriptor", f"{does} {program}", subject=name)]


NAMED = 5
"""How many modules are named if there is no policy."""

LINES = 20
"""How many problems are shown; `stdiod policy check` shows all."""


def examine_policy(
    file: Path | None, status: Mapping[str, Any] | None, descriptors: Iterable[Descriptor]
) -> list[DoctorFinding]:
    """Examine `file`, or else the policy of the daemon with this `status`.

    `descriptors` are those examined. No file is a finding only if a module asks for something that
    a policy decides.
    """
    used = None if status is None else status["daemon"].get("policy")
    descriptors = list(descriptors)
    if file is None and used is not None:
        file = Path(used["path"])
    if file is None:
        return _no_policy(descriptors, runs=status is not None)
    is_used = used is not None and used["path"] == shown(file)
    try:
        read = read_policy(file)
    except PolicyError as error:
        return [_bad_policy(file, error, is_used=is_used)]
    names = {one.name for one in descriptors}
    if status is not None:
        names.update(one["name"] for one in status["modules"])
    remarks = (*read.findings, *(unknown_modules(read, names) if names else ()))
    findings = []
    if is_used and used is not None and used["problem"] is not None:
        words = f"{shown(file)} is valid now; the daemon still has the one before it was bad"
        findings.append(warn("policy", words, "`stdiod reload` reads it"))
    if remarks:
        words = f"{shown(file)} probably does not mean {count(len(remarks), 'thing')} it says"
        hint = f"correct it; {_check(file)} shows it again"
        findings.append(warn("policy", words, hint, evidence=_remarks(shown(file), remarks)))
    return findings or [ok("policy", f"{shown(file)} is valid")]


def _bad_policy(file: Path, error: PolicyError, *, is_used: bool) -> DoctorFinding:
    first, *others = error.problems
    what = "it is not used: the last good one is" if is_used else "no daemon would start with it"
    hint = f"correct it; {_check(file)} shows each problem"
    if is_used:
        hint += "; then `stdiod reload`"
    words = f"{told(error.source, first)} ({what})"
    return bad("policy", words, hint, evidence=_remarks(error.source, others))


def _no_policy(descriptors: Iterable[Descriptor], *, runs: bool) -> list[DoctorFinding]:
    asking = [
        one.name for one in descriptors if any(is_about_a_method(cap) for cap in one.capabilities)
    ]
    if not asking:
        return []
    more = f" and {len(asking) - NAMED} more" if len(asking) > NAMED else ""
    names = ", ".join(asking[:NAMED])
    words = f"there is no policy file: whatever {names}{more} may ask the host for is denied"
    hint = "name a file with --policy, or as `policy` in the configuration"
    if runs:
        hint += ", and start the daemon anew"
    return [warn("policy", words, hint)]


def _check(file: Path) -> str:
    return f"`stdiod policy check {shell_word(shown(file))}`"


def _remarks(source: str, remarks: Sequence[Remark]) -> tuple[str, ...]:
    return tuple(told(source, one) for one in remarks[:LINES])


TAIL_LINES = 5
"""The last lines of stderr that are shown."""

_HINTS = {
    "spawn_failed": "correct what the message names, then `stdiod restart {name}`",
    "start_deadline": "it must answer each line on stdin with a JSON line on stdout, and flush it",
    "bad_health": "it must answer a health request with one JSON line on stdout, and nothing else",
    "bad_describe": "it must answer a describe request with one JSON line on stdout, which must "
    "match its descriptor",
    "memory_limit": "raise supervision.limits.memory_bytes, or find what takes the memory",
    "cgroup_oom": "raise supervision.limits.memory_bytes, or find what takes the memory",
    "supervision_failed": "this is a bug in stdiod; the daemon's own log has the traceback",
}

_WHY = "`stdiod status` says why that is"

_EXIT_HINTS = {
    126: "126 is how a shell says that a command cannot be executed",
    127: "127 is how a shell says that a command is not in PATH",
}


def examine_daemon(status: dict[str, Any]) -> list[DoctorFinding]:
    one = status["daemon"]
    words = (
        f"pid {one['pid']}, version {one['version']}, up {duration(one['uptime_s'])}, "
        f"socket {one['socket']}"
    )
    findings = [ok("daemon", words)]
    if one["version"] != VERSION:
        words = f"the daemon is version {one['version']}, and this command is {VERSION}"
        findings.append(warn("daemon", words, "`stdiod down`, then start it again"))
    findings.append(containment_in_force(one["containment"], one.get("why_not_higher")))
    if one.get("guardian_problem"):
        hint = (
            "see whether processes, memory or open files have run out (`ulimit -u`, `-n`), and"
            " what kills it; the daemon tries again at least once a minute, and `stdiod down` still"
            " ends everything"
        )
        findings.append(bad("guardian", one["guardian_problem"], hint))
    if one.get("data_dir_problem"):
        hint = "`stdiod down`, then start it again, so that all its files are in it"
        findings.append(bad("data directory", one["data_dir_problem"], hint))
    if one.get("log_error"):
        words = f"logs cannot be written, {one['dropped_log_bytes']} bytes so far: "
        findings.append(
            bad("logs", words + one["log_error"], "make room, or correct the permissions")
        )
    elif one.get("dropped_log_bytes"):
        words = f"{one['dropped_log_bytes']} bytes of logs were left out; now they are written"
        findings.append(warn("logs", words, "see whether the disk was full, or too slow"))
    findings += _journal(one.get("journal"))
    return findings


def examine_quarantined(status: dict[str, Any]) -> list[DoctorFinding]:
    return [
        bad(
            "descriptor",
            f"the daemon has it in quarantine: {one['reason']}",
            correct_it(status["daemon"]["directories"]),
            subject=one["descriptor"],
        )
        for one in status["quarantined"]
    ]


def examine_modules(status: dict[str, Any], now_s: float | None = None) -> list[DoctorFinding]:
    """Examine each module of the daemon; `now_s` is Unix time."""
    return [_module(one, now_s or time.time()) for one in status["modules"]]


def _journal(journal: dict[str, Any] | None) -> list[DoctorFinding]:
    area = "journal"
    if journal is None:
        return []
    if journal["problem"] is not None:
        words = f"the journal cannot be written: {journal['problem']}"
        hint = "make room, or correct the permissions; the daemon then continues by itself"
        return [bad(area, words, hint)]
    findings = [
        warn(
            area,
            f"a file that could not be used ({aside['why']}) was set aside as {aside['path']}",
            hint_for_aside(aside["path"]),
        )
        for aside in journal["set_aside"]
    ]
    if lost := journal.get("set_back"):
        findings.append(warn(area, f"the journal was set back: {lost}", "see whether it is a copy"))
    if journal["dropped"]:
        words = f"entries that could not be written and are lost: {journal['dropped']}"
        findings.append(warn(area, words, "see whether the disk was full, or too slow"))
    held = f"{journal['events']} entries, {size(journal['bytes'])}, in {journal['path']}"
    return findings or [ok(area, held)]


def _module(one: dict[str, Any], now_s: float) -> DoctorFinding:
    name, state = one["name"], one["state"]
    died = recent_exit(one, now_s)
    words = state
    if died is not None:
        words += f"; {_death(died)}"
    if one.get("next_retry_s") is not None:
        words += f"; tried again in {duration(one['next_retry_s'])}"
    tail = tuple((died or {}).get("stderr_tail") or ())[-TAIL_LINES:]
    hint = _hint(name, died)
    if state == "failed":
        return bad("module", words, hint, subject=name, evidence=tail)
    if state in ("backoff", "degraded"):
        return warn("module", words, hint, subject=name, evidence=tail)
    if state == "down" and one["wanted"] == "up" and one["waits_for"]:
        waits = ", ".join(one["waits_for"])
        return warn("module", f"down; it waits for {waits}", _WHY, subject=name)
    if state == "down" and died is not None and died["reason"] not in ("stopped", "idle"):
        return warn("module", words, hint, subject=name, evidence=tail)
    if one.get("missing"):
        missing = ", ".join(one["missing"])
        words += f"; it depends on modules that do not serve: {missing}"
        return warn("module", words, _WHY, subject=name, evidence=tail)
    if one["restarts"] and died is not None and died["reason"] not in ("stopped", "idle"):
        words += f"; {one['restarts']} restarts"
        return warn("module", words, hint, subject=name, evidence=tail)
    if said := warning(one):
        return warn(
            "module",
            f"{words}; {said}",
            f"`stdiod logs {shell_word(name)}` shows when",
            subject=name,
        )
    return ok("module", words, subject=name)


def _death(died: dict[str, Any]) -> str:
    return f"at {utc_second(died['ts'])} it {died['message']} ({died['reason']})"


def _hint(name: str, died: dict[str, Any] | None) -> str:
    word = shell_word(name)
    look = f"`stdiod logs {word}` has the rest"
    if died is None:
        return look
    known = _HINTS.get(died["reason"]) or _EXIT_HINTS.get(died.get("exit_code") or 0)
    return look if known is None else f"{known.format(name=word)}; {look}"
