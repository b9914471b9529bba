from __future__ import annotations

import json

import click
import pytest

from supervisor.cli.event_text import event_line
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, log, ok

ORIGIN = {"module": "planner", "op": "plan", "request_id": "r1", "session_id": "s-1"}


def ui(name: str, payload: Frame | None = None, **more: object) -> Frame:
    event = {"type": "ui_event", "event": name, **more}
    return event if payload is None else {**event, "payload": payload}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ui("toast", {"text": "hi"}), 'ui     toast {"text":"hi"}'),
        (ui("toast"), "ui     toast"),
        (ui("toast", {"n": 1}, placeholder="[cannot\x1b]"), 'ui     [cannot\\x1b] {"n":1}'),
        (ui("tool.call_start", {"tool_name": "dice"}), "tool   dice is called"),
        (
            ui("tool.call_start", {"tool_name": "dice", "arguments": {"n": 2}}),
            'tool   dice is called {"arguments":{"n":2}}',
        ),
        (
            ui("tool.call_complete", {"tool_name": "dice", "result": 4}),
            'tool   dice has ended {"result":4}',
        ),
        (ui("tool.call_complete", {"tool_call_id": "c1"}), "tool   c1 has ended"),
        (ui("tool.call_start", {}), "ui     tool.call_start"),
        (ui("message.chunk", {"content": 5}, placeholder="[x]"), 'ui     [x] {"content":5}'),
    ],
)
def test_an_event_is_a_line(event: Frame, line: str) -> None:
    assert click.unstyle(event_line(event)) == line


def test_invoke_shows_text_tool_calls_and_placeholders(run: Run, serve: Serve) -> None:
    events = [
        ui("message.chunk", {"content": "I roll "}),
        ui("tool.call_start", {"tool_name": "dice"}),
        ui("agent.thinking", {"content": "hm"}),
        ui("toast", placeholder="['toast' cannot be shown: nothing here knows this event]"),
    ]
    serve(lambda frame: [*events, ok(None, duration_ms=1)])
    assert run("invoke", "m", "go").stderr == (
        "I roll \n"
        "tool   dice is called\n"
        "hm\n"
        "ui     ['toast' cannot be shown: nothing here knows this event]\n"
        "ok     done (1ms)\n"
    )


def test_ui_shows_events_with_their_origin(run: Run, serve: Serve) -> None:
    told = log("3 events were left out: the subscriber was too slow", "warn")
    daemon = serve(lambda frame: [ui("toast", {"n": 1}, origin=ORIGIN), told, ok()])
    ended = run("ui", "--event", "to*", "--event", "menu.*", "--session", "s-1")
    assert ended.stdout == 'planner.plan s-1 ui     toast {"n":1}\n'
    assert ended.stderr == "stdiod: 3 events were left out: the subscriber was too slow\n"
    args = {"session_id": "s-1", "events": ["to*", "menu.*"]}
    assert daemon.frames[0]["input"] == {"op": "ui.subscribe", "args": args}


def test_ui_with_json_passes_the_lines(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ui("toast", origin=ORIGIN), ok()])
    (line,) = run("ui", "--json").stdout.splitlines()
    assert json.loads(line)["origin"] == ORIGIN
