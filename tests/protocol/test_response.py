"""The response that ends a request, as a document and as a line."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from protocol.connection import Notice
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.response import Response

OF_AN_INVOCATION = {"request_id": "i1", "module": "dice", "op": "roll", "duration_ms": 0}
NOTICE = Notice("unknown_field", "words", "line")
FAILED = Failure.because(Reason.INVALID_ARGS, "no", pointer="/a")
ERROR = {
    "code": "bad_request",
    "message": "no",
    "details": {"origin": "host", "reason": "invalid_args", "pointer": "/a"},
}
WARNED = [{"reason": "unknown_field", "message": "words", "line_excerpt": "line"}]


def of_invocation(outcome: Outcome, **fields: Any) -> Response:
    return Response(outcome, "i1", "dice", "roll", **fields)


@pytest.mark.parametrize(
    ("response", "document"),
    [
        (Response(Success(1)), {"ok": True, "result": 1}),
        (Response(Success(None, "s")), {"ok": True, "result": None, "summary": "s"}),
        (Response(FAILED), {"ok": False, "error": ERROR}),
        (Response(Success(1), notices=(NOTICE,)), {"ok": True, "result": 1, "warnings": WARNED}),
        (
            of_invocation(Success(msgspec.Raw(b'{"a":1.0}'))),
            {"ok": True, "result": {"a": 1.0}, **OF_AN_INVOCATION, "warnings": []},
        ),
        (
            of_invocation(
                FAILED,
                duration_ms=7,
                session_id="s",
                notices=(NOTICE,),
                injected=({"content": "c"},),
            ),
            {
                "ok": False,
                "error": ERROR,
                **OF_AN_INVOCATION,
                "session_id": "s",
                "duration_ms": 7,
                "warnings": WARNED,
                "injected": [{"content": "c"}],
            },
        ),
    ],
)
def test_a_response_is_a_document_of_plain_values_and_a_line_of_the_same(
    response: Response, document: dict[str, Any]
) -> None:
    assert response.document() == document
    assert msgspec.json.decode(msgspec.json.encode(response.document(built=False))) == document
    line = json.loads(response.done_line("r1"))
    assert line == {"version": "0", "type": "done", "requestId": "r1", **document}
    assert json.loads(response.done_line(None)).keys() == line.keys() - {"requestId"}
