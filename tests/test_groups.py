"""Groups of few inputs and as many outputs, or of one output: the stencil over packed rows computes what the definition says."""

import numpy as np
import pytest
from checks import check_edge, check_integers, check_random, check_shape, check_special, check_threads, running
from hypothesis import assume, given
from hypothesis import strategies as st

from gradops._algorithms import Arithmetic, Axis, Task
from gradops._algorithms.exchange import (
    EXCHANGED_CHANNELS,
    FEW_SUMMED_PIXELS,
    LEAST_FIRST_INPUTS,
    LONE_CHANNELS,
    LONGEST_EXCHANGED,
    LONGEST_HALVED,
    MOST_STRIDED_INPUTS,
    MOST_STRIDED_OUTPUTS,
    wins,
)
from gradops._algorithms.multipliers import MOST_MULTIPLIERS
from gradops._algorithms.task import WHOLE_VECTOR
from gradops.testing import (
    OPS,
    Problem,
    accepting,
    random_integers,
)

DENSE = [op for op in OPS.values() if op.kind == "dense"]
SHAPES = [
    {"n": 2, "h": 9, "w": 13, "r": 3, "s": 3, "padding": "SAME"},
    {"n": 1, "h": 14, "w": 15, "r": 3, "s": 3, "strides": (2, 2), "padding": "SAME"},
    {"n": 3, "h": 7, "w": 7, "r": 5, "s": 2, "dilations": (2, 1), "padding": (3, 2, 1, 0)},
    {"n": 1, "h": 6, "w": 20, "r": 1, "s": 1},
    {"n": 2, "h": 11, "w": 40, "r": 3, "s": 7, "strides": (1, 3)},
    {"n": 1, "h": 5, "w": 33, "r": 2, "s": 11, "strides": (2, 2), "dilations": (3, 3), "padding": "SAME"},
]
GROUPS = {2: 19, 4: 9, 8: 3, 16: 5}  # the last of their vectors are not full
ALONE = {2: 19, 16: 5, 33: 4, 64: 3}  # inputs of groups of one output
LONE = ((1, 19), (1, 48), (32, 1), (7, 1))  # channels of both images, one of which has no other
PROBLEMS = [
    Problem(c=channels * groups, k=groups * outputs, groups=groups, layout=layout, **shape)
    for channels, outputs, groups, shapes in [
        *((channels, channels, groups, SHAPES) for channels, groups in GROUPS.items()),
        *((channels, 1, groups, SHAPES[1:5:2]) for channels, groups in ALONE.items()),
        *((inputs, outputs, 1, SHAPES[::2]) for inputs, outputs in LONE),
    ]
    for shape in shapes
    for layout in ("NHWC", "NCHW")
]
CASES = [
    pytest.param(op, problem, id=f"{op}-{problem}")
    for op in DENSE
    for problem in PROBLEMS
    if "depthwise" in accepting(op, problem)
]


grouped = running("depthwise")


def test_there_are_cases_of_all_ops_and_channels():
    cases = [(case.values[0].result, case.values[1]) for case in CASES]
    exchanged = {(result, channels) for result, all_ in EXCHANGED_CHANNELS.items() for channels in all_}
    assert {(result, p.filter_shape[2]) for result, p in cases if p.k == p.c} == exchanged
    alone = {(result, channels) for result in ("output", "input") for channels in ALONE}
    assert {(result, p.filter_shape[2]) for result, p in cases if p.k == p.groups > 1} == alone
    lone = {("output" if channels[0] == 1 else "input", channels) for channels in LONE}
    assert {(result, (p.c, p.k)) for result, p in cases if p.groups == 1} == lone


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_small_integers_give_exact_results(op, problem, whole_level):
    check_integers(grouped, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_random_numbers_lie_within_the_rounding_error(op, problem, whole_level):
    check_random(grouped, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_threads_do_not_change_a_bit(op, problem):
    check_threads(grouped, op, problem)


@pytest.mark.parametrize(("op", "problem"), CASES)
def test_nothing_is_read_beyond_the_last_element(op, problem, whole_level, at_the_edge):
    check_edge(grouped, op, problem, "float32", at_the_edge)


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({}, True),
        ({"k": MOST_MULTIPLIERS}, True),
        ({"k": 2 * MOST_MULTIPLIERS}, False),
        ({"k": 40}, False),
        ({"c": 2}, False),
        ({"c": 48, "k": 1}, True),
        ({"c": 48, "k": 2}, False),
        ({"layout": "NCHW"}, False),
        ({"layout": "NCHW", "c": 48, "k": 1, "strides": (1, 2)}, True),
        ({"layout": "NCHW", "k": MOST_STRIDED_OUTPUTS, "strides": (1, 2)}, True),
        ({"k": MOST_STRIDED_OUTPUTS, "strides": (3, 2)}, True),
        ({"k": MOST_STRIDED_OUTPUTS + 16, "strides": (3, 2)}, False),
        ({"k": MOST_STRIDED_OUTPUTS, "strides": (3, 3)}, False),
        ({"r": 1, "s": 1}, False),
    ],
    ids=str,
)
def test_it_is_taken_for_one_channel(options, taken):
    problem = Problem(**{"n": 2, "h": 27, "w": 30, "c": 1, "k": 48, "r": 3, "s": 3, "padding": "SAME"} | options)
    op = OPS["conv2d" if problem.k > 1 else "conv2d_backprop_input"]
    assert (accepting(op, problem)[0] == "depthwise") == taken


def test_one_channel_is_left_to_products_of_pairs_and_fills_vectors_of_doubles():
    def taken(outputs, arithmetic):
        axis = Axis(29, 3, 1, 1, 1, 29)
        return wins(Task("output", False, axis, axis, 1, 1, outputs, "NHWC", arithmetic))

    floats, doubles = (LONE_CHANNELS[doubles] for doubles in (False, True))
    assert taken(floats, Arithmetic.FLOATS) and taken(floats, Arithmetic.HALVES) and taken(doubles, Arithmetic.DOUBLES)
    assert not (taken(doubles, Arithmetic.FLOATS) or taken(floats, Arithmetic.PAIRS) or taken(floats, Arithmetic.TILES))


CHANNELS = st.one_of(
    st.tuples(
        st.sampled_from(DENSE),
        st.sampled_from([*((channels, channels) for channels in GROUPS), (2, 1), (5, 1), (17, 1), (64, 1)]),
        st.integers(2, 12),
    ),
    st.tuples(st.just(OPS["conv2d"]), st.tuples(st.just(1), st.integers(1, 64)), st.just(1)),
    st.tuples(st.just(OPS["conv2d_backprop_input"]), st.tuples(st.integers(1, 64), st.just(1)), st.just(1)),
)
"""An op, channels of a group, and groups."""


@given(
    channels=CHANNELS,
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 60)),
    taps=st.tuples(st.integers(1, 6), st.integers(1, 10)),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 2, 3)]),
    layout=st.sampled_from(["NHWC", "NCHW"]),
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
)
def test_any_shape(channels, sizes, taps, strides, dilations, padding, layout, dtype):
    (op, (c, k), groups), (n, h, w) = channels, sizes
    problem = Problem(
        n=n, h=h, w=w, c=c * groups, k=k * groups, r=taps[0], s=taps[1], strides=strides, dilations=dilations, groups=groups,
        padding=padding, layout=layout,
    )  # fmt: skip
    assume(all(axis[1] > 0 for axis in problem.axes) and (groups == 1 or "depthwise" in accepting(op, problem)))
    assert "depthwise" in accepting(op, problem)
    check_shape(grouped, op, problem, dtype)


@pytest.mark.parametrize("op", DENSE, ids=str)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
def test_infinities_do_not_spread(op, value, at, level):
    for outputs in 12, 3:
        problem = Problem(n=1, h=9, w=30, c=12, k=outputs, r=3, s=3, groups=3, padding="SAME")
        check_special(grouped, op, problem, value, at)


def order(op, channels, outputs, groups=8, **options):
    """The algorithms of groups, the one that is preferred first."""
    sizes = {"n": 1, "h": 40, "w": 40, "r": 3, "s": 3, "padding": "SAME"} | options
    return accepting(op, Problem(c=groups * channels, k=groups * outputs, groups=groups, **sizes))


@pytest.mark.parametrize("op", DENSE, ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_it_is_taken_where_it_was_measured_to_win(op, stride):
    for channels in range(2, 20):
        sizes = {"layout": "NHWC", "strides": (1, stride)}
        taken = channels in (2, 4, 8)
        assert (order(op, channels, channels, **sizes)[0] == "depthwise") == taken
        assert (order(op, channels, channels, r=1, s=1, **sizes)[0] == "depthwise") == taken
        assert ("depthwise" in order(op, channels, channels, **sizes)) == (channels in EXCHANGED_CHANNELS[op.result])
        assert "depthwise" not in order(op, channels, channels + 1, **sizes)


@pytest.mark.parametrize("op", DENSE, ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_it_is_taken_for_rows_of_planes_that_are_not_too_long(op, stride):
    longest = LONGEST_EXCHANGED[Arithmetic.FLOATS][op.result]
    for channels, width in ((channels, width) for channels in (2, 4, 8) for width in (7, 12, 20, 21, 48, 56, 57, 100)):
        sizes = {"h": 9, "w": width * stride, "layout": "NCHW", "strides": (stride, stride)}
        beside_stem = channels == 4 and width == 48 and stride == 1 and op.result != "filter"
        taken = width <= longest[channels][stride > 1] and not beside_stem
        assert (order(op, channels, channels, **sizes)[0] == "depthwise") == taken
        assert order(op, channels, channels, r=1, s=1, **sizes)[0] != "depthwise"
        fills = width <= LONGEST_HALVED or channels == 8 or (op.result == "output" and stride > 1)
        assert (order(op, channels, channels, groups=2, **sizes)[0] == "depthwise") == (taken and fills)


@pytest.mark.parametrize("arithmetic", LONGEST_EXCHANGED, ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_each_arithmetic_has_rows_of_its_own(arithmetic, stride):
    for result, rows in LONGEST_EXCHANGED[arithmetic].items():
        for channels, longest in rows.items():
            for width in (1, 7, 9, 13, 21, 39, 55, 57, 101):
                axis = Axis(width * stride, 3, stride, 1, 1, width)
                task = Task(result, False, axis, axis, 8, channels, channels, "NCHW", arithmetic, pixels=1000)
                assert wins(task) == (width <= longest[stride > 1]), (result, channels, width)


def test_filters_of_few_pixels_take_it_beside_pairs():
    axis = Axis(16, 3, 1, 1, 1, 16)
    task = Task("filter", False, axis, axis, 4, WHOLE_VECTOR, WHOLE_VECTOR, "NCHW", Arithmetic.PAIRS)
    assert wins(task._replace(pixels=FEW_SUMMED_PIXELS)) and not wins(task._replace(pixels=FEW_SUMMED_PIXELS + 1))
    assert wins(task._replace(arithmetic=Arithmetic.FLOATS)) and not wins(task._replace(result="input"))


@pytest.mark.parametrize("strides", [1, 2])
def test_groups_of_one_output_take_it_where_it_was_measured_to_win(strides):
    def taken(result, inputs, layout, arithmetic=Arithmetic.FLOATS, taps=3):
        axis = Axis(9, taps, strides, 1, 1, 9)
        return wins(Task(result, False, axis, axis, 4, inputs, 1, layout, arithmetic))

    for inputs in (
        2,
        LEAST_FIRST_INPUTS - 1,
        LEAST_FIRST_INPUTS,
        MOST_STRIDED_INPUTS,
        MOST_STRIDED_INPUTS + 1,
        MOST_MULTIPLIERS,
    ):
        few = inputs <= MOST_STRIDED_INPUTS
        assert taken("output", inputs, "NHWC") and taken("input", inputs, "NHWC")
        assert taken("output", inputs, "NCHW") == (strides > 1 or inputs >= LEAST_FIRST_INPUTS)
        assert taken("input", inputs, "NCHW") == (strides > 1 and few)
        assert taken("input", inputs, "NHWC", Arithmetic.PAIRS) == few
        assert not taken("output", inputs, "NHWC", taps=1) and not taken("output", inputs, "NHWC", Arithmetic.TILES)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(("stride", "filters"), [(1, "conv"), (2, "depthwise")])
def test_groups_of_a_vector_of_float64_are_products(layout, stride, filters, capfd, monkeypatch):
    monkeypatch.setattr("gradops._call._VERBOSE", True)
    sizes = {"n": 1, "h": 12, "w": 12, "padding": "SAME", "strides": (stride, stride), "layout": layout}
    problem = Problem(c=3 * WHOLE_VECTOR, k=3 * WHOLE_VECTOR, groups=3, **sizes)
    for op in DENSE:
        op(problem, *random_integers(op.shapes(problem), np.float64, seed=1))
        line = capfd.readouterr().err
        assert f" {filters}_" in line if op.result == "filter" else " depthwise_" not in line, (op, line)
