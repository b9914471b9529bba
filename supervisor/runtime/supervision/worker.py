"""One place for a process: it feeds the lifecycle table, and does what the table says.

    commands, news of a life, its end, a time to try again
        -> Input -> policy.lifecycle.TABLE -> State, and actions -> a life, a timer, the module

All of it is synchronous but `_live`, the task of one life, where it is also decided what follows
from its end. At most one life exists at a time, and whatever a former one still reports is ignored:
a stale exit changes nothing. A module has one worker, or several (`pool`).

The transport decides which kind of life it is (`LIVES`), here and nowhere else. A new kind is a
subclass of `life.Life` and an entry there, which is all that supervision knows of a kind: worker,
module and fleet never ask which it is.
"""

from __future__ import annotations

import math
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
import structlog
import trio

from protocol.descriptor.model import Lifecycle, Supervision, Transport
from supervisor.policy.lifecycle import SERVES, Action, Input, State, move
from supervisor.policy.pool import renewed_after_requests, renewed_at_age_s
from supervisor.policy.restart import History, RestartDecision, after_end, healthy_long_enough
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.life import PREPARED, Life, LifeEnd, Setting
from supervisor.runtime.supervision.per_invocation import PerInvocationLife
from supervisor.runtime.supervision.persistent import PersistentLife
from supervisor.runtime.supervision.prepare import PreparingLife, is_unprepared
from supervisor.runtime.supervision.service import ServiceLife
from supervisor.runtime.supervision.starts import StartTurn

if TYPE_CHECKING:
    from supervisor.runtime.supervision.module import Module

log = structlog.get_logger()

_WAITS = (State.BACKOFF, State.FAILED)


LIVES: dict[tuple[str, Lifecycle], type[Life]] = {
    ("stdio", Lifecycle.PERSISTENT): PersistentLife,
    ("http", Lifecycle.PERSISTENT): ServiceLife,
    ("stdio", Lifecycle.PER_INVOCATION): PerInvocationLife,
}


def life_kind(transport: Transport) -> type[Life]:
    return LIVES[transport.type, transport.lifecycle]


class Wish(Enum):
    """What is wanted of a worker; it decides what follows from the end of its life."""

    UP = "up"
    ANEW = "anew"
    """Up, by another life than the one it has."""
    DOWN = "down"
    ASLEEP = "asleep"
    """Down until a request comes."""
    GONE = "gone"
    """It gets no more calls, ends when it has served those that it has, and does not come back."""


SLACK_S = 0.001
"""A timer may fire so much early: its time is a sum of floats."""


class Service(msgspec.Struct):
    """What a process has done since its start, and when it is to be renewed (monotonic, s)."""

    used_at: float = 0.0
    """When it last had a call, got ready, or began to start."""
    served: int = 0
    most: float = math.inf
    """How many calls it serves."""
    age_s: float = math.inf
    old_at: float = math.inf
    """When it has that age."""
    spared_until: float = 0.0

    @property
    def due_at(self) -> float:
        """When it is to be renewed, if nothing is asked of it before."""
        return max(self.spared_until, 0.0 if self.served >= self.most else self.old_at)

    def is_due(self, now: float) -> bool:
        return now >= self.due_at - SLACK_S

    @property
    def why_due(self) -> str:
        """A clause."""
        if self.served >= self.most:
            return f"has served {self.served} requests"
        return f"is {self.age_s:.3g} s old"


class CrashRecord:
    """The crashes in one place, and the good health that makes them forgotten.

    It decides, when a process is gone, whether and when the next one comes.
    """

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self._history = History()
        self._healthy_since: float | None = None
        self._was_ready = False

    def forgive(self) -> None:
        self._history = History()

    def spawned(self) -> None:
        """A new process is neither ready nor known to be healthy."""
        self._was_ready = False
        self._healthy_since = None

    def ready(self) -> None:
        self._was_ready = True
        self._healthy_since = trio.current_time()

    def probed(self, *, well: bool) -> None:
        if not well:
            self._forget_if_healthy()
            self._healthy_since = None
        elif self._healthy_since is None:
            self._healthy_since = trio.current_time()

    def ended(self, ended: LifeEnd, *, replaced: bool, draw: float) -> RestartDecision:
        """Decide what follows, as it was wanted; `draw` is random in [0, 1).

        `replaced`: the host ended it, since it could no longer be spoken with.
        """
        self._forget_if_healthy()
        decision = after_end(
            self._supervision,
            self._history,
            abnormal=ended.exit.abnormal or replaced,
            was_ready=self._was_ready,
            now=trio.current_time(),
            draw=draw,
            end=None if replaced else ended.exit,
            idle=ended.idle and not replaced,
        )
        self._history = decision.history
        return decision

    def _forget_if_healthy(self) -> None:
        if self._healthy_since is not None and healthy_long_enough(
            self._supervision, trio.current_time() - self._healthy_since
        ):
            self._history = History()


class Worker:
    __slots__ = (
        "_blamed", "_crashes", "_inputs", "_module", "_moving", "_nursery", "_retry", "_turn",
        "follows", "instance", "last_exit", "life", "restarts", "retry_at", "service", "serving",
        "setting", "state", "wanted", "why_gone",
    )  # fmt: skip

    def __init__(
        self,
        setting: Setting,
        nursery: trio.Nursery,
        module: Module,
        follows: Worker | None = None,
    ) -> None:
        """It `follows` the worker that goes once this one is ready."""
        self.setting = setting
        self.state = State.DOWN
        self.wanted = Wish.DOWN
        self.life: Life | None = None
        self.serving: Life | None = None
        """The life, while calls may be given to it: an attribute, since each call asks."""
        self.instance: str | None = None
        """The newest instance it has had; None if its lives are none."""
        self.restarts: Counter[str] = Counter()
        """How often it came back after an unasked end, by the reason of that end."""
        self.last_exit: LifeEnd | None = None
        self.retry_at: float | None = None
        """When it is tried again, in `backoff` and `failed` (monotonic)."""
        self.service = Service()
        self.follows = follows
        self.why_gone = ""
        self._crashes = CrashRecord(setting.descriptor.supervision)
        self._nursery = nursery
        self._module = module
        self._turn: StartTurn | None = None
        self._blamed: LifeEnd | None = None
        """Why the host ends its life, if the life is to blame for it."""
        self._retry: Timer | None = None
        self._inputs: list[tuple[Input, str]] = []  # a deque is 700 bytes, and most have nothing
        self._moving = False

    # Commands.

    def start(self, cause: str) -> None:
        if self.wanted is not Wish.ANEW:
            self.wanted = Wish.UP
        self._look_whether_it_serves()
        self._forgive()
        self._feed(Input.START, cause)

    def stop(self, cause: str) -> None:
        self.want_down()
        self._feed(Input.STOP, cause)

    def restart(self, cause: str) -> None:
        self.wanted = Wish.UP if self.life is None else Wish.ANEW
        self._look_whether_it_serves()
        self._forgive()
        self._feed(Input.RESTART, cause)

    def leave(self, cause: str) -> None:
        """End for good: at once, or when it has served the calls that it has."""
        self.wanted, self.why_gone = Wish.GONE, cause
        self._look_whether_it_serves()
        if not self.serves or not self.load:
            self._feed(Input.STOP, cause)

    def want_down(self) -> None:
        """Let nothing follow the end of its life."""
        if self.wanted is not Wish.GONE:
            self.wanted = Wish.DOWN

    def hurry(self) -> None:
        if self.life is not None:
            self.life.hurry()
            if self._turn is not None:
                self._turn.give_up()

    def _forgive(self) -> None:
        # A start of what had failed follows a repair: it gets its whole budget again.
        if self.state in _WAITS:
            self._crashes.forgive()

    # What is known of it.

    @property
    def serves(self) -> bool:
        return self.state in SERVES

    @property
    def leaves(self) -> bool:
        return self.wanted is Wish.GONE

    @property
    def is_wanted(self) -> bool:
        return self.wanted is Wish.UP or self.wanted is Wish.ANEW

    @property
    def is_gone(self) -> bool:
        return self.state is State.DOWN and not self.is_wanted

    @property
    def load(self) -> int:
        return 0 if self.life is None else self.life.load

    def free(self) -> Life | None:
        """Return the life if it takes a further call now."""
        life = self.serving
        return None if life is None or not life.can_take() else life

    def _look_whether_it_serves(self) -> None:
        self.serving = self.life if self.serves and not self.leaves else None

    @property
    def next_retry_s(self) -> float | None:
        """Seconds until the next try, in `backoff` and `failed`."""
        if self.retry_at is None:
            return None
        return max(0.0, round(self.retry_at - trio.current_time(), 3))

    # What a life reports; ignored once there is another life.

    def happened(self, life: Life, news: Input, why: str, failure: LifeEnd | None = None) -> None:
        """Take one of the inputs that are about a life.

        STARTED: it is ready to serve; `why` is what shows it. START_FAILED: it will not get ready,
        for this `failure`. HEALTHY, UNHEALTHY: what a probe found. REPLACE: it can no longer be
        spoken with.
        """
        if life is not self.life:
            return
        if news is Input.STARTED:
            if self.instance is not None:
                self.instance = life.id  # its start may have taken a second process
            self._give_turn_back()
            self._crashes.ready()
            self._begin_service()
        elif news is Input.START_FAILED:
            self._give_turn_back()
            self._blamed = failure
        elif news is Input.REPLACE:
            if self._blamed is None and self.state is not State.STOPPING:
                self._blamed = LifeEnd("replaced", why)
        else:
            self._crashes.probed(well=news is Input.HEALTHY)
            if news is Input.HEALTHY and self.state is State.READY:
                return
        self._feed(news, why)

    def run_failed(self, life: Life, ended: LifeEnd) -> None:
        """Remember the bad end of one process of several; the life goes on."""
        if life is self.life:
            self._remember(ended)

    def capacity_freed(self, life: Life) -> None:
        """Hand out what waits: the life may have room."""
        if life is self.life and self.state in SERVES:
            self._module.freed(self)

    def _begin_service(self) -> None:
        instances, draw = self.setting.descriptor.supervision.instances, self.setting.host.draw
        self.service = service = Service(used_at=trio.current_time())
        if instances.max_requests is not None:
            service.most = renewed_after_requests(instances.max_requests, draw())
        if instances.max_age_s is not None:
            service.age_s = renewed_at_age_s(instances.max_age_s, draw())
            service.old_at = service.used_at + service.age_s

    # The table, and its actions.

    def _feed(self, given: Input, cause: str) -> None:
        # An action may lead to another input (a refused call's client starts the module again);
        # inputs are taken one after the other.
        self._inputs.append((given, cause))
        if self._moving:
            return
        self._moving = True
        try:
            while self._inputs:
                self._move(*self._inputs.pop(0))
        finally:
            self._moving = False

    def _move(self, given: Input, cause: str) -> None:
        before = self.state
        following = move(before, given)
        if Action.SPAWN in following.actions and is_unprepared(self.setting):
            following = move(before, Input.UNPREPARED)
        self.state = following.state
        self._look_whether_it_serves()
        # Told before it is acted upon: what ended is written down before what begins.
        if before is not following.state:
            self._module.moved(self, before, cause)
        if before in _WAITS and following.state is not State.DOWN:
            assert self.last_exit is not None  # noqa: S101 - it waits since that
            self.restarts[self.last_exit.reason] += 1
        for action in following.actions:
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Action.PREPARE:
                self._begin(PreparingLife)
            case Action.SPAWN:
                self._begin(life_kind(self.setting.descriptor.transport))
            case Action.END:
                assert self.life is not None  # noqa: S101 - the table's promise
                self.life.end(abrupt=self._blamed is not None)
                if self._turn is not None:
                    self._turn.give_up()
            case Action.ARM:
                assert self.retry_at is not None  # noqa: S101 - set by the end that led here
                self._retry = self.setting.host.deadlines.at(self.retry_at, self._retry_due)
            case Action.DISARM:
                if self._retry is not None:
                    self._retry.cancel()
                self._retry = self.retry_at = None
            case Action.SERVE:
                self._module.freed(self)
            case Action.REFUSE:
                self._module.refuse(self)

    def _retry_due(self) -> None:
        self._retry = self.retry_at = None
        self._feed(Input.RETRY, "the time to try again has come")

    def _begin(self, kind: type[Life]) -> None:
        self._crashes.spawned()
        self.service = Service(used_at=trio.current_time())
        self.life = kind(self.setting, self)
        self.instance = self.life.id if kind.is_instance else None
        if kind.takes_turn:
            urgent = bool(self.restarts) or self._module.queued > 0
            self._turn = self.setting.host.starts.turn(urgent=urgent)
        self._nursery.start_soon(self._live, self.life)

    async def _live(self, life: Life) -> None:
        """Run a life to its end; then decide what follows from that, here and nowhere else."""
        ended = await self._in_turn(life)
        self._give_turn_back()
        self.life = self.serving = None
        if self.state is State.PREPARING and ended.reason == PREPARED:
            self._feed(Input.PREPARED, ended.message)
            return
        blamed, self._blamed = self._blamed, None
        on_demand = self.state is State.STOPPING and blamed is None
        ended = ended.as_told(blamed, stopped=on_demand)
        rule: str | None = None
        if not self.is_wanted:
            given, cause = Input.GONE_FOR_GOOD, ended.message
        elif on_demand or self.wanted is Wish.ANEW:
            # A start or restart was asked for while it was being stopped.
            given, cause = Input.GONE_AT_ONCE, "restart"
            self.wanted = Wish.UP
        else:
            draw = self.setting.host.draw()
            decision = self._crashes.ended(ended, replaced=blamed is not None, draw=draw)
            if decision.rule is not None:
                rule = decision.rule.pointer
                words = f"{ended.message} and {decision.rule.words}"
                ended = msgspec.structs.replace(ended, message=words)
            given, cause = decision.given, ended.message
            if decision.asleep:
                ended = ended.as_idle()
                cause = f"{ended.message}; its next request starts it"
                if self._module.queued:
                    given = Input.GONE_AT_ONCE
                else:
                    self.wanted = Wish.ASLEEP
            elif given is Input.GONE_FOR_GOOD:
                self.wanted = Wish.DOWN
            elif given is Input.GONE_AT_ONCE:
                self.restarts[ended.reason] += 1
            else:
                self.retry_at = trio.current_time() + decision.delay_s
        self._remember(ended, rule)
        if not on_demand:
            level = log.info if ended.reason == "idle" else log.warning
            level("module ended", module=self.setting.descriptor.name, **ended.evidence())
        self._feed(given, cause)

    async def _in_turn(self, life: Life) -> LifeEnd:
        try:
            if self._turn is None or await self._turn.wait():
                return await life.run()
        # A mistake of ours in one module's supervision is not to end all the others'. The process
        # is gone by now: an incarnation kills and reaps on every way out.
        except Exception as error:
            log.exception("supervision failed", module=self.setting.descriptor.name)
            return LifeEnd("supervision_failed", f"could not be supervised: {error!r:.200}")
        return LifeEnd("stopped", "was stopped before it was started")

    def _give_turn_back(self) -> None:
        if self._turn is not None:
            self._turn.give_back()
            self._turn = None

    def _remember(self, ended: LifeEnd, rule: str | None = None) -> None:
        ts = self.setting.host.wall_clock()
        self.last_exit = msgspec.structs.replace(ended, ts=ts, rule=rule)
        self._module.died(self)
