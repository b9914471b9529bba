"""chart: a Spec 001 tool that makes a file and hands it over as an `asset` event.

    echo '{"operation":"draw","input":{"values":{"May":3,"June":5}}}' | python3 chart.py

The file goes to the temporary folder (TMPDIR). It is not ours to delete: the host owns it from then on.
"""

import json
import math
import os
import sys
import tempfile
from typing import Any
from xml.sax.saxutils import escape

MARGIN = 48  # pixels around the plot, enough for the title above and the labels below
INK, PALE = "#3b6ea5", "#c9d3dd"


class Refused(Exception):
    """What was asked cannot be done: a controlled failure, args are (errorCode, errorMessage)."""


def read_request() -> dict[str, Any]:
    try:
        request = json.loads(sys.stdin.buffer.readline() or b"{}")
    except ValueError as fault:
        raise Refused("bad_request", f"the input is not JSON: {fault}") from fault
    if not isinstance(request, dict):
        raise Refused("bad_request", "the input is not a JSON object")
    return request


def numbers(values: Any) -> dict[str, float]:
    """Return labels with numbers, from either form of `values`."""
    pairs = values.items() if isinstance(values, dict) else enumerate(values or [], start=1)
    checked = {}
    for label, value in pairs:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Refused("bad_request", f"the value of {label} is not a number: {json.dumps(value)}")
        checked[str(label)] = float(value)
    if not checked:
        raise Refused("bad_request", "values is empty: there is nothing to draw")
    return checked


def svg(values: dict[str, float], title: str, style: str, width: int, height: int) -> str:
    low, high = min(0.0, *values.values()), max(0.0, *values.values())
    step = (width - 2 * MARGIN) / len(values)
    scale = (height - 2 * MARGIN) / ((high - low) or 1.0)
    points = [(MARGIN + (n + 0.5) * step, MARGIN + (high - value) * scale) for n, value in enumerate(values.values())]
    zero = MARGIN + high * scale
    shapes = [
        f'<text x="{width / 2}" y="{MARGIN / 2}" font-size="16">{escape(title)}</text>',
        f'<line x1="{MARGIN}" x2="{width - MARGIN}" y1="{zero:.1f}" y2="{zero:.1f}" stroke="{PALE}"/>',
    ]
    if style == "line":
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        shapes.append(f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="2"/>')
    for (label, value), (x, y) in zip(values.items(), points):
        tip = f"<title>{escape(label)}: {value:g}</title>"  # browsers show it under the mouse
        if style == "line":
            shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{INK}">{tip}</circle>')
        else:
            left, top, tall = x - step * 0.4, min(y, zero), abs(y - zero)
            shapes.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{step * 0.8:.1f}" height="{tall:.1f}" fill="{INK}">{tip}</rect>'
            )
        shapes.append(f'<text x="{x:.1f}" y="{height - MARGIN / 2}" font-size="12">{escape(label)}</text>')
    frame = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    body = "\n  ".join(shapes)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {frame} font-family="sans-serif" text-anchor="middle">\n'
            f"  {body}\n</svg>\n")


def main() -> None:
    request: dict[str, Any] = {}

    def emit(kind: str, **fields: Any) -> None:
        # flush: a log that arrives together with the result is no progress report
        echo = {"requestId": request["requestId"]} if isinstance(request.get("requestId"), str) else {}
        print(json.dumps({"version": "0", "type": kind, **fields, **echo}), flush=True)

    try:
        request = read_request()
        if request.get("operation") != "draw":
            raise Refused("unsupported_op", f"chart can only draw, not {request.get('operation')!r}")
        args = request.get("input") or {}
        values = numbers(args.get("values"))
        style, width, height = args.get("style", "bar"), args.get("width", 640), args.get("height", 360)
        emit("log", level="info", message=f"Drawing {len(values)} values", fields={"style": style})
        picture = svg(values, args.get("title", ""), style, width, height)
        handle, path = tempfile.mkstemp(prefix="chart-", suffix=".svg")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(picture)
        emit("log", level="debug", message=f"Wrote {len(picture)} characters", fields={"path": path})
        emit("asset", assetId="chart", kind="image", mediaType="image/svg+xml", path=path,
             metadata={"width": width, "height": height})
        emit("done", ok=True, summary=f"Drew a {style} chart of {len(values)} values.")
    except Refused as refusal:  # exit status stays 0: the protocol is intact (Spec 001 5.3)
        code, message = refusal.args
        emit("error", errorCode=code, errorMessage=message)
        emit("done", ok=False, summary=message)


if __name__ == "__main__":
    main()
