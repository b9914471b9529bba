"""The six servers answer through `stdiod mcp` and `/mcp` as they do directly, byte by byte.

Each is asked the same in the same order: by a client of its own, and by clients of the daemon, on
lines and over HTTP, in each era that it speaks. What it works on is laid out anew before each of
these. `_meta` is left out, and what docs/mcp-clients.md names: `OF_THE_ERA`, `NOT_THERE`.
"""

from __future__ import annotations

import base64
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.raw_clients import Members, OnLines, OverHttp, RawClient
from tests.mcp.servers import NAMES, command, document, environment, eras, needs_servers
from tests.system.conftest import StartDaemon, folder, start_daemon

__all__ = ["folder", "start_daemon"]

pytestmark = [needs_servers, pytest.mark.bound(300)]

Asked = tuple[str, dict[str, Any]]

TOOLS: Asked = ("tools/list", {})
PROMPTS: Asked = ("prompts/list", {})
RESOURCES: Asked = ("resources/list", {})
TEMPLATES: Asked = ("resources/templates/list", {})
LISTS = (PROMPTS, RESOURCES, TEMPLATES)


def call(name: str, /, **arguments: Any) -> Asked:
    return ("tools/call", {"name": name, "arguments": arguments})


def prompt(name: str, /, **arguments: str) -> Asked:
    return ("prompts/get", {"name": name, "arguments": arguments})


def read(uri: str) -> Asked:
    return ("resources/read", {"uri": uri})


def complete(ref: dict[str, str], name: str, value: str, **context: str) -> Asked:
    params = {"ref": ref, "argument": {"name": name, "value": value}}
    return (
        "completion/complete",
        {**params, "context": {"arguments": context}} if context else params,
    )


TEAM = {"type": "ref/prompt", "name": "completable-prompt"}
DYNAMIC = {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}
STRANGE = 'ä "\\" \u2028 \U0001f600 \x7f \t end'


def questions(name: str, at: Path, page: str) -> list[Asked]:
    """What a server is asked, that works on a folder; `page` is one that can be fetched."""
    repo, path, other = str(at / "repo"), str(at / "a.txt"), str(at / "b.txt")
    match name:
        case "time":
            asked = [
                call("get_current_time", timezone="UTC"),
                call("get_current_time", timezone="Europe/Warsaw"),
                call("get_current_time", timezone="Mars/Olympus"),
                call(
                    "convert_time",
                    source_timezone="UTC",
                    time="12:00",
                    target_timezone="Asia/Kolkata",
                ),
                call("convert_time", source_timezone="UTC", time="99:00", target_timezone="UTC"),
            ]
        case "git":
            asked = [
                call("git_status", repo_path=repo),
                call("git_log", repo_path=repo, max_count=5),
                call("git_show", repo_path=repo, revision="HEAD"),
                call("git_diff_unstaged", repo_path=repo),
                call("git_add", repo_path=repo, files=["new.txt"]),
                call("git_diff_staged", repo_path=repo, context_lines=1),
                call("git_commit", repo_path=repo, message=STRANGE),
                call("git_log", repo_path=repo),
                call("git_branch", repo_path=repo, branch_type="local"),
                call("git_create_branch", repo_path=repo, branch_name="side"),
                call("git_checkout", repo_path=repo, branch_name="side"),
                call("git_checkout", repo_path=repo, branch_name="--force"),
                call("git_show", repo_path=repo, revision="nowhere"),
                call("git_status", repo_path="/"),
            ]
        case "fetch":
            asked = [
                call("fetch", url=page),
                call("fetch", url=page, raw=True, max_length=20, start_index=5),
                call("fetch", url=f"{page}missing"),
                call("fetch", url="http://127.0.0.1:9/"),
                prompt("fetch", url=page),
                prompt("fetch", url=f"{page}missing"),
                prompt("fetch"),
            ]
        case "everything":
            asked = [
                call("echo", message="hi"),
                call("echo", message=STRANGE),
                call("get-sum", a=1, b=2),
                call("get-sum", a=0.1, b=1e21),
                call("get-structured-content", location="Chicago"),
                call("get-tiny-image"),
                call("get-annotated-message", messageType="error", includeImage=True),
                call("get-annotated-message", messageType="debug"),
                call("get-resource-links", count=3),
                call("get-resource-reference", resourceType="Blob", resourceId=1),
                call("get-resource-reference", resourceType="Text", resourceId=2),
                call("trigger-long-running-operation", duration=0.02, steps=2),
                call("simulate-research-query", topic="x"),
                call(
                    "gzip-file-as-resource",
                    name="x.gz",
                    data="data:text/plain,x",
                    outputType="resource",
                ),
                call("gzip-file-as-resource", name="y.gz", data="data:text/plain,y"),
                read("demo://resource/session/y.gz"),
                read("demo://resource/static/document/features.md"),
                read("demo://resource/dynamic/text/1"),
                read("demo://resource/dynamic/blob/2"),
                read("demo://resource/dynamic/text/x"),
                read("demo://resource/none"),
                prompt("simple-prompt"),
                prompt("args-prompt", city="Graz"),
                prompt("args-prompt", city="Graz", state=STRANGE),
                prompt("args-prompt"),
                prompt("resource-prompt", resourceType="Text", resourceId="1"),
                prompt("resource-prompt", resourceType="Blob", resourceId="1"),
                prompt("resource-prompt", resourceType="Odd", resourceId="1"),
                complete(TEAM, "department", "S"),
                complete(TEAM, "name", "", department="Sales"),
                complete(TEAM, "name", "x"),
                complete(DYNAMIC, "resourceId", "7"),
                complete(DYNAMIC, "resourceId", "no"),
            ]
        case "filesystem":
            asked = [
                call("write_file", path=path, content=f"one\n{STRANGE}\n"),
                call("read_file", path=path),
                call("read_text_file", path=path, head=1),
                call("read_text_file", path=path, tail=1),
                call("read_media_file", path=str(at / "dot.png")),
                call("read_media_file", path=path),
                call("read_multiple_files", paths=[path, other]),
                call("edit_file", path=path, edits=[{"oldText": "one", "newText": "two"}]),
                call("edit_file", path=path, edits=[{"oldText": "one", "newText": "two"}]),
                call("create_directory", path=str(at / "sub")),
                call("list_directory", path=str(at)),
                call("list_directory_with_sizes", path=str(at), sortBy="size"),
                call("directory_tree", path=str(at), excludePatterns=["repo"]),
                call("move_file", source=path, destination=other),
                call("search_files", path=str(at), pattern="*.txt"),
                call("list_allowed_directories"),
                call("read_text_file", path="/etc/passwd"),
                call("read_text_file", path=str(at / "missing")),
            ]
        case _:
            ada = {"name": "Ada", "entityType": "person", "observations": [STRANGE]}
            knows = {"from": "Ada", "to": "Ada", "relationType": "knows"}
            asked = [
                call("read_graph"),
                call("create_entities", entities=[ada]),
                call("create_relations", relations=[knows]),
                call("add_observations", observations=[{"entityName": "Ada", "contents": ["b"]}]),
                call("add_observations", observations=[{"entityName": "Bob", "contents": ["b"]}]),
                call("search_nodes", query="ada"),
                call("open_nodes", names=["Ada", "Bob"]),
                call(
                    "delete_observations", deletions=[{"entityName": "Ada", "observations": ["b"]}]
                ),
                read("memory://knowledge-graph"),
                call("delete_relations", relations=[knows]),
                call("delete_entities", entityNames=["Ada"]),
                call("read_graph"),
            ]
    return [TOOLS, *LISTS, *asked, *NOT_THERE]


NOT_THERE = [call("no-such-tool"), prompt("no-such"), ("no/such", {})]
"""What nobody has to be asked for: the daemon answers in words of its own."""

OF_THE_ERA = {"resultType", "ttlMs", "cacheScope"}
"""Each party of the newer era says these of its own answers."""

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def lay_out(at: Path) -> None:
    """Make the folder anew that the servers work on."""
    for path in at.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    git = ["git", "-C", str(at / "repo"), "-c", "user.name=a", "-c", "user.email=a@b"]
    (at / "repo").mkdir()
    (at / "dot.png").write_bytes(PIXEL)
    (at / "repo" / "old.txt").write_text("old\n", encoding="utf-8")
    env = {**os.environ, **environment(at)}
    for words in (
        ["init", "--quiet", "--initial-branch", "main"],
        ["config", "user.name", "a"],
        ["config", "user.email", "a@b"],
        ["add", "old.txt"],
        ["commit", "--quiet", "-m", "first"],
    ):
        subprocess.run([*git, *words], check=True, env=env)
    (at / "repo" / "old.txt").write_text("old\nand new\n", encoding="utf-8")
    (at / "repo" / "new.txt").write_text("new\n", encoding="utf-8")


PAGE = b"<p>word \xc3\xa4</p>\n" * 40


class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = self.path == "/"
        self.send_response(200 if found else 404)
        # HTML would be rewritten, by a Node for each page.
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(PAGE) if found else 0))
        self.end_headers()
        self.wfile.write(PAGE if found else b"")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


CLOCK = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day")


def answers(client: RawClient, asked: list[Asked], at: Path) -> list[Members]:
    lay_out(at)
    return [
        {
            member: CLOCK.sub(b"TIME", said)
            for member, said in client.ask(*one).items()
            if member not in OF_THE_ERA
        }
        for one in asked
    ]


def differences(asked: list[Asked], theirs: list[Members], ours: list[Members]) -> list[str]:
    found = []
    for one, direct, through in zip(asked, theirs, ours, strict=True):
        if one in NOT_THERE:
            assert through.keys() == {"error"}
        elif one in LISTS and list(direct) == ["error"]:
            assert list(through.values()) == [b"[]"]  # others may have something to list
        elif direct != through:
            found += [
                f"{one}: {member}\n  directly:   {direct.get(member)!r}\n  through us: {said!r}"
                for member, said in {**dict.fromkeys(direct), **through}.items()
                if said != direct.get(member)
            ]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_each_answers_through_us_as_it_does_directly(
    name: str, start_daemon: StartDaemon, folder: Path, tmp_path: Path, page: str
) -> None:
    at = tmp_path / "at"
    at.mkdir()
    lay_out(at)
    views = {era: f"{name}-{era}" for era in eras(name)}
    documents = [{**document(name, at, era=era), "name": view} for era, view in views.items()]
    shown = [f'[mcp.views.{one}]\nmodules = ["{one}"]\nprefix = false\n' for one in views.values()]
    config = tmp_path / "stdiod.toml"
    config.write_text("".join(shown), encoding="utf-8")
    daemon = start_daemon(*documents, options=("--config", str(config), "--http", "sock"))
    env = {**os.environ, **environment(at)}
    stdiod = [sys.executable, "-m", "supervisor.cli", "mcp", "--socket", str(daemon.socket)]
    asked = questions(name, at, page)
    found: list[str] = []
    for era, view in views.items():
        modern = era == "modern"
        with OnLines(command(name, at), env, modern=modern) as alone:
            direct = answers(alone, asked, at)
        with OnLines([*stdiod, "--view", view], env, modern=modern) as relayed:
            ours = answers(relayed, asked, at)
        found += [f"{era}, stdiod mcp: {one}" for one in differences(asked, direct, ours)]
        if name == "everything":
            daemon.op("restart", module=view)  # it remembers what was made of files
        with OverHttp(daemon.folder / "http.sock", view, modern=modern) as over_http:
            ours = answers(over_http, asked, at)
        found += [f"{era}, /mcp: {one}" for one in differences(asked, direct, ours)]
    assert not found, "\n".join(found)
