"""`stdiod page`: log a browser in, and open the page in it."""

from __future__ import annotations

import errno
import html
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from supervisor.cli.client import SUPERVISOR, DaemonClient, given_args
from supervisor.cli.exit_status import NoError
from supervisor.cli.options import example, socket_option, with_json, with_scopes, with_socket
from supervisor.cli.project import runtime_folder
from supervisor.cli.results import print_json, result_of
from supervisor.cli.terminal import shell_word

EXAMPLE_ADDRESS = "127.0.0.1:8420"

_ANY_ADDRESS = {"0.0.0.0": "localhost", "::": "localhost"}  # noqa: S104 - replaced, not bound


@click.command(epilog=example("page", "page --no-browser --scope read"))
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@with_scopes("What the page may do; repeat it for more.  [default: all that you may]")
@with_json
@with_socket
def page(
    *,
    no_browser: bool,
    scopes: tuple[str, ...],
    modules: tuple[str, ...],
    as_json: bool,
    socket: Path,
) -> None:
    """Print an address that logs a browser in to the page, and open it where there is a display.

    The address works once, within a minute. The login lasts 12 hours; `stdiod token list` shows
    it, and `stdiod token revoke` ends it.
    """
    args = given_args(scopes=list(scopes) or None, modules=list(modules) or None)
    with DaemonClient(socket) as client:
        asked = client.known("status")
        status = result_of(asked, as_json=as_json, module=SUPERVISOR, op="status")
        served = _served(status["daemon"], socket)
        answer = client.known("page.login", args)
    login = result_of(answer, as_json=as_json, module=SUPERVISOR, op="page.login")
    url = f"{served}/login?code={login.pop('code')}"
    if as_json:
        print_json({"url": url, **login})
    else:
        click.echo(url)
        code_s, hours = login["code_s"], login["login_s"] / 3600
        click.echo(f"it works once, within {code_s:g} s, and logs in for {hours:g} h", err=True)
    if not no_browser and _has_display():
        _open(url)


def _served(daemon: dict[str, Any], socket: Path) -> str:
    """Return the URL of the page; raises `NoError` with a hint if there is none."""
    url = urlsplit(daemon["http"] or "")
    if not url.hostname:
        stdiod = f"stdiod {socket_option(socket)}"
        folders = (
            "" if daemon.get("project") else " ".join(["", *map(shell_word, daemon["directories"])])
        )
        where = f"only {url.path}" if url.path else "no HTTP"
        words = f"a browser needs an address, and this daemon serves {where}; to have one:"
        raise NoError(f"{words}\n  {stdiod}down\n  {stdiod}up{folders} --http {EXAMPLE_ADDRESS}")
    host = _ANY_ADDRESS.get(url.hostname)
    return f"{url.scheme}://{url.netloc if host is None else f'{host}:{url.port}'}"


def _has_display() -> bool:
    return sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def _open(url: str) -> None:
    """Open `url` in the browser, without waiting.

    The browser gets a private file that leads to the URL: arguments can be read by any user of the
    machine, and the first user of the code would be logged in.
    """
    folder = runtime_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():  # it may be in /tmp
            raise PermissionError(errno.EPERM, "it belongs to another user", str(folder))
        number, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(number, "w", encoding="utf-8") as written:
            written.write(_LEADING.format(html.escape(url)))
        path = Path(name).replace(folder / "page.html")
        words = [sys.executable, "-I", "-m", "webbrowser", path.as_uri()]
        os.posix_spawn(sys.executable, words, os.environ, file_actions=_SILENT, setsid=True)
    except OSError as error:
        click.echo(f"no browser was opened: {error}", err=True)


_LEADING = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>stdiod</title>
<p><a href="{0}">The page</a>
"""

_SILENT = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
