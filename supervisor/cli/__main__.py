"""Start `stdiod` as `python -m supervisor.cli`, or from this file's path.

By path is how `up` starts a daemon: unlike `-m`, it needs no working directory on `sys.path`, where
a stray `json.py` would be imported in the place of the standard library's.
"""

try:
    import signal

    # A Ctrl-C while Python imports is no traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except KeyboardInterrupt:
    raise SystemExit(130) from None

import sys

if __package__ in (None, ""):
    from pathlib import Path

    # Find the packages beside this file, installed or not, and leave the path as it was: once a
    # package is imported, its submodules are found through it.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import protocol  # noqa: F401
    import schemas  # noqa: F401
    import supervisor  # noqa: F401

    del sys.path[0]

from supervisor.cli.main import main

main()
