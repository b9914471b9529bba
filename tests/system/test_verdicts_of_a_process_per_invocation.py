"""docs/protocol.md, row by row, for modules that run a process per invocation, warm ones too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.daemon import Daemon, shared
from tests.system.fleet import SHORT_S, assert_undisturbed, module_of, modules

EITHER = ("tool", "once")


@pytest.fixture(scope="module", params=[0, 3], ids=["cold", "warm"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with shared(*modules(request.param)) as running:
        yield running


@pytest.fixture(autouse=True)
def undisturbed(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[None]:
    pid = daemon.pid("witness")
    yield
    assert_undisturbed(daemon, module_of(request, "tool"), pid)


@pytest.mark.parametrize("module", EITHER)
def test_an_answer_and_exit_0_is_ok(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, word="hello")
    assert answer.verdict == "ok"
    assert answer.result == {"word": "hello"}
    assert answer.done["module"] == module
    assert answer.done["warnings"] == []


@pytest.mark.parametrize("module", EITHER)
def test_events_before_the_answer_are_passed_on(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="event+event+done")
    assert [event["message"] for event in answer.events] == ["an event", "an event"]


def test_done_not_ok_after_an_error_event_tells_that_error(daemon: Daemon) -> None:
    answer = daemon.invoke("tool", fault="error+not_ok")
    assert answer.error["code"] == "soup_is_cold"
    assert answer.error["message"] == "9 degrees"
    assert answer.details == {"origin": "module", "reported": {"degrees": 9}}


def test_done_not_ok_without_an_error_event_is_internal_with_the_summary(daemon: Daemon) -> None:
    answer = daemon.invoke("tool", fault="not_ok")
    assert answer.verdict == "internal/reported"
    assert answer.error["message"] == "it went wrong"


def test_an_error_event_alone_does_not_spoil_a_done_that_is_ok(daemon: Daemon) -> None:
    assert daemon.invoke("tool", fault="error+done").verdict == "ok"


@pytest.mark.fault(4, 16)
@pytest.mark.parametrize("module", EITHER)
@pytest.mark.parametrize("before", ["", "event+", "done+"])
def test_a_bad_exit_code_counts_whatever_done_said(
    daemon: Daemon, module: str, before: str
) -> None:
    answer = daemon.invoke(module, fault=f"stderr+{before}exit", code=3)
    assert answer.verdict == "internal/exited"
    assert answer.details["exit_code"] == 3
    assert answer.details["stderr_tail"][-1] == "the last words"
    assert answer.details["instance"].startswith(f"{module}#")
    assert answer.details["pid"] > 1


@pytest.mark.fault(4, 16)
@pytest.mark.parametrize("module", EITHER)
@pytest.mark.parametrize("number", [9, 15])
@pytest.mark.parametrize("before", ["", "done+"])
def test_a_death_by_signal_counts_whatever_done_said(
    daemon: Daemon, module: str, number: int, before: str
) -> None:
    answer = daemon.invoke(module, fault=f"{before}die", signal=number)
    assert answer.verdict == "internal/signaled"
    assert answer.details["signal"] == number
    assert "exit_code" not in answer.details


@pytest.mark.parametrize("module", EITHER)
def test_exit_code_137_alone_is_no_proof_of_anything(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="exit", code=137)
    assert answer.verdict == "internal/exited"


@pytest.mark.fault(16)
@pytest.mark.parametrize("module", EITHER)
def test_exit_0_without_an_answer_is_missing_done(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="event+exit")
    assert answer.verdict == "internal/missing_done"
    assert answer.details["exit_code"] == 0
    assert len(answer.events) == 1


@pytest.mark.fault(8, 13)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        # One of each reason: the dialect's own tests tell the rest.
        ("unknown_type", "unknown_type"),
        ("bad_version", "bad_version"),
        ("no_level", "invalid_event"),
        ("banner", "malformed_json"),
        ("deep", "malformed_json"),
        ("bad_utf8", "invalid_utf8"),
        ("array", "not_object"),
    ],
)
def test_a_protocol_fault_ends_a_strict_invocation_and_its_process(
    daemon: Daemon, fault: str, reason: str
) -> None:
    answer = daemon.invoke("tool", fault=f"{fault}+done+hang")
    assert answer.verdict == f"internal/{reason}"
    assert answer.details["signal"] == 15
    assert "line_excerpt" in answer.details


@pytest.mark.fault(8)
@pytest.mark.parametrize("module", ["tolerant", "once"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("banner", "malformed_json"),
        ("array", "not_object"),
        ("surrogate", "lone_surrogate"),
    ],
)
def test_a_tolerant_module_may_print_what_is_no_protocol(
    daemon: Daemon, module: str, fault: str, reason: str
) -> None:
    answer = daemon.invoke(module, fault=f"{fault}+done", word="hello")
    assert answer.verdict == "ok"
    assert answer.warnings == [reason]
    assert answer.done["warnings"][0]["line_excerpt"]


@pytest.mark.parametrize("module", ["tolerant", "once"])
@pytest.mark.parametrize(
    ("fault", "reason"), [("unknown_type", "unknown_type"), ("bad_version", "bad_version")]
)
def test_not_even_a_tolerant_module_may_speak_another_protocol(
    daemon: Daemon, module: str, fault: str, reason: str
) -> None:
    assert daemon.invoke(module, fault=f"{fault}+done").verdict == f"internal/{reason}"


@pytest.mark.fault(16)
@pytest.mark.parametrize("module", EITHER)
@pytest.mark.parametrize("late", ["event", "banner", "unknown_type"])
def test_what_follows_the_answer_is_counted_and_not_accepted(
    daemon: Daemon, module: str, late: str
) -> None:
    answer = daemon.invoke(module, fault=f"done+{late}", word="hello")
    assert answer.result["word"] == "hello"
    assert answer.events == []
    assert len(answer.warnings) == 1


@pytest.mark.fault(16)
@pytest.mark.parametrize("module", EITHER)
def test_of_two_answers_the_first_one_counts(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="two_done")
    assert answer.result == {"which": "first"}
    assert answer.warnings == ["after_done"]


@pytest.mark.parametrize("module", EITHER)
def test_a_bad_asset_is_refused_and_the_invocation_goes_on(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="assets+done")
    assert [event["assetId"] for event in answer.events] == ["a"], answer
    assert answer.warnings == ["duplicate_asset", "bad_media_type", "unreadable_path"]


@pytest.mark.fault(6)
@pytest.mark.parametrize("module", ["hasty_tool"])
@pytest.mark.parametrize("how", ["ignore_sigterm+hang", "stop_self"])
def test_a_process_that_stays_after_its_answer_is_stopped(
    daemon: Daemon, module: str, how: str
) -> None:
    answer = daemon.invoke(module, fault=f"done+{how}")
    assert answer.verdict == "timeout/exit_deadline"
    assert answer.details["pid"] > 1


@pytest.mark.fault(5)
@pytest.mark.parametrize("module", EITHER)
@pytest.mark.parametrize("how", ["spin", "stop_self", "close_stdin+hang"])
def test_no_answer_in_time_is_a_deadline(daemon: Daemon, module: str, how: str) -> None:
    answer = daemon.invoke(module, timeout_s=SHORT_S, fault=how)
    assert answer.verdict == "timeout/deadline"


@pytest.mark.parametrize("module", ["quiet_tool"])
def test_a_long_silence_is_a_timeout_of_its_own(daemon: Daemon, module: str) -> None:
    assert daemon.invoke(module, fault="hang").verdict == "timeout/silence"


@pytest.mark.fault(16)
@pytest.mark.parametrize("module", ["hasty_tool"])
def test_stdout_closed_without_an_answer_is_missing_done(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="close_stdout+hang")
    assert answer.verdict == "internal/missing_done"


@pytest.mark.fault(1)
@pytest.mark.parametrize("module", EITHER)
@pytest.mark.parametrize("role", ["grandchild"])
def test_a_grandchild_that_holds_the_pipes_delays_nothing(
    daemon: Daemon, module: str, role: str
) -> None:
    answer = daemon.invoke(module, fault=f"{role}+done+exit")
    assert answer.verdict == "ok"


@pytest.mark.fault(14)
@pytest.mark.parametrize("module", ["tool"])
def test_a_whole_last_line_needs_no_newline(daemon: Daemon, module: str) -> None:
    assert daemon.invoke(module, fault="no_newline").result == "whole"


@pytest.mark.fault(15)
@pytest.mark.parametrize("module", ["heedless"])
def test_a_tool_need_not_read_its_input(daemon: Daemon, module: str) -> None:
    assert daemon.invoke(module, big="x" * (2 << 20)).result == "whole"


@pytest.mark.fault(14)
@pytest.mark.parametrize("module", EITHER)
def test_a_last_line_that_is_cut_is_neither_success_nor_lost(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="half_line+exit")
    assert answer.verdict == "internal/truncated_line"
    assert answer.details["line_excerpt"].startswith('{"version"')


@pytest.mark.parametrize("module", EITHER)
def test_a_bad_exit_says_more_than_a_cut_line(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="half_line+exit", code=9)
    assert answer.verdict == "internal/exited"


@pytest.mark.fault(13)
@pytest.mark.parametrize("module", ["tool"])
def test_odd_but_lawful_lines_are_accepted(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="bom+crlf+blank+twice+bigint+done")
    assert answer.verdict == "ok"
    assert answer.warnings == []
    kinds: list[Any] = [event.get("message", event.get("payload")) for event in answer.events]
    assert kinds == ["crlf", "2", {"n": 10**30}]
