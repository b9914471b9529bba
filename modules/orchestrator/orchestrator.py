"""orchestrator: a persistent module that gets its work done by others.

It has no hands of its own: provider, context and tools are other modules, and it reaches them by
writing `host_call` lines while it serves a request. Hooks stand between without its doing: the host
asks them before and after each call. A tool that is refused or fails is no failure of the loop; the
provider is told, and may find another way.
"""

import asyncio
import itertools
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# `describe` repeats the descriptor, so the two cannot come to disagree; it adds the features.
DESCRIPTOR = json.loads(Path(__file__).with_name("module.json").read_text(encoding="utf-8"))
DESCRIBED = ("name", "version", "kind", "capabilities", "inputs", "outputs")

LONGEST_LINE = 64 << 20


class HostError(Exception):
    """What a host call failed with: one of the five codes, and the host's own in the details."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code = (error.get("details") or {}).get("code") or error["code"]


class Host:
    """The other end of our stdin and stdout."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.waiting: dict[str, asyncio.Queue[Json]] = {}

    def say(self, request_id: object, **line: Any) -> None:
        print(json.dumps({"requestId": request_id, **line}), flush=True)

    def event(self, request_id: object, kind: str, **fields: Any) -> None:
        self.say(request_id, version="0", type=kind, **fields)

    async def call(
        self,
        request_id: object,
        method: str,
        params: Json,
        each: Callable[[Json], None] = lambda _: None,
    ) -> Json:
        """Call the host; `each` is given the events of a call that streams them."""
        call_id = f"c{next(self.numbers)}"
        results = self.waiting[call_id] = asyncio.Queue()
        payload = {"call_id": call_id, "capability": method, "method": method, "params": params}
        self.event(request_id, "host_call", payload=payload)
        try:
            while True:
                result = await results.get()
                if result["is_error"]:
                    raise HostError(result["error"])
                output: Json = result["output"]
                if result.get("chunk", {"is_last": True})["is_last"]:
                    return output
                each(output)
        finally:
            del self.waiting[call_id]

    def receive_result(self, payload: Json) -> None:
        # Of a call that was given up, nobody waits for the result any more.
        if results := self.waiting.get(payload["call_id"]):
            results.put_nowait(payload)


class Loop:
    """One `execute`."""

    def __init__(self, host: Host, request: Json) -> None:
        given = request["input"]
        self.host = host
        self.id = request.get("requestId")
        self.session: Json = {"session_id": given["session_id"]} if "session_id" in given else {}
        self.args = given.get("args") or {}
        # Without a session, the context tells conversations apart by this.
        self.conversation: Json = {} if self.session else {"conversation": str(self.id)}
        self.used: list[Json] = []

    async def run(self) -> Json:
        await self.remember({"role": "user", "content": self.args["prompt"]})
        most = self.args.get("max_turns", 8)
        for turn in range(1, most + 1):
            reply = await self.ask_provider()
            calls = reply.get("tool_calls") or []
            message = {"role": "assistant", "content": reply.get("content") or ""}
            await self.remember(message | ({"tool_calls": calls} if calls else {}))
            if not calls:
                done = {"content": message["content"], "turns": turn, "tools": self.used}
                self.host.event(self.id, "state_patch", patch={"orchestrator": done})
                return done
            for call in calls:
                await self.use(call)
        raise HostError({"code": "max_turns", "message": f"no last word after {most} turns"})

    async def ask_provider(self) -> Json:
        budget = {"token_budget": self.args.get("token_budget", 4096)}
        kept = await self.context("get_messages_for_request", budget)
        name = self.args.get("provider", "oracle")
        asked = {"messages": kept["messages"], "tools": self.args.get("tools", [])}
        await self.emit("provider:request", provider=name, messages=len(kept["messages"]))
        reply = await self.invoke(name, "complete", asked, self.pass_on)
        result: Json = reply["result"]
        await self.emit("provider:response", provider=name, usage=result.get("usage"))
        return result

    async def use(self, call: Json) -> None:
        """Call a tool; whatever comes of it is the provider's to read, and the host tells of it."""
        function = call["function"]
        name = function["name"]
        module, _, op = name.rpartition(".")
        injected: list[Json] = []
        try:
            if module not in self.args.get("tools", [module]):
                raise HostError({"code": "forbidden", "message": f"{module} was not offered"})
            reply = await self.invoke(module, op, json.loads(function["arguments"] or "{}"))
            content, outcome = json.dumps(reply["result"]), {"name": name, "ok": True}
            injected = reply.get("injected") or []
        except HostError as error:
            content = f"error {error.code}: {error}"
            outcome = {"name": name, "ok": False, "code": error.code}
        except ValueError as fault:  # of the provider, and it is told so
            content = f"error bad_request: the arguments are no JSON: {fault}"
            outcome = {"name": name, "ok": False, "code": "bad_request"}
        self.used.append(outcome)
        await self.remember({"role": "tool", "tool_call_id": call["id"], "content": content})
        for one in injected:
            await self.remember({"role": one["role"], "content": one["content"]})

    def pass_on(self, event: Json) -> None:
        if event.get("type") == "ui_event":
            payload = event.get("payload") or {}
            self.host.event(self.id, "ui_event", event=event["event"], payload=payload)

    async def remember(self, message: Json) -> None:
        await self.context("add_message", {"message": message})

    async def context(self, op: str, args: Json) -> Json:
        name = self.args.get("context", "memory")
        reply = await self.invoke(name, op, args | self.conversation)
        result: Json = reply["result"]
        return result

    async def invoke(
        self, module: str, op: str, args: Json, each: Callable[[Json], None] | None = None
    ) -> Json:
        params = {"module": module, "op": op, "args": args, **self.session}
        if each is None:
            return await self.host.call(self.id, "module.invoke", params)
        return await self.host.call(self.id, "module.invoke", params | {"stream": True}, each)

    async def emit(self, name: str, **data: Any) -> None:
        try:
            await self.host.call(self.id, "event.emit", {"event": name, "data": data})
        except HostError as error:  # a loop nobody watches is still a loop
            print(f"orchestrator: {name} was not emitted: {error}", file=sys.stderr)


class Orchestrator:
    def __init__(self) -> None:
        self.host = Host()
        self.loops: dict[object, asyncio.Task[None]] = {}

    async def serve(self, request: Json) -> None:
        request_id = request.get("requestId")
        try:
            result = await Loop(self.host, request).run()
        except HostError as failure:
            error = {"code": failure.code, "message": str(failure)}
        except Exception as bug:  # an answer is owed even then; the evidence goes to stderr
            traceback.print_exc()
            error = {"code": "internal", "message": repr(bug)}
        else:
            self.host.event(request_id, "done", ok=True, result=result)
            return
        self.host.event(request_id, "done", ok=False, summary=error["message"], error=error)

    def ended(self, request_id: object, loop: asyncio.Task[None]) -> None:
        self.loops.pop(request_id, None)
        if loop.cancelled():  # perhaps before it began, so it cannot say that itself
            error = {"code": "cancelled", "message": "the loop was interrupted"}
            self.host.event(request_id, "done", ok=False, error=error)

    def receive(self, request: Json) -> None:
        request_id = request.get("requestId")
        match request:
            case {"type": "host_result", "payload": payload}:
                self.host.receive_result(payload)
            case {"operation": "health"}:
                self.host.say(request_id, status="ok")
            case {"operation": "describe"}:
                description = {key: DESCRIPTOR[key] for key in DESCRIBED}
                self.host.say(request_id, **description, features=["cancel", "host_call"])
            case {"operation": "cancel"}:
                if loop := self.loops.get(request_id):
                    loop.cancel()
            case {"operation": "invoke", "input": {"op": "execute"}}:
                self.loops[request_id] = task = asyncio.create_task(self.serve(request))
                task.add_done_callback(lambda ended: self.ended(request_id, ended))
            case _:
                what = f"orchestrator has no {(request.get('input') or {}).get('op', 'such')!r} op"
                error = {"code": "unsupported_op", "message": what}
                self.host.say(request_id, ok=False, error=error)


async def main() -> None:
    orchestrator = Orchestrator()
    lines = asyncio.StreamReader(limit=LONGEST_LINE)
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin.buffer)
    async for line in lines:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as fault:
            print(f"orchestrator: ignored a malformed line: {fault}", file=sys.stderr)
            continue
        orchestrator.receive(request)
    # Nobody is left to answer our calls.
    for loop in tuple(orchestrator.loops.values()):
        loop.cancel()
    await asyncio.gather(*orchestrator.loops.values(), return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
