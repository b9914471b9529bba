"""What the official MCP conformance suite asks of a server, as a module like any other.

It speaks the dialect `module`: its tools are ops, its prompts and resources stand in its
`describe`, and what it wants of the client it asks the host for. It uses nothing but Python.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8"
    "z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

STEP_S = 0.05
"""The suite wants to see that there is time between two notifications."""


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def content(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"content": list(blocks)}


def form(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields)}


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}


def resource(uri: str, words: str, media_type: str = "text/plain") -> dict[str, Any]:
    return {"uri": uri, "mimeType": media_type, "text": words}


def embedded(uri: str, words: str, media_type: str = "text/plain") -> dict[str, Any]:
    return {"type": "resource", "resource": resource(uri, words, media_type)}


class ToolError(Exception):
    """What a tool reports."""


class Request:
    """One request, in a thread of its own, so that it may wait for the host."""

    def __init__(self, request_id: str, args: dict[str, Any]) -> None:
        self.id = request_id
        self.args = args
        self._answers: dict[str, Any] = {}
        self._some = threading.Condition()

    def event(self, kind: str, **fields: Any) -> None:
        write({"version": "0", "type": kind, "requestId": self.id, **fields})

    def log(self, words: str) -> None:
        self.event("log", level="info", message=words)

    def progress(self, done: int) -> None:
        payload = {"done": done, "total": 100, "message": f"{done} of 100"}
        self.event("ui_event", event="progress", payload=payload)

    def ask(self, **calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        """Call the host for several things at once; what it refuses is a `ToolError`."""
        for call_id, (method, params) in calls.items():
            payload = {"call_id": call_id, "method": method, "params": params}
            self.event("host_call", payload=payload)
        with self._some:
            while not calls.keys() <= self._answers.keys():
                self._some.wait()
        found = {call_id: self._answers.pop(call_id) for call_id in calls}
        for answer in found.values():
            if answer["is_error"]:
                raise ToolError(answer["error"]["message"])
        return {call_id: answer["output"] for call_id, answer in found.items()}

    def answered(self, payload: dict[str, Any]) -> None:
        with self._some:
            self._answers[payload["call_id"]] = payload
            self._some.notify_all()

    def person(self, key: str, message: str, wanted: dict[str, Any]) -> dict[str, Any]:
        call = ("user.ask", {"message": message, "form": wanted})
        answer: dict[str, Any] = self.ask(**{key: call})[key]
        return answer

    def model(self, key: str, words: str) -> str:
        said = self.ask(**{key: sampling(words)})[key]
        return str(said["content"]["text"])


def sampling(words: str, most: int = 100) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "user", "content": text(words)}]
    return "model.sample", {"messages": messages, "maxTokens": most}


ROOTS: tuple[str, dict[str, Any]] = ("roots.list", {})


# The tools, by name.


def with_logging(request: Request) -> dict[str, Any]:
    request.log("Tool execution started")
    time.sleep(STEP_S)
    request.log("Tool processing data")
    time.sleep(STEP_S)
    request.log("Tool execution completed")
    return content(text("logged three times"))


def with_progress(request: Request) -> dict[str, Any]:
    for done in (0, 50, 100):
        request.progress(done)
        time.sleep(STEP_S)
    return content(text("done"))


def failing(_: Request) -> dict[str, Any]:
    raise ToolError("This tool intentionally returns an error for testing")


def sampled(request: Request) -> dict[str, Any]:
    return content(text(f"LLM response: {request.model('sample', request.args['prompt'])}"))


def elicited(request: Request) -> dict[str, Any]:
    wanted = form(
        username={**STRING, "description": "User's response"},
        email={**STRING, "description": "User's email address"},
    )
    return told(request.person("user", request.args["message"], wanted))


def told(answer: dict[str, Any]) -> dict[str, Any]:
    words = f"action={answer['action']}, content={json.dumps(answer.get('content', {}))}"
    return content(text(f"User response: {words}"))


def with_defaults(request: Request) -> dict[str, Any]:
    statuses = ["active", "inactive", "pending"]
    wanted = {
        "type": "object",
        "properties": {
            "name": {**STRING, "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {**STRING, "enum": statuses, "default": "active"},
            "verified": {**BOOLEAN, "default": True},
        },
    }
    return told(request.person("defaults", "Fill it in", wanted))


def with_choices(request: Request) -> dict[str, Any]:
    options = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{number}", "title": f"{word} Option"}
        for number, word in enumerate(("First", "Second", "Third"), start=1)
    ]
    wanted = {
        "type": "object",
        "properties": {
            "untitledSingle": {**STRING, "enum": options},
            "titledSingle": {**STRING, "oneOf": titled},
            "legacyEnum": {
                **STRING,
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {**STRING, "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    }
    return told(request.person("choices", "Choose", wanted))


def greeted(request: Request) -> dict[str, Any]:
    answer = request.person("user_name", "What is your name?", form(name=STRING))
    return content(text(f"Hello, {answer.get('content', {}).get('name')}!"))


def capital(request: Request) -> dict[str, Any]:
    return content(text(request.model("capital_question", "What is the capital of France?")))


def rooted(request: Request) -> dict[str, Any]:
    roots = request.ask(client_roots=ROOTS)["client_roots"]["roots"]
    return content(text(f"roots: {', '.join(one['uri'] for one in roots)}"))


def confirmed(request: Request) -> dict[str, Any]:
    request.person("confirm", "Please confirm", form(ok=BOOLEAN))
    return content(text("state-ok"))


def all_three(request: Request) -> dict[str, Any]:
    name = {"message": "What is your name?", "form": form(name=STRING)}
    found = request.ask(
        user_name=("user.ask", name),
        greeting=sampling("Generate a greeting", 50),
        client_roots=ROOTS,
    )
    return content(text(json.dumps(found)))


def two_rounds(request: Request) -> dict[str, Any]:
    name = request.person("step1", "Step 1: What is your name?", form(name=STRING))
    color = request.person("step2", "Step 2: What is your favorite color?", form(color=STRING))
    return content(text(json.dumps([name, color])))


def what_is_able(request: Request) -> dict[str, Any]:
    """Ask for what a person and a model say: a client is asked for what it can."""
    name = ("user.ask", {"message": "What is your name?", "form": form(name=STRING)})
    return content(text(json.dumps(request.ask(user_name=name, greeting=sampling("Greet me")))))


NOTHING: dict[str, Any] = {"type": "object", "properties": {}}

Tool = tuple[str, dict[str, Any], Callable[[Request], dict[str, Any]]]

TOOLS: dict[str, Tool] = {
    "test_simple_text": (
        "Says a text",
        NOTHING,
        lambda _: content(text("This is a simple text response for testing.")),
    ),
    "test_image_content": ("Shows an image", NOTHING, lambda _: content(IMAGE)),
    "test_audio_content": ("Plays a sound", NOTHING, lambda _: content(AUDIO)),
    "test_embedded_resource": (
        "Embeds a resource",
        NOTHING,
        lambda _: content(
            embedded("test://embedded-resource", "This is an embedded resource content.")
        ),
    ),
    "test_multiple_content_types": (
        "Says, shows and embeds",
        NOTHING,
        lambda _: content(
            text("Multiple content types test:"),
            IMAGE,
            embedded(
                "test://mixed-content-resource",
                '{"test":"data","value":123}',
                "application/json",
            ),
        ),
    ),
    "test_tool_with_logging": ("Logs", NOTHING, with_logging),
    "test_logging_tool": ("Logs", NOTHING, with_logging),
    "test_tool_with_progress": ("Tells how far it is", NOTHING, with_progress),
    "test_error_handling": ("Fails", NOTHING, failing),
    "test_sampling": ("Asks the client's model", form(prompt=STRING), sampled),
    "test_missing_capability": ("Asks the client's model", NOTHING, capital),
    "test_elicitation": ("Asks a person", form(message=STRING), elicited),
    "test_streaming_elicitation": ("Asks a person", NOTHING, greeted),
    "test_elicitation_sep1034_defaults": ("Has defaults", NOTHING, with_defaults),
    "test_elicitation_sep1330_enums": ("Has choices", NOTHING, with_choices),
    "test_input_required_result_elicitation": ("Asks a person", NOTHING, greeted),
    "test_input_required_result_sampling": ("Asks a model", NOTHING, capital),
    "test_input_required_result_list_roots": ("Asks for folders", NOTHING, rooted),
    "test_input_required_result_request_state": ("Asks for a yes", NOTHING, confirmed),
    "test_input_required_result_tampered_state": ("Asks for a yes", NOTHING, confirmed),
    "test_input_required_result_multiple_inputs": ("Asks for all", NOTHING, all_three),
    "test_input_required_result_multi_round": ("Asks twice", NOTHING, two_rounds),
    "test_input_required_result_capabilities": ("Asks for some", NOTHING, what_is_able),
}


# Prompts and resources.


def message(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": one} for one in blocks]}


def argument(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"The argument {name}", "required": True}


def context_prompt(request: Request) -> dict[str, Any]:
    answer = request.person(
        "user_context", "What context should the prompt use?", form(context=STRING)
    )
    return message(text(f"With the context {answer.get('content')}"))


def get_prompt(request: Request) -> dict[str, Any]:
    name, given = request.args["name"], request.args.get("arguments", {})
    match name:
        case "test_simple_prompt":
            return message(text("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            words = f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"
            return message(text(words))
        case "test_prompt_with_embedded_resource":
            block = embedded(given["resourceUri"], "Embedded resource content for testing.")
            return message(block, text("Please process the embedded resource above."))
        case "test_prompt_with_image":
            return message(IMAGE, text("Please analyze the image above."))
        case "test_input_required_result_prompt":
            return context_prompt(request)
    raise ToolError(f"there is no prompt {name}")


def read_resource(request: Request) -> dict[str, Any]:
    uri = request.args["uri"]
    if uri == "test://static-text":
        words = "This is the content of the static text resource."
        return {"contents": [resource(uri, words)]}
    if uri == "test://static-binary":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PNG}]}
    if uri.startswith("test://template/") and uri.endswith("/data"):
        named = uri.removeprefix("test://template/").removesuffix("/data")
        data = {"id": named, "templateTest": True, "data": f"Data for ID: {named}"}
        return {"contents": [resource(uri, json.dumps(data), "application/json")]}
    raise ToolError("there is no such resource")


def complete(request: Request) -> dict[str, Any]:
    begun = request.args["argument"]["value"]
    values = [one for one in ("paris", "park", "party", "test") if one.startswith(begun)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


OWN_OPS: dict[str, Callable[[Request], dict[str, Any]]] = {
    "prompts/get": get_prompt,
    "resources/read": read_resource,
    "completion/complete": complete,
}

PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


def description(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1.0.0",
        "kind": "tool",
        "capabilities": ["user.ask", "model.sample", "roots.list"],
        "features": ["host_call"],
        "inputs": {
            **{tool: schema for tool, (_, schema, _) in TOOLS.items()},
            **{op: {"type": "object"} for op in OWN_OPS},
        },
        "outputs": {},
        "tools": [
            {"name": tool, "description": words, "inputSchema": schema}
            for tool, (words, schema, _) in TOOLS.items()
        ],
        "prompts": [
            {
                "name": prompt,
                "description": f"The prompt {prompt}",
                "arguments": [argument(one) for one in arguments],
            }
            for prompt, arguments in PROMPTS.items()
        ],
        "resources": [
            {
                "uri": "test://static-text",
                "name": "static-text",
                "description": "A text",
                "mimeType": "text/plain",
            },
            {
                "uri": "test://static-binary",
                "name": "static-binary",
                "description": "An image",
                "mimeType": "image/png",
            },
            {
                "uri": "test://watched-resource",
                "name": "watched",
                "description": "One to follow",
                "mimeType": "text/plain",
            },
        ],
        "resource_templates": [
            {
                "uriTemplate": "test://template/{id}/data",
                "name": "template",
                "description": "The data of an id",
                "mimeType": "application/json",
            }
        ],
    }


# The dialect.

_writing = threading.Lock()
_open: dict[str, Request] = {}


def write(document: dict[str, Any]) -> None:
    with _writing:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()


def invoke(request: Request, op: str) -> None:
    serve = TOOLS[op][2] if op in TOOLS else OWN_OPS[op]
    try:
        answer = {"ok": True, "result": serve(request)}
    except ToolError as error:
        answer = {"ok": False, "error": {"code": "internal", "message": str(error)}}
    del _open[request.id]
    write({"requestId": request.id, **answer})


def main() -> None:
    """Serve until the end of stdin."""
    for line in sys.stdin:
        frame = json.loads(line)
        request_id = frame.get("requestId")
        match frame:
            case {"type": "host_result", "payload": payload}:
                if request_id in _open:
                    _open[request_id].answered(payload)
            case {"operation": "health"}:
                write({"requestId": request_id, "status": "ok"})
            case {"operation": "describe", "tool": name}:
                write({"requestId": request_id, **description(name)})
            case {"operation": "invoke", "input": asked}:
                request = _open[request_id] = Request(request_id, asked.get("args", {}))
                threading.Thread(target=invoke, args=(request, asked["op"]), daemon=True).start()


if __name__ == "__main__":
    main()
