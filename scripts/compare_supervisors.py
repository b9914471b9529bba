"""Compare stdiod with supervisord, circus and s6: `python -m scripts.compare_supervisors --help`.

The same small programs run under each, round by round and one right after the other, so that
whatever else the machine does meets all of them alike. supervisord and circus are installed from
PyPI into environments of their own, as for `make bench-peers`; s6 is Debian's package, if it is
there. Nothing is left running, and no network is used but to install.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.compare.faults import FAULTS, Fault, Value
from scripts.compare.report import (
    Machine,
    Samples,
    document,
    from_document,
    words,
    written_into,
)
from scripts.peers import environments, install
from scripts.peers.supervisor import Supervisor
from scripts.peers.supervisors import PEERS, Packaged

PAGE = Path(__file__).parents[1] / "docs" / "faults.md"


def main() -> None:
    """Measure what was asked for, and print or write it."""
    options = _options()
    if options.read:
        found = json.loads(options.read.read_text(encoding="utf-8"))
        samples, machine = from_document(found)
    else:
        samples, machine = _compared(options)
    print(json.dumps(document(samples, machine)) if options.json else words(samples, machine))
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written_into(page, words(samples, machine)), encoding="utf-8")


def _compared(options: argparse.Namespace) -> tuple[Samples, Machine]:
    chosen = [peer for peer in PEERS if not options.only or peer.name in options.only]
    if any(issubclass(peer, Packaged) for peer in chosen):
        Packaged.environments = options.environments
        _install(chosen)
    versions = {peer.name: version for peer in chosen if (version := peer.version())}
    peers = [peer for peer in chosen if peer.name in versions]
    faults = [fault for fault in FAULTS if not options.faults or fault.key in options.faults]
    samples = _measured(peers, faults, options.rounds)
    machine = Machine(
        date=f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}",
        machine=f"{os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}",
        rounds=options.rounds,
        versions=versions,
        missing=[peer.name for peer in chosen if peer.name not in versions],
    )
    return samples, machine


def _measured(
    peers: list[type[Supervisor]], faults: list[Fault], rounds: int
) -> dict[str, dict[str, list[Value]]]:
    samples: dict[str, dict[str, list[Value]]] = {
        fault.key: {peer.name: [] for peer in peers} for fault in faults
    }
    for number in range(rounds):
        for fault in faults:
            for peer in peers if not (fault.once and number) else ():
                try:
                    value = fault.scene(peer)
                except (TimeoutError, subprocess.TimeoutExpired, ValueError, LookupError) as error:
                    value = f"not measured ({type(error).__name__})"
                    print(f"{peer.name}: {error}", file=sys.stderr)
                samples[fault.key][peer.name].append(value)
                print(f"round {number + 1}: {fault.key}: {peer.name}: {value}", file=sys.stderr)
    return samples


def _install(chosen: list[type[Supervisor]]) -> None:
    """Install the packaged peers that are not there; none is a must."""
    for peer in chosen:
        if issubclass(peer, Packaged):
            install.from_pypi(peer.package, _say, Packaged.environments)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", help="these rows only", metavar="ROW")
    parser.add_argument("--only", action="append", choices=[peer.name for peer in PEERS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--read", type=Path, help="measure nothing; take what --json printed")
    parser.add_argument("--write", action="store_true", help="put the result into docs/faults.md")
    parser.add_argument(
        "--environments",
        type=Path,
        default=environments.FOLDER,
        help="where supervisord and circus are, or will be, installed",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
