from __future__ import annotations

import signal
from typing import Any

import pytest

from protocol.errors import Code, Failure, Outcome, Reason, Success
from protocol.json_line import Fault
from supervisor.policy.verdict import (
    Breach,
    Exit,
    Said,
    Stopped,
    last_words,
    on_death,
    on_invocation,
    signal_name,
    telling_tail,
    unset_remark,
)

WELL = Exit(exit_code=0, instance="chart#4", pid=4711, uptime_s=1.5, stderr_tail=("oh", "no"))
SIGNALS = sorted({*signal.Signals, *range(1, signal.NSIG)})
DONE = Success({"a": 1}, "drawn")
NOT_OK = Failure.reported("E", "m", {"at": 1}, "s")
PROTOCOL_FAULTS = (
    Reason.UNKNOWN_TYPE,
    Reason.BAD_VERSION,
    Reason.MALFORMED_JSON,
    Reason.NOT_OBJECT,
    Reason.INVALID_UTF8,
    Reason.INVALID_EVENT,
    Reason.LINE_TOO_LONG,
)
STOPS = (
    Reason.DEADLINE,
    Reason.SILENCE,
    Reason.EXIT_DEADLINE,
    Reason.CLIENT,
    Reason.DISCONNECT,
    Reason.SHUTDOWN,
    Reason.MEMORY_LIMIT,
)


def fault(reason: Reason) -> Fault:
    return Fault(reason, "words", "excerpt")


def judged(said: Said, end: Exit = WELL, stopped: Stopped | None = None) -> Outcome:
    return on_invocation(said, end, stopped, "chart.draw")


def failed(said: Said, end: Exit = WELL, stopped: Stopped | None = None) -> Failure:
    outcome = judged(said, end, stopped)
    assert isinstance(outcome, Failure)
    return outcome


SAID = [Said(), Said(DONE), Said(NOT_OK)]


# A per-invocation process: the rows of the table.

TOLD = Failure.reported("E1", "on the way")
REPORTED = {"code": "E", "message": "m", "details": {"at": 1}}
DONE_TOLD = {"ok": True, "result": {"a": 1}, "summary": "drawn"}
OF_HOST = {"code": "E", "message": "m"}


def evidence(said: Said, **found: Any) -> dict[str, Any]:
    """Return the details of a bad end: what was found, and what the tool had said."""
    reported = {"reported": REPORTED} if said.answer == NOT_OK else {}
    return {"origin": "host", **found, "stderr_tail": [], **reported}


@pytest.mark.parametrize(
    "end", [Exit(exit_code=3), Exit(signal=9), Exit(signal=9, breach=Breach("memory_bytes", 1, 2))]
)
def test_the_last_error_of_a_tool_survives_a_bad_exit(end: Exit) -> None:
    assert failed(Said(NOT_OK), end).details["reported"] == REPORTED
    for answer in (None, DONE):
        failure = failed(Said(answer, error=TOLD), end)
        assert failure.details["reported"] == {"code": "E1", "message": "on the way"}
        assert failure.details["origin"] == "host"
        assert failure.details["reason"] == end.reason
    death = on_death(end, None, "dice.roll", TOLD)
    assert death.details["reported"] == {"code": "E1", "message": "on the way"}


@pytest.mark.parametrize("answer", [DONE, NOT_OK])
def test_after_exit_code_0_done_decides(answer: Outcome) -> None:
    assert judged(Said(answer)) == answer


@pytest.mark.parametrize(
    ("said", "reported", "carried"),
    [
        (Said(), None, None),
        (Said(Success(1)), None, {"ok": True, "result": 1}),
        (Said(DONE), None, DONE_TOLD),
        (Said(NOT_OK), REPORTED, {"ok": False, "error": REPORTED}),
        (Said(error=TOLD), TOLD.as_reported, TOLD.as_reported),
        (Said(DONE, error=TOLD), TOLD.as_reported, DONE_TOLD),
        (Said(NOT_OK, error=TOLD), REPORTED, {"ok": False, "error": REPORTED}),
        (Said(Failure("E", "m"), error=TOLD), TOLD.as_reported, {"ok": False, "error": OF_HOST}),
    ],
)
def test_what_a_tool_had_said_is_told_as_its_error_or_as_its_answer(
    said: Said, reported: dict[str, Any] | None, carried: dict[str, Any] | None
) -> None:
    assert said.reported == reported
    assert said.carried == carried


def test_exit_code_0_without_done_is_named() -> None:
    failure = failed(Said())
    assert (failure.code, failure.details["reason"]) == ("internal", "missing_done")


@pytest.mark.fault(4, 16)
@pytest.mark.parametrize("said", SAID)
def test_any_other_exit_code_is_a_failure_whatever_was_said(said: Said) -> None:
    assert judged(said) == (said.answer or failed(Said()))
    for exit_code in range(1, 256):
        failure = failed(said, Exit(exit_code=exit_code))
        assert failure.code == "internal"
        told = evidence(said, reason="exited", exit_code=exit_code)
        assert failure.details == told
        assert f"exited with code {exit_code}" in failure.message


@pytest.mark.fault(4)
@pytest.mark.parametrize("said", SAID)
def test_any_signal_is_a_failure_whatever_was_said(said: Said) -> None:
    for number in SIGNALS:
        failure = failed(said, Exit(signal=number))
        assert failure.code == "internal"
        assert failure.details == evidence(said, reason="signaled", signal=number)
        assert signal_name(number) in failure.message


SAMPLED = Breach("memory_bytes", 100, 300)
COUNTED = Breach("memory_bytes", 100, 300, by_kernel=True)
SHED = Breach("memory_ceiling_bytes", 100, 300, share=200)
CROWDED = Breach("processes", 3, 4)
OOM = [
    pytest.param(SAMPLED, "memory_limit", id="sampled"),
    pytest.param(COUNTED, "cgroup_oom", id="counted"),
    pytest.param(SHED, "memory_limit", id="shed"),
]
ENDS: list[dict[str, Any]] = [{"exit_code": 0}, {"exit_code": 3}, {"exit_code": 137}, {"signal": 9}]


@pytest.mark.parametrize(
    "said", [*SAID, *(Said(fault=fault(one)) for one in (*PROTOCOL_FAULTS, Reason.TRUNCATED_LINE))]
)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(("breach", "reason"), OOM)
def test_evidence_of_too_much_memory_is_oom_whatever_was_said_and_however_it_ended(
    breach: Breach, reason: str, how: dict[str, Any], said: Said
) -> None:
    failure = failed(said, Exit(**how, breach=breach))
    assert (failure.code, failure.details["reason"]) == (Code.OOM, reason)
    assert failure.details["limit"]["used"] == 300
    assert breach.words in failure.message


@pytest.mark.parametrize(
    ("breach", "words"),
    [
        (SAMPLED, "used 300 bytes of memory, and 100 is its limit"),
        (COUNTED, "used 300 bytes of memory, and 100 is its limit"),
        (
            SHED,
            "used most, 200 bytes, when all modules used 300 bytes, and 100 is their ceiling",
        ),
        (CROWDED, "had 4 processes, and 3 is its limit"),
        (Breach("processes", 3, 4, by_kernel=True), "had 4 processes, and 3 is its limit"),
    ],
)
def test_a_limit_that_was_passed_is_told_with_its_figures(breach: Breach, words: str) -> None:
    assert Exit(signal=9, breach=breach).words == f"{words}, so it was ended"


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("how", [{"exit_code": 137}, {"signal": 9}])
def test_exit_code_137_or_sigkill_alone_proves_no_lack_of_memory(
    how: dict[str, Any], said: Said
) -> None:
    failure = failed(said, Exit(**how))
    assert failure.code == "internal"
    assert failure.details["reason"] == ("signaled" if "signal" in how else "exited")


@pytest.mark.parametrize("said", SAID)
def test_too_many_processes_are_no_lack_of_memory(said: Said) -> None:
    failure = failed(said, Exit(signal=9, breach=CROWDED))
    assert (failure.code, failure.details["reason"]) == ("internal", "signaled")
    assert failure.details["limit"]["limit"] == "processes"
    assert "had 4 processes, and 3 is its limit" in failure.message


@pytest.mark.parametrize("breach", [SAMPLED, COUNTED, SHED, CROWDED])
@pytest.mark.parametrize("reason", STOPS)
def test_what_the_host_stopped_it_for_comes_before_a_limit_that_it_passed_while_ending(
    reason: Reason, breach: Breach
) -> None:
    failure = failed(Said(), Exit(signal=9, breach=breach), Stopped(reason, "words"))
    assert (failure.code, failure.details["reason"]) == (reason.code, reason)


@pytest.mark.parametrize("end", [WELL, Exit(exit_code=1), Exit(signal=15)])
@pytest.mark.parametrize("reason", PROTOCOL_FAULTS)
def test_a_fault_that_ended_processing_is_the_verdict_however_the_process_ended(
    reason: Reason, end: Exit
) -> None:
    failure = failed(Said(fault=fault(reason)), end)
    assert failure.code == "internal"
    assert failure.details["reason"] == reason
    assert failure.details["line_excerpt"] == "excerpt"


def test_a_cut_line_is_the_verdict_only_of_a_process_that_ended_well() -> None:
    cut = Said(fault=fault(Reason.TRUNCATED_LINE))
    assert failed(cut).details["reason"] == "truncated_line"
    assert failed(cut, Exit(exit_code=1)).details["reason"] == "exited"
    assert failed(cut, Exit(signal=11)).details["reason"] == "signaled"


@pytest.mark.parametrize("said", [*SAID, Said(fault=fault(Reason.MALFORMED_JSON))])
@pytest.mark.parametrize("end", [WELL, Exit(exit_code=1), Exit(signal=9)])
@pytest.mark.parametrize("reason", STOPS)
def test_what_the_host_stopped_it_for_is_the_verdict_before_all_else(
    reason: Reason, end: Exit, said: Said
) -> None:
    failure = failed(said, end, Stopped(reason, "words"))
    assert (failure.code, failure.message) == (reason.code, "words")
    assert failure.details["reason"] == reason


@pytest.mark.parametrize(
    ("said", "stopped"),
    [
        (Said(), None),
        (Said(fault=fault(Reason.BAD_VERSION)), None),
        (Said(), Stopped(Reason.DEADLINE, "words")),
    ],
)
def test_each_failure_of_the_hosts_own_carries_the_evidence(
    said: Said, stopped: Stopped | None
) -> None:
    details = failed(said, WELL, stopped).details
    evidence: dict[str, Any] = {
        "instance": "chart#4",
        "pid": 4711,
        "exit_code": 0,
        "uptime_s": 1.5,
        "stderr_tail": ["oh", "no"],
    }
    assert details.items() >= evidence.items()
    assert "signal" not in details


# A persistent instance that died.


def test_a_request_in_flight_on_an_instance_that_exits_is_unreachable() -> None:
    for exit_code in range(256):
        failure = on_death(Exit(exit_code=exit_code, instance="dice#4"), None, "dice.roll")
        assert failure.code == Code.UNREACHABLE
        assert failure.details["reason"] == "exited"
        assert failure.details["exit_code"] == exit_code
        words = f"dice.roll: dice#4 exited with code {exit_code} before it answered"
        assert failure.message == words


def test_a_request_in_flight_on_an_instance_that_is_killed_is_unreachable() -> None:
    for number in SIGNALS:
        failure = on_death(Exit(signal=number, instance="dice#4"), None, "dice.roll")
        assert failure.code == Code.UNREACHABLE
        assert failure.details["reason"] == "signaled"
        assert failure.details["signal"] == number


def test_an_answer_cut_off_counts_unless_the_end_says_more() -> None:
    cut = fault(Reason.TRUNCATED_LINE)
    assert on_death(WELL, cut, "dice.roll").details["reason"] == "truncated_line"
    assert on_death(Exit(signal=11), cut, "dice.roll").details["reason"] == "signaled"


@pytest.mark.parametrize("cut", [None, fault(Reason.TRUNCATED_LINE)])
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(("breach", "reason"), OOM)
def test_a_request_in_flight_on_an_instance_over_its_memory_is_oom(
    breach: Breach, reason: str, how: dict[str, Any], cut: Fault | None
) -> None:
    failure = on_death(Exit(**how, instance="dice#4", breach=breach), cut, "dice.roll")
    assert (failure.code, failure.details["reason"]) == (Code.OOM, reason)
    assert failure.details["limit"]["allowed"] == 100


def test_a_request_in_flight_on_an_instance_with_too_many_processes_is_unreachable() -> None:
    failure = on_death(Exit(signal=9, breach=CROWDED), None, "dice.roll")
    assert (failure.code, failure.details["reason"]) == (Code.UNREACHABLE, "signaled")


# Words.


@pytest.mark.parametrize(
    ("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (11, "SIGSEGV"), (40, "signal 40")]
)
def test_signals_have_names_where_the_system_has(number: int, name: str) -> None:
    assert signal_name(number) == name


@pytest.mark.parametrize(
    ("end", "abnormal"),
    [(Exit(exit_code=0), False), (Exit(exit_code=1), True), (Exit(signal=1), True), (Exit(), True)],
)
def test_every_end_but_exit_code_0_is_abnormal(end: Exit, abnormal: bool) -> None:
    assert end.abnormal is abnormal


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ([], ""),
        (["starting", "bye"], "bye"),
        (["Traceback", "  File x", "KeyError: 'a'"], "KeyError: 'a'"),
        (
            ["Error: no config", "    at run (x.js:1)", "", "Node.js v20"],
            "Error: no config ... Nod",
        ),
        (['Exception in thread "main"', "\tat Main.main"], 'Exception in thread "main" ... \tat M'),
        (["  an error of somebody else's frame", "bye"], "bye"),
    ],
)
def test_the_last_words_have_the_line_that_names_the_error(tail: list[str], words: str) -> None:
    assert last_words(tail).startswith(words)
    assert last_words(tail).endswith(tail[-1] if tail else "")


NPM = [
    "npm error code E404",
    "npm error 404 Not Found - GET https://registry.example/nope - Not found",
    "npm error 404",
    "npm error 404  'nope@*' is not in this registry.",
    "npm error 404",
    "npm error 404 Note that you can also install from a",
    "npm error 404 tarball, folder, http url, or git folder.",
    "npm notice New version of npm available!",
    "npm error A complete log of this run can be found in: /home/ada/.npm/_logs/x.log",
]


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (NPM, "npm error 404  'nope@*' is not in this registry."),
        (NPM[-1:], NPM[-1]),
        (
            ["[4321] Fatal error: TypeError: fetch failed", "    at x {", "  code: 'E'", "}"],
            "[4321] Fatal error: TypeError: fetch failed ...   code: 'E'",
        ),
    ],
    ids=["npm", "nothing-else", "node"],
)
def test_the_last_words_pass_over_lines_that_say_nothing(tail: list[str], words: str) -> None:
    assert last_words(tail) == words


ERROR = "ValueError: no dice"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (["a", "b", "c"], ["a", "b", "c"]),
        (["a", "b", "c", "d"], ["b", "c", "d"]),
        ([ERROR, "b", "c", "d"], [ERROR, "c", "d"]),
        (["a", ERROR, "c", "d"], [ERROR, "c", "d"]),
        (["ValueError: old", ERROR, "b", "c", "d"], [ERROR, "c", "d"]),
        (["ValueError: old", "a", ERROR, "b"], ["a", ERROR, "b"]),
        ([ERROR, "npm error 404", "b", "c"], [ERROR, "b", "c"]),
    ],
    ids=str,
)
def test_the_last_lines_are_told_with_the_error_before_them(
    lines: list[str], shown: list[str]
) -> None:
    assert telling_tail(lines, 3) == shown


def test_variables_that_are_not_set_are_named() -> None:
    assert unset_remark([]) == ""
    assert unset_remark(["A"]) == "; A, which pass_env names, is not set"
    assert unset_remark(["A", "B"]) == "; A, B, which pass_env names, are not set"
