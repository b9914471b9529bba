"""Ops about what modules offer: `offers`, and `resource.follow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import trio
from msgspec import Meta

from protocol.connection import Notified
from protocol.frames import encode
from supervisor.kernel.operations.op import Args, OfModule, OwnRequest, Word, op, seen_module
from supervisor.kernel.resource_updates import URI_CHARS, ResourceFollower
from supervisor.policy.principals import Scope

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

NOTIFICATIONS, NOTIFIED_BYTES = 256, 1 << 20
"""Notifications of extensions that may wait for a client; more are left out."""

BELOW = 256
"""Resources below a followed one that may wait for a client; some of more are left out."""

LOOKED_AT = 256
"""Servers that are asked at a time whether they have more."""

FOLLOWING = "following a resource"


class OffersArgs(Args):
    follow: Annotated[bool, "report each change, instead of the offers themselves"] = False
    notifications: Annotated[bool, "with `follow`, report notifications of MCP extensions, too"] = (
        False
    )
    wait: Annotated[bool, "wait for modules that are starting, and of which nothing is known"] = (
        True
    )
    look_again: Annotated[
        tuple[Word, ...],
        Meta(max_length=LOOKED_AT),
        "MCP servers that are asked before whether they have more by now",
    ] = ()
    detail: Annotated[
        bool,
        "tell of each whether it `serves`, and the `ops` that are covered;"
        " disabled modules come, too",
    ] = False
    known: Annotated[int | None, "a `version`: while it is still that, `modules` is left out"] = (
        None
    )


@op("offers", Scope.READ, OffersArgs)
async def offers(kernel: Kernel, args: OffersArgs, request: OwnRequest) -> Any:
    catalogue, principal = kernel.catalogue, request.principal
    if args.follow:
        await _follow_offers(kernel, request, notifications=args.notifications)
    if args.wait:
        await catalogue.wait_known(principal)
    await catalogue.look_again(principal, args.look_again)
    version = catalogue.version  # what changes while it is told is told of as a change
    if version == args.known:
        return {"version": version}
    offering = catalogue.offering(principal, detail=args.detail)
    told = (one and msgspec.Raw(encode(one)) for one in offering)
    found = kernel.long_answers.gather(told, {"version": version}, request.party)
    return found if isinstance(found, dict) else await found


async def _follow_offers(kernel: Kernel, request: OwnRequest, *, notifications: bool) -> None:
    some, is_changed = trio.Event(), False
    waiting: list[tuple[str, Notified]] = []

    def tell() -> None:
        nonlocal is_changed
        is_changed = True
        some.set()

    def notified(module: str, told: Notified) -> None:
        if not notifications or len(waiting) >= NOTIFICATIONS:
            return
        size = sum(one.size_bytes for _, one in waiting) + told.size_bytes
        if size <= NOTIFIED_BYTES and request.principal.sees(module):
            waiting.append((module, told))
            some.set()

    unfollow = kernel.catalogue.follow(tell, notified)
    try:
        while True:  # until it is cancelled
            await some.wait()
            some = trio.Event()
            if is_changed:
                is_changed, changed = False, {"version": kernel.catalogue.version}
                await request.say("what modules offer has changed", changed)
            told, waiting = waiting, []
            for module, one in told:
                fields = {"module": module, "method": one.method, "params": one.params}
                await request.say("a notification of an extension", fields)
    finally:
        unfollow()


class ResourceArgs(OfModule):
    uri: Annotated[str, Meta(min_length=1, max_length=URI_CHARS)]


@op("resource.follow", Scope.READ, ResourceArgs)
async def follow_resource(kernel: Kernel, args: ResourceArgs, request: OwnRequest) -> None:
    module = seen_module(kernel, args.module, request.principal)
    changed: dict[str, None] = {}
    some = trio.Event()

    def tell(uri: str) -> None:
        if len(changed) < BELOW:
            changed[uri] = None
        some.set()

    follower = ResourceFollower(module.name, args.uri, request.principal, tell)
    await kernel.updates.follow(follower)
    try:
        await request.say(FOLLOWING)
        while True:  # until it is cancelled
            await some.wait()
            some = trio.Event()
            told = list(changed)
            changed.clear()
            for uri in told:
                await request.say("a resource has changed", {"uri": uri})
    finally:
        kernel.updates.leave(follower)
