"""Whatever a module says, nothing of it runs, nothing is asked of others, and the page answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.page import hostile
from tests.page.descriptors import FOLDER, PYTHON, gate
from tests.page.hostile import ALL, BIDI, IMAGE, LINK, SCRIPT
from tests.page.probes import MARKUP, SETTLED, SIZE, UNSEEN
from tests.page.site import Site
from tests.page.visit import Visit
from tests.system.descriptors import AT_ONCE, PATIENT, descriptor

NAME = f"{IMAGE}\u202e\u2066x"
"""A module may be called so."""
MODULE = f"modules/{quote(NAME, safe='')}"
SESSION = "hostile"

VIEWS = {
    "modules": "Modules",
    MODULE: "<img[^]*x",
    "sessions": "Sessions",
    f"sessions/{SESSION}": "<script>[^]*",  # the title, which is read after the view is there
    "assets": "Assets",
    "approvals": "Approvals",
    "events": "Events",
}
"""Each with the pattern of its heading."""

MOST_ELEMENTS = 15_000
MOST_CHARACTERS = 3_000_000
"""Of text in the document, however much a module has said."""


def module() -> dict[str, Any]:
    field = {"type": "string", "title": ALL, "description": ALL, "default": ALL, "examples": [ALL]}
    inputs = {
        op: {
            "type": "object",
            "title": ALL,
            "description": ALL,
            "properties": {IMAGE: field, BIDI: {"enum": [ALL, IMAGE, LINK]}, "__proto__": field},
            "examples": [{IMAGE: ALL}],
        }
        for op in ("all", "patch", "much", "deep", "wide", "chatter", "die", SCRIPT, BIDI)
    }
    made = descriptor(NAME, [*PYTHON, str(FOLDER / "hostile.py"), NAME], supervision={
        "intensity": 1000, "backoff": AT_ONCE, "timeouts": PATIENT
    })  # fmt: skip
    return {**made, "version": ALL[:60], "description": ALL, "inputs": inputs}


@pytest.fixture
def said(site: Site) -> Iterator[None]:
    """Have a hostile module say all that it has to say."""
    site.serve(module())
    bad = site.daemon.modules / f"<script>{hostile.TRACE}=1<.json"
    bad.write_text(json.dumps({"name": SCRIPT, ALL: ALL}))
    site.daemon.op("reload")
    client = site.daemon.client
    if SESSION not in [one["session_id"] for one in site.daemon.op("session.list")["sessions"]]:
        site.daemon.op(
            "session.new",
            session_id=SESSION,
            title=ALL[:200],
            plan={"goal": ALL, "inputs": {}},
            state={IMAGE: ALL},
        )
    for op in ("all", "patch", "much", "deep", "wide", "die", "unheard of"):
        content: dict[str, Any] = {"op": op, "args": {}, "session_id": SESSION}
        client.answer(client.send(NAME, "invoke", content))
    yield
    bad.unlink()


def assert_harmless(visit: Visit, view: str) -> None:
    browser = visit.browser
    assert browser.js(f"return window.{hostile.TRACE}") is None, f"something ran in {view}"
    assert not (odd := browser.js(MARKUP)), f"{view}: {odd}"
    assert not (raw := browser.js(UNSEEN)), f"{view}: {raw[:5]}"
    elements, characters = browser.js(SIZE)
    assert elements < MOST_ELEMENTS, f"{view} has {elements} elements"
    assert characters < MOST_CHARACTERS, f"{view} has {characters} characters"


def test_nothing_of_what_a_module_said_runs_in_any_view(
    visit: Visit, site: Site, said: None
) -> None:
    for view, heading in VIEWS.items():
        visit.go(view, heading)
        settle(visit)
        assert_harmless(visit, view)
    for button in ("Show", "More", "all"):
        unfold(visit, button)


def unfold(visit: Visit, name: str) -> None:
    """Open whatever can be opened, and look again."""
    for view, heading in VIEWS.items():
        visit.go(view, heading)
        settle(visit)
        visit.browser.js("""
            for (const one of document.querySelectorAll("main details")) one.open = true;
            for (const one of [...document.querySelectorAll("main button")].slice(0, 50))
              if (one.innerText.includes(arguments[0])) one.click();
        """, name)  # fmt: skip
        settle(visit)
        assert_harmless(visit, view)


def settle(visit: Visit) -> None:
    """Return when the page has drawn what it had to draw."""
    visit.browser.until(SETTLED, "two frames")


@pytest.mark.parametrize("op", ["all", "much", "deep", "wide", "chatter", "die"])
def test_a_call_of_a_hostile_module_is_shown_in_bounds(visit: Visit, site: Site, op: str) -> None:
    site.serve(module())
    visit.expects("50[0-9]", "422")
    visit.go(f"{MODULE}?op={op}", VIEWS[MODULE])
    visit.click("^Invoke")
    ended = "return document.querySelector('.invocation > [aria-label=Result]').checkVisibility()"
    visit.browser.until(ended, f"the end of {op}")
    settle(visit)
    assert_harmless(visit, f"{MODULE}?op={op}")
    visit.click("^Sessions", "link")  # it still answers
    visit.element("heading", "^Sessions$")


def test_a_hostile_question_is_a_text(visit: Visit, site: Site) -> None:
    asks = gate(of=NAME)
    question = json.loads(asks["transport"]["command"][-1])
    question["tool:pre"] |= {"approval_prompt": ALL, "approval_options": ["deny", IMAGE]}
    asks["transport"]["command"][-1] = json.dumps(question)
    site.serve(module(), asks)
    visit.go("approvals", "Approvals")
    asked = site.daemon.client.send_invoke(NAME, "all")
    visit.sees("<script>")
    assert_harmless(visit, "approvals")
    visit.click("^deny")
    assert not site.daemon.client.answer(asked).ok


def test_an_asset_that_is_opened_runs_nothing(visit: Visit, site: Site, said: None) -> None:
    # By the browser itself, where a picture or a sound stands alone: nothing of that is allowed.
    visit.expects("violates the following Content Security Policy")
    assets = {one["asset_id"]: one for one in site.daemon.op("asset.list")["assets"]}
    for asset in assets.values():
        visit.browser.open(f"{site.address}/api/v1/assets/{asset['asset']}/content")
        assert visit.browser.js(f"return window.{hostile.TRACE}") is None, asset
