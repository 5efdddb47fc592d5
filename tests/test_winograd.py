"""Winograd's F(2x2, 3x3): on every shape that it accepts it computes what the definition says, and infinities spread no further."""

from dataclasses import replace

import numpy as np
import pytest
from checks import besides_col2im, check_threads, running
from hypothesis import given
from hypothesis import strategies as st
from problems import exact_case, rounded_case

from gradops._algorithms import ALGORITHMS
from gradops._algorithms.task import MOST_SHEET_SLOTS
from gradops._algorithms.winograd import LEAST_SHEET_ROW, MOST_SUMMED_PIXELS, MOST_TAPS
from gradops._dispatch import PARTIAL
from gradops.testing import (
    OPS,
    Problem,
    accepting,
    assert_close,
    assert_exact,
    dtype_named,
    forced,
    random_integers,
    random_normal,
)

winograd = running("winograd")
DENSE = [op for op in OPS.values() if op.kind == "dense"]
PROBLEMS = [
    Problem(n=1, h=1, w=1, c=2, k=3, padding="SAME"),
    Problem(n=2, h=7, w=7, c=33, k=40, padding="SAME"),
    Problem(n=1, h=9, w=11, c=130, k=20),
    Problem(n=2, h=13, w=8, c=17, k=70, padding=(1, 2, 0, 3), dilations=(2, 3)),
    Problem(n=2, h=20, w=33, c=32, k=48, padding="SAME", groups=2),
    Problem(n=3, h=4, w=3, c=5, k=6, padding=(4, 0, 3, 5)),
    Problem(n=1, h=5, w=46, c=3, k=130, padding="SAME", dilations=(2, 1)),
    Problem(n=1, h=3, w=70, c=64, k=65, padding="SAME"),
    Problem(n=2, h=15, w=33, c=33, k=40, padding="SAME", strides=(2, 2)),
    Problem(n=2, h=16, w=12, c=20, k=70, r=4, s=5, padding=(1, 1, 2, 2), strides=(2, 2)),
    Problem(n=1, h=13, w=70, c=70, k=33, r=6, s=3, padding=(2, 3, 1, 0), strides=(2, 2)),
    Problem(n=2, h=9, w=31, c=17, k=34, r=3, s=6, padding=(2, 0, 4, 1), strides=(1, 2)),
    Problem(n=2, h=20, w=9, c=34, k=48, r=5, s=2, strides=(2, 1), groups=2),
    Problem(n=1, h=9, w=33, c=40, k=33, r=2, s=2, padding="SAME"),
    Problem(n=2, h=11, w=20, c=35, k=20, r=5, s=5, padding="SAME"),
    Problem(n=1, h=14, w=15, c=66, k=40, r=7, s=4, padding=(3, 3, 0, 2)),
    Problem(n=2, h=9, w=40, c=34, k=66, r=1, s=6, padding="SAME", groups=2),
]
CASES = [
    pytest.param(op, Problem.parse(f"{str(problem)[:-5]}_{layout}"), id=f"{op}-{str(problem)[:-5]}_{layout}")
    for op in DENSE
    for problem in PROBLEMS
    for layout in ("nhwc", "nchw")
]


def by_the_scale(expected):
    """Bound errors by the largest sum of magnitudes: a tile mixes its pixels, so that each errs like the largest of them."""
    return expected._replace(absolute=np.full_like(expected.absolute, expected.absolute.max(initial=0)))


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_small_integers_give_exact_results(op, problem, whole_level):
    assert "winograd" in accepting(op, problem)
    for dtype in op.dtypes:
        operands, expected = exact_case(op, problem, dtype)
        got = winograd(op, problem, *operands)
        assert got.dtype == dtype_named(dtype)
        assert_exact(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=problem.h < 5)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_random_numbers_lie_within_the_rounding_error(op, problem, whole_level):
    for dtype in op.dtypes:
        operands, expected = rounded_case(op, problem, dtype)
        assert_close(
            winograd(op, problem, *operands),
            by_the_scale(expected),
            label=f"{op} {problem} {dtype}",
            mostly_zero_ok=True,
        )


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_threads_do_not_change_a_bit(op, problem):
    check_threads(winograd, op, problem)


@pytest.mark.parametrize("op", DENSE, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_every_channel_count(op, dtype, layout, whole_level):
    for channels in (*range(1, 20), 31, 32, 33, 63, 64, 65, 127, 128, 129):
        for c, k in ((channels, 5), (3, channels), (channels, channels)):
            problem = Problem(h=4, w=5, c=c, k=k, padding="SAME", layout=layout)
            operands, expected = exact_case(op, problem, dtype)
            got = winograd(op, problem, *operands)
            assert_exact(got, expected, label=f"{op} {problem} {dtype}")


@st.composite
def accepted(draw):
    """Draw filters and steps that the algorithm accepts, and paddings that leave outputs."""
    steps = draw(st.sampled_from(["strides", "dilations", "neither"]))
    strides = draw(st.sampled_from([(2, 2), (1, 2), (2, 1)])) if steps == "strides" else (1, 1)
    dilations = draw(st.tuples(st.integers(1, 4), st.integers(1, 4))) if steps == "dilations" else (1, 1)
    most = 3 if steps != "neither" else MOST_TAPS
    r, s = (draw(st.integers(3, 5) if stride == 2 else st.integers(1, most)) for stride in strides)
    padding = draw(st.sampled_from(["SAME", (0, 3, 2, 2), (2, 2, 5, 2), (6, 2, 2, 3)]))
    if padding != "SAME":
        padding = tuple(side + reach for side, reach in zip(padding, np.repeat(dilations, 2).tolist(), strict=True))
        padding = (padding[0], padding[1] + r, padding[2], padding[3] + s)
    return {"r": r, "s": s, "strides": strides, "dilations": dilations, "padding": padding}


@given(
    op=st.sampled_from(DENSE),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 70)),
    options=accepted(),
    layout=st.sampled_from(["NHWC", "NCHW"]),
)
def test_any_shape(op, sizes, options, layout):
    n, h, w, c, k = sizes
    problem = Problem(n=n, h=h, w=w, c=c, k=k, layout=layout, **options)
    assert ("winograd" in accepting(op, problem)) == (options["r"] * options["s"] > 1)
    operands = random_integers(op.shapes(problem), np.float64, seed=h)
    expected = op.expect(problem, *operands)
    got = winograd(op, problem, *(operand.astype(np.float32) for operand in operands))
    assert_exact(got, expected, label=f"{op} {problem}", mostly_zero_ok=True)


@pytest.mark.parametrize("op", DENSE, ids=str)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("options", [{}, {"strides": (2, 2)}, {"r": 5, "s": 5}], ids=str)
def test_infinities_and_large_numbers_do_not_spread(op, value, options, whole_level):
    problem = Problem(n=1, h=9, w=9, c=16, k=17, padding="SAME", **options)
    operands = random_normal(op.shapes(problem), np.float32, seed=11)
    operands[1][tuple(size // 2 for size in operands[1].shape)] = value
    with forced(algorithm="conv"):
        expected = op(problem, *operands)
    with np.errstate(invalid="ignore"):
        got = winograd(op, problem, *operands)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)
    assert np.isfinite(expected).any()


def test_filters_of_few_pixels_are_summed_at_once():
    problem = Problem(n=1, h=4, w=MOST_SUMMED_PIXELS // 4, c=64, k=64, r=3, s=3, padding="SAME")
    more = replace(problem, w=problem.w + 1)
    for op in DENSE:
        of_filter = op.name.endswith("filter")
        assert accepting(op, problem)[0] == ("conv" if of_filter else "winograd")
        assert accepting(op, more)[0] == "winograd"


SHAPE = {"n": 17, "h": 16, "w": 16, "c": 32, "k": 32, "padding": "SAME"}


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, ("winograd", "conv")),
        ({"h": 3, "w": 3}, ("conv", "winograd")),
        ({"dilations": (2, 3)}, ("winograd", "conv")),
        ({"dilations": (8, 9)}, ("conv", "winograd")),
        ({"dilations": (2, 3), "c": 64, "k": 64, "layout": "NCHW"}, ("conv", "winograd")),
        ({"groups": 2, "c": 64, "k": 192}, ("winograd", "conv")),
        ({"c": 12, "k": 12}, ("conv", "winograd")),
        ({"groups": 2, "c": 32, "k": 32}, ("conv", "winograd")),
        ({"groups": 2, "c": 48, "k": 32}, ("winograd", "conv")),
        ({"strides": (2, 2)}, ("conv", "winograd")),
        ({"strides": (2, 2), "c": 64, "k": 64}, ("winograd", "conv")),
        ({"strides": (2, 2), "c": 64, "k": 64, "h": 14, "w": 14}, ("conv", "winograd")),
        ({"strides": (2, 2), "r": 5, "s": 5}, ("winograd", "conv")),
        ({"strides": (3, 1)}, ("conv",)),
        ({"strides": (2, 2), "r": 2}, ("conv",)),
        ({"strides": (2, 2), "r": 7}, ("conv",)),
        ({"strides": (2, 2), "dilations": (1, 2)}, ("conv",)),
        ({"s": 1}, ("conv", "winograd")),
        ({"r": 5, "s": 5}, ("winograd", "conv")),
        ({"r": 4, "s": 4, "dilations": (1, 2)}, ("conv",)),
        ({"s": MOST_TAPS}, ("winograd", "conv")),
        ({"s": MOST_TAPS + 1}, ("conv",)),
        ({"r": 1, "s": 1}, ("conv",)),
    ],
    ids=str,
)
def test_winograd_accepts_windows_of_three_taps_and_is_taken_where_products_are_saved(options, chosen):
    problem = Problem(**SHAPE | options)
    found = [accepting(op, problem) for op in DENSE]
    assert {tuple(name for name in names if name in ("conv", "winograd")) for names in found} == {chosen}
    assert set(chosen) <= set(ALGORITHMS)


@pytest.mark.parametrize("op", DENSE, ids=str)
def test_planes_that_conv_copies_once_need_filled_vectors(op):
    def taken(channels, summed=32, row=LEAST_SHEET_ROW, **options):
        sides = {"k": channels, "c": summed} if op.result == "output" else {"c": channels, "k": summed}
        sizes = {"n": 8, "h": 28, "w": row, "padding": "SAME", "layout": "NCHW"} | options
        return besides_col2im(op, Problem(**sizes, **sides))[0] == "winograd"

    assert taken(32) and taken(17, layout="NHWC") and taken(17, row=LEAST_SHEET_ROW - 2)
    assert taken(17) == (op.result == "filter")
    assert taken(17, MOST_SHEET_SLOTS // 9 + 2)


@pytest.mark.parametrize(
    "options", [{}, {"strides": (2, 2), "r": 5, "s": 5}, {"dilations": (2, 2)}, {"r": 6, "s": 6}], ids=str
)
@pytest.mark.parametrize("side", ["c", "k", "both"])
def test_more_channels_take_it_sooner_than_fewer(options, side):
    for op in DENSE:
        taken = []
        for channels in range(8, 129, 8):
            few = {"c": channels, "k": channels} if side == "both" else {side: channels}
            taken.append(besides_col2im(op, Problem(**SHAPE | {"c": 64, "k": 64} | options | few))[0] == "winograd")
        assert taken == sorted(taken) and taken[-1] and (side != "both" or not taken[0])


def test_dilated_planes_of_16_bits_take_conv():
    problem = Problem(n=2, h=64, w=64, c=256, k=256, padding="SAME", dilations=(2, 2))
    for op in DENSE:
        planes = replace(problem, layout="NCHW")
        assert [accepting(op, given, True)[0] for given in (problem, planes)] == ["winograd", "conv"]
        assert accepting(op, replace(planes, dilations=(1, 1)), True)[0] == accepting(op, planes)[0] == "winograd"


@pytest.mark.parametrize("op", DENSE, ids=str)
@pytest.mark.parametrize(("dtype", "paired"), [("bfloat16", True), ("float16", False), ("float32", False)])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_products_of_pairs_replace_winograd(op, dtype, paired, layout, level, capfd, monkeypatch):
    monkeypatch.setattr("gradops._call._VERBOSE", True)
    for channels in 16, 17, 95, 96:
        problem = Problem(h=4, w=5, c=channels, k=128, padding="SAME", layout=layout)
        op(problem, *random_integers(op.shapes(problem), dtype_named(dtype), seed=1))
        assert (" winograd_" in capfd.readouterr().err) == (not (paired and level in PARTIAL))
    dilated = Problem(n=4, h=16, w=16, c=64, k=64, padding="SAME", dilations=(2, 2), layout=layout)
    op(dilated, *random_integers(op.shapes(dilated), dtype_named(dtype), seed=2))
    assert (" winograd_" in capfd.readouterr().err) == (layout == "NHWC" and not (paired and level in PARTIAL))


def test_another_algorithm_is_forced_only_where_it_accepts():
    problem = Problem(h=9, w=9, c=4, k=4, strides=(3, 3))
    (op, *_) = DENSE
    operands, expected = exact_case(op, problem, "float32")
    assert_exact(winograd(op, problem, *operands), expected)


def test_forcing_an_unknown_algorithm_is_an_error():
    with (
        pytest.raises(ValueError, match="algorithm must be one of conv, .*winograd, .*, got 'fft'"),
        forced(algorithm="fft"),
    ):
        pytest.fail("entered")
