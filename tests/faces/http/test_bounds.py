"""How much may be unread by an HTTP client."""

from __future__ import annotations

from tests.faces.running import ENDLESS, SOCK, running
from tests.system.descriptors import actor


async def test_a_client_that_does_not_read_holds_up_its_module_and_nobody_else() -> None:
    modules = [actor(name=name) for name in ("noisy", "quiet")]
    async with running(*modules, http=SOCK) as face, face.unix() as slow, face.unix() as client:
        body = {"op": "events", "args": ENDLESS}
        headers = [("Accept", "application/x-ndjson")]
        await slow.send("POST", "/api/v1/modules/noisy/invoke", body, headers=headers)
        await face.holds_unread()
        path = "/api/v1/modules/quiet/invoke"
        for _ in range(20):
            assert (await client.ask("POST", path, {"op": "echo"})).status == 200
            assert face.held_bytes < 8 << 20
        assert face.daemon.status("noisy")["in_flight"] == 1
