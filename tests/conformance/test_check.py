"""`stdiod check` judged: good modules pass, and each mistake breaks its own clause alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio

from protocol.descriptor.model import Timeouts
from supervisor.conformance import clauses, plays
from supervisor.conformance.clauses import ClauseStatus, Verdict
from supervisor.conformance.examination import Permission
from supervisor.runtime.files.directory import read_descriptor
from tests.conformance.examining import BAD, by_status, report_of
from tests.conformance.zoo import SPECIES, ZOO, Broken, animal
from tests.docs.markdown import DOCUMENTS, anchors, rows
from tests.kernel.service_peer import LOG, Asked, Script, peer, says, streamed, whole
from tests.modules.samples import DESCRIPTORS, MODULES


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ten calls show what a thousand do; a test's module grows by 4 MiB with each."""
    monkeypatch.setattr(plays, "SETTLING_CALLS", 5)
    monkeypatch.setattr(plays, "ALL_CALLS", 10)


@pytest.mark.parametrize("species", SPECIES)
async def test_a_module_that_does_all_right_holds_to_every_clause(
    tmp_path: Path, species: str
) -> None:
    told: list[str] = []
    report = await report_of(tmp_path, animal(tmp_path, species), progress=told.append)
    assert "m: starts" in told
    assert any(one.startswith("m: invoke ") for one in told)
    assert by_status(report, *BAD, ClauseStatus.NOT_TRIED, ClauseStatus.NOT_JUDGED) == {}
    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("broken", ZOO, ids=lambda one: one.name)
async def test_a_mistake_breaks_its_own_clause_and_no_other(tmp_path: Path, broken: Broken) -> None:
    made = animal(
        tmp_path,
        broken.species,
        broken.old,
        broken.new,
        supervision=broken.supervision,
        transport=broken.transport,
    )
    report = await report_of(tmp_path, made)
    found = by_status(report, *BAD)
    assert set(found) == {broken.clause}, found
    assert broken.said in found[broken.clause]


async def test_a_schema_of_an_mcp_server_that_cannot_be_used_is_a_warning(tmp_path: Path) -> None:
    wrong = '{"a": {"pattern": "("}, "b": {"type": "objet"}}'
    schema = f'{{"type": "object", "properties": {wrong}}}'
    made = animal(tmp_path, "mcp", '{"type": "object"}', schema)
    report = await report_of(tmp_path, made)
    (warned,) = (one for one in report.findings if one.clause == "schemas")
    assert warned.status is ClauseStatus.WARNING
    assert '/inputs/echo/properties/a/pattern: "(" is not a regular expression' in warned.words
    assert "/inputs/echo/properties/b/type: is not a JSON Schema type" in warned.words
    assert by_status(report, ClauseStatus.FAILS) == {}


async def test_what_a_build_printed_is_shown_if_it_fails(tmp_path: Path) -> None:
    build = ["sh", "-c", "echo main.c:3: no such function; echo 1 error >&2; exit 1"]
    report = await report_of(tmp_path, animal(tmp_path, "module", transport={"prepare": build}))
    (found,) = (one for one in report.findings if one.clause == "prepare")
    assert found.exchanged == ("! main.c:3: no such function", "! 1 error")


def of(operation: str, broken: Script) -> Script:
    """Break one operation of a service."""

    async def script(stream: trio.abc.Stream, asked: Asked) -> None:
        called = asked.path.rpartition("/")[2]
        well = {"health": {"status": "ok"}, "describe": {}, "invoke": {"ok": True, "result": "x"}}
        await (broken if called == operation else says(whole(well[called])))(stream, asked)

    return script


async def refuse_odd(stream: trio.abc.Stream, asked: Asked) -> None:
    odd = {"unknown", "padding"}.intersection(asked.body)
    status = {"unknown": "400 Bad Request", "padding": "413 Content Too Large"}
    answer = whole({"status": "ok"}, status=status[odd.pop()] if odd else "200 OK")
    await stream.send_all(answer)


SERVICES: dict[str, tuple[Script, set[str], str]] = {
    "is well": (of("", says(b"")), set(), ""),
    "answers with another type": (
        of("health", says(whole({}, "text/html"))),
        {"service"},
        "answers with text/html",
    ),
    "is unwell": (of("health", says(whole({"status": "bad"}))), {"health"}, "bad"),
    "is somebody else": (
        of("describe", says(whole({"name": "other"}))),
        {"describe"},
        "with name 'other'",
    ),
    "answers with no JSON": (of("invoke", says(whole(b"nonsense"))), {"lines"}, "not JSON"),
    "refuses what it does not know": (
        of("health", refuse_odd),
        {"unknown fields", "long line"},
        "answers with status 4",
    ),
    "answers without ok": (
        of("invoke", says(whole({"result": 1}))),
        {"answers"},
        '"ok" is missing',
    ),
    "streams with another version": (
        of("invoke", says(streamed({**LOG, "version": "1"}))),
        {"events"},
        '"version"',
    ),
    "gives another result": (
        of("invoke", says(whole({"ok": True, "result": 1}))),
        {"results"},
        "is not a string",
    ),
}


@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_is_held_to_its_clauses(tmp_path: Path, name: str) -> None:
    script, clauses_broken, said = SERVICES[name]
    async with peer() as one:
        one.scripts = {f"m/{operation}": script for operation in ("health", "describe", "invoke")}
        ops = {"inputs": {"echo": {"type": "object"}}, "outputs": {"echo": {"type": "string"}}}
        made = one.service(tmp_path, "m", **ops, supervision={"concurrency": 2})
        report = await report_of(tmp_path, made)
    found = by_status(report, *BAD)
    assert set(found) == clauses_broken
    assert all(said in words for words in found.values()), found
    assert bool(found) or report.verdict is Verdict.PASS


def test_every_clause_of_every_suite_has_a_mistake_that_breaks_it() -> None:
    broken = {one.clause for one in ZOO}.union(*(names for _, names, _ in SERVICES.values()))
    suites = (*clauses.SUITES.values(), clauses.OF_SERVICES)
    assert broken == set(clauses.CLAUSES) == {name for names in suites for name in names}


PARTIAL = {"flaky": {"done", "exit status"}, "moon": {"answers"}, "orchestrator": {"results"}}
"""What is not tried of a sample: of one that fails on purpose, of a prompt, and without a fleet."""


@pytest.mark.parametrize("name", DESCRIPTORS)
async def test_the_samples_hold_to_all_clauses(tmp_path: Path, name: str) -> None:
    descriptor = read_descriptor(MODULES / name / "module.json")
    patient = Timeouts(start_s=60, health_s=60, describe_s=60, invoke_s=60, exit_s=60, stop_s=60)
    supervision = msgspec.structs.replace(descriptor.supervision, timeouts=patient)
    descriptor = msgspec.structs.replace(descriptor, supervision=supervision)
    report = await report_of(tmp_path, descriptor, Permission({}))
    assert by_status(report, *BAD) == {}
    untried = set(by_status(report, ClauseStatus.NOT_TRIED))
    assert untried >= PARTIAL.get(name, set())
    assert bool(untried) is (name in PARTIAL), untried


def test_the_clauses_are_listed_for_those_who_write_modules() -> None:
    table = [tuple(row) for row in rows("docs/writing-a-module.md", "Clause")]
    assert table == [(f"`{one.name}`", one.must) for one in clauses.CLAUSES.values()]


def test_each_document_that_is_cited_is_there_with_its_heading() -> None:
    cited = {one.source for one in clauses.CLAUSES.values()}
    there = {f"{name}#{heading}" for name in DOCUMENTS for heading in anchors(name)}
    assert cited - there == set()
