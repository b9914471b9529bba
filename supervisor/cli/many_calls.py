"""Call an op for each line of stdin over one connection: `stdiod invoke --stdin`."""

from __future__ import annotations

import sys
from typing import Any

import click

from protocol.errors import Reason
from protocol.json_document import read_document
from supervisor.cli.args import ARGS_MIB
from supervisor.cli.client import DaemonClient
from supervisor.cli.exit_status import interruption
from supervisor.cli.terminal import one_line
from supervisor.cli.verbs.invoke import Shown, call


def answer_lines(client: DaemonClient, module: str, content: dict[str, Any], show: Shown) -> bool:
    """Print a response for each line that is not blank.

    Returns whether all were ok. The object on a line adds to the args of `content`; another line is
    answered by `bad_request`. Raises `click.UsageError` for a line longer than the limit.
    """
    well, number = True, 0
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
            words = one_line(f"{module}.{content['op']} was cancelled, line {number} of stdin")
            with interruption(words):
                response = call(client, module, asked, show.event)
        else:
            words = f"line {number} of stdin: {'; '.join(map(str, args))}"
            response = _refusal(words, module, content["op"])
        show.response_line(response)
        well = well and response.get("ok") is True
    return well


def _refusal(words: str, module: str, op: str) -> dict[str, Any]:
    details = {"reason": str(Reason.MALFORMED_REQUEST), "origin": "host"}
    error = {"code": "bad_request", "message": words, "details": details}
    return {"ok": False, "error": error, "module": module, "op": op}
