"""Start the `stdiod` command; what its command line means is in `command_line`.

Most of the time that a verb takes passes in imports, so `--version` needs none of them, `mcp` next
to none, and Ctrl-C while they run is no traceback.
"""

from __future__ import annotations

try:
    import os
    import signal
    import sys

    from protocol.version import VERSION
except KeyboardInterrupt:
    raise SystemExit(130) from None


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:] == ["--version"] and _say_version():
        return
    if sys.argv[1:2] == ["mcp"]:
        from supervisor.cli import quick_mcp

        if quick_mcp.serve(sys.argv[2:]):
            return
    # Where it is installed, structlog imports it for tracebacks: a third of a daemon's start, for
    # something that must not depend on what else is installed. None is Python's "not there".
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from supervisor.daemon import collector

    collector.put_off()
    from supervisor.cli.command_line import stdiod
    from supervisor.cli.standard_streams import make_dependable

    make_dependable()
    stdiod(prog_name="stdiod")


def _say_version() -> bool:
    """Print the version; False if stdout does not take it: what to do then, others know."""
    line = f"stdiod {VERSION}\n".encode()
    try:
        return os.write(1, line) == len(line)
    except OSError:
        return False
