"""The ground of the others: a well-behaved server, from a client of each era."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.field.conftest import Connect, server
from tests.field.mcp_client import NEWER, OLDER
from tests.system.daemon import Daemon


@pytest.mark.parametrize("revision", [NEWER, OLDER, "2024-11-05"])
def test_a_plain_server_is_listed_and_called(
    host: Callable[..., Daemon], connect: Connect, revision: str
) -> None:
    client = connect(host(server("plain")), revision=revision)
    assert list(client.tools()) == ["echo"]
    said = json.loads(client.text("echo", a="ü"))
    assert said["arguments"] == {"a": "ü"}
