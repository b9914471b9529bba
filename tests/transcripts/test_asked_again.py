"""A conversation in any dialect is told by its recording as it was, in the older form, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocol.connection import Answered, Asked, HostCalled, Wait
from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.dialects.registry import DIALECTS
from protocol.errors import Success
from protocol.replies import Operation
from protocol.transcript import (
    Entry,
    EntrySource,
    Happened,
    Header,
    Transcript,
    asked,
    descriptor_document,
    descriptor_of,
    outcome_document,
    said,
)
from supervisor.runtime.supervision.host import Host
from supervisor.transcripts.playback import play
from supervisor.transcripts.replay import Replayed, replay_through_dialect
from tests.conformance.recorded import FILES, read
from tests.factories import PYTHON
from tests.protocol.test_dialects import Joined
from tests.protocol.wire import Cuts, cuts, invoke

SERVER = Path(__file__).parents[1] / "kernel" / "mcp_server.py"

CASES = [(name, lifecycle) for name, one in DIALECTS.items() for lifecycle in one.lifecycles]
cases = pytest.mark.parametrize(("dialect", "lifecycle"), [*CASES, ("mcp-modern", CASES[1][1])])


class Recorded(Joined):
    """A connection and its peer, back to back, with a recording of what passes."""

    def __init__(self, dialect: str, lifecycle: Lifecycle, lengths: Cuts = ()) -> None:
        super().__init__(dialect, lifecycle, lengths)
        transport = replace(self.made.transport, protocol=dialect.partition("-")[0])
        self.descriptor: Descriptor = replace(self.made, transport=transport)
        self.entries: list[Entry] = []
        self.at_s = 0.0
        passes = self.connection.time_passed

        def time_passed(wait: Wait) -> Any:
            self.at_s += wait.seconds
            return passes(wait)

        self.connection.time_passed = time_passed  # type: ignore[method-assign]
        self.told = Told(self)

    def note(self, source: EntrySource, **fields: Any) -> None:
        self.entries.append(Entry(at_s=self.at_s, instance="dice#1", source=source, **fields))

    def start(self) -> None:
        if self.persistent:
            self.note(EntrySource.PROCESS, event=Happened.SPAWNED, pid=7)
        super().start()

    def ask(self, *names: str) -> None:
        for name in names:
            self.entries.append(asked(self.at_s, "dice#1", invoke(name, "echo", text="hi")))
            super().ask(name)

    def take(self, events: Any) -> None:
        for one in events:
            if isinstance(one, Asked):
                self.entries.append(asked(self.at_s, "dice#1", one.request))
            elif isinstance(one, HostCalled):
                named = {"request_id": one.request_id, "call_id": one.call.call_id}
                self.note(EntrySource.HOST, **named, outcome={"ok": True, "result": {}})
            elif isinstance(one, Answered):
                operation = next(
                    entry.operation
                    for entry in self.entries
                    if entry.is_request and entry.request_id == one.request_id
                )
                document = outcome_document(one.outcome)
                op = "echo" if operation is Operation.INVOKE else None
                named = {"request_id": one.request_id, "operation": operation, "op": op}
                self.note(EntrySource.HOST, **named, outcome=document)
            super().take([one])

    def replayed(self, entries: list[Entry]) -> Replayed:
        header = Header(
            transcript=1, module="dice", protocol=self.descriptor.transport.protocol,
            lifecycle=self.descriptor.transport.lifecycle, recorded="", stdiod="",
            descriptor=descriptor_document(self.descriptor),
        )  # fmt: skip
        return replay_through_dialect(Transcript(header, tuple(entries)), self.descriptor)


class Told(list[tuple[str, bytes]]):
    def __init__(self, recorded: Recorded) -> None:
        super().__init__()
        self._recorded = recorded

    def append(self, one: tuple[str, bytes]) -> None:
        who, data = one
        self._recorded.entries += said(self._recorded.at_s, "dice#1", EntrySource(who), data)
        super().append(one)


@cases
@given(lengths=cuts, at=st.integers(0, 30))
def test_each_request_has_its_outcome_again(
    dialect: str, lifecycle: Lifecycle, lengths: Cuts, at: int
) -> None:
    joined = Recorded(dialect, lifecycle, lengths)
    joined.start()
    if joined.persistent:
        joined.ask("r1", "r2", "r3")
    for number, _ in enumerate(joined.steps()):
        if number == at:
            break
    if not joined.persistent:
        joined.hear(joined.peer.ends())
    joined.take(joined.connection.receive_eof())
    joined.note(EntrySource.PROCESS, event=Happened.EXITED, exit_code=0)
    outcomes = [one for one in joined.events if isinstance(one, Answered)]
    is_whole = all(isinstance(one.outcome, Success) for one in outcomes)
    older = [one for one in joined.entries if not (one.is_request or one.is_answer)]
    for entries in (joined.entries, older):
        again = joined.replayed(entries)
        assert again.compared == len(outcomes)
        assert (again.differences == ()) or not is_whole


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_is_asked_again_by_an_older_recording(
    host: Host, tmp_path: Path, era: str
) -> None:
    """Its ids are words, and stand in no line of a server now."""
    (path,) = [one for one in FILES if one.stem == f"mcp_{era}"]
    transcript = read(path)
    ((instance, entries),) = transcript.instances().items()
    command = [*PYTHON, str(SERVER), era]
    recorded = descriptor_of(transcript.header, instance)
    made = replace(recorded, transport=replace(recorded.transport, command=tuple(command)))
    played = await play(entries, made, host, timeout_s=60)
    said = [one for one in entries if one.source is EntrySource.MODULE and one.is_line]
    assert (len(played.lines), played.unsent, played.overdue) == (len(said), 0, False)
    assert played.has_other_ids


@pytest.mark.parametrize("dialect", ["module", "mcp"])
def test_a_recording_that_began_in_the_middle_tells_what_came_after(dialect: str) -> None:
    joined = Recorded(dialect, Lifecycle.PERSISTENT)
    joined.start()
    joined.ask("r1")
    joined.talk()
    joined.entries.clear()
    joined.note(EntrySource.PROCESS, event=Happened.ATTACHED, pid=7, mid_line=False)
    joined.ask("r2", "r3")
    joined.talk()
    again = joined.replayed(joined.entries)
    assert (again.compared, again.differences) == (2, ())
