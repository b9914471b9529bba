"""Call a tool as AMCP has it: by its name, with `arguments`, and no op if it has one only."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.amcp_errors import ErrorCode
from protocol.errors import Origin
from protocol.frames import encode
from supervisor.edge.http.answers import ask, one_of, refusal_of
from supervisor.edge.http.daemon import DAEMON
from supervisor.edge.http.exchange import Exchange
from supervisor.edge.http.messages import (
    JSON,
    Refusal,
)

ARGS: dict[str, Any] = {
    "arguments": {"type": "object", "default": {}},
    "op": {"type": "string", "description": "may be left out if the tool has one only"},
    "session_id": {"type": "string"},
    "timeout_s": {"type": "number", "exclusiveMinimum": 0},
}

SHOWN_OPS = 32
"""Names of a tool's ops in a refusal."""


async def execute_tool(exchange: Exchange, args: dict[str, Any]) -> None:
    """Answer with the result, or the error that the tool reports; raises as `ask`."""
    module = args.pop("module")
    known = await ask(exchange, DAEMON, "status", {"module": module})
    shown = one_of("tool")(known)
    if shown.status != 200:  # noqa: PLR2004 - it is one
        await exchange.respond(*shown)
        return
    if "op" not in args:
        args["op"] = _only_op(module, known.built["ops"])
    given = {"args": args.pop("arguments", {}), **args}
    done = await ask(exchange, module, "invoke", given)
    if done.ok:
        told = {"success": True, "result": msgspec.Raw(done.result), "error": None}
    elif done.failure.details.get("origin") == Origin.MODULE:
        told = {"success": False, "result": None, "error": done.failure.message}
    else:
        await exchange.respond(*refusal_of(done.failure))
        return
    await exchange.respond(200, [JSON], encode(told))


def _only_op(module: str, ops: dict[str, Any] | None) -> str:
    if ops is None or ops["count"] != 1:
        names = [] if ops is None else ops["names"][:SHOWN_OPS]
        words = f"; it has {', '.join(names)}" if names else ""
        words = f"say which op of {module} is to be called, as `op`{words}"
        raise Refusal(ErrorCode.VALIDATION_ERROR, words, field="op")
    op: str = ops["names"][0]
    return op
