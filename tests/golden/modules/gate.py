"""A hook: `n` of what it gates says what it answers; what it observes it logs."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def decide(name: str, event: str, data: dict[str, Any]) -> dict[str, Any] | None:
    shown = data.get("tool_input") or {}
    match name, event, shown.get("n"):
        case "second", _, 12:
            os._exit(4)
        case "second", _, _:
            return None
        case _, "tool:error", _:
            if data["error"]["code"] == "change":
                return {"action": "modify", "data": {"code": "changed", "message": "other words"}}
            return {"action": "continue"}
        case _, "tool:post", 4:
            return {"action": "modify", "data": {"other": "result"}}
        case _, "tool:pre", 2:
            return {"action": "deny", "reason": "two is too many"}
        case _, "tool:pre", 3:
            return {"action": "modify", "data": {"n": 33}}
        case _, "tool:pre", 5:
            return {"action": "modify", "data": {"n": "five"}}
        case _, "tool:pre", 6:
            injection = {"context_injection": "Six is even.", "context_injection_role": "system"}
            return {"action": "inject_context", **injection, "append_to_last_tool_result": True}
        case _, "tool:pre", 7:
            said = {"user_message": "Seven it is", "user_message_level": "warning"}
            return {"action": "continue", **said}
        case _, "tool:pre", 8:
            return {"action": "dance"}
        case _, "tool:pre", 9:
            os._exit(3)
        case _, "tool:pre", 10:
            sys.stdin.readline()
        case _, "tool:pre", 11:
            options = {"approval_options": ["allow", "deny"]}
            return {"action": "ask_user", "approval_prompt": "Eleven?", **options}
    return None


while line := sys.stdin.readline():
    request = json.loads(line)
    answer: dict[str, Any] = {"requestId": request["requestId"]}
    match request.get("operation"):
        case "health":
            answer["status"] = "ok"
        case "describe":
            answer |= {"name": request["tool"], "version": "1", "kind": "hook", "capabilities": []}
            answer |= {"inputs": {}, "outputs": {}}
        case "invoke":
            told = request["input"]["args"]
            print("saw", told["event"], file=sys.stderr, flush=True)
            decided = decide(request["tool"], told["event"], told["data"])
            answer |= {"ok": True, "result": decided}
    print(json.dumps(answer), flush=True)
