"""The gemv kernels: on every shape that they accept, in both orders of a filter, they compute what the definition says; and filters that cover their input."""

import numpy as np
import pytest
from checks import check_edge, check_integers, check_random, check_shape, check_threads, running
from hypothesis import assume, given
from hypothesis import strategies as st
from problems import exact_case

from gradops._algorithms import Arithmetic
from gradops._algorithms.gemv import LEAST_SLOTS, MOST_PAIRED, MOST_POINTS, MOST_VECTORS
from gradops._geometry import attributes, plan
from gradops.testing import (
    OPS,
    Problem,
    accepting,
    assert_exact,
    forced,
    random_integers,
    random_normal,
)

GATHERS = [OPS["conv2d"], OPS["conv2d_backprop_input"]]
PROBLEMS = [
    Problem(n=8, h=1, w=1, c=40, k=50, r=1, s=1),
    Problem(n=16, h=1, w=1, c=1100, k=70, r=1, s=1),  # three passes over the channels
    Problem(n=1, h=1, w=1, c=70, k=1100, r=1, s=1),
    Problem(n=3, h=1, w=1, c=515, k=33, r=1, s=1),
    Problem(n=2, h=3, w=3, c=131, k=150, r=1, s=1),  # a vector of pixels and two others
    Problem(n=1, h=7, w=7, c=77, k=1030, r=1, s=1),
    Problem(n=3, h=3, w=7, c=1024, k=30, r=1, s=1, groups=2),  # rows that crowd a cache, if they lie in the filter
    Problem(n=1, h=4, w=6, c=40, k=520, r=1, s=1),  # half a vector of pixels
    Problem(n=4, h=4, w=3, c=34, k=20, r=2, s=3, groups=2),
    Problem(n=5, h=1, w=1, c=9, k=5, r=3, s=3, padding="SAME"),
    Problem(n=12, h=1, w=1, c=33, k=40, r=2, s=1, padding="SAME"),
    Problem(n=3, h=2, w=2, c=7, k=33, r=3, s=3, padding="SAME"),
    Problem(n=1, h=4, w=4, c=17, k=20, r=4, s=4),
    Problem(n=7, h=7, w=7, c=12, k=37, r=7, s=7),
    Problem(n=2, h=3, w=3, c=6, k=8, r=3, s=3, strides=(2, 2), groups=2, padding="SAME"),
    Problem(n=1, h=2, w=5, c=60, k=30, r=1, s=2, strides=(1, 2), groups=3),
    Problem(n=1, h=9, w=4, c=20, k=18, r=3, s=2, strides=(3, 5), dilations=(4, 2), padding=(1, 2, 0, 3)),
]
CASES = [
    pytest.param(op, problem, id=f"{op}-{problem}")
    for op in GATHERS
    for base in PROBLEMS
    for layout in ("nhwc", "nchw")
    if "gemv" in accepting(op, problem := Problem.parse(f"{str(base)[:-5]}_{layout}"))
]


gemv = running("gemv")


def test_there_are_cases_of_both_ops():
    assert {case.values[0] for case in CASES} == set(GATHERS) and len(CASES) >= 40


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_small_integers_give_exact_results(op, problem, whole_level):
    check_integers(gemv, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_random_numbers_lie_within_the_rounding_error(op, problem, whole_level):
    check_random(gemv, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_threads_do_not_change_a_bit(op, problem):
    check_threads(gemv, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_nothing_is_read_beyond_the_last_element(op, problem, whole_level, at_the_edge):
    for dtype in "float32", "bfloat16":
        check_edge(gemv, op, problem, dtype, at_the_edge)


@pytest.mark.parametrize("op", GATHERS, ids=str)
def test_a_filter_that_is_fetched_ahead(op, at_the_edge):
    problem = Problem(n=5, h=1, w=1, c=2100, k=2010, r=1, s=1)
    operands = [at_the_edge(operand) for operand in random_integers(op.shapes(problem), np.float32, seed=2)]
    assert problem.c * problem.k * 4 > 16 << 20 and accepting(op, problem)[0] == "gemv"
    named = dict(zip(op.operands, operands, strict=True))
    matrix = named.pop("filter").reshape(problem.c, problem.k).astype(np.float64)
    (src,) = named.values()
    expected = src.reshape(5, -1) @ (matrix.T if op.sizes else matrix)
    np.testing.assert_array_equal(op(problem, *operands).reshape(5, -1), expected)


@given(
    op=st.sampled_from(GATHERS),
    n=st.integers(1, 9),
    image=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    channels=st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 3)),
    taps=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 2, 3)]),
    layout=st.sampled_from(["NHWC", "NCHW"]),
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
)
def test_any_shape(op, n, image, channels, taps, strides, dilations, padding, layout, dtype):
    c, k, groups = channels
    problem = Problem(
        n=n, h=image[0], w=image[1], c=c * groups, k=k * groups, r=taps[0], s=taps[1], strides=strides, dilations=dilations,
        groups=groups, padding=padding, layout=layout,
    )  # fmt: skip
    assume(all(axis[1] > 0 for axis in problem.axes) and "gemv" in accepting(op, problem))
    check_shape(gemv, op, problem, dtype)


@pytest.mark.parametrize("op", GATHERS, ids=str)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("algorithm", ["gemv", "conv"])
def test_infinities_meet_no_padding(op, value, at, algorithm, level):
    problem = Problem(n=2, h=2, w=2, c=3, k=4, r=3, s=3, padding="SAME")
    operands = random_normal(op.shapes(problem), np.float32, seed=11)
    operands[at].flat[0] = value
    with forced(algorithm="winograd"):
        expected = op(problem, *operands)
    with forced(algorithm=algorithm):
        np.testing.assert_allclose(op(problem, *operands), expected, rtol=1e-4, atol=1e-4)
    assert np.isfinite(expected).any() and not np.isfinite(expected).all()


def first_of(op, filter_format="RSCK", arithmetic=Arithmetic.FLOATS, **options):
    """The algorithm that is preferred for an arithmetic."""
    problem = Problem(**{"n": 1, "h": 1, "w": 1, "c": 512, "k": 512, "r": 1, "s": 1, "padding": "SAME"} | options)
    given_ = attributes(problem.strides, problem.padding, (), problem.layout, problem.dilations)
    out = None if op.sizes == "" else problem.output_shape
    found = plan(op.name, problem.input_shape, problem.filter_shape, out, given_, filter_format)
    return found.algorithms[arithmetic][0]


@pytest.mark.parametrize("op", GATHERS, ids=str)
def test_few_pixels_take_it(op):
    assert first_of(op) == first_of(op, n=MOST_POINTS) == first_of(op, n=2, h=5, w=MOST_POINTS // 10) == "gemv"
    assert first_of(op, n=MOST_POINTS + 1) == "conv"
    filters = {"h": 7, "w": 7, "r": 7, "s": 7, "padding": "VALID"}
    assert first_of(op, n=MOST_VECTORS, **filters) == "gemv"
    assert first_of(op, n=MOST_VECTORS + 1, **filters) == first_of(op, n=9, h=3, w=3, strides=(2, 2)) == "conv"
    assert first_of(op, n=1, h=100, w=1) == first_of(op, n=1, h=1, w=100) == "conv"
    assert first_of(OPS["conv2d_backprop_filter"]) == "conv"


@pytest.mark.parametrize("op", GATHERS, ids=str)
def test_taps_are_not_read_again_and_again(op):
    assert first_of(op, h=2, w=2, r=3, s=3) == "gemv"
    assert first_of(op, h=4, w=4, r=3, s=3) == "winograd"


@pytest.mark.parametrize("op", GATHERS, ids=str)
@pytest.mark.parametrize("filter_format", ["RSCK", "KRSC"])
def test_vectors_of_few_slots_do_not(op, filter_format):
    summed = "k" if op.sizes else "c"
    by_slots = (filter_format == "RSCK") == bool(op.sizes)
    assert first_of(op, filter_format, n=4, **{summed: 4 * LEAST_SLOTS}) == "gemv"
    assert (first_of(op, filter_format, n=4, **{summed: 4 * LEAST_SLOTS - 1}) == "gemv") != by_slots


@pytest.mark.parametrize("op", GATHERS, ids=str)
@pytest.mark.parametrize("filter_format", ["RSCK", "KRSC"])
def test_pairs_take_it_for_fewer_pixels(op, filter_format):
    most = MOST_PAIRED[(filter_format == "RSCK") == bool(op.sizes)]
    for arithmetic in Arithmetic.PAIRS, Arithmetic.TILES:
        assert first_of(op, filter_format, arithmetic, n=most) == "gemv"
        assert first_of(op, filter_format, arithmetic, n=most + 1) == "conv"


# Taps that lie outside


@pytest.mark.parametrize("op", GATHERS, ids=str)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_filters_that_cover_their_input_leave_out_what_lies_outside(op, layout, level):
    problem = Problem(n=20, h=5, w=6, c=18, k=35, r=5, s=6, layout=layout)
    for dtype in op.dtypes:
        operands, expected = exact_case(op, problem, dtype)
        got = op(problem, *operands)
        assert_exact(got, expected, label=f"{op} {problem} {dtype}")
    assert accepting(op, problem)[0] == "conv"


def test_images_of_one_pixel_have_one_tap():
    assert {accepting(op, Problem(n=20, h=1, w=1, c=64, k=64, r=3, s=3, padding="SAME"))[0] for op in GATHERS} == {
        "conv"
    }
    assert {accepting(op, Problem(n=20, h=2, w=2, c=64, k=64, r=3, s=3, padding="SAME"))[0] for op in GATHERS} == {
        "winograd"
    }


@pytest.mark.parametrize("op", GATHERS, ids=str)
@pytest.mark.parametrize("n", [1, MOST_VECTORS + 1])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_no_tap_lies_inside(op, n, layout):
    problem = Problem(n=n, h=1, w=1, c=40, k=64, r=2, s=2, dilations=(2, 2), padding=(1, 1, 1, 1), layout=layout)
    operands = [np.ones(shape, np.float32) for shape in op.shapes(problem)]
    for algorithm in accepting(op, problem):
        with forced(algorithm=algorithm):
            for threads in (1, 2):
                assert not op(problem, *operands, num_threads=threads).any()
