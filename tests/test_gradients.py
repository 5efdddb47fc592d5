"""The gradients are those of the forward ops: by finite differences and by the adjoint identity."""

import numpy as np
import pytest
from problems import COVERING, FACTORS, POOL_PROBLEMS

from gradops.testing import OPS, PoolProblem, Problem, random_normal

BILINEAR = {"dense": "conv2d", "depthwise": "depthwise_conv2d_native"}

DIFFERENTIATED = [
    Problem(n=2, h=4, w=5, c=4, k=6, r=2, s=3, groups=2, strides=(2, 1), dilations=(1, 2), padding="SAME"),
    Problem(n=1, h=5, w=3, c=3, k=2, r=3, s=2, strides=(1, 2), padding=(1, 2, 0, 3), layout="NCHW"),
    Problem(n=1, h=6, w=7, c=2, k=3, r=2, s=2, strides=(3, 4), padding="VALID"),
    Problem(n=2, h=4, w=5, c=3, m=2, r=2, s=3, strides=(2, 1), dilations=(1, 2), padding="SAME", layout="NCHW"),
    Problem(n=1, h=5, w=3, c=2, m=3, r=3, s=2, strides=(1, 2), dilations=(2, 1), padding=(1, 3, 0, 3)),
    Problem(n=1, h=6, w=7, c=2, m=1, r=2, s=2, strides=(3, 4), padding="VALID", layout="NCHW"),
]


def difference_quotients(function, at, dy, step):
    """Differentiate sum(function(x) * dy) by each element of x; exact but for rounding where function is linear."""
    slopes = np.empty_like(at)
    for index in np.ndindex(at.shape):
        moved = [at.copy(), at.copy()]
        moved[0][index] += step
        moved[1][index] -= step
        after, before = (np.vdot(function(x), dy) for x in moved)
        slopes[index] = (after - before) / (2 * step)
    return slopes


@pytest.mark.parametrize("problem", DIFFERENTIATED, ids=str)
def test_convolution_gradients_are_the_slopes_of_the_forward_op(problem, level):
    name = BILINEAR["depthwise" if problem.depthwise else "dense"]
    forward, to_input, to_filter = OPS[name], OPS[name + "_backprop_input"], OPS[name + "_backprop_filter"]
    x, w, dy = random_normal([problem.input_shape, problem.filter_shape, problem.output_shape], np.float64, seed=1)
    by_input = difference_quotients(lambda moved: forward(problem, moved, w), x, dy, step=0.5)
    by_filter = difference_quotients(lambda moved: forward(problem, x, moved), w, dy, step=0.5)
    np.testing.assert_allclose(to_input(problem, w, dy), by_input, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(to_filter(problem, x, dy), by_filter, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_pooling_gradient_is_the_slope_of_the_forward_op(overlapping, layout, level):
    problem = PoolProblem(n=2, h=6, w=7, c=2, ratio=(1.5, 1.8), overlapping=overlapping, layout=layout)
    forward, backward = OPS["fractional_avg_pool"], OPS["fractional_avg_pool_grad"]
    (x,), (dy,) = (random_normal(op.shapes(problem), np.float64, seed=2) for op in (forward, backward))
    slopes = difference_quotients(lambda moved: forward(problem, moved), x, dy, step=0.5)
    np.testing.assert_allclose(backward(problem, dy), slopes, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("problem", [problem for kind in FACTORS for problem in COVERING[kind]], ids=str)
def test_forward_input_and_filter_gradient_are_adjoint(problem, level):
    name = BILINEAR["depthwise" if problem.depthwise else "dense"]
    forward, to_input, to_filter = OPS[name], OPS[name + "_backprop_input"], OPS[name + "_backprop_filter"]
    x, w, dy = random_normal([problem.input_shape, problem.filter_shape, problem.output_shape], np.float64, seed=3)
    products = [
        np.vdot(forward(problem, x, w), dy),
        np.vdot(x, to_input(problem, w, dy)),
        np.vdot(w, to_filter(problem, x, dy)),
    ]
    scale = np.vdot(forward(problem, abs(x), abs(w)), abs(dy))
    assert np.ptp(products) <= 1e-13 * scale


@pytest.mark.parametrize("problem", POOL_PROBLEMS, ids=str)
def test_pooling_and_its_gradient_are_adjoint(problem, level):
    forward, backward = OPS["fractional_avg_pool"], OPS["fractional_avg_pool_grad"]
    (x,), (dy,) = (random_normal(op.shapes(problem), np.float64, seed=4) for op in (forward, backward))
    both = np.vdot(forward(problem, x), dy), np.vdot(x, backward(problem, dy))
    assert both[0] == pytest.approx(both[1], rel=1e-11, abs=1e-11)
