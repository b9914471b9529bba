"""`stdiod invoke` and `plan`: call an op of a module, show its events, print its result."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from protocol.errors import Reason
from protocol.json_document import read_document
from supervisor.cli.args import ARGS_MIB, Word, args_of, read_args, read_words
from supervisor.cli.client import ANSWER_S, SUPERVISOR, DaemonClient, given_args
from supervisor.cli.daemon_verb import DaemonVerb, with_daemon
from supervisor.cli.event_text import EventPrinter, log_line
from supervisor.cli.exit_status import (
    INTERRUPTED,
    NoDaemonError,
    NoError,
    exit_unless,
    interruption,
    remark,
)
from supervisor.cli.failure_text import failure_text
from supervisor.cli.options import (
    MODULE,
    OP,
    SECONDS,
    SESSION,
    TEXT,
    Subverbs,
    example,
)
from supervisor.cli.quantities import duration
from supervisor.cli.results import echo_json, print_json, print_laid_out
from supervisor.cli.terminal import dim, is_terminal, one_line
from supervisor.edge.bindings.blocking import OnEvent, RequestTimeoutError
from supervisor.policy.session import plan_problems

if TYPE_CHECKING:
    from protocol.descriptor.model import Descriptor
    from supervisor.runtime.files.module_log import LogLine


GRACE_S = 15.0
"""How long after the invocation's own deadline the daemon's answer may come."""

LINE_BYTES = 4096
"""The longest line of a terminal."""

_DECODE = msgspec.json.Decoder(dict[str, Any]).decode


@click.command(
    epilog=example(
        "invoke dice roll dice=3d6 seed:=1",
        "invoke dice roll --stdin < args.jsonl",
        "invoke torch light room=hall --session walk",
    )
)
@click.argument("module", type=MODULE)
@click.argument("op", metavar="OP", required=False, type=OP)
@click.argument("words", metavar="[KEY=VALUE|KEY:=JSON]...", nargs=-1, type=TEXT)
@click.option(
    "--args",
    "given",
    metavar="JSON|@FILE|-",
    help="The args as a JSON object, a file with one, or stdin.",
)
@click.option(
    "--stdin",
    "line_by_line",
    is_flag=True,
    help="Call OP for each line of stdin, a JSON object that adds to the args.",
)
@click.option(
    "--session",
    "session_id",
    type=SESSION,
    metavar="ID",
    help="The session that the call belongs to.",
)
@click.option(
    "--timeout", "timeout_s", type=SECONDS, help="Instead of the module's timeouts.invoke_s."
)
@click.option(
    "--descriptor",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE",
    help="Run the module here, from its descriptor (or its folder), without a daemon.",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --descriptor: record a transcript, which only its owner can read.",
)
@with_daemon
def invoke(
    *,
    module: str,
    op: str | None,
    words: tuple[str, ...],
    given: str | None,
    line_by_line: bool,
    session_id: str | None,
    timeout_s: float | None,
    descriptor: Path | None,
    record: Path | None,
    daemon: DaemonVerb,
) -> None:
    """Call OP of MODULE.

    VALUE is a string, or whatever the op takes for KEY: a number, true or false, or an element of
    a list (repeat KEY=VALUE for more). KEY:=JSON is JSON. Both add to --args.

    On a terminal, a question to a person about the call is asked there; y allows it.

    Events go to stderr, the result goes to stdout. With --json, each event goes to stdout as it
    comes, one per line, and the response comes last. Ctrl-C cancels the call.

    With --stdin, the responses go to stdout, one line for each line of stdin that is not blank, in
    the same order. Each call begins when the one before has been answered.

    Exits with 0 if the call succeeded, 1 if it failed (with --stdin, if one of them did), 3 if no
    daemon is there, 130 after Ctrl-C.
    """
    if op is None:
        raise click.UsageError(_no_op(module, None if descriptor else daemon))
    if record is not None and descriptor is None:
        hint = "of a module of a daemon: `stdiod record MODULE`"
        raise click.UsageError(f"--record needs --descriptor; {hint}")
    if line_by_line and (descriptor is not None or given in ("-", "@-")):
        other = "--descriptor" if descriptor is not None else f"--args {given}"
        raise click.UsageError(f"--stdin and {other} do not go together")
    args = read_args(given)
    content = given_args(op=op, args=args, session_id=session_id, timeout_s=timeout_s)
    typed = read_words(words)
    show = Shown(as_json=daemon.as_json, with_daemon=descriptor is None)
    if line_by_line:
        with daemon.connect() as client:
            _add_words(client, module, content, typed)
            exit_unless(_answer_lines(client, module, content, show))
        return
    if descriptor is None:
        asks = not daemon.as_json and is_terminal(sys.stdin) and is_terminal(sys.stderr)
        response = _ask_daemon(daemon, module, content, show, typed, asks=asks)
    else:
        from supervisor.cli.one_module import load_module

        loaded = load_module(descriptor, module)
        args |= args_of(typed, (loaded.inputs or {}).get(op))
        response = _run_here(loaded, content, show, record)
    show.response(response)
    exit_unless(response.get("ok"))


def _no_op(module: str, daemon: DaemonVerb | None) -> str:
    """Return the error for a missing OP, with the module's ops if a daemon knows them."""
    name, dot, op = module.partition(".")
    if dot:
        return f"Missing argument 'OP'; write `stdiod invoke {name} {op or 'OP'}`"
    ops: list[str] = []
    if daemon is not None:
        with contextlib.suppress(NoDaemonError), daemon.connect() as client:
            status = client.known("status", {"module": module, "inputs": True}).result or {}
            ops = list((status.get("ops") or {}).get("inputs") or {})
    there = f"{module} has {', '.join(ops)}" if ops else f"`stdiod describe {module}` lists its ops"
    return f"Missing argument 'OP'; {there}"


class Shown:
    """The output of an invocation, as text or JSON."""

    def __init__(self, *, as_json: bool, with_daemon: bool) -> None:
        self._as_json = as_json
        self._with_daemon = with_daemon
        self._printer = EventPrinter()
        self._questions: dict[str, dict[str, Any]] = {}

    def ask_person(self, client: DaemonClient, left_s: float | None) -> None:
        """Ask the first open question on the terminal, until a line or the daemon's next event.

        The answer goes over a connection of its own, like that of `stdiod approve`.
        """
        if not self._questions:
            return
        id_, question = next(iter(self._questions.items()))
        others = [one for one in question["options"] if one not in ("allow", "deny")]
        more = f" (or: {', '.join(others)})" if others else ""
        self._printer.prompt(f"Allow it? [y/N]{more} ")
        ready, _, _ = select.select([sys.stdin, client], [], [], left_s)
        if sys.stdin not in ready:
            return
        del self._questions[id_]
        said = os.read(sys.stdin.fileno(), LINE_BYTES).decode(errors="replace")
        if not said:
            return  # Ctrl-D: `stdiod approve` may still answer it
        word = said.strip()
        answer = "allow" if word.lower() in ("y", "yes", "allow") else "deny"
        args = {"id": id_, "answer": word if word in others else answer}
        with DaemonClient(client.path) as other:
            decided = other.known("approve", args)
        if not decided.ok:
            self._printer.line(failure_text(decided.error, module=SUPERVISOR, op="approve"))

    def event(self, event: dict[str, Any], line: bytes) -> None:
        id_ = event.get("approval")
        if isinstance(id_, str):
            self._questions.pop(id_, None)
            if event["event"] == "approval.request" and not event["payload"].get("form"):
                self._questions[id_] = event["payload"]
        if self._as_json:
            echo_json(line)
        else:
            self._printer.show(event)

    def log(self, line: LogLine) -> None:
        """Show a line of the module's log; the host's notes are in the answer."""
        if line.stream not in ("host", "event"):
            self._printer.line(log_line(line.stream, line.text))

    def json_line(self, response: dict[str, Any]) -> None:
        self._printer.close_line()
        print_json(response)

    def response(self, response: dict[str, Any]) -> None:
        if self._as_json:
            print_json(response)
            return
        for warning in response.get("warnings") or []:
            excerpt = warning.get("line_excerpt")
            words = f"{warning.get('message')}{'' if excerpt is None else f': {excerpt}'}"
            self._printer.line(f"{click.style('warning', fg='yellow')}: {one_line(words)}")
        self._printer.close_line()
        if response.get("ok"):
            took = duration(response.get("duration_ms", 0) / 1000)
            summary = one_line(str(response.get("summary") or "done"))
            click.echo(
                f"{click.style('ok', fg='green')}     {summary} {dim(f'({took})')}", err=True
            )
            if response.get("result") is not None:
                print_laid_out(response["result"])
        else:
            text = failure_text(
                response.get("error") or {},
                module=str(response.get("module")),
                op=str(response.get("op")),
                with_daemon=self._with_daemon,
            )
            click.echo(text, err=True)


def _ask_daemon(
    daemon: DaemonVerb,
    module: str,
    content: dict[str, Any],
    show: Shown,
    typed: Sequence[Word] = (),
    *,
    asks: bool = False,
) -> dict[str, Any]:
    """Invoke a module through the daemon; returns the response.

    With `asks`, the person at the terminal is asked about the call. Raises `NoDaemonError`.
    """
    words = one_line(f"{module}.{content['op']} was cancelled")
    with interruption(words), daemon.connect() as client:
        _add_words(client, module, content, typed)
        if asks:
            client.before_waiting = partial(show.ask_person, client)
        return _call(client, module, content, show.event)


def _call(
    client: DaemonClient, module: str, content: dict[str, Any], on_event: OnEvent
) -> dict[str, Any]:
    """Invoke a module over a connection; returns the response. Raises `NoDaemonError`."""
    # Without --timeout the daemon bounds it, by a timeout that only the module's descriptor knows.
    timeout_s = content["timeout_s"] + GRACE_S if "timeout_s" in content else None
    try:
        return client.request(module, "invoke", content, on_event, timeout_s).document
    except RequestTimeoutError:
        words = f"the daemon on {client.path} gave no answer, {GRACE_S:g} s after the deadline"
        raise NoDaemonError(words) from None


def _add_words(
    client: DaemonClient, module: str, content: dict[str, Any], typed: Sequence[Word]
) -> None:
    """Add typed words to the args, by the op's schema.

    The daemon does not know that of a module that has never run.
    """
    said: dict[str, Any] | None = None
    if all(word.is_json for word in typed):
        pass  # no schema is needed
    elif module == SUPERVISOR:
        said = client.request(module, "describe", {}, timeout_s=ANSWER_S).result
    else:
        said = (client.known("status", {"module": module, "inputs": True}).result or {}).get("ops")
    inputs = (said or {}).get("inputs")
    schema = inputs.get(content["op"]) if isinstance(inputs, dict) else None
    content["args"] |= args_of(typed, schema)


def _run_here(
    descriptor: Descriptor, content: dict[str, Any], show: Shown, record: Path | None
) -> dict[str, Any]:
    from supervisor.cli.one_module import invoke_here

    module = descriptor.name
    needed = descriptor.supervision.depends_on
    if needed:
        names = one_line(", ".join(needed))
        remark(f"{module} depends on {names}, which is not started here")
    response, interrupted = invoke_here(
        descriptor, content, lambda line: show.event(_DECODE(line), line), show.log, record
    )
    if interrupted:
        show.response(response)
        raise click.exceptions.Exit(INTERRUPTED)
    return response


def _answer_lines(client: DaemonClient, module: str, content: dict[str, Any], show: Shown) -> bool:
    """Print a response for each line that is not blank.

    Returns whether all were ok. The object on a line adds to the args of `content`; another line is
    answered by `bad_request`. Raises `click.UsageError` for a line longer than the limit.
    """
    well, number, op = True, 0, content["op"]
    longest = (ARGS_MIB << 20) + 1
    while line := sys.stdin.buffer.readline(longest):
        number += 1
        if len(line) == longest:
            raise click.UsageError(f"line {number} of stdin has more than {ARGS_MIB} MiB")
        if not line.strip():
            continue
        args = read_document(line)
        if isinstance(args, dict):
            asked = {**content, "args": {**content["args"], **args}}
            with interruption(one_line(f"{module}.{op} was cancelled, line {number} of stdin")):
                response = _call(client, module, asked, show.event)
        else:
            words = f"line {number} of stdin: {'; '.join(map(str, args))}"
            details = {"reason": str(Reason.MALFORMED_REQUEST), "origin": "host"}
            error = {"code": "bad_request", "message": words, "details": details}
            response = {"ok": False, "error": error, "module": module, "op": op}
        show.json_line(response)
        well = well and response.get("ok") is True
    return well


END_S = 10.0
"""How long the end of the session may take; its entries are kept either way."""


@click.group(cls=Subverbs, epilog=example("plan run plan.json --with planner"))
def plan() -> None:
    """Carry out plans: {"goal": TEXT, "inputs": OBJECT}."""


@plan.command(epilog=example("plan run plan.json --with planner"))
@click.argument("file", metavar="PLAN.json", type=click.Path(allow_dash=True, path_type=Path))
@click.option(
    "--with",
    "orchestrator",
    type=TEXT,
    required=True,
    metavar="MODULE",
    help="The module that carries it out.",
)
@click.option("--op", type=TEXT, default="execute", show_default=True, help="The op to call.")
@click.option(
    "--session",
    "session_id",
    type=TEXT,
    metavar="ID",
    help="A session that continues afterwards.  [default: one for the plan, which then ends]",
)
@click.option(
    "--timeout", "timeout_s", type=SECONDS, help="Instead of the module's timeouts.invoke_s."
)
@with_daemon
def run(
    *,
    file: Path,
    orchestrator: str,
    op: str,
    session_id: str | None,
    timeout_s: float | None,
    daemon: DaemonVerb,
) -> None:
    """Have a module carry out the plan in PLAN.json ("-" for stdin).

    Invokes it with {"plan": the plan, "prompt": its goal}. Events and the result are shown as by
    `invoke`. Ctrl-C cancels the invocation.
    """
    document = read_args("-" if str(file) == "-" else f"@{file}", "PLAN.json")
    problems = plan_problems(document)
    if problems:
        lines = [f"{one_line(str(file))}: {problem}" for problem in problems]
        raise NoError("the plan is not valid\n" + "\n".join(lines))
    show = Shown(as_json=daemon.as_json, with_daemon=True)
    args = {"plan": document, "prompt": document["goal"]}
    content = given_args(op=op, args=args, timeout_s=timeout_s)
    with _session(daemon, session_id, document) as content["session_id"]:
        response = _ask_daemon(daemon, orchestrator, content, show)
    show.response(response)
    exit_unless(response.get("ok"))


@contextlib.contextmanager
def _session(daemon: DaemonVerb, session_id: str | None, document: dict[str, Any]) -> Iterator[str]:
    """Yield the id of a session; a new one ends with the block."""
    if session_id is not None:
        yield session_id
        return
    own: str = daemon.call("session.new", plan=document)["session_id"]
    try:
        yield own
    finally:
        # An error is reported already; a daemon that is gone cannot end the session.
        with contextlib.suppress(NoDaemonError, RequestTimeoutError), daemon.connect() as client:
            client.own("session.end", {"session_id": own}, timeout_s=END_S)
