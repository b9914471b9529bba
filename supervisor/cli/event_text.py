"""The events of an invocation as they come, on stderr; and questions to a person."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.quantities import duration
from supervisor.cli.results import short
from supervisor.cli.terminal import Ticker, cut, dim, one_line, safe, shell_word
from supervisor.policy.form import choices_of

_LEVEL_COLOURS = {"debug": "bright_black", "info": "blue", "warn": "yellow", "error": "red"}
_RUNNING_TEXT = frozenset({"message.chunk", "agent.thinking"})
_TOOL_CALLS = {
    "tool.call_start": "is called",
    "tool.call_complete": "has ended",
    "tool.call_error": "failed",
}
_WIDTH = 6
_BAR_CELLS = 20


class EventPrinter:
    """Writes each event as it comes. On a terminal the last `progress` stands below, as a bar."""

    def __init__(self) -> None:
        self._line_is_open = False
        self._bar = Ticker()

    def show(self, event: dict[str, Any]) -> None:
        if self._bar.live and _is_progress(event):
            self._end_running_text()
            from shutil import get_terminal_size

            self._bar.show(progress_text(event["payload"], get_terminal_size().columns))
            return
        if event.get("type") == "ui_event" and event.get("event") in _RUNNING_TEXT:
            # With a payload of another form it has a placeholder.
            payload = event.get("payload") or {}
            content = payload.get("content", payload.get("thought"))
            if isinstance(content, str):
                self._run_on(content, thinking=event["event"] == "agent.thinking")
                return
        self.line(event_line(event))

    def line(self, text: str) -> None:
        self._end_running_text()
        self._bar.line(text)

    def prompt(self, text: str) -> None:
        """Show a prompt below all else."""
        self._end_running_text()
        self._bar.show(text)

    def close_line(self) -> None:
        """End running text, if there is any, and remove the bar."""
        self._bar.clear()
        self._end_running_text()

    def _end_running_text(self) -> None:
        if self._line_is_open:
            self._line_is_open = False
            click.echo(err=True)

    def _run_on(self, content: str, *, thinking: bool) -> None:
        if not content:
            return
        self._bar.clear()
        text = safe(content)
        click.echo(dim(text) if thinking else text, err=True, nl=False)
        self._line_is_open = not content.endswith("\n")


def _is_progress(event: dict[str, Any]) -> bool:
    # With a payload of another form it has a placeholder.
    return event.get("event") == "progress" and not isinstance(event.get("placeholder"), str)


def progress_text(payload: dict[str, Any], columns: int) -> str:
    """Return a progress as a line of fewer than `columns` cells."""
    done, total = payload.get("done", 0), payload.get("total")
    if isinstance(total, int | float) and total > 0:
        # Whole numbers may be too large for a division.
        share = 1.0 if done >= total else done / total if done > 0 else 0.0
        filled = int(share * _BAR_CELLS)
        text = f"[{'#' * filled}{'-' * (_BAR_CELLS - filled)}] {share:4.0%}"
    else:
        text = str(done)
    said = payload.get("message")
    words = f" {one_line(said)}" if isinstance(said, str) else ""
    return cut(text + words, columns - 1)


def event_line(event: dict[str, Any]) -> str:
    """Return an event as one line: a label, then its content."""
    match event.get("type"):
        case "log":
            level = str(event.get("level"))
            fields = event.get("fields") or {}
            said = one_line(str(event.get("message", "")))
            return _labelled(level, said + _fields(fields), _LEVEL_COLOURS.get(level))
        case "state_patch":
            revision = event.get("revision")  # only of a patch that was merged
            where = dim(f" (revision {revision})") if isinstance(revision, int) else ""
            return _labelled("state", short(event.get("patch")) + where, "magenta")
        case "asset":
            what = f"{event.get('mediaType')}, {event.get('kind')}, id {event.get('assetId')}"
            registered = event.get("registered")
            if isinstance(registered, dict):
                what += f", asset {registered.get('id')}"
            path = click.style(one_line(str(event.get("path"))), underline=True)
            return _labelled("asset", f"{path} {dim(f'({one_line(what)})')}", "green")
        case "error":
            code, words = event.get("errorCode"), event.get("errorMessage")
            return _labelled("error", one_line(f"{code}: {words}"), "red")
        case "ui_event":
            return _ui_line(event)
        case other:
            return _labelled(one_line(str(other))[:_WIDTH], short(event), None)


def _ui_line(event: dict[str, Any]) -> str:
    name = str(event.get("event"))
    payload = event.get("payload") or {}
    # Only questions of the daemon have this: a module cannot forge one.
    if isinstance(event.get("approval"), str):
        return _labelled("ask", _approval(name, payload), "yellow")
    placeholder = event.get("placeholder")
    if isinstance(placeholder, str):
        return _ui(one_line(placeholder), payload)
    tool = payload.get("tool_name", payload.get("tool_call_id"))
    if name in _TOOL_CALLS and isinstance(tool, str):
        rest = {key: value for key, value in payload.items() if value is not tool}
        said = f"{one_line(tool)} {_TOOL_CALLS[name]}"
        return _ui(said, rest, "tool")
    return _ui(one_line(name), payload)


def _ui(said: str, details: dict[str, Any], label: str = "ui") -> str:
    return _labelled(label, f"{said} {dim(short(details))}" if details else said, "cyan")


def _approval(name: str, payload: dict[str, Any]) -> str:
    if name != "approval.request":
        return decided(payload)
    asked = one_line(f"{payload.get('asked_by')} asks: {payload.get('prompt')}")
    return f"{asked} {dim('- answer with')} {way_to_answer(payload)}"


def log_line(stream: str, text: str) -> str:
    return _labelled(stream, one_line(text), "bright_black")


def _labelled(label: str, text: str, colour: str | None) -> str:
    return f"{click.style(label.ljust(_WIDTH), fg=colour)} {text}"


def _fields(fields: dict[str, Any]) -> str:
    if not fields:
        return ""
    pairs = (f"{key}={_value(value)}" for key, value in fields.items())
    return "  " + dim(one_line(" ".join(pairs)))


def _value(value: Any) -> str:
    return value if isinstance(value, str) and " " not in value else short(value)


# Questions that wait for a person.

_BY = {
    "timeout": "nobody answered in time",
    "withdrawn": "its request has ended",
}


def question_text(question: dict[str, Any]) -> str:
    about = f"{question['asked_by']} asks about {question['module']}.{question['op']}"
    id_ = click.style(one_line(str(question["id"])), bold=True)
    left = f"{question['default']} in {duration(float(question['left_s']))}"
    return "\n".join(
        [
            f"{id_}  {one_line(str(question['prompt']))}",
            *(f"  {one_line(one)}" for one in _form_lines(question.get("form"))),
            f"  {dim(one_line(about))}",
            f"  {dim('answer')} {way_to_answer(question)}{dim(f', else {one_line(left)}')}",
        ]
    )


def _form_lines(form: Any) -> list[str]:
    """Return a line for each field of a form: its name, type and description."""
    if not isinstance(form, dict) or not isinstance(form.get("properties"), dict):
        return []
    required, lines = form.get("required") or [], []
    for name, field in form["properties"].items():
        choices = choices_of(field)
        wants = str(field.get("type")) if choices is None else "|".join(choices)
        if field.get("type") == "array":
            wants += " (several, with commas)"
        if name in required:
            wants += " required"
        if "default" in field:
            wants += f" (else {field['default']})"
        about = field.get("description") or field.get("title") or ""
        lines.append(f"{name}  {wants}  {about}".rstrip())
    return lines


def way_to_answer(question: dict[str, Any]) -> str:
    id_ = shell_word(str(question["id"]))
    options = [str(one) for one in question.get("options") or ()]
    if question.get("form"):
        return f"stdiod approve {id_} --set FIELD=VALUE... [--deny]"
    if options in (["allow", "deny"], []):
        return f"stdiod approve {id_} [--deny]"
    return f"stdiod approve {id_} --answer {'|'.join(shell_word(one) for one in options)}"


def question_change(change: dict[str, Any]) -> str:
    question, decision = change["approval"], change.get("decision")
    if decision is None:
        return question_text(question)
    return f"{one_line(str(question['id']))}  {decided(decision)}"


def decided(decision: dict[str, Any]) -> str:
    word = (
        click.style("allowed", fg="green")
        if decision.get("allowed")
        else click.style("denied", fg="red")
    )
    why = _BY.get(str(decision.get("by")))
    answer = str(decision.get("answer"))
    if why is None and answer not in {"allow", "deny"}:
        why = f"the answer was {answer}"
    return f"{word} {dim(f'({one_line(why)})')}" if why else word
