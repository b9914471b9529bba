"""What a registry failed to hand over is asked for again; an environment is there whole, or not."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from scripts.foreign import TRIES, Environment

PACKAGES = ("one==1",)


@pytest.mark.parametrize(
    ("failures", "tries", "is_made"),
    [(0, 1, True), (2, 3, True), (TRIES, TRIES, False)],
)
def test_an_installer_that_fails_is_tried_again(
    failures: int, tries: int, is_made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        status = int(len(asked) <= failures)
        return subprocess.CompletedProcess(command, status, "first\nno such network\n")

    monkeypatch.setattr(venv, "create", lambda folder, **_: folder.mkdir())
    monkeypatch.setattr(subprocess, "run", run)
    folder = tmp_path / "own"
    environment = Environment(folder, PACKAGES)
    why = environment.install()
    assert len(asked) == tries
    assert why in (None, "no such network")
    assert (why is None) == environment.is_installed() == is_made
