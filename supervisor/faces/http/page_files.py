"""The files of the page at `/`: read once when HTTP is served, the same for every client.

They say nothing of any module and need no token. The page's script calls the routes with the login
of its user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from protocol.amcp_errors import ErrorCode
from protocol.problem import named
from supervisor.faces.http.head import Head, Headers, Refusal

FOLDER = Path(__file__).parent / "page"

INDEX = "index.html"

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_SOURCES = (
    "default-src 'none'",
    *("script-src 'self'", "style-src 'self'", "img-src 'self'", "media-src 'self'"),
    *("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    # What a module says can never become markup: a script that tried would be an error.
    *("require-trusted-types-for 'script'", "trusted-types 'none'"),
)

_SAFE: Headers = [
    ("Content-Security-Policy", "; ".join(_SOURCES)),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    # It may be kept, and is asked for again: with its tag that costs nothing.
    ("Cache-Control", "no-cache"),
]


class PageFile(msgspec.Struct, frozen=True):
    body: bytes
    tag: str
    headers: Headers


class PageFiles:
    """All files of the page, by their paths below its folder; "" is the document itself."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files: Mapping[str, PageFile] = {
            "" if path.name == INDEX else path.relative_to(folder).as_posix(): _read(path)
            for path in folder.rglob("*")
            if path.suffix in _MEDIA
        }

    def answer(self, head: Head) -> tuple[int, Headers, bytes]:
        """Raises `Refusal`."""
        found = self.file("/".join(head.segments[1:]))
        seen = head.headers.get("if-none-match", "")
        if found.tag in (one.strip().removeprefix("W/") for one in seen.split(",")):
            return 304, found.headers[1:], b""
        return 200, found.headers, found.body

    def file(self, name: str) -> PageFile:
        """Raises `Refusal`."""
        # A name is looked up among those that there are, and never joined to a path.
        found = self._files.get(name)
        if found is None:
            raise Refusal(ErrorCode.NOT_FOUND, f"the page has no file {named(name, 80)}")
        return found


def _read(path: Path) -> PageFile:
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return PageFile(body, tag, [("Content-Type", _MEDIA[path.suffix]), ("ETag", tag), *_SAFE])
