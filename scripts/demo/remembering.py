"""The acts in which a session keeps what a module says of it, and the journal all that happened."""

from __future__ import annotations

from jsonschema import Draft202012Validator

import schemas
from protocol.journal_event import lint
from scripts.demo.answers import Json, event, log, response
from scripts.demo.likeness import Having
from scripts.demo.stage import Stage

PLAN = '{"goal":"find the way home","inputs":{"from":"hall"}}'
LIT: Json = {"flags": {"torchLit": True}, "torchRoom": "hall"}


def remember(stage: Stage) -> None:
    """Light the torch in a session, change the state by hand, fork it, end it."""
    stage.screen.heading("A session keeps the state that modules add to")
    with stage.step("a session"):
        said = stage.show("session", "new", "--id", "walk", "--plan", PLAN)
        stage.expect("its id is printed", "walk\n", said)
    with stage.step("the torch lit in it"):
        given = ("torch", "light", "--session", "walk", "--args", '{"room":"hall"}')
        found = stage.ask("invoke", *given, shown=True)
        answer = response("torch", "light", result=None, summary="Torch lit.", session_id="walk")
        patch = event("state_patch", patch=LIT, revision=1)
        stage.expect("the patch has its revision", [log("Starting"), patch, answer], found)
    with stage.step("what the session has"):
        stage.show("session", "show", "walk")
        found = stage.ask("session", "show", "walk")
        kept = Having({"status": "idle", "revision": 1, "state": LIT, "invocations": 1})
        stage.expect("it is what the torch said", [kept], found)
    with stage.step("two who change it at the same revision"):
        given = ("session", "patch", "walk", '{"torchRoom":null}', "--if-revision", "1")
        stage.show(*given)
        (refused,) = stage.ask(*given, status=1)
        details = {"origin": "host", "reason": "revision_conflict", "revision": 2, "expected": 1}
        stage.expect("the second is refused", details, refused["error"]["details"])
    with stage.step("a fork goes its own way"):
        stage.show("session", "fork", "walk", "--id", "night")
        stage.show("invoke", "torch", "douse", "--session", "night")
        states = [stage.ask("session", "show", one)[0]["state"] for one in ("walk", "night")]
        expected = [{"flags": {"torchLit": True}}, {"flags": {"torchLit": False}}]
        stage.expect("the one is lit, the other is not", expected, states)
    with stage.step("the end of a session"):
        stage.show("session", "end", "walk")
        stage.show("session", "list", "--all")
        stage.show("invoke", "torch", "light", "--session", "walk", status=1)


def recall(stage: Stage) -> None:
    """Read the journal of the whole demo, and hold each entry to its schema and the registry."""
    stage.screen.heading("The journal has all of it")
    with stage.step("what happened"):
        stage.show("events", "--lines", "5")
        entries = stage.ask("events", "--since", "0")
        numbers = [entry.pop("seq") for entry in entries]
        stage.expect("its numbers have no gap", list(range(1, len(entries) + 1)), numbers)
        event = Draft202012Validator(schemas.load("event.v1"))
        wrong = [fault for entry in entries for fault in lint(entry)]
        wrong += [fault.message for entry in entries for fault in event.iter_errors(entry)]
        stage.expect("each is an Event v1 with what its name asks for", [], wrong)
