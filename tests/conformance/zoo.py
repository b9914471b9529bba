"""Modules that keep all clauses of `stdiod check`, and each with one mistake made on purpose.

A mistake is one piece of text put in the place of another, so that nothing else is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.descriptor.model import Descriptor
from tests.factories import PYTHON, descriptor

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}
INPUTS, OUTPUTS = {"echo": SCHEMA}, {"echo": {"type": "string"}}

MODULE = """
import json, os, signal, sys
kept = []
def say(request, **fields):
    print(json.dumps({"requestId": request["requestId"], **fields}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    match request["operation"]:
        case "health":
            say(request, status="ok")
        case "describe":
            say(request, name="m", version="1", kind="tool", capabilities=[],
                features=["cancel", "flow"], inputs={"echo": {"type": "object"}}, outputs={})
        case "invoke":
            say(request, ok=True, result=request["input"]["args"]["text"])
        case "pause" | "resume":
            sys.stdout.flush()
        case "cancel":
            pass
"""

GATE = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"status": "ok"}
    if request["operation"] == "describe":
        answer = {"ok": True, "result": {}}
    elif request["operation"] == "invoke":
        about = request["input"]["args"]["data"]["tool_input"]
        answer = {"ok": True, "result": {"action": "continue"}}
    print(json.dumps({"requestId": request["requestId"], **answer}), flush=True)
"""

SERVER = """
import json, sys
def say(request, **fields):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **fields}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    match request["method"]:
        case "initialize":
            say(request, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                                 "serverInfo": {"name": "m", "version": "1"}})
        case "ping":
            say(request, result={})
        case "tools/list":
            say(request, result={"tools": [{"name": "echo", "inputSchema": {"type": "object"},
                "outputSchema": {"type": "object", "required": ["text"]}}]})
        case "tools/call":
            say(request, result={"content": [], "structuredContent": {"text": "t"}})
        case _ if "id" in request:
            say(request, error={"code": -32601, "message": "not known here"})
"""

TOOL = """
read -r request
echo '{"version":"0","type":"log","level":"info","message":"begins"}'
echo '{"version":"0","type":"done","ok":true,"result":"text"}'
"""

COMMAND = "printf '%s' \"$1\""

BY_INVOCATION = """
import json, sys
request = json.loads(sys.stdin.readline())
match request["operation"]:
    case "health":
        answer = {"status": "ok"}
    case "describe":
        answer = {"name": "m", "kind": "tool"}
    case "invoke":
        answer = {"ok": True, "result": "text"}
print(json.dumps({"requestId": request["requestId"], **answer}))
"""


class Species(NamedTuple):
    """A module that does all right, and how its descriptor says so."""

    source: str
    transport: dict[str, Any]
    interpreter: tuple[str, ...] = (*PYTHON, "-c")
    top: Mapping[str, Any] = MappingProxyType({"inputs": INPUTS, "outputs": OUTPUTS})
    """What else the descriptor has."""


SPECIES = {
    "module": Species(MODULE, {}),
    "module by invocation": Species(BY_INVOCATION, {"lifecycle": "per-invocation"}),
    "gate": Species(GATE, {}, top={"kind": "hook", "hook": {"gate": ["tool:pre"]}}),
    "mcp": Species(SERVER, {"protocol": "mcp"}, top={"inputs": INPUTS}),
    "narratoria": Species(TOOL, {"protocol": "narratoria"}, ("sh", "-c")),
    "exec": Species(
        COMMAND,
        {"protocol": "exec", "exec": {"ops": {"echo": {"args": ["sh", "{text}"]}}}},
        ("sh", "-c"),
    ),
}


class Broken(NamedTuple):
    """A mistake: what is put in the place of what, and the clause that it is against."""

    species: str
    clause: str
    old: str
    new: str
    said: str
    """What `check` says of it."""
    supervision: Mapping[str, Any] = MappingProxyType({})
    transport: Mapping[str, Any] = MappingProxyType({})

    @property
    def name(self) -> str:
        return f"{self.species}: {self.clause}"


def within(**seconds: float) -> dict[str, Any]:
    return {"timeouts": seconds}


LINE = "    request = json.loads(line)\n"
INVOKED = 'say(request, ok=True, result=request["input"]["args"]["text"])'
LOG = '"level":"info","message":"begins"}'
ASSET = '"type":"asset","assetId":"a","kind":"k","mediaType":"nonsense","path":"/nowhere"'

ZOO = (
    Broken("module", "prepare", "", "", "exited with code 3", {},
           {"prepare": ["sh", "-c", "echo no such thing; exit 3"]}),
    Broken("module", "starts", "import json", "import nothing_like_it, json", "exited with code 1"),
    Broken("module", "stays", '        case "cancel"', "    break\n    match 0:\n        case 1",
           "exited with code 0 after its first answer"),
    Broken("module", "health", 'status="ok"', 'state="ok"', '"status" is missing'),
    Broken("module", "describe", 'name="m"', 'name="other"', "with name 'other'"),
    Broken("module", "schemas", '{"type": "object"}', '{"type": "objet"}', "/inputs/echo/type"),
    Broken("module", "lines", "**fields})", "**fields}, indent=1)", "over several lines"),
    Broken("module", "flush", "flush=True", "flush=False", "until its stdin was closed",
           within(start_s=0.5, exit_s=60)),
    Broken("module", "utf-8", 'say(request, status="ok")',
           'os.write(1, b\'{"status":"ok","caf\\xe9":1}\\n\')', "not UTF-8"),
    Broken("module", "stdout", 'case "describe":', 'case "describe":\n            print("hello")',
           "is not JSON; use stderr for anything that is not an answer: hello"),
    Broken("module", "request ids", 'request["requestId"], **', '"1", **', "request '1'"),
    Broken("module", "any id", 'request["requestId"], **',
           'request["requestId"].encode("ascii", "ignore").decode(), **', "names another request"),
    Broken("module", "unknown fields", LINE, f"{LINE}    assert 'unknown' not in request\n",
           "exited with code 1"),
    Broken("module", "long line", LINE, f"{LINE}    assert len(line) < 65536\n",
           "exited with code 1"),
    Broken("module", "two at once", LINE,
           f"{LINE}    kept.append(request['requestId'])\n"
           "    if len(kept) == 7: request['requestId'] = kept[-2]\n",
           "names another request", {"concurrency": 2}),
    Broken("module", "late answer", "kept = []",
           "signal.signal(signal.SIGCONT, lambda *_: os._exit(3))", "exited with code 3"),
    Broken("module", "cancel", "            pass", "            raise RuntimeError",
           "exited with code 1"),
    Broken("module", "flow", "sys.stdout.flush()", "raise RuntimeError", "exited with code 1"),
    Broken("module", "end of input", "            pass\n", "            pass\nsignal.pause()\n",
           "still ran 0.4 s after its stdin had ended", within(exit_s=0.2)),
    Broken("module", "SIGTERM", "kept = []",
           "signal.signal(signal.SIGTERM, signal.SIG_IGN)", "after SIGTERM", within(stop_s=0.2)),
    Broken("module", "memory", LINE, f"{LINE}    kept.append(b'x' * (4 << 20))\n", "it grew by"),
    Broken("module", "answers", INVOKED, "say(request, result=1)", '"ok" is missing'),
    Broken("module", "fields", "result=request", "resutl=request", 'did you mean "result"'),
    Broken("module", "events", INVOKED, 'say(request, version="1", type="done", ok=True)',
           '"version"'),
    Broken("module", "assets", INVOKED,
           'say(request, version="0", type="asset", assetId="a", kind="k", mediaType="none",'
           ' path="/nowhere"); say(request, ok=True, result="")', "none"),
    Broken("module", "results", INVOKED, "say(request, ok=True, result=1)",
           "the result 1 is not a string"),
    Broken("module by invocation", "exit status", "**answer}))", "**answer}))\nsys.exit(3)",
           "exited with code 3"),
    Broken("gate", "hook result", '"action"', '"acton"', "did you mean 'action'"),
    Broken("mcp", "introduction", '"initialize"', '"initialise"', "not known here"),
    Broken("mcp", "results", '{"text": "t"}', "{}", "text"),
    Broken("narratoria", "lines", "echo '{", "echo begins; echo '{", "begins"),
    Broken("narratoria", "stdout", "echo '{", "echo begins; echo '{", "begins", {},
           {"stdout": "tolerant"}),
    Broken("narratoria", "utf-8", "read", "printf '\\351\\n'; read", "not UTF-8"),
    Broken("narratoria", "unknown fields", "echo '",
           "case $request in *own*) exit 5;; esac\necho '",
           "exited with code 5"),
    Broken("narratoria", "long line", "echo '", "[ ${#request} -lt 65536 ] || exit 6\necho '",
           "exited with code 6"),
    Broken("narratoria", "SIGTERM", "read", "trap '' TERM; read", "after SIGTERM",
           within(stop_s=0.2)),
    Broken("narratoria", "events", '"log"', '"logg"', "logg"),
    Broken("narratoria", "assets", f'"type":"log",{LOG}', f"{ASSET}}}", "nonsense"),
    Broken("narratoria", "done", '"type":"done","ok":true,"result":"text"',
           f'"type":"log",{LOG[:-1]}', "no `done` event"),
    Broken("narratoria", "exit status", "read", "trap 'exit 3' EXIT; read", "exited with code 3"),
    Broken("narratoria", "results", '"result":"text"', '"result":1',
           "the result 1 is not a string"),
    Broken("exec", "exit status", "printf", "exit 4; printf", "exited with code 4"),
    Broken("exec", "output", "printf", "printf", "JSON", {},
           {"exec": {"ops": {"echo": {"args": ["sh", "{text}"], "stdout": "json"}}}}),
    Broken("exec", "results", "printf '%s'", "printf 1 #", "the result 1 is not a string", {},
           {"exec": {"ops": {"echo": {"args": ["sh", "{text}"], "stdout": "json"}}}}),
)  # fmt: skip


def animal(
    folder: Path,
    species: str,
    old: str = "",
    new: str = "",
    *,
    supervision: Mapping[str, Any] | None = None,
    transport: Mapping[str, Any] | None = None,
) -> Descriptor:
    """Make the descriptor of a module, with a piece of its source put in place of another."""
    source, stated, interpreter, top = SPECIES[species]
    assert old in source, old
    patience = dict.fromkeys(("start_s", "health_s", "describe_s", "exit_s", "stop_s"), 60)
    supervision = dict(supervision or {})
    timeouts = {**patience, **supervision.pop("timeouts", {})}
    top = dict(top)
    if "objet" in new:
        top.pop("inputs")
    return descriptor(
        folder,
        [*interpreter, source.replace(old, new, 1) if old else source],
        transport={**stated, **(transport or {})},
        supervision={**supervision, "timeouts": timeouts},
        **top,
    )
