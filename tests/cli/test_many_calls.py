"""`invoke --stdin`: a call for each line, over one connection."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, log, not_ok, ok


def double(frame: Frame) -> list[Frame | bytes]:
    args = frame["input"]["args"]
    if "n" not in args:
        return [not_ok("bad_request", "n is missing")]
    return [log("at work"), ok(args["n"] * 2)]


def test_each_line_is_answered_by_one_in_its_order_over_one_connection(
    run: Run, serve: Serve
) -> None:
    daemon = serve(double)
    ended = run("invoke", "m", "double", "--stdin", "by:=1", input='{"n":1}\n\n{"n":2}')
    assert [json.loads(one)["result"] for one in ended.stdout.splitlines()] == [2, 4]
    assert ended.stderr == "info   at work\ninfo   at work\n"
    assert ended.exit_code == 0
    assert [one["requestId"] for one in daemon.frames] == ["c1", "c2"]
    assert daemon.frames[0]["input"] == {"op": "double", "args": {"by": 1, "n": 1}}


def test_what_is_wrong_with_one_line_is_its_answer_and_the_others_go_on(
    run: Run, serve: Serve
) -> None:
    serve(double)
    ended = run("invoke", "m", "double", "--stdin", input='{}\n[1]\n{"n":\n{"n":3}\n')
    refused, no_object, cut, well = map(json.loads, ended.stdout.splitlines())
    assert ended.exit_code == 1
    assert refused["error"]["message"] == "n is missing"
    assert no_object["error"]["code"] == "bad_request"
    assert no_object["error"]["details"] == {"reason": "malformed_request", "origin": "host"}
    assert "line 2 of stdin: is an array, must be one JSON object" in no_object["error"]["message"]
    assert cut["error"]["message"].startswith("line 3 of stdin: the JSON ends in the middle")
    assert (no_object["module"], no_object["op"]) == ("m", "double")
    assert well["result"] == 6


def test_with_json_the_events_are_lines_too(run: Run, serve: Serve) -> None:
    serve(double)
    ended = run("invoke", "m", "double", "--stdin", "--json", input='{"n":1}')
    event, response = map(json.loads, ended.stdout.splitlines())
    assert (event["message"], response["result"], ended.stderr) == ("at work", 2, "")


@pytest.mark.parametrize("other", [("--args", "-"), ("--descriptor", __file__)])
def test_what_needs_stdin_or_no_daemon_does_not_go_with_it(
    run: Run, other: tuple[str, str]
) -> None:
    ended = run("invoke", "m", "double", "--stdin", *other)
    assert ended.exit_code == 2
    assert "do not go together" in ended.stderr
