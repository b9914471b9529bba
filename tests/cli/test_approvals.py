from __future__ import annotations

import json

import click
import pytest

from supervisor.cli.event_text import event_line
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, log, ok

QUESTION: Frame = {
    "id": "ap-3f9c21",
    "prompt": "Roll 100 dice?",
    "options": ["allow", "deny"],
    "asked_by": "hook gate",
    "module": "dice",
    "op": "roll",
    "request_id": "r7",
    "session_id": None,
    "timeout_s": 300.0,
    "left_s": 240.0,
    "default": "deny",
}
PAGE = """\
ap-3f9c21  Roll 100 dice?
  hook gate asks about dice.roll
  answer stdiod approve ap-3f9c21 [--deny], else deny in 4m00s
"""


def ui(name: str, payload: Frame, **more: object) -> Frame:
    return {"type": "ui_event", "event": name, "payload": payload, **more}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            ui("approval.request", QUESTION, approval="ap-3f9c21"),
            "ask    hook gate asks: Roll 100 dice? - answer with stdiod approve ap-3f9c21 [--deny]",
        ),
        (
            ui("approval.request", {**QUESTION, "options": ["Yes", "Not now"]}, approval="a"),
            (
                "ask    hook gate asks: Roll 100 dice? - answer with "
                "stdiod approve ap-3f9c21 --answer Yes|'Not now'"
            ),
        ),
        (
            ui(
                "approval.decision",
                {"allowed": True, "answer": "allow", "by": "client"},
                approval="a",
            ),
            "ask    allowed",
        ),
        (
            ui(
                "approval.decision",
                {"allowed": False, "answer": "deny", "by": "timeout"},
                approval="a",
            ),
            "ask    denied (nobody answered in time)",
        ),
        (
            ui(
                "approval.decision",
                {"allowed": True, "answer": "Yes", "by": "client"},
                approval="a",
            ),
            "ask    allowed (the answer was Yes)",
        ),
        (
            ui(
                "approval.request",
                {"id": "ap-1"},
                placeholder="['approval.request' cannot be shown]",
            ),
            'ui     [\'approval.request\' cannot be shown] {"id":"ap-1"}',
        ),
    ],
)
def test_who_invokes_is_told_how_to_answer_but_only_by_the_daemon(event: Frame, line: str) -> None:
    assert click.unstyle(event_line(event)) == line


def test_the_questions_that_wait_are_listed(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [ok({"approvals": [QUESTION]})])
    assert run("approvals").stdout == PAGE
    assert json.loads(run("approvals", "--json").stdout) == {"approvals": [QUESTION]}
    assert daemon.frames[0]["input"] == {"op": "approvals", "args": {}}


def test_nothing_that_waits_is_said(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok({"approvals": []})])
    result = run("approvals")
    assert (result.stdout, result.stderr) == ("", "nothing waits for an approval\n")


def test_what_comes_is_followed(run: Run, serve: Serve) -> None:
    decision = {"allowed": False, "answer": "deny", "by": "withdrawn"}
    events = [
        log("it waits", approval=QUESTION),
        log("2 changes were left out"),
        log("decided", approval=QUESTION, decision=decision),
    ]
    serve(lambda frame: [*events, ok({"approvals": []})])
    result = run("approvals", "-f")
    assert result.stdout == f"{PAGE}ap-3f9c21  denied (its request has ended)\n"
    assert "2 changes were left out" in result.stderr
    lines = run("approvals", "-f", "--json").stdout.splitlines()
    assert json.loads(lines[1]) == {"approval": QUESTION, "decision": decision}


@pytest.mark.parametrize(
    ("options", "answer"), [((), "allow"), (("--deny",), "deny"), (("--answer", "Yes"), "Yes")]
)
def test_a_question_is_answered(
    run: Run, serve: Serve, options: tuple[str, ...], answer: str
) -> None:
    daemon = serve(
        lambda frame: [ok({"id": "ap-1", "answer": answer, "allowed": answer != "deny"})]
    )
    result = run("approve", "ap-1", *options)
    assert daemon.frames[0]["input"] == {"op": "approve", "args": {"id": "ap-1", "answer": answer}}
    assert result.stderr == f"ap-1 is {'denied' if answer == 'deny' else 'allowed'}\n"
    assert json.loads(run("approve", "ap-1", *options, "--json").stdout)["answer"] == answer


def test_a_form_is_shown_field_by_field_and_filled_in(run: Run, serve: Serve) -> None:
    fields = {
        "name": {"type": "string", "description": "in full"},
        "age": {"type": "integer", "title": "Age", "default": 36},
        "likes": {"type": "array", "items": {"enum": ["tea", "rum"]}},
    }
    form = {"type": "object", "properties": fields, "required": ["name"]}
    question = {**QUESTION, "asked_by": "module dice", "form": form}
    answer = {"id": "ap-3f9c21", "answer": "allow", "allowed": True}
    daemon = serve(lambda frame: [ok({"approvals": [question], **answer})])
    assert (
        run("approvals").stdout
        == """\
ap-3f9c21  Roll 100 dice?
  name  string required  in full
  age  integer (else 36)  Age
  likes  tea|rum (several, with commas)
  module dice asks about dice.roll
  answer stdiod approve ap-3f9c21 --set FIELD=VALUE... [--deny], else deny in 4m00s
"""
    )
    run("approve", "ap-3f9c21", "--set", "name=Ada=x", "--set", "age=")
    content = {"name": "Ada=x", "age": ""}
    args = {"id": "ap-3f9c21", "answer": "allow", "content": content}
    assert daemon.frames[-1]["input"] == {"op": "approve", "args": args}
    result = run("approve", "ap-1", "--set", "name")
    assert result.exit_code == 2
    assert "FIELD=VALUE" in result.stderr


def test_two_answers_are_one_too_many(run: Run) -> None:
    result = run("approve", "ap-1", "--deny", "--answer", "Yes")
    assert result.exit_code == 2
    assert "give one" in result.stderr
