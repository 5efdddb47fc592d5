"""How ops and numbers are written in tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping


def short(op: str) -> str:
    """Return which of the three ops of a layer it is: forward, input or filter."""
    return {"input": "input", "filter": "filter", "grad": "input"}.get(op.rpartition("_")[2], "forward")


def described(op: str) -> str:
    """Return the same with the kind of layer: "dense input", "depthwise filter", "pool input"."""
    kind = "depthwise" if op.startswith("depthwise") else "pool" if op.startswith("fractional") else "dense"
    return f"{kind} {short(op)}"


def milliseconds(value: float) -> str:
    """Write a time with at least three digits."""
    if math.isnan(value):
        return "wrong"
    return f"{value:.3f}" if value >= 0.1 else f"{value:.5f}"


def number(value: float) -> str:
    """Write a rate."""
    return "" if math.isnan(value) else f"{value:.1f}"


def percent(value: float, sign: str = "") -> str:
    """Write a share."""
    return "" if math.isnan(value) else f"{sign}{value:.0%}"


def ratio(value: float) -> str:
    """Write a ratio with three digits, "-" if there is none."""
    if math.isnan(value):
        return "-"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def compared(peer: str, ratios: Mapping[str, float], notes: Mapping[str, str]) -> str:
    """Write what a row has of a peer: its ratio, "≠" where it computes something else, "-" where it did not run."""
    if notes.get(peer, "").startswith("computes something else"):
        return "≠"
    return ratio(ratios.get(peer, math.nan))
