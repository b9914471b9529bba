"""Sessions for people: a table, a page for one, a line for each change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from supervisor.cli.quantities import ago, count, duration, time_of_day
from supervisor.cli.results import short
from supervisor.cli.terminal import cells, cut, dim, one_line, pad

STATUS_COLOURS = {
    "idle": "green",
    "busy": "cyan",
    "cancelled": "yellow",
    "error": "red",
    "ended": "bright_black",
}

_COLUMNS = ("ID", "STATUS", "REVISION", "INVOCATIONS", "CHANGED", "TITLE")
_RIGHT = frozenset({"REVISION", "INVOCATIONS", "CHANGED"})
_LEAVE_OUT = ("INVOCATIONS", "REVISION", "CHANGED")
_SHORT_TITLE = 12
"""Titles are cut to this before a column is left out."""
_GAP = "  "
_LABEL_WIDTH = 12
_HISTORY_SHOWN = 10


def status_word(status: str, width: int = 0) -> str:
    """Return a status in its colour, padded to a width."""
    return click.style(status.ljust(width), fg=STATUS_COLOURS.get(status))


def table(sessions: list[dict[str, Any]], width: int | None) -> str:
    """Return a table of sessions.

    `width` is the terminal's, if there is one. On a narrow terminal columns are left out in the
    order of `_LEAVE_OUT`, and titles are cut.
    """
    rows = [_row(session) for session in sessions]
    widths = {name: max(len(name), *(cells(row[name]) for row in rows)) for name in _COLUMNS}
    columns = list(_COLUMNS)
    if width is not None:
        least = {**widths, "TITLE": min(widths["TITLE"], _SHORT_TITLE)}
        for name in _LEAVE_OUT:
            if sum(least[one] + len(_GAP) for one in columns) - len(_GAP) > width:
                columns.remove(name)
        left = width - sum(widths[one] + len(_GAP) for one in columns[:-1])
        widths["TITLE"] = max(0, min(widths["TITLE"], left))
    titles = [pad(cut(n, widths[n]), widths[n], right=n in _RIGHT) for n in columns]
    lines = [dim(_GAP.join(titles).rstrip())]
    for row in rows:
        shown = [
            status_word(row[name], widths[name])
            if name == "STATUS"
            else pad(cut(row[name], widths[name]), widths[name], right=name in _RIGHT)
            for name in columns
        ]
        lines.append(_GAP.join(shown).rstrip())
    return "\n".join(lines)


def page(session: dict[str, Any]) -> str:
    return "\n".join(_lines(session))


def change_line(event: dict[str, Any], *, live: bool) -> str:
    """Return a journal entry about a session's state as a line; the time is short if `live`."""
    data = event.get("data") or {}
    who = event.get("module") or "a client"
    request = f" {event['request_id']}" if event.get("request_id") else ""
    when = dim(time_of_day(event["ts"])) + " " if live else ""
    revision = click.style(f"#{data.get('revision')}", fg="magenta")
    return f"{when}{revision} {one_line(who + request)} {short(data.get('patch'))}"


def _row(session: dict[str, Any]) -> dict[str, str]:
    return {
        "ID": one_line(session["session_id"]),
        "STATUS": session["status"],
        "REVISION": str(session["revision"]),
        "INVOCATIONS": str(session["invocations"]),
        "CHANGED": ago(session["updated"]),
        "TITLE": one_line(session["title"] or ""),
    }


def _lines(session: dict[str, Any]) -> Iterator[str]:
    name = click.style(one_line(session["session_id"]), bold=True)
    yield f"{name}: {status_word(session['status'])}"
    if session["title"]:
        yield one_line(session["title"])
    yield ""
    for label, text in _facts(session).items():
        if text:
            yield dim(label.ljust(_LABEL_WIDTH)) + text
    history = session["history"]
    for number, past in enumerate(history[-_HISTORY_SHOWN:]):
        yield dim(("" if number else "history").ljust(_LABEL_WIDTH)) + _past(past)
    yield ""
    yield dim(f"state at revision {session['revision']}")


def _facts(session: dict[str, Any]) -> dict[str, str]:
    parent, plan = session["parent"], session["plan"]
    since = f"began {ago(session['created'])}, changed {ago(session['updated'])}"
    roles = session["roles"]
    tools = {"tools": ", ".join(roles["tools"])} if roles.get("tools") else {}
    return {
        "folder": one_line(session["cwd"] or ""),
        "roles": one_line("; ".join(f"{role} {name}" for role, name in (roles | tools).items())),
        "since": since + (f", ended {ago(session['ended'])}" if session["ended"] else ""),
        "fork of": (
            ""
            if parent is None
            else f"{one_line(parent['session_id'])} at revision {parent['revision']}"
        ),
        "goal": "" if plan is None else one_line(str(plan.get("goal"))),
        "inputs": short(plan["inputs"]) if plan and plan.get("inputs") else "",
        "requests": (
            f"{session['in_flight']} in flight, {count(session['invocations'], 'invocation')} ended"
        ),
    }


def _past(past: dict[str, Any]) -> str:
    ended = (
        click.style("ok", fg="green")
        if past["ok"]
        else click.style(one_line(str(past["code"])), fg="red")
    )
    what = one_line(f"{past['module']}.{past['op']}")
    when = f"({ago(past['ts'])}, took {duration(past['duration_ms'] / 1000)})"
    return f"{what} {ended} {dim(when)}"
