"""The ops as their definitions say them, in float64, one tap or one cell at a time.

A filter is seen as [r, s, channels per group, groups, outputs per group], which is the memory of a dense filter
[r, s, c / groups, k] as well as that of a depthwise filter [r, s, c, m]: three sums serve the six convolution ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._problems import Axis, PoolProblem, Problem
from ._sequences import pooling_sequences

Real = NDArray[np.float64]


def conv_forward(problem: Problem, x: ArrayLike, w: ArrayLike) -> Real:
    """y[n, p, q, gk] = sum over i, j, c of x[n, p*u - top + i*d, q*v - left + j*e, gc] * w[i, j, c, gk]."""
    x, w = _grouped_input(problem, x), _grouped_filter(problem, w)
    y = np.zeros((problem.n, *_output_size(problem), *problem.filter_groups[1:]))
    for i, j, source, target in _taps(problem):
        y[target] += np.einsum("npqgc,cgk->npqgk", x[source], w[i, j])
    return _to_layout(problem.layout, y.reshape(*y.shape[:3], problem.output_channels))


def conv_input_gradient(problem: Problem, w: ArrayLike, dy: ArrayLike) -> Real:
    """dx[n, p*u - top + i*d, q*v - left + j*e, gc] += dy[n, p, q, gk] * w[i, j, c, gk] over p, q, i, j, k."""
    w, dy = _grouped_filter(problem, w), _grouped_output(problem, dy)
    per_group, groups, _ = problem.filter_groups
    dx = np.zeros((problem.n, problem.h, problem.w, groups, per_group))
    for i, j, source, target in _taps(problem):
        dx[source] += np.einsum("npqgk,cgk->npqgc", dy[target], w[i, j])
    return _to_layout(problem.layout, dx.reshape(*dx.shape[:3], problem.c))


def conv_filter_gradient(problem: Problem, x: ArrayLike, dy: ArrayLike) -> Real:
    """dw[i, j, c, gk] = sum over n, p, q of x[n, p*u - top + i*d, q*v - left + j*e, gc] * dy[n, p, q, gk]."""
    x, dy = _grouped_input(problem, x), _grouped_output(problem, dy)
    dw = np.zeros((problem.r, problem.s, *problem.filter_groups))
    for i, j, source, target in _taps(problem):
        dw[i, j] = np.einsum("npqgc,npqgk->cgk", x[source], dy[target])
    return dw.reshape(problem.filter_shape)


def pool_forward(problem: PoolProblem, x: ArrayLike) -> NDArray:
    """Average over each cell; integers sum modulo 2**bits and divide towards zero, as the op does."""
    integral = np.issubdtype(np.asarray(x).dtype, np.integer)
    x = _to_nhwc(problem.layout, np.asarray(x) if integral else np.asarray(x).astype(np.float64))
    rows, cols = (_cells(*axis) for axis in _pool_axes(problem))
    y = np.zeros((problem.n, len(rows), len(cols), problem.c), x.dtype)
    for p, row in enumerate(rows):
        for q, col in enumerate(cols):
            cell = x[:, row, col]
            total, count = cell.sum((1, 2), dtype=x.dtype), cell.shape[1] * cell.shape[2]
            y[:, p, q] = _divide_towards_zero(total, count) if integral else total / count
    return _to_layout(problem.layout, y)


def pool_gradient(problem: PoolProblem, dy: ArrayLike) -> NDArray:
    """Share each output's gradient evenly among its cell, summed in float64; integers are cut off at the end."""
    integral = np.issubdtype(np.asarray(dy).dtype, np.integer)
    dtype = np.asarray(dy).dtype
    dy = _to_nhwc(problem.layout, np.asarray(dy).astype(np.float64))
    dx = np.zeros((problem.n, problem.h, problem.w, problem.c))
    rows, cols = (_cells(*axis) for axis in _pool_axes(problem))
    for p, row in enumerate(rows):
        for q, col in enumerate(cols):
            count = (row.stop - row.start) * (col.stop - col.start)
            dx[:, row, col] += dy[:, p, q].reshape(problem.n, 1, 1, problem.c) / count
    dx = _to_layout(problem.layout, dx)
    return np.trunc(dx).astype(dtype) if integral else dx


def _taps(problem: Problem) -> Iterator[tuple[int, int, tuple[slice, ...], tuple[slice, ...]]]:
    """Yield each tap with the part of the input that it reads and the part of the output that it serves."""
    rows, cols = problem.axes
    across = [_reach(cols, j) for j in range(problem.s)]
    for i in range(problem.r):
        row_source, row_target = _reach(rows, i)
        for j, (col_source, col_target) in enumerate(across):
            yield i, j, (slice(None), row_source, col_source), (slice(None), row_target, col_target)


def _reach(axis: Axis, tap: int) -> tuple[slice, slice]:
    size, out, _, stride, dilation, before = axis
    first = tap * dilation - before
    inside = [t for t in range(out) if 0 <= t * stride + first < size]
    if not inside:
        return slice(0, 0), slice(0, 0)
    start, stop = inside[0] * stride + first, inside[-1] * stride + first + 1
    return slice(start, stop, stride), slice(inside[0], inside[-1] + 1)


def _pool_axes(problem: PoolProblem) -> Iterator[tuple[tuple[int, ...], int, bool]]:
    for sequence, size in zip(pooling_sequences(problem), (problem.h, problem.w), strict=True):
        yield sequence, size, problem.overlapping


def _cells(sequence: tuple[int, ...], size: int, overlapping: bool) -> list[slice]:
    """Cell t covers sequence[t] to sequence[t + 1], the last one included when cells overlap, cut off at the edge."""
    return [slice(start, min(stop + overlapping, size)) for start, stop in pairwise(sequence)]


def _divide_towards_zero(total: NDArray, count: int) -> NDArray:
    return total // count + ((total < 0) & (total % count != 0))


def _output_size(problem: Problem) -> tuple[int, int]:
    return problem.axes[0][1], problem.axes[1][1]


def _grouped_input(problem: Problem, x: ArrayLike) -> Real:
    per_group, groups, _ = problem.filter_groups
    return _real_nhwc(problem.layout, x).reshape(problem.n, problem.h, problem.w, groups, per_group)


def _grouped_output(problem: Problem, dy: ArrayLike) -> Real:
    return _real_nhwc(problem.layout, dy).reshape(problem.n, *_output_size(problem), *problem.filter_groups[1:])


def _grouped_filter(problem: Problem, w: ArrayLike) -> Real:
    return np.asarray(w).astype(np.float64).reshape(problem.r, problem.s, *problem.filter_groups)


def _real_nhwc(layout: str, array: ArrayLike) -> Real:
    return _to_nhwc(layout, np.asarray(array).astype(np.float64))


def _to_nhwc(layout: str, array: NDArray) -> NDArray:
    return array if layout == "NHWC" else array.transpose(0, 2, 3, 1)


def _to_layout(layout: str, array: NDArray) -> NDArray:
    return array if layout == "NHWC" else np.ascontiguousarray(array.transpose(0, 3, 1, 2))
