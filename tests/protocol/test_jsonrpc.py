"""What a server of MCP is answered: a result, or JSON-RPC's own code for why there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.errors import Failure, Reason, Success
from protocol.jsonrpc import answer_line, rpc_outcome


def answered(outcome: Success | Failure) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(answer_line("s1", rpc_outcome(outcome)))
    assert (answer.pop("jsonrpc"), answer.pop("id")) == ("2.0", "s1")
    return answer


@pytest.mark.parametrize(
    ("reason", "code", "ours"),
    [
        (Reason.MALFORMED_REQUEST, -32600, "bad_request"),
        (Reason.UNKNOWN_OP, -32601, "unsupported_op"),
        (Reason.INVALID_ARGS, -32602, "bad_request"),
        (Reason.CAPABILITY, -32603, "forbidden"),
        (Reason.DEADLINE, -32603, "timeout"),
    ],
)
def test_a_failure_has_a_code_of_json_rpc_and_our_own(reason: Reason, code: int, ours: str) -> None:
    error = answered(Failure.because(reason, "words"))["error"]
    assert error == {"code": code, "message": "words", "data": {"code": ours}}


def test_a_result_stays_as_it_is_and_what_json_cannot_say_becomes_an_error() -> None:
    assert answered(Success({"roots": []})) == {"result": {"roots": []}}
    error = answered(Success({"odd": {1, object()}}))["error"]
    assert error["code"] == -32603
    assert error["message"].startswith("the answer cannot be passed on: ")
