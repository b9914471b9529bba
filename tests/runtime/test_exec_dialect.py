"""Commands as modules, with real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from protocol.descriptor.model import Descriptor
from protocol.events import AssetBytes, Log
from supervisor.policy.lifecycle import State
from tests import factories
from tests.factories import call
from tests.runtime.conftest import Running

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


async def test_commands_are_ops_whose_ends_say_what_they_were(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(command(tmp_path))

    async def asked(op: str, **args: Any) -> factories.Heard:
        one, heard = call(op, **args)
        module.submit(one)
        await heard.outcome()
        return heard

    hostile = '\'; touch x; "$(id)" `id` \\ {more} \n\t*?~#&|<>!'
    heard = await asked("args", one=hostile, more=[1, {"k": hostile}])
    filled = json.dumps({"k": hostile}, separators=(",", ":"))
    assert (await heard.success()).result == f"{hostile}|1|{filled}|"
    assert not (tmp_path / "x").exists()

    heard = await asked("find", what="-b", text="a-b\nc\n" + "-b\n" * 3)
    assert (await heard.success()).result == ["1:a-b", "3:-b", "4:-b", "5:-b"]
    assert [type(one) for one in heard.events] == [Log] * 4
    heard = await asked("find", what="nowhere", text="a")
    assert (await heard.success()).result == []  # with exit code 1, which is as good here
    failure = await (await asked("find", what="[", text="a")).failure()
    assert (failure.code, failure.details["exit_code"]) == ("internal", 2)

    heard = await asked("raw")
    assert (await heard.success()).result == {"assetId": "stdout", "bytes": 2}
    pieces = [one for one in heard.events if isinstance(one, AssetBytes)]
    assert b"".join(bytes(one.data) for one in pieces) == b"\xff\0"  # type: ignore[arg-type]
    assert (pieces[-1].last, pieces[0].media_type) == (True, "image/png")

    failure = await (await asked("value")).failure()
    assert failure.details["reason"] == "unreadable_output"
    # The exit code has the last word, and nobody reported anything.
    failure = await (await asked("fail")).failure()
    assert (failure.details["reason"], failure.details["stderr_tail"]) == ("exited", ["why"])
    assert failure.details["ran"] == "env -- sh -c 'echo why >&2; echo {; exit 3'"
    assert "reported" not in failure.details

    failure = await (await asked("flood")).failure()
    assert failure.details["reason"] == "line_too_long"
    # A command need not read what it is given.
    assert (await (await asked("deaf", text="x" * 1_000_000)).success()).result == ""
    failure = await (await asked("args", one="x" * 1_000_000)).failure()
    assert failure.code == "bad_request"
    assert module.state is State.READY
    await running.down()
