"""Of `test_grants.py`, what is bound to the structure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.kernel.grants.grants import program_digest
from supervisor.kernel.grants.operator_policy import read_policy
from supervisor.kernel.hooks.approvals import Approvals, Question, Resolution
from supervisor.kernel.kernel import JournalOptions
from supervisor.kernel.recorder import Recorder
from supervisor.policy.policy_file import PolicyError
from supervisor.runtime.files.file_digest import FileDigests
from tests.factories import descriptor
from tests.kernel.conftest import daemon_with, nothing, run_op
from tests.kernel.host_calls import PROMPT, allowing, caller, error, payload, results
from tests.kernel.test_grants import logged, own_program
from tests.principals import ADA


class Person(Approvals):
    """Answers each question, and keeps it."""

    def __init__(self, answer: str = "allow always") -> None:
        super().__init__(Recorder())
        self.asked: list[Question] = []
        self._decision = Resolution(answer.startswith("allow"), answer, "client")

    async def ask(self, question: Question, tell: object = None) -> Resolution:
        del tell
        self.asked.append(question)
        return self._decision


async def test_a_person_is_asked_once_about_a_program_and_again_when_it_changed(
    tmp_path: Path,
) -> None:
    module, program = own_program(tmp_path)
    async with daemon_with(tmp_path, module, operator=allowing(tmp_path, PROMPT)) as daemon:
        person = Person()
        daemon.grants.approvals = person
        for _ in range(2):
            assert not (await logged(daemon))["is_error"]
        [question] = person.asked
        assert question.prompt == "May a use log?"
        assert (question.origin.op, question.origin.module) == ("calls", "a")
        program.write_text(program.read_text() + "# changed\n")
        assert not (await logged(daemon))["is_error"]
        assert len(person.asked) == 2
        forgotten = await run_op(daemon, "policy.forget", {"module": "a"}, nothing)
        assert [one["capability"] for one in forgotten["forgotten"]] == ["log"]
        await logged(daemon)
        assert len(person.asked) == 3


@pytest.mark.parametrize(("answer", "asked"), [("deny always", 1), ("deny", 2)])
async def test_a_no_is_a_no_and_may_be_remembered_too(
    answer: str, asked: int, tmp_path: Path
) -> None:
    module, _ = own_program(tmp_path)
    async with daemon_with(tmp_path, module, operator=allowing(tmp_path, PROMPT)) as daemon:
        person = Person(answer)
        daemon.grants.approvals = person
        for _ in range(2):
            problem = error(await logged(daemon), "denied", "forbidden")
            assert (
                "a person answered deny" in problem["message"] or "remembered" in problem["message"]
            )
        assert len(person.asked) == asked


async def test_a_remembered_answer_outlives_the_daemon(tmp_path: Path) -> None:
    module, program = own_program(tmp_path)
    operator = allowing(tmp_path, PROMPT)
    person = Person()
    wanted = {"module": "a", "capability": "log"}
    for _ in range(2):
        async with daemon_with(
            tmp_path, module, operator=operator, memory=JournalOptions()
        ) as daemon:
            daemon.grants.approvals = person
            assert not (await logged(daemon))["is_error"]
            found = await run_op(daemon, "policy.explain", wanted, nothing)
            assert found["verdict"] == "ask"
            remembered = found["remembered"]
            assert (remembered["allowed"], remembered["same_program"]) == (True, True)
    assert len(person.asked) == 1
    program.write_text("changed")
    async with daemon_with(tmp_path, operator=operator, memory=JournalOptions()) as daemon:
        forgotten = await run_op(daemon, "policy.forget", {"module": "a"}, nothing)
        assert len(forgotten["forgotten"]) == 1  # also of a module that is not there


async def test_a_request_that_ends_does_not_wait_for_a_person(tmp_path: Path) -> None:
    class Slow(Person):
        async def ask(self, question: Question, tell: object = None) -> Resolution:
            daemon.sessions.end(ADA, "s")
            return await super().ask(question)

    a = caller(tmp_path, "a")
    async with daemon_with(tmp_path, a, operator=allowing(tmp_path, PROMPT)) as daemon:
        daemon.sessions.new(ADA, "s")
        daemon.grants.approvals = Slow()
        with pytest.raises(AssertionError, match="was ended"):
            await results(daemon, payload("log", message="x"), session_id="s")


def test_the_digest_is_of_the_command_and_the_bytes_it_names(tmp_path: Path) -> None:
    module, program = own_program(tmp_path)
    digests = [program_digest(module, os.environ, FileDigests())]
    program.write_text("other")
    digests.append(program_digest(module, os.environ, FileDigests()))
    program.unlink()
    digests.append(program_digest(module, os.environ, FileDigests()))
    other = descriptor(tmp_path, ["no-such-program"], name="a")
    digests.append(program_digest(other, os.environ, FileDigests()))
    assert len(set(digests)) == 4


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"mode = 1\n", "policy.toml: mode"),
        (b"# fine\nallow = [\xff]\n", "policy.toml:2: is not UTF-8"),
        (b"#" * (1 << 20) + b"\n", "is larger than"),
        (None, "policy.toml: cannot be read: No such file"),
    ],
)
def test_a_bad_file_is_told_with_its_name(data: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(PolicyError) as found:
        read_policy(path)
    assert words in str(found.value)
