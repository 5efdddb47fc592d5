"""Instruction set levels, for tests that run every build of a kernel."""

from __future__ import annotations

from gradops._dispatch import LEVELS, available, forced

__all__ = ["LEVELS", "forced", "runnable"]


def runnable(level: str) -> bool:
    """Return whether this CPU runs kernels built for `level`."""
    return level in available()
