"""Watch a small fleet being supervised: `make demo`.

A daemon is started on the sample modules, in a temporary folder, through the `stdiod` command. Each
step checks what it finds; the exit status is 0 only if all of them went as they should. A module
whose language is missing here is left out, with a word.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from scripts.demo.stage import Stage
from scripts.demo.story import POLICY, Story
from scripts.demo.terminal import Screen

MODULES: Final = Path(__file__).resolve().parent.parent.parent / "modules"
COMPILED: Final = "primes"
"""This one is a shell script to look at, and needs a C compiler."""

INTERRUPTED: Final = 130


def main() -> int:
    """Run the demo; returns the exit status."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    began_at = time.monotonic()
    screen = Screen(as_json=options.json)
    with tempfile.TemporaryDirectory(prefix="stdiod-demo-", ignore_cleanup_errors=True) as name:
        stage = Stage(Path(name).resolve(), screen)
        try:
            _play(stage, options.modules)
        except KeyboardInterrupt:
            screen.verdict("interrupted; cleaned up", well=False)
            return INTERRUPTED
        finally:
            # Another Ctrl-C is not to leave behind what this one cleans up.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            stage.end()
            stage.kill_rest()
    took_s = time.monotonic() - began_at
    if stage.failed:
        screen.verdict(f"not as it should be: {', '.join(stage.failed)}", well=False)
        return 1
    done = [step for step in stage.steps if step.skipped is None]
    screen.verdict(f"all {len(done)} steps went as they should, in {took_s:.0f} s", well=True)
    screen.next_steps(_next_steps())
    return 0


def _next_steps() -> dict[str, str]:
    """Return what to type next, each with what it does."""
    stdiod = Path(sys.executable).with_name("stdiod")
    with contextlib.suppress(ValueError):
        stdiod = stdiod.relative_to(Path.cwd())
    return {
        f"{stdiod} up modules": "start the samples in the background",
        f"{stdiod} top": "watch them; q quits",
        f"{stdiod} invoke dice roll dice=2d6": "call one",
        f"{stdiod} down": "stop all of it",
        f"{stdiod} new hello --lang python": "begin a module; docs/first-module.md goes on",
    }


def _play(stage: Stage, modules: Path) -> None:
    present, missing = _copy_runnable(modules, stage.folder / "modules")
    story = Story(stage, present, missing)
    acts: tuple[Callable[[], None], ...] = (
        story.begin,
        story.meet,
        story.work,
        story.remember,
        story.decide,
        story.stream,
        story.fail,
        story.survive,
        story.crowd,
        story.recall,
        story.end,
    )
    for act in acts:
        act()


def _copy_runnable(source: Path, target: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Copy the modules that can run here; return their descriptors, and what the others lack."""
    present: dict[str, Any] = {}
    missing: dict[str, str] = {}
    policy = source / POLICY
    if policy.exists():
        target.mkdir()
        shutil.copyfile(policy, target / POLICY)
    for path in sorted(source.glob("*/module.json")):
        try:
            descriptor = json.loads(path.read_text(encoding="utf-8"))
            name, program = descriptor["name"], descriptor["transport"]["command"][0]
        except (ValueError, LookupError, TypeError):
            # Not for us to judge: `stdiod validate` says what is wrong with it.
            shutil.copytree(path.parent, target / path.parent.name)
            continue
        if name == COMPILED:
            program = (shlex.split(os.environ.get("CC", "")) or ["cc"])[0]
        if "/" in program or shutil.which(program):
            shutil.copytree(path.parent, target / path.parent.name)
            present[name] = descriptor
        else:
            missing[name] = f"there is no {program} here"
    return present, missing


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one object per step")
    parser.add_argument(
        "--modules", type=Path, default=MODULES, metavar="DIR", help="instead of the samples"
    )
    return parser.parse_args()


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
