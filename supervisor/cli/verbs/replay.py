"""`stdiod replay`: play a transcript again, to its dialect or a module, and show differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from protocol.problem import without_password
from protocol.transcript import Transcript, TranscriptError, descriptor_of, read_transcript
from supervisor.cli.exit_status import USAGE, EndError, exit_unless, remark
from supervisor.cli.options import SECONDS, example, with_json
from supervisor.cli.results import print_json
from supervisor.cli.terminal import one_line, shell_word

if TYPE_CHECKING:
    from protocol.descriptor.model import Descriptor
    from supervisor.cli.one_module import Compared
    from supervisor.transcripts.replay import Difference, Replayed

TRANSCRIPT_BYTES = 256 << 20
"""A larger file is refused: all of it is held in memory."""

OF_TRANSCRIPT = "-"
"""Stands for the descriptor in the transcript."""


@click.command(epilog=example("replay dice.jsonl", "replay dice.jsonl --module"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dialect", is_flag=True, help="Only read it, and run nothing (the default).")
@click.option(
    "--module",
    "descriptor",
    is_flag=False,
    flag_value=OF_TRANSCRIPT,
    metavar="[DESCRIPTOR]",
    help="Run the module, by DESCRIPTOR or by the one in FILE, and send it what was sent.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="POINTER",
    help="With --module: leave out a member of each line, such as /result/pid.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    default=60.0,
    help="With --module: how long each process may take.  [default: 60]",
)
@with_json
def replay(
    *,
    file: Path,
    dialect: bool,
    descriptor: str | None,
    ignored: tuple[str, ...],
    timeout_s: float,
    as_json: bool,
) -> None:
    """Play the transcript FILE again.

    Exits with 0 if all is as recorded, 1 if not, 2 if FILE is bad.

    Without --module nothing is run: the recorded output is read again as its dialect reads it, and
    the outcome of each request is compared. With --module the module is run, the recorded requests
    are sent in step, and its output is compared line by line, as JSON. A transcript names a
    command: use --module without DESCRIPTOR only with a transcript that you trust.
    """
    if dialect and descriptor is not None:
        raise click.UsageError("--dialect runs nothing, --module does; give one of them")
    for pointer in ignored:
        if not pointer.startswith("/"):
            words = f"--ignore {pointer!r} is not a JSON pointer such as /result/pid"
            raise click.UsageError(words)
    transcript = _read(file)
    if transcript.header.source is None:
        # Relative paths of its descriptor start from the transcript's folder.
        beside = str(file.absolute().with_name("module.json"))
        header = msgspec.structs.replace(transcript.header, source=beside)
        transcript = msgspec.structs.replace(transcript, header=header)
    try:
        recorded_by = descriptor_of(transcript.header, str(file))
    except TranscriptError as error:
        raise EndError(str(error), USAGE) from None
    for flaw in transcript.flaws:
        remark(f"{file}: {flaw}")
    if descriptor is None:
        same = _through_dialect(transcript, recorded_by, file, as_json=as_json)
    else:
        chosen = _chosen(descriptor, transcript, recorded_by)
        same = _to_module(transcript, chosen, ignored, timeout_s, as_json=as_json)
    exit_unless(same)


def _read(file: Path) -> Transcript:
    try:
        size = file.stat().st_size
        if size > TRANSCRIPT_BYTES:
            raise EndError(
                f"{file} has {size} bytes, and {TRANSCRIPT_BYTES} can be replayed", USAGE
            )
        with file.open("rb") as lines:
            return read_transcript(lines, str(file))
    except TranscriptError as error:
        raise EndError(str(error), USAGE) from None
    except OSError as error:
        raise EndError(f"{file} cannot be read: {error.strerror}", USAGE) from None


def _chosen(descriptor: str, transcript: Transcript, recorded_by: Descriptor) -> Descriptor:
    if descriptor != OF_TRANSCRIPT:
        from supervisor.cli.one_module import load_module

        return load_module(Path(descriptor), transcript.header.module)
    command = one_line(without_password(" ".join(recorded_by.transport.command)))
    remark(f"runs what the transcript names: {command}")
    return recorded_by


def _through_dialect(
    transcript: Transcript, descriptor: Descriptor, file: Path, *, as_json: bool
) -> bool:
    from supervisor.transcripts.replay import UnplayableError, replay_through_dialect

    try:
        replayed = replay_through_dialect(transcript, descriptor)
    except UnplayableError as error:
        raise EndError(f"{file}: {error}", USAGE) from None
    same = not replayed.differences
    if as_json:
        document = msgspec.to_builtins(replayed)
        print_json({"form": "dialect", "same": same, **document, "flaws": transcript.flaws})
    else:
        _show_replayed(replayed, file)
    return same


def _show_replayed(replayed: Replayed, file: Path) -> None:
    for step in replayed.steps:
        click.echo(f"{one_line(step.instance)} {one_line(step.words)}")
    for one in replayed.differences:
        _show_difference(one)
    differing = len(replayed.differences)
    words = f"{replayed.compared - differing} of {replayed.compared} outcomes as recorded"
    if not replayed.compared:
        words = f"nothing was compared: {one_line(str(file))} records no outcome; "
        words += f"`stdiod replay {shell_word(str(file))} --module` runs the module"
    if replayed.by_host:
        words += f"; {replayed.by_host} more were the host's own decision"
    click.echo(words)


def _show_difference(one: Difference) -> None:
    click.echo(f"{one_line(one.instance)} {one_line(one.request_id)}: {one_line(one.what)} differs")
    for sign, outcome in (("-", one.recorded), ("+", one.replayed)):
        said = "no outcome" if outcome is None else msgspec.json.encode(outcome).decode()
        click.echo(f"{sign} {one_line(said)}")


def _to_module(
    transcript: Transcript,
    descriptor: Descriptor,
    ignored: tuple[str, ...],
    timeout_s: float,
    *,
    as_json: bool,
) -> bool:
    from supervisor.cli.one_module import replay_to_module

    compared = replay_to_module(transcript, descriptor, ignored, timeout_s)
    same = not any(one.diff or one.notes for one in compared)
    if as_json:
        processes: list[Any] = msgspec.to_builtins(compared)
        document = {"form": "module", "same": same, "processes": processes}
        print_json({**document, "flaws": transcript.flaws})
    else:
        _show_compared(compared)
    return same


def _show_compared(compared: list[Compared]) -> None:
    for one in compared:
        verdict = "differs" if one.diff or one.notes else f"{one.lines} lines as recorded"
        click.echo(f"{one_line(one.instance)}: {verdict}")
        for line in one.diff:
            click.echo(f"{line[:2]}{one_line(line[2:])}")
        for note in one.notes:
            click.echo(f"! {one_line(note)}")
