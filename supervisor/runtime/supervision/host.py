"""The services that all modules of a daemon share: environment, clocks, deadlines, log files.

`Observer` is told what happens to modules, for a ring above such as the kernel. `ModuleCalls`
serves the calls that modules make outside of any request.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.connection import HostCalled, Notified, ResourceUpdated
from protocol.descriptor.model import Descriptor
from protocol.errors import Failure, Reason
from supervisor.policy.findings import QuarantinedFile
from supervisor.policy.lifecycle import State
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.held_bytes import HeldBounds, HeldBytes
from supervisor.runtime.process.environment import HostVariables
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.process.limits import INTERVAL_S, Sampler
from supervisor.runtime.supervision.containers import Containers
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.supervision.notes import Notes
from supervisor.runtime.supervision.starts import Starts

if TYPE_CHECKING:
    from supervisor.runtime.supervision.module import Module


class DescriptionChange(msgspec.Struct, frozen=True):
    """How the newest process of a module describes the module."""

    instance: str
    description: dict[str, Any]
    changes: int
    """How often it has changed since it was told last; 0 the first time."""
    misfits: tuple[str, ...]
    """Why descriptions of processes do not fit the descriptor, a sentence each."""


class Observer:
    """Is told what becomes of the modules; none of its methods may block or raise."""

    def module_state(
        self, module: str, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        """A module went from one state to another."""

    def described(self, descriptor: Descriptor, said: DescriptionChange) -> None:
        """A module has described itself: for the first time, or otherwise than before."""

    def instance_ready(self, module: str) -> None:
        """A process of a module serves from now on."""

    def told(self, module: str, news: ResourceUpdated | Notified) -> None:
        """A module has told something that belongs to no request."""

    def mounted(self, descriptor: Descriptor, *, again: bool = False) -> None:
        """A module is there now; `again` if its descriptor was replaced."""

    def unmounted(self, descriptor: Descriptor) -> None:
        """A module's descriptor is gone."""

    def quarantined(self, found: QuarantinedFile) -> None:
        """A descriptor is not used."""


class ModuleCalls:
    """Serves the calls that a module makes on its own account: of no request.

    None of its methods may block or raise. By default such calls are refused.
    """

    def take(self, module: Module, asked: HostCalled, process: Incarnation) -> None:
        """Accept a call, or refuse it at once; it is answered through `process`."""
        del module
        process.refuse(asked, "host calls without a request are not served here")

    def end(self, instance: str) -> None:
        """End all calls of a process: it is gone."""


class Host:
    """The surroundings of modules; made once per daemon and handed down."""

    def __init__(
        self,
        environment: Mapping[str, str],
        log_files: LogFiles,
        registry: ProcessRegistry | None = None,
        *,
        memory_ceiling_bytes: int | None = None,
        memory_look_s: float = INTERVAL_S,
        wall_clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
        observer: Observer | None = None,
        notes: Notes | None = None,
        held_bounds: HeldBounds | None = None,
        inherited: tuple[int, ...] = (),
    ) -> None:
        """`environment` is taken as it is now, since each spawn looks at all of it.

        `wall_clock` gives Unix time (s) for stamps; `draw` is random in [0, 1), for jitter, ids.

        Limits that the kernel does not keep are looked at every `memory_look_s`.

        `observer` is told what becomes of the modules. `notes` outlive the daemon if they can.
        `inherited` are descriptors that each process gets under the same number.
        """
        self.environment = HostVariables(environment)
        self.log_files = log_files
        self.deadlines = Deadlines()
        self.ledger = HeldBytes(held_bounds)
        self.starts = Starts(self.deadlines)
        self.wall_clock = wall_clock
        self.draw = draw
        self.observer = observer or Observer()
        self.calls = ModuleCalls()
        self.notes = Notes() if notes is None else notes
        self.registry = registry or ProcessRegistry.bare()
        self.containers = Containers(self.registry, self.environment, log_files, inherited)
        self.sampler = Sampler(self.registry.threads, memory_ceiling_bytes, memory_look_s)
        self.shutting_down = False
        ids = map(f"r%d-{int(draw() * 16**6):06x}".__mod__, itertools.count(1))
        self.next_request_id: Callable[[], str] = ids.__next__
        """Returns an id that no other request has; the tail is drawn once per run of the daemon."""

    def stopping(self, what: str, evidence: Mapping[str, Any]) -> Failure:
        """Build the failure of a request that ends because its module is stopped, or all are."""
        if self.shutting_down:
            words = f"the daemon is stopping, and {what} with it"
            return Failure.because(Reason.SHUTDOWN, words, **evidence)
        return Failure.because(Reason.STOPPING, f"{what} is being stopped", **evidence)
