"""What `stdiod new` begins keeps its protocol, and nothing that is there is overwritten."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from supervisor.cli.verbs.new import LANGUAGES
from supervisor.conformance import persistent
from tests.cli.conftest import Run


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_is_begun_passes_its_check(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lang: str
) -> None:
    monkeypatch.setattr(persistent, "ALL_CALLS", persistent.SETTLING_CALLS)
    begun = run("new", "greeter", "--lang", lang, "--into", str(tmp_path))
    assert begun.exit_code == 0
    needs = LANGUAGES[lang].needs
    if shutil.which(needs) is None:
        assert f"there is no {needs} in your PATH" in begun.stderr
        pytest.skip(f"{needs} is missing")
    ended = run("check", str(tmp_path / "greeter"), "--json")
    (report,) = json.loads(ended.stdout)["modules"]
    found = {one["clause"]: one for one in report["findings"] if one["status"] != "holds"}
    assert set(found) <= {"describe"}, found
    assert report["verdict"] == "pass"


def test_a_folder_that_is_there_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    ended = run("new", "m", "--lang", "exec", "--into", str(tmp_path))
    assert (ended.exit_code, list((tmp_path / "m").iterdir())) == (1, [])
    assert "already exists, and is left as it is" in ended.stderr


def test_a_name_that_no_module_can_have_is_refused_before_anything_is_written(
    run: Run, tmp_path: Path
) -> None:
    ended = run("new", "a/b", "--lang", "exec", "--into", str(tmp_path))
    assert (ended.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "'a/b' is not a valid module name" in ended.stderr
