"""`stdiod page`: the address that is printed, what opens it, and what to do if there is none."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, ok, status

LOGIN = {"name": "ada", "scopes": ["read"], "modules": ["*"], "code_s": 60.0, "login_s": 43200.0}


def serves(http: str | None, **daemon: Any) -> Any:
    def answer(frame: Frame) -> list[Frame | bytes]:
        if frame["input"]["op"] == "page.login":
            return [ok({**LOGIN, "code": "c-1"})]
        found = status()
        found["daemon"] |= {"http": http, **daemon}
        return [ok(found)]

    return answer


@pytest.fixture(autouse=True)
def _no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("http", "url"),
    [
        ("http://127.0.0.1:8420", "http://127.0.0.1:8420/login?code=c-1"),
        ("https://0.0.0.0:8420", "https://localhost:8420/login?code=c-1"),
        ("http://[::1]:8420", "http://[::1]:8420/login?code=c-1"),
    ],
)
def test_the_address_alone_is_on_stdout(http: str, url: str, run: Run, serve: Serve) -> None:
    daemon = serve(serves(http))
    result = run("page", "--scope", "read", "--modules", "kv")
    assert (result.exit_code, result.stdout) == (0, f"{url}\n")
    assert result.stderr == "it works once, within 60 s, and logs in for 12 h\n"
    args = {"scopes": ["read"], "modules": ["kv"]}
    assert daemon.frames[1]["input"] == {"op": "page.login", "args": args}
    assert json.loads(run("page", "--json").stdout) == {"url": url, **LOGIN}


@pytest.mark.parametrize(
    ("told", "said", "up"),
    [
        (
            {"http": None},  # one before there were projects
            "serves no HTTP",
            "up /srv/modules '/srv/my own' --http 127.0.0.1:8420",
        ),
        (
            {"http": None, "project": None},
            "serves no HTTP",
            "up /srv/modules '/srv/my own' --http 127.0.0.1:8420",
        ),
        (
            {"http": "/run/http.sock", "project": "/srv"},
            "serves only /run/http.sock",
            "up --http 127.0.0.1:8420",
        ),
    ],
)
def test_where_there_is_no_address_it_says_what_to_type(
    told: dict[str, Any], said: str, up: str, run: Run, serve: Serve
) -> None:
    daemon = serve(serves(**told, directories=["/srv/modules", "/srv/my own"]))
    result = run("page")
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert [line.strip() for line in result.stderr.splitlines()[1:]] == [
        "stdiod down",
        f"stdiod {up}",
    ]
    assert len(daemon.frames) == 1


def test_a_browser_gets_the_code_in_a_file_and_not_by_its_arguments(
    run: Run, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[list[str]] = []
    monkeypatch.setattr(os, "posix_spawn", lambda _, words, *__, **___: spawned.append(words))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    serve(serves("http://127.0.0.1:8420"))
    assert run("page", "--no-browser").exit_code == 0
    assert not spawned
    assert run("page").exit_code == 0
    ((*_, module, where),) = spawned
    path = tmp_path / "stdiod" / "page.html"
    assert (module, where) == ("webbrowser", path.as_uri())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "url=http://127.0.0.1:8420/login?code=c-1" in path.read_text()
    assert [one.name for one in path.parent.iterdir()] == ["page.html"]
