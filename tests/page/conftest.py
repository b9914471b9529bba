"""One browser and one daemon for all tests of the page; each test is held to what holds always."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.page.chromium import Chromium
    from tests.page.site import Site
    from tests.page.visit import Visit

VARIABLE = "STDIOD_TEST_PAGE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a browser, unless it was asked for."""
    here = Path(__file__).parent
    if VARIABLE in os.environ:
        missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
        if not missing:
            return
        why = f"{' and '.join(missing)} missing: Debian has them as chromium and chromium-driver"
    else:
        why = "a browser runs in `make test-page` only"
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    from tests.page.chromium import Chromium  # noqa: PLC0415 - not where all of it is skipped

    with Chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    from tests.page.site import Site  # noqa: PLC0415 - not where all of it is skipped

    with tempfile.TemporaryDirectory(prefix="stdiod-") as folder, Site(Path(folder)) as site:
        yield site


@pytest.fixture
def visit(site: Site, browser: Chromium) -> Iterator[Visit]:
    """A browser that is logged in; afterwards it must have written and asked for nothing odd."""
    from tests.page.visit import Visit  # noqa: PLC0415 - not where all of it is skipped

    visit = Visit(site, browser)
    yield visit
    visit.assert_well_behaved()
