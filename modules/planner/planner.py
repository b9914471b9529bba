"""planner: a persistent module that takes its time, says what it is doing, and can be interrupted.

One thread reads, and each request thinks in a thread of its own. So `health` is answered and
`cancel` is heard in the middle of a thought, which one that reads between two answers cannot do.
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

# `describe` repeats the descriptor, so the two cannot come to disagree; it adds the features.
DESCRIPTOR = json.loads(Path(__file__).with_name("module.json").read_text(encoding="utf-8"))
DESCRIBED = ("name", "version", "kind", "capabilities", "inputs", "outputs")

TICK_S = 0.5  # how often a sleeper says that it is still there
DAY_S = 86400
RULES = {
    verb: steps
    for verbs, steps in (  # the first word of a task -> its steps, {} being the rest of it
        ("write draft compose", ("List what {} must say", "Draft {} in one go", "Read {} aloud")),
        ("find choose pick", ("Decide what matters in {}", "Compare three of {}", "Choose {}")),
        ("build make create", ("Sketch {}", "Make the least of {} that works", "Try out {}")),
        (
            "fix repair debug",
            ("Reproduce the trouble with {}", "Change one thing in {}", "Test {}"),
        ),
    )
    for verb in verbs.split()
}
OTHERWISE = ("Agree when this is done: {}", "Do it: {}", "Check the result: {}")


def event(kind: str, **fields: Any) -> Event:
    return {"version": "0", "type": kind, **fields}


def log(message: str) -> Event:
    return event("log", level="info", message=message)


def failure(code: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message}}


def plan(args: dict[str, Any], _stop: threading.Event) -> Iterator[Event]:
    goal = " ".join(str(args.get("goal") or "").split())
    tasks = [task for task in re.split(r"\s*(?:[,;.]|\band\b|\bthen\b)\s*", goal) if task]
    if not tasks:
        raise ValueError("goal must be a text that says something")
    steps: list[str] = []
    for task in tasks:
        yield log(f"Thinking about: {task}")
        verb, _, rest = task.partition(" ")
        rule = RULES.get(verb.lower()) if rest else None
        for step in rule or OTHERWISE:
            steps.append(step.replace("{}", rest if rule else task))
            content = f"{len(steps)}. {steps[-1]}\n"
            yield event("ui_event", event="message.chunk", payload={"content": content})
    result = {"goal": goal, "steps": steps}
    yield event("done", ok=True, summary=f"{len(steps)} steps", result=result)


def execute(args: dict[str, Any], stop: threading.Event) -> Iterator[Event]:
    return plan({"goal": args.get("prompt")}, stop)  # what a session is asked


def sleep(args: dict[str, Any], stop: threading.Event) -> Iterator[Event]:
    seconds = args.get("seconds", 2)
    if not isinstance(seconds, int | float) or not 0 <= seconds <= DAY_S:
        raise ValueError("seconds must be a number from 0 to 86400, a day")
    ticks = max(1, math.ceil(seconds / TICK_S))
    for n in range(1, ticks + 1):
        yield log(f"Thinking, {n} of {ticks}")
        stop.wait(seconds / ticks)  # not time.sleep: this one can be woken
    yield event("done", ok=True, summary=f"Thought for {seconds} s.", result={"seconds": seconds})


Op = Callable[[dict[str, Any], threading.Event], Iterator[Event]]
OPS: dict[str, Op] = {"plan": plan, "execute": execute, "sleep": sleep}


class Planner:
    def __init__(self) -> None:
        self.stops: dict[str, threading.Event] = {}  # by requestId: set to end that thought
        self.turn = threading.Lock()  # a line must not be torn by another thread's

    def say(self, request: dict[str, Any], line: dict[str, Any]) -> None:
        if "requestId" in request:
            line = line | {"requestId": request["requestId"]}
        with self.turn:
            print(json.dumps(line), flush=True)  # unflushed, progress would arrive with the result

    def think(self, request: dict[str, Any], stop: threading.Event) -> None:
        call = request.get("input") or {}
        try:
            for line in OPS[call["op"]](call.get("args") or {}, stop):
                if stop.is_set():
                    error = {"code": "cancelled", "message": "The thought was interrupted."}
                    self.say(request, event("done", ok=False, error=error))
                    break
                self.say(request, line)
        except ValueError as fault:
            self.say(request, failure("bad_request", str(fault)))
        except Exception as bug:  # an answer is owed even then; the evidence goes to stderr
            traceback.print_exc()
            self.say(request, failure("internal", repr(bug)))
        finally:
            self.stops.pop(str(request.get("requestId")), None)

    def receive(self, request: dict[str, Any]) -> None:
        match request:
            case {"operation": "health"}:
                self.say(request, {"status": "ok"})
            case {"operation": "describe"}:
                description = {key: DESCRIPTOR[key] for key in DESCRIBED}
                self.say(request, description | {"features": ["cancel"]})
            case {"operation": "cancel"}:
                if stop := self.stops.get(str(request.get("requestId"))):
                    stop.set()
            case {"operation": "invoke", "input": {"op": "plan" | "execute" | "sleep"}}:
                stop = self.stops[str(request.get("requestId"))] = threading.Event()
                threading.Thread(target=self.think, args=(request, stop)).start()
            case {"operation": "invoke", "input": {"op": op}}:
                self.say(request, failure("unsupported_op", f"planner has no op {op!r}"))
            case {"operation": "invoke"}:
                self.say(request, failure("bad_request", "input must be an object with an op"))
            case _:
                other = request.get("operation")
                self.say(request, failure("unsupported_op", f"planner has no operation {other!r}"))


def main() -> None:
    planner = Planner()
    for line in sys.stdin.buffer:  # ends at EOF; Python then waits for open thoughts and exits 0
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as fault:
            print(f"planner: ignored a malformed line: {fault}", file=sys.stderr)
            continue
        planner.receive(request)


if __name__ == "__main__":
    main()
