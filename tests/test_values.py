"""Every op, layout, dtype, padding, stride, dilation, group count and level against the naive references."""

from itertools import product

import numpy as np
import pytest
from checks import own_dtypes
from hypothesis import given
from hypothesis import strategies as st
from problems import (
    CHANNELS,
    CONVOLUTIONS,
    COVERING,
    LARGER,
    POOL_PROBLEMS,
    exact,
    exact_case,
    leaves_untouched,
    rounded_case,
    rows,
)

from gradops.testing import Problem, accepting, assert_close, assert_exact, dtype_named, forced, random_integers

TABLE = rows(COVERING | {"pool": POOL_PROBLEMS})


def check_exact(op, problem, dtype, **options):
    operands, expected = exact_case(op, problem, dtype)
    got = op(problem, *operands, **options)
    assert got.dtype == dtype_named(dtype)
    assert_exact(got, expected, mostly_zero_ok=leaves_untouched(op, problem), label=f"{op} {problem} {dtype}")


@pytest.mark.parametrize(("op", "problem"), [row for row in TABLE if row[0] in CONVOLUTIONS], ids=str)
def test_small_integers_give_exact_results(op, problem, level):
    for dtype in own_dtypes(op):
        check_exact(op, problem, dtype)


@pytest.mark.parametrize(("op", "problem"), TABLE, ids=str)
def test_random_numbers_lie_within_the_rounding_error(op, problem, level):
    for dtype in own_dtypes(op):
        operands, expected = rounded_case(op, problem, dtype)
        got = op(problem, *operands)
        assert got.dtype == dtype_named(dtype)
        assert_close(got, expected, mostly_zero_ok=leaves_untouched(op, problem), label=f"{op} {problem} {dtype}")


@pytest.mark.parametrize(("op", "problem"), rows(LARGER), ids=str)
def test_problems_of_many_tiles_lie_within_the_rounding_error(op, problem, level):
    for dtype, algorithm in product(own_dtypes(op), accepting(op, problem)):
        operands, expected = rounded_case(op, problem, dtype)
        with forced(algorithm=algorithm if op.kind != "pool" else None):
            assert_close(op(problem, *operands), expected, label=f"{op} {problem} {dtype} {algorithm}")


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_every_channel_count(op, dtype, layout, level):
    for channels in CHANNELS:
        shared = {"h": 4, "w": 3, "r": 2, "s": 2, "padding": "SAME", "layout": layout}
        if op.kind == "depthwise":
            problems = [Problem(c=channels, m=m, **shared) for m in (1, 2, 3)] + [Problem(c=3, m=channels, **shared)]
        else:
            pairs = [(channels, 5), (3, channels), (channels, channels), (channels, CHANNELS[-1])]
            problems = [Problem(c=c, k=k, **shared) for c, k in pairs]
        for problem in problems:
            check_exact(op, problem, dtype)


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_grouped_channel_counts(op, dtype, level):
    if op.kind == "depthwise":
        problems = [
            Problem(h=3, w=4, c=c, m=m, r=2, s=2) for c, m in [(1, 17), (5, 16), (16, 5), (33, 4), (7, 33), (2, 129)]
        ]
    else:
        each = [
            (2, 1, 1),
            (3, 16, 17),
            (5, 17, 16),
            (33, 1, 1),
            (16, 1, 3),
            (4, 33, 31),
            (64, 2, 1),
            (2, 1, 70),
            (3, 1, 129),
        ]
        problems = [Problem(h=3, w=4, c=g * c, k=g * k, r=2, s=2, groups=g) for g, c, k in each]
    for problem in problems:
        for layout in ("NHWC", "NCHW"):
            check_exact(op, Problem.parse(f"{str(problem)[:-5]}_{layout.lower()}"), dtype)


SIZES = [*range(1, 35), 47, 55, 56, 57, 63, 64, 65, 97, 111, 112, 113, 127, 128, 129, 223, 224, 225, 257]


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("taps", [(1, 1), (3, 3), (2, 5)], ids=str)
def test_every_image_size(op, layout, taps, level):
    channels = {"m": 1} if op.kind == "depthwise" else {"k": 3}
    for size in SIZES:
        for stride in (1, 2):
            h, w = (2, size) if size % 2 else (size, 2)
            shared = {
                "c": 2,
                "r": taps[0],
                "s": taps[1],
                "strides": (stride, stride),
                "padding": "SAME",
                "layout": layout,
            }
            check_exact(op, Problem(h=h, w=w, **channels, **shared), "float32")


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_reductions_around_the_blocks_of_256_and_512_slots(op, dtype, level):
    for r, s, c in [
        (1, 1, 255),
        (1, 1, 257),
        (1, 1, 511),
        (1, 1, 512),
        (1, 1, 513),
        (2, 4, 64),
        (3, 3, 56),
        (3, 3, 57),
        (1, 1, 1025),
        (5, 5, 21),
        (16, 32, 1),
    ]:
        if op.kind == "depthwise":
            problem = Problem(h=4, w=5, c=c, m=2, r=min(r, 5), s=min(s, 5), padding="SAME")
        else:
            outputs, inputs = (c, 9) if op.sizes == "input_sizes" else (9, c)
            problem = Problem(h=4, w=5, c=inputs, k=outputs, r=r, s=s, padding="SAME")
        check_exact(op, problem, dtype)


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
def test_filters_larger_than_the_image_and_wide_dilations(op, level):
    channels = {"m": 2} if op.kind == "depthwise" else {"k": 5}
    for taps in [(1, 9), (9, 1), (6, 7), (11, 11)]:
        for dilations in [(1, 1), (3, 1), (2, 5), (1, 40), (600, 1)]:
            for strides in [(1, 1), (2, 3), (4, 2), (7, 7)]:
                problem = Problem(
                    h=5,
                    w=4,
                    c=3,
                    r=taps[0],
                    s=taps[1],
                    dilations=dilations,
                    strides=strides,
                    padding="SAME",
                    **channels,
                )
                check_exact(op, problem, "float32")


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("padding", [(9, 0, 0, 0), (0, 9, 0, 0), (0, 0, 9, 0), (0, 0, 0, 9), (5, 6, 7, 8)], ids=str)
def test_padding_beyond_the_filter(op, padding, level):
    channels = {"m": 3} if op.kind == "depthwise" else {"k": 4}
    for layout in ("NHWC", "NCHW"):
        for strides in [(1, 1), (2, 3)]:
            check_exact(
                op,
                Problem(h=6, w=7, c=5, r=2, s=3, strides=strides, padding=padding, layout=layout, **channels),
                "float32",
            )


def sizes(largest):
    return st.integers(1, largest)


@st.composite
def convolutions(draw, kind):
    """Draw any small convolution that leaves at least one output pixel."""
    given = {"n": draw(sizes(3)), "h": draw(sizes(20)), "w": draw(sizes(20)), "r": draw(sizes(6)), "s": draw(sizes(6))}
    pairs = st.tuples(sizes(5), sizes(5))
    given |= {"strides": draw(pairs), "dilations": draw(pairs), "layout": draw(st.sampled_from(["NHWC", "NCHW"]))}
    given["padding"] = draw(st.one_of(st.sampled_from(["SAME", "VALID"]), st.tuples(*[st.integers(0, 6)] * 4)))
    if kind == "depthwise":
        problem = Problem(c=draw(sizes(40)), m=draw(sizes(5)), **given)
    else:
        groups = draw(sizes(4))
        problem = Problem(c=groups * draw(sizes(40)), k=groups * draw(sizes(40)), groups=groups, **given)
    return problem if all(axis[1] > 0 for axis in problem.axes) else draw(convolutions(kind))


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
def test_any_convolution_of_small_integers_is_exact(op, level):
    @given(
        problem=convolutions(op.kind), dtype=st.sampled_from(own_dtypes(op)), threads=sizes(4), seed=st.integers(0, 99)
    )
    def check(problem, dtype, threads, seed):
        operands = random_integers(op.shapes(problem), dtype_named(dtype), seed)
        got = op(problem, *operands, num_threads=threads)
        assert_exact(got, op.expect(problem, *operands), mostly_zero_ok=True)

    check()


def test_exact_cases_are_not_all_alike():
    results = [exact(op, problem)[1].value for op, problem in TABLE if op in CONVOLUTIONS]
    assert len({result.tobytes() for result in results}) > 0.9 * len(results)
    assert np.mean([np.count_nonzero(result) / result.size for result in results]) > 0.4
