"""Resources that are followed at a server, in its era, and what it says of them."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.connection import Answered, ResourceUpdated, Stray, Unanswered
from protocol.framing import Written
from tests.protocol.mcp_process import ALL, Served, legacy, modern
from tests.protocol.wire import connected, descriptor, line

META = "io.modelcontextprotocol/subscriptionId"
OFFERS = {**ALL, "tools": {}, "resources": {"subscribe": True}}
A, B = "note://a", "note://b"


def listening(served: Served) -> tuple[str, Any]:
    """Return the id of what it was asked last to tell, and what that is."""
    asked = [one for one in served.written if one.get("method") == "subscriptions/listen"][-1]
    return asked["id"], asked["params"]["notifications"].get("resourceSubscriptions")


def acknowledge(served: Served, *uris: str) -> None:
    named, _ = listening(served)
    params = {"notifications": {"resourceSubscriptions": list(uris)}, "_meta": {META: named}}
    served.hear({"method": "notifications/subscriptions/acknowledged", "params": params})


def update(served: Served, uri: Any, named: str | None = None) -> Any:
    params = {"uri": uri} if named is None else {"uri": uri, "_meta": {META: named}}
    served.hear({"method": "notifications/resources/updated", "params": params})
    return served.events[-1]


def answered(served: Served) -> list[str]:
    return [one.request_id for one in served.events if isinstance(one, Answered)]


def test_a_server_of_the_older_era_is_asked_by_a_request() -> None:
    served = legacy(offers=OFFERS)
    asked = served.ask("r1", "resources/subscribe", uri=A)
    assert (asked["method"], asked["params"]["uri"]) == ("resources/subscribe", A)
    served.hear({"id": asked["id"], "result": {}})
    assert served.result("r1") == {}
    assert update(served, A) == ResourceUpdated(A)
    assert isinstance(update(served, 5), Stray)


def test_a_server_that_cannot_tell_has_no_such_op() -> None:
    for offers in (ALL, {**ALL, "resources": {"subscribe": "yes"}}):
        served = legacy(offers=offers)
        assert served.ask("r1", "resources/subscribe", uri=A)["method"] == "tools/call"


def test_one_of_the_newer_era_listens_to_all_and_nothing_is_missed_between() -> None:
    served = modern(offers=OFFERS)
    served.ask("r1", "resources/subscribe", uri=A)
    first, wanted = listening(served)
    assert wanted == [A]
    assert answered(served) == []
    acknowledge(served, A)
    assert served.result("r1") == {}
    served.ask("r2", "resources/subscribe", uri=B)
    second, wanted = listening(served)
    assert wanted == [A, B]
    for named in (first, second):
        assert update(served, A, named) == ResourceUpdated(A)
    acknowledge(served, A, B)
    assert served.last() == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": first},
    }
    assert answered(served) == ["r1", "r2"]
    assert isinstance(update(served, A, first), Stray)
    assert isinstance(update(served, A), Stray)
    served.ask("r3", "resources/unsubscribe", uri=A)
    assert answered(served) == ["r1", "r2", "r3"]
    assert listening(served)[1] == [B]


def test_what_is_wanted_meanwhile_is_asked_for_once_the_server_has_answered() -> None:
    served = modern(offers=OFFERS)
    served.ask("r1", "resources/subscribe", uri=A)
    first, _ = listening(served)
    served.ask("r2", "resources/subscribe", uri=B)
    assert listening(served) == (first, [A])
    acknowledge(served, A)
    assert answered(served) == ["r1"]
    assert listening(served)[1] == [A, B]
    acknowledge(served, A)
    assert "will not tell" in served.failure("r2").message
    served.ask("r3", "resources/unsubscribe", uri=A)
    assert listening(served)[1] is None


def test_a_refusal_is_that_of_who_asked_and_the_former_goes_on() -> None:
    served = modern(offers=OFFERS)
    served.ask("r1", "resources/subscribe", uri=A)
    acknowledge(served, A)
    first, _ = listening(served)
    served.ask("r2", "resources/subscribe", uri=B)
    served.hear({"id": listening(served)[0], "error": {"code": -32603, "message": "too many"}})
    assert "too many" in served.failure("r2").message
    assert update(served, A, first) == ResourceUpdated(A)


def test_who_gives_up_or_dies_leaves_nothing_waiting() -> None:
    served = modern(offers=OFFERS)
    served.ask("r1", "resources/subscribe", uri=A)
    served.connection.cancel("r1", Written.ALL)
    acknowledge(served, A)
    assert answered(served) == []
    served.ask("r2", "resources/subscribe", uri=B)
    assert served.connection.process_exited(0) == [Unanswered("r2")]


@pytest.mark.parametrize(
    ("payload", "told"), [({"uri": A}, ResourceUpdated(A)), ({"uri": 5}, None), ({}, None)]
)
def test_a_module_of_the_own_dialect_says_it_by_an_event_of_no_request(
    payload: Any, told: ResourceUpdated | None
) -> None:
    connection = connected("module", descriptor())
    said = {"version": "0", "type": "ui_event", "event": "resource.updated", "payload": payload}
    events = connection.receive_data(line(said))
    assert [one for one in events if isinstance(one, ResourceUpdated)] == ([told] if told else [])
