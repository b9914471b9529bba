"""Compare stdiod with mcp-proxy and FastMCP as hosts of an MCP server: `make compare-mcp`.

Each fault is a host's turn of its own, with a new host and a new server. The others are installed
from PyPI into environments of their own, as for `make bench-peers`; nothing else is downloaded.
"""

from __future__ import annotations

import argparse
import datetime as dt
import platform
import sys
import tempfile
from pathlib import Path

from scripts.compare_mcp.faults import BY_KEY, Fault, sweep
from scripts.compare_mcp.hosts import HOSTS, Host, OverHttp
from scripts.compare_mcp.table import say, written_into
from scripts.peers import environments, install

PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
BEGIN = "<!-- comparison: written by make compare-mcp -->"
END = "<!-- /comparison -->"


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.compare_mcp", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table into docs/mcp.md")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(BY_KEY)}")
    options = parser.parse_args()
    unknown = set(options.faults) - set(BY_KEY)
    if unknown:
        parser.error(f"there is no fault {min(unknown)!r}; there are {', '.join(BY_KEY)}")
    for host in HOSTS:
        if issubclass(host, OverHttp):
            install.from_pypi(host.package, say)
    chosen = [BY_KEY[one] for one in options.faults or BY_KEY]
    table = "\n".join([_head(), *(_row(fault) for fault in chosen)])
    said = f"{table}\n\n{_machine()}\n"
    sys.stdout.write(said)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written_into(page, said, BEGIN, END), encoding="utf-8")


def _head() -> str:
    titles = " | ".join(f"{one.name} {one.version() or ''}".strip() for one in HOSTS)
    return f"| | {titles} |\n|{'---|' * (len(HOSTS) + 1)}"


def _row(fault: Fault) -> str:
    cells = [_measured(fault, host).replace("|", "\\|").replace("\n", " ") for host in HOSTS]
    return f"| {fault.title} | {' | '.join(cells)} |"


def _measured(fault: Fault, kind: type[Host]) -> str:
    if kind.version() is None:
        return f"not measured: {environments.why_missing(kind.name)}"
    say(f"{fault.key}: {kind.name}")
    with tempfile.TemporaryDirectory() as folder:
        host = kind(Path(folder), *fault.flags)
        try:
            host.start()
            return fault.scene(host)
        except TimeoutError as error:
            return f"not measured: {error}"
        finally:
            host.end()
            sweep(host)


def _machine() -> str:
    date = f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}"
    return f"Measured on {date}, Linux {platform.release()}, Python {platform.python_version()}."


if __name__ == "__main__":
    main()
