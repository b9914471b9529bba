"""What the system tests share: the fixtures of containment."""

from __future__ import annotations

from tests.runtime.containment.conftest import lifelines, rung

__all__ = ["lifelines", "rung"]
