"""Read what the tests need of a Markdown document: fenced blocks, headings, links, tables.

Two kinds of lines right above a fence are said to the tests as much as to the reader:

- `` `hello/hello.sh`: `` names the file in which a reader is to save the block;
- `<!-- word -->` or `<!-- key: value -->` is for the tests alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
DOCUMENTS = tuple(
    path.relative_to(ROOT).as_posix()
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "modules/README.md"])
)

_FENCE = re.compile(r"^(\s*)(`{3,})\s*(\S*)")
_FILE = re.compile(r"^`([^`]+)`:$")
_COMMENT = re.compile(r"^<!--\s*([\w-]+)(?::\s*(.*?))?\s*-->$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


class Block(msgspec.Struct, frozen=True):
    """A fenced block; `line` is where its text begins, `section` the `##` heading above it."""

    language: str
    text: str
    line: int
    section: str
    file: str | None
    said: dict[str, str]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[Block]:
    """Return the fenced blocks of a document."""
    found: list[Block] = []
    lines = read(name).splitlines()
    section, at = "", 0
    while at < len(lines):
        heading = re.match(r"## (.*)", lines[at])
        section = heading[1] if heading else section
        fence = _FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        file, said = _above(lines, at)
        end = at + 1
        while not lines[end].strip().startswith(fence[2]):
            end += 1
        body = [line.removeprefix(fence[1]) for line in lines[at + 1 : end]]
        text = "".join(f"{line}\n" for line in body)
        found.append(Block(fence[3], text, at + 2, section, file, said))
        at = end + 1
    return found


def prose(name: str) -> str:
    """Return a document without its fenced blocks."""
    kept: list[str] = []
    fence = ""
    for line in read(name).splitlines():
        found = _FENCE.match(line)
        if fence:
            fence = "" if line.strip().startswith(fence) else fence
        elif found:
            fence = found[2]
        else:
            kept.append(line)
    return "\n".join(kept)


def links(name: str) -> list[str]:
    return _LINK.findall(prose(name))


def anchors(name: str) -> set[str]:
    """Return the fragments that lead to a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(name), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(name: str, first: str) -> list[list[str]]:
    """Return the rows of all tables whose first column is headed `first`."""
    found: list[list[str]] = []
    inside = False
    for line in prose(name).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == first:
            inside = True
        elif inside and not set(cells[0]) <= set(":- "):
            found.append([cell.replace("\\|", "|") for cell in cells])
    return found


def code(cell: str) -> str | None:
    """Return what stands in the first backticks of a cell."""
    found = re.search(r"`([^`]*)`", cell)
    return found[1] if found else None


def _above(lines: list[str], at: int) -> tuple[str | None, dict[str, str]]:
    file, said = None, {}
    while at > 0:
        at -= 1
        name, comment = _FILE.match(lines[at]), _COMMENT.match(lines[at])
        if name:
            file = name[1]
        elif comment:
            said[comment[1]] = comment[2] or ""
        elif lines[at].strip():
            break
    return file, said
