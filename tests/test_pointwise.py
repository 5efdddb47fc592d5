"""1x1 convolutions: their operands are read, and their results written, where they lie; with tails, passes and strides that are awkward."""

import numpy as np
import pytest
from checks import check_edge, check_random, check_threads, running
from hypothesis import given
from hypothesis import strategies as st
from problems import exact_case

from gradops.testing import OPS, Problem, assert_exact, random_integers

DENSE = [op for op in OPS.values() if op.kind == "dense"]


def pointwise(**sizes):
    return Problem(r=1, s=1, **sizes)


PROBLEMS = [
    pointwise(n=2, h=9, w=15, c=24, k=40),
    pointwise(n=1, h=1, w=1, c=5, k=21),
    pointwise(n=3, h=13, w=7, c=70, k=17),
    pointwise(n=1, h=11, w=13, c=600, k=48),
    pointwise(n=1, h=11, w=13, c=1100, k=48),  # two passes over the channels, the sums of the first in the result
    pointwise(n=2, h=21, w=13, c=200, k=1),  # results that spill into many next pixels
    pointwise(n=1, h=19, w=23, c=24, k=3),
    pointwise(n=3, h=9, w=11, c=1024, k=2),
    pointwise(n=2, h=13, w=17, c=150, k=7),
    pointwise(n=1, h=5, w=3, c=21, k=1030),
    pointwise(n=1, h=20, w=17, c=512, k=32),  # rows that crowd a few cache sets
    pointwise(n=1, h=5, w=6, c=1024, k=40),  # or a single one
    pointwise(n=1, h=5, w=6, c=40, k=1024),
    pointwise(n=1, h=5, w=6, c=1024, k=300),
    pointwise(n=1, h=4, w=5, c=1040, k=600),  # filters of which a second cache keeps a part
    pointwise(n=1, h=12, w=13, c=521, k=399),  # wide layers, whose rows may be packed as tiles read them
    pointwise(n=2, h=11, w=13, c=512, k=130),  # with more inputs than outputs
    pointwise(n=1, h=13, w=11, c=520, k=520, groups=2),
    pointwise(n=2, h=40, w=41, c=16, k=16),
    pointwise(n=3, h=40, w=41, c=24, k=24),  # results that spill into the next pixel
    pointwise(n=3, h=40, w=41, c=48, k=48, groups=2),
    pointwise(n=1, h=40, w=41, c=80, k=100),  # long planes; blocks of channels that end within a panel
    pointwise(n=2, h=9, w=15, c=104, k=24),  # filters whose inputs fill the vectors of a tile better than their outputs
    pointwise(n=1, h=23, w=24, c=150, k=40),
    pointwise(n=2, h=9, w=15, c=43, k=8),
    pointwise(n=2, h=9, w=15, c=24, k=80, groups=2),
    pointwise(n=2, h=25, w=23, c=33, k=70),  # planes that are no multiple of a vector
    pointwise(n=3, h=13, w=11, c=40, k=70),  # small ones
    pointwise(n=2, h=12, w=12, c=8, k=520),
    pointwise(n=2, h=40, w=30, c=530, k=34, groups=2),
    pointwise(n=1, h=32, w=64, c=8, k=16),  # planes that crowd a few cache sets
    pointwise(n=1, h=9, w=15, c=72, k=144),  # steps that fill more tiles evenly
    pointwise(n=2, h=10, w=15, c=24, k=32, strides=(2, 3)),
    pointwise(n=2, h=23, w=24, c=20, k=530, strides=(2, 2)),  # more channels than a block of others has
    pointwise(n=1, h=8, w=9, c=19, k=32, padding=(1, 0, 2, 1)),
]
CASES = [
    pytest.param(op, problem, id=f"{op}-{problem}")
    for op in DENSE
    for base in PROBLEMS
    for problem in (base, Problem.parse(f"{str(base)[:-5]}_nchw"))
]


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_small_integers_give_exact_results(op, problem, whole_level):
    for dtype in ("float32", "float64"):
        operands, expected = exact_case(op, problem, dtype)
        for threads in (1, 3):
            got = op(problem, *operands, num_threads=threads)
            assert_exact(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=problem.strides != (1, 1))


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_random_numbers_lie_within_the_rounding_error(op, problem, level):
    check_random(running(), op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_threads_do_not_change_a_bit(op, problem):
    for dtype in ("float32", "bfloat16"):
        check_threads(running(), op, problem, dtype)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_nothing_is_read_beyond_the_last_element(op, problem, whole_level, at_the_edge):
    check_edge(running(), op, problem, "float32", at_the_edge)


@pytest.mark.parametrize("op", [op for op in DENSE if op.sizes != "filter_sizes"], ids=str)
@pytest.mark.parametrize(
    "problem",
    [
        pointwise(n=2, h=161, w=163, c=12, k=100, layout="NCHW"),
        pointwise(n=2, h=161, w=163, c=2, k=110),  # channels last, but too few of them to be vectors
        pointwise(n=1, h=322, w=326, c=40, k=64, strides=(2, 2), layout="NCHW"),
        Problem(n=1, h=322, w=325, c=40, k=64, r=2, strides=(2, 3), padding="SAME", layout="NCHW"),
        pointwise(n=1, h=161, w=163, c=90, k=111, layout="NCHW"),  # planes that are packed row by row
        pointwise(n=1, h=161, w=163, c=181, k=21, layout="NCHW"),  # few of them
        Problem(n=1, h=256, w=258, c=66, k=80, r=2, s=2, strides=(2, 2), layout="NCHW"),  # patches of two columns
    ],
    ids=str,
)
def test_images_that_leave_the_caches_are_exact(op, problem, whole_level):
    operands, expected = exact_case(op, problem, "float32")
    for threads in (1, 3):
        got = op(problem, *operands, num_threads=threads)
        assert_exact(got, expected, label=f"{op} {problem} {threads}", mostly_zero_ok=problem.r == 1)


@given(
    n=st.integers(1, 3),
    image=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 70)),
    layout=st.sampled_from(["NHWC", "NCHW"]),
    threads=st.integers(1, 9),
)
def test_any_shape_is_exact_on_any_number_of_threads(n, image, channels, layout, threads):
    problem = pointwise(n=n, h=image[0], w=image[1], c=channels[0], k=channels[1], layout=layout)
    for op in DENSE:
        operands = [1 + abs(operand) for operand in random_integers(op.shapes(problem), np.float32, seed=5)]
        expected = op.expect(problem, *operands)
        assert_exact(op(problem, *operands, num_threads=threads), expected, label=f"{op} {problem} {threads}")
