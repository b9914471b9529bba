"""What `doctor` says of descriptors that can be used, and do not mean what they say."""

from __future__ import annotations

from pathlib import Path

from supervisor.cli.doctor.descriptors import examine
from supervisor.policy.findings import Found
from tests.factories import actor


def test_a_hook_that_is_told_of_nothing_is_a_warning(tmp_path: Path) -> None:
    found = Found((actor(tmp_path), actor(tmp_path, name="h", kind="hook")))
    well, hook = examine(found, {}, [tmp_path])
    assert (well.level, hook.level, hook.subject) == ("ok", "warn", "h")
    assert hook.message.startswith("/hook: is missing")
