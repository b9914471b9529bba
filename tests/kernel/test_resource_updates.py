"""Resources that clients follow: who is told of a change, and what the module is asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio import testing

from protocol.descriptor.model import Descriptor
from protocol.events import Log
from supervisor.kernel.kernel import Congestion, Kernel, Party
from supervisor.kernel.operations.offers import BELOW
from supervisor.kernel.resource_updates import URI_CHARS
from supervisor.policy.principals import Principal, Scope
from tests.factories import PYTHON, descriptor
from tests.kernel.conftest import GONE, Asker, ask, daemon_with, own, run_op
from tests.principals import ADA

PROGRAM = str(Path(__file__).with_name("resources.py"))
QUICK = {"backoff": {"initial_s": 0.01}}
MAX = Principal("max", "test")


def library(folder: Path, *flags: str, **supervision: Any) -> Descriptor:
    made = {"concurrency": 8, **supervision}
    return descriptor(folder, [*PYTHON, PROGRAM, *flags], supervision=made)


class Follower(Asker):
    """A client that follows a resource of the module."""

    def __init__(self, daemon: Kernel, uri: str, principal: Principal = ADA) -> None:
        super().__init__()
        content = {"op": "resource.follow", "args": {"module": "m", "uri": uri}}
        self.handle = daemon.begin(Party(principal), "supervisor", "invoke", content, self)

    def leave(self) -> None:
        assert self.handle is not None
        self.handle.cancel(GONE)

    @property
    def told(self) -> list[str]:
        told = [one.fields for one in self.events[1:] if isinstance(one, Log)]
        return [str(fields["uri"]) for fields in told if isinstance(fields, dict)]


async def followed(daemon: Kernel, uri: str, principal: Principal = ADA) -> Follower:
    follower = Follower(daemon, uri, principal)
    await follower.heard(1)
    [first] = follower.events
    assert isinstance(first, Log)
    assert first.message == "following a resource"
    return follower


async def changed(daemon: Kernel, *uris: str) -> None:
    assert (await ask(daemon, "m", "change", args={"uris": list(uris)}).response()).ok
    await testing.wait_all_tasks_blocked()


async def asked(daemon: Kernel) -> list[str]:
    """Return what the module was asked, in order."""
    lines: list[str] = []

    async def take(event: Any) -> None:
        if event.fields["stream"] == "stderr":
            lines.append(event.message.replace("resources/", ""))

    await run_op(daemon, "logs", {"module": "m"}, take)
    return lines


async def comes_to_be_asked(daemon: Kernel, *lines: str) -> None:
    while (found := await asked(daemon)) != [*lines]:
        assert len(found) <= len(lines), found
        await trio.lowlevel.checkpoint()


async def test_who_follows_is_told_of_a_change_and_of_what_is_below(tmp_path: Path) -> None:
    long = "a://b/" + "x" * (URI_CHARS - 7)
    uris = ["a://b/c/d", "a://b/c", "a://b/c/", "a://b/", "a://b", "a:", "a://b/x", "b", long]
    async with daemon_with(tmp_path, library(tmp_path)) as daemon:
        followers = {uri: await followed(daemon, uri) for uri in uris}

        async def told(uri: str) -> list[str]:
            for one in followers.values():
                del one.events[1:]
            await changed(daemon, uri)
            assert all(one.told in ([], [uri]) for one in followers.values())
            return [of for of, one in followers.items() if one.told]

        assert await told("a://b/c/d") == uris[:6]
        assert await told("a://b/c/") == ["a://b/c", "a://b/c/", "a://b/", "a://b", "a:"]
        assert await told("a://b/c") == ["a://b/c", "a://b/", "a://b", "a:"]
        assert await told("a://bc") == ["a:"]
        assert await told("c/b") == []
        assert await told("/b") == []
        assert await told(f"{long}/y") == ["a://b/", "a://b", "a:", long]
        followers["a://b"].leave()
        await followers["a://b"].response()
        del followers["a://b"]
        assert await told("a://b/x") == ["a://b/", "a:", "a://b/x"]
        assert await asked(daemon) == []


async def test_of_a_slow_reader_256_changed_resources_wait_each_once(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, library(tmp_path)) as daemon:
        follower = await followed(daemon, "a")
        assert follower.handle is not None
        follower.slow = Congestion.SLOW
        await changed(daemon, "a")
        more = [f"a/{number}" for number in range(BELOW + 1)]
        await changed(daemon, *more[:2], "a", more[0], *more[2:], "a")
        assert follower.told == []
        follower.slow = Congestion.NONE
        follower.handle.resume()
        waited = [*more[:2], "a", *more[2:-2]]
        await follower.heard(2 + len(waited))
        await changed(daemon, more[-1])
        assert follower.told == ["a", *waited, more[-1]]


async def test_a_module_is_asked_for_each_follower_and_again_by_a_new_process(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, library(tmp_path, "asked", **QUICK)) as daemon:
        first, second = await followed(daemon, "a"), await followed(daemon, "a", MAX)
        other = await followed(daemon, "b")
        before = ["subscribe a", "subscribe a", "subscribe b"]
        await comes_to_be_asked(daemon, *before)
        await ask(daemon, "m", "exit").response()
        await comes_to_be_asked(daemon, *before, "subscribe a", "subscribe b")
        for one, uri in ((first, "a"), (second, "a"), (other, "b")):
            await one.heard(2)
            assert one.told == [uri]
        await changed(daemon, "a")
        assert (first.told, second.told, other.told) == (["a", "a"], ["a", "a"], ["b"])
        first.leave()
        await first.response()
        await changed(daemon, "a")
        assert second.told == ["a", "a", "a"]
        second.leave()
        again = [*before, "subscribe a", "subscribe b", "unsubscribe a"]
        await comes_to_be_asked(daemon, *again)
        await own(daemon, ADA, "stop", module="m")
        other.leave()
        await other.response()
        assert (await own(daemon, ADA, "status", module="m"))["state"] == "down"
        assert await asked(daemon) == again


async def test_one_that_is_given_up_while_the_module_is_asked_is_cancelled_there(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, library(tmp_path, "asked")) as daemon:
        follower = Follower(daemon, "mute")
        await comes_to_be_asked(daemon, "subscribe mute")
        assert not follower.events
        follower.leave()
        await comes_to_be_asked(daemon, "subscribe mute", "cancel")
        assert follower.events == []
        await changed(daemon, "mute")


SOME = Principal("max", "test", frozenset({Scope.READ, Scope.INVOKE}), ("m.change",))


SCOPE = ("forbidden", "scope")
NOT_READ = "max may not read the resources of m"
NOT_ASKED = "max may not use m.resources/subscribe; what it may use is m.change"
NOT_TOLD = "m does not tell when a resource changes: it has no resources/subscribe"


@pytest.mark.parametrize(
    ("flag", "uri", "principal", "refusal"),
    [
        ("mcp", "a", ADA, ("unsupported_op", "unknown_op", NOT_TOLD)),
        ("plain", "a", SOME, (*SCOPE, NOT_READ)),
        ("asked", "a", SOME, (*SCOPE, NOT_ASKED)),
        ("asked", "bad", ADA, ("no", None, "not that one")),
    ],
)
async def test_what_cannot_be_followed_is_refused(
    flag: str, uri: str, principal: Principal, refusal: tuple[str | None, ...], tmp_path: Path
) -> None:
    async with daemon_with(tmp_path, library(tmp_path, flag)) as daemon:
        found = (await Follower(daemon, uri, principal).document())["error"]
        assert (found["code"], found["details"].get("reason"), found["message"]) == refusal
        await changed(daemon, uri)
