"""Show a question that waits for a person, how to answer it, and what became of it."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.quantities import duration
from supervisor.cli.terminal import dim, one_line, shell_word

_BY = {
    "timeout": "nobody answered in time",
    "withdrawn": "its request has ended",
}


def question_text(question: dict[str, Any]) -> str:
    """Return a question and how to answer it."""
    about = f"{question['asked_by']} asks about {question['module']}.{question['op']}"
    id_ = click.style(one_line(str(question["id"])), bold=True)
    left = f"{question['default']} in {duration(float(question['left_s']))}"
    return "\n".join(
        [
            f"{id_}  {one_line(str(question['prompt']))}",
            f"  {dim(one_line(about))}",
            f"  {dim('answer')} {how(question)}{dim(f', else {one_line(left)}')}",
        ]
    )


def how(question: dict[str, Any]) -> str:
    """Return the command that answers a question."""
    id_ = shell_word(str(question["id"]))
    options = [str(one) for one in question.get("options") or ()]
    if options in (["allow", "deny"], []):
        return f"stdiod approve {id_} [--deny]"
    return f"stdiod approve {id_} --answer {'|'.join(shell_word(one) for one in options)}"


def change_line(change: dict[str, Any]) -> str:
    """Return what happened to a question: that it was asked, or how it was decided."""
    question, decision = change["approval"], change.get("decision")
    if decision is None:
        return question_text(question)
    return f"{one_line(str(question['id']))}  {decided(decision)}"


def decided(decision: dict[str, Any]) -> str:
    """Return what a decision came to."""
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
