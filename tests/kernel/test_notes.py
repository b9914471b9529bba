"""What was found out about programs outlives the daemon, and what cannot be read does not harm."""

from __future__ import annotations

from typing import Any

from supervisor.kernel.descriptions import NOTE, NOTES_KEPT, KeptNotes
from supervisor.kernel.recorder import Recorder, Restored, RestoredDocument


class Keeping(Recorder):
    """A recorder that remembers documents."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def keep(self, kind: str, name: str, document: Any, revision: int = 0) -> None:
        assert kind == NOTE
        del revision
        self.kept.pop(name, None)
        if document is not None:
            self.kept[name] = document

    def restored(self) -> Restored:
        return Restored({NOTE: [RestoredDocument(n, 0, b) for n, b in self.kept.items()]})


def test_a_note_is_found_by_the_daemon_that_follows_until_it_is_forgotten() -> None:
    recorder = Keeping()
    notes = KeptNotes(recorder)
    notes.put("a", {"n": 1})
    notes.put("b", {"n": 2})
    notes.put("a", {"n": 3})
    notes.put("b", None)
    notes.put("never there", None)
    recorder.kept["bad"] = b"[]"
    recorder.kept["worse"] = b"\xff"
    second = KeptNotes(recorder)
    second.restore(recorder.restored())
    assert second.find("a") == {"n": 3}
    assert [second.find(one) for one in ("b", "bad", "worse")] == [None] * 3


def test_the_oldest_are_forgotten_beyond_the_bound() -> None:
    recorder = Keeping()
    notes = KeptNotes(recorder)
    for number in range(NOTES_KEPT + 1):
        notes.put(str(number), {})
    assert notes.find("0") is None
    assert notes.find("1") == {}
    assert len(recorder.kept) == NOTES_KEPT


def test_all_are_kept_anew_when_the_journal_was_lost() -> None:
    recorder = Keeping()
    notes = KeptNotes(recorder)
    notes.put("a", {"n": 1})
    recorder.kept.clear()
    notes.keep_all()
    assert recorder.kept == {"a": b'{"n":1}'}
