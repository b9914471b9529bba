"""Say in a document what is decided about a capability of a module, and why."""

from __future__ import annotations

from typing import Any

from protocol.descriptor import Descriptor
from supervisor.policy.capabilities import Decision


def explained(decision: Decision, descriptor: Descriptor) -> dict[str, Any]:
    """Return the decision, the rule that made it, and what the descriptor asks for."""
    rule = decision.rule
    return {
        "module": decision.module,
        "capability": decision.capability,
        "verdict": str(decision.verdict),
        "rule": str(rule),
        "source": str(rule.source),
        "file": rule.file,
        "line": rule.line,
        "asked_for": list(descriptor.capabilities),
        "remembered": None,
    }
