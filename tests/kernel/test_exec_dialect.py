"""Commands as modules, with real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from protocol.events import Log, Progress
from protocol.host_events import RegisteredAsset
from tests import factories
from tests.kernel.conftest import ask, daemon_with, own
from tests.principals import ADA

OPS: dict[str, Any] = {
    "args": {"args": ["printf", "%s|", "{one}", "{more?}"]},
    "find": {"args": ["grep", "-n", "--", "{what}"], "stdin": "{text}", "stdout": "lines",
             "ok_codes": [1], "options": True},
    "raw": {"args": ["printf", "\\377\\000"], "stdout": "bytes", "media_type": "image/png"},
    "value": {"args": ["echo", "{{"], "stdout": "json"},
    "fail": {"args": ["sh", "-c", "echo why >&2; echo {{; exit 3"], "stdout": "json"},
    "flood": {"args": ["yes"]},
    "deaf": {"args": ["true"], "stdin": "{text}"},
}  # fmt: skip

INPUTS: dict[str, Any] = {
    "args": {"properties": {"one": {}, "more": {}}},
    "find": {"properties": {"what": {}, "text": {}}},
    "deaf": {"properties": {"text": {}}},
}


def command(folder: Path) -> Descriptor:
    """Make a module whose ops run other programs, without a shell between."""
    return factories.descriptor(
        folder,
        ["env", "--"],
        transport={"protocol": "exec", "exec": {"ops": OPS}},
        inputs=INPUTS,
        supervision={"concurrency": 4, "limits": {"line_bytes": 1 << 16}},
    )


async def test_commands_are_ops_whose_ends_say_what_they_were(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, command(tmp_path)) as daemon:

        async def asked(op: str, **args: Any) -> tuple[list[Progress], Any]:
            asker = ask(daemon, "m", op, args=args)
            return asker.events, await asker.document()

        async def result(op: str, **args: Any) -> Any:
            _, document = await asked(op, **args)
            assert document["ok"], document
            return document["result"]

        async def failure(op: str, **args: Any) -> tuple[str, dict[str, Any]]:
            _, document = await asked(op, **args)
            assert not document["ok"]
            return document["error"]["code"], document["error"]["details"]

        hostile = '\'; touch x; "$(id)" `id` \\ {more} \n\t*?~#&|<>!'
        filled = json.dumps({"k": hostile}, separators=(",", ":"))
        found = await result("args", one=hostile, more=[1, {"k": hostile}])
        assert found == f"{hostile}|1|{filled}|"
        assert not (tmp_path / "x").exists()

        events, document = await asked("find", what="-b", text="a-b\nc\n" + "-b\n" * 3)
        assert document["result"] == ["1:a-b", "3:-b", "4:-b", "5:-b"]
        assert [type(one) for one in events] == [Log] * 4
        # With exit code 1, which is as good here.
        assert await result("find", what="nowhere", text="a") == []
        code, details = await failure("find", what="[", text="a")
        assert (code, details["exit_code"]) == ("internal", 2)

        events, document = await asked("raw")
        assert document["result"] == {"assetId": "stdout", "bytes": 2}
        (piece,) = events
        assert isinstance(piece, RegisteredAsset)
        assert (piece.media_type, piece.registered.bytes) == ("image/png", 2)
        assert await trio.Path(piece.path).read_bytes() == b"\xff\0"

        _, details = await failure("value")
        assert details["reason"] == "unreadable_output"
        # The exit code has the last word, and nobody reported anything.
        _, details = await failure("fail")
        assert (details["reason"], details["stderr_tail"]) == ("exited", ["why"])
        assert details["ran"] == "env -- sh -c 'echo why >&2; echo {; exit 3'"
        assert "reported" not in details

        _, details = await failure("flood")
        assert details["reason"] == "line_too_long"
        # A command need not read what it is given.
        assert await result("deaf", text="x" * 1_000_000) == ""
        # It takes no process to say so.
        code, details = await failure("args", one="x" * 1_000_000)
        assert (code, details["origin"], "pid" in details) == ("bad_request", "host", False)
        assert (await own(daemon, ADA, "status", module="m"))["state"] == "ready"


@pytest.mark.parametrize("chars", [0, 600])
async def test_a_command_that_failed_is_shown_without_passwords_and_cut(
    chars: int, tmp_path: Path
) -> None:
    secret = "https://bob:secret@example.org/" + "x" * chars
    made = factories.descriptor(
        tmp_path,
        ["sh", "-c", "exit 3", "--"],
        transport={"protocol": "exec", "exec": {"ops": {"go": {"args": ["{one}"]}}}},
        inputs={"go": {"properties": {"one": {}}}},
    )
    async with daemon_with(tmp_path, made) as daemon:
        document = await ask(daemon, "m", "go", args={"one": secret}).document()
    whole = f"sh -c 'exit 3' -- https://***@example.org/{'x' * chars}"
    assert document["error"]["details"]["ran"] == whole[:500]
