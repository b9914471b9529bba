"""A module: it reads requests from stdin, line by line, and answers each with a line on stdout.

What is for people goes to stderr: stdiod keeps it in the module's log.
"""

import json
import sys
from typing import Any


def greet(args: dict[str, Any]) -> str:
    """Greet somebody."""
    return f"hello {args['name']}"


OPS = {"greet": greet}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request, without its requestId."""
    match request["operation"]:
        case "health":
            return {"status": "ok"}
        case "describe":
            return {}  # all there is to say stands in module.json
        case "invoke" if request["input"]["op"] in OPS:
            try:
                result = OPS[request["input"]["op"]](request["input"]["args"])
            except Exception as error:  # noqa: BLE001 - the next request may go well
                return {"ok": False, "error": {"code": "internal", "message": str(error)}}
            return {"ok": True, "result": result}
        case _:
            refusal = {"code": "unsupported_op", "message": "there is no such op"}
            return {"ok": False, "error": refusal}


def main() -> None:
    """Answer until stdin ends."""
    for line in sys.stdin.buffer:
        request = json.loads(line)
        reply = {"requestId": request["requestId"], **answer(request)}
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
