"""A descriptor that cannot be used is shown with the reason, and is in nobody's way."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import misbehaving, write


def good(name: str) -> str:
    return json.dumps(misbehaving(name))


BAD = {
    "empty.json": ("", ""),
    "half.json": (good("half")[:60], ""),
    "not_utf8.json": ("\udcff\udcfe", "UTF-8"),
    "array.json": ("[1]", "object"),
    "nameless.json": (good(""), "name"),
    "reserved.json": (good("supervisor"), "supervisor"),
    "slash.json": (good("a/b"), "name"),
    "no_command.json": (
        '{"name":"x","kind":"tool","capabilities":[],"transport":{"type":"stdio"}}',
        "command",
    ),
    "misspelt.json": (good("m").replace('"intensity"', '"intensty"'), "intensity"),
    "twice.json": ('{"name":"a","name":"b"}', "more than once"),
    "warm.json": (good("l").replace('"intensity"', '"warm":1,"intensity"'), "warm"),
    "self.json": (
        good("self").replace('"intensity"', '"depends_on":["self"],"intensity"'),
        "itself",
    ),
    "x.json": (good("x").replace('"intensity"', '"depends_on":["y"],"intensity"'), "circle"),
    "y.json": (good("y").replace('"intensity"', '"depends_on":["x"],"intensity"'), "circle"),
    "z.json": (good("z").replace('"intensity"', '"depends_on":["x"],"intensity"'), "quarantined"),
    "lost.json": (good("lost").replace('"intensity"', '"depends_on":["gone"],"intensity"'), "gone"),
    "second.json": (good("good"), "taken"),
}


@pytest.mark.fault(22)
def test_bad_descriptors_are_quarantined_with_the_reason_while_good_ones_serve(
    start_daemon: StartDaemon, folder: Path
) -> None:
    modules = folder / "modules"
    write(modules, misbehaving("good"))
    for name, (text, _) in BAD.items():
        (modules / name).write_bytes(text.encode(errors="surrogateescape"))
    (modules / "link.json").symlink_to("nowhere")
    (modules / "secret.json").symlink_to("/proc/self/mem")
    (modules / "folder.json").mkdir()
    (modules / "inner").mkdir()
    (modules / "inner" / "module.json").write_text(good("inner"))
    (modules / "README.md").write_text("no descriptor")
    daemon = start_daemon()
    assert daemon.invoke("good", word="hello").result == {"word": "hello"}
    assert daemon.invoke("inner", word="hello").result == {"word": "hello"}
    status = daemon.op("status")
    reasons = {Path(one["descriptor"]).name: one["reason"] for one in status["quarantined"]}
    assert set(reasons) == {*BAD, "link.json", "secret.json"}
    for name, (_, words) in BAD.items():
        assert words in reasons[name], (name, reasons[name])
    assert [one["name"] for one in status["modules"]] == ["good", "inner"]


def test_a_module_whose_descriptor_is_quarantined_is_refused_with_the_reason(
    start_daemon: StartDaemon, folder: Path
) -> None:
    write(folder / "modules", misbehaving("good"))
    (folder / "modules" / "half.json").write_text(good("half")[:60])
    (folder / "modules" / "inner").mkdir()
    (folder / "modules" / "inner" / "module.json").write_text("[1]")
    daemon = start_daemon()
    for name, words in (("half", "half.json is quarantined"), ("inner", "must be one JSON object")):
        answer = daemon.invoke(name)
        assert answer.verdict == "bad_request/unknown_module"
        assert words in answer.error["message"]
    assert "quarantined" not in daemon.invoke("modules").error["message"]


def test_an_empty_folder_is_served_too(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    assert daemon.op("status")["modules"] == []
    assert daemon.client.ask("supervisor", "health").result == {"status": "ok"}
    assert daemon.invoke("anything").verdict == "bad_request/unknown_module"


@pytest.mark.parametrize("number", [1000])
def test_a_thousand_descriptors_are_read(start_daemon: StartDaemon, number: int) -> None:
    daemon = start_daemon(*(misbehaving(f"m{n}", start="lazy") for n in range(number)))
    assert len(daemon.op("status")["modules"]) == number
    assert daemon.invoke(f"m{number - 1}").ok


def test_a_file_whose_name_is_no_text_is_quarantined_and_status_goes_on(
    start_daemon: StartDaemon, folder: Path
) -> None:
    (folder / "modules").mkdir()
    Path(os.fsdecode(os.fsencode(folder / "modules") + b"/caf\xe9.json")).write_text("{}")
    daemon = start_daemon(misbehaving("one"))
    (found,) = daemon.op("status")["quarantined"]
    assert found["descriptor"].endswith("caf\\xe9.json")
    assert "not UTF-8" in found["reason"]
    assert daemon.invoke("one").ok


def test_a_daemon_whose_places_have_names_that_are_no_text_can_be_spoken_with(folder: Path) -> None:
    odd = folder / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    with Daemon(odd, misbehaving("one")) as daemon:
        status = daemon.op("status")
        (found,) = status["quarantined"]
        assert found["descriptor"] == f"{folder}/caf\\xe9/modules/one.json"
        assert "not UTF-8" in found["reason"]
        places = [status["daemon"]["socket"], status["daemon"]["data_dir"]]
        assert places == [f"{folder}/caf\\xe9/socket", f"{folder}/caf\\xe9/data"]
        assert status["daemon"]["directories"] == [f"{folder}/caf\\xe9/modules"]
        shutil.rmtree(odd / "modules")
        (gone,) = daemon.op("reload")["quarantined"]
        assert gone["descriptor"] == f"{folder}/caf\\xe9/modules"
