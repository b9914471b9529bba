"""`stdiod check` judged: good modules pass, and each mistake breaks its own clause alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.cli.checking import examined
from supervisor.conformance import clauses, persistent
from supervisor.conformance.examination import Permission
from supervisor.conformance.report import Report, Status, Verdict
from supervisor.conformance.trial import Place
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.files.directory import read_descriptor
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.supervision.deadlines import Deadlines
from tests.conformance.zoo import SPECIES, ZOO, Broken, animal
from tests.docs.markdown import rows
from tests.modules.samples import DESCRIPTORS, MODULES

ALL = Permission({}, all_ops=True)
BAD = (Status.FAILS, Status.WARNING)


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ten calls show what a thousand do; a test's module grows by 4 MiB with each."""
    monkeypatch.setattr(persistent, "SETTLING_CALLS", 5)
    monkeypatch.setattr(persistent, "ALL_CALLS", 10)


async def report_of(folder: Path, descriptor: Descriptor, permission: Permission = ALL) -> Report:
    log_files, deadlines = LogFiles(folder / "logs"), Deadlines()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        place = Place(os.environ, Custody.bare(), log_files, deadlines)
        report = await examined(descriptor, place, permission)
        nursery.cancel_scope.cancel()
    log_files.close()
    return report


def by_status(report: Report, *statuses: Status) -> dict[str, str]:
    return {one.clause: one.words for one in report.findings if one.status in statuses}


@pytest.mark.parametrize("species", SPECIES)
async def test_a_module_that_does_all_right_holds_to_every_clause(
    tmp_path: Path, species: str
) -> None:
    report = await report_of(tmp_path, animal(tmp_path, species))
    assert by_status(report, *BAD, Status.NOT_TRIED, Status.NOT_JUDGED) == {}
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


def test_every_clause_of_every_suite_has_a_mistake_that_breaks_it() -> None:
    broken = {one.clause for one in ZOO}
    assert (
        broken
        == set(clauses.CLAUSES)
        == {name for names in clauses.SUITES.values() for name in names}
    )


@pytest.mark.parametrize("name", DESCRIPTORS)
async def test_no_clause_fails_for_a_sample_of_which_no_op_is_called(
    tmp_path: Path, name: str
) -> None:
    descriptor = read_descriptor(MODULES / name / "module.json")
    report = await report_of(tmp_path, descriptor, Permission({}))
    assert by_status(report, *BAD) == {}


def test_the_clauses_are_listed_for_those_who_write_modules() -> None:
    table = [tuple(row) for row in rows("docs/writing-a-module.md", "Clause")]
    assert table == [(f"`{one.name}`", one.must, one.source) for one in clauses.CLAUSES.values()]
