"""Of `test_file_schemas.py`, what is bound to the structure."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from supervisor.daemon.config_file import ConfigError, parse_config
from tests.schemas.local_registry import validator

CONFIGS = {
    "": True,
    '"$schema" = "./config.schema.json"': True,
    'directories = ["modules"]\nwatch = false': True,
    "directories = []": False,
    'log_format = "xml"': False,
    "journal_bytes = 1": False,
    "journal_days = 0": False,
    "memory_ceiling_bytes = 1.5": False,
    "http_insecure = 1": False,
    'http_origins = ["https://example.org"]': True,
    '[mcp.views.notes]\nmodules = ["git"]\nprefix = false\nfor = ["ada"]': True,
    '[mcp]\nkeep = "always"\nsession_idle_s = 60': True,
    "[mcp]\nkeep = 0": False,
    "[mcp.views.notes]\nmodules = []": False,
    "[mcp.view.notes]": False,
    'sokcet = "/run/x.sock"': False,
}


@pytest.mark.parametrize("text", CONFIGS)
def test_a_configuration_is_good_to_the_schema_as_it_is_to_the_daemon(
    text: str, tmp_path: Path
) -> None:
    assert validator("stdiod-config.v1").is_valid(tomllib.loads(text)) is CONFIGS[text]
    try:
        parse_config(text.encode(), tmp_path / "stdiod.toml")
    except ConfigError:
        assert not CONFIGS[text]
    else:
        assert CONFIGS[text]
