"""memory: a context manager. It decides what a provider gets to see of a conversation.

The messages of a session are the session's own state, each under its number, so they outlive this
process and the daemon: `session.read` gives them back, a `state_patch` adds one. Those of a request
without a session are kept here, by the `conversation` that it names.

Compaction makes a view and changes nothing that is kept: the newest messages that fit, those of the
system always, and never a tool's answer without the call that asked for it, or the other way round.
"""

import itertools
import json
import sys
import traceback
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# `describe` repeats the descriptor, so the two cannot come to disagree; it adds the features.
DESCRIPTOR = json.loads(Path(__file__).with_name("module.json").read_text(encoding="utf-8"))
DESCRIBED = ("name", "version", "kind", "capabilities", "inputs", "outputs")

CONVERSATIONS = 1000  # without a session; the one unused for longest is forgotten
ALWAYS_SHOWN = ("system", "developer")


class HostError(Exception):
    """A host call that failed."""


class Host:
    """The other end of our stdin and stdout; one request at a time, so no two calls are open."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.early: deque[Json] = deque()  # what came while a call was waiting for its result

    def requests(self) -> Iterator[Json]:
        while True:
            line = self.early.popleft() if self.early else self.read()
            if line is None:
                return
            yield line

    def read(self) -> Json | None:
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError("not an object")
            except (ValueError, RecursionError) as fault:
                print(f"memory: ignored a malformed line: {fault}", file=sys.stderr)
                continue
            return message
        return None

    def say(self, request: Json, **line: Any) -> None:
        named = {"requestId": request["requestId"]} if "requestId" in request else {}
        print(json.dumps(named | line), flush=True)

    def call(self, request: Json, method: str, params: Json) -> Json:
        call_id = f"c{next(self.numbers)}"
        payload = {"call_id": call_id, "capability": method, "method": method, "params": params}
        self.say(request, version="0", type="host_call", payload=payload)
        while (message := self.read()) is not None:
            match message:
                case {"type": "host_result", "payload": {"call_id": answered} as result}:
                    if answered != call_id:
                        continue  # of a call that was given up
                    if result["is_error"]:
                        raise HostError(f"{method}: {result['error']['message']}")
                    output: Json = result["output"]
                    return output
                case _:
                    self.early.append(message)
        raise HostError("the host is gone")


def tokens(messages: list[Json]) -> int:
    return sum(len(json.dumps(one)) for one in messages) // 4


def groups(messages: list[Json]) -> list[list[Json]]:
    """Put each message that calls tools together with their answers; lone answers are left out."""
    found: list[list[Json]] = []
    asked: dict[str, list[Json]] = {}
    for message in messages:
        if message["role"] == "tool":
            group = asked.get(str(message.get("tool_call_id")))
            if group is not None:
                group.append(message)
            continue
        found.append([message])
        for call in message.get("tool_calls") or ():
            asked[str(call["id"])] = found[-1]
    return [group for group in found if answered(group)]


def answered(group: list[Json]) -> bool:
    wanted = {str(call["id"]) for call in group[0].get("tool_calls") or ()}
    return wanted == {str(one.get("tool_call_id")) for one in group[1:]}


def view(messages: list[Json], budget: int) -> list[Json]:
    """Return what fits of the messages: a new list, of the newest groups and the system's."""
    whole = groups(messages)
    shown = [group[0]["role"] in ALWAYS_SHOWN for group in whole]
    left = budget - sum(tokens(group) for group, kept in zip(whole, shown, strict=True) if kept)
    for place in reversed(range(len(whole))):
        if shown[place]:
            continue
        left -= tokens(whole[place])
        if left < 0:
            break
        shown[place] = True
    return [one for group, kept in zip(whole, shown, strict=True) if kept for one in group]


class Memory:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.conversations: OrderedDict[str, list[Json]] = OrderedDict()

    def messages(self, request: Json) -> list[Json]:
        given = request["input"]
        if "session_id" in given:
            state = self.host.call(request, "session.read", {})["state"]
            kept = (state.get("memory") or {}).get("messages") or {}
            return [kept[number] for number in sorted(kept)]
        name = str((given.get("args") or {}).get("conversation", ""))
        messages = self.conversations.setdefault(name, [])
        self.conversations.move_to_end(name)
        while len(self.conversations) > CONVERSATIONS:
            self.conversations.popitem(last=False)
        return messages

    def keep(self, request: Json, messages: list[Json], first: int) -> None:
        """Write down messages, numbered from `first`."""
        if "session_id" not in request["input"] or not messages:
            return
        numbered = {f"{number:06}": one for number, one in enumerate(messages, start=first)}
        patch = {"memory": {"messages": numbered}}
        self.host.say(request, version="0", type="state_patch", patch=patch)

    def forget(self, request: Json, messages: list[Json]) -> None:
        if "session_id" in request["input"]:
            patch = {"memory": {"messages": None}}
            self.host.say(request, version="0", type="state_patch", patch=patch)
        else:
            messages.clear()

    def emit(self, request: Json, name: str, **data: Any) -> None:
        try:
            self.host.call(request, "event.emit", {"event": name, "data": data})
        except HostError as error:  # a view that nobody hears of is still a view
            print(f"memory: {name} was not emitted: {error}", file=sys.stderr)

    def shown(self, request: Json, messages: list[Json], budget: int) -> Json:
        before, fitting = tokens(messages), view(messages, budget)
        left_out = len(messages) - len(fitting)
        if left_out:
            count = len(messages)
            self.emit(request, "context:pre_compact", message_count=count, token_count=before)
            saved = (before - tokens(fitting)) * 4
            self.emit(request, "context:post_compact", delta_bytes=-saved, left_out=left_out)
        return {"messages": fitting, "left_out": left_out}

    def invoke(self, request: Json) -> Json:
        given = request["input"]
        args = given.get("args") or {}
        messages = self.messages(request)
        match given.get("op"):
            case "add_message":
                self.keep(request, [args["message"]], len(messages) + 1)
                messages.append(args["message"])
                return {"count": len(messages)}
            case "get_messages":
                return {"messages": messages}
            case "get_messages_for_request":
                return self.shown(request, messages, args.get("token_budget", 4096))
            case "set_messages":
                self.forget(request, messages)
                self.keep(request, args["messages"], 1)
                messages[:] = args["messages"]
                return {"count": len(messages)}
            case "clear":
                count = len(messages)
                self.forget(request, messages)
                return {"count": count}
            case other:
                raise LookupError(f"memory has no op {other!r}")

    def answer(self, request: Json) -> None:
        match request:
            case {"operation": "health"}:
                self.host.say(request, status="ok")
            case {"operation": "describe"}:
                description = {key: DESCRIPTOR[key] for key in DESCRIBED}
                self.host.say(request, **description, features=["host_call"])
            case {"operation": "invoke", "input": {}}:
                self.host.say(request, version="0", type="done", **self.outcome(request))
            case _:
                what = f"memory has no operation {request.get('operation')!r}"
                self.host.say(request, ok=False, error={"code": "unsupported_op", "message": what})

    def outcome(self, request: Json) -> Json:
        try:
            return {"ok": True, "result": self.invoke(request)}
        except LookupError as fault:
            error = {"code": "unsupported_op", "message": str(fault.args[0])}
        except HostError as fault:
            error = {"code": "unreachable", "message": f"the session cannot be had: {fault}"}
        except Exception as bug:  # an answer is owed even then; the evidence goes to stderr
            traceback.print_exc()
            error = {"code": "internal", "message": repr(bug)}
        return {"ok": False, "summary": error["message"], "error": error}


def main() -> None:
    host = Host()
    memory = Memory(host)
    for request in host.requests():  # ends at EOF, which is how the host says goodbye
        memory.answer(request)


if __name__ == "__main__":
    main()
