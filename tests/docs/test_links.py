"""Links between the documents lead somewhere, and nothing in them is only true here."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import DOCUMENTS, ROOT, anchors, links, read

LINKS = [(name, link) for name in DOCUMENTS for link in links(name)]


@pytest.mark.parametrize(("name", "link"), LINKS)
def test_a_link_leads_to_a_file_and_a_heading_that_exist(name: str, link: str) -> None:
    if re.match(r"https?://", link):
        return
    path, _, fragment = link.partition("#")
    target = (ROOT / name).parent / path if path else ROOT / name
    assert target.exists()
    if fragment:
        assert fragment in anchors(target.resolve().relative_to(ROOT).as_posix())


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.startswith("docs/")])
def test_every_page_stands_in_the_order_to_read_them_in(name: str) -> None:
    reached = {link.partition("#")[0] for link in links("docs/README.md")}
    assert name.removeprefix("docs/") in {*reached, "README.md"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_page_names_no_private_paths(name: str) -> None:
    assert not re.findall(r"/(?:work|root|tmp/nc)/\S*", read(name))


def test_a_file_named_in_the_prose_exists() -> None:
    missing = [
        (name, path)
        for name in DOCUMENTS
        for path in re.findall(
            r"`((?:protocol|supervisor|schemas|scripts|tests|docs)/[\w./-]+)`", read(name)
        )
        if not (ROOT / path).exists()
    ]
    assert not missing


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "docs/architecture.md"])
def test_a_file_named_without_its_folder_exists_too(name: str) -> None:
    there = {path.name for ring in ("protocol", "supervisor") for path in (ROOT / ring).rglob("*")}
    assert set(re.findall(r"`(?:\w+/)?(\w+\.(?:py|js))`", read(name))) <= there
