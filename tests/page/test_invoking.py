"""Ops are called from a form, and questions are answered in one."""

from __future__ import annotations

import pytest

from tests.page.descriptors import actor, gate
from tests.page.site import Site
from tests.page.visit import Visit


def invoke(visit: Visit, op: str, module: str = "a") -> None:
    visit.go(f"modules/{module}?op={op}", module)
    visit.click("^Invoke")


def test_the_form_of_an_op_has_its_fields_and_shows_what_comes_back(
    visit: Visit, site: Site
) -> None:
    site.serve(actor("a"))
    visit.go("modules/a?op=say", "a")
    visit.sees("What is to be said")
    visit.fill("^text", "one <b>two</b> three")
    visit.fill("^times", "2")
    visit.fill("^tone", "high")
    visit.click("^Invoke")
    visit.sees("one <b>two</b> three")
    visit.sees('"words": 3')
    visit.sees('"times": 2')
    visit.sees('"tone": "high"')


def test_what_does_not_fit_the_inputs_is_said_beside_the_form(visit: Visit, site: Site) -> None:
    site.serve(actor("a"))
    visit.expects("400")
    visit.go("modules/a?op=say", "a")
    visit.fill("^text", "")
    visit.click("^Invoke")
    marks = ("[role=alert]", ":user-invalid", "[aria-invalid=true]")
    wrong = f"return document.querySelector('main :is({','.join(marks)})') !== null"
    visit.browser.until(wrong, "a word about the missing text")


def test_a_form_is_asked_for_again_if_that_failed(visit: Visit, site: Site) -> None:
    site.serve(actor("a"))
    visit.expects("ERR_BLOCKED_BY_CLIENT")
    visit.browser.block("*/modules/supervisor/invoke")
    try:
        visit.go("modules/a", "a")
        visit.sees("The daemon does not answer.")
    finally:
        visit.browser.block()
    visit.element("button", "^Invoke")


def test_output_is_shown_as_it_comes_and_a_call_can_be_cancelled(visit: Visit, site: Site) -> None:
    site.serve(actor("a"))
    invoke(visit, "wait")
    visit.sees("it is waiting")  # and there is no answer yet
    assert site.daemon.status("a")["in_flight"] == 1
    visit.click("^Cancel")
    visit.sees("Cancelled")
    site.waits(lambda: site.daemon.status("a")["in_flight"] == 0, "the call being over")


@pytest.mark.parametrize(
    ("op", "words"), [("fail", "that did not work out"), ("die", "last words")]
)
def test_a_failure_comes_with_its_evidence(visit: Visit, site: Site, op: str, words: str) -> None:
    site.serve(actor("a"))
    visit.expects("422", "502")
    invoke(visit, op)
    visit.sees(words)


def test_a_question_of_a_hook_is_answered(visit: Visit, site: Site) -> None:
    site.serve(actor("a"), gate(of="a"))
    visit.go("approvals", "Approvals")
    asked = site.daemon.client.send_invoke("a", "say", text="x")
    visit.sees("may a be called?")  # without a reload
    visit.click("^allow once")
    assert site.daemon.client.answer(asked).ok
    visit.sees("Nobody asks anything.")  # or the button of the first is what is clicked next
    asked = site.daemon.client.send_invoke("a", "say", text="x")
    visit.click("^deny")
    assert site.daemon.client.answer(asked).error["code"] == "forbidden"


def test_a_question_of_a_module_is_answered_in_its_form(visit: Visit, site: Site) -> None:
    site.serve(actor("a"))
    visit.go("approvals", "Approvals")
    asked = site.daemon.client.send_invoke("a", "ask")
    visit.sees("which one shall it be?")
    visit.fill("^colour", "green")
    visit.fill("^count", "3")
    visit.click("^(Answer|Accept|Send)")
    content = site.daemon.client.answer(asked).result
    assert content["action"] == "accept"
    assert content["content"]["colour"] == "green"
    assert content["content"]["count"] == 3
