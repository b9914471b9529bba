"""Default places of a daemon's socket and data."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import click

MAX_SOCKET_PATH_BYTES = 107
"""`sun_path` holds 108 bytes, the last one a NUL (unix(7))."""


def default_socket() -> Path:
    """Return $STDIOD_SOCKET, else that of the project here, else the user's own."""
    named = os.environ.get("STDIOD_SOCKET")
    if named:
        return Path(named)
    from supervisor.cli.project import own_daemon

    project = own_daemon()
    return runtime_folder() / "stdiod.sock" if project is None else project.socket


def default_data_dir() -> Path:
    """Return $STDIOD_DATA_DIR, else that of the project here, else the user's own."""
    named = os.environ.get("STDIOD_DATA_DIR")
    if named:
        return Path(named)
    from supervisor.cli.project import own_daemon

    project = own_daemon()
    return state_folder() if project is None else project.data_dir


def runtime_folder() -> Path:
    """Return the folder of sockets in the user's runtime directory."""
    from platformdirs import user_runtime_path

    with warnings.catch_warnings():
        # It warns if XDG_RUNTIME_DIR is not set; its other folder serves as well.
        warnings.simplefilter("ignore")
        return user_runtime_path("stdiod", appauthor=False)


def state_folder() -> Path:
    from platformdirs import user_state_path

    return user_state_path("stdiod", appauthor=False)


def absolute_socket(path: Path) -> Path:
    """Return the absolute path; raises `click.UsageError` if it is too long for a socket."""
    path = path.absolute()
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH_BYTES:
        message = (
            f"the socket path {path} has {size} bytes, and a Unix socket's path may have "
            f"{MAX_SOCKET_PATH_BYTES}; choose a shorter one with --socket or $STDIOD_SOCKET"
        )
        raise click.UsageError(message)
    return path
