"""What an op takes, at its bounds from both sides: of a wrong one nothing is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from supervisor.kernel.kernel import JournalOptions, Kernel, Party
from tests.factories import actor
from tests.kernel.conftest import Asker, daemon_with, own
from tests.principals import ADA

M = {"module": "m"}
S = {"session_id": "s"}
WEEK_S = 604800
CENTURY_S = 100 * 365 * 86400
LAST_UID = 2**32 - 2
DAYS = "x" * 8192

BOUNDS: list[tuple[str, dict[str, Any], str, list[Any], list[Any]]] = [
    ("events", {}, "since", [0], [-1]),
    ("events", {}, "since_ts", [0, 0.5], [-0.5]),
    ("events", {}, "last", [0, 10_000], [-1, 10_001]),
    ("events", {}, "limit", [1, 10_000], [0, 10_001]),
    ("events", {}, "event", ["x" * 200], ["x" * 201]),
    ("logs", M, "lines", [0, 10_000], [-1, 10_001]),
    ("wait", {}, "modules", [[]], [["m"] * 10_001]),
    ("record", M, "seconds", [0.001], [0, -1, WEEK_S + 1]),
    ("reloaded", {}, "number", [], [-1]),
    ("asset.content", {"asset": "a"}, "offset", [0], [-1]),
    ("asset.content", {"asset": "a"}, "length", [1], [0]),
    ("asset.content", {"asset": "a"}, "last", [1], [0]),
    ("session.list", {}, "limit", [1, 1000], [0, 1001]),
    ("session.show", {}, "session_id", ["", DAYS], [f"{DAYS}x"]),
    ("session.patch", {**S, "patch": {}}, "if_revision", [0], [-1]),
    ("session.prompt", {**S, "content": "x"}, "timeout_s", [0.5, WEEK_S], [0, WEEK_S + 1]),
    ("session.prompt", S, "content", ["x"], [""]),
    ("session.new", {}, "roles", [{"tools": ["m"] * 100}], [{"tools": ["m"] * 101}]),
    ("invoke", {**M, "op": "echo"}, "timeout_s", [0.5, WEEK_S], [0, -0.5]),
    ("token.new", {"name": "t"}, "expires_s", [0.001, CENTURY_S], [0, CENTURY_S + 1]),
    ("token.new", {"name": "t"}, "rate_per_s", [0.001, 1e6], [0.0009, 1e6 + 1]),
    ("token.new", {}, "name", ["n", "n" * 64], ["", "n" * 65]),
    ("token.new", {"name": "t"}, "modules", [["a"] * 50], [["a"] * 51, [""]]),
    ("token.new", {"name": "t"}, "modules", [["a" * 300]], [["a" * 301]]),
    ("token.revoke", {}, "name", ["n", "n" * 64], ["", "n" * 65]),
    ("narrow", {}, "scopes", [["read", "invoke", "admin"]], [["read"] * 4]),
    ("login.open", {}, "uid", [0, LAST_UID], [-1, LAST_UID + 1]),
    ("login.open", {"uid": 0}, "pid", [LAST_UID], [0, LAST_UID + 1]),
    ("login.open", {"uid": 0}, "face", ["a", "a" * 32, "a-1"], ["", "a" * 33, "A", "1a", "a_"]),
    ("policy.explain", M, "capability", ["x"], [""]),
    ("approve", {}, "id", ["x" * 40], ["x" * 41]),
    ("approve", {"id": "x"}, "answer", ["x" * 100], ["x" * 101]),
    ("offers", {}, "look_again", [["x"] * 256], [["x"] * 257]),
    ("resource.follow", M, "uri", [], ["", "x" * 2049]),
    ("ui.subscribe", {}, "events", [], [[], ["x"] * 33, ["x" * 201]]),
]


async def refused(daemon: Kernel, op: str, args: dict[str, Any]) -> bool:
    """Tell whether the args of an op are not valid, which is said in the words of all ops."""
    party, asker = Party(ADA), Asker()
    party.has_logins = True
    daemon.begin(party, "supervisor", "invoke", {"op": op, "args": args}, asker)
    document = await asker.document()
    if document["ok"]:
        return False
    error = document["error"]
    return bool(
        error["details"]["reason"] == "invalid_args"
        and error["message"].startswith(
            (f"the args of {op} are not valid", "the args are not valid")
        )
    )


async def test_each_value_at_a_bound_is_taken_and_none_beyond_it(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path), memory=JournalOptions()) as daemon:
        for op, others, name, valid, wrong in BOUNDS:
            for value in valid:
                assert not await refused(daemon, op, {**others, name: value}), (op, name, value)
                if op == "token.new":
                    named = {"name": value if name == "name" else "t"}
                    await own(daemon, ADA, "token.revoke", **named)
            before = await own(daemon, ADA, "token.list")
            for value in wrong:
                assert await refused(daemon, op, {**others, name: value}), (op, name, value)
            assert await own(daemon, ADA, "token.list") == before


async def test_what_is_wrong_beside_half_of_a_pair_of_surrogates_is_told(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        words = await own(daemon, ADA, "session.list", limit=1.5, after="\ud800")
        assert words == "the args of session.list are not valid: /limit: 1.5 is not an integer"
