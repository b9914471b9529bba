"""Supervise one module through its lives: feed the lifecycle table and do what it says.

Everything here is synchronous; only a life runs as a task. At most one life exists at a time, and
whatever a former life still reports is ignored (`life is not self._life`): a stale exit changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog
import trio

from supervisor.policy.lifecycle import SERVES, Action, Input, State, move
from supervisor.runtime.supervision.crash_record import CrashRecord, LastExit
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.life import Ended, Life, Setting
from supervisor.runtime.supervision.lives import PREPARING, LifeKind, life_kind
from supervisor.runtime.supervision.preparation import PREPARED, is_unprepared
from supervisor.runtime.supervision.starts import StartTurn

log = structlog.get_logger()


class Tended(msgspec.Struct, frozen=True):
    """What a slot tells its module."""

    serve: Callable[[], None]
    """There is, or may be, room for a call."""
    refuse: Callable[[], None]
    """Nobody will serve the calls that wait."""
    changed: Callable[[State, State, str], None]
    """The state went from one to another, because of this."""
    waiting: Callable[[], int] = lambda: 0
    """How many requests wait."""


class Slot:
    """A module's place for one life at a time; a pool has several."""

    def __init__(self, setting: Setting, nursery: trio.Nursery, tended: Tended) -> None:
        self.state = State.DOWN
        self.wanted = False
        self.restarts = 0
        self.last_exit: LastExit | None = None
        self.barred = False
        """Whether `never_on` keeps it down, until a person says otherwise."""
        self._setting = setting
        self._crashes = CrashRecord(setting.descriptor.supervision)
        self._nursery = nursery
        self._tended = tended
        self.instance: str | None = None
        """The newest instance it has had; None if its lives are none."""
        self._life: Life | None = None
        self._turn: StartTurn | None = None
        self._replaced_for: Ended | None = None
        self._restarting = False
        self._abrupt = False
        self._again = False
        self._delay_s = 0.0
        self._retry: Timer | None = None
        self._retry_at: float | None = None
        self._inputs: list[tuple[Input, str]] = []  # a deque is 700 bytes, and most have nothing
        self._moving = False

    @property
    def life(self) -> Life | None:
        """The current life, if any."""
        return self._life

    @property
    def serves(self) -> bool:
        """Whether calls may be given to the life now."""
        return self.state in SERVES

    def free(self) -> Life | None:
        """Return the life if that may be given one more call now."""
        life = self._life
        takes = life is not None and self.state in SERVES and life.can_take()
        return life if takes else None

    @property
    def next_retry_s(self) -> float | None:
        """Seconds until the next try, in `backoff` and `failed`."""
        if self._retry_at is None:
            return None
        return max(0.0, round(self._retry_at - trio.current_time(), 3))

    # Commands.

    def start(self, cause: str) -> None:
        """Want it up."""
        self.wanted = True
        self._forgive()
        self._feed(Input.START, cause)

    def stop(self, cause: str) -> None:
        """Want it down."""
        self.wanted = self._again = False
        self._feed(Input.STOP, cause)

    def restart(self, cause: str) -> None:
        """Have the current life replaced by a new one."""
        self.wanted = True
        self._restarting = self._life is not None
        # `restarts` counts what nobody asked for: a crash it still has to come back from, not this.
        self._again = self.state in (State.BACKOFF, State.FAILED)
        self._forgive()
        self._feed(Input.RESTART, cause)

    def _forgive(self) -> None:
        # Whoever starts what had failed has mended something: it gets its whole budget again.
        if self.state in (State.BACKOFF, State.FAILED):
            self._crashes.forgive()

    def hurry(self) -> None:
        """Kill what there is."""
        if self._life is not None:
            self._life.hurry()
            if self._turn is not None:
                self._turn.give_up()

    # What a life reports (life.Owner).

    def started(self, life: Life, why: str) -> None:
        """Serve: it is ready."""
        if life is self._life:
            if self.instance is not None:
                self.instance = life.id  # its start may have taken a second process
            self._give_turn_back()
            self._crashes.ready()
            self._feed(Input.STARTED, why)

    def start_failed(self, life: Life, ended: Ended) -> None:
        """End it: it will not get ready."""
        if life is self._life:
            self._give_turn_back()
            self._replaced_for = ended
            self._abrupt = True
            self._feed(Input.START_FAILED, ended.message)

    def health(self, life: Life, *, well: bool) -> None:
        """Take note of a probe."""
        if life is not self._life:
            return
        self._crashes.probed(well=well)
        if well:
            if self.state is not State.READY:
                self._feed(Input.HEALTHY, "answered a health probe")
        else:
            self._feed(Input.UNHEALTHY, "missed a health probe")

    def replace(self, life: Life, why: str) -> None:
        """End it: it can no longer be spoken with."""
        if life is self._life:
            if self._replaced_for is None and self.state is not State.STOPPING:
                self._replaced_for = Ended("replaced", why)
                self._abrupt = True
            self._feed(Input.REPLACE, why)

    def run_failed(self, life: Life, ended: Ended) -> None:
        """Remember the end of one process; a good one that follows does not undo it."""
        if life is self._life:
            self._remember(ended)

    def capacity_freed(self, life: Life) -> None:
        """Hand it what waits, if anything."""
        if life is self._life and self.serves:
            self._tended.serve()

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
        if Action.SPAWN in following.actions and is_unprepared(self._setting):
            following = move(before, Input.UNPREPARED)
        self.state = following.state
        # Told before it is acted upon: what ended is written down before what begins.
        if before is not following.state:
            self._tended.changed(before, following.state, cause)
        for action in following.actions:
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Action.PREPARE:
                self._begin(PREPARING)
            case Action.SPAWN:
                self._begin(life_kind(self._setting.descriptor.transport))
            case Action.END:
                assert self._life is not None  # noqa: S101 - the table's promise
                self._life.end(abrupt=self._abrupt)
                if self._turn is not None:
                    self._turn.give_up()
            case Action.ARM:
                self._retry_at = trio.current_time() + self._delay_s
                self._retry = self._setting.host.deadlines.after(self._delay_s, self._retry_due)
            case Action.DISARM:
                if self._retry is not None:
                    self._retry.cancel()
                self._retry = self._retry_at = None
            case Action.SERVE:
                self._tended.serve()
            case Action.REFUSE:
                self._tended.refuse()

    def _retry_due(self) -> None:
        self._retry = self._retry_at = None
        self._feed(Input.RETRY, "the time to try again has come")

    def _begin(self, kind: LifeKind) -> None:
        if self._again:
            self.restarts += 1
        self._again = False
        self.barred = False
        self._crashes.spawned()
        self._abrupt = False
        self._replaced_for = None
        self._life = kind.begin(self._setting, self)
        self.instance = self._life.id if kind.is_instance else None
        if kind.takes_turn:
            urgent = self.restarts > 0 or self._tended.waiting() > 0
            self._turn = self._setting.host.starts.turn(urgent=urgent)
        self._nursery.start_soon(self._live, self._life)

    async def _live(self, life: Life) -> None:
        try:
            ended = await self._live_in_turn(life)
        # A mistake of ours in one module's supervision is not to end all the others'. The process
        # is gone by now: an incarnation kills and reaps on every way out.
        except Exception as error:
            log.exception("supervision failed", module=self._setting.descriptor.name)
            ended = Ended("supervision_failed", f"could not be supervised: {error!r:.200}")
        if life is self._life:
            self._give_turn_back()
            self._gone(ended)

    async def _live_in_turn(self, life: Life) -> Ended:
        turn = self._turn
        if turn is None or await turn.wait():
            return await life.run()
        return Ended("stopped", "was stopped before it was started")

    def _give_turn_back(self) -> None:
        if self._turn is not None:
            self._turn.give_back()
            self._turn = None

    def _gone(self, ended: Ended) -> None:
        self._life = None
        if self.state is State.PREPARING and ended.reason == PREPARED:
            self._feed(Input.PREPARED, ended.message)
            return
        if self._replaced_for is not None:
            known = self._replaced_for
            # Of a start that failed, its end may say more.
            message = ended.message if ended.reason == known.reason else known.message
            ended = msgspec.structs.replace(ended, reason=known.reason, message=message)
        if ended.obstacle is not None:
            words = f"cannot be run as it is ({ended.obstacle}): it {ended.message}"
            ended = msgspec.structs.replace(ended, message=words)
        deliberate = self.state is State.STOPPING and self._replaced_for is None
        if deliberate:
            ended = msgspec.structs.replace(ended, reason="stopped")
        self._remember(ended)
        if not deliberate:
            log.warning("module ended", module=self._setting.descriptor.name, **ended.evidence())
        restarting, self._restarting = self._restarting, False
        if not self.wanted:
            self._feed(Input.GONE_FOR_GOOD, ended.message)
        elif restarting or deliberate:
            # A start or restart was asked for while it was being stopped.
            self._feed(Input.GONE_AT_ONCE, "restart")
        else:
            self._gone_unwanted(ended)

    def _gone_unwanted(self, ended: Ended) -> None:
        replaced = self._replaced_for is not None
        decision = self._crashes.ended(ended, replaced=replaced, draw=self._setting.host.draw())
        if decision.rule is not None:
            self.barred = True
            ended = msgspec.structs.replace(
                ended, message=f"{ended.message} and {decision.rule.words}"
            )
            self._remember(ended, decision.rule.pointer)
        self._delay_s = decision.delay_s
        self._again = decision.given is not Input.GONE_FOR_GOOD
        if decision.given is Input.GONE_FOR_GOOD:
            self.wanted = False
        self._feed(decision.given, ended.message)

    def _remember(self, ended: Ended, rule: str | None = None) -> None:
        self.last_exit = LastExit.of(ended, self._setting.host.wall_clock(), rule)
