"""Use PyPI's `mcp` as its documentation does: `sdk_client.py MODE URL TOKEN`, or `MODE COMMAND...`.

Runs in an environment that has `mcp` and nothing of ours. Writes what it saw as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2  # type: ignore[import-not-found, unused-ignore]
from mcp import Client, StdioServerParameters, types  # type: ignore[import-not-found, unused-ignore]
from mcp.client.streamable_http import (  # type: ignore[import-not-found, unused-ignore]
    streamable_http_client,
)

OLDER = "legacy"


async def elicit(_: Any, asked: Any) -> Any:
    content = {"username": "ada", "email": "a@b", "name": "Ada", "color": "blue"}
    wanted = asked.requested_schema["properties"]
    given = {name: value for name, value in content.items() if name in wanted}
    return types.ElicitResult(action="accept", content=given)


async def sample(_: Any, asked: Any) -> Any:
    said = f"to: {asked.messages[0].content.text}"
    content = types.TextContent(type="text", text=said)
    return types.CreateMessageResult(role="assistant", content=content, model="m")


async def roots(_: Any) -> Any:
    return types.ListRootsResult(roots=[types.Root(uri="file:///srv")])


async def use(client: Any, mode: str, seen: dict[str, Any]) -> None:
    logs, progress = seen["logs"], []

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        del message
        progress.append([done, total])

    async def text(tool: str, **arguments: Any) -> str:
        return str((await client.call_tool(tool, arguments)).content[0].text)

    async def error(call: Any) -> int:
        try:
            await call
        except Exception as raised:  # noqa: BLE001 - whatever it is, its code is looked at
            return int(getattr(getattr(raised, "error", raised), "code", 0))
        return 0

    seen["version"] = client.protocol_version
    # One that is told the revision asks nobody who is there.
    seen["server"] = client.server_info.name if mode in ("auto", OLDER) else "stdiod"
    seen["tools"] = len((await client.list_tools()).tools)
    seen["text"] = await text("test_simple_text")
    content = (await client.call_tool("test_multiple_content_types", {})).content
    seen["kinds"] = [one.type for one in content]
    seen["image"] = content[1].data[:8]
    await client.call_tool("test_tool_with_progress", {}, progress_callback=progressed)
    seen["progress"] = progress
    if mode == OLDER:
        await client.set_logging_level("debug")
    await client.call_tool("test_tool_with_logging", {})
    seen["logs"] = list(logs)
    failed = await client.call_tool("test_error_handling", {})
    seen["failed"] = [failed.is_error, failed.content[0].text]
    seen["elicited"] = await text("test_elicitation", message="Who?")
    seen["rounds"] = await text("test_input_required_result_multi_round")
    seen["sampled"] = await text("test_sampling", prompt="hi")
    seen["roots"] = await text("test_input_required_result_list_roots")
    seen["unknown tool"] = await error(client.call_tool("nothing", {}))
    seen["prompts"] = [one.name for one in (await client.list_prompts()).prompts]
    given = {"arg1": "one", "arg2": "two"}
    found = await client.get_prompt("test_prompt_with_arguments", given)
    seen["prompt"] = found.messages[0].content.text
    seen["resources"] = [str(one.uri) for one in (await client.list_resources()).resources]
    templates = (await client.list_resource_templates()).resource_templates
    seen["templates"] = [one.uri_template for one in templates]
    read = await client.read_resource("test://static-binary")
    seen["blob"] = [read.contents[0].mime_type, read.contents[0].blob[:8]]
    seen["no resource"] = await error(client.read_resource("test://nothing"))
    ref = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    completed = await client.complete(ref, {"name": "arg1", "value": "par"})
    seen["completed"] = completed.completion.values


async def main(mode: str, where: list[str]) -> dict[str, Any]:
    seen: dict[str, Any] = {"logs": []}

    async def logged(params: Any) -> None:
        seen["logs"].append(params.data)

    options = {
        "mode": mode,
        "logging_callback": logged,
        "log_level": "debug",
        "elicitation_callback": elicit,
        "sampling_callback": sample,
        "list_roots_callback": roots,
    }
    if where[0].startswith("http"):
        url, token = where
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport, **options) as client:
                await use(client, mode, seen)
    else:
        server = StdioServerParameters(command=where[0], args=where[1:])
        async with Client(server, **options) as client:
            await use(client, mode, seen)
    return seen


if __name__ == "__main__":
    said = asyncio.run(main(sys.argv[1], sys.argv[2:]))
    sys.stdout.write(json.dumps(said))
