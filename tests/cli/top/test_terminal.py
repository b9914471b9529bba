"""The real command on a real terminal: what it shows, and that it gives the terminal back."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Serve
from tests.cli.fake_daemon import Frame, Reply, log, not_ok, ok, serving
from tests.cli.top.statuses import module, status
from tests.cli.top.terminal import ENTER, LEAVE, Terminal

FAST = ("--interval", "0.05")


class Counting:
    """A daemon with modules of which each counts 5 invocations a second, as its clock goes."""

    def __init__(self, *names: str, pid: int = 99) -> None:
        self._names = names or ("dice",)
        self._pid = pid
        self._asked = itertools.count(1)

    def __call__(self, frame: Frame) -> list[Reply]:
        if frame["operation"] == "cancel":
            return []
        if frame["input"]["op"] != "status":
            return self.others(frame)
        assert frame["input"] == {"op": "status", "args": {"histogram": True}}
        number = next(self._asked)
        modules = (module(name, 5 * number, histogram=[(64, number)]) for name in self._names)
        return [ok(status(*modules, uptime_s=float(number), pid=self._pid))]

    def others(self, frame: Frame) -> list[Reply]:
        """Answer what keys ask for."""
        args = frame["input"]["args"]
        if frame["input"]["op"] == "logs":
            assert args == {"module": "kv", "lines": 200, "follow": True}
            return [
                log("a cow", ts=1.0, instance="kv#1", stream="stderr"),
                log("was killed", ts=2.0, instance="kv#1", stream="host"),
            ]
        assert frame["input"]["op"] == "restart"
        if args["module"] == "kv":
            return [not_ok("unreachable", "no such program")]
        return [ok(module(args["module"]))]


def test_it_shows_modules_and_rates_until_q_and_gives_the_terminal_back(
    serve: Serve, socket_path: Path
) -> None:
    serve(Counting("dice", "kv"))
    with Terminal(socket_path, *FAST) as terminal:
        terminal.shows("dice", "kv", "ready", "2 modules: 2 ready; 10.0 calls/s", "████")
        assert not terminal.is_given_back()
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert terminal.is_given_back()
        assert b"Traceback" not in terminal.output


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM],
    ids=lambda number: number.name,
)
def test_a_signal_that_ends_it_gives_the_terminal_back_first(
    serve: Serve, socket_path: Path, number: signal.Signals
) -> None:
    serve(Counting())
    with Terminal(socket_path) as terminal:
        terminal.shows("dice")
        terminal.process.send_signal(number)
        assert terminal.ended() == -number
        assert terminal.is_given_back()


def test_ctrl_c_gives_the_terminal_back_and_is_130(serve: Serve, socket_path: Path) -> None:
    serve(Counting())
    with Terminal(socket_path) as terminal:
        terminal.shows("dice")
        terminal.type(b"\x03")
        assert terminal.ended() == 130
        assert terminal.is_given_back()


def test_ctrl_z_gives_the_terminal_back_and_it_is_taken_over_again_afterwards(
    serve: Serve, socket_path: Path
) -> None:
    serve(Counting())
    with Terminal(socket_path) as terminal:
        terminal.shows("dice")
        # Nobody could wake the leader of a session, so the kernel does not really stop it.
        terminal.type(b"\x1a")
        terminal.writes(ENTER, LEAVE, ENTER, b"dice")
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.writes(ENTER, LEAVE, ENTER, LEAVE, ENTER, b"dice")
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert terminal.is_given_back()


def test_a_bug_gives_the_terminal_back_and_is_told_on_the_screen_that_was_there(
    serve: Serve, socket_path: Path
) -> None:
    numbers = itertools.count()
    strange = [ok(status(module())), ok({"no": "status"})]
    serve(lambda frame: [strange[min(next(numbers), 1)]])
    with Terminal(socket_path, *FAST) as terminal:
        assert terminal.ended() == 70
        assert terminal.is_given_back()
        assert b"this is a bug in stdiod" in terminal.output.partition(b"\x1b[?1049l")[2]


def test_a_terminal_that_is_closed_ends_it(serve: Serve, socket_path: Path) -> None:
    serve(Counting())
    with Terminal(socket_path) as terminal:
        terminal.shows("dice")
        terminal.close()
        assert terminal.process.wait(60) == -signal.SIGHUP


def test_a_new_size_is_drawn_at_once(serve: Serve, socket_path: Path) -> None:
    serve(Counting("dice"))
    with Terminal(socket_path, "--interval", "1000") as terminal:
        terminal.shows("RESTARTS", "every 1000 s")
        terminal.resize(30, 8)
        terminal.shows("CALLS/S", without="RESTARTS")
        terminal.type(b"q")
        assert terminal.ended() == 0


def test_keys_sort_choose_and_scroll(serve: Serve, socket_path: Path) -> None:
    serve(Counting(*(f"m{number:02}" for number in range(40))))
    with Terminal(socket_path, "--interval", "1000") as terminal:
        terminal.shows("1-19 of 40", "> m00", "m18")
        terminal.type(b"\x1b[B")
        terminal.shows("> m01")
        terminal.type(b"\x1b[6~")
        terminal.shows("> m20", "3-21 of 40")
        terminal.type(b"G")
        terminal.shows("22-40 of 40", "> m39")
        terminal.type(b"s")
        terminal.shows("s sort: name")
        terminal.type(b"q")
        assert terminal.ended() == 0


def test_a_key_restarts_the_chosen_module_once_it_is_confirmed(
    serve: Serve, socket_path: Path
) -> None:
    daemon = serve(Counting("dice", "kv"))
    with Terminal(socket_path, "--interval", "1000") as terminal:
        terminal.shows("> dice")
        terminal.type(b"r")
        terminal.shows("restart dice? y: yes, any other key: no")
        terminal.type(b"n")
        terminal.shows("> dice", without="restart dice?")
        assert [one["input"]["op"] for one in daemon.frames] == ["status"]
        terminal.type(b"ry")
        terminal.shows("dice is restarted")
        terminal.type(b"jry")
        terminal.shows("kv is not ready: no such program")
        asked = [one["input"] for one in daemon.frames[1:]]
        assert [(one["op"], one["args"]["module"]) for one in asked] == [
            ("restart", "dice"),
            ("restart", "kv"),
        ]
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert terminal.is_given_back()


@pytest.mark.parametrize(
    "environment", [{}, {"NO_COLOR": "1", "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}]
)
def test_a_key_shows_the_log_of_the_chosen_module_on_the_smallest_terminal_too(
    serve: Serve, socket_path: Path, environment: dict[str, str]
) -> None:
    serve(Counting("dice", "kv"))
    with Terminal(socket_path, "--interval", "1000", **environment) as terminal:
        terminal.resize(40, 8)
        terminal.shows("s sort: trouble r restart l logs q quit")
        terminal.type(b"jl")
        terminal.shows("log of kv", "kv#1 a cow", "kv#1 was killed", "q back")
        terminal.type(b"q")
        terminal.shows("> kv")
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert terminal.is_given_back()


def test_a_daemon_that_is_not_there_to_begin_with_is_no_reason_for_a_screen(
    socket_path: Path,
) -> None:
    with Terminal(socket_path, *FAST) as terminal:
        assert terminal.ended() == 3
        assert b"no daemon listens" in terminal.output
        assert b"\x1b[?1049h" not in terminal.output


def test_a_daemon_that_goes_away_is_told_of_and_found_again(socket_path: Path) -> None:
    with serving(socket_path, Counting()) as daemon, Terminal(socket_path, *FAST) as terminal:
        terminal.shows("5.00 calls/s")
        daemon.close_after_reply = True
        terminal.shows("the daemon closed the connection")
        assert terminal.process.poll() is None
        daemon.close_after_reply = False
        terminal.shows("5.00 calls/s", without="closed the connection")
        terminal.type(b"q")
        assert terminal.ended() == 0


def test_another_daemon_on_the_socket_is_taken_up(socket_path: Path) -> None:
    with contextlib.ExitStack() as first:
        daemon = first.enter_context(serving(socket_path, Counting(pid=98)))
        with Terminal(socket_path, *FAST) as terminal:
            terminal.shows("pid 98")
            daemon.close_after_reply = True
            first.close()
            terminal.shows("trying again every 0.05 s: no daemon listens")
            socket_path.unlink()
            with serving(socket_path, Counting("blobs", pid=99)):
                terminal.shows("pid 99", "blobs")
                terminal.type(b"q")
                assert terminal.ended() == 0
                assert terminal.is_given_back()


def test_a_daemon_that_refuses_later_is_quoted(serve: Serve, socket_path: Path) -> None:
    counting, numbers = Counting(), itertools.count()

    def script(frame: Frame) -> list[Reply]:
        if next(numbers) == 0:
            return counting(frame)
        return [not_ok("unreachable", "the daemon is shutting down")]

    serve(script)
    with Terminal(socket_path, *FAST) as terminal:
        terminal.shows("the daemon answers: the daemon is shutting down", "dice")
        terminal.type(b"q")
        assert terminal.ended() == 0


def test_a_daemon_that_answers_no_more_is_told_of_and_keys_go_on(
    serve: Serve, socket_path: Path
) -> None:
    counting, numbers = Counting(), itertools.count()
    serve(lambda frame: counting(frame) if next(numbers) < 2 else [])
    with Terminal(socket_path, *FAST) as terminal:
        terminal.shows("the daemon has not answered for", "5.00 calls/s")
        terminal.type(b"s")
        terminal.shows("s sort: name")
        terminal.type(b"q")
        assert terminal.ended() == 0


def test_a_terminal_that_takes_nothing_holds_nobody_up(serve: Serve, socket_path: Path) -> None:
    serve(Counting())
    with Terminal(socket_path, *FAST) as terminal:
        terminal.shows("dice")
        terminal.block()
        terminal.process.terminate()
        assert terminal.process.wait(60) == -signal.SIGTERM
        assert terminal.has_its_settings()


def test_no_colour_is_shown_where_none_is_wanted(serve: Serve, socket_path: Path) -> None:
    serve(Counting())
    with Terminal(socket_path, *FAST, NO_COLOR="1") as terminal:
        terminal.shows("dice", "ready", "5.00 calls/s")
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert not re.search(rb"\x1b\[[1-9][0-9;]*m", terminal.output)


def test_a_terminal_without_utf_8_has_bars_it_can_show(serve: Serve, socket_path: Path) -> None:
    serve(Counting())
    with Terminal(socket_path, *FAST, PYTHONIOENCODING="ascii") as terminal:
        terminal.shows("dice", "####")
        terminal.type(b"q")
        assert terminal.ended() == 0
