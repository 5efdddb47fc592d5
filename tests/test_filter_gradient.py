"""The gradient of a dense filter in its forms: from lines of narrow windows, from planes, turned, and summed over several spans of pixels."""

from dataclasses import replace

import numpy as np
import pytest
from checks import check_random, check_threads, own_dtypes, running
from hypothesis import assume, given
from hypothesis import strategies as st
from problems import exact_case

from gradops.testing import OPS, Problem, assert_exact, dtype_named, random_integers, random_normal

implicit = running("conv")
OP = OPS["conv2d_backprop_filter"]
OUTSIDE = Problem(n=2, h=30, w=33, c=7, k=9, r=1, s=1, padding=(2, 1, 1, 3))  # the first pixel, among others
PROBLEMS = [
    Problem(n=2, h=40, w=44, c=3, k=16, r=3, s=3, strides=(2, 2), padding="SAME"),
    Problem(n=3, h=37, w=61, c=3, k=70, r=7, s=7, strides=(2, 3), padding=(4, 1, 2, 9)),
    Problem(n=1, h=9, w=600, c=2, k=33, r=4, s=5, padding=(9, 0, 3, 1)),  # rows longer than what is summed at a time
    Problem(n=2, h=23, w=31, c=1, k=5, r=5, s=1, dilations=(3, 1), padding="SAME"),
    Problem(n=2, h=29, w=27, c=20, k=40, r=11, s=3, padding="SAME"),  # several blocks of slots, cut within rows
    Problem(n=2, h=50, w=1, c=4, k=9, r=5, s=1, strides=(2, 1), padding="SAME"),  # one column
    Problem(n=2, h=33, w=31, c=40, k=70, r=1, s=1, strides=(2, 2)),
    Problem(n=2, h=33, w=31, c=5, k=300, r=3, s=3, padding="SAME"),
    Problem(n=2, h=33, w=32, c=31, k=3, r=3, s=3, padding="SAME"),  # few channels, several spans and blocks of slots
    Problem(n=2, h=12, w=11, c=26, k=12, r=2, s=3, groups=2, padding="SAME"),
    Problem(n=2, h=15, w=19, c=20, k=25, r=3, s=3, groups=5, padding="SAME"),  # windows of groups, few channels
    Problem(n=2, h=15, w=19, c=2, k=140, r=3, s=2, groups=2, padding="SAME"),  # and more outputs than a stencil takes
    Problem(n=3, h=12, w=11, c=300, k=40, r=1, s=1),
    Problem(n=3, h=12, w=11, c=40, k=300, r=1, s=1),
    Problem(n=2, h=25, w=23, c=300, k=141, r=1, s=1, strides=(2, 2)),  # wide layers, packed as tiles read them
    Problem(n=2, h=17, w=14, c=61, k=150, r=3, s=3, dilations=(2, 1), padding="SAME"),
    Problem(n=2, h=25, w=24, c=60, k=84, r=2, s=3, dilations=(2, 1), groups=3, padding=(1, 2, 0, 3)),
    Problem(n=3, h=9, w=7, c=129, k=40, r=3, s=3, padding="SAME"),  # pairs of pixels that two rows have
    Problem(n=2, h=14, w=23, c=130, k=33, r=3, s=5, strides=(2, 3), padding=(9, 0, 7, 6)),  # rows that lie outside
    Problem(n=2, h=41, w=1, c=131, k=12, r=3, s=1, dilations=(2, 1), padding="SAME"),
    Problem(n=2, h=3, w=3, c=40, k=64, r=3, s=3, padding="SAME"),  # few pixels, summed where the result lies
    Problem(n=1, h=4, w=4, c=300, k=304, r=1, s=1),
    Problem(n=3, h=5, w=7, c=66, k=192, r=2, s=3, strides=(1, 2), groups=2, padding=(1, 2, 0, 3)),
    Problem(n=1, h=16, w=16, c=47, k=336, r=1, s=1),
    Problem(n=2, h=92, w=83, c=72, k=9, r=3, s=3, strides=(2, 3), padding="SAME"),  # more than a near cache keeps
    Problem(n=2, h=71, w=151, c=49, k=12, r=2, s=3, strides=(3, 2), padding=(0, 4, 1, 2)),
    Problem(n=1, h=64, w=64, c=3, k=80, r=5, s=5, strides=(2, 2), padding="SAME"),  # planes of dy that share a set,
    Problem(n=2, h=32, w=32, c=80, k=52, r=1, s=1),  # and of x
    Problem(n=2, h=195, w=181, c=3, k=70, r=16, s=16, strides=(16, 16), padding=(3, 0, 5, 2)),  # patch embeddings
    Problem(n=3, h=58, w=93, c=2, k=37, r=17, s=9, strides=(4, 7), dilations=(2, 1), padding=(9, 4, 3, 8)),
    Problem(n=2, h=39, w=36, c=3, k=66, r=12, s=13, strides=(1, 2), padding="SAME"),
    Problem(n=2, h=34, w=36, c=13, k=38, r=1, s=1),  # dots: in place, with what vectors leave,
    Problem(n=7, h=37, w=35, c=50, k=33, r=1, s=1),  # of planes that are no pairs,
    Problem(n=1, h=65, w=67, c=130, k=66, r=1, s=1, strides=(2, 2)),  # of slots that are copied by several blocks,
    Problem(n=1, h=33, w=32, c=6, k=300, r=2, s=2, padding="SAME"),  # of many channels,
    Problem(n=2, h=67, w=66, c=3, k=2, r=3, s=3, strides=(2, 2), padding=(1, 2, 3, 1)),  # of fewer than a tile has,
    Problem(n=2, h=42, w=33, c=16, k=3, r=3, s=5, dilations=(2, 1), padding="SAME"),
    Problem(n=1, h=40, w=34, c=30, k=18, r=3, s=3, padding="SAME"),  # of vectors with many empty lanes,
    Problem(n=1, h=33, w=64, c=6, k=26, r=3, s=3, groups=2, padding="SAME"),  # of groups,
    OUTSIDE,
]
CASES = [
    pytest.param(Problem.parse(f"{str(base)[:-5]}_{layout}"), id=f"{base}-{layout}")
    for base in PROBLEMS
    for layout in ("nhwc", "nchw")
]


@pytest.mark.parametrize("problem", CASES)
def test_small_integers_give_exact_results(problem, level):
    for dtype in own_dtypes(OP):
        operands, expected = exact_case(OP, problem, dtype)
        got = implicit(OP, problem, *operands, num_threads=3)
        assert_exact(got, expected, label=f"{problem} {dtype}")


@pytest.mark.parametrize("problem", CASES)
def test_random_numbers_lie_within_the_rounding_error(problem, level):
    check_random(implicit, OP, problem)


@pytest.mark.parametrize("problem", CASES)
def test_threads_do_not_change_a_bit(problem):
    check_threads(implicit, OP, problem)


@given(
    n=st.integers(1, 3),
    image=st.tuples(st.integers(1, 40), st.integers(1, 90)),
    channels=st.tuples(st.integers(1, 20), st.integers(1, 70)),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 2, 3)]),
    layout=st.sampled_from(["NHWC", "NCHW"]),
    threads=st.integers(1, 5),
)
def test_any_shape_is_exact_on_any_number_of_threads(n, image, channels, taps, strides, padding, layout, threads):
    problem = Problem(
        n=n, h=image[0], w=image[1], c=channels[0], k=channels[1], r=taps[0], s=taps[1], strides=strides,
        padding=padding, layout=layout,
    )  # fmt: skip
    assume(all(axis[1] > 0 for axis in problem.axes))
    operands = random_integers(OP.shapes(problem), np.float32, seed=image[1])
    expected = OP.expect(problem, *operands)
    got = implicit(OP, problem, *operands, num_threads=threads)
    assert_exact(got, expected, label=f"{problem} {threads}", mostly_zero_ok=True)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_infinities_of_pixels_outside_go_nowhere(layout, level):
    problem = replace(OUTSIDE, layout=layout)
    for dtype in own_dtypes(OP):
        x, dy = random_integers(OP.shapes(problem), dtype_named(dtype), seed=12)
        first = dy[:, 0, 0] if layout == "NHWC" else dy[:, :, 0, 0]
        first[...] = 0
        expected = implicit(OP, problem, x, dy)
        first[...] = np.inf
        np.testing.assert_array_equal(implicit(OP, problem, x, dy), expected)
        first[...] = 0
        x.flat[0] = np.inf
        got = np.isfinite(implicit(OP, problem, x, dy).astype(np.float64))
        assert got.any() and not got.all(), dtype


@pytest.mark.parametrize("problem", CASES)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
def test_infinities_go_only_where_their_products_go(problem, value, at):
    operands = random_normal(OP.shapes(problem), np.float64, seed=11)
    operands[at].flat[operands[at].size // 2] = value
    with np.errstate(invalid="ignore"):
        expected = OP.expect(problem, *operands).value
    np.testing.assert_allclose(implicit(OP, problem, *operands), expected, rtol=1e-9, atol=1e-9)
