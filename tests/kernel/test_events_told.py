"""The op `events`: from where, how many, which of them, and on from a journal to the next."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import trio

from protocol.events import Log
from supervisor.kernel.kernel import JournalOptions, Kernel, Party
from tests.factories import actor
from tests.kernel.conftest import Asker, ask, daemon_with, own
from tests.kernel.test_journal_lost import removed
from tests.principals import ADA

DAEMON = ("daemon:start", "mount:add")


def fields(asker: Asker) -> list[dict[str, Any]]:
    found = [one.fields for one in asker.events if isinstance(one, Log)]
    return [one for one in found if isinstance(one, dict)]


class Told:
    """What `events` with these args came to."""

    def __init__(self, asker: Asker, result: dict[str, Any]) -> None:
        first = asker.events[0]
        assert isinstance(first, Log)
        self.words, self.level = first.message, first.level
        self.heading, *entries = fields(asker)
        self.seqs = [one["seq"] for one in entries]
        self.names = [one["event"] for one in entries]
        self.result = result


async def told(daemon: Kernel, **args: Any) -> Told:
    asker = Asker()
    content = {"op": "events", "args": args}
    daemon.begin(Party(ADA), "supervisor", "invoke", content, asker)
    document = await asker.document()
    assert document["ok"], document
    return Told(asker, document["result"])


async def test_entries_come_from_where_a_client_left_off_and_as_many_as_it_wants(
    tmp_path: Path,
) -> None:
    ticks = itertools.count(1000)
    options: dict[str, Any] = {"memory": JournalOptions(), "clock": lambda: float(next(ticks))}
    async with daemon_with(tmp_path, actor(tmp_path), **options) as daemon:
        for name in "abcdef":
            await own(daemon, ADA, "session.new", session_id=name)
        await ask(daemon, "m", "echo", session_id="a").response()
        whole = await told(daemon, since=0)
        last = whole.seqs[-1]
        assert whole.seqs == list(range(1, last + 1))
        assert whole.result == {"journal": whole.heading["journal"], "last_seq": last}
        assert whole.heading == {**whole.result, "first_seq": 1, "since": 0}
        assert (whole.words, whole.level) == (f"the journal holds entries up to {last}", "info")
        parts: list[tuple[dict[str, Any], list[int]]] = [
            ({"since": 3}, whole.seqs[3:]),
            ({"since": last}, []),
            ({"last": 2}, whole.seqs[-2:]),
            ({"last": 0}, []),
            ({"last": last + 7}, whole.seqs),
            ({"since": 2, "limit": 1}, [3]),
            ({"since": 2, "limit": 3}, [3, 4, 5]),
            ({"limit": 2, "last": 3}, whole.seqs[-3:-1]),
            ({"since": last - 2, "limit": 2}, whole.seqs[-2:]),
            ({"since": 3, "journal": whole.heading["journal"]}, whole.seqs[3:]),
            ({"since": 3, "journal": "another"}, whole.seqs),
        ]
        for args, seqs in parts:
            found = await told(daemon, **args)
            assert found.seqs == seqs, args
            assert found.result == whole.result
        ahead = await told(daemon, since=last + 5)
        words = f"the journal ends at {last}: there is nothing after {last + 5} yet"
        assert (ahead.words, ahead.level, ahead.seqs) == (words, "warn", [])
        new = [seq for seq, name in zip(whole.seqs, whole.names, strict=True) if name == NEW]
        chosen: list[tuple[dict[str, Any], list[int]]] = [
            ({"event": NEW}, new),
            ({"event": "session:s*", "last": 2}, new[-2:]),
            ({"event": NEW, "limit": 2, "since": 0}, new[:2]),
            ({"session_id": "b"}, new[1:2]),
            ({"module": "m", "event": "module:invoke"}, [last]),
            ({"module": "n"}, []),
        ]
        for args, seqs in chosen:
            assert (await told(daemon, **args)).seqs == seqs, args
        ts = 1000.0
        while len((await told(daemon, since=0, since_ts=ts)).seqs) == last:
            ts += 1
        assert (await told(daemon, since=0, since_ts=ts)).seqs == whole.seqs[1:]


NEW = "session:start"


async def test_a_pattern_that_no_event_can_fit_is_refused_and_so_is_all_without_a_journal(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, memory=JournalOptions()) as daemon:
        words = await own(daemon, ADA, "events", event="nothing")
        assert words.startswith("there is no event 'nothing'; there are ")
        assert " session:start," in words
        assert (await told(daemon, event="*x*")).seqs == []
    async with daemon_with(tmp_path) as daemon:
        assert await own(daemon, ADA, "events") == "this daemon keeps no journal"


async def test_who_follows_goes_on_in_the_journal_that_comes_after_a_lost_one(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, actor(tmp_path), memory=JournalOptions()) as daemon:
        await own(daemon, ADA, "session.new")
        follower = Asker()
        content = {"op": "events", "args": {"follow": True, "since": 0}}
        daemon.begin(Party(ADA), "supervisor", "invoke", content, follower)
        before = (await told(daemon, since=0)).heading
        await follower.heard(1 + before["last_seq"])
        removed(tmp_path / "data" / "journal.db")
        await own(daemon, ADA, "session.new", session_id="late")
        while not any(one.get("session_id") == "late" for one in fields(follower)):
            await trio.lowlevel.checkpoint()
        after = (await told(daemon)).heading
        assert after["journal"] != before["journal"]
        _, *entries = fields(follower)
        [heading] = [one for one in entries if "seq" not in one]
        known = [one["seq"] for one in entries[: entries.index(heading)]]
        later = [one["seq"] for one in entries[entries.index(heading) + 1 :]]
        assert (heading["journal"], heading["since"]) == (after["journal"], known[-1])
        assert heading["first_seq"] == known[-1] + 1
        assert heading["last_seq"] >= known[-1]
        assert known == list(range(1, len(known) + 1))
        assert later == sorted({*later})
        assert later[0] > known[-1]
