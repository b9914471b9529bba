"""What somebody does on the page, and what must hold whatever he does."""

from __future__ import annotations

import contextlib
import re

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.bounds import until
from tests.page.chromium import Chromium
from tests.page.hostile import TRACE
from tests.page.probes import FOCUSED, NAMED
from tests.page.site import Site

STANDING = """
const [element, done] = arguments;
let before;
const look = () => {
  const {x, y} = element.getBoundingClientRect(), now = `${x} ${y}`;
  now === before ? done() : requestAnimationFrame(look);
  before = now;
};
look();
"""
"""A click goes to where an element was: so it is not to move any more."""


UNCLICKED = "window.wasClicked = false"
LISTENING = """
arguments[0].addEventListener("click", () => { window.wasClicked = true; }, {once: true});
"""
CLICKED = "return window.wasClicked"

LEAVING = """
const left = document.querySelector("main > .view");
if (left !== null && location.href !== arguments[0]) left.isLeft = true;
"""
ARRIVED = """
return document.readyState === "complete" && !document.querySelector("main > .view")?.isLeft;
"""
"""Whether the view is another one: a new `#...` is there before the view that it names."""


class Visit:
    """A browser that is logged in at a site."""

    def __init__(self, site: Site, browser: Chromium) -> None:
        """Log in; what the browser wrote before is nobody's."""
        self.site = site
        self.browser = browser
        site.login(browser)
        browser.console()
        browser.hosts()
        self._expected: list[str] = []

    def go(self, view: str, heading: str) -> None:
        """Show a view by its address; returns when all of its heading is `heading`, a pattern."""
        url = self.site.url(view)
        self.browser.js(LEAVING, url)
        self.browser.open(url)
        self.browser.until(ARRIVED, f"{view} being shown")
        self.element("heading", f"^(?:{heading})$")

    def sees(self, text: str, within: str = "main") -> None:
        """Wait until a text can be seen."""
        script = "return document.querySelector(arguments[0])?.innerText.includes(arguments[1])"
        self.browser.until(script, f"{text!r} in {within}", within, text)

    def element(self, role: str, name: str) -> WebElement:
        """Wait for an element that people call so; `name` is a pattern."""
        found: WebElement = self.browser.until(NAMED, f"a {role} named {name!r}", role, name)
        return found

    def click(self, name: str, role: str = "button") -> None:
        """Click on what is called so, until it was what the click came to.

        A click goes to a place, so to something else if the page moves at that moment; and what was
        found may be another element, or out of sight, before it is clicked on.
        """
        until(lambda: self._clicked(role, name), f"a click on {name!r}")

    def _clicked(self, role: str, name: str) -> bool:
        element = self.element(role, name)
        self.browser.js(UNCLICKED)
        with contextlib.suppress(
            ElementClickInterceptedException,
            ElementNotInteractableException,
            StaleElementReferenceException,
        ):
            self.browser.js(LISTENING, element)
            self.browser.driver.execute_async_script(STANDING, element)
            element.click()
        return bool(self.browser.js(CLICKED))

    def fill(self, name: str, text: str) -> None:
        """Type into a field, in place of what it has."""
        field = self.element("field", name)
        if field.tag_name == "select":
            field.find_element(By.XPATH, f".//option[normalize-space()='{text}']").click()
        else:
            field.clear()
            field.send_keys(text)

    def expects(self, *patterns: str) -> None:
        """Take it that the console will have messages like these."""
        self._expected += patterns

    def assert_well_behaved(self) -> None:
        """Fail if the page wrote an error, broke its own policy, or turned to anybody else."""
        odd = [
            line
            for line in self.browser.console()
            if not any(re.search(pattern, line) for pattern in self._expected)
        ]
        assert not odd, "\n".join(odd)
        assert self.browser.hosts() <= {self.site.host}
        assert self.browser.js(f"return window.{TRACE}") is None
        assert self.browser.js("return Object.prototype.polluted") is None

    def focused(self) -> str:
        """Return what the element is called that has the focus."""
        found: str = self.browser.js(FOCUSED)
        return found
