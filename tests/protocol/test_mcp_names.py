from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.mcp_server import table as tables
from protocol.mcp_server.table import NAME_CHARS, Names, Op, may_be_of, naming, op_of

ODD = st.text(max_size=80)
OPS = st.lists(st.tuples(ODD, ODD), unique=True, max_size=12)


def named_ops(ops: Iterable[Op], *, prefix: bool, had: Mapping[str, Op] = {}) -> dict[str, Op]:
    steps = naming(ops, prefix=prefix, had=had)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            named: dict[str, Op] = end.value
            return named


@given(ops=OPS, prefix=st.booleans())
def test_each_op_has_a_name_of_its_own_that_any_client_takes(
    ops: list[tuple[str, str]], prefix: bool
) -> None:
    named = named_ops(ops, prefix=prefix)
    assert list(named.values()) == ops
    for name in named:
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name)
    assert named_ops(reversed(ops), prefix=prefix, had=named) == named


def test_a_name_is_prefixed_or_unchanged_and_odd_characters_give_way() -> None:
    assert named_ops([("git", "log.all")], prefix=True) == {"git__log_all": ("git", "log.all")}
    assert named_ops([("git", "log.all")], prefix=False) == {"log.all": ("git", "log.all")}


def test_names_that_another_has_or_are_too_long_end_in_a_digest_of_what_they_mean() -> None:
    clashing = [("a.b", "c"), ("a_b", "c")]
    first, second = named_ops(clashing, prefix=True)
    assert first == "a_b__c"
    assert re.fullmatch("a_b__c_[0-9a-f]{8}", second)
    ((long, _),) = named_ops([("m", "x" * 100)], prefix=True).items()
    assert len(long) == NAME_CHARS


def test_a_name_that_is_no_more_means_what_it_meant_until_it_is_given_again() -> None:
    table = Names()
    table.replace({"read": ("a", "read")})
    table.replace({})
    assert table.find("read") == ("a", "read")
    table.replace({"read": ("b", "read")})
    assert table.find("read") == ("b", "read")
    assert table.find("write") is None


def test_names_that_stay_take_no_room_of_former_ones() -> None:
    table = Names()
    staying = {str(n): ("m", str(n)) for n in range(tables.REMEMBERED)}
    table.replace({"gone": ("m", "gone"), **staying})
    table.replace(staying)
    table.replace(dict(staying))
    assert table.find("gone") == ("m", "gone")
    assert table.find("0") == ("m", "0")


def test_a_name_has_64_characters_of_which_a_digest_takes_8() -> None:
    op = "x" * 61
    assert named_ops([("m", op)], prefix=True) == {f"m__{op}": ("m", op)}
    digest = hashlib.sha256(f"m\0{op}x".encode()).hexdigest()[:8]
    assert named_ops([("m", f"{op}x")], prefix=True) == {f"m__{'x' * 52}_{digest}": ("m", f"{op}x")}
    empty = hashlib.sha256(b"m\0").hexdigest()[:8]
    assert named_ops([("m", "")], prefix=False) == {f"_{empty}": ("m", "")}


def test_a_name_may_be_of_a_module_if_it_begins_as_its_ops_do() -> None:
    assert may_be_of("anything", "m", prefix=False)
    assert may_be_of("m__x", "m", prefix=True)
    assert not may_be_of("n__x", "m", prefix=True)
    long = "m" * 60
    assert may_be_of("m" * 55 + "_12345678", long, prefix=True)
    assert not may_be_of("m" * 54 + "n_12345678", long, prefix=True)
    assert op_of("m__x", "m") == "x"
    assert op_of("n__x", "m") is None


def test_twenty_thousand_former_names_are_kept() -> None:
    table = Names()
    table.replace({str(n): ("m", str(n)) for n in range(20_000)})
    table.replace({})
    assert table.find("0") == ("m", "0")
    table.replace({"new": ("m", "new")})
    table.replace({})
    assert table.find("0") is None
    assert table.find("1") == ("m", "1")


@pytest.mark.fault(42)
@given(ops=OPS, more=OPS, prefix=st.booleans())
def test_who_has_a_name_keeps_it_whoever_comes_and_goes(
    ops: list[Op], more: list[Op], prefix: bool
) -> None:
    names = Names()
    names.replace(before := named_ops(ops, prefix=prefix))
    others = [one for one in more if one not in ops]
    names.replace(between := named_ops(others, prefix=prefix, had=names.had))
    assert before.keys().isdisjoint(between)
    after = named_ops([*others, *ops], prefix=prefix, had=names.had)
    assert {name: after[name] for name in before} == before
    assert {name: after[name] for name in between} == between


@pytest.mark.fault(42)
def test_a_name_that_is_written_like_anothers_digest_takes_nothing() -> None:
    victim = ("z", "x" * 100)
    ((name, _),) = named_ops([victim], prefix=False).items()
    twins = [("a", name), *(("a", f"{name}{n}") for n in range(3))]
    assert named_ops([*twins, victim], prefix=False, had={name: victim})[name] == victim
    new = named_ops([*twins, victim], prefix=False)
    assert new[name] == ("a", name)
    assert victim in new.values()
