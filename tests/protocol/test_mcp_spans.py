"""What the journal says of a request to a server of MCP, in OpenTelemetry's words."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.connection import Request
from protocol.dialects.mcp.calls import span_attributes
from protocol.errors import Code, Failure, Outcome, Success
from protocol.replies import Operation
from protocol.trace_context import EXAMPLE
from tests.protocol.mcp_process import TOOL, modern
from tests.protocol.test_mcp_calls import eras, required

PIPE = {"network.transport": "pipe"}
DESCRIBED = {"mcp": {"revision": "2025-06-18"}, "tools": [{"name": "prompts/get"}]}
VERSION = {"mcp.protocol.version": "2025-06-18"}
REPORTED = {"reported": {"isError": True, "content": []}}


def called(
    op: str, outcome: Outcome | None = None, said: Any = None, **args: Any
) -> dict[str, str]:
    request = Request("r1", Operation.INVOKE, op, args)
    return span_attributes(said, request, outcome or Success({}))


def test_a_tool_has_its_name_and_the_revision() -> None:
    tool = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool"}
    assert called("echo") == {**PIPE, **tool, "gen_ai.tool.name": "echo"}
    of_that_name = {**PIPE, **tool, **VERSION, "gen_ai.tool.name": "prompts/get"}
    assert called("prompts/get", said=DESCRIBED) == of_that_name


@pytest.mark.parametrize(
    ("op", "args", "found"),
    [
        ("prompts/get", {"name": "p"}, {"gen_ai.prompt.name": "p"}),
        ("resources/read", {"uri": "a:" + 300 * "b"}, {"mcp.resource.uri": "a:" + 254 * "b"}),
        ("resources/list", {}, {}),
    ],
)
def test_other_requests_have_their_own(op: str, args: Any, found: Any) -> None:
    assert called(op, **args) == {**PIPE, "mcp.method.name": op, **found}


@pytest.mark.parametrize(
    ("failure", "found"),
    [
        (Failure("timeout", ""), {"error.type": "timeout"}),
        (Failure("internal", "", REPORTED), {"error.type": "tool_error"}),
        (
            Failure.reported(Code.INTERNAL, "", {"code": -32000, "message": ""}),
            {"error.type": "internal", "rpc.response.status_code": "-32000"},
        ),
    ],
)
def test_a_failure_has_its_type(failure: Failure, found: dict[str, str]) -> None:
    assert found.items() <= called("echo", failure).items()
    assert not {"error.type", "rpc.response.status_code"} & called("echo").keys()


@eras
def test_a_request_goes_with_its_traceparent_in_each_of_its_rounds(ready: Any) -> None:
    served = ready(tools=[TOOL])
    served.take(
        served.connection.ask(Request("r1", Operation.INVOKE, "echo", {}, traceparent=EXAMPLE))
    )
    assert served.last()["params"]["_meta"]["traceparent"] == EXAMPLE
    if ready is modern:
        served.hear(required(requestState="s"))
        assert served.last()["id"] != "r1"
        assert served.last()["params"]["_meta"]["traceparent"] == EXAMPLE
    served.ask("r2")
    assert "traceparent" not in served.last()["params"]["_meta"]
