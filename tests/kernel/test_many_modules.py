"""What takes longer than a turn where there are many modules: in order, and each answer whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from protocol.response import Response
from supervisor.kernel.kernel import CALM_TASKS, Kernel, Party
from supervisor.policy.principals import ALL_SCOPES, Principal
from tests.factories import actor
from tests.kernel.agents import agent
from tests.kernel.conftest import GONE, Asker, ask, daemon_with

NAMES = [f"a{number:03}" for number in range(100)]
MAX = Principal("max", "test", ALL_SCOPES, (*(f"b{n}*" for n in range(2000)), "a*.x", "a007.*"))
"""Sees all modules, which takes longer than a turn to find out, and may ask one of them."""


@asynccontextmanager
async def daemon_of_many(folder: Path) -> AsyncIterator[Kernel]:
    lazy = [agent(folder, name, supervision={"start": "lazy"}) for name in NAMES]
    async with daemon_with(folder, *lazy) as daemon:
        yield daemon


class Asked(Asker):
    """The client of one op of a party, which notes when it is answered."""

    def __init__(
        self, daemon: Kernel, party: Party, answered: list[Asked], op: str, **args: Any
    ) -> None:
        super().__init__()
        self._answered = answered
        self.handle = daemon.begin(party, "supervisor", "invoke", {"op": op, "args": args}, self)

    def finished(self, response: Response) -> None:
        self._answered.append(self)
        super().finished(response)

    async def result(self) -> Any:
        document = await self.document()
        return document["result"] if document["ok"] else document["error"]["message"]


async def test_ops_wait_for_a_prompt_whose_agent_is_looked_for_and_other_parties_do_not(
    tmp_path: Path,
) -> None:
    answered: list[Asked] = []
    async with daemon_of_many(tmp_path) as daemon:
        party = Party(MAX)

        def asked(op: str, session_id: str, by: Party = party, **args: Any) -> Asked:
            return Asked(daemon, by, answered, op, session_id=session_id, **args)

        for name in "st":
            await asked("session.new", name).result()
        answered.clear()
        given_up = asked("session.prompt", "t", content="say 0")
        prompt = asked("session.prompt", "s", content="say 1")
        shown = asked("session.show", "s")
        other = asked("session.show", "s", Party(MAX))
        assert given_up.handle is not None
        assert not given_up.events, "its agent was found in one turn"
        assert (await other.result())["roles"] == {}
        given_up.handle.cancel(GONE)
        assert await given_up.result() == GONE.message
        assert answered == [other, given_up]
        assert (await shown.result())["roles"] == {"agent": "a007"}
        assert (await prompt.result())["content"] == "1"
        assert not given_up.events
        assert (await asked("session.show", "t").result())["roles"] == {}


async def test_a_party_has_its_long_answers_one_after_the_other_and_each_whole(
    tmp_path: Path,
) -> None:
    answered: list[Asked] = []
    async with daemon_of_many(tmp_path) as daemon:
        party = Party(MAX)
        first, second = (Asked(daemon, party, answered, "status") for _ in range(2))
        offers = Asked(daemon, party, answered, "offers", wait=False)
        other = Asked(daemon, Party(MAX), answered, "status")
        assert not answered, "it was answered in one turn"
        for one, key in ((first, "name"), (second, "name"), (offers, "module"), (other, "name")):
            assert [module[key] for module in (await one.result())["modules"]] == NAMES
        assert answered[-1] is not other, "another party waited for all of this one"
        again = await Asked(daemon, party, answered, "status").result()
        assert [module["name"] for module in again["modules"]] == NAMES


async def test_a_daemon_is_calm_up_to_five_hundred_tasks_beside_eight_of_each_process(
    tmp_path: Path,
) -> None:
    modules = [actor(tmp_path, name=name) for name in ("one", "two")]
    async with daemon_with(tmp_path, *modules) as daemon, trio.open_nursery() as nursery:
        while trio.lowlevel.current_statistics().tasks_living - 2 * 8 < CALM_TASKS:
            nursery.start_soon(trio.sleep_forever)
        assert daemon.is_calm()
        nursery.start_soon(trio.sleep_forever)
        assert not daemon.is_calm()
        nursery.cancel_scope.cancel()


async def test_a_daemon_is_calm_up_to_five_hundred_open_requests(tmp_path: Path) -> None:
    some = {"concurrency": 100, "timeouts": {"stop_s": 0.1, "exit_s": 0.1}}
    async with daemon_with(tmp_path, actor(tmp_path, supervision=some)) as daemon:
        for _ in range(CALM_TASKS):
            ask(daemon, "m", "hang")
        assert daemon.is_calm()
        ask(daemon, "m", "hang")
        assert not daemon.is_calm()


async def test_a_status_shows_nothing_of_the_request_after_it(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path, name="a")) as daemon:
        party, answered = Party(Principal("ada", "test", ALL_SCOPES)), list[Asked]()
        status = Asked(daemon, party, answered, "status")
        Asked(daemon, party, answered, "stop", module="a")
        [module] = (await status.result())["modules"]
        assert module["state"] == "ready"
