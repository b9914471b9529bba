"""The TypeScript types are those of the schemas, and what they say is what TypeScript says.

They are compiled in `make test-typescript` only, which installs what it takes; that they are kept
in step is tried everywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import trio

from scripts import generate_types
from scripts.foreign import TYPESCRIPT
from tests.docs.markdown import ROOT, blocks
from tests.faces.running import LOOPBACK, running

WITHIN_S = 250.0
"""For one run of TypeScript, which takes 10 s of a processor, and much longer beside others."""
HERE = Path(__file__).parent

needs_typescript = pytest.mark.skipif(
    "STDIOD_TEST_TYPESCRIPT" not in os.environ or not TYPESCRIPT.bin.is_dir(),
    reason="TypeScript is installed by `make test-typescript`",
)


def test_the_kept_types_are_of_the_schemas_as_they_are() -> None:
    kept = generate_types.OUTPUT.read_text(encoding="utf-8")
    made = generate_types.header(generate_types.whole(generate_types.document()))
    assert kept.startswith(made), "run `make typescript`"


@pytest.mark.bound(300)
@needs_typescript
def test_they_are_what_is_generated() -> None:
    kept = generate_types.OUTPUT.read_text(encoding="utf-8")
    assert kept == generate_types.generated(generate_types.document())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example of the page, and all that it takes to compile it."""
    folder = tmp_path_factory.mktemp("client")
    (example,) = (one for one in blocks("docs/http.md") if one.language == "typescript")
    assert example.file == "look.ts"
    (folder / example.file).write_text(example.text, encoding="utf-8")
    (folder / "stdiod.d.ts").write_bytes(generate_types.OUTPUT.read_bytes())
    (folder / "refused.ts").write_bytes((HERE / "refused.ts").read_bytes())
    (folder / "node_modules").symlink_to(TYPESCRIPT.bin.parent)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return folder


def tsc(folder: Path, *arguments: str) -> None:
    options = ["--strict", "--target", "es2022", "--module", "esnext"]
    options += ["--moduleResolution", "bundler"]
    ended = subprocess.run(
        [str(TYPESCRIPT.bin / "tsc"), *options, "--lib", "es2022,dom,dom.iterable", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.bound(300)
@needs_typescript
def test_typescript_refuses_what_the_schemas_refuse(project: Path) -> None:
    tsc(project, "--noEmit", "refused.ts", "stdiod.d.ts")


@pytest.mark.bound(600)
@needs_typescript
async def test_the_example_of_the_page_asks_a_daemon(project: Path) -> None:
    tsc(project, "look.ts")
    source = ROOT / "modules" / "dice" / "module.json"
    dice = json.loads(source.read_bytes())
    dice["transport"]["cwd"] = str(source.parent)
    async with running(dice, http=LOOPBACK) as face:
        call = f"look({json.dumps(face.address)}, {json.dumps(await face.token())})"
        program = f"import {{ look }} from './look.js'; await {call}"
        with trio.fail_after(WITHIN_S):
            ended = await trio.run_process(
                ["node", "--input-type=module", "--eval", program],
                cwd=project,
                capture_stdout=True,
            )
    assert ended.stdout.decode().splitlines() == [
        "dice is ready",
        "{ rolls: [ 2, 3 ], total: 5 }",
        "NOT_FOUND: there is no module 'dcie'; did you mean 'dice'?",
        "dice: down -> starting",
        "dice: starting -> ready",
    ]
