"""Gradients of dense filters whose taps share strips of x, and products of tiles: bfloat16 where the CPU has them, everything else beside."""

import numpy as np
import pytest
from checks import check_edge, check_spread, check_threads, running
from hypothesis import assume, given
from hypothesis import strategies as st
from problems import exact_case, rounded_case

from gradops.testing import OPS, Problem, assert_close, assert_exact, dtype_named, random_integers

OP = OPS["conv2d_backprop_filter"]
DENSE = [op for op in OPS.values() if op.kind == "dense"]
BFLOAT16 = dtype_named("bfloat16")
PROBLEMS = [
    Problem(n=3, h=14, w=14, c=64, k=32, r=3, s=3, padding="SAME"),
    Problem(n=2, h=19, w=31, c=33, k=47, r=3, s=3, padding="SAME"),  # two strips of an image, the last one shorter
    Problem(n=1, h=21, w=40, c=16, k=7, r=5, s=5, padding="SAME"),  # borders of two pixels
    Problem(n=1, h=23, w=29, c=17, k=33, r=3, s=2, padding=(4, 0, 0, 5)),  # more zeros than taps reach
    Problem(n=2, h=25, w=44, c=20, k=40, r=3, s=3, strides=(2, 2), padding="SAME"),  # four phases
    Problem(n=2, h=25, w=43, c=20, k=40, r=2, s=4, strides=(1, 2), padding=(1, 0, 2, 1)),
    Problem(n=2, h=24, w=26, c=18, k=20, r=3, s=3, strides=(2, 1), padding="SAME"),
    Problem(n=2, h=30, w=30, c=16, k=32, r=3, s=3, dilations=(2, 3), padding="SAME"),
    Problem(n=2, h=40, w=40, c=16, k=16, r=3, s=3, strides=(2, 2), dilations=(2, 2), padding="SAME"),  # pixels left out
    Problem(n=2, h=12, w=13, c=48, k=96, r=3, s=3, groups=3, padding="SAME"),
    Problem(n=1, h=12, w=60, c=24, k=24, r=1, s=7, padding="SAME"),
    Problem(n=1, h=60, w=12, c=24, k=24, r=7, s=1, padding="SAME"),
    Problem(n=1, h=12, w=12, c=260, k=140, r=2, s=2),  # several blocks on either side
    Problem(n=9, h=12, w=12, c=40, k=40, r=3, s=3, padding="SAME"),  # several spans
    Problem(n=1, h=3, w=300, c=16, k=16, r=2, s=3, padding="SAME"),  # a row is a strip
]
CASES = [
    pytest.param(Problem.parse(f"{str(base)[:-5]}_{layout}"), id=f"{base}-{layout}")
    for base in PROBLEMS
    for layout in ("nhwc", "nchw")
]
BUNDLED = [  # groups of few channels, several of which tiles multiply as one
    Problem(n=2, h=14, w=14, c=64, k=64, r=3, s=3, groups=4, padding="SAME"),
    Problem(n=2, h=15, w=13, c=24, k=48, r=3, s=3, groups=12, padding="SAME"),  # 2 inputs, 4 outputs; 6 groups as one
    Problem(n=1, h=17, w=30, c=40, k=40, r=3, s=2, strides=(2, 2), groups=5, padding="SAME"),  # no two groups as one
    Problem(n=2, h=16, w=18, c=96, k=32, r=3, s=3, strides=(2, 1), groups=8, padding="SAME"),  # 12 inputs, 4 outputs
    Problem(n=2, h=12, w=14, c=21, k=35, r=2, s=3, dilations=(2, 1), groups=7, padding="SAME"),  # odd ones
    Problem(n=2, h=10, w=13, c=64, k=64, r=1, s=1, groups=8),
    Problem(n=1, h=12, w=14, c=32, k=32, r=5, s=5, groups=4, padding="SAME"),  # more taps than a pass
]
EDGES = [
    Problem(h=13, w=15, c=64, k=96, r=1, s=1),
    Problem(n=2, h=9, w=7, c=24, k=40, r=1, s=1),
    Problem(h=13, w=15, c=32, k=96, r=3, s=3, padding="SAME"),
]
conv = running("conv")


@pytest.mark.parametrize("problem", CASES)
def test_small_integers_give_exact_results(problem, level):
    operands, expected = exact_case(OP, problem, "bfloat16")
    for threads in 1, 3:
        got = conv(OP, problem, *operands, num_threads=threads)
        assert_exact(got, expected, label=f"{problem} {threads}")


@pytest.mark.parametrize("problem", CASES)
def test_random_numbers_lie_within_the_rounding_error_with_any_threads(problem, level):
    operands, expected = rounded_case(OP, problem, "bfloat16")
    assert_close(conv(OP, problem, *operands), expected, label=str(problem))
    check_threads(conv, OP, problem, "bfloat16")


BUNDLES = [
    pytest.param(op, Problem.parse(f"{str(base)[:-5]}_{layout}"), id=f"{op}-{base}-{layout}")
    for op in DENSE
    for base in BUNDLED
    for layout in ("nhwc", "nchw")
]


@pytest.mark.parametrize(("op", "problem"), BUNDLES)
def test_bundles_of_groups_are_exact(op, problem, level):
    operands, expected = exact_case(op, problem, "bfloat16")
    for threads in 1, 3:
        got = conv(op, problem, *operands, num_threads=threads)
        assert_exact(got, expected, label=f"{op} {problem} {threads}", mostly_zero_ok=True)


@pytest.mark.parametrize(("op", "problem"), BUNDLES)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
def test_infinities_stay_in_their_group(op, problem, value, at):
    check_spread(conv, op, problem, "bfloat16", value, at, lambda size: size // 3)


@given(
    n=st.integers(1, 3),
    image=st.tuples(st.integers(6, 40), st.integers(6, 90)),
    channels=st.tuples(st.integers(16, 70), st.integers(1, 70)),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 2, 3)]),
    layout=st.sampled_from(["NHWC", "NCHW"]),
)
def test_any_shape_is_exact(n, image, channels, taps, strides, dilations, padding, layout):
    problem = Problem(
        n=n, h=image[0], w=image[1], c=channels[0], k=channels[1], r=taps[0], s=taps[1], strides=strides,
        dilations=dilations, padding=padding, layout=layout,
    )  # fmt: skip
    assume(all(axis[1] > 0 for axis in problem.axes))
    operands = random_integers(OP.shapes(problem), BFLOAT16, seed=image[1])
    expected = OP.expect(problem, *operands)
    assert_exact(conv(OP, problem, *operands, num_threads=2), expected, label=str(problem), mostly_zero_ok=True)


@pytest.mark.parametrize("problem", CASES)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
def test_infinities_go_only_where_their_products_go(problem, value, at):
    got, expected, finite = check_spread(conv, OP, problem, "bfloat16", value, at, lambda size: size // 2)
    np.testing.assert_allclose(got[finite], expected[finite], rtol=2**-7)


@pytest.mark.parametrize("op", DENSE, ids=str)
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("base", EDGES, ids=str)
def test_nothing_is_read_beyond_an_operand(op, base, layout, level, at_the_edge):
    """Tiles have rows beyond the last one."""
    check_edge(conv, op, Problem.parse(f"{str(base)[:-5]}_{layout}"), "bfloat16", at_the_edge)
