"""`--config` and the options of `run` and `up`: what wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from supervisor.daemon.serve import ServeOptions
from supervisor.policy.http_exposure import Exposure
from tests.cli.conftest import Run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "modules").mkdir()
    path = tmp_path / "stdiod.toml"
    path.write_text(
        """
        directories = ["modules"]
        socket = "from-file.sock"
        data_dir = "from-file"
        log_format = "json"
        containment = "process_group"
        memory_ceiling_bytes = 1000
        watch = false
        assets = "copy"
        asset_store_bytes = 2000
        http = "0.0.0.0:443"
        http_insecure = true
        """
    )
    return path


def test_a_file_says_all_that_the_command_line_does_not(
    run: Run, served: list[ServeOptions], config: Path
) -> None:
    assert run("run", "--config", str(config)).exit_code == 0
    assert served == [
        ServeOptions(
            directories=(config.parent / "modules",),
            socket=config.parent / "from-file.sock",
            data_dir=config.parent / "from-file",
            log_format="json",
            containment="process_group",
            memory_ceiling_bytes=1000,
            watch=False,
            copy_assets=True,
            asset_store_bytes=2000,
            http=Exposure(host="0.0.0.0", port=443),
        )
    ]


@pytest.mark.parametrize("before_verb", [True, False])
def test_the_command_line_wins_over_the_file(
    before_verb: bool, run: Run, served: list[ServeOptions], config: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    socket = ["--socket", "/tmp/chosen.sock"]
    words = ["run", str(tmp_path / "other"), "--config", str(config)]
    words += ["--data-dir", "/tmp/chosen", "--log-format", "console", "--http", "sock"]
    result = run(*socket, *words) if before_verb else run(*words, *socket)
    assert result.exit_code == 0, result.output
    (options,) = served
    assert options.directories == (tmp_path / "other",)
    assert options.socket == Path("/tmp/chosen.sock")
    assert options.data_dir == Path("/tmp/chosen")
    assert options.http == Exposure()
    assert options.log_format == "console"
    assert not options.watch


def test_without_a_file_directories_have_to_be_named(run: Run) -> None:
    result = run("run")
    assert result.exit_code == click.UsageError.exit_code
    assert "name a DIR with modules, or a --config that names one" in result.stderr


def test_a_file_at_the_usual_place_is_named_and_not_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "stdiod" / "stdiod.toml"
    file.parent.mkdir()
    file.write_text('directories = ["modules"]\n')
    result = run("up")
    assert result.exit_code == click.UsageError.exit_code
    assert f"{file} is read with `--config {file}`" in result.stderr


@pytest.mark.parametrize("verb", ["run", "up"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sokcet = 'x'", "stdiod.toml:1: sokcet: there is no such key; did you mean 'socket'?"),
        ("directories = ['gone']", "gone is not a directory"),
    ],
)
def test_a_fault_in_the_file_is_a_usage_error(
    verb: str, text: str, words: str, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "stdiod.toml"
    path.write_text(text)
    result = run(verb, "--config", str(path))
    assert result.exit_code == click.UsageError.exit_code
    assert words in result.stderr
