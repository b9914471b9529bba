"""`stdiod approvals` and `approve`: questions that wait for a person, and their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import SUPERVISOR, DaemonClient
from supervisor.cli.options import TEXT, example, with_json, with_socket
from supervisor.cli.quantities import duration
from supervisor.cli.results import own_result, print_json, result_of
from supervisor.cli.terminal import dim, one_line, shell_word
from supervisor.policy.form import choices_of

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
            f"  {dim('answer')} {how(question)}{dim(f', else {one_line(left)}')}",
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


def how(question: dict[str, Any]) -> str:
    id_ = shell_word(str(question["id"]))
    options = [str(one) for one in question.get("options") or ()]
    if question.get("form"):
        return f"stdiod approve {id_} --set FIELD=VALUE... [--deny]"
    if options in (["allow", "deny"], []):
        return f"stdiod approve {id_} [--deny]"
    return f"stdiod approve {id_} --answer {'|'.join(shell_word(one) for one in options)}"


def change_line(change: dict[str, Any]) -> str:
    """Return the line for a new question or a decision."""
    question, decision = change["approval"], change.get("decision")
    if decision is None:
        return question_text(question)
    return f"{one_line(str(question['id']))}  {decided(decision)}"


def decided(decision: dict[str, Any]) -> str:
    """Return a decision as words."""
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


@click.command(epilog=example("approvals -f"))
@click.option(
    "-f", "--follow", is_flag=True, help="Keep showing new ones, and how each is decided."
)
@with_json
@with_socket
def approvals(*, follow: bool, as_json: bool, socket: Path) -> None:
    """Show the questions of hooks and of the policy that wait for a person.

    `stdiod approve ID` answers one. --follow continues until Ctrl-C (status 130); with --json,
    each change is then one line.
    """

    def show(event: dict[str, Any], line: bytes) -> None:
        del line
        fields = event.get("fields") or {}
        if "approval" not in fields:  # a message of the daemon
            click.echo(f"stdiod: {one_line(str(event.get('message')))}", err=True)
        elif as_json:
            print_json(fields)
        else:
            click.echo(change_line(fields))

    with DaemonClient(socket) as client:
        if follow:
            answer = client.own("approvals", {"follow": True}, show)
        else:
            answer = client.known("approvals")
    found = result_of(answer, as_json=as_json, module=SUPERVISOR, op="approvals")
    if follow:
        return
    if as_json:
        print_json(found)
        return
    for question in found["approvals"]:
        click.echo(question_text(question))
    if not found["approvals"]:
        click.echo("nothing waits for an approval", err=True)


@click.command(epilog=example("approve ap-123456", "approve ap-123456 --deny"))
@click.argument("question", metavar="ID", type=TEXT)
@click.option("--deny", is_flag=True, help="Answer no.")
@click.option("--answer", type=TEXT, metavar="X", help="Answer with one of its options.")
@click.option(
    "--set",
    "entries",
    type=TEXT,
    multiple=True,
    metavar="FIELD=VALUE",
    help="Fill in a field of its form; give it once for each.",
)
@with_json
@with_socket
def approve(
    *,
    question: str,
    deny: bool,
    answer: str | None,
    entries: tuple[str, ...],
    as_json: bool,
    socket: Path,
) -> None:
    """Answer the question ID: yes, unless an option says otherwise.

    `stdiod approvals` lists the questions. If the policy asked, the answers "allow always" and
    "deny always" are remembered. Exits with 1 if the question is no longer open.
    """
    if deny and answer is not None:
        raise click.UsageError("--deny and --answer are two answers; give one")
    args: dict[str, Any] = {"id": question, "answer": "deny" if deny else answer or "allow"}
    for entry in entries:
        field, equals, value = entry.partition("=")
        if not equals or not field:
            raise click.UsageError(f"--set {entry} is not FIELD=VALUE")
        args.setdefault("content", {})[field] = value
    found = own_result(socket, "approve", args, as_json=as_json)
    if as_json:
        print_json(found)
        return
    word = "allowed" if found["allowed"] else "denied"
    click.echo(f"{one_line(str(found['id']))} is {word}", err=True)
