"""The followers of modules' resources, which are told when the module reports a change.

    the first follower     the module is asked `resources/subscribe`, in the principal's name
    a process starts       is asked the same; followers are told: it may have changed meanwhile
    the last one leaves    `resources/unsubscribe`

A module without these ops reports changes unasked. An MCP server without them reports nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import trio

from protocol.errors import Failure, Outcome, Reason
from supervisor.kernel.catalogue import Catalogue
from supervisor.kernel.parties import Handle, Invoke, OutcomeOnly, RefusedError, or_refused
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped

SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"

FOLLOWED = 4096
"""Resources that one principal may follow; each is an open request."""

ALL_FOLLOWED = 16_384

URI_CHARS = 2048
"""The bound on a followed URI. A longer one that a module reports is matched by its beginning."""

GONE = Stopped(Reason.DISCONNECT, "whoever wanted to follow a resource does not any more")

Updated = Callable[[str], None]
"""Takes the URI of the change: the followed one, or one below it."""


class ResourceFollower(msgspec.Struct, eq=False):
    module: str
    uri: str
    principal: Principal
    told: Updated


class ResourceUpdates:
    def __init__(self, catalogue: Catalogue, invoke: Invoke) -> None:
        self._catalogue = catalogue
        self._invoke = invoke
        self._followers: dict[str, dict[str, list[ResourceFollower]]] = {}
        """By module and URI; only those that the module knows of."""
        self._count: Counter[str] = Counter()
        """By the name of the principal."""

    async def follow(self, follower: ResourceFollower) -> None:
        """Begin to follow; `leave` ends it.

        Raises `RefusedError`, also if the module has no such op.
        """
        name = follower.principal.name
        if self._count[name] >= FOLLOWED or self._count.total() >= ALL_FOLLOWED:
            words = f"{FOLLOWED} resources are what one may follow, and {ALL_FOLLOWED} all together"
            raise RefusedError.because(Reason.LIMIT_REACHED, words)
        self._count[name] += 1
        try:
            if self._is_to_be_asked(follower):
                await self._ask(follower)
            else:
                self._add(follower)
        # A cancelled one too: a failed follower is not counted, and the error goes on.
        except BaseException:
            self._discount(follower)
            raise

    def leave(self, follower: ResourceFollower) -> None:
        self._discount(follower)
        of_module = self._followers.get(follower.module, {})
        followers = of_module.get(follower.uri, [])
        followers.remove(follower)
        if followers:
            return
        del of_module[follower.uri]
        if not of_module:
            self._followers.pop(follower.module, None)
        # One that is down, or on its way there, has forgotten it, and is not to be started for it.
        if self._has_op(follower.module) and self._catalogue.serves(follower.module):
            self._begin(follower, UNSUBSCRIBE, _ignore)

    # Called by the fleet's observer.

    def updated(self, module: str, uri: str) -> None:
        """Tell the followers of a resource, and of those above it."""
        of_module = self._followers.get(module)
        if of_module:
            for one in _with_those_above(uri):
                for follower in of_module.get(one, ()):
                    follower.told(uri)

    def began(self, module: str) -> None:
        """Ask a process that begins to serve for the resources that its module is followed for."""
        for uri, followers in self._followers.get(module, {}).items():
            if self._has_op(module):
                self._begin(followers[0], SUBSCRIBE, _ignore)
            for follower in followers:
                follower.told(uri)

    def _is_to_be_asked(self, follower: ResourceFollower) -> bool:
        module, principal = follower.module, follower.principal
        if self._has_op(module):
            return True
        if "mcp" in self._catalogue.said(module):
            words = f"{module} does not tell when a resource changes: it has no {SUBSCRIBE}"
            raise RefusedError.because(Reason.UNKNOWN_OP, words)
        if not principal.covers(module, "resources/read"):
            words = f"{principal.name} may not read the resources of {module}"
            raise RefusedError.because(Reason.SCOPE, words)
        return False

    def _has_op(self, module: str) -> bool:
        return SUBSCRIBE in self._catalogue.said(module).get("inputs", ())

    def _add(self, follower: ResourceFollower) -> None:
        of_module = self._followers.setdefault(follower.module, {})
        of_module.setdefault(follower.uri, []).append(follower)

    def _discount(self, follower: ResourceFollower) -> None:
        name = follower.principal.name
        self._count[name] -= 1
        if not self._count[name]:
            del self._count[name]

    async def _ask(self, follower: ResourceFollower) -> None:
        found: Outcome | None = None
        answered = trio.Event()

        def take(outcome: Outcome) -> None:
            nonlocal found
            found = outcome
            if not isinstance(outcome, Failure):
                self._add(follower)  # at once: the next line may be an update
            answered.set()

        asked = self._begin(follower, SUBSCRIBE, take)
        try:
            await answered.wait()
        finally:
            if asked is not None and found is None:
                asked.cancel(GONE)
        or_refused(found)

    def _begin(
        self, follower: ResourceFollower, op: str, take: Callable[[Outcome], None]
    ) -> Handle | None:
        client = OutcomeOnly(lambda response: take(response.outcome))
        content = {"op": op, "args": {"uri": follower.uri}}
        return self._invoke(follower.principal, follower.module, content, client)


def _ignore(outcome: Outcome) -> None:
    del outcome


def _with_those_above(uri: str) -> Iterator[str]:
    """Yield a URI, and those of which it may be a part: each up to a slash, with and without it."""
    yield uri
    end = min(len(uri), URI_CHARS)
    while (end := uri.rfind("/", 0, end)) > 0:
        if end + 1 < len(uri):
            yield uri[: end + 1]
        yield uri[:end]
