"""Each view shows what there is, to everybody: in light and dark, with a keyboard alone."""

from __future__ import annotations

from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from scripts.foreign import AXE
from tests.bounds import TEST_S
from tests.page.descriptors import actor, broken, gate
from tests.page.probes import REACHABLE, REACHED
from tests.page.site import Site
from tests.page.visit import Visit

VIEWS = {
    "modules": ("Modules", "/nowhere/c is not there", "ready"),
    "modules/a": ("a", "What is to be said", "this is a line of the log"),
    "sessions": ("Sessions", "walk"),
    "sessions/walk": ("walk", "room", "hall", "make"),
    "assets": ("Assets", "picture", "model/x-unheard-of"),
    "approvals": ("Approvals", "may b be called?"),
    "events": ("Events", "module:state"),
}
"""Each with its heading, and what is there to be seen once it is furnished."""


def furnish(site: Site) -> None:
    """Have something to be seen in each view."""
    site.serve(actor("a"), actor("b"), broken("c"), gate(of="b"))
    sessions = site.daemon.op("session.list")["sessions"]
    if "walk" not in [one["session_id"] for one in sessions]:
        site.daemon.op(
            "session.new", session_id="walk", state={"room": "hall", "lit": [1, True, None]}
        )
        made = site.daemon.client.send(
            "a", "invoke", {"op": "make", "args": {}, "session_id": "walk"}
        )
        assert site.daemon.client.answer(made).ok
    site.daemon.client.send_invoke("b", "say", TEST_S, text="x")
    site.waits(lambda: site.daemon.op("approvals")["approvals"], "a question")


def show(visit: Visit, view: str) -> None:
    """Go to a view; returns when all of it is there."""
    heading, *words = VIEWS[view]
    visit.go(view, heading)
    for text in words:
        visit.sees(text)


def test_each_view_shows_what_there_is(visit: Visit, site: Site) -> None:
    furnish(site)
    for view in VIEWS:
        show(visit, view)
        current = "return document.querySelector('nav [aria-current=page]')?.innerText"
        assert visit.browser.js(current), f"no link of the navigation is the current one in {view}"


def test_a_change_of_a_sessions_state_is_seen_as_it_is_made(visit: Visit, site: Site) -> None:
    furnish(site)
    visit.go("sessions/walk", "walk")
    visit.sees("hall")
    site.daemon.op("session.patch", session_id="walk", patch={"room": "cellar", "lit": None})
    visit.sees("cellar")
    site.daemon.op("session.patch", session_id="walk", patch={"room": "hall", "lit": [1]})
    visit.sees("hall")


def test_assets_are_shown_as_what_they_are(visit: Visit, site: Site) -> None:
    furnish(site)
    visit.go("assets", "Assets")
    visit.browser.until(
        "return [...document.querySelectorAll('main img')].some((one) => one.naturalWidth > 0)",
        "a picture that is loaded",
    )
    visit.browser.until("return document.querySelector('main audio[controls]')", "a sound")
    visit.sees("model/x-unheard-of")


def test_the_events_can_be_filtered(visit: Visit, site: Site) -> None:
    furnish(site)
    visit.go("events?event=session:*", "Events")
    visit.sees("session:start")
    assert "module:state" not in visit.browser.js(
        "return [...document.querySelectorAll('[data-seq]')].map((one) => one.innerText).join()"
    )


# What everybody can use.


def violations(visit: Visit, source: str) -> list[str]:
    """Return what axe-core finds wrong with what is shown."""
    browser = visit.browser
    if not browser.js("return typeof window.axe === 'object'"):
        browser.cdp("Runtime.evaluate", expression=source)
    found: dict[str, Any] = browser.js(
        "return window.axe.run(document, {resultTypes: ['violations']})"
    )
    return [
        f"{one['id']}: {one['help']}: {node['html'][:200]} ({node['failureSummary'][:300]})"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_anybody_from_using_a_view(visit: Visit, site: Site, scheme: str) -> None:
    if not AXE.is_installed():
        pytest.skip("axe-core is not installed: npm is missing")
    script = AXE.folder / "node_modules" / "axe-core" / "axe.min.js"
    source = script.read_text(encoding="utf-8")
    furnish(site)
    found = []
    visit.browser.prefer(color_scheme=scheme, reduced_motion="reduce")
    try:
        for view in VIEWS:
            show(visit, view)
            found += [f"{view}: {line}" for line in violations(visit, source)]
    finally:
        visit.browser.prefer()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("view", VIEWS)
def test_the_keyboard_reaches_everything_and_the_focus_is_seen(
    visit: Visit, site: Site, view: str
) -> None:
    furnish(site)
    if view == "events":  # a list that grows meanwhile would have no end to get to
        visit.go("events?event=session:*", "Events")
        visit.sees("session:start")
    else:
        show(visit, view)
    visit.browser.js("document.activeElement.blur(); document.body.focus()")
    wanted = visit.browser.js(REACHABLE)
    reached = 0
    for _ in range(3 * wanted + 10):
        visit.browser.press(Keys.TAB)
        said = visit.browser.js(REACHED)
        if said == "again":
            break
        assert said in ("shown", "inside", "end"), said
        reached += said == "shown"
    assert reached >= wanted, f"{reached} of {wanted} are reached"


def tab_to(visit: Visit, name: str) -> None:
    """Go on by Tab until what is called so has the focus."""
    for _ in range(200):
        visit.browser.press(Keys.TAB)
        if name in visit.focused():
            return
    raise AssertionError(f"the keyboard does not get to {name!r}")


def test_a_call_is_made_and_a_question_answered_with_the_keyboard_alone(
    visit: Visit, site: Site
) -> None:
    furnish(site)
    visit.go("modules", "Modules")
    tab_to(visit, "a")
    visit.element("link", "^a$").send_keys(Keys.ENTER)
    visit.element("heading", "^a$")
    visit.go("modules/a?op=say", "a")
    tab_to(visit, "text")
    visit.browser.press("typed", Keys.ENTER)
    visit.sees('"words": 1')
    visit.go("approvals", "Approvals")
    visit.sees("may b be called?")
    tab_to(visit, "allow once")
    visit.browser.press(Keys.ENTER)
    site.waits(lambda: not site.daemon.op("approvals")["approvals"], "the question being answered")


def test_a_page_that_is_not_logged_in_takes_a_token(visit: Visit, site: Site) -> None:
    site.serve(actor("a"))
    visit.expects("401")
    token = site.daemon.op("token.new", name="of-the-page", scopes=["read"])["token"]
    visit.browser.driver.delete_all_cookies()
    visit.browser.open(site.url())
    visit.sees("You are not logged in")
    visit.fill("Or a token", "stdiod_1_x")
    visit.click("Log in")
    visit.sees("the token is unknown")
    visit.fill("Or a token", f" {token} ")
    # Each loads the page anew, which forgets that it was clicked on.
    visit.element("button", "Log in").click()
    visit.sees("Modules, those in trouble first")
    visit.element("button", "Log out").click()
    visit.sees("You are not logged in")
    site.daemon.op("token.revoke", name="of-the-page")


def test_a_disabled_module_is_not_offered_to_be_started(visit: Visit, site: Site) -> None:
    site.serve(actor("a"), actor("off", enabled=False))
    visit.go("modules/off", "off")
    visit.sees("disabled")
    for name in ("Start", "Restart", "Stop"):
        assert not visit.element("button", name).is_enabled()


SHOWN = """
const all = [...document.querySelectorAll('tr[data-module="a"] .spark')];
const widths = all.map((one) => one.querySelector('.trend').getBoundingClientRect().width);
return widths.length === 3 && widths[2] >= 50 && widths;
"""


def test_a_trend_is_wide_enough_to_read_and_there_is_none_of_no_data(
    visit: Visit, site: Site
) -> None:
    site.serve(actor("a"))
    visit.browser.resize(1280, 800)
    visit.go("modules", "Modules")
    assert visit.browser.until(SHOWN, "a trend of the memory")[:2] == [0, 0]
