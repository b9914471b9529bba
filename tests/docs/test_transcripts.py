"""Every terminal transcript of the documents is typed into a real shell, against a real daemon.

The `console` blocks under one `##` heading are one visit: they are typed one after the other into
the same shell, in a fresh home that holds the sample modules; files that the text tells a reader to
save are saved when their block is reached. A block said to need a program (`<!-- needs: node -->`)
that is missing here is passed over, and so is what follows it under that heading.
"""

from __future__ import annotations

import shutil
from itertools import groupby

import pytest

from tests.docs.markdown import DOCUMENTS, Block, blocks
from tests.docs.sandbox import Sandbox
from tests.docs.transcript import fits, steps, typed, undisturbed

VISITS = [
    (name, heading, list(visit))
    for name in DOCUMENTS
    for heading, visit in groupby(blocks(name), key=lambda block: block.section)
]
TYPED = [one for one in VISITS if any(block.language == "console" for block in one[2])]


@pytest.mark.parametrize(
    ("name", "heading", "visit"), TYPED, ids=[f"{n}: {h}" for n, h, _ in TYPED]
)
def test_what_a_reader_types_shows_what_the_document_shows(
    name: str, heading: str, visit: list[Block]
) -> None:
    numbers: dict[str, str] = {}
    with Sandbox() as sandbox:
        for block in visit:
            missing = [one for one in block.said.get("needs", "").split() if not shutil.which(one)]
            if missing:
                pytest.skip(f"{name}:{block.line} needs {', '.join(missing)}, which is missing")
            if block.file is not None:
                sandbox.save(block.file, block.text)
            elif block.language == "console":
                play(sandbox, block, numbers, f"{name}:{block.line}")


def play(sandbox: Sandbox, block: Block, numbers: dict[str, str], where: str) -> None:
    for step in steps(block.text):
        printed = undisturbed(sandbox.run(typed(step.command, numbers)))
        if not fits(step.shown, printed, numbers):
            said = [where, f"$ {step.command}", "-- shown:", *step.shown, "-- printed:", *printed]
            pytest.fail("\n".join(said), pytrace=False)


def test_a_command_stands_in_a_transcript_and_nowhere_else() -> None:
    # What installs is not typed here; it has to be said so.
    untried = [
        f"{name}:{block.line}"
        for name in DOCUMENTS
        for block in blocks(name)
        if block.language in ("sh", "bash", "shell", "")
        and block.file is None
        and "stdiod " in block.text
        and "not-typed" not in block.said
        and name != "modules/README.md"
    ]
    assert not untried
