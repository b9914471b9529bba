from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from protocol.dialects.mcp.rpc import RpcError
from protocol.errors import Failure
from protocol.frames import encode
from supervisor.faces.mcp.methods import PAGE_BYTES, _page
from supervisor.faces.mcp.request import ClientRequest
from supervisor.faces.mcp.table import Table, laying_out
from supervisor.faces.mcp.table_on_its_way import TableOnItsWay
from supervisor.kernel.catalogue import Offer
from supervisor.policy.mcp_views import View
from supervisor.policy.principals import Principal
from supervisor.runtime import turns
from supervisor.runtime.supervision.deadlines import Deadlines

TOOLS = 100
ADA = Principal("ada", "test")


class Later(list[Callable[[], None]]):
    """Deadlines whose actions are called by the test."""

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        assert delay_s == 0
        self.append(action)


def laid_out() -> tuple[Table, int]:
    """Return the table of a module with many tools, and how many turns it took."""
    tools = [{"name": f"t{one}", "inputSchema": {"type": "object"}} for one in range(TOOLS)]
    said: dict[str, Any] = {"inputs": {}, "outputs": {}, "tools": tools}
    steps = laying_out(1, View(), ADA, [Offer("m", "tool", None, said)], has_waited=True)
    made: list[Table | Failure] = []
    later = Later()
    way = TableOnItsWay("client 1", steps, cast("Deadlines", later), made.append)
    way.begin()
    for action in later:
        action()
    (table,) = made
    assert isinstance(table, Table)
    return table, 1 + len(later)


def test_a_table_of_many_tools_is_laid_out_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 60.0)
    monkeypatch.setattr(turns, "ALL_S", 60.0)
    whole, one_turn = laid_out()
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    table, many_turns = laid_out()
    assert (table, one_turn) == (whole, 1)
    assert list(table.tools) == [f"m__t{one}" for one in range(TOOLS)]
    assert many_turns > TOOLS


@pytest.mark.fault(29)
def test_a_page_of_a_list_is_no_longer_than_may_be_encoded_at_once() -> None:
    entry = {"description": "x" * (PAGE_BYTES // 2)}
    entries = {f"t{number}": {"name": f"t{number}", **entry} for number in range(3)}
    entries["long"] = {"name": "long", "description": "x" * (2 * PAGE_BYTES)}
    entries["last"] = {"name": "last"}
    table = cast("Table", SimpleNamespace(problem=None, unlisted={}))
    params: dict[str, Any] = {}
    asked = SimpleNamespace(params=params, client=SimpleNamespace(revision="r", is_modern=False))
    pages: list[list[str]] = []
    while not pages or "cursor" in params:
        page = _page("tools", entries, table, cast("ClientRequest", asked))
        assert not isinstance(page, RpcError)
        params.clear()
        pages.append([one["name"] for one in msgspec.json.decode(encode(page["tools"]))])
        if "nextCursor" in page:
            params["cursor"] = page["nextCursor"]
    assert pages == [["t0"], ["t1"], ["t2"], ["long"], ["last"]]
