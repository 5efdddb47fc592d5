"""Depthwise convolutions whose rows take several strips, parts or chunks, whose lanes take several blocks, and whose results are stored together."""

import pytest
from checks import check_edge, check_threads, running
from problems import exact_case, rounded_case

from gradops.testing import OPS, Problem, assert_close, assert_exact

OPS_OF_KIND = [op for op in OPS.values() if op.kind == "depthwise"]
PROBLEMS = [
    Problem(n=2, h=70, w=112, c=96, m=1, r=3, s=3, padding="SAME"),  # strips
    Problem(n=2, h=61, w=57, c=144, m=1, r=3, s=3, strides=(2, 2), padding="SAME"),  # phases of rows and columns
    Problem(n=1, h=24, w=90, c=130, m=1, r=5, s=5, padding="SAME"),  # a vector with few lanes
    Problem(n=1, h=40, w=31, c=200, m=1, r=7, s=7, padding=(3, 5, 0, 6)),  # blocks of lanes
    Problem(n=1, h=9, w=1200, c=20, m=1, r=3, s=5, strides=(1, 2), padding="SAME"),  # chunks of columns
    Problem(n=2, h=40, w=30, c=37, m=1, r=3, s=3, dilations=(2, 3), padding="SAME"),
    Problem(n=2, h=37, w=29, c=33, m=1, r=2, s=3, strides=(3, 3), padding=(1, 0, 2, 2)),
    Problem(n=1, h=50, w=40, c=24, m=3, r=3, s=3, padding="SAME"),
    Problem(n=1, h=30, w=40, c=5, m=20, r=3, s=3, strides=(2, 2), padding="SAME"),
    Problem(n=3, h=7, w=7, c=480, m=1, r=3, s=3, padding="SAME"),
]
CASES = [
    pytest.param(op, Problem.parse(f"{str(base)[:-5]}_{layout}"), id=f"{op}-{base}-{layout}")
    for op in OPS_OF_KIND
    for base in PROBLEMS
    for layout in ("nhwc", "nchw")
]
every_case = pytest.mark.parametrize(("op", "problem"), CASES)


@every_case
def test_small_integers_give_exact_results(op, problem, whole_level):
    for dtype in ("float32", "bfloat16"):
        operands, expected = exact_case(op, problem, dtype)
        got = op(problem, *operands, num_threads=2)
        assert_exact(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=problem.strides == (3, 3))


@every_case
def test_random_numbers_lie_within_the_rounding_error(op, problem):
    for dtype in op.dtypes:
        operands, expected = rounded_case(op, problem, dtype)
        got = op(problem, *operands)
        assert_close(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=problem.strides == (3, 3))


@every_case
def test_threads_do_not_change_a_bit(op, problem):
    check_threads(running(), op, problem)


@every_case
def test_nothing_is_read_beyond_the_last_element(op, problem, whole_level, at_the_edge):
    check_edge(running(), op, problem, "float32", at_the_edge)
