"""The command line, as its own tests run it."""

from __future__ import annotations

from tests.cli.conftest import run, socket_path

__all__ = ["run", "socket_path"]
