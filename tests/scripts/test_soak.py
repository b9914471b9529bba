from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from scripts.soak.daemon import OWN_BYTES, Report
from scripts.soak.modules import Modules, half_written
from tests.scripts.checkout import WITHIN_S, documents, run

pytestmark = pytest.mark.bound(WITHIN_S)

ACTIONS = 60
SEED = 6688
"""With it a crowd comes among the first actions, the daemon is suspended, killed and ended."""


def test_a_short_soak_loses_nothing_and_leaves_nothing() -> None:
    # How long something takes is for `make soak` to judge.
    done = run("soak", "--actions", str(ACTIONS), "--seed", str(SEED), "--json", "--patient")
    assert done.stdout, done.stderr
    (report,) = documents(done.stdout)
    assert report["faults"] == []
    assert report["clean"] is True
    assert done.returncode == 0, done.stderr
    assert sum(report["actions"].values()) == ACTIONS
    away = report["closed_by_us"] + report["closed_by_kill"]
    assert report["asked"] == report["answered"] + away > 0
    actions = report["actions"]
    assert report["daemons"] == 1 + actions["kill_daemon"] + actions["end_daemon"] > 2
    assert report["refused_connections"] >= actions["crowd"] > 0
    assert actions["suspend"] > 0
    assert report["unhurried"] + away > 0
    assert report["suspensions"] >= actions["suspend"]
    assert 0 < report["peak_bytes"] - report["held_bytes"] < OWN_BYTES


@pytest.mark.parametrize("wrong", [(), ("--minutes", "0"), ("--minutes", "x"), ("--actions", "-1")])
def test_a_soak_without_a_bound_is_refused(wrong: tuple[str, ...]) -> None:
    assert run("soak", *wrong).returncode == 2


def test_whatever_is_in_the_place_of_a_descriptor_is_replaced(tmp_path: Path) -> None:
    modules = Modules(tmp_path / "modules", random.Random(SEED))
    descriptor = tmp_path / "modules" / "plain.json"
    modules.replace("plain", os.mkfifo)
    assert descriptor.is_fifo()
    modules.replace("plain", half_written)
    assert descriptor.is_file()
    modules.replace("plain", os.mkfifo)
    modules.write("plain")
    assert descriptor.is_file()


def test_each_fault_is_in_the_report() -> None:
    report = Report(1, asked=3)
    report.lost.append("plain.go")
    report.processes_left.append("4711 sleep")
    report.files_left.append("9 pipe")
    report.errors.append("supervision failed")
    report.late.append("calm.go")
    report.actions["suspend"] = 4
    stall = {"ms": 50.1, "culprit": "client 3", "doing": "requests", "ts": 1.0}
    for longest, suspended, held, peak in (
        (stall, 2, 1 << 20, OWN_BYTES),
        ({**stall, "ms": 20.0}, 1, 64 << 20, OWN_BYTES + (65 << 20)),
        (None, 0, 200 << 20, OWN_BYTES + (150 << 20)),
    ):
        told = {"longest_stall": longest, "suspensions": {"count": suspended}}
        told["connections"] = {"refused": 8}
        report.note({**told, "held_bytes": {"most": held}}, peak)
    assert len(report.faults()) == 8
    assert (report.refused_connections, report.suspensions) == (24, 3)
    assert report.longest_stall == stall
    assert (report.peak_bytes >> 20, report.held_bytes >> 20) == (215, 64)
    assert "longest stall       50.1 ms, client 3 (requests)" in report.text()
    assert "NOT clean: 8 faults" in report.text()
    assert report.document()["clean"] is False


def test_people_get_a_table() -> None:
    printed = Report(1).text()
    assert "lost                none" in printed
    assert printed.endswith("\nclean")


def test_a_request_that_is_not_accounted_for_is_a_fault() -> None:
    assert Report(1, asked=1).faults() == ["of 1 requests, 0 are accounted for"]
