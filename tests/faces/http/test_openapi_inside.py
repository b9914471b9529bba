"""The OpenAPI document and the page, held to the table of the routes and to the codes."""

from __future__ import annotations

import re

import msgspec

from protocol.errors import Code, Failure, Reason
from supervisor.faces.http.exchange import status_of
from supervisor.faces.http.openapi import document
from supervisor.faces.http.routes import ROUTES
from tests.docs.markdown import rows
from tests.faces.http import documented


def test_what_is_served_is_the_document_of_the_routes() -> None:
    made = document(ROUTES)
    assert documented.document() == msgspec.json.decode(msgspec.json.encode(made))


def test_the_page_has_the_status_of_each_code() -> None:
    table = {int(row[0]): row[1] for row in rows("docs/http.md", "Status")}
    said = {
        code: status for status, words in table.items() for code in re.findall(r"`(\w+)`", words)
    }
    for reason in Reason:
        status = status_of(Failure.because(reason, ""))
        assert status in (said[reason.code], said.get(reason), 404)
    assert set(said) == {"ok", "queue_full", "stopping"} | {str(one) for one in Code}
