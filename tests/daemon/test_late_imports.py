from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.daemon import late_imports
from tests.bounds import WAIT_S

NAME = "imported_late"
EXECUTED = """
import sys
sys.executions = getattr(sys, "executions", 0) + 1
class Kind: pass
WORD = "there"
"""


@pytest.fixture(autouse=True)
def seldom_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{NAME}.py").write_text(EXECUTED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(late_imports, "SELDOM_USED", (NAME,))
    monkeypatch.setattr(logging, "logAsyncioTasks", True, raising=False)
    monkeypatch.setattr(sys, "executions", 0, raising=False)
    yield
    sys.modules.pop(NAME, None)


def executions() -> int:
    return int(sys.executions)  # type: ignore[attr-defined]


def test_a_module_is_imported_by_its_first_use_and_not_by_an_import() -> None:
    late_imports.put_off()
    early = importlib.import_module(NAME)
    assert executions() == 0
    assert early.WORD == "there"
    assert executions() == 1
    late = importlib.import_module(NAME)
    assert early.Kind is late.Kind
    assert late.__file__ is not None
    assert executions() == 1


def test_what_a_module_does_not_have_its_stand_in_has_not_either() -> None:
    late_imports.put_off()
    with pytest.raises(AttributeError, match=f"'{NAME}' has no attribute 'missing'"):
        _ = importlib.import_module(NAME).missing


def test_what_is_imported_already_stays() -> None:
    there = importlib.import_module(NAME)
    late_imports.put_off()
    assert sys.modules[NAME] is there


def test_threads_that_use_it_first_at_the_same_time_import_it_once() -> None:
    late_imports.put_off()
    early = importlib.import_module(NAME)
    at_once = threading.Barrier(8)
    words: list[str] = []

    def use() -> None:
        at_once.wait(WAIT_S)
        words.append(early.WORD)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(WAIT_S)
    assert words == ["there"] * 8
    assert executions() == 1
