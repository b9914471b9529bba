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

import schemas
from protocol.descriptor.model import Kind, Lifecycle
from supervisor.cli import module_templates
from supervisor.cli.verbs import writing
from supervisor.conformance import plays
from tests.cli.conftest import Run
from tests.system.descriptors import PATIENT

ALL = "STDIOD_TEST_LANGUAGES" in os.environ
ONCE = {"go": "module", "java": "module", "rust": "mcp"}
TRIED = [
    (lang, protocol)
    for lang in writing.LANGUAGES
    for protocol in writing.PROTOCOLS
    if lang != "exec" and (ALL or ONCE.get(lang, protocol) == protocol)
]


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plays, "SETTLING_CALLS", 5)
    monkeypatch.setattr(plays, "ALL_CALLS", 10)
    # bash reads each byte by itself, and Perl's JSON is written in Perl.
    monkeypatch.setitem(plays.ODD_FIELDS, "long line", {"padding": "x" * (1 << 16)})


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


@pytest.mark.parametrize("kind", writing.KINDS)
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


def test_without_a_language_those_there_are_are_named_once_each(run: Run) -> None:
    ended = run("new", "x")
    assert ended.exit_code == 2
    assert "Choose from: bash, c, exec, go, java, node, perl, python, ruby, rust" in ended.stderr
    assert "golang" not in ended.stderr


def test_the_choices_are_those_that_there_are() -> None:
    assert set(writing.LANGUAGES) == set(module_templates.LANGUAGES)
    assert set(writing.KINDS) == set(Kind) == set(module_templates.PARTS)
    assert set(writing.LIFECYCLES) == set(Lifecycle)


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
        (("m", "--lang", "exec", "--kind", "hook", "--", "x"), "cannot be a hook"),
        (("m", "--lang", "py", "--", "jq", "."), "a COMMAND goes with --lang exec, not with"),
        (("m", "--lang", "exec", "--", "", "x"), "must name the program to run"),
        (("m", "--lang", "exec", "--", "x\0y"), "Error: /transport/command/0"),
        (("m", "--lang", "cobol"), "'cobol' is not one of"),
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


def test_a_language_has_the_names_that_people_call_it_by(run: Run, tmp_path: Path) -> None:
    for short, language in {
        **writing.ALIASES,
        "PY": "python",
        "Bash": "bash",
        "TS": "node",
    }.items():
        ended = run("new", short, "--lang", short, "--into", str(tmp_path))
        assert ended.exit_code == 0, ended.stderr
        file = module_templates.LANGUAGES[language].file
        assert (tmp_path / short / file).is_file()
    assert {"ts", "js", "py", "sh", "rb", "rs"} <= set(writing.ALIASES)
    assert set(writing.ALIASES.values()) <= set(writing.LANGUAGES)


@pytest.mark.parametrize("lang", writing.LANGUAGES)
def test_a_new_descriptor_names_its_schema_and_is_valid(
    run: Run, tmp_path: Path, lang: str
) -> None:
    folder = tmp_path / "m"
    assert run("new", "m", "--lang", lang, "--into", str(tmp_path)).exit_code == 0
    document = json.loads((folder / "module.json").read_text())
    assert document["$schema"] == schemas.load("stdiod-descriptor.v1")["$id"]
    said = run("validate", str(folder / "module.json")).stdout
    assert "warning" not in said
    assert "schema" not in said


@pytest.mark.parametrize(
    ("command", "typed", "result"),
    [
        (("cat",), (), ""),
        (("cat", "-"), ("stdin=a b",), "a b"),
        (("printf", "%s|", ""), (), "|"),
        (("printf", "%s|"), ('args:=["x","{y}"]',), "x|{y}|"),
        (("sh", "-c", "echo ${1}{args}", "sh"), ('args:=["z"]',), "z{args}"),
        (("printf", "--", "%s\\n", "-x"), (), "-x"),
    ],
)
def test_a_module_is_made_around_a_command(
    run: Run, tmp_path: Path, command: tuple[str, ...], typed: tuple[str, ...], result: str
) -> None:
    ended = run("new", "m", "--lang", "exec", "--into", str(tmp_path), "--", *command)
    assert ended.exit_code == 0, ended.stderr
    file = tmp_path / "m" / "module.json"
    assert [one.name for one in file.parent.iterdir()] == ["module.json"]
    assert json.loads(file.read_text())["transport"]["command"] == list(command)
    assert run("validate", str(file)).stdout == "1 descriptor is valid\n"
    ended = run("invoke", "m", "run", *typed, "--descriptor", str(file), "--json")
    assert json.loads(ended.stdout.splitlines()[-1])["result"] == result
    assert "not called" in run("check", str(file)).stdout  # what it does is not known


def test_without_a_command_it_is_told_what_was_made_and_how_one_is_given(
    run: Run, tmp_path: Path
) -> None:
    said = run("new", "m", "--lang", "exec", "--into", str(tmp_path)).stderr
    assert "`stdiod new NAME --lang exec -- jq`" in said
    assert "behind --" not in run("new", "n", "--lang", "py", "--into", str(tmp_path)).stderr


def test_a_command_that_is_missing_is_told(run: Run, tmp_path: Path) -> None:
    ended = run("new", "m", "--lang", "exec", "--into", str(tmp_path), "--", "no-such", "x")
    assert "there is no no-such in your PATH" in ended.stderr


def test_a_command_finds_the_files_that_were_meant(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tool").write_text("#!/bin/sh\necho it: $1\n")
    Path("tool").chmod(0o755)
    for name, command in {"direct": ["./tool"], "by-shell": ["sh", "tool"]}.items():
        assert run("new", name, "--lang", "exec", "--", *command).exit_code == 0
        file = f"{name}/module.json"
        ended = run("invoke", name, "run", 'args:=["x"]', "--descriptor", file, "--json")
        assert json.loads(ended.stdout.splitlines()[-1])["result"] == "it: x"
