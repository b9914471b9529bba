"""The page goes on by itself: behind what it has seen, in a new journal, and after a mistake."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.faces.http.test_page import FOLDER

BROWSER = """
globalThis.document = { hidden: false, addEventListener() {} };
globalThis.addEventListener = () => {};
globalThis.requestAnimationFrame = (draw) => setTimeout(draw);
"""

FOLLOWED = """
import "./browser.js";
import { Live } from "./live.js";

const answers = [
  [{ journal: "old", since: 6 }, { seq: 7, id: "a-7" }],
  [{ journal: "new", since: 0 }, { seq: 1, id: "b-1" }],
];
const asked = [];
const told = [];
const live = new Live();
globalThis.fetch = async (where, { headers }) => {
  asked.push([where, headers["Last-Event-ID"] ?? null]);
  const answer = answers.shift();
  const lines = answer?.map((one) => `data: ${JSON.stringify(one)}\\n\\n`);
  if (lines) return new Response(lines.join(""));
  console.log(JSON.stringify({ asked, told }));
  process.exit();
};
live.listen((entries) => told.push([live.journal, entries.map((one) => one.id)]));
live.watch((state) => state === "away" && setTimeout(() => live.retry()));
live.run();
"""

FAILED = """
import "./browser.js";
import { Figures } from "./figures.js";
import { paced } from "./pace.js";

let hear;
const figures = new Figures({ listen: (one) => (hear = one), watch() {} });
hear([{ event: "module:state", module: "gone", data: { to: "failed" } }]);
const state = figures.stateOf({ name: "gone", state: "ready" });

let runs = 0;
process.on("unhandledRejection", () => {});
const work = paced(async () => {
  runs += 1;
  if (runs === 1) {
    setTimeout(work);
    throw new Error("bad once");
  }
  console.log(JSON.stringify({ state, runs }));
}, 0);
work();
"""

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="there is no node to run scripts"
)


def ran(folder: Path, script: str) -> Any:
    """Run a script beside those of the page; returns what it printed."""
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "browser.js").write_text(BROWSER)
    (folder / "asked.js").write_text(script)
    ran = subprocess.run(["node", "asked.js"], cwd=folder, stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)


def test_the_page_resumes_behind_what_it_saw_and_tells_when_the_journal_is_new(
    tmp_path: Path,
) -> None:
    said = ran(tmp_path, FOLLOWED)
    assert said["told"] == [["old", ["a-7"]], ["new", ["b-1"]]]
    assert said["asked"] == [
        ["api/v1/events?last=0", None],
        ["api/v1/events?journal=old", "7"],
        ["api/v1/events?journal=new", "1"],
    ]


def test_the_page_keeps_no_states_that_nobody_asks_for_and_draws_again_after_a_mistake(
    tmp_path: Path,
) -> None:
    assert ran(tmp_path, FAILED) == {"state": "ready", "runs": 2}
