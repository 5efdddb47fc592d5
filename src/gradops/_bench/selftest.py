"""Does what is installed compute what it should: every op, storage type and level against the naive references."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from gradops.testing import (
    LEVELS,
    OPS,
    Op,
    PoolProblem,
    Problem,
    assert_close,
    dtype_named,
    forced,
    random_normal,
    runnable,
)

PROBLEMS: dict[str, tuple[Problem | PoolProblem, ...]] = {
    "dense": (
        Problem(n=2, h=9, w=11, c=19, k=18, padding="SAME"),
        Problem(n=1, h=10, w=7, c=6, k=8, groups=2, strides=(2, 1), dilations=(1, 2), padding="SAME", layout="NCHW"),
    ),
    "depthwise": (
        Problem(n=2, h=9, w=11, c=19, m=1, padding="SAME"),
        Problem(n=1, h=10, w=7, c=5, m=3, strides=(2, 1), dilations=(1, 2), padding="SAME", layout="NCHW"),
    ),
    "pool": (
        PoolProblem(n=2, h=13, w=11, c=7, ratio=(1.73, 1.4)),
        PoolProblem(n=1, h=9, w=12, c=3, ratio=(1.3, 2.1), overlapping=True, layout="NCHW"),
    ),
}


class Verdict(NamedTuple):
    """What a level is worth: how many cases it computed, and what was wrong with those that failed."""

    level: str
    cases: int
    failures: list[str]


def verdicts() -> Iterator[Verdict]:
    """Check the levels that this CPU runs, worst first."""
    for level in filter(runnable, LEVELS):
        with forced(level):
            results = [
                _failure(op, problem, dtype)
                for op in OPS.values()
                for problem in PROBLEMS[op.kind]
                for dtype in op.dtypes
                if dtype != "bfloat16" or find_spec("ml_dtypes")
            ]
        yield Verdict(level, len(results), [failure for failure in results if failure])


def _failure(op: Op, problem: Problem | PoolProblem, dtype: str) -> str:
    operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=1)
    try:
        assert_close(op(problem, *operands), op.expect(problem, *operands), label=f"{op} {problem} {dtype}")
    except AssertionError as error:
        return str(error)
    return ""
