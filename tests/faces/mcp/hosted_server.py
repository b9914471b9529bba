"""A server of MCP with all that there is: `python hosted_server.py modern|legacy [no-prompts]`."""

from __future__ import annotations

import json
import sys
from typing import Any

META = "io.modelcontextprotocol/"
NOTE = "note://1"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SAYING = [{"role": "user", "content": {"type": "text", "text": "Who?"}}]
QUESTIONS: dict[str, dict[str, Any]] = {
    "person": {
        "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": FORM},
    },
    "model": {"method": "sampling/createMessage", "params": {"messages": SAYING, "maxTokens": 9}},
    "roots": {"method": "roots/list"},
}
SUM = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
TOOLS: dict[str, dict[str, Any]] = {
    "add": {"outputSchema": SUM, "annotations": {"readOnlyHint": True}},
    "many": {"outputSchema": {"type": "array"}},
    **{
        one: {}
        for one in (
            "fail",
            "refuse",
            "progress",
            "log",
            "trace",
            "vanish",
            "hang",
            "given_up",
            "touch",
            "link",
        )
    },
    **{f"ask_{one}": {} for one in QUESTIONS},
}


class Server:
    def __init__(self, kind: str, *flags: str) -> None:
        self.modern = kind == "modern"
        self.lists_prompts = "no-prompts" not in flags
        self.tools = dict(TOOLS)
        self.listening = ""
        self.level = "info"
        self.given_up: list[str] = []
        self.followed: dict[str, str] = {}
        """The ids of the subscriptions of resources, or nothing."""

    def run(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            params = message.get("params") or {}
            if message.get("method") == "notifications/cancelled":
                named = params["requestId"]
                self.given_up.append(named)
                self.followed = {uri: one for uri, one in self.followed.items() if one != named}
            elif "id" in message:
                self.serve(message["id"], message["method"], params)

    def serve(  # noqa: C901, PLR0912 - a list of what can be asked
        self, named: str, method: str, params: dict[str, Any]
    ) -> None:
        offers = {
            "tools": {"listChanged": True},
            "prompts": {},
            "resources": {"subscribe": True},
            "completions": {},
            "logging": {},
        }
        match method:
            case "server/discover" if self.modern:
                self.end(named, supportedVersions=["2026-07-28"], capabilities=offers)
            case "initialize" if not self.modern:
                version, info = params["protocolVersion"], {"name": "hosted", "version": "1"}
                self.end(named, protocolVersion=version, capabilities=offers, serverInfo=info)
            case "tools/list":
                schema = {"type": "object"}
                tools = [
                    {"name": one, "inputSchema": schema, **more} for one, more in self.tools.items()
                ]
                self.end(named, tools=tools)
            case "prompts/list" if not self.lists_prompts:
                say(id=named, error={"code": -32603, "message": "no prompts today"})
            case "prompts/list":
                argument = {"name": "who", "required": True}
                self.end(named, prompts=[{"name": "greet", "arguments": [argument]}])
            case "prompts/get":
                words = f"Greet {params['arguments']['who']}"
                content = {"type": "text", "text": words}
                self.end(named, messages=[{"role": "user", "content": content}])
            case "resources/list":
                self.end(named, resources=[{"uri": NOTE, "name": "note"}])
            case "resources/templates/list":
                self.end(named, resourceTemplates=[{"uriTemplate": "note://{id}", "name": "notes"}])
            case "resources/read" if params["uri"].startswith("note://"):
                self.end(named, contents=[{"uri": params["uri"], "text": "a note"}])
            case "resources/read":
                say(id=named, error={"code": -32602, "message": "no such note"})
            case "completion/complete":
                self.end(named, completion={"values": ["Ada"], "total": 1, "hasMore": False})
            case "resources/subscribe" if not self.modern and params["uri"] == NOTE:
                self.followed[params["uri"]] = ""
                self.end(named)
            case "resources/unsubscribe" if not self.modern:
                self.followed.pop(params["uri"], None)
                self.end(named)
            case "subscriptions/listen" if self.modern:
                wanted = params["notifications"]
                uris = [one for one in wanted.get("resourceSubscriptions", ()) if one == NOTE]
                self.followed = dict.fromkeys(uris, named)
                self.listening = named
                meta = {f"{META}subscriptionId": named}
                told = {"notifications": {"resourceSubscriptions": uris}, "_meta": meta}
                say(method="notifications/subscriptions/acknowledged", params=told)
            case "tools/call":
                self.call(named, params)
            case _:
                say(id=named, error={"code": -32601, "message": "no such method"})

    def call(  # noqa: C901, PLR0912 - a list of the tools
        self, named: str, params: dict[str, Any]
    ) -> None:
        args = params.get("arguments", {})
        match params["name"]:
            case "add":
                found = {"sum": args["a"] + args["b"]}
                content = {"type": "text", "text": json.dumps(found)}
                self.end(named, content=[content], structuredContent=found)
            case "many":
                content = {"type": "text", "text": "[1]"}
                self.end(named, content=[content], structuredContent=[1])
            case "link":
                link = {"type": "resource_link", "uri": NOTE, "name": "note"}
                self.end(named, content=[link])
            case "fail":
                self.end(named, content=[{"type": "text", "text": "it failed"}], isError=True)
            case "refuse":
                say(id=named, error={"code": -32050, "message": "refused", "data": {"why": "so"}})
            case "progress":
                token = params["_meta"]["progressToken"]
                for done in (1, 2):
                    told = {"progressToken": token, "progress": done, "total": 2, "message": "on"}
                    say(method="notifications/progress", params=told)
                self.tell(named, "done")
            case "log":
                told = {"level": "warning", "logger": "hosted", "data": "look"}
                say(method="notifications/message", params=told)
                self.tell(named, "done")
            case "trace":
                self.tell(named, params["_meta"]["traceparent"])
            case "hang":
                token = params["_meta"]["progressToken"]
                told = {"progressToken": token, "progress": 1}
                say(method="notifications/progress", params=told)
            case "vanish":
                del self.tools["vanish"]
                meta = {f"{META}subscriptionId": self.listening} if self.modern else {}
                say(method="notifications/tools/list_changed", params={"_meta": meta})
                self.tell(named, "gone")
            case "given_up":
                self.tell(named, len(self.given_up))
            case "touch":
                for uri, subscription in self.followed.items():
                    meta = {f"{META}subscriptionId": subscription} if self.modern else {}
                    told = {"uri": f"{uri}/page" if args.get("below") else uri, "_meta": meta}
                    say(method="notifications/resources/updated", params=told)
                self.tell(named, list(self.followed))
            case name if name not in self.tools:
                say(id=named, error={"code": -32602, "message": f"there is no {name}"})
            case name:
                self.ask(named, name.removeprefix("ask_"), params)

    def ask(self, named: str, what: str, params: dict[str, Any]) -> None:
        if not self.modern:
            say(id=f"q-{named}", **QUESTIONS[what])
            answer = json.loads(sys.stdin.readline())
            if "error" in answer:
                words = answer["error"]["message"]
                self.end(named, content=[{"type": "text", "text": words}], isError=True)
            else:
                self.tell(named, answer["result"])
        elif what in params.get("inputResponses", ()):
            self.tell(named, params["inputResponses"][what])
        else:
            wanted = {what: QUESTIONS[what]}
            say(id=named, result={"resultType": "input_required", "inputRequests": wanted})

    def tell(self, named: str, said: Any) -> None:
        self.end(named, content=[{"type": "text", "text": json.dumps(said)}])

    def end(self, named: str, **result: Any) -> None:
        say(id=named, result={"resultType": "complete", **result} if self.modern else result)


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Server(*sys.argv[1:]).run()
