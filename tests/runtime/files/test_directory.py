from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from protocol.descriptor.loading import DescriptorError
from supervisor.policy.findings import Found, QuarantinedFile, Reading, usable
from supervisor.runtime.files.directory import (
    DESCRIPTOR_BYTES,
    DescriptorFiles,
    MissingDirectoryError,
    read_descriptor,
)
from supervisor.runtime.files.sources import Sources, scan
from tests.factories import descriptor, document


def put(path: Path, **fields: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(["true"], **fields)))
    return path


def depending(folder: Path, name: str, *on: str) -> Path:
    return put(folder / f"{name}.json", name=name, supervision={"depends_on": list(on)})


def names(found: Found) -> list[str]:
    return [one.name for one in found.descriptors]


def reasons(found: Found) -> dict[str, str]:
    return {Path(one.descriptor).stem: one.reason for one in found.quarantined}


def test_descriptors_are_json_files_and_folders_with_a_module_json(tmp_path: Path) -> None:
    put(tmp_path / "a.json", name="a")
    put(tmp_path / "b" / "module.json", name="b")
    put(tmp_path / "b" / "other.json", name="other")
    put(tmp_path / "c" / "deeper" / "module.json", name="deeper")
    (tmp_path / "readme.txt").write_text("no descriptor")
    assert names(scan([tmp_path])) == ["a", "b"]
    assert scan([tmp_path]).quarantined == ()


def test_hidden_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    put(tmp_path / ".a.json", name="a")
    put(tmp_path / ".git" / "module.json", name="b")
    assert scan([tmp_path]) == Found()


def test_an_empty_directory_holds_nothing(tmp_path: Path) -> None:
    assert scan([tmp_path]) == Found()


def test_a_directory_that_is_missing_or_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDirectoryError, match="gone: No such file"):
        scan([tmp_path / "gone"])
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingDirectoryError, match="file is not a directory"):
        scan([tmp_path / "file"])


def test_the_second_of_a_name_is_quarantined_and_says_who_has_it(tmp_path: Path) -> None:
    first = put(tmp_path / "1" / "a.json", name="same")
    second = put(tmp_path / "2" / "b.json", name="same")
    found = scan([tmp_path / "1", tmp_path / "2"])
    assert names(found) == ["same"]
    reason = f"the name 'same' is taken by {first}"
    assert found.quarantined == (QuarantinedFile(str(second), reason),)


def test_a_directory_that_is_named_twice_is_read_as_one(tmp_path: Path) -> None:
    put(tmp_path / "a.json", name="a")
    assert names(scan([tmp_path, tmp_path])) == ["a"]
    assert scan([tmp_path, tmp_path]).quarantined == ()


def test_bad_files_are_quarantined_with_words_and_are_in_nobodys_way(tmp_path: Path) -> None:
    put(tmp_path / "good.json", name="good")
    (tmp_path / "half.json").write_text('{"name": "ha')
    (tmp_path / "dangling.json").symlink_to("nowhere")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "huge.json").write_bytes(b" " * (DESCRIPTOR_BYTES + 1))
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "module.json").mkdir()
    found = scan([tmp_path])
    assert names(found) == ["good"]
    words = reasons(found)
    assert sorted(words) == ["dangling", "empty", "half", "huge", "loop", "module", "pipe"]
    assert "being written" in words["half"]
    assert words["dangling"] == "cannot be read: No such file or directory"
    assert "symbolic links" in words["loop"]
    assert "larger than" in words["huge"]
    assert words["pipe"] == "is not a regular file"
    assert "cannot be read" in words["module"] or words["module"] == "is not a regular file"


def test_a_folder_named_like_a_descriptor_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    assert scan([tmp_path]) == Found()
    put(tmp_path / "x.json" / "module.json", name="x")
    assert names(scan([tmp_path])) == ["x"]


def test_all_that_is_wrong_with_a_file_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"name": "", "kind": "toll"}')
    reason = reasons(scan([tmp_path]))["bad"]
    assert "/name" in reason
    assert "did you mean 'tool'" in reason


def test_a_dependency_that_is_unknown_is_named(tmp_path: Path) -> None:
    depending(tmp_path, "a", "nobody")
    depending(tmp_path, "b")
    found = scan([tmp_path])
    assert names(found) == ["b"]
    assert reasons(found) == {"a": "depends_on names 'nobody', and there is no such module"}


def test_a_circle_is_refused_with_its_path_by_each_of_its_members(tmp_path: Path) -> None:
    depending(tmp_path, "a", "b")
    depending(tmp_path, "b", "c")
    depending(tmp_path, "c", "a")
    depending(tmp_path, "d", "a")
    depending(tmp_path, "e")
    found = scan([tmp_path])
    assert names(found) == ["e"]
    assert reasons(found) == {
        "a": "depends_on goes in a circle: a -> b -> c -> a",
        "b": "depends_on goes in a circle: b -> c -> a -> b",
        "c": "depends_on goes in a circle: c -> a -> b -> c",
        "d": "depends_on names 'a', which is quarantined",
    }


def test_what_cannot_be_kept_is_a_refusal_and_spreads_to_dependants(
    tmp_path: Path,
) -> None:
    put(tmp_path / "a.json", name="a", supervision={"warm": 2})
    depending(tmp_path, "b", "a")
    depending(tmp_path, "c", "b")
    found = scan([tmp_path])
    assert names(found) == []
    assert "supervision/warm" in reasons(found)["a"]
    assert reasons(found)["b"] == "depends_on names 'a', which is quarantined"
    assert reasons(found)["c"] == "depends_on names 'b', which is quarantined"


LONG = 10_000


@pytest.mark.parametrize("forward", [True, False])
def test_a_chain_of_ten_thousand_is_no_recursion(tmp_path: Path, forward: bool) -> None:
    template = descriptor(tmp_path, ["true"])
    order = range(LONG) if forward else range(LONG - 1, -1, -1)

    def chain(last: str) -> dict[str, str]:
        """Return why each module is quarantined."""
        made = []
        for number in order:
            needed = (f"m{number + 1}",) if number + 1 < LONG else ((last,) if last else ())
            supervision = replace(template.supervision, depends_on=needed)
            one = replace(template, name=f"m{number}", supervision=supervision)
            made.append(replace(one, source=f"{tmp_path}/m{number}.json"))
        return reasons(usable({}, Reading(tuple(made))))

    assert chain("") == {}
    missing = chain("nobody")
    assert len(missing) == LONG
    assert missing["m0"] == "depends_on names 'm1', which is quarantined"
    circle = chain("m0")
    assert len(circle) == LONG
    assert circle["m5"].startswith("depends_on goes in a circle: m5 -> m6 -> ")
    assert circle["m5"].endswith(f" -> ... ({LONG} modules) -> m5")


@pytest.mark.parametrize("name", [b"caf\xe9.json", b"caf\xe9/module.json"])
def test_a_file_whose_name_is_not_utf_8_is_quarantined_under_a_name_that_can_be_sent(
    tmp_path: Path, name: bytes
) -> None:
    put(tmp_path / "a.json", name="a")
    path = put(tmp_path / os.fsdecode(name), name="b")
    found = scan([tmp_path])
    assert names(found) == ["a"]
    (one,) = found.quarantined
    assert one.descriptor.encode().endswith(name.replace(b"\xe9", b"\\xe9"))
    assert "not UTF-8" in one.reason
    with pytest.raises(DescriptorError, match="not UTF-8") as caught:
        read_descriptor(path)
    str(caught.value).encode()
    caught.value.source.encode()


def test_a_directory_whose_name_is_not_utf_8_can_be_named(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(MissingDirectoryError, match="No such file") as caught:
        scan([directory])
    str(caught.value).encode()
    directory.mkdir()
    files = Sources.of_directories([directory])
    assert files.read({}).bad == ()
    directory.rmdir()
    (bad,) = files.read({}).bad
    (bad.descriptor + bad.reason).encode()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("package.json", '{"name": "m", "version": "1.0.0", "type": "module", "scripts": {}}'),
        ("package.json", '{"name": "m", "kind": "tool", "version"'),
        ("package-lock.json", '{"name": "m", "lockfileVersion": 3, "packages": {}}'),
        ("composer.json", '{"name": "a/b", "type": "library", "require": {}, "config": {}}'),
        ("tsconfig.json", '{"compilerOptions": {"strict": true}} // strict'),
        ("tsconfig.build.json", '{"extends": "./tsconfig.json",}'),
        ("jest.config.json", "/* none */ {}"),
        (".eslintrc.json", "{ // not JSON"),
        ("mcp.json", '{"mcpServers": {"a": {"command": "npx", "transport": "stdio"}}}'),
        ("mcp.json", '{"servers": {}} // of an editor'),
        ("server.json", '{"name": "io.x/y", "description": "", "version": "1", "packages": []}'),
        ("manifest.json", '{"name": "x", "version": "1", "commands": {}, "permissions": []}'),
        ("plugin.json", '{"name": "x", "hooks": {}, "commands": [], "mcpServers": {}}'),
        ("pod.json", '{"apiVersion": "v1", "kind": "Pod", "metadata": {}}'),
        ("schema.json", '{"$schema": "x", "type": "object", "properties": {"transport": {}}}'),
    ],
)
def test_a_file_of_another_tool_is_passed_over(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    put(tmp_path / "module.json", name="good")
    found = scan([tmp_path])
    assert (names(found), found.quarantined) == (["good"], ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("module.json", '{"name": "m", "version": "1.0.0"}'),
        ("m.json", '{"name": "m", "transport": {}}'),
        ("m.json", '{"name": "m", "transprot": {}}'),
        ("m.json", '{"name": "m", "kind": "tool"}'),
        ("m.json", '{"name": "m", "command": ["cat"]}'),
        ("m.json", '[{"name": "m", "transport": {}}]'),
        ("m.json", '{"name": "m", // mine'),
        ("m.json", "{}"),
        ("m.json", ""),
        ("package.json", '{"name": "m", "transport": {"type": "stdio"}}'),
    ],
)
def test_a_broken_descriptor_is_never_taken_for_a_file_of_another_tool(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    assert len(scan([tmp_path]).quarantined) == 1


@pytest.mark.parametrize("name", ["package.json", "tsconfig.json", "m.json"])
def test_a_descriptor_that_is_in_use_is_not_passed_over_once_it_is_none(
    tmp_path: Path, name: str
) -> None:
    path = put(tmp_path / name, name="m")
    files = DescriptorFiles(tmp_path)
    assert [one.name for one in files.read(set()).descriptors] == ["m"]
    path.write_text('{"version": "1"}')
    for _ in range(2):
        assert [one.descriptor for one in files.read(set()).bad] == [str(path)]
    path.unlink()
    assert files.read(set()).bad == ()
