"""`conv` where planes, or pairs of them, are copied once for all taps: sheets of all shapes."""

import numpy as np
import pytest
from checks import check_edge, check_integers, check_random, check_spread, check_threads, own_dtypes, running
from hypothesis import given
from hypothesis import strategies as st
from problems import exact_case

from gradops._dispatch import PARTIAL
from gradops.testing import OPS, Problem, assert_exact, dtype_named

GATHERS = [OPS["conv2d"], OPS["conv2d_backprop_input"]]


def planes(**sizes):
    """Channels first, padded for as many outputs as inputs unless said otherwise."""
    return Problem(**{"padding": "SAME", "layout": "NCHW"} | sizes)


PROBLEMS = [
    planes(n=3, h=18, w=32, c=16, k=34),  # rows of whole vectors, each a run
    planes(n=3, h=24, w=48, c=12, k=16),  # which leave a vector
    planes(n=2, h=5, w=71, c=8, k=30),  # and less, of two vectors
    planes(n=3, h=18, w=18, c=8, k=16),  # one run of all rows and what lies between
    planes(n=2, h=20, w=21, c=16, k=14, padding="VALID"),  # zeros of the gradient's rows make runs as long as those
    planes(n=1, h=40, w=50, c=64, k=8),  # several sheets an image
    planes(n=1, h=37, w=53, c=10, k=26),  # not of as many rows
    planes(n=5, h=23, w=29, c=4, k=6),
    planes(n=1, h=20, w=300, c=36, k=80),  # one or two rows a sheet
    planes(n=1, h=9, w=600, c=320, k=4),  # no room for a row
    planes(n=2, h=17, w=33, c=8, k=10, dilations=(2, 3)),
    planes(n=2, h=7, w=32, c=2, k=2, dilations=(5, 1)),  # taps that lie outside of most rows
    planes(n=2, h=9, w=15, c=2, k=2, dilations=(1, 12)),  # and columns
    planes(n=3, h=1, w=7, c=2, k=2, s=2),
    planes(n=2, h=12, w=26, c=6, k=8, padding=(1, 2, 0, 3)),  # different zeros on both sides
    planes(n=1, h=12, w=26, c=8, k=6, padding=(0, 5, 4, 0)),
    planes(n=2, h=16, w=34, c=24, k=32, groups=2),
    planes(n=2, h=8, w=24, c=24, k=4, r=1, s=7),
    planes(n=2, h=20, w=16, c=4, k=24, r=7, s=1),
    planes(n=1, h=14, w=30, c=2, k=2, r=6, s=5),
    planes(n=1, h=20, w=20, c=2, k=2, r=17, s=17),  # more taps than a sheet has
    planes(n=2, h=10, w=10, c=8, k=1),
    planes(n=2, h=9, w=19, c=10, k=15),  # odd channels of dy, not summed in pairs
    planes(n=1, h=64, w=18, c=8, k=46),
]
CASES = [pytest.param(op, problem, id=f"{op}-{problem}") for op in GATHERS for problem in PROBLEMS]

conv = running("conv")


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_small_integers_give_exact_results(op, problem, level):
    check_integers(conv, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_random_numbers_lie_within_the_rounding_error_with_any_threads(op, problem, level):
    check_random(conv, op, problem)
    check_threads(conv, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_nothing_beyond_the_operands_is_read(op, problem, level, at_the_edge):
    for dtype in ["bfloat16"] if level in PARTIAL else ["float32", "bfloat16"]:
        check_edge(conv, op, problem, dtype, at_the_edge)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
def test_a_number_that_is_not_finite_goes_no_farther_than_its_products(value, at, level):
    check_spread(conv, GATHERS[0], planes(n=2, h=9, w=10, c=32, k=24), "bfloat16", value, at, lambda size: size // 2)


@given(
    st.builds(
        planes,
        n=st.integers(1, 3),
        h=st.integers(1, 30),
        w=st.integers(8, 70),
        c=st.sampled_from([2, 4, 6, 16]),
        k=st.sampled_from([2, 4, 6, 16, 30]),
        r=st.integers(1, 5),
        s=st.integers(1, 5),
        dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    )
)
def test_random_shapes_are_exact(problem):
    for op in GATHERS:
        operands, expected = exact_case(op, problem)
        for dtype in {"bfloat16", *own_dtypes(op)[-1:]}:
            got = conv(op, problem, *(operand.astype(dtype_named(dtype)) for operand in operands))
            assert_exact(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=True)
