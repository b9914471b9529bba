"""The dialect `exec` without a process: templates, refusals, and what output comes to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.connection import (
    Answered,
    EventReceived,
    LocalError,
    Received,
    Request,
    Unanswered,
    Violated,
    Warned,
)
from protocol.descriptor.loading import DescriptorError, parse_descriptor
from protocol.descriptor.rules import near_misses
from protocol.dialects.exec import (
    ARGUMENT_BYTES,
    ExecConnection,
    UnfitArgError,
    arguments,
    read_template,
    stdin,
)
from protocol.errors import Failure, Reason, Success
from protocol.events import AssetBytes, Log
from protocol.replies import Operation
from protocol.weight import MOST_VALUES
from tests.protocol.wire import Cuts, cuts, invoke, pieces

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
whatever = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def filled(template: str, *, options: bool = True, **args: Any) -> tuple[str, ...]:
    return arguments(read_template(template, {*args, "n", "a", "b"}), args, options=options)


def connection(op: dict[str, Any], *inputs: str, line_bytes: int = 1 << 20) -> ExecConnection:
    """Make a connection whose op `go` is the given one, with args of these names."""
    transport = {"type": "stdio", "command": ["x"], "protocol": "exec", "exec": {"ops": {"go": op}}}
    document = {
        "name": "m",
        "kind": "tool",
        "transport": transport,
        "inputs": {"go": {"properties": dict.fromkeys(inputs, True)}},
        "supervision": {"limits": {"line_bytes": line_bytes}},
    }
    made = parse_descriptor(msgspec.json.encode(document), "/m.json")
    return ExecConnection(made, str, {})


def told(op: dict[str, Any], *printed: bytes, line_bytes: int = 1 << 20) -> list[Received]:
    """Return what comes of a command that prints this."""
    one = connection(op, line_bytes=line_bytes)
    events = [*one.ask(invoke("r1", "go"))]
    for data in printed:
        events += one.receive_data(data)
    events += one.receive_eof()
    return [*events, *one.process_exited(0)]


def outcome(op: dict[str, Any], *printed: bytes) -> Any:
    last = told(op, *printed)[-1]
    assert isinstance(last, Answered)
    return last.outcome.result if isinstance(last.outcome, Success) else last.outcome


@given(value=values.filter(lambda value: "\0" not in msgspec.json.encode(value).decode()))
def test_a_value_stands_there_as_it_is_and_nothing_else_is_made_of_it(value: Any) -> None:
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if "\0" not in shown:
        assert filled("<{a}>{{a}}", a=value) == (f"<{shown}>{{a}}",)
        assert stdin(read_template("{a}{a?}", {"a"}), {"a": value}) == (shown + shown).encode()


@given(one=whatever, other=whatever)
def test_what_was_filled_in_is_not_looked_at_again(one: str, other: str) -> None:
    assert filled("{a}{b}", a="{b}" + one, b=other) == ("{b}" + one + other,)


@given(text=whatever)
def test_a_text_without_inputs_loses_only_doubled_braces(text: str) -> None:
    plain = text.replace("{{", "{").replace("}}", "}")
    if "{{" not in text and "}}" not in text:
        assert arguments(read_template(text, ()), {}, options=True) == (plain,)


@pytest.mark.parametrize(
    ("template", "args", "becomes"),
    [
        ("{print $1}", {}, ("{print $1}",)),
        ("{{a}}", {"a": "x"}, ("{a}",)),
        ("{{{a}}}", {"a": "x"}, ("{x}",)),
        ("--max-count={n?}", {}, ()),
        ("--max-count={n?}", {"n": 3}, ("--max-count=3",)),
        ("{a?}", {"a": None}, ("null",)),
        ("{a}", {"a": ["x", 1, [2], "{b}"]}, ("x", "1", "[2]", "{b}")),
        ("{a}", {"a": []}, ()),
        ("x{a}", {"a": ["x", 1]}, ('x["x",1]',)),
        ("{a}", {"a": ""}, ("",)),
        ("{a}", {"a": 10**30}, ("1" + "0" * 30,)),
        ("", {}, ("",)),
        ("{a:json}", {"a": "x"}, ('"x"',)),
        ("{a:json}", {"a": ["x", 1]}, ('["x",1]',)),
        ("{a:json}", {"a": {"k": None}}, ('{"k":null}',)),
        ("--doc={a:json}", {"a": True}, ("--doc=true",)),
        ("{a:json?}", {}, ()),
        ("{a:json?}", {"a": "-x"}, ('"-x"',)),
        ("{a:json}", {"a": "x\0y"}, ('"x\\u0000y"',)),
        ("{a:xml}", {"a": 1}, ("{a:xml}",)),
        ("{c:json}", {"a": 1}, ("{c:json}",)),
    ],
)
def test_what_becomes_of_an_argument(
    template: str, args: dict[str, Any], becomes: tuple[str, ...]
) -> None:
    assert filled(template, **args) == becomes


@pytest.mark.parametrize(
    ("template", "args", "words"),
    [
        ("{a}", {}, "is missing"),
        ("{a}", {"a": "-rf"}, "take for an option"),
        ("{a}", {"a": -1}, "take for an option"),
        ("{a}", {"a": ["x", "-y"]}, "take for an option"),
        ("{a}{b}", {"a": "", "b": "-x"}, "take for an option"),
        ("{a}", {"a": "x\0y"}, "NUL"),
        ("x{a}", {"a": {"k": "\0"}}, None),  # as JSON it is escaped
        ("{a}", {"a": "é" * ARGUMENT_BYTES}, "stdin"),
        ("-{a}", {"a": "-x"}, None),
        ("--x={a}", {"a": "-x"}, None),
    ],
)
def test_an_arg_that_cannot_stand_there_is_named(
    template: str, args: dict[str, Any], words: str | None
) -> None:
    if words is None:
        filled(template, options=False, **args)
        return
    with pytest.raises(UnfitArgError, match=words) as caught:
        filled(template, options=False, **args)
    assert caught.value.name in ("a", "b")


@pytest.mark.parametrize(
    ("args", "value", "becomes"),
    [
        (["-e", "--", "{a}"], "-rf", ("-e", "--", "-rf")),
        (["--", "x", "{a}"], ["-x", "--y"], ("--", "x", "-x", "--y")),
        (["--", "{a}", "--", "{a}"], "-x", ("--", "-x", "--", "-x")),
        (["--n={a}"], -1, ("--n=-1",)),
        (["{a}", "--"], "-x", None),
        (["{a}", "{a}"], ["--", "-x"], None),
        (["--n", "{a}"], "-x", None),
        (["---", "{a}"], "-x", None),
    ],
)
def test_behind_two_dashes_of_the_descriptor_a_value_may_begin_with_one(
    args: list[str], value: Any, becomes: tuple[str, ...] | None
) -> None:
    one = connection({"args": args}, "a")
    answered = one.ask(invoke("r1", "go", a=value))
    assert (None if answered else one.arguments) == becomes
    assert ("--" in str(answered)) == bool(answered)


def test_an_unfit_arg_is_answered_at_once_and_names_where_it_is() -> None:
    one = connection({"args": ["{a/b}"]}, "a/b")
    (answer,) = one.ask(invoke("r1", "go", **{"a/b": "-x"}))
    assert isinstance(answer, Answered)
    assert isinstance(answer.outcome, Failure)
    assert answer.outcome.code == "bad_request"
    assert answer.outcome.details["pointer"] == "/a~1b"
    assert one.arguments == ()


def test_arguments_and_stdin_come_from_the_op() -> None:
    one = connection({"args": ["-n", "{a}", "{b?}"], "stdin": "<{a}>"}, "a", "b")
    assert one.ask(invoke("r1", "go", a=3)) == ()
    assert (one.arguments, one.outgoing.take()) == (("-n", "3"), b"<3>")
    with pytest.raises(LocalError):
        one.ask(invoke("r2", "go", a=3))
    with pytest.raises(LocalError):
        connection({}).ask(Request("r1", Operation.HEALTH))


@pytest.mark.parametrize(
    ("stdout", "printed", "result"),
    [
        ("text", b"", ""),
        ("text", b"a\nb\n\n", "a\nb\n"),
        ("text", b"\r\n", "\r"),
        ("json", b' {"a": 1,\n "b": [2]}\n\n', {"a": 1, "b": [2]}),
        ("json", b"123456789012345678901234567890", 123456789012345678901234567890),
        ("json", b'"a\\r"', "a\r"),
        ("jsonl", b"", []),
        ("jsonl", b"\n \n", []),
        ("jsonl", b'{"a": 1}\r\n\n[2]\n"x"', [{"a": 1}, [2], "x"]),
        ("jsonl", b'"\\ud800"\nnull\n', ["\ufffd", None]),
        ("lines", b"", []),
        ("lines", b"a\n\nb", ["a", "", "b"]),
        ("lines", b"a\n", ["a"]),
        ("bytes", b"\xff\0", {"assetId": "stdout", "bytes": 2}),
    ],
)
def test_what_output_comes_to(stdout: str, printed: bytes, result: Any) -> None:
    assert outcome({"stdout": stdout}, printed) == result


@pytest.mark.parametrize(
    "printed",
    [b"", b" \n", b"{a:1}", b"1 2", b"NaN", b"1e999", b'"\xff"', b"[" * 5000],
)
def test_output_that_is_not_one_json_value_is_a_failure_that_shows_it(printed: bytes) -> None:
    failure = outcome({"stdout": "json"}, printed)
    assert failure.details["reason"] == "unreadable_output"
    assert failure.details["origin"] == "host"


@pytest.mark.parametrize("bad", [b"1 2", b"1,2", b"[1,", b"x", b"NaN", b"1e999", b"[" * 5000])
def test_a_line_that_is_not_json_is_shown(bad: bytes) -> None:
    failure = outcome({"stdout": "jsonl"}, b"{}\n" + bad + b"\n{}\n")
    assert failure.details["reason"] == "unreadable_output"
    assert "printed a line that" in failure.message
    assert failure.message.endswith('("stdout": "jsonl")')
    assert failure.details["line_excerpt"].startswith(bad[:10].decode())


@given(
    data=st.binary(),
    lengths=cuts,
    stdout=st.sampled_from(["text", "json", "jsonl", "lines", "bytes"]),
)
def test_however_output_is_cut_it_comes_to_the_same(
    data: bytes, lengths: Cuts, stdout: str
) -> None:
    op = {"stdout": stdout}

    def merged(received: list[Received]) -> list[Any]:
        """Return what was received, the pieces of an asset as one."""
        parts = [one.event for one in received if isinstance(one, EventReceived)]
        asset = b"".join(bytes(one.data) for one in parts if isinstance(one, AssetBytes))  # type: ignore[arg-type]
        others = [
            one for one in received if stdout != "bytes" or not isinstance(one, EventReceived)
        ]
        return [asset, *others]

    assert merged(told(op, *pieces(data, lengths))) == merged(told(op, data))


def test_lines_are_told_as_they_come() -> None:
    one = connection({"stdout": "lines"})
    one.ask(invoke("r1", "go"))
    (first,) = one.receive_data(b"working\nsti")
    assert isinstance(first, EventReceived)
    assert first.event == Log(version="0", request_id="r1", level="info", message="working")
    assert one.unfinished_line == "sti"


@pytest.mark.parametrize(
    ("stdout", "printed"),
    [
        ("text", b"x" * 1100),
        ("json", b'"' + b"x" * 1100),
        ("lines", b"x\n" * 600),
        ("jsonl", b"1\n" * 600),
    ],
)
def test_too_much_output_ends_the_process_and_bytes_have_no_such_bound(
    stdout: str, printed: bytes
) -> None:
    *_, violated, unanswered = told({"stdout": stdout}, printed[:500], printed, line_bytes=1024)
    assert isinstance(violated, Violated)
    assert violated.fault.reason is Reason.LINE_TOO_LONG
    assert '"stdout": "bytes"' in violated.fault.message
    assert isinstance(unanswered, Unanswered)
    assert outcome({"stdout": "bytes"}, printed * 2) == {
        "assetId": "stdout",
        "bytes": len(printed) * 2,
    }


@pytest.mark.parametrize("stdout", ["json", "jsonl", "lines"])
def test_more_values_than_are_built_are_refused_by_name(stdout: str) -> None:
    found: list[str] = []
    for one in told({"stdout": stdout}, b"[" + b"1,\n" * MOST_VALUES + b"1]"):
        if isinstance(one, Violated):
            found.append(one.fault.reason)
        if isinstance(one, Answered) and isinstance(one.outcome, Failure):
            found.append(one.outcome.details["reason"])
    assert found == [Reason.LINE_TOO_LONG]


@pytest.mark.parametrize(
    ("stdout", "most"),
    [
        ("json", b"[" + b"1," * 131_071 + b"1]"),
        ("jsonl", b"1\n" * 131_072),
        ("lines", b"1\n" * 131_072),
    ],
)
def test_so_many_values_are_built_and_one_more_is_too_much(stdout: str, most: bytes) -> None:
    assert len(outcome({"stdout": stdout}, most)) == 131_072
    more = most.replace(b"1", b"1,1" if stdout == "json" else b"1\n1", 1)
    *_, last = told({"stdout": stdout}, more)
    assert isinstance(last, Unanswered if stdout == "lines" else Answered)
    assert isinstance(last, Unanswered) or isinstance(last.outcome, Failure)


def test_what_is_no_text_is_read_with_one_warning() -> None:
    first, second = told({"stdout": "text"}, b"a\xffb\xff")
    assert isinstance(first, Warned)
    assert first.notice.reason == "invalid_utf8"
    assert isinstance(second, Answered)
    assert isinstance(second.outcome, Success)
    assert second.outcome.result == "a\ufffdb\ufffd"


def test_the_exit_codes_that_are_good_are_told_with_the_answer() -> None:
    answer = told({"ok_codes": [1]})[-1]
    assert isinstance(answer, Answered)
    assert answer.codes == (0, 1)


def problems(op: Any = None, **more: Any) -> dict[str, str]:
    """Return what is wrong with a descriptor with an op `go` that takes `file`, by pointer."""
    transport: dict[str, Any] = {"type": "stdio", "command": ["x"], "protocol": "exec"}
    if op is not None:
        transport["exec"] = {"ops": op}
    inputs: dict[str, Any] = {"go": {"properties": {"file": {}}}}
    document = {"name": "m", "kind": "tool", "transport": transport, "inputs": inputs, **more}
    try:
        parse_descriptor(msgspec.json.encode(document), "/m.json")
    except DescriptorError as error:
        return {one.pointer: one.message for one in error.problems}
    return {}


@pytest.mark.parametrize(
    ("said", "at", "words"),
    [
        ({}, "/transport/exec", "is missing, must be an object such as"),
        ({"op": {}}, "/transport/exec/ops", "must have an op"),
        ({"op": {"gone": {}}}, "/inputs/go", "is not an op of /transport/exec/ops"),
        ({"op": {"go": {}}, "supervision": {"warm": 1}}, "/supervision/warm", "must be 0"),
        ({"op": {"go": {"args": ["-x", "{fiel}"]}}}, "/transport/exec/ops/go/args/1", "'file'"),
        ({"op": {"go": {"stdin": "{fiel:json}"}}}, "/transport/exec/ops/go/stdin", "'file'"),
        (
            {"op": {"go": {"stdin": "{text:json?}"}}},
            "/transport/exec/ops/go/stdin",
            "{{text:json?}}",
        ),
        ({"op": {"go": {"stdin": "{text?}"}}}, "/transport/exec/ops/go/stdin", "{{text?}}"),
    ],
)
def test_a_descriptor_of_a_command_that_cannot_be_meant_is_refused(
    said: dict[str, Any], at: str, words: str
) -> None:
    assert words in problems(**said)[at]


def test_a_word_in_braces_that_is_no_input_is_text_of_which_validate_warns() -> None:
    op = {"args": ["{print}", "{print $1}", "{{file}}", "{file}"], "stdin": "{text}"}
    assert problems({"go": op}) == {}
    ops = {"go": op}
    transport = {"type": "stdio", "command": ["awk"], "protocol": "exec", "exec": {"ops": ops}}
    inputs: dict[str, Any] = {"go": {"properties": {"file": {}}}}
    warned = near_misses({"name": "m", "kind": "tool", "transport": transport, "inputs": inputs})
    at = "/transport/exec/ops/go"
    assert [one.pointer for one in warned] == [f"{at}/args/0", f"{at}/stdin"]
    assert warned[1].message == (
        "{text} is passed as it stands: /inputs/go has no text; "
        'add "inputs": {"go":{"properties":{"text":{}}}}, or write {{text}} for the text'
    )
    inputs["go"]["properties"] |= {"text": {}, "print": {}}
    fields = {"name": "m", "kind": "tool", "transport": transport, "inputs": inputs}
    assert near_misses(fields) == []


def test_an_op_without_inputs_takes_no_args_and_is_described_so() -> None:
    transport = {"type": "stdio", "command": ["x"], "protocol": "exec", "exec": {"ops": {"go": {}}}}
    document = {"name": "m", "kind": "tool", "transport": transport}
    made = parse_descriptor(msgspec.json.encode(document), "/m.json")
    assert made.inputs == {"go": {"type": "object", "additionalProperties": False}}


def test_of_what_is_too_much_the_beginning_is_shown_and_that_more_came() -> None:
    violated, _ = told({"args": ["x"], "stdout": "text"}, b"x" * 1025, line_bytes=1024)
    assert isinstance(violated, Violated)
    assert violated.fault.excerpt == "x" * 200 + "…"
