"""The ops as their definitions say them, in float64, one tap or one cell at a time.

Images are seen as [groups, n, rows, columns, channels of a group], a filter as [r, s, groups, channels per group, outputs per group], whether it is
dense or depthwise: a tap is a product of matrices, and three sums serve the six convolution ops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._problems import Axis, PoolProblem, Problem
from ._sequences import pooling_sequences

Real = NDArray[np.float64]


def conv_forward(problem: Problem, x: ArrayLike, w: ArrayLike) -> Real:
    """y[n, p, q, gk] = sum over i, j, c of x[n, p*u - top + i*d, q*v - left + j*e, gc] * w[i, j, c, gk]."""
    per_group, _, outputs = problem.filter_groups
    x, w = _grouped_images(problem, x, per_group), _grouped_filter(problem, w)
    y = _zeros(problem, *_output_size(problem), outputs)
    for i, j, source, target in _taps(problem):
        y[target] += _product(x[source], w[i, j])
    return _ungrouped_images(problem, y)


def conv_input_gradient(problem: Problem, w: ArrayLike, dy: ArrayLike) -> Real:
    """dx[n, p*u - top + i*d, q*v - left + j*e, gc] += dy[n, p, q, gk] * w[i, j, c, gk] over p, q, i, j, k."""
    per_group, _, outputs = problem.filter_groups
    w, dy = _grouped_filter(problem, w), _grouped_images(problem, dy, outputs)
    dx = _zeros(problem, problem.h, problem.w, per_group)
    for i, j, source, target in _taps(problem):
        dx[source] += _product(dy[target], w[i, j].swapaxes(-1, -2))
    return _ungrouped_images(problem, dx)


def conv_filter_gradient(problem: Problem, x: ArrayLike, dy: ArrayLike) -> Real:
    """dw[i, j, c, gk] = sum over n, p, q of x[n, p*u - top + i*d, q*v - left + j*e, gc] * dy[n, p, q, gk]."""
    per_group, groups, outputs = problem.filter_groups
    x, dy = _grouped_images(problem, x, per_group), _grouped_images(problem, dy, outputs)
    dw = np.empty((problem.r, problem.s, groups, per_group, outputs))
    for i, j, source, target in _taps(problem):
        dw[i, j] = _product_of_pixels(x[source], dy[target])
    return dw.swapaxes(2, 3).reshape(problem.filter_shape)


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
    """Yield each tap with the part of the grouped input that it reads and the part of the grouped output that it serves."""
    rows, cols = problem.axes
    across = [_reach(cols, j) for j in range(problem.s)]
    for i in range(problem.r):
        row_source, row_target = _reach(rows, i)
        for j, (col_source, col_target) in enumerate(across):
            yield i, j, np.s_[:, :, row_source, col_source], np.s_[:, :, row_target, col_target]


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


def _grouped_images(problem: Problem, images: ArrayLike, channels: int) -> Real:
    """[groups, n, rows, columns, channels of a group]: a view of n, rows, columns, channels."""
    nhwc = _to_nhwc(problem.layout, np.asarray(images).astype(np.float64))
    return np.moveaxis(nhwc.reshape(*nhwc.shape[:3], problem.filter_groups[1], channels), 3, 0)


def _zeros(problem: Problem, rows: int, cols: int, channels: int) -> Real:
    """Images like those of `_grouped_images`."""
    return np.moveaxis(np.zeros((problem.n, rows, cols, problem.filter_groups[1], channels)), 3, 0)


def _ungrouped_images(problem: Problem, grouped: Real) -> Real:
    nhwc = np.moveaxis(grouped, 0, 3)
    return _to_layout(problem.layout, nhwc.reshape(*nhwc.shape[:3], nhwc.shape[3] * nhwc.shape[4]))


def _grouped_filter(problem: Problem, w: ArrayLike) -> Real:
    """[r, s, groups, 1, 1, channels per group, outputs per group]: a matrix for each image, row and group."""
    per_group, groups, outputs = problem.filter_groups
    by_tap = np.asarray(w).astype(np.float64).reshape(problem.r, problem.s, per_group, groups, outputs)
    return by_tap.swapaxes(2, 3)[:, :, :, None, None]


def _product(a: Real, b: Real) -> Real:
    """Multiply matrices, or numbers, which takes `@` long."""
    return a * b if a.shape[-1] == 1 else a @ b


def _product_of_pixels(x: Real, dy: Real) -> Real:
    """Sum x[g, pixel, c] dy[g, pixel, k] over all pixels."""
    if x.shape[-1] == 1:
        return (x * dy).sum((1, 2, 3))[:, None]
    x, dy = (images.reshape(len(images), math.prod(images.shape[1:4]), images.shape[4]) for images in (x, dy))
    return x.swapaxes(-1, -2) @ dy


def _to_nhwc(layout: str, array: NDArray) -> NDArray:
    return array if layout == "NHWC" else array.transpose(0, 2, 3, 1)


def _to_layout(layout: str, array: NDArray) -> NDArray:
    return array if layout == "NHWC" else np.ascontiguousarray(array.transpose(0, 3, 1, 2))
