"""The file that `--config` names: what it may say, and what is said of one that is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from supervisor.daemon.config_file import CONFIG_BYTES, Config, ConfigError, read_config


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "stdiod.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def faults(folder: Path, text: str | bytes) -> list[str]:
    """Return what is said of a file, each without its name but with its line."""
    path = written(folder, text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    said = str(caught.value).splitlines()
    assert all(one.startswith(f"{path}:") for one in said)
    return [one.removeprefix(f"{path}:") for one in said]


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    text = """
        directories = ["modules", "/srv/more"]
        socket = "run/stdiod.sock"
        data_dir = "~/data"
        log_format = "json"
        containment = "cgroup2"
        memory_ceiling_bytes = 1_000_000
        watch = true
        journal_days = 7
        journal_bytes = 2_000_000
        durability = "power"
        assets = "copy"
        asset_store_bytes = 5_000
        http = "0.0.0.0:443"
        http_cert = "cert.pem"
        http_key = "/etc/key.pem"
        http_insecure = false
        http_origins = ["HTTPS://example.org", "http://[::1]:3000"]
    """
    assert read_config(written(tmp_path, text)) == Config(
        directories=(tmp_path / "modules", Path("/srv/more")),
        socket=tmp_path / "run/stdiod.sock",
        data_dir=Path.home() / "data",
        log_format="json",
        containment="cgroup2",
        memory_ceiling_bytes=1_000_000,
        watch=True,
        journal_days=7.0,
        journal_bytes=2_000_000,
        durability="power",
        assets="copy",
        asset_store_bytes=5_000,
        http="0.0.0.0:443",
        http_cert=tmp_path / "cert.pem",
        http_key=Path("/etc/key.pem"),
        http_insecure=False,
        http_origins=("https://example.org", "http://[::1]:3000"),
    )


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, "")) == Config()


def test_every_key_of_the_result_is_a_key_of_the_file(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, "zzz = 1")
    keys = ", ".join((*msgspec.structs.asdict(Config()), "$schema"))
    assert fault == f"1: zzz: there is no such key; the keys are {keys}"


@pytest.mark.parametrize("table", ["modules.dice", "programs.dice", "service"])
def test_a_program_in_the_file_is_told_where_one_is_described(tmp_path: Path, table: str) -> None:
    [fault] = faults(tmp_path, f'[{table}]\ncommand = ["dice"]')
    assert "there is no such key; a program is described by a module.json in a folder" in fault
    assert "`stdiod new NAME --lang exec -- COMMAND`" in fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("directory = []", "directory: there is no such key; did you mean 'directories'?"),
        ("Socket = ''", "Socket: there is no such key; did you mean 'socket'?"),
        ("data-dir = ''", "data-dir: there is no such key; did you mean 'data_dir'?"),
        (
            "memory_ceiling = 5",
            "memory_ceiling: there is no such key; did you mean 'memory_ceiling_bytes'?",
        ),
        (
            "directories = 'modules'",
            'directories: must be an array of paths, not the string "modules"',
        ),
        ("directories = []", "directories: must name at least one"),
        ("directories = [1]", "directories: must be a path in quotes, not the number 1"),
        ("socket = 5", "socket: must be a path in quotes, not the number 5"),
        ("socket = ''", 'socket: "" is not a path'),
        ("socket = []", "socket: must be a path in quotes, not an array"),
        ("[socket]", "socket: must be a path in quotes, not a table"),
        ("data_dir = 2026-01-01", "data_dir: must be a path in quotes, not a date or time"),
        (
            "data_dir = '~nobody-of-that-name/x'",
            'data_dir: "~nobody-of-that-name/x" names the home folder of a user there is not',
        ),
        (
            "log_format = 'jsno'",
            'log_format: must be one of "console", "json", not "jsno"; did you mean \'json\'?',
        ),
        ("log_format = true", 'log_format: must be one of "console", "json", not true'),
        (
            "containment = 'cgroup'",
            (
                'containment: must be one of "auto", "cgroup2", "subreaper", "process_group", '
                "not \"cgroup\"; did you mean 'cgroup2'?"
            ),
        ),
        ("journal_days = 0", "journal_days: must be above 0 and at most 36500, not 0"),
        ("journal_days = nan", "journal_days: must be above 0 and at most 36500, not nan"),
        ("journal_days = '7'", 'journal_days: must be a number of days, not the string "7"'),
        ("journal_bytes = 1000", "journal_bytes: must be at least 1048576, not 1000"),
        (
            "journal_bytes = 1e9",
            "journal_bytes: must be a whole number of bytes, not the number 1000000000.0",
        ),
        (
            "durability = 'fsync'",
            'durability: must be one of "process", "power", not "fsync"',
        ),
        (
            "memory_ceiling_bytes = '1G'",
            'memory_ceiling_bytes: must be a whole number of bytes, not the string "1G"',
        ),
        (
            "memory_ceiling_bytes = 0",
            "memory_ceiling_bytes: must be above 0, not 0; leave it out for no ceiling",
        ),
        (
            "memory_ceiling_bytes = true",
            "memory_ceiling_bytes: must be a whole number of bytes, not true",
        ),
        ("watch = 'yes'", 'watch: must be true or false, not the string "yes"'),
        ("assets = 'link'", 'assets: must be one of "in_place", "copy", not "link"'),
        (
            "asset_store_bytes = -1",
            "asset_store_bytes: must be above 0, not -1; leave it out for 1 GiB",
        ),
        ("watch = 1", "watch: must be true or false, not the number 1"),
    ],
)
def test_a_fault_names_the_key_and_what_would_be_right(
    tmp_path: Path, text: str, fault: str
) -> None:
    assert faults(tmp_path, f"# a comment\n{text}") == [f"2: {fault}"]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    found = faults(tmp_path, "socket = 1\n\nwatch = 2\nwach = true")
    assert [one.partition(" ")[0] for one in found] == ["1:", "3:", "4:"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("\nsocket = ", '2: is not TOML: Invalid value, in "socket ="'),
        ("watch = true\nwatch = false", "2: is not TOML: watch stands in line 1 already"),
        (b"\nsocket = '\xff'", "2: is not UTF-8"),
        (
            b"#" * (CONFIG_BYTES + 1),
            " is larger than the 1048576 bytes that a configuration may have",
        ),
        ("socket = " + "[" * 100_000, "1: is nested too deeply to be read"),
    ],
)
def test_a_file_that_is_no_configuration_is_told_as_such(
    tmp_path: Path, text: str | bytes, fault: str
) -> None:
    (found,) = faults(tmp_path, text)
    assert found.startswith(fault)


def test_a_file_that_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"stdiod\.toml: cannot be read: No such file"):
        read_config(tmp_path / "stdiod.toml")


def test_a_pipe_that_nobody_writes_to_is_told_as_such(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stdiod.toml")
    with pytest.raises(ConfigError, match=r"stdiod\.toml: is not a regular file"):
        read_config(tmp_path / "stdiod.toml")
