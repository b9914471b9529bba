"""The examples of modules/README.md on a real daemon; also with pools and warm starts forced on.

Whoever asks is not to notice which (tests/modules/forced.py).
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.args import args_of, read_words
from tests.bounds import until
from tests.docs.markdown import read
from tests.modules.forced import ALONE, POOL, WARM, copy_forced, pooled, warmed
from tests.modules.samples import DESCRIPTORS, MODULES, required_programs, take_time
from tests.system.client import Answer
from tests.system.daemon import Daemon
from tests.system.liveness import BOUND_S

AT_ONCE = 6
"""More than a pool of dice has instances, and more than there are warm processes."""

README = "modules/README.md"
EXAMPLES = [
    line.strip() for line in read(README).splitlines() if line.startswith("    stdiod invoke ")
]
MISSING = {
    name: program
    for name in DESCRIPTORS
    for program in required_programs(name)
    if shutil.which(program) is None
}


def is_(result: Any) -> Callable[[Answer], bool]:
    return lambda answer: bool(answer.ok and answer.result == result)


def says(summary: str, *types: str) -> Callable[[Answer], bool]:
    def check(answer: Answer) -> bool:
        said = [event["type"] for event in answer.events]
        return answer.ok and answer.done["summary"] == summary and said == list(types)

    return check


def fails(verdict: str, **details: Any) -> Callable[[Answer], bool]:
    return lambda answer: (
        answer.verdict == verdict and {**answer.details, **details} == answer.details
    )


def gives(field: str, value: Any) -> Callable[[Answer], bool]:
    return lambda answer: bool(answer.ok and answer.result[field] == value)


def observed(answer: Answer) -> bool:
    # What the daemon itself told it is among them.
    result = answer.result
    return bool(result["events"]["session:start"] == 1 and result["total"] > 1)


def rolled(answer: Answer) -> bool:
    rolls = answer.result["rolls"]
    return len(rolls) == 3 and set(rolls) <= set(range(1, 7)) and answer.result["total"] > 4


def streamed(answer: Answer) -> bool:
    chunks = [event["payload"]["content"] for event in answer.events]
    return len(chunks) > 3 and "".join(chunks) == answer.result["text"]


def counted(answer: Answer) -> bool:
    return bool(answer.result["words"] == 14)


def planned(answer: Answer) -> bool:
    chunks = [event["payload"]["content"] for event in answer.events if "payload" in event]
    return len(answer.result["steps"]) == len(chunks) == 6


NOTE = {"number": 1, "text": "The key is under the mat."}
FACTORS = [3, 3, 101, 3541, 3607, 3803, 27961]
SHOWN = {
    "torch light": says("Torch lit.", "log", "state_patch"),
    "torch douse": says("Torch doused.", "log", "state_patch"),
    "chart draw": says("Drew a bar chart of 3 values.", "log", "log", "asset"),
    "dice roll": rolled,
    "textstats stats": counted,
    "wc words": is_(3),
    "primes factor": is_({"n": 1234567890123456789, "factors": FACTORS}),
    "moon phase": gives("phase", "waxing gibbous"),
    "notes add": is_({"number": 1}),
    "notes search": is_({"notes": [NOTE]}),
    "audit on_event": is_({}),
    "audit report": observed,
    "planner plan": planned,
    "planner sleep": fails("timeout/deadline"),
    "crowd complete": streamed,
    "oracle complete": gives("content", "Nothing is written yet."),
    "memory add_message": is_({"count": 1}),
    "orchestrator execute": gives("tools", [{"name": "dice.roll", "ok": True}]),
    "doorkeeper on_event": gives("action", "ask_user"),
    "flaky exit": fails("internal/exited", exit_code=3),
    "flaky die": fails("internal/signaled", signal=9),
}
"""What each example has to bring, by module and op."""


def example(line: str) -> tuple[str, str, dict[str, Any], float]:
    """Return module, op, args and deadline (s) of a command line."""
    words, _, timeout = line.partition(" --timeout ")
    _, _, module, op, *given = shlex.split(words)
    args = args_of(read_words(tuple(given)), DESCRIPTORS[module].get("inputs", {}).get(op))
    return module, op, args, float(timeout or BOUND_S)


@pytest.fixture(scope="module", params=["as they are", "forced"])
def variant(request: pytest.FixtureRequest) -> Iterator[tuple[Daemon, bool]]:
    forced = request.param == "forced"
    with tempfile.TemporaryDirectory(prefix="stdiod-") as name:
        modules = Path(name, "modules")
        copy_forced(MODULES, modules) if forced else shutil.copytree(MODULES, modules)
        for module in MISSING:
            shutil.rmtree(modules / module)
        take_time(modules)
        policy = ("--policy", str(modules / "policy.toml"))
        with Daemon(Path(name), environment={"TMPDIR": name}, options=policy) as daemon:
            yield daemon, forced


def test_each_example_has_an_answer_that_is_known() -> None:
    assert [" ".join(example(line)[:2]) for line in EXAMPLES] == list(SHOWN)


def test_every_example_many_times_at_once_brings_what_it_should(
    variant: tuple[Daemon, bool],
) -> None:
    daemon, _ = variant
    for line in EXAMPLES:
        module, op, args, timeout_s = example(line)
        if module in MISSING:
            continue
        times = 1 if module in ALONE else AT_ONCE
        asked = [daemon.client.send_invoke(module, op, timeout_s, **args) for _ in range(times)]
        for one in asked:
            answer = daemon.client.answer(one)
            assert SHOWN[f"{module} {op}"](answer), (line, answer)
            assert answer.warnings == []
    for status in daemon.op("status")["modules"]:
        assert status["restarts"] == 0, status
        assert status["last_exit"] is None or status["name"] == "flaky", status


def test_each_has_the_processes_that_it_should(variant: tuple[Daemon, bool]) -> None:
    daemon, forced = variant
    for name, descriptor in DESCRIPTORS.items():
        if name in MISSING:
            continue
        if forced and pooled(descriptor):
            wait_for(daemon, name, lambda states: states.count("ready") >= POOL["min"])
        elif forced and warmed(descriptor):
            wait_for(daemon, name, lambda states: states == ["warm"] * WARM)
        elif name in ALONE:
            wait_for(daemon, name, lambda states: states == ["ready"])


def wait_for(daemon: Daemon, module: str, enough: Callable[[list[str]], bool]) -> None:
    """Return once the states of a module's instances are as they should be."""
    until(
        lambda: enough([one["state"] for one in daemon.status(module)["instances"]]),
        f"the processes that {module} should have",
    )
