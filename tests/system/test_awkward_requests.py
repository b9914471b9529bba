"""Requests whose args take their time to be checked delay nobody, and begin in order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import misbehaving

SLOW = "a" * 50 + "b"
FORTY = 40


def taking(text: dict[str, Any]) -> dict[str, Any]:
    return {**misbehaving("evil"), "inputs": {"go": {"properties": {"text": text}}}}


@pytest.mark.fault(29)
def test_forty_slow_patterns_delay_neither_others_nor_the_same_clients_other_modules(
    start_daemon: StartDaemon,
) -> None:
    # It can't be searched for in linear time, and to try all that it allows takes years.
    pattern = r"^(?=a)(a*)*\1$"
    daemon = start_daemon(taking({"type": "string", "pattern": pattern}), misbehaving("healthy"))
    with daemon.connect() as attacker, daemon.connect() as victim:
        slow = [attacker.send_invoke("evil", text=SLOW) for _ in range(FORTY)]
        passing = attacker.send_invoke("healthy", n=1)
        assert attacker.answer(passing).result == {"n": 1}
        assert victim.invoke("healthy", n=2).result == {"n": 2}
        # The very same op, with args that are good, and with such that are not.
        assert victim.invoke("evil", text="aaaa").result == {"text": "aaaa"}
        assert victim.invoke("evil", text="b").verdict == "bad_request/invalid_args"
        refused = [attacker.answer(one) for one in slow]
        assert {one.verdict for one in refused} == {"bad_request/invalid_args"}
        assert "takes too many steps to be matched" in refused[0].error["message"]


@pytest.mark.fault(29)
def test_args_that_would_hold_up_others_are_refused_in_words(start_daemon: StartDaemon) -> None:
    choices = {"type": "array", "items": {"enum": [{"a": number} for number in range(1500)]}}
    daemon = start_daemon(taking(choices))
    refused = daemon.invoke("evil", text=[{"a": 1499}] * 2000)
    assert refused.verdict == "bad_request/invalid_args"
    assert "would take too much work to be validated" in refused.error["message"]
    assert daemon.invoke("evil", text=[{"a": 1499}]).ok


@pytest.mark.fault(29)
def test_what_is_behind_a_refused_one_begins_in_order_and_each_has_one_answer(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(taking({"type": "string"}))
    client = daemon.client
    refused = client.send_invoke("evil", text=1)
    behind = client.send_invoke("evil", text="aaa")
    stop = client.send("supervisor", "invoke", {"op": "stop", "args": {"module": "evil"}})
    too_late = client.send_invoke("evil", text="aaa")
    assert client.answer(refused).verdict == "bad_request/invalid_args"
    assert client.answer(behind).result == {"text": "aaa"}
    assert client.answer(stop).result["state"] == "down"
    # It is being stopped, or has been by the time that it is asked.
    assert client.answer(too_late).verdict in ("unreachable/stopping", "unreachable/not_ready")
