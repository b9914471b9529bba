from __future__ import annotations

import pytest

from protocol.assets import LONGEST, is_media_type

VALID = (
    "image/png",
    "IMAGE/PNG",
    "model/gltf+json",
    "application/vnd.oasis.opendocument.text",
    "text/plain;charset=utf-8",
    "text/plain; charset=utf-8",
    'text/plain ; charset="utf-8" ; x="a\\"b"',
    "multipart/form-data; boundary=----x",
    "x/y",
    "application/x-no-one-registered-this",
)
INVALID = (
    "",
    "png",
    "image/",
    "/png",
    "image/png/x",
    "image/*",
    "image /png",
    "image/png ",
    " image/png",
    "image/png\n",
    "image/p\u00e9",
    "text/plain;",
    "text/plain; charset",
    "text/plain; charset=",
    'text/plain; charset="utf',
    "text/plain charset=utf-8",
    ".x/y",
    "a" * 128 + "/b",
    "text/plain; x=" + "y" * LONGEST,
)


@pytest.mark.clause("N001-4.3-b")
@pytest.mark.parametrize("text", VALID)
def test_a_type_a_subtype_and_parameters_are_a_media_type(text: str) -> None:
    assert is_media_type(text)


@pytest.mark.clause("N001-4.3-b")
@pytest.mark.parametrize("text", INVALID)
def test_anything_else_is_none(text: str) -> None:
    assert not is_media_type(text)
