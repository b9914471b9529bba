"""Measure stdiod beside its peers: `make bench`, or `python -m scripts.bench --help`.

Each round runs every scene once, and within a scene each peer right beside ours, so that whatever
else the machine does meets all of them alike. Ratios travel from machine to machine; the absolute
figures are this one's.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog
import trio

from scripts.bench import command_line, in_process, memory, over_socket, patches, warm
from scripts.bench.report import print_json, print_table
from scripts.bench.rows import Sample, results
from scripts.bench.sizes import FULL, QUICK, Sizes
from scripts.bench.workshop import Workshop

Scene = Callable[[Workshop, Sizes], Awaitable[list[Sample]]]

SCENES: dict[str, Scene] = {
    "stream": in_process.stream,
    "patch": patches.patch,
    "invoke": in_process.invoke,
    "socket": over_socket.invoke,
    "tool": in_process.tool,
    "warm": warm.warm,
    "crash": in_process.crash,
    "fleet": command_line.fleet,
    "command": command_line.command,
    "journal": memory.journal,
}


def main() -> None:
    """Measure what was asked for and print it."""
    options = _options()
    sizes = QUICK if options.quick else FULL
    if options.rounds is not None:
        sizes = dataclasses.replace(sizes, rounds=options.rounds)
    # A daemon in this process would log its modules' lives among the results.
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    with tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder:
        try:
            workshop = Workshop(Path(folder))
        except FileNotFoundError as error:
            sys.exit(f"bench: {error}")
        if workshop.node is None:
            say("there is no `node` here, so that peer is left out")
        found = results(trio.run(_rounds, workshop, sizes, options.scenes or list(SCENES)))
    if options.json:
        print_json(found)
    else:
        print_table(found)
        if options.quick:
            say("quick: this shows that it works; measure without it")


async def _rounds(workshop: Workshop, sizes: Sizes, names: list[str]) -> list[list[Sample]]:
    rounds: list[list[Sample]] = []
    for number in range(1, sizes.rounds + 1):
        samples: list[Sample] = []
        for name in names:
            say(f"round {number} of {sizes.rounds}: {name}")
            samples += await SCENES[name](workshop, sizes)
        rounds.append(samples)
    return rounds


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)}")
    parser.add_argument("--quick", action="store_true", help="only see whether it works")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="how often to measure")
    parser.add_argument("--json", action="store_true", help="print one object per row")
    options = parser.parse_args()
    unknown = sorted(set(options.scenes) - set(SCENES))
    if unknown:
        parser.error(f"there is no scene {unknown[0]!r}; there are {', '.join(SCENES)}")
    return options


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        message = "at least 1"
        raise argparse.ArgumentTypeError(message)
    return number


def say(what: str) -> None:
    """Tell those who wait, beside the results."""
    print(f"bench: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
