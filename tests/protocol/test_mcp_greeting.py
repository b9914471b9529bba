"""How a server of MCP is greeted: in which era, and what of it is remembered."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.connection import Ready, StartAgain, StartFailed
from protocol.descriptor.model import EraPin
from protocol.dialects.mcp.start import DISCOVER_S
from protocol.framing import Written
from tests.protocol.mcp_process import Served, discovered, initialized, legacy, modern
from tests.protocol.wire import health

NO_METHOD = {"code": -32601, "message": "no such method"}


def unsupported(*versions: Any) -> dict[str, Any]:
    return {"code": -32022, "message": "no", "data": {"supported": list(versions)}}


def ready(served: Served) -> Ready:
    served.answer_lists()
    (found,) = [one for one in served.events if isinstance(one, Ready)]
    return found


def era(served: Served) -> tuple[str, str]:
    told = ready(served).description["mcp"]
    return told["era"], told["revision"]


def failed(served: Served) -> str:
    (found,) = [one for one in served.events if isinstance(one, StartFailed)]
    assert served.connection.waits == ()
    return found.message


def test_a_server_that_discovers_is_of_the_newer_era() -> None:
    served = Served()
    asked = served.start()
    assert asked["method"] == "server/discover"
    served.hear({"id": asked["id"], "result": discovered()})
    assert era(served) == ("modern", "2026-07-28")
    assert "initialize" not in [one["method"] for one in served.written]


@pytest.mark.parametrize(
    "answer",
    [
        {"error": NO_METHOD},
        {"error": {"code": -32602, "message": ""}},
        {"error": {"code": 7, "message": "x", "data": "y"}},
        {"result": {}},
        {"result": {"supportedVersions": "all"}},
        {"result": {"supportedVersions": ["2025-06-18", 3]}},
        {"error": unsupported("2099-01-01", "2025-03-26")},
        {"result": {}, "error": NO_METHOD},
        {"result": []},
    ],
    ids=str,
)
def test_any_other_answer_to_discover_leads_to_initialize(answer: dict[str, Any]) -> None:
    served = Served()
    served.hear({"id": served.start()["id"], **answer})
    asked = served.last()
    assert asked["method"] == "initialize"
    served.hear({"id": asked["id"], "result": initialized()})
    assert era(served) == ("legacy", "2025-11-25")
    assert {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}} in served.written


def test_an_error_without_an_id_answers_the_only_question() -> None:
    served = Served()
    served.start()
    served.hear({"id": None, "error": NO_METHOD})
    assert served.last()["method"] == "initialize"


def test_the_newest_revision_of_those_supported_is_offered() -> None:
    served = Served()
    served.hear({"id": served.start()["id"], "error": unsupported("2024-11-05", "2025-06-18")})
    assert served.last()["params"]["protocolVersion"] == "2025-06-18"


def test_an_initialize_that_is_refused_is_tried_once_more_with_what_is_supported() -> None:
    served = Served(pin=EraPin.LEGACY)
    refused = {"code": -32602, "message": "no", "data": {"supported": ["2024-11-05"]}}
    served.hear({"id": served.start()["id"], "error": refused})
    asked = served.last()
    assert asked["params"]["protocolVersion"] == "2024-11-05"
    served.hear({"id": asked["id"], "error": refused})
    assert "2024-11-05" in failed(served)


@pytest.mark.parametrize("version", ["2099-01-01", "2026-07-28", None, 3])
def test_an_unknown_revision_fails_the_start_by_name(version: Any) -> None:
    served = Served(pin=EraPin.LEGACY)
    result = {**initialized(), "protocolVersion": version}
    served.hear({"id": served.start()["id"], "result": result})
    assert repr(version) in failed(served)


def test_a_server_that_supports_nothing_known_is_not_greeted_otherwise() -> None:
    served = Served()
    served.hear({"id": served.start()["id"], "error": unsupported("2099-01-01")})
    assert "2099-01-01" in failed(served)
    assert len(served.written) == 1


def test_a_second_of_silence_leads_to_initialize_and_more_of_it_fails() -> None:
    served = Served()
    served.start()
    assert [one.seconds for one in served.connection.waits] == [DISCOVER_S]
    served.wait_over()
    assert served.last()["method"] == "initialize"
    served.wait_over()
    assert failed(served) == "gave no answer to initialize in 10 s"


@pytest.mark.parametrize("first", ["server/discover", "initialize"])
def test_of_two_greetings_the_first_answer_that_agrees_counts(first: str) -> None:
    served = Served()
    served.start()
    served.wait_over()
    ids = {one["method"]: one["id"] for one in served.written}
    answers = {"server/discover": discovered(), "initialize": initialized()}
    (other,) = {*answers} - {first}
    served.hear({"id": ids[first], "result": answers[first]})
    served.hear({"id": ids[other], "result": answers[other]})
    assert era(served)[0] == ("modern" if first == "server/discover" else "legacy")


def test_a_slow_server_of_the_newer_era_may_refuse_the_older_greeting_first() -> None:
    served = Served()
    served.start()
    served.wait_over()
    ids = {one["method"]: one["id"] for one in served.written}
    served.hear({"id": ids["initialize"], "error": NO_METHOD})
    served.hear({"id": ids["server/discover"], "result": discovered()})
    assert era(served)[0] == "modern"


@pytest.mark.parametrize("late", [False, True])
def test_one_that_ends_on_discover_is_started_once_more_with_initialize(late: bool) -> None:
    memory: dict[str, Any] = {}
    served = Served(memory=memory)
    served.start()
    if late:
        served.wait_over()
    events = served.take(served.connection.process_exited(1))
    assert [type(one) for one in events] == [StartAgain]
    assert "so the next process is asked initialize" in str(events[0])
    second = Served(memory=memory)
    assert second.start()["method"] == "initialize"
    assert list(second.connection.process_exited(1)) == []
    assert Served(memory=memory).start()["method"] == "server/discover"


@pytest.mark.parametrize(
    ("result", "greeting"), [(discovered(), "server/discover"), (initialized(), "initialize")]
)
def test_what_was_agreed_is_remembered_and_forgotten_when_a_start_fails(
    result: dict[str, Any], greeting: str
) -> None:
    memory: dict[str, Any] = {}
    served = Served(memory=memory)
    served.start()
    served.wait_over()
    asked = next(one for one in served.written if one["method"] == greeting)
    served.hear({"id": asked["id"], "result": result})
    again = Served(memory=memory)
    assert again.start()["method"] == greeting
    assert [one.seconds for one in again.connection.waits] == [10]
    again.wait_over()
    assert failed(again)
    assert memory == {}


@pytest.mark.parametrize("answer", [{"error": NO_METHOD}, None])
def test_a_pinned_newer_era_is_asked_for_alone(answer: dict[str, Any] | None) -> None:
    served = Served(pin=EraPin.MODERN)
    asked = served.start()
    if answer is None:
        assert [one.seconds for one in served.connection.waits] == [10]
        served.wait_over()
    else:
        served.hear({"id": asked["id"], **answer})
    assert failed(served)
    assert [one["method"] for one in served.written] == ["server/discover"]
    assert list(served.connection.process_exited(0)) == []


def test_what_was_remembered_and_is_wrong_by_now_is_no_failure() -> None:
    older = Served(memory={"era": "legacy"})
    asked = older.start()
    assert asked["method"] == "initialize"
    older.hear({"id": asked["id"], "error": NO_METHOD})
    asked = older.written[-1]
    assert asked["method"] == "server/discover"
    older.hear({"id": asked["id"], "result": discovered()})
    assert era(older)[0] == "modern"
    newer = Served(memory={"era": "modern"})
    asked = newer.start()
    assert asked["method"] == "server/discover"
    newer.hear({"id": asked["id"], "error": NO_METHOD})
    assert newer.written[-1]["method"] == "initialize"


@pytest.mark.parametrize(
    ("era", "greeting"), [("legacy", "server/discover"), ("modern", "initialize")]
)
def test_one_that_ends_for_what_was_remembered_is_greeted_otherwise_in_a_second_process(
    era: str, greeting: str
) -> None:
    memory: dict[str, Any] = {"era": era}
    served = Served(memory=memory)
    served.start()
    assert [type(one) for one in served.take(served.connection.process_exited(1))] == [StartAgain]
    assert Served(memory=memory).start()["method"] == greeting


@pytest.mark.parametrize("ready_server", [legacy, modern])
def test_a_handshake_that_succeeded_is_the_last_one_of_its_process(ready_server: Any) -> None:
    served = ready_server()
    served.unread()
    served.take(served.connection.ask(health("h1")))
    served.hear({"id": "h1", "error": {"code": -32002, "message": "not initialized"}})
    served.ask("r1")
    served.hear({"id": "r1", "error": {"code": -32600, "message": "initialize first"}})
    served.ask("r2")
    served.take(served.connection.cancel("r2", Written.ALL))
    served.hear(
        {"id": None, "error": unsupported("2024-11-05")},
        {"id": served.written[0]["id"], "error": unsupported("2024-11-05")},
        {"id": served.written[0]["id"], "result": initialized()},
        {"method": "notifications/tools/list_changed"},
    )
    asked = [one["method"] for one in served.unread() if one.get("id") != served.ids["h1"]]
    assert not {"initialize", "server/discover", "notifications/initialized"} & {*asked}
    assert served.connection.waits == ()
    again = [one for one in served.connection.process_exited(1) if isinstance(one, StartAgain)]
    assert again == []


def test_one_that_refuses_both_greetings_fails_though_it_is_remembered() -> None:
    served = Served(memory={"era": "legacy"})
    asked = served.start()
    served.hear({"id": asked["id"], "error": NO_METHOD})
    served.hear({"id": served.written[-1]["id"], "error": NO_METHOD})
    assert failed(served)
