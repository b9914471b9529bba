"""For those who write modules: `stdiod new`, `dev`, `check`, `validate`, `schema`."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.exit_status import EndError, NoError, exit_unless, remark
from supervisor.cli.options import TEXT, example, with_json, with_paths
from supervisor.cli.quantities import count
from supervisor.cli.results import print_json
from supervisor.cli.terminal import Ticker, dim, is_terminal, one_line, safe, shell_word

if TYPE_CHECKING:
    from protocol.descriptor.model import Descriptor, Lifecycle
    from supervisor.cli.checked import CheckedDescriptor, CheckReport
    from supervisor.cli.module_templates import Selection
    from supervisor.conformance.clauses import Finding, Report


LANGUAGES = ("bash", "c", "exec", "go", "java", "node", "perl", "python", "ruby", "rust")
ALIASES = dict.fromkeys(("js", "javascript", "nodejs", "ts", "typescript"), "node")
ALIASES |= {"py": "python", "python3": "python", "sh": "bash", "shell": "bash", "pl": "perl"}
ALIASES |= {"rb": "ruby", "rs": "rust", "golang": "go"}
KINDS = ("provider", "tool", "agent", "hook", "orchestrator", "context")
PROTOCOLS = ("module", "narratoria", "mcp")
LIFECYCLES = ("persistent", "per-invocation")


class _Language(click.Choice[str]):
    """A language, or a short name for one."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Name the languages without their short names."""
        del param, ctx
        return f"Choose from: {', '.join(LANGUAGES)}"


@click.command(
    epilog=example(
        "new greeter --lang python",
        "new gate --lang go --kind hook --protocol module",
        "new q --lang exec -- jq",
    )
)
@click.argument("name", type=TEXT)
@click.argument("command", nargs=-1)
@click.option(
    "--lang",
    type=_Language((*LANGUAGES, *ALIASES), case_sensitive=False),
    required=True,
    metavar="LANGUAGE",
    help=f"{', '.join(LANGUAGES)}, or a short name such as py, js, sh; `exec` wraps COMMAND.",
)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="tool",
    help="The kind of the module.  [default: tool]",
)
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    help="The protocol that it speaks.  [default: module]",
)
@click.option(
    "--lifecycle",
    type=click.Choice(LIFECYCLES),
    help="One process for many requests, or one for each.  [default: the protocol's]",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where to create the folder.  [default: the working directory]",
)
def new(
    name: str,
    command: tuple[str, ...],
    *,
    lang: str,
    kind: str,
    protocol: str | None,
    lifecycle: str | None,
    into: Path,
) -> None:
    """Create a module: the folder NAME with a descriptor, a source, a test of it, and a README.

    The source works as it is, with one op. The test is a transcript, for `stdiod replay`.
    With --lang exec there is no source and no test, and with a COMMAND the descriptor alone.
    Downloads nothing, and overwrites nothing. As you change the source, `stdiod check` says
    whether it still keeps to its protocol.
    """
    from supervisor.cli import module_templates

    folder = into / name
    choice, default = _choice(name, ALIASES.get(lang, lang), kind, protocol, lifecycle)
    document = module_templates.descriptor_of(choice, default)
    if command and choice.lang != "exec":
        raise click.UsageError(f"a COMMAND goes with --lang exec, not with --lang {lang}")
    if command:
        document = module_templates.wrapping(document, command)
    descriptor = _parsed(document, name, folder)
    when = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    files = module_templates.files_of(choice, document, descriptor, when)
    where = one_line(str(folder))
    try:
        folder.mkdir(parents=True)
        for file in ["module.json"] if command else files:
            (folder / file).write_bytes(files[file])
    except FileExistsError:
        raise NoError(f"{where} already exists, and is left as it is") from None
    except OSError as error:
        raise NoError(f"{where} cannot be written: {error.strerror}") from None
    hint = f"`stdiod check {shell_word(str(folder))}` says whether it works"
    click.echo(f"{where} has been created; {hint}")
    if choice.lang == "exec" and not command:
        words = "it wraps `printf`, as an example; to wrap a command, put it behind --, as in "
        words += "`stdiod new NAME --lang exec -- jq`"
        remark(words)
    needs = command[0] if command else choice.needs
    if shutil.which(needs) is None:
        remark(f"there is no {one_line(needs)} in your PATH, and it needs that to run")


def _choice(
    name: str, lang: str, kind: str, protocol: str | None, lifecycle: str | None
) -> tuple[Selection, Lifecycle]:
    """Return the module to make, and the default lifecycle of its protocol."""
    from protocol.descriptor.model import Lifecycle
    from protocol.dialects.registry import DIALECTS
    from supervisor.cli.module_templates import Selection

    if lang == "exec":
        if protocol is not None:
            words = "--lang exec wraps a command, which speaks no protocol; leave out --protocol"
            raise click.UsageError(words)
        if kind == "hook":
            words = (
                "--lang exec cannot be a hook: a hook answers with an object, a command with text"
            )
            raise click.UsageError(words)
    spoken = protocol or ("exec" if lang == "exec" else "module")
    lifecycles = DIALECTS[spoken].lifecycles
    chosen = lifecycles[0] if lifecycle is None else Lifecycle(lifecycle)
    if chosen not in lifecycles:
        words = f"{spoken} has no lifecycle {chosen}, it is always {lifecycles[0]}"
        raise click.UsageError(words)
    return Selection(name, lang, kind, spoken, chosen), lifecycles[0]


def _parsed(document: dict[str, Any], name: str, folder: Path) -> Descriptor:
    from protocol.descriptor.loading import DescriptorError, parse_descriptor

    try:
        return parse_descriptor(
            json.dumps(document).encode(), str(folder.absolute() / "module.json")
        )
    except DescriptorError as error:
        problem = error.problems[0]
        words = str(problem)
        if problem.pointer == "/name":
            words = f"{one_line(name)!r} is not a valid module name: {words}"
        raise click.UsageError(words) from None


@click.command(epilog=example("dev modules/dice/module.json"))
@click.argument("path", metavar="DESCRIPTOR", type=click.Path(exists=True, path_type=Path))
def dev(path: Path) -> None:
    """Run a module without a daemon, start it anew when its source changes, and call its ops.

    DESCRIPTOR is a descriptor file, or the folder of a module. Each line that passes is shown with
    its time: `>` to the module, `<` from it, `!` what it writes to stderr, `=` what comes of it.

    At the prompt, OP KEY=VALUE... or OP {JSON} calls an op, /ops lists them, /restart starts the
    module anew, /help says so, and /quit ends. Tab completes, the arrows go through what was typed
    before. Ctrl-C cancels what is being done, or ends; Ctrl-D ends. Without a terminal, lines are
    read from stdin.
    """
    from supervisor.cli.developing import develop

    file = path / "module.json" if path.is_dir() else path
    if not file.exists():
        raise click.UsageError(f"{file} is not there; name the descriptor file")
    on_terminal = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    colours = is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
    develop(file, on_terminal=on_terminal, colours=colours)


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
            _show_report(report)

    good = [read_descriptor(one.path) for one in found if one.ok]
    bad = [one for one in found if not one.ok]
    permission = _permission(ops, all_ops=all_ops)
    try:
        rules = OperatorPolicy(policy).policy
    except PolicyError as error:
        raise click.UsageError(str(error)) from None
    with Ticker(silent=as_json) as ticker:
        checking.examine_all(good, permission, rules, ticker, tell)
    well = not bad and all(one.verdict != "fail" for one in reports)
    uncalled = [op for op in permission.args if not any(_called(one, op) for one in reports)]
    if as_json:
        invalid = [{"descriptor": str(one.path), "problems": one.problems} for one in bad]
        modules = [one.document() for one in reports]
        print_json({"ok": well and not uncalled, "modules": modules, "invalid": invalid})
    else:
        _summarise(reports, bad)
    if junit is not None:
        from supervisor.conformance import clauses

        try:
            junit.write_bytes(clauses.junit(reports))
        except OSError as error:
            raise EndError(f"{junit} cannot be written: {error.strerror}") from None
    exit_unless(well)
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


def _show_report(report: Report) -> None:
    click.echo(
        click.style(one_line(report.module), bold=True)
        + dim(f"  {report.protocol}, {report.lifecycle}")
    )
    holding = [_named(one) for one in report.findings if one.status == "holds"]
    if holding:
        click.echo(f"  {_status('holds')} {', '.join(holding)}")
    untried: dict[str, list[str]] = {}
    for one in report.findings:
        if one.status == "not tried":
            untried.setdefault(one.words, []).append(_named(one))
        elif one.status != "holds":
            _show_finding(one)
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


@click.command(epilog=example("validate modules", "validate modules/dice/module.json"))
@with_paths
@with_json
def validate(paths: tuple[Path, ...], as_json: bool) -> None:
    """Check descriptor files, and directories as a daemon would read them.

    Each problem is a line "FILE: POINTER: what is wrong". All directories together are one fleet,
    so duplicate names and missing dependencies are found, too. Exits with 1 if one is not valid.
    """
    from supervisor.cli.checked import check

    checked = check(paths)
    well = all(one.ok for one in checked.descriptors) and not checked.empty
    if as_json:
        descriptors = [
            {
                "descriptor": str(one.path.absolute()),
                "name": one.name,
                "ok": one.ok,
                "problems": one.problems,
                "warnings": one.warnings,
            }
            for one in checked.descriptors
        ]
        empty = [str(path) for path in checked.empty]
        print_json({"ok": well, "descriptors": descriptors, "empty": empty})
    else:
        _print_checked(checked)
    exit_unless(well)


def _print_checked(checked: CheckReport) -> None:
    from supervisor.runtime.files.directory import none_found

    for one in checked.descriptors:
        where = one_line(str(one.path))
        for problem in one.problems:
            click.echo(f"{where}: {safe(str(problem))}")
        for problem in one.warnings:
            click.echo(f"{where}: {click.style('warning', fg='yellow')}: {safe(str(problem))}")
    for path in checked.empty:
        click.echo(one_line(none_found([path])))
    total = len(checked.descriptors)
    bad = sum(not one.ok for one in checked.descriptors)
    if bad:
        click.echo(f"{bad} of {count(total, 'descriptor')} {'is' if bad == 1 else 'are'} not valid")
    elif total:
        click.echo(f"{count(total, 'descriptor')} {'is' if total == 1 else 'are'} valid")


@click.command(epilog=example("schema", "schema stdiod-descriptor > descriptor.schema.json"))
@click.argument("name", required=False, type=TEXT)
@click.option(
    "--typescript", is_flag=True, help="Print TypeScript types of all of them, and of HTTP."
)
@with_json
def schema(name: str | None, typescript: bool, as_json: bool) -> None:
    """Print the JSON Schema (2020-12) NAME, or list the names.

    A name can be given without its version: `plan` is the newest `plan`. An editor that knows the
    schema of descriptors, `stdiod-descriptor`, completes their fields and says what is wrong.
    """
    import schemas

    if typescript:
        if name is not None:
            raise click.UsageError("--typescript prints all types; leave NAME out")
        click.echo(schemas.typescript(), nl=False)
        return
    if name is None and as_json:
        titles = {one: schemas.load(one)["title"] for one in schemas.NAMES}
        print_json({"schemas": [{"name": one, "title": titles[one]} for one in titles]})
        return
    if name is None:
        for one in schemas.NAMES:
            click.echo(f"{one:<{max(map(len, schemas.NAMES))}}  {schemas.load(one)['title']}")
        return
    found = [one for one in schemas.NAMES if name in (one, one.rpartition(".")[0])]
    if not found:
        from protocol.problem import did_you_mean, quoted

        known = [one.rpartition(".")[0] for one in schemas.NAMES]
        hint = did_you_mean(name, known) or "; `stdiod schema` lists them"
        raise click.UsageError(f"there is no schema {quoted(name)}{hint}")
    click.echo(schemas.text(found[-1]), nl=False)
