from __future__ import annotations

from scripts import compare_clients
from scripts.compare_clients import measured


def test_clients_share_a_fleet_or_start_their_own() -> None:
    assert measured(2, 3, shared=False).processes == 6
    # Two relays, the daemon and its guardian, and the servers once.
    assert measured(2, 3, shared=True).processes == 7


def test_the_page_has_the_comparison_between_its_markers() -> None:
    page = compare_clients.PAGE.read_text(encoding="utf-8")
    written = page.partition(compare_clients.BEGIN)[2].partition(compare_clients.END)[0]
    assert f"{compare_clients.CLIENTS} clients, {compare_clients.SERVERS} servers" in written
