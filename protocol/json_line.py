"""Read one line as a JSON object, or name the reason why it is none, and where.

msgspec reads strictly where hosts differ: no NaN, no lone surrogates, no raw control characters;
integers of any size stay exact, and of duplicate keys the last counts. Values that msgspec only
skips are not checked for UTF-8, so the line's bytes are checked as a whole (`is_utf8`).

The words about a line that is no JSON are for the program's author, who knows no decoder: the text
at the place, and JSON's form of it. They are a clause with the line as its subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, final

import msgspec

from protocol.errors import Failure, Reason
from protocol.framing import BOM, EXCERPT_BYTES, Overlong
from protocol.problem import printable, step

MENDED_BYTES = 1 << 17
"""Longer lines are not searched for a meaning: this length takes up to 40 ms."""

_ANY = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw]).decode

T = TypeVar("T")


@final
class Fault(msgspec.Struct, frozen=True):
    """A fault of a line that a module printed: reason, words, and the line's beginning."""

    reason: Reason
    message: str
    excerpt: str

    def failure(self, **evidence: Any) -> Failure:
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
    """Tell from a line's beginning whether it has more values than should be built unasked.

    Building a value takes some 50 ns, and encoding it as much; searching a byte takes 1.5 ns.
    """
    size = len(line)
    if size <= SMALL_BYTES:
        return False
    return line.count(b",", 0, SAMPLE_BYTES) * BYTES_PER_VALUE > min(size, SAMPLE_BYTES)


SMALL_BYTES = 512
SAMPLE_BYTES = 4096
BYTES_PER_VALUE = 32


def skimmed(decode: Callable[[bytes], T], line: bytes) -> T:
    """Decode a line, skipping values that are built later, if at all.

    Skipping takes as much stack as building, and the later reader may have less of it left; so a
    value that would be too deep for it is too deep here. Raises as `decode` does.
    """
    return _further_down(decode, line, FRAMES if len(line) > SMALL_BYTES else 0)


FRAMES = 48
"""Taking them costs 2 us."""


def _further_down(decode: Callable[[bytes], T], line: bytes, frames: int) -> T:
    return _further_down(decode, line, frames - 1) if frames else decode(line)


def split_members(line: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of a line's object as bytes; raises as a decoder does."""
    return skimmed(_MEMBERS, line)


def is_readable(value: bytes) -> bool:
    """Tell whether a value that msgspec only skipped can be built.

    A yes may be wrong for bad UTF-8. Skipping does not check whether a double can hold a number.
    """
    if len(value) > SMALL_BYTES and is_dense(value) and passes_unread(value):
        return True
    try:
        _ANY.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def passes_unread(value: bytes) -> bool:
    """Tell by a search whether every number in a value fits in a double.

    A no may be wrong: text such as `3e500` counts as a number here.
    """
    digits = value.translate(_DIGITS, b"+")
    return digits.find(b"0e000") < 0 and digits.find(_MANY_DIGITS) < 0


_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS = b"0" * 200
"""With fewer digits, and an exponent of two digits, a number stays below 1e300."""


_SHOWS_ID = re.compile(rb'"requestId"\s*:\s*"([^"\\]{1,128})"')


def shown_id(line: bytes) -> str | None:
    """Return the `requestId` that an unreadable line shows, if any."""
    found = _SHOWS_ID.search(line)
    return None if found is None else found[1].decode(errors="replace")


def excerpt(line: bytes) -> str:
    """Return the beginning of a line as printable text."""
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

_LONE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)

MOST_HALVES = 1 << 17
"""Lines with more escapes of surrogates are not mended: so many take 20 to 40 ms."""


def without_lone_surrogates(line: bytes) -> bytes | None:
    """Return the line with `\ufffd` for each lone surrogate escape; None if it is not mended."""
    if not 0 < line.count(b"\\ud") + line.count(b"\\uD") <= MOST_HALVES:
        return None
    if b"\0" in line:  # it is no JSON, and stands for an escaped backslash here
        return None
    mended, count = _LONE.subn(rb"\\ufffd", line.replace(b"\\\\", b"\0\0"))
    return mended.replace(b"\0\0", b"\\\\") if count else None


def overlong_fault(line: Overlong, bound: str = " (limits.line_bytes)") -> Fault:
    """Describe a line that was dropped because of its length, or of how much it holds.

    `bound` says what sets the length: for a module's line, its descriptor.
    """
    if line.values:
        return Fault(
            Reason.LINE_TOO_LONG,
            f"a line holds more than {line.limit} {line.values} and was dropped; "
            "send it in several lines",
            excerpt(line.excerpt),
        )
    return Fault(
        Reason.LINE_TOO_LONG,
        f"a line is longer than {line.limit} bytes{bound} and was dropped",
        excerpt(line.excerpt),
    )


def truncated_fault(line: bytes) -> Fault:
    """Return the fault of a last line that has no newline and is no whole object."""
    words = "the output ends in the middle of a line"
    return Fault(Reason.TRUNCATED_LINE, words, excerpt(line))


def read_object(line: bytes) -> dict[str, Any] | Fault:
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


SHOWN_BYTES = 20
"""How much text is shown at the place of the fault."""

LOOKED_AT_BYTES = 1 << 16
"""In longer lines the number is not located: it would take several parses."""

LEVELS = 4
"""How deep the number is searched for."""

PLACE_CHARS = 80

_PLACE = re.compile(r"(.*) \(byte (\d+)\)", re.DOTALL)
_UTF_16 = re.compile(rb"\xff\xfe|\xfe\xff|[^\0]\0[^\0]\0|\0[^\0]\0[^\0]")
_WORD = re.compile(rb"[-+]?[A-Za-z_]\w*")
_VALUES_ELSEWHERE = frozenset(b"none null nil undef undefined nan inf infinity true false".split())
"""How languages write null, true and false, and values that JSON has no word for."""

_NUMBER = re.compile(rb"-?\d")
_SPACE = 0x20


def is_utf16(line: bytes) -> bool:
    return _UTF_16.match(line) is not None


def why_malformed(line: bytes, found: str) -> str:
    """Return why a line, which is UTF-8, is not JSON; `found` are the decoder's words."""
    if line.startswith(BOM):
        return "begins with a byte order mark (BOM), which JSON does not"
    place = _PLACE.fullmatch(found)
    if place is not None:
        why = _why_at(line, int(place[2]), place[1])
        return f"is not JSON: {why}" if why else "is not JSON"
    if found.endswith("truncated"):
        return "is not JSON: it ends in the middle (printed over several lines? it has to be one)"
    return f"is not JSON: {found}"


def _why_at(line: bytes, at: int, words: str) -> str:
    """Say what is wrong at a place; nothing for plain text."""
    if words.startswith("trailing characters"):
        # A date is a number to a decoder, and what follows.
        begins = line.lstrip()[:1] in (b"{", b"[")
        return f"{_shown(line[at - 1 :])} follows its JSON" if begins else ""
    if (before := _before_object(line)) is not None:
        return f"{_shown(before)} stands before its JSON"
    rest = line[at:]
    word = _WORD.match(rest)
    there = f" at byte {at}" if at else ""
    if rest[:1] and rest[0] < _SPACE:
        return f"it has the control character 0x{rest[0]:02x}{there}, not written as an escape"
    if words.startswith("object keys"):
        return f"{_shown(rest)}{there} is not a key in double quotes"
    if word is not None and (at or rest.strip().lower() in _VALUES_ELSEWHERE):
        return f"{_shown(word[0])}{there} is not a JSON value"
    if rest.startswith(b"'"):
        return f"{_shown(rest)}{there} is not in double quotes"
    if not at:
        return ""
    return f"{words}{there}, where {_shown(rest)} stands" if rest else f"{words} at the end"


def too_large_number(line: bytes) -> str:
    """Return where a JSON line has a number that a double cannot hold."""
    pointer, token = _unkept(line, "", LEVELS) if len(line) <= LOOKED_AT_BYTES else ("", b"")
    place = printable(".".join(pointer.split("/")[1:]), PLACE_CHARS)
    where = f' in "{place}"' if place else ""
    number = f": {_shown(token)}{where}" if _NUMBER.match(token) else where
    return f"holds a number that is too large to be kept exactly{number}"


def _unkept(value: bytes, pointer: str, levels: int) -> tuple[str, bytes]:
    for key, part in _parts(value) if levels else ():
        try:
            _ANY.decode(part)
        except msgspec.ValidationError:
            return _unkept(bytes(part), step(pointer, key), levels - 1)
    return pointer, value


def _parts(value: bytes) -> Iterable[tuple[str | int, msgspec.Raw]]:
    try:
        match value.lstrip()[:1]:
            case b"{":
                return _MEMBERS(value).items()
            case b"[":
                return enumerate(_ELEMENTS(value))
    except (msgspec.DecodeError, RecursionError):
        pass  # what follows the number is no JSON
    return ()


def _before_object(line: bytes) -> bytes | None:
    """Return the text before a JSON object that ends the line, if there is some."""
    begin = line.find(b'{"')
    if begin <= 0 or not line.rstrip().endswith(b"}"):
        return None
    try:
        _ANY.decode(line[begin:])
    except (msgspec.DecodeError, RecursionError):
        return None
    return line[:begin]


def _shown(text: bytes) -> str:
    shown = printable(text[:SHOWN_BYTES].decode(errors="replace").strip(" "))
    return f"`{shown}…`" if len(text) > SHOWN_BYTES else f"`{shown}`"
