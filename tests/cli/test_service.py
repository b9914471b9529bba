"""`stdiod service install`: the unit of docs/systemd.md, with this user's paths."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from supervisor.cli.exit_status import NoError
from supervisor.cli.verbs.admin import quoted
from tests.cli.conftest import Run
from tests.docs.markdown import blocks


@pytest.fixture(autouse=True)
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "my modules").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config" / "systemd" / "user" / "stdiod.service"


def test_the_unit_is_that_of_the_document_but_for_the_command(run: Run, unit: Path) -> None:
    ended = run("service", "install", "my modules")
    assert (ended.exit_code, ended.stdout) == (0, f"wrote {unit}\n")
    assert "systemctl --user enable --now stdiod" in ended.stderr
    documented = next(one.text for one in blocks("docs/systemd.md") if one.language == "ini")
    written = unit.read_text().splitlines()
    (command,) = [line for line in written if line.startswith("ExecStart=")]
    assert command.endswith(f'/stdiod run --log-format json -- "{Path.cwd()}/my modules"')
    own = ("ExecStart=", "Environment=PATH=")
    assert [line for line in written if not line.startswith(own)] == [
        line for line in documented.splitlines() if not line.startswith(own)
    ]


def test_the_unit_has_the_path_of_the_shell_and_what_up_takes(run: Run, unit: Path) -> None:
    Path("p.toml").touch()
    words = ("--http", "127.0.0.1:8080", "--policy", "p.toml")
    path = "/a b/50%:/usr/bin"
    assert run("service", "install", "my modules", *words, env={"PATH": path}).exit_code == 0
    written = unit.read_text()
    assert '\nEnvironment="PATH=/a b/50%%:/usr/bin"\n' in written
    assert f" run --policy {Path.cwd()}/p.toml --http 127.0.0.1:8080 --log-format json" in written


@pytest.mark.parametrize("words", [("--http", "nonsense"), ("--policy", "none.toml")])
def test_what_up_would_refuse_stands_in_no_unit(
    run: Run, unit: Path, words: tuple[str, str]
) -> None:
    assert run("service", "install", "my modules", *words).exit_code == 2
    assert not unit.exists()


def stand_in(folder: Path, status: int) -> dict[str, str]:
    """Put a systemctl into PATH that notes what it is asked, and ends with a status."""
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\nexit {status}\n')
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_uninstall_stops_disables_and_removes_and_then_says_that_nothing_is_there(
    run: Run, unit: Path, tmp_path: Path
) -> None:
    environment = stand_in(tmp_path / "bin", 0)
    run("service", "install", "my modules")
    ended = run("service", "uninstall", env=environment)
    assert (ended.exit_code, ended.stdout) == (0, f"removed {unit}\n")
    assert not unit.exists()
    asked = (tmp_path / "bin" / "asked").read_text()
    assert asked == "--user disable --now stdiod\n--user daemon-reload\n"
    again = run("service", "uninstall", env=environment)
    assert (again.exit_code, again.stdout) == (0, f"nothing to remove: there is no {unit}\n")


@pytest.mark.parametrize("there_is_one", [True, False])
def test_without_systemd_the_unit_is_removed_and_what_is_left_to_do_is_said(
    run: Run, unit: Path, tmp_path: Path, there_is_one: bool
) -> None:
    failing = stand_in(tmp_path / "bin", 1)
    run("service", "install", "my modules")
    enabled = unit.parent / "default.target.wants" / unit.name
    enabled.parent.mkdir()
    enabled.symlink_to(unit)
    ended = run("service", "uninstall", env=failing if there_is_one else {"PATH": "/nowhere"})
    assert (ended.exit_code, ended.stdout) == (1, f"removed {unit}\n")
    assert "systemctl --user daemon-reload && systemctl --user stop stdiod\n" in ended.stderr
    assert not unit.exists()
    assert not enabled.is_symlink()


def test_a_unit_that_cannot_be_removed_is_named(run: Run, unit: Path, tmp_path: Path) -> None:
    unit.mkdir(parents=True)
    ended = run("service", "uninstall", env=stand_in(tmp_path / "bin", 0))
    assert ended.exit_code == 1
    assert f"{unit} cannot be removed: " in ended.stderr


def test_systemd_finds_nothing_wrong_with_it(run: Run, unit: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    run("service", "install", "my modules")
    ended = subprocess.run(
        ["systemd-analyze", "--user", "verify", unit], capture_output=True, text=True, check=False
    )
    assert "stdiod.service" not in ended.stderr


def test_a_unit_of_somebody_else_stays_unless_force_is_said(run: Run, unit: Path) -> None:
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]\n")
    refused = run("service", "install", "my modules")
    assert refused.exit_code == 1
    assert "--force overwrites it" in refused.stderr
    assert unit.read_text() == "[Unit]\n"
    assert run("service", "install", "my modules", "--force").exit_code == 0
    assert run("service", "install", "my modules").exit_code == 0  # it is the same


def test_it_can_be_printed_and_takes_a_configuration(run: Run, unit: Path, tmp_path: Path) -> None:
    (tmp_path / "f.toml").touch()
    printed = run("service", "install", "--config", "f.toml", "--print").stdout
    assert f"run --config {tmp_path}/f.toml --log-format json\n" in printed
    assert not unit.exists()


def test_what_it_is_to_run_has_to_be_said(run: Run) -> None:
    ended = run("service", "install")
    assert ended.exit_code == 2
    assert "name a DIR with modules, or a --config" in ended.stderr


@pytest.mark.parametrize(
    ("word", "shown"),
    [("/a/b-c", "/a/b-c"), ("/a b", '"/a b"'), ("/50%/$x", "/50%%/$$x"), ('a"\\', '"a\\"\\\\"')],
)
def test_a_path_stands_in_a_unit_as_systemd_reads_it(word: str, shown: str) -> None:
    assert quoted(word) == shown


def test_a_path_of_two_lines_is_refused() -> None:
    with pytest.raises(NoError, match="more than one line"):
        quoted("a\nb")
