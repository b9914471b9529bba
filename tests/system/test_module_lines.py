"""What a module prints, as a client of the socket gets it."""

from __future__ import annotations

import json
import sys

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import descriptor

SAYS = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    operation = request["operation"]
    if operation == "health":
        print(json.dumps({"requestId": request["requestId"], "status": "ok"}), flush=True)
        continue
    if operation == "describe":
        facts = dict.fromkeys(["inputs", "outputs"], {}) | {"capabilities": []}
        facts |= {"name": request["tool"], "version": "1", "kind": "tool"}
        print(json.dumps({"requestId": request["requestId"], **facts}), flush=True)
        continue
    named = {} if "no-ids" in sys.argv else {"requestId": request["requestId"]}
    for event in [
        {"type": "log", "level": "info", "message": "gr\\u00fc\\u00df", "seq": 1, "at": [1.0]},
        {"type": "ui_event", "event": "message.chunk", "payload": {"content": "x" * 100_000}},
        {"type": "error", "errorCode": "e", "errorMessage": "m", "details": {"requestId": "r0"}},
        {"type": "done", "ok": True},
    ]:
        print(json.dumps({"version": "0", **named, **event}), flush=True)
"""


@pytest.mark.parametrize("words", [[], ["no-ids"]])
@pytest.mark.parametrize("protocol", ["module", "narratoria"])
def test_a_modules_own_lines_reach_the_client_with_the_clients_id(
    start_daemon: StartDaemon, protocol: str, words: list[str]
) -> None:
    daemon = start_daemon(
        descriptor("says", [sys.executable, "-I", "-S", "-c", SAYS, *words], protocol=protocol)
    )
    with daemon.connect() as client:
        of = client.send_invoke("says")
        log, chunk, error, done = (client.raw_line() for _ in range(4))
    assert json.loads(done)["ok"] is True
    spaced = f'"requestId": "{of}", ' if not words else ""
    put_first = f'"requestId":"{of}",' if words else ""
    begin = f'{{{put_first}"version": "0", {spaced}"type": '
    rest = r'"level": "info", "message": "gr\u00fc\u00df", "seq": 1, "at": [1.0]}'
    assert json.loads(log) == json.loads(f'{begin}"log", {rest}')
    payload = json.dumps({"content": "x" * 100_000})
    assert (
        chunk == f'{begin}"ui_event", "event": "message.chunk", "payload": {payload}}}\n'.encode()
    )
    assert json.loads(error)["details"] == {"requestId": "r0"}
    assert json.loads(error)["requestId"] == of
