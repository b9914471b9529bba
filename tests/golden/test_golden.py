"""What came out of the daemon before comes out of it now."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.golden.runner import difference, groups, heed_interrupts

STDIOD = Path(sys.executable).with_name("stdiod")


@pytest.mark.bound(600)  # some start two hundred commands, which takes long on a busy machine
@pytest.mark.parametrize("path", groups(), ids=lambda path: path.stem)
def test_what_came_out_before_comes_out_now(path: Path) -> None:
    heed_interrupts()
    shown = difference(path, STDIOD)
    assert not shown, f"\n{shown}"
