"""The same numbers from JAX: its general convolution, and the gradients of its vjp."""

from functools import partial

import numpy as np
import pytest
from peers import FEW, check, operands

jax = pytest.importorskip("jax", reason="JAX is not installed")


def convolve(problem, x, w):
    (h, p, r, u, d, top), (width, q, s, v, e, left) = problem.axes
    bottom, right = ((p - 1) * u + (r - 1) * d + 1 - h - top, (q - 1) * v + (s - 1) * e + 1 - width - left)
    return jax.lax.conv_general_dilated(
        x,
        w,
        problem.strides,
        ((top, bottom), (left, right)),
        rhs_dilation=problem.dilations,
        dimension_numbers=(problem.layout, "HWIO", problem.layout),
        feature_group_count=problem.filter_groups[1],
        precision="highest",
        preferred_element_type=np.float64 if x.dtype == np.float64 else np.float32,
    )


def run(problem, x, w, dy):
    taps = w.reshape(problem.r, problem.s, 1, -1) if problem.depthwise else w
    y, pullback = jax.vjp(jax.jit(partial(convolve, problem)), x, taps)
    dx, dw = pullback(dy.astype(y.dtype))
    return np.asarray(y), np.asarray(dx), np.asarray(dw).reshape(problem.filter_shape)


@pytest.mark.parametrize(("problem", "dtype"), FEW, ids=str)
def test_convolutions_agree_with_jax(problem, dtype):
    with jax.enable_x64(True):
        check(problem, dtype, run(problem, *operands(problem, dtype)))
