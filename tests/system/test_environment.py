"""A module gets what its descriptor grants it: no secret and no descriptor of the daemon's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import misbehaving, narratoria

SECRETS = {"API_KEY": "sesame", "AWS_SECRET_ACCESS_KEY": "sesame", "PYTHONSTARTUP": "/sesame"}
GRANTED = {"LC_TEST": "C", "XDG_TEST": "x", "PASSED": "on purpose"}


@pytest.mark.parametrize("make", [misbehaving, narratoria])
def test_the_secrets_of_the_daemon_reach_no_module(start_daemon: StartDaemon, make: Any) -> None:
    document = make("one")
    document["transport"]["env"] = {"HOME_OF": "${HOME}/x", "PLAIN": "value"}
    document["transport"]["pass_env"] = ["PASSED", "NOT_SET"]
    daemon = start_daemon(document, environment={**SECRETS, **GRANTED})
    environment = daemon.invoke("one", fault="environment").result["environment"]
    assert not set(environment) & set(SECRETS)
    assert "sesame" not in str(environment)
    assert {name: environment.get(name) for name in GRANTED} == GRANTED
    assert environment["HOME_OF"] == f"{os.environ['HOME']}/x"
    assert environment["PLAIN"] == "value"
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["STDIOD_INSTANCE"].startswith("one#")
    assert "NOT_SET" not in environment


def test_a_module_inherits_no_descriptor_of_the_daemon(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("one"), narratoria("two"))
    with daemon.connect():
        descriptors = Path(f"/proc/{daemon.pid('one')}/fd").iterdir()
        assert {int(one.name) for one in descriptors} == {0, 1, 2}


def test_a_module_leads_a_session_and_group_of_its_own(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("one"))
    pid = daemon.pid("one")
    assert os.getsid(pid) == pid
    assert os.getpgid(pid) == pid


def test_a_module_runs_in_the_folder_of_its_descriptor(
    start_daemon: StartDaemon, folder: Path
) -> None:
    (folder / "modules" / "inside").mkdir(parents=True)
    document = misbehaving("inside")
    document["transport"]["cwd"] = "inside"
    daemon = start_daemon(misbehaving("beside"), document)
    where = daemon.invoke("beside", fault="environment").result["cwd"]
    assert where == str(folder / "modules")
    assert daemon.invoke("inside", fault="environment").result["cwd"] == where + "/inside"
