"""The offers of a view's modules, by the names under which a client knows them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from protocol.mcp_server.definitions import (
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    entries_of,
    extras_of,
    matches,
    offers,
    tools_of,
    unlisted_of,
)
from protocol.mcp_server.names import Op, may_be_of, naming
from protocol.mcp_server.results import OWN_SCHEME, module_of_uri, uri_of_module
from supervisor.kernel.catalogue import Offer
from supervisor.policy.mcp_views import View
from supervisor.policy.principals import Principal

TOOL = "tool"

_FIELDS = {TEMPLATES: "resourceTemplates"}
"""The fields of answers that differ from those of `describe`."""

Definitions = dict[str, dict[str, Any]]
"""Definitions by name or URI."""


class Table(msgspec.Struct, frozen=True):
    """The offers of one view to one principal at one moment."""

    version: int
    names: Mapping[str, Op]
    tools: Definitions
    prompts: Definitions
    prompt_names: Mapping[str, Op]
    resources: Definitions
    templates: Definitions
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
        matched = [self.owners[one] for one in self.templates if matches(one, uri)]
        silent = [one for one, lists in self.readers.items() if not lists]
        only = list(self.readers) if len(self.readers) == 1 else silent
        found = [*named, *matched] or (only if len(only) == 1 else [])
        return list(dict.fromkeys(found))

    def may_have(self, name: str, view: View) -> list[str]:
        """Return the modules that may have a tool of that name, unlisted so far."""
        return [one for one in self.servers if may_be_of(name, one, prefix=view.prefix)]


def laying_out(
    version: int,
    view: View,
    principal: Principal,
    offered: Iterable[Offer],
    *,
    has_waited: bool,
    had: Mapping[str, str] = {},
) -> Generator[None, None, Table]:
    """Lay out the offers of a view for `principal`, who has been narrowed to it.

    `had` has the former module of each URI: it stays so as long as that module lists it. Each step
    does a little, since a fleet may have tens of thousands of tools.
    """
    seen = [one for one in offered if view.modules is not None or one.kind == TOOL]
    definitions: dict[Op, Mapping[str, Any]] = {}
    prompts: dict[Op, Mapping[str, Any]] = {}
    resources: Definitions = {}
    templates: Definitions = {}
    owners: dict[str, str] = {}
    renamed: dict[str, list[str]] = {}
    for module, field, each in _readable(seen, principal):
        if had.get(each[field]) == module:
            owners[each[field]] = module
        yield
    for module, field, each in _readable(seen, principal):
        uri, definition = each[field], each
        if uri.startswith(OWN_SCHEME) or owners.setdefault(uri, module) != module:
            renamed.setdefault(module, []).append(uri)
            uri = uri_of_module(module, uri)
            owners[uri] = module
            definition = _renamed(each, field, uri, module)
        (resources if field == "uri" else templates).setdefault(uri, definition)
        yield
    for one in seen:
        if one.said is None:
            continue
        for tool in tools_of(one.said, one.summary):
            if principal.covers(one.module, tool.op):
                definitions[one.module, tool.op] = tool.definition
            yield
        if principal.covers(one.module, "prompts/get"):
            prompts |= {(one.module, each["name"]): each for each in entries_of(one.said, PROMPTS)}
            yield
    listing = set(owners.values())
    names = yield from naming(definitions, prefix=view.prefix)
    prompt_names = yield from naming(prompts, prefix=False)
    return Table(
        version,
        names,
        (yield from _naming_each(names, definitions)),
        (yield from _naming_each(prompt_names, prompts)),
        prompt_names,
        resources,
        templates,
        owners,
        {
            one: one in listing
            for one in _asked(seen, "resources/read")
            if principal.covers(one, "resources/read")
        },
        renamed,
        tuple(one.module for one in seen if one.said is not None and "mcp" in one.said),
        frozenset(_asked(seen, "completion/complete")),
        _instructions(seen),
        has_waited,
        _problem(view, seen) if not (names or prompts or owners or templates) else None,
        _unlisted(seen),
        seen[0].module if len(seen) == 1 else None,
        extras_of(seen[0].said or {}) if len(seen) == 1 else {},
        _missing(seen),
    )


def _naming_each(
    names: Mapping[str, Op], definitions: Mapping[Op, Mapping[str, Any]]
) -> Generator[None, None, Definitions]:
    named: Definitions = {}
    for name, op in names.items():
        named[name] = _named(name, definitions[op])
        yield
    return named


def _named(name: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    if "name" in definition:
        return {**definition, "name": name}  # in its place: a definition is as its module wrote it
    return {"name": name, **definition}


def _readable(
    seen: Iterable[Offer], principal: Principal
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield resources and templates: the module, the field of the URI, the definition."""
    for one in seen:
        if one.said is not None and principal.covers(one.module, "resources/read"):
            yield from ((one.module, "uri", each) for each in entries_of(one.said, RESOURCES))
            yield from (
                (one.module, "uriTemplate", each) for each in entries_of(one.said, TEMPLATES)
            )


def _renamed(each: dict[str, Any], field: str, uri: str, module: str) -> dict[str, Any]:
    words = f"Of the module {module}; another one has {each[field]}, too."
    if each[field].startswith(OWN_SCHEME):
        words = f"Of the module {module}, which names it {each[field]}."
    text = each.get("description")
    return {**each, field: uri, "description": f"{text} ({words})" if text else words}


def _asked(seen: Iterable[Offer], op: str) -> list[str]:
    return [one.module for one in seen if one.said is not None and offers(one.said, op)]


def _missing(seen: Iterable[Offer]) -> str | None:
    reasons = [one.problem or "" for one in seen if one.is_missing]
    return f"not listed: {'; '.join(reasons[:8])}" if reasons else None


def _instructions(seen: list[Offer]) -> str | None:
    found: dict[str, str] = {
        one.module: one.said["instructions"]
        for one in seen
        if one.said is not None and isinstance(one.said.get("instructions"), str)
    }
    if len(seen) == 1 and found:
        return next(iter(found.values()))
    texts = [f"{name}: {text}" for name, text in found.items()]
    missing = _missing(seen)
    return "\n\n".join(texts if missing is None else [*texts, missing]) or None


def _unlisted(seen: Iterable[Offer]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for one in seen:
        for field, why in unlisted_of(one.said or {}).items():
            found.setdefault(_FIELDS.get(field, field), []).append(f"{one.module}: {why}")
    return {field: "; ".join(reasons[:8]) for field, reasons in found.items()}


def _problem(view: View, seen: list[Offer]) -> str | None:
    """Return why a view shows nothing; None if its modules offer nothing."""
    broken = [one for one in seen if one.problem is not None]
    if broken:
        return "; ".join(one.problem or "" for one in broken[:8])
    if view.modules is not None:
        named = ", ".join(view.modules)
        what = "op of a module" if seen else "module"
        return f"the view {view.name} is of {named}, and no {what} is that may be seen"
    return None
