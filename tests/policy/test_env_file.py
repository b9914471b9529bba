from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.env_file import EnvFileError, quoted_line, read_env_file

READ = {
    "": {},
    "\n \t\n# a\n  # b=c\n": {},
    "A=1": {"A": "1"},
    "A=1\nB=2\n": {"A": "1", "B": "2"},
    "A=1\r\nB='2'\r\nC=\"3\"\r\n\r\n# x\r\n": {"A": "1", "B": "2", "C": "3"},
    "\ufeffA=1\n": {"A": "1"},
    "A=1\nA=2\n": {"A": "2"},
    "export A=1\n\texport\tB=2\n": {"A": "1", "B": "2"},
    "export=1\n": {"export": "1"},
    "  A  =  b c  \n": {"A": "b c"},
    "A=\nB= \nC=''\nD=\"\"\n": {"A": "", "B": "", "C": "", "D": ""},
    "A=b=c==\n": {"A": "b=c=="},
    "A=a#b\nB=a #b\nC=#c\nD= #d\nE=a\t# e 'f\n": {
        "A": "a#b",
        "B": "a",
        "C": "#c",
        "D": "",
        "E": "a",
    },
    "A='a #b' # c\nB=\"a #b\"\t#c\n": {"A": "a #b", "B": "a #b"},
    "A='a\\n$B \"'\n": {"A": 'a\\n$B "'},
    'A="a\\n\\r\\t\\"\\\\\\$\\x\'"\n': {"A": "a\n\r\t\"\\$\\x'"},
    "A='one\ntwo'\nB=\"one\r\ntwo\"\n": {"A": "one\ntwo", "B": "one\ntwo"},
    "A=$B ${C:-d} $(e) `f`\n": {"A": "$B ${C:-d} $(e) `f`"},
    "A=it's\n": {"A": "it's"},
    "Ä=1": None,
    "A": 1,
    "A=1\nsecret\n": 2,
    "A='x\n\ny'\n1X=secret\n": 4,
    "A-B=secret": 1,
    "A B=secret": 1,
    "=secret": 1,
    "\n\nA='secret\nB=1\n": 3,
    'A="secret\\"\n': 1,
    "A='secret'more\n": 1,
    "A='secret'#more\n": 1,
    "A=1\nB=sec\0ret\n": 2,
    "A: secret\n": 1,
}


@pytest.mark.parametrize(("text", "found"), READ.items(), ids=map(repr, READ))
def test_a_file_is_its_variables_or_a_fault_with_a_line_and_without_a_value(
    text: str, found: dict[str, str] | int | None
) -> None:
    if isinstance(found, dict):
        assert read_env_file(text.encode()) == found
        return
    with pytest.raises(EnvFileError, match=f"line {found or 1} ") as raised:
        read_env_file(text.encode())
    assert "sec" not in str(raised.value)


def test_what_is_not_utf_8_is_a_fault_with_its_line() -> None:
    with pytest.raises(EnvFileError, match=r"line 2 .* not UTF-8"):
        read_env_file("A=1\nB=ä\n".encode("latin-1"))
    with pytest.raises(EnvFileError, match="line 1 "):
        read_env_file("A=1\n".encode("utf-16"))


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_written_line_is_read_as_what_was_written(value: str) -> None:
    line = quoted_line("A", value)
    assert line.count("\n") == 1
    assert read_env_file(line.encode()) == {"A": value}


def test_a_long_line_of_blanks_or_quotes_is_read_at_once() -> None:
    for part in (" ", "\t#", "\\", "' ", '\\"'):
        value = part * (1_000_000 // len(part))
        assert read_env_file(f"A=x{value}".encode())["A"].startswith("x")
