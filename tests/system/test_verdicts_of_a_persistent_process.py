"""docs/protocol.md for persistent modules, of one instance and of two.

A fault fails its request, and the process lives on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.bounds import until
from tests.system.client import Answer
from tests.system.daemon import Daemon, shared
from tests.system.fleet import SHORT_S, assert_undisturbed, module_of, modules

Pids = Callable[[str], set[int]]


@pytest.fixture(scope="module", params=[1, 2], ids=["alone", "pool"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with shared(*modules(instances=request.param)) as running:
        yield running


@pytest.fixture
def pids(request: pytest.FixtureRequest, daemon: Daemon) -> Pids:
    """Tell the pids of a module's processes, once it has all that it should have."""
    number = request.node.callspec.params["daemon"]

    def found(module: str) -> set[int]:
        def ready() -> set[int] | None:
            instances = daemon.status(module)["instances"]
            whole = [one["state"] for one in instances] == ["ready"] * number
            return {one["pid"] for one in instances} if whole else None

        return until(ready, f"{number} ready instances of {module}")

    return found


@pytest.fixture(autouse=True)
def undisturbed(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[None]:
    pid = daemon.pid("witness")
    yield
    assert_undisturbed(daemon, module_of(request, "steady"), pid)


def wait_replaced(pids: Pids, module: str, before: set[int], answer: Answer) -> None:
    """Return once the process that gave this answer is replaced, and no other."""
    gone = until(lambda: before - pids(module), f"another process than that of {answer}")
    assert gone == {answer.details["pid"]}


def late_lines(daemon: Daemon, module: str) -> int:
    number: int = daemon.status(module)["counters"]["late_lines"]
    return number


@pytest.mark.parametrize("module", ["steady", "nameless", "strict"])
def test_a_good_answer_is_ok_and_carries_what_the_module_said(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="event+done", word="hello")
    assert answer.result["word"] == "hello"
    assert [event["message"] for event in answer.events] == ["an event"]
    assert answer.done["warnings"] == []


@pytest.mark.parametrize("module", ["steady", "nameless"])
def test_an_error_that_the_module_reports_passes_through_untouched(
    daemon: Daemon, module: str
) -> None:
    error = daemon.invoke(module, fault="not_ok").error
    assert error == {
        "code": "soup_is_cold",
        "message": "it went wrong",
        "details": {"origin": "module", "reported": {"degrees": 9}},
    }


@pytest.mark.fault(8, 13)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        # One of each reason, and two odd ones: the dialect's own tests tell the rest.
        ("banner", "malformed_json"),
        ("deep", "malformed_json"),
        ("bad_utf8", "invalid_utf8"),
        ("array", "not_object"),
        ("no_level", "invalid_event"),
        ("unknown_type", "unknown_type"),
        ("bad_version", "bad_version"),
    ],
)
def test_a_protocol_fault_fails_its_request_and_a_strict_process_lives_on(
    daemon: Daemon, pids: Pids, fault: str, reason: str
) -> None:
    before = pids("strict")
    answer = daemon.invoke("strict", fault=f"{fault}+done")
    assert answer.verdict == f"internal/{reason}"
    assert answer.details["line_excerpt"]
    assert answer.details["pid"] in before
    assert daemon.invoke("strict", word="next").result == {"word": "next"}
    assert pids("strict") == before


@pytest.mark.fault(8)
@pytest.mark.parametrize("module", ["steady", "nameless"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("banner", "malformed_json"),
        ("bad_utf8", "invalid_utf8"),
        ("number", "not_object"),
        ("surrogate", "lone_surrogate"),
    ],
)
def test_what_is_no_protocol_is_quarantined_of_a_tolerant_process(
    daemon: Daemon, pids: Pids, module: str, fault: str, reason: str
) -> None:
    before = pids(module)
    answer = daemon.invoke(module, fault=f"{fault}+done", word="hello")
    assert answer.result["word"] == "hello"
    assert answer.warnings == [reason]
    assert answer.done["warnings"][0]["line_excerpt"]
    assert pids(module) == before


@pytest.mark.fault(8)
@pytest.mark.parametrize(
    ("module", "fault", "reason"),
    [
        ("steady", "unknown_type", "unknown_type"),
        ("nameless", "unknown_type", "unknown_type"),
        ("nameless", "wrong_type", "invalid_event"),
    ],
)
def test_a_fault_in_the_place_of_an_answer_leaves_the_stream_in_step(
    daemon: Daemon, pids: Pids, module: str, fault: str, reason: str
) -> None:
    before = pids(module)
    for number in range(5):
        answer = daemon.invoke(module, fault=f"{fault}+done", word=number)
        assert answer.verdict == f"internal/{reason}"
        assert daemon.invoke(module, word=number).result == {"word": number}
    assert pids(module) == before


@pytest.mark.fault(13)
@pytest.mark.parametrize("module", ["steady", "nameless"])
def test_odd_but_lawful_lines_are_accepted(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="crlf+blank+bom+twice+bigint+done")
    assert answer.done["warnings"] == []
    kinds = [event.get("message", event.get("payload")) for event in answer.events]
    assert kinds == ["crlf", "2", {"n": 10**30}]


@pytest.mark.fault(16)
def test_a_second_answer_is_dropped_and_counted(daemon: Daemon) -> None:
    before = late_lines(daemon, "steady")
    assert daemon.invoke("steady", fault="two_done").result == {"which": "first"}
    assert daemon.invoke("steady", word="next").result == {"word": "next"}
    assert late_lines(daemon, "steady") == before + 1


@pytest.mark.fault(16)
def test_events_after_the_answer_are_dropped_and_counted(daemon: Daemon) -> None:
    before = late_lines(daemon, "steady")
    answer = daemon.invoke("steady", fault="done+event+event")
    assert answer.ok
    assert answer.events == []
    assert daemon.invoke("steady", word="next").events == []
    assert late_lines(daemon, "steady") == before + 2


@pytest.mark.fault(4, 16)
@pytest.mark.parametrize("module", ["steady", "nameless"])
@pytest.mark.parametrize("code", [0, 137])
def test_a_process_that_exits_leaves_its_request_unreachable(
    daemon: Daemon, pids: Pids, module: str, code: int
) -> None:
    before = pids(module)
    answer = daemon.invoke(module, fault="stderr+event+exit", code=code)
    assert answer.verdict == "unreachable/exited"
    assert answer.details["exit_code"] == code
    assert answer.details["pid"] in before
    assert answer.details["stderr_tail"][-1] == "the last words"
    assert answer.details["uptime_s"] > 0
    daemon.usable(module)
    assert daemon.status(module)["last_exit"]["exit_code"] == code


@pytest.mark.fault(4)
@pytest.mark.parametrize("module", ["steady", "nameless"])
@pytest.mark.parametrize("number", [9, 11])
def test_a_process_that_is_killed_leaves_its_request_unreachable(
    daemon: Daemon, module: str, number: int
) -> None:
    answer = daemon.invoke(module, fault="die", signal=number)
    assert answer.verdict == "unreachable/signaled"
    assert answer.details["signal"] == number
    daemon.usable(module)
    assert daemon.status(module)["last_exit"]["signal"] == number
    assert daemon.status(module)["last_exit"]["reason"] == "signaled"


@pytest.mark.fault(16)
@pytest.mark.parametrize("module", ["steady", "nameless"])
def test_an_answer_counts_even_if_the_process_dies_of_it(daemon: Daemon, module: str) -> None:
    assert daemon.invoke(module, fault="done+exit", code=3, word="last").result["word"] == "last"


@pytest.mark.fault(14)
@pytest.mark.parametrize("module", ["steady"])
def test_a_whole_last_line_needs_no_newline(daemon: Daemon, module: str) -> None:
    assert daemon.invoke(module, fault="no_newline+exit").result == "whole"


@pytest.mark.fault(14)
@pytest.mark.parametrize("module", ["steady", "nameless"])
def test_a_last_line_that_is_cut_is_neither_success_nor_lost(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="half_line+exit")
    assert answer.verdict == "internal/truncated_line"


@pytest.mark.fault(15, 16)
@pytest.mark.parametrize("module", ["steady", "nameless"])
@pytest.mark.parametrize("pipe", ["close_stdout", "close_stdin"])
def test_a_process_that_closes_a_pipe_and_lives_on_is_replaced(
    daemon: Daemon, pids: Pids, module: str, pipe: str
) -> None:
    before = pids(module)
    if pipe == "close_stdout":
        answer = daemon.invoke(module, fault=f"{pipe}+hang")
    else:
        # Nothing tells that stdin is closed until something is written.
        assert daemon.invoke(module, fault=f"{pipe}+done+hang").ok
        answer = daemon.invoke(module)
    assert answer.verdict == "unreachable/broken_pipe"
    assert answer.details["pid"] in before
    wait_replaced(pids, module, before, answer)
    assert daemon.usable(module).ok


@pytest.mark.parametrize("module", ["steady", "nameless"])
def test_a_bad_asset_is_refused_and_the_invocation_goes_on(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="assets+done")
    assert [event["assetId"] for event in answer.events] == ["a"]
    assert answer.warnings == ["duplicate_asset", "bad_media_type", "unreadable_path"]


def test_a_silent_process_that_still_answers_probes_keeps_its_slot(
    daemon: Daemon, pids: Pids
) -> None:
    # A process of its own: one that left an id out for an earlier test is not trusted with this.
    daemon.op("restart", module="steady")
    before = pids("steady")
    answer = daemon.invoke("steady", timeout_s=SHORT_S, fault="silent")
    assert answer.verdict == "timeout/deadline"
    assert answer.details["pid"] in before
    assert daemon.invoke("steady", word="next").result == {"word": "next"}
    assert pids("steady") == before


@pytest.mark.fault(5)
@pytest.mark.parametrize("module", ["hasty", "nameless"])
@pytest.mark.parametrize("how", ["spin", "stop_self", "ignore_sigterm+hang"])
def test_a_process_that_answers_nothing_any_more_is_replaced(
    daemon: Daemon, pids: Pids, module: str, how: str
) -> None:
    before = pids(module)
    answer = daemon.invoke(module, timeout_s=SHORT_S, fault=how)
    assert answer.verdict == "timeout/deadline"
    wait_replaced(pids, module, before, answer)
    assert daemon.usable(module).ok


def test_without_ids_a_request_that_timed_out_costs_the_process(daemon: Daemon, pids: Pids) -> None:
    before = pids("nameless")
    answer = daemon.invoke("nameless", timeout_s=SHORT_S, fault="silent")
    assert answer.verdict == "timeout/deadline"
    wait_replaced(pids, "nameless", before, answer)
    assert daemon.usable("nameless").ok


@pytest.mark.parametrize("module", ["quiet"])
def test_a_long_silence_is_a_timeout_of_its_own(daemon: Daemon, module: str) -> None:
    assert daemon.invoke(module, fault="silent").verdict == "timeout/silence"


@pytest.mark.fault(15)
@pytest.mark.parametrize("module", ["steady", "nameless"])
def test_a_process_that_does_not_read_what_it_is_asked_is_replaced(
    daemon: Daemon, pids: Pids, module: str
) -> None:
    before = pids(module)
    assert daemon.invoke(module, fault="done+hang").ok
    answer = daemon.invoke(module, timeout_s=SHORT_S, big="x" * (1 << 20))
    assert answer.verdict == "timeout/deadline"
    assert answer.details["pid"] in before
    wait_replaced(pids, module, before, answer)
    assert daemon.usable(module).ok
