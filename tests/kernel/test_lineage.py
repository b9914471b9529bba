"""An invocation made on behalf of another: its span is nested, and it ends with its parent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol.errors import Reason
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.recorder import Recorder
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.conftest import Asker, daemon_with
from tests.principals import ADA

GONE = Stopped(Reason.CLIENT, "the client cancelled the request")


class Noting(Recorder):
    """A recorder that keeps what it is told in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[dict[str, Any]] = []

    def record(self, event: str, **fields: Any) -> None:
        self.entries.append({"event": event, **fields})

    def invoked(self, op: str) -> dict[str, Any]:
        """Return the one entry of the invocation of an op."""
        found = [one for one in self.entries if one["event"] == "module:invoke"]
        [entry] = [one for one in found if one["data"]["op"] == op]
        return entry


def begin(
    daemon: Kernel, op: str, parent: Invocation | None = None, **content: Any
) -> tuple[Invocation, Asker]:
    asker = Asker()
    invocation = daemon.requests.invoke(ADA, "m", {"op": op, **content}, asker, parent=parent)
    assert invocation is not None
    return invocation, asker


async def test_children_end_with_their_parent_and_theirs_with_them(tmp_path: Path) -> None:
    recorder = Noting()
    module = actor(tmp_path, name="m", supervision={"concurrency": 3})
    async with daemon_with(tmp_path, module, recorder=recorder) as daemon:
        parent, asker = begin(daemon, "hang", args={"n": 1})
        child, of_child = begin(daemon, "hang", parent, args={"n": 2})
        grandchild, of_grandchild = begin(daemon, "hang", child, args={"n": 3})
        assert list(grandchild.ancestors) == [child, parent]
        assert list(parent.children) == [child]
        parent.cancel(GONE)
        assert (await asker.document())["error"]["details"]["reason"] == "client"
        for one in (of_child, of_grandchild):
            error = (await one.document())["error"]
            assert (error["code"], error["details"]["reason"]) == ("cancelled", "parent_ended")
        assert not list(parent.children)
        spans = {
            one["span_id"]: one["data"].get("parent_span_id")
            for one in recorder.entries
            if one["event"] == "module:invoke"
        }
        assert spans == {
            parent.span_id: None,
            child.span_id: parent.span_id,
            grandchild.span_id: child.span_id,
        }


async def test_a_child_that_ends_is_let_go_of(tmp_path: Path) -> None:
    recorder = Noting()
    module = actor(tmp_path, name="m", supervision={"concurrency": 2})
    async with daemon_with(tmp_path, module, recorder=recorder) as daemon:
        parent, asker = begin(daemon, "hang")
        child, of_child = begin(daemon, "echo", parent, args={"n": 2})
        assert (await of_child.document())["ok"]
        assert not list(parent.children)
        refused = Asker()
        assert daemon.requests.invoke(ADA, "nobody", {"op": "x"}, refused, parent=parent) is None
        assert recorder.invoked("x")["data"]["parent_span_id"] == parent.span_id
        parent.cancel(GONE)
        await asker.response()
        assert child.settled
