"""What a reload decides: examples of each rule, and what holds whatever runs and is read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.descriptor.model import (
    Descriptor,
    Gate,
    Hook,
    Kind,
    OnFailure,
    Supervision,
    Transport,
)
from supervisor.policy.findings import KEPT, QuarantinedFile, Reading, kept, version_of
from supervisor.policy.reload_plan import Change, ReloadPlan, Running, changes, plan, runnable


def descriptor(
    name: str,
    *needed: str,
    source: str | None = None,
    owner: str = "/d",
    said: str = "",
    watch: bool = False,
    command: tuple[str, ...] = ("x",),
) -> Descriptor:
    source = source or f"/d/{name}.json"
    return Descriptor(
        name=name,
        kind=Kind.TOOL,
        transport=Transport(command=command),
        description=said,
        supervision=Supervision(depends_on=needed, watch=watch),
        source=source,
        folder=source.rpartition("/")[0],
        owner=owner,
        digest=f"{name} {needed} {said} {watch} {command}",
    )


def running(*descriptors: Descriptor, **programs: dict[str, str]) -> dict[str, Running]:
    return {one.name: Running(one, programs.get(one.name, {})) for one in descriptors}


def read(*descriptors: Descriptor, bad: tuple[str, ...] = ()) -> Reading:
    return Reading(descriptors, tuple(QuarantinedFile(path, "is not JSON") for path in bad))


def names(descriptors: tuple[Descriptor, ...]) -> list[str]:
    return [one.name for one in descriptors]


def after(found: ReloadPlan) -> dict[str, Running]:
    """Return what runs once a plan has been applied."""
    kept = (*found.added, *(one.descriptor for one in found.changed), *found.unchanged)
    return {one.name: Running(one, found.programs.get(one.name, {})) for one in kept}


def test_equal_digests_are_not_looked_into() -> None:
    old = descriptor("a", said="old")
    lying = msgspec.structs.replace(descriptor("a", said="new"), digest=old.digest)
    assert changes(old, lying) == ()


def test_a_file_written_otherwise_with_the_same_meaning_is_unchanged() -> None:
    old = descriptor("a")
    rewritten = msgspec.structs.replace(old, digest="other white space")
    found = plan(running(old), read(rewritten))
    assert found.empty
    assert found.unchanged == (rewritten,)


def test_a_changed_value_is_named_by_its_pointer() -> None:
    old, new = descriptor("a"), descriptor("a", "b", said="new")
    (changed,) = plan(running(old, descriptor("b")), read(new, descriptor("b"))).changed
    assert changed.changes == (
        Change("/description", "", "new"),
        Change("/supervision/depends_on", [], ["b"]),
    )


def test_a_changed_hook_is_a_changed_module() -> None:
    old = msgspec.structs.replace(descriptor("a"), kind=Kind.HOOK, hook=Hook(gate=(Gate.PRE,)))
    new = msgspec.structs.replace(
        old, hook=Hook(gate=(Gate.PRE,), on_failure=OnFailure.OPEN), digest="n"
    )
    (changed,) = plan(running(old), read(new)).changed
    assert changed.changes == (Change("/hook/on_failure", "closed", "open"),)
    written_out = msgspec.structs.replace(old, hook=Hook(gate=(Gate.PRE,)), digest="o")
    assert plan(running(old), read(written_out)).empty


def test_a_value_that_was_not_there_has_no_old_one() -> None:
    old = msgspec.structs.replace(descriptor("a"), inputs={"x": {}})
    new = msgspec.structs.replace(old, inputs={"x": {"type": "string"}, "a/b": True}, digest="n")
    found = changes(old, new)
    assert list(msgspec.to_builtins(found)) == [
        {"pointer": "/inputs/a~1b", "new": True},
        {"pointer": "/inputs/x/type", "new": "string"},
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, True),
        (0, False),
        ([1], [True]),
        ([1], [1, 1]),
        (None, 0),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1, "b": 1}),
        ({"a": 1}, {"b": 1}),
    ],
)
def test_values_that_python_takes_for_equal_and_json_does_not_differ(
    old: object, new: object
) -> None:
    before = msgspec.structs.replace(descriptor("a"), inputs={"x": {"const": [old]}})
    now = msgspec.structs.replace(before, inputs={"x": {"const": [new]}}, digest="n")
    assert [one.pointer for one in changes(before, now)] == ["/inputs/x/const"]
    assert changes(before, msgspec.structs.replace(before, digest="n")) == ()


def test_a_renamed_file_restarts_nothing() -> None:
    new = descriptor("a", source="/d/z.json")
    found = plan(running(descriptor("a")), read(new))
    assert found.empty
    assert found.moved == (("/d/a.json", new),)


def test_a_file_moved_to_another_folder_changes_where_the_module_runs() -> None:
    (changed,) = plan(running(descriptor("a")), read(descriptor("a", source="/e/a.json"))).changed
    assert changed.changes == (Change("/transport/cwd", "/d", "/e"),)


def test_a_bad_file_leaves_its_module_as_it_is() -> None:
    found = plan(running(descriptor("a")), read(bad=("/d/a.json",)))
    assert found.empty
    assert names(found.unchanged) == ["a"]
    assert found.quarantined == (QuarantinedFile("/d/a.json", "is not JSON" + KEPT),)


def test_a_directory_that_cannot_be_read_says_nothing_of_its_modules() -> None:
    inside, deeper = descriptor("a"), descriptor("b", source="/d/b/module.json")
    assert plan(running(inside, deeper), read(bad=("/d",))).empty


def test_a_bad_file_keeps_its_name_from_others() -> None:
    other = descriptor("a", source="/d/0.json", said="other")
    found = plan(running(descriptor("a")), read(other, bad=("/d/a.json",)))
    assert found.empty
    assert [one.descriptor for one in found.quarantined] == ["/d/0.json", "/d/a.json"]


def test_a_second_file_with_a_taken_name_is_not_in_the_first_ones_way() -> None:
    first, second = descriptor("a"), descriptor("a", source="/d/0.json", said="second")
    found = plan(running(first), read(second, first))
    assert found.empty
    assert [one.descriptor for one in found.quarantined] == ["/d/0.json"]
    assert names(tuple(one.descriptor for one in plan(running(first), read(second)).changed)) == [
        "a"
    ]


def test_a_file_that_takes_anothers_name_leaves_its_own_module_running() -> None:
    a, b = descriptor("a"), descriptor("b")
    found = plan(running(a, b), read(descriptor("b", source="/d/a.json"), b))
    assert found.empty
    assert sorted(names(found.unchanged)) == ["a", "b"]


def test_dependants_come_after_what_they_need_and_go_before_it() -> None:
    a, b, c = descriptor("a", "b"), descriptor("b", "c"), descriptor("c")
    assert names(plan({}, read(a, b, c)).added) == ["c", "b", "a"]
    assert names(plan(running(a, b, c), read()).removed) == ["a", "b", "c"]


def test_a_module_whose_dependency_is_gone_runs_on_and_is_listed() -> None:
    a, b = descriptor("a", "b"), descriptor("b")
    found = plan(running(a, b), read(a))
    assert names(found.removed) == ["b"]
    assert names(found.unchanged) == ["a"]
    assert [one.descriptor for one in found.quarantined] == ["/d/a.json"]


def test_a_circle_is_undone_where_it_was_closed() -> None:
    a, b = descriptor("a", "b"), descriptor("b")
    found = plan(running(a, b), read(a, descriptor("b", "a")))
    assert found.empty
    (one,) = found.quarantined
    assert one.descriptor == "/d/b.json"
    assert "circle" in one.reason


def test_new_modules_in_a_circle_and_behind_it_are_quarantined() -> None:
    a, b, c = descriptor("a", "b"), descriptor("b", "a"), descriptor("c", "b")
    found = plan({}, read(a, b, c))
    assert found.added == ()
    assert "which is quarantined" in found.quarantined[2].reason


def test_a_program_counts_only_where_it_is_watched() -> None:
    for watch, expected in ((True, [("a", ("/d/p",))]), (False, [])):
        a = descriptor("a", watch=watch)
        reading = msgspec.structs.replace(
            read(a), programs={version_of(a): {"/d/p": "2", "/d/q": "1"}}
        )
        found = plan(running(a, a={"/d/p": "1", "/d/q": "1"}), reading)
        assert [(one.descriptor.name, one.programs) for one in found.changed] == expected


def test_a_program_that_is_being_replaced_is_waited_for() -> None:
    a = descriptor("a", watch=True)

    def reading(programs: dict[str, str]) -> Reading:
        return msgspec.structs.replace(read(a), programs={version_of(a): programs})

    gone = plan(running(a, a={"/d/p": "1"}), reading({}))
    assert gone.empty
    back = plan(after(gone), reading({"/d/p": "1"}))
    assert back.empty
    new = plan(after(back), reading({"/d/p": "2"}))
    assert not new.empty


@pytest.mark.parametrize("source", ["/d/0.json", "/d/a.json"])
def test_the_program_of_a_descriptor_that_is_not_used_is_nobodys(source: str) -> None:
    """A second one with a taken name, and a new version that closes a circle."""
    a, b = descriptor("a", watch=True), descriptor("b", "a")
    other = descriptor("a", "b", source=source, watch=True, command=("y",))
    read_all = read(other, b) if source == a.source else read(other, a, b)
    programs = {version_of(a): {"/d/x": "1"}, version_of(other): {"/d/y": "1"}}
    found = plan(
        running(a, b, a={"/d/x": "1"}), msgspec.structs.replace(read_all, programs=programs)
    )
    assert found.empty
    assert [one.descriptor for one in found.quarantined] == [source]


NAMES = "abcd"
FILES = [f"/d/{file}.json" for file in "abcdef"] + ["/d/g/module.json"]
DESCRIPTORS = st.builds(
    lambda name, needed, said: (name, [one for one in needed if one != name], said),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
    st.sampled_from(["", "1"]),
)
READINGS = st.dictionaries(st.sampled_from(FILES), st.none() | DESCRIPTORS).map(
    lambda files: read(
        *(
            descriptor(said[0], *said[1], source=path, said=said[2])
            for path, said in sorted(files.items())
            if said is not None
        ),
        bad=tuple(path for path, said in sorted(files.items()) if said is None),
    )
)


def after_all(readings: list[Reading]) -> dict[str, Running]:
    current: dict[str, Running] = {}
    for reading in readings:
        current = after(plan(current, reading))
    return current


@given(st.lists(READINGS, max_size=3), READINGS)
def test_the_same_reading_again_changes_nothing(before: list[Reading], last: Reading) -> None:
    first = plan(after_all(before), last)
    second = plan(after(first), last)
    assert second.empty
    assert second.moved == ()


@given(st.lists(READINGS, max_size=3), READINGS)
def test_each_module_stands_in_one_list(before: list[Reading], last: Reading) -> None:
    current = after_all(before)
    found = plan(current, last)
    changed = [one.descriptor.name for one in found.changed]
    gone, stay = names(found.removed), names(found.unchanged)
    assert sorted([*changed, *gone, *stay]) == sorted(current)
    assert not set(names(found.added)) & set(current)


@given(st.lists(READINGS, max_size=3), READINGS)
def test_what_is_untouched_means_the_same_and_what_is_replaced_does_not(
    before: list[Reading], last: Reading
) -> None:
    current = after_all(before)
    found = plan(current, last)
    for one in found.unchanged:
        assert not changes(current[one.name].descriptor, one)
    for changed in found.changed:
        assert changed.changes
        assert changed.changes == changes(
            current[changed.descriptor.name].descriptor, changed.descriptor
        )


@given(st.lists(READINGS, max_size=3), READINGS)
def test_a_module_is_removed_only_if_its_file_says_something_else(
    before: list[Reading], last: Reading
) -> None:
    bad = {one.descriptor for one in last.bad}
    for one in plan(after_all(before), last).removed:
        assert one.source not in bad
        assert one not in last.descriptors


@given(st.lists(READINGS, max_size=3), READINGS)
def test_every_file_is_used_or_quarantined(before: list[Reading], last: Reading) -> None:
    found = plan(after_all(before), last)
    used = {one.descriptor for one in found.quarantined}
    used |= {one.descriptor.source for one in after(found).values()}
    assert used >= {one.source for one in last.descriptors} | {one.descriptor for one in last.bad}


@given(st.lists(READINGS, max_size=3), READINGS)
def test_what_is_started_follows_what_it_needs(before: list[Reading], last: Reading) -> None:
    found = plan(after_all(before), last)
    there = set(after(found))
    for started in (found.added, tuple(one.descriptor for one in found.changed)):
        place = {name: index for index, name in enumerate(names(started))}
        for one in started:
            for needed in one.supervision.depends_on:
                assert needed in there
                assert place.get(needed, -1) < place[one.name]


def test_what_is_kept_is_said_in_a_sentence_of_its_own() -> None:
    assert kept("is empty") == "is empty. The last good version stays in use."
    assert kept("is half; why?") == "is half; why? The last good version stays in use."


def test_a_file_that_moved_is_another_one_where_its_relative_paths_lead_elsewhere() -> None:
    def moved(*command: str) -> tuple[Change, ...]:
        old = descriptor("a", command=command)
        return changes(old, msgspec.structs.replace(old, source="/e/a.json", folder="/e"))

    cwd = Change("/transport/cwd", "/d", "/e")
    assert moved("x", "./y") == (cwd,)
    assert moved("/bin/x") == (cwd,)
    commands = (["/d/bin/x", "-y", "z"], ["/e/bin/x", "-y", "z"])
    assert moved("./bin/x", "-y", "z") == (Change("/transport/command", *commands), cwd)
    assert moved() == ()


def test_a_program_that_cannot_be_run_replaces_none_that_runs() -> None:
    old = [descriptor(name) for name in "abc"]
    new = [descriptor(name, said="new", watch=True) for name in "abc"]
    added = [descriptor(name, watch=True) for name in "de"]
    programs = {version_of(one): {f"/d/{one.name}": "2"} for one in (*new, *added)}
    reading = msgspec.structs.replace(read(*new, *added, bad=("/d/z.json",)), programs=programs)
    current = running(*old, a={"/d/a": "1"}, c={"/d/c": "1"})
    current["b"] = Running(old[1])
    found = plan(current, reading)
    obstacles = {name: f"{name} is not there" for name in ("a", "b", "c", "d", "nobody")}

    def left(*hopeless: str) -> dict[str, object]:
        document = runnable(found, obstacles, current, hopeless).document()
        for one in document["changed"]:
            del one["changes"], one["programs"]
        return document

    def entry(name: str) -> dict[str, str]:
        return {"name": name, "descriptor": f"/d/{name}.json"}

    def reason(name: str, words: str) -> dict[str, str]:
        return {"descriptor": f"/d/{name}.json", "reason": words}

    shown = {
        "added": [entry("d"), entry("e")],
        "removed": [],
        "moved": [],
        "unchanged": [],
        "quarantined": [
            reason("z", "is not JSON"),
            reason("a", f"a is not there{KEPT}"),
            reason("b", f"b is not there{KEPT}"),
        ],
    }
    unrunnable = [reason("d", "d is not there"), reason("c", "c is not there")]
    assert left("c") == {**shown, "changed": [entry("c")], "unrunnable": unrunnable}
    assert runnable(found, obstacles, current, ("c",)).programs == {
        "a": {"/d/a": "1"},
        "b": {},
        "c": {"/d/c": "2"},
        "d": {"/d/d": "2"},
        "e": {"/d/e": "2"},
    }
    assert runnable(found, {"e": "x"}, current, ()) == msgspec.structs.replace(
        found, unrunnable=(QuarantinedFile("/d/e.json", "x"),)
    )


@pytest.mark.parametrize("length", [1, 10, 11])
def test_a_circle_is_told_from_each_of_its_modules_with_ten_names(length: int) -> None:
    circle = [f"m{number:02}" for number in range(length)]
    made = [descriptor(name, circle[(number + 1) % length]) for number, name in enumerate(circle)]
    found = plan({}, read(*made))
    assert [one.descriptor for one in found.quarantined] == [one.source for one in made]
    for number, one in enumerate(found.quarantined):
        names = [*circle[number:], *circle[:number]]
        shown = [*names[:10], *(["... (11 modules)"] if length == 11 else []), names[0]]
        assert one.reason == f"depends_on goes in a circle: {' -> '.join(shown)}"
