"""The stem kernels: on every shape that they accept they compute what the definition says."""

import numpy as np
import pytest
from checks import besides_col2im, check_edge, check_integers, check_random, check_special, check_threads, running
from hypothesis import assume, given
from hypothesis import strategies as st

from gradops._algorithms import MIRRORED
from gradops._algorithms.patches import LEAST_PATCH
from gradops._algorithms.stem import (
    FEW_STEM_FILTERS,
    FEW_STEM_INPUTS,
    FEW_STEM_OUTPUTS,
    LEAST_DOT_PIXELS,
    LEAST_DOT_ROWS,
    LEAST_STEM_COLUMNS,
    LEAST_STEM_MULTIPLIER,
    LEAST_STEM_PIXELS,
    MOST_SKIPPING,
)
from gradops._dispatch import PARTIAL, TILED
from gradops.testing import (
    OPS,
    Problem,
    accepting,
    assert_exact,
    dtype_named,
    random_integers,
)

MOST = max(LEAST_STEM_COLUMNS)
GATHERS = [OPS["conv2d"], OPS["conv2d_backprop_input"]]
REDUCES = OPS["conv2d_backprop_filter"]
PROBLEMS = [
    Problem(n=2, h=20, w=24, c=3, k=16, r=7, s=7, strides=(2, 2), padding="SAME"),
    Problem(n=1, h=30, w=150, c=4, k=9, r=3, s=5, strides=(3, 2), dilations=(2, 3), padding="SAME"),
    Problem(n=1, h=9, w=300, c=1, k=2, r=5, s=5, padding="SAME"),
    Problem(n=3, h=17, w=40, c=2, k=3, r=1, s=1, strides=(2, 2)),
    Problem(n=1, h=11, w=300, c=5, k=6, r=3, s=3, strides=(1, 2), padding="SAME"),
    Problem(n=1, h=17, w=40, c=8, k=7, r=2, s=2, strides=(4, 3), padding=(1, 2, 0, 3)),
    Problem(n=2, h=17, w=40, c=6, k=8, r=3, s=3, groups=2, padding="SAME"),
    Problem(n=1, h=13, w=29, c=20, k=5, r=3, s=3, padding="SAME"),
    Problem(n=1, h=12, w=64, c=6, k=6, r=4, s=2, dilations=(3, 4), padding=(2, 9, 4, 1)),
    Problem(n=3, h=90, w=33, c=7, k=70, r=3, s=3, dilations=(2, 1), padding="SAME"),
    Problem(n=2, h=70, w=130, c=3, k=13, r=4, s=4, strides=(4, 4), padding=(0, 2, 3, 1)),
    Problem(n=2, h=40, w=56, c=90, k=5, r=3, s=5, strides=(1, 3), groups=5, padding="SAME"),
    Problem(n=2, h=9, w=30, c=140, k=210, r=3, s=3, groups=70, padding="SAME"),  # more groups than share lines
    Problem(n=1, h=5, w=40, c=2, k=11, r=7, s=1, strides=(2, 1), padding=(4, 3, 0, 0)),
]
MULTIPLIED = [
    Problem(n=2, h=20, w=70, c=3, m=8, r=3, s=3, strides=(2, 2), padding="SAME"),
    Problem(n=2, h=9, w=33, c=5, m=2, r=5, s=3, padding="SAME"),
    Problem(n=3, h=40, w=60, c=20, m=5, r=3, s=3, dilations=(1, 2), padding=(1, 1, 0, 3)),
    Problem(n=1, h=6, w=57, c=2, m=70, r=3, s=3, strides=(1, 2), padding="SAME"),
]
DEPTHWISE = [op for op in OPS.values() if op.kind == "depthwise"]
CASES = [
    pytest.param(op, problem, id=f"{op}-{problem}")
    for op in [*GATHERS, REDUCES]
    for base in PROBLEMS
    for layout in ("nhwc", "nchw")
    if "stem" in accepting(op, problem := Problem.parse(f"{str(base)[:-5]}_{layout}"))
] + [
    pytest.param(op, problem, id=f"{op}-{problem}")
    for op in DEPTHWISE
    for base in MULTIPLIED
    for layout in ("nhwc", "nchw")
    if "stem" in accepting(op, problem := Problem.parse(f"{str(base)[:-5]}_{layout}"))
]


stem = running("stem")


def test_there_are_cases_of_all_ops():
    assert {case.values[0] for case in CASES} == {*GATHERS, REDUCES, *DEPTHWISE} and len(CASES) >= 40
    assert sum(case.values[0] is REDUCES for case in CASES) >= 10


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_small_integers_give_exact_results(op, problem, whole_level):
    check_integers(stem, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_random_numbers_lie_within_the_rounding_error(op, problem, whole_level):
    check_random(stem, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_threads_do_not_change_a_bit(op, problem):
    check_threads(stem, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_nothing_is_read_beyond_the_last_element(op, problem, whole_level, at_the_edge):
    check_edge(stem, op, problem, "float32", at_the_edge)


@given(
    op=st.sampled_from(GATHERS),
    few=st.integers(1, MOST),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(1, 300), st.integers(1, 40)),
    taps=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 2, 3)]),
    layout=st.sampled_from(["NHWC", "NCHW"]),
)
def test_any_shape(op, few, sizes, taps, strides, dilations, padding, layout):
    n, h, w, many = sizes
    c, k = (few, many) if op.sizes else (many, few)
    problem = Problem(
        n=n, h=h, w=w, c=c, k=k, r=taps[0], s=taps[1], strides=strides if op.sizes else (1, 1), dilations=dilations,
        padding=padding, layout=layout,
    )  # fmt: skip
    assume(all(axis[1] > 0 for axis in problem.axes) and "stem" in accepting(op, problem))
    operands = random_integers(op.shapes(problem), np.float64, seed=h)
    expected = op.expect(problem, *operands)
    got = stem(op, problem, *(operand.astype(np.float32) for operand in operands))
    assert_exact(got, expected, label=f"{op} {problem}", mostly_zero_ok=True)


@given(
    channels=st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 3)),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(16, 80)),
    taps=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    strides=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 2, 3)]),
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
)
def test_any_shape_of_a_filter(channels, sizes, taps, strides, dilations, padding, dtype):
    c, k, groups = channels
    n, h, w = sizes
    problem = Problem(
        n=n, h=h, w=w * strides[1], c=c * groups, k=k * groups, r=taps[0], s=taps[1], strides=strides, dilations=dilations,
        groups=groups, padding=padding, layout="NCHW",
    )  # fmt: skip
    assume(all(axis[1] > 0 for axis in problem.axes) and "stem" in accepting(REDUCES, problem))
    operands = random_integers(REDUCES.shapes(problem), np.float64, seed=h)
    expected = REDUCES.expect(problem, *operands)
    got = stem(REDUCES, problem, *(operand.astype(dtype_named(dtype)) for operand in operands))
    assert_exact(got, expected, label=f"{problem} {dtype}", mostly_zero_ok=True)


@pytest.mark.parametrize("op", [*GATHERS, REDUCES], ids=str)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
def test_infinities_do_not_spread(op, value, at, whole_level):
    layout = "NCHW" if op is REDUCES else "NHWC"
    problem = Problem(n=1, h=9, w=30, c=3, k=4, r=5, s=5, padding="SAME", layout=layout)
    check_special(stem, op, problem, value, at)


PATCHES = {"h": 16, "w": 32, "r": 4, "s": 4, "strides": (4, 4)}


@pytest.mark.parametrize(
    ("options", "ops"),
    [
        ({}, {"conv2d_backprop_input"}),
        ({"strides": (2, 2)}, {"conv2d_backprop_input"}),
        ({"c": 32, "k": MOST}, {"conv2d"}),
        ({"c": 32, "k": 4, "strides": (2, 1)}, set()),
        ({"c": MOST + 1}, set()),
        ({"w": LEAST_STEM_COLUMNS[3] - 1}, set()),
        ({"c": MOST, "w": LEAST_STEM_COLUMNS[MOST] - 1}, set()),
        ({"c": MOST, "w": LEAST_STEM_COLUMNS[MOST]}, {"conv2d_backprop_input"}),
        ({"k": 2000}, set()),
        ({"r": 1, "s": 1}, set()),
        ({"c": LEAST_PATCH // 4, **PATCHES}, set()),
        ({"c": LEAST_PATCH // 4 - 1, **PATCHES}, {"conv2d_backprop_input"}),
        ({"c": LEAST_PATCH // 4, "layout": "NCHW", **PATCHES}, {"conv2d_backprop_input"}),
        ({"c": LEAST_PATCH // 2, "groups": 2, **PATCHES}, {"conv2d_backprop_input"}),
    ],
    ids=str,
)
def test_few_channels_of_a_wide_result_take_it(options, ops):
    problem = Problem(**{"h": 9, "w": 24, "c": 3, "k": 64, "r": 3, "s": 3, "padding": "SAME"} | options)
    assert {name for name, op in OPS.items() if op.kind == "dense" and besides_col2im(op, problem)[0] == "stem"} == ops


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_one_tap_with_strides_and_few_channels_takes_it(layout):
    def taken(name, channels, summed=MOST_SKIPPING, step=2):
        sides = {"c": summed, "k": channels} if name == "conv2d" else {"c": channels, "k": summed}
        problem = Problem(h=64, w=64, r=1, s=1, strides=(step, step), layout=layout, **sides)
        return besides_col2im(OPS[name], problem)[0] == "stem"

    most = 8 if layout == "NHWC" else FEW_STEM_OUTPUTS
    assert taken("conv2d_backprop_input", most) and not taken("conv2d_backprop_input", most + 1)
    assert not taken("conv2d_backprop_input", most, MOST_SKIPPING + 1)
    assert not taken("conv2d_backprop_input", most, step=1) and not taken("conv2d", most)


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({}, True),
        ({"layout": "NHWC"}, False),
        ({"w": 15}, False),
        ({"c": FEW_STEM_INPUTS + 1}, False),
        ({"strides": (1, 2), "w": 60}, True),
        ({"strides": (3, 3), "w": 120}, False),
        ({"w": LEAST_STEM_PIXELS - 1}, False),
        ({"w": LEAST_STEM_PIXELS - 1, "k": FEW_STEM_FILTERS // 3}, True),
        ({"c": 64, "k": FEW_STEM_OUTPUTS}, True),
        ({"c": 64, "k": FEW_STEM_OUTPUTS + 1}, False),
        ({"c": 192, "k": 192, "groups": 64}, True),
        ({"c": 64, "k": 2, "r": 1, "s": 1}, False),
        ({"r": 1, "s": 1}, False),
        ({"r": 1, "s": 1, "h": LEAST_DOT_PIXELS[False] // 48 - 1}, True),
        ({"r": 1, "s": 1, "k": LEAST_DOT_ROWS - 1}, True),
        ({"r": 60, "s": 60, "h": 90, "w": 90}, False),
        ({"h": 400, "w": 70000}, False),
    ],
    ids=str,
)
def test_few_channels_of_a_filter_take_it(options, taken):
    problem = Problem(
        **{"h": 9, "w": 48, "c": 3, "k": 64, "r": 3, "s": 3, "padding": "SAME", "layout": "NCHW"} | options
    )
    as_it_is = [name for name in accepting(REDUCES, problem) if name not in MIRRORED]
    assert (as_it_is[0] == "stem") == taken


def takes_pairs(problem, capfd, monkeypatch):
    """Whether it runs, of bfloat16 at the level in use."""
    monkeypatch.setattr("gradops._call._VERBOSE", True)
    REDUCES(problem, *random_integers(REDUCES.shapes(problem), dtype_named("bfloat16"), seed=1))
    return " stem_reduce" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("channels", "outputs", "taken"), [(3, 16, False), (3, 15, True), (2, 16, False), (1, 16, True)]
)
def test_pairs_leave_filters_to_it_whose_outputs_or_slots_fill_no_vector(
    channels, outputs, taken, level, capfd, monkeypatch
):
    problem = Problem(h=8, w=LEAST_STEM_PIXELS, c=channels, k=outputs, padding="SAME", layout="NCHW")
    assert takes_pairs(problem, capfd, monkeypatch) == (taken or level not in PARTIAL)


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"k": 4}, True),
        ({"k": 5}, False),
        ({"h": LEAST_DOT_PIXELS[True] // LEAST_STEM_PIXELS - 1, "k": 5}, True),
        ({"k": 1, "h": 80, "w": 57, "strides": (2, 2)}, True),
        ({"k": 2, "h": 80, "w": 57, "strides": (2, 2)}, False),
        ({"c": 3, "k": 4, "r": 1, "s": 1}, False),
        ({"c": 3, "k": 3, "r": 1, "s": 1}, True),
    ],
    ids=str,
)
def test_pairs_of_long_planes_leave_fewer_filters_to_it(options, taken, level, capfd, monkeypatch):
    shape = {"h": LEAST_DOT_PIXELS[True] // LEAST_STEM_PIXELS + 1, "w": LEAST_STEM_PIXELS, "c": 3}
    problem = Problem(**shape | options, padding="SAME", layout="NCHW")
    assert takes_pairs(problem, capfd, monkeypatch) == (taken or level not in PARTIAL or level == TILED)


@pytest.mark.parametrize(
    ("options", "of"),
    [
        ({"m": 8}, "output input filter"),
        ({"m": 8, "w": 40}, "filter"),
        ({"m": 8, "w": 112, "strides": (2, 2)}, "input filter"),
        ({"m": LEAST_STEM_MULTIPLIER}, "filter"),
        ({"m": LEAST_STEM_MULTIPLIER - 1}, ""),
        ({"m": 2, "c": 3}, "output input filter"),
        ({"m": 2, "c": 3, "w": 18}, "filter"),
        ({"m": 1, "c": 3}, ""),
        ({"m": 8, "layout": "NHWC"}, ""),
        ({"m": 8, "c": 3, "w": 112, "strides": (2, 2), "layout": "NHWC"}, "input"),
    ],
    ids=str,
)
def test_multipliers_take_it(options, of):
    problem = Problem(**{"h": 9, "w": 56, "c": 32, "r": 3, "s": 3, "padding": "SAME", "layout": "NCHW"} | options)
    taken = [
        op.sizes.removesuffix("_sizes") or "output" for op in DEPTHWISE if besides_col2im(op, problem)[0] == "stem"
    ]
    assert " ".join(taken) == of
