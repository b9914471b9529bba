"""The life of one worker: a table (state, input) -> (state, actions), and nothing else.

Rules that live here, and nowhere else (docs/architecture.md):

- a worker has a process in `preparing`, `starting`, `ready`, `degraded` and `stopping`, and in no
  other state;
- a process is begun (`PREPARE`, `SPAWN`) only where there is none: behind an input that says that
  one is gone, or in a state without a process;
- every way out of life goes through `stopping` or through the process's own death, and both end
  with one of the four `GONE_*` inputs, which `policy.restart` chooses; only the end of a
  preparation that went well is `PREPARED`;
- an input that would spawn a program that is still to be prepared is given as `UNPREPARED`;
- the wanted state (up or down) is no state here: it decides which `GONE_*` is given.

A pair that is not a key cannot happen; giving it is an error of the caller (`IllegalMoveError`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class State(StrEnum):
    DOWN = "down"
    PREPARING = "preparing"
    """The command that precedes the first start is running."""
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    BACKOFF = "backoff"
    FAILED = "failed"
    STOPPING = "stopping"

    @property
    def words(self) -> str:
        """Return the state as it reads after "is"."""
        return "in backoff" if self is State.BACKOFF else self.value


class Input(StrEnum):
    START = "start"
    """The worker is wanted up: eager start, a command, a dependency that got ready, a first
    request."""
    STOP = "stop"
    """The worker is wanted down: a command, a removed descriptor, the daemon's end."""
    RESTART = "restart"
    STARTED = "started"
    """`health` and `describe` were answered as they must be."""
    START_FAILED = "start_failed"
    """They were not, or not in time; the process may still live."""
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """A probe was missed, but not yet one too many."""
    REPLACE = "replace"
    """One probe too many was missed, or the process can no longer be spoken with."""
    GONE_AT_ONCE = "gone_at_once"
    GONE_LATER = "gone_later"
    GONE_TOO_OFTEN = "gone_too_often"
    GONE_FOR_GOOD = "gone_for_good"
    RETRY = "retry"
    UNPREPARED = "unprepared"
    """Instead of a spawn: the program has to be prepared before."""
    PREPARED = "prepared"


class Action(StrEnum):
    PREPARE = "prepare"
    SPAWN = "spawn"
    END = "end"
    """Begin the stop ladder on the process."""
    ARM = "arm"
    """Set the timer for RETRY."""
    DISARM = "disarm"
    SERVE = "serve"
    """Hand waiting requests to the process."""
    REFUSE = "refuse"
    """Answer the waiting requests: the module cannot serve them for now."""


class Move(msgspec.Struct, frozen=True):
    state: State
    actions: tuple[Action, ...] = ()


class IllegalMoveError(Exception):
    """An input that cannot happen in its state."""


HAS_PROCESS = frozenset(
    {State.PREPARING, State.STARTING, State.READY, State.DEGRADED, State.STOPPING}
)
SERVES = frozenset({State.READY, State.DEGRADED})
COMES = frozenset({State.PREPARING, State.STARTING})
"""On the way to serving."""

_S, _I, _A = State, Input, Action
_SPAWN = Move(_S.STARTING, (_A.SPAWN,))
_SPAWN_NOW = Move(_S.STARTING, (_A.DISARM, _A.SPAWN))
_PREPARE = Move(_S.PREPARING, (_A.PREPARE,))
_PREPARE_NOW = Move(_S.PREPARING, (_A.DISARM, _A.PREPARE))
_END = Move(_S.STOPPING, (_A.END,))

_GONE: dict[Input, Move] = {
    _I.GONE_AT_ONCE: _SPAWN,
    _I.UNPREPARED: _PREPARE,
    # The timer first: who is refused is told when the next try is.
    _I.GONE_LATER: Move(_S.BACKOFF, (_A.ARM, _A.REFUSE)),
    _I.GONE_TOO_OFTEN: Move(_S.FAILED, (_A.ARM, _A.REFUSE)),
    _I.GONE_FOR_GOOD: Move(_S.DOWN, (_A.REFUSE,)),
}

TABLE: dict[State, dict[Input, Move]] = {
    _S.DOWN: {
        _I.START: _SPAWN,
        _I.RESTART: _SPAWN,
        _I.UNPREPARED: _PREPARE,
        _I.STOP: Move(_S.DOWN, (_A.REFUSE,)),
    },
    _S.PREPARING: {
        _I.START: Move(_S.PREPARING),
        _I.PREPARED: _SPAWN,
        _I.START_FAILED: _END,
        _I.RESTART: _END,
        _I.STOP: _END,
        **_GONE,
    },
    _S.STARTING: {
        _I.START: Move(_S.STARTING),
        _I.STARTED: Move(_S.READY, (_A.SERVE,)),
        _I.START_FAILED: _END,
        _I.REPLACE: _END,
        _I.RESTART: _END,
        _I.STOP: _END,
        **_GONE,
    },
    _S.READY: {
        _I.START: Move(_S.READY),
        _I.HEALTHY: Move(_S.READY),
        _I.UNHEALTHY: Move(_S.DEGRADED),
        _I.REPLACE: _END,
        _I.RESTART: _END,
        _I.STOP: _END,
        **_GONE,
    },
    _S.DEGRADED: {
        _I.START: Move(_S.DEGRADED),
        _I.HEALTHY: Move(_S.READY),
        _I.UNHEALTHY: Move(_S.DEGRADED),
        _I.REPLACE: _END,
        _I.RESTART: _END,
        _I.STOP: _END,
        **_GONE,
    },
    _S.STOPPING: {
        _I.START: Move(_S.STOPPING),
        _I.STARTED: Move(_S.STOPPING),
        _I.START_FAILED: Move(_S.STOPPING),
        _I.HEALTHY: Move(_S.STOPPING),
        _I.UNHEALTHY: Move(_S.STOPPING),
        _I.REPLACE: Move(_S.STOPPING),
        _I.RESTART: Move(_S.STOPPING),
        _I.STOP: Move(_S.STOPPING),
        **_GONE,
    },
    _S.BACKOFF: {
        _I.RETRY: _SPAWN,
        _I.START: _SPAWN_NOW,
        _I.RESTART: _SPAWN_NOW,
        _I.UNPREPARED: _PREPARE_NOW,
        _I.STOP: Move(_S.DOWN, (_A.DISARM, _A.REFUSE)),
    },
    _S.FAILED: {
        _I.RETRY: _SPAWN,
        _I.START: _SPAWN_NOW,
        _I.RESTART: _SPAWN_NOW,
        _I.UNPREPARED: _PREPARE_NOW,
        _I.STOP: Move(_S.DOWN, (_A.DISARM, _A.REFUSE)),
    },
}


def move(state: State, given: Input) -> Move:
    """Look up where `given` leads from `state`; raises `IllegalMoveError`."""
    try:
        return TABLE[state][given]
    except KeyError:
        message = f"{given} cannot happen in {state}"
        raise IllegalMoveError(message) from None
