"""What is advised after a mistake holds for that mistake, wherever a newcomer looks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from supervisor.cli.examination import examine_modules
from supervisor.cli.failure_text import failure_text
from supervisor.cli.status_text import module_text, status_text
from tests.mistakes.cases import AT_START_S, MISTAKES, Mistake, command, fields
from tests.system.conftest import StartDaemon, folder, start_daemon
from tests.system.daemon import Daemon

__all__ = ["folder", "start_daemon"]

NEVER_S = 10_000
DEADLINES_S = (0.5, 4, 30)
"""How long a request may take: on a busy machine nothing is printed yet when the first is over."""

CASES = [one for one in MISTAKES if not one.first_line]

NO_HELP = re.compile(r"--socket|\btry again\b|Try again|--timeout|Allow more|\braise\b")
"""More time, another try and another socket help none of them."""


def documents(folder: Any) -> list[dict[str, Any]]:
    """Return the descriptors of all cases, in bash; each has a name and a folder of its own."""
    found = []
    for number, case in enumerate(CASES):
        name = f"m{number}"
        renamed = tuple(one.replace(b'"m"', f'"{name}"'.encode()) for one in case.replies)
        program = command("bash", case._replace(replies=renamed), folder, folder)
        start_s = 0.5 if case.when == AT_START_S else NEVER_S
        found.append(
            {
                "name": name,
                "kind": "tool",
                "version": "1.0.0",
                "transport": {"type": "stdio", "command": program},
                "supervision": {
                    "timeouts": {
                        "start_s": start_s,
                        "health_s": NEVER_S,
                        "describe_s": NEVER_S,
                        "invoke_s": NEVER_S,
                    },
                    "backoff": {"initial_s": NEVER_S, "max_s": NEVER_S},
                    "intensity": 100,
                },
                **fields(case),
            }
        )
    return found


def answered(daemon: Daemon, name: str, case: Mistake) -> str:
    """Return the page that whoever invokes it sees; empty if it is well."""
    for deadline_s in DEADLINES_S:
        answer = daemon.invoke(name, timeout_s=deadline_s)
        if answer.ok:
            return ""
        details = answer.details
        if case.starts and details.get("reason") == "deadline" and "line_excerpt" not in details:
            continue
        return failure_text(answer.error, module=name, op="go")
    pytest.fail(f"{name} printed nothing: {case.name}")


def test_no_page_advises_what_is_no_help(start_daemon: StartDaemon, folder: Any) -> None:
    daemon = start_daemon(*documents(folder))
    pages = {
        f"invoke after: it {case.name}": answered(daemon, f"m{number}", case)
        for number, case in enumerate(CASES)
    }
    status = daemon.op("status")
    pages["status"] = status_text(status, None)
    for number, case in enumerate(CASES):
        module = daemon.status(f"m{number}")
        pages[f"status after: it {case.name}"] = module_text(module)
        (found,) = examine_modules({"modules": [module]})
        pages[f"doctor after: it {case.name}"] = f"{found.message} {found.hint}"
    advised = {where: NO_HELP.findall(page) for where, page in pages.items()}
    assert {where: words for where, words in advised.items() if words} == {}
