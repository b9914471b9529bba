"""Tell of a module's states: in the daemon's log, in the module's, and to whom they concern."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from protocol.descriptor.model import Descriptor
from supervisor.policy.causes import went
from supervisor.policy.findings import QuarantinedFile
from supervisor.policy.lifecycle import SERVES, State
from supervisor.runtime.supervision.host import DescriptionChange
from supervisor.runtime.supervision.worker import Worker

if TYPE_CHECKING:
    from supervisor.runtime.supervision.module import Module

log = structlog.get_logger()

_CONCERNED = SERVES | {State.STARTING}


def tell_of_module(module: Module, before: State, instance: str | None, cause: str) -> None:
    name, after = module.name, module.state
    known = {} if instance is None else {"instance": instance}
    level = _level(after)
    level("module state", module=name, **known, before=before, after=after, cause=cause)
    module.log.host_line(instance, f"{before} -> {after}: {cause}")
    module.host.observer.module_state(name, instance, before, after, cause)
    if (before in SERVES) is not (after in SERVES) or after in (State.FAILED, State.DOWN):
        _tell_dependants(module, went(name, before, after, cause))


def tell_of_worker(module: Module, worker: Worker, before: State, cause: str) -> None:
    after, instance = worker.state, worker.instance
    known = {"module": module.name, "instance": instance}
    _level(after)("instance state", **known, before=before, after=after, cause=cause)
    module.log.host_line(instance, f"this instance: {before} -> {after}: {cause}")


def tell_of_refusal(module: Module, refused: QuarantinedFile) -> None:
    log.warning("descriptor refused", module=module.name, **msgspec.structs.asdict(refused))
    module.log.host_line(None, refused.reason)
    module.host.observer.quarantined(refused)


def tell_of_description(
    module: Module,
    descriptor: Descriptor,
    instance: str,
    description: dict[str, Any],
    changes: int,
) -> None:
    if changes:
        module.log.host_line(instance, "describes itself anew")
    said = DescriptionChange(instance, description, changes, tuple(module.descriptions.misfits()))
    module.host.observer.described(descriptor, said)
    module.tally.look_again()


def is_needed(module: Module) -> bool:
    """Whether modules that run depend on it."""
    return any(one.state in _CONCERNED for one in module.fleet.dependants(module.name))


def _tell_dependants(module: Module, words: str) -> None:
    # They are not restarted: most can do without for a moment, and each knows best what to do.
    if module.host.shutting_down:
        return  # each is stopped before what it depends on
    for one in module.fleet.dependants(module.name):
        if one.state in _CONCERNED:
            one.log.host_line(one.workers[0].instance, words)


def _level(state: State) -> Callable[..., Any]:
    bad = state in (State.BACKOFF, State.FAILED, State.DEGRADED)
    return log.warning if bad else log.info  # type: ignore[no-any-return]
