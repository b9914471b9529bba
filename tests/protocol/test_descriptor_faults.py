"""Every way in which a descriptor can be wrong, and the words for it."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.descriptor.loading import parse_descriptor
from protocol.descriptor.model import Supervision
from tests.protocol.descriptor_documents import GATE, SOURCE, changed, encoded, refusal, without

BAD_VALUES: list[tuple[str, Any, str, str]] = [
    # at, value, pointer of the problem ("" when it is the same), words
    ("/name", "", "", 'is "", must be a name of 1 to 128 characters'),
    ("/name", "n" * 129, "", "must be a name of 1 to 128 characters"),
    ("/name", "a/b", "", 'is "a/b", must be'),
    ("/name", "a\nb", "", 'is "a\\nb", must be'),
    ("/name", "a\u0085b", "", "control characters"),
    ("/name", "supervisor", "", 'is "supervisor", must be'),
    ("/name", ".", "", 'is ".", must be'),
    ("/name", "..", "", 'is "..", must be'),
    ("/name", 3, "", "is a number, must be a name"),
    ("/kind", "tol", "", 'is "tol", must be one of "provider", "tool"'),
    ("/kind", "tol", "", "did you mean 'tool'?"),
    ("/kind", ["tool"], "", "is an array, must be one of"),
    ("/transport", "python3 dice.py", "", "is a string, must be an object"),
    ("/transport/type", "sdtio", "", "did you mean 'stdio'?"),
    ("/transport/command", "python3 dice.py", "",
     'is a string, must be an array of strings such as ["python3","dice.py"]'),
    ("/transport/command", [], "", "is empty, must be an array of strings"),
    ("/transport/command", [""], "/transport/command/0",
     "is empty, must name the program to run"),
    ("/transport/command", ["", "x"], "/transport/command/0",
     "is empty, must name the program to run"),
    ("/transport/command", ["a", 3], "/transport/command/1", "is a number, must be a string"),
    ("/transport/command", ["a", "b\x00"], "/transport/command/1", 'is "b\\u0000", must be'),
    ("/transport/protocol", "modul", "", "did you mean 'module'?"),
    ("/transport/protocol", "acp", "", 'must be one of "exec", "mcp", "module", "narratoria"'),
    ("/transport/exec", {}, "/transport/exec/ops", "is missing, must be an object of ops"),
    ("/transport/exec", {"ops": {"a": {"arg": []}}}, "/transport/exec/ops/a/arg",
     "did you mean 'args'?"),
    ("/transport/exec", {"ops": {"a": {"args": "-w"}}}, "/transport/exec/ops/a/args",
     "is a string, must be an array of strings"),
    ("/transport/exec", {"ops": {"a": {"args": ["a\x00"]}}}, "/transport/exec/ops/a/args/0",
     "must be a string without NUL"),
    ("/transport/exec", {"ops": {"a": {"stdout": "jsn"}}}, "/transport/exec/ops/a/stdout",
     "did you mean 'json'?"),
    ("/transport/exec", {"ops": {"a": {"ok_codes": [256]}}}, "/transport/exec/ops/a/ok_codes/0",
     "must be an exit code from 0 to 255"),
    ("/transport/exec", {"ops": {"a": {"media_type": "png"}}}, "/transport/exec/ops/a/media_type",
     "must be a MIME type such as"),
    ("/transport/mcp", {"er": "auto"}, "/transport/mcp/er", "did you mean 'era'?"),
    ("/transport/mcp", {"era": "old"}, "/transport/mcp/era", 'must be one of "auto", "modern"'),
    ("/transport/mcp", {"roots": [""]}, "/transport/mcp/roots/0", "must be the path of a folder"),
    ("/transport/lifecycle", "persistant", "", "did you mean 'persistent'?"),
    ("/transport/input", "flat", "", 'must be "envelope": only narratoria tools'),
    ("/transport/stdout", "loose", "", 'must be one of "strict", "tolerant"'),
    ("/transport/cwd", "", "", "must be the path of a folder"),
    ("/transport/cwd", "a\x00", "", "must be the path of a folder"),
    ("/transport/env", ["A=b"], "", "is an array, must be an object of strings"),
    ("/transport/env", {"A": 1}, "/transport/env/A", "is a number, must be a string without NUL"),
    ("/transport/env", {"A": "\x00"}, "/transport/env/A", "must be a string without NUL"),
    ("/transport/env", {"A=B": "c"}, "/transport/env/A=B",
     'the key is "A=B", must be the name of an'),
    ("/transport/env", {"": "c"}, "/transport/env/", 'the key is "", must be the name of an'),
    ("/transport/env_file", 3, "", "is a number, must be the path of a file"),
    ("/transport/env_file", "", "", "must be the path of a file"),
    ("/transport/env_file", ["a", "b\x00"], "/transport/env_file/1", "must be the path of a file"),
    ("/transport/expand", "yes", "", "is a string, must be true or false"),
    ("/transport/pass_env", "HOME", "", "is a string, must be an array of names"),
    ("/transport/pass_env", ["A=B"], "/transport/pass_env/0", "must be the name of an environment"),
    ("/transport/url", 3, "", "is a number, must be a string"),
    ("/capabilities", "fs.read", "",
     'is a string, must be an array of strings such as ["fs.read"]'),
    ("/capabilities", [""], "/capabilities/0", "must be a string that is not empty"),
    ("/version", 1.0, "", "is a number, must be a string"),
    ("/description", None, "", "is null, must be a string"),
    ("/inputs", [], "", "is an array, must be an object of ops and JSON Schemas"),
    ("/inputs", {"roll": "x"}, "/inputs/roll", "is a string, must be the JSON Schema of an op"),
    ("/inputs", {"a/b": {"type": "strin"}}, "/inputs/a~1b/type", "did you mean 'string'?"),
    ("/inputs", {"a": {"$ref": "http://x.y/z"}}, "/inputs/a/$ref", "nothing is fetched"),
    ("/outputs", {"a": {"items": {"required": "b"}}}, "/outputs/a/items/required",
     "is not an array"),
    ("/supervision", None, "", "is null, must be an object"),
    ("/supervision/restrat", "permanent", "", "unknown key; did you mean 'restart'?"),
    ("/supervision/zzz", 1, "", "unknown key; known are start, restart"),
    ("/supervision/timeouts/invok_s", 1, "", "unknown key; did you mean 'invoke_s'?"),
    ("/supervision/timeouts/invoke_s", 0, "", "is 0, must be a number of seconds greater than 0"),
    ("/supervision/timeouts/invoke_s", "30", "", "is a string, must be a number of seconds"),
    ("/supervision/timeouts/invoke_s", None, "", "is null, must be a number"),
    ("/supervision/timeouts/silence_s", -1, "", "greater than 0, such as 15, or null"),
    ("/supervision/start", "eagre", "", "did you mean 'eager'?"),
    ("/supervision/restart", True, "", "is a boolean, must be one of"),
    ("/supervision/restart_on", 3, "", "is a number, must be an array of exit codes and names of"),
    ("/supervision/restart_on", [256], "/supervision/restart_on/0",
     "is 256, must be an exit code from 0 to 255, or the name of a signal that can end a process"),
    ("/supervision/restart_on", [3, -1], "/supervision/restart_on/1", "is -1, must be an exit"),
    ("/supervision/restart_on", [1.5], "/supervision/restart_on/0", "is 1.5, must be an exit"),
    ("/supervision/restart_on", [True], "/supervision/restart_on/0", "is a boolean, must be"),
    ("/supervision/never_on", ["SIGKIL"], "/supervision/never_on/0",
     'is "SIGKIL", must be an exit code'),
    ("/supervision/never_on", ["SIGKIL"], "/supervision/never_on/0", "did you mean 'SIGKILL'?"),
    ("/supervision/never_on", ["term"], "/supervision/never_on/0", "did you mean 'SIGTERM'?"),
    ("/supervision/never_on", ["9"], "/supervision/never_on/0", 'is "9", must be an exit code'),
    ("/supervision/never_on", ["SIGCONT"], "/supervision/never_on/0",
     "a signal that can end a process"),
    ("/supervision/never_no", [3], "", "unknown key; did you mean 'never_on'?"),
    ("/supervision", {"restart_on": [0, 3], "never_on": [1, 3.0]}, "/supervision/never_on/1",
     "is 3.0, which /supervision/restart_on/1 is too: such an end is either restarted or never"),
    ("/supervision", {"restart_on": ["SIGKILL"], "never_on": ["SIGKILL"]},
     "/supervision/never_on/0", 'is "SIGKILL", which /supervision/restart_on/0 is too'),
    ("/supervision/intensity", -1, "", "is -1, must be an integer of at least 0"),
    ("/supervision/intensity", 1.5, "", "is 1.5, must be an integer"),
    ("/supervision/intensity", True, "", "is a boolean, must be an integer"),
    ("/supervision/backoff/factor", 0.5, "", "must be a number of at least 1"),
    ("/supervision/backoff/jitter", 1.5, "", "must be a number from 0 to 1"),
    ("/supervision/backoff/inital_s", 1, "", "did you mean 'initial_s'?"),
    ("/supervision/health/failures", 0, "", "must be an integer of at least 1"),
    ("/supervision/limits/line_bytes", 1023, "", "must be an integer of at least 1024"),
    ("/supervision/limits/memory_bytes", 512, "", "must be an integer of at least 1048576"),
    ("/supervision/limits/cpu_s", 2**53, "", "must be an integer"),
    ("/supervision/concurrency", 0, "", "must be an integer of at least 1"),
    ("/supervision/watch", 1, "", "must be true or false"),
    ("/supervision/overlap", 0, "", "must be true or false"),
    ("/supervision/queue", -1, "", "must be an integer of at least 0"),
    ("/supervision/depends_on", "kv", "", "is a string, must be an array of module names"),
    ("/supervision/depends_on", ["kv", "dice"], "/supervision/depends_on/1",
     "none can wait for itself"),
    ("/supervision/instances", {"min": 3, "max": 2}, "/supervision/instances/min",
     "is 3, must be at most max, 2"),
    ("/supervision/instances", {"min": 3}, "/supervision/instances/min",
     "at most max, 1 (the default)"),
    ("/supervision/instances", {"max": 0}, "/supervision/instances/max",
     "must be an integer of at least 1"),
    ("/supervision/warm", -1, "", "must be an integer of at least 0"),
    ("/supervision/warm", 1, "", "is 1, must be 0: only a module with a process per invocation"),
]  # fmt: skip

BAD_HOOKS: list[tuple[str, Any, str, str]] = [
    ("/hook", None, "", "is null, must be an object"),
    ("/hook", {}, "", 'neither observes nor gates anything, must have "observe" such as'),
    ("/hook", {"observe": [], "gate": []}, "", "neither observes nor gates anything"),
    ("/hook/observ", ["*"], "", "unknown key; did you mean 'observe'?"),
    ("/hook/on_failiure", "open", "", "unknown key; did you mean 'on_failure'?"),
    ("/hook/observe", "module:*", "", "is a string, must be an array of globs of event names"),
    ("/hook/observe", [""], "/hook/observe/0", "must be a glob of event names"),
    ("/hook/gate", ["tool:per"], "/hook/gate/0", 'must be one of "tool:pre", "tool:post"'),
    ("/hook/gate", ["tool:per"], "/hook/gate/0", "did you mean 'tool:pre'?"),
    ("/hook/gate", [3], "/hook/gate/0", "is a number, must be one of"),
    ("/hook/modules", [], "", "is empty, must be an array of globs of module names"),
    ("/hook/modules", [""], "/hook/modules/0", "must be a glob of module names"),
    ("/hook/priority", -1, "", "must be an integer of at least 0, such as 50"),
    ("/hook/priority", 1.5, "", "must be an integer"),
    ("/hook/on_failure", "close", "", "did you mean 'closed'?"),
    ("/hook/timeout_s", 0, "", "must be a number of seconds greater than 0"),
    ("/hook/timeout_s", None, "", "is null, must be a number of seconds"),
    ("/hook/queue", 0, "", "must be an integer of at least 1"),
    ("/hook/drop", "old", "", 'must be one of "oldest", "newest"'),
    ("/inputs", {"run": {}}, "/inputs/on_event", "is missing, must be the JSON Schema of the op"),
    ("/kind", "tool", "/hook", 'is for the kind "hook", must be left out of a "tool"'),
]


@pytest.mark.parametrize(("at", "value", "pointer", "words"), BAD_HOOKS)
def test_what_is_wrong_with_a_hook_is_explained_where_it_stands(
    at: str, value: Any, pointer: str, words: str
) -> None:
    (problem,) = refusal(encoded(changed(at, value, GATE))).problems
    assert problem.pointer == (pointer or at)
    assert words in problem.message


def test_a_hook_of_no_known_kind_is_told_about_its_kind_and_not_about_its_place() -> None:
    pointers = [one.pointer for one in refusal(encoded(changed("/kind", "hok", GATE))).problems]
    assert pointers == ["/kind"]
    pointers = [one.pointer for one in refusal(encoded(without("/kind", GATE))).problems]
    assert pointers == ["/kind"]


@pytest.mark.parametrize(("at", "value", "pointer", "words"), BAD_VALUES)
def test_a_bad_value_is_explained_where_it_stands(
    at: str, value: Any, pointer: str, words: str
) -> None:
    problems = refusal(encoded(changed(at, value))).problems
    assert any(p.pointer == (pointer or at) and words in p.message for p in problems), problems


def test_true_is_no_exit_code_1_so_it_contradicts_none() -> None:
    rules = {"restart_on": [1], "never_on": [True]}
    (problem,) = refusal(encoded(changed("/supervision", rules))).problems
    assert "is a boolean" in problem.message


@pytest.mark.parametrize(
    "transport", [{"lifecycle": "per-invocation"}, {"protocol": "narratoria"}], ids=str
)
def test_a_process_per_invocation_has_no_instances_to_keep(transport: dict[str, Any]) -> None:
    document = changed("/supervision/instances", {"min": 0, "max": 4, "max_age_s": 60})
    document["transport"] |= transport
    said = {one.pointer: one.message for one in refusal(encoded(document)).problems}
    assert said.keys() == {
        f"/supervision/instances/{field}" for field in document["supervision"]["instances"]
    }
    assert said["/supervision/instances/max_age_s"].startswith("is 60, must be null: a module")
    document["supervision"]["instances"] = {"min": 1.0, "max": 1, "max_age_s": None}
    assert parse_descriptor(encoded(document), SOURCE).supervision == Supervision()


@pytest.mark.parametrize(
    ("field", "value", "pointer"),
    [
        ("command", ["x", "${X:-${Y}}"], "/1"),
        ("prepare", ["x", "a${X:-b${Y:-c}}"], "/1"),
        ("cwd", "${X:-${Y}}", ""),
        ("env", {"A/B": "${X:-$${Y}}"}, "/A~1B"),
        ("env_file", "${X:-${", ""),
        ("env_file", ["a", "${X:-${Y}}"], "/1"),
    ],
)
def test_a_variable_in_the_default_of_another_is_a_fault_where_variables_are_expanded(
    field: str, value: Any, pointer: str
) -> None:
    transport = {"type": "stdio", "command": ["x"], field: value}
    plain = {"name": "a", "kind": "tool", "capabilities": [], "transport": transport}
    assert not parse_descriptor(encoded(plain), SOURCE).transport.expand
    for more in ({"protocol": "mcp"}, {"expand": True}):
        (problem,) = refusal(encoded({**plain, "transport": {**transport, **more}})).problems
        assert problem.pointer == f"/transport/{field}{pointer}"
        assert "within the default of another" in problem.message
    off = {**plain, "transport": {**transport, "protocol": "mcp", "expand": False}}
    parse_descriptor(encoded(off), SOURCE)


def test_text_that_is_no_nested_variable_is_none() -> None:
    texts = ["x", "$${X:-${Y}}", "${X:-a}${Y:-b}", "${X:-$Y", "${} ${1X:-${Y}"]
    transport = {"type": "stdio", "command": texts, "expand": True}
    document = {"name": "a", "kind": "tool", "capabilities": [], "transport": transport}
    assert parse_descriptor(encoded(document), SOURCE).transport.command == tuple(texts)
