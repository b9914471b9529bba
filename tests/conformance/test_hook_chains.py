"""The vectors of what a chain of hooks comes to in the Amplifier kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.descriptor.model import OnFailure
from protocol.hook_result import read_hook_result
from supervisor.policy.hook_chain import Answer, Failed, Link, chain_of

VECTORS = Path(__file__).parent / "vectors" / "hook_chains.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]
RAISE = "raise RuntimeError"


def answer_of(returns: Any) -> Answer:
    return Failed("raised RuntimeError") if returns == RAISE else read_hook_result(returns)


def played(
    case: dict[str, Any], on_failure: OnFailure
) -> tuple[list[list[Any]], dict[str, Any], dict[str, Any]]:
    """Return who was called with what, the result, and the fields of it that the case shows."""
    handlers = {handler["name"]: handler for handler in case["handlers"]}
    links = [Link(name, one["priority"], on_failure) for name, one in handlers.items()]
    chain = chain_of(links, case["event_data"])
    calls: list[list[Any]] = []
    while (link := chain.next) is not None:
        calls.append([link.name, chain.data])
        chain = chain.after(answer_of(handlers[link.name]["returns"]))
    result = msgspec.to_builtins(chain.result())
    return calls, result, {field: result[field] for field in case["result"]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_chain_calls_whom_the_kernel_calls_and_comes_to_the_same(case: dict[str, Any]) -> None:
    # The kernel passes over a handler that raises: `on_failure` is open there.
    calls, _, shown = played(case, OnFailure.OPEN)
    assert calls == case["calls"]
    assert shown == case["result"]


def test_where_the_kernel_skips_a_handler_that_raises_a_closed_gate_denies() -> None:
    (case,) = (one for one in CASES if one["name"] == "raise is skipped")
    calls, result, _ = played(case, OnFailure.CLOSED)
    assert calls == case["calls"][:1]
    assert (result["action"], result["reason"]) == ("deny", "hook r raised RuntimeError")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["name"] != "raise is skipped"], ids=lambda c: c["name"]
)
def test_without_a_failure_it_does_not_matter_what_a_failure_would_come_to(
    case: dict[str, Any],
) -> None:
    assert played(case, OnFailure.CLOSED) == played(case, OnFailure.OPEN)
