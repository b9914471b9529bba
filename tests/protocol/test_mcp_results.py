from __future__ import annotations

from typing import Any

import pytest

from protocol.dialects.mcp.calls import failure_of
from protocol.errors import Code, Failure, Reason, Success
from protocol.events import Asset
from protocol.host_events import RegisteredAsset, Registration
from protocol.jsonrpc import RpcError
from protocol.mcp_server.client import McpRequestError
from protocol.mcp_server.results import (
    ERROR_META,
    contents,
    embed,
    embedded,
    own_error,
    tool_result,
)
from protocol.mcp_server.table import module_of_uri, own_uri, uri_of_module

TEXT = {"type": "text", "text": "hi"}


def asset(named: str) -> RegisteredAsset:
    known = Registration(id=f"id-{named}", bytes=3)
    return RegisteredAsset(
        version="0",
        asset_id=named,
        kind="image",
        media_type="image/png",
        path="/x",
        registered=known,
    )


def test_an_asset_that_is_registered_nowhere_is_the_event_as_it_was() -> None:
    unregistered = asset("a").unregistered()
    assert type(unregistered) is Asset
    assert unregistered == Asset(
        version="0", asset_id="a", kind="image", media_type="image/png", path="/x"
    )


def told(outcome: Success | Failure, *assets: RegisteredAsset, structured: bool = False) -> Any:
    return tool_result(outcome, assets, structured=structured)


@pytest.mark.parametrize(
    ("result", "content", "more"),
    [
        ("hi", [TEXT], {}),
        ({"a": 1}, [{"type": "text", "text": '{"a":1}'}], {"structuredContent": {"a": 1}}),
        ([1], [{"type": "text", "text": "[1]"}], {}),
        (None, [], {}),
        ({"content": [TEXT], "_meta": {"x": 1}}, [TEXT], {"_meta": {"x": 1}}),
        ({"content": "x"}, [{"type": "text", "text": '{"content":"x"}'}], None),
    ],
)
def test_a_result_becomes_content(result: Any, content: Any, more: Any) -> None:
    found = told(Success(result))
    assert found["content"] == content
    if more is not None:
        assert {key: value for key, value in found.items() if key != "content"} == more


def test_what_a_server_answered_stays_whole_though_its_structure_is_the_result() -> None:
    whole = {"content": [TEXT], "structuredContent": {"a": 1}, "_meta": {}}
    assert told(Success({"a": 1}, whole=whole)) == whole


def test_a_result_that_is_announced_is_structured_whatever_it_is() -> None:
    assert told(Success([1]), structured=True)["structuredContent"] == [1]


def test_what_a_tool_says_of_its_failure_stays_as_it_said_it() -> None:
    said = {"isError": True, "content": [TEXT]}
    assert told(Failure.reported(Code.INTERNAL, "hi", said, reason="reported")) == said


def test_a_failure_of_the_hosts_is_read_by_the_model_with_its_evidence() -> None:
    failure = Failure.because(Reason.EXITED, "m ended with 3", exit_code=3, stderr_tail=["boom"])
    found = told(failure)
    assert found["isError"] is True
    assert found["content"] == [{"type": "text", "text": "m ended with 3\nboom"}]
    assert found["_meta"][ERROR_META]["details"]["exit_code"] == 3


def test_a_servers_own_json_rpc_error_is_one_again() -> None:
    error = RpcError(-32050, "no", {"x": 1})
    with pytest.raises(McpRequestError) as refusal:
        told(failure_of(error))
    assert refusal.value.error == error
    assert own_error(failure_of(error)) == error


def test_files_that_belong_in_the_content_are_put_there_and_the_others_linked() -> None:
    image = {"type": "image", "mimeType": "image/png", "assetId": "image-1"}
    found = told(Success({"content": [image]}), asset("image-1"), asset("chart"))
    assert [one["type"] for one in found["content"]] == ["image", "resource_link"]
    assert found["content"][1]["uri"] == "stdiod://assets/id-chart"
    ((holder, field),) = embedded(found)
    embed(holder, field, b"png")
    assert found["content"][0] == {"type": "image", "mimeType": "image/png", "data": "cG5n"}


@pytest.mark.parametrize(
    ("media_type", "field"),
    [
        ("text/plain", "text"),
        ("text/x; a=b", "text"),
        (" Application/JSON ; charset=utf-8", "text"),
        ("application/xml", "text"),
        ("application/octet-stream", "blob"),
        ("image/png; name=text/plain", "blob"),
    ],
)
def test_a_file_of_text_is_told_as_text(media_type: str, field: str) -> None:
    data = b"abc"
    told = {"text": "abc", "blob": "YWJj"}
    found = contents("stdiod://a", media_type, data)
    assert found == {"uri": "stdiod://a", "mimeType": media_type, field: told[field]}
    assert "blob" in contents("stdiod://a", "text/plain", b"\xff")


def test_files_have_their_places_in_resources_and_messages_too() -> None:
    blob = {"uri": "x:y", "assetId": "file-1"}
    places = embedded(
        {
            "contents": [blob],
            "messages": [{"role": "user", "content": {"type": "resource", "resource": {**blob}}}],
            "content": [{"type": "text", "text": "x", "assetId": "no"}],
        }
    )
    assert [field for _, field in places] == ["blob", "blob"]


@pytest.mark.parametrize("uri", ["file:///a/b", "a", "", "stdiod://modules/other/x", "x:{y}/z"])
def test_a_resource_of_a_module_is_found_by_the_name_that_it_has_there(uri: str) -> None:
    told = uri_of_module("a b/c", uri)
    assert told == f"stdiod://modules/a%20b%2Fc/{uri}"
    assert module_of_uri(told) == ("a b/c", uri)
    assert own_uri(told) == uri


@pytest.mark.parametrize("uri", ["file:///a", "stdiod://modules/a", "x stdiod://modules/a/b"])
def test_another_uri_is_of_no_module(uri: str) -> None:
    assert module_of_uri(uri) is None
    assert own_uri(uri) == uri
