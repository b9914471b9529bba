"""What `doctor` says of a socket that somebody listens on, who does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.cli.doctor.examination import examine
from tests.cli.fake_daemon import Reply, serving


@pytest.mark.parametrize("replies", [None, [b"hello\n"]], ids=["closes", "chatters"])
def test_who_accepts_and_does_not_answer_is_bad(
    tmp_path: Path, replies: list[Reply] | None
) -> None:
    path = tmp_path / "socket"
    with serving(path, lambda _frame: replies):
        found = examine([], path, tmp_path / "data", data_dir_chosen=True)
    (one,) = [one for one in found if one.area == "daemon"]
    assert (one.level, bool(one.hint)) == ("bad", True)
    assert "gives no answer" in one.message


def test_that_nobody_listens_is_no_fault(tmp_path: Path) -> None:
    found = examine([], tmp_path / "socket", tmp_path / "data", data_dir_chosen=True)
    (one,) = [one for one in found if one.area == "daemon"]
    assert one.level == "ok"
