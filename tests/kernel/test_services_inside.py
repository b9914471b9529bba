"""Of `test_services.py`, what is bound to the structure."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from protocol.errors import Reason
from supervisor.kernel.kernel import Party
from supervisor.kernel.status import module_status
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision import service_client as client
from supervisor.runtime.supervision.life import LastExit
from supervisor.runtime.supervision.module import Module
from tests.faces.http.test_security import certificate
from tests.kernel.conftest import Asker, ask, daemon_with
from tests.kernel.service_peer import (
    EVENT,
    LAST_CHUNK,
    LOG,
    Asked,
    Peer,
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
BUSY = {"health": {"interval_s": 0.02}, "backoff": {"initial_s": 0.01, "max_s": 0.02}}
"""Checks and tries that follow each other closely."""


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


def died_of(module: Module) -> LastExit:
    assert module.last_exit is not None
    return module.last_exit


ANSWERS: dict[str, tuple[Script, Any]] = {
    "pretty": (says(whole(b'{\n  "ok": true,\n  "result": 1\n}\n')), 1),
    "lines": (says(streamed(EVENT, LOG, DONE) + LAST_CHUNK), 1),
    "events": (says(streamed(EVENT, LOG, OK, media="text/event-stream") + LAST_CHUNK), 1),
    "ids": (says(streamed({**EVENT, "requestId": "x"}, {**OK, "requestId": "x"}) + LAST_CHUNK), 1),
    "lingering": (says(streamed(EVENT, OK)), 1),
    "reports": (
        says(whole({"ok": False, "error": {"code": "no_dice", "message": "lost"}})),
        ("no_dice", None, "lost"),
    ),
    "html": (says(HTML), ("unreachable", "wrong_type", "text/html")),
    "lies": (says(whole(b"<html>")), ("internal", "malformed_json", "")),
    "malformed": (says(whole(b'{"ok":tru')), ("internal", "malformed_json", "")),
    "array": (says(whole([1])), ("internal", "not_object", "JSON array")),
    "empty": (says(whole(b"")), ("internal", "missing_done", '"ok"')),
    "endless": (says(streamed(EVENT) + LAST_CHUNK), ("internal", "missing_done", "`done`")),
    "gzip": (says(whole(OK, "application/json", "Content-Encoding: gzip")),
             ("unreachable", "wrong_type", "gzip")),
    "latin": (says(whole(OK, "application/json; charset=latin-1")),
              ("unreachable", "wrong_type", "charset")),
    "moved": (says(whole(b"", "text/plain", "Location: /moved/invoke?key=secret", status="307 X")),
              ("unreachable", "redirected", "/moved/invoke")),
    "denied": (says(whole({"error": "who are you?"}, status="401 Unauthorized")),
               ("unreachable", "bad_status", "401")),
    "broken": (says(whole(OK, status="500 Oh")), ("unreachable", "bad_status", "500")),
    "created": (says(whole(OK, status="201 Created")), ("unreachable", "bad_status", "201")),
    "resets": (reset, ("unreachable", "reset", "without an answer")),
    "ssh": (says(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"),
            ("unreachable", "bad_http", "HTTP/1.1")),
    "cut": (says(streamed(EVENT), then_close=True), ("unreachable", "cut_stream", "middle")),
    "short": (says(head("application/json", "Content-Length: 90") + b'{"ok":', then_close=True),
              ("unreachable", "cut_stream", "middle")),
    "large": (flood, ("internal", "line_too_long", "")),
    "never": (hang, ("timeout", "deadline", "")),
    "drips": (drip, ("timeout", "deadline", "")),
    "late": (says(head("application/json")), ("timeout", "deadline", "")),
}  # fmt: skip


async def test_whatever_a_service_says_its_calls_end_once_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "KEPT_S", 3600.0)
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
                error, (code, reason, words) = told["error"], expected
                details = error["details"]
                assert (error["code"], details.get("reason")) == (code, reason), (name, error)
                assert words in error["message"], (name, error)
                assert "secret" not in str(error)
                if reason is not None:
                    assert details["url"] == services.url(name)
                    assert details["instance"].startswith(f"{name}#")
            for name in ("lines", "events", "ids"):
                assert type(asked[name].events[0]).__name__ == "UiEvent"
            assert daemon.fleet.modules["lies"].state is State.READY
            # A connection serves again if its answer was read to the end, and no other does.
            assert (await ask(daemon, "pretty").document())["ok"]
            first, second = services.invoked("pretty")
            assert first.connection == second.connection
        assert services.open <= len(ANSWERS)


async def test_a_cancel_ends_the_request_and_a_stop_waits_for_one_that_ends(
    tmp_path: Path,
) -> None:
    may_end = trio.Event()

    async def slow(stream: trio.abc.Stream, asked: Asked) -> None:
        await may_end.wait()
        await stream.send_all(whole(OK))

    async with peer() as services:
        made = services.service(tmp_path, "m", supervision={"concurrency": 2})
        async with daemon_with(tmp_path, made) as daemon:
            module = daemon.fleet.modules["m"]
            services.scripts["m/invoke"] = hang
            asker = Asker()
            handle = daemon.begin(Party(ADA), "m", "invoke", {"op": "o"}, asker)
            await services.until(lambda: len(services.invoked("m")) == 1)
            shown = module_status(module)
            assert (shown["url"], shown["in_flight"]) == (services.url("m"), 1)
            (instance,) = shown["instances"]
            assert (instance["id"], instance["pid"], instance["rss_bytes"]) == ("m#1", None, None)
            before = services.open
            assert handle is not None
            handle.cancel(Stopped(Reason.CLIENT, "not wanted any more"))
            await services.until(lambda: services.open == before - 1)
            assert (await asker.document())["error"]["code"] == "cancelled"

            services.scripts["m/invoke"] = slow
            last = ask(daemon, "m")
            await services.until(lambda: len(services.invoked("m")) == 2)
            module.stop("the test")
            assert module.state is State.STOPPING
            may_end.set()
            assert (await last.document())["ok"]
            await daemon.fleet.wait_until(lambda: module.state is State.DOWN or None)
            assert (died_of(module).reason, module.restarts) == ("stopped", 0)
            await services.until(lambda: services.open == 0)


async def test_a_service_that_goes_is_told_of_at_once_and_serves_again_when_it_is_back(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    services = Peer()
    await nursery.start(services.listen)
    made = [
        services.service(tmp_path, "m", supervision={"health": {"interval_s": 3600}}),
        services.service(tmp_path, "n", supervision=BUSY | {"intensity": 10_000}),
    ]
    async with daemon_with(tmp_path, *made) as daemon:
        patient, eager = daemon.fleet.modules["m"], daemon.fleet.modules["n"]
        await services.vanish()
        error = (await ask(daemon, "m").document())["error"]
        assert (error["code"], error["details"]["reason"]) == ("unreachable", "refused")
        assert patient.state is State.DEGRADED
        # The one that is checked goes, and is looked for again and again.
        await daemon.fleet.wait_until(lambda: eager.state is State.BACKOFF or None)
        error = (await ask(daemon, "n").document())["error"]
        assert (error["code"], error["details"]["reason"]) == ("unreachable", "refused")
        assert died_of(eager).reason == "refused"
        assert "refuses the connection" in died_of(eager).message

        await nursery.start(services.listen)
        assert (await ask(daemon, "m").document())["ok"]
        await daemon.fleet.wait_until(lambda: patient.state is State.READY or None)
        assert patient.restarts == 0
        await daemon.fleet.wait_until(lambda: eager.state is State.READY or None)
        assert (await ask(daemon, "n").document())["ok"]
    await services.vanish()


async def test_a_service_that_hangs_is_found_out_after_a_call_and_parted_from(
    tmp_path: Path,
) -> None:
    async with peer() as services:
        # Three in a row are missed by one who hangs, and by nobody on a busy machine.
        quick = {"invoke_s": 0.05, "health_s": 0.5}
        made = services.service(tmp_path, "m", supervision=BUSY | {"timeouts": quick})
        async with daemon_with(tmp_path, made) as daemon:
            module = daemon.fleet.modules["m"]
            services.scripts["m/invoke"] = services.scripts["m/health"] = hang
            assert (await ask(daemon, "m").document())["error"]["code"] == "timeout"
            await daemon.fleet.wait_until(lambda: module.state is State.DEGRADED or None)
            await daemon.fleet.wait_until(lambda: module.state is State.STARTING or None)
            assert died_of(module).message.startswith("missed 3 health probes in a row")
            assert died_of(module).exit_code is None


STARTS: dict[str, tuple[dict[str, Script], dict[str, Any], str, str]] = {
    "page": ({"health": says(HTML)}, {}, "wrong_type", "text/html"),
    "wrong": ({"health": says(whole({"state": "ok"}))}, {}, "bad_health", '"status" is missing'),
    "silent": ({"health": hang}, {}, "start_deadline", "it gave no answer"),
    "unwell": (
        {"health": says(whole({"status": "warming up"}))}, {}, "start_deadline", "not healthy",
    ),
    "mute": ({"describe": hang}, {}, "bad_describe", "gave no answer to describe"),
    "other": ({"describe": says(whole({"name": "another"}))}, {}, "bad_describe", "another"),
    "unset": ({}, {"headers": {"X-Key": "${FAR_NOT_SET}"}}, "spawn_failed", "FAR_NOT_SET"),
    "nameless": ({}, {"url": "http://nowhere.invalid:1/"}, "no_connection", "no such name"),
    "tls": ({}, {}, "tls", "TLS"),
    "handshake": ({}, {}, "start_deadline", "it gave no answer"),
}  # fmt: skip


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
            own = {"url": services.url(name).replace("http:", "https:")} if name == "tls" else {}
            if name == "handshake":
                own = {"url": f"https://localhost:{mute.socket.getsockname()[1]}"}
            timeouts = {
                # The unwell one is to have said so by then, even if all stand still for a while.
                "start_s": {"silent": 1, "handshake": 1, "unwell": 4}.get(name, 60),
                "describe_s": 0.1 if name == "mute" else 60,
            }
            once = {"start": "lazy", "intensity": 0, "timeouts": timeouts}
            modules.append(
                services.service(tmp_path, name, transport=transport | own, supervision=once)
            )
        async with daemon_with(tmp_path, *modules) as daemon:
            asked = {name: ask(daemon, name) for name in STARTS}
            for name, (_, _, reason, words) in STARTS.items():
                error = (await asked[name].document())["error"]
                died = died_of(daemon.fleet.modules[name])
                assert (died.reason, words in died.message) == (reason, True), (name, died)
                assert (error["code"], words in error["message"]) == ("unreachable", True)


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    services = Peer()
    services.scheme = "https"
    await nursery.start(services.listen, context)
    once = {"start": "lazy", "intensity": 0}
    async with daemon_with(tmp_path, services.service(tmp_path, "m", supervision=once)) as daemon:
        error = (await ask(daemon, "m").document())["error"]
        assert error["details"]["state"] == "failed"
        assert "certificate" in error["message"]
        # A daemon that is started with SSL_CERT_FILE trusts what is in there.
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        daemon.fleet.modules["m"].start("the test")
        assert (await ask(daemon, "m").document())["ok"]
    await services.vanish()


SECRET = "s3cr3t-and-long"


def kept_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_header_has_its_variable_and_nothing_tells_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = f"you are {SECRET}"
    failed = {"ok": False, "error": {"code": "E", "message": echo}}
    lines = [{**LOG, "message": echo}, failed]
    async with peer() as services:
        services.scripts["m/invoke"] = says(streamed(*lines) + LAST_CHUNK)
        services.scripts["page/invoke"] = says(whole(echo.encode(), "text/html"))
        headers = {"headers": {"Authorization": "Bearer ${FAR_TOKEN}"}}
        made = [services.service(tmp_path, name, transport=headers) for name in ("m", "page")]
        monkeypatch.setenv("FAR_TOKEN", SECRET)
        async with daemon_with(tmp_path, *made) as daemon:
            told = [await ask(daemon, name).document() for name in ("m", "page")]
            assert services.invoked("m")[0].headers["authorization"] == f"Bearer {SECRET}"
            assert told[0]["error"]["message"] == "you are ***"
            assert "you are ***" in told[1]["error"]["message"]
            status = [module_status(one) for one in daemon.fleet.modules.values()]
            assert SECRET not in str((told, status))
        kept = kept_in(tmp_path)
        assert SECRET.encode() not in kept
        assert b"you are ***" in kept  # in the log of the module
