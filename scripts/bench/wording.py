"""Write figures, ranges and ratios down, the same everywhere."""

from __future__ import annotations

from scripts.bench.results import Figures

GROUPED = 999.5
"""What rounds to a thousand or more is shown whole."""


def figure(value: float) -> str:
    """Return a number with three digits, or a whole one with its thousands grouped."""
    return f"{value:,.0f}" if abs(value) >= GROUPED else f"{value:.3g}"


def ranged(figures: Figures) -> str:
    """Return a median, and the range where there is one."""
    low, high = figure(figures.low), figure(figures.high)
    return figure(figures.median) if low == high else f"{figure(figures.median)} ({low}-{high})"
