"""Whether a module may do what it asks the host for: the policy's decision, or a person's answer.

`decide` asks the policy (`supervisor.policy.capabilities`). Where the policy says to ask, `ask`
looks for a remembered answer about this very program, and else asks a person: any client, by an
approval of `policy`. An answer that is remembered is about one program: it does not count for a
changed one.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import trio

from protocol.descriptor.model import Descriptor
from protocol.frames import encode
from protocol.host_events import ApprovalUiEvent
from supervisor.kernel.documents import KeptDocuments
from supervisor.kernel.grants.operator_policy import OperatorPolicy
from supervisor.kernel.hooks.approvals import POLICY, Approvals, Question
from supervisor.kernel.parties import Provenance
from supervisor.kernel.recorder import Recorder
from supervisor.policy.approval import ALLOW, DENY, is_lasting
from supervisor.policy.capabilities import Authorization, Decision, decide
from supervisor.runtime.files.file_digest import FileDigests
from supervisor.runtime.files.program_files import program_files
from supervisor.runtime.process.environment import UnsetVariableError, resolved
from supervisor.runtime.process.program import SpawnError, find_program
from supervisor.runtime.threads import Threads

CAPABILITY_CHARS = 300
"""Of a capability in the journal: its scope is what the module wrote."""


KIND = "grant"

ANSWERS_KEPT = 10_000
"""The oldest are forgotten beyond that; the question is asked again then."""


class Remembered(msgspec.Struct, frozen=True):
    """An answer; `ts` is Unix time (s)."""

    module: str
    capability: str
    program: str
    """The digest of the program that the answer is about."""
    allowed: bool
    ts: float


class Answers:
    """The answers that people gave for always, the oldest first."""

    def __init__(self, recorder: Recorder, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._all = KeptDocuments(recorder, KIND, Remembered, order="ts", most=ANSWERS_KEPT)

    def find(self, module: str, capability: str) -> Remembered | None:
        return self._all.get(_name(module, capability))

    def all(self) -> list[Remembered]:
        return list(self._all.values())

    def add(self, module: str, capability: str, program: str, *, allowed: bool) -> None:
        name = _name(module, capability)
        self._all.remove(name)  # the new one is the newest
        now = self._wall_clock()
        self._all.put(name, Remembered(module, capability, program, allowed, now))

    def forget(self, module: str) -> list[Remembered]:
        found = [one for one in self._all.values() if one.module == module]
        for one in found:
            self._all.remove(_name(one.module, one.capability))
        return found


def _name(module: str, capability: str) -> str:
    # Both may hold any character, so no separator would keep them apart.
    return hashlib.sha256(msgspec.json.encode((module, capability))).hexdigest()


def program_digest(
    descriptor: Descriptor, environment: Mapping[str, str], files: FileDigests
) -> str:
    """Return a digest (hex) of the command and of the bytes of the files it names; may block."""
    with contextlib.suppress(UnsetVariableError):  # then it cannot be run
        descriptor, environment = resolved(descriptor, environment, "")
    paths = set(program_files(descriptor))
    with contextlib.suppress(SpawnError):  # then it cannot be run either
        paths.add(find_program(descriptor, environment))
    digests = [(path, files.digest(path)) for path in sorted(paths)]
    return hashlib.sha256(encode((descriptor.transport.command, digests))).hexdigest()


OPTIONS = (ALLOW, f"{ALLOW} always", DENY, f"{DENY} always")
"""Those that say `always` are remembered, for the program as it is now."""

_WHY = {
    "timeout": "nobody answered in time",
    "too_many": "too many questions wait already",
    "withdrawn": "the question was withdrawn",
}


class Grant(msgspec.Struct, frozen=True):
    """Whether something was allowed, by a rule or by the answer that the rule asked for."""

    decision: Decision
    allowed: bool
    answered: str | None = None

    @property
    def words(self) -> str:
        rule = str(self.decision.rule)
        return rule if self.answered is None else f"{rule}; {self.answered}"


class Grants:
    def __init__(
        self,
        operator: OperatorPolicy,
        recorder: Recorder,
        answers: Answers,
        environment: Mapping[str, str],
        approvals: Approvals,
        *,
        threads: Threads,
    ) -> None:
        self.operator = operator
        self.answers = answers
        self.approvals = approvals
        self._recorder = recorder
        self._environment = environment
        self._files = FileDigests()
        self._threads = threads
        self._asking: WeakValueDictionary[tuple[str, str], trio.Lock] = WeakValueDictionary()

    def decide(self, descriptor: Descriptor, capability: str) -> Decision:
        return decide(self.operator.policy, descriptor.name, descriptor.capabilities, capability)

    async def ask(
        self,
        descriptor: Descriptor,
        decision: Decision,
        origin: Provenance,
        tell: Callable[[ApprovalUiEvent], None],
    ) -> Grant:
        """Return a person's answer, now or remembered, where the policy says to ask.

        Any client can answer, within a bound of the question's own; without an answer it is no.
        `tell` takes the events about a question for the client that began the request.
        """
        module, capability = decision.module, decision.capability
        # One question at a time about the same thing: the answer to the first may do for all.
        lock = self._asking.setdefault((module, capability), trio.Lock())
        async with lock:
            program = await self.program(descriptor)
            known = self.answers.find(module, capability)
            if known is not None and known.program == program:
                word = "allowed" if known.allowed else "denied"
                return Grant(decision, known.allowed, f"{word} by an answer that was remembered")
            question = Question(
                prompt=f"May {module} use {capability}?",
                asked_by=POLICY,
                origin=origin,
                options=OPTIONS,
            )
            found = await self.approvals.ask(question, tell)
            if found.by == "client" and is_lasting(found.answer):
                self.answers.add(module, capability, program, allowed=found.allowed)
            words = _WHY.get(found.by, f"a person answered {found.answer}")
            return Grant(decision, found.allowed, words)

    async def program(self, descriptor: Descriptor) -> str:
        digest = partial(program_digest, descriptor, self._environment, self._files)
        return await self._threads.run(f"reading the program of {descriptor.name}", digest)

    def record(self, grant: Grant, origin: Provenance) -> None:
        rule = grant.decision.rule
        data: dict[str, Any] = {
            "capability": grant.decision.capability[:CAPABILITY_CHARS],
            "rule": grant.words,
            "source": str(rule.source),
        }
        if rule.key is not None:
            data |= {"file": rule.file, "key": rule.key}
        self._recorder.record(
            "policy:decision",
            module=grant.decision.module,
            status=str(Authorization.ALLOWED if grant.allowed else Authorization.DENIED),
            data=data,
            **origin.recorded(),
        )
