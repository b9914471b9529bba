"""A reader who may not see a module reads its name nowhere in what becomes of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.kernel.kernel import JournalOptions
from supervisor.policy.causes import seen_cause
from supervisor.policy.findings import QuarantinedFile
from supervisor.policy.principals import Principal, Scope
from tests.factories import actor
from tests.kernel.conftest import begin, daemon_with, own
from tests.principals import ADA

LAZY = {"start": "lazy", "timeouts": {"stop_s": 0.05, "exit_s": 0.05}}
MAX = Principal("max", "http", frozenset({Scope.READ, Scope.INVOKE}), ("kv",))
EVE = Principal("eve", "http", frozenset({Scope.READ, Scope.INVOKE}), ("hidden",))


@pytest.mark.fault(47)
async def test_what_becomes_of_a_module_names_no_other_that_its_reader_may_not_see(
    tmp_path: Path,
) -> None:
    parties = [
        actor(tmp_path, name="kv", supervision={**LAZY, "depends_on": ["hidden"]}),
        actor(tmp_path, name="hidden", supervision=LAZY),
    ]
    why = f"{tmp_path}: depends_on names 'hidden', which is quarantined"
    bad = QuarantinedFile(parties[0].source, why)
    async with daemon_with(
        tmp_path, *parties, quarantined=(bad,), memory=JournalOptions()
    ) as daemon:
        assert (await begin(daemon, "kv", "invoke", {"op": "echo"}, ADA).document())["ok"]
        hidden = daemon.fleet.modules["hidden"]
        hidden.stop("the test")
        await daemon.fleet.wait_until(lambda: hidden.is_down or None)
        for reader, module, other in ((MAX, "kv", "hidden"), (EVE, "hidden", "kv")):
            for who in (ADA, reader):
                asked = [
                    begin(daemon, "supervisor", "events", {"last": 50, "module": module}, who),
                    begin(daemon, "supervisor", "logs", {"module": module}, who),
                ]
                for one in asked:
                    assert (await one.document())["ok"]
                said = [(event.message, event.fields) for one in asked for event in one.events]  # type: ignore[union-attr]
                said.append(await own(daemon, who, "status", module=module))
                assert (other in json.dumps(said, default=str)) is (who is ADA), (reader.name, said)


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ("a, kv, b got ready", "kv, another module got ready"),
        ("down -> starting: kv got ready", "down -> starting: kv got ready"),
        ("down -> starting: a depends on it", "down -> starting: another module depends on it"),
        (
            "a, which it depends on, went from ready to down: it was killed",
            "a module that it depends on went from ready to down",
        ),
        (
            "kv, which it depends on, went from down to starting: a got ready",
            "kv, which it depends on, went from down to starting: another module got ready",
        ),
        (
            "depends_on names 'a', and there is no such module",
            "depends_on names another module, and there is no such module",
        ),
        (
            "depends_on goes in a circle: kv -> a -> kv",
            "depends_on goes in a circle: kv -> another module -> kv",
        ),
        ("was killed by SIGKILL", "was killed by SIGKILL"),
    ],
)
def test_a_cause_is_told_without_names_of_what_is_not_seen(words: str, seen: str) -> None:
    assert seen_cause(words, MAX) == seen
    assert seen_cause(words, ADA) == words
