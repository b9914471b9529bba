"""Whole conversations of each dialect: all that it writes and tells, in its order."""

from __future__ import annotations

import pytest

from tests.protocol.talk import FOLDER, conversations, played

TALKS = {
    f"{path.stem}: {rows[0].removeprefix('=== ')}": rows
    for path in sorted(FOLDER.glob("*.talk"))
    for rows in conversations(path)
}


@pytest.mark.parametrize("name", TALKS)
def test_a_conversation_goes_as_it_went_before(name: str) -> None:
    assert played(TALKS[name]) == TALKS[name]
