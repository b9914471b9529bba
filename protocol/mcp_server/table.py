"""The tools, prompts and resources of one view: each client knows them by these names and URIs.

    names         without a prefix an op keeps its own name, as far as MCP allows; with one it is
                  MODULE__OP in the characters that every client accepts. A name that is longer than
                  NAME_CHARS, or is another op's already, ends in a digest of module and op
    definitions   stay as a module wrote them, but for the name, for a missing description, and for
                  members that strict clients refuse (`mending`); an op with nothing but `inputs`
                  becomes a tool by that. Entries that make no sense are left out
    URIs          stay with the module that lists them; where another one has it, or it looks like
                  one of the daemon's own, it is listed as `stdiod://modules/MODULE/URI`

Who has a name keeps it, and of those that are new the first one gets it: anybody can write a name
so that it is another's, or its digest, and nobody may take a call that is meant for another.
"""

from __future__ import annotations

import itertools
import re
from collections import ChainMap
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, UnsetType

from protocol.dialects.mcp.catalogue import LISTS, OPS
from protocol.dialects.mcp.vocabulary import EXTRAS
from protocol.mcp_server import mending
from protocol.mcp_server.mending import strict_definition

NAME_CHARS = 64
"""The shortest of the known limits of clients and models."""

DIGEST_CHARS = 8

SEPARATOR = "__"

REMEMBERED = 20_000
"""Former names that are kept."""

Op = tuple[str, str]
"""A module and its op, or its own name for a prompt."""

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_ODD_IN_MCP = re.compile(r"[^A-Za-z0-9_.-]")

# --- Names -------------------------------------------------------------------


def naming(
    ops: Iterable[Op], *, prefix: bool, had: Mapping[str, Op] = {}
) -> Generator[None, None, dict[str, Op]]:
    """Name each op, in small steps; the order stays. `had` has whose each name is or was."""
    given: dict[Op, str] = {}
    taken: dict[str, Op] = {}
    later: list[Op] = []
    for one in ops:
        name = _plain(one, prefix=prefix)
        is_free = had.get(name, one) == taken.get(name, one) == one
        if is_free and 0 < len(name) <= NAME_CHARS:
            given[one], taken[name] = name, one
        else:
            given[one] = ""
            later.append(one)
        yield
    for one in later:
        name = next(
            each
            for each in _digested(_plain(one, prefix=prefix), one)
            if had.get(each, one) == taken.get(each, one) == one
        )
        given[one], taken[name] = name, one
        yield
    return {name: one for one, name in given.items()}


def is_another_ones(name: str, one: Op, *, prefix: bool) -> bool:
    """Tell whether an op was given a name because another one has its own."""
    plain = _plain(one, prefix=prefix)
    return name != plain and 0 < len(plain) <= NAME_CHARS


def _plain(one: Op, *, prefix: bool) -> str:
    module, op = one
    return _ODD.sub("_", f"{module}{SEPARATOR}{op}") if prefix else _ODD_IN_MCP.sub("_", op)


def may_be_of(name: str, module: str, *, prefix: bool) -> bool:
    """Tell whether an op of a module, one that is not known yet, may have that name."""
    most = NAME_CHARS - DIGEST_CHARS - 1
    return not prefix or name.startswith(_plain((module, ""), prefix=True)[:most])


def op_of(name: str, module: str) -> str | None:
    """Return the op that a name with a prefix has after that of a module; None if it has another's.

    Odd characters of the op are lost in a name: it is for a module that lists no ops.
    """
    before = _plain((module, ""), prefix=True)
    return name.removeprefix(before) if name.startswith(before) else None


def _digested(name: str, one: Op) -> Iterator[str]:
    """Yield names that end in a digest: of the op, then of that and a number."""
    import hashlib  # noqa: PLC0415 - OpenSSL is half a megabyte, which few lists need

    for number in itertools.count():
        words = one if number == 0 else (*one, str(number))
        digest = hashlib.sha256("\0".join(words).encode(errors="replace")).hexdigest()
        yield f"{name[: NAME_CHARS - DIGEST_CHARS - 1]}_{digest[:DIGEST_CHARS]}"


class Names:
    """The ops by name, current and former ones: calls by a former name may be under way."""

    def __init__(self) -> None:
        self._now: Mapping[str, Op] = {}
        self._former: dict[str, Op] = {}

    def replace(self, now: Mapping[str, Op]) -> None:
        for name, one in self._now.items():
            if name not in now:
                self._former.pop(name, None)  # the newest last
                self._former[name] = one
        while len(self._former) > REMEMBERED:
            del self._former[next(iter(self._former))]
        self._now = now

    @property
    def had(self) -> ChainMap[str, Op]:
        """Whose each name is, or was last."""
        return ChainMap(dict(self._now), self._former)

    def find(self, name: str) -> Op | None:
        """Return the op that a name stands for, or stood for last."""
        return self._now.get(name) or self._former.get(name)


# --- URIs --------------------------------------------------------------------

OWN_SCHEME = "stdiod://"
"""The scheme of the daemon's own URIs; a module's resource with this scheme is renamed."""


def uri_of_module(module: str, uri: str) -> str:
    """Return a URI for a module's resource that no other module has.

    The module's own URI stands in it unchanged, so that clients can fill in a template.
    """
    return f"{OWN_SCHEME}modules/{quote(module, safe='')}/{uri}"


def module_of_uri(uri: str) -> Op | None:
    """Return the module and its own URI that a URI was made of, if it was."""
    head, _, rest = uri.partition(f"{OWN_SCHEME}modules/")
    module, slash, own = rest.partition("/")
    return (unquote(module), own) if slash and not head else None


def own_uri(uri: str) -> str:
    of_module = module_of_uri(uri)
    return uri if of_module is None else of_module[1]


# --- Definitions, from what a module says of itself ---------------------------

PROMPTS, RESOURCES, TEMPLATES = "prompts", "resources", "resource_templates"
_KINDS = {one.told_as: one for one in LISTS.values()}

_EXPRESSION = re.compile(r"\{[^{}]*\}")


class Tool(msgspec.Struct, frozen=True):
    """An op of a module, and its definition without the name."""

    op: str
    definition: Mapping[str, Any]


def tools_of(said: Mapping[str, Any], summary: str | None) -> Iterator[Tool]:
    """Yield the tools of a module's description `said`; `summary` is its descriptor's."""
    inputs, outputs = _object(said, "inputs"), _object(said, "outputs")
    defined = {one["name"]: one for one in _entries(said, "tools", "name")}
    is_more = any(name in said for name in ("mcp", PROMPTS, RESOURCES, TEMPLATES))
    own = frozenset(OPS) if is_more else frozenset()
    for op in dict.fromkeys([*defined, *inputs]):
        if op in defined:
            definition = defined[op]
            if not isinstance(definition.get("inputSchema"), dict):
                definition = {**definition, "inputSchema": inputs.get(op)}
            yield Tool(op, _described(strict_definition(definition, mending.TOOL), op, summary))
        elif op not in own:
            made = _made(op, inputs[op], outputs.get(op), summary)
            yield Tool(op, strict_definition(made, mending.TOOL))


def _described(definition: dict[str, Any], op: str, summary: str | None) -> dict[str, Any]:
    text = definition.get("description")
    if isinstance(text, str) and text:
        return definition
    return {**definition, "description": _words(op, summary)}


def _made(op: str, schema: Any, output: Any, summary: str | None) -> dict[str, Any]:
    text = schema.get("description") if isinstance(schema, dict) else None
    words = text if isinstance(text, str) and text else _words(op, summary)
    made: dict[str, Any] = {"description": words, "inputSchema": schema}
    if isinstance(output, dict) and output.get("type") == "object":
        made["outputSchema"] = output
    return made


def _words(op: str, summary: str | None) -> str:
    return f"{op}: {summary}" if summary else op


def entries_of(said: Mapping[str, Any], field: str) -> Iterator[dict[str, Any]]:
    kind = _KINDS[field]
    return (strict_definition(one, kind.of) for one in _entries(said, field, kind.named_by))


def matches(template: str, uri: str) -> bool:
    """Tell whether a URI can match a template (RFC 6570); a yes may be wrong, a no never is.

    Each expression stands for any characters, so that one pass is enough for any template.
    """
    head, *parts = _EXPRESSION.split(template)
    if not parts:
        return uri == head
    *inner, last = parts
    if not uri.startswith(head) or len(uri) < len(head) + len(last) or not uri.endswith(last):
        return False
    at, end = len(head), len(uri) - len(last)
    for part in inner:
        found = uri.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _entries(said: Mapping[str, Any], field: str, named_by: str) -> list[dict[str, Any]]:
    entries = said.get(field)
    if not isinstance(entries, list):
        return []
    return [
        one
        for one in entries
        if isinstance(one, dict) and isinstance(one.get(named_by), str) and one[named_by]
    ]


def _object(said: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = said.get(field)
    return value if isinstance(value, dict) else {}


# --- The table -----------------------------------------------------------------

TOOL = "tool"

DEFAULT = "default"
"""The view of clients that name none."""

Definitions = dict[str, dict[str, Any]]
"""Definitions by name or URI."""


class ModuleView(msgspec.Struct, frozen=True):
    """The view of a client on the modules, as the op `narrow` answers it."""

    name: str = DEFAULT
    modules: tuple[str, ...] | None = None
    """Globs; without, all modules of kind tool."""
    prefix: bool = True
    """Whether a tool's name begins with its module's."""


class Offer(msgspec.Struct, frozen=True):
    """A module and its description; `problem` is why nothing is known of it."""

    module: str
    kind: str
    summary: str | None
    said: dict[str, Any] | None
    problem: str | None = None
    is_missing: bool = False
    """Whether a start failed, so that none is under way."""
    serves: bool | UnsetType = UNSET
    """Whether the module takes calls now; only `offers` with `detail` has this and the next."""
    ops: list[str] | UnsetType = UNSET
    """The known ops that the caller may use, if not all."""
    enabled: bool | UnsetType = UNSET
    """False of a disabled module: it offers nothing, and only `offers` with `detail` names it."""

    @property
    def description(self) -> Mapping[str, Any]:
        return self.said or {}

    def covers(self, op: str) -> bool:
        """Tell whether the caller may use an op."""
        return self.ops is UNSET or op in self.ops

    def can(self, op: str) -> bool:
        """Tell whether the module has an op."""
        return op in _object(self.description, "inputs")


class Table(msgspec.Struct, frozen=True):
    """The offers of one view to one principal at one moment."""

    names: Mapping[str, Op]
    prompt_names: Mapping[str, Op]
    lists: Mapping[str, Definitions]
    """By their fields in an answer: tools, prompts, resources, resourceTemplates."""
    owners: Mapping[str, str]
    """The modules of resources and templates, by listed URI."""
    readers: Mapping[str, bool]
    """The modules that can be asked to read a resource, and whether they list any."""
    renamed: Mapping[str, list[str]]
    """By module, the URIs that belong to another module and are listed under a changed name."""
    servers: tuple[str, ...]
    """The modules whose tools come and go."""
    completing: frozenset[str]
    instructions: str | None
    has_waited: bool
    """Whether the table waited for starting modules."""
    problem: str | None = None
    """Why the table is empty, unless the modules offer nothing."""
    unlisted: Mapping[str, str] = {}
    """Why a list is empty, by its field in an answer."""
    sole: str | None = None
    """The only module behind the view, if there is but one: its extensions of MCP are passed on."""
    extras: Mapping[str, Any] = {}
    """The sole module's capabilities that MCP does not define."""
    missing: str | None = None
    """The modules that are not listed since their start failed, and why."""

    def readers_of(self, uri: str) -> list[str]:
        """Return the modules that know a URI, the likeliest first.

        A URI that no module lists is asked of the only module that can read, else of the only
        reader that lists nothing: it may know more than could be listed.
        """
        of_module = module_of_uri(uri)
        if of_module is not None:
            return [of_module[0]] if of_module[0] in self.readers else []
        named = [self.owners[uri]] if uri in self.owners else []
        matched = [self.owners[one] for one in self.lists["resourceTemplates"] if matches(one, uri)]
        silent = [one for one, lists in self.readers.items() if not lists]
        only = list(self.readers) if len(self.readers) == 1 else silent
        found = [*named, *matched] or (only if len(only) == 1 else [])
        return list(dict.fromkeys(found))

    def may_have(self, name: str, view: ModuleView) -> list[str]:
        """Return the modules that may have a tool of that name, unlisted so far."""
        return [one for one in self.servers if may_be_of(name, one, prefix=view.prefix)]


class KnownLists:
    """The lists of one view for one caller, as they are known; servers for both may share them."""

    def __init__(self) -> None:
        self.table: Table | None = None
        self.version: tuple[Any, ...] | None = None
        """Whose version the table has: the run of the daemon, who asks, and the number."""
        self._serves: dict[str, bool] = {}
        """The modules of the view, and whether they serve."""
        self._tools, self._prompts = Names(), Names()
        self._owners: Mapping[str, str] = {}
        """The modules of URIs, in the last table that waited for starting modules."""

    def keep(self, table: Table, version: tuple[Any, ...]) -> None:
        self.table, self.version = table, version
        self._tools.replace(table.names)
        self._prompts.replace(table.prompt_names)
        if table.has_waited:
            self._owners = table.owners

    def meaning(self, name: str) -> Op | None:
        """Return the op of a tool's present or former name."""
        return self._tools.find(name)

    def unlisted(self, name: str) -> Op | None:
        """Return module and op of a name that no list has, if a module of the view is called so."""
        known = [(one, op) for one in self._serves if (op := op_of(name, one))]
        return max(known, key=lambda each: len(each[0]), default=None)

    def serves(self, module: str) -> bool:
        return self._serves.get(module, False)

    def lay_out(
        self, result: Mapping[str, Any], view: ModuleView, *, has_waited: bool
    ) -> Generator[None, None, Table]:
        """Return the table of an answer to `offers` with `detail`, for a caller narrowed to a view.

        Names of tools and prompts stay with those that had them, for good; a URI stays with the
        module that had it as long as that lists it. Each step does a little, since a fleet may have
        tens of thousands of tools.
        """
        offers = msgspec.convert(result["modules"], list[Offer])
        shown = [one for one in offers if view.modules is not None or one.kind == TOOL]
        seen = [one for one in shown if one.enabled is not False]
        owners: dict[str, str] = {}
        for module, field, each in _readable(seen):
            if self._owners.get(each[field]) == module:
                owners[each[field]] = module
            yield
        resources: Definitions = {}
        templates: Definitions = {}
        renamed: dict[str, list[str]] = {}
        for module, field, each in _readable(seen):
            uri, definition = each[field], each
            if uri.startswith(OWN_SCHEME) or owners.setdefault(uri, module) != module:
                renamed.setdefault(module, []).append(uri)
                words = f"Of the module {module}; another one has {uri}, too."
                if uri.startswith(OWN_SCHEME):
                    words = f"Of the module {module}, which names it {uri}."
                uri = uri_of_module(module, uri)
                owners[uri] = module
                definition = _remarked({**each, field: uri}, words)
            (resources if field == "uri" else templates).setdefault(uri, definition)
            yield
        tools: dict[Op, Mapping[str, Any]] = {}
        prompts: dict[Op, Mapping[str, Any]] = {}
        for one in seen:
            for tool in tools_of(one.description, one.summary):
                if one.covers(tool.op):
                    tools[one.module, tool.op] = tool.definition
                yield
            if one.covers("prompts/get"):
                entries = entries_of(one.description, PROMPTS)
                prompts |= {(one.module, each["name"]): each for each in entries}
                yield
        names = yield from naming(tools, prefix=view.prefix, had=self._tools.had)
        prompt_names = yield from naming(prompts, prefix=False, had=self._prompts.had)
        reasons = [one.problem or "" for one in seen if one.is_missing]
        missing = f"not listed: {'; '.join(reasons[:8])}" if reasons else None
        listing = set(owners.values())
        reading = [
            one for one in seen if one.can("resources/read") and one.covers("resources/read")
        ]
        self._serves = {one.module: one.serves is True for one in shown}
        return Table(
            names=names,
            prompt_names=prompt_names,
            lists={
                "tools": (yield from _named(names, tools, prefix=view.prefix)),
                "prompts": (yield from _named(prompt_names, prompts, prefix=False)),
                "resources": resources,
                "resourceTemplates": templates,
            },
            owners=owners,
            readers={one.module: one.module in listing for one in reading},
            renamed=renamed,
            servers=tuple(one.module for one in seen if "mcp" in one.description),
            completing=frozenset(one.module for one in seen if one.can("completion/complete")),
            instructions=_instructions(seen, missing),
            has_waited=has_waited,
            problem=None if names or prompts or owners else _problem(view, seen),
            unlisted=_unlisted(seen),
            sole=seen[0].module if len(seen) == 1 else None,
            extras=_extras(seen[0].description) if len(seen) == 1 else {},
            missing=missing,
        )


def _readable(seen: Iterable[Offer]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield resources and templates: the module, the field of the URI, the definition."""
    for one in seen:
        if one.covers("resources/read"):
            for field, uri in ((RESOURCES, "uri"), (TEMPLATES, "uriTemplate")):
                yield from ((one.module, uri, each) for each in entries_of(one.description, field))


def _named(
    names: Mapping[str, Op], definitions: Mapping[Op, Mapping[str, Any]], *, prefix: bool
) -> Generator[None, None, Definitions]:
    """Return definitions with their names; a name is put in its place, as the module wrote it."""
    named: Definitions = {}
    for name, op in names.items():
        one = definitions[op]
        named[name] = {**one, "name": name} if "name" in one else {"name": name, **one}
        if is_another_ones(name, op, prefix=prefix):
            words = f"The {op[1]} of the module {op[0]}; another one has that name."
            named[name] = _remarked(named[name], words)
        yield
    return named


def _remarked(each: dict[str, Any], words: str) -> dict[str, Any]:
    text = each.get("description")
    return {**each, "description": f"{text} ({words})" if text else words}


def _extras(said: Mapping[str, Any]) -> dict[str, Any]:
    capabilities = _object(_object(said, "mcp"), "capabilities")
    extras = {field: capabilities.get(field) for field in EXTRAS}
    return {field: value for field, value in extras.items() if isinstance(value, dict)}


def _instructions(seen: list[Offer], missing: str | None) -> str | None:
    texts = {one.module: one.description.get("instructions") for one in seen}
    said = {module: text for module, text in texts.items() if isinstance(text, str)}
    if len(seen) == 1 and said:
        return next(iter(said.values()))
    lines = [f"{module}: {text}" for module, text in said.items()]
    return "\n\n".join(lines if missing is None else [*lines, missing]) or None


def _unlisted(seen: Iterable[Offer]) -> dict[str, str]:
    """Return why hosted servers' lists could not be fetched, by the lists' fields in answers."""
    reasons: dict[str, list[str]] = {}
    for one in seen:
        for field, why in _object(_object(one.description, "mcp"), "unlisted").items():
            if field in _KINDS and isinstance(why, str):
                reasons.setdefault(_KINDS[field].field, []).append(f"{one.module}: {why}")
    return {field: "; ".join(each[:8]) for field, each in reasons.items()}


def _problem(view: ModuleView, seen: list[Offer]) -> str | None:
    """Return why a view shows nothing; None if its modules offer nothing."""
    broken = [one for one in seen if one.problem is not None]
    if broken:
        return "; ".join(one.problem or "" for one in broken[:8])
    if view.modules is not None:
        named = ", ".join(view.modules)
        what = "op of a module" if seen else "module"
        return f"the view {view.name} is of {named}, and no {what} is that may be seen"
    return None
