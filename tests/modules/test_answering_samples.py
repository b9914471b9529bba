"""The samples that answer at once: dice, textstats, notes and audit, driven alone."""

from pathlib import Path

import pytest

from tests.modules.samples import Json, Running, perform


def test_dice_roll_the_same_for_the_same_seed(tmp_path: Path) -> None:
    with Running("dice", tmp_path) as dice:
        first, second, other = (
            dice.invoke("roll", {"dice": "20d100", "seed": seed})["result"]
            for seed in ("luck", "luck", 7)
        )
        assert first == second != other
        assert first["total"] == sum(first["rolls"])
        assert len(first["rolls"]) == 20
        assert set(first["rolls"]) <= set(range(1, 101))


@pytest.mark.parametrize(
    "notation", ["", "3x6", "d", "0d6", "2d0", "99999d6", "3d6+", "d6 d6", "²d6"]
)
def test_dice_refuse_what_is_not_dice_notation(notation: str, tmp_path: Path) -> None:
    with Running("dice", tmp_path) as dice:
        answer = dice.invoke("roll", {"dice": notation})
        assert (answer["ok"], answer["error"]["code"]) == (False, "bad_request")


@pytest.mark.parametrize(
    ("args", "count", "lowest", "highest"),
    [
        ({}, 1, 1, 6),
        ({"sides": 20}, 1, 1, 20),
        ({"count": 3}, 3, 3, 18),
        ({"sides": 1, "count": 5}, 5, 5, 5),
        ({"dice": " 2 D 1 - 5 "}, 2, -3, -3),
    ],
)
def test_dice_understand_sides_and_count(
    args: Json, count: int, lowest: int, highest: int, tmp_path: Path
) -> None:
    with Running("dice", tmp_path) as dice:
        result = dice.invoke("roll", args)["result"]
        assert len(result["rolls"]) == count
        assert lowest <= result["total"] <= highest


def test_textstats_counts_characters_as_a_reader_does(tmp_path: Path) -> None:
    with Running("textstats", tmp_path) as textstats:
        family, combined = "👩‍👩‍👧", "e\u0301"
        result = textstats.invoke("stats", {"text": family + combined})["result"]
        assert (result["characters"], result["words"], result["lines"]) == (2, 1, 1)
        empty = textstats.invoke("stats", {"text": ""})["result"]
        assert (empty["words"], empty["lines"], empty["reading_ease"]) == (0, 0, None)
        easy = textstats.invoke("stats", {"text": "The cat sat on the mat."})["result"]
        hard = textstats.invoke("stats", {"text": "Institutional responsibility necessitates."})
        assert easy["reading_ease"] > 90
        assert hard["result"]["reading_ease"] < 0
        assert textstats.invoke("stats", {})["error"]["code"] == "bad_request"


def test_notes_keeps_the_notes_of_sessions_apart_and_in_order(tmp_path: Path) -> None:
    with Running("notes", tmp_path) as notes:
        for session, text in (("a", "Milk"), ("b", "Grüße"), ("a", "Bread"), ("a", "More milk")):
            assert notes.invoke("add", {"text": text}, session)["ok"]
        listed = notes.invoke("list", {}, "a")["result"]["notes"]
        assert listed == [
            {"number": 1, "text": "Milk"},
            {"number": 2, "text": "Bread"},
            {"number": 3, "text": "More milk"},
        ]
        assert notes.invoke("list", {"last": 1}, "a")["result"]["notes"] == listed[-1:]
        found = notes.invoke("search", {"query": "MILK"}, "a")["result"]["notes"]
        assert found == [listed[0], listed[2]]
        assert notes.invoke("search", {"query": "grüsse"}, "b")["result"]["notes"] != []
        assert notes.invoke("clear", {}, "a")["result"] == {"cleared": 3}
        assert notes.invoke("list", {}, "a")["result"] == {"notes": []}
        assert len(notes.invoke("list", {}, "b")["result"]["notes"]) == 1
        assert notes.invoke("add", {"text": ""})["error"]["code"] == "bad_request"


def test_notes_remembers_in_its_file_what_it_has_answered_even_if_it_is_killed(
    tmp_path: Path,
) -> None:
    file = tmp_path / "notes.jsonl"
    with Running("notes", tmp_path, NOTES_FILE=str(file)) as notes:
        for session, text in (("a", "gone"), ("b", "kept 🎲")):
            notes.invoke("add", {"text": text}, session)
        notes.invoke("clear", {}, "a")
        notes.kill()
        notes.process.wait()
    with file.open("ab") as torn:
        torn.write(b'{"session": "b", "te')
    for expected in (["kept 🎲", "after 1"], ["kept 🎲", "after 1", "after 2"]):
        with Running("notes", tmp_path, NOTES_FILE=str(file)) as notes:
            notes.invoke("add", {"text": f"after {len(expected) - 1}"}, "b")
            listed = notes.invoke("list", {}, "b")["result"]["notes"]
            assert [note["text"] for note in listed] == expected
            assert notes.invoke("list", {}, "a")["result"]["notes"] == []


def test_notes_does_not_start_with_a_file_it_cannot_write(tmp_path: Path) -> None:
    status, lines, stderr = perform("notes", tmp_path, b"", NOTES_FILE=str(tmp_path / "no" / "f"))
    assert (status, lines) == (1, [])
    assert "cannot keep notes in NOTES_FILE" in stderr


def test_audit_logs_events_and_counts_them_by_name(tmp_path: Path) -> None:
    with Running("audit", tmp_path) as audit:
        start = {"id": "1", "ts": 1.5, "event": "session:start", "component": "kernel"}
        failed = {
            "event": "module:invoke",
            "module": "dice",
            "status": "error",
            "error": {"code": "timeout"},
        }
        for event in (start, failed, start):
            given = {"event": event["event"], "data": event}
            assert audit.invoke("on_event", given)["result"] == {}
        assert audit.invoke("on_event", {"event": "session:end"})["result"] == {}
        assert audit.invoke("report", {})["result"] == {
            "total": 4,
            "errors": 1,
            "events": {"session:start": 2, "module:invoke": 1, "session:end": 1},
        }
        _, _, logged = audit.finish()
    assert logged.splitlines() == [
        "session:start",
        "module:invoke dice error timeout",
        "session:start",
        "session:end",
    ]
