"""`conv` where several taps read rows that are copied once: such bands, and sheets of planes, in all their shapes."""

from dataclasses import replace

import numpy as np
import pytest
from checks import check_edge, check_integers, check_random, check_spread, check_threads, own_dtypes, running
from hypothesis import example, given
from hypothesis import strategies as st
from problems import exact_case

import gradops
from gradops._dispatch import PARTIAL
from gradops._problem import LONGEST_COUNTED_AXIS
from gradops.testing import OPS, Problem, assert_exact, forced, random_integers


def planes(**sizes):
    """Channels first, padded for as many outputs as inputs unless said otherwise."""
    return Problem(**{"padding": "SAME", "layout": "NCHW"} | sizes)


DENSE = [OPS["conv2d"], OPS["conv2d_backprop_input"], OPS["conv2d_backprop_filter"]]
PROBLEMS = [
    Problem(n=3, h=7, w=9, c=16, k=16, padding="SAME"),  # several images in a block
    Problem(n=1, h=3, w=150, c=8, k=6, padding="SAME"),  # rows longer than a block
    Problem(n=2, h=5, w=6, c=24, k=34, r=5, s=5, padding="SAME"),  # taps cut where a pass ends
    Problem(n=1, h=9, w=8, c=170, k=4, padding="SAME"),  # the most channels, in three passes
    Problem(n=1, h=9, w=8, c=4, k=170, padding="SAME"),
    Problem(n=2, h=19, w=23, c=12, k=20, strides=(2, 3)),
    Problem(n=2, h=17, w=17, c=9, k=12, strides=(2, 2)),  # half a vector of every second pixel, without a border
    Problem(n=2, h=17, w=13, c=8, k=12, dilations=(3, 2), padding="SAME"),
    Problem(n=1, h=13, w=14, c=8, k=8, r=4, s=2, strides=(3, 2), dilations=(2, 3), padding=(1, 2, 0, 3)),
    Problem(n=1, h=3, w=7, c=6, k=5, r=7, s=9, padding="SAME"),  # taps that lie outside of all pixels
    Problem(n=1, h=13, w=13, c=2, k=16, r=13, s=13, padding="SAME"),  # more taps than a pass keeps
    Problem(n=2, h=1, w=20, c=10, k=7, r=1, s=4),
    Problem(n=2, h=20, w=7, c=10, k=7, r=4, s=1),
    Problem(n=2, h=8, w=8, c=48, k=96, groups=3, padding="SAME"),
    Problem(n=5, h=13, w=14, c=32, k=64, groups=4, strides=(2, 2), padding="SAME"),  # phases share a band of images
    Problem(n=1, h=7, w=13, c=148, k=222, groups=37, r=4, strides=(2, 2)),  # groups that several blocks have
    Problem(n=1, h=5, w=290, c=8, k=6, strides=(3, 2), padding="SAME"),
    Problem(n=3, h=50, w=14, c=8, k=120, strides=(2, 2), dilations=(25, 1), padding="SAME"),  # the longest band
    Problem(n=3, h=50, w=14, c=8, k=120, strides=(2, 2), dilations=(27, 1), padding="SAME"),  # phases with one each
    Problem(
        n=2, h=14, w=42, c=16, k=170, s=6, strides=(1, 2), dilations=(6, 1), padding="SAME"
    ),  # a band that some passes would have
    Problem(n=9, h=7, w=8, c=10, k=35, padding="SAME"),  # bands over several images and spans
    Problem(n=1, h=4, w=700, c=3, k=16, r=3, s=5, strides=(1, 2), padding="SAME"),  # parts of rows, one after the other
    Problem(n=2, h=40, w=21, c=64, k=17, padding="SAME"),  # bands that fill the first cache
    Problem(n=2, h=25, w=9, c=24, k=20, dilations=(8, 1), padding="SAME"),  # more rows than taps read
    Problem(n=3, h=7, w=7, c=200, k=32, padding="SAME"),  # pairs of one band for all passes
    Problem(n=2, h=9, w=14, c=128, k=288, padding="SAME"),  # channels chunk by chunk, 2 of 64 and 9 of 32
    Problem(n=2, h=5, w=28, c=32, k=40, padding="SAME"),  # rows of two tiles, and of three
    Problem(n=1, h=11, w=33, c=40, k=32, padding="SAME"),
    Problem(n=2, h=6, w=15, c=256, k=256, groups=2, strides=(1, 2), padding="SAME"),
    Problem(n=2, h=9, w=15, c=76, k=34, r=4, s=3, strides=(2, 1), dilations=(2, 1), padding="SAME"),
    Problem(n=2, h=16, w=16, c=40, k=16, r=9, s=9),  # rows of which some passes have no tap
    Problem(n=3, h=7, w=7, c=24, k=48, r=11, s=11, padding="SAME"),
]
LAST = [  # whose channels come last
    Problem(n=1, h=4, w=36, c=600, k=20, padding="SAME"),  # passes of a row of taps, which some tiles need not
    Problem(n=2, h=3, w=330, c=128, k=64, padding="SAME"),  # strips of long rows, with chunks or without
    Problem(n=1, h=4, w=300, c=38, k=41, padding="SAME"),
    Problem(n=2, h=11, w=70, c=48, k=40, r=5, padding="SAME"),  # bands that slide down images, with chunks or without
    Problem(n=1, h=12, w=130, c=128, k=32, padding="SAME"),
    Problem(n=1, h=15, w=150, c=16, k=64, strides=(2, 2)),
    Problem(n=2, h=9, w=15, c=37, k=41, padding="SAME"),  # odd channels, which tiles make even
    Problem(n=2, h=7, w=19, c=51, k=57, groups=3, dilations=(2, 1), padding="SAME"),
    Problem(n=3, h=9, w=28, c=35, k=33, strides=(2, 2), padding="SAME"),
    Problem(n=2, h=9, w=31, c=3, k=40, padding="SAME"),  # few channels, whose rows of taps are one tap
    Problem(n=1, h=20, w=33, c=2, k=17, r=3, s=7, strides=(2, 3), padding="SAME"),
    Problem(n=1, h=18, w=27, c=3, k=9, r=14, s=14, padding="SAME"),  # rows cut where a pass ends
    Problem(n=2, h=11, w=30, c=40, k=3, padding="SAME"),
    Problem(n=2, h=16, w=26, c=24, k=3, r=6, s=6, strides=(2, 2), padding="SAME"),  # phases share a band
    Problem(n=1, h=15, w=22, c=33, k=2, r=3, s=4, dilations=(2, 1), padding="SAME"),
]
LONGEST = Problem(
    n=30, h=61, w=8, c=16, k=17, dilations=(30, 1)
)  # an image for each row of pixels: all that a band may be
PLANES = [
    *(replace(problem, layout="NCHW") for problem in PROBLEMS),
    Problem(n=3, h=15, w=13, c=32, k=48, r=4, s=4, strides=(2, 2), padding="SAME", layout="NCHW"),  # phases in turns
    Problem(n=1, h=6, w=290, c=16, k=32, strides=(1, 2), padding="SAME", layout="NCHW"),  # parts of rows of phases
    Problem(n=2, h=11, w=9, c=64, k=32, r=5, s=5, padding="SAME", layout="NCHW"),  # passes whose sums meet
    Problem(n=2, h=9, w=13, c=176, k=176, groups=11, padding="SAME", layout="NCHW"),  # groups that two blocks have
    Problem(n=2, h=13, w=15, c=176, k=176, groups=11, strides=(2, 2), padding="SAME", layout="NCHW"),  # and phases
    Problem(n=1, h=3, w=150, c=16, k=17, r=2, s=3, padding="SAME", layout="NCHW"),  # rows longer than a block
    Problem(n=2, h=13, w=100, c=32, k=64, padding="SAME", layout="NCHW"),  # bands that slide
    Problem(n=1, h=9, w=270, c=64, k=48, padding="SAME", layout="NCHW"),
    planes(n=2, h=41, w=43, c=64, k=32, r=5, s=5, strides=(4, 4)),  # room for fewer pixels than else,
    planes(n=1, h=21, w=99, c=48, k=17, r=5, s=4, strides=(3, 4)),
    planes(n=1, h=31, w=73, c=64, k=33, r=9, strides=(5, 3)),  # or for too few
]
SHEETS = [  # of planes, or pairs of them
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
SUMMED = [  # of x, for the gradient of the filter: dots,
    planes(n=3, h=18, w=32, c=16, k=37),
    planes(n=2, h=31, w=21, c=9, k=20, r=5, s=5),  # several images a row
    planes(n=5, h=11, w=13, c=12, k=20, padding="VALID"),  # without zeros to share
    planes(n=2, h=40, w=70, c=20, k=5),  # several passes an image, not of as many rows
    planes(n=1, h=29, w=31, c=50, k=3),  # fewer channels of dy than a tile has
    planes(n=2, h=20, w=18, c=9, k=1),
    planes(n=1, h=1, w=1000, c=12, k=129, r=1, s=9),  # two blocks of channels of dy
    planes(n=2, h=19, w=21, c=13, k=37, dilations=(2, 3)),
    planes(n=2, h=33, w=35, c=35, k=38, r=3, s=5, strides=(2, 3)),  # phases
    planes(n=3, h=33, w=35, c=30, k=19, strides=(2, 2)),
    planes(n=3, h=32, w=30, c=18, k=20, strides=(4, 1), r=2),  # phases that no tap reads
    planes(n=2, h=30, w=71, c=17, k=21, strides=(1, 4)),
    planes(n=2, h=20, w=30, c=14, k=21, padding=(1, 2, 0, 3)),
    planes(n=2, h=20, w=17, c=34, k=42, groups=2, dilations=(9, 1)),  # taps that lie outside of most rows
    planes(n=2, h=40, w=17, c=18, k=20, r=7, s=1),
    planes(n=1, h=3, w=1500, c=18, k=20),  # long rows
    planes(n=2, h=24, w=26, c=20, k=16, r=7, s=7, strides=(2, 2)),  # many taps
    planes(n=2, h=32, w=30, c=32, k=32, r=11, s=9, strides=(3, 3), groups=2, padding="VALID"),
    # and register tiles:
    planes(n=3, h=14, w=16, c=32, k=64),
    planes(n=2, h=13, w=15, c=35, k=34, padding="VALID"),  # odd rows
    planes(n=5, h=15, w=13, c=70, k=64, r=5, s=5),  # several images a pass
    planes(n=2, h=30, w=40, c=66, k=96, strides=(2, 2)),
    planes(n=2, h=29, w=70, c=33, k=64, strides=(3, 2), r=5, s=2),
    planes(n=2, h=15, w=70, c=34, k=66, strides=(1, 3), r=2, s=5),
    planes(n=2, h=19, w=44, c=64, k=300, dilations=(3, 2)),  # two blocks of channels of dy
    planes(n=3, h=12, w=48, c=128, k=128, groups=2),
    planes(n=1, h=20, w=300, c=16, k=32),
    planes(n=2, h=24, w=14, c=68, k=64, padding=(3, 0, 1, 2)),
    # and turned ones of pairs:
    Problem(n=2, h=17, w=27, c=32, k=37, padding="SAME"),
    Problem(n=1, h=19, w=70, c=75, k=64, r=3, s=2, padding="VALID"),
    Problem(n=1, h=5, w=300, c=70, k=32, r=2, s=4, padding="SAME"),  # rows turned part by part
    Problem(n=2, h=24, w=26, c=96, k=70, groups=2, dilations=(2, 3), padding="SAME"),
    Problem(n=2, h=12, w=31, c=33, k=290, padding=(0, 2, 3, 1)),
]
STRIPS = [  # of pairs of channels, which rows fall into
    Problem(n=1, h=4, w=137, c=66, k=66, padding="SAME"),
    Problem(n=2, h=5, w=170, c=64, k=70, r=5, s=4, padding=(2, 1, 0, 3)),
    Problem(n=1, h=12, w=24, c=512, k=512, padding="SAME"),  # two, since whole rows are not kept
]
CASES = [
    pytest.param(op, problem, id=f"{op}-{problem}")
    for op in DENSE
    for problem in (*PROBLEMS, *LAST, *PLANES, *([LONGEST, *SUMMED] if op.result == "filter" else [*SHEETS, *STRIPS]))
]

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
def test_the_last_of_an_odd_row_of_pixels_has_no_neighbour(value, level):
    problem = Problem(n=2, h=6, w=10, c=32, k=24, r=2, s=2)  # 9 pixels a row, of 10 columns of x
    check_spread(conv, OPS["conv2d_backprop_filter"], problem, "bfloat16", value, 0, lambda size: 9 * problem.c)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
def test_an_infinity_in_a_sheet_goes_no_farther_than_its_products(value, at, level):
    check_spread(conv, OPS["conv2d"], planes(n=2, h=9, w=10, c=32, k=24), "bfloat16", value, at, lambda size: size // 2)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("step", [1 << 16, 1 << 30, (1 << 31) - 2])
def test_a_band_may_be_longer_than_any_memory(step, layout):
    before = LONGEST_COUNTED_AXIS  # so many columns that all taps are kept, inside or not
    sides = (0, 0, 10 * step, 10 * step, before * step, before * step, 0, 0)
    x, w, dy = random_integers([(1, 2, 7, 8), (3, 3, 8, 8), (1, 18, 2 * before - 1, 8)], np.float32, seed=1)
    options = {"strides": step, "padding": "EXPLICIT", "explicit_paddings": sides, "dilations": step + 1}
    expected, dx, dw = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(w)
    for i, j in np.ndindex(2, 3):  # the only pixel that tap (i, j) meets
        expected[0, 10 - i, before - j] = x[0, i, j] @ w[i, j]
        dx[0, i, j] = dy[0, 10 - i, before - j] @ w[i, j].T
        dw[i, j] = np.outer(x[0, i, j], dy[0, 10 - i, before - j])
    if layout == "NCHW":
        x, dy, expected, dx = (np.ascontiguousarray(array.transpose(0, 3, 1, 2)) for array in (x, dy, expected, dx))
        options |= {"data_format": layout, "explicit_paddings": sides[:2] + sides[6:] + sides[2:6]}
    with forced(algorithm="conv"):
        np.testing.assert_array_equal(gradops.conv2d(x, w, **options), expected)
        np.testing.assert_array_equal(gradops.conv2d_backprop_input(x.shape, w, dy, **options), dx)
        np.testing.assert_array_equal(gradops.conv2d_backprop_filter(x, w.shape, dy, **options), dw)
    assert expected.any() and dx.any() and dw.any()


SHAPES = st.builds(
    Problem,
    n=st.integers(1, 3),
    h=st.integers(1, 12),
    w=st.integers(6, 40),
    c=st.integers(4, 40),
    k=st.integers(4, 40),
    r=st.integers(1, 4),
    s=st.integers(1, 4),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.just("SAME"),
    layout=st.sampled_from(["NHWC", "NCHW"]),
)


@given(SHAPES)
def test_random_shapes_are_exact(problem):
    for op in DENSE:
        operands, expected = exact_case(op, problem, "float32")
        assert_exact(conv(op, problem, *operands), expected, mostly_zero_ok=True)


@given(
    st.builds(
        planes,
        n=st.integers(1, 3),
        h=st.integers(1, 30),
        w=st.integers(8, 70),
        c=st.sampled_from([2, 4, 6, 16, 33]),
        k=st.sampled_from([2, 4, 6, 16, 30, 34]),
        r=st.integers(1, 5),
        s=st.integers(1, 5),
        dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    )
)
def test_random_sheets_are_exact(problem):
    for op in DENSE:
        for dtype in {"bfloat16", *own_dtypes(op)[-1:]}:
            operands, expected = exact_case(op, problem, dtype)
            assert_exact(conv(op, problem, *operands), expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=True)


@given(SHAPES, st.sampled_from([0, 1]))
@example(Problem(n=2, h=3, w=16, c=31, k=32, r=2, s=2, strides=(1, 2), padding="SAME", layout="NCHW"), 0)
def test_an_infinity_changes_nothing_but_where_its_products_go(problem, at):
    """The example's rows fall into lanes of one and two rows without their padding, which look like two phases."""
    for op in DENSE:
        operands = random_integers(op.shapes(problem), np.float32, seed=5)
        operands[at].flat[operands[at].size // 3] = np.inf
        with np.errstate(invalid="ignore"):
            expected = op.expect(problem, *operands).value
        np.testing.assert_array_equal(conv(op, problem, *operands), expected, err_msg=f"{op} {problem}")
