r"""Read a terminal transcript and compare it with what really came.

A line that begins with `$ ` is typed, lines that begin with `> ` continue it; what follows is what
the terminal shows. A shown line fits a real one when it is the same but for this:

- a line that is only `...` stands for any number of lines, none included, and `...` inside a line
  for any text;
- one space stands for any number of spaces, and spaces at the end do not count;
- what differs from run to run needs the same form, not the same value: a time, a number with a
  decimal point, a number with a unit behind it (`4s`, `12ms`, `9.8 MiB`); and an integer of three
  digits or more, such as a process id, stands for any integer.

What `stdiod` says of a time in which the machine held it up is passed over (`undisturbed`).

A number that was shown and is typed later, as in `kill -9 48211`, is typed as what really came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_INTEGER = r"\d{3,}"
_VARIES = (
    r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?",
    r"\d\d:\d\d:\d\d(?:\.\d+)?",
    r"\d+(?:\.\d+)? (?:B|KiB|MiB|GiB)\b",
    r"(?:\d+[dhm])?\d+(?:\.\d+)?(?:ms|s|m|h)\b",
    r"\d+\.\d+",
    _INTEGER,
)
_SPECIAL = re.compile(
    "|".join([*(f"(?P<v{n}>{one})" for n, one in enumerate(_VARIES)), r"\.\.\.", " +"])
)
_NUMBER = re.compile(_INTEGER)
_HELD_UP = re.compile(r"(^|, )(?:longest stall|it was suspended for) .*")


class Step(msgspec.Struct, frozen=True):
    """A command and the lines that are shown after it."""

    command: str
    shown: list[str]


def steps(text: str) -> Iterator[Step]:
    """Cut a transcript into its steps."""
    command: list[str] = []
    shown: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield Step("\n".join(command), shown)
            command, shown = [line[2:]], []
        elif (line.startswith("> ") or line == ">") and not shown:
            command.append(line[2:])
        else:
            shown.append(line)
    if command:
        yield Step("\n".join(command), shown)


def undisturbed(real: list[str]) -> list[str]:
    """Leave out that the daemon was held up or stopped: no document shows it."""
    lines = [(one, _HELD_UP.sub("", one)) for one in real]
    return [left for one, left in lines if left or not one]


def fits(shown: list[str], real: list[str], numbers: dict[str, str]) -> bool:
    """Tell whether what is shown fits; notes in `numbers` what its numbers stand for."""
    if not shown:
        return not real
    head, *rest = shown
    if head.strip() == "...":
        return any(fits(rest, real[skipped:], numbers) for skipped in range(len(real) + 1))
    if not real:
        return False
    known = dict(numbers)
    if _fits_line(head.rstrip(), real[0].rstrip(), known) and fits(rest, real[1:], known):
        numbers.update(known)
        return True
    return False


def typed(command: str, numbers: dict[str, str]) -> str:
    """Return the command with the numbers that were shown replaced by the real ones."""
    return _NUMBER.sub(lambda found: numbers.get(found[0], found[0]), command)


def _fits_line(shown: str, real: str, numbers: dict[str, str]) -> bool:
    pattern, at, groups = "", 0, []
    for found in _SPECIAL.finditer(shown):
        pattern += re.escape(shown[at : found.start()])
        at = found.end()
        if found[0] == "...":
            pattern += ".*"
        elif found[0].isspace():
            pattern += " +"
        else:
            form = _VARIES[int((found.lastgroup or "v0")[1:])]
            pattern += r"(\d+)" if form == _INTEGER else f"({form})"
            groups.append(found[0])
    match = re.fullmatch(pattern + re.escape(shown[at:]), real)
    if match is None:
        return False
    pairs = zip(groups, match.groups(), strict=True)
    numbers.update((name, value) for name, value in pairs if _NUMBER.fullmatch(name))
    return True
