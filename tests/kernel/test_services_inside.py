"""Of `test_services.py`, what is bound to the structure."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio
import trio.testing

from protocol.errors import Reason
from supervisor.kernel.kernel import Party
from supervisor.kernel.status import module_status
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.life import LifeEnd
from supervisor.runtime.supervision.module import Module
from tests.faces.http.test_security import certificate
from tests.kernel.conftest import Asker, ask, daemon_with
from tests.kernel.service_peer import (
    LAST_CHUNK,
    LOG,
    Asked,
    Peer,
    hang,
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


def died_of(module: Module) -> LifeEnd:
    assert module.last_exit is not None
    return module.last_exit


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
            assert died_of(module).exit.exit_code is None


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
