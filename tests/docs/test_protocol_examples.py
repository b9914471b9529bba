"""Every example of the pages about the protocol is played to the code that speaks the protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module

import msgspec
import pytest

from protocol.descriptor.model import Limits
from protocol.errors import Code, Reason
from protocol.events import TYPES
from protocol.host_call import PiCode, pi_code
from protocol.journal_event import HOST_OWNED
from supervisor.kernel.host_calls.methods import METHODS
from supervisor.kernel.operations import OPS, inputs
from supervisor.kernel.requests import LOOKS
from supervisor.policy.principals import Scope
from supervisor.policy.session import BOUNDS, Status
from tests.docs.markdown import Block, blocks, code, read, rows
from tests.schemas.local_registry import validator

DOCUMENT = "docs/protocol.md"
BLOCKS = blocks(DOCUMENT)


def at_line(block: Block) -> str:
    return f"line-{block.line}"


def test_every_block_is_played_or_validated_or_typed() -> None:
    typed = [one for one in BLOCKS if one.language == "console" or one.file is not None]
    assert not [one.line for one in BLOCKS if not one.said and one not in typed]


@pytest.mark.parametrize("block", [one for one in BLOCKS if "schema" in one.said], ids=at_line)
def test_a_document_is_valid(block: Block) -> None:
    validator(block.said["schema"]).validate(json.loads(block.text))


def test_the_verdicts_name_codes_and_reasons_that_exist_and_belong_together() -> None:
    for what, shown, reasons in rows(DOCUMENT, "What happened"):
        if what.startswith("`done`"):
            continue
        for name in reasons.split(", "):
            reason = Reason(name.strip("`"))
            expected = Code.INTERNAL if reason in (Reason.EXITED, Reason.SIGNALED) else reason.code
            assert shown == f"`{expected}`", what


def test_the_events_of_the_table_are_those_of_the_specification() -> None:
    assert [row[0].strip("`") for row in rows(DOCUMENT, "`type`")] == list(TYPES)


def test_the_ops_of_the_table_are_those_of_the_daemon_with_their_args() -> None:
    table = {row[0].strip("`"): row[1] for row in rows(DOCUMENT, "Op")}
    assert list(table) == list(OPS)
    for op, schema in inputs().items():
        for name in schema["properties"]:
            required = f"`{name}` (required)" in table[op]
            assert f"`{name}`" in table[op]
            assert required == (name in schema["required"]), (op, name)


def bounds() -> Iterator[tuple[str, float]]:
    """Yield the full name and the figure of each bound of the page."""
    above = ""
    for _, figure, where in rows("docs/limits.md", "What"):
        name = str(code(where))
        if not name.startswith(("protocol.", "limits.")):
            name = above + name if name.startswith(".") else f"supervisor.{name}"
        above = name.rpartition(".")[0]
        yield name, float(figure.split()[0])


@pytest.mark.parametrize(("where", "number"), list(bounds()))
def test_a_bound_is_the_one_in_the_code(where: str, number: float) -> None:
    if where == "limits.line_bytes":
        assert number == Limits().line_bytes
    else:
        path, _, name = where.rpartition(".")
        module, _, owner = path.rpartition(".")
        if owner[:1].isupper():  # the default of a field
            assert number == getattr(getattr(import_module(module), owner)(), name)
        else:
            assert number == getattr(import_module(path), name)


def test_each_bound_of_sessions_has_a_row_with_its_figure() -> None:
    table = {row[2].strip("`"): int(row[1].split()[0]) for row in rows(DOCUMENT, "Of sessions")}
    assert table == msgspec.structs.asdict(BOUNDS)


def test_each_status_of_a_session_has_a_row() -> None:
    assert [row[0].strip("`") for row in rows(DOCUMENT, "Status")] == list(Status)


def test_the_methods_of_host_calls_are_those_there_are_with_their_params() -> None:
    table = {row[0]: (row[1], row[2]) for row in rows(DOCUMENT, "Method")}
    found = {}
    for method in METHODS:
        params = [
            f"`{name}`{' (required)' if name in method.required else ''}" for name in method.params
        ]
        capability = {
            "module.invoke": "module.invoke:MODULE.OP",
            "event.emit": "event.emit:NAME",
            "model.sample": "model.sample:MODULE",
        }.get(method.names[0], method.names[0])
        names = ", ".join(f"`{name}`" for name in method.names)
        found[names] = (", ".join(params), f"`{capability}`")
    assert table == found


def test_the_codes_of_host_calls_are_mapped_as_the_table_says() -> None:
    table = {row[0].strip("`"): row[1] for row in rows(DOCUMENT, "`code`")}
    assert list(table) == list(PiCode)
    assert {name: pi for pi, ours in table.items() for name in re.findall(r"`(\w+)`", ours)} == {
        code: pi_code(code) for code in Code
    }


def test_the_events_that_no_module_may_emit_are_listed() -> None:
    assert re.findall(r"`(\w+):\*`", read(DOCUMENT).partition('with a ":". ')[2])[
        : len(HOST_OWNED)
    ] == list(HOST_OWNED)


def test_each_op_stands_beside_the_scope_that_it_needs() -> None:
    table = {
        op: None if row[0] == "none" else Scope(row[0].strip("`"))
        for row in rows(DOCUMENT, "Scope")
        for op in re.findall(r"`([^`]+)`", row[1])
    }
    assert table.pop("health") is table.pop("describe") is LOOKS
    assert table == {name: one.scope for name, one in OPS.items()}


def test_the_ops_that_need_whole_modules_are_named() -> None:
    said = " ".join(read(DOCUMENT).split())
    (whole,) = re.findall(r"((?:`[a-z.]+`(?:, | and )?)+) need all of their module", said)
    every = said[said.index("need all of their module") : said.index("all modules there may be")]
    assert set(re.findall(r"`([^`]+)`", whole)) == {
        name for name, one in OPS.items() if one.whole_module
    }
    assert set(re.findall(r"`([^`]+)`", every)) == {
        name for name, one in OPS.items() if one.all_modules
    }
