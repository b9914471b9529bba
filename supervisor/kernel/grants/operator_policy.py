"""The operator's policy file: read at the start, and again with each reload.

A bad file stops the start; later the last good one stays in use, and log and status say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import structlog

from protocol.descriptor.model import Descriptor
from supervisor.policy.capabilities import Decision, Mode, Policy, remedy
from supervisor.policy.policy_file import (
    PolicyError,
    PolicyFile,
    parse_policy,
    unknown_modules,
)
from supervisor.policy.toml_document import NotTomlError, Remark, decoded, told
from supervisor.runtime.files.directory import shown
from supervisor.runtime.files.whole_file import UnreadableError, read_whole

POLICY_BYTES = 1 << 20
"""A larger file is refused."""

log = structlog.get_logger()


Objection = Callable[[bytes], str | None]
"""Returns why the bytes of a file are not to be used; None if they may be."""


def read_policy(path: Path, objection: Objection = lambda _: None) -> PolicyFile:
    """Read and check a file; raises `PolicyError`."""
    source = shown(path)
    try:
        data = read_whole(path, POLICY_BYTES, "policy")
    except UnreadableError as error:
        raise PolicyError(source, (Remark(str(error)),)) from None
    if (words := objection(data)) is not None:
        raise PolicyError(source, (Remark(words),))
    try:
        text = decoded(data)
    except NotTomlError as error:
        raise PolicyError(source, (error.remark,)) from None
    return parse_policy(text, source)


class OperatorPolicy:
    """The policy in use, and the problem with its file, if there is one."""

    def __init__(self, path: Path | None = None, objection: Objection = lambda _: None) -> None:
        """Read the file, if there is one; without, nothing is granted. Raises `PolicyError`."""
        self.path = path
        self._objection = objection
        self.problem: str | None = None
        """Why the current file is not in use."""
        self._file = PolicyFile(Policy()) if path is None else read_policy(path, objection)

    @property
    def policy(self) -> Policy:
        return self._file.policy

    def look(self) -> PolicyFile | PolicyError:
        """Read the file again, which may block; `take` applies it."""
        if self.path is None:
            return self._file
        try:
            return read_policy(self.path, self._objection)
        except PolicyError as error:
            return error

    def take(self, seen: PolicyFile | PolicyError) -> None:
        """Apply a policy, or keep the last good one and its problem."""
        if isinstance(seen, PolicyError):
            self.problem = str(seen)
            log.warning("the policy is bad; the last good one stays in use", words=self.problem)
            return
        if self.problem is not None or seen.policy != self.policy:
            log.info("policy read", path=self._shown, mode=str(_mode(seen.policy)))
        self._file, self.problem = seen, None

    def warn(self, modules: Iterable[str]) -> None:
        """Log what the file probably does not mean."""
        for words in self.findings(modules):
            log.warning("policy", words=words)

    def findings(self, modules: Iterable[str]) -> list[str]:
        """Return what the file probably does not mean, given the modules there are."""
        if self.path is None:
            return []
        source = self.policy.source or ""
        found = (*self._file.findings, *unknown_modules(self._file, modules))
        return [told(source, one) for one in found]

    def status(self, modules: Iterable[str]) -> dict[str, Any] | None:
        """Return what `status` shows; None without a file."""
        if self.path is None:
            return None
        return {
            "path": self._shown,
            "mode": str(_mode(self.policy)),
            "problem": self.problem,
            "findings": self.findings(modules),
        }

    @property
    def _shown(self) -> str | None:
        return None if self.path is None else shown(self.path)


def _mode(policy: Policy) -> Mode:
    return policy.everywhere.mode or Mode.STRICT


def explained(policy: Policy, decision: Decision, descriptor: Descriptor) -> dict[str, Any]:
    """Return the decision, the rule that made it, and what would allow it."""
    rule = decision.rule
    return {
        "module": decision.module,
        "capability": decision.capability,
        "verdict": str(decision.verdict),
        "rule": str(rule),
        "source": str(rule.source),
        "file": rule.file,
        "key": rule.key,
        "remedy": remedy(policy, decision, descriptor.source),
        "asked_for": list(descriptor.capabilities),
        "remembered": None,
    }
