"""Plain calls and guarded ones: whatever is said and done, nobody can tell which a call was."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Reason
from protocol.events import Log, Progress
from protocol.response import Response
from supervisor.kernel import parties
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.kernel import JournalOptions, Party
from supervisor.policy.verdict import Stopped
from tests import factories, journals
from tests.budget.conftest import CALM
from tests.budget.fake_process import FakeProcess, without_processes
from tests.budget.turns import taking_turns
from tests.kernel.conftest import daemon_with
from tests.principals import ADA

ID = "the-id"
"""Stands in what a module says where the id of the request is to be."""

GONE = Stopped(Reason.CLIENT, "the client cancelled the request")

INPUTS = {"say": {"type": "object", "required": ["lines"], "properties": {"n": {"maximum": 9}}}}


SCARCE = {**CALM, "concurrency": 2, "queue": 1}
"""Of four that ask at once, one is refused."""


def event(of: str, **fields: Any) -> str:
    return json.dumps({"version": "0", "type": of, "requestId": ID, **fields})


MANY = list(range(300))

# Each names its request: whose a line without an id is depends on when a probe is open.
PLAIN = (
    event("log", level="info", message="so far, so good", fields={"n": 2**70}),
    event("ui_event", event="message.chunk", payload={"content": "to the sea"}),
    event("ui_event", event="progress", payload={"done": 1, "total": 2}),
    event("ui_event", event="nobody.knows", payload={"x": [1.5, None]}),
    event("state_patch", patch={"a": {"b": 1}}),
    # These stay bytes where nobody looks.
    event("log", level="info", message="much", fields={"n": MANY}),
    event("ui_event", event="message.chunk", payload={"content": "to the sea", "n": MANY}),
    event("ui_event", event="nobody.knows", payload={"n": MANY}),
    event("state_patch", patch={"many": MANY}),
)
ERROR = event("error", errorCode="odd", errorMessage="an odd thing", details={"why": "no"})
SAID = st.sampled_from((*PLAIN, ERROR))

RESULT = st.sampled_from(
    (
        '{"n":1}',
        "null",
        '"\\ud800"',
        "[1,2,3]",
        "1e999",
        str(2**80),
        '{"n":1,"n":2}',
        "1E5",
        '"é"',
        str(MANY),
    )
)


def reply(fields: str) -> str:
    return f'{{"requestId":"{ID}",{fields}}}'


def done(fields: str) -> str:
    return f'{{"version":"0","type":"done","requestId":"{ID}",{fields}}}'


ANSWER = st.one_of(
    RESULT.map(lambda result: reply(f'"ok":true,"result":{result}')),
    RESULT.map(lambda result: done(f'"ok":true,"summary":"so","result":{result}')),
    st.sampled_from(
        (
            reply('"ok":true,"summary":"all is well"'),
            reply('"ok":false,"error":{"code":"odd","message":"no","details":{"n":1}}'),
            reply('"ok":"yes"'),
            done('"ok":true'),
            done('"ok":false,"summary":"not today"'),
        )
    ),
)


class Asking(msgspec.Struct, frozen=True):
    """A request: what its module says, and how it ends if not by that."""

    lines: list[str]
    end: str
    more: dict[str, Any]


ENDS = {"cancel": lambda one: one.cancel(GONE), "deadline": lambda one: one.expired()}
ANSWERED = st.tuples(st.lists(SAID, max_size=3), ANSWER).map(lambda both: [*both[0], both[1]])
WAITING = event("log", level="info", message="waiting")
"""The last that a request says which has to be given up."""
LEFT_OPEN = st.lists(SAID, max_size=2).map(lambda said: [*said, WAITING])
REFUSED = (
    {"op": "nothing"},
    {"op": ""},
    {"args": 7},
    {"session_id": "nowhere"},
    {"timeout_s": -1},
)
"""What no module is asked for."""
ASKING = st.one_of(
    st.builds(Asking, ANSWERED, st.just("answer"), st.just({})),
    st.builds(Asking, LEFT_OPEN, st.sampled_from(sorted(ENDS)), st.just({})),
    st.builds(
        Asking,
        ANSWERED,
        st.just("answer"),
        st.sampled_from((*REFUSED, {"session_id": "s"}, {"timeout_s": 60})),
    ),
)
FIRST = Asking([reply('"ok":true')], "answer", {})
"""Shows that the module puts ids on its answers, so that giving up a request costs no process."""


class Client(parties.Client):
    """What one client was told."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self.told: list[Any] = []
        self.waits = trio.Event()
        self._ended = ended

    def event(self, event: Progress, line: bytes | None) -> None:
        self.told.append(
            (msgspec.structs.replace(event, request_id=ID), line and _bare(line.decode()))
        )
        if isinstance(event, Log) and event.message == "waiting":
            self.waits.set()

    def finished(self, response: Response) -> None:
        document = response.document()
        self.told.append(_bare(json.dumps(_without(document, "duration_ms", "uptime_s"))))
        self.waits.set()  # it may have been refused
        self._ended()


def _bare(text: str) -> str:
    # The numbers are not the same: a probe may have had one.
    return re.sub(r"\br\d+-[0-9a-f]{6}\b", ID, text)


def _without(value: Any, *names: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(one, *names) for key, one in value.items() if key not in names}
    return value


def _said(self: FakeProcess, frame: dict[str, Any]) -> bytes:
    if frame["operation"] != "invoke":
        return _ANSWER(self, frame)
    lines = frame["input"]["args"]["lines"]
    return b"".join(line.replace(ID, frame["requestId"]).encode() + b"\n" for line in lines)


_ANSWER = FakeProcess._answer


async def _talk(folder: Path, talk: list[list[Asking]], patch: pytest.MonkeyPatch) -> Any:
    """Ask some requests after others; return all that can be seen, and how many were guarded."""
    told: list[Any] = []
    with taking_turns() as turns:
        patch.setattr(FakeProcess, "_answer", _said)
        without_processes(turns, patch)
        made = factories.descriptor(folder, ["true"], supervision=SCARCE, inputs=INPUTS)
        async with daemon_with(folder, made, memory=JournalOptions()) as daemon:
            daemon.sessions.new(ADA, "s")
            module = daemon.fleet.modules["m"]
            for at_once in talk:
                left, ended = len(at_once), trio.Event()

                def end(ended: trio.Event = ended) -> None:
                    nonlocal left
                    left -= 1
                    if not left:
                        ended.set()

                for one in at_once:
                    client = Client(end)
                    told.append(client.told)
                    content = {"op": "say", "args": {"lines": one.lines}, **one.more}
                    handle = daemon.begin(Party(ADA), "m", "invoke", content, client)
                    if one.end in ENDS and isinstance(handle, Invocation):
                        await client.waits.wait()
                        ENDS[one.end](handle)
                await ended.wait()
            seen = (
                told,
                msgspec.to_builtins(module.counters),
                module.tally.by_outcome,
                dict(daemon.requests.refused),
                sum(count for _, count in module.latency.reading()),
                (module.in_flight, module.queued),
                [len(queue) for queue in module.host.deadlines._queues.values()],
            )
            guarded = daemon.requests.guarded_calls
    entries = [entry for _, entry in journals.read(folder / "data" / journals.FILE)]
    shutil.rmtree(folder / "data")
    own = [entry for entry in entries if entry["event"] in ("module:invoke", "module:error")]
    names = ("id", "ts", "span_id", "duration_ms", "uptime_s")
    # Sorted: which of two that were asked at once ends first is the loop's matter.
    return (*seen, sorted(_bare(json.dumps(_without(entry, *names))) for entry in own)), guarded


@settings(max_examples=15)
@given(st.lists(st.lists(ASKING, min_size=1, max_size=4), max_size=4))
def test_what_is_told_recorded_and_counted_is_the_same_whether_a_call_is_plain_or_guarded(
    tmp_path_factory: pytest.TempPathFactory, talk: list[list[Asking]]
) -> None:
    talk = [[FIRST], *talk]
    folder = tmp_path_factory.mktemp("talk")
    asked = [one for at_once in talk for one in at_once]
    with pytest.MonkeyPatch.context() as patch:
        plain, left = trio.run(_talk, folder, talk, patch)
    begin = Invocation.begin

    def begin_guarded(self: Invocation, silence_s: float | None) -> None:
        self.guard()
        begin(self, silence_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Invocation, "begin", begin_guarded)
        guarded, all_of_them = trio.run(_talk, folder, talk, patch)
    for seen, other in zip(plain, guarded, strict=True):
        assert seen == other
    refused = sum(one.more in REFUSED for one in asked)
    tallied, counted = plain[2:4]
    assert sum(counted.values()) == refused
    assert sum(sum(ops.values()) for ops in tallied.values()) == len(asked) - refused
    assert all_of_them == len(asked) - refused
    can_be_plain = [one for one in asked if ERROR not in one.lines and one.more not in REFUSED]
    assert left <= all_of_them - sum("session_id" not in one.more for one in can_be_plain)
