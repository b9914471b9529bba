"""The number that tells whose a process is goes where it goes, and nowhere else."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading

import pytest

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.brand import FEWEST_RUNS, RLIMIT_LOCKS, Brands
from supervisor.runtime.containment.ledger import NO_BRAND, SERIAL_BITS, same_run
from tests.runtime.containment.lifelines import PATIENCE_S

WAITS = (sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()")


def waiting() -> subprocess.Popen[bytes]:
    return subprocess.Popen(WAITS, stdin=subprocess.PIPE)


def end(popen: subprocess.Popen[bytes]) -> None:
    popen.communicate()


def test_the_brands_of_a_run_differ_and_are_of_one_run() -> None:
    brands, others = Brands(whole_process=True), Brands(whole_process=True)
    first, second = brands.next(), brands.next()
    assert first != second
    assert same_run(first, second)
    assert same_run(first, brands.run)
    assert not same_run(first, others.next())
    assert not same_run(NO_BRAND, NO_BRAND)


def test_a_child_is_born_with_its_brand_and_this_process_keeps_its_own_limit() -> None:
    before = resource.getrlimit(RLIMIT_LOCKS)
    brands = Brands(whole_process=True)
    brand = brands.next()
    with brands.forking(brand):
        assert procfs.brand(os.getpid()) == brand
        popen = waiting()
    assert resource.getrlimit(RLIMIT_LOCKS) == before
    assert procfs.brand(popen.pid) == brand
    brands.remove(popen.pid)
    assert procfs.brand(popen.pid) == NO_BRAND
    end(popen)


def test_inside_another_program_only_the_child_is_branded() -> None:
    before = resource.getrlimit(RLIMIT_LOCKS)
    brands = Brands(whole_process=False)
    brand = brands.next()
    with brands.forking(brand):
        assert resource.getrlimit(RLIMIT_LOCKS) == before
        popen = waiting()
    brands.put(popen.pid, brand)
    assert procfs.brand(popen.pid) == brand
    end(popen)


def test_a_zombie_shows_its_brand_and_who_is_gone_shows_none() -> None:
    brands = Brands(whole_process=False)
    popen = waiting()
    brands.put(popen.pid, brands.run)
    assert popen.stdin is not None
    popen.stdin.close()
    os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
    assert procfs.brand(popen.pid) == brands.run
    popen.wait()
    assert procfs.brand(popen.pid) == NO_BRAND
    brands.put(popen.pid, brands.run)


class Forking(threading.Thread):
    """A thread that forks when `fork` is set, and whose fork returns when `leave` is."""

    def __init__(self, brands: Brands) -> None:
        super().__init__()
        self.brands = brands
        self.brand = brands.next()
        self.entered, self.fork, self.forked, self.leave = (threading.Event() for _ in range(4))
        self.popen: subprocess.Popen[bytes]

    def run(self) -> None:
        with self.brands.forking(self.brand):
            self.entered.set()
            self.fork.wait(PATIENCE_S)
            self.popen = waiting()
            self.forked.set()
            self.leave.wait(PATIENCE_S)


def test_a_fork_that_does_not_return_keeps_no_other_from_forking_with_its_own_brand() -> None:
    before = resource.getrlimit(RLIMIT_LOCKS)
    slow = Forking(Brands(whole_process=True))
    quick = Forking(slow.brands)
    slow.start()
    assert slow.entered.wait(PATIENCE_S)
    quick.start()
    assert not quick.entered.is_set()  # before the first has forked it is not its turn
    slow.fork.set()
    assert quick.entered.wait(PATIENCE_S)
    slow.leave.set()
    slow.join()
    quick.fork.set()
    quick.leave.set()
    quick.join()
    assert procfs.brand(slow.popen.pid) == slow.brand
    assert procfs.brand(quick.popen.pid) == quick.brand
    assert resource.getrlimit(RLIMIT_LOCKS) == before
    end(slow.popen)
    end(quick.popen)


def test_a_kernel_that_does_not_show_the_limit_means_no_brand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(procfs, "brand", lambda _: NO_BRAND)
    assert Brands(whole_process=True).next() == NO_BRAND


def test_a_hard_limit_that_was_lowered_since_keeps_nobody_from_forking() -> None:
    program = """
import resource
from supervisor.runtime.containment.brand import RLIMIT_LOCKS, Brands
brands = Brands(whole_process=True)
resource.setrlimit(RLIMIT_LOCKS, (5, 5))
with brands.forking(brands.next()):
    print(resource.getrlimit(RLIMIT_LOCKS))
print(resource.getrlimit(RLIMIT_LOCKS))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    if os.getuid():  # root may raise it again
        assert said.stdout.decode().splitlines() == ["(5, 5)", "(5, 5)"]


@pytest.mark.parametrize("runs", [FEWEST_RUNS - 1, FEWEST_RUNS])
def test_a_hard_limit_is_kept_and_too_low_a_one_means_no_brand(
    monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    hard = runs << SERIAL_BITS
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    brands = Brands(whole_process=False)
    assert (brands.run == NO_BRAND) is (runs < FEWEST_RUNS)
    assert brands.next() < hard
    assert (brands.next() == NO_BRAND) is (runs < FEWEST_RUNS)
    with brands.forking(NO_BRAND):
        pass
