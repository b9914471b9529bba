"""The descriptors that documents show are good ones, about which there is nothing to warn."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.docs.markdown import DOCUMENTS, blocks

SHOWN = [
    (f"{name}:{block.line}", json.loads(block.text))
    for name in DOCUMENTS
    for block in blocks(name)
    if block.language == "json"
    and re.search(r'"transport": ', block.text)
    and "comand" not in block.text  # a slip that is shown as one
    and "[...]" not in block.text
]
FILES = [block for block in blocks("README.md") if block.file is not None]


@pytest.mark.parametrize(("where", "document"), SHOWN, ids=[where for where, _ in SHOWN])
def test_a_descriptor_that_is_shown_has_no_warning(
    run: Run, tmp_path: Path, where: str, document: dict[str, object]
) -> None:
    (tmp_path / "module.json").write_text(json.dumps(document))
    assert "warning" not in run("validate", str(tmp_path / "module.json")).stdout, where


def test_the_modules_of_the_readme_are_checked_without_a_warning(run: Run, tmp_path: Path) -> None:
    for block in FILES:
        assert block.file is not None
        path = tmp_path / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
    for folder in (tmp_path / "hello").iterdir():
        if shutil.which(
            json.loads((folder / "module.json").read_text())["transport"]["command"][0]
        ):
            assert "warning" not in run("check", str(folder)).stdout


@pytest.mark.parametrize("op", [None, "make"])
def test_a_module_that_names_no_ops_is_told_what_to_add(
    run: Run, tmp_path: Path, op: str | None
) -> None:
    body = next(one.text for one in FILES if one.file == "hello/bash/hello.sh")
    (tmp_path / "hello.sh").write_text(body)
    transport = {"type": "stdio", "command": ["bash", "hello.sh"]}
    document = {"name": "m", "kind": "tool", "transport": transport}
    (tmp_path / "module.json").write_text(json.dumps(document))
    said = run("check", str(tmp_path), *(() if op is None else ("--op", op))).stdout
    added: dict[str, object] = {"inputs": {op or "OP": {}}}
    words = json.dumps(added, separators=(",", ":"))[1:-1]
    assert (
        f"/inputs: neither the module nor its descriptor says which ops it has; add {words}" in said
    )
    (tmp_path / "module.json").write_text(json.dumps({**document, **added}))
    assert "warning" not in run("check", str(tmp_path)).stdout
