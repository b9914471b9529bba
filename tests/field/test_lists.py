"""Lists of MCP servers that share names, change, are late, or are not what their servers say."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.field.conftest import Connect, server
from tests.field.mcp_client import NEWER, OLDER, McpClient
from tests.system.daemon import Daemon
from tests.system.descriptors import descriptor

Host = Callable[..., Daemon]

SERVERS = Path(__file__).with_name("list_servers.py")
ERAS = pytest.mark.parametrize("revision", [NEWER, OLDER])
UPDATED = "notifications/resources/updated"
LISTEN, ACKNOWLEDGED = "subscriptions/listen", "notifications/subscriptions/acknowledged"


def odd(*words: str, name: str = "", **supervision: Any) -> dict[str, Any]:
    """Return the descriptor of one of `list_servers.py`."""
    command = [sys.executable, "-I", "-S", str(SERVERS), *words]
    return descriptor(name or words[0], command, protocol="mcp", supervision=supervision)


def library(name: str, *uris: str, templates: tuple[str, ...] = ()) -> dict[str, Any]:
    return odd("library", name, json.dumps(uris), json.dumps(templates), name=name)


def read(client: McpClient, uri: str) -> Any:
    return client.ask("resources/read", {"uri": uri})["contents"]


def refused(client: McpClient, method: str, **params: Any) -> Any:
    answer = client.answer(client.send(method, params))
    assert "error" in answer, answer
    return answer["error"]


def resources(client: McpClient) -> dict[str, Any]:
    return {one["uri"]: one for one in client.ask("resources/list")["resources"]}


def templates(client: McpClient) -> dict[str, Any]:
    found = client.ask("resources/templates/list")["resourceTemplates"]
    return {one["uriTemplate"]: one for one in found}


# Two resources with one URI.


@ERAS
def test_each_of_three_servers_with_one_uri_can_be_read(
    host: Host, connect: Connect, revision: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("one", "two", "three")
    daemon = host(*(server("resources", one, name=one) for one in words))
    client = connect(daemon, revision=revision)
    listed = resources(client)
    assert {uri: one["name"] for uri, one in listed.items()} == {
        "config://app": "config of one",
        "stdiod://modules/three/config://app": "config of three",
        "stdiod://modules/two/config://app": "config of two",
    }
    assert "description" not in listed["config://app"]
    assert (
        "another one has config://app" in listed["stdiod://modules/two/config://app"]["description"]
    )
    for uri, one in listed.items():
        assert read(client, uri) == [{"uri": uri, "text": one["name"].replace("config of", "from")}]
    by_pattern = templates(client)
    assert [one.replace("{table}", "x") for one in by_pattern] == [
        "db://x",
        "stdiod://modules/three/db://x",
        "stdiod://modules/two/db://x",
    ]
    assert read(client, "db://a%2Fb%20c") == [{"uri": "db://a%2Fb%20c", "text": "from one"}]
    uri = "stdiod://modules/two/db://a%2Fb%20c"
    assert read(client, uri) == [{"uri": uri, "text": "from two"}]
    assert "another has them" in capfd.readouterr().err


ODD_URIS = ("notes", "ü://ß é", "a%20b://c?x=1#y", "..", "stdiod://modules/two/x", "mailto:a@b")


@ERAS
def test_uris_of_any_form_are_listed_and_read_under_the_names_of_their_modules(
    host: Host, connect: Connect, revision: str
) -> None:
    named = "zwei ü/x".replace("/", "%")
    client = connect(host(library("one", *ODD_URIS), library(named, *ODD_URIS)), revision=revision)
    listed = resources(client)
    assert len(listed) == 2 * len(ODD_URIS)
    for uri, one in listed.items():
        own = next(each for each in ODD_URIS if uri.endswith(each))
        who = one["name"].removeprefix("of ")
        contents = [{"uri": uri, "text": f"{who}: {own}"}, {"uri": f"{uri}/below", "text": "below"}]
        assert read(client, uri) == contents
    (alias,) = (uri for uri in listed if uri.endswith("/..") and listed[uri]["name"] != "of one")
    assert alias == "stdiod://modules/zwei%20%C3%BC%25x/.."


@ERAS
def test_no_server_takes_the_place_of_another_by_naming_a_resource_as_the_daemon_does(
    host: Host, connect: Connect, revision: str
) -> None:
    forged = ("stdiod://modules/two/a://b", "stdiod://assets/1", "stdiod://results/1")
    daemon = host(library("evil", "a://b", *forged), library("two", "a://b"))
    client = connect(daemon, revision=revision)
    assert list(resources(client)) == [
        "a://b",
        *(f"stdiod://modules/evil/{one}" for one in forged),
        forged[0],
    ]
    assert read(client, forged[0])[0]["text"] == "two: a://b"
    own = f"stdiod://modules/evil/{forged[1]}"
    assert read(client, own)[0] == {"uri": own, "text": f"evil: {forged[1]}"}


def test_a_module_that_has_a_uri_keeps_it_when_another_one_comes(
    host: Host, connect: Connect
) -> None:
    daemon = host(library("middle", "a://b"))
    client = connect(daemon)
    assert list(resources(client)) == ["a://b"]
    path = daemon.modules / "first.json"
    path.write_text(json.dumps(library("first", "a://b")))
    daemon.op("reload")
    client.told("notifications/resources/list_changed")
    assert list(resources(client)) == ["stdiod://modules/first/a://b", "a://b"]
    assert read(client, "a://b")[0]["text"] == "middle: a://b"


def test_a_view_of_one_server_shows_its_uris_as_they_are(host: Host, connect: Connect) -> None:
    client = connect(host(library("one", *ODD_URIS[:4], templates=("db://{a}", "x{+y}"))))
    assert list(resources(client)) == list(ODD_URIS[:4])
    assert templates(client)["db://{a}"] == {"uriTemplate": "db://{a}", "name": "one"}


def test_updates_of_a_resource_come_under_the_name_that_was_followed(
    host: Host, connect: Connect
) -> None:
    daemon = host(library("one", "a://b"), library("two", "a://b"), prefix=True)
    alias = "stdiod://modules/two/a://b"
    older = connect(daemon)
    older.ask("resources/subscribe", {"uri": alias})
    older.call("one__touch", uri="a://b")  # which it does not follow
    older.call("two__touch", uri="a://b/c")
    assert older.told(UPDATED) == {"uri": f"{alias}/c"}
    newer = connect(daemon, revision=NEWER)
    newer.send(LISTEN, {"notifications": {"resourceSubscriptions": ["a://b", alias]}})
    told = newer.told(ACKNOWLEDGED)["notifications"]["resourceSubscriptions"]
    assert set(told) == {"a://b", alias}
    for module, uri in (("two", alias), ("one", "a://b")):
        newer.call(f"{module}__touch", uri="a://b")
        assert newer.told(UPDATED)["uri"] == uri


@ERAS
def test_completion_asks_the_server_of_the_template_by_its_own_name(
    host: Host, connect: Connect, revision: str
) -> None:
    both = ("db://{table}",)
    daemon = host(library("one", templates=both), library("two", templates=both))
    client = connect(daemon, revision=revision)
    for uri, module in (("db://{table}", "one"), ("stdiod://modules/two/db://{table}", "two")):
        asked = {
            "ref": {"type": "ref/resource", "uri": uri},
            "argument": {"name": "table", "value": "u"},
        }
        found = client.ask("completion/complete", asked)["completion"]["values"]
        assert found == [f"{module}: db://{{table}}"]


# A URI that nobody lists.


@ERAS
def test_a_uri_that_nobody_lists_is_an_error_that_names_the_nearest(
    host: Host, connect: Connect, revision: str
) -> None:
    client = connect(
        host(library("one", "config://app"), library("two", "notes://all")), revision=revision
    )
    for uri, hint in (("config://apq", "; did you mean 'config://app'?"), ("far://away", "")):
        error = refused(client, "resources/read", uri=uri)
        assert error["code"] == -32602
        assert error["message"] == f'there is no resource "{uri}"{hint}'
        assert error["data"] == {"uri": uri}
    error = refused(client, "resources/read", uri="stdiod://modules/three/config://app")
    assert error["code"] == -32602


def test_the_only_server_that_lists_nothing_is_asked_for_what_nobody_lists(
    host: Host, connect: Connect
) -> None:
    client = connect(host(library("one", "a://b"), library("silent")))
    assert read(client, "far://away")[0]["text"] == "silent: far://away"
    error = refused(client, "resources/read", uri="gone://away")
    assert error == {"code": -32002, "message": "silent has no gone://away"}


def test_of_two_servers_that_list_nothing_none_is_asked_unless_it_is_named(
    host: Host, connect: Connect
) -> None:
    client = connect(host(library("one"), library("two")))
    assert refused(client, "resources/read", uri="far://away")["code"] == -32602
    uri = "stdiod://modules/two/far://away"
    assert read(client, uri)[0] == {"uri": uri, "text": "two: far://away"}


# Tools that come.


GROWING = [
    ("growing",),
    ("growing", "slowly"),
    ("growing", "failing"),
    ("growing", "quiet"),
    ("growing", "early"),
    ("growing", "lasting"),
    ("newer",),
    ("newer", "deaf"),
    ("newer", "named"),
]


@ERAS
@pytest.mark.parametrize("words", GROWING, ids=" ".join)
def test_a_tool_that_has_just_come_is_called_at_once(
    host: Host, connect: Connect, words: tuple[str, ...], revision: str
) -> None:
    client = connect(host(odd(*words)), revision=revision)
    assert list(client.tools()) == ["add"]
    assert client.text("add") == "added"
    assert client.text("t1").startswith("t1")
    assert client.call("nothing")["error"]["code"] == -32602


@pytest.mark.parametrize("words", GROWING, ids=" ".join)
def test_an_op_that_has_just_come_is_invoked_at_once(host: Host, words: tuple[str, ...]) -> None:
    daemon = host(odd(*words))
    daemon.invoke(words[0], "add")
    answer = daemon.invoke(words[0], "t1")
    assert answer.ok, answer.error
    failure = daemon.invoke(words[0], "addd").error
    assert failure["code"] == "unsupported_op"
    assert failure["message"] == f"{words[0]} has no op 'addd'; did you mean 'add'?"


def test_a_tool_of_several_servers_without_prefix_is_found_when_it_has_come(
    host: Host, connect: Connect
) -> None:
    daemon = host(server("plain"), odd("growing", "quiet"), server("slow"))
    client = connect(daemon)
    client.tools()
    client.call("add")
    assert client.text("t1").startswith("t1")


@ERAS
def test_an_unknown_tool_of_a_server_that_lists_no_more_is_refused_in_time(
    host: Host, connect: Connect, revision: str
) -> None:
    client = connect(host(odd("growing", "mute")), revision=revision)
    client.call("add")
    numbers = [client.send("tools/call", {"name": f"x{one}"}) for one in range(12)]
    for one in numbers:
        assert client.answer(one)["error"]["code"] == -32602
    assert client.text("add") == "added"


def test_a_flood_of_unknown_ops_does_not_flood_the_server(host: Host, connect: Connect) -> None:
    daemon = host(odd("growing", "quiet"))
    client = connect(daemon)
    client.tools()
    numbers = [client.send("tools/call", {"name": f"x{one}"}) for one in range(300)]
    assert {client.answer(one)["error"]["code"] for one in numbers} == {-32602}
    for one in range(100):
        assert not daemon.invoke("growing", f"x{one}").ok
    for name in ("t1", "t2"):
        client.call("add")
        assert int(client.text(name).split()[2]) < 100  # one a second, and one after each call


def test_an_op_is_not_looked_up_while_its_list_lasts(host: Host) -> None:
    daemon = host(odd("growing", "quiet", "lasting"))
    daemon.invoke("growing", "add")
    assert daemon.invoke("growing", "t1").error["code"] == "unsupported_op"


# Lists that are not what the server says.


@pytest.mark.parametrize(
    "said",
    [{"capabilities": {}}, {"capabilities": None}, {}, {"capabilities": {"experimental": {}}}],
    ids=str,
)
@ERAS
def test_a_server_that_announces_nothing_and_has_tools_is_listed_with_a_word(
    host: Host, connect: Connect, said: dict[str, Any], revision: str
) -> None:
    daemon = host(odd("unannounced", json.dumps(said)))
    client = connect(daemon, revision=revision)
    assert list(client.tools()) == ["echo"]
    assert "echo" in client.text("echo")
    log = (daemon.data_dir / "logs" / "unannounced.log").read_text()
    assert "announces no capabilities and has tools" in log


def test_a_server_that_announces_nothing_and_has_nothing_is_up(
    host: Host, connect: Connect
) -> None:
    daemon = host(odd("nothing", '{"capabilities": {}}'))
    assert daemon.status("nothing")["state"] == "ready"
    assert connect(daemon).tools() == {}


# Servers that died.


@pytest.mark.parametrize("limits", [{}, {"intensity": 1}, {"restart": "temporary"}], ids=str)
@ERAS
def test_a_list_of_a_server_that_died_says_so_with_its_last_words(
    host: Host, connect: Connect, limits: dict[str, Any], revision: str
) -> None:
    client = connect(host(odd("dying", **limits)), revision=revision)
    for method in ("tools/list", "prompts/list", "resources/list"):
        message = refused(client, method)["message"]
        assert message.startswith("there is nothing to list: dying "), message
        assert "exited with code 3" in message
        assert "; its last line on stderr: Error: no API key" in message


def test_a_call_in_the_second_of_a_backoff_waits_for_the_server(
    host: Host, connect: Connect, tmp_path: Path
) -> None:
    daemon = host(odd("mortal", str(tmp_path / "ends"), intensity=50))
    client = connect(daemon)
    client.tools()
    for _ in range(3):
        assert client.call("die")["result"]["isError"]
    assert "echo" in client.text("echo")


def test_a_call_in_a_backoff_learns_what_the_next_start_died_of(
    host: Host, connect: Connect, tmp_path: Path
) -> None:
    ends = tmp_path / "ends"
    daemon = host(odd("mortal", str(ends), intensity=50))
    client = connect(daemon)
    client.tools()
    client.call("die")
    daemon.op("wait", modules=["mortal"])
    ends.touch()
    client.call("die")
    result = client.call("echo")["result"]
    assert result["isError"]
    assert "Error: the file is there" in result["content"][0]["text"]


def test_a_call_in_a_longer_backoff_is_refused_with_the_time_of_the_next_try(
    host: Host, tmp_path: Path
) -> None:
    long = {"initial_s": 600, "max_s": 600}
    daemon = host(odd("mortal", str(tmp_path / "ends"), intensity=50, backoff=long))
    for _ in range(2):
        daemon.op("wait", modules=["mortal"])
        assert not daemon.invoke("mortal", "die").ok
    daemon.op("wait", **{"for": "verdict"})
    failure = daemon.invoke("mortal", "echo").error
    assert failure["details"]["retry_in_s"] > 1
