"""Reading a policy file: what it grants, and what is said about a bad or contradictory one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.policy.capabilities import ListEntry, Mode, Policy, Rules
from supervisor.policy.policy_file import (
    MAX_ENTRIES,
    MAX_TOLD,
    PolicyError,
    PolicyFile,
    parse_policy,
    unknown_modules,
)
from supervisor.policy.toml_document import told

WHOLE = """\
mode = "prompt"
allow = ["log",
         "session.*"]   # two lines
deny = [
  "module.invoke:shell",
]

[modules.orchestrator]
mode = "permissive"
allow = ["module.invoke"]
deny = []

[modules."a b"]
"""


def said(text: str) -> list[str]:
    """Return the problems of a bad policy, or the findings of a good one."""
    try:
        found = parse_policy(text, "p.toml")
    except PolicyError as error:
        return ["error", *str(error).splitlines()]
    return [told("p.toml", one) for one in found.findings]


def test_a_policy_is_read_with_the_keys_of_its_entries() -> None:
    assert parse_policy(WHOLE, "p.toml") == PolicyFile(
        Policy(
            source="p.toml",
            everywhere=Rules(
                mode=Mode.PROMPT,
                mode_key="mode",
                allow=(ListEntry("log", "allow[0]"), ListEntry("session.*", "allow[1]")),
                deny=(ListEntry("module.invoke:shell", "deny[0]"),),
            ),
            modules={
                "orchestrator": Rules(
                    mode=Mode.PERMISSIVE,
                    mode_key="modules.orchestrator.mode",
                    allow=(ListEntry("module.invoke", "modules.orchestrator.allow[0]"),),
                ),
                "a b": Rules(),
            },
        )
    )


def test_an_empty_file_grants_nothing() -> None:
    assert parse_policy("", "p.toml").policy == Policy(source="p.toml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mod = 'strict'", " mod: unknown key; did you mean 'mode'?"),
        ("\nzzzz = 1", " zzzz: unknown key; known are mode, allow, deny, modules, $schema"),
        ("[module.x]", " module: unknown key; did you mean 'modules'?"),
        ("[modules.x]\nalow = []", " modules.x.alow: unknown key; did you mean 'allow'?"),
        ("[modules.x]\nmodules = 1",
         " modules.x.modules: unknown key; did you mean 'mode'?"),
        ("mode = 'strikt'",
         (' mode: is "strikt", must be one of "strict", "prompt", "permissive"; '
         "did you mean 'strict'?")),
        ("mode = 3", ' mode: is a number, must be one of "strict", "prompt", "permissive"'),
        ("mode = true", ' mode: is a boolean, must be one of "strict", "prompt", "permissive"'),
        ("\n\nallow = 'log'",
         ' allow: is "log", must be an array of capabilities such as ["log", "session.*"]'),
        ("deny = {}",
         ' deny: is a table, must be an array of capabilities such as ["log", "session.*"]'),
        ("allow = ['log',\n 2020-01-01]",
         ' allow[1]: is a date or time, must be a capability such as "module.invoke:kv.get"'),
        ("allow = ['']",
         ' allow[0]: is "", must be a capability such as "module.invoke:kv.get"'),
        ("modules = 1", " modules: is a number, must be tables such as [modules.orchestrator]"),
        ("[[modules]]", " modules: is an array, must be tables such as [modules.orchestrator]"),
        ("modules.'a b' = 1",
         ' modules."a b": is a number, must be a table with mode, allow and deny'),
        ("mode = 'strict'\nmode = 'prompt'",
         "2: is not TOML: Cannot overwrite a value, in \"mode = 'prompt'\""),
        ("allow = [\n'log',\n]\n\nallow = [\n'x',\n]\n",
         '7: is not TOML: Cannot overwrite a value, in "]"'),
        ("[modules.a]\n[modules.b]\nmode = 'prompt'\n[modules.a]\n",
         "4: is not TOML: Cannot declare ('modules', 'a') twice, in \"[modules.a]\""),
        ("\nallow = [log]", '2: is not TOML: Invalid value, in "allow = [log]"'),
        ("allow = ['log',\n", "2: is not TOML: Invalid value"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_file_and_key(text: str, problem: str) -> None:
    assert said(text) == ["error", f"p.toml:{problem}"]


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "1" * 5000])
def test_text_that_is_too_much_for_the_parser_is_refused_in_words(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "p.toml")
    assert str(caught.value).isprintable()


def test_all_problems_are_told_at_once() -> None:
    text = "allow = 3\nmode = 'x'\nzzz = 1\n[modules.a]\ndeny = [4]\nmode = 'y'\nzzz = 1\n"
    assert [line.split(": ")[:2] for line in said(text)[1:]] == [
        ["p.toml", "zzz"],
        ["p.toml", "mode"],
        ["p.toml", "allow"],
        ["p.toml", "modules.a.zzz"],
        ["p.toml", "modules.a.mode"],
        ["p.toml", "modules.a.deny[0]"],
    ]
    assert len(said(f"allow = {list(range(MAX_ENTRIES))}")) == 1 + MAX_TOLD


def test_the_number_of_entries_is_bounded() -> None:
    most = [f"log.x{number}" for number in range(MAX_ENTRIES)]
    assert said(f"allow = {most}") == []
    assert said(f"allow = {most}\ndeny = ['log']") == [
        "error",
        "p.toml: deny: makes more than 1000 entries in this file, the most there may be",
    ]


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ("allow = ['log']\ndeny = [\n'log']",
         [' allow[0]: "log" never applies: deny[0] is "log", and deny beats allow']),
        ("deny = ['module.*']\nallow = ['module.invoke:kv']",
         [(' allow[0]: "module.invoke:kv" never applies: deny[0] is "module.*", '
          "and deny beats allow")]),
        ("deny = ['session']\n[modules.m]\nallow = ['log',\n'session.read']",
         [(' modules.m.allow[1]: "session.read" never applies: deny[0] is "session", '
          "and deny beats allow")]),
        ("[modules.m]\nallow = ['log']\ndeny = ['*']",
         [(' modules.m.allow[0]: "log" never applies: modules.m.deny[0] is "*", '
          "and deny beats allow")]),
        # Not contradictions: something is taken out of what is allowed, for all or for one.
        ("allow = ['module.invoke']\ndeny = ['module.invoke:shell']", []),
        ("allow = ['log']\n[modules.m]\ndeny = ['log']", []),
        ("[modules.a]\nallow = ['log']\n[modules.b]\ndeny = ['log']", []),
        # Slips of the pen.
        ("allow = ['sesion.read']",
         [(' allow[0]: "sesion.read" is an unknown capability, for which nothing is granted; '
          'did you mean "session.read"?')]),
        ("[modules.m]\ndeny = ['module.invok:shell']",
         [(' modules.m.deny[0]: "module.invok:shell" is an unknown capability, for which nothing '
          'is granted; did you mean "module.invoke:shell"?')]),
        ("allow = ['fs.read', 'session', 'log', '*', 'LOG.x']",
         [(' allow[0]: "fs.read" is an unknown capability, for which nothing is granted; known '
           'are module.invoke, session.read, session.write, event.emit, log, roots.list, user.ask, '
           'model.sample'),
          (' allow[4]: "LOG.x" is an unknown capability, for which nothing is granted; '
           'did you mean "log"?')]),
    ],
)  # fmt: skip
def test_contradictions_and_slips_are_found_with_the_keys(text: str, findings: list[str]) -> None:
    assert said(text) == [f"p.toml:{one}" for one in findings]


def test_a_table_for_a_module_that_is_not_there_is_found() -> None:
    found = parse_policy("[modules.kv]\n[modules.orchestator]\n[modules.zzz]\n", "p.toml")
    remarks = unknown_modules(found, ["kv", "orchestrator"])
    assert [told("p.toml", one) for one in remarks] == [
        "p.toml: modules.orchestator: no module has this name; did you mean 'orchestrator'?",
        "p.toml: modules.zzz: no module has this name",
    ]


def test_an_entry_about_a_module_that_is_not_there_is_found() -> None:
    entries = ["module.invoke:kv.get", "module.invoke:k*", "module.invoke:a%2Eb", "module.invoke"]
    wrong = ["module.invoke:kvv.get", "module.invoke:x*", "module.invoke:k.*"]
    found = parse_policy(f"deny = {[*entries, *wrong, 'log', '*']}", "p.toml")
    assert [one.message for one in unknown_modules(found, ["kv", "a.b"])] == [
        "deny[4]: \"module.invoke:kvv.get\" is about no module there is; did you mean 'kv'?",
        'deny[5]: "module.invoke:x*" is about no module there is',
        "deny[6]: \"module.invoke:k.*\" is about no module there is; did you mean 'kv'?",
    ]


ENTRIES = st.lists(st.sampled_from(["log", "session.read", "session", "*", "module.*", "", "3"]))


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["mode", "allow", "deny", "modules.a", "alow"]), ENTRIES)
    | st.text("modealw=[]'\"\n.# ", max_size=30)
)
def test_any_text_is_read_or_explained(document: dict[str, list[str]] | str) -> None:
    text = document
    if isinstance(document, dict):
        text = "".join(f"{key} = {value}\n" for key, value in document.items())
    for line in said(str(text)):
        assert line.isprintable()


def test_a_thousand_entries_and_a_hundred_problems_are_told() -> None:
    assert said(f"allow = {[f'log.x{number}' for number in range(1000)]}") == []
    assert said(f"allow = {[f'log.x{number}' for number in range(1001)]}") == [
        "error",
        "p.toml: allow: makes more than 1000 entries in this file, the most there may be",
    ]
    for count in (100, 101):
        assert len(said(f"allow = {list(range(count))}")) == 1 + 100
        findings = parse_policy(f"allow = {[f'zzz{n}.*' for n in range(count)]}", "p.toml").findings
        assert len(findings) == 100


def test_findings_are_told_list_by_list_contradictions_first() -> None:
    text = """\
deny = ["sesion.read", "log"]
allow = ["usr.ask", "log"]
[modules.b]
deny = ["rots.list", "user.ask"]
allow = ["modl.sample", "user.ask"]
[modules.a]
allow = ["log"]
"""
    assert [one.split(",")[0].split(": ")[1:3] for one in said(text)] == [
        ["allow[1]", '"log" never applies'],
        ["modules.b.allow[1]", '"user.ask" never applies'],
        ["modules.a.allow[0]", '"log" never applies'],
        *(
            [key, f'"{entry}" is an unknown capability']
            for key, entry in (
                ("allow[0]", "usr.ask"),
                ("deny[0]", "sesion.read"),
                ("modules.b.allow[0]", "modl.sample"),
                ("modules.b.deny[0]", "rots.list"),
            )
        ),
    ]
