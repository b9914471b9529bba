"""What the demo shows, step by step, and what each step has to find."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from typing import Final

from scripts.demo.answers import Json, chunk, event, failure, log, response
from scripts.demo.crowding import ask_all, requests
from scripts.demo.deciding import gate, orchestrate
from scripts.demo.drawing import draw
from scripts.demo.likeness import SOME_NUMBER, Having, Like
from scripts.demo.remembering import recall, remember
from scripts.demo.stage import MismatchError, Stage

POLICY: Final = "policy.toml"
DESCRIBED_LINES: Final = 8
AT_ONCE: Final = 64
RESTARTED_WITHIN_S: Final = 20.0
NO_DAEMON: Final = 3
AS_EXPECTED: Final = "with --json, each event and the response are as they should be"


class Story:
    """The steps in their order, for the modules that can run here."""

    def __init__(
        self, stage: Stage, present: Mapping[str, Json], missing: Mapping[str, str]
    ) -> None:
        """`present` has the descriptors by name; `missing` what a module lacks here."""
        self._stage = stage
        self._present = present
        self._missing = missing

    def begin(self) -> None:
        """Start the daemon and look around."""
        stage = self._stage
        stage.screen.heading("A folder of descriptors becomes a fleet")
        for name, why in self._missing.items():
            stage.skip(name, why)
        with stage.step("validate"):
            said = stage.show("validate", "modules")
            valid = Like(rf"{len(self._present)} descriptors? (is|are) valid\n")
            stage.expect("every descriptor is valid", valid, said)
        with stage.step("up"):
            has_policy = (stage.folder / "modules" / POLICY).exists()
            policy = ("--policy", f"modules/{POLICY}") if has_policy else ()
            stage.show("up", "modules", "--data-dir", "data", *policy)
        with stage.step("status"):
            stage.show("status")
            (status,) = stage.ask("status")
            states = {module["name"]: module["state"] for module in status["modules"]}
            ready = dict.fromkeys(sorted(self._present), "ready")
            stage.expect("every module is ready", ready, states)
            stage.expect("none is quarantined", [], status["quarantined"])

    def meet(self) -> None:
        """Ask each module how it is and what it is."""
        stage = self._stage
        stage.screen.heading("Each module says how it is, and what it is")
        for name, descriptor in self._present.items():
            with stage.step(f"health and describe of {name}"):
                stage.show("health", name)
                stage.expect("it is well", [{"status": "ok"}], stage.ask("health", name))
                stage.show("describe", name, lines=DESCRIBED_LINES)
                keys = ("name", "version", "kind", "capabilities")
                itself = Having({key: descriptor[key] for key in keys})
                stage.expect("it is who it should be", [itself], stage.ask("describe", name))

    def work(self) -> None:
        """Give each module something to do."""
        self._stage.screen.heading("Each module does what it is for")
        self._invoke(
            "torch",
            "light",
            {"room": "hall"},
            log("Starting"),
            event("state_patch", patch={"flags": {"torchLit": True}, "torchRoom": "hall"}),
            response("torch", "light", result=None, summary="Torch lit."),
        )
        if "chart" in self._present:
            draw(self._stage)
        else:
            self._stage.skip("chart draw", self._absence("chart"))
        rolled = {"rolls": [3, 2, 4], "total": 11}
        self._invoke(
            "dice", "roll", {"dice": "3d6+2", "seed": 7}, response("dice", "roll", result=rolled)
        )
        text = "Call me Ishmael. Some years ago, never mind how long, I went to sea."
        counted = {
            "words": 14,
            "lines": 1,
            "sentences": 2,
            "characters": 68,
            "longest_words": ["Ishmael", "never", "years", "Call", "Some"],
            "reading_ease": 91,
        }
        counting = response("textstats", "stats", result=counted)
        self._invoke("textstats", "stats", {"text": text}, counting)
        number = 1234567890123456789
        factors = {"n": number, "factors": [3, 3, 101, 3541, 3607, 3803, 27961]}
        self._invoke(
            "primes", "factor", {"n": number}, response("primes", "factor", result=factors)
        )
        note = "The key is under the mat."
        added = response("notes", "add", result={"number": 1})
        self._invoke("notes", "add", {"text": note}, added, once=True)
        kept = {"notes": [{"number": 1, "text": note}]}
        self._invoke("notes", "search", {"query": "KEY"}, response("notes", "search", result=kept))
        self._invoke(
            "audit",
            "on_event",
            {"event": "session:start"},
            response("audit", "on_event", result={}),
            once=True,
        )
        # It observes all that happens, too, so there is more in its report.
        seen = Having({"events": Having({"session:start": 1})})
        self._invoke("audit", "report", {}, response("audit", "report", result=seen))

    def remember(self) -> None:
        """Keep a state in a session."""
        if "torch" in self._present:
            remember(self._stage)
        else:
            self._stage.skip("a session", self._absence("torch"))

    def decide(self) -> None:
        """Have a policy, a gate and a person decide what is done."""
        self._stage.screen.heading("Who decides: a policy, a gate, a person")
        parts = {
            "a loop and a plan": (orchestrate, ("orchestrator", "oracle", "memory", "dice")),
            "a gate": (gate, ("doorkeeper", "notes")),
        }
        for name, (play, needed) in parts.items():
            absent = next((one for one in needed if one not in self._present), None)
            if absent is None:
                play(self._stage)
            else:
                self._stage.skip(name, self._absence(absent))

    def stream(self) -> None:
        """Let modules talk while they work."""
        self._stage.screen.heading("Modules speak while they work")
        steps = [
            "Decide what matters in a venue",
            "Compare three of a venue",
            "Choose a venue",
            "List what the invitation must say",
            "Draft the invitation in one go",
            "Read the invitation aloud",
        ]
        chunks = [chunk(f"{number}. {step}\n") for number, step in enumerate(steps, start=1)]
        goal = "find a venue, then write the invitation"
        self._invoke(
            "planner",
            "plan",
            {"goal": goal},
            log("Thinking about: find a venue"),
            *chunks[:3],
            log("Thinking about: write the invitation"),
            *chunks[3:],
            response("planner", "plan", result={"goal": goal, "steps": steps}, summary="6 steps"),
        )
        words = ["carries", " the", " lamp", " forgets"]
        said = {"text": "".join(words), "words": len(words)}
        self._invoke(
            "crowd",
            "complete",
            {"prompt": "river", "max_words": 4, "delay_ms": 100},
            *(chunk(word) for word in words),
            response("crowd", "complete", result=said, summary="4 words"),
        )

    def fail(self) -> None:
        """Let things go wrong, and see what is known about it."""
        stage = self._stage
        stage.screen.heading("When something goes wrong, it is said what and why")
        self._invoke(
            "flaky",
            "exit",
            {"code": 3},
            log("exiting with code 3", level="warn"),
            failure(
                "flaky",
                "exit",
                "internal",
                "flaky.exit: its process exited with code 3",
                reason="exited",
                exit_code=3,
                stderr_tail=["flaky: simulated failure: exiting with code 3"],
            ),
            what="a tool that exits with 3",
            status=1,
        )
        self._invoke(
            "flaky",
            "die",
            {"signal": 9},
            log("dying of signal 9", level="warn"),
            failure(
                "flaky",
                "die",
                "internal",
                "flaky.die: its process was killed by SIGKILL",
                reason="signaled",
                signal=9,
                stderr_tail=["flaky: simulated failure: dying of signal 9"],
            ),
            what="a tool that dies of a signal",
            status=1,
        )
        self._time_out()

    def survive(self) -> None:
        """Kill a module and see it come back."""
        stage = self._stage
        stage.screen.heading("A module that is killed is back at once")
        persistent = [name for name in ("dice", "textstats", "primes") if name in self._present]
        if not persistent:
            stage.skip("kill -9", "there is no persistent module here")
            return
        name = persistent[0]
        with stage.step(f"kill -9 of {name}"):
            (before,) = stage.ask("status", name)
            victim, *others = before["instances"]
            stage.screen.command(f"kill -9 {victim['pid']}")
            os.kill(victim["pid"], signal.SIGKILL)
            after = self._replaced(name, victim["id"], 1 + len(others))
            stage.show("wait", name)
            stage.show("status", name)
            stage.expect(
                "it is ready again, one restart later, and what it died of is known",
                Having(
                    {
                        "state": "ready",
                        "restarts": before["restarts"] + 1,
                        "instances": [Having({"state": "ready", "in_flight": 0})]
                        * (1 + len(others)),
                        "last_exit": Having(
                            {
                                "reason": "signaled",
                                "ts": SOME_NUMBER,
                                "exit_code": None,
                                "signal": 9,
                                "stderr_tail": [],
                            }
                        ),
                    }
                ),
                after,
            )

    def crowd(self) -> None:
        """Ask one process 64 things at once."""
        stage, name = self._stage, f"{AT_ONCE} requests at once"
        stage.screen.heading("One process serves many requests at once")
        if "crowd" not in self._present:
            stage.skip(name, self._absence("crowd"))
            return
        with stage.step(name):
            asked = requests(AT_ONCE)
            stage.screen.words(f"{AT_ONCE} lines into the control socket, as any program can:")
            stage.screen.words(json.dumps(asked["q1"]))
            crowd = ask_all(stage.socket, asked)
            ended = {
                name: [one["ok"] for one in answers] for name, answers in crowd.answers.items()
            }
            stage.expect("each has one answer", {key: [True] for key in asked}, ended)
            streamed = {name: "".join(chunks) for name, chunks in crowd.chunks.items()}
            said = {name: one["result"]["text"] for name, (one,) in crowd.answers.items()}
            stage.expect("each answer is what was streamed for it", said, streamed)
            stage.expect(
                "all had begun before the first one ended", AT_ONCE, crowd.begun_before_first_end
            )
            stage.screen.words(f"q1: {said['q1']}")
            stage.screen.words(f"q{AT_ONCE}: {said[f'q{AT_ONCE}']}")

    def recall(self) -> None:
        """Look at what the journal has of all that."""
        recall(self._stage)

    def end(self) -> None:
        """Stop everything, and look for what is left."""
        stage = self._stage
        stage.screen.heading("The end leaves nothing behind")
        with stage.step("down"):
            stage.show("down")
        with stage.step(f"status finds no daemon and exits with {NO_DAEMON}"):
            stage.show("status", status=NO_DAEMON)
        with stage.step("no process is left"):
            stage.expect("not of the daemon, nor of any module", [], stage.wait_gone())

    def _invoke(
        self,
        module: str,
        op: str,
        args: Json,
        *expected: Json,
        what: str | None = None,
        status: int = 0,
        once: bool = False,
    ) -> None:
        """Invoke for people to see, then, unless it counts how often, for the exact content."""
        name = what or f"{module} {op}"
        if module not in self._present:
            self._stage.skip(name, self._absence(module))
            return
        given = ("--args", json.dumps(args, separators=(",", ":"))) if args else ()
        with self._stage.step(name):
            if not once:
                self._stage.show("invoke", module, op, *given, status=status)
            found = self._stage.ask("invoke", module, op, *given, status=status, shown=once)
            self._stage.expect(AS_EXPECTED, list(expected), found)

    def _time_out(self) -> None:
        stage, name = self._stage, "a request that takes too long"
        if "planner" not in self._present:
            stage.skip(name, self._absence("planner"))
            return
        with stage.step(name):
            (before,) = stage.ask("status", "planner")
            arguments = ("invoke", "planner", "sleep", "--args", '{"seconds":60}', "--timeout", "1")
            stage.show(*arguments, status=1)
            *events, answer = stage.ask(*arguments, status=1)
            late = failure(
                "planner",
                "sleep",
                "timeout",
                Like("planner.sleep gave no answer in 1 s.*"),
                reason="deadline",
                cpu_s=SOME_NUMBER,
            )
            stage.expect("it says so", late, answer)
            thought = log(Like(r"Thinking, \d+ of 120"))
            stage.expect("what it said before is there", [thought] * len(events), events)
            (after,) = stage.ask("status", "planner")
            same = [Having({"pid": one["pid"], "state": "ready"}) for one in before["instances"]]
            stage.expect("the module was told to stop and serves on", same, after["instances"])

    def _absence(self, module: str) -> str:
        return self._missing.get(module, f"there is no module {module} here")

    def _replaced(self, name: str, victim: str, number: int) -> Json:
        """Return the status of a module once it is ready, with so many others than the victim."""
        ends_at = time.monotonic() + RESTARTED_WITHIN_S
        while True:
            (status,) = self._stage.ask("status", name)
            ready = {one["id"] for one in status["instances"] if one["state"] == "ready"}
            if status["state"] == "ready" and victim not in ready and len(ready) == number:
                return dict(status)
            if time.monotonic() > ends_at:
                words = f"{name} was not ready again within {RESTARTED_WITHIN_S:g} s"
                raise MismatchError(f"{words}; it is {status['state']}")
            time.sleep(0.05)
