"""chart: a Spec 001 tool that makes a file and hands it over as an `asset` event.

    echo '{"operation":"draw","input":{"values":{"May":3,"June":5}}}' | python3 chart.py

The file goes to the temporary folder (TMPDIR), and is not ours to delete: it is the host's now.
"""

import json
import math
import os
import sys
import tempfile
from typing import Any
from xml.sax.saxutils import escape

MARGIN = 48  # pixels around the plot, enough for the title above and the labels below
DEFAULTS = {"style": "bar", "width": 640, "height": 360}
INK, PALE = "#3b6ea5", "#c9d3dd"


class RequestError(Exception):
    """What was asked cannot be done: a controlled failure, args are (errorCode, errorMessage)."""


def read_request() -> dict[str, Any]:
    try:
        request = json.loads(sys.stdin.buffer.readline() or b"{}")
    except ValueError as fault:
        raise RequestError("bad_request", f"the input is not JSON: {fault}") from fault
    if not isinstance(request, dict):
        raise RequestError("bad_request", "the input is not a JSON object")
    return request


def numbers(values: Any) -> dict[str, float]:
    """Return labels with numbers, from either form of `values`."""
    pairs = values.items() if isinstance(values, dict) else enumerate(values or [], start=1)
    checked = {}
    for label, value in pairs:
        # not isinstance: True is an int to it; and Python's JSON knows NaN, which no chart can show
        if type(value) not in (int, float) or not math.isfinite(value):
            raise RequestError("bad_request", f"value {label} is not a number: {json.dumps(value)}")
        checked[str(label)] = float(value)
    if not checked:
        raise RequestError("bad_request", "values is empty: there is nothing to draw")
    return checked


def svg(values: dict[str, float], title: str, style: str, width: int, height: int) -> str:
    low, high = min(0.0, *values.values()), max(0.0, *values.values())
    step = (width - 2 * MARGIN) / len(values)
    scale = (height - 2 * MARGIN) / ((high - low) or 1.0)
    points = [
        (MARGIN + (n + 0.5) * step, MARGIN + (high - value) * scale)
        for n, value in enumerate(values.values())
    ]
    zero = MARGIN + high * scale
    shapes = [
        f'<text x="{width / 2}" y="{MARGIN / 2}" font-size="16">{escape(title)}</text>',
        f'<path d="M{MARGIN},{zero:.1f} H{width - MARGIN}" stroke="{PALE}"/>',
    ]
    if style == "line":
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        shapes.append(f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="2"/>')
    for (label, value), (x, y) in zip(values.items(), points, strict=True):
        tip = f"<title>{escape(label)}: {value:g}</title>"  # browsers show it under the mouse
        if style == "line":
            shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{INK}">{tip}</circle>')
        else:
            left, top, tall = x - step * 0.4, min(y, zero), abs(y - zero)
            box = f'x="{left:.1f}" y="{top:.1f}" width="{step * 0.8:.1f}" height="{tall:.1f}"'
            shapes.append(f'<rect {box} fill="{INK}">{tip}</rect>')
        below = height - MARGIN / 2
        shapes.append(f'<text x="{x:.1f}" y="{below}" font-size="12">{escape(label)}</text>')
    frame = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    body = "\n  ".join(shapes)
    text = 'font-family="sans-serif" text-anchor="middle"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame} {text}>\n  {body}\n</svg>\n'


def main() -> None:
    request: dict[str, Any] = {}

    def emit(event: str, **fields: Any) -> None:
        # flush: a log that arrives together with the result is no progress report
        if isinstance(request.get("requestId"), str):
            fields["requestId"] = request["requestId"]
        print(json.dumps({"version": "0", "type": event, **fields}), flush=True)

    try:
        request = read_request()
        operation = request.get("operation")
        if operation != "draw":
            raise RequestError("unsupported_op", f"chart can only draw, not {operation!r}")
        args = request.get("input") or {}
        values = numbers(args.get("values"))
        style, width, height = (args.get(k, d) for k, d in DEFAULTS.items())
        emit("log", level="info", message=f"Drawing {len(values)} values", fields={"style": style})
        picture = svg(values, args.get("title", ""), style, width, height)
        handle, path = tempfile.mkstemp(prefix="chart-", suffix=".svg")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(picture)
        emit("log", level="debug", message=f"Wrote {path}")
        emit(
            "asset",
            assetId="chart",  # unique within this request is all that is asked for
            kind="image",
            mediaType="image/svg+xml",
            path=path,
            metadata={"width": width, "height": height},
        )
        emit("done", ok=True, summary=f"Drew a {style} chart of {len(values)} values.")
    except RequestError as refusal:  # exit status stays 0: the protocol is intact (Spec 001 5.3)
        code, message = refusal.args
        emit("error", errorCode=code, errorMessage=message)
        emit("done", ok=False, summary=message)


if __name__ == "__main__":
    main()
