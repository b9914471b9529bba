from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.top.screen import Key, Keys
from tests.protocol.wire import Cuts, cuts, pieces

TYPED = st.lists(
    st.sampled_from(
        [b"q", b"s", b"x", b"\x1b[A", b"\x1bOB", b"\x1b[5~", b"\x1b[200~", b"\x1b[1;5C", b"\xc3"]
    )
).map(b"".join)


def read(*data: bytes) -> list[Key]:
    keys = Keys()
    return list(chain.from_iterable(map(keys.feed, data)))


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", [Key.QUIT]),
        (b"xsQ", [Key.OTHER, Key.SORT, Key.QUIT]),
        (b"\x1b[A\x1b[Bjk", [Key.UP, Key.DOWN, Key.DOWN, Key.UP]),
        (b"\x1bOA", [Key.UP]),
        (b"\x1b[5~\x1b[6~ ", [Key.PAGE_UP, Key.PAGE_DOWN, Key.PAGE_DOWN]),
        (b"g\x1b[F", [Key.TOP, Key.BOTTOM]),
        (b"\x1bq", [Key.OTHER, Key.QUIT]),  # Escape, then q
        (b"\x1b\x1b[A", [Key.OTHER, Key.UP]),
        (b"\x1b[1;5A", [Key.OTHER]),
        (b"rl\ry", [Key.RESTART, Key.LOGS, Key.LOGS, Key.YES]),
    ],
)
def test_a_key_is_what_it_is_for(data: bytes, keys: list[Key]) -> None:
    assert read(data) == keys


@given(TYPED, cuts)
def test_keys_are_the_same_however_their_bytes_come(data: bytes, lengths: Cuts) -> None:
    assert read(*pieces(data, lengths)) == read(data)


def test_an_endless_sequence_is_not_kept() -> None:
    keys = Keys()
    list(keys.feed(b"\x1b[" + b"1" * 100_000))
    assert len(keys._left) < 100
