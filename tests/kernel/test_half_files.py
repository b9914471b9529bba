"""Files that come in pieces, some of them in base64, and what has to be in one answer."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from supervisor.kernel.assets import store as asset_store
from supervisor.kernel.assets.files import NotCopiedError
from supervisor.kernel.assets.store import HalfFile
from tests.kernel.test_asset_store import store_in


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("chars", [1, 3, 4, 5, 64])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 100])
def test_text_is_decoded_bit_by_bit(
    chars: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asset_store, "DECODED_CHARS", chars)
    data = bytes(range(size))
    half = HalfFile(store_in(tmp_path))
    half.write([b"<", encoded(data), base64.encodebytes(data).decode(), b">"])
    found = half.finish()
    half.drop()
    assert Path(found.path).read_bytes() == b"<" + data + data + b">"


@pytest.mark.parametrize("chars", [4, 64])
@pytest.mark.parametrize("text", ["%%%%", "eA", "eA==eA==", "eA=", "=", "é===", "eA==\0"])
def test_what_is_no_base64_is_no_file(
    text: str, chars: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asset_store, "DECODED_CHARS", chars)
    store = store_in(tmp_path)
    half = HalfFile(store)
    with pytest.raises(NotCopiedError, match="not base64"):
        half.write([text])
    half.drop()
    assert store.total_bytes == 0
    assert list((tmp_path / "assets" / "sha256").iterdir()) == []
