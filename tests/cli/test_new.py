"""What `stdiod new` begins keeps its protocol, and nothing that is there is overwritten.

A language that is missing here is skipped, and of those that take long to build only one protocol
is tried. With `STDIOD_TEST_LANGUAGES` all are, and none may be missing (`make test-languages`).
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from protocol.descriptor.model import Kind, Lifecycle
from supervisor.cli import module_templates
from supervisor.cli.verbs import new
from supervisor.conformance import persistent
from tests.cli.conftest import Run
from tests.system.descriptors import PATIENT

ALL = "STDIOD_TEST_LANGUAGES" in os.environ
ONCE = {"go": "module", "java": "module", "rust": "mcp"}
TRIED = [
    (lang, protocol)
    for lang in new.LANGUAGES
    for protocol in new.PROTOCOLS
    if lang != "exec" and (ALL or ONCE.get(lang, protocol) == protocol)
]


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistent, "SETTLING_CALLS", 5)
    monkeypatch.setattr(persistent, "ALL_CALLS", 10)
    # bash reads each byte by itself, and Perl's JSON is written in Perl.
    monkeypatch.setattr(persistent, "LONG_BYTES", 1 << 16)


def begun(run: Run, folder: Path, *options: str) -> Path:
    """Begin a module, and return its folder; skips what cannot run here."""
    ended = run("new", "greeter", "--into", str(folder), *options)
    assert ended.exit_code == 0, ended.stderr
    if "in your PATH" in ended.stderr:
        assert not ALL, ended.stderr
        pytest.skip(ended.stderr)
    return folder / "greeter"


def checked(run: Run, folder: Path) -> set[str]:
    """Check a module, which has to pass, and return which clauses the host has to supply."""
    file = folder / "module.json"
    document = json.loads(file.read_text())
    document.setdefault("supervision", {})["timeouts"] = PATIENT
    file.write_text(json.dumps(document))
    ended = run("check", str(folder), "--json")
    (report,) = json.loads(ended.stdout)["modules"]
    found = [one for one in report["findings"] if one["status"] not in ("holds", "not judged")]
    assert {one["status"] for one in found} <= {"supplied"}, found
    return {one["clause"] for one in found}


@pytest.mark.parametrize(("lang", "protocol"), TRIED)
def test_what_is_begun_passes_its_check_and_its_test(
    run: Run, tmp_path: Path, lang: str, protocol: str
) -> None:
    folder = begun(run, tmp_path, "--lang", lang, "--protocol", protocol)
    assert checked(run, folder) <= {"describe"}
    ended = run("replay", str(folder / "test.jsonl"), "--module", str(folder / "module.json"))
    assert ended.exit_code == 0, ended.stdout
    assert "lines as recorded" in ended.stdout


@pytest.mark.parametrize("kind", new.KINDS)
def test_a_module_of_any_kind_has_the_op_of_its_kind(run: Run, tmp_path: Path, kind: str) -> None:
    folder = begun(run, tmp_path, "--lang", "python", "--kind", kind)
    assert checked(run, folder) == {"describe"}
    document = json.loads((folder / "module.json").read_text())
    assert set(document["inputs"]) == {module_templates.PARTS[kind].op}


def test_a_module_can_have_a_process_for_each_request(run: Run, tmp_path: Path) -> None:
    folder = begun(run, tmp_path, "--lang", "python", "--lifecycle", "per-invocation")
    checked(run, folder)
    ended = run("replay", str(folder / "test.jsonl"), "--module", str(folder / "module.json"))
    assert ended.exit_code == 0, ended.stdout


def test_a_command_as_it_is_passes_its_check(run: Run, tmp_path: Path) -> None:
    assert checked(run, begun(run, tmp_path, "--lang", "exec")) == set()


def test_the_choices_are_those_that_there_are() -> None:
    assert set(new.LANGUAGES) == set(module_templates.LANGUAGES)
    assert set(new.KINDS) == set(Kind) == set(module_templates.PARTS)
    assert set(new.LIFECYCLES) == set(Lifecycle)


def test_a_program_that_is_missing_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    ended = run("new", "m", "--lang", "rust", "--into", str(tmp_path))
    assert ended.exit_code == 0
    assert "there is no rustc in your PATH" in ended.stderr


def test_a_folder_that_is_there_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    ended = run("new", "m", "--lang", "exec", "--into", str(tmp_path))
    assert (ended.exit_code, list((tmp_path / "m").iterdir())) == (1, [])
    assert "already exists, and is left as it is" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a/b", "--lang", "exec"), "'a/b' is not a valid module name"),
        (("m", "--lang", "exec", "--protocol", "mcp"), "speaks no protocol; leave out --protocol"),
        (("m", "--lang", "exec", "--kind", "hook"), "cannot be a hook"),
        (
            ("m", "--lang", "c", "--protocol", "mcp", "--lifecycle", "per-invocation"),
            "mcp has no lifecycle per-invocation, it is always persistent",
        ),
    ],
)
def test_what_no_module_can_be_is_refused_before_anything_is_written(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    ended = run("new", *arguments, "--into", str(tmp_path))
    assert (ended.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert said in ended.stderr
