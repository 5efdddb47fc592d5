"""The col2im kernel: on every shape that it accepts it computes what the definition says, in the same bits however its blocks are cut."""

import numpy as np
import pytest
from checks import check_edge, check_integers, check_random, check_shape, check_special, check_threads, running
from hypothesis import assume, given
from hypothesis import strategies as st

from gradops._algorithms import Arithmetic
from gradops._algorithms.col2im import (
    FEW_GROUPS,
    FEW_LAST,
    LARGE_MULTIPLIER,
    LONE_LAST,
    LONE_ROWS,
    LONGEST_ROWS,
    MOST_NUMBERS,
    MOST_PIXELS,
    MULTIPLIER,
    SOME_GROUPS,
)
from gradops._geometry import attributes, plan
from gradops.testing import OPS, Problem, accepting

DENSE, DEPTHWISE = OPS["conv2d_backprop_input"], OPS["depthwise_conv2d_native_backprop_input"]
PROBLEMS = [
    Problem(n=1, h=4, w=5, c=3, k=7, r=1, s=1),
    Problem(n=2, h=9, w=11, c=3, k=200, r=3, s=3, padding="SAME"),  # two passes over the channels
    Problem(n=9, h=5, w=6, c=4, k=9, r=4, s=5, padding="SAME"),  # several images in a product
    Problem(n=3, h=12, w=12, c=40, k=5, r=9, s=9),  # a few pixels, channels of several blocks
    Problem(n=1, h=40, w=40, c=4, k=33, r=11, s=11, strides=(2, 2), dilations=(3, 3)),  # blocks of rows
    Problem(n=1, h=70, w=90, c=33, k=6, r=3, s=3, padding="SAME"),  # bands of rows, parts of channels
    Problem(n=2, h=64, w=37, c=16, k=3, r=3, s=3, strides=(3, 3), padding=(1, 1, 1, 1)),  # three lanes in turn
    Problem(n=2, h=33, w=50, c=5, k=4, r=4, s=4, strides=(4, 4), padding=(0, 1, 2, 3)),
    Problem(n=2, h=20, w=31, c=2, k=8, r=2, s=5, strides=(2, 2), padding="SAME"),
    Problem(n=1, h=20, w=31, c=6, k=8, r=2, s=5, strides=(5, 5), padding="SAME"),  # more lanes than are woven
    Problem(n=1, h=30, w=30, c=7, k=8, r=2, s=2, strides=(3, 3)),  # pixels in no lane
    Problem(n=4, h=13, w=13, c=16, k=24, r=3, s=3, groups=8, padding="SAME"),  # groups of a line
    Problem(n=1, h=21, w=19, c=60, k=90, r=5, s=5, groups=2, strides=(2, 1), dilations=(1, 2), padding="SAME"),
    Problem(n=2, h=7, w=5, c=17, k=8, r=3, s=3, padding=(6, 2, 2, 3)),  # taps that reach nothing
    Problem(n=3, h=16, w=20, c=8, m=3, r=3, s=3, padding="SAME"),
    Problem(n=1, h=64, w=48, c=17, m=1, r=3, s=3, strides=(3, 3), padding="SAME"),
    Problem(n=2, h=20, w=17, c=5, m=8, r=7, s=7, dilations=(3, 2), padding=(9, 9, 3, 3)),
]


def op_of(problem):
    return DENSE if problem.m is None else DEPTHWISE


CASES = [Problem.parse(f"{str(base)[:-5]}_{layout}") for base in PROBLEMS for layout in ("nhwc", "nchw")]
every_case = pytest.mark.parametrize("problem", CASES, ids=str)
col2im = running("col2im")


@every_case
def test_all_are_accepted(problem):
    assert "col2im" in accepting(op_of(problem), problem)


@every_case
def test_small_integers_give_exact_results(problem, whole_level):
    check_integers(col2im, op_of(problem), problem)


@every_case
def test_random_numbers_lie_within_the_rounding_error(problem, whole_level):
    check_random(col2im, op_of(problem), problem)


@every_case
def test_threads_do_not_change_a_bit(problem):
    check_threads(col2im, op_of(problem), problem)


@every_case
def test_nothing_is_read_beyond_the_last_element(problem, whole_level, at_the_edge):
    for dtype in "float32", "bfloat16":
        check_edge(col2im, op_of(problem), problem, dtype, at_the_edge)


@given(
    n=st.integers(1, 9),
    image=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4)),
    depthwise=st.booleans(),
    taps=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    strides=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 2, 3)]),
    layout=st.sampled_from(["NHWC", "NCHW"]),
    dtype=st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
)
def test_any_shape(n, image, channels, depthwise, taps, strides, dilations, padding, layout, dtype):
    c, k, groups = channels
    size = {"m": groups, "c": c} if depthwise else {"c": c * groups, "k": k * groups, "groups": groups}
    problem = Problem(
        n=n, h=image[0], w=image[1], r=taps[0], s=taps[1], strides=strides, dilations=dilations, padding=padding, layout=layout, **size
    )  # fmt: skip
    op = op_of(problem)
    assume(all(axis[1] > 0 for axis in problem.axes) and "col2im" in accepting(op, problem))
    check_shape(col2im, op, problem, dtype)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_infinities_spread_no_farther_than_elsewhere(value, at, layout, level):
    problem = Problem(n=2, h=12, w=13, c=3, k=4, r=3, s=3, strides=(2, 2), padding="SAME", layout=layout)
    check_special(col2im, DENSE, problem, value, at)


def first_of(arithmetic=Arithmetic.FLOATS, op="conv2d_backprop_input", **sizes):
    problem = Problem(**({"layout": "NCHW"} | sizes))
    given_attributes = attributes(problem.strides, problem.padding, (), problem.layout, problem.dilations)
    known = plan(op, problem.input_shape, problem.filter_shape, problem.output_shape, given_attributes)
    return known.algorithms[arithmetic][0]


def test_it_is_taken_where_most_taps_have_no_place():
    large = {"n": 4, "h": 28, "w": 28, "c": 48, "k": 256, "r": 9, "s": 9, "dilations": (2, 2)}
    assert first_of(**large) == first_of(**large, layout="NHWC") == "col2im"
    assert first_of(Arithmetic.PAIRS, **large) == "col2im" != first_of(Arithmetic.TILES, **large)
    assert first_of(**large | {"padding": "SAME"}) == "conv"


def test_it_is_taken_for_few_channels_and_short_rows():
    assert first_of(n=8, h=14, w=14, c=3, k=64) == "col2im" != first_of(n=8, h=112, w=112, c=3, k=64)
    assert first_of(n=8, h=14, w=14, c=2, k=1) == "col2im" != first_of(n=8, h=14, w=14, c=3, k=1)
    many = {"n": 8, "h": 14, "w": 14, "k": 256, "r": 9, "s": 9, "padding": "SAME"}
    assert first_of(**many, c=32) == "col2im" != first_of(**many, c=33)


def test_patches_side_by_side_are_left_to_the_gemm():
    patches = {"n": 2, "h": 224, "w": 224, "c": 3, "k": 768, "r": 16, "s": 16, "strides": (16, 16)}
    assert first_of(**patches) == first_of(**patches, layout="NHWC") == "conv"
    assert first_of(**patches | {"strides": (15, 15)}) == "col2im"


def test_it_is_taken_for_groups_whose_pixels_have_few_taps():
    def taken(channels, layout="NHWC", **options):
        sizes = {"n": 4, "h": 80, "w": 80, "c": 8 * channels, "k": 48, "r": 3, "s": 3, "groups": 8, "layout": layout}
        return first_of(**sizes | {"strides": (2, 2)} | options) == "col2im"

    assert taken(LONE_LAST) and not taken(LONE_LAST + 1) and not taken(LONE_LAST, "NCHW")
    assert not taken(LONE_LAST, strides=(1, 1)) and not taken(LONE_LAST, r=5)
    for layout in "NHWC", "NCHW":
        rows = {"h": 3 * LONE_ROWS, "w": 3 * LONE_ROWS, "strides": (3, 3)}
        assert taken(FEW_LAST, layout, **rows) and not taken(FEW_LAST + 1, layout, **rows)
        assert taken(FEW_LAST, layout, **rows | {"w": 3 * LONE_ROWS + 3}) == (layout == "NHWC")
        assert taken(FEW_LAST, layout, **rows, r=1, s=1) == (layout == "NHWC")


def test_it_is_taken_for_multipliers():
    op = "depthwise_conv2d_native_backprop_input"
    few = {"n": 2, "h": 64, "w": 64, "c": 24, "strides": (3, 3), "padding": "SAME"}
    assert first_of(op=op, **few, m=3) == "col2im" != first_of(op=op, **few, m=2)
    last = few | {"layout": "NHWC"}
    assert first_of(op=op, **last, m=MULTIPLIER) == "col2im" != first_of(op=op, **last, m=MULTIPLIER - 1)
    one_tap = few | {"m": 1, "r": 5, "s": 5, "strides": (5, 5)}
    assert (
        first_of(op=op, **one_tap | {"h": 220, "w": 220})
        == "col2im"
        != first_of(op=op, **one_tap | {"h": 190, "w": 190})
    )
    many = few | {"h": 28, "w": 28, "c": 25, "r": 7, "s": 7}
    assert first_of(op=op, **many, m=LARGE_MULTIPLIER) == "col2im" != first_of(op=op, **many, m=LARGE_MULTIPLIER - 1)
    last = {"n": 2, "h": 30, "w": 30, "c": 30, "padding": "SAME", "layout": "NHWC"}
    some, one = last | {"r": 5, "s": 5, "strides": (2, 2)}, last | {"r": 1, "s": 1}
    for sizes, least in (last, 2 * LARGE_MULTIPLIER), (some, LARGE_MULTIPLIER), (one, LARGE_MULTIPLIER):
        assert first_of(op=op, **sizes, m=least) == "col2im" != first_of(op=op, **sizes, m=least - 1)
    assert first_of(op=op, **few | {"strides": (1, 1), "dilations": (3, 3)}, m=2) == "col2im"
    for layout in "NHWC", "NCHW":
        some = {"n": 2, "h": 30, "w": 30, "r": 5, "s": 5, "strides": (2, 2), "padding": "SAME", "layout": layout}
        most = FEW_GROUPS if layout == "NHWC" else SOME_GROUPS
        assert first_of(op=op, **some, c=most, m=MULTIPLIER) == "col2im" != first_of(op=op, **some, c=25, m=MULTIPLIER)
        assert first_of(op=op, **some, c=most, m=MULTIPLIER - 1) != "col2im"
    short = {"n": 2, "h": 6, "w": 6, "c": 32, "padding": "VALID"}
    assert first_of(op=op, **short, m=LARGE_MULTIPLIER) == "col2im" != first_of(op=op, **short, m=LARGE_MULTIPLIER - 1)
    beside_stem = {"n": 2, "c": 3, "m": 8, "strides": (2, 2), "padding": "SAME"}
    for size, name in (2 * LONGEST_ROWS, "col2im"), (2 * LONGEST_ROWS + 2, "stem"):
        assert first_of(op=op, **beside_stem, h=size, w=size) == name


def test_what_it_would_have_to_keep_has_an_end():
    row = {"n": 1, "h": 1, "c": 1, "k": 2, "r": 1, "s": 2}
    assert "col2im" in accepting(DENSE, Problem(**row, w=MOST_PIXELS + 1))
    assert "col2im" not in accepting(DENSE, Problem(**row, w=MOST_PIXELS + 2))
    assert "col2im" not in accepting(DENSE, Problem(**row, w=MOST_NUMBERS, strides=(1, 40)))
