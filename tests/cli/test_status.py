from __future__ import annotations

import json
import time
from typing import Any

import click
import pytest

from protocol.weight import MOST_VALUES
from supervisor.cli.examination import examine_modules
from supervisor.cli.quantities import limit_text
from supervisor.cli.status_text import in_trouble, module_text, note, status_text, trouble_first
from supervisor.cli.terminal import cells
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, last_exit, module, ok, status

KILLED = last_exit(
    "was killed by SIGKILL", reason="signaled", signal=9, stderr_tail=["out of cheese"]
)
FLEET = status(
    module(),
    module(
        "kv",
        state="backoff",
        restarts=2,
        next_retry_s=4.0,
        instances=[],
        last_exit=KILLED,
    ),
    quarantined=({"descriptor": "/modules/bad.json", "reason": "/kind: is missing"},),
)


def plain(page: str) -> list[str]:
    return click.unstyle(page).splitlines()


def test_a_signal_that_the_daemon_sent_is_said_to_be_its_own() -> None:
    stopped = last_exit("was killed by SIGTERM", reason="stopped", signal=15, stopped_by_host=True)
    shown = "\n".join(plain(module_text(module(last_exit=stopped))))
    assert "reason stopped, SIGTERM sent by stdiod" in shown
    assert "sent by stdiod" not in "\n".join(plain(module_text(module(last_exit=KILLED))))


def test_json_is_the_daemons_answer_and_nothing_else(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [ok(FLEET)])
    ended = run("status", "--json")
    assert ended.exit_code == 0
    assert json.loads(ended.stdout) == FLEET
    assert ended.stderr == ""
    assert daemon.frames[0]["input"] == {"op": "status", "args": {}}


def test_the_daemons_own_answer_may_hold_more_values_than_a_line_of_a_module(
    run: Run, serve: Serve
) -> None:
    fleet = status(module(notices=[0] * (MOST_VALUES + 1)))
    serve(lambda frame: [ok(fleet)])
    ended = run("status", "--json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == fleet


def test_the_page_has_the_daemon_then_a_row_per_module_then_what_is_quarantined(
    run: Run, serve: Serve
) -> None:
    serve(lambda frame: [ok(FLEET)])
    lines = run("status").stdout.splitlines()
    assert lines[0] == "stdiod 0.1.0, pid 99, up 12s, containment process_group, socket /run/s"
    assert lines[1] == "2 modules: 1 backoff, 1 ready, 1 descriptor quarantined"
    titles = "NAME STATE KIND PROTOCOL/LIFECYCLE PID UPTIME RSS RESTARTS IN-FLIGHT/QUEUED NOTE"
    assert lines[3].split() == titles.split()
    assert lines[4].split()[:4] == ["kv", "backoff", "tool", "module/persistent"]
    assert lines[4].endswith("was killed by SIGKILL: out of cheese; next try in 4.0s")
    assert " ".join(lines[5].split()) == (
        "dice ready tool module/persistent 4711 1m05s 9.0 MiB 0 0/0"
    )
    assert lines[7:] == ["Quarantined descriptors", "  /modules/bad.json", "    /kind: is missing"]


ENDED = module("z", state="down", wanted="down", last_exit=last_exit("exited", exit_code=0))
CRASHED = module("a", state="down", wanted="down", last_exit=last_exit("exited", exit_code=3))
STOPPED = module("b", state="down", wanted="down", last_exit=last_exit("x", reason="stopped"))
LAZY = module("c", state="down", wanted="down", start="lazy")
WAITING = module("d", state="down", wanted="up", waits_for=["kv"])
STALE = module("e", quarantined="its descriptor is bad")
FAILED = module("y", state="failed", next_retry_s=None)
DEGRADED = module("x", state="degraded")
AGAIN = module("r", state="starting", last_exit=last_exit("exited", exit_code=3))
FIRST = module("f", state="starting")
ANEW = module("n", state="starting", last_exit=last_exit("x", reason="stopped"))


def test_those_in_trouble_come_first_the_worst_before_the_others() -> None:
    fleet = [CRASHED, STOPPED, LAZY, WAITING, STALE, module(), DEGRADED, FAILED, AGAIN]
    order = trouble_first(fleet)
    assert [one["name"] for one in order] == ["y", "x", "r", "a", "d", "e", "b", "c", "dice"]


@pytest.mark.parametrize(
    "well", [ENDED, STOPPED, LAZY, FIRST, ANEW, module()], ids=lambda one: one["name"]
)
def test_what_was_stopped_or_has_nothing_to_do_is_in_no_trouble(well: dict[str, Any]) -> None:
    assert not in_trouble(well)


@pytest.mark.parametrize(
    ("fleet", "code", "shown"),
    [
        (status(module(), STOPPED), 0, []),
        (status(module(), FAILED, CRASHED), 1, ["y", "a"]),
        (status(module(), quarantined=FLEET["quarantined"]), 1, []),
    ],
)
def test_failing_shows_what_is_in_trouble_and_its_status_is_for_scripts(
    run: Run, serve: Serve, fleet: Frame, code: int, shown: list[str]
) -> None:
    serve(lambda frame: [ok(fleet)])
    ended, plain_one = run("status", "--failing"), run("status")
    assert (ended.exit_code, plain_one.exit_code) == (code, 0)
    rows = [line.split()[0] for line in ended.stdout.splitlines()[4:] if line[:1].islower()]
    assert rows == shown
    assert ("no module is in trouble" in ended.stdout) is not bool(shown)
    told = json.loads(run("status", "--failing", "--json").stdout)
    assert sorted(one["name"] for one in told["modules"]) == sorted(shown)
    assert told["quarantined"] == fleet["quarantined"]


@pytest.mark.parametrize(("one", "code"), [(FAILED, 1), (STALE, 1), (module(), 0)])
def test_failing_of_one_module_is_a_page_with_an_exit_status(
    run: Run, serve: Serve, one: dict[str, Any], code: int
) -> None:
    serve(lambda frame: [ok({**one, "latency_ms": {"count": 0}})])
    ended = run("status", one["name"], "--failing")
    assert ended.exit_code == code
    assert ended.stdout.startswith(f"{one['name']} 1.0.0, tool")


def test_how_far_a_preparation_is_stands_beside_it() -> None:
    (running,) = module()["instances"]
    said = {**running, "last_line": "fetched 2 of 3", "uptime_s": 12.0}
    assert note(module(state="preparing", instances=[said])) == "for 12s: fetched 2 of 3"
    assert note(module(state="preparing", instances=[{**said, "last_line": None}])) == "for 12s"
    assert note(module(state="preparing", instances=[])) == ""


@pytest.mark.parametrize("problem", ["guardian_problem", "data_dir_problem"])
def test_a_promise_that_nobody_keeps_at_the_moment_stands_above_the_table(problem: str) -> None:
    document = status(module())
    document["daemon"][problem] = "there is no\nguardian"
    assert plain(status_text(document, None))[2:4] == ["there is no guardian", ""]


def test_a_gateway_that_does_not_serve_stands_above_the_table_with_the_cause() -> None:
    document = status(module())
    ended = {"message": "exited with code 1", "stderr_tail": ["ImportError: no uvicorn"]}
    document["http"] = {"state": "ready", "last_exit": ended}
    assert plain(status_text(document, None))[2] == ""
    document["http"]["state"] = "backoff"
    words = "exited with code 1: ImportError: no uvicorn"
    assert words in plain(status_text(document, None))[2]


def test_what_is_wrong_with_the_journal_stands_above_the_table() -> None:
    aside = {"path": "/data/journal.db.set-aside-1", "why": "it is not an SQLite database"}
    journal = {"problem": "/data/journal.db: disk I/O error", "set_aside": [aside]}
    document = status(module())
    document["daemon"]["journal"] = journal
    lines = plain(status_text(document, None))
    assert lines[2:5] == [
        "the journal cannot be written: /data/journal.db: disk I/O error",
        "a journal was set aside as /data/journal.db.set-aside-1: it is not an SQLite database",
        "",
    ]


def test_a_policy_that_is_not_used_is_told_above_the_table() -> None:
    document = status()
    document["daemon"]["policy"] = {"path": "p", "mode": "strict", "problem": "p:1: mode: bad"}
    assert "last good one in use: p:1: mode: bad" in status_text(document, None)


def test_a_stall_that_others_can_have_noticed_and_a_stop_are_told_above_the_table() -> None:
    document = status(module())
    stall = {"ms": 62.5, "culprit": "client 3", "doing": "requests: dice invoke roll", "ts": 1.0}
    document["daemon"]["longest_stall"] = stall
    stopped = {"count": 1, "total_s": 4.0, "last_s": 4.0, "last_ts": time.time() - 60}
    document["daemon"]["suspensions"] = stopped
    lines = plain(status_text(document, None))
    assert lines[2] == "longest stall 62.5ms, by client 3 (requests: dice invoke roll)"
    assert lines[3] == "it was suspended for 4.0s, 1m00s ago"
    document["daemon"]["longest_stall"] = {**stall, "ms": 49.9}
    document["daemon"]["suspensions"] = {**stopped, "count": 0}
    assert plain(status_text(document, None))[2] == ""


def test_what_is_held_and_what_its_own_log_lost_are_told_above_the_table() -> None:
    document = status(module())
    document["daemon"]["own_log"] = {"lost_lines": 2, "problem": "No space left on device"}
    held = {"total": 45 << 20, "limit": 256 << 20, "parties": [{"party": "client 7"}]}
    document["daemon"]["held_bytes"] = held
    lines = plain(status_text(document, None))
    words = (
        "the daemon's own log has lost 2 lines; now it cannot be written: No space left on device"
    )
    assert lines[2] == words
    assert lines[3] == "it holds 45.0 MiB of 256.0 MiB for others, most for client 7"
    document["daemon"]["own_log"]["lost_lines"] = held["total"] = 0
    assert plain(status_text(document, None))[2] == ""


def test_what_is_stuck_is_told_above_the_table() -> None:
    document = status(module())
    document["daemon"]["stuck"] = [{"doing": "spawning m#1", "for_s": 7.5, "waiting": 2}]
    lines = plain(status_text(document, None))
    assert lines[2] == "stuck for 7.5s: spawning m#1, and 2 more wait for it"


def test_open_files_that_run_short_and_refused_clients_are_told_above_the_table() -> None:
    document = status(module())
    document["daemon"]["open_files"] = {"used": 800, "limit": 1024}
    document["daemon"]["connections"] = {"open": 512, "refused": 3}
    lines = plain(status_text(document, None))
    assert lines[2] == "800 of 1024 files are open"
    assert lines[3] == "3 clients refused: there was no room for more"
    document["daemon"]["open_files"]["used"] = 700
    document["daemon"]["connections"]["refused"] = 0
    assert plain(status_text(document, None))[2] == ""


def test_columns_start_and_end_in_the_same_place_in_every_row() -> None:
    lines = plain(status_text(status(module("a"), module("a-much-longer-name")), None))
    assert {line.index("ready") for line in lines[4:6]} == {lines[3].index("STATE")}
    assert {line.index("4711") + 4 for line in lines[4:6]} == {lines[3].index("PID") + 3}


def test_wide_characters_take_two_columns() -> None:
    lines = plain(status_text(status(module("東京"), module("abcd")), None))
    assert lines[4].index("ready") + 2 == lines[5].index("ready")


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_on_a_terminal_no_row_is_wider_than_the_terminal(width: int) -> None:
    lines = plain(status_text(FLEET, width))
    assert all(len(line) <= width for line in lines[3:6])
    assert any("next try in 4.0s" in line for line in lines)


@pytest.mark.parametrize("name", ["n" * 128, "東京" * 40])
@pytest.mark.parametrize("width", [40, 80])
def test_a_name_that_is_too_long_for_the_terminal_is_cut(name: str, width: int) -> None:
    lines = plain(status_text(status(module("dice"), module(name)), width))
    assert lines[5].split()[0].endswith("..")
    assert all(cells(line) <= width for line in lines[3:6])
    assert name in "".join(plain(status_text(status(module(name)), None)))


def test_a_terminal_too_narrow_for_the_notes_has_them_below_their_rows() -> None:
    lines = plain(status_text(FLEET, 60))
    assert lines[5] == "    was killed by SIGKILL: out of cheese; next try in 4.0s"


def test_a_fleet_without_modules_says_where_it_looked() -> None:
    assert (
        plain(status_text(status(), None))[-1] == "no modules: /modules holds no usable descriptor"
    )


def warned(said: str) -> dict[str, Any]:
    (instance,) = module()["instances"]
    return module(instances=[{**instance, "warning": said}])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (module(), ""),
        (warned("the line is not JSON: hello\x1b"), "the line is not JSON: hello\\x1b"),
        (module(state="down", wanted="up", waits_for=["kv"]), "waits for kv"),
        (module(state="down", wanted="down"), "stopped"),
        (module(state="down", wanted="down", start="lazy"), "lazy: starts with its first request"),
        (module(state="failed", last_exit=last_exit("exited with code 3")), "exited with code 3"),
        (module(last_exit=last_exit("was stopped", reason="stopped")), ""),
        (module(state="starting"), ""),
        (module(missing=["kv", "blobs"]), "runs without kv, blobs"),
        (
            module(state="down", wanted="down", last_exit=last_exit("ended and is not restarted")),
            "ended and is not restarted",
        ),
    ],
)
def test_the_note_says_what_the_figures_do_not(entry: dict[str, Any], words: str) -> None:
    assert note(entry) == words


def test_the_page_of_a_module_shows_its_instances_and_what_the_last_one_died_of(
    run: Run, serve: Serve
) -> None:
    daemon = serve(lambda frame: [ok(module(last_exit=KILLED))])
    page = run("status", "dice").stdout
    assert daemon.frames[0]["input"]["args"] == {"module": "dice"}
    assert "dice 1.0.0, tool: ready" in page
    assert "dice#1, pid 4711, up 1m05s, 9.0 MiB, 0 in flight" in page
    assert "was killed by SIGKILL, " in page
    assert "reason signaled, SIGKILL" in page
    assert "out of cheese" in page
    assert "3 answered, 1 of them failed" in page
    assert "half within 0.90ms, 99 % within 4.5ms, the longest 4.6ms" in page


def test_an_instance_that_waits_for_its_request_is_called_warm() -> None:
    waits = {"id": "dice#2", "pid": 4712, "state": "warm", "uptime_s": 3.0, "rss_bytes": None}
    page = module_text(module(instances=[{**waits, "in_flight": 0}]))
    assert "dice#2, pid 4712, up 3.0s, warm" in page


OVER: dict[str, Any] = {
    "limit": "memory_bytes",
    "allowed": 256 << 20,
    "used": 412 << 20,
    "share": None,
}


def test_a_limit_that_was_passed_is_shown_with_its_figures_in_the_table_and_on_the_page() -> None:
    words = f"used {412 << 20} bytes of memory, and {256 << 20} is its limit, so it was ended"
    over = last_exit(words, reason="memory_limit", signal=9, limit=OVER)
    entry = module(state="backoff", next_retry_s=2.0, instances=[], last_exit=over)
    assert note(entry) == "ended: memory 412.0 MiB of 256.0 MiB; next try in 2.0s"
    page = plain(module_text(entry))
    assert "            limit: memory 412.0 MiB of 256.0 MiB" in page
    assert any(words in line for line in page)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({**OVER, "limit": "processes", "used": 12, "allowed": 10}, "processes 12 of 10"),
        (
            {**OVER, "limit": "memory_ceiling_bytes", "share": 300 << 20},
            "memory of all modules 412.0 MiB of 256.0 MiB, 300.0 MiB of it this one's",
        ),
    ],
)
def test_each_limit_has_its_words(limit: dict[str, Any], words: str) -> None:
    assert limit_text(limit) == words


def test_a_page_says_that_the_descriptor_cannot_be_used_as_it_is_now() -> None:
    page = plain(module_text(module(quarantined="is empty. The last good version stays in use.")))
    assert "quarantined is empty. The last good version stays in use." in page


def test_lines_that_were_left_out_are_counted_in_good_english() -> None:
    counted = {"late_lines": 1, "quarantined_lines": 2, "left_out_log_lines": 3}
    shown = module()
    shown["counters"] |= counted
    [line] = [one for one in plain(module_text(shown)) if one.startswith("left out")]
    assert line.split("out", 1)[1].strip() == (
        "1 late line, 2 lines outside the protocol, 3 log lines over the rate"
    )


def test_the_page_of_a_module_names_the_processes_that_could_not_be_killed() -> None:
    died = last_exit("was stopped", reason="stopped") | {"survivors": [7, 8]}
    lines = [line.strip() for line in plain(module_text(module(last_exit=died)))]
    assert "still running, could not be killed: pid 7, 8" in lines


def test_a_module_without_instances_says_so() -> None:
    lines = plain(module_text(module(state="down", instances=[])))
    assert "instance    none runs" in lines


def test_text_of_a_module_cannot_steer_the_terminal(run: Run, serve: Serve) -> None:
    nasty = module("a\x1b[2Jb", last_exit=last_exit("x\r\ny\u202e", stderr_tail=["\x1b]0;t\x07"]))
    serve(lambda frame: [ok(nasty if "module" in frame["input"]["args"] else status(nasty))])
    for page in (run("status").stdout, run("status", "a").stdout):
        assert not set(page) & set("\x1b\x07\r\u202e")


def ops(count: int, *, remembered: bool) -> dict[str, Any]:
    names = [f"op{number}" for number in range(count)]
    return {"names": names, "count": count, "remembered": remembered}


def test_ops_are_listed_and_marked_where_they_are_only_remembered() -> None:
    known = plain(module_text(module(ops=ops(2, remembered=False))))
    assert "ops         op0, op1" in known
    down = module(state="down", ops=ops(300, remembered=True))
    [line] = [one for one in plain(module_text(down)) if one.startswith("ops")]
    assert line.startswith("ops         op0, op1, ")
    assert line.endswith("op19 and 280 more (remembered: what it said when it last ran)")
    assert not [one for one in plain(module_text(module(ops=None))) if one.startswith("ops")]


def test_a_lazy_module_that_has_not_run_yet_is_noted_with_what_is_remembered() -> None:
    lazy = {"state": "down", "wanted": "down", "start": "lazy"}
    words = "lazy: starts with its first request"
    assert note(module(**lazy, ops=ops(2, remembered=True))) == f"{words}; it had op0, op1"
    many = note(module(**lazy, ops=ops(9, remembered=True)))
    assert many == f"{words}; it had op0, op1, op2, op3, op4, ..."
    assert note(module(**lazy, ops=ops(2, remembered=False))) == words


def test_who_describes_itself_otherwise_is_named() -> None:
    page = plain(module_text(module(misfits=["m#1 differs", "m#2 differs"])))
    assert "misfit      m#1 differs; m#2 differs" in page


@pytest.mark.parametrize(
    ("state", "age_s", "others", "is_told"),
    [
        ("ready", 60, {}, True),
        ("ready", 3599, {}, True),
        ("ready", 3601, {}, False),
        ("ready", 3601, {"limit": OVER}, False),
        ("ready", 3601, {"survivors": [7]}, True),
        ("degraded", 90_000, {}, True),
        ("failed", 90_000, {}, True),
        ("backoff", 90_000, {}, True),
        ("starting", 90_000, {}, True),
    ],
)
def test_the_last_failure_of_a_module_that_is_ready_is_forgotten_after_an_hour(
    run: Run, serve: Serve, *, state: str, age_s: float, others: Frame, is_told: bool
) -> None:
    died = last_exit("exited with code 3", ts=1e9, stderr_tail=["out of cheese"], **others)
    fleet = status(module(state=state, last_exit=died, next_retry_s=None, restarts=2))
    (finding,) = examine_modules(fleet, 1e9 + age_s)
    assert (finding.level == "ok") != is_told
    page = status_text(fleet, None, now_s=1e9 + age_s)
    words = "ended: memory" if "limit" in others else "exited with code 3: out of cheese"
    assert (words in page) == is_told
    serve(lambda frame: [ok(fleet)])
    assert json.loads(run("status", "--json").stdout) == fleet


UNSET = "KEY, which pass_env names, is not set"


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (
            {"state": "backoff", "instances": [], "next_retry_s": None},
            f"exited with code 1: ImportError: x; {UNSET}",
        ),
        ({"state": "ready"}, f"before: exited with code 1: ImportError: x, 5.0s ago; {UNSET}"),
    ],
    ids=["backoff", "ready"],
)
def test_the_cause_stands_first_and_an_unset_variable_last_and_once(
    others: Frame, words: str
) -> None:
    died = last_exit(f"exited with code 1; {UNSET}", exit_code=1, stderr_tail=["ImportError: x"])
    shown = module(last_exit={**died, "ts": 95.0}, unset_variables=["KEY"], **others)
    assert note(shown, now_s=100.0) == words
