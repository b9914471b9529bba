from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, not_ok, ok
from tests.factories import program

ASSET: dict[str, Any] = {
    "asset": "3f9c2d1b",
    "asset_id": "chart",
    "module": "chart",
    "op": "draw",
    "request_id": "r7",
    "session_id": None,
    "span_id": None,
    "kind": "image",
    "media_type": "image/svg+xml",
    "supported": True,
    "path": "/tmp/chart.svg",
    "real_path": "/tmp/chart.svg",
    "size": 1234,
    "mtime_ns": 1,
    "sha256": "ab" * 32,
    "copied": False,
    "problem": None,
    "metadata": {"width": 640},
    "ts": 1_700_000_000.0,
    "placeholder": None,
}


STDIOD = [sys.executable, "-m", "supervisor.cli"]


def listed(*assets: Frame, left_out: int = 0, forgotten: int = 0) -> Frame:
    return ok({"assets": list(assets), "left_out": left_out, "forgotten": forgotten})


def test_a_list_is_a_table_and_says_what_is_not_in_it(run: Run, serve: Serve) -> None:
    odd = {**ASSET, "asset_id": "a\nb\x1b[2J", "session_id": "s-1"}
    serve(lambda frame: [listed(ASSET, odd, left_out=2, forgotten=1)])
    assert run("asset", "list").stdout.splitlines() == [
        "ASSET     NAME        MODULE  SESSION  TYPE           SIZE",
        "3f9c2d1b  chart       chart   -        image/svg+xml  1.2 KiB",
        "3f9c2d1b  a b\\x1b[2J  chart   s-1      image/svg+xml  1.2 KiB",
        "2 older assets left out",
        "1 older asset forgotten",
    ]


def test_a_list_of_none_says_so(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [listed()])
    arguments = ("--session", "s-1", "--module", "m", "--request", "r1")
    assert run("asset", "list", *arguments).stdout == "no assets\n"
    wanted = {"session_id": "s-1", "module": "m", "request_id": "r1"}
    assert daemon.frames[0]["input"] == {"op": "asset.list", "args": wanted}


def test_show_is_a_page(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok(ASSET)])
    assert run("asset", "show", "chart").stdout.splitlines() == [
        "3f9c2d1b",
        "  name      chart",
        "  kind      image, image/svg+xml",
        "  path      /tmp/chart.svg",
        "  size      1234 bytes",
        f"  sha256    {'ab' * 32}",
        "  made by   chart.draw, request r7",
        "  when      2023-11-14T22:13:20.000Z",
        '  metadata  {"width":640}',
    ]


def test_show_says_why_there_is_no_digest_and_what_to_show_instead(run: Run, serve: Serve) -> None:
    others = {"real_path": "/srv/chart.svg", "session_id": "s-1", "copied": True}
    odd = {**ASSET, "sha256": None, "placeholder": "[chart]", "metadata": None, **others}
    serve(lambda frame: [ok(odd)])
    page = run("asset", "show", "3f9c").stdout
    assert "leads to  /srv/chart.svg" in page
    assert "sha256    not read yet" in page
    assert "copy      kept" in page
    assert "session   s-1" in page
    assert "shown as  [chart]" in page


@pytest.mark.parametrize("verb", ["list", "show", "open"])
def test_json_is_the_result_and_nothing_else(run: Run, serve: Serve, verb: str) -> None:
    result = {"path": "/tmp/x", "assets": []}
    serve(lambda frame: [ok(result)])
    ended = run("asset", verb, *([] if verb == "list" else ["chart"]), "--json")
    assert json.loads(ended.stdout) == result


@pytest.mark.parametrize("verb", ["show", "open"])
def test_a_refusal_is_told_and_ends_with_1(run: Run, serve: Serve, verb: str) -> None:
    serve(lambda frame: [not_ok("bad_request", "there is no asset 'x'", reason="unknown_asset")])
    ended = run("asset", verb, "x")
    assert ended.exit_code == 1
    assert "there is no asset 'x'" in ended.stderr


@pytest.mark.parametrize("options", [[], ["--print"]])
def test_open_prints_the_path_where_no_terminal_is(
    run: Run, serve: Serve, options: list[str]
) -> None:
    daemon = serve(lambda frame: [ok({"path": "/tmp/chart.svg"})])
    assert run("asset", "open", "chart", *options).stdout == "/tmp/chart.svg\n"
    assert daemon.frames[0]["input"] == {"op": "asset.read", "args": {"asset": "chart"}}


def on_terminal(socket: Path, opener: str, *options: str) -> tuple[int, str]:
    """Run `asset open` with a terminal as stdout; returns its status and stderr."""
    ours, theirs = pty.openpty()
    with open(ours, "rb", 0), open(theirs, "wb", 0) as terminal:  # noqa: PTH123
        ended = subprocess.run(
            [*STDIOD, "--socket", str(socket), "asset", "open", "chart", *options],
            stdout=terminal,
            stderr=subprocess.PIPE,
            env={**os.environ, "STDIOD_OPENER": opener},
            check=False,
            text=True,
        )
    return ended.returncode, ended.stderr


def test_open_has_the_opener_open_it_on_a_terminal(
    serve: Serve, socket_path: Path, tmp_path: Path
) -> None:
    serve(lambda frame: [ok({"path": "/tmp/a b.svg"})])
    seen = tmp_path / "seen"
    opener = program(tmp_path / "opener", f'#!/bin/sh\nprintf "%s|" "$@" > {seen}\n')
    assert on_terminal(socket_path, f"{opener} --flag") == (0, "")
    assert seen.read_text() == "--flag|/tmp/a b.svg|"


def test_an_opener_that_is_not_there_or_fails_is_said(serve: Serve, socket_path: Path) -> None:
    serve(lambda frame: [ok({"path": "/tmp/a.svg"})])
    status, words = on_terminal(socket_path, "no-such-opener")
    assert status == 1
    assert "there is no no-such-opener here to open it with; set STDIOD_OPENER" in words
    status, words = on_terminal(socket_path, "false")
    assert (status, "false ended with 1 for /tmp/a.svg" in words) == (1, True)
    status, words = on_terminal(socket_path, "'")
    assert (status, "is not a command" in words) == (2, True)
