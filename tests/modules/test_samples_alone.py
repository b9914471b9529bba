"""The sample modules, each driven alone as a plain process, without the daemon.

A module is started as its descriptor says, in its own folder, with the few environment variables
the daemon would pass on, and a TMPDIR of the test. Nothing here sleeps. A watchdog kills
a module that takes longer than PATIENCE_S, with its group, and so ends every read that waits.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from xml.etree import ElementTree as ET

import jsonschema
import pytest

MODULES = Path(__file__).parents[2] / "modules"
PATIENCE_S = 60.0  # generous: a loaded machine must not fail a test
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "PYENV_ROOT", "PYENV_VERSION")

Json = dict[str, Any]

DESCRIPTORS: dict[str, Json] = {
    path.parent.name: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(MODULES.glob("*/module.json"))
}
PERSISTENT = [n for n, d in DESCRIPTORS.items() if d["transport"]["protocol"] == "module"]
PER_INVOCATION = [n for n, d in DESCRIPTORS.items() if d["transport"]["protocol"] == "narratoria"]

# A request of each persistent module, and what its result must hold at least.
REAL: dict[str, tuple[str, Json, Json]] = {
    "audit": ("report", {}, {"total": 0, "errors": 0, "events": {}}),
    "crowd": ("complete", {"prompt": "a river", "delay_ms": 0, "max_words": 7}, {"words": 7}),
    "dice": ("roll", {"dice": "4d1+3"}, {"rolls": [1, 1, 1, 1], "total": 7}),
    "notes": ("add", {"text": "buy milk"}, {"number": 1}),
    "planner": (
        "plan",
        {"goal": "write a book, and rest"},
        {
            "goal": "write a book, and rest",
            "steps": [
                "List what a book must say",
                "Draft a book in one go",
                "Read a book aloud",
                "Agree when this is done: rest",
                "Do it: rest",
                "Check the result: rest",
            ],
        },
    ),
    "primes": ("factor", {"n": 360}, {"n": 360, "factors": [2, 2, 2, 3, 3, 5]}),
    "textstats": (
        "stats",
        {"text": "The naïve cat sat.\nIt slept.", "longest": 2},
        {
            "words": 6,
            "lines": 2,
            "sentences": 2,
            "characters": 28,
            "longest_words": ["naïve", "slept"],
        },
    ),
}

# A request of each persistent module that depends on its text, so that damage to it would show.
TEXT = 'Grüße, 世界 🎲 \u2028 "quoted" \\ end'
ECHOED: dict[str, tuple[str, Json]] = {
    "audit": ("on_event", {"event": TEXT}),
    "crowd": ("complete", {"prompt": TEXT, "delay_ms": 0, "max_words": 1}),
    "dice": ("roll", {"dice": TEXT}),
    "notes": ("add", {"text": TEXT}),
    "planner": ("plan", {"goal": TEXT}),
    "primes": ("echo", {"text": TEXT}),
    "textstats": ("stats", {"text": TEXT}),
}


def required_programs(name: str) -> list[str]:
    program = str(DESCRIPTORS[name]["transport"]["command"][0])
    return [program, os.environ.get("CC", "cc").split()[0]] if name == "primes" else [program]


def environment(name: str, tmp: Path, **extra: str) -> dict[str, str]:
    passed = (*INHERITED, *DESCRIPTORS[name]["transport"].get("pass_env", ()))
    kept = {key: os.environ[key] for key in passed if key in os.environ and key != "NOTES_FILE"}
    return kept | {"TMPDIR": str(tmp)} | extra


class Running:
    """A started module: write requests, read its lines, and learn how it ended."""

    def __init__(self, name: str, tmp: Path, **env: str) -> None:
        for program in required_programs(name):
            if shutil.which(program) is None:
                pytest.skip(f"the sample {name} needs {program}, which is not installed here")
        self.process = subprocess.Popen(
            DESCRIPTORS[name]["transport"]["command"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=MODULES / name,
            env=environment(name, tmp, **env),
            start_new_session=True,
        )
        self.watchdog = threading.Timer(PATIENCE_S, self.kill)
        self.watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.watchdog.cancel()
        self.watchdog.join()
        self.kill()
        self.process.communicate()

    def kill(self) -> None:
        if self.process.returncode is None:  # not reaped, so the number is still its own
            os.killpg(self.process.pid, signal.SIGKILL)

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self) -> Json:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), f"no whole line but {line!r}"
        message = json.loads(line.decode("utf-8", errors="strict"))
        assert isinstance(message, dict)
        return message

    def answer(self, request_id: object) -> tuple[list[Json], Json]:
        """Read up to the terminal line of this request; return its events and that line."""
        events: list[Json] = []
        while True:
            message = self.read()
            assert message.get("requestId") == request_id
            if message.get("type", "done") == "done":
                return events, message
            events.append(message)

    def ask(self, operation: str, given: Json | None = None, request_id: object = "r-1") -> Json:
        self.write(frame(operation, given or {}, request_id))
        return self.answer(request_id)[1]

    def invoke(self, op: str, args: Json, session: str = "s-1") -> Json:
        return self.ask("invoke", {"op": op, "args": args, "session_id": session})

    def finish(self) -> tuple[int, list[bytes], str]:
        """Close stdin; return the exit status, the lines that were left, and stderr."""
        stdout, stderr = self.process.communicate()
        return self.process.returncode, stdout.splitlines(), stderr.decode()


def frame(operation: str, given: Json, request_id: object = "r-1") -> bytes:
    """Return a request as its line, in UTF-8 rather than in ASCII escapes."""
    request = {"requestId": request_id, "tool": "it", "operation": operation, "input": given}
    return json.dumps(request, ensure_ascii=False).encode() + b"\n"


def perform(name: str, tmp: Path, stdin: bytes, **env: str) -> tuple[int, list[bytes], str]:
    """Give a module all its input at once; return exit status, output lines, stderr."""
    with Running(name, tmp, **env) as module:
        stdout, stderr = module.process.communicate(stdin)
        return module.process.returncode, stdout.splitlines(), stderr.decode()


def events_of(lines: list[bytes]) -> list[Json]:
    """Return the events, which must be those of a whole and orderly Spec 001 invocation."""
    events: list[Json] = [json.loads(line) for line in lines]
    assert all(event["version"] == "0" for event in events)
    assert [event["type"] for event in events].count("done") == 1
    assert events[-1]["type"] == "done"
    return events


# ---- Every sample ----


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_a_sample_is_a_descriptor_and_one_source_file(name: str) -> None:
    files = sorted(path.name for path in (MODULES / name).iterdir())
    source = DESCRIPTORS[name]["transport"]["command"][-1]
    assert files == sorted(["module.json", source])


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_a_descriptor_names_its_folder_and_has_valid_schemas(name: str) -> None:
    descriptor = DESCRIPTORS[name]
    assert descriptor["name"] == name
    assert {"kind", "version", "description", "capabilities", "inputs"} <= descriptor.keys()
    for schema in [*descriptor["inputs"].values(), *descriptor["outputs"].values()]:
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_example_in_the_readme_is_a_valid_request() -> None:
    text = (MODULES / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    stdiod invoke (\w+) (\w+)(?: --args '(.*?)')?", text, re.MULTILINE)
    for name, op, args in shown:
        jsonschema.validate(json.loads(args or "{}"), DESCRIPTORS[name]["inputs"][op])
    assert {name for name, _, _ in shown} == DESCRIPTORS.keys()


# ---- Every persistent sample ----


@pytest.fixture(params=PERSISTENT)
def persistent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Running]]:
    name = str(request.param)
    with Running(name, tmp_path) as module:
        yield name, module


def test_every_persistent_sample_has_a_real_request_here() -> None:
    assert set(PERSISTENT) == REAL.keys() == ECHOED.keys()


def test_a_persistent_sample_answers_and_then_exits_0_at_eof(
    persistent: tuple[str, Running],
) -> None:
    name, module = persistent
    descriptor = DESCRIPTORS[name]
    assert module.ask("health", request_id="h") == {"requestId": "h", "status": "ok"}

    described = module.ask("describe", request_id="d")
    same = ("name", "version", "kind", "capabilities")
    assert [described[key] for key in same] == [descriptor[key] for key in same]
    assert described["inputs"] in ({}, descriptor["inputs"])
    assert described["outputs"] in ({}, descriptor["outputs"])

    op, args, expected = REAL[name]
    jsonschema.validate(args, descriptor["inputs"][op])
    answer = module.invoke(op, args)
    assert answer["ok"] is True
    assert answer["result"].items() >= expected.items()
    jsonschema.validate(answer["result"], descriptor["outputs"][op])
    assert module.finish() == (0, [], "")


def test_a_persistent_sample_names_what_it_cannot_do(persistent: tuple[str, Running]) -> None:
    _, module = persistent
    for answer in (module.invoke("no-such-op", {}), module.ask("no-such-operation")):
        assert answer["ok"] is False
        assert answer["error"]["code"] == "unsupported_op"
        assert answer["error"]["message"]


def test_a_persistent_sample_survives_malformed_lines_and_says_so_on_stderr(
    persistent: tuple[str, Running],
) -> None:
    _, module = persistent
    for line in (b"no json\n", b'{"requestId":\n', b"[1, 2]\n", b'"text"\n', b"{}}\n"):
        module.write(line)
        assert module.ask("health")["status"] == "ok"
    status, rest, stderr = module.finish()
    assert (status, rest) == (0, [])
    assert stderr.count("ignored a malformed line") == 5


def test_a_persistent_sample_echoes_any_request_id_faithfully(
    persistent: tuple[str, Running],
) -> None:
    _, module = persistent
    for request_id in ('a"b\\c/\t', "Grüße 🎲 \u2028", "", "x" * 100_000):
        assert module.ask("health", request_id=request_id)["requestId"] == request_id
        answer = module.ask("invoke", {"op": "no-such-op"}, request_id)
        assert answer["requestId"] == request_id


def test_a_persistent_sample_keeps_characters_whole_that_arrive_in_pieces(
    persistent: tuple[str, Running],
) -> None:
    name, module = persistent
    op, args = ECHOED[name]
    whole = frame("invoke", {"op": op, "args": args, "session_id": "s"}, "whole 🎲")
    module.write(whole)
    events, expected = module.answer("whole 🎲")
    for cut in (whole.index("🎲".encode()) + 2, whole.rindex("世".encode()) + 1):
        # The answer to the health request proves that what was written with it has been read.
        module.write(frame("health", {}) + whole[:cut])
        assert module.answer("r-1")[1]["status"] == "ok"
        module.write(whole[cut:])
        expected_now = (
            expected | {"result": {"number": expected["result"]["number"] + 1}}
            if name == "notes"
            else expected
        )
        assert module.answer("whole 🎲") == (events, expected_now)
        expected = expected_now
    if name == "notes":
        found = module.invoke("list", {}, "s")["result"]["notes"]
        assert [note["text"] for note in found] == [TEXT] * 3
    if name == "audit":
        assert module.invoke("report", {})["result"]["events"] == {TEXT: 3}


def test_a_persistent_sample_takes_any_key_order_space_crlf_and_an_unfinished_last_line(
    persistent: tuple[str, Running],
) -> None:
    name, module = persistent
    op, args, _ = REAL[name]
    spaced = json.dumps(
        {"input": {"args": args, "op": op}, "operation": "invoke", "requestId": "q", "later": [{}]},
        separators=(" ,\t", " : "),
    )
    module.write(f"  {spaced} \r\n".encode())
    assert module.answer("q")[1]["ok"] is True
    module.write(frame("health", {}).rstrip(b"\n"))
    status, rest, stderr = module.finish()
    assert (status, stderr) == (0, "")
    assert [json.loads(line)["status"] for line in rest] == ["ok"]


def test_a_persistent_sample_answers_a_batch_and_a_line_of_a_megabyte(
    persistent: tuple[str, Running], tmp_path: Path
) -> None:
    name, module = persistent
    long = frame("health", {"padding": "ü" * 500_000}, "long")
    batch = b"".join(frame("health", {}, f"r-{n}") for n in range(500))
    stdout, stderr = module.process.communicate(batch + long)
    assert module.process.returncode == 0, name
    assert stderr == b""
    ids = [json.loads(line)["requestId"] for line in stdout.splitlines()]
    assert ids == [f"r-{n}" for n in range(500)] + ["long"]
    assert list(tmp_path.iterdir()) == []


# ---- Each persistent sample's own behaviour ----


def test_dice_roll_the_same_for_the_same_seed(tmp_path: Path) -> None:
    with Running("dice", tmp_path) as dice:
        first, second, other = (
            dice.invoke("roll", {"dice": "20d100", "seed": seed})["result"]
            for seed in ("luck", "luck", 7)
        )
        assert first == second != other
        assert first["total"] == sum(first["rolls"])
        assert len(first["rolls"]) == 20
        assert set(first["rolls"]) <= set(range(1, 101))


@pytest.mark.parametrize(
    "notation", ["", "3x6", "d", "0d6", "2d0", "99999d6", "3d6+", "d6 d6", "²d6"]
)
def test_dice_refuse_what_is_not_dice_notation(notation: str, tmp_path: Path) -> None:
    with Running("dice", tmp_path) as dice:
        answer = dice.invoke("roll", {"dice": notation})
        assert (answer["ok"], answer["error"]["code"]) == (False, "bad_request")


@pytest.mark.parametrize(
    ("args", "count", "lowest", "highest"),
    [
        ({}, 1, 1, 6),
        ({"sides": 20}, 1, 1, 20),
        ({"count": 3}, 3, 3, 18),
        ({"sides": 1, "count": 5}, 5, 5, 5),
        ({"dice": " 2 D 1 - 5 "}, 2, -3, -3),
    ],
)
def test_dice_understand_sides_and_count(
    args: Json, count: int, lowest: int, highest: int, tmp_path: Path
) -> None:
    with Running("dice", tmp_path) as dice:
        result = dice.invoke("roll", args)["result"]
        assert len(result["rolls"]) == count
        assert lowest <= result["total"] <= highest


def test_textstats_counts_characters_as_a_reader_does(tmp_path: Path) -> None:
    with Running("textstats", tmp_path) as textstats:
        family, combined = "👩‍👩‍👧", "e\u0301"
        result = textstats.invoke("stats", {"text": family + combined})["result"]
        assert (result["characters"], result["words"], result["lines"]) == (2, 1, 1)
        empty = textstats.invoke("stats", {"text": ""})["result"]
        assert (empty["words"], empty["lines"], empty["reading_ease"]) == (0, 0, None)
        easy = textstats.invoke("stats", {"text": "The cat sat on the mat."})["result"]
        hard = textstats.invoke("stats", {"text": "Institutional responsibility necessitates."})
        assert easy["reading_ease"] > 90
        assert hard["result"]["reading_ease"] < 0
        assert textstats.invoke("stats", {})["error"]["code"] == "bad_request"


def test_crowd_answers_64_at_once_and_keeps_their_streams_apart(tmp_path: Path) -> None:
    with Running("crowd", tmp_path) as crowd:
        prompts = {f"r-{n}": f"story number {n}" for n in range(64)}
        requests = [
            frame("invoke", {"op": "complete", "args": {"prompt": prompt, "delay_ms": 1}}, key)
            for key, prompt in prompts.items()
        ]
        stdout, _ = crowd.process.communicate(b"".join(requests))
    order = [json.loads(line) for line in stdout.splitlines()]
    first_end = next(n for n, event in enumerate(order) if event["type"] == "done")
    assert {event["requestId"] for event in order[:first_end]} == prompts.keys()
    for key in prompts:
        *chunks, done = [event for event in order if event["requestId"] == key]
        assert all(chunk["event"] == "message.chunk" for chunk in chunks)
        assert "".join(c["payload"]["content"] for c in chunks) == done["result"]["text"]
        assert (done["ok"], done["result"]["words"]) == (True, 24)


def test_crowd_completes_the_same_prompt_in_the_same_way(tmp_path: Path) -> None:
    with Running("crowd", tmp_path) as crowd:
        ask = [{"prompt": prompt, "delay_ms": 0} for prompt in ("the sea", "the sea", "the lamp")]
        first, second, other = (crowd.invoke("complete", args)["result"]["text"] for args in ask)
        assert first == second != other
        assert crowd.invoke("complete", {})["error"]["code"] == "bad_request"


@pytest.mark.parametrize(
    ("name", "op", "args"),
    [
        ("crowd", "complete", {"prompt": "wait", "delay_ms": 60_000}),
        ("planner", "sleep", {"seconds": 86_400}),
    ],
)
def test_a_sample_with_the_feature_cancel_can_be_interrupted(
    name: str, op: str, args: Json, tmp_path: Path
) -> None:
    with Running(name, tmp_path) as module:
        assert module.ask("describe")["features"] == ["cancel"]
        module.write(frame("invoke", {"op": op, "args": args}, "long"))
        module.write(frame("cancel", {}, "unknown") + frame("cancel", {}, "long"))
        _, done = module.answer("long")
        assert (done["ok"], done["error"]["code"]) == (False, "cancelled")
        assert module.ask("health")["status"] == "ok"
        assert module.finish() == (0, [], "")


def test_primes_factors_hard_numbers_and_refuses_what_is_none(tmp_path: Path) -> None:
    with Running("primes", tmp_path) as primes:
        for factors in (
            [],
            [2] * 63,
            [4294967279, 4294967291],
            [4294967291, 4294967291],
            [2642239, 2642245 - 4, 2642245 - 4],
            [18446744073709551557],
        ):
            product = 1
            for factor in factors:
                product *= factor
            result = primes.invoke("factor", {"n": product})["result"]
            again = 1
            for factor in result["factors"]:
                again *= factor
                verdict = primes.invoke("is_prime", {"n": factor})["result"]
                assert verdict == {"n": factor, "prime": True}
            assert again == product
            assert len(result["factors"]) >= len(factors)
        for n in (0, 1, 561, 3215031751, 3825123056546413051):  # pseudoprimes to several bases
            assert primes.invoke("is_prime", {"n": n})["result"]["prime"] is False
        for bad in (-1, 2**64, 1.5, "7", None, [7]):
            assert primes.invoke("factor", {"n": bad})["error"]["code"] == "bad_request"
        assert primes.invoke("factor", {"m": {"n": 7}})["error"]["code"] == "bad_request"


def test_primes_echoes_its_arguments_byte_for_byte(tmp_path: Path) -> None:
    raw = rb'{ "b" : [1.0e+2, {"op":"factor"}], "a":"\u00e9\ud83c\"}{", "n" :null , "":{} }'
    with Running("primes", tmp_path) as primes:
        head = rb'{"x":"{\"requestId\":\"no\"}","request\u0049d":"y\"\u0065s",'
        call = rb'"operation":"inv\u006fke","input":{"args":' + raw + rb',"op":"echo"}}'
        primes.write(head + call + b"\n")
        assert primes.process.stdout is not None
        line = primes.process.stdout.readline()
        assert line == rb'{"requestId":"y\"\u0065s","ok":true,"result":' + raw + b"}\n"


@pytest.mark.parametrize(
    "line",
    [
        b'{"operation":"health",}',
        b'{"operation":"health"} {}',
        b'{"operation":"heal\nth"}',
        b'{"operation":"health","x":01}',
        b'{"operation":"health","x":[1,]}',
        b'{"operation":"health","x":"\\x"}',
        b'{"operation":"health","x":tru}',
        b'{"operation":"health","x":"\\u12"}',
        b'{"operation":"health","x":-}',
        b'{"operation":"health","x":1.}',
        b'{"operation":"health"}\0',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"operation"',
        b"{",
    ],
)
def test_primes_takes_nothing_for_json_that_is_not(line: bytes, tmp_path: Path) -> None:
    status, lines, stderr = perform("primes", tmp_path, line + b"\n" + frame("health", {}))
    assert status == 0
    assert [json.loads(answer)["status"] for answer in lines] == ["ok"]
    assert "malformed" in stderr


def test_primes_leaves_no_file_behind_even_while_it_runs(tmp_path: Path) -> None:
    with Running("primes", tmp_path) as primes:
        assert primes.ask("health")["status"] == "ok"
        assert list(tmp_path.iterdir()) == []


def test_primes_without_a_compiler_says_so_and_exits_127(tmp_path: Path) -> None:
    status, lines, stderr = perform("primes", tmp_path, b"", CC="no-such-compiler -v")
    assert (status, lines) == (127, [])
    assert 'no C compiler "no-such-compiler"' in stderr
    assert list(tmp_path.iterdir()) == []


def test_primes_is_free_of_compiler_warnings(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    strict = ["-Wall", "-Wextra", "-Werror", "-O2", "-o", str(tmp_path / "primes")]
    done = subprocess.run(
        [compiler, *strict, str(MODULES / "primes" / "primes.c")],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_notes_keeps_the_notes_of_sessions_apart_and_in_order(tmp_path: Path) -> None:
    with Running("notes", tmp_path) as notes:
        for session, text in (("a", "Milk"), ("b", "Grüße"), ("a", "Bread"), ("a", "More milk")):
            assert notes.invoke("add", {"text": text}, session)["ok"]
        listed = notes.invoke("list", {}, "a")["result"]["notes"]
        assert listed == [
            {"number": 1, "text": "Milk"},
            {"number": 2, "text": "Bread"},
            {"number": 3, "text": "More milk"},
        ]
        assert notes.invoke("list", {"last": 1}, "a")["result"]["notes"] == listed[-1:]
        found = notes.invoke("search", {"query": "MILK"}, "a")["result"]["notes"]
        assert found == [listed[0], listed[2]]
        assert notes.invoke("search", {"query": "grüsse"}, "b")["result"]["notes"] != []
        assert notes.invoke("clear", {}, "a")["result"] == {"cleared": 3}
        assert notes.invoke("list", {}, "a")["result"] == {"notes": []}
        assert len(notes.invoke("list", {}, "b")["result"]["notes"]) == 1
        assert notes.invoke("add", {"text": ""})["error"]["code"] == "bad_request"


def test_notes_remembers_in_its_file_what_it_has_answered_even_if_it_is_killed(
    tmp_path: Path,
) -> None:
    file = tmp_path / "notes.jsonl"
    with Running("notes", tmp_path, NOTES_FILE=str(file)) as notes:
        for session, text in (("a", "gone"), ("b", "kept 🎲")):
            notes.invoke("add", {"text": text}, session)
        notes.invoke("clear", {}, "a")
        notes.kill()
        notes.process.wait()
    with file.open("ab") as torn:
        torn.write(b'{"session": "b", "te')
    for expected in (["kept 🎲", "after 1"], ["kept 🎲", "after 1", "after 2"]):
        with Running("notes", tmp_path, NOTES_FILE=str(file)) as notes:
            notes.invoke("add", {"text": f"after {len(expected) - 1}"}, "b")
            listed = notes.invoke("list", {}, "b")["result"]["notes"]
            assert [note["text"] for note in listed] == expected
            assert notes.invoke("list", {}, "a")["result"]["notes"] == []


def test_notes_does_not_start_with_a_file_it_cannot_write(tmp_path: Path) -> None:
    status, lines, stderr = perform("notes", tmp_path, b"", NOTES_FILE=str(tmp_path / "no" / "f"))
    assert (status, lines) == (1, [])
    assert "cannot keep notes in NOTES_FILE" in stderr


def test_audit_counts_events_by_name(tmp_path: Path) -> None:
    with Running("audit", tmp_path) as audit:
        start = {"id": "1", "ts": 1.5, "event": "session:start", "component": "kernel"}
        failed = {"event": "module:invoke", "status": "error", "error": {"code": "timeout"}}
        for event in (start, failed, {"event": failed}, {"event": start}, start):
            assert audit.invoke("on_event", event)["result"] == {}
        assert audit.invoke("report", {})["result"] == {
            "total": 5,
            "errors": 2,
            "events": {"session:start": 3, "module:invoke": 2},
        }


def test_planner_streams_its_steps_as_it_finds_them(tmp_path: Path) -> None:
    with Running("planner", tmp_path) as planner:
        planner.write(frame("invoke", {"op": "plan", "args": {"goal": "fix the roof then rest"}}))
        events, done = planner.answer("r-1")
        chunks = [e["payload"]["content"] for e in events if e["type"] == "ui_event"]
        steps = done["result"]["steps"]
        assert chunks == [f"{n}. {step}\n" for n, step in enumerate(steps, start=1)]
        assert [e["message"] for e in events if e["type"] == "log"] == [
            "Thinking about: fix the roof",
            "Thinking about: rest",
        ]
        for goal in ("", " , "):
            assert planner.invoke("plan", {"goal": goal})["error"]["code"] == "bad_request"


def test_planner_stays_responsive_while_it_thinks(tmp_path: Path) -> None:
    with Running("planner", tmp_path) as planner:
        planner.write(frame("invoke", {"op": "sleep", "args": {"seconds": 86_400}}, "long"))
        assert planner.read()["requestId"] == "long"
        planner.write(frame("invoke", {"op": "sleep", "args": {"seconds": 0}}, "short"))
        planner.write(frame("health", {}, "health"))
        answered: set[str] = set()
        while answered != {"short", "health"}:
            message = planner.read()
            if message.get("type", "done") == "done":
                answered.add(message["requestId"])
        planner.write(frame("cancel", {}, "long"))
        while (message := planner.read())["type"] != "done":
            pass
        assert (message["requestId"], message["error"]["code"]) == ("long", "cancelled")


# ---- The samples of a process per invocation ----


@pytest.mark.parametrize("name", PER_INVOCATION)
@pytest.mark.parametrize("stdin", [frame("no-such-op", {}), b"{}", b'"text"\n', b"{not json\n"])
def test_a_per_invocation_sample_ends_in_one_done_and_exit_0_whatever_it_is_given(
    name: str, stdin: bytes, tmp_path: Path
) -> None:
    status, lines, stderr = perform(name, tmp_path, stdin)
    assert (status, stderr) == (0, "")
    *events, done = events_of(lines)
    if not done["ok"]:
        assert events[-1]["type"] == "error"
        assert events[-1]["errorCode"] in ("bad_request", "unsupported_op")
    assert list(tmp_path.iterdir()) == []


def test_torch_without_input_is_the_minimal_tool_of_spec_001_section_9(tmp_path: Path) -> None:
    assert perform("torch", tmp_path, b"") == (
        0,
        [
            b'{"version":"0","type":"log","level":"info","message":"Starting"}',
            b'{"version":"0","type":"state_patch","patch":{"flags":{"torchLit":true}}}',
            b'{"version":"0","type":"done","ok":true,"summary":"Torch lit."}',
        ],
        "",
    )


@pytest.mark.parametrize(("op", "lit"), [("light", True), ("douse", False)])
@pytest.mark.parametrize(
    "room", [None, "", "hall", 'the "Grüße" 世界 🎲 {room}, \\ [x]:', "a\tb\u2028"]
)
def test_torch_keeps_its_state_and_its_room_whatever_the_room_is_called(
    op: str, lit: bool, room: str | None, tmp_path: Path
) -> None:
    decoys = {"decoy": {"room": "no"}, "list": ["room", {"room": "no"}], "text": '"room":"no"'}
    given = decoys | ({} if room is None else {"room": room})
    stdin = frame(op, given, 'id "🎲"')
    status, lines, stderr = perform("torch", tmp_path, stdin)
    assert (status, stderr) == (0, "")
    log, patch, done = events_of(lines)
    assert log["type"] == "log"
    where = {} if room is None else {"torchRoom": room}
    assert patch["patch"] == {"flags": {"torchLit": lit}} | where
    assert done["ok"] is True
    assert {event["requestId"] for event in (log, patch, done)} == {'id "🎲"'}


@pytest.mark.parametrize("style", ["bar", "line"])
@pytest.mark.parametrize("values", [[3, 1.5, -4], {"Mäy <1>": 3, "June & July": 0}, [0]])
def test_chart_hands_over_a_drawing_as_an_asset(style: str, values: object, tmp_path: Path) -> None:
    args = {"values": values, "style": style, "title": "Räin & <sun>", "width": 400}
    jsonschema.validate(args, DESCRIPTORS["chart"]["inputs"]["draw"])
    status, lines, stderr = perform("chart", tmp_path, frame("draw", args, "c"))
    assert (status, stderr) == (0, "")
    events = events_of(lines)
    assert [event["type"] for event in events] == ["log", "log", "asset", "done"]
    assert {event["requestId"] for event in events} == {"c"}
    asset = events[2]
    assert (asset["kind"], asset["mediaType"]) == ("image", "image/svg+xml")
    assert asset["metadata"] == {"width": 400, "height": 360}
    path = Path(asset["path"])
    assert list(tmp_path.iterdir()) == [path]
    svg = ET.fromstring(path.read_text(encoding="utf-8"))
    texts = {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert "Räin & <sun>" in texts
    assert not isinstance(values, dict) or texts >= values.keys()
    assert (svg.get("width"), svg.get("height")) == ("400", "360")
    shape = "rect" if style == "bar" else "circle"
    drawn = list(svg.iter(f"{{http://www.w3.org/2000/svg}}{shape}"))
    assert isinstance(values, list | dict)
    assert len(drawn) == len(values)


@pytest.mark.parametrize("values", [[1, "x"], {"a": None}, [True], [], None, [float("nan")], "12"])
def test_chart_refuses_what_it_cannot_draw_without_breaking_the_protocol(
    values: object, tmp_path: Path
) -> None:
    status, lines, stderr = perform("chart", tmp_path, frame("draw", {"values": values}))
    assert (status, stderr) == (0, "")
    error, done = events_of(lines)
    assert (error["type"], error["errorCode"]) == ("error", "bad_request")
    assert done["ok"] is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("op", "args", "status"),
    [
        ("exit", {}, 3),
        ("exit", {"code": 7}, 7),
        ("die", {}, -signal.SIGKILL),
        ("die", {"signal": int(signal.SIGSEGV)}, -signal.SIGSEGV),
        ("die", {"signal": int(signal.SIGINT)}, -signal.SIGINT),
        ("die", {"signal": int(signal.SIGPIPE)}, -signal.SIGPIPE),
        ("nodone", {}, 0),
    ],
)
def test_flaky_fails_as_asked_and_leaves_evidence(
    op: str, args: Json, status: int, tmp_path: Path
) -> None:
    jsonschema.validate(args, DESCRIPTORS["flaky"]["inputs"][op])
    ended, lines, stderr = perform("flaky", tmp_path, frame(op, args))
    assert ended == status
    assert [json.loads(line)["type"] for line in lines] == ["log"]
    assert "simulated failure" in stderr
    assert list(tmp_path.iterdir()) == []


def test_flaky_prints_garbage_before_a_done_that_looks_fine(tmp_path: Path) -> None:
    status, (log, garbage, done), _ = perform("flaky", tmp_path, frame("garbage", {}))
    assert status == 0
    assert json.loads(log)["type"] == "log"
    assert json.loads(done)["ok"] is True
    with pytest.raises(json.JSONDecodeError):
        json.loads(garbage)


@pytest.mark.parametrize("stubborn", [False, True])
def test_flaky_hangs_until_it_is_stopped_and_can_be_deaf_to_sigterm(
    stubborn: bool, tmp_path: Path
) -> None:
    with Running("flaky", tmp_path) as flaky:
        flaky.write(frame("hang", {"stubborn": stubborn}))
        assert flaky.read()["type"] == "log"  # from here on it hangs
        flaky.process.send_signal(signal.SIGTERM)
        if stubborn:
            flaky.process.send_signal(signal.SIGKILL)
        assert flaky.process.wait() == -(signal.SIGKILL if stubborn else signal.SIGTERM)
