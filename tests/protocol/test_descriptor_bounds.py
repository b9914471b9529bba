"""The figures of a descriptor: what each may be at the least and the most, and its default."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.descriptor.loading import parse_descriptor
from protocol.descriptor.model import Hook, Supervision
from protocol.problem import Problem
from tests.protocol.descriptor_documents import GATE, SMALL, SOURCE, changed, encoded, refusal

SECONDS = "a number of seconds greater than 0, such as {}"
LEAST = "an integer of at least {}, such as {}"
MOST = 2**53 - 1


def at_least(least: int, such_as: str, *, or_null: bool = False) -> tuple[int, int, str]:
    return least, least - 1, LEAST.format(least, such_as) + ", or null" * or_null


BOUNDS: dict[str, tuple[Any, Any, str]] = {
    "backoff/factor": (1, 0.999, "a number of at least 1, such as 2"),
    "backoff/jitter": (0, -0.001, "a number from 0 to 1, such as 0.25"),
    "health/failures": at_least(1, "3"),
    "limits/memory_bytes": at_least(1_048_576, "268435456", or_null=True),
    "limits/line_bytes": at_least(1024, "8388608"),
    "limits/open_files": at_least(8, "256", or_null=True),
    "limits/processes": at_least(1, "16", or_null=True),
    "limits/cpu_s": at_least(1, "60", or_null=True),
    "instances/max_requests": at_least(1, "1000", or_null=True),
    "intensity": at_least(0, "5"),
    "concurrency": at_least(1, "1"),
    "queue": at_least(0, "1024"),
    "period_s": (1e-9, 0, SECONDS.format(60)),
    "backoff/initial_s": (1e-9, 0, SECONDS.format(0.5)),
    "timeouts/start_s": (1e-9, 0, SECONDS.format(10)),
    "timeouts/silence_s": (1e-9, 0, SECONDS.format(15) + ", or null"),
}
"""By path in `supervision`: the least, one that is less, and what it must be."""


@pytest.mark.parametrize("path", BOUNDS)
def test_a_figure_of_supervision_has_a_least(path: str) -> None:
    least, less, words = BOUNDS[path]
    pointer = f"/supervision/{path}"
    parse_descriptor(encoded(changed(pointer, least)), SOURCE)
    (problem,) = refusal(encoded(changed(pointer, less))).problems
    assert problem == Problem(pointer, f"is {less}, must be {words}")


@pytest.mark.parametrize(
    ("path", "most", "more", "words"),
    [
        ("backoff/jitter", 1, 1.001, "a number from 0 to 1, such as 0.25"),
        ("restart_on", [255], [256], "an exit code from 0 to 255"),
        ("never_on", [0], [-1], "an exit code from 0 to 255"),
    ],
)
def test_a_figure_of_supervision_has_a_most(path: str, most: Any, more: Any, words: str) -> None:
    pointer = f"/supervision/{path}"
    restarts = changed("/supervision/restart", "transient")
    parse_descriptor(encoded(changed(pointer, most, restarts)), SOURCE)
    (problem,) = refusal(encoded(changed(pointer, more, restarts))).problems
    assert words in problem.message


def test_an_integer_is_one_that_every_reader_keeps() -> None:
    pointer = "/supervision/queue"
    found = parse_descriptor(encoded(changed(pointer, MOST)), SOURCE)
    assert found.supervision.queue == 9_007_199_254_740_991
    assert refusal(encoded(changed(pointer, MOST + 1)))
    assert refusal(encoded(changed(pointer, 1.5)))
    assert parse_descriptor(encoded(changed(pointer, 5.0)), SOURCE).supervision.queue == 5


def test_a_name_has_128_characters() -> None:
    assert parse_descriptor(encoded(changed("/name", "n" * 128)), SOURCE).name == "n" * 128
    assert refusal(encoded(changed("/name", "n" * 129)))


def test_a_hundred_problems_are_told() -> None:
    for count in (100, 101):
        document = changed("/capabilities", [""] * count)
        assert len(refusal(encoded(document)).problems) == 100


DEFAULTS: dict[str, Any] = {
    "start": "eager",
    "restart": "permanent",
    "restart_on": [],
    "never_on": [],
    "intensity": 5,
    "period_s": 60.0,
    "backoff": {"initial_s": 0.5, "factor": 2.0, "max_s": 60.0, "jitter": 0.25},
    "retry_failed_s": 300.0,
    "depends_on": [],
    "timeouts": {
        "start_s": 10.0,
        "health_s": 2.0,
        "describe_s": 5.0,
        "invoke_s": 30.0,
        "total_s": 3600.0,
        "silence_s": None,
        "exit_s": 2.0,
        "linger_s": 10.0,
        "stop_s": 5.0,
        "prepare_s": 600.0,
    },
    "health": {"interval_s": 10.0, "failures": 3},
    "limits": {
        "memory_bytes": None,
        "line_bytes": 8_388_608,
        "open_files": None,
        "processes": None,
        "cpu_s": None,
    },
    "concurrency": 1,
    "queue": 1024,
    "instances": {
        "min": 1,
        "max": 1,
        "idle_stop_s": None,
        "max_requests": None,
        "max_age_s": None,
    },
    "overlap": True,
    "warm": 0,
    "watch": False,
}


def test_supervision_that_is_not_spelled_out_has_these_figures() -> None:
    found = parse_descriptor(encoded(SMALL), SOURCE).supervision
    assert found == Supervision()
    assert msgspec.json.decode(msgspec.json.encode(found)) == DEFAULTS


def test_a_hook_that_is_not_spelled_out_has_these_figures() -> None:
    document = {**GATE, "hook": {"observe": ["*"]}}
    found = parse_descriptor(encoded(document), SOURCE).hook
    assert found == Hook(observe=("*",))
    assert msgspec.json.decode(msgspec.json.encode(found)) == {
        "observe": ["*"],
        "gate": [],
        "modules": ["*"],
        "priority": 50,
        "on_failure": "closed",
        "timeout_s": 5.0,
        "queue": 1000,
        "drop": "oldest",
    }


@pytest.mark.parametrize(
    ("field", "least", "less"), [("priority", 0, -1), ("queue", 1, 0), ("timeout_s", 0.01, 0)]
)
def test_a_figure_of_a_hook_has_a_least(field: str, least: float, less: float) -> None:
    parse_descriptor(encoded(changed(f"/hook/{field}", least, GATE)), SOURCE)
    (problem,) = refusal(encoded(changed(f"/hook/{field}", less, GATE))).problems
    assert problem.pointer == f"/hook/{field}"
