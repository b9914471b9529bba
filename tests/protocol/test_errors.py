from __future__ import annotations

import pytest

from protocol.errors import Code, Failure, Reason

RESERVED = "timeout oom unreachable bad_request forbidden internal unsupported_op"

REASONS = {
    Code.TIMEOUT: "deadline silence exit_deadline start_deadline",
    Code.OOM: "memory_limit cgroup_oom",
    Code.UNREACHABLE: (
        "spawn_failed exited signaled not_ready failed queue_full stopping broken_pipe slow_reader"
        " daemon_restart refused no_connection tls reset cut_stream bad_http bad_status redirected"
        " wrong_type rate_limited"
    ),
    Code.BAD_REQUEST: (
        "unknown_module missing_op invalid_args malformed_request reentrant_call unknown_session"
        " session_ended session_exists session_busy no_agent revision_conflict limit_reached"
        " unknown_asset asset_changed beyond_end unknown_approval"
    ),
    Code.FORBIDDEN: "capability hook scope wrong_login login_over",
    Code.INTERNAL: (
        "missing_done unknown_type bad_version malformed_json not_object invalid_utf8"
        " invalid_event truncated_line line_too_long unreadable_output reported storage"
    ),
    Code.UNSUPPORTED_OP: "unknown_op",
    Code.CANCELLED: "client disconnect shutdown parent_ended",
}


@pytest.mark.clause("PV1-4-b")
def test_the_codes_are_the_reserved_ones_and_cancelled() -> None:
    assert set(Code) == {*RESERVED.split(), "cancelled"}


def test_every_reason_has_one_code() -> None:
    listed = {Reason(name): code for code, names in REASONS.items() for name in names.split()}
    assert listed == {reason: reason.code for reason in Reason}


@pytest.mark.parametrize("reason", Reason)
def test_an_error_of_the_hosts_own_names_its_reason(reason: Reason) -> None:
    failure = Failure.because(reason, "words")
    assert failure == Failure(reason.code, "words", {"origin": "host", "reason": reason.value})


def test_evidence_that_is_not_known_is_left_out() -> None:
    failure = Failure.because(Reason.EXITED, "words", pid=7, signal=None, exit_code=0)
    assert failure.details == {"origin": "host", "reason": "exited", "pid": 7, "exit_code": 0}


def test_what_a_module_reports_stands_apart_whatever_it_is() -> None:
    claims = {"origin": "host", "reason": "memory_limit", "instance": "dice#1", "pid": 1}
    failure = Failure.reported("oom", "words", claims)
    assert (failure.code, failure.message) == ("oom", "words")
    assert failure.details == {"origin": "module", "reported": claims}
    assert failure.as_reported == {"code": "oom", "message": "words", "details": claims}
    assert Failure.reported("E", "m").details == {"origin": "module"}
