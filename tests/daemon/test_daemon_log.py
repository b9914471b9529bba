"""The daemon's own log as people see it."""

from __future__ import annotations

import subprocess
import sys

from tests.bounds import WAIT_S

STEERS = "a\x1b[31m\x9b\u202e\u2066\x07\u2028b"
"""The name of a file, say, which whoever may write a descriptor chooses."""

PROGRAM = """
import structlog
import sys
from supervisor.daemon.daemon_log import set_up_logging
from supervisor.runtime.threads import Threads

stream = set_up_logging("console", None, Threads())
log = structlog.get_logger()
log.warning(sys.argv[1], path=sys.argv[1], paths=[sys.argv[1]], words="plain\\u00e9")
try:
    raise ValueError(sys.argv[1])
except ValueError:
    log.exception("failed")
stream.close()
"""


def test_what_others_have_named_does_not_steer_the_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, STEERS],
        check=True,
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
    )
    assert done.stderr.replace("\n", "").isprintable()
    assert done.stderr.count(r"\x1b[31m\x9b\u202e\u2066\x07\u2028b") == 4
    assert "plainé" in done.stderr
    assert 'Traceback (most recent call last):\n  File "<string>"' in done.stderr
