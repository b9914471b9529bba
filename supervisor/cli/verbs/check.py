"""`stdiod check`: play the clauses of its protocol against a module's real process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.exit_status import NO, EndError, NoError
from supervisor.cli.options import example, with_json, with_paths
from supervisor.cli.quantities import count
from supervisor.cli.results import print_json
from supervisor.cli.terminal import Ticker, dim, one_line

if TYPE_CHECKING:
    from supervisor.cli.checked import CheckedDescriptor
    from supervisor.conformance.report import Finding, Report

_COLOURS = {
    "holds": "green",
    "pass": "green",
    "fails": "red",
    "fail": "red",
    "warning": "yellow",
    "partial": "yellow",
}


@click.command(epilog=example("check modules/dice", "check modules/dice --op roll"))
@with_paths
@click.option(
    "--op",
    "ops",
    multiple=True,
    metavar="OP[=JSON]",
    help="Call OP, with these args or with some that fit its schema; repeat it for more.",
)
@click.option("--all-ops", is_flag=True, help="Call every op that the module says it has.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the findings to FILE as JUnit XML, too.",
)
@click.option(
    "--policy",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Let modules call the host for what FILE grants, as `up` does.",
)
@with_json
def check(
    paths: tuple[Path, ...],
    *,
    ops: tuple[str, ...],
    all_ops: bool,
    junit: Path | None,
    policy: Path | None,
    as_json: bool,
) -> None:
    """Run modules, and check that they keep to their protocol.

    PATH is a descriptor, the folder of a module, or a directory as a daemon would read it. An op is
    called only if --op, --all-ops, or `examples` in its schema says so, because it might do harm.
    What was not tried is listed, and the verdict is then "partial" at best. Exits with 1 if a
    clause fails, or if an OP was called in no module.
    """
    from supervisor.cli import checked, checking
    from supervisor.kernel.grants.operator_policy import OperatorPolicy
    from supervisor.policy.policy_file import PolicyError
    from supervisor.runtime.files.directory import none_found, read_descriptor

    found = checked.check([_module_in(path) for path in paths]).descriptors
    if not found:
        raise click.UsageError(none_found(paths))
    reports: list[Report] = []

    def tell(report: Report) -> None:
        reports.append(report)
        ticker.clear()
        if not as_json:
            _show(report)

    good = [read_descriptor(one.path) for one in found if one.ok]
    bad = [one for one in found if not one.ok]
    permission = _permission(ops, all_ops=all_ops)
    try:
        rules = OperatorPolicy(policy).policy
    except PolicyError as error:
        raise click.UsageError(str(error)) from None
    with Ticker(silent=as_json) as ticker:

        def wait(step: str) -> None:
            if not ticker.live:  # a terminal shows each step
                ticker.line(f"stdiod: {one_line(step.strip())}; no answer yet")

        steps = checking.Steps(lambda one: ticker.show(one_line(one)), wait)
        checking.examine_all(good, permission, rules, steps, tell)
    well = not bad and all(one.verdict != "fail" for one in reports)
    uncalled = [op for op in permission.args if not any(_called(one, op) for one in reports)]
    if as_json:
        invalid = [{"descriptor": str(one.path), "problems": one.problems} for one in bad]
        modules = [one.document() for one in reports]
        print_json({"ok": well and not uncalled, "modules": modules, "invalid": invalid})
    else:
        _summarise(reports, bad)
    if junit is not None:
        _write(junit, reports)
    if not well:
        raise click.exceptions.Exit(NO)
    if uncalled:
        raise NoError(f"no module was called with --op {', --op '.join(map(one_line, uncalled))}")


def _module_in(path: Path) -> Path:
    """Return the descriptor of a module's folder: `package.json` beside it is not a descriptor."""
    inside = path / "module.json"
    return inside if inside.is_file() else path


def _called(report: Report, op: str) -> bool:
    return any(one.op == op and one.status != "not tried" for one in report.findings)


def _permission(ops: tuple[str, ...], *, all_ops: bool) -> Any:
    from protocol.json_document import read_document
    from supervisor.conformance.examination import Permission

    chosen: dict[str, dict[str, Any] | None] = {}
    for one in ops:
        op, equals, args = one.partition("=")
        if not equals:
            chosen[op] = None
            continue
        document = read_document(args.encode(errors="surrogateescape"))
        if not isinstance(document, dict):
            words = f"--op {one!r}: the part after the = has to be a JSON object"
            raise click.UsageError(words)
        chosen[op] = document
    return Permission(chosen, all_ops)


def _show(report: Report) -> None:
    click.echo(
        click.style(one_line(report.module), bold=True)
        + dim(f"  {report.protocol}, {report.lifecycle}")
    )
    holding = [_named(one) for one in report.findings if one.status == "holds"]
    if holding:
        click.echo(f"  {_status('holds')} {', '.join(holding)}")
    rest = [one for one in report.findings if one.status != "holds"]
    for one in rest:
        if one.status != "not tried":
            _show_finding(one)
    untried: dict[str, list[str]] = {}
    for one in rest:
        if one.status == "not tried":
            untried.setdefault(one.words, []).append(_named(one))
    for words, names in untried.items():
        click.echo(f"  {_status('not tried')} {', '.join(names)}: {one_line(words)}")
    counts = [
        f"{number} {status}"
        for status in ("fails", "warning", "supplied", "not judged", "not tried")
        if (number := sum(one.status == status for one in report.findings))
    ]
    verdict = click.style(report.verdict, fg=_COLOURS.get(report.verdict))
    words = ", ".join([f"{len(holding)} of {count(len(report.findings), 'clause')} hold", *counts])
    click.echo(f"{one_line(report.module)}: {verdict}: {words}")


def _show_finding(one: Finding) -> None:
    words = f": {one_line(one.words)}" if one.words else ""
    click.echo(f"  {_status(one.status)} {_named(one)}{words}")
    if one.status not in ("fails", "warning"):
        return
    indent = " " * 14
    click.echo(f"{indent}must  {one.must} ({one.source})")
    for line in one.exchanged:
        click.echo(dim(f"{indent}      {one_line(line)}"))
    click.echo(f"{indent}fix   {one.fix}")


def _status(status: str) -> str:
    return click.style(f"{status:<11}", fg=_COLOURS.get(status))


def _named(one: Finding) -> str:
    return one.clause if one.op is None else f"{one.clause} of {one_line(one.op)}"


def _summarise(reports: list[Report], bad: list[CheckedDescriptor]) -> None:
    for one in bad:
        for problem in one.problems:
            click.echo(f"{one_line(str(one.path))}: {problem}")
    if len(reports) + len(bad) == 1:
        return
    verdicts = [str(one.verdict) for one in reports]
    told = [
        f"{verdicts.count(verdict)} {verdict}"
        for verdict in ("pass", "partial", "fail")
        if verdict in verdicts
    ]
    if bad:
        told.append(f"{len(bad)} not valid")
    click.echo(f"{count(len(reports) + len(bad), 'module')}: {', '.join(told)}")


def _write(path: Path, reports: list[Report]) -> None:
    from supervisor.conformance.report import junit

    try:
        path.write_bytes(junit(reports))
    except OSError as error:
        raise EndError(f"{path} cannot be written: {error.strerror}") from None
