from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from scripts.peers import environments, install
from scripts.peers.supervisors import PEERS, Circus, Packaged, Supervisord


def installed(folder: Path, package: str, version: str) -> None:
    site = folder / package / "lib" / "python3.11" / "site-packages"
    facts = site / f"{package}-{version}.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


def test_a_version_is_found_in_the_environment_of_its_package_only(tmp_path: Path) -> None:
    installed(tmp_path, "circus", "7.8")
    assert environments.version("circus", tmp_path) == "7.8"
    assert environments.version("mcp", tmp_path) is None
    # What is installed where this runs is not in question.
    assert environments.version("pytest", tmp_path) is None


def test_each_packaged_supervisor_has_an_environment_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Packaged, "environments", tmp_path)
    installed(tmp_path, "supervisor", "9.9")
    assert Supervisord.version() == "9.9"
    assert Circus.version() is None
    packaged = [peer.package for peer in PEERS if issubclass(peer, Packaged)]
    assert set(packaged) <= set(environments.PACKAGES)


def test_what_is_there_is_not_installed_again(tmp_path: Path) -> None:
    installed(tmp_path, "circus", "7.8")
    said: list[str] = []
    install.from_pypi("circus", said.append, tmp_path)
    assert said == []


def test_one_that_cannot_be_installed_leaves_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_environment(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "ensurepip")

    monkeypatch.setattr(venv, "create", no_environment)
    said: list[str] = []
    install.from_pypi("circus", said.append, tmp_path)
    assert "no environment could be made" in said[-1]
    assert "no environment could be made" in environments.why_missing("circus", tmp_path)


def test_the_last_line_of_a_failing_installer_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stand_in(where: Path, **_: object) -> None:
        python = where / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho first >&2\necho no such network >&2\nexit 1\n")
        python.chmod(0o755)

    monkeypatch.setattr(venv, "create", stand_in)
    install.from_pypi("mcp", lambda _: None, tmp_path)
    assert environments.why_missing("mcp", tmp_path) == "no such network"


@pytest.mark.parametrize(
    ("there", "user", "why"),
    [((), 0, "there is no apt-get here"), (("apt-get",), 1000, "apt-get needs root")],
)
def test_s6_is_named_as_missing_where_debian_cannot_be_asked(
    there: tuple[str, ...], user: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    install.s6_from_debian(lambda _: None, tmp_path)
    assert why in environments.why_missing("s6", tmp_path)


def test_one_that_was_never_tried_says_how(tmp_path: Path) -> None:
    assert environments.why_missing("mcp", tmp_path) == environments.HOW
    environments.note_failure("mcp", "", tmp_path)
    assert environments.why_missing("mcp", tmp_path) == environments.HOW
