"""The recorded conversations in `transcripts/`, and those of them with servers of others."""

from __future__ import annotations

from pathlib import Path

from protocol.transcript import Transcript, read_transcript

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.jsonl"))
SERVERS = {
    f"mcp_server_{one}" for one in ("everything", "fetch", "filesystem", "git", "memory", "time")
}
"""In the versions of `scripts/foreign.py`, each called well and badly."""


def read(path: Path) -> Transcript:
    with path.open("rb") as lines:
        return read_transcript(lines, path.name)
