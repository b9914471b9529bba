"""Verbs about modules of the daemon: they are started, stopped, waited for, and asked."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from protocol.client import Answer
from supervisor.cli import configured
from supervisor.cli.client import own_op
from supervisor.cli.daemon_verb import DaemonVerb, with_daemon
from supervisor.cli.exit_status import NO, NoDaemonError, NoError, exit_unless, interruption, remark
from supervisor.cli.options import MODULE, SECONDS, example, with_modules
from supervisor.cli.quantities import count
from supervisor.cli.results import compact, print_json, tell_failure
from supervisor.cli.status_text import in_trouble
from supervisor.cli.terminal import Ticker, dim, is_in, one_line
from supervisor.edge.bindings.blocking import RequestTimeoutError

_MEMBER = re.compile(rb'"enabled"\s*:\s*(true|false)')


@click.command(epilog=example("start dice torch", "start --all"))
@with_modules
@with_daemon
def start(modules: tuple[str, ...], daemon: DaemonVerb) -> None:
    """Start each MODULE, and return when all are ready.

    A module that waits for its next try is started at once. With --json, each answer is one line.
    Exits with 1 if one cannot be ready.
    """
    _control(daemon, "start", modules)


@click.command(epilog=example("stop dice torch", "stop --all"))
@with_modules
@with_daemon
def stop(modules: tuple[str, ...], daemon: DaemonVerb) -> None:
    """Stop each MODULE once its requests in flight are answered.

    It stays down until `start` or `restart`. With --json, each answer is one line. Exits with 1 if
    one cannot be stopped.
    """
    _control(daemon, "stop", modules)


@click.command(epilog=example("restart dice", "restart --all"))
@with_modules
@click.option("--prepare", is_flag=True, help="Prepare its program anew first.")
@with_daemon
def restart(modules: tuple[str, ...], prepare: bool, daemon: DaemonVerb) -> None:
    """Replace the process of each MODULE; requests that wait keep waiting.

    --all leaves out modules that were stopped, and modules that wait for their first request. With
    --json, each answer is one line. Exits with 1 if one cannot be ready.
    """
    _control(daemon, "restart", modules, **({"prepare": True} if prepare else {}))


def _control(daemon: DaemonVerb, op: str, modules: tuple[str, ...], **args: bool) -> None:
    def show(_: str, answer: Answer) -> None:
        if answer.ok:
            daemon.show(answer.result, _sentence)

    # The daemon bounds each by the module's own prepare_s, start_s and stop_s.
    with daemon.connect() as client:
        names = client.chosen(modules, wanted=op == "restart")
        asked = [own_op(op, {"module": one, **args}) for one in names]
        with interruption(f"{one_line(', '.join(names))}: the {op} continues in the daemon"):
            _show_each(daemon, names, client.together(asked), show, alone=len(modules) == 1)


def _show_each(
    daemon: DaemonVerb,
    names: Sequence[str],
    answers: Iterable[tuple[int, Answer]],
    show: Callable[[str, Answer], None],
    *,
    alone: bool,
) -> None:
    """Show the answers in the order of the names, each as early as possible.

    Prints failures, before `show`; ends the verb if there was one.
    """
    come: dict[int, Answer] = {}
    shown, well = 0, True
    for number, answer in answers:
        come[number] = answer
        while shown in come:
            name, told = names[shown], come.pop(shown)
            if not told.ok:
                well = False
                tell_failure(told, as_json=daemon.as_json, module=name, alone=alone)
            show(name, told)
            shown += 1
    exit_unless(well)


def _sentence(module: dict[str, Any]) -> str:
    running = [one for one in module["instances"] if one["pid"] is not None]
    pids = ", ".join(f"pid {one['pid']}" for one in running)
    return f"{one_line(module['name'])} {is_in(module['state'])}" + (f" ({pids})" if pids else "")


@click.command(epilog=example("enable dice", "enable modules/dice/module.json"))
@click.argument("modules", metavar="MODULE...", nargs=-1, required=True, type=MODULE)
@with_daemon
@click.pass_context
def enable(ctx: click.Context, *, modules: tuple[str, ...], daemon: DaemonVerb) -> None:
    """Write `"enabled": true` into the descriptor of each MODULE, and start it.

    MODULE is a name, or the path of a descriptor. With --json, there is a line for each:
    {"module","enabled","descriptor"}. Exits with 1 if a descriptor cannot be changed (then none
    is), or a module does not get ready.
    """
    _set_enabled(ctx, modules, daemon, enabled=True)


@click.command(epilog=example("disable dice"))
@click.argument("modules", metavar="MODULE...", nargs=-1, required=True, type=MODULE)
@with_daemon
@click.pass_context
def disable(ctx: click.Context, *, modules: tuple[str, ...], daemon: DaemonVerb) -> None:
    """Write `"enabled": false` into the descriptor of each MODULE, and stop it.

    Every daemon leaves it out until `stdiod enable`. MODULE is a name, or the path of a descriptor.
    With --json, there is a line for each: {"module","enabled","descriptor"}. Exits with 1 if a
    descriptor cannot be changed (then none is).
    """
    _set_enabled(ctx, modules, daemon, enabled=False)


def _set_enabled(
    ctx: click.Context, modules: tuple[str, ...], daemon: DaemonVerb, *, enabled: bool
) -> None:
    from protocol.descriptor.loading import DescriptorError
    from protocol.problem import did_you_mean
    from supervisor.runtime.files.directory import MissingDirectoryError, read_descriptor
    from supervisor.runtime.files.sources import scan

    client, directories = None, configured.directories(ctx)
    with contextlib.suppress(NoDaemonError):
        client = ctx.with_resource(daemon.connect())
        directories = tuple(map(Path, client.known("status").result["daemon"]["directories"]))
    where = f"in {', '.join(map(str, directories))}" if directories else "known; name its file"
    edits: dict[str, tuple[Path, bytes]] = {}
    try:
        found = scan(directories)
        known = {one.name: Path(one.source) for one in found.descriptors}
        bad = "".join(f"\n{one.descriptor}: {one.reason}" for one in found.quarantined)
        for word in modules:
            if "/" not in word and word not in known:
                raise NoError(f"no module {word} is {where}{did_you_mean(word, known)}{bad}")
            path = known.get(word) or Path(word)
            name, data = read_descriptor(path).name, path.read_bytes()
            edits[name] = path.resolve(), _with_enabled(data, enabled=enabled)
            if (owner := path.stat().st_uid) != os.geteuid():
                raise NoError(f"{path} belongs to user {owner}: only that user may change it")
    except (DescriptorError, MissingDirectoryError) as error:
        raise NoError(f"{error}; nothing was changed") from None
    for name, (path, data) in edits.items():
        _write(path, data)
        done = {"module": name, "enabled": enabled, "descriptor": str(path)}
        word = "enabled" if enabled else "disabled"
        daemon.show(done, f"{one_line(name)}: {word} in {one_line(str(path))}")
    if client is not None:
        client.own("reload")
        answer = client.own("wait", {"modules": [*edits], "for": "verdict" if enabled else "down"})
        daemon.result(answer, "wait")
        now = [one for one in client.known("status").result["modules"] if one["name"] in edits]
        for one in () if daemon.as_json else now:
            click.echo(_sentence(one))
        exit_unless(not (enabled and any(map(in_trouble, now))))


def _with_enabled(data: bytes, *, enabled: bool) -> bytes:
    """Return a valid descriptor with its member `enabled` changed, or added first."""
    document, value = json.loads(data), json.dumps(enabled).encode()
    if document.get("enabled", True) is enabled:
        return data
    first = data.index(b"{") + 1
    added = data[first : data.index(b'"', first)] + b'"enabled": ' + value + b","
    edits = [(one.span(1), value) for one in _MEMBER.finditer(data)] + [((first, first), added)]
    edited = (data[:begin] + words + data[end:] for (begin, end), words in edits)
    return next(one for one in edited if json.loads(one) == {**document, "enabled": enabled})


def _write(target: Path, data: bytes) -> None:
    from supervisor.runtime.files.whole_file import replace_whole

    try:
        replace_whole(target, data, target.stat().st_mode & 0o7777)
    except OSError as error:
        raise NoError(f"{target} cannot be written: {error.strerror}") from None


@click.command(epilog=example("health dice", "health --all"))
@with_modules
@with_daemon
def health(modules: tuple[str, ...], daemon: DaemonVerb) -> None:
    """Ask each MODULE whether it is well.

    --all leaves out modules that were stopped, and modules that wait for their first request. With
    --json, the answer of each of several modules is one line. Exits with 1 unless all are well.
    """
    _ask(daemon, "health", modules)


@click.command(epilog=example("describe dice", "describe dice torch"))
@with_modules
@with_daemon
def describe(modules: tuple[str, ...], daemon: DaemonVerb) -> None:
    """Ask each MODULE what it is, which ops it has, and what they take.

    --all leaves out modules that were stopped, and modules that wait for their first request. With
    --json, the answer of each of several modules is one line. Exits with 1 if one gives none.
    """
    _ask(daemon, "describe", modules)


def _ask(daemon: DaemonVerb, operation: str, modules: tuple[str, ...]) -> None:
    alone = len(modules) == 1
    owners: dict[str, str] = {}

    def show(name: str, answer: Answer) -> None:
        if answer.ok and daemon.as_json:
            print_json(answer.result if alone else {"module": name, **answer.document})
        elif answer.ok:
            well = f"{one_line(name)} is well"
            click.echo(well if operation == "health" else "\n".join(_description(answer.result)))
        elif name in owners and not daemon.as_json:
            remark(f"{one_line(name)} is an op of {owners[name]}")
        inputs = (answer.result or {}).get("inputs")
        owners.update(dict.fromkeys(inputs if isinstance(inputs, dict) else (), one_line(name)))

    # The daemon bounds each itself, by the module's health_s and describe_s.
    with daemon.connect() as client:
        names = client.chosen(modules, wanted=True)
        answers = client.together([(one, operation, {}) for one in names])
        _show_each(daemon, names, answers, show, alone=alone)


def _description(description: dict[str, Any]) -> Iterator[str]:
    version = description.get("version")
    name = one_line(str(description["name"])) + (f" {one_line(str(version))}" if version else "")
    yield f"{click.style(name, bold=True)}, {one_line(str(description['kind']))}"
    for label in ("capabilities", "features"):
        if description.get(label):
            yield f"{dim(label.ljust(13))}{one_line(', '.join(description[label]))}"
    inputs = description.get("inputs")
    if not isinstance(inputs, dict) or not inputs:
        yield "It does not describe its ops."
        return
    tools = description.get("tools") if "mcp" in description else None
    said = {one["name"]: one.get("description") for one in tools or ()}
    for op in sorted(inputs, key=lambda op: op not in said):  # resources and prompts come last
        yield ""
        yield click.style(one_line(op), bold=True)
        if isinstance(said.get(op), str):
            yield f"  {one_line(said[op].strip())}"
        if isinstance(inputs[op], dict):
            yield from _args(inputs[op], is_tool=op in said)


def _args(schema: dict[str, Any], *, is_tool: bool = False) -> Iterator[str]:
    if isinstance(schema.get("description"), str):
        yield f"  {one_line(schema['description'])}"
    properties = schema.get("properties")
    required = schema.get("required") or []
    if not isinstance(properties, dict):
        properties = {}
    width = max((len(one_line(name)) for name in properties), default=0)
    for name, of in properties.items():
        parts = [_type(of), "required" if name in required else ""]
        words = " ".join(filter(None, parts))
        said = of.get("description") if isinstance(of, dict) else None
        tail = f"  {dim(one_line(said))}" if isinstance(said, str) else ""
        yield f"  {one_line(name).ljust(width)}  {words}{tail}"
    others = [name for name in required if name not in properties]
    if others:
        yield f"  required: {one_line(', '.join(map(str, others)))}"
    if not properties and not others and "description" not in schema:
        # A tool's schema names all its args, though few forbid others.
        closed = schema.get("additionalProperties") is False
        closed |= is_tool and not schema.keys() - {"type", "properties", "$schema", "title"}
        yield dim("  takes no args" if closed else "  any args")


def _type(of: Any) -> str:
    if not isinstance(of, dict):
        return "any"
    if isinstance(of.get("enum"), list):
        return one_line(" | ".join(compact(one) for one in of["enum"]))
    kind = of.get("type", "any")
    return one_line(" | ".join(map(str, kind)) if isinstance(kind, list) else str(kind))


@click.command(epilog=example("wait dice torch --timeout 20", "wait --all"))
@with_modules
@click.option(
    "--for",
    "goal",
    type=click.Choice(["ready", "down"]),
    default="ready",
    show_default=True,
    help="What to wait for.",
)
@click.option("--timeout", "timeout_s", type=SECONDS, help="Give up after so many seconds.")
@with_daemon
def wait(
    *, modules: tuple[str, ...], goal: str, timeout_s: float | None, daemon: DaemonVerb
) -> None:
    """Wait until each MODULE is ready, or down.

    Exits with 1 as soon as one of them cannot get there by itself (it failed too often, or was
    stopped), or when the time is over.
    """
    with daemon.connect() as client, Ticker(silent=daemon.as_json) as ticker:
        pending = client.chosen(modules)
        last = ", ".join(pending)
        ticker.show(one_line(f"waiting for {last}"))

        def progress(event: dict[str, Any], _: bytes) -> None:
            nonlocal last
            ticker.line(one_line(str(event.get("message"))))
            if event.get("level") == "debug":
                return  # about a module that is still pending
            last = str((event.get("fields") or {}).get("module"))
            if last in pending:
                pending.remove(last)
            ticker.show(one_line(f"waiting for {', '.join(pending)}" if pending else ""))

        try:
            answer = client.own("wait", {"modules": pending[:], "for": goal}, progress, timeout_s)
        except RequestTimeoutError:
            words = f"not {goal} after {timeout_s:g} s: {one_line(', '.join(pending))}"
            if not daemon.as_json:
                raise NoError(words) from None
            details = {"reason": "deadline", "modules": pending}
            error = {"code": "timeout", "message": words, "details": details}
            print_json({"ok": False, "error": error})
            raise click.exceptions.Exit(NO) from None
    # The module of the last event is the one that cannot get there.
    found = daemon.result(answer, last)
    number = len(found["modules"])
    are = "is" if number == 1 else "are"
    daemon.show(found, f"{count(number, 'module')} {are} {goal}")
