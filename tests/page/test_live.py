"""What changes is seen without a reload: a crash, its recovery, and a daemon that was killed."""

from __future__ import annotations

import os
import signal
from functools import partial

from tests.page.descriptors import actor, still
from tests.page.probes import IS_LIVE
from tests.page.site import Site
from tests.page.visit import Visit
from tests.system.test_journal import entries

UNTOUCHED = "window.stayed = true"
STAYED = "return window.stayed === true"


def state_of(visit: Visit, module: str) -> str:
    """Return the state that the list shows of a module."""
    script = """
    for (const row of document.querySelectorAll("main tbody tr"))
      if (row.querySelector("th a")?.innerText === arguments[0])
        return row.querySelector("[data-state]").innerText;
    return "";
    """
    shown: str = visit.browser.js(script, module)
    return shown


def shows_state(visit: Visit, module: str, *states: str) -> None:
    visit.site.waits(lambda: state_of(visit, module) in states, f"{module} being {states}")


def is_back(site: Site, restarts: int) -> bool:
    status = site.daemon.status("fragile")
    return bool(status["state"] == "ready" and status["restarts"] == restarts)


def test_a_crash_and_its_recovery_are_seen_without_a_reload(visit: Visit, site: Site) -> None:
    site.serve(actor("fragile", back_at_once=False), actor("all-well"))
    visit.go("modules", "Modules")
    shows_state(visit, "fragile", "ready")
    visit.browser.js(UNTOUCHED)
    for restarts in range(2):  # after the first crash it is back before anybody can see it
        site.waits(partial(is_back, site, restarts), "the module being back")
        os.kill(site.daemon.pid("fragile"), signal.SIGKILL)
    shows_state(visit, "fragile", "backoff")
    visit.sees("SIGKILL")
    first = "return document.querySelector('main tbody th a').innerText === 'fragile'"
    visit.browser.until(first, "what is in trouble being the first")
    visit.go("modules/fragile", "fragile")
    visit.sees("SIGKILL")
    site.daemon.op("start", module="fragile")
    visit.sees("ready")
    visit.go("modules", "Modules")
    shows_state(visit, "fragile", "ready")
    assert visit.browser.js(STAYED)


def test_modules_that_come_and_go_are_seen_without_a_reload(visit: Visit, site: Site) -> None:
    site.serve(still("first"))
    visit.go("modules", "Modules")
    visit.sees("first")
    visit.browser.js(UNTOUCHED)
    site.serve(still("second"))
    visit.sees("second")
    site.waits(lambda: not state_of(visit, "first"), "the first module being gone")
    site.serve()
    visit.sees("no usable descriptor")
    assert visit.browser.js(STAYED)


def test_after_a_kill_of_the_daemon_the_page_goes_on_where_it_was(visit: Visit, site: Site) -> None:
    visit.expects(
        "ERR_CONNECTION_REFUSED",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
    )
    site.serve(actor("a"))
    visit.go("events", "Events")
    visit.browser.js(UNTOUCHED)
    site.daemon.invoke("a", "say", text="before")
    before = written(site, last=1)[-1]
    sees_event(visit, before)
    site.kill()
    visit.browser.until(f"return !({IS_LIVE.removeprefix('return ')})", "a page without a daemon")
    site.start_again()
    site.daemon.invoke("a", "say", text="after")
    visit.browser.until(IS_LIVE, "the page being live again")
    after = written(site, last=1)[-1]
    sees_event(visit, after)
    seen = shown_events(visit)
    assert len(seen) == len(set(seen)), "an event is shown twice"
    missing = {one for one in written(site, since=before - 1) if one <= after} - set(seen)
    assert not missing, f"events are missing: {missing}"
    assert visit.browser.js(STAYED), "it was loaded anew"
    visit.go("modules", "Modules")
    shows_state(visit, "a", "ready")


def written(site: Site, **args: int) -> list[int]:
    """Return the numbers of the entries of the journal."""
    return [one["seq"] for one in entries(site.daemon, **args)]


def shown_events(visit: Visit) -> list[int]:
    script = "return [...document.querySelectorAll('[data-seq]')].map((one) => +one.dataset.seq)"
    seen: list[int] = visit.browser.js(script)
    return seen


def sees_event(visit: Visit, seq: int) -> None:
    script = "return document.querySelector(`[data-seq='${arguments[0]}']`) !== null"
    visit.browser.until(script, f"the event {seq}", seq)
