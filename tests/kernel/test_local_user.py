from __future__ import annotations

import os
import pwd
import socket
import threading
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from supervisor.kernel import local_user
from supervisor.kernel.local_user import LocalClients, named_user, peer_of, this_user, user_name
from supervisor.kernel.parties import RefusedError
from supervisor.policy.principals import Principal
from supervisor.runtime.containment.process_registry import WHOSE_AT_ONCE, WHOSE_S, ProcessRegistry
from supervisor.runtime.threads import Threads

NOBODYS = 4_000_000_000
"""A uid without a name."""


def test_a_user_without_a_name_is_a_number() -> None:
    assert user_name(0) == "root"
    assert user_name(NOBODYS) == str(NOBODYS)


def test_this_user_may_do_everything() -> None:
    user = this_user("stdio")
    assert user == Principal(pwd.getpwuid(os.geteuid()).pw_name, "stdio")
    assert user.is_full


async def test_a_name_is_asked_for_beside_the_loop_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def slow(uid: int) -> str:
        asked.append(threading.current_thread() is threading.main_thread())
        return f"user {uid}"

    monkeypatch.setattr(local_user, "_names", {})
    monkeypatch.setattr(local_user, "user_name", slow)
    ours, theirs = socket.socketpair()
    threads = Threads()
    with trio.socket.from_stdlib_socket(ours) as client, theirs:
        for _ in range(3):
            assert (
                await named_user(peer_of(client)[0], "socket", threads)
            ).name == f"user {os.geteuid()}"
    assert asked == [False]


async def test_a_client_of_which_it_is_not_known_in_time_what_it_is_has_to_try_again(
    mock_clock: MockClock,
) -> None:
    held = ProcessRegistry.bare()
    clients = LocalClients(held, modules_are_users=False)
    goes_on = threading.Event()
    looking = partial(
        held.threads.run,
        "looking whose processes clients are",
        goes_on.wait,
        at_once=WHOSE_AT_ONCE,
    )

    async def connect() -> None:
        with pytest.raises(RefusedError) as refused:
            await clients.party(os.geteuid(), os.getpid(), "socket")
        assert refused.value.failure.details["reason"] == "queue_full"
        goes_on.set()

    async with trio.open_nursery() as nursery:
        for _ in range(WHOSE_AT_ONCE):
            nursery.start_soon(looking)
        await wait_all_tasks_blocked()
        nursery.start_soon(connect)
        await wait_all_tasks_blocked()
        mock_clock.jump(WHOSE_S)
    assert (await clients.party(os.geteuid(), os.getpid(), "socket")).principal.is_full


async def test_a_directory_that_does_not_answer_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, asked = threading.Event(), []

    def hanging(uid: int) -> str:
        asked.append(uid)
        answers.wait()
        return f"user {uid}"

    monkeypatch.setattr(local_user, "_names", {})
    monkeypatch.setattr(local_user, "NAME_S", 0.01)
    monkeypatch.setattr(local_user, "user_name", hanging)
    threads = Threads()
    try:
        while not asked:  # a thread that has not begun in time asks nobody
            assert (await named_user(7, "socket", threads)).name == "7"
        for _ in range(3):
            assert (await named_user(7, "socket", threads)).name == "7"
        assert asked == [7]  # nor does each client take a thread
    finally:
        answers.set()
