"""`stdiod check` as it is typed; what it finds is in tests/conformance/test_check.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import trio
from trio.testing import MockClock

from supervisor.cli.checking import Steps
from supervisor.cli.terminal import Ticker
from tests.cli.conftest import Run
from tests.factories import document

TOOL = """read -r request
echo '{"version":"0","type":"done","ok":true,"result":"text"}'
"""


def write(folder: Path, name: str, body: str = TOOL, **fields: Any) -> Path:
    path = folder / name / "module.json"
    path.parent.mkdir(parents=True)
    transport = {"type": "stdio", "command": ["sh", "-c", body], "protocol": "narratoria"}
    base = {"name": name, "kind": "tool", "capabilities": [], "transport": transport}
    path.write_text(json.dumps({**base, "inputs": {"go": {"type": "object"}}, **fields}))
    return path


def test_no_op_is_called_unless_somebody_says_so(run: Run, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    path = write(tmp_path, "m", f"echo called >> {marks}\n{TOOL}")
    ended = run("check", str(path))
    assert ended.exit_code == 0
    assert not marks.exists()
    assert "m: partial: 2 of " in ended.stdout
    assert "exit status of go: not called: say --op go, or --all-ops" in ended.stdout
    ended = run("check", str(path), "--op", "run")
    assert "exit status of run: it has no such op; it has go" in ended.stdout
    assert ended.exit_code == 1, "a misspelt op is no check of it"
    assert "no module was called with --op run" in ended.stderr
    assert not marks.exists()
    (path.parent / "package.json").write_text('{"name": "m", "version": "1.0.0"}')
    assert run("check", str(path.parent), "--op", "go").exit_code == 0
    assert marks.exists()


def test_an_example_in_its_schema_is_permission_and_its_args(run: Run, tmp_path: Path) -> None:
    body = "read -r request; case $request in *grün*) ;; *) exit 3;; esac; " + TOOL.split("\n")[1]
    inputs = {"go": {"type": "object", "examples": [{"colour": "grün"}]}}
    ended = run("check", str(write(tmp_path, "m", body, inputs=inputs)))
    assert (ended.exit_code, ended.stdout.splitlines()[-1][:8]) == (0, "m: pass:"), ended.stdout


def test_a_failure_says_what_was_expected_what_came_and_how_to_mend_it(
    run: Run, tmp_path: Path
) -> None:
    path, xml = write(tmp_path, "m", TOOL + "exit 3"), tmp_path / "junit.xml"
    ended = run("check", str(path), "--op", 'go={"n":1}', "--junit", str(xml))
    assert ended.exit_code == 1
    for words in (
        "exit status of go: m.go: its process exited with code 3",
        "must  the process exits with 0",
        '> {"requestId":"check-1","tool":"m","operation":"go","input":{"n":1}}',
        '< {"version":"0","type":"done","ok":true,"result":"text"}',
        "fix   exit with 0",
    ):
        assert words in ended.stdout
    failure = ET.parse(xml).getroot().find("testsuite[@name='m']/testcase/failure")
    assert failure is not None
    assert "exited with code 3" in failure.attrib["message"]


def test_json_has_every_finding_and_a_descriptor_that_is_not_valid(
    run: Run, tmp_path: Path
) -> None:
    write(tmp_path, "good")
    write(tmp_path, "bad", kind="tol")
    ended = run("check", str(tmp_path), "--all-ops", "--json")
    document = json.loads(ended.stdout)
    assert (ended.exit_code, document["ok"]) == (1, False)
    assert document["invalid"][0]["problems"][0]["pointer"] == "/kind"
    (good,) = document["modules"]
    assert (good["module"], good["verdict"]) == ("good", "pass")
    assert {"clause", "status", "words", "op", "must", "source", "fix", "exchanged"} == set(
        good["findings"][0]
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--op", "go=1"), "has to be a JSON object"), ((), "no descriptors in")],
)
def test_what_cannot_be_meant_is_told(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    if arguments:
        write(tmp_path, "m")
    ended = run("check", str(tmp_path), *arguments)
    assert ended.exit_code == 2
    assert said in ended.stderr


def test_a_policy_grants_calls_to_the_host_as_up_does(run: Run, tmp_path: Path) -> None:
    body = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"requestId": request["requestId"], "ok": True, "result": {"status": "ok"}}
    if request["operation"] == "describe":
        answer["result"] = {"features": ["host_call"]}
    if request["operation"] == "invoke":
        called = {"call_id": "c", "method": "log", "params": {"message": "hello"}}
        call = {"version": "0", "type": "host_call", "payload": called}
        print(json.dumps({"requestId": request["requestId"], **call}), flush=True)
        answer["result"] = json.loads(sys.stdin.readline())
        error = answer["result"]["payload"].get("error")
        if error:
            answer = {"requestId": request["requestId"], "ok": False, "error": error}
    print(json.dumps(answer), flush=True)
"""
    transport = {"type": "stdio", "command": [sys.executable, "-c", body]}
    path = write(tmp_path, "m", transport=transport, capabilities=["log"], outputs={"go": {}})
    policy = tmp_path / "policy.toml"
    policy.write_text('allow = ["log"]')
    without, granted = (
        run("check", str(path), "--op", "go", *options)
        for options in ((), ("--policy", str(policy)))
    )
    assert "m may not log: no policy grants it: put `allow = [" in without.stdout
    assert "results of go" in granted.stdout
    assert "may not log" not in granted.stdout
    policy.write_text("allow = 1")
    assert run("check", str(path), "--policy", str(policy)).exit_code == 2


async def test_a_long_step_is_reported_once(autojump_clock: MockClock, capsys: Any) -> None:
    steps = Steps(Ticker())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(steps.tell_of_waits)
        for name, seconds in {"quick": 1, "slow": 60, "the last": 1}.items():
            steps.begin(name)
            await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    assert capsys.readouterr().err == "stdiod: slow; no answer yet\n"


def test_a_command_that_fails_is_advised_to_name_its_exit_codes(run: Run, tmp_path: Path) -> None:
    transport = {"command": ["false"], "protocol": "exec", "exec": {"ops": {"go": {}}}}
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document(["false"], transport=transport)))
    said = run("check", str(path), "--op", "go").stdout
    assert "fix   name the exit codes that mean success in the op's ok_codes" in said
