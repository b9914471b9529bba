"""The figures of the README's comparison are those that stand where its links lead."""

from __future__ import annotations

import re

import pytest

from scripts.bench.table import SCENES, modules_named
from tests.docs.markdown import read, rows

README = "README.md"
SUPERVISORS = {cells[0]: cells[1:] for cells in rows("docs/faults.md", "Fault")}
HOSTS = {cells[0]: cells[1:] for cells in rows("docs/mcp.md", "")}
COMPARED = {cells[0]: cells[1:] for cells in rows(README, "")}
"""The columns are stdiod, supervisord, and in one table systemd and MCP gateways, too."""


def linked(cell: str) -> str | None:
    found = re.match(r"\[([^]]+)\]", cell)
    return found[1].strip("`") if found else None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            "After `kill -9` of it: still running, of 3",
            "supervisor killed with `kill -9`: left of a child, its grandchild and an escapee",
        ),
        (
            "After a stop: a grandchild in a session of its own (`setsid`)",
            "grandchild in a session of its own (`setsid`): left after a stop",
        ),
        (
            "From a crash to the next process, a Python program (see below)",
            "crash, 1.5 s after its start, to the next process running",
        ),
        ("Memory with 50 idle children", "memory (PSS) with 50 idle children"),
    ],
)
def test_a_figure_is_the_measured_one(ours: str, theirs: str) -> None:
    stdiod, supervisord, *_ = COMPARED[ours]
    measured = SUPERVISORS[theirs]
    assert [linked(stdiod), linked(supervisord)] == [one.split(" (")[0] for one in measured[:2]]


def test_a_figure_of_the_benchmarks_is_the_measured_one() -> None:
    sections = {
        re.sub(r"[^\w -]", "", part.partition("\n")[0].lower()).strip().replace(" ", "-"): part
        for part in read("docs/benchmarks.md").split("\n## ")[1:]
    }
    linked_to = re.findall(r"\[([\d.,]+) ([^]]+)\]\(docs/benchmarks.md#([\w-]+)\)", read(README))
    assert linked_to
    for number, unit, anchor in linked_to:
        assert f"| {unit} |" in sections[anchor], anchor
        assert re.search(
            rf"^\| (?:stdiod|C) \| {re.escape(number)} ", sections[anchor], re.MULTILINE
        )


def test_a_time_of_a_call_is_what_its_rate_comes_to() -> None:
    for time_ms, rate in re.findall(r"([\d.]+) ms: \[([\d,]+) calls/s\]", read(README)):
        assert time_ms == f"{1000 / int(rate.replace(',', '')):.2f}"


def test_what_supervisors_say_of_a_death_is_what_was_seen() -> None:
    _, supervisord, *_ = COMPARED["After a crash, what it records"]
    measured = SUPERVISORS["what it still says of a death once the next process runs"]
    assert linked(supervisord) == measured[1]


def test_what_mcp_gateways_do_is_what_was_seen() -> None:
    left = COMPARED["After `kill -9` of it: still running, of 3"][3]
    killed = next(cells for fault, cells in HOSTS.items() if fault.startswith("host killed with"))
    assert {one.split(" of ")[0] for one in killed[1:]} == {linked(left)}
    words = linked(COMPARED["After a crash, what the caller of the request is told"][3])
    died = next(
        cells for fault, cells in HOSTS.items() if fault.startswith("server dies in a call")
    )
    assert all(str(words) in one for one in died[1:])


def test_the_processes_of_many_clients_are_those_that_were_counted() -> None:
    [scene] = [scene for scene in SCENES if scene.name == "clients"]
    servers = modules_named(*scene.modules)
    [counted] = [
        cells[1:]
        for cells in rows("docs/mcp-clients.md", f"{scene.count} clients, {len(servers)} servers")
        if cells[0] == "processes"
    ]
    said = re.findall(r"\[(\d+)[^]]*\]\(docs/mcp-clients.md#twenty-clients\)", read(README))
    assert sorted(said) == sorted(counted)
