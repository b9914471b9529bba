"""Reading a JSON file strictly, and saying where and why it is none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from protocol.json_document import MAX_DEPTH, plain_json, read_document
from protocol.problem import Problem


def problems(data: bytes) -> list[Problem]:
    found = read_document(data)
    assert isinstance(found, list)
    assert found
    return found


def document(text: str) -> dict[str, Any]:
    read = read_document(text.encode())
    assert isinstance(read, dict), read
    return read


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"[]", "is an array, must be one JSON object"),
        (b'"text"', "is a string, must be one JSON object"),
        (b"null", "is null, must be one JSON object"),
        (b'{\n "a": 1,\n "b": [2,\n', "the JSON ends in the middle, line 4 column 1; is the file"),
        (b'{"a": "b\xc3', "the JSON ends in the middle, line 1 column 9; is the file"),
        (b'{"a": "b\\u00', "the JSON ends in the middle"),
        (b'{\n "a": 1\n "b": 2}', "is not JSON at line 3 column 2: expecting ',' delimiter"),
        (b'{"a": 1,\n}', "line 2 column 1: nothing stands between ',' and '}'"),
        (b'{"a": [1, ]}', "line 1 column 11: nothing stands between ',' and ']'"),
        (b'\n{"a": 1,}', "is not JSON at line 2 column 9: nothing stands between ',' and '}'"),
        (b"{'a': 1}", "strings are written in double quotes"),
        (b'{"a": True}', "true, false and null are written in lower case"),
        (b'{"a": 1} // c', "something follows the end of the JSON value"),
        (b'{"a": 1, // c\n"b": 2}', "JSON has no comments"),
        (b'{"a": "x\ny"}', "a string holds a raw control character, written '\\n' in JSON"),
        (b'{"a": "x\\q"}', "is not JSON at line 1 column 9"),
        (b'{"a": 1}{"b": 2}', "line 1 column 9: something follows"),
        (b"\x00\x00", "is not JSON at line 1 column 1"),
        (b'{"a":\n"\xff"}', "is not UTF-8: byte 0xff at line 2 column 2"),
        ('{"a": 1}'.encode("utf-16"), "is UTF-16, must be UTF-8"),
        (b'{"a": NaN}', "/a: is NaN, which JSON does not have"),
        (b'{"a": [-Infinity]}', "/a/0: is -Infinity, which JSON does not have"),
        (b'{"a": 1e999}', "/a: is a number too large for a double"),
        (b'{"a": 18446744073709551616}', "/a: is an integer that does not fit in 64 bits"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "/a: is an integer that does not fit in 64 bits"),
        (b'{"a": "\\ud800"}', "/a: holds half of a surrogate pair"),
        (b'{"\\udfff": 1}', "has a key with half of a surrogate pair"),
        (b'{"name": 1, "name": 2}', '/name: the key "name" stands here more than once'),
        (b'{"a": [{"x/y": 1, "x/y": 1}]}', '/a/0/x~1y: the key "x/y" stands here more than once'),
        (b'{"\\ud800": 1, "\\ud800": 2}', "stands here more than once"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "is nested more than 128 levels deep"),
        (b'{"a":' + b"[" * 100_000, "is nested more than 128 levels deep"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "is nested more than 128 levels deep"),
    ],
)
def test_a_file_that_is_no_json_object_is_explained(data: bytes, words: str) -> None:
    found = problems(data)
    assert words in "\n".join(map(str, found))
    msgspec.json.encode(found)  # a lone surrogate would not go through


def test_half_written_files_are_told_from_wrong_ones_wherever_they_end() -> None:
    whole: dict[str, Any] = {
        "x": [True, False, None, -1.5e-7, "\u00e9\n\u2028\U0001f3b2", 0, {}],
        "y": {"z": []},
    }
    for ascii_only in (True, False):
        data = json.dumps(whole, indent=1, ensure_ascii=ascii_only).encode()
        for end in range(1, len(data)):
            (problem,) = problems(data[:end])
            assert "ends in the middle" in problem.message, data[max(0, end - 20) : end]


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(document('{"a": [' + "[]," * 1000 + "[]]}")["a"]) == 1001


def test_the_deepest_document_allowed_is_accepted() -> None:
    inner = MAX_DEPTH - 1
    assert document('{"a":' + "[" * inner + "]" * inner + "}")
    assert problems(b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert document('{"a": "\\ud83c\\udfb2"}') == {"a": "\U0001f3b2"}


def test_numbers_are_kept_as_they_are_written() -> None:
    read = document('{"a": [18446744073709551615, -9223372036854775808, 5.0, 1e300, -0.0, 1e-999]}')
    assert list(map(repr, read["a"])) == [
        "18446744073709551615", "-9223372036854775808", "5.0", "1e+300", "-0.0", "0.0",
    ]  # fmt: skip


def test_a_byte_order_mark_is_tolerated() -> None:
    assert document("\ufeff{}") == {}


def test_a_document_is_128_levels_deep_whatever_it_nests() -> None:
    for levels, fits in ((128, True), (129, False)):
        for opens, closes in ((b"[", b"]"), (b'{"a":', b"}")):
            data = b'{"a":' + opens * (levels - 1) + b"1" + closes * (levels - 1) + b"}"
            found = read_document(data)
            assert isinstance(found, dict) is fits
            if not fits:
                assert found == [Problem("", "is nested more than 128 levels deep")]


WORDS: dict[bytes, str] = {
    b"[]": "is an array, must be one JSON object",
    b"": "the file is empty, it must be one JSON object",
    b'{"a": 1}x': "is not JSON at line 1 column 9: something follows the end of the JSON value",
    b'{"a": # c': "is not JSON at line 1 column 7: JSON has no comments",
    b'{"a": /* c': "is not JSON at line 1 column 7: JSON has no comments",
    b"{\n'a'": "is not JSON at line 2 column 1: strings are written in double quotes",
    b'{"a": None}': (
        "is not JSON at line 1 column 7: true, false and null are written in lower case"
    ),
    b'{"a":,}': "is not JSON at line 1 column 6: expecting value",
    b'{"a":1,,}': "is not JSON at line 1 column 8: nothing stands between ',' and ','",
    b'{"a": "x\ty"}': (
        "is not JSON at line 1 column 9: a string holds a raw control character, written '\\t' "
        "in JSON"
    ),
    b'{"a": \xff': "is not UTF-8: byte 0xff at line 1 column 7",
    b"\xff\xfe{\0": "is UTF-16, must be UTF-8",
    b'{"a": "\xc3': (
        "the JSON ends in the middle, line 1 column 8; is the file still being written?"
    ),
}


@pytest.mark.parametrize(("data", "words"), WORDS.items(), ids=repr)
def test_what_is_wrong_with_a_file_is_told_in_these_words(data: bytes, words: str) -> None:
    assert read_document(data) == [Problem("", words)]


def test_all_flaws_of_a_document_are_told_where_they_stand() -> None:
    data = b'{"a":[NaN,1e999,-9223372036854775809,18446744073709551616],"b":1,"b":2}'
    found = read_document(data)
    assert isinstance(found, list)
    assert sorted(found) == [
        Problem("/a/0", "is NaN, which JSON does not have"),
        Problem("/a/1", "is a number too large for a double"),
        Problem("/a/2", "is an integer that does not fit in 64 bits"),
        Problem("/a/3", "is an integer that does not fit in 64 bits"),
        Problem("/b", 'the key "b" stands here more than once'),
    ]


def test_comments_and_last_commas_of_settings_become_blanks() -> None:
    data = b'{"a": "// no, /* no */", // ye\xc3\xbc\n/* b\n */ "b": [1, 2,\n],}'
    assert plain_json(data) == (
        b'{"a": "// no, /* no */",'
        + b" " * 7
        + b"\n"
        + b" " * 4
        + b"\n"
        + b" " * 3
        + b' "b": [1, 2 \n] }'
    )
    assert plain_json(b'{"a": 1} /* no end') == b'{"a": 1} /* no end'
