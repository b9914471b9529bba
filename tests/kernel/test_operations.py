from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.events import Log, Progress
from supervisor.kernel.kernel import Kernel, RefusedError
from supervisor.kernel.operations import inputs
from supervisor.kernel.operations.modules import WAITED
from supervisor.policy.findings import QuarantinedFile
from supervisor.policy.lifecycle import State
from supervisor.runtime.containment.ladder import RUNGS
from tests.factories import actor, descriptor
from tests.kernel import conftest
from tests.kernel.conftest import ask, begin, daemon_with, run_op

DAEMON_KEYS = {"pid", "version", "uptime_s", "containment", "guardian_pid", "socket", "http"}
MODULE_KEYS = {
    "name", "kind", "protocol", "lifecycle", "state", "restarts", "next_retry_s", "in_flight",
    "queued", "descriptor", "instances", "last_exit",
}  # fmt: skip
INSTANCE_KEYS = {"id", "pid", "state", "uptime_s", "rss_bytes", "cpu_s", "in_flight", "traced_by"}
EXIT_KEYS = {"exit_code", "signal", "reason", "stderr_tail", "ts", "limit"}
NEVER_S = 1000
SLOW = {"backoff": {"initial_s": NEVER_S, "max_s": NEVER_S}}


class Events:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.some = trio.Event()

    async def __call__(self, event: Progress | None) -> None:
        assert isinstance(event, Log)
        self.texts.append(event.message)
        self.some.set()


async def run(daemon: Kernel, op: str, emit: Events | None = None, **args: Any) -> Any:
    args = {name.removesuffix("_"): value for name, value in args.items()}
    return await run_op(daemon, op, args, emit or Events())


async def refused(daemon: Kernel, op: str, **args: Any) -> tuple[str, str, str]:
    with pytest.raises(RefusedError) as caught:
        await run(daemon, op, **args)
    failure = caught.value.failure
    return failure.code, failure.details["reason"], failure.message


async def test_status_has_what_is_documented(tmp_path: Path) -> None:
    bad = QuarantinedFile("/x.json", "is empty")
    async with daemon_with(tmp_path, actor(tmp_path), quarantined=(bad,)) as daemon:
        await ask(daemon, "m", "exit", args={"code": 3, "words": "boom"}).response()
        m = daemon.fleet.modules["m"]
        await daemon.fleet.wait_until(lambda: (m.restarts == 1 and m.state is State.READY) or None)
        status = await run(daemon, "status")
        assert list(status) == ["daemon", "quarantined", "modules"]
        assert set(status["daemon"]) >= DAEMON_KEYS
        assert status["daemon"]["containment"] in RUNGS
        (module,) = status["modules"]
        assert set(module) >= MODULE_KEYS
        (instance,) = module["instances"]
        assert set(instance) >= INSTANCE_KEYS
        assert instance["rss_bytes"] > 0
        assert instance["cpu_s"] >= 0
        assert set(module["last_exit"]) >= EXIT_KEYS
        assert module["last_exit"]["exit_code"] == 3
        assert list(module["last_exit"]["stderr_tail"]) == ["boom"]
        assert (module["state"], module["restarts"], module["queued"]) == ("ready", 1, 0)
        assert status["quarantined"] == [{"descriptor": "/x.json", "reason": "is empty"}]
        assert set(await run(daemon, "status", module="m")) == set(module)


async def test_the_status_of_a_module_that_never_ran_has_the_same_keys(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path, supervision={"start": "lazy"})) as daemon:
        module = await run(daemon, "status", module="m")
        assert set(module) >= MODULE_KEYS
        assert (module["instances"], module["last_exit"], module["state"]) == ([], None, "down")


async def test_status_has_the_durations_of_all_that_was_answered_whatever_the_answer(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        nothing = {"p50": None, "p99": None, "max": None, "count": 0}
        assert (await run(daemon, "status", module="m"))["latency_ms"] == nothing
        await ask(daemon, "m").response()
        await ask(daemon, "m", "exit", args={"code": 3}).response()
        module = await run(daemon, "status", module="m")
        latency = module["latency_ms"]
        assert set(latency) == set(nothing)
        assert latency["count"] == module["counters"]["invocations"] == 2
        assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]


async def test_the_counts_of_durations_are_given_to_whoever_asks_for_them(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        await ask(daemon, "m").response()
        module = await run(daemon, "status", module="m", histogram=True)
        ((least_us, count),) = module["latency_ms"]["histogram_us"]
        assert count == 1
        assert 0 < least_us <= module["latency_ms"]["max"] * 1000
        (same,) = (await run(daemon, "status", histogram=True))["modules"]
        same_histogram = same["latency_ms"].pop("histogram_us")
        assert list(map(tuple, same_histogram)) == module["latency_ms"].pop("histogram_us")
        assert same["latency_ms"] == module["latency_ms"]


@pytest.mark.parametrize("op", ["status", "start", "stop", "restart", "logs"])
async def test_an_op_on_an_unknown_module_is_refused(tmp_path: Path, op: str) -> None:
    async with daemon_with(tmp_path) as daemon:
        code, reason, words = await refused(daemon, op, module="nobody")
        assert (code, reason) == ("bad_request", "unknown_module")
        assert "nobody" in words


@pytest.mark.parametrize(
    ("op", "args", "reason"),
    [
        ("fly", {}, "unknown_op"),
        ("stop", {}, "invalid_args"),
        ("stop", {"module": 5}, "invalid_args"),
        ("status", {"modul": "m"}, "invalid_args"),
        ("status", [], "invalid_args"),
        ("wait", {"for": "ever"}, "invalid_args"),
        ("wait", {"modules": ["m"] * (WAITED + 1)}, "invalid_args"),
        ("logs", {"module": "m", "lines": -1}, "invalid_args"),
        ("logs", {"module": "m", "lines": 10**9}, "invalid_args"),
        ("invoke", {"module": "m"}, "invalid_args"),
    ],
)
async def test_args_are_held_to_what_describe_says(
    tmp_path: Path, op: str, args: Any, reason: str
) -> None:
    async with daemon_with(tmp_path) as daemon:
        refusal = await conftest.refused(daemon, op, args)
        assert refusal.details["reason"] == reason


async def test_describe_of_a_module_has_the_ops_that_its_descriptor_holds_it_to(
    tmp_path: Path,
) -> None:
    inputs = {"whoami": {"type": "object"}}
    async with daemon_with(tmp_path, actor(tmp_path, inputs=inputs)) as daemon:
        described = (await begin(daemon, "m", "describe").document())["result"]
        assert (described["version"], described["inputs"], described["outputs"]) == (
            "1",
            inputs,
            {},
        )
        refusal = (await ask(daemon, "m", "other").document())["error"]
        assert refusal["details"]["ops"] == list(described["inputs"])


async def test_stop_start_and_restart_return_the_status_they_led_to(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        stopped = await run(daemon, "stop", module="m")
        assert (stopped["state"], stopped["wanted"], stopped["instances"]) == ("down", "down", [])
        assert (await run(daemon, "stop", module="m"))["state"] == "down"
        assert (await ask(daemon, "m").document())["error"]["details"]["reason"] == "not_ready"
        assert (await run(daemon, "start", module="m"))["instances"][0]["id"] == "m#2"
        assert (await run(daemon, "start", module="m"))["instances"][0]["id"] == "m#2"
        module = await run(daemon, "restart", module="m")
        assert (module["instances"][0]["id"], module["restarts"]) == ("m#3", 0)


FREE = {
    "session.new/plan",
    "session.new/state",
    "session.patch/patch",
    "approve/content",
    "invoke/args",
}
"""Where an op takes anything: its size is the op's to look at, or nobody's here."""


@pytest.mark.fault(29)
def test_each_part_of_what_an_op_takes_has_a_bound() -> None:
    found = {what for op, schema in inputs().items() for what in unbounded(schema, op)}
    assert found == FREE


def unbounded(schema: dict[str, Any], at: str) -> Iterator[str]:
    """Return where a schema takes text, an array or an object of any size."""
    one_of_few = "enum" in schema
    match schema.get("type"):
        case "boolean" | "integer" | "number":
            bounded = True
        case "string":
            bounded = one_of_few or "maxLength" in schema
        case "array":
            bounded = "maxItems" in schema and "items" in schema
        case "object":
            bounded = schema.get("additionalProperties") is False
        case _:
            bounded = one_of_few
    if not bounded:
        yield at
    for name, one in schema.get("properties", {}).items():
        yield from unbounded(one, f"{at}/{name}")
    if "items" in schema:
        yield from unbounded(schema["items"], f"{at}/items")


async def test_a_start_that_fails_is_refused_with_its_cause(tmp_path: Path) -> None:
    made = descriptor(tmp_path, ["./gone"], supervision={"start": "lazy", **SLOW})
    async with daemon_with(tmp_path, made) as daemon:
        code, reason, words = await refused(daemon, "start", module="m")
        assert (code, reason) == ("unreachable", "spawn_failed")
        assert "gone is not there" in words


async def test_waiting_tells_of_each_module_and_returns_their_states(tmp_path: Path) -> None:
    a, b = actor(tmp_path, name="a"), actor(tmp_path, name="b")
    async with daemon_with(tmp_path, a, b) as daemon:
        events = Events()
        assert await run(daemon, "wait", events) == {"modules": {"a": "ready", "b": "ready"}}
        assert events.texts == ["a is ready", "b is ready"]
        events = Events()
        assert await run(daemon, "wait", events, modules=["b", "b"]) == {"modules": {"b": "ready"}}
        assert events.texts == ["b is ready"]  # it is one, however often it is named
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: run(daemon, "stop", module="a"))
            waited = await run(daemon, "wait", modules=["a", "a"], for_="down")
            assert waited == {"modules": {"a": "down"}}


async def test_waiting_for_what_cannot_get_ready_is_refused_but_a_verdict_is_one(
    tmp_path: Path,
) -> None:
    made = descriptor(tmp_path, ["./gone"], supervision={"start": "lazy", "intensity": 0})
    async with daemon_with(tmp_path, made) as daemon:
        daemon.fleet.modules["m"].start("the test")
        waited = await run(daemon, "wait", modules=["m"], for_="verdict")
        assert waited == {"modules": {"m": "failed"}}
        assert (await refused(daemon, "wait", modules=["m"]))[1] == "failed"


async def test_a_daemon_asks_its_modules(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        health = await begin(daemon, "m", "health").document()
        assert health == {"ok": True, "result": {"status": "ok"}}
        assert (await begin(daemon, "m", "describe").document())["result"]["name"] == "m"
        refused = await begin(daemon, "nobody", "health").document()
        assert refused["error"]["details"] == {
            "origin": "host",
            "reason": "unknown_module",
            "module": "nobody",
        }


async def test_a_shutdown_begins_the_end(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        await run(daemon, "shutdown")
        assert daemon.ending
        await daemon.wait_ending()
        await daemon.stop_fleet()
        assert daemon.fleet.modules["m"].state is State.DOWN


async def test_an_end_that_is_asked_for_twice_is_hurried(tmp_path: Path) -> None:
    limits = {"timeouts": {"exit_s": NEVER_S, "stop_s": NEVER_S}}
    async with daemon_with(tmp_path, actor(tmp_path, "ignore-term", supervision=limits)) as daemon:
        daemon.shut_down("the test")
        daemon.shut_down("the test")
        await daemon.stop_fleet()
        last_exit = daemon.fleet.modules["m"].last_exit
        assert last_exit is not None
        assert last_exit.exit.signal == 9
