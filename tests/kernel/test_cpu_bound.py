from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from supervisor.kernel.cpu_bound import OutOfTimeError, in_cpu_time


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGVTALRM, before)


def spin() -> None:
    while True:
        pass


def test_what_takes_too_long_is_left_and_nothing_stays_armed() -> None:
    with pytest.raises(OutOfTimeError):
        in_cpu_time(0.02, spin)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert signal.getsignal(signal.SIGVTALRM) is signal.SIG_IGN


def test_no_code_that_swallows_exceptions_swallows_it() -> None:
    def stubborn() -> None:
        try:
            spin()
        except Exception:  # noqa: BLE001
            spin()

    with pytest.raises(OutOfTimeError):
        in_cpu_time(0.02, stubborn)


def test_what_is_quick_or_fails_by_itself_is_as_it_is() -> None:
    assert in_cpu_time(1, lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        in_cpu_time(1, lambda: 1 / 0)
    assert signal.getsignal(signal.SIGVTALRM) is signal.SIG_IGN


def test_a_handler_that_would_kill_is_not_put_back() -> None:
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    in_cpu_time(1, lambda: 5)
    signal.raise_signal(signal.SIGVTALRM)


def test_another_thread_has_no_bound() -> None:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(in_cpu_time(0.001, lambda: 5)))
    thread.start()
    thread.join()
    assert seen == [5]
