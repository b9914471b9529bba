"""Start the `stdiod` command.

Its command line is in `command_line`. Imports take most of a verb's time, so `--version` needs
none, `mcp` next to none, and Ctrl-C during imports shows no traceback.
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
    """Print the version; False if stdout cannot be written: the command line then reports that."""
    line = f"stdiod {VERSION}\n".encode()
    try:
        return os.write(1, line) == len(line)
    except OSError:
        return False
