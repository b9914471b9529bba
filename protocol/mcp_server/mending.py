"""Definitions and results as strict clients take them: one odd member costs itself, and no more.

What fits a shape is returned as it is, the same object. Of all else, odd members are left out, or
become what their shape has in their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import UNSET

from protocol.frames import encode
from protocol.mcp_server.shapes import MEMBERS, NEWEST_SCHEMA, OLDER_DIALECT, RESULTS, TOOL, Kind
from protocol.problem import literal, quoted

_DIALECT = re.compile(r"https?://json-schema\.org/(draft-0[67]|draft/20(19-09|20-12))/schema#?")
_REFERENCE = re.compile(rb'"\$(ref|id|anchor)":("(?:[^"\\]|\\.)*+")')


def _fits(value: Any, kind: Kind) -> bool:
    try:
        msgspec.convert({"value": value}, kind.whole)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def mended(value: Any, kind: Kind, uri: str = "") -> Any:
    """Return a value as a kind has it, or UNSET; `uri` is what was to be read."""
    if _fits(value, kind):
        return value
    found = _mended_inside(value, kind, uri)
    if found is not value and _fits(found, kind):
        return found
    return _mended_inside(kind.otherwise(value, uri), kind, uri) if kind.otherwise else UNSET


def _mended_inside(value: Any, kind: Kind, uri: str) -> Any:
    if isinstance(value, list) and kind.item is not None:
        each = (mended(one, kind.item, uri) for one in value)
        return [one for one in each if one is not UNSET]
    if not isinstance(value, dict) or not kind.shapes:
        return value
    found, uri = dict(value), uri or str(value.get("uri", value.get("uriTemplate", "")))
    for shape in kind.shapes:
        if shape.__struct_config__.tag in (None, value.get("type")):
            for name, (of, is_needed) in MEMBERS[shape].items():
                if is_needed or name in value:
                    found[name] = mended(value.get(name, UNSET), of, uri)
                    if found[name] is UNSET:
                        del found[name]
    return found


def changes(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Say what was mended, in clauses."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            one, other = before.get(key, UNSET), after.get(key, UNSET)
            if one is not other:
                yield from changes(one, other, f"{at}.{key}" if at else key)
    elif after is not UNSET and type(before) is not bool:  # which says the same, as a schema
        said = "missing" if before is UNSET else literal(before)
        yield f"'{at}' is {said} and becomes {literal(after)}"
    elif after is UNSET:
        why = output_fault(before) if at == "outputSchema" and isinstance(before, dict) else None
        yield f"'{at}' is {literal(before)} and is left out{f': {why}' if why else ''}"


def mended_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of a tool as clients of the newest revision take it."""
    found: dict[str, Any] = mended(tool, TOOL)
    if "outputSchema" in found and output_fault(found["outputSchema"]) is not None:
        return {key: value for key, value in found.items() if key != "outputSchema"}
    return found


def output_fault(output: dict[str, Any]) -> str | None:
    """Return why clients cannot compile an output schema, as a clause; None if they can."""
    dialect = output.get("$schema", "2020-12")
    if "$schema" in output and not _DIALECT.fullmatch(str(dialect)):
        return f"no client knows the dialect {literal(dialect)}"
    try:
        msgspec.convert(output, NEWEST_SCHEMA if "2020" in dialect else OLDER_DIALECT)
        found = [
            (kind, msgspec.json.decode(one)) for kind, one in _REFERENCE.findall(encode(output))
        ]
    except (msgspec.ValidationError, RecursionError) as error:
        return str(error)
    names = {"", *(one for kind, one in found if kind != b"ref")}
    for kind, one in found:
        if kind == b"ref" and not _leads(output, one, names):
            return f"the reference {quoted(one)} leads nowhere"
    return None


def _leads(at: Any, reference: str, names: set[str]) -> bool:
    base, _, fragment = reference.partition("#")
    if base not in names or not fragment.startswith("/"):
        return base in names and fragment in names
    try:
        for step in unquote(fragment).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            at = at[int(name) if isinstance(at, list) else name]
    except (LookupError, TypeError, ValueError):
        return False
    return True


def strict_result(method: str, result: Mapping[str, Any], uri: object = "") -> Mapping[str, Any]:
    """Return what a method resulted in as strict clients take it; `uri` is what was to be read."""
    kind = RESULTS.get(method)
    if kind is None or _fits(result, kind):
        return result
    found: dict[str, Any] = _mended_inside(result, kind, str(uri or ""))
    return found
