"""`stdiod policy`: explain and check what modules may call the daemon for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from protocol.problem import quoted
from supervisor.cli.client import SUPERVISOR, DaemonClient
from supervisor.cli.exit_status import NO, NoError
from supervisor.cli.options import (
    MODULE,
    TEXT,
    Subverbs,
    example,
    with_directories,
    with_json,
    with_socket,
)
from supervisor.cli.quantities import count
from supervisor.cli.results import own_result, print_json, result_of
from supervisor.cli.terminal import one_line, safe

_FILE = click.Path(path_type=Path)
_VERDICTS = {"allowed": "may", "denied": "may not", "ask": "may if a person allows it:"}
_COLOURS = {"allowed": "green", "denied": "red", "ask": "yellow"}


@click.group(cls=Subverbs, epilog=example("policy explain orchestrator module.invoke:dice.roll"))
def policy() -> None:
    """Explain and check what modules are allowed to call the daemon for."""


@policy.command(epilog=example("policy explain orchestrator module.invoke:dice.roll"))
@click.argument("module", type=MODULE)
@click.argument("capability", type=TEXT)
@with_directories
@click.option(
    "--policy",
    "file",
    type=_FILE,
    metavar="FILE",
    help="Decide by this file, for the modules of DIR..., without a daemon.",
)
@with_json
@with_socket
def explain(
    *,
    module: str,
    capability: str,
    directories: tuple[Path, ...],
    file: Path | None,
    as_json: bool,
    socket: Path,
) -> None:
    """Say whether MODULE may do what CAPABILITY names, and by which rule.

    CAPABILITY is log, session.write, module.invoke:kv.get or the like. Exits with 1 unless the
    module may do it.
    """
    if (file is None) is not (not directories):
        raise click.UsageError("--policy and DIR... go together: they stand in for the daemon")
    if file is None:
        args = {"module": module, "capability": capability}
        found = own_result(socket, "policy.explain", args, as_json=as_json)
    else:
        found = _decided(file, directories, module, capability)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if not _is_allowed(found):
        raise click.exceptions.Exit(NO)


@policy.command(epilog=example("policy show"))
@with_json
@with_socket
def show(*, as_json: bool, socket: Path) -> None:
    """Show the policy in force: its file, its rules, and the answers that are remembered."""
    found = own_result(socket, "policy.show", as_json=as_json)
    if as_json:
        print_json(found)
        return
    none = "there is no policy file, so nothing is granted: `stdiod up --policy FILE` names one"
    click.echo(one_line(found["source"] or none))
    if found["problem"]:
        click.echo(f"the file is bad now, and this is the last good one: {safe(found['problem'])}")
    for name, rules in {"": found["everywhere"], **found["modules"]}.items():
        head = f"[modules.{quoted(name)}]" if name else "[all modules]"
        click.echo(f"{head} mode {rules['mode'] or ('of all modules' if name else 'strict')}")
        for key in ("allow", "deny"):
            for entry in rules[key]:
                click.echo(f"  {key} {quoted(entry['text'])}")
    for one in found["answers"]:
        words = f"{one['module']} {one['capability']} {_word(one['allowed'])}"
        click.echo(f"remembered: {one_line(words)}")


@policy.command(epilog=example("policy check policy.toml modules"))
@click.argument("file", type=_FILE)
@with_directories
@with_json
def check(*, file: Path, directories: tuple[Path, ...], as_json: bool) -> None:
    """Check a policy FILE: what is wrong with it, and which of its entries contradict each other.

    With DIR..., checks also that the modules it names exist. Exits with 1 if anything was found.
    """
    from supervisor.kernel.grants.operator_policy import read_policy
    from supervisor.policy.policy_file import PolicyError, unknown_modules
    from supervisor.policy.toml_document import told

    source = str(file)
    try:
        read = read_policy(file)
    except PolicyError as error:
        problems = [told(source, one) for one in error.problems]
        findings: list[str] = []
    else:
        unknown = unknown_modules(read, _descriptors(directories)) if directories else ()
        problems = []
        findings = [told(source, one) for one in (*read.findings, *unknown)]
    if as_json:
        print_json({"ok": not (problems or findings), "problems": problems, "findings": findings})
    else:
        for line in problems:
            click.echo(line)
        for line in findings:
            click.echo(f"{line} ({click.style('warning', fg='yellow')})")
        if not (problems or findings):
            click.echo(f"{one_line(source)} is valid")
    if problems or findings:
        raise click.exceptions.Exit(NO)


@policy.command(epilog=example("policy forget orchestrator"))
@click.argument("module", type=MODULE)
@with_json
@with_socket
def forget(*, module: str, as_json: bool, socket: Path) -> None:
    """Forget the remembered answers about MODULE, so that it is asked about again."""
    with DaemonClient(socket) as client:
        answer = client.own("policy.forget", {"module": module})
    found = result_of(answer, as_json=as_json, module=SUPERVISOR, op="policy.forget")
    if as_json:
        print_json(found)
        return
    forgotten = found["forgotten"]
    for one in forgotten:
        click.echo(f"{one_line(one['capability'])}: was {_word(one['allowed'])}")
    click.echo(f"{count(len(forgotten), 'answer')} forgotten")


def _decided(
    file: Path, directories: tuple[Path, ...], module: str, capability: str
) -> dict[str, Any]:
    """Decide without a daemon, from the files."""
    from protocol.problem import did_you_mean
    from supervisor.kernel.grants.operator_policy import explained, read_policy
    from supervisor.policy.capabilities import decide
    from supervisor.policy.policy_file import PolicyError

    try:
        read = read_policy(file)
    except PolicyError as error:
        raise NoError(str(error)) from None
    descriptors = _descriptors(directories)
    descriptor = descriptors.get(module)
    if descriptor is None:
        near = did_you_mean(module, descriptors)
        raise NoError(f"there is no module {module!r} in the directories{near}")
    decision = decide(read.policy, module, descriptor.capabilities, capability)
    return explained(read.policy, decision, descriptor)


def _descriptors(directories: tuple[Path, ...]) -> dict[str, Any]:
    from supervisor.runtime.files.sources import scan

    return {one.name: one for one in scan(directories).descriptors}


def _is_allowed(found: dict[str, Any]) -> bool:
    remembered = found["remembered"]
    if found["verdict"] == "ask" and remembered is not None and remembered["same_program"]:
        return remembered["allowed"] is True
    return bool(found["verdict"] == "allowed")


def _print(found: dict[str, Any]) -> None:
    verdict = found["verdict"]
    word = click.style(_VERDICTS[verdict], fg=_COLOURS[verdict])
    click.echo(f"{one_line(found['module'])} {word} {one_line(found['capability'])}")
    click.echo(f"  {one_line(found['rule'])}")
    if found["source"] == "descriptor":
        listed = ", ".join(found["asked_for"]) or "none"
        click.echo(f"  it lists: {one_line(listed)}")
    remembered = found["remembered"]
    if found.get("remedy"):
        click.echo(f"  {one_line(found['remedy'])}")
    if remembered is not None:
        program = "" if remembered["same_program"] else ", about another program: it is asked again"
        click.echo(f"  remembered: {_word(remembered['allowed'])}{program}")


def _word(allowed: object) -> str:
    return "allowed" if allowed else "denied"
