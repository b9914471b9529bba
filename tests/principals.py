"""Who asks in tests."""

from __future__ import annotations

from supervisor.policy.principals import Principal

ADA = Principal("ada", "test")
"""Somebody who may do everything."""
