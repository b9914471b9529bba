"""A server of MCP in one of the ways that there are: `python mcp_server.py KIND [TOOL]`.

`modern`, `legacy`, or legacy that `ends` at server/discover or is `silent` about it. With a tool
`mute` it tells of its tools once.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from typing import Any

META = "io.modelcontextprotocol/"
FORM = {
    "message": "Who?",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 1}},
        "required": ["name"],
    },
}
SAMPLE = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Who?"}}],
    "maxTokens": 9,
}
N = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    message: dict[str, Any] = json.loads(line)
    return message


class Server:
    def __init__(self, kind: str, *more: str) -> None:
        self.kind = kind
        self.tools = ["draw", "ask", "sample", "trace", "album", "grow", "die", *more]
        self.listening: str | None = None
        self.listed = False

    @property
    def modern(self) -> bool:
        return self.kind == "modern"

    def run(self) -> None:
        while True:
            message = read()
            if "id" in message:
                self.serve(message["id"], message["method"], message.get("params") or {})

    def serve(self, named: str, method: str, params: dict[str, Any]) -> None:
        offers = {"tools": {"listChanged": True}}
        if method == "server/discover" and self.kind == "ends":
            sys.exit(1)
        if method == "server/discover" and self.kind == "silent":
            return
        if method == "server/discover" and self.modern:
            self.end(named, supportedVersions=["2026-07-28"], capabilities=offers)
        elif method == "initialize" and not self.modern:
            server = {"name": "made-up", "version": "1"}
            version = {"protocolVersion": "2025-06-18"}
            self.end(named, **version, capabilities=offers, serverInfo=server)
        elif method == "tools/list" and self.listed and "mute" in self.tools:
            sys.stderr.write("asked again\n")
            sys.stderr.flush()
        elif method == "tools/list":
            self.listed = True
            tools = [{"name": one, "inputSchema": N} for one in self.tools[:1]]
            schema = {"type": "object"}
            tools += [{"name": one, "inputSchema": schema} for one in self.tools[1:]]
            self.end(named, tools=tools)
        elif method == "subscriptions/listen":
            self.listening = named
        elif method == "tools/call":
            self.call(named, params)
        else:
            say(id=named, error={"code": -32601, "message": "no such method"})

    def call(self, named: str, params: dict[str, Any]) -> None:
        if params["name"] == "die":
            sys.stderr.write("I die\n")
            os.kill(os.getpid(), signal.SIGKILL)
        if params["name"] == "wait":
            self.wait(named, params["_meta"]["progressToken"])
            return
        if params["name"] == "album":
            data = base64.b64encode(b"png").decode()
            images = [{"type": "image", "data": one} for one in ["%%%%", *[data] * 30]]
            self.end(named, content=images)
            return
        if params["name"] == "trace":
            self.tell(named, params["_meta"]["traceparent"])
            return
        if params["name"] in ("ask", "sample"):
            self.ask(named, params)
            return
        if params["name"] == "grow":
            self.tools.append("grown")
            meta = {"_meta": {f"{META}subscriptionId": self.listening}} if self.modern else {}
            say(method="notifications/tools/list_changed", params=meta)
        token = params["_meta"]["progressToken"]
        say(method="notifications/progress", params={"progressToken": token, "progress": 1})
        data = base64.b64encode(b"png").decode()
        self.end(named, content=[{"type": "image", "data": data, "mimeType": "image/png"}])

    def wait(self, named: str, token: Any) -> None:
        """Tell of progress at each SIGUSR1, and answer at a SIGUSR2."""
        told = 0
        while signal.sigwait({signal.SIGUSR1, signal.SIGUSR2}) == signal.SIGUSR1:
            told += 1
            say(method="notifications/progress", params={"progressToken": token, "progress": told})
        self.tell(named, told)

    def ask(self, named: str, params: dict[str, Any]) -> None:
        person: dict[str, Any] = {"method": "elicitation/create", "params": FORM}
        wanted = {"roots": {"method": "roots/list"}, "person": person}
        if params["name"] == "sample":
            wanted = {"model": {"method": "sampling/createMessage", "params": SAMPLE}}
        if not self.modern:
            said = {}
            for key, request in wanted.items():
                say(id=key, **request)
                said[key] = read()["result"]
            self.tell(named, said)
        elif "inputResponses" in params:
            assert params["requestState"] == "s"
            self.tell(named, params["inputResponses"])
        else:
            say(
                id=named,
                result={
                    "resultType": "input_required",
                    "inputRequests": wanted,
                    "requestState": "s",
                },
            )

    def tell(self, named: str, said: Any) -> None:
        self.end(named, content=[{"type": "text", "text": json.dumps(said)}])

    def end(self, named: str, **result: Any) -> None:
        say(id=named, result={"resultType": "complete", **result} if self.modern else result)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    Server(*sys.argv[1:]).run()
