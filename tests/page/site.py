"""A daemon that serves the page, on a fleet that changes from test to test."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.bounds import until
from tests.page.chromium import Chromium
from tests.page.held_port import held_port
from tests.page.probes import IS_LIVE
from tests.system import descriptors
from tests.system.daemon import Daemon

SAMPLES = Path(__file__).parents[2] / "modules"


class Site:
    """One daemon after the other, at one address."""

    def __init__(self, folder: Path) -> None:
        """Start the first one, without modules."""
        self._folder = folder
        self._policy = folder / "policy.toml"
        self._policy.write_text('allow = ["user.ask"]\n')
        self._held, port = held_port()
        self.host = f"127.0.0.1:{port}"
        self.address = f"http://{self.host}"
        self.daemon = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            self.daemon.__exit__(kind, error, at)
        finally:
            self._held.close()

    def url(self, view: str = "") -> str:
        """Return the address of a view: `modules/dice`."""
        return f"{self.address}/#/{view}" if view else f"{self.address}/"

    def _started(self) -> Daemon:
        options = ("--http", self.host, "--policy", str(self._policy))
        # What its modules hand over is theirs to make and nobody's to remove.
        return Daemon(self._folder, options=options, environment={"TMPDIR": str(self._folder)})

    # What happens to the daemon.

    def serve(self, *documents: dict[str, Any]) -> None:
        """Have exactly these modules, and no question of others that waits for its answer.

        Returns when each eager one is ready, or cannot be.
        """
        for asked in self.daemon.op("approvals")["approvals"]:
            # It may have come to its end by itself meanwhile.
            self.daemon.client.op("approve", id=asked["id"], answer="deny")
        wanted = {f"{document['name']}.json": json.dumps(document) for document in documents}
        self._remove_all_but(wanted)
        for name, text in wanted.items():
            (self.daemon.modules / name).write_text(text)
        self._reload()

    def serve_samples(self, *documents: dict[str, Any]) -> None:
        """Have exactly the sample modules and these."""
        self._remove_all_but(())
        shutil.copytree(SAMPLES, self.daemon.modules, dirs_exist_ok=True)
        descriptors.write(self.daemon.modules, *documents)
        self._reload()

    def _remove_all_but(self, names: Collection[str]) -> None:
        for path in self.daemon.modules.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in names:
                path.unlink()

    def _reload(self) -> None:
        self.daemon.op("reload")
        self.daemon.op("wait", **{"for": "verdict"})

    def kill(self) -> None:
        """Kill the daemon as `kill -9` does."""
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.client.close()
        self.daemon.assert_nothing_left()

    def start_again(self) -> None:
        """Start another daemon on the same folders, at the same address."""
        self.daemon = self._started()
        self.daemon.op("wait", **{"for": "verdict"})

    # What a visitor does.

    def login(self, browser: Chromium) -> None:
        """Log a browser in, as `stdiod page` does."""
        code = self.daemon.op("page.login")["code"]
        browser.open(f"{self.address}/login?code={code}")
        browser.until(IS_LIVE, "the page being live")

    def waits(self, holds: Callable[[], Any], awaited: str) -> Any:
        """Wait until something holds of the daemon."""
        return until(holds, awaited)
