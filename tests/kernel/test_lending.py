"""Modules that somebody lends: they come and go with their owner, beside those of a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from supervisor.kernel.kernel import RefusedError
from tests.factories import children, document, program, script
from tests.kernel.conftest import ask, nothing, run_op
from tests.kernel.lending import (
    EDITOR,
    Lender,
    Owner,
    cause,
    daemon_over,
    instances,
    lent,
    serving,
    text,
)


async def test_lent_modules_are_there_as_long_as_the_block_and_others_are_untouched(
    tmp_path: Path,
) -> None:
    async with daemon_over(tmp_path, "a") as daemon:
        async with daemon.reloads.lend(lent(tmp_path, "x", "y")):
            assert (daemon.reloads.count, cause(daemon)) == (1, f"{EDITOR} came")
            await serving(daemon, "a", "x", "y")
            assert (await ask(daemon, "x", n=1).document())["ok"]
            assert (await run_op(daemon, "status", {"module": "x"}, nothing))[
                "descriptor"
            ] == f"{EDITOR}/x"
        assert (daemon.reloads.count, cause(daemon)) == (2, f"{EDITOR} is gone")
        answer = await ask(daemon, "x").document()
        assert answer["error"]["details"]["reason"] == "unknown_module"
        await serving(daemon, "a")
        assert instances(daemon) == ["a#1"]
        assert len(children()) == 1
    assert children() == []


async def test_a_name_that_is_lent_again_goes_on_counting(tmp_path: Path) -> None:
    async with daemon_over(tmp_path) as daemon:
        for number in (1, 2):
            async with daemon.reloads.lend(lent(tmp_path, "x")):
                await serving(daemon, "x")
                assert instances(daemon) == [f"x#{number}"]


async def test_what_the_owner_changes_is_replaced_and_the_rest_is_untouched(
    tmp_path: Path,
) -> None:
    source = lent(tmp_path, "x", "y", "z")
    async with daemon_over(tmp_path, "a") as daemon, daemon.reloads.lend(source) as changed:
        await serving(daemon, "a", "x", "y", "z")
        source.put({"x": text("x"), "y": text("y", description="new"), "w": text("w")})
        plan = await changed()
        assert cause(daemon) == f"{EDITOR} changed"
        assert [one.name for one in plan.removed] == ["z"]
        await daemon.fleet.wait_until(lambda: "y#2" in instances(daemon) or None)
        await serving(daemon, "a", "w", "x", "y")
        assert instances(daemon) == ["a#1", "w#1", "x#1", "y#2"]


async def test_relative_paths_start_from_the_folder_that_the_owner_gives(tmp_path: Path) -> None:
    (tmp_path / "project" / "here").mkdir(parents=True)
    said = '{"version":"0","type":"done","requestId":"%s","ok":true,"result":"%s"}\\n'
    body = f"""#!/bin/sh
read line; id=${{line#*requestId\\":\\"}}; printf '{said}' "${{id%%\\"*}}" "$PWD"
"""
    program(tmp_path / "project" / "where", body)
    transport = {"protocol": "narratoria", "cwd": "here"}
    where = json.dumps(document(["./where"], name="where", transport=transport)).encode()
    source = lent(tmp_path / "project", where=where)
    async with daemon_over(tmp_path) as daemon, daemon.reloads.lend(source):
        answer = await ask(daemon, "where").document()
        assert answer["result"] == str(tmp_path / "project" / "here"), answer


async def test_requests_in_flight_are_answered_before_a_lent_module_goes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    done = '{"version":"0","type":"done","ok":true}'
    made = script(tmp_path, "", name="x").transport
    slow = document(
        ["sh", "-c", f"read _ <gate; echo '{done}'"],
        name="x",
        transport={"protocol": made.protocol},
    )
    async with daemon_over(tmp_path, "a") as daemon:
        async with daemon.reloads.lend(lent(tmp_path, x=json.dumps(slow).encode())):
            await serving(daemon, "a", "x")
            asker = ask(daemon, "x")
            gate = await trio.to_thread.run_sync(
                os.open, tmp_path / "gate", os.O_WRONLY, abandon_on_cancel=True
            )
        assert sorted(daemon.fleet.leaving) == ["x"]
        os.write(gate, b"\n")
        os.close(gate)
        assert (await asker.document())["ok"]
        await serving(daemon, "a")
        assert len(children()) == 1


# Names that are taken.


async def test_a_lent_module_does_not_take_the_name_of_one_in_a_directory(tmp_path: Path) -> None:
    async with daemon_over(tmp_path, "a") as daemon:
        async with daemon.reloads.lend(lent(tmp_path, "a", "x")):
            await serving(daemon, "a", "x")
            taken = f"the name 'a' is taken by {tmp_path}/modules/a.json"
            assert daemon.fleet.quarantine_reasons == {f"{EDITOR}/a": taken}
        await serving(daemon, "a")
        assert instances(daemon) == ["a#1"]
        assert daemon.fleet.quarantine_reasons == {}


async def test_a_file_does_not_take_the_name_of_a_lent_module_but_has_it_after_that(
    tmp_path: Path,
) -> None:
    path = tmp_path / "modules" / "x.json"
    async with daemon_over(tmp_path, "a") as daemon:
        async with daemon.reloads.lend(lent(tmp_path, "x")):
            await serving(daemon, "a", "x")
            path.write_bytes(text("x", description="of the file"))
            await daemon.reload("the test")
            taken = f"the name 'x' is taken by {EDITOR}/x"
            assert daemon.fleet.quarantine_reasons == {str(path): taken}
            assert instances(daemon) == ["a#1", "x#1"]
        await daemon.fleet.wait_until(lambda: instances(daemon) == ["a#1", "x#2"] or None)
        assert (await run_op(daemon, "status", {"module": "x"}, nothing))["descriptor"] == str(path)
        assert daemon.fleet.quarantine_reasons == {}


async def test_of_two_owners_the_first_has_a_name_until_he_goes(tmp_path: Path) -> None:
    async with daemon_over(tmp_path) as daemon, trio.open_nursery() as nursery:
        first = Lender(daemon, lent(tmp_path, "x"))
        await nursery.start(first.run)
        second = lent(tmp_path, "y", owner="other", x=text("x", version="2"))
        async with daemon.reloads.lend(second):
            await serving(daemon, "x", "y")
            taken = f"the name 'x' is taken by {EDITOR}/x"
            assert daemon.fleet.quarantine_reasons == {"other/x": taken}
            first.leave()
            await first.gone.wait()
            await daemon.fleet.wait_until(lambda: instances(daemon) == ["x#2", "y#1"] or None)
            assert (await run_op(daemon, "status", {"module": "x"}, nothing))[
                "descriptor"
            ] == "other/x"


async def test_a_file_that_means_the_same_in_the_same_folder_takes_over_the_process(
    tmp_path: Path,
) -> None:
    async with daemon_over(tmp_path) as daemon:
        async with daemon.reloads.lend(lent(tmp_path / "modules", "x")):
            await serving(daemon, "x")
            (tmp_path / "modules" / "x.json").write_bytes(text("x"))
        assert instances(daemon) == ["x#1"]
        await daemon.reload("the test")
        assert instances(daemon) == ["x#1"]


async def test_there_is_one_source_of_an_owner_at_a_time(tmp_path: Path) -> None:
    async with daemon_over(tmp_path) as daemon, daemon.reloads.lend(lent(tmp_path, "x")):
        with pytest.raises(ValueError, match="there is a source of 'editor session 1' already"):
            async with daemon.reloads.lend(lent(tmp_path, "y")):
                pass
        await serving(daemon, "x")


async def test_a_clash_is_none_of_the_program_of_who_has_the_name(tmp_path: Path) -> None:
    def watching(command: str) -> bytes:
        program(tmp_path / command, "#!/bin/sh")
        transport, supervision = {"protocol": "narratoria"}, {"watch": True}
        made = document([f"./{command}"], name="x", transport=transport, supervision=supervision)
        return json.dumps(made).encode()

    one, other = lent(tmp_path, x=watching("a")), lent(tmp_path, owner="b", x=watching("b"))
    async with (
        daemon_over(tmp_path) as daemon,
        daemon.reloads.lend(one),
        daemon.reloads.lend(other),
    ):
        assert daemon.reloads.last is not None
        assert (daemon.reloads.last.changed, daemon.reloads.last.unchanged) == (0, 1)


# What is bad.


async def test_a_bad_document_is_quarantined_and_what_it_said_before_goes_on(
    tmp_path: Path,
) -> None:
    source = lent(tmp_path, "x", bad=b'{"name": "supervisor"}')
    async with daemon_over(tmp_path) as daemon, daemon.reloads.lend(source) as changed:
        await serving(daemon, "x")
        assert '/name: is "supervisor"' in daemon.fleet.quarantine_reasons[f"{EDITOR}/bad"]
        source.put({"x": b'{"name": "x", "kind": "toll"}'})
        await changed()
        reasons = daemon.fleet.quarantine_reasons
        assert list(reasons) == [f"{EDITOR}/x"]
        assert reasons[f"{EDITOR}/x"].endswith("The last good version stays in use.")
        assert instances(daemon) == ["x#1"]


async def test_a_source_that_cannot_be_read_keeps_what_was_last_read(tmp_path: Path) -> None:
    owner = Owner("far", tmp_path, "x")
    async with daemon_over(tmp_path, "a") as daemon:
        async with daemon.reloads.lend(owner) as changed:
            await serving(daemon, "a", "x")
            owner.unreadable = True
            await changed()
            why = "it does not answer. What was last read stays in use."
            assert daemon.fleet.quarantine_reasons == {"far": why}
            shown = await run_op(daemon, "status", {"module": "x"}, nothing)
            assert shown["quarantined"] == why
            assert instances(daemon) == ["a#1", "x#1"]
        await serving(daemon, "a")  # it goes all the same
        assert daemon.fleet.quarantine_reasons == {}


# However the owner ends.


def by_leaving(lender: Lender) -> None:
    lender.leave()


def by_raising(lender: Lender) -> None:
    lender.leave(ZeroDivisionError("a mistake"))


def by_being_cancelled(lender: Lender) -> None:
    lender.scope.cancel()


ENDINGS = [by_leaving, by_raising, by_being_cancelled]


@pytest.mark.parametrize("ends", ENDINGS)
async def test_the_modules_are_gone_with_their_owner_however_he_ends(
    tmp_path: Path, ends: Callable[[Lender], None]
) -> None:
    async with daemon_over(tmp_path, "a") as daemon, trio.open_nursery() as nursery:
        lender = Lender(daemon, lent(tmp_path, "x", "y"))
        await nursery.start(lender.run)
        await serving(daemon, "a", "x", "y")
        ends(lender)
        await lender.gone.wait()
        await serving(daemon, "a")
        assert (instances(daemon), cause(daemon)) == (["a#1"], f"{EDITOR} is gone")
        assert len(children()) == 1
        assert (lender.raised is not None) is (ends is by_raising)


@pytest.mark.parametrize("ends", ENDINGS)
async def test_an_owner_who_ends_during_a_reload_is_gone_after_it(
    tmp_path: Path, ends: Callable[[Lender], None]
) -> None:
    async with daemon_over(tmp_path, "a") as daemon, trio.open_nursery() as nursery:
        lender = Lender(daemon, lent(tmp_path, "x"))
        other = Owner("other", tmp_path, "y")
        changed = await nursery.start(Lender(daemon, other).run)
        await nursery.start(lender.run)
        await serving(daemon, "a", "x", "y")
        other.hold_up()
        nursery.start_soon(changed)
        await other.being_read()
        ends(lender)
        await trio.testing.wait_all_tasks_blocked()
        assert instances(daemon) == ["a#1", "x#1", "y#1"]
        other.go_on()
        await lender.gone.wait()
        await serving(daemon, "a", "y")
        assert (instances(daemon), cause(daemon)) == (["a#1", "y#1"], f"{EDITOR} is gone")
        nursery.cancel_scope.cancel()


async def test_an_owner_who_is_cancelled_before_he_has_come_is_gone_too(tmp_path: Path) -> None:
    async with daemon_over(tmp_path, "a") as daemon, trio.open_nursery() as nursery:
        source = Owner(EDITOR, tmp_path, "x")
        lender = Lender(daemon, source)
        source.hold_up()
        nursery.start_soon(lender.run)
        await source.being_read()
        lender.scope.cancel()
        source.go_on()
        await lender.gone.wait()
        await daemon.reloads.wait_for(1)
        await serving(daemon, "a")
        assert (instances(daemon), cause(daemon)) == (["a#1"], f"{EDITOR} is gone")


@pytest.mark.parametrize("ends", ENDINGS)
async def test_an_owner_who_ends_during_the_end_of_the_daemon_holds_nobody_up(
    tmp_path: Path, ends: Callable[[Lender], None]
) -> None:
    async with trio.open_nursery() as nursery:
        async with daemon_over(tmp_path, "a") as daemon:
            lender = Lender(daemon, lent(tmp_path, "x"))
            await nursery.start(lender.run)
            await serving(daemon, "a", "x")
            daemon.shut_down("the test")
            nursery.start_soon(daemon.stop_fleet)
            await trio.testing.wait_all_tasks_blocked()
            ends(lender)
            await lender.gone.wait()
            await daemon.wait_fleet_stopped()
        assert children() == []
        assert daemon.reloads.count == 1


async def test_an_owner_who_outlives_the_daemon_just_ends(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        async with daemon_over(tmp_path) as daemon:
            lender = Lender(daemon, lent(tmp_path, "x"))
            await nursery.start(lender.run)
            await serving(daemon, "x")
        assert children() == []
        lender.leave()
        await lender.gone.wait()
    with pytest.raises(RefusedError):
        async with daemon.reloads.lend(lent(tmp_path, "y")):
            pass


# What is watched.


@pytest.fixture
async def watched(tmp_path: Path) -> Any:
    async with daemon_over(tmp_path, "a") as daemon, trio.open_nursery() as nursery:
        await nursery.start(daemon.watch)
        yield daemon
        nursery.cancel_scope.cancel()


async def test_the_program_of_a_lent_module_is_watched(watched: Any, tmp_path: Path) -> None:
    tool = program(tmp_path / "tool", "#!/bin/sh\n# one")
    transport = {"protocol": "narratoria"}
    supervision = {"watch": True}
    made = document(["./tool"], name="x", transport=transport, supervision=supervision)
    async with watched.reloads.lend(lent(tmp_path, x=json.dumps(made).encode())):
        await serving(watched, "a", "x")
        before = watched.reloads.count
        program(tool, "#!/bin/sh\n# two")
        await watched.reloads.wait_for(before + 1)
        assert watched.reloads.last.changed == 1
