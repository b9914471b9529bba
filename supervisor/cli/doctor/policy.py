"""Examine the operator's policy: unusable, contradicting itself, or missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol.descriptor.model import Descriptor
from supervisor.cli.doctor.finding import Finding, bad, ok, warn
from supervisor.cli.quantities import count
from supervisor.cli.terminal import shell_word
from supervisor.kernel.grants.operator_policy import read_policy
from supervisor.policy.capabilities import is_about_a_method
from supervisor.policy.policy_file import PolicyError, unknown_modules
from supervisor.policy.toml_document import Remark, told
from supervisor.runtime.files.directory import shown

AREA = "policy"

NAMED = 5
"""How many modules are named if there is no policy."""

LINES = 20
"""How many problems are shown; `stdiod policy check` shows all."""


def examine(
    file: Path | None, status: Mapping[str, Any] | None, descriptors: Iterable[Descriptor]
) -> list[Finding]:
    """Examine `file`, or else the policy of the daemon with this `status`.

    `descriptors` are those examined. No file is a finding only if a module asks for something that
    a policy decides.
    """
    used = None if status is None else status["daemon"].get("policy")
    descriptors = list(descriptors)
    if file is None and used is not None:
        file = Path(used["path"])
    if file is None:
        return _none(descriptors, runs=status is not None)
    is_used = used is not None and used["path"] == shown(file)
    try:
        read = read_policy(file)
    except PolicyError as error:
        return [_bad(file, error, is_used=is_used)]
    names = {one.name for one in descriptors}
    if status is not None:
        names.update(one["name"] for one in status["modules"])
    remarks = (*read.findings, *(unknown_modules(read, names) if names else ()))
    findings = []
    if is_used and used is not None and used["problem"] is not None:
        words = f"{shown(file)} is valid now; the daemon still has the one before it was bad"
        findings.append(warn(AREA, words, "`stdiod reload` reads it"))
    if remarks:
        words = f"{shown(file)} probably does not mean {count(len(remarks), 'thing')} it says"
        hint = f"correct it; {_check(file)} shows it again"
        findings.append(warn(AREA, words, hint, evidence=_lines(shown(file), remarks)))
    return findings or [ok(AREA, f"{shown(file)} is valid")]


def _bad(file: Path, error: PolicyError, *, is_used: bool) -> Finding:
    first, *others = error.problems
    what = "it is not used: the last good one is" if is_used else "no daemon would start with it"
    hint = f"correct it; {_check(file)} shows each problem"
    if is_used:
        hint += "; then `stdiod reload`"
    words = f"{told(error.source, first)} ({what})"
    return bad(AREA, words, hint, evidence=_lines(error.source, others))


def _none(descriptors: Iterable[Descriptor], *, runs: bool) -> list[Finding]:
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
    return [warn(AREA, words, hint)]


def _check(file: Path) -> str:
    return f"`stdiod policy check {shell_word(shown(file))}`"


def _lines(source: str, remarks: Sequence[Remark]) -> tuple[str, ...]:
    return tuple(told(source, one) for one in remarks[:LINES])
