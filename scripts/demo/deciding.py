"""The act in which others decide: a policy, a gate, a person, and who carries out a plan."""

from __future__ import annotations

import json
import threading
import time
from typing import Final

from scripts.demo.answers import Json
from scripts.demo.likeness import Having, Like
from scripts.demo.stage import MismatchError, Stage

PROMPT: Final = 'Let me see.\nuse dice.roll {"dice":"4d1+3"}'
ROLLED: Final = 'dice.roll answered {"rolls": [1, 1, 1, 1], "total": 7}'
PLAN: Final = {"goal": 'use dice.roll {"dice":"4d1+3"}', "inputs": {}}
ASKED_WITHIN_S: Final = 20.0


def orchestrate(stage: Stage) -> None:
    """Explain the policy, then run a loop and a plan under it."""
    with stage.step("what the policy says"):
        stage.show("policy", "explain", "orchestrator", "module.invoke:dice.roll")
        stage.show("policy", "explain", "memory", "module.invoke:dice.roll", status=1)
    with stage.step("a loop of provider, context and tool"):
        given = ("--args", json.dumps({"prompt": PROMPT}), "--session", "talk")
        stage.show("session", "new", "--id", "talk")
        stage.show("invoke", "orchestrator", "execute", *given)
        (kept,) = stage.ask("session", "show", "talk")
        done = {"content": ROLLED, "turns": 2, "tools": [{"name": "dice.roll", "ok": True}]}
        stage.expect("the session has its result", done, kept["state"]["orchestrator"])
        kept_messages = len(kept["state"]["memory"]["messages"])
        stage.expect("and what was said, in the context's state", 4, kept_messages)
        stage.show("session", "end", "talk")
    with stage.step("a plan"):
        (stage.folder / "plan.json").write_text(json.dumps(PLAN))
        stage.show("plan", "run", "plan.json", "--with", "orchestrator")
        *_, answer = stage.ask("plan", "run", "plan.json", "--with", "orchestrator")
        stage.expect("it is carried out", Having({"content": ROLLED}), answer["result"])


def gate(stage: Stage) -> None:
    """Have a gate refuse an argument, and ask a person about another one."""
    with stage.step("a refused argument"):
        given = ("invoke", "notes", "add", "--args", '{"text":"rm -rf /"}')
        stage.show(*given, status=1)
        (refused,) = stage.ask(*given, status=1)
        why = Having({"reason": "hook", "hook": "doorkeeper"})
        denied = Having({"code": "forbidden", "details": why})
        stage.expect("it never reached the module", denied, refused["error"])
    with stage.step("an approval"):
        answers: list[Json] = []
        asking = threading.Thread(target=_ask, args=(stage, answers))
        asking.start()
        try:
            question = _question(stage)
            stage.show("approvals")
            stage.show("approve", question)
        finally:
            asking.join()
        stage.expect("it went on", [Having({"ok": True})], answers[-1:])


def _ask(stage: Stage, answers: list[Json]) -> None:
    # A mismatch is seen where the answers are: there is none then.
    given = ("--args", '{"text":"sudo make me a sandwich"}', "--timeout", str(ASKED_WITHIN_S * 2))
    try:
        answers += stage.ask("invoke", "notes", "add", *given)
    except MismatchError:
        return


def _question(stage: Stage) -> str:
    """Return the id of the question about the argument, once it is asked."""
    ends_at = time.monotonic() + ASKED_WITHIN_S
    while time.monotonic() < ends_at:
        (found,) = stage.ask("approvals")
        if found["approvals"]:
            (one,) = found["approvals"]
            stage.expect("a person is asked", Like(r"notes\.add wants .*"), one["prompt"])
            return str(one["id"])
        time.sleep(0.05)
    raise MismatchError(f"nobody was asked within {ASKED_WITHIN_S:g} s")
