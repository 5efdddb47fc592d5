"""Depthwise convolutions with many outputs for one input, by the stencil over packed rows and as grouped convolutions."""

import pytest
from checks import check_edge, check_integers, check_random, check_threads, running
from hypothesis import assume, given
from hypothesis import strategies as st

from gradops._algorithms import Arithmetic, Axis, Task, algorithms
from gradops._algorithms.multipliers import LEAST, LEAST_MULTIPLIERS, LEAST_PAIRED, MOST_MULTIPLIERS, stencils
from gradops.testing import OPS, Problem, accepting, assert_exact, dtype_named, random_integers

OPS_OF_KIND = [op for op in OPS.values() if op.kind == "depthwise"]
PROBLEMS = [
    Problem(n=2, h=13, w=17, c=3, m=16, r=3, s=3, padding="SAME"),
    Problem(n=1, h=20, w=21, c=5, m=33, r=3, s=3, strides=(2, 2), padding="SAME"),
    Problem(n=2, h=9, w=14, c=2, m=64, r=5, s=2, dilations=(1, 2), padding=(3, 0, 2, 2)),
    Problem(n=1, h=12, w=30, c=7, m=24, r=1, s=7, strides=(1, 3)),
    Problem(n=1, h=11, w=15, c=6, m=32, r=5, s=5, strides=(2, 1), padding="SAME"),  # several blocks
]
CASES = [
    pytest.param(algorithm, op, problem, id=f"{algorithm}-{op}-{problem}")
    for op in OPS_OF_KIND
    for base in PROBLEMS
    for problem in (Problem.parse(f"{str(base)[:-5]}_{layout}") for layout in ("nhwc", "nchw"))
    for algorithm in ("depthwise", "conv")
]
every_case = pytest.mark.parametrize(("algorithm", "op", "problem"), CASES)


def test_cases_are_accepted():
    for case in CASES:
        algorithm, op, problem = case.values
        assert algorithm in accepting(op, problem)


@every_case
def test_small_integers_give_exact_results(algorithm, op, problem, whole_level):
    check_integers(running(algorithm), op, problem)


@every_case
def test_random_numbers_lie_within_the_rounding_error(algorithm, op, problem):
    check_random(running(algorithm), op, problem)


@every_case
def test_threads_do_not_change_a_bit(algorithm, op, problem):
    check_threads(running(algorithm), op, problem)


@every_case
def test_nothing_is_read_beyond_the_last_element(algorithm, op, problem, whole_level, at_the_edge):
    check_edge(running(algorithm), op, problem, "float32", at_the_edge)


@given(
    op=st.sampled_from(OPS_OF_KIND),
    layout=st.sampled_from(["NHWC", "NCHW"]),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 20), st.integers(1, 40), st.integers(1, 5), st.integers(16, 66)),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2)]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
)
def test_any_shape(op, layout, sizes, taps, strides, dilations, padding, dtype):
    n, h, w, c, m = sizes
    problem = Problem(
        n=n, h=h, w=w, c=c, m=m, r=taps[0], s=taps[1], strides=strides, dilations=dilations, padding=padding, layout=layout
    )  # fmt: skip
    assume(all(axis[1] > 0 for axis in problem.axes))
    operands = random_integers(op.shapes(problem), dtype_named("float64"), seed=h)
    expected = op.expect(problem, *operands)
    for algorithm in accepting(op, problem):
        got = running(algorithm)(op, problem, *(operand.astype(dtype_named(dtype)) for operand in operands))
        assert_exact(got, expected, label=f"{op} {problem} {algorithm}", mostly_zero_ok=True)


@pytest.mark.parametrize("result", ["output", "input", "filter"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("arithmetic", [Arithmetic.FLOATS, Arithmetic.PAIRS, Arithmetic.DOUBLES])
@pytest.mark.parametrize("stride", [1, 2])
def test_grouped_convolutions_are_taken_from_so_many_on(result, layout, arithmetic, stride):
    def found(outputs):
        rows, cols = Axis(9, 3, 1, 1, 1, 9), Axis(9, 3, stride, 1, 1, 9 // stride)
        return stencils(Task(result, True, rows, cols, 4, 1, outputs, layout, arithmetic))

    rule = LEAST_PAIRED if arithmetic is Arithmetic.PAIRS else LEAST if stride == 1 else {}
    least = rule.get((result, layout), MOST_MULTIPLIERS + 1)
    assert found(LEAST_MULTIPLIERS - 1) == ("depthwise",) and found(MOST_MULTIPLIERS + 1) == ("conv",)
    assert found(least)[0] == "conv" and found(least - 1)[0] == "depthwise"
    assert set(found(LEAST_MULTIPLIERS)) == set(found(MOST_MULTIPLIERS)) == {"conv", "depthwise"}


def test_pairs_are_multiplied_as_matrices_rather_than_by_pixels():
    axis, least = Axis(40, 3, 1, 1, 1, 40), LEAST_PAIRED["filter", "NCHW"]

    def first(outputs, arithmetic):
        return algorithms(Task("filter", True, axis, axis, 4, 1, outputs, "NCHW", arithmetic))[0]

    assert first(least, Arithmetic.PAIRS) == "conv" and first(least - 1, Arithmetic.PAIRS) == "stem"
    assert first(least, Arithmetic.FLOATS) == "stem"
