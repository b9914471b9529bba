"""The table of languages says how `stdiod new` has each of them run and built."""

from __future__ import annotations

import json

from supervisor.cli.module_templates import LANGUAGES
from tests.docs.markdown import code, rows


def words(cell: str) -> tuple[str, ...]:
    return tuple(json.loads(code(cell) or "[]"))


def test_each_language_has_a_row_with_its_commands_as_new_writes_them() -> None:
    table = {
        code(row[0]): (words(row[1]), words(row[2]), tuple(row[3].replace("`", "").split()))
        for row in rows("docs/writing-a-module.md", "Language")
    }
    assert table == {
        name: (one.command, one.prepare, one.pass_env)
        for name, one in LANGUAGES.items()
        if name != "exec"  # it is no language, and its command is whatever is wrapped
    }
