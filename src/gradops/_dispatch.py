"""The stairs: which build of a kernel runs on this CPU.

Every kernel is compiled once per ISA level. The best level that the CPU supports is used; ``GRADOPS_ISA`` names another one.
Of the algorithms that accept a problem the preferred one is used; ``GRADOPS_ALGORITHM`` names another one.
This is the only module that imports kernels, and it asks ``_kernels.runtime`` first: code built for a level that the CPU lacks may
die while it is being imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Protocol

from gradops._algorithms import ALGORITHMS, Arithmetic
from gradops._kernels import entry as entry
from gradops._kernels import runtime as runtime

LEVELS = ("generic", "x86_64_v3", "x86_64_v4", "x86_64_v4_bf16", "x86_64_v4_amx")
"""Every ISA level that gradops knows, worst first."""

_forced: str | None = None
_forced_algorithm: str | None = None


@cache
def available() -> tuple[str, ...]:
    """The levels that this CPU runs, worst first."""
    return tuple(runtime.supported_levels())


def _checked(level: str, source: str) -> str:
    if level not in LEVELS:
        raise ValueError(f"{source} must be one of {', '.join(LEVELS)}, got {level!r}")
    if level not in available():
        raise ValueError(
            f"{source} is {level!r}, which this CPU does not support; it supports {', '.join(available())}"
        )
    return level


@cache
def _default() -> str:
    level = os.environ.get("GRADOPS_ISA")
    return available()[-1] if not level else _checked(level, "the environment variable GRADOPS_ISA")


def selected() -> str:
    """The level in use: forced for a while, named by GRADOPS_ISA, or the best one available."""
    return _forced or _default()


BFLOAT16 = 1
"""Its storage code."""

ARITHMETIC = (
    Arithmetic.HALVES,
    Arithmetic.HALVES,
    Arithmetic.FLOATS,
    Arithmetic.DOUBLES,
    Arithmetic.FLOATS,
    Arithmetic.FLOATS,
)
"""How numbers are multiplied, by their storage code, where bfloat16 is widened; there is one algorithm for integers."""

PARTIAL = {"x86_64_v4_bf16": "x86_64_v4", "x86_64_v4_amx": "x86_64_v4"}
"""Levels that have builds of some kernels for some types only; all others are those of the level named here."""

TILED = "x86_64_v4_amx"
"""The level that multiplies tiles."""


def widens() -> bool:
    """Whether bfloat16 is multiplied as float32 because the CPU has nothing faster, not because a level was named."""
    best = available()[-1]
    return best not in PARTIAL and selected() == best


@cache
def _load(stem: str, level: str) -> ModuleType:
    return import_module(f"gradops._kernels.{build(stem, level)}")


def build(stem: str, level: str) -> str:
    """The module of kernel `stem` for `level`. Where bfloat16 cannot be multiplied, float32 is."""
    if level not in PARTIAL:
        return f"{stem.replace('_bf16', '_f32')}_{level}"
    return f"{stem}_{level if stem.endswith('_bf16') else PARTIAL[level]}"


def kernel(stem: str) -> ModuleType:
    """The build of kernel `stem` for the selected level."""
    return _load(stem, _forced or _default())


class Accepted(Protocol):
    """What has algorithms."""

    @property
    def algorithms(self) -> tuple[tuple[str, ...], ...]:
        """Those that accept a problem, the one that is preferred first, for each `Arithmetic`."""


def algorithm(plan: Accepted, storage: int) -> str:
    """The algorithm in use for a problem, of numbers with a storage code."""
    arithmetic = ARITHMETIC[storage]
    if storage == BFLOAT16 and selected() in PARTIAL:
        arithmetic = Arithmetic.TILES if selected() == TILED else Arithmetic.PAIRS
    accepting = plan.algorithms[arithmetic]
    named = _forced_algorithm or _default_algorithm()
    return named if named in accepting else accepting[0]


@cache
def _default_algorithm() -> str:
    named = os.environ.get("GRADOPS_ALGORITHM", "")
    if named and named not in ALGORITHMS:
        raise ValueError(
            f"the environment variable GRADOPS_ALGORITHM must be one of {', '.join(ALGORITHMS)}, got {named!r}"
        )
    return named


@contextmanager
def forced(level: str | None = None, algorithm: str | None = None) -> Iterator[None]:
    """Run every kernel at `level`, and `algorithm` wherever it accepts, inside the block, in all threads: for tests and benchmarks."""
    global _forced, _forced_algorithm
    before = _forced, _forced_algorithm
    _forced = _forced if level is None else _checked(level, "level")
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    _forced_algorithm = algorithm or _forced_algorithm
    try:
        yield
    finally:
        _forced, _forced_algorithm = before
