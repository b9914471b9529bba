"""The files of the page: served without a token, tagged, and nothing but themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faces.running import LOOPBACK, Running, running

FOLDER = Path(__file__).parents[3] / "supervisor" / "edge" / "http" / "page"
SCRIPTS = sorted(FOLDER.rglob("*.js"))


async def test_the_page_and_its_files_need_no_token_and_nothing_else_is_open() -> None:
    async with running(http=LOOPBACK) as face, face.tcp() as client:
        page = await client.ask("GET", "/")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-cache"
        named = re.findall(r'(?:href|src)="(page/[^"]+)"', page.body.decode())
        media = {"page/app.js": "text/javascript; charset=utf-8", "page/icon.svg": "image/svg+xml"}
        for name in named:
            found = await client.ask("GET", f"/{name}")
            assert found.status == 200, name
            assert found.headers["content-type"] == media.get(name, "text/css; charset=utf-8")
        for method, path in (("POST", "/"), ("GET", "/api/v1/status"), ("OPTIONS", "/")):
            async with face.tcp() as other:
                assert (await other.ask(method, path)).status == 401


async def test_a_file_that_a_browser_has_is_not_sent_again(shared: Running) -> None:
    async with shared.unix() as client:
        whole = await client.ask("GET", "/page/app.js")
        head = await client.ask("HEAD", "/page/app.js")
        assert (head.headers["content-length"], head.body) == (str(len(whole.body)), b"")
        tag = whole.headers["etag"]
        for said in (tag, f'W/{tag}, "another"'):
            again = await client.ask("GET", "/page/app.js", headers=[("If-None-Match", said)])
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
            assert "content-length" not in again.headers, "it would be of what a cache holds"
        changed = await client.ask("GET", "/page/app.js", headers=[("If-None-Match", '"old"')])
        assert (changed.status, changed.body) == (200, whole.body)


@pytest.mark.parametrize(
    "name", ["nothing", "..%2Fapi.py", "%2e%2e", "views", "index.html", "%2Fetc%2Fpasswd", "a%00"]
)
async def test_what_is_no_file_of_the_page_is_not_found(name: str, shared: Running) -> None:
    async with shared.unix() as client:
        assert (await client.ask("GET", f"/page/{name}")).status == 404


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_a_script_names_files_that_there_are_and_no_other_host(script: Path) -> None:
    text = script.read_text()
    for name in re.findall(r'from "([^"]+)"', text):
        assert (script.parent / name).is_file(), name
    assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}
    for never in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert never not in text
