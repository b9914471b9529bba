"""dice: a persistent module in one short file. Copy the folder, replace `roll`, and it is yours.

Each line on stdin is one request, each line on stdout one answer. Try it without a daemon:

    echo '{"operation":"invoke","input":{"op":"roll","args":{"dice":"3d6+2"}}}' | python3 dice.py
"""

import json
import random
import re
import sys
import traceback
from pathlib import Path
from typing import Any

# `describe` repeats the descriptor, so the two cannot come to disagree.
DESCRIPTOR = json.loads(Path(__file__).with_name("module.json").read_text(encoding="utf-8"))
DESCRIBED = ("name", "version", "kind", "capabilities", "inputs", "outputs")

# The digits are counted to bound the work: nobody needs 10,000 dice, or a die of 10 million sides.
NOTATION = re.compile(r"([1-9]\d{0,3})?d([1-9]\d{0,6})([+-]\d{1,9})?", re.ASCII | re.IGNORECASE)


def roll(args: dict[str, Any]) -> dict[str, Any]:
    """Roll what `args` describes; raise ValueError if that is not dice."""
    notation = str(args.get("dice", f"{args.get('count', 1)}d{args.get('sides', 6)}"))
    match = NOTATION.fullmatch("".join(notation.split()))
    if match is None:
        raise ValueError(f"{notation!r} is not dice notation: write d20, 3d6 or 2d8+1")
    chance = random.Random(args.get("seed"))
    rolls = [chance.randint(1, int(match[2])) for _ in range(int(match[1] or 1))]
    return {"rolls": rolls, "total": sum(rolls) + int(match[3] or 0)}


OPS = {"roll": roll}


def failure(code: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message}}


def invoke(call: dict[str, Any]) -> dict[str, Any]:
    op = OPS.get(str(call.get("op")))
    if op is None:
        return failure("unsupported_op", f"dice has no op {call.get('op')!r}")
    try:
        return {"ok": True, "result": op(call.get("args") or {})}
    except ValueError as fault:
        return failure("bad_request", str(fault))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request.get("operation"):
        case "health":
            return {"status": "ok"}
        case "describe":
            return {key: DESCRIPTOR[key] for key in DESCRIBED}
        case "invoke":
            return invoke(request.get("input") or {})
        case other:
            return failure("unsupported_op", f"dice has no operation {other!r}")


def main() -> None:
    for line in sys.stdin.buffer:  # ends at EOF, which is how the host says goodbye
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as fault:
            print(f"dice: ignored a malformed line: {fault}", file=sys.stderr)
            continue
        try:
            reply = answer(request)
        except Exception as bug:  # an answer is owed even then; the evidence goes to stderr
            traceback.print_exc()
            reply = failure("internal", repr(bug))
        if "requestId" in request:
            reply["requestId"] = request["requestId"]
        # json.dumps writes ASCII, which no locale can spoil; without flush the host would wait.
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
