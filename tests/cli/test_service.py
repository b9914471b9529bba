"""`stdiod service install`: the unit of docs/systemd.md, with this user's paths."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from supervisor.cli.exit_status import NoError
from supervisor.cli.verbs.service import quoted
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
    assert [line for line in written if line != command] == [
        line for line in documented.splitlines() if not line.startswith("ExecStart=")
    ]


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
