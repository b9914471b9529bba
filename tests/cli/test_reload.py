"""`stdiod reload`: the plan as a diff, for people and for programs."""

from __future__ import annotations

import json
from typing import Any

from supervisor.cli.verbs.daemon import plan_text
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import ok

NOTHING: dict[str, Any] = {
    "dry_run": False,
    "reloads": 1,
    "added": [],
    "removed": [],
    "changed": [],
    "moved": [],
    "unchanged": ["kv"],
    "quarantined": [],
    "policy_problem": None,
}
PLAN: dict[str, Any] = {
    **NOTHING,
    "added": [{"name": "new", "descriptor": "/d/new.json"}],
    "removed": [{"name": "old", "descriptor": "/d/old.json"}],
    "changed": [
        {
            "name": "dice",
            "descriptor": "/d/dice.json",
            "changes": [
                {"pointer": "/supervision/queue", "old": 5, "new": 6},
                {"pointer": "/inputs/roll", "new": {"type": "object"}},
            ],
            "programs": ["/d/dice.py"],
        }
    ],
    "moved": [{"name": "kv", "descriptor": "/d/b.json", "from": "/d/a.json"}],
    "unchanged": ["kv", "notes"],
}
BAD = [{"descriptor": "/d/bad.json", "reason": "is not JSON"}]

NO_CHANGE = (
    "no change; 1 module untouched (a reload looks at descriptors, and at programs with"
    " supervision.watch; after another change, or one of an env file: `stdiod restart MODULE`)"
)


def test_the_plan_is_shown_as_a_diff(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok(PLAN)])
    shown = run("reload")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "- old  /d/old.json",
        "~ dice  /d/dice.json",
        "    /supervision/queue",
        "    - 5",
        "    + 6",
        "    /inputs/roll",
        '    + {"type":"object"}',
        "    its program /d/dice.py changed",
        "+ new  /d/new.json",
        "> kv  /d/a.json is now /d/b.json",
        "1 removed, 1 changed, 1 added; 2 modules untouched",
    ]


def test_a_dry_run_is_asked_for_as_one_and_says_so(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [ok({**PLAN, "dry_run": True})])
    assert run("reload", "--dry-run").stdout.splitlines()[-1].startswith("would be 1 removed")
    assert daemon.frames[0]["input"] == {"op": "reload", "args": {"dry_run": True}}


def test_no_change_is_a_sentence(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok(NOTHING)])
    assert run("reload").stdout == f"{NO_CHANGE}\n"


def test_a_quarantined_descriptor_is_named_and_the_answer_is_no(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok({**NOTHING, "quarantined": BAD})])
    shown = run("reload")
    assert shown.exit_code == 1
    assert shown.stdout.splitlines()[0] == "! /d/bad.json: is not JSON"


def test_a_policy_that_is_not_used_is_told_and_the_answer_is_no(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok({**NOTHING, "policy_problem": "/p:1: mode: is bad\n/p:2: no\x1b"})])
    shown = run("reload")
    assert shown.exit_code == 1
    assert shown.stdout.splitlines() == [
        "! /p:1: mode: is bad",
        "! /p:2: no\\x1b",
        "  the last good policy stays in use",
        NO_CHANGE,
    ]


def test_programs_get_the_whole_plan(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok(PLAN)])
    assert json.loads(run("reload", "--json").stdout) == PLAN


def test_a_terminal_gets_colours_and_no_control_characters() -> None:
    text = plan_text({**NOTHING, "added": [{"name": "a\x1b[2J", "descriptor": "/d/a\n.json"}]})
    assert "\x1b[32m+ a\\x1b[2J" in text
    assert len(text.splitlines()) == 2
