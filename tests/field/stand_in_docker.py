"""A docker whose containers are files of a folder ($DOCKER_STATE): they outlive their client.

`$DOCKER_MODE`, which may name a file that holds it, says what is wrong: `hangs` and `refuses` of
`rm` (and then `inspect`), `late` and `done` too, where `--rm` was quicker; `pulls` of `run`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

STATE = Path(os.environ["DOCKER_STATE"])
NO_DAEMON = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."


def mode() -> str:
    file = STATE / "mode"
    return file.read_text() if file.exists() else os.environ.get("DOCKER_MODE", "")


def wait_for_ever() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def run(words: list[str]) -> int:
    cidfile = Path(words[words.index("--cidfile") + 1])
    with cidfile.open("x") as file:
        if mode() == "pulls":
            (STATE / "pulling").touch()
            signal.pause()
        identity = uuid.uuid4().hex * 2
        others = [path.name for path in STATE.glob("*.container")]
        (STATE / f"{identity}.container").write_text("\n".join(others))
        file.write(identity)
    child = subprocess.Popen(words[words.index("image") + 1 :])
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    if "--rm" in words:
        (STATE / f"{identity}.container").unlink(missing_ok=True)
    return code


def remove(words: list[str]) -> int:
    container = STATE / f"{words[-1]}.container"
    match mode():
        case "hangs":
            wait_for_ever()
        case "refuses":
            sys.stderr.write(NO_DAEMON + "\n")
            return 1
        case "progress":
            container.unlink(missing_ok=True)
            sys.stderr.write(f"removal of container {words[-1]} is already in progress\n")
            return 1
    if not container.exists():
        sys.stderr.write(f"Error response from daemon: No such container: {words[-1]}\n")
    container.unlink(missing_ok=True)
    return 0


def inspect(words: list[str]) -> int:
    if mode() in {"hangs", "refuses"}:
        sys.stderr.write(NO_DAEMON + "\n")
        return 1
    if (STATE / f"{words[-1]}.container").exists():
        sys.stdout.write("[{}]\n")
        return 0
    sys.stdout.write("[]\n")
    sys.stderr.write(f"Error: No such object: {words[-1]}\n")
    return 1


def main() -> int:
    words = sys.argv[1:]
    with (STATE / "calls").open("a") as calls:
        calls.write(" ".join(words) + "\n")
    assert words[:2] == ["--context", "far"], words
    verb, *rest = words[2:]
    return {"run": run, "rm": remove, "inspect": inspect}[verb](rest)


sys.exit(main())
