from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.cli.daemon_options import journal_options
from supervisor.daemon.config_file import Config
from supervisor.daemon.serve import ServeOptions, asset_options
from supervisor.kernel.store.settings import JournalLimits, JournalOptions


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (Config(), JournalOptions()),
        (Config(journal_days=7.0), JournalOptions(limits=JournalLimits(days=7.0))),
        (Config(journal_bytes=1 << 20), JournalOptions(limits=JournalLimits(size_bytes=1 << 20))),
        (Config(durability="power"), JournalOptions(power=True)),
        (Config(durability="process"), JournalOptions(power=False)),
    ],
)
def test_what_a_file_says_of_the_journal_is_what_the_daemon_does(
    config: Config, options: JournalOptions
) -> None:
    assert journal_options(config) == options


@pytest.mark.parametrize("power", [True, False])
def test_copies_of_assets_survive_what_the_journal_survives(power: bool) -> None:
    options = ServeOptions((), Path("s"), Path("d"), memory=JournalOptions(power=power))
    assert asset_options(options).fsync is power
