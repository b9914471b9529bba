"""What `doctor` says of descriptors that can be used, and do not mean what they say."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.cli.examination import examine_descriptors
from supervisor.policy.findings import Found
from tests.factories import actor, descriptor


def test_of_a_module_that_is_prepared_the_program_for_that_is_looked_at(tmp_path: Path) -> None:
    built = {"prepare": ["true"]}
    good = descriptor(tmp_path, ["./built"], transport=built)
    bad = descriptor(tmp_path, ["true"], name="b", transport={"prepare": ["./fetch"]})
    well, wrong = examine_descriptors(Found((good, bad)), os.environ, [tmp_path])
    assert well.level == "ok"
    assert well.message.startswith("is prepared by /")
    assert (wrong.level, wrong.message) == ("bad", f"{tmp_path}/fetch is not there")


def test_a_hook_that_is_told_of_nothing_is_a_warning(tmp_path: Path) -> None:
    found = Found((actor(tmp_path), actor(tmp_path, name="h", kind="hook")))
    well, hook = examine_descriptors(found, {}, [tmp_path])
    assert (well.level, hook.level, hook.subject) == ("ok", "warn", "h")
    assert hook.message.startswith("/hook: is missing")
