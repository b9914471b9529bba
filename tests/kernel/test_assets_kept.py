"""Assets from a module to those who ask for them: records, bounds, copies, parts, restarts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from protocol.host_events import RegisteredAsset
from protocol.response import Response
from supervisor.kernel.kernel import AssetOptions, JournalOptions, Kernel, Times
from supervisor.policy.principals import Principal, Scope
from tests.bounds import WAIT_S
from tests.factories import actor
from tests.kernel.conftest import begin, own, refused, run_op
from tests.kernel.conftest import daemon_with as daemon_with_times
from tests.kernel.noted import noted
from tests.principals import ADA

PATIENT = Times(asset_check_s=WAIT_S, digest_s=WAIT_S, flush_s=WAIT_S)
"""No bound passes because the machine is slow."""
COPY = AssetOptions(copy=True)

daemon_with = partial(daemon_with_times, times=PATIENT)


def asset(path: Any, asset_id: str = "a", media: str = "image/png", **more: Any) -> dict[str, Any]:
    known = {"assetId": asset_id, "kind": "image", "mediaType": media, "path": str(path)}
    return {"type": "asset", **known, **more}


async def handed_over(
    daemon: Kernel, *events: dict[str, Any], session: str | None = None, who: Principal = ADA
) -> tuple[list[RegisteredAsset], Response]:
    lines = [json.dumps({"version": "0", **one}) for one in (*events, {"type": "done", "ok": True})]
    content = {"op": "say", "args": {"lines": lines}, "session_id": session}
    asker = begin(daemon, "m", "invoke", content, who)
    response = await asker.response()
    passed_on = [one for one in asker.events if isinstance(one, RegisteredAsset)]
    assert len(passed_on) == len(asker.events)
    return passed_on, response


def told(response: Response) -> list[tuple[str, str]]:
    return [(one.reason, one.message) for one in response.notices]


async def status(daemon: Kernel) -> dict[str, int]:
    found: dict[str, int] = (await own(daemon, ADA, "status"))["daemon"]["assets"]
    return found


def copies(folder: Path) -> list[str]:
    """Return what the store holds, copies that are not whole included."""
    kept = folder / "data" / "assets" / "sha256"
    return sorted("".join(one.relative_to(kept).parts) for one in kept.glob("*/*"))


def open_to_whom(file: str) -> tuple[int, int]:
    """Return the permissions of a file and of its folder."""
    return Path(file).stat().st_mode & 0o777, Path(file).parent.stat().st_mode & 0o777


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def test_an_asset_is_told_of_shown_and_noted_whole(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"hello")
    (tmp_path / "link").symlink_to("real")
    options: dict[str, Any] = {"memory": JournalOptions(), "clock": lambda: 1700000000.12345}
    async with daemon_with(tmp_path, actor(tmp_path), **options) as daemon:
        await own(daemon, ADA, "session.new", session_id="s")
        event = asset("./link", "pic", "model/x-odd", metadata={"width": 3})
        [passed_on], response = await handed_over(daemon, event, session="s")
        shown = await own(daemon, ADA, "asset.show", asset="pic")
        listed = await own(daemon, ADA, "asset.list")
        read = await own(daemon, ADA, "asset.read", asset="pic")
        (tmp_path / "real").write_bytes(b"else")
        await own(daemon, ADA, "asset.read", asset="pic")
        [wrote], reads = await noted(daemon, "artifact:write"), await noted(daemon, "artifact:read")
        [invoked] = await noted(daemon, "module:invoke")
    sha256 = digest(b"hello")
    placeholder = "[pic: image, model/x-odd, 5 bytes; there is nothing here that shows this type]"
    registered = {
        "id": passed_on.registered.id,
        "bytes": 5,
        "sha256": sha256,
        "supported": False,
        "placeholder": placeholder,
    }
    path = str(tmp_path / "link")
    assert msgspec.to_builtins(passed_on) == {
        "version": "0", **event, "path": path, "registered": registered
    }  # fmt: skip
    assert not response.notices
    record = {
        "asset": passed_on.registered.id,
        "asset_id": "pic",
        "module": "m",
        "op": "say",
        "request_id": response.request_id,
        "session_id": "s",
        "span_id": invoked["span_id"],
        "owner": "ada",
        "kind": "image",
        "media_type": "model/x-odd",
        "supported": False,
        "path": path,
        "real_path": str(tmp_path / "real"),
        "size": 5,
        "mtime_ns": shown["mtime_ns"],
        "sha256": sha256,
        "copied": False,
        "problem": None,
        "ts": 1700000000.123,
        "placeholder": placeholder,
    }
    assert shown == {**record, "metadata": {"width": 3}}
    assert listed == {"assets": [record], "left_out": 0, "forgotten": 0}
    facts = {
        "uri": f"file://{path}",
        "bytes": 5,
        "sha256": sha256,
        "asset": record["asset"],
        "media_type": "model/x-odd",
    }
    assert wrote["data"] == facts
    assert (wrote["module"], wrote["request_id"]) == ("m", response.request_id)
    assert (wrote["session_id"], wrote["span_id"]) == ("s", invoked["span_id"])
    assert read == {
        "asset": record["asset"],
        "media_type": "model/x-odd",
        "path": path,
        "copy": None,
        "verified": ["size", "sha256"],
    }
    assert [(one["status"], one["data"]) for one in reads] == [("ok", facts), ("error", facts)]
    words = f"asset {record['asset']} is not what it was: it has 4 bytes, it had 5"
    assert reads[1]["error"] == {"code": "bad_request", "message": words}
    assert "error" not in reads[0]


async def test_which_types_are_shown_is_told_with_each_asset(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("abc")
    known = {
        "text/x-anything; charset=utf-8": True,
        "AUDIO/ogg": True,
        "video/mp4": True,
        "image/png": True,
        "IMAGE/JPEG;q=1": True,
        "image/gif": True,
        "image/webp": True,
        "image/svg+xml": True,
        "application/json": True,
        "application/pdf ;x=y": True,
        "image/x-odd": False,
        "application/octet-stream": False,
        "model/text": False,
    }
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        events = [asset("f", f"a{n}", media) for n, media in enumerate(known)]
        passed_on, _ = await handed_over(daemon, *events)
    assert [one.registered.supported for one in passed_on] == list(known.values())
    placeholders = [one.registered.placeholder is not msgspec.UNSET for one in passed_on]
    assert placeholders == [not shown for shown in known.values()]


async def test_metadata_of_64_kib_are_kept_and_of_one_byte_more_left_out(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        most = {"x": "y" * (65536 - 8)}
        more = {"x": "y" * (65536 - 7)}
        events = asset("f", "most", metadata=most), asset("f", "more", metadata=more)
        passed_on, response = await handed_over(daemon, *events)
        kept = [await own(daemon, ADA, "asset.show", asset=one) for one in ("most", "more")]
    words = "asset 'more': its metadata has 65537 bytes, 65536 are allowed; it is left out"
    assert told(response) == [("metadata_too_large", words)]
    assert [one.metadata for one in passed_on] == [most, msgspec.UNSET]
    assert [one["metadata"] for one in kept] == [most, None]


async def test_the_oldest_are_forgotten_once_all_records_take_more_than_32_mib(
    tmp_path: Path,
) -> None:
    (tmp_path / "first").write_text("of the first alone")
    (tmp_path / "f").write_text("of all others")
    much = {"x": "y" * 65000}
    async with daemon_with(tmp_path, actor(tmp_path), asset_options=COPY) as daemon:
        await handed_over(daemon, asset("first", "first", metadata=much))
        [first] = (await own(daemon, ADA, "asset.list"))["assets"]
        assert copies(tmp_path) == [digest(b"of the first alone")]
        record = await own(daemon, ADA, "asset.show", asset="first")
        del record["placeholder"]
        each = len(msgspec.json.encode(record)) + 20
        number = (32 << 20) // each + 3
        events = [asset("f", f"a{n}", metadata=much) for n in range(number)]
        await handed_over(daemon, *events)
        known = await status(daemon)
        assert abs(known["known"] - (32 << 20) // each) <= 1
        assert known["known"] + known["forgotten"] == number + 1
        while (await status(daemon))["copied_bytes"] != len("of all others"):
            await trio.lowlevel.checkpoint()
        while copies(tmp_path) != [digest(b"of all others")]:
            await trio.lowlevel.checkpoint()
        listed = await own(daemon, ADA, "asset.list")
        assert [one["asset_id"] for one in listed["assets"]] == [
            f"a{n}" for n in range(number - known["known"], number)
        ]
        assert listed["forgotten"] == known["forgotten"]
        refusal = await refused(daemon, "asset.show", {"asset": first["asset"]})
        assert refusal.message == (
            f"there is no asset '{first['asset']}'; {known['forgotten']} older ones are forgotten;"
            " `stdiod asset list` shows them"
        )


async def test_a_list_has_the_newest_thousand(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        await handed_over(daemon, *(asset("f", f"a{n}") for n in range(1002)))
        listed = await own(daemon, ADA, "asset.list")
    assert [one["asset_id"] for one in listed["assets"]] == [f"a{n}" for n in range(2, 1002)]
    assert (listed["left_out"], listed["forgotten"]) == (2, 0)


async def test_of_one_name_each_finds_the_newest_that_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    usual = frozenset({Scope.READ, Scope.INVOKE})
    bob, eve = (Principal(name, "test", usual, ("m",)) for name in ("bob", "eve"))
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        names = []
        for who in (bob, bob, ADA):
            [one], _ = await handed_over(daemon, asset("f", "pic"), who=who)
            names.append(one.registered.id)
        for who, found in ((bob, names[1]), (ADA, names[2])):
            assert (await own(daemon, who, "asset.show", asset="pic"))["asset"] == found
        for named in ("pic", names[0], names[0][:4], names[0][:3], ""):
            words = f"there is no asset {named!r}; `stdiod asset list` shows them"
            assert await own(daemon, eve, "asset.show", asset=named) == words
        assert (await own(daemon, bob, "asset.show", asset=names[0][:4]))["asset"] == names[0]
        assert (await own(daemon, bob, "asset.show", asset=names[0][:3])).startswith("there is no")
        assert [one["asset"] for one in (await own(daemon, bob, "asset.list"))["assets"]] == names[
            :2
        ]


async def test_the_next_daemon_knows_all_assets_and_keeps_the_copies_of_them_alone(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"memory": JournalOptions(), "asset_options": COPY}
    ticks = iter(range(10**9))
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    async with daemon_with(
        tmp_path, actor(tmp_path), clock=lambda: 1e9 - next(ticks), **options
    ) as daemon:
        await handed_over(daemon, asset("one", "one"), asset("two", "two"))
        before = (await own(daemon, ADA, "asset.list"))["assets"]
        [newest] = [one for one in before if one["asset_id"] == "two"]
    store = tmp_path / "data" / "assets" / "sha256"
    half = store / ".half-x"
    half.mkdir()
    (half / "content").write_text("half")
    stray = store / "ab" / ("c" * 62)
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("stray")
    odd = store / "ab" / "odd"
    odd.write_text("odd")
    async with daemon_with(tmp_path, actor(tmp_path), **options) as daemon:
        after = (await own(daemon, ADA, "asset.list"))["assets"]
        # By the time of their registration, and the clock went backwards.
        assert after == before[::-1]
        assert await status(daemon) == {"known": 2, "forgotten": 0, "copied_bytes": 6}
        (tmp_path / "two").unlink()
        read = await own(daemon, ADA, "asset.read", asset="two")
        assert await trio.Path(read["path"]).read_text() == "two"
        assert read["original"]["file"].endswith("/two' cannot be read: No such file or directory")
        assert read["verified"] == ["size", "sha256"]
        assert newest["copied"]
    assert copies(tmp_path) == sorted([digest(b"one"), digest(b"two")])
    assert not half.exists()


async def test_copies_stay_while_the_journal_that_names_them_may_still_be_found(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"memory": JournalOptions(), "asset_options": COPY}
    (tmp_path / "one").write_text("one")
    async with daemon_with(tmp_path, actor(tmp_path), **options) as daemon:
        await handed_over(daemon, asset("one"))
    (tmp_path / "data" / "journal.db").write_bytes(b"")
    async with daemon_with(tmp_path, actor(tmp_path), **options) as daemon:
        assert (await own(daemon, ADA, "asset.list"))["assets"] == []
        journal = (await own(daemon, ADA, "status"))["daemon"]["journal"]
        assert journal["set_back"].startswith("it was gone or empty, and had entries up to ")
        assert copies(tmp_path) == [digest(b"one")]
    async with daemon_with(tmp_path, actor(tmp_path), **options):
        assert copies(tmp_path) == []


async def test_copies_are_kept_once_for_each_content_up_to_the_bound_of_the_store(
    tmp_path: Path,
) -> None:
    for name, content in (("nine", "123456789"), ("same", "123456789"), ("three", "abc")):
        (tmp_path / name).write_text(content)
    (tmp_path / "one").write_text("x")
    (tmp_path / "none").write_text("")
    small = AssetOptions(copy=True, store_bytes=21, fsync=True)
    async with daemon_with(tmp_path, actor(tmp_path), asset_options=small) as daemon:
        for name, used in (("nine", 9), ("same", 9), ("three", 12)):
            _, response = await handed_over(daemon, asset(name, name))
            assert (told(response), (await status(daemon))["copied_bytes"]) == ([], used)
            kept = (await own(daemon, ADA, "asset.read", asset=name))["copy"]
            assert open_to_whom(kept) == (0o400, 0o700)
            assert await trio.Path(kept).read_text() == ("abc" if name == "three" else "123456789")
        (tmp_path / "nine").write_text("ABCDEFGHI")
        _, response = await handed_over(daemon, asset("nine", "full"), asset("none", "none"))
        assert (told(response), (await status(daemon))["copied_bytes"]) == ([], 21)
        passed_on, response = await handed_over(daemon, asset("one", "one"))
        words = "it has 1 bytes, and 21 of the 21 that asset_store_bytes allows are in use"
        full = ("asset_not_copied", f"asset 'one': 'one': {words}")
        assert (passed_on, told(response)) == ([], [full])
        assert len(copies(tmp_path)) == 4
        assert list((tmp_path / "data" / "assets" / "sha256").glob(".half-*")) == []


async def test_a_file_of_64_mib_has_its_digest_at_once_and_a_larger_one_later(
    tmp_path: Path,
) -> None:
    for name, size in (("most", 64 << 20), ("more", (64 << 20) + 1)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        [most, more], response = await handed_over(
            daemon, asset("most", "most"), asset("more", "more")
        )
        assert not response.notices
        assert most.registered.sha256 == digest(bytes(64 << 20))
        assert more.registered.sha256 is None
        while (shown := await own(daemon, ADA, "asset.show", asset="more"))["sha256"] is None:
            await trio.lowlevel.checkpoint()
        assert shown["sha256"] == digest(bytes((64 << 20) + 1))
        assert (await own(daemon, ADA, "asset.read", asset="more"))["verified"] == ["size", "mtime"]
        os.utime(tmp_path / "more", ns=(1, 1))
        read = await own(daemon, ADA, "asset.read", asset="more")
        assert read["verified"] == ["size", "sha256"]


def rewrite(file: Path) -> None:
    before = file.stat()
    file.write_text("tnetnoc")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def lead_elsewhere(file: Path) -> None:
    file.with_name("other").write_text("content")
    file.unlink()
    file.symlink_to("other")


def become_a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


CHANGED: list[tuple[Callable[[Path], object], str, str]] = [
    (Path.unlink, "file", "'{file}' cannot be read: No such file or directory"),
    (become_a_fifo, "file", "'{file}' is not a regular file"),
    (lambda file: file.write_text("content!"), "size", "it has 8 bytes, it had 7"),
    (rewrite, "sha256", "its SHA-256 is {now}, it was {was}"),
    (lead_elsewhere, "link", "its path now leads to '{other}', it was '{file}'"),
]


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(("change", "what", "words"), CHANGED)
async def test_a_file_that_is_not_what_it_was_is_given_as_its_copy_or_not_at_all(
    change: Callable[[Path], object], what: str, words: str, copy: bool, tmp_path: Path
) -> None:
    file, was = tmp_path / "f", digest(b"content")
    file.write_text("content")
    words = words.format(file=file, other=tmp_path / "other", was=was, now=digest(b"tnetnoc"))
    options = AssetOptions(copy=copy)
    async with daemon_with(tmp_path, actor(tmp_path), asset_options=options) as daemon:
        [found], _ = await handed_over(daemon, asset("f"))
        assert (await own(daemon, ADA, "asset.show", asset="a"))["metadata"] is None
        os.utime(file, ns=(1, 1))  # a file that was only touched is the same
        before = await own(daemon, ADA, "asset.read", asset="a")
        assert (before["path"], before["verified"]) == (str(file), ["size", "sha256"])
        change(file)
        changed = {what: words}
        if copy:
            kept = before["copy"]
            told = {"path": kept, "original": {what: words}}
            assert await own(daemon, ADA, "asset.read", asset="a") == {**before, **told}
            await trio.Path(kept).unlink()
            changed["copy"] = f"its copy: '{kept}' cannot be read: No such file or directory"
        refusal = await refused(daemon, "asset.read", {"asset": "a"})
        assert refusal.details["reason"] == "asset_changed"
        assert refusal.details["path"] == str(file)
        assert refusal.details["changed"] == changed
        whole = "; ".join(changed.values())
        assert refusal.message == f"asset {found.registered.id} is not what it was: {whole}"


PIECE = 1 << 18


@pytest.mark.parametrize(
    ("args", "offset", "pieces"),
    [
        ({}, 0, [PIECE, PIECE, 1]),
        ({"length": PIECE}, 0, [PIECE]),
        ({"length": PIECE + 1}, 0, [PIECE, 1]),
        ({"offset": PIECE}, PIECE, [PIECE, 1]),
        ({"offset": 2 * PIECE}, 2 * PIECE, [1]),
        ({"offset": 1, "length": 2}, 1, [2]),
        ({"offset": 2 * PIECE, "length": 2}, 2 * PIECE, [1]),
        ({"last": 1}, 2 * PIECE, [1]),
        ({"last": 2 * PIECE + 1}, 0, [PIECE, PIECE, 1]),
        ({"last": 2 * PIECE + 2, "offset": 7, "length": 1}, 0, [PIECE, PIECE, 1]),
    ],
)
async def test_a_part_of_an_asset_comes_in_pieces(
    args: dict[str, int], offset: int, pieces: list[int], tmp_path: Path
) -> None:
    content = os.urandom(2 * PIECE + 1)
    (tmp_path / "f").write_bytes(content)
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        [found], _ = await handed_over(daemon, asset("f"))
        events: list[Any] = []

        async def emit(event: Any) -> None:
            events.append(event)

        result = await run_op(daemon, "asset.content", {"asset": "a", **args}, emit)
    known = {
        "asset": found.registered.id,
        "media_type": "image/png",
        "size": len(content),
        "sha256": digest(content),
        "offset": offset,
        "length": sum(pieces),
    }
    assert result == {**known, "verified": ["size", "sha256"]}
    head, *rest = events
    assert (head.message, head.fields) == (f"{sum(pieces)} bytes of {known['asset']}", known)
    assert [one.message for one in rest] == [f"{size} bytes" for size in pieces]
    at = offset
    for one, size in zip(rest, pieces, strict=True):
        assert one.fields == {"offset": at, "data": content[at : at + size]}
        at += size


async def test_of_an_empty_file_there_is_nothing_and_of_no_file_anything_beyond_its_end(
    tmp_path: Path,
) -> None:
    (tmp_path / "none").write_text("")
    (tmp_path / "three").write_text("abc")
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        await handed_over(daemon, asset("none", "none"), asset("three", "three"))
        events: list[Any] = []

        async def emit(event: Any) -> None:
            events.append(event)

        for args in ({}, {"offset": 0, "length": 5}, {"last": 5}):
            result = await run_op(daemon, "asset.content", {"asset": "none", **args}, emit)
            assert (result["offset"], result["length"]) == (0, 0)
        assert [one.message.split()[0] for one in events] == ["0"] * 3
        for named, offset, size in (("none", 1, 0), ("three", 3, 3), ("three", 4, 3)):
            refusal = await refused(daemon, "asset.content", {"asset": named, "offset": offset})
            words = f"the asset has {size} bytes: there is none from {offset} on"
            assert (refusal.message, refusal.details["reason"]) == (words, "beyond_end")
            assert refusal.details["size"] == size


def python_words_for_a_null_byte() -> str:
    try:
        os.lstat("\x00")
    except ValueError as error:
        return str(error)
    raise AssertionError("a path may have a null byte")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("f", ""),
        ("./g/../f", ""),
        ("g//f", ""),
        ("{shm}", ""),
        ("link40", ""),
        ("link41", " cannot be read: Too many levels of symbolic links"),
        ("g", " is not a regular file"),
        ("f/", " cannot be read: Not a directory"),
        ("/dev/null", " leads into /dev, where the daemon would find its own"),
        ("/proc/self/exe", " leads into /proc, where the daemon would find its own"),
        ("out", " leads into /sys, where the daemon would find its own"),
        ("nothing", " cannot be read: No such file or directory"),
        ("\x00", " cannot be read: " + python_words_for_a_null_byte()),
    ],
)
async def test_a_path_is_followed_to_a_file_that_all_processes_see(
    path: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "f").write_text("x")
    (tmp_path / "out").symlink_to("/sys/kernel/notes")
    (tmp_path / "link0").symlink_to("f")
    (tmp_path / "link1").symlink_to("f")
    for number in range(2, 42):
        (tmp_path / f"link{number}").symlink_to(f"link{number - 1}")
    shared = Path("/dev/shm") / f"stdiod-test-{os.getpid()}"
    shared.write_text("x")
    try:
        async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
            path = path.format(shm=shared)
            passed_on, response = await handed_over(daemon, asset(path))
    finally:
        shared.unlink()
    if problem:
        assert (passed_on, told(response)) == (
            [],
            [("unreadable_path", f"asset 'a': {path!r}{problem}")],
        )
    else:
        assert (len(passed_on), told(response)) == (1, [])
