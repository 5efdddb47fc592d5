"""Few channels of a result, of which a block of pixels is multiplied as one by tiles: bfloat16 where the CPU has them, everything else beside. Patches in planes,
which all levels and types fold."""

import numpy as np
import pytest
from checks import (
    besides_col2im,
    check_edge,
    check_integers,
    check_random,
    check_spread,
    check_threads,
    own_dtypes,
    running,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from problems import exact_case, rounded_case

from gradops.testing import OPS, Problem, assert_close, assert_exact, dtype_named, random_integers

INPUT, OUTPUT = OPS["conv2d_backprop_input"], OPS["conv2d"]
BFLOAT16 = dtype_named("bfloat16")
INPUTS = [
    Problem(n=2, h=28, w=40, c=3, k=64, r=3, s=3, padding="SAME"),
    Problem(n=2, h=27, w=39, c=3, k=64, r=7, s=7, strides=(2, 2), padding="SAME"),  # blocks cut at both borders
    Problem(n=2, h=36, w=48, c=3, k=32, r=4, s=4, strides=(4, 4)),  # 48 channels of a block
    Problem(n=2, h=33, w=61, c=6, k=64, r=7, s=7, strides=(2, 2), padding="SAME"),  # 24 of them
    Problem(n=3, h=24, w=24, c=2, k=33, r=3, s=3, padding="SAME"),  # no pairs of channels
    Problem(n=2, h=24, w=26, c=1, k=48, r=5, s=5, padding="SAME"),  # taps that fill no steps
    Problem(n=2, h=64, w=64, c=3, k=24, r=11, s=11, strides=(4, 4)),
    Problem(n=2, h=33, w=30, c=8, k=32, r=3, s=5, strides=(1, 2), padding="SAME"),
    Problem(n=1, h=50, w=20, c=4, k=40, r=5, s=2, strides=(2, 1), padding=(3, 0, 1, 2)),
    Problem(n=2, h=30, w=31, c=5, k=16, r=2, s=2, padding=(1, 0, 0, 1)),
    Problem(n=1, h=3, w=300, c=3, k=32, r=3, s=3, padding="SAME"),  # rows longer than a block
    Problem(n=9, h=13, w=12, c=3, k=36, r=3, s=3, padding="SAME"),  # blocks over several images
    Problem(n=1, h=40, w=50, c=3, k=700, r=3, s=3, padding="SAME"),  # passes, of fewer pixels of planes
    Problem(n=2, h=30, w=30, c=3, k=32, r=3, s=3, dilations=(2, 1), padding="SAME"),
    Problem(n=2, h=29, w=31, c=3, k=20, r=5, s=5, strides=(3, 3), padding="SAME"),
    Problem(n=1, h=20, w=20, c=3, k=32, r=2, s=2, dilations=(1 << 29, 1 << 29), padding=(1 << 29, 0, 1 << 29, 0)),
]
OUTPUTS = [
    Problem(n=2, h=28, w=40, c=64, k=3, r=3, s=3, padding="SAME"),
    Problem(n=2, h=30, w=31, c=48, k=1, r=5, s=5, padding=(1, 0, 2, 1)),
    Problem(n=1, h=25, w=33, c=34, k=5, r=9, s=3, padding=(0, 3, 4, 1)),
    Problem(n=2, h=41, w=40, c=32, k=2, r=5, s=5, strides=(2, 2), padding="SAME"),
]
CASES = [
    pytest.param(op, Problem.parse(f"{str(base)[:-5]}_{layout}"), id=f"{op}-{base}-{layout}")
    for op, bases in ((INPUT, INPUTS), (OUTPUT, OUTPUTS))
    for base in bases
    for layout in ("nhwc", "nchw")
]
PATCHES = [  # side by side in planes, all of whose numbers are products at once
    Problem(n=3, h=64, w=80, c=3, k=34, r=16, s=16, strides=(16, 16), layout="NCHW"),
    Problem(n=2, h=56, w=70, c=3, k=64, r=14, s=14, strides=(14, 14), layout="NCHW"),
    Problem(n=8, h=32, w=32, c=5, k=24, r=4, s=8, strides=(4, 8), layout="NCHW"),
    Problem(n=9, h=24, w=40, c=2, k=101, r=8, s=5, strides=(8, 5), layout="NCHW"),  # no pairs of channels
    Problem(n=2, h=64, w=64, c=4, k=520, r=16, s=16, strides=(16, 16), layout="NCHW"),  # the most, in two passes
    Problem(n=1, h=20, w=16, c=37, k=17, r=5, s=4, strides=(5, 4), layout="NCHW"),  # few patches
    Problem(n=1, h=8, w=128, c=2, k=9, r=4, s=64, strides=(4, 64), layout="NCHW"),  # the longest runs
    Problem(n=2, h=24, w=1, c=3, k=6, r=8, s=1, strides=(8, 1), layout="NCHW"),  # which one column becomes
    Problem(n=3, h=18, w=44, c=12, k=40, r=2, s=2, strides=(2, 2), layout="NCHW"),  # two columns take turns
    Problem(n=2, h=23, w=31, c=16, k=37, r=2, s=2, strides=(2, 2), padding="SAME", layout="NCHW"),  # cut
    Problem(n=2, h=30, w=50, c=65, k=520, r=3, s=2, strides=(3, 2), layout="NCHW"),  # in two passes
    Problem(n=1, h=7, w=600, c=33, k=8, r=1, s=2, strides=(1, 2), layout="NCHW"),  # rows longer than a block
]
conv = running("conv")


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_small_integers_give_exact_results(op, problem, level):
    operands, expected = exact_case(op, problem, "bfloat16")
    for threads in 1, 3:
        got = conv(op, problem, *operands, num_threads=threads)
        assert_exact(got, expected, label=f"{op} {problem} {threads}")


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_random_numbers_lie_within_the_rounding_error_with_any_threads(op, problem, level):
    operands, expected = rounded_case(op, problem, "bfloat16")
    assert_close(conv(op, problem, *operands), expected, label=str(problem))
    check_threads(conv, op, problem, "bfloat16")


@pytest.mark.parametrize(("op", "problem"), CASES)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
def test_infinities_go_only_where_their_products_go(op, problem, value, at):
    first = (at == 0) == (op is INPUT)  # of the filter the first tap, which some pixels do not have
    place = (lambda size: 0) if first else (lambda size: size // 2)
    got, expected, finite = check_spread(conv, op, problem, "bfloat16", value, at, place)
    np.testing.assert_allclose(got[finite], expected[finite], rtol=2**-7, atol=2**-7)


@given(
    n=st.integers(1, 3),
    image=st.tuples(st.integers(4, 40), st.integers(8, 70)),
    channels=st.tuples(st.integers(1, 8), st.integers(1, 70)),
    taps=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (5, 2, 2, 3)]),
    layout=st.sampled_from(["NHWC", "NCHW"]),
)
def test_any_shape_is_exact(n, image, channels, taps, strides, padding, layout):
    problem = Problem(
        n=n, h=image[0], w=image[1], c=channels[0], k=channels[1], r=taps[0], s=taps[1], strides=strides,
        padding=padding, layout=layout,
    )  # fmt: skip
    assume(all(axis[1] > 0 for axis in problem.axes))
    operands = random_integers(INPUT.shapes(problem), BFLOAT16, seed=image[1])
    expected = INPUT.expect(problem, *operands)
    assert_exact(conv(INPUT, problem, *operands, num_threads=2), expected, label=str(problem), mostly_zero_ok=True)


@pytest.mark.parametrize(("op", "problem"), CASES[:4])
def test_nothing_is_read_beyond_an_operand(op, problem, level, at_the_edge):
    check_edge(conv, op, problem, "bfloat16", at_the_edge)


@pytest.mark.parametrize("problem", PATCHES, ids=str)
def test_patches_in_planes_are_exact(problem, level):
    check_integers(conv, INPUT, problem)
    check_random(conv, INPUT, problem)
    for dtype in own_dtypes(INPUT):
        check_threads(conv, INPUT, problem, dtype)


@pytest.mark.parametrize("at", [0, 1], ids=["filter", "out_backprop"])
@pytest.mark.parametrize("problem", PATCHES, ids=str)
def test_infinities_of_patches_go_only_where_their_products_go(problem, at, level):
    for dtype in own_dtypes(INPUT):
        _, _, finite = check_spread(conv, INPUT, problem, dtype, np.inf, at, lambda size: size // 2)
        assert not finite.all()


@pytest.mark.parametrize("problem", PATCHES, ids=str)
def test_nothing_is_read_beyond_an_operand_of_patches(problem, level, at_the_edge):
    for dtype in own_dtypes(INPUT):
        check_edge(conv, INPUT, problem, dtype, at_the_edge)


@given(problem=st.data())
def test_any_patches_in_planes_are_exact(problem):
    draw = problem.draw
    (r, s), (u, v) = (
        draw(st.tuples(*[st.integers(1, most)] * 2), label=name) for name, most in (("taps", 9), ("patches", 7))
    )
    n, c, k = draw(st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 40)), label="channels")
    some = Problem(n=n, h=r * u, w=s * v, c=c, k=k, r=r, s=s, strides=(r, s), layout="NCHW")
    check_integers(conv, INPUT, some)


def test_long_rows_of_patches_in_planes_are_left_to_it():
    def first(halves=False, **changed):
        given = {"h": 224, "w": 224, "c": 3, "k": 96, "r": 8, "s": 8, "strides": (8, 8), "layout": "NCHW"} | changed
        return besides_col2im(INPUT, Problem(**given), halves)[0]

    assert first() == first(halves=True) == first(s=16, strides=(8, 16)) == "conv"
    for short in {"s": 4, "strides": (8, 4)}, {"h": 230}, {"w": 225}, {"h": 192, "r": 64, "strides": (64, 8)}:
        assert first(**short) == "stem"
    assert first(h=16, w=8) == "conv" and first(h=8, w=8) == first(n=9, h=8, w=8) == "gemv"
