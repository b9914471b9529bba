"""What `doctor` says of the operator's policy: a file that is bad, odd, or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.examination import examine_policy
from supervisor.cli.machine import DoctorFinding
from supervisor.policy.capabilities import METHODS
from tests.factories import descriptor


def only(found: list[DoctorFinding]) -> DoctorFinding:
    (one,) = found
    assert one.area == "policy"
    assert one.hint or one.level == "ok"
    return one


def status(path: Path | None, problem: str | None = None) -> dict[str, Any]:
    used = None if path is None else {"path": str(path), "mode": "strict", "problem": problem}
    return {"daemon": {"policy": used}, "modules": [{"name": "store"}]}


def test_a_bad_file_is_named_with_its_key_and_what_would_be_right(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("mode = 'strict'\nalow = []\nzzz = 1\n")
    one = only(examine_policy(path, None, []))
    assert one.level == "bad"
    assert f"{path}: alow: unknown key; did you mean 'allow'?" in one.message
    assert "no daemon would start with it" in one.message
    known = "mode, allow, deny, modules, $schema"
    assert one.evidence == (f"{path}: zzz: unknown key; known are {known}",)
    assert one.hint is not None
    assert f"stdiod policy check {path}" in one.hint


@pytest.mark.parametrize("make", [Path.mkdir, lambda _path: None], ids=["folder", "nothing"])
def test_a_file_that_cannot_be_read_is_bad(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "policy.toml"
    make(path)
    one = only(examine_policy(path, None, []))
    assert (one.level, f"{path}: cannot be read" in one.message) == ("bad", True)


def test_of_a_daemon_that_runs_it_is_the_file_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("mode = 3\n")
    one = only(examine_policy(None, status(path), []))
    assert (one.level, "the last good one" in one.message) == ("bad", True)
    assert one.hint is not None
    assert one.hint.endswith("`stdiod reload`")
    path.write_text("mode = 'strict'\n[modules.store]\nallow = ['log']\n")
    one = only(examine_policy(None, status(path, "it was bad"), []))
    assert (one.level, one.hint) == ("warn", "`stdiod reload` reads it")
    assert only(examine_policy(None, status(path), [])).level == "ok"


def test_what_a_file_probably_does_not_mean_is_a_warning_with_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("allow = ['log']\ndeny = ['log']\n[modules.stor]\n")
    one = only(examine_policy(path, status(None), []))
    assert one.level == "warn"
    assert [line.split(": ")[1] for line in one.evidence] == ["allow[0]", "modules.stor"]
    assert "did you mean 'store'?" in one.evidence[1]
    assert (
        len(only(examine_policy(path, None, [])).evidence) == 1
    )  # no modules are known: all may be


@pytest.mark.parametrize("asked", [*METHODS, "*", "session.*", "module.invoke:kv.get"])
@pytest.mark.parametrize("runs", [True, False], ids=["runs", "no daemon"])
def test_without_a_file_whoever_asks_for_something_is_named(
    tmp_path: Path, asked: str, *, runs: bool
) -> None:
    asking = descriptor(tmp_path, ["cat"], name="asker", capabilities=["fs.read", asked])
    one = only(examine_policy(None, status(None) if runs else None, [asking]))
    assert (one.level, "no policy file" in one.message) == ("warn", True)
    assert "asker" in one.message


def test_without_a_file_nothing_is_said_where_nobody_asks_the_host_for_anything(
    tmp_path: Path,
) -> None:
    quiet = descriptor(tmp_path, ["cat"], name="quiet", capabilities=["fs.read", "logs", "login"])
    assert examine_policy(None, None, [quiet]) == []
    assert examine_policy(None, status(None), []) == []
