"""What a service elsewhere may answer, and what is said of it, word by word (docs/http.md)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import trio
import trio.testing

from tests.kernel.conftest import ask, daemon_with, own
from tests.kernel.service_peer import (
    EVENT,
    LAST_CHUNK,
    LOG,
    Asked,
    Script,
    hang,
    head,
    peer,
    says,
    streamed,
    whole,
)
from tests.kernel.test_services import OK
from tests.principals import ADA

DONE = {"version": "0", "type": "done", "ok": True, "result": 1}
HTML = whole(b"<html>\n<h1>Hello</h1>", "text/html; charset=utf-8")


async def reset(stream: trio.abc.Stream, asked: Asked) -> None:
    await stream.aclose()


async def flood(stream: trio.abc.Stream, asked: Asked) -> None:
    """Say a gigabyte, as far as it is read."""
    await stream.send_all(head("application/json", "Content-Length: 1000000000"))
    while True:
        await stream.send_all(b'"' + b"x" * 65_535)


async def drip(stream: trio.abc.Stream, asked: Asked) -> None:
    """Never come to the end of an answer: the next byte when the last one has been taken."""
    await stream.send_all(head("application/json", "Content-Length: 1000000000"))
    while True:
        await stream.send_all(b" ")
        await trio.testing.wait_all_tasks_blocked()


LATE = ("timeout", "deadline", " gave no answer in 0.2 s", None)
WRONG_TYPE = "unreachable", "wrong_type"
HAS_TO_BE = "where it has to be application/json, application/x-ndjson or text/event-stream"
PAGE = "<html> <h1>Hello</h1>"
REDIRECTED = "unreachable", "redirected"
BAD_STATUS = "unreachable", "bad_status"
WHO = '{"error": "who are you?"}'
LONG = "x" * 200 + "…"
STATUS_LINE = "illegal status line: bytearray(b'SSH-2.0-OpenSSH_9.9')"
CUT = "unreachable", "cut_stream"
CUT_WORDS = (
    "broke off in the middle of its answer: peer closed connection without sending complete "
    "message body"
)
REPLY = '{"ok":true,"result":...} or {"ok":false,"error":{"code":"...","message":"..."}}'
CUT_OFF = (
    "the line is not JSON: it ends in the middle (printed over several lines? it has to be one)"
)
ARRAY = "the line is a JSON array, it must be a JSON object"
LINE_BYTES = "8388608 bytes (limits.line_bytes) and was dropped"

ANSWERS: dict[str, tuple[Script, Any]] = {
    "pretty": (says(whole(b'{\n  "ok": true,\n  "result": 1\n}\n')), 1),
    "lines": (says(streamed(EVENT, LOG, DONE) + LAST_CHUNK), 1),
    "events": (says(streamed(EVENT, LOG, OK, media="text/event-stream") + LAST_CHUNK), 1),
    "ids": (says(streamed({**EVENT, "requestId": "x"}, {**OK, "requestId": "x"}) + LAST_CHUNK), 1),
    "lingering": (says(streamed(EVENT, OK)), 1),
    "utf": (says(whole(OK, "application/json; charset=UTF-8")), 1),
    "plain": (says(whole(OK, "application/json", "Content-Encoding: identity")), 1),
    "reports": (
        says(whole({"ok": False, "error": {"code": "no_dice", "message": "lost"}})),
        ("no_dice", None, "lost", None),
    ),
    "html": (says(HTML), (*WRONG_TYPE, f"answers with text/html, {HAS_TO_BE}: {PAGE}", PAGE)),
    "typeless": (
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (*WRONG_TYPE, f"answers with no content type, {HAS_TO_BE}", None),
    ),
    "lies": (
        says(whole(b"<html>")),
        ("internal", "malformed_json", "the line is not JSON", "<html>"),
    ),
    "malformed": (
        says(whole(b'{"ok":tru')),
        (
            "internal",
            "malformed_json",
            f"bad reply to invoke: {CUT_OFF}; expected {REPLY}",
            '{"ok":tru',
        ),
    ),
    "array": (
        says(whole([1])),
        ("internal", "not_object", f"bad reply to invoke: {ARRAY}; expected {REPLY}", "[1]"),
    ),
    "empty": (says(whole(b"")), ("internal", "missing_done", f"the answer has no {REPLY}", None)),
    "endless": (
        says(streamed(EVENT) + LAST_CHUNK),
        ("internal", "missing_done", f"the answer has no {REPLY} and no `done` at its end", None),
    ),
    "gzip": (
        says(whole(OK, "application/json", "Content-Encoding: gzip")),
        (*WRONG_TYPE, "packs its answer (gzip), which was not asked for", None),
    ),
    "latin": (
        says(whole(OK, "application/json; charset=latin-1")),
        (*WRONG_TYPE, "answers in another charset than UTF-8 (charset=latin-1)", None),
    ),
    "moved": (
        says(whole(b"", "text/plain", "Location: /moved/invoke?key=secret", status="307 X")),
        (*REDIRECTED, "redirects to /moved/invoke (status 307), and that is not followed", None),
    ),
    "lost": (
        says(whole(b"", "text/plain", status="399 X")),
        (*REDIRECTED, "redirects to nowhere (status 399), and that is not followed", None),
    ),
    "denied": (
        says(whole({"error": "who are you?"}, status="401 Unauthorized")),
        (*BAD_STATUS, f"answers with status 401: {WHO}", WHO),
    ),
    "broken": (
        says(whole(OK, status="500 Oh")),
        (*BAD_STATUS, f"answers with status 500: {json.dumps(OK)}", json.dumps(OK)),
    ),
    "long": (
        says(whole(b"x" * 3000, "text/plain", status="400 X")),
        (*BAD_STATUS, f"answers with status 400: {LONG}", LONG),
    ),
    "created": (
        says(whole(OK, status="201 Created")),
        (*BAD_STATUS, f"answers with status 201: {json.dumps(OK)}", json.dumps(OK)),
    ),
    "resets": (reset, ("unreachable", "reset", "closed the connection without an answer", None)),
    "ssh": (
        says(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"),
        ("unreachable", "bad_http", f"does not speak HTTP/1.1: {STATUS_LINE}", None),
    ),
    "cut": (
        says(streamed(EVENT), then_close=True),
        (*CUT, f"{CUT_WORDS} (incomplete chunked read)", None),
    ),
    "short": (
        says(head("application/json", "Content-Length: 90") + b'{"ok":', then_close=True),
        (*CUT, f"{CUT_WORDS} (received 6 bytes, expected 90)", None),
    ),
    "large": (
        flood,
        ("internal", "line_too_long", f"a line is longer than {LINE_BYTES}", f'"{LONG[1:-1]}'),
    ),
    "never": (hang, LATE),
    "drips": (drip, LATE),
    "late": (says(head("application/json")), LATE),
}


async def test_whatever_a_service_says_its_calls_end_once_with_a_reason(tmp_path: Path) -> None:
    async with peer() as services:
        modules = []
        for name, (script, _) in ANSWERS.items():
            services.scripts[f"{name}/invoke"] = script
            timeouts = {"invoke_s": 0.2 if name in ("never", "drips", "late") else 60}
            unasked = {"timeouts": timeouts, "health": {"interval_s": 3600}}
            modules.append(services.service(tmp_path, name, supervision=unasked))
        async with daemon_with(tmp_path, *modules) as daemon:
            asked = {name: ask(daemon, name) for name in ANSWERS}
            for name, (_, expected) in ANSWERS.items():
                told = await asked[name].document()
                if not isinstance(expected, tuple):
                    assert (told["ok"], told["result"]) == (True, expected), name
                    continue
                error = told["error"]
                code, reason, words, excerpt = expected
                # What no service said is said of the instance, and of the op.
                before = f"{name}.echo: {name}#1 " if code == "unreachable" else ""
                before = f"{name}.echo" if code == "timeout" else before
                assert (error["code"], error["message"]) == (code, f"{before}{words}"), name
                details = {"origin": "module"}
                if reason is not None:
                    served = {"instance": f"{name}#1", "url": services.url(name)}
                    details = {"origin": "host", "reason": reason, **served}
                shown = {} if excerpt is None else {"line_excerpt": excerpt}
                assert error["details"] == details | shown, name
            for name in ("lines", "events", "ids"):
                assert type(asked[name].events[0]).__name__ == "UiEvent"
            assert (await own(daemon, ADA, "status", module="lies"))["state"] == "ready"
        assert services.open <= len(ANSWERS)


MISSPELT = (
    'answered health wrongly: bad reply to health: "status" is missing, must be a string such as '
    '"ok"; is "state" a misspelling of it?; expected {"status":"ok"}, or {"ok":false,"error":'
    '{"code":"unsupported_op","message":"..."}}: {"state": "ok"}'
)
UNWELL = (
    "was not healthy within 1 s; it gave no answer; if it is only slow to begin, "
    "supervision.timeouts.start_s allows more"
)
UNSET = "transport.headers.X-Key uses ${FAR_NOT_SET}, which the daemon has not set"

STARTS: dict[str, tuple[dict[str, Script], dict[str, Any], str, str]] = {
    "page": (
        {"health": says(HTML)},
        {},
        "wrong_type",
        f"answers with text/html, {HAS_TO_BE}: {PAGE}",
    ),
    "wrong": ({"health": says(whole({"state": "ok"}))}, {}, "bad_health", MISSPELT),
    "silent": ({"health": hang}, {}, "start_deadline", UNWELL),
    "mute": (
        {"describe": hang},
        {},
        "bad_describe",
        "did not describe itself: mute#1 gave no answer to describe in 0.1 s",
    ),
    "other": (
        {"describe": says(whole({"name": "another"}))},
        {},
        "bad_describe",
        "describes itself with name 'another'; its descriptor says 'other'",
    ),
    "unset": (
        {},
        {"headers": {"X-Key": "${FAR_NOT_SET}"}},
        "spawn_failed",
        f"cannot be asked: {UNSET}",
    ),
    "nameless": (
        {},
        {"url": "http://nowhere.invalid:1/"},
        "no_connection",
        "has a name that cannot be resolved: no such name",
    ),
    "tls": ({}, {}, "tls", "cannot be spoken with over TLS: WRONG_VERSION_NUMBER"),
    "handshake": ({}, {}, "start_deadline", UNWELL),
}


class Names(trio.abc.HostnameResolver):
    """Knows localhost, and no other name."""

    async def getaddrinfo(self, host: Any, port: Any, *more: Any) -> Any:
        if host != b"localhost":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


async def test_a_service_that_cannot_begin_says_why(tmp_path: Path) -> None:
    trio.socket.set_custom_hostname_resolver(Names())
    (mute,) = await trio.open_tcp_listeners(0, host="127.0.0.1")  # accepts, and says nothing
    async with mute, peer() as services:
        modules = []
        for name, (scripts, transport, _, _) in STARTS.items():
            services.scripts |= {f"{name}/{op}": script for op, script in scripts.items()}
            own_url = (
                {"url": services.url(name).replace("http:", "https:")} if name == "tls" else {}
            )
            if name == "handshake":
                own_url = {"url": f"https://localhost:{mute.socket.getsockname()[1]}"}
            timeouts = {
                "start_s": 1 if name in ("silent", "handshake") else 60,
                "describe_s": 0.1 if name == "mute" else 60,
            }
            once = {"start": "lazy", "intensity": 0, "timeouts": timeouts}
            modules.append(
                services.service(tmp_path, name, transport=transport | own_url, supervision=once)
            )
        async with daemon_with(tmp_path, *modules) as daemon:
            asked = {name: ask(daemon, name) for name in STARTS}
            for name, (_, _, *expected) in STARTS.items():
                error = (await asked[name].document())["error"]
                died = (await own(daemon, ADA, "status", module=name))["last_exit"]
                assert [died["reason"], died["message"]] == expected
                assert (error["code"], died["message"] in error["message"]) == ("unreachable", True)
