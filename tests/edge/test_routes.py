"""The gateway's routes and the daemon's ops: each says what the other has."""

from __future__ import annotations

import re

import pytest
from jsonschema import Draft202012Validator

from protocol.amcp_errors import status_of
from protocol.errors import Code, Failure, Reason
from supervisor.edge.http import openapi
from supervisor.edge.http.routes import ROUTES, Route
from supervisor.kernel.operations import inputs
from tests.docs.markdown import rows
from tests.faces.http import documented

OF_MODULES = {"health", "describe", "invoke"}

ELSEWHERE = {
    *("login.open", "login.close", "login.follow", "unordered", "narrow", "mcp"),  # of connections
    *("token.new", "token.list", "token.revoke", "page.login", "shutdown", "record", "wait"),
    *("policy.show", "policy.explain", "policy.forget", "offers", "resource.follow", "reloaded"),
    "asset.read",  # of paths
}
"""Ops without a route of their own; `/modules/supervisor/invoke` has all."""


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", [one for one in ROUTES if one.op], ids=named)
def test_a_route_asks_an_op_that_there_is_for_what_it_takes(route: Route) -> None:
    assert route.op in inputs() or route.op in OF_MODULES
    known = inputs().get(route.op, {}).get("properties", {}).keys()
    if route.op in inputs() and not route.of_module:
        assert known >= {*route.parameters, *route.fixed} - {"view"}
    assert {*route.query} <= {*known, *route.own}
    assert {*(route.streamed or ())} <= known
    assert route.body_is is None or route.body_is in known
    if route.takes_body:
        required = inputs()[route.op].get("required", []) if route.op else []
        free = route.body(inputs())["properties"].keys()
        assert {*required} <= {*free, *route.parameters, *route.fixed, *route.query}


def test_each_op_has_a_route_or_is_known_to_have_none() -> None:
    assert inputs().keys() - {one.op for one in ROUTES} == ELSEWHERE


def test_each_row_has_a_schema_for_its_answer() -> None:
    schemas = openapi.document(ROUTES, inputs())["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    assert {one.answer for one in ROUTES} <= {"", "Rpc", *schemas}
    assert {one.item for one in ROUTES} <= {"", *schemas}


def test_what_is_served_is_the_document_of_the_routes() -> None:
    assert documented.document() == openapi.document(ROUTES, inputs())


def test_the_page_has_the_status_of_each_code() -> None:
    table = {int(row[0]): row[1] for row in rows("docs/http.md", "Status")}
    said = {
        code: status for status, words in table.items() for code in re.findall(r"`(\w+)`", words)
    }
    for reason in Reason:
        status = status_of(Failure.because(reason, ""))
        assert status in (said[reason.code], said.get(reason), 404)
    assert set(said) == {"ok", "queue_full", "stopping"} | {str(one) for one in Code}
