"""Args that are typed as words: `key=value` and `key:=json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click import UsageError

from supervisor.cli.args import args_of, read_words
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, module, not_ok, ok

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "either": {"type": ["integer", "string"]},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"$ref": "#/$defs/size"}},
        "place": {"type": "object"},
        "level": {"enum": [1, 2]},
        "sure": {"enum": [True]},
        "colour": {"enum": ["red", "1"]},
        "any": True,
    },
    "$defs": {"size": {"type": "number"}},
}


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (("text=a=b c",), {"text": "a=b c"}),
        (("text=",), {"text": ""}),
        (("text=3",), {"text": "3"}),
        (("text:=3",), {"text": 3}),
        (("count=3", "ratio=0.5", "deep=true"), {"count": 3, "ratio": 0.5, "deep": True}),
        (("count=-3",), {"count": -3}),
        (("either=3",), {"either": "3"}),
        (("maybe=3",), {"maybe": 3}),
        (("maybe=null",), {"maybe": None}),
        (("tags=a",), {"tags": ["a"]}),
        (("tags=a", "tags=2"), {"tags": ["a", "2"]}),
        (('tags=["a","b"]',), {"tags": ["a", "b"]}),
        (('tags:=["a"]',), {"tags": ["a"]}),
        (("sizes=1", "sizes=2.5"), {"sizes": [1, 2.5]}),
        (('place={"x":1}',), {"place": {"x": 1}}),
        (("level=2", "sure=true", "colour=1"), {"level": 2, "sure": True, "colour": "1"}),
        (("any=1", "unknown=1"), {"any": "1", "unknown": "1"}),
    ],
)
def test_a_word_is_what_the_schema_says_and_a_text_otherwise(
    words: tuple[str, ...], args: dict[str, Any]
) -> None:
    assert args_of(read_words(words), SCHEMA) == args


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("d20",), '"d20" is neither key=value nor key:=json'),
        (("=1",), '"=1" is neither key=value nor key:=json'),
        (('{"a":1}',), "pass args as one JSON object with --args"),
        (("count=x",), "count=x: count must be a whole number, such as 3"),
        (("count=1.5",), "count must be a whole number"),
        (("count=true",), "count must be a whole number"),
        (("deep=yes",), "deep=yes: deep must be true or false"),
        (("maybe=x",), "maybe must be a whole number, such as 3, or null"),
        (("sizes=1", "sizes=x"), "sizes=x: sizes must be a number, such as 3 or 0.5"),
        (("place=x",), "place must be a JSON object"),
        (("count=1", "count=2"), "count is given 2 times, and takes one value"),
        (("count:=@a.json",), "--args @FILE reads all args from a file, as one JSON object"),
        (("count:=one",), "is not JSON at line 1 column 1: expecting value; for a text, write"),
        (("count:=",), "the JSON ends in the middle"),
    ],
)
def test_what_is_wrong_with_a_word_is_said_of_that_word(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        args_of(read_words(words), SCHEMA)
    assert said in caught.value.message
    assert "being written" not in caught.value.message


def test_a_schema_that_refers_to_itself_is_no_trap() -> None:
    schema = {"properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "#/nowhere"}}}
    assert args_of(read_words(("a=1", "b=2")), schema) == {"a": "1", "b": "2"}


def known(frame: Frame) -> list[Frame | bytes]:
    if frame["tool"] == "supervisor":
        ops = {"names": ["roll"], "count": 1, "remembered": False, "inputs": {"roll": SCHEMA}}
        return [ok(module(ops=ops))]
    return [ok(1)]


def test_the_schema_is_the_daemons_and_the_words_add_to_the_args(run: Run, serve: Serve) -> None:
    daemon = serve(known)
    arguments = ("count=3", "--args", '{"text":"a","count":1}', "text:=null")
    assert run("invoke", "dice", "roll", *arguments).exit_code == 0
    asked, invoked = daemon.frames
    assert asked["input"] == {"op": "status", "args": {"module": "dice", "inputs": True}}
    assert invoked["input"]["args"] == {"text": None, "count": 3}


def test_nobody_is_asked_for_a_schema_that_is_not_needed(run: Run, serve: Serve) -> None:
    daemon = serve(known)
    run("invoke", "dice", "roll", "count:=3")
    assert [frame["tool"] for frame in daemon.frames] == ["dice"]


def test_where_no_schema_is_known_words_are_texts(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [not_ok("bad_request", "no")])
    run("invoke", "dice", "roll", "count=3")
    assert daemon.frames[-1]["input"]["args"] == {"count": "3"}


def test_an_op_of_the_daemon_takes_words_too(run: Run, serve: Serve) -> None:
    inputs = {"wait": {"properties": {"modules": {"type": "array"}}}}
    daemon = serve(lambda frame: [ok({"inputs": inputs})])
    run("invoke", "supervisor", "wait", "modules=dice")
    assert daemon.frames[-1]["input"]["args"] == {"modules": ["dice"]}


def test_without_a_daemon_the_descriptor_has_the_schema(run: Run) -> None:
    descriptor = Path(__file__).parents[2] / "modules" / "dice" / "module.json"
    ended = run("invoke", "dice", "roll", "sides=x", "--descriptor", str(descriptor))
    assert ended.exit_code == 2
    assert "sides must be a whole number" in ended.stderr
