"""The ops about the daemon, and about the connection that asks.

`status`, `metrics`, `reload`, `reloaded` and `shutdown`; `narrow` and `mcp`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import trio
from msgspec import Meta

from protocol.errors import Reason
from protocol.problem import quoted
from supervisor.kernel.metrics import Form
from supervisor.kernel.operations.op import (
    Args,
    Begun,
    ModuleName,
    Natural,
    OwnRequest,
    Word,
    op,
    seen_module,
)
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.status import daemon_status, gateway_status, seen_status
from supervisor.policy.capabilities import WILDCARD
from supervisor.policy.mcp_views import View, find_view
from supervisor.policy.principals import (
    GLOB_CHARS,
    GLOBS,
    WILDCARDS,
    Principal,
    Scope,
    has_few_wildcards,
)
from supervisor.runtime.turns import Turn, each_in_turns

if TYPE_CHECKING:
    from supervisor.kernel.exposition import Exposition
    from supervisor.kernel.kernel import Kernel


class StatusArgs(Args):
    module: ModuleName | None = None
    histogram: Annotated[
        bool, "add the counts of durations, for quantiles of a time between two asks"
    ] = False
    outcomes: Annotated[
        bool, "add how the invocations of each op ended, and causes of restarts"
    ] = False
    inputs: Annotated[bool, "with a module: add the schemas of what its ops take"] = False


@op("status", Scope.READ, StatusArgs)
def status(kernel: Kernel, args: StatusArgs, request: OwnRequest) -> Begun:
    principal = request.principal
    more = {"histogram": args.histogram, "outcomes": args.outcomes}
    if args.module is not None:
        module = seen_module(kernel, args.module, principal)
        return seen_status(kernel, module, principal, inputs=args.inputs, **more)
    # First, so that no entry of a module is older than the reloads that are counted.
    whole = _status_of_daemon(kernel, principal)
    entries = _module_entries(kernel, principal, **more)
    return kernel.long_answers.gather(entries, whole, request.party)


def _status_of_daemon(kernel: Kernel, principal: Principal) -> dict[str, Any]:
    """Return the answer to `status` without the modules."""
    fleet, facts, effects = kernel.fleet, kernel.facts, kernel.effects
    whole = principal.covers_all()
    shown: dict[str, Any] = {
        "daemon": {
            **daemon_status(facts, trio.current_time()),
            "reloads": kernel.reloads.count,
            "refused": dict(kernel.requests.refused),
            "last_reload": msgspec.to_builtins(kernel.reloads.last),
            "leaving": [
                seen_status(kernel, one, principal)
                for one in fleet.leaving.values()
                if principal.sees(one.name)
            ],
            "watch": msgspec.to_builtins(facts.watch),
            "assets": effects.assets.status(),
            "ui": effects.ui.status(),
            "sessions": kernel.sessions.counts(principal),
            "policy": kernel.grants.operator.status(fleet.modules) if whole else None,
            "approvals": kernel.approvals.status(principal),
        },
        "quarantined": [msgspec.to_builtins(one) for one in fleet.quarantined if whole],
    }
    if facts.gateway is not None:
        shown["http"] = gateway_status(facts.gateway) if whole else None
    if not whole:
        # Their commands name modules that the principal may not see.
        shown["daemon"]["left_containers"] = []
    return shown


def _module_entries(
    kernel: Kernel, principal: Principal, **more: bool
) -> Iterator[dict[str, Any] | None]:
    """Yield the entry of each module; None for a module that the principal does not see.

    Finding that takes time too: a turn may end after each.
    """
    by_name = sorted(kernel.fleet.modules.items(), key=itemgetter(0))
    return (
        seen_status(kernel, module, principal, **more) if principal.sees(module.name) else None
        for _, module in by_name
    )


class MetricsArgs(Args):
    format: Annotated[Form, "the text format of Prometheus (0.0.4), or OpenMetrics (1.0.0)"] = (
        Form.PROMETHEUS
    )


@op("metrics", Scope.READ, MetricsArgs)
async def metrics(kernel: Kernel, args: MetricsArgs, request: OwnRequest) -> dict[str, Any]:
    """Write metrics a turn at a time: it takes as long as a whole `status`."""
    principal = request.principal
    async with kernel.long_answers.one_of_metrics:
        threads = kernel.facts.registry.threads
        make = await threads.run("importing prometheus_client", _import_exposition)
        exposition = make(args.format)
        whole = _status_of_daemon(kernel, principal)
        entries = _module_entries(kernel, principal, histogram=True, outcomes=True)
        turn = Turn()
        turn.begin()
        for _ in exposition.write(whole, entries):
            await turn.go_on()
        texts = [one async for one in each_in_turns(exposition.texts())]
        text = "".join(texts)
        # Of thousands of modules, to put it together and to encode it takes a turn each.
        await turn.go_on()
    return {"content_type": exposition.content_type, "text": text}


def _import_exposition() -> type[Exposition]:
    # Without a scrape it is never imported; and that takes longer than a turn.
    from supervisor.kernel.exposition import Exposition  # noqa: PLC0415

    return Exposition


class ReloadArgs(Args):
    dry_run: Annotated[bool, "only say what a reload would do"] = False


@op("reload", Scope.ADMIN, ReloadArgs, all_modules=True)
async def reload(kernel: Kernel, args: ReloadArgs, _request: OwnRequest) -> dict[str, Any]:
    reloads, operator = kernel.reloads, kernel.grants.operator
    if args.dry_run:
        plan = await reloads.rehearse()
    else:
        plan = await reloads.reload("a command", again=True)
    number = reloads.count
    refused = [] if args.dry_run else await reloads.wait_decided(plan)
    document = plan.document()
    document["quarantined"] += [msgspec.to_builtins(one) for one in refused]
    return {
        "dry_run": args.dry_run,
        "reloads": number,
        **document,
        "policy": operator.path and str(operator.path),
        "policy_problem": await reloads.policy_problem(),
    }


class ReloadedArgs(Args):
    number: Annotated[
        Natural, "wait until so many reloads have been applied (status: daemon.reloads)"
    ]


@op("reloaded", Scope.READ, ReloadedArgs)
async def reloaded(kernel: Kernel, args: ReloadedArgs, _request: OwnRequest) -> dict[str, Any]:
    last: dict[str, Any] = msgspec.to_builtins(await kernel.reloads.wait_for(args.number))
    return last


@op("shutdown", Scope.ADMIN, Args, all_modules=True)
def shutdown(kernel: Kernel, _: Args, request: OwnRequest) -> Begun:
    kernel.shut_down("a command", request.principal.by)
    return {"pid": kernel.facts.pid}


NARROW = "narrow"

Globs = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=GLOB_CHARS)], ...], Meta(max_length=GLOBS)
]
"""`check_globs` bounds their wildcards."""

Scopes = Annotated[tuple[Scope, ...], Meta(max_length=len(Scope))]


class KeptRights(Args):
    scopes: Annotated[Scopes | None, "those to keep; all there are if left out"] = None
    modules: Annotated[
        Globs | None, "globs over MODULE and MODULE.OP to keep; as it is if left out"
    ] = None


class NarrowArgs(KeptRights):
    view: Annotated[Word | None, "the view of an MCP client, to whose modules to keep"] = None


class McpArgs(Args):
    view: Annotated[Word | None, "what it is to see of the modules"] = None


@op(NARROW, None, NarrowArgs)
def narrow(kernel: Kernel, args: NarrowArgs, request: OwnRequest) -> Begun:
    party, more = request.party, {}
    principal = narrowed(party.principal, args)
    if args.view is not None:
        view = _find_view(kernel, args.view, principal)
        principal = view.narrowed(principal)
        more = {
            "view": {"name": view.name, "modules": view.modules, "prefix": view.prefix},
            **_served_by(kernel),
            "session_idle_s": kernel.mcp.session_idle_s,
            "run": kernel.facts.started_at,
        }
    party.principal = principal
    return {**principal.document(), **more}


@op("mcp", None, McpArgs)
def become_mcp_client(kernel: Kernel, args: McpArgs, request: OwnRequest) -> Begun:
    party = request.party
    if not party.may_speak_mcp:
        words = "this connection cannot become an MCP client's: a connection of the control"
        words += " socket can, by its first request"
        raise RefusedError.because(Reason.MALFORMED_REQUEST, words)
    view = _find_view(kernel, args.view, party.principal)
    party.principal = view.narrowed(party.principal)
    party.view = view
    return {"view": view.name, **_served_by(kernel), **party.principal.document()}


def _find_view(kernel: Kernel, name: str | None, principal: Principal) -> View:
    view = find_view(kernel.mcp.views, name, principal)
    if isinstance(view, str):
        raise RefusedError.because(Reason.INVALID_ARGS, view, pointer="/view")
    return view


def _served_by(kernel: Kernel) -> dict[str, Any]:
    return {"pid": os.getpid(), "directories": kernel.facts.directories}


def narrowed(principal: Principal, args: KeptRights) -> Principal:
    """Return a principal narrowed to what args keep.

    Raises `RefusedError` if that takes too many globs, or too many wildcards.
    """
    kept = principal.narrowed(args.scopes, check_globs(args.modules))
    if len(kept.modules) > max(GLOBS, len(principal.modules)):
        words = f"it takes {len(kept.modules)} globs to say what both sides cover, and there may be"
        raise RefusedError.because(Reason.INVALID_ARGS, f"{words} {GLOBS}", pointer="/modules")
    return kept


def check_globs(globs: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the `modules` of args; raises `RefusedError`."""
    for index, one in enumerate(globs or ()):
        if not has_few_wildcards(one):
            words = f"{quoted(one)} has {one.count(WILDCARD)} `*`, and may have {WILDCARDS}"
            raise RefusedError.because(Reason.INVALID_ARGS, words, pointer=f"/modules/{index}")
    return globs
