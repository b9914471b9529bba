"""What an event of a module does on its way to the client."""

from __future__ import annotations

from collections.abc import Callable

from protocol.connection import HostCalled, Notice
from protocol.errors import Outcome
from protocol.events import CallEvent, Progress, StatePatch, StatePatched, UiEvent
from supervisor.kernel.assets.intake import AssetIntake
from supervisor.kernel.effects import Effects
from supervisor.kernel.origin import Origin
from supervisor.kernel.sessions.session import Session
from supervisor.runtime.call import Call, Congestion, Listener
from supervisor.runtime.dialogue import Dialogue


def take_effect(
    event: Progress,
    session: Session | None,
    effects: Effects,
    origin: Origin,
    warn: Callable[[Notice], None],
) -> Progress | None:
    """Have an event take effect; return what of it the client is told, None if it is refused."""
    match event:
        case UiEvent() if not effects.ui.is_plain(event):
            return effects.ui.pass_on(event, origin)
        case StatePatch() if session is not None:
            return _patched(event, session, effects, origin, warn)
    return event


def _patched(
    event: StatePatch,
    session: Session,
    effects: Effects,
    origin: Origin,
    warn: Callable[[Notice], None],
) -> StatePatched | None:
    """Merge a patch into the session's state; None if it is refused."""
    refusal = effects.sessions.patch(session, event.patch, origin)
    if refusal is not None:
        warn(Notice("patch_refused", refusal.message))
        return None
    return StatePatched(
        version=event.version,
        timestamp=event.timestamp,
        patch=event.patch,
        revision=session.kept.revision,
    )


class InTurn:
    """The listener of a call that has assets: its events wait for those."""

    def __init__(self, listener: Listener, intake: AssetIntake) -> None:
        self._listener = listener
        self._intake = intake

    def event(self, event: CallEvent, call: Call, line: bytes | None) -> None:
        """Pass an event on in its turn."""
        del call
        self._intake.put(event, line)

    def host_call(self, asked: HostCalled, dialogue: Dialogue, call: Call) -> None:
        """Have it served: it waits for no asset."""
        self._listener.host_call(asked, dialogue, call)

    def settled(self, outcome: Outcome, call: Call) -> None:
        """Have the listener respond in its turn."""
        self._listener.settled(outcome, call)

    def congested(self) -> Congestion:
        """Whether too much waits, here or for the client."""
        return max(self._intake.congestion, self._listener.congested())
