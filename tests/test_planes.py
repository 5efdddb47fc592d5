"""The depthwise kernel for channels first: on every shape that it accepts it computes what the definition says."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from problems import exact_case

from gradops._algorithms import MOST_PLANE_COLUMNS, MOST_PLANE_ROWS, WIDEST_VECTOR
from gradops.testing import (
    OPS,
    Problem,
    accepting,
    assert_close,
    assert_exact,
    dtype_named,
    forced,
    random_integers,
    random_normal,
)

GATHERS = [OPS["depthwise_conv2d_native"], OPS["depthwise_conv2d_native_backprop_input"]]
PROBLEMS = [
    Problem(n=2, h=13, w=17, c=3, m=1, r=3, s=3, padding="SAME", layout="NCHW"),
    Problem(n=1, h=9, w=16, c=5, m=1, r=3, s=3, padding="SAME", layout="NCHW"),
    Problem(n=2, h=30, w=41, c=3, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=1, h=31, w=64, c=2, m=1, r=5, s=5, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=1, h=11, w=33, c=2, m=1, r=5, s=4, strides=(1, 2), padding=(2, 1, 3, 0), layout="NCHW"),
    Problem(n=1, h=12, w=40, c=2, m=1, r=2, s=2, strides=(2, 1), layout="NCHW"),
    Problem(n=1, h=200, w=230, c=2, m=1, r=7, s=7, padding="SAME", layout="NCHW"),  # strips
    Problem(
        n=1, h=90, w=150, c=2, m=1, r=6, s=3, strides=(2, 2), padding=(9, 0, 1, 1), layout="NCHW"
    ),  # rows without a tap
    Problem(n=1, h=5, w=30, c=2, m=1, r=1, s=3, padding=(0, 0, 5, 7), layout="NCHW"),  # columns without a tap
    Problem(n=1, h=5, w=39, c=2, m=1, r=1, s=2, strides=(2, 2), layout="NCHW"),  # rows and columns that nothing reads
    Problem(n=1, h=6, w=2000, c=2, m=1, r=3, s=40, padding="SAME", layout="NCHW"),
]
CASES = [pytest.param(op, problem, id=f"{op}-{problem}") for op in GATHERS for problem in PROBLEMS]
every_case = pytest.mark.parametrize(("op", "problem"), CASES)


def planes(op, problem, *operands, **options):
    with forced(algorithm="planes"):
        return op(problem, *operands, **options)


def few(problem):
    """Whether strides or paddings alone leave much of a result at zero."""
    return problem.padding != "SAME"


@every_case
def test_every_case_is_accepted(op, problem):
    assert accepting(op, problem) == ("planes", "depthwise")


def test_other_problems_are_left_to_packed_rows():
    def accepted(op, **changed):
        given_ = {"h": 20, "w": 40, "c": 2, "m": 1, "padding": "SAME", "layout": "NCHW"} | changed
        return accepting(OPS[f"depthwise_conv2d_native{op}"], Problem(**given_))

    assert accepted("_backprop_filter") == ("depthwise",)
    for op in "", "_backprop_input":
        assert (
            accepted(op) == accepted(op, r=MOST_PLANE_ROWS) == accepted(op, w=WIDEST_VECTOR) == ("planes", "depthwise")
        )
        for refused in (
            {"m": 2}, {"w": WIDEST_VECTOR - 1}, {"r": MOST_PLANE_ROWS + 1}, {"dilations": (1, 2)}, {"strides": (3, 1)},
            {"w": MOST_PLANE_COLUMNS}, {"w": 2 * WIDEST_VECTOR - 2, "strides": (1, 2)},
        ):  # fmt: skip
            assert accepted(op, **refused) == ("depthwise",)


@every_case
def test_small_integers_give_exact_results(op, problem, level):
    operands, expected = exact_case(op, problem)
    for dtype in op.dtypes:
        got = planes(op, problem, *(operand.astype(dtype_named(dtype)) for operand in operands), num_threads=2)
        assert_exact(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=few(problem))


@every_case
def test_random_numbers_lie_within_the_rounding_error(op, problem):
    for dtype in op.dtypes:
        operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=7)
        got, expected = planes(op, problem, *operands), op.expect(problem, *operands)
        assert_close(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=few(problem))


@every_case
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_threads_do_not_change_a_bit(op, problem, dtype):
    operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=9)
    one, *others = (planes(op, problem, *operands, num_threads=threads) for threads in (1, 2, 3, 8))
    for other in others:
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@every_case
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_nothing_is_read_beyond_the_last_element(op, problem, dtype, level, at_the_edge):
    operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=3)
    moved = [at_the_edge(operand) for operand in operands]
    np.testing.assert_array_equal(planes(op, problem, *moved), planes(op, problem, *operands))


@given(
    op=st.sampled_from(GATHERS),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(16, 90), st.integers(1, 5)),
    taps=st.tuples(st.integers(1, 7), st.integers(1, 9)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 0, 11)]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
)
def test_any_shape(op, sizes, taps, strides, padding, dtype):
    n, h, w, c = sizes
    problem = Problem(n=n, h=h, w=w, c=c, m=1, r=taps[0], s=taps[1], strides=strides, padding=padding, layout="NCHW")
    assume(all(axis[1] > 0 for axis in problem.axes) and "planes" in accepting(op, problem))
    operands = random_integers(op.shapes(problem), np.float64, seed=h)
    expected = op.expect(problem, *operands)
    got = planes(op, problem, *(operand.astype(dtype) for operand in operands))
    assert_exact(got, expected, label=f"{op} {problem}", mostly_zero_ok=True)


@pytest.mark.parametrize("op", GATHERS, ids=str)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("column", [0, 17, -1])
def test_infinities_do_not_spread(op, value, at, column, level):
    """Not to the zeros beside the image, nor to pixels that two vectors compute."""
    problem = Problem(n=1, h=6, w=19, c=2, m=1, r=3, s=3, padding="SAME", layout="NCHW")
    operands = random_normal(op.shapes(problem), np.float32, seed=11)
    operands[at].reshape(-1)[column % operands[at].size] = value
    with np.errstate(invalid="ignore"):
        expected = op.reference(problem, *(operand.astype(np.float64) for operand in operands))
    np.testing.assert_allclose(planes(op, problem, *operands), expected, rtol=1e-4, atol=1e-4)
    assert np.isfinite(expected).any() and not np.isfinite(expected).all()
