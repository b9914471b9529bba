"""What `doctor` says of the containment that a daemon has, or would get."""

from __future__ import annotations

import pytest

from supervisor.cli.machine import containment_in_force, new_containment
from supervisor.runtime.containment import cgroup2


def no_cgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise OSError("cgroup v2 is not mounted here")

    monkeypatch.setattr(cgroup2, "own_folder", refuse)


def test_without_a_daemon_the_ladder_is_tried_and_each_higher_rung_has_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_cgroups(monkeypatch)
    found = new_containment(None)
    assert found.level == "warn"
    assert found.message == (
        "a daemon started here would contain processes by subreaper; cgroup2 would be stronger"
    )
    assert found.evidence == ("cgroup2: cgroup v2 is not mounted here",)
    assert "Delegate=yes" in (found.hint or "")


def test_what_the_configuration_insists_on_and_this_machine_lacks_is_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_cgroups(monkeypatch)
    found = new_containment("cgroup2")
    assert found.level == "bad"
    assert "would not start here" in found.message
    assert "cgroup v2 is not mounted here" in found.message


def test_a_lower_rung_that_was_asked_for_is_no_matter_of_the_machine() -> None:
    found = new_containment("process_group")
    assert found.level == "warn"
    assert '"auto"' in (found.hint or "")


def test_the_highest_rung_is_all_well() -> None:
    assert containment_in_force("cgroup2", None).level == "ok"
