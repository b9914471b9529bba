"""The samples of a process per invocation, driven alone."""

import json
import signal
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from tests.modules.samples import (
    DESCRIPTORS,
    PER_INVOCATION,
    Json,
    Running,
    events_of,
    frame,
    perform,
)


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
