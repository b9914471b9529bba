from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.principals import (
    ALL_SCOPES,
    EVERYTHING,
    GLOB_CHARS,
    SUPERVISOR,
    Principal,
    Scope,
    covers_all,
    has_few_wildcards,
)
from supervisor.policy.principals import GLOBS as MOST_GLOBS

SCOPES = st.frozensets(st.sampled_from(Scope))
PART = st.text("ab.*", max_size=4)
GLOBS = st.lists(PART, max_size=4).map(tuple)
NAMES = ("a", "b", "ab", "ba", "aab", "a.b", "a%2Eb")
OPS = (None, "", "a", "b", "ab", "a.b")


def principal(*modules: str, scopes: frozenset[Scope] = ALL_SCOPES) -> Principal:
    return Principal("ada", "test", scopes, modules)


def may(one: Principal, scope: Scope, module: str | None = None, op: str | None = None) -> bool:
    return scope in one.scopes and (module is None or one.covers(module, op))


def test_only_who_may_do_everything_is_full() -> None:
    assert principal("*").is_full
    assert principal("kv", "**").is_full
    assert SUPERVISOR.is_full
    assert not principal("a*").is_full
    assert not principal().is_full
    assert not principal("").is_full
    assert not principal("*", scopes=frozenset({Scope.READ, Scope.ADMIN})).is_full


def test_it_is_not_full_because_it_is_said_to_be() -> None:
    assert not Principal("ada", "test", frozenset(), (), is_full=True).is_full


@given(SCOPES)
def test_no_scope_holds_another(has: frozenset[Scope]) -> None:
    one = principal("*", scopes=has)
    assert {scope for scope in Scope if may(one, scope)} == has
    assert {scope for scope in Scope if may(one, scope, "kv", "get")} == has


@pytest.mark.parametrize(
    ("glob", "module", "op", "covered"),
    [
        ("kv", "kv", None, True),
        ("kv", "kv", "get", True),
        ("kv", "kvs", None, False),
        ("kv.get", "kv", "get", True),
        ("kv.get", "kv", None, False),
        ("kv.get", "kv", "get.all", True),
        ("kv.get", "kv", "gets", False),
        ("kv.get*", "kv", "gets", True),
        ("kv.*", "kv", "get", True),
        ("kv.*", "kv", None, False),
        ("k*", "kv", None, True),
        ("k*", "kv", "get", True),
        ("*", "kv", None, True),
        ("*", "kv.secret", "get", True),
        # A module whose name has a dot is none of the ops of another.
        ("kv.secret", "kv.secret", None, False),
        ("kv", "kv.secret", None, False),
        ("kv%2Esecret", "kv.secret", "get", True),
        ("kv%2Esecret", "kv%2Esecret", None, False),
        ("kv%252Esecret", "kv%2Esecret", None, True),
        # Nothing else than "*" is special.
        ("k?", "kv", None, False),
        ("[k]v", "kv", None, False),
        ("", "kv", None, False),
    ],
)
def test_a_glob_is_about_a_module_or_ops_of_it(
    glob: str, module: str, op: str | None, covered: bool
) -> None:
    one = principal(glob)
    assert one.covers(module, op) is covered
    assert may(one, Scope.READ, module, op) is covered
    assert not may(one.narrowed(scopes=()), Scope.READ, module, op)


@pytest.mark.parametrize(
    ("glob", "module", "seen"),
    [
        ("kv", "kv", True),
        ("kv.get", "kv", True),
        ("kv.", "kv", True),
        ("kv.g*", "kv", True),
        ("k*.get", "kv", True),
        ("*.get", "kv", True),
        ("k*", "kv", True),
        ("kv", "k", False),
        ("kvs.get", "kv", False),
        ("a*.get", "kv", False),
        ("kv.secret", "kv.secret", False),
        ("", "kv", False),
    ],
)
def test_a_module_is_seen_if_anything_of_it_could_be_covered(
    glob: str, module: str, seen: bool
) -> None:
    assert principal(glob).sees(module) is seen


@given(GLOBS, st.sampled_from(NAMES), st.sampled_from(OPS))
def test_what_is_covered_is_seen(globs: tuple[str, ...], module: str, op: str | None) -> None:
    one = principal(*globs)
    if one.covers(module, op):
        assert one.sees(module)


@given(GLOBS, st.sampled_from(NAMES), st.sampled_from(OPS))
def test_what_is_covered_as_a_whole_is_covered_in_all_its_ops(
    globs: tuple[str, ...], module: str, op: str | None
) -> None:
    one = principal(*globs)
    if one.covers_all():
        assert one.covers(module)
    if one.covers(module):
        assert one.covers(module, op)


@given(GLOBS, SCOPES, st.none() | SCOPES, st.none() | GLOBS)
def test_narrowing_can_only_take_away(
    globs: tuple[str, ...],
    scopes: frozenset[Scope],
    fewer: frozenset[Scope] | None,
    narrower: tuple[str, ...] | None,
) -> None:
    before = principal(*globs, scopes=scopes)
    after = before.narrowed(fewer, narrower)
    asked = principal(
        *(EVERYTHING if narrower is None else narrower),
        scopes=ALL_SCOPES if fewer is None else fewer,
    )
    assert (after.name, after.face) == (before.name, before.face)
    for scope, module, op in itertools.product(Scope, NAMES, OPS):
        if may(after, scope, module, op):
            assert may(before, scope, module, op)
            assert may(asked, scope, module, op)
    for module in NAMES:
        assert before.sees(module) or not after.sees(module)
    assert before.owns("bob") or not after.owns("bob")


@given(GLOBS)
def test_nothing_is_lost_by_narrowing_to_what_there_is(globs: tuple[str, ...]) -> None:
    before = principal(*globs)
    for after in (before.narrowed(None, globs), before.narrowed(None, EVERYTHING)):
        for module, op in itertools.product(NAMES, OPS):
            assert after.covers(module, op) == before.covers(module, op)


def test_who_may_use_everything_is_narrowed_to_what_is_named() -> None:
    after = principal("*").narrowed([Scope.READ, Scope.INVOKE], ["kv.get", "a*"])
    assert after.document() == {
        "name": "ada",
        "face": "test",
        "scopes": ["read", "invoke"],
        "modules": ["kv.get", "a*"],
    }


def test_of_globs_that_overlap_in_part_nothing_is_left() -> None:
    assert principal("k*").narrowed(None, ["*v", "kv", "b"]).modules == ("kv",)


def test_an_admin_sees_what_is_of_others() -> None:
    ada = principal("*", scopes=frozenset({Scope.READ}))
    assert ada.owns("ada")
    assert not ada.owns("bob")
    assert not ada.owns(None)
    admin = principal("kv", scopes=frozenset({Scope.ADMIN}))
    assert admin.owns("bob")
    assert admin.owns(None)


def test_a_module_asks_with_no_scope_but_to_invoke() -> None:
    ada = principal("a", "b")
    assert ada.delegated() == principal("a", "b", scopes=frozenset({Scope.INVOKE}))
    assert ada.delegated().delegated() == ada.delegated()
    assert not ada.narrowed([Scope.READ]).delegated().scopes


def test_equal_ones_are_the_same() -> None:
    assert principal("kv") == principal("kv")
    assert hash(principal("kv")) == hash(principal("kv"))
    assert principal("kv") != principal("vk")


def test_the_journal_is_told_the_name_whatever_it_is() -> None:
    said = json.loads(bytes(Principal("b\udcffb", "socket").by))
    assert said == {"name": "b?b", "face": "socket"}


def test_a_glob_covers_all_if_it_is_nothing_but_stars() -> None:
    assert [one for one in ("", "*", "**", "*a", ".", "*.*") if covers_all(one)] == ["*", "**"]


def test_a_principal_has_few_and_simple_globs() -> None:
    assert (MOST_GLOBS, GLOB_CHARS) == (50, 300)
    assert has_few_wildcards("*a*b*c*")
    assert not has_few_wildcards("*a*b*c*d*")
