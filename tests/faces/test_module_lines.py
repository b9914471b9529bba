"""Events as a client gets them: the module's own lines, wherever nothing was changed in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faces.lines import Client, request
from tests.faces.running import running
from tests.system.descriptors import actor, script

LOG = '{"type": "log", "level":"info",  "message":"m\\u00fc", "x-new": [1.50, {"requestId":"r9"}]}'
LOG = LOG.replace("{", '{"version":"0", ', 1)
DONE = '{"version":"0","type":"done","ok":true}'


def said_by(folder: Path, dialect: str, lines: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a module of a dialect, and the input that has it say these lines."""
    if dialect == "narratoria":
        (folder / "said").write_text("".join(f"{one}\n" for one in lines), newline="")
        return script(f"cat {folder}/said"), {"op": "go", "args": {}}
    module = actor()
    module["transport"]["cwd"] = str(folder)
    return module, {"op": "say", "args": {"lines": lines}}


async def told(
    folder: Path, lines: list[str], *, dialect: str = "module", request_id: str | None = "mine"
) -> list[bytes]:
    """Return the lines that a client gets before the answer, without their ends."""
    module, content = said_by(folder, dialect, lines)
    async with running(module) as daemon, daemon.lines() as client:
        await client.send(request(request_id, "m", **content))
        return await until_done(client)


async def until_done(client: Client) -> list[bytes]:
    found: list[bytes] = []
    while (line := await client.raw_line()) is not None:
        if json.loads(line)["type"] == "done":
            return found
        found.append(line)
    raise AssertionError("the connection ended before the answer")


@pytest.mark.parametrize("dialect", ["module", "narratoria"])
@pytest.mark.parametrize(
    "line",
    [
        '{"version":"0","type":"log","level":"info","message":"a"}',
        '{ "version": "0", "type": "log" , "message":"\\u00e9\\n", "level":"info" }',
        '{"type":"error","version":"0","errorMessage":"{","errorCode":"e","details":{"n":1E2}}',
        '{"version":"0","type":"ui_event","event":"message.chunk","payload":{"content":"x" }}',
        '{"version":"0","type":"ui_event","event":"tool.call_start","payload":{"tool_name":"x" }}',
        '{"version":"0","type":"state_patch","patch":{"a":  1}}',
    ],
)
async def test_a_line_without_an_id_is_passed_on_to_the_letter(
    tmp_path: Path, dialect: str, line: str
) -> None:
    (found,) = await told(tmp_path, [line, DONE], dialect=dialect)
    assert found == b'{"requestId":"mine",' + line[1:].encode()
    (found,) = await told(tmp_path, [line, DONE], dialect=dialect, request_id=None)
    assert found == line.encode()


async def test_an_id_is_replaced_where_it_stands(tmp_path: Path) -> None:
    body = r"""
    id=$(sed -E 's/.*"requestId":"([^"]*)".*/\1/')
    echo '{"version": "0", "requestId": "'$id'", "type": "log", "level": "info", "message": "m"}'
    echo '{"version":"0","type":"ui_event","event":"agent.thinking","payload":{"content":"{"},'\
'"requestId":"'$id'"}'
    echo '{"version":"0","type":"done","ok":true}'
    """
    async with running(script(body)) as daemon, daemon.lines() as client:
        await client.send(request('"', "m", op="go", args={}))
        log, thought = await until_done(client)
    level = b'"level": "info", "message": "m"}'
    assert log == rb'{"version": "0", "requestId": "\"", "type": "log", ' + level
    event = b'{"version":"0","type":"ui_event","event":"agent.thinking"'
    assert thought == event + rb',"payload":{"content":"{"},"requestId":"\""}'


@pytest.mark.parametrize("dialect", ["module", "narratoria"])
@pytest.mark.clause("N001-8-d")
async def test_fields_that_the_daemon_does_not_know_get_to_the_client(
    tmp_path: Path, dialect: str
) -> None:
    (found,) = await told(tmp_path, [LOG, DONE], dialect=dialect)
    assert json.loads(found) == {**json.loads(LOG), "requestId": "mine"}
    assert b"1.50" in found


@pytest.mark.parametrize("dialect", ["module", "narratoria"])
async def test_what_stands_around_a_line_does_not_get_to_the_client(
    tmp_path: Path, dialect: str
) -> None:
    bare = '{"version":"0","type":"log","level":"info","message":"m"}'
    around = [
        "\ufeff" * (dialect == "narratoria") + bare,
        f" \t{bare} \r",
        bare.replace(",", ",\r"),
    ]
    found = await told(tmp_path, [*around, DONE], dialect=dialect)
    expected = b'{"requestId":"mine",' + bare[1:].encode()
    assert found == [expected, expected, expected.replace(b",", b", ").replace(b", ", b",", 1)]


async def test_an_event_that_was_changed_is_encoded_anew(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    shared = {"version": "0", "x-new": 1, "placeholder": "trust me", "registered": {"id": "x"}}
    asset = {"type": "asset", "assetId": "a", "kind": "k", "mediaType": "text/plain", "path": "f"}
    events = [{**shared, "type": "ui_event", "event": "unheard"}, {**shared, **asset}]
    lines = [*map(json.dumps, events), DONE]
    shown, handed = map(json.loads, await told(tmp_path, lines))
    assert shown["placeholder"].startswith("['unheard' cannot be shown")
    assert handed["path"] == str(tmp_path / "f")
    assert handed.get("registered") != {"id": "x"}
    assert "x-new" not in shown.keys() | handed.keys()


async def test_what_only_the_host_says_cannot_be_said_by_a_module(tmp_path: Path) -> None:
    patch = '{"version":"0","type":"state_patch","patch":{},"revision":7,"x-new":1}'
    asked = '{"version":"0","type":"ui_event","event":"message.chunk","approval":"a1",'
    asked += '"payload":{"content":"yes?"},"placeholder":"trust me","x-new":1}'
    found = [json.loads(one) for one in await told(tmp_path, [patch, asked, DONE])]
    assert [one["x-new"] for one in found] == [1, 1]
    for one in found:
        assert not {"revision", "approval", "placeholder"} & one.keys()


async def test_a_line_cannot_name_another_request_of_the_client(tmp_path: Path) -> None:
    event = '"version":"0","type":"log","level":"info","message":"m"'
    spellings = [
        rf'{{{event},"\u0072equestId":"ID","fields":{{"requestId":"theirs"}}}}',
        rf'{{{event},"requestId":"theirs","requestId":"ID"}}',
        rf'{{{event},"requestId":"ID","REQUESTID":"theirs"}}',
        rf'{{"x":{{"requestId":"theirs"}},{event},"requestId" : "ID"}}',
    ]
    (tmp_path / "said").write_text("".join(f"{one}\n" for one in spellings))
    body = f"""
    id=$(sed -E 's/.*"requestId":"([^"]*)".*/\\1/')
    sed "s/ID\\"/$id\\"/" {tmp_path}/said
    echo '{DONE}'
    """
    async with running(script(body)) as daemon, daemon.lines() as client:
        await client.send(request("mine", "m", op="go", args={}))
        found = await until_done(client)
    assert len(found) == len(spellings)
    for line in found:
        named = [
            value
            for name, value in json.loads(line, object_pairs_hook=list)
            if name.casefold() == "requestid"
        ]
        assert named == ["mine"]
