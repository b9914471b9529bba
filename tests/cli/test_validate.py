from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run


def write(path: Path, name: str, **others: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    transport = {"type": "stdio", "command": ["cat"]}
    base = {"name": name, "kind": "tool", "capabilities": [], "transport": transport}
    path.write_text(json.dumps({**base, **others}))
    return path


def test_good_descriptors_are_counted(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a.json", "a")
    write(tmp_path / "b" / "module.json", "b", supervision={"depends_on": ["a"]})
    ended = run("validate", str(tmp_path))
    assert ended.exit_code == 0
    assert ended.stdout == "2 descriptors are valid\n"


def test_a_program_that_is_missing_is_a_problem(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", "a", transport={"type": "stdio", "command": ["./nothing"]})
    ended = run("validate", str(path))
    assert ended.exit_code == 1
    missing = tmp_path / "nothing"
    assert ended.stdout.startswith(f"{path}: /transport/command: {missing} is not there; correct")
    assert "or have transport.prepare build it" in ended.stdout


@pytest.mark.parametrize("verb", ["validate", "doctor"])
@pytest.mark.parametrize(
    "transport",
    [
        {"command": ["python3", "x" * 300]},
        {"command": ["./" + "x" * 300]},
        {"command": ["cat"], "cwd": "x" * 300},
        {"command": ["cat"], "env_file": "x" * 300},
    ],
    ids=["script", "program", "folder", "env_file"],
)
def test_a_name_that_is_too_long_is_a_problem_of_its_file(
    run: Run, tmp_path: Path, verb: str, transport: dict[str, Any]
) -> None:
    path = write(tmp_path / "a.json", "a", transport={"type": "stdio", **transport})
    ended = run(verb, str(path if verb == "validate" else tmp_path))
    assert ended.exit_code == 1, ended.stderr
    assert "x" * 300 in ended.stdout


def test_of_a_module_that_is_prepared_only_the_program_for_that_must_be_there(
    run: Run, tmp_path: Path
) -> None:
    transport = {"type": "stdio", "command": ["./built"], "prepare": ["true"]}
    good = write(tmp_path / "good.json", "good", transport=transport)
    assert run("validate", str(good)).exit_code == 0
    bad = write(tmp_path / "bad.json", "bad", transport={**transport, "prepare": ["./fetch"]})
    ended = run("validate", str(bad))
    assert ended.exit_code == 1
    assert f"/transport/prepare: {tmp_path}/fetch is not there" in ended.stdout
    assert f"correct transport.prepare or transport.cwd in {bad}" in ended.stdout
    none = write(tmp_path / "none.json", "none", transport={**transport, "prepare": [""]})
    assert (
        "/transport/prepare/0: is empty, must name the program" in run("validate", str(none)).stdout
    )


def test_every_problem_of_every_file_is_a_line_with_file_and_pointer(
    run: Run, tmp_path: Path
) -> None:
    bad = write(tmp_path / "bad.json", "bad", kind="tol", supervision={"queu": 3})
    half = tmp_path / "half.json"
    half.write_text('{"name":')
    ended = run("validate", str(bad), str(half), str(write(tmp_path / "good.json", "good")))
    assert ended.exit_code == 1
    lines = ended.stdout.splitlines()
    assert lines[0].startswith(f'{bad}: /kind: is "tol", must be one of')
    assert lines[1].startswith(f"{bad}: /supervision/queu: ")
    assert lines[2].startswith(f"{half}: the JSON ends in the middle, line 1 column 9")
    assert lines[3] == "2 of 3 descriptors are not valid"


def test_a_field_that_was_probably_meant_otherwise_is_a_warning_and_no_reason_to_refuse(
    run: Run, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.json", "a", descripton="rolls dice")
    ended = run("validate", str(path))
    assert ended.exit_code == 0
    assert f"{path}: warning: /descripton: unknown field, ignored; did you mean" in ended.stdout


def test_a_hook_that_is_told_of_nothing_is_a_warning(run: Run, tmp_path: Path) -> None:
    bare = write(tmp_path / "bare.json", "bare", kind="hook")
    fields = {"observe": ["modul:*"], "gate": ["tool:pre"], "modules": ["dcie"]}
    gate = write(tmp_path / "gate.json", "gate", kind="hook", hook=fields)
    write(tmp_path / "dice.json", "dice")
    ended = run("validate", str(tmp_path))
    assert ended.exit_code == 0
    assert f"{bare}: warning: /hook: is missing" in ended.stdout
    assert f'{gate}: warning: /hook/modules/0: "dcie" fits no module there is' in ended.stdout
    alone = run("validate", str(gate)).stdout
    assert "/hook/modules" not in alone
    assert f'{gate}: warning: /hook/observe/0: "modul:*" fits no event' in alone


def test_names_that_are_taken_and_circles_are_found_in_directories(
    run: Run, tmp_path: Path
) -> None:
    write(tmp_path / "1" / "a.json", "a")
    write(tmp_path / "2" / "a.json", "a")
    write(tmp_path / "2" / "b.json", "b", supervision={"depends_on": ["c"]})
    write(tmp_path / "2" / "c.json", "c", supervision={"depends_on": ["b"]})
    ended = run("validate", str(tmp_path / "1"), str(tmp_path / "2"))
    assert ended.exit_code == 1
    assert f"{tmp_path}/2/a.json: the name 'a' is taken by {tmp_path}/1/a.json" in ended.stdout
    assert f"{tmp_path}/2/b.json: depends_on goes in a circle: b -> c -> b" in ended.stdout
    assert ended.stdout.endswith("3 of 4 descriptors are not valid\n")


def test_a_directory_without_descriptors_is_probably_a_mistake(run: Run, tmp_path: Path) -> None:
    ended = run("validate", str(tmp_path))
    assert ended.exit_code == 1
    looked = f"no descriptors in {tmp_path}: looked for *.json and */module.json"
    assert ended.stdout == f"{looked}, and no deeper\n"
    (tmp_path / "package.json").write_text('{"name": "x", "version": "1"}')
    write(tmp_path / "empty" / "deeper" / "deepest" / "module.json", "a")
    assert run("validate", str(tmp_path)).stdout == f"{looked}, and no deeper\n"
    write(tmp_path / "hello" / "bash" / "module.json", "a")
    for verb in ("validate", "check", "doctor"):
        ended = run(verb, str(tmp_path))
        said = " ".join((ended.stdout + ended.stderr).split())
        assert f"{looked}; name {tmp_path}/hello itself, which has some" in said
    assert run("validate", str(tmp_path / "hello")).stdout == "1 descriptor is valid\n"


def test_json_has_an_entry_per_descriptor(run: Run, tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a.json", "a"), tmp_path / "b.json"
    bad.write_text("[]")
    ended = run("validate", "--json", str(tmp_path))
    assert ended.exit_code == 1
    answer = json.loads(ended.stdout)
    assert answer["ok"] is False
    assert answer["descriptors"][0] == {
        "descriptor": str(good),
        "name": "a",
        "ok": True,
        "problems": [],
        "warnings": [],
    }
    assert answer["descriptors"][1]["problems"] == [
        {"pointer": "", "message": "is an array, must be one JSON object"}
    ]


def test_names_that_are_not_utf_8_are_named_with_escapes(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / os.fsdecode(b"empty\xe9")
    empty.mkdir()
    file = write(tmp_path / os.fsdecode(b"caf\xe9.json"), "a")
    for arguments in ((str(tmp_path), str(empty)), (str(file), str(empty))):
        ended = run("validate", *arguments)
        assert ended.exit_code == 1
        assert f"{tmp_path}/caf\\xe9.json: its path is not UTF-8" in ended.stdout
        assert f"no descriptors in {tmp_path}/empty\\xe9: looked for" in ended.stdout
        answer = json.loads(run("validate", "--json", *arguments).stdout)
        assert answer["descriptors"][0]["descriptor"] == f"{tmp_path}/caf\\xe9.json"
        assert answer["empty"] == [f"{tmp_path}/empty\\xe9"]


def test_a_program_whose_name_could_steer_a_terminal_is_shown_with_escapes(
    run: Run, tmp_path: Path
) -> None:
    transport = {"type": "stdio", "command": ["./a\x1b[31m\x9b\u202eb"]}
    ended = run("validate", str(write(tmp_path / "a.json", "a", transport=transport)))
    assert ended.exit_code == 1
    assert ended.stdout.replace("\n", "").isprintable()
    assert r"/a\x1b[31m\x9b\u202eb is not there" in ended.stdout


@pytest.mark.parametrize(
    ("op", "flag", "says"),
    [
        ({"args": ["{flag?}"]}, {"type": "boolean"}, '/args/0: passes the word "true" or "false"'),
        ({"args": ["--flag={flag?}"]}, {"type": "boolean"}, ""),
        ({"args": ["{flag?}"], "options": True}, {"enum": ["--reverse"]}, ""),
        (
            {"args": [], "timeout": 4},
            {},
            "/timeout: unknown key; did you mean /supervision/timeouts/invoke_s, for all ops?",
        ),
    ],
)
def test_an_op_of_a_command_is_told_how_a_flag_and_a_bound_are_written(
    run: Run, tmp_path: Path, op: dict[str, Any], flag: dict[str, Any], says: str
) -> None:
    transport = {
        "type": "stdio",
        "command": ["sort"],
        "protocol": "exec",
        "exec": {"ops": {"go": op}},
    }
    inputs = {"go": {"type": "object", "properties": {"flag": flag}}}
    path = write(tmp_path / "a.json", "a", transport=transport, inputs=inputs)
    said = run("validate", str(path)).stdout
    assert says in said
    assert bool(says) is (said != "1 descriptor is valid\n")


def test_a_misspelt_exec_and_a_percent_encoded_event_are_told(run: Run, tmp_path: Path) -> None:
    transport = {"type": "stdio", "command": ["sort"], "protocol": "exec", "exce": {"ops": {}}}
    path = write(tmp_path / "a.json", "a", transport=transport)
    assert "is it meant by 'exce'?" in run("validate", str(path)).stdout
    path = write(tmp_path / "b.json", "b", capabilities=["event.emit:job%3Amade"])
    said = run("validate", str(path)).stdout
    assert 'the name of an event is written as it is: "event.emit:job:made"' in said
