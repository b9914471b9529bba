"""The services of one daemon that requests and their events use."""

from __future__ import annotations

import msgspec

from supervisor.kernel.assets.registry import Assets
from supervisor.kernel.descriptions import KeptNotes, RememberedDescriptions
from supervisor.kernel.durability import Durability
from supervisor.kernel.grants.grants import Answers
from supervisor.kernel.parties import Lineage
from supervisor.kernel.recorder import Recorder
from supervisor.kernel.sessions.registry import Sessions
from supervisor.kernel.tokens import Tokens
from supervisor.kernel.ui_events import UiEvents


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    recorder: Recorder
    durability: Durability
    sessions: Sessions
    assets: Assets
    ui: UiEvents
    answers: Answers
    tokens: Tokens
    descriptions: RememberedDescriptions
    notes: KeptNotes
    lineage: Lineage
    with_sessions: bool = True
    """If not, an id of a session is passed on to the module, and means nothing here."""
