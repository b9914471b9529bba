"""One daemon's module is another daemon's module, over HTTP (docs/http.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.bounds import until
from tests.system.daemon import Daemon
from tests.system.descriptors import PATIENT, misbehaving


def far_module(name: str, address: str, **supervision: Any) -> dict[str, Any]:
    """Return the descriptor of a module of the daemon at that address."""
    headers = {"Authorization": "Bearer ${FAR_TOKEN}"}
    return {
        "name": name,
        "kind": "tool",
        "transport": {"type": "http", "url": f"{address}/modules/{name}", "headers": headers},
        "supervision": {"timeouts": PATIENT, **supervision},
    }


def kept_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_second_daemon_uses_the_modules_of_the_first_and_outlives_it(folder: Path) -> None:
    modules = [misbehaving("echo", concurrency=16)]
    far = Daemon(folder / "far", *modules, options=("--http", "127.0.0.1:0"))
    try:
        address = far.op("status")["daemon"]["http"]
        token = far.op("token.new", name="near", scopes=["read", "invoke"])["token"]
        document = far_module("echo", address, concurrency=16)
        near = Daemon(folder / "near", document, environment={"FAR_TOKEN": token})
        with near:
            answer = near.invoke("echo", fault="event+done", word="hello")
            assert answer.result["word"] == "hello"
            assert [event["message"] for event in answer.events] == ["an event"]

            status = near.status("echo")
            assert (status["state"], status["url"]) == ("ready", f"{address}/modules/echo")
            assert (status["instances"][0]["pid"], near.processes()) == (None, [])

            asked = {near.client.send_invoke("echo", "go", n=n): n for n in range(100)}
            for request_id, n in asked.items():
                assert near.client.answer(request_id).result == {"n": n}

            died = near.invoke("echo", fault="exit", code=3)
            assert (died.error["code"], died.details["origin"]) == ("unreachable", "module")
            said = died.details["reported"]  # the far daemon's evidence, whole and once
            assert (said["origin"], said["reason"], said["exit_code"]) == ("host", "exited", 3)
            assert (said["instance"], "reported" in said) == ("echo#1", False)
            assert near.status("echo")["last_exit"] is None

            far.process.kill()
            far.process.wait()
            verdicts: list[str] = []

            def is_refused() -> bool:
                verdicts.append(near.invoke("echo").verdict)
                return verdicts[-1] == "unreachable/refused"

            # Until the guardian has killed what was just being spawned, that has its sockets, too.
            until(is_refused, "a connection that is refused")
            assert set(verdicts) <= {"unreachable/refused", "unreachable/reset"}
            assert near.status("echo")["state"] == "degraded"

            options = ("--http", address.removeprefix("http://"))
            with Daemon(folder / "far", *modules, options=options) as again:
                assert near.invoke("echo", word="back").result == {"word": "back"}
                assert token not in again.log()
            assert token not in near.log()
        assert token.encode() not in kept_in(folder / "near")
    finally:
        far.process.kill()
        far.process.wait()
        far.client.close()
        far.kill_left()
