"""planner: a persistent module that takes its time, says what it is doing, and can be interrupted.

One thread reads, and each request thinks in a thread of its own. So `health` is answered and `cancel`
is heard in the middle of a thought, which a module that reads only between two answers cannot do.
"""

import json
import math
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]

# `describe` repeats the descriptor, so the two cannot come to disagree; it adds that we heed `cancel`.
DESCRIPTOR = json.loads(Path(__file__).with_name("module.json").read_text(encoding="utf-8"))
DESCRIPTION = {key: DESCRIPTOR[key] for key in ("name", "version", "kind", "capabilities", "inputs", "outputs")}
DESCRIPTION["features"] = ["cancel"]

RULES = (  # first word of a task -> steps, in which {} stands for the rest of it
    (r"write|draft|compose", ("List what {} has to say", "Draft {} in one go", "Read {} aloud and cut a third")),
    (r"find|choose|pick|research", ("Decide what makes a good {}", "Collect three candidates for {}", "Compare and choose {}")),
    (r"build|make|create|prepare", ("Sketch {}", "Make the smallest version of {}", "Try {} out and improve it")),
    (r"fix|repair|debug", ("Reproduce the trouble with {}", "Change one thing about {} at a time", "Keep a test for {}")),
    (r"(\w+)", ("Agree on what is done means for: {}", "Do it: {}", "Check the result of: {}")),
)
TICK_S = 0.5  # how often a sleeper says that it is still there


def event(kind: str, **fields: Any) -> Event:
    return {"version": "0", "type": kind, **fields}


def log(message: str) -> Event:
    return event("log", level="info", message=message)


def plan(args: dict[str, Any], _stop: threading.Event) -> Iterator[Event]:
    goal = " ".join(str(args.get("goal") or "").split())
    tasks = [task for task in re.split(r"\s*(?:[;,.]|\band\b|\bthen\b)\s*", goal) if task]
    if not tasks:
        raise ValueError("goal must be a string that says something")
    steps: list[str] = []
    for task in tasks:
        yield log(f"Thinking about: {task}")
        for verbs, templates in RULES:
            if match := re.match(rf"(?:{verbs})\s+(?=\S)|\S", task, re.IGNORECASE):
                if match.end() == 1 and (verbs, templates) != RULES[-1]:
                    continue
                break
        subject = task
        for template in templates:
            steps.append(template.format(subject))
            yield event("ui_event", event="message.chunk", payload={"content": f"{len(steps)}. {steps[-1]}\n"})
    yield event("done", ok=True, summary=f"{len(steps)} steps", result={"goal": goal, "steps": steps})
