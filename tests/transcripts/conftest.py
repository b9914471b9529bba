"""The host and the modules of the ring below."""

from __future__ import annotations

from tests.runtime.conftest import host, running

__all__ = ["host", "running"]
