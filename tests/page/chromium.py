"""Headless Chromium: started, looked into, and ended with all that it left.

Whatever the page writes to the console and whichever host it turns to is kept until a test asks.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains

from tests.bounds import TEST_S, WAIT_S, until
from tests.page.held_port import held_port

CHROMIUM: Final = shutil.which("chromium")
CHROMEDRIVER: Final = shutil.which("chromedriver")

FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # it does not start as root otherwise; it sees nothing but our own page
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
WIDTH: Final = 1280
HEIGHT: Final = 800

MARKER: Final = "STDIOD_TEST_BROWSER"
_PR_SET_CHILD_SUBREAPER: Final = 36


class Chromium:
    """One browser with one window."""

    def __init__(self) -> None:
        """Start it, in a folder of its own."""
        self._home = Path(tempfile.mkdtemp(prefix="stdiod-browser-"))
        options = ChromeOptions()
        for flag in (*FLAGS, f"--user-data-dir={self._home / 'profile'}"):
            options.add_argument(flag)
        options.binary_location = CHROMIUM or ""
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # Some of its processes leave their parent, others overwrite their environment.
        home = {"HOME": str(self._home), "TMPDIR": str(self._home), MARKER: self._home.name}
        self._held, port = held_port()
        self._service = Service(
            CHROMEDRIVER, port, log_output=str(self._home / "log"), env={**os.environ, **home}
        )
        try:
            with _adopting_orphans():
                self.driver = Chrome(options=options, service=self._service)
        except BaseException:
            self._clean_up()
            raise
        self.resize(WIDTH, HEIGHT)
        # A script may count frames, and a busy machine draws three in a second.
        self.driver.set_script_timeout(TEST_S)
        self.driver.set_page_load_timeout(WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        processes = self._processes()
        try:
            with _adopting_orphans():
                self.driver.quit()
        finally:
            left = self._clean_up(processes)
        assert not left, f"Chromium left behind: {left}"

    # What a person does.

    def open(self, url: str) -> None:
        """Go to an address; a new `#...` alone loads nothing."""
        self.driver.get(url)

    def resize(self, width: int, height: int) -> None:
        """Give the page so much room, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.cdp("Emulation.setDeviceMetricsOverride", **size)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def prefer(self, **features: str) -> None:
        """Have the page see what a person prefers: `color_scheme="dark"`."""
        wanted = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value}
            for name, value in features.items()
        ]
        self.cdp("Emulation.setEmulatedMedia", features=wanted)

    def block(self, *patterns: str) -> None:
        """Let nothing through to addresses like these, which have `*` for any part."""
        self.cdp("Network.enable")
        self.cdp("Network.setBlockedURLs", urls=list(patterns))

    # What a person sees, and what is behind it.

    def js(self, script: str, *arguments: Any) -> Any:
        """Run a function's body in the page; the page's policy for scripts does not apply to it."""
        return self.driver.execute_script(script, *arguments)

    def cdp(self, method: str, **parameters: Any) -> Any:
        """Use Chromium's own protocol."""
        return self.driver.execute_cdp_cmd(method, parameters)

    def until(self, script: str, awaited: str, *arguments: Any) -> Any:
        """Wait until a function's body returns something true in the page; returns that."""
        try:
            return until(lambda: self.js(script, *arguments), awaited)
        except AssertionError as error:
            raise AssertionError(f"{error}; the page says:\n{self.text()}") from None

    def text(self) -> str:
        """Return all text that can be seen."""
        seen: str = self.js("return document.body.innerText")
        return seen

    def screenshot(self) -> bytes:
        """Return a picture of what can be seen, as PNG."""
        return bytes(self.driver.get_screenshot_as_png())

    def console(self) -> list[str]:
        """Return what was written to the console since it was asked last, violations included."""
        return [
            f"{entry['level']}: {entry['message']}"
            for entry in self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        ]

    def hosts(self) -> set[str]:
        """Return the hosts that were turned to since it was asked last."""
        return {urlsplit(url).netloc for url in self._urls()} - {""}

    def _urls(self) -> Iterator[str]:
        for message in self._messages():
            parameters = message["params"]
            match message["method"]:
                case "Network.requestWillBeSent":
                    url = parameters["request"]["url"]
                case "Network.webSocketCreated":
                    url = parameters["url"]
                case _:
                    continue
            if urlsplit(url).scheme in ("http", "https", "ws", "wss"):
                yield url

    def _messages(self) -> Iterator[dict[str, Any]]:
        for entry in self.driver.get_log("performance"):  # type: ignore[no-untyped-call]
            yield json.loads(entry["message"])["message"]

    # What is left of it.

    def _clean_up(self, known: Mapping[int, str] = MappingProxyType({})) -> dict[int, str]:
        """Wait for all of its processes, kill those that stay, and return these."""
        processes = {**known, **self._processes()}
        left = {pid: name for pid, name in processes.items() if not _is_gone(pid)}
        self._held.close()
        shutil.rmtree(self._home)
        return left

    def _processes(self) -> Mapping[int, str]:
        """Return those that it has, by their pids."""
        names, parents, found = {}, {}, set()
        marker = f"{MARKER}={self._home.name}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(process.name)
                name, _, rest = (process / "stat").read_text().rpartition(")")
                names[pid], parents[pid] = name.partition("(")[2], int(rest.split()[1])
                if marker in (process / "environ").read_bytes().split(b"\0"):
                    found.add(pid)
        while below := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= below
        return {pid: names[pid] for pid in found}


def _is_gone(pid: int) -> bool:
    """Whether a process ended by itself; it has by the time this returns."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended = bool(select.select([pidfd], [], [], WAIT_S)[0])
        if not ended:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # it is its parent's, and that one reaped it
            os.waitpid(pid, 0)
    finally:
        os.close(pidfd)
    return ended


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Be the parent of what Chromium orphans: an init that reaps nobody would keep its zombies."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
