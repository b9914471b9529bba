"""What an entry covers, and which of two rules decides."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.capabilities import (
    METHODS,
    Authorization,
    ListEntry,
    Mode,
    Policy,
    RuleMatch,
    RulePlace,
    Rules,
    covers,
    decide,
    emit_capability,
    invoke_capability,
    remedy,
    unknown_capability,
)


@pytest.mark.parametrize(
    ("entry", "capability", "expected"),
    [
        ("log", "log", True),
        ("log", "login", False),
        ("login", "log", False),
        ("module.invoke", "module.invoke:kv.get", True),
        ("module.invoke:kv", "module.invoke:kv.get", True),
        ("module.invoke:kv.get", "module.invoke:kv.get", True),
        ("module.invoke:kv.get", "module.invoke:kv", False),
        ("module.invoke:kv", "module.invoke:kvs.get", False),
        ("module.invoke:kv.ge", "module.invoke:kv.get", False),
        ("module.*", "module.invoke:kv.get", True),
        ("module.invoke:kv.*", "module.invoke:kv.get", True),
        ("module.invoke:kv.*", "module.invoke:kv", False),
        ("module.invoke:*.get", "module.invoke:kv.get", True),
        ("module.invoke:*.get", "module.invoke:kv.get.all", True),
        ("module.invoke:*.get", "module.invoke:kv.getter", False),
        ("module.invoke:*.get", "module.invoke:kv.getter.get", True),
        ("*", "log", True),
        ("**", "log", True),
        ("*.read", "session.read", True),
        ("*read", "read.all", True),
        ("*read", "reader", False),
        ("session.*", "session", False),
        ("session.", "session.read", False),
        ("Session.read", "session.read", False),
        ("session.?ead", "session.read", False),
        ("[ls]og", "log", False),
        ("a*b*a", "a.b.a", True),
        ("a*b*a", "a.a.b", False),
    ],
)
def test_an_entry_covers_what_it_names_and_all_below(
    entry: str, capability: str, expected: bool
) -> None:
    assert covers(entry, capability) is expected


def test_a_name_with_levels_in_it_is_not_taken_for_another_module() -> None:
    assert invoke_capability("kv", "get") == "module.invoke:kv.get"
    assert invoke_capability("kv", "a.b") == "module.invoke:kv.a.b"
    secret = invoke_capability("kv.secret", "get")
    assert secret == "module.invoke:kv%2Esecret.get"
    assert not covers("module.invoke:kv", secret)
    assert not covers("module.invoke:a", invoke_capability("a:b", "x"))
    assert invoke_capability("kv%2Esecret", "get") != secret
    assert covers("event.emit:kv", emit_capability("kv:set"))


WORDS = st.text("ab.:*", max_size=8)


@given(WORDS, WORDS)
def test_what_is_below_a_covered_capability_is_covered(entry: str, capability: str) -> None:
    if covers(entry, capability):
        assert covers(entry, capability + ".x")
        assert covers(entry, capability + ":x.y")


def matches(entry: str, text: str) -> bool:
    """Tell whether an entry is about a text, by trying what each `*` may stand for."""
    if not entry:
        return text[:1] in {"", ".", ":"}
    if entry[0] == "*":
        return any(matches(entry[1:], text[at:]) for at in range(len(text) + 1))
    return text[:1] == entry[0] and matches(entry[1:], text[1:])


@given(WORDS, st.text("ab.:", max_size=8))
def test_covering_is_what_trying_everything_says(entry: str, capability: str) -> None:
    assert covers(entry, capability) is matches(entry, capability)


@given(WORDS, WORDS, st.text("ab.:", max_size=8))
def test_what_a_covered_entry_covers_is_covered(wide: str, narrow: str, capability: str) -> None:
    if covers(wide, narrow) and covers(narrow, capability):
        assert covers(wide, capability)


# Every rule there is about one capability, the ones that beat the others first. Modes stand last:
# of two modes the module's own counts. Each takes a policy and adds itself.
WANTED = "module.invoke:shell.run"


def with_rules(own: bool, **fields: object) -> Callable[[Policy], Policy]:
    def add(policy: Policy) -> Policy:
        rules = policy.modules.get("m", Rules()) if own else policy.everywhere
        rules = msgspec.structs.replace(rules, **fields)
        if own:
            return msgspec.structs.replace(policy, modules={"m": rules})
        return msgspec.structs.replace(policy, everywhere=rules)

    return add


def entry_at(key: str) -> tuple[ListEntry, ...]:
    return (
        ListEntry("log", "x"),
        ListEntry("module.invoke:shell", key),
        ListEntry("module.*", "y"),
    )


RULES: dict[str, tuple[Callable[[Policy], Policy], Authorization, RuleMatch]] = {}
for source, verdict in (
    (RulePlace.DENY, Authorization.DENIED),
    (RulePlace.ALLOW, Authorization.ALLOWED),
):
    for own in (True, False):
        key = f"{'modules.m.' if own else ''}{source}[1]"
        RULES[f"{source} of the {'module' if own else 'file'}"] = (
            with_rules(own, **{source: entry_at(key)}),
            verdict,
            RuleMatch(
                source=source,
                module="m" if own else None,
                entry="module.invoke:shell",
                file="p.toml",
                key=key,
            ),
        )
VERDICTS = {
    Mode.STRICT: Authorization.DENIED,
    Mode.PROMPT: Authorization.ASK,
    Mode.PERMISSIVE: Authorization.ALLOWED,
}
for own in (True, False):
    for mode, verdict in VERDICTS.items():
        key = f"{'modules.m.' if own else ''}mode"
        RULES[f"{mode} of the {'module' if own else 'file'}"] = (
            with_rules(own, mode=mode, mode_key=key),
            verdict,
            RuleMatch(
                source=RulePlace.MODE,
                module="m" if own else None,
                entry=mode,
                file="p.toml",
                key=key,
            ),
        )
SAME_PLACE = {
    frozenset({f"{one} of the {scope}", f"{other} of the {scope}"})
    for one, other in itertools.combinations(Mode, 2)
    for scope in ("module", "file")
}
PAIRS = [pair for pair in itertools.combinations(RULES, 2) if frozenset(pair) not in SAME_PLACE]
FILE = Policy(source="p.toml")


def test_the_table_of_pairs_is_complete() -> None:
    assert len(RULES) == 10
    assert len(PAIRS) == 45 - 6


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_alone_decides(name: str) -> None:
    add, verdict, rule = RULES[name]
    decision = decide(add(FILE), "m", ["module.*"], WANTED)
    assert (decision.verdict, decision.rule) == (verdict, rule)
    assert (decision.module, decision.capability) == ("m", WANTED)


@pytest.mark.parametrize(("stronger", "weaker"), PAIRS)
def test_of_two_rules_the_stronger_decides(stronger: str, weaker: str) -> None:
    add, verdict, rule = RULES[stronger]
    for policy in (RULES[weaker][0](add(FILE)), add(RULES[weaker][0](FILE))):
        decision = decide(policy, "m", ["module.*"], WANTED)
        assert (decision.verdict, decision.rule) == (verdict, rule)


@pytest.mark.parametrize("name", RULES)
def test_what_the_descriptor_does_not_list_is_denied_whatever_the_policy_says(name: str) -> None:
    decision = decide(RULES[name][0](FILE), "m", ["module.invoke:kv", "log"], WANTED)
    assert decision.verdict is Authorization.DENIED
    assert decision.rule.source is RulePlace.DESCRIPTOR
    assert str(decision.rule) == "the descriptor's capabilities do not list it"


def test_without_a_policy_all_is_denied_by_default() -> None:
    decision = decide(Policy(), "m", METHODS, "log")
    assert decision.verdict is Authorization.DENIED
    assert str(decision.rule) == 'mode "strict", the default'


def test_rules_of_another_module_are_nothing_to_this_one() -> None:
    policy = Policy(
        modules={
            "other": Rules(mode=Mode.PERMISSIVE, allow=(ListEntry("*", "modules.other.allow[0]"),))
        }
    )
    assert decide(policy, "m", METHODS, "log").verdict is Authorization.DENIED


def test_a_rule_reads_as_one_line() -> None:
    own = RULES["allow of the module"][2]
    assert str(own) == 'p.toml: modules.m.allow[1] "module.invoke:shell"'
    assert str(RULES["deny of the file"][2]) == 'p.toml: deny[1] "module.invoke:shell"'
    assert str(RULES["prompt of the file"][2]) == 'p.toml: mode "prompt"'


UNKNOWN = (
    '"user.ak" is an unknown capability, for which nothing is granted; did you mean "user.ask"?'
)

RULED = Policy(
    source="p.toml",
    everywhere=Rules(deny=(ListEntry("user.ask", "deny[0]"),), mode=Mode.PERMISSIVE),
    modules={"kv": Rules(mode=Mode.STRICT, deny=(ListEntry("roots.list", "modules.kv.deny[1]"),))},
)


@pytest.mark.parametrize(
    ("policy", "module", "declared", "capability", "words"),
    [
        (RULED, "other", ("log",), "log", None),
        (RULED, "other", ("user.ask",), "user.ask", 'take "user.ask" out of `deny` in p.toml'),
        (
            RULED,
            "kv",
            ("roots.list",),
            "roots.list",
            'take "roots.list" out of `modules.kv.deny` in p.toml',
        ),
        (
            RULED,
            "kv",
            ("log",),
            "log",
            'add "log" to `allow` of `[modules."kv"]` in p.toml, then `stdiod reload`',
        ),
        (
            Policy(),
            "kv",
            ("log",),
            "log",
            'put `allow = ["log"]` in a file, then `stdiod up DIR --policy FILE`',
        ),
        (
            RULED,
            "other",
            ("user.ask",),
            "user.ak",
            UNKNOWN,
        ),
        (RULED, "other", (), "log", 'add "log" to "capabilities" in m.json'),
        (
            RULED,
            "other",
            (),
            "user.ask",
            'add "user.ask" to "capabilities" in m.json; take "user.ask" out of `deny` in p.toml',
        ),
    ],
    ids=lambda one: str(one)[:30],
)
def test_what_to_write_to_allow_it_is_told(
    policy: Policy, module: str, declared: tuple[str, ...], capability: str, words: str | None
) -> None:
    assert remedy(policy, decide(policy, module, declared, capability), "m.json") == words


@pytest.mark.parametrize(
    ("entry", "anywhere", "in_a_descriptor"),
    [
        ("log", None, None),
        ("module.invoke:kv.get", None, None),
        ("event.emit:a b", None, None),
        ("event.emit:a%20b", None, 'the name of an event is written as it is: "event.emit:a b"'),
        ("module.invoke:a%20b", None, None),
        ("sesion.read", 'did you mean "session.read"?', 'did you mean "session.read"?'),
        ("sesion.read:x", 'did you mean "session.read:x"?', 'did you mean "session.read:x"?'),
        ("fs.read", f"known are {', '.join(METHODS)}", None),
        ("fs.read:/tmp", f"known are {', '.join(METHODS)}", None),
    ],
)
def test_a_capability_that_nobody_grants_is_told_with_what_was_probably_meant(
    entry: str, anywhere: str | None, in_a_descriptor: str | None
) -> None:
    unknown = f'"{entry}" is an unknown capability, for which nothing is granted; '
    for misspelt, hint in ((False, anywhere), (True, in_a_descriptor)):
        begin = f'"{entry}": ' if str(hint).startswith("the name") else unknown
        words = None if hint is None else begin + hint
        assert unknown_capability(entry, misspelt=misspelt) == words
