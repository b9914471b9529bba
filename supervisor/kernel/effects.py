"""The services of one daemon that requests and their events use, restored and kept together."""

from __future__ import annotations

import msgspec

from supervisor.kernel.assets.registry import KIND as ASSET
from supervisor.kernel.assets.registry import Assets
from supervisor.kernel.descriptions import KeptNotes, RememberedDescriptions
from supervisor.kernel.durability import Durability
from supervisor.kernel.grants.grants import Answers
from supervisor.kernel.parties import Lineage
from supervisor.kernel.recorder import Recorder, Restored
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

    async def restore(self, restored: Restored | None, *, complete: bool) -> None:
        """Take over what the daemon before this one kept; `complete` if that is all of it."""
        if restored is None:
            await self.assets.restore((), complete=complete)
            return
        self.sessions.restore(restored)
        self.answers.restore(restored)
        self.tokens.restore(restored)
        self.descriptions.restore(restored)
        self.notes.restore(restored)
        bodies = [one.body for one in restored.documents(ASSET)]
        await self.assets.restore(bodies, complete=complete)

    def keep_all(self) -> None:
        """Keep everything anew after what was kept is lost, such as with a damaged file."""
        self.sessions.keep_all()
        self.assets.keep_all()
        self.answers.keep_all()
        self.tokens.keep_all()
        self.descriptions.keep_all()
        self.notes.keep_all()
