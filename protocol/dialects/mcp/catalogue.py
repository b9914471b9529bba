"""The lists of a server, fetched page by page within bounds, and the description made of them.

Also which of a server's requests are ops of its module (`OPS`).

A definition is kept as the server wrote it, with all fields; only the name must make sense.
Definitions that do not fit are left out with a word for the log, and the rest is served. Members
that strict clients refuse are logged, too: those clients get them mended (`protocol.mcp_server`).
While a list is fetched anew, the old one counts.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from protocol.args_schema import ArgsValidator
from protocol.descriptor.model import Descriptor
from protocol.dialects.mcp.vocabulary import EXTRAS, SUBSCRIBE, UNSUBSCRIBE
from protocol.dialects.mcp.writer import Agreed
from protocol.frames import encode
from protocol.mcp_server.mending import (
    PROMPT,
    RESOURCE,
    TEMPLATE,
    TOOL,
    changes,
    definition_for,
    strict_definition,
)
from protocol.problem import described, quoted
from protocol.weight import is_deeper

CALL = "tools/call"

TOOLS = "tools/list"


class ListKind(msgspec.Struct, frozen=True):
    """A list's method and answer; `field` holds the entries, `named_by` their name."""

    capability: str
    field: str
    named_by: str
    told_as: str
    of: Any


LISTS = {
    TOOLS: ListKind("tools", "tools", "name", "tools", TOOL),
    "prompts/list": ListKind("prompts", "prompts", "name", "prompts", PROMPT),
    "resources/list": ListKind("resources", "resources", "uri", "resources", RESOURCE),
    "resources/templates/list": ListKind(
        "resources", "resourceTemplates", "uriTemplate", "resource_templates", TEMPLATE
    ),
}

_TEXT: dict[str, Any] = {"type": "string"}
_CURSOR = {"type": "object", "properties": {"cursor": _TEXT}, "additionalProperties": False}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}


def _taking(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


class OpOfServer(msgspec.Struct, frozen=True):
    """An op that is no tool but a request of MCP's own, of the same name."""

    capability: str
    args: dict[str, Any]
    """The schema of its args, which become the params."""
    method: str


OPS = {
    "resources/list": OpOfServer("resources", _CURSOR, "resources/list"),
    "resources/templates": OpOfServer("resources", _CURSOR, "resources/templates/list"),
    "resources/read": OpOfServer("resources", _taking(("uri",), uri=_TEXT), "resources/read"),
    SUBSCRIBE: OpOfServer("resources", _taking(("uri",), uri=_TEXT), SUBSCRIBE),
    UNSUBSCRIBE: OpOfServer("resources", _taking(("uri",), uri=_TEXT), UNSUBSCRIBE),
    "prompts/list": OpOfServer("prompts", _CURSOR, "prompts/list"),
    "prompts/get": OpOfServer(
        "prompts", _taking(("name",), name=_TEXT, arguments=_TEXTS), "prompts/get"
    ),
    "completion/complete": OpOfServer(
        "completions",
        _taking(
            ("ref", "argument"),
            ref={
                "anyOf": [
                    _taking(("type", "name"), type={"const": "ref/prompt"}, name=_TEXT),
                    _taking(("type", "uri"), type={"const": "ref/resource"}, uri=_TEXT),
                ]
            },
            argument=_taking(("name", "value"), name=_TEXT, value=_TEXT),
            context=_taking((), arguments=_TEXTS),
        ),
        "completion/complete",
    ),
}
"""Hidden by a tool of the same name."""

PAGES = 100
"""A server that pages by ones may have this many pages; one whose cursors never end is cut off."""

DEFINITIONS = 2_000
"""Of one list. No model can choose among more, and each daemon holds them for each process."""

TURN = 100
"""Entries per turn; odd ones take 0.1 ms each."""

LIST_BYTES = 4 << 20
"""Per list, as JSON. The largest servers seen have 200 tools in 300 kB."""

TTL_S = 86_400.0
"""A list with a longer ttl is still looked at again for an unknown op."""

PROBLEMS = 8
"""Told of one definition."""

COMPLAINTS = 20
"""Definitions that one warning names; further ones are only counted."""

DEPTH = 64
"""How deep a definition may nest: it is encoded again for each client."""


EXTRAS_BYTES = 64 << 10
"""Per capability of those, as JSON."""


CHANGED = {
    "notifications/tools/list_changed": (TOOLS,),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}

ARGS = ArgsValidator({op: one.args for op, one in OPS.items()})


class _Listing:
    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.tools: dict[str, dict[str, Any]] = {}
        self.size_bytes = 0
        self.pages = 0
        self.cursors: set[str] = set()


class ServerLists:
    def __init__(self, agreed: Agreed) -> None:
        self.complaints: list[str] = []
        """The omitted definitions and why, as clauses; the reader clears it."""
        capabilities = dict(agreed.capabilities)
        for field in EXTRAS:
            self._mend_extras(capabilities, field)
        self.agreed = msgspec.structs.replace(agreed, capabilities=capabilities)
        self._lists: dict[str, dict[str, dict[str, Any]]] = {}
        self._tools: dict[str, dict[str, Any]] = {}
        self._unlisted: dict[str, str] = {}
        """Why lists could not be fetched, by name."""
        self._coming: dict[str, _Listing] = {}
        self.ttl_s = 0.0
        """How long the server's tools stay valid, as it says."""

    @property
    def offered(self) -> list[str]:
        """The lists that the server announces; and tools, which it may have unannounced."""
        announced = self.agreed.capabilities
        return [
            name
            for name, one in LISTS.items()
            if one.capability in announced or self._lists.get(name)
        ]

    @property
    def extras(self) -> list[str]:
        return [one for field in EXTRAS for one in self.agreed.capabilities.get(field, ())]

    def _mend_extras(self, capabilities: dict[str, Any], field: str) -> None:
        said = capabilities.pop(field, None)
        entries = said if isinstance(said, dict) else {}
        kept = {
            name: one
            for name, one in entries.items()
            if isinstance(one, dict) and not is_deeper(one, DEPTH)
        }
        kept = kept if len(encode(kept)) <= EXTRAS_BYTES else {}
        if kept:
            capabilities[field] = kept
        if said is not None and kept != said:
            words = f"which is to be objects up to {DEPTH} levels deep in {EXTRAS_BYTES} bytes"
            self.complaints.append(f"{field} of its capabilities, {words}: the rest is left out")

    def begin(self, name: str) -> None:
        self._coming[name] = _Listing()

    def is_coming(self, name: str) -> bool:
        return name in self._coming

    def give_up(self, name: str, why: str) -> None:
        """Keep a list as it was."""
        del self._coming[name]
        if name not in self.offered:
            return  # it was asked in case, and there is none
        self.complaints.append(f"{name}: {why}")
        if name not in self._lists:
            self._unlisted[name] = why

    def add_some(self, name: str, result: dict[str, Any]) -> dict[str, Any] | None:
        """Add the entries of one turn; returns the rest of the page, if any."""
        field = LISTS[name].field
        entries = result.get(field)
        if not isinstance(entries, list) or len(entries) <= TURN:
            return None
        self._add(name, self._coming[name], entries[:TURN])
        return {**result, field: entries[TURN:]}

    def add_page(self, name: str, result: dict[str, Any]) -> str | None:
        """Add a page; returns the cursor of the next one, if there is one to ask for."""
        listing = self._coming[name]
        listing.pages += 1
        entries = result.get(LISTS[name].field)
        problem: str | None = None
        if isinstance(entries, list):
            problem = self._add(name, listing, entries)
        else:
            problem = f"has no {quoted(LISTS[name].field)}"
        cursor = result.get("nextCursor")
        if problem is None and cursor is not None:
            problem = self._cursor_problem(listing, cursor)
            if problem is None:
                return str(cursor)
        if problem is not None:
            self.complaints.append(f"{name}: page {listing.pages} {problem}; the list ends there")
        if listing.entries and name not in self.offered:
            words = "the server announces no capabilities and has tools all the same: they are used"
            self.complaints.append(f"{name}: {words}")
        if name == TOOLS:
            self.ttl_s = _ttl_s(result.get("ttlMs"))
        self._lists[name] = listing.entries
        if name == TOOLS:
            self._tools = listing.tools
        del self._coming[name]
        self._unlisted.pop(name, None)
        return None

    def _cursor_problem(self, listing: _Listing, cursor: object) -> str | None:
        if not isinstance(cursor, str):
            return f"has the cursor {described(cursor)}, which is not a string"
        if cursor in listing.cursors:
            return "has a cursor that was there before"
        if listing.pages >= PAGES:
            return f"is the last of {PAGES}, which is the most there may be"
        listing.cursors.add(cursor)
        return None

    def _add(self, name: str, listing: _Listing, entries: list[Any]) -> str | None:
        for entry in entries:
            problem = self._entry_problem(name, listing, entry)
            if problem is not None:
                self.complaints.append(f"{name}: an entry is left out: {problem}")
                continue
            if len(listing.entries) >= DEFINITIONS:
                return f"has more entries than {DEFINITIONS}, which is the most there may be"
            listing.size_bytes += len(encode(entry))
            if listing.size_bytes > LIST_BYTES:
                return f"makes it longer than {LIST_BYTES} bytes, which is the most it may be"
            self._look_for_odd_fields(name, listing, entry)
            listing.entries[entry[LISTS[name].named_by]] = entry
        return None

    def _look_for_odd_fields(self, name: str, listing: _Listing, entry: dict[str, Any]) -> None:
        named = entry[LISTS[name].named_by]
        newest = strict_definition(entry, LISTS[name].of)
        found = definition_for(self.agreed.revision, newest)
        if name == TOOLS:
            listing.tools[named] = found
        if newest is not entry or len(found) < len(entry):
            # Definitions that are only counted need no words.
            told = changes(entry, found) if len(self.complaints) < COMPLAINTS else ()
            words = "; ".join(islice(told, PROBLEMS))
            self.complaints.append(f"{name}: {quoted(named)}: {words}")

    def _entry_problem(self, name: str, listing: _Listing, entry: Any) -> str | None:
        named_by = LISTS[name].named_by
        if not isinstance(entry, dict):
            return f"it is {described(entry)}, it must be an object"
        named = entry.get(named_by)
        if not isinstance(named, str) or not named:
            return f"its {quoted(named_by)} is {described(named)}, it must be a string"
        if named in listing.entries:
            return f"{quoted(named)} stands there twice"
        if is_deeper(entry, DEPTH):
            return f"{quoted(named)} is nested more than {DEPTH} levels deep"
        return None

    @property
    def has_tools(self) -> bool:
        """Whether the list of tools is known, if the server has tools."""
        return TOOLS in self._lists or TOOLS not in self.offered

    def op_of_server(self, op: str) -> OpOfServer | None:
        """Return the request of MCP that an op names, unless a tool has that name."""
        found, capabilities = OPS.get(op), self.agreed.capabilities
        if found is None or found.capability not in capabilities:
            return None
        if op in (SUBSCRIBE, UNSUBSCRIBE):
            offered = capabilities["resources"]
            if not isinstance(offered, dict) or offered.get("subscribe") is not True:
                return None
        return None if op in self._lists.get(TOOLS, ()) else found

    def description(self, descriptor: Descriptor) -> dict[str, Any]:
        """Return the answer to `describe`, with the definitions as they came."""
        agreed = self.agreed
        inputs = {op: one.args for op in OPS if (one := self.op_of_server(op)) is not None}
        inputs |= {op: one["inputSchema"] for op, one in self._tools.items()}
        version = agreed.server.get("version")
        described_as: dict[str, Any] = {
            "name": descriptor.name,
            "version": version if isinstance(version, str) else None,
            "kind": str(descriptor.kind),
            "capabilities": list(descriptor.capabilities),
            "inputs": inputs,
            "outputs": {
                op: one["outputSchema"] for op, one in self._tools.items() if "outputSchema" in one
            },
            "mcp": {
                "era": str(agreed.era),
                "revision": agreed.revision,
                "server": agreed.server,
                "capabilities": agreed.capabilities,
            },
        }
        if self._unlisted:
            unlisted = {LISTS[name].told_as: why for name, why in self._unlisted.items()}
            described_as["mcp"]["unlisted"] = unlisted
        if agreed.instructions is not None:
            described_as["instructions"] = agreed.instructions
        for name in self.offered:
            described_as[LISTS[name].told_as] = list(self._lists.get(name, {}).values())
        return described_as


def _ttl_s(ttl_ms: Any) -> float:
    if type(ttl_ms) not in (int, float) or not ttl_ms > 0:
        return 0.0
    return float(min(ttl_ms / 1000, TTL_S))
