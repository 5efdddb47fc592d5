"""The references against sums written out element by element, worked examples and each other."""

import itertools
import math

import numpy as np
import pytest
from problems import COVERING, POOL_PROBLEMS

from gradops.testing import OPS, PoolProblem, Problem, pooling_sequence, pooling_sequences, random_integers

SMALL = [
    Problem(n=2, h=4, w=5, c=4, k=6, r=2, s=3, groups=2, strides=(2, 1), dilations=(1, 2), padding="SAME"),
    Problem(n=1, h=5, w=3, c=3, k=2, r=3, s=2, strides=(1, 2), padding=(1, 2, 0, 3), layout="NCHW"),
    Problem(n=1, h=2, w=2, c=2, k=2, r=4, s=3, padding="SAME"),
    Problem(n=1, h=5, w=6, c=2, k=3, r=2, s=2, strides=(3, 4), padding="VALID"),
    Problem(n=2, h=4, w=5, c=3, m=2, r=2, s=3, strides=(2, 1), dilations=(1, 2), padding="SAME", layout="NCHW"),
    Problem(n=1, h=5, w=3, c=2, m=3, r=3, s=2, strides=(1, 2), dilations=(2, 1), padding=(1, 3, 0, 3)),
]


def products(problem):
    """Yield the indices (x, w, y) of every product of the convolution, in NHWC, from the definition alone."""
    (_, p, _, u, d, top), (_, q, _, v, e, left) = problem.axes
    per_group = problem.c // problem.groups
    outputs = range(problem.output_channels)
    for n, row, col, i, j, o in itertools.product(*map(range, (problem.n, p, q, problem.r, problem.s)), outputs):
        y, x = row * u - top + i * d, col * v - left + j * e
        if not (0 <= y < problem.h and 0 <= x < problem.w):
            continue
        if problem.depthwise:
            yield (n, y, x, o // problem.m), (i, j, o // problem.m, o % problem.m), (n, row, col, o)
            continue
        group = o // (problem.k // problem.groups)
        for c in range(per_group):
            yield (n, y, x, group * per_group + c), (i, j, c, o), (n, row, col, o)


def nhwc(problem, array):
    return array if problem.layout == "NHWC" else array.transpose(0, 2, 3, 1)


@pytest.mark.parametrize("problem", SMALL, ids=str)
def test_convolutions_are_the_sums_of_their_products(problem):
    x, w, dy = random_integers([problem.input_shape, problem.filter_shape, problem.output_shape], np.float64, seed=1)
    name = "depthwise_conv2d_native" if problem.depthwise else "conv2d"
    y, dx, dw = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(w)
    for at_x, at_w, at_y in products(problem):
        nhwc(problem, y)[at_y] += nhwc(problem, x)[at_x] * w[at_w]
        nhwc(problem, dx)[at_x] += nhwc(problem, dy)[at_y] * w[at_w]
        dw[at_w] += nhwc(problem, x)[at_x] * nhwc(problem, dy)[at_y]
    np.testing.assert_array_equal(OPS[name].expect(problem, x, w).value, y)
    np.testing.assert_array_equal(OPS[name + "_backprop_input"].expect(problem, w, dy).value, dx)
    np.testing.assert_array_equal(OPS[name + "_backprop_filter"].expect(problem, x, dy).value, dw)


@pytest.mark.parametrize("problem", SMALL, ids=str)
def test_depth_is_at_least_the_number_of_terms_of_any_element(problem):
    for op in OPS.values():
        if op.kind == ("depthwise" if problem.depthwise else "dense"):
            terms = op.reference(problem, *(np.ones(shape) for shape in op.shapes(problem)))
            assert terms.max() <= op.depth(problem)


@pytest.mark.parametrize("problem", COVERING["dense"][:12] + COVERING["depthwise"][:12], ids=str)
def test_absolute_sums_bound_the_values(problem):
    for op in OPS.values():
        if op.kind == ("depthwise" if problem.depthwise else "dense"):
            operands = random_integers(op.shapes(problem), np.float64, seed=2)
            expected = op.expect(problem, *operands)
            assert (np.abs(expected.value) <= expected.absolute).all()
            flipped = op.expect(problem, -operands[0], operands[1])
            np.testing.assert_array_equal(flipped.absolute, expected.absolute)
            np.testing.assert_array_equal(flipped.value, -expected.value)


def test_depthwise_outputs_hold_all_multiples_of_channel_zero_first():
    problem = Problem(h=1, w=1, c=2, m=2, r=1, s=1)
    y = OPS["depthwise_conv2d_native"].reference(problem, [[[[1, 2]]]], [[[[1, 10], [100, 1000]]]])
    assert y.ravel().tolist() == [1, 10, 200, 2000]


def test_dilated_depthwise_input_gradient_of_the_documentation():
    problem = Problem(h=4, w=4, c=1, m=1, r=2, s=2, dilations=(2, 2), padding="SAME")
    w, dy = np.arange(1.0, 5).reshape(2, 2, 1, 1), np.arange(1.0, 17).reshape(1, 4, 4, 1)
    dx = OPS["depthwise_conv2d_native_backprop_input"].reference(problem, w, dy)
    assert dx.ravel().tolist() == [6, 17, 20, 14, 16, 42, 52, 34, 32, 82, 92, 58, 30, 69, 76, 44]


@pytest.mark.parametrize("problem", POOL_PROBLEMS, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_pooling_averages_the_clipped_cells(problem, dtype):
    rows, cols = pooling_sequences(problem)
    x = nhwc(problem, np.random.default_rng(0).integers(-50, 50, problem.input_shape).astype(dtype))
    y = nhwc(
        problem,
        OPS["fractional_avg_pool"].reference(problem, x if problem.layout == "NHWC" else x.transpose(0, 3, 1, 2)),
    )
    for p, q in itertools.product(range(len(rows) - 1), range(len(cols) - 1)):
        last_row = min(rows[p + 1] if problem.overlapping else rows[p + 1] - 1, problem.h - 1)
        last_col = min(cols[q + 1] if problem.overlapping else cols[q + 1] - 1, problem.w - 1)
        cell = x[:, rows[p] : last_row + 1, cols[q] : last_col + 1].reshape(problem.n, -1, problem.c)
        means = np.array(
            [[math.fsum(cell[n, :, c].tolist()) / cell.shape[1] for c in range(problem.c)] for n in range(problem.n)]
        )
        np.testing.assert_allclose(y[:, p, q], np.trunc(means) if dtype == "int32" else means, rtol=1e-14)


@pytest.mark.parametrize("problem", POOL_PROBLEMS, ids=str)
def test_pooling_gradient_is_the_transpose_of_pooling(problem):
    forward, backward = OPS["fractional_avg_pool"], OPS["fractional_avg_pool_grad"]
    (x,), (dy,) = (random_integers(op.shapes(problem), np.float64, seed=4) for op in (forward, backward))
    assert np.vdot(forward.reference(problem, x), dy) == pytest.approx(
        np.vdot(x, backward.reference(problem, dy)), rel=1e-12
    )


def test_integer_pooling_divides_towards_zero_and_wraps():
    problem = PoolProblem(h=1, w=2, sequences=((0, 1), (0, 2)))
    pool = OPS["fractional_avg_pool"].reference
    assert pool(problem, np.array([-3, -4], np.int32).reshape(1, 1, 2, 1)).item() == -3
    assert pool(problem, np.array([2**31 - 1, 1], np.int32).reshape(1, 1, 2, 1)).item() == -(2**30)


def test_integer_pooling_gradient_is_cut_off_after_the_sum():
    problem = PoolProblem(h=1, w=7, overlapping=True, sequences=((0, 1), (0, 3, 7)))
    dx = OPS["fractional_avg_pool_grad"].reference(problem, np.array([7, 7], np.int64).reshape(1, 1, 2, 1))
    assert dx.ravel().tolist() == [1, 1, 1, 3, 1, 1, 1]


def test_overlapping_average_of_the_documentation():
    problem = PoolProblem(h=1, w=5, overlapping=True, sequences=((0, 1), (0, 2, 4)))
    y = OPS["fractional_avg_pool"].reference(problem, np.array([20.0, 5, 16, 3, 7]).reshape(1, 1, 5, 1))
    np.testing.assert_allclose(y.ravel(), [41 / 3, 26 / 3])


@pytest.mark.parametrize("pseudo_random", [False, True])
@pytest.mark.parametrize(("size", "ratio"), [(10, 1.4), (33, 1.1), (64, 2.0), (7, 7.0), (17, 1.0), (100, 3.3)])
def test_sequences_rise_from_zero_to_the_size_in_steps_of_two_sizes(size, ratio, pseudo_random):
    for seed in range(20):
        sequence, _ = pooling_sequence(size, ratio, pseudo_random, seed, 7)
        steps = np.diff(sequence)
        assert (sequence[0], sequence[-1]) == (0, size)
        assert len(steps) == int(np.float32(size) / np.float32(ratio))
        assert set(steps) <= {size // len(steps), size // len(steps) + 1}


def test_sequences_depend_on_both_seeds_and_on_the_block():
    drawn = {
        pooling_sequence(97, 1.7, False, seed, seed2, block)[0]
        for seed, seed2, block in [(1, 2, 0), (1, 3, 0), (2, 2, 0), (1, 2, 9)]
    }
    assert len(drawn) == 4
