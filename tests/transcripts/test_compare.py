from __future__ import annotations

from protocol.framing import Overlong
from protocol.transcript import KEPT_LINE_BYTES, Entry, EntrySource, read_transcript
from supervisor.transcripts.compare import (
    DIFFED_LINES,
    Heard,
    differences,
    heard,
    recorded_lines,
)
from tests.protocol.test_transcript import DIGEST, HEADER, LINE, lines


def said(*texts: str, ignored: tuple[str, ...] = ()) -> list[Heard]:
    return [heard(text.encode(), ignored) for text in texts]


def test_key_order_ids_timestamps_and_spaces_do_not_count() -> None:
    one = said('{"a":1,"b":[2],"requestId":"r1"}')
    other = said('{"b": [2], "timestamp": "now", "a": 1}')
    assert differences(one, other) == []


def test_what_differs_is_shown_with_what_is_around_it() -> None:
    one, other = said('{"a":1}', '{"b":1}', '{"c":1}'), said('{"a":1}', '{"b":true}', '{"c":1}')
    assert differences(one, other) == ['  {"a":1}', '- {"b":1}', '+ {"b":true}', '  {"c":1}']
    assert differences(one, one[:2]) == ['  {"a":1}', '  {"b":1}', '- {"c":1}']


def test_members_can_be_left_out_by_pointer() -> None:
    pointers = ("/result/pid", "/result/all/1", "/not/there", "/a~1b")
    one = said('{"a/b":1,"result":{"pid":7,"all":[1,2]}}', ignored=pointers)
    other = said('{"result":{"pid":8,"all":[1,3]}}', ignored=pointers)
    assert differences(one, other) == []


def test_what_is_no_object_is_compared_as_it_is() -> None:
    assert differences(said("Loading..."), said("Loading...")) == []
    assert differences(said("Loading..."), said("Loading")) == ["- Loading...", "+ Loading"]


def test_answers_of_requests_that_were_open_together_may_come_in_another_order() -> None:
    a, b = '{"requestId":"a","ok":true}', '{"requestId":"b","ok":false}'
    assert differences(said(a, b), said(b, a)) == []
    swapped = said('{"requestId":"a","ok":false}', '{"requestId":"b","ok":true}')
    assert differences(said(a, b), swapped)


def test_recorded_lines_are_those_a_dialect_would_see() -> None:
    texts = ["\ufeff{}", "", "  ", '{"a":1}\r']
    entries = [{**LINE, "line": text} for text in texts]
    read = read_transcript(lines(HEADER, *entries), "t").entries
    found = recorded_lines(read, (), 1 << 20)
    assert [one.compared for one in found] == [b"{}", b'{"a":1}']


def test_long_lines_are_compared_by_digest_and_too_long_ones_by_their_beginning() -> None:
    def entry(size: int) -> list[Entry]:
        cut = {"line": "x" * 4096, "size": size, "sha256": DIGEST}
        return [Entry(at_s=0, instance="m#1", source=EntrySource.MODULE, **cut)]  # type: ignore[arg-type]

    long = heard(b"x" * (KEPT_LINE_BYTES + 1), ())
    assert recorded_lines(entry(KEPT_LINE_BYTES + 1), (), 8 << 20) != [long]  # another digest
    too_long = heard(Overlong(8 << 20, b"x" * 200), ())
    assert recorded_lines(entry(9 << 20), (), 8 << 20) == [too_long]


def test_a_very_long_conversation_is_compared_position_by_position() -> None:
    one = said(*(f'{{"n":{n}}}' for n in range(DIFFED_LINES + 1)))
    other = [*one[:5], *said('{"n":"five"}'), *one[6:]]
    assert differences(one, other) == ['- {"n":5}', '+ {"n":"five"}']
