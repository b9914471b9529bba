"""What of an op's result a route shows, and the names that AMCP has for it."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.errors import Failure, Reason
from protocol.frames import encode
from protocol.response import Response
from supervisor.faces.http.exchange import Tagged, Told, tell_failure, tell_result


def modules(result: Any) -> Any:
    status = _status(result)
    return {"modules": status.modules, "quarantined": status.quarantined}


def of_kind(kind: str, result: Any) -> Any:
    """Return the modules of a kind, under its plural."""
    every = _status(result).modules
    return {f"{kind}s": [one for one in every if _KIND.decode(one).kind == kind]}


class _Status(msgspec.Struct):
    modules: list[msgspec.Raw]
    quarantined: msgspec.Raw


class _Module(msgspec.Struct):
    kind: str


_STATUS = msgspec.json.Decoder(_Status)
_KIND = msgspec.json.Decoder(_Module)


def _status(result: Any) -> _Status:
    # Of thousands of modules it is encoded already, and to build it would take one long step.
    return _STATUS.decode(result if isinstance(result, msgspec.Raw) else encode(result))


def agent_role(args: dict[str, Any]) -> dict[str, Any]:
    """Take `agent_name` for the session's agent."""
    name, roles = args.pop("agent_name", None), args.get("roles", {})
    if name is not None and isinstance(roles, dict):
        args["roles"] = {"agent": name, **roles}
    return args


def session(result: Any) -> Any:
    """Return a session with AMCP's names."""
    return {"id": result["session_id"], "agent_name": result["roles"].get("agent"), **result}


def sessions(result: Any) -> Any:
    """Return a page of sessions with AMCP's names."""
    return {**result, "sessions": [session(one) for one in result["sessions"]]}


def info(result: Any) -> Any:
    """Return the daemon's description of itself."""
    known = {name: result[name] for name in ("name", "version", "features")}
    return {**known, "api_version": "v1", "ops": list(result["inputs"])}


def state(result: Any) -> Any:
    """Return a session's state, with its revision as the tag."""
    return Tagged(result["state"], f'"{result["revision"]}"')


def history(result: Any) -> Any:
    return {name: result[name] for name in ("session_id", "invocations", "history")}


def _patched(result: Any) -> Any:
    return Tagged(result, f'"{result["revision"]}"')


def tell_patched(response: Response) -> Told:
    """Return the result of a patch; a revision conflict is a failed precondition."""
    outcome = response.outcome
    if isinstance(outcome, Failure) and outcome.details.get("reason") == Reason.REVISION_CONFLICT:
        return tell_failure(outcome, status=412)
    return tell_result(response, _patched)
