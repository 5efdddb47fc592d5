"""The depthwise kernels that read images where they lie: on every shape that they accept they compute what the definition says."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from problems import exact_case

from gradops._algorithms import CROWDED, MOST_ROWS, MOST_STEP, WIDEST_VECTOR
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

OPS_OF_KIND = [op for op in OPS.values() if op.kind == "depthwise"]
PROBLEMS = [
    Problem(n=2, h=13, w=14, c=32, m=1, r=3, s=3, padding="SAME"),  # tiles of 7
    Problem(n=1, h=9, w=23, c=19, m=1, r=3, s=3, padding="SAME"),  # the last tile begins before the one before it ends
    Problem(n=3, h=12, w=9, c=24, m=1, r=5, s=5, strides=(2, 2), padding="SAME"),  # phases; the last vector overlaps
    Problem(n=1, h=17, w=16, c=40, m=1, r=7, s=7, padding="SAME"),  # rows of taps by twos
    Problem(n=2, h=11, w=6, c=16, m=1, r=2, s=4, padding=(0, 3, 2, 2)),
    Problem(n=1, h=31, w=30, c=17, m=1, r=3, s=3, dilations=(2, 3), padding="SAME"),
    Problem(n=1, h=20, w=19, c=18, m=1, r=3, s=3, strides=(3, 2), dilations=(2, 2), padding="SAME"),
    Problem(n=1, h=7, w=5, c=33, m=1, r=9, s=3, strides=(1, 1), padding=(9, 0, 2, 2)),  # rows without a tap
    Problem(n=1, h=6, w=12, c=20, m=1, r=1, s=3, strides=(1, 1), padding=(0, 0, 6, 7)),  # columns without a tap
    Problem(n=1, h=15, w=16, c=16, m=1, r=2, s=2, strides=(4, 3)),  # columns that nothing reads
    Problem(n=1, h=9, w=10, c=1024, m=1, r=3, s=3, padding="SAME"),  # pixels at a crowding distance
    Problem(n=40, h=3, w=3, c=16, m=1, r=3, s=3, padding="SAME"),  # more images than spans
    Problem(
        n=1, h=150, w=140, c=112, m=1, r=3, s=3, padding="SAME"
    ),  # too large for a cache: the next strip is fetched
    Problem(n=1, h=100, w=96, c=64, m=1, r=5, s=5, strides=(2, 2), padding="SAME"),
]
CASES = [
    pytest.param(op, problem, id=f"{op}-{problem}")
    for op in OPS_OF_KIND
    for problem in PROBLEMS
    if "inplace" in accepting(op, problem)
]
every_case = pytest.mark.parametrize(("op", "problem"), CASES)


def inplace(op, problem, *operands, **options):
    with forced(algorithm="inplace"):
        return op(problem, *operands, **options)


def few(problem):
    """Whether strides or paddings alone leave much of a result at zero."""
    return problem.strides[0] > 2 or isinstance(problem.padding, tuple)


def test_all_cases_but_the_strides_of_three_are_accepted():
    assert len(CASES) == 3 * len(PROBLEMS) - 2


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
def test_packed_rows_are_read_where_vectors_taps_or_caches_ask_for_them(op):
    def accepted(**changed):
        return accepting(op, Problem(**{"h": 90, "w": 9, "c": WIDEST_VECTOR, "m": 1, "padding": "SAME"} | changed))

    assert accepted() == accepted(r=MOST_ROWS) == accepted(c=CROWDED + 16) == ("inplace", "depthwise")
    for refused in {"c": WIDEST_VECTOR - 1}, {"layout": "NCHW"}, {"m": 2}, {"r": MOST_ROWS + 1}, {"s": 8}, {"s": 6}:
        assert accepted(**refused) == ("depthwise",)
    crowded = ("depthwise", "inplace") if op.sizes == "filter_sizes" else ("inplace", "depthwise")
    assert accepted(c=CROWDED) == accepted(c=CROWDED // 2, dilations=(1, 2)) == crowded
    assert (accepted(strides=(MOST_STEP + 1, 1)) == ("depthwise",)) == (op.sizes != "input_sizes")


@every_case
def test_small_integers_give_exact_results(op, problem, level):
    operands, expected = exact_case(op, problem)
    for dtype in op.dtypes:
        got = inplace(op, problem, *(operand.astype(dtype_named(dtype)) for operand in operands), num_threads=2)
        assert_exact(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=few(problem))


@every_case
def test_random_numbers_lie_within_the_rounding_error(op, problem):
    for dtype in op.dtypes:
        operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=7)
        got, expected = inplace(op, problem, *operands), op.expect(problem, *operands)
        assert_close(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=few(problem))


@every_case
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_threads_do_not_change_a_bit(op, problem, dtype):
    operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=9)
    one, *others = (inplace(op, problem, *operands, num_threads=threads) for threads in (1, 2, 3, 8))
    for other in others:
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@every_case
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_nothing_is_read_beyond_the_last_element(op, problem, dtype, level, at_the_edge):
    operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=3)
    moved = [at_the_edge(operand) for operand in operands]
    np.testing.assert_array_equal(inplace(op, problem, *moved), inplace(op, problem, *operands))


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
@pytest.mark.parametrize("taps", range(1, 8))
@pytest.mark.parametrize("stride", [1, 2])
def test_every_width_and_number_of_taps(op, taps, stride, level):
    for width in range(1, 20):
        problem = Problem(n=1, h=5, w=width, c=16, m=1, r=taps, s=taps, strides=(stride, stride), padding="SAME")
        operands, expected = exact_case(op, problem)
        got = inplace(op, problem, *(operand.astype(np.float32) for operand in operands))
        assert_exact(got, expected, label=f"{op} {problem}", mostly_zero_ok=True)


@given(
    op=st.sampled_from(OPS_OF_KIND),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 30), st.integers(1, 40), st.integers(16, 70)),
    taps=st.tuples(st.integers(1, 9), st.integers(1, 7)),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 0, 11)]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
)
def test_any_shape(op, sizes, taps, strides, dilations, padding, dtype):
    n, h, w, c = sizes
    problem = Problem(
        n=n, h=h, w=w, c=c, m=1, r=taps[0], s=taps[1], strides=strides, dilations=dilations, padding=padding
    )
    assume(all(axis[1] > 0 for axis in problem.axes) and "inplace" in accepting(op, problem))
    operands = random_integers(op.shapes(problem), np.float64, seed=h)
    expected = op.expect(problem, *operands)
    got = inplace(op, problem, *(operand.astype(dtype) for operand in operands))
    assert_exact(got, expected, label=f"{op} {problem}", mostly_zero_ok=True)


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("pixel", [0, 20, -1])
def test_infinities_do_not_spread(op, value, at, pixel, level):
    """Not to the zeros of the padding, nor to pixels that two tiles compute or one leaves out."""
    problem = Problem(n=1, h=6, w=9, c=16, m=1, r=3, s=3, padding="SAME")
    operands = random_normal(op.shapes(problem), np.float32, seed=11)
    operands[at].reshape(-1, 16)[pixel % (operands[at].size // 16), 3] = value
    with np.errstate(invalid="ignore"):
        expected = op.reference(problem, *(operand.astype(np.float64) for operand in operands))
    np.testing.assert_allclose(inplace(op, problem, *operands), expected, rtol=1e-4, atol=1e-4)
    assert np.isfinite(expected).any() and not np.isfinite(expected).all()
