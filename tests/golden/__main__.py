"""Play the scenarios, or write down what comes out: `make golden`."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.golden.runner import difference, groups, heed_interrupts, record


def main() -> None:
    parser = argparse.ArgumentParser(prog="make golden", description=__doc__)
    parser.add_argument("group", nargs="*", help="only these, such as `calls`")
    parser.add_argument("--record", action="store_true", help="write down what comes out")
    parser.add_argument(
        "--stdiod", type=Path, help="another stdiod than the one beside this Python"
    )
    parser.add_argument("--at-a-time", type=int, default=4)
    options = parser.parse_args()
    heed_interrupts()
    stdiod = (options.stdiod or Path(sys.executable).with_name("stdiod")).absolute()
    wanted = [path for path in groups() if not options.group or path.stem in options.group]

    def play(path: Path) -> str:
        if options.record:
            record(path, stdiod)
            return ""
        return difference(path, stdiod)

    with ThreadPoolExecutor(options.at_a_time) as pool:
        differences = [found for found in pool.map(play, wanted) if found]
    sys.stdout.writelines(f"{found}\n" for found in differences)
    if not options.record:
        sys.stdout.write(f"{len(wanted)} groups were played, {len(differences)} differ\n")
    sys.exit(bool(differences))


main()
