"""Instruction set levels and algorithms, for tests that run every build of every kernel."""

from __future__ import annotations

from gradops._algorithms import Arithmetic, Axis, Task, algorithms
from gradops._dispatch import LEVELS, available, forced
from gradops._problem import laid_down, seen_format, sharing

from ._ops import Op
from ._problems import PoolProblem, Problem

__all__ = ["LEVELS", "accepting", "forced", "runnable"]


def runnable(level: str) -> bool:
    """Return whether this CPU runs kernels built for `level`."""
    return level in available()


def accepting(op: Op, problem: Problem | PoolProblem, halves: bool = False) -> tuple[str, ...]:
    """Return the algorithms that compute `op` on `problem`, of float32 or of numbers of 16 bits, the preferred one first."""
    if isinstance(problem, PoolProblem):
        return ("pool",)
    rows, cols = (
        Axis(size, taps, stride, dilation, before, out) for size, out, taps, stride, dilation, before in problem.axes
    )
    inputs, groups, outputs = problem.filter_groups
    rows, cols = laid_down(rows, cols)
    task = Task(
        op.result,
        op.kind == "depthwise",
        rows,
        cols,
        groups=groups,
        inputs=inputs,
        outputs=outputs,
        data_format=seen_format(problem.layout, problem.c, groups * outputs, cols),
        arithmetic=Arithmetic.HALVES if halves else Arithmetic.FLOATS,
        sharing=sharing(op.result == "input", rows, cols, problem.n),
        pixels=problem.n * rows.out * cols.out,
    )
    return algorithms(task)
