"""The page counts, writes and decides as the command line and the daemon do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from protocol.problem import printable
from supervisor.cli import quantities
from supervisor.cli.status_text import in_trouble, severity
from supervisor.cli.top.figures import figures
from supervisor.cli.top.view import rate
from supervisor.edge.http.page import FOLDER
from supervisor.policy.approval import allows
from supervisor.policy.lifecycle import State
from supervisor.policy.principals import Principal, Scope

ASKED = """
import { printable } from "./dom.js";
import { duration, latency, rate, size } from "./format.js";
import { compared } from "./figures.js";
import { may } from "./principal.js";
import { inTrouble, severity } from "./trouble.js";
import { allows } from "./views/approvals.js";
const quantities = { duration, latency, rate, size };
const all = { ...quantities, allows, printable, compared, may, inTrouble, severity };
const asked = JSON.parse(await new Promise((resolve) => {
  let text = "";
  process.stdin.on("data", (part) => (text += part)).on("end", () => resolve(text));
}));
console.log(JSON.stringify(asked.map(([name, ...args]) => all[name](...args))));
"""

EXACT = """
const made = { append() {}, setAttribute() {}, getAttribute() {}, addEventListener() {} };
globalThis.document = { createElement: () => ({ ...made }) };
const { parse } = await import("./exact.js");
const { control } = await import("./field.js");
const typed = [
  ["integer", "+9007199254740993"],
  ["object", '{"n":[9007199254740993,-123456789012345678901234567890,7],"s":"9007199254740993"}'],
];
const sent = () => typed.map(([type, value]) => {
  const field = control({ type });
  field.element.value = value;
  try {
    return JSON.stringify(field.take());
  } catch (error) {
    return error.message;
  }
});
const exact = sent();
const read = parse(typed[1][1]).n.map(String);
const told = JSON.parse;
JSON.parse = (text, revive) => told(text, revive && ((key, value) => revive(key, value)));
console.log(JSON.stringify({ exact, read, rounded: parse("9007199254740993"), older: sent() }));
"""
"""The last line is what a browser has that does not tell how a number was written."""

TEXTS = [
    "plain, ünïcode and \U0001f600",
    "\x00\x07\t\n\r\x1b[31m\x7f",
    "\x85\x9b",
    "a\u202egpj.exe\u2066\u2069\u200f",
    "\u00a0\u2003\u3000\u2028\u2029\ufeff\u200b\u200d\u00ad",
    "\ue000\U000e0041\U000f0000",
    "<img src=x onerror=alert(1)>",
]
SECONDS = [0, 0.04, 0.9994, 0.9996, 3.21, 9.949, 9.951, 47, 59.6, 185, 3599.6, 7500, 90000, 273600]
MILLISECONDS = [0.004, 0.214, 0.9949, 0.996, 3.42, 99.94, 99.96, 250, 999.6, 3210]
SIZES = [0, 640, 1023, 1024, 12.3 * 1024**2, 1024**3 - 1, 5 * 1024**4]
OPTIONS = [
    "allow",
    "Yes, always",
    " approve it",
    "yes-man: no",
    "allowed",
    "deny",
    "no",
    "ye\u017f",
    ",",
]
RATES = [0, 0.25, 9.99, 9.996, 12.34, 999.94, 999.96, 1234.6]


def entry(count: int, name: str = "m") -> dict[str, Any]:
    """Return as much of an entry of `status` as figures are made of."""
    reading = [[3, count], [9, 2 * count], [896, 5 * count], [1 << 20, count // 3]]
    return {
        "name": name,
        "state": "ready",
        "last_exit": None,
        "waits_for": [],
        "restarts": 1,
        "in_flight": 0,
        "queued": 0,
        "counters": {"invocations": 9 * count, "failures": count // 4},
        "latency_ms": {"max": 1100.5, "histogram_us": [pair for pair in reading if pair[1]]},
        "instances": [
            {"id": f"{name}#{number}", "rss_bytes": 1000 * number, "cpu_s": number + count / 100}
            for number in (1, 2)
        ],
    }


def status(count: int, uptime_s: float) -> dict[str, Any]:
    daemon = {"pid": 1, "version": "0", "uptime_s": uptime_s, "rss_bytes": 1}
    return {"daemon": daemon, "modules": [entry(count)], "quarantined": []}


def modules() -> list[dict[str, Any]]:
    ends = [
        None,
        {"reason": "stopped", "exit_code": 1},
        {"reason": "exited", "exit_code": 0},
        {"reason": "exited", "exit_code": 3},
        {"reason": "signaled", "exit_code": None},
    ]
    return [
        {"state": state, "quarantined": bad, "wanted": wanted, "waits_for": waits, "last_exit": end}
        for state in State
        for bad in (None, "bad")
        for wanted in ("up", "down")
        for waits in ([], ["kv"])
        for end in ends
    ]


def expected() -> list[tuple[list[Any], Any]]:
    """Return what is asked of the page, each with what the daemon's side says."""
    told: list[tuple[list[Any], Any]] = [(["printable", text], printable(text)) for text in TEXTS]
    told += [(["duration", one], quantities.duration(one)) for one in SECONDS]
    told += [(["latency", one], quantities.latency(one)) for one in MILLISECONDS]
    told += [(["size", one], quantities.size(one)) for one in SIZES]
    told += [(["rate", one], rate(one)) for one in RATES]
    told += [(["inTrouble", one], in_trouble(one)) for one in modules()]
    told += [(["severity", str(state)], severity(str(state))) for state in State]
    told += [(["allows", option], allows(option, [option])) for option in OPTIONS]
    for glob in ("*", "kv", "k*", "*v", "k*v*", "kv.get", "k%2Ev", "a.b", "k(", "k.*"):
        principal = Principal("p", "http", frozenset({Scope.ADMIN}), (glob,))
        for name in ("kv", "k.v", "kvv", "a.b", "k(", "k", "k\nv"):
            asked = ["may", principal.document(), "admin", name]
            told.append((asked, principal.covers(name)))
            told.append((["may", principal.document(), "read", name], False))
    return told


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run scripts")
def test_the_page_counts_writes_and_decides_as_the_daemon_does(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "asked.js").write_text(ASKED)
    told = expected()
    before, after = status(12, 100.0), status(40, 102.0)
    counted = ["compared", before["modules"][0], after["modules"][0], 2]
    asked = json.dumps([*(question for question, _ in told), counted])
    ran = subprocess.run(
        ["node", "asked.js"], input=asked.encode(), cwd=tmp_path, stdout=subprocess.PIPE, check=True
    )
    *answers, said = json.loads(ran.stdout)
    for (question, right), answer in zip(told, answers, strict=True):
        assert answer == right, question
    (module,) = figures(before, after).modules
    assert said["rate"] == pytest.approx(module.invocations_per_s)
    assert said["failures"] == pytest.approx(module.failures_per_s)
    assert said["p50"] == pytest.approx(module.p50_ms, abs=0.001)
    assert said["p99"] == pytest.approx(module.p99_ms, abs=0.001)
    assert said["cpu"] == pytest.approx(module.cpu_percent, abs=0.1)
    assert said["memory"] == module.rss_bytes


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run scripts")
def test_the_page_reads_and_writes_integers_of_any_size_as_they_are(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "asked.js").write_text(EXACT)
    known = subprocess.run(["node", "--v8-options"], stdout=subprocess.PIPE, check=True).stdout
    option = "--harmony-json-parse-with-source"  # what browsers have without being asked
    options = [option] if option.encode() in known else []
    command = ["node", *options, "asked.js"]
    ran = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, check=True)
    told = json.loads(ran.stdout)
    numbers = ["9007199254740993", "-123456789012345678901234567890", "7"]
    assert told["read"] == numbers
    assert told["exact"] == [numbers[0], f'{{"n":[{",".join(numbers)}],"s":"{numbers[0]}"}}']
    assert told["rounded"] == 2**53
    assert told["older"] == ["This browser cannot send so large a number exactly."] * 2
