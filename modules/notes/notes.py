"""notes: a persistent module with a memory, kept apart for every session.

The memory ends with the process, unless NOTES_FILE names a file: then each change is appended to it
as a line of JSON, and read back at the next start, so that a crash loses nothing that was answered.
"""

import json
import os
import sys
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

# `describe` repeats the descriptor, so the two cannot come to disagree.
DESCRIPTOR = json.loads(Path(__file__).with_name("module.json").read_text(encoding="utf-8"))
DESCRIBED = ("name", "version", "kind", "capabilities", "inputs", "outputs")


class Notebook:
    """Notes by session: the sum of all changes. {"session", "text"} adds, {"session"} clears."""

    def __init__(self, journal: Path | None) -> None:
        self.sessions: dict[str, list[str]] = defaultdict(list)
        self.journal = None
        if journal is not None:
            self.journal = journal.open("a+b")
            self.journal.seek(0)
            torn = False  # a crash while writing can only have torn the last line
            for line in self.journal:
                torn = not line.endswith(b"\n")
                try:
                    self.apply(json.loads(line))
                except (ValueError, KeyError, TypeError):
                    print(f"notes: skipped a damaged line of {journal}", file=sys.stderr)
            if torn:
                self.journal.write(b"\n")

    def apply(self, change: dict[str, str]) -> None:
        if "text" in change:
            self.sessions[change["session"]].append(change["text"])
        else:
            self.sessions.pop(change["session"], None)

    def change(self, session: str, **change: str) -> None:
        change["session"] = session
        if self.journal:  # on disk before it is answered
            self.journal.write(json.dumps(change).encode() + b"\n")
            self.journal.flush()
        self.apply(change)

    def notes(self, session: str) -> list[dict[str, Any]]:
        texts = self.sessions.get(session, ())
        return [{"number": number, "text": text} for number, text in enumerate(texts, start=1)]

    def invoke(self, op: object, session: str, args: dict[str, Any]) -> Any:
        match op:
            case "add":
                self.change(session, text=text_of(args, "text"))
                return {"number": len(self.sessions[session])}
            case "list":
                return {"notes": self.notes(session)[-args.get("last", 0) :]}
            case "search":
                wanted = text_of(args, "query").casefold()
                found = [note for note in self.notes(session) if wanted in note["text"].casefold()]
                return {"notes": found}
            case "clear":
                cleared = len(self.notes(session))
                self.change(session)
                return {"cleared": cleared}
        raise LookupError(f"notes has no op {op!r}")


def text_of(args: dict[str, Any], key: str) -> str:
    if not isinstance(args.get(key), str) or not args[key]:
        raise ValueError(f"{key} must be a string, and not an empty one")
    return str(args[key])


def failure(code: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message}}


def answer(notebook: Notebook, request: dict[str, Any]) -> dict[str, Any]:
    match request.get("operation"):
        case "health":
            return {"status": "ok"}
        case "describe":
            return {key: DESCRIPTOR[key] for key in DESCRIBED}
        case "invoke":
            call = request.get("input") or {}
            session = str(call.get("session_id") or "")  # no session is a notebook of its own
            try:
                result = notebook.invoke(call.get("op"), session, call.get("args") or {})
            except LookupError as fault:
                return failure("unsupported_op", str(fault))
            except ValueError as fault:
                return failure("bad_request", str(fault))
            return {"ok": True, "result": result}
        case other:
            return failure("unsupported_op", f"notes has no operation {other!r}")


def main() -> None:
    file = os.environ.get("NOTES_FILE")
    try:
        notebook = Notebook(Path(file) if file else None)
    except OSError as fault:  # better no start than notes that silently go nowhere
        sys.exit(f"notes: cannot keep notes in NOTES_FILE: {fault}")
    for line in sys.stdin.buffer:  # ends at EOF, which is how the host says goodbye
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as fault:
            print(f"notes: ignored a malformed line: {fault}", file=sys.stderr)
            continue
        try:
            reply = answer(notebook, request)
        except Exception as bug:  # an answer is owed even then; the evidence goes to stderr
            traceback.print_exc()
            reply = failure("internal", repr(bug))
        if "requestId" in request:
            reply["requestId"] = request["requestId"]
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
