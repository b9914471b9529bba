"""The step in which a module makes a file, and the one in which it is found again."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.demo.answers import Json, event, log, response
from scripts.demo.likeness import SOME_INT, SOME_TEXT, Having, Like
from scripts.demo.stage import Stage

ARGS = '{"title":"Rain","values":{"May":61,"June":48,"July":12}}'


def draw(stage: Stage) -> None:
    """Have `chart` draw, and look at what the daemon knows of the picture."""
    drawn: list[Json] = []
    with stage.step("chart draw"):
        stage.show("invoke", "chart", "draw", "--args", ARGS)
        found = stage.ask("invoke", "chart", "draw", "--args", ARGS)
        summary = "Drew a bar chart of 3 values."
        expected = [
            log("Drawing 3 values", fields={"style": "bar"}),
            log(Like(r"Wrote .*\.svg"), level="debug"),
            _asset(stage),
            response("chart", "draw", result=None, summary=summary),
        ]
        what = "with --json, each event and the response are as they should be"
        stage.expect(what, expected, found)
        drawn.append(found[2])
        picture = Path(found[2]["path"]).read_text(encoding="utf-8")
        stage.expect("the asset is a picture", Like(r"<svg .*Rain.*</svg>\n"), picture)
    for asset in drawn:
        with stage.step("asset list, show and open"):
            _find_again(stage, asset)


def _find_again(stage: Stage, asset: Json) -> None:
    named = asset["registered"]["id"]
    stage.show("asset", "list")
    stage.show("asset", "show", named)
    (shown,) = stage.ask("asset", "show", named)
    known = {"path": asset["path"], "sha256": asset["registered"]["sha256"]}
    stage.expect("what the module handed over is known", Having(known), shown)
    said = stage.show("asset", "open", named, "--print")
    stage.expect("its file is still the same", f"{asset['path']}\n", said)


def _asset(stage: Stage) -> Json:
    return event(
        "asset",
        assetId="chart",
        kind="image",
        mediaType="image/svg+xml",
        path=Like(re.escape(str(stage.scratch)) + r"/chart-\w+\.svg"),
        metadata={"width": 640, "height": 360},
        registered={"id": SOME_TEXT, "bytes": SOME_INT, "sha256": SOME_TEXT},
    )
