"""Tensors of more than 2**31 elements: nearly all zeros, which cost no memory to read, with numbers in the last rows.

Each op runs in one layout; ``GRADOPS_TEST_LARGE=all`` adds the other one.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
from problems import CONVOLUTIONS

from gradops.testing import OPS, PoolProblem, Problem, random_integers

ROWS, TAIL = 5793, 6
FREE = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_AVPHYS_PAGES" in os.sysconf_names else 0
NEEDED = 7 << 30

pytestmark = [
    pytest.mark.large,
    pytest.mark.skipif(FREE < NEEDED, reason=f"needs {NEEDED >> 30} GiB of free memory, there are {FREE >> 30}"),
]


def image_rows(array, layout):
    """View an image tensor with its rows in front."""
    return np.moveaxis(array, 1 if layout == "NHWC" else 2, 0)


def check_tail(op, large, small):
    """Compare the last rows of a large problem with a small problem that is those rows alone."""
    operands, few = [], random_integers(op.shapes(small), np.float16, seed=1)
    for role, part, shape in zip(op.operands, few, op.shapes(large), strict=True):
        whole = part
        if role != "filter":
            whole = np.zeros(shape, np.float16)
            image_rows(whole, large.layout)[-len(image_rows(part, large.layout)) :] = image_rows(part, large.layout)
        operands.append(whole)
    got, expected = op(large, *operands), op.expect(small, *few).value
    assert max(got.size, *(operand.size for operand in operands)) > 2**31
    if op.sizes == "filter_sizes":
        np.testing.assert_array_equal(got, expected.astype(np.float16))
        return
    rows, last = image_rows(got, large.layout), image_rows(expected, large.layout)
    assert np.count_nonzero(last) > 0.5 * last.size
    np.testing.assert_array_equal(rows[-len(last) :], last.astype(np.float16))
    assert not rows[: -len(last) : 61].any()


BOTH = os.environ.get("GRADOPS_TEST_LARGE") == "all"
LAYOUTS = dict(zip(CONVOLUTIONS, ["NHWC", "NCHW", "NHWC", "NCHW", "NHWC", "NCHW"], strict=True))
CASES = [(op, layout) for op in CONVOLUTIONS for layout in ("NHWC", "NCHW") if BOTH or layout == LAYOUTS[op]]


@pytest.mark.parametrize(("op", "layout"), CASES, ids=str)
def test_convolutions_of_more_than_2_to_the_31_elements(op, layout):
    channels = {"c": 64, "m": 1} if op.kind == "depthwise" else {"c": 64, "k": 2}
    large = Problem(h=ROWS, w=ROWS, r=2, s=1, padding="VALID", layout=layout, **channels)
    check_tail(op, large, replace(large, h=TAIL))


@pytest.mark.parametrize("name", ["fractional_avg_pool", "fractional_avg_pool_grad"])
def test_pooling_of_more_than_2_to_the_31_elements(name):
    op = OPS[name]
    cols = (*range(0, ROWS, 2), ROWS)
    small = PoolProblem(h=TAIL, w=ROWS, c=64, sequences=(tuple(range(0, TAIL + 1, 2)), cols))
    large = replace(small, h=ROWS, sequences=((0, 1, *range(3, ROWS + 1, 2)), cols))
    if name == "fractional_avg_pool_grad":
        check_tail(op, large, small)
        return
    x = np.zeros(large.input_shape, np.float16)
    x[0, -40:] = 3
    pooled = op(replace(large, ratio=(2.0, 2.0)), x)
    assert pooled.shape == (1, ROWS // 2, ROWS // 2, 64)
    assert (pooled[0, -18:] == 3).all()
    assert not pooled[0, :-21:61].any()
