"""Read one line as a JSON object, or say by name why it is none.

msgspec reads strictly where hosts differ: no NaN, no lone surrogates, no raw control characters;
integers of any size stay exact, and of duplicate keys the last counts. What msgspec only skips it
does not check for UTF-8, so the line's bytes are checked as a whole (`is_utf8`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar, final

import msgspec

from protocol.errors import Failure, Reason
from protocol.framing import EXCERPT_BYTES, Overlong
from protocol.malformed_json import is_utf16, too_large_number, why_malformed

MENDED_BYTES = 1 << 17
"""A longer line is not looked through for what was meant: one of this length takes up to 40 ms."""

_ANY = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

T = TypeVar("T")


@final
class Fault(msgspec.Struct, frozen=True):
    """What is wrong with a line a module printed: the reason, in words, and its beginning."""

    reason: Reason
    message: str
    excerpt: str

    def failure(self, **evidence: Any) -> Failure:
        """Turn the fault into the failure of a request."""
        return Failure.because(self.reason, self.message, line_excerpt=self.excerpt, **evidence)


def is_utf8(line: bytes) -> bool:
    """Tell whether the bytes are UTF-8; cheap when they are ASCII."""
    if line.isascii():
        return True
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_dense(line: bytes) -> bool:
    """Tell by its beginning whether a line has more values than are worth building unasked.

    To build a value takes some 50 ns, and to encode it as much; to search a byte takes 1.5 ns.
    """
    size = len(line)
    if size <= SMALL_BYTES:
        return False
    return line.count(b",", 0, SAMPLE_BYTES) * BYTES_PER_VALUE > min(size, SAMPLE_BYTES)


SMALL_BYTES = 512
SAMPLE_BYTES = 4096
BYTES_PER_VALUE = 32


def skimmed(decode: Callable[[bytes], T], line: bytes) -> T:
    """Decode a line, values of which are skipped now and built later, if at all.

    To skip them takes as much of the stack as to build them, and whoever does that may have less of
    it left; so what is too deep then is too deep now. Raises what `decode` does.
    """
    return _further_down(decode, line, FRAMES if len(line) > SMALL_BYTES else 0)


FRAMES = 48
"""They take 2 us."""


def _further_down(decode: Callable[[bytes], T], line: bytes, frames: int) -> T:
    return _further_down(decode, line, frames - 1) if frames else decode(line)


def split_members(line: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of the object that a line is, as bytes; raises as a decoder does."""
    return skimmed(_MEMBERS, line)


def is_readable(value: bytes) -> bool:
    """Tell whether a value that msgspec only skipped can be built; of bad UTF-8, yes may be wrong.

    Skipping, it does not look whether a number is one that a double holds.
    """
    if len(value) > SMALL_BYTES and is_dense(value) and passes_unread(value):
        return True
    try:
        _ANY.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def passes_unread(value: bytes) -> bool:
    """Tell whether no number in a value is too large for a double, by a search.

    A no may be wrong: text such as `3e500` is as good as a number here.
    """
    digits = value.translate(_DIGITS, b"+")
    return digits.find(b"0e000") < 0 and digits.find(_MANY_DIGITS) < 0


_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS = b"0" * 200
"""With no more digits, and an exponent of two, a number stays below 1e300."""


_SHOWS_ID = re.compile(rb'"requestId"\s*:\s*"([^"\\]{1,128})"')


def shown_id(line: bytes) -> str | None:
    """Return the `requestId` of a line that cannot be read, if it shows one."""
    found = _SHOWS_ID.search(line)
    return None if found is None else found[1].decode(errors="replace")


def excerpt(line: bytes) -> str:
    """Return the beginning of a line as text that can be printed anywhere."""
    text = line[:EXCERPT_BYTES].decode(errors="replace")
    if text.isprintable():  # nearly always; a flood of late lines is excerpted line by line
        shown = text
    else:
        shown = "".join(char if char.isprintable() else "\ufffd" for char in text)
    return shown + "…" if len(line) > EXCERPT_BYTES else shown


LONE_SURROGATES = (
    "lone_surrogate",
    "half of a character (an unpaired surrogate such as \\ud800) was read as \\ufffd",
)
"""The reason and the words of the warning for a line that was read without them."""

_ESCAPE = re.compile(
    rb"((?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})++)"  # a pair
    rb"|\\u.{4}",
    re.DOTALL,
)
"""All up to the next half of a character at once: to be called for each escape takes seven times
as long."""


def without_lone_surrogates(line: bytes) -> bytes | None:
    r"""Return the line with `\ufffd` for each escape of half a character; None if it has none."""
    if line.find(b"\\ud") < 0 and line.find(b"\\uD") < 0:
        return None
    mended = _ESCAPE.sub(lambda found: found[1] or b"\\ufffd", line)
    return None if mended == line else mended


def overlong_fault(line: Overlong, bound: str = " (limits.line_bytes)") -> Fault:
    """Describe a line that was dropped because of its length, or of how much it holds.

    `bound` says what sets the length: for a module's line, its descriptor.
    """
    if line.of_values:
        return Fault(
            Reason.LINE_TOO_LONG,
            f"a line holds more than {line.limit} values and was dropped; send it in several lines",
            excerpt(line.excerpt),
        )
    return Fault(
        Reason.LINE_TOO_LONG,
        f"a line is longer than {line.limit} bytes{bound} and was dropped",
        excerpt(line.excerpt),
    )


def read_object(line: bytes) -> dict[str, Any] | Fault:
    """Parse a line that must hold one JSON object."""
    try:
        line.isascii() or line.decode()
    except UnicodeDecodeError as error:
        place = f"byte 0x{line[error.start]:02x} at position {error.start}"
        words = "it seems to be UTF-16" if is_utf16(line) else place
        return _fault(Reason.INVALID_UTF8, f"is not UTF-8: {words}; {_ENCODE}", line)
    try:
        value = _ANY.decode(line)
    except RecursionError:
        return _fault(Reason.MALFORMED_JSON, "holds JSON that is nested too deeply", line)
    except msgspec.ValidationError:
        # The only validation without a type is a number no double can hold, or an integer of more
        # digits than Python converts (4300).
        return _fault(Reason.MALFORMED_JSON, too_large_number(line), line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if is_utf16(line):
            words = f"is not UTF-8: it seems to be UTF-16; {_ENCODE}"
            return _fault(Reason.INVALID_UTF8, words, line)
        mended = without_lone_surrogates(line) if len(line) <= MENDED_BYTES else None
        if mended is not None and is_readable(mended):
            words = "holds half of a surrogate pair, such as \\ud800, which is no character"
            return _fault(Reason.MALFORMED_JSON, words, line)
        words = why_malformed(line, str(error).removeprefix("JSON is malformed: "))
        return _fault(Reason.MALFORMED_JSON, words, line)
    if not isinstance(value, dict):
        words = f"is {_JSON_NAMES[type(value)]}, it must be a JSON object"
        return _fault(Reason.NOT_OBJECT, words, line)
    return value


_ENCODE = "encode what is printed as UTF-8"


def _fault(reason: Reason, words: str, line: bytes) -> Fault:
    return Fault(reason, f"the line {words}", excerpt(line))


_JSON_NAMES = {
    list: "a JSON array",
    str: "a JSON string",
    int: "a JSON number",
    float: "a JSON number",
    bool: "a JSON boolean",
    type(None): "JSON null",
}
