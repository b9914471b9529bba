"""The op `ui.subscribe`: the `ui_event`s of all invocations that a principal may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from protocol.errors import Reason
from protocol.problem import quoted
from supervisor.kernel.operations.op import Args, ModuleName, OwnRequest, Word, op
from supervisor.kernel.parties import RefusedError, or_refused
from supervisor.kernel.ui_events import NAME_CHARS, Subscription
from supervisor.policy.principals import Scope

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

PATTERNS = 32
"""Names, or beginnings of names, in one subscription."""

WATCHING = "watching for ui events"


class UiSubscribeArgs(Args):
    events: Annotated[
        tuple[Annotated[str, Meta(max_length=NAME_CHARS)], ...],
        Meta(min_length=1, max_length=PATTERNS),
        "names; one that ends in * is each that begins so",
    ] = ("*",)
    session_id: Word | None = None
    module: ModuleName | None = None


@op("ui.subscribe", Scope.READ, UiSubscribeArgs)
async def subscribe(kernel: Kernel, args: UiSubscribeArgs, request: OwnRequest) -> None:
    for index, one in enumerate(args.events):
        if "*" in one[:-1]:
            words = f"{quoted(one)} has a `*` that is not its end: say a name, what it begins"
            words += " with (`tool.*`), or `*` for each"
            raise RefusedError.because(Reason.INVALID_ARGS, words, pointer=f"/events/{index}")
    if args.session_id is not None:
        or_refused(kernel.sessions.find_live(args.session_id, request.principal))
    subscription = Subscription(
        request.principal, args.events, args.session_id, args.module, request.party.label
    )
    ui = kernel.effects.ui
    unsubscribe = ui.subscribe(subscription)
    try:
        # So that a client knows from when on it misses nothing.
        await request.say(WATCHING)
        while True:  # until it is cancelled
            await request.emit(await ui.next(subscription))
    finally:
        unsubscribe()
