"""A host and a module joined back to back: whatever is asked, answered, cut or spoilt, each request
ends once, and never with another's answer.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from typing import Any

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.connection import Answered, EventReceived, Events, Request
from protocol.errors import Success
from protocol.events import StatePatch
from protocol.replies import Operation
from tests.protocol.wire import (
    DESCRIPTION,
    Cuts,
    cuts,
    descriptor,
    event,
    feed,
    left,
    line,
    module,
)

BAD_LINES = (b"stray print\n", b"[]\n", line(version="9", type="log"), b"\xff\n")


class Spoil(Enum):
    """What a module does wrong when it answers."""

    NOTHING = auto()
    BEFORE = auto()
    INSTEAD = auto()


class Script(msgspec.Struct, frozen=True):
    """One request, and how it is served."""

    operation: Operation
    events: int = 0
    spoil: Spoil = Spoil.NOTHING
    bad: bytes = BAD_LINES[0]


class FakeModule:
    """A module that answers what it reads, in the manner it was given."""

    def __init__(self, scripts: dict[str, Script], form: str, *, echoes: bool) -> None:
        self._scripts = scripts
        self._form = form
        self._echoes = echoes

    def answer(self, frame: dict[str, Any]) -> bytes:
        request_id = frame["requestId"]
        # The host's own marks are in no script; they are served faultlessly.
        script = self._scripts.get(request_id, Script(Operation(frame["operation"])))
        named = {"requestId": request_id} if self._echoes else {}
        spoken = [
            event("state_patch", patch={"by": request_id}, **named) for _ in range(script.events)
        ]
        if script.spoil is not Spoil.NOTHING:
            spoken.append(script.bad)
        if script.spoil is not Spoil.INSTEAD:
            spoken.append(self._last(script.operation, request_id, named))
        return b"".join(spoken)

    def _last(self, operation: Operation, request_id: str, named: dict[str, str]) -> bytes:
        result: dict[str, Any]
        match operation:
            case Operation.HEALTH:
                result = {"status": "ok"}
            case Operation.DESCRIBE:
                result = DESCRIPTION
            case Operation.INVOKE:
                result = {"status": "ok", "name": "dice", "by": request_id}
        if self._form == "stream":
            return event("done", ok=True, result=result, **named)
        if self._form == "envelope" or operation is Operation.INVOKE:
            return line(ok=True, result=result, **named)
        return line({**result, **named})


def is_own(request_id: str, operation: Operation, result: Any) -> bool:
    match operation:
        case Operation.INVOKE:
            return bool(result["by"] == request_id)
        case Operation.HEALTH:
            return bool(result["status"] == "ok" and "by" not in result)
        case Operation.DESCRIBE:
            return bool(result["kind"] == "tool")


class Host:
    """The host's side: what was sent, what came, and the promises that hold throughout."""

    def __init__(self, stdout: Any, scripts: dict[str, Script], form: str, *, echoes: bool) -> None:
        self.connection = module(descriptor(stdout=stdout))
        self.module = FakeModule(scripts, form, echoes=echoes)
        self.sent: dict[str, Operation] = {}
        self.ended: Counter[str] = Counter()
        self.succeeded: set[str] = set()

    def send(self, request_id: str, operation: Operation) -> list[bytes]:
        """Send a request; return what the module says to each line it reads, line by line."""
        self.sent[request_id] = operation
        self.connection.ask(Request(request_id, operation))
        written = self.connection.outgoing.take().splitlines()
        return [self.module.answer(msgspec.json.decode(frame)) for frame in written]

    def take(self, received: Events) -> None:
        for item in received:
            match item:
                case Answered(request_id=request_id, outcome=outcome):
                    self.ended[request_id] += 1
                    if isinstance(outcome, Success):
                        assert is_own(request_id, self.sent[request_id], outcome.result)
                        self.succeeded.add(request_id)
                case EventReceived(request_id=request_id, event=StatePatch(patch=patch)):
                    assert patch == {"by": request_id}
                    assert self.ended[request_id] == 0
                case _:
                    pass

    def end(self) -> None:
        """Let the process go: by then each request has ended exactly once."""
        self.take(self.connection.receive_eof())
        self.ended.update(left(self.connection))
        assert self.ended == Counter(dict.fromkeys(self.sent, 1))


def scripts_of(spoils: tuple[Spoil, ...]) -> st.SearchStrategy[dict[str, Script]]:
    one = st.builds(
        Script,
        st.sampled_from(Operation),
        st.integers(0, 2),
        st.sampled_from(spoils),
        st.sampled_from(BAD_LINES),
    )
    return st.lists(one, min_size=1, max_size=6).map(
        lambda scripts: {f"r{number}": script for number, script in enumerate(scripts)}
    )


forms = st.sampled_from(["plain", "envelope", "stream"])
policies = st.sampled_from(["strict", "tolerant"])
any_spoil = scripts_of(tuple(Spoil))
no_instead = scripts_of((Spoil.NOTHING, Spoil.BEFORE))
faultless = scripts_of((Spoil.NOTHING,))


@given(faultless, forms, policies, st.booleans(), cuts)
def test_a_faultless_module_answers_everything_under_every_cut(
    scripts: dict[str, Script], form: str, stdout: str, echoes: bool, lengths: Cuts
) -> None:
    host = Host(stdout, scripts, form, echoes=echoes)
    said = [part for name in scripts for part in host.send(name, scripts[name].operation)]
    host.take(feed(host.connection, b"".join(said), lengths))
    assert host.succeeded == set(scripts)
    host.end()


@given(any_spoil, forms, policies, cuts, st.randoms(use_true_random=False))
def test_with_ids_any_order_and_any_fault_leave_each_request_its_own_end(
    scripts: dict[str, Script], form: str, stdout: str, lengths: Cuts, random: Any
) -> None:
    host = Host(stdout, scripts, form, echoes=True)
    said = [part for name in scripts for part in host.send(name, scripts[name].operation)]
    random.shuffle(said)
    host.take(feed(host.connection, b"".join(said), lengths))
    host.end()


@given(no_instead, forms, policies, cuts)
def test_without_ids_several_at_once_keep_their_order_or_fail_together(
    scripts: dict[str, Script], form: str, stdout: str, lengths: Cuts
) -> None:
    host = Host(stdout, scripts, form, echoes=False)
    said = [part for name in scripts for part in host.send(name, scripts[name].operation)]
    host.take(feed(host.connection, b"".join(said), lengths))
    host.end()


@given(any_spoil, forms, cuts, cuts)
def test_without_ids_one_at_a_time_a_fault_costs_its_own_request_only(
    scripts: dict[str, Script], form: str, lengths: Cuts, delays: Cuts
) -> None:
    # A describe that fails is the end of a start; no request ever comes after its late answer.
    assume(
        not any(
            s.operation is Operation.DESCRIBE and s.spoil is Spoil.BEFORE for s in scripts.values()
        )
    )
    host = Host("strict", scripts, form, echoes=False)
    waiting = b""
    delay = iter(delays)
    for name, script in scripts.items():
        waiting += b"".join(host.send(name, script.operation))
        # What a failed request leaves in the pipe arrives before, between or after what follows.
        while not host.ended[name] and waiting:
            length = next(delay, len(waiting)) or 1
            host.take(feed(host.connection, waiting[:length], lengths))
            waiting = waiting[length:]
        if script.spoil is Spoil.NOTHING:
            assert name in host.succeeded
    host.take(feed(host.connection, waiting, lengths))
    host.end()


@given(any_spoil, forms, policies, st.booleans(), cuts)
def test_the_same_bytes_under_every_cut_mean_the_same(
    scripts: dict[str, Script], form: str, stdout: str, echoes: bool, lengths: Cuts
) -> None:
    whole, cut = (Host(stdout, scripts, form, echoes=echoes) for _ in range(2))
    said = b""
    for host in (whole, cut):
        said = b"".join(part for n in scripts for part in host.send(n, scripts[n].operation))
    assert feed(whole.connection, said) == feed(cut.connection, said, lengths)
    assert left(whole.connection) == left(cut.connection)
