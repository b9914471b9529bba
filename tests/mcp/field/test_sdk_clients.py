"""The SDKs' clients, as they are, on servers as users have met them.

An SDK reads strictly, and validates results against output schemas; what it raises, its user can't
get at. So a host has to say what the SDK takes, and what it can't mend as an error in words.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import pytest

from tests.bounds import until
from tests.field.servers import LINES, PNG, RESULTS, schemas
from tests.mcp.field.conftest import RENEWED_S, SdkClient
from tests.mcp.field.more_servers import PAUSE_S, Dying, Extended, Many
from tests.mcp.servers import needs_servers

pytestmark = [needs_servers, pytest.mark.bound(300)]

NO_CONTENT = "has an output schema but did not return structured content"

ARGUMENTS = {"anyof_top": {"a": "x"}, "anyof_notype": {"a": "x"}, "draft07_tuple": {"p": ["x", 1]}}
"""For tools that need any."""


def text(outcome: Any) -> str:
    """Return the text of a call that went well."""
    assert outcome.get("isError") is False, outcome
    return str(outcome["content"][0]["text"])


def raised(outcome: Any) -> str:
    assert isinstance(outcome, dict), outcome
    return str(outcome["raised"])


def named(names: Any, outcomes: list[Any]) -> dict[str, Any]:
    return dict(zip(names, outcomes, strict=True))


def test_one_odd_tool_costs_no_client_the_list_and_each_tool_is_called(sdk: SdkClient) -> None:
    names = [one["name"] for one in schemas.tools]
    listed, *called = sdk(
        "schemas", ["tools"], *(["call", one, ARGUMENTS.get(one, {})] for one in names)
    )
    assert listed == names
    failed = {name: one for name, one in named(names, called).items() if one.get("isError", True)}
    # A server that has an output schema owes what it describes: an SDK raises without.
    for one in [one["name"] for one in schemas.tools if "outputSchema" in one]:
        assert NO_CONTENT in failed.pop(one, {}).get("raised", NO_CONTENT)
    assert failed == {}


def test_a_list_is_one_page_while_it_fits(sdk: SdkClient) -> None:
    (listed,) = sdk("many", ["tools"])
    assert listed == [one["name"] for one in Many.tools]


def test_no_client_raises_for_a_result_that_can_be_passed_on(sdk: SdkClient) -> None:
    # First the list: an SDK validates against the output schemas that it has seen.
    _, *called = sdk("results", ["tools"], *(["call", one] for one in RESULTS))
    found = named(RESULTS, called)
    assert {name: one for name, one in found.items() if "raised" in one} == {}
    assert text(found["structured_null"]) == "t"
    assert text(found["iserror_null"]) == "fine"
    assert text(found["nul"]) == "a\0b"
    assert found["empty_and_structured"]["structuredContent"] == {"total": 36}
    assert found["image_data_url"]["content"][0]["data"] == PNG
    for name in ("iserror_structured", "iserror_empty", "bare_string", "bare_null", "bare_list"):
        assert found[name]["isError"], name
        # A failure without a word is shown as one all the same.
        assert found[name]["content"] or name == "iserror_empty", name


def test_a_result_that_its_own_output_schema_refuses_is_the_servers_fault(sdk: SdkClient) -> None:
    names = ("out_missing", "out_mismatch", "out_error")
    _, *called = sdk("results", ["tools"], *(["call", one] for one in names))
    found = named(names, called)
    # As expected: each of the SDKs validates, and raises.
    assert NO_CONTENT in raised(found["out_missing"])
    assert "'a'" in raised(found["out_mismatch"])
    assert found["out_error"]["isError"]
    assert found["out_error"]["content"][0]["text"] == "real reason"


@pytest.mark.parametrize("kind", ["zero", "parse", "exit"])
def test_a_server_that_takes_whole_numbers_as_ids_is_served(sdk: SdkClient, kind: str) -> None:
    listed, called = sdk(f"intids-{kind}", ["tools"], ["call", "echo", {"a": 1}])
    assert listed == ["echo"]
    assert '"a": 1' in text(called)


WELL = {
    "u2028": "a\u2028b\u2029c\u0085d\x7f",
    "string_id": "id as given",
    "error_null": "error null",
    "crlf": "crlf",
    "bom": "bom",
    "duplicate": "first",
}
"""What each of these lines says."""

NAMELESS = {"pretty", "error_nullid"}
"""Lines of which none names the request that it answers."""


def test_a_line_that_names_its_request_is_answered_and_not_by_a_deadline(sdk: SdkClient) -> None:
    names = [name for name in LINES if name not in NAMELESS]
    found = named(names, sdk("lines", *(["call", name] for name in names)))
    assert {name: one for name, one in found.items() if "gave no answer in" in str(one)} == {}
    assert {name: text(found[name]) for name in WELL} == WELL
    assert "Content-Length" in str(found["framed"]) or text(found["framed"]) == "lsp"
    for name in ("error_string", "error_nocode", "error_strcode", "result_null"):
        assert found[name].get("raised") or found[name]["isError"], name


def test_a_call_is_answered_while_another_one_runs(sdk: SdkClient) -> None:
    (found,) = sdk("parallel", ["together", ["held"], ["release"]])
    assert found["order"] == ["release", "held"], found
    assert [text(one) for one in found["outcomes"]] == ["held", "release"]


def test_progress_renews_the_bound_on_a_call(sdk: SdkClient) -> None:
    steps = round(1.2 * RENEWED_S / PAUSE_S)
    (found,) = sdk("working", ["progress", "work", {"steps": steps}])
    assert text(found) == "worked"
    assert found["progress"] == list(range(1, steps + 1))


def test_two_resources_with_one_uri_are_both_listed_and_readable(sdk: SdkClient) -> None:
    uris, prompts = sdk("resources", ["resources"], ["prompts"])
    assert len(prompts) == len(set(prompts)) == 2, prompts
    assert len(uris) == len(set(uris)) == 2, uris
    assert "config://app" in uris
    read = sdk("resources", *(["read", uri] for uri in uris))
    assert sorted(read) == [["from one"], ["from two"]]


def test_a_uri_that_nobody_lists_is_an_error(sdk: SdkClient) -> None:
    unknown, of_a_template = sdk("resources", ["read", "nothing://x"], ["read", "db://t"])
    assert "nothing://x" in raised(unknown)
    assert of_a_template in (["from one"], ["from two"])


def test_a_change_of_a_list_is_told(sdk: SdkClient) -> None:
    before, _, listed = sdk("changing", ["tools"], ["call", "add"], ["changed"])
    assert listed == [*before, f"t{len(before)}"]


def test_a_tool_that_was_just_announced_is_called_at_once(sdk: SdkClient) -> None:
    (before,) = sdk("announcing", ["tools"])
    new = f"t{len(before)}"
    _, _, called, listed = sdk("announcing", ["tools"], ["call", "add"], ["call", new], ["tools"])
    assert text(called) == new
    assert new in listed


def test_a_server_that_ended_while_idle_is_started_by_the_next_call(sdk: SdkClient) -> None:
    (called,) = sdk("idle_exit", ["call", "echo"])
    text(called)
    for one in sdk.daemon.status("idle_exit")["instances"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one["pid"], signal.SIGALRM)  # that for which it waits two seconds
    until(lambda: not sdk.daemon.status("idle_exit")["instances"], "the end of the server")
    assert sdk.daemon.status("idle_exit")["state"] == "down"
    listed, called = sdk("idle_exit", ["tools"], ["call", "echo"])
    assert listed == ["echo"]
    text(called)


def test_tools_that_a_server_does_not_announce_are_listed(sdk: SdkClient) -> None:
    listed, called = sdk("silent", ["tools"], ["call", "echo"])
    assert listed == ["echo"]
    text(called)


def test_what_a_server_announces_beyond_the_protocol_is_passed_on(sdk: SdkClient) -> None:
    (found,) = sdk("extended", ["capabilities"])
    assert found["experimental"] == Extended.capabilities["experimental"]


def test_a_list_without_its_only_server_says_why_it_died(sdk: SdkClient) -> None:
    (listed,) = sdk("dying", ["tools"])
    assert Dying.REASON in raised(listed)


def test_a_call_right_after_a_crash_waits_for_the_next_process(sdk: SdkClient) -> None:
    crashed, called = sdk("crashing", ["call", "crash"], ["call", "echo"])
    assert crashed["isError"]
    assert text(called) == "echo"
