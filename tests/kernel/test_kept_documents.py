"""Documents of one kind: found again by the next daemon, bounded, and kept again after a loss."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.kernel.descriptions import NOTE, NOTES_KEPT, KeptNotes
from supervisor.kernel.documents import KeptDocuments
from tests.kernel.remembering import Remembering


class Card(msgspec.Struct, frozen=True):
    name: str
    made: float
    text: str = ""
    revision: int = 0


def cards(recorder: Remembering, **bounds: Any) -> KeptDocuments[Card]:
    """Return the cards of the daemon that follows."""
    return KeptDocuments(recorder.again(), "card", Card, named_by="name", order="made", **bounds)


def put(documents: KeptDocuments[Card], *names: str, text: str = "") -> None:
    for number, name in enumerate(names):
        documents.put(name, Card(name, float(-number), text))


def test_what_was_put_is_found_by_the_daemon_that_follows_in_the_order_of_a_field() -> None:
    recorder = Remembering()
    first = cards(recorder)
    put(first, "a", "b", "c")
    assert list(first) == ["a", "b", "c"]
    first.put("a", Card("a", 9.0, "changed", revision=4))
    assert list(first) == ["a", "b", "c"], "it keeps its place"
    assert first.remove("b") == Card("b", -1.0)
    assert first.remove("never there") is None
    second = cards(recorder)
    assert list(second.items()) == [("c", Card("c", -2.0)), ("a", first["a"])]
    assert recorder.kept["card", "a"][0] == 4
    assert second.size("a") == len(recorder.kept["card", "a"][1])


@pytest.mark.parametrize("body", [b"[]", b"\xff", b"", b"{}", b'{"name":"other","made":1.0}'])
def test_a_document_that_cannot_be_read_stays_where_it_is_and_costs_no_other(body: bytes) -> None:
    recorder = Remembering()
    put(cards(recorder), "good")
    recorder.keep("card", "bad", body)
    assert list(cards(recorder)) == ["good"]
    assert recorder.kept["card", "bad"] == (0, body)


def test_beyond_a_number_the_oldest_are_removed_also_of_those_that_were_kept() -> None:
    recorder = Remembering()
    documents = cards(recorder, most=3)
    put(documents, *"abcd")
    assert list(documents) == ["b", "c", "d"]
    assert {name for _, name in recorder.kept} == {"b", "c", "d"}
    assert list(cards(recorder, most=2)) == ["c", "b"]
    assert {name for _, name in recorder.kept} == {"b", "c"}


def test_beyond_a_size_of_all_the_oldest_are_removed() -> None:
    recorder = Remembering()
    documents = cards(recorder, most_bytes=300)
    put(documents, *"abcdef", text="x" * 40)
    size = documents.size("f")
    assert list(documents) == list("abcdef")[-(300 // size) :]
    documents.put("f", Card("f", 0.0, "x" * (270 - size)))
    assert list(documents) == ["f"]
    documents.put("g", Card("g", 0.0, "x" * 400))
    assert list(documents) == []
    assert recorder.kept == {}


def test_all_are_kept_again_when_the_journal_lost_them() -> None:
    recorder = Remembering()
    documents = cards(recorder)
    put(documents, "a", "b")
    kept = dict(recorder.kept)
    recorder.kept.clear()
    for keep_again in recorder.on_loss:
        keep_again()
    assert recorder.kept == kept


def test_what_was_restored_is_held_once() -> None:
    recorder = Remembering()
    put(cards(recorder), "a")
    cards(recorder)
    assert recorder.restored.kinds == {}


def test_a_note_is_found_by_the_daemon_that_follows_until_it_is_deleted() -> None:
    recorder = Remembering()
    notes = KeptNotes(recorder)
    notes.put("a", {"n": 1})
    notes.put("b", {"n": 2})
    notes.put("a", {"n": 3})
    notes.put("b", None)
    second = KeptNotes(recorder.again())
    assert (second.find("a"), second.find("b")) == ({"n": 3}, None)


def test_the_notes_that_were_put_last_are_kept() -> None:
    recorder = Remembering()
    notes = KeptNotes(recorder)
    for number in range(NOTES_KEPT):
        notes.put(str(number), {})
    notes.put("0", {"again": True})
    notes.put("new", {})
    assert (notes.find("0"), notes.find("1")) == ({"again": True}, None)
    assert len(recorder.kept) == NOTES_KEPT
    assert {kind for kind, _ in recorder.kept} == {NOTE}
