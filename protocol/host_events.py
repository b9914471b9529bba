"""Events as the host passes them on: those of `protocol.events`, with the host's additions.

These are only written, never read: a module's own fields of these names are dropped, and do not get
to a client even where other fields that Spec 001 does not know do (`extended_event`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType, structs

from protocol.events import Asset, StatePatch, StatePatched, UiEvent


class Registration(Struct, frozen=True, omit_defaults=True):
    """The daemon's record of a file: its own `id`, size, and digest once there is one."""

    id: str
    bytes: int
    sha256: str | None = None
    supported: bool = True
    placeholder: str | UnsetType = UNSET


class RegisteredAsset(Asset, tag="asset", frozen=True, kw_only=True):
    registered: Registration

    def unregistered(self) -> Asset:
        """Return the event without the record."""
        fields = structs.asdict(self)
        del fields["registered"]
        return Asset(**fields)


class PlaceholderUiEvent(UiEvent, tag="ui_event", frozen=True, kw_only=True):
    placeholder: str


class SeenUiEvent(UiEvent, tag="ui_event", frozen=True, kw_only=True):
    origin: dict[str, Any]
    placeholder: str | UnsetType = UNSET
    by_host: Literal[True] | UnsetType = UNSET


class HostUiEvent(UiEvent, tag="ui_event", frozen=True, kw_only=True):
    """A `ui_event` of the host itself: about a session, a prompt, a call."""

    by_host: Literal[True] = True


class ApprovalUiEvent(UiEvent, tag="ui_event", frozen=True, kw_only=True):
    """A `ui_event` about a question of the host; `approval` is the question's id.

    A module cannot print one, so no user can be made to answer another question than the one on his
    screen.
    """

    approval: str


_ADDED_TO: Final[dict[type[Struct], type[Struct]]] = {
    StatePatched: StatePatch,
    RegisteredAsset: Asset,
    PlaceholderUiEvent: UiEvent,
    SeenUiEvent: UiEvent,
    HostUiEvent: UiEvent,
    ApprovalUiEvent: UiEvent,
}

HOST_FIELDS: Final = frozenset(
    name
    for event, base in _ADDED_TO.items()
    for name in set(event.__struct_encode_fields__) - set(base.__struct_encode_fields__)
)
