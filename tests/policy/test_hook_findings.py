"""What a hook's descriptor probably does not mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.descriptor.model import Descriptor
from supervisor.policy.hook_findings import hook_findings
from tests.factories import descriptor


def module(name: str, kind: str = "tool", **fields: Any) -> Descriptor:
    return descriptor(Path("/"), ["true"], name=name, kind=kind, **fields)


FLEET = [module("dice"), module("audit", "hook", hook={"observe": ["*"]})]


def told(*fleet: Descriptor, **hook: Any) -> list[str]:
    return [str(one) for one in hook_findings(module("h", "hook", hook=hook), fleet)]


def test_a_hook_without_a_section_is_told_of_nothing() -> None:
    (finding,) = hook_findings(module("h", "hook"))
    assert str(finding).startswith("/hook: is missing: without it a hook is told of nothing")
    assert hook_findings(module("m")) == []


@pytest.mark.parametrize(
    ("glob", "words"),
    [
        ("sesion:*", "fits no event that the daemon tells of; did you mean 'session:'?"),
        ("module:stat", "fits no event that the daemon tells of; did you mean 'module:state'?"),
        ("Module:state", "fits no event that the daemon tells of; did you mean 'module:state'?"),
        ("daemon:*k", "fits no event that the daemon tells of"),
        ("session", "fits no event that the daemon tells of"),
        ("tool:pre", 'fits no event: tool:pre, tool:post, tool:error are gates, which stand in "g'),
    ],
)
def test_a_glob_that_no_event_fits_is_found(glob: str, words: str) -> None:
    (finding,) = told(observe=["*", glob])
    assert finding.startswith(f'/hook/observe/1: "{glob}" {words}')


@pytest.mark.parametrize("glob", ["*", "module:*", "mine:step", "mine:*", "*:step", "[ms]*"])
def test_what_an_event_of_the_daemon_or_a_module_may_fit_is_not_found(glob: str) -> None:
    assert told(observe=[glob]) == []


def test_a_glob_that_no_module_fits_is_found_where_the_modules_are_known() -> None:
    globs = ["dic?", "dcie", "au*", "*"]
    hook = {"gate": ["tool:pre"], "modules": globs}
    assert told(*FLEET, **hook) == [
        "/hook/modules/1: \"dcie\" fits no module there is; did you mean 'dice'?",
        '/hook/modules/2: "au*" fits hooks only, and no hook is gated',
    ]
    assert hook_findings(module("h", "hook", hook=hook)) == []


def test_a_hook_is_told_what_it_lacks_and_what_its_globs_miss_word_by_word() -> None:
    assert [str(one) for one in hook_findings(module("h", "hook"))] == [
        (
            "/hook: is missing: without it a hook is told of nothing and asked about nothing; add "
            '"hook": {"observe": ["module:*"]}, or "gate" such as ["tool:pre"]'
        )
    ]
    assert told(*FLEET, observe=["session", "tool:x", "daemon:*k"]) == [
        '/hook/observe/0: "session" fits no event that the daemon tells of',
        (
            '/hook/observe/1: "tool:x" fits no event: tool:pre, tool:post, tool:error are gates, '
            'which stand in "gate"'
        ),
        '/hook/observe/2: "daemon:*k" fits no event that the daemon tells of',
    ]
    assert told(*FLEET, gate=["tool:pre"], modules=["zzz", "**"]) == [
        '/hook/modules/0: "zzz" fits no module there is'
    ]
    assert told(*FLEET, observe=["module:*"], modules=["zzz"]) == []
