"""oracle: a provider for those who have no model at hand: offline, free, and always the same.

What a model would think of, the prompt says itself. Each line of the user's message is

    use MODULE.OP {"its":"args"}    to want a tool called
    hang                            to stop in mid-sentence until cancelled, as a lost network does
    anything else                   to be said, word by word

and once the tools have answered, it tells what they said.
"""

import asyncio
import json
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# `describe` repeats the descriptor, so the two cannot come to disagree; it adds the features.
DESCRIPTOR = json.loads(Path(__file__).with_name("module.json").read_text(encoding="utf-8"))
DESCRIBED = ("name", "version", "kind", "capabilities", "inputs", "outputs")

USE = re.compile(r"use\s+(\S+\.\S+)\s*(.*)")
LONGEST_LINE = 64 << 20


def say(request_id: object, **line: Any) -> None:
    print(json.dumps({"requestId": request_id, **line}), flush=True)


def answers(messages: list[Json]) -> list[Json]:
    """Return the tools' answers that nobody has commented on yet."""
    found: list[Json] = []
    for message in reversed(messages):
        if message["role"] == "tool":
            found.append(message)
        elif message["role"] in ("assistant", "user"):
            break
    return found[::-1]


def called(messages: list[Json], call_id: str) -> str:
    for message in messages:
        for call in message.get("tool_calls") or ():
            if call["id"] == call_id:
                return str(call["function"]["name"])
    return call_id


def script(messages: list[Json]) -> Iterator[str]:
    """Give what is to be said or done, line by line."""
    if told := answers(messages):
        for one in told:
            yield f"{called(messages, one['tool_call_id'])} answered {one.get('content', '')}"
        return
    prompts = [one.get("content") or "" for one in messages if one["role"] == "user"]
    yield from (prompts[-1] if prompts else "").splitlines()


async def complete(request_id: object, args: Json, is_read: asyncio.Event) -> Json:
    messages = args["messages"]
    delay_s = args.get("delay_ms", 0) / 1000
    content = ""
    calls: list[Json] = []
    for line in script(messages):
        if line.strip() == "hang":
            await asyncio.Event().wait()
        if wanted := USE.fullmatch(line.strip()):
            function = {"name": wanted[1], "arguments": wanted[2] or "{}"}
            call_id = f"call-{len(messages)}-{len(calls) + 1}"
            calls.append({"id": call_id, "type": "function", "function": function})
            continue
        for word in line.split():
            await asyncio.sleep(delay_s)  # between two words, all the others have their turn
            await is_read.wait()
            chunk = f" {word}" if content else word
            content += chunk
            payload = {"content": chunk}
            say(request_id, version="0", type="ui_event", event="message.chunk", payload=payload)
    read = sum(len(str(one.get("content") or "").split()) for one in messages)
    usage = {"input_tokens": read, "output_tokens": len(content.split())}
    return {"content": content, "tool_calls": calls, "usage": usage}


class Oracle:
    def __init__(self) -> None:
        self.open: dict[object, asyncio.Task[None]] = {}
        self.is_read: dict[object, asyncio.Event] = {}  # not set while it is to pause

    async def serve(self, request: Json) -> None:
        request_id = request.get("requestId")
        try:
            args = request["input"].get("args") or {}
            result = await complete(request_id, args, self.is_read[request_id])
        except (KeyError, TypeError, AttributeError) as fault:
            error = {"code": "bad_request", "message": f"these are no messages: {fault!r}"}
        except Exception as bug:  # an answer is owed even then; the evidence goes to stderr
            traceback.print_exc()
            error = {"code": "internal", "message": repr(bug)}
        else:
            say(request_id, version="0", type="done", ok=True, result=result)
            return
        say(request_id, version="0", type="done", ok=False, summary=error["message"], error=error)

    def ended(self, request_id: object, task: asyncio.Task[None]) -> None:
        self.open.pop(request_id, None)
        self.is_read.pop(request_id, None)
        if task.cancelled():  # perhaps before it began, so it cannot say that itself
            error = {"code": "cancelled", "message": "stopped in the middle"}
            say(request_id, version="0", type="done", ok=False, error=error)

    def receive(self, request: Json) -> None:
        request_id = request.get("requestId")
        match request:
            case {"operation": "health"}:
                say(request_id, status="ok")
            case {"operation": "describe"}:
                description = {key: DESCRIPTOR[key] for key in DESCRIBED}
                say(request_id, **description, features=["cancel", "flow"])
            case {"operation": "cancel"}:
                if task := self.open.get(request_id):
                    task.cancel()
            case {"operation": "pause"} if request_id in self.open:
                self.is_read[request_id].clear()
            case {"operation": "resume"} if request_id in self.open:
                self.is_read[request_id].set()
            case {"operation": "pause" | "resume"}:
                pass  # it has crossed the answer on its way
            case {"operation": "invoke", "input": {"op": "complete"}}:
                self.is_read[request_id] = is_read = asyncio.Event()
                is_read.set()
                self.open[request_id] = task = asyncio.create_task(self.serve(request))
                task.add_done_callback(lambda ended: self.ended(request_id, ended))
            case _:
                what = f"oracle has no {(request.get('input') or {}).get('op', 'such')!r} op"
                say(request_id, ok=False, error={"code": "unsupported_op", "message": what})


async def main() -> None:
    oracle = Oracle()
    lines = asyncio.StreamReader(limit=LONGEST_LINE)
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin.buffer)
    async for line in lines:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as fault:
            print(f"oracle: ignored a malformed line: {fault}", file=sys.stderr)
            continue
        oracle.receive(request)
    await asyncio.gather(*oracle.open.values())  # the answers that are still owed


if __name__ == "__main__":
    asyncio.run(main())
