"""Draw the lifecycle table into docs/architecture.md, between its two markers.

    .venv/bin/python -m scripts.lifecycle_diagram

A test compares the file with the table, so a change of `supervisor/policy/lifecycle.py` that was
not drawn fails. An arrow is labelled `inputs / actions`; inputs that change nothing are left out.
"""

from typing import Final

from scripts.checkout import ROOT, between
from supervisor.policy.lifecycle import TABLE, Action, Input, State

DOCUMENT: Final = ROOT / "docs" / "architecture.md"
BEGIN: Final = "<!-- lifecycle diagram: made by scripts/lifecycle_diagram.py -->"
END: Final = "<!-- end of the lifecycle diagram -->"


def diagram() -> str:
    """Return the table as a mermaid state diagram, fenced."""
    arrows: dict[tuple[State, State, tuple[Action, ...]], list[Input]] = {}
    for state, moves in TABLE.items():
        for given, move in moves.items():
            if move.state is not state or move.actions:
                arrows.setdefault((state, move.state, move.actions), []).append(given)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.DOWN}"]
    for (before, after, actions), inputs in arrows.items():
        label = ", ".join(inputs)
        if actions:
            label += f" / {', '.join(actions)}"
        lines.append(f"    {before} --> {after}: {label}")
    return "\n".join([*lines, "```"])


def drawn_into(text: str) -> str:
    """Return the document with the diagram of today between its markers."""
    return between(text, BEGIN, diagram(), END)


if __name__ == "__main__":
    DOCUMENT.write_text(drawn_into(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{DOCUMENT} is up to date")
