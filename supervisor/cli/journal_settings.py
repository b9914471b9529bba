"""Turn what a configuration says of the journal into what the daemon is given."""

from __future__ import annotations

from supervisor.cli.config_file import Config
from supervisor.kernel.store.settings import JournalOptions, Limits


def journal_options(config: Config) -> JournalOptions:
    """Return the options, each at its default where the file does not say."""
    usual = Limits()
    limits = Limits(
        days=usual.days if config.journal_days is None else config.journal_days,
        size_bytes=usual.size_bytes if config.journal_bytes is None else config.journal_bytes,
    )
    return JournalOptions(limits=limits, power=config.durability == "power")
