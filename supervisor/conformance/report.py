"""The findings of each clause, and the verdict on a module."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from xml.etree import ElementTree as ET

import msgspec

from supervisor.conformance.clauses import CLAUSES


class Status(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    WARNING = "warning"
    SUPPLIED = "supplied"
    """The module leaves it to the host, which takes it from the descriptor."""
    NOT_JUDGED = "not judged"
    """The calls for `memory` took too long for a measurement."""
    NOT_TRIED = "not tried"


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105 - no password
    PARTIAL = "partial"
    """Nothing failed, but not all was tried or could be judged."""
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a clause; `op` is the op that was called, if any.

    `exchanged` are the last lines, with `>` those that were sent and `<` those that came, `!` those
    of stderr.
    """

    clause: str
    status: Status
    words: str = ""
    op: str | None = None
    exchanged: tuple[str, ...] = ()
    fix: str = ""

    @property
    def must(self) -> str:
        return CLAUSES[self.clause].must

    @property
    def source(self) -> str:
        return CLAUSES[self.clause].source


class Report(msgspec.Struct, frozen=True, kw_only=True):
    module: str
    descriptor: str
    protocol: str
    lifecycle: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        found = {one.status for one in self.findings}
        if Status.FAILS in found:
            return Verdict.FAIL
        left = found & {Status.NOT_TRIED, Status.NOT_JUDGED}
        return Verdict.PARTIAL if left else Verdict.PASS

    def document(self) -> dict[str, object]:
        findings = [
            {**msgspec.to_builtins(one), "must": one.must, "source": one.source}
            for one in self.findings
        ]
        return {**msgspec.to_builtins(self), "verdict": self.verdict, "findings": findings}


def junit(reports: Sequence[Report]) -> bytes:
    """Return reports as JUnit XML: a suite for each module, a case for each finding."""
    root = ET.Element("testsuites")
    for report in reports:
        cases = report.findings
        failed = sum(one.status is Status.FAILS for one in cases)
        skipped = sum(one.status in (Status.NOT_TRIED, Status.NOT_JUDGED) for one in cases)
        counts = {"tests": len(cases), "failures": failed, "errors": 0, "skipped": skipped}
        facts = {"name": report.module, **{key: str(value) for key, value in counts.items()}}
        suite = ET.SubElement(root, "testsuite", facts)
        for one in cases:
            name = one.clause if one.op is None else f"{one.clause} {_text(one.op)}"
            case = ET.SubElement(suite, "testcase", name=name, classname=report.module)
            told = "\n".join([one.words, f"must: {one.must}", f"fix: {one.fix}", *one.exchanged])
            match one.status:
                case Status.FAILS:
                    failure = ET.SubElement(case, "failure", message=_text(one.words))
                    failure.text = _text(told)
                case Status.NOT_TRIED | Status.NOT_JUDGED:
                    words = f"{one.status}: {one.words}"
                    ET.SubElement(case, "skipped", message=_text(words))
                case Status.WARNING | Status.SUPPLIED:
                    ET.SubElement(case, "system-out").text = _text(f"{one.status}: {told}")
                case Status.HOLDS:
                    pass
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _text(words: str) -> str:
    """Replace characters that XML 1.0 does not allow."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in words)
