"""`progress` on a terminal is a bar below what is said; elsewhere it is a line like any other."""

from __future__ import annotations

from typing import Any

import click
import pytest

from supervisor.cli.event_text import EventPrinter, progress_text
from supervisor.cli.terminal import Ticker, cells


def progress(**payload: Any) -> dict[str, Any]:
    return {"type": "ui_event", "event": "progress", "payload": payload}


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"done": 1, "total": 4}, "[#####---------------]  25%"),
        ({"done": 4, "total": 4, "message": "read\n all"}, "[####################] 100% read  all"),
        ({"done": 9, "total": 4}, "[####################] 100%"),
        ({"done": -1, "total": 4}, "[--------------------]   0%"),
        ({"done": 10**400, "total": 10**400 + 1}, "[####################] 100%"),
        ({"done": 7, "message": "files\x1b[2J"}, "7 files\\x1b[2J"),
        ({"done": 7, "total": 0}, "7"),
    ],
)
def test_how_far_it_is_is_a_bar_if_the_whole_is_known(payload: Any, shown: str) -> None:
    assert progress_text(payload, 60) == shown


def test_it_is_never_wider_than_the_terminal() -> None:
    text = progress_text({"done": 1, "total": 2, "message": "\u6f22" * 40}, 40)
    assert cells(text) <= 39


@pytest.fixture
def printer(monkeypatch: pytest.MonkeyPatch) -> EventPrinter:
    monkeypatch.setattr("supervisor.cli.terminal.is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", "40")
    return EventPrinter()


def test_on_a_terminal_it_is_rewritten_and_what_is_said_stands_above(
    printer: EventPrinter, capsys: pytest.CaptureFixture[str]
) -> None:
    half, whole = "[##########----------]  50%", "[####################] 100%"
    chunk = {"type": "ui_event", "event": "message.chunk", "payload": {"content": "so"}}
    printer.show(progress(done=1, total=2))
    printer.show({"type": "log", "level": "info", "message": "hm"})
    printer.show(progress(done=2, total=2))
    printer.show(chunk)
    printer.show(progress(done=2, total=2))
    printer.close_line()
    shown = click.unstyle(capsys.readouterr().err).replace("\r", "<")
    assert shown == f"{half}<info   hm\n{half}<{whole}<so\n{whole}<"


def test_elsewhere_it_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    EventPrinter().show(progress(done=1, total=2))
    assert click.unstyle(capsys.readouterr().err) == 'ui     progress {"done":1,"total":2}\n'


def test_one_of_another_form_is_told_by_its_placeholder(
    printer: EventPrinter, capsys: pytest.CaptureFixture[str]
) -> None:
    printer.show({**progress(done="x"), "placeholder": "progress: done must be a number"})
    assert "progress: done must be a number" in capsys.readouterr().err


def test_a_line_is_rewritten_as_a_whole_for_who_wants_no_colours_and_is_never_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("supervisor.cli.terminal.is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", "10")
    context = click.Context(click.Command("x"), color=False)
    with context.scope(), Ticker() as ticker:
        ticker.show("waiting for dice")
        ticker.show("is ready")
    assert capsys.readouterr().err == "waiting..\r\x1b[Kis ready\r\x1b[K"
