from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from scripts.bench import peers

PYPI = [package for package in peers.PACKAGES.values() if package != peers.DEBIAN]


def installed(folder: Path, package: str, version: str) -> None:
    site = folder / package / "lib" / "python3.11" / "site-packages"
    facts = site / f"{package}-{version}.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


@pytest.fixture
def no_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)


def test_a_version_is_found_in_the_environment_of_its_package_only(tmp_path: Path) -> None:
    installed(tmp_path, "circus", "7.8")
    assert peers.version("circus", tmp_path) == "7.8"
    assert peers.version("mcp", tmp_path) is None
    # What is installed where this runs is not in question.
    assert peers.version("pytest", tmp_path) is None


@pytest.mark.usefixtures("no_debian")
def test_what_is_there_is_not_installed_again_and_what_cannot_be_leaves_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_environment(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "ensurepip")

    monkeypatch.setattr(venv, "create", no_environment)
    for package in PYPI[1:]:
        installed(tmp_path, package, "7.8")
    peers.install(tmp_path)
    assert "no environment could be made" in peers.why_missing("mcp", tmp_path)
    assert [peers.why_missing(one, tmp_path) for one in PYPI[1:]] == [peers.HOW] * 2


@pytest.mark.parametrize(
    ("there", "user", "why"),
    [((), 0, "there is no apt-get here"), (("apt-get",), 1000, "apt-get needs root")],
)
def test_s6_is_named_as_missing_where_debian_cannot_be_asked(
    there: tuple[str, ...], user: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    for package in PYPI:
        installed(tmp_path, package, "7.8")
    peers.install(tmp_path)
    assert why in peers.why_missing("s6", tmp_path)


def test_one_that_was_never_tried_says_how(tmp_path: Path) -> None:
    assert peers.why_missing("mcp", tmp_path) == peers.HOW
