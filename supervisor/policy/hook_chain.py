"""The gates of one invocation, asked one after the other: a fold over their answers.

Rules that live here, and nowhere else (the Amplifier kernel's, but for failures):

- lower priority is asked first, equal ones in the order they were given;
- `deny` ends the chain, whatever was asked or injected before it;
- `modify` replaces the data, for the gates after it and for the invocation;
- `inject_context` collects: the texts are joined, the role is the first one's;
- of several `ask_user` the first is put to the user, if none after it denies;
- an answer that is no HookResult denies;
- a gate that fails denies, unless its `on_failure` is open: then it is passed over;
- a gate whose descriptor was removed meanwhile stands open;
- a person's no denies in the name of the gate that asked; after a yes the other answers count, as
  if that gate had not asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from protocol.descriptor.model import OnFailure
from protocol.hook_result import Directive, HookResult, Invalid

INVALID_ANSWER = "Hook handler returned invalid response"
"""The reason of a denial for an answer that is no HookResult, as the Amplifier kernel words it."""

_BETWEEN_INJECTIONS = "\n\n"


class Link(msgspec.Struct, frozen=True):
    name: str
    priority: int
    on_failure: OnFailure = OnFailure.CLOSED


class Failed(msgspec.Struct, frozen=True):
    """A gate that did not answer: it crashed, timed out or is absent. `why` is a phrase."""

    why: str


class Removed(msgspec.Struct, frozen=True):
    """A gate whose descriptor is gone."""


Answer = HookResult | Invalid | Failed | Removed


class GateResult(msgspec.Struct, frozen=True):
    name: str
    result: HookResult


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a chain of gates, and its result so far."""

    waiting: tuple[Link, ...] = ()
    """The remaining gates, the next one first."""
    data: Any = None
    """The subject of the next gate; in the end, the data of the invocation."""
    denied: GateResult | None = None
    problem: str | None = None
    """The fault, if the denial stands for an invalid answer or a failure."""
    asked: GateResult | None = None
    injected: tuple[GateResult, ...] = ()
    passed_over: tuple[tuple[str, str], ...] = ()
    """The gates that failed open, each with the reason."""

    @property
    def next(self) -> Link | None:
        """The gate to ask now, about `data`; None when nothing can change the result any more."""
        return self.waiting[0] if self.waiting and self.denied is None else None

    def after(self, answer: Answer) -> Chain:
        """Return the chain after the answer of `next`. Raises `ValueError` if no gate was due."""
        link = self.next
        if link is None:
            raise ValueError("an answer that nobody was asked for")
        rest = msgspec.structs.replace(self, waiting=self.waiting[1:])
        match answer:
            case HookResult():
                return _taken(rest, GateResult(link.name, answer))
            case Removed():
                return rest
            case Invalid(problem):
                return _denied(rest, link, INVALID_ANSWER, problem)
            case Failed(why) if link.on_failure is OnFailure.OPEN:
                passed_over = (*self.passed_over, (link.name, why))
                return msgspec.structs.replace(rest, passed_over=passed_over)
            case Failed(why):
                return _denied(rest, link, f"hook {link.name} {why}", why)
            case _:
                assert_never(answer)

    @property
    def question(self) -> GateResult | None:
        """The question for a person, if the chain leads to one."""
        return self.asked if self.denied is None else None

    def after_person(self, no: str | None) -> Chain:
        """Return the chain after a person's answer to `question`.

        `no` is the reason of a refusal, None a yes. Raises `ValueError` if there is no question.
        """
        asked = self.question
        if asked is None:
            raise ValueError("a decision that nobody was asked for")
        rest = msgspec.structs.replace(self, asked=None)
        if no is None:
            return rest
        denied = GateResult(asked.name, HookResult(action=Directive.DENY, reason=no))
        return msgspec.structs.replace(rest, denied=denied)

    def result(self) -> HookResult:
        """Return the results so far as one result of the whole chain.

        Its `data` is that of the chain if the action is `continue`.
        """
        if self.denied is not None:
            return self.denied.result
        if self.question is not None:
            return self.question.result
        if self.injected:
            return _merged(tuple(said.result for said in self.injected))
        return HookResult(data=self.data)


def chain_of(links: Iterable[Link], data: Any) -> Chain:
    """Begin a chain of gates, given in the order of their registration."""
    return Chain(waiting=tuple(sorted(links, key=lambda link: link.priority)), data=data)


def _taken(chain: Chain, said: GateResult) -> Chain:
    result, replace = said.result, msgspec.structs.replace
    match result.action:
        case Directive.CONTINUE:
            return chain
        case Directive.DENY:
            return replace(chain, denied=said)
        case Directive.MODIFY:
            return chain if result.data is None else replace(chain, data=result.data)
        case Directive.INJECT_CONTEXT:
            if not result.context_injection:
                return chain
            return replace(chain, injected=(*chain.injected, said))
        case Directive.ASK_USER:
            return chain if chain.asked is not None else replace(chain, asked=said)
        case _:
            assert_never(result.action)


def _denied(chain: Chain, link: Link, reason: str, problem: str) -> Chain:
    denial = HookResult(action=Directive.DENY, reason=reason)
    return msgspec.structs.replace(chain, denied=GateResult(link.name, denial), problem=problem)


def _merged(results: tuple[HookResult, ...]) -> HookResult:
    """Join injections as the Amplifier kernel does; fields that are not named are lost."""
    first, *others = results
    if not others:
        return first
    return HookResult(
        action=Directive.INJECT_CONTEXT,
        context_injection=_BETWEEN_INJECTIONS.join(one.context_injection or "" for one in results),
        context_injection_role=first.context_injection_role,
        ephemeral=first.ephemeral,
        append_to_last_tool_result=any(one.append_to_last_tool_result for one in results),
        suppress_output=first.suppress_output,
    )
