"""Both streams may be cut anywhere, and the daemon may go at any byte."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol.framing import UNCOUNTED, LineSplitter
from protocol.mcp_server.daemon_link import DAEMON_WAIT_S
from protocol.mcp_server.server import McpServer
from tests.faces.mcp.clients import modern
from tests.protocol.mcp_server.back_to_back import ScriptedDaemon, offer, request, tool

CUTS = st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=40)
"""Whether the client's or the daemon's bytes go on, and how many of them."""

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}}
CALL: dict[str, Any] = {"name": "dice__roll", "_meta": {"progressToken": "ä"}}
MESSAGES = [
    request(0, "initialize", HELLO),
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    request(1, "tools/list"),
    request(2, "tools/call", CALL),
    request("two", "tools/call", {**CALL, "_meta": {**CALL["_meta"], **modern()}}),
    request(3, "resources/list"),
    request(4, "tools/call", {"name": "dice__none"}),
    request(5, "ping"),
    request("last", "prompts/get", {"name": "none"}),
]
DATA = b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in MESSAGES)


class Rolling(ScriptedDaemon):
    """A daemon that asks, tells of progress, and answers each call."""

    def __init__(self) -> None:
        super().__init__(offer("dice", tool("roll", description="würfelt")))

    def serve(self, frame: dict[str, Any]) -> None:
        super().serve(frame)
        if frame["operation"] == "invoke":
            if "asks" in frame:
                asked = {"call_id": "q", "method": "roots.list", "params": {}, "key": "k"}
                self.tell(frame, type="host_call", payload=asked)
            for done in (1, 2):
                payload: dict[str, Any] = {"done": done, "message": "läuft"}
                self.tell(frame, type="ui_event", event="progress", payload=payload)
            self.done(frame, {"text": "vier"})


class Ends:
    """A server whose both ends are fed in pieces."""

    def __init__(self) -> None:
        self.server = McpServer(key=b"k" * 32)
        self.daemon = Rolling()
        self.now = 0.0
        self.heard: list[dict[str, Any]] = []
        self._from_client, self._from_daemon = DATA, b""
        self._splitter = LineSplitter(1 << 20, UNCOUNTED)
        self.server.connect(self.daemon.client)

    def go_on(self, of_client: bool, size: int) -> None:
        """Let some bytes of one side arrive."""
        if of_client:
            piece, self._from_client = self._from_client[:size], self._from_client[size:]
            for line in self._splitter.feed(piece):
                assert isinstance(line, bytes)
                self.server.receive_message(line)
        else:
            self.daemon.read()
            self._from_daemon += self.daemon.say()
            piece, self._from_daemon = self._from_daemon[:size], self._from_daemon[size:]
            for event in self.daemon.client.receive_data(piece):
                self.server.receive_event(event)
        self._look()

    def lose(self) -> None:
        """End the connection, and connect to another daemon."""
        for event in self.daemon.client.receive_eof():
            self.server.receive_event(event)
        self._from_daemon = b""
        self.daemon = Rolling()
        self.server.connect(self.daemon.client)
        self._look()

    def finish(self) -> None:
        """Let all that is left arrive."""
        while self._from_client:
            self.go_on(True, 1 << 20)
        for _ in range(20):
            self.go_on(False, 1 << 20)

    def _look(self) -> None:
        self.server.time_passed(self.now)
        self.heard += [json.loads(one.data) for one in self.server.messages_to_send()]

    @property
    def by_request(self) -> dict[str, list[Any]]:
        """Return what came for each request, in order; questions by their methods."""
        found: dict[str, list[Any]] = {}
        for one in self.heard:
            token = one.get("params", {}).get("progressToken")
            key = one["id"] if "id" in one and "method" not in one else token or one["method"]
            told = {name: value for name, value in one.items() if name != "id" or key == one["id"]}
            if one.get("method") != "notifications/cancelled":
                found.setdefault(str(key), []).append(told)
        return found


def uncut() -> dict[str, list[Any]]:
    ends = Ends()
    ends.finish()
    return ends.by_request


EXPECTED = uncut()


def test_each_request_is_answered_and_what_comes_before_it() -> None:
    assert {str(one["id"]) for one in MESSAGES if "id" in one} < EXPECTED.keys()
    assert len(EXPECTED["ä"]) == 4
    assert len(EXPECTED["roots/list"]) == 1


@given(cuts=CUTS)
def test_the_same_is_said_wherever_the_streams_are_cut(cuts: list[tuple[bool, int]]) -> None:
    ends = Ends()
    for of_client, size in cuts:
        ends.go_on(of_client, size)
    ends.finish()
    assert ends.by_request == EXPECTED


@given(before=CUTS, after=CUTS)
def test_each_request_has_one_answer_wherever_the_daemon_goes(
    before: list[tuple[bool, int]], after: list[tuple[bool, int]]
) -> None:
    ends = Ends()
    for of_client, size in before:
        ends.go_on(of_client, size)
    ends.lose()
    for of_client, size in after:
        ends.go_on(of_client, size)
    ends.finish()
    ends.now += DAEMON_WAIT_S
    ends.finish()
    answers = [one["id"] for one in ends.heard if "id" in one and "method" not in one]
    assert sorted(map(str, answers)) == sorted(str(one["id"]) for one in MESSAGES if "id" in one)
    for one in ends.heard:
        if one.get("id") in (2, "two") and "result" in one and one["result"].get("isError"):
            assert "find out before you ask for it again" in one["result"]["content"][0]["text"]
        elif "id" in one and "method" not in one:
            assert [one] == EXPECTED[str(one["id"])]
    assert not [one for one in ends.heard if one.get("method", "").endswith("list_changed")]
