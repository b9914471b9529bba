"""Have schemathesis ask whatever the OpenAPI document describes, of a daemon with the samples.

Run by `make fuzz-http`. No answer may be a mistake of the daemon's, or other than the document
says; afterwards nothing is held for anybody. What is no answer but a stream is left out, and so is
whether the document says all that is refused.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.checkout import ROOT, Stdiod
from scripts.foreign import SCHEMATHESIS

FOLDER = SCHEMATHESIS.folder
STREAMS = r"^/ws$|^/api/v1/sessions/\{session_id\}/events$"
ANSWERED_BY_200 = r"^/modules/"
"""Module Protocol v1 has no status: there, what is bad is answered, too."""
STOP = r"^/api/v1/modules/\{module\}/stop$"
"""It comes last: AMCP has 500 for a module that somebody stopped."""

CONFIGURATION = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 502, 503, 504]

[checks.negative_data_rejection]
expected-statuses = ["4xx", 502, 503, 504]
"""
"""What a module did not do in its time, or is not there for, is told by 502 to 504. What is longer
than it may be can also be too long for a head (431) or a body (413)."""

EXAMPLES = 15
WITHIN_S = 600.0
HOOK = "audit"
"""Of the samples, the one that is told what goes on."""
TOLD_WITHIN_S = 60.0
NO = 1


def main() -> int:
    """Ask, and return the exit status."""
    why = SCHEMATHESIS.install()
    if why is not None:
        sys.stderr.write(f"schemathesis cannot be installed, and nothing is asked: {why}\n")
        return 0
    (FOLDER / "schemathesis.toml").write_text(CONFIGURATION, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, Stdiod(Path(folder)) as stdiod:
        modules = shutil.copytree(ROOT / "modules", stdiod.folder / "modules")
        policy = str(modules / "policy.toml")
        where = ("--http", "127.0.0.1:0", "--policy", policy)
        stdiod.run("up", str(modules), *where)
        scopes = [word for scope in ("read", "invoke", "admin") for word in ("--scope", scope)]
        token = stdiod.run("token", "new", "fuzz", *scopes).strip()
        address = stdiod.status()["daemon"]["http"]
        no = ask(address, token, "--exclude-path-regex", f"{STREAMS}|{ANSWERED_BY_200}|{STOP}")
        of_modules = ["--include-path-regex", ANSWERED_BY_200]
        no |= ask(address, token, *of_modules, skipping="negative_data_rejection")
        no |= ask(address, token, "--include-path-regex", STOP)
        held = still_held(stdiod)
        print(f"held for others: {held['total']} bytes", *held["parties"])
        return NO if no or held["total"] else 0


def still_held(stdiod: Stdiod) -> dict[str, Any]:
    """Return what `status` says is held, once the hook has been told what waits for it.

    It waits longer than that if the hook has been stopped, as it may have been by what was asked.
    """
    stdiod.run("start", HOOK)
    until = time.monotonic() + TOLD_WITHIN_S
    while True:
        held: dict[str, Any] = stdiod.status()["daemon"]["held_bytes"]
        if not held["total"] or time.monotonic() > until:
            return held


def ask(address: str, token: str, *which: str, skipping: str = "") -> bool:
    """Ask some of the operations; returns whether something was wrong."""
    skipped = ",".join(filter(None, ("positive_data_acceptance", skipping)))
    options = ["--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES), "--no-color"]
    options += ["--warnings", "off", "--request-timeout", "30", "--exclude-checks", skipped]
    command = [str(FOLDER / "bin/schemathesis"), "run", f"{address}/api/v1/openapi.json", *options]
    done = subprocess.run(
        [*command, "--header", f"Authorization: Bearer {token}", *which],
        stdin=subprocess.DEVNULL,
        cwd=FOLDER,
        check=False,
        timeout=WITHIN_S,
    )
    return done.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
