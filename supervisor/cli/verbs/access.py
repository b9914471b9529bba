"""The verbs about rights: `approvals`, `approve`, `policy`, `token`, and the login of `page`."""

from __future__ import annotations

import errno
import html
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from protocol.problem import quoted
from supervisor.cli.daemon_verb import DaemonVerb, with_daemon
from supervisor.cli.event_text import question_change, question_text
from supervisor.cli.exit_status import NoError, exit_unless
from supervisor.cli.options import (
    MODULE,
    TEXT,
    TOKEN,
    F,
    Subverbs,
    example,
    with_directories,
    with_json,
)
from supervisor.cli.project import runtime_folder, socket_option
from supervisor.cli.quantities import count, utc_second
from supervisor.cli.results import print_json, show_message
from supervisor.cli.terminal import one_line, safe, shell_word


@click.command(epilog=example("approvals -f"))
@click.option(
    "-f", "--follow", is_flag=True, help="Keep showing new ones, and how each is decided."
)
@with_daemon
def approvals(*, follow: bool, daemon: DaemonVerb) -> None:
    """Show the questions of hooks and of the policy that wait for a person.

    `stdiod approve ID` answers one. --follow continues until Ctrl-C (status 130); with --json,
    each change is then one line.
    """

    def show(event: dict[str, Any], _: bytes) -> None:
        fields = event.get("fields") or {}
        if "approval" not in fields:  # a message of the daemon
            show_message(event)
        else:
            daemon.show(fields, question_change)

    if follow:
        daemon.follow("approvals", show, follow=True)
    else:
        daemon.show(daemon.call("approvals"), _questions)


def _questions(found: dict[str, Any]) -> None:
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
@with_daemon
def approve(
    *, question: str, deny: bool, answer: str | None, entries: tuple[str, ...], daemon: DaemonVerb
) -> None:
    """Answer the question ID: yes, unless an option says otherwise.

    `stdiod approvals` lists the questions. If the policy asked, the answers "allow always" and
    "deny always" are remembered. Exits with 1 if the question is no longer open.
    """
    if deny and answer is not None:
        raise click.UsageError("--deny and --answer are two answers; give one")
    content: dict[str, str] = {}
    for entry in entries:
        field, equals, value = entry.partition("=")
        if not equals or not field:
            raise click.UsageError(f"--set {entry} is not FIELD=VALUE")
        content[field] = value
    chosen = "deny" if deny else answer or "allow"
    found = daemon.call("approve", id=question, answer=chosen, content=content or None)
    daemon.show(found, _tell_decision)


def _tell_decision(found: dict[str, Any]) -> None:
    click.echo(f"{one_line(str(found['id']))} is {_word(found['allowed'])}", err=True)


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
@with_daemon
def explain(
    *,
    module: str,
    capability: str,
    directories: tuple[Path, ...],
    file: Path | None,
    daemon: DaemonVerb,
) -> None:
    """Say whether MODULE may do what CAPABILITY names, and by which rule.

    CAPABILITY is log, session.write, module.invoke:kv.get or the like. Exits with 1 unless the
    module may do it.
    """
    if (file is None) is not (not directories):
        raise click.UsageError("--policy and DIR... go together: they stand in for the daemon")
    if file is None:
        found = daemon.call("policy.explain", module=module, capability=capability)
    else:
        found = _decided(file, directories, module, capability)
    daemon.show(found, _print_decision)
    exit_unless(_is_allowed(found))


@policy.command(epilog=example("policy show"))
@with_daemon
def show(*, daemon: DaemonVerb) -> None:
    """Show the policy in force: its file, its rules, and the answers that are remembered."""
    daemon.show(daemon.call("policy.show"), _print_policy)


def _print_policy(found: dict[str, Any]) -> None:
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
    well = not (problems or findings)
    if as_json:
        print_json({"ok": well, "problems": problems, "findings": findings})
    else:
        for line in problems:
            click.echo(line)
        for line in findings:
            click.echo(f"{line} ({click.style('warning', fg='yellow')})")
        if well:
            click.echo(f"{one_line(source)} is valid")
    exit_unless(well)


@policy.command(epilog=example("policy forget orchestrator"))
@click.argument("module", type=MODULE)
@with_daemon
def forget(*, module: str, daemon: DaemonVerb) -> None:
    """Forget the remembered answers about MODULE, so that it is asked about again."""
    daemon.show(daemon.follow("policy.forget", module=module), _print_forgotten)


def _print_forgotten(found: dict[str, Any]) -> None:
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


def _print_decision(found: dict[str, Any]) -> None:
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


def with_scopes(scope_help: str) -> Callable[[F], F]:
    """Add --scope and --modules: the rights of a token."""

    def add(function: F) -> F:
        function = click.option(
            "--modules",
            type=TEXT,
            multiple=True,
            metavar="GLOB",
            help="The modules (kv) or ops (kv.get*) that it covers; repeat it for more."
            "  [default: all]",
        )(function)
        return click.option(
            "--scope",
            "scopes",
            type=click.Choice(("read", "invoke", "admin")),
            multiple=True,
            help=scope_help,
        )(function)

    return add


DAY_S = 86400.0


@click.group(cls=Subverbs, epilog=example("token new ada --scope read --expires 30"))
def token() -> None:
    """Make, list and revoke tokens, with which clients use HTTP."""


@token.command(
    epilog=example("token new ada --scope read --scope invoke --modules 'dice*' --expires 30")
)
@click.argument("name", type=TEXT)
@with_scopes("What it allows; repeat it for more.  [default: read and invoke]")
@click.option(
    "--expires",
    "days",
    type=click.FloatRange(0, 36_500, min_open=True),
    metavar="DAYS",
    help="For how long it is valid.  [default: until it is revoked]",
)
@click.option(
    "--rate",
    "rate_per_s",
    type=click.FloatRange(0.001, 1e6),
    metavar="N",
    help="How many requests a second it allows.  [default: any number]",
)
@with_daemon
def new(
    *,
    name: str,
    scopes: tuple[str, ...],
    modules: tuple[str, ...],
    days: float | None,
    rate_per_s: float | None,
    daemon: DaemonVerb,
) -> None:
    """Make a token for NAME and print it. It is shown only once: the daemon keeps a digest."""
    expires_s = None if days is None else days * DAY_S
    rights = {"scopes": scopes or None, "modules": modules or None}
    found = daemon.call(
        "token.new", name=name, expires_s=expires_s, rate_per_s=rate_per_s, **rights
    )
    daemon.show(found, _print_token)


def _print_token(found: dict[str, Any]) -> None:
    click.echo(found["token"])
    click.echo(_words(found), err=True)


@token.command("list", epilog=example("token list"))
@with_daemon
def list_(*, daemon: DaemonVerb) -> None:
    """List the tokens, the oldest first. Their secrets are not stored."""
    found = daemon.call("token.list")
    daemon.show(found, "\n".join(map(_words, found["tokens"])) or "no tokens")


@token.command(epilog=example("token revoke ada"))
@click.argument("name", type=TOKEN)
@with_daemon
def revoke(*, name: str, daemon: DaemonVerb) -> None:
    """Revoke the token of NAME, and close the connections that use it."""
    daemon.show(daemon.call("token.revoke", name=name), f"the token {one_line(name)} is revoked")


def _words(one: dict[str, Any]) -> str:
    expires = one["expires"]
    until = "until it is revoked" if expires is None else f"until {utc_second(expires)}"
    scopes, modules = ", ".join(one["scopes"]) or "nothing", ", ".join(one["modules"]) or "none"
    rate = f", {one['rate_per_s']:g} requests a second" if one["rate_per_s"] else ""
    whose = f"the page of {one['page_of']}, " if one.get("page_of") else ""
    return one_line(f"{one['name']}: {whose}may {scopes}, modules {modules}{rate}, {until}")


EXAMPLE_ADDRESS = "127.0.0.1:8420"

_ANY_ADDRESS = {"0.0.0.0": "localhost", "::": "localhost"}  # noqa: S104 - replaced, not bound


@click.command(epilog=example("page", "page --no-browser --scope read"))
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@with_scopes("What the page may do; repeat it for more.  [default: all that you may]")
@with_daemon
def page(
    *, no_browser: bool, scopes: tuple[str, ...], modules: tuple[str, ...], daemon: DaemonVerb
) -> None:
    """Print an address that logs a browser in to the page, and open it where there is a display.

    The address works once, within a minute. The login lasts 12 hours; `stdiod token list` shows
    it, and `stdiod token revoke` ends it.
    """
    served = _served(daemon.call("status")["daemon"], daemon.socket)
    login = daemon.call("page.login", scopes=scopes or None, modules=modules or None)
    url = f"{served}/login?code={login.pop('code')}"
    daemon.show({"url": url, **login}, _print_login)
    if not no_browser and _has_display():
        _open(url)


def _print_login(login: dict[str, Any]) -> None:
    click.echo(login["url"])
    code_s, hours = login["code_s"], login["login_s"] / 3600
    click.echo(f"it works once, within {code_s:g} s, and logs in for {hours:g} h", err=True)


def _served(daemon: dict[str, Any], socket: Path) -> str:
    """Return the URL of the page; raises `NoError` with a hint if there is none."""
    url = urlsplit(daemon["http"] or "")
    if not url.hostname:
        stdiod = f"stdiod {socket_option(socket)}"
        folders = (
            "" if daemon.get("project") else " ".join(["", *map(shell_word, daemon["directories"])])
        )
        where = f"only {url.path}" if url.path else "no HTTP"
        words = f"a browser needs an address, and this daemon serves {where}; to have one:"
        raise NoError(f"{words}\n  {stdiod}down\n  {stdiod}up{folders} --http {EXAMPLE_ADDRESS}")
    host = _ANY_ADDRESS.get(url.hostname)
    return f"{url.scheme}://{url.netloc if host is None else f'{host}:{url.port}'}"


def _has_display() -> bool:
    return sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def _open(url: str) -> None:
    """Open `url` in the browser, without waiting.

    The browser gets a private file that leads to the URL: arguments can be read by any user of the
    machine, and the first user of the code would be logged in.
    """
    folder = runtime_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():  # it may be in /tmp
            raise PermissionError(errno.EPERM, "it belongs to another user", str(folder))
        number, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(number, "w", encoding="utf-8") as written:
            written.write(_LEADING.format(html.escape(url)))
        path = Path(name).replace(folder / "page.html")
        words = [sys.executable, "-I", "-m", "webbrowser", path.as_uri()]
        os.posix_spawn(sys.executable, words, os.environ, file_actions=_SILENT, setsid=True)
    except OSError as error:
        click.echo(f"no browser was opened: {error}", err=True)


_LEADING = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>stdiod</title>
<p><a href="{0}">The page</a>
"""

_SILENT = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
