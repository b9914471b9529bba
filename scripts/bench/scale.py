"""The scene of many modules: what start, memory, idling, reload and invoke cost as they grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import psutil
import trio

from scripts.bench.growth import (
    FIRST,
    IDLE,
    INVOKE,
    LAZY,
    MEMORY,
    RELOAD,
    RUNNING,
    START,
    STOP,
    Point,
)
from scripts.bench.over_socket import Client
from scripts.bench.sizes import Sizes
from scripts.bench.supervised import watched
from scripts.bench.workshop import Stdiod, Workshop
from scripts.peers.turn import family


async def scale(workshop: Workshop, sizes: Sizes) -> list[Point]:
    """Measure a daemon with more and more modules, running ones and lazy ones."""
    points: list[Point] = []
    for of, counts in ((RUNNING, sizes.running), (LAZY, sizes.lazy)):
        for size in counts:
            points += await trio.to_thread.run_sync(_measured, workshop, sizes, of, size)
    return points


def _measured(workshop: Workshop, sizes: Sizes, of: str, size: int) -> list[Point]:
    start = "lazy" if of == LAZY else "eager"
    documents = [workshop.native(f"m-{number:05}", start=start) for number in range(size)]
    stdiod = Stdiod(workshop, *documents)
    try:
        start_s = stdiod.up()
        daemon = stdiod.status()["daemon"]["pid"]
        idle, pss_bytes = watched(_helpers(daemon, workshop), sizes.idle_s)
        values = {START: start_s, MEMORY: pss_bytes / 1e6, IDLE: idle * 100}
        with Client(stdiod.socket) as client:
            values |= _asked(client, stdiod, documents, sizes, of)
        values[STOP] = stdiod.cost("down").wall_s
    finally:
        stdiod.end()
    return [Point(of, measure, size, value) for measure, value in values.items()]


def _asked(
    client: Client, stdiod: Stdiod, documents: list[dict[str, Any]], sizes: Sizes, of: str
) -> dict[str, float]:
    asked, changed = documents[0]["name"], documents[-1]
    values: dict[str, float] = {}
    first_s = client.invoke(asked, "stream", {"n": 0})
    if of == LAZY:
        values[FIRST] = first_s * 1000
    latencies_s = [client.invoke(asked, "stream", {"n": 0}) for _ in range(sizes.latencies)]
    values[INVOKE] = median(latencies_s) * 1000
    _change(stdiod, changed)
    # The daemon may have seen the change by itself; then this waits for what it does about it.
    values[RELOAD] = client.invoke("supervisor", "reload", {})
    return values


def _change(stdiod: Stdiod, document: Mapping[str, Any]) -> None:
    supervision = {**document["supervision"], "queue": 7}
    text = json.dumps({**document, "supervision": supervision})
    (stdiod.folder / f"{document['name']}.json").write_text(text)


def _helpers(pid: int, workshop: Workshop) -> Iterator[psutil.Process]:
    module = workshop.program("native")
    return (process for process in family(pid) if process.exe() != module)
