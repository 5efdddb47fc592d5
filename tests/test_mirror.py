"""Filter gradients with images exchanged: the same sums, whatever kernel adds them and however the filter lies."""

from dataclasses import replace

import numpy as np
import pytest
from checks import check_edge, check_integers, check_random, check_shape, check_special, check_threads, running
from hypothesis import assume, given
from hypothesis import strategies as st

from gradops._algorithms import MIRRORED, Arithmetic, Axis, Task
from gradops._algorithms.mirror import (
    FEW_OUTPUTS,
    FEWER_OUTPUTS,
    INPUTS_OF_SHORT_ROWS,
    LEAST_INPUTS,
    OUTPUTS_OF_SHORT_ROWS,
    SHORT_ROWS,
    wins,
)
from gradops.testing import OPS, Problem, accepting, random_integers

OP = OPS["conv2d_backprop_filter"]
PROBLEMS = [
    Problem(n=2, h=11, w=33, c=64, k=3, r=3, s=3, padding="SAME"),
    Problem(n=1, h=30, w=21, c=17, k=1, r=5, s=4, padding="SAME"),  # more padding behind than before
    Problem(n=3, h=9, w=40, c=33, k=12, r=2, s=7, padding=(1, 0, 0, 6)),
    Problem(n=2, h=24, w=23, c=40, k=24, r=3, s=3, dilations=(2, 3), padding=(0, 5, 6, 0)),
    Problem(n=1, h=40, w=18, c=9, k=2, r=11, s=1),  # one column of taps, no padding
    Problem(
        n=2, h=8, w=28, c=48, k=6, r=3, s=3, padding=(2, 9, 1, 4)
    ),  # more of it than taps reach: rows of dy that meet none
    Problem(n=2, h=13, w=37, c=54, k=9, r=3, s=2, groups=3, padding="SAME"),
    Problem(n=4, h=1, w=50, c=300, k=5, r=1, s=9, padding="SAME"),
    Problem(n=5, h=7, w=1, c=20, k=4, r=5, s=1, padding="SAME"),
    Problem(n=1, h=70, w=66, c=12, k=2, r=7, s=7, padding="SAME"),  # several spans
]
CASES = [replace(problem, layout=layout) for problem in PROBLEMS for layout in ("NHWC", "NCHW")]
every_case = pytest.mark.parametrize("problem", CASES, ids=str)


def ways(problem):
    """The op by each way that accepts a problem."""
    found = [name for name in accepting(OP, problem) if name in MIRRORED]
    assert "mirrored_conv" in found
    return map(running, found)


def test_each_kernel_has_a_problem():
    assert {name for problem in CASES for name in accepting(OP, problem)} >= set(MIRRORED)


@every_case
def test_small_integers_give_exact_results(problem, level):
    for mirrored in ways(problem):
        check_integers(mirrored, OP, problem)


@every_case
def test_random_numbers_lie_within_the_rounding_error(problem, level):
    for mirrored in ways(problem):
        check_random(mirrored, OP, problem)


@every_case
def test_threads_do_not_change_a_bit(problem):
    for mirrored in ways(problem):
        check_threads(mirrored, OP, problem)


@every_case
def test_nothing_is_read_beyond_the_last_element(problem, whole_level, at_the_edge):
    for mirrored in ways(problem):
        check_edge(mirrored, OP, problem, "float32", at_the_edge)


@given(
    n=st.integers(1, 3),
    image=st.tuples(st.integers(1, 20), st.integers(1, 40)),
    channels=st.tuples(st.integers(2, 40), st.integers(1, 39), st.integers(1, 3)),
    taps=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (1, 2, 0, 3)]),
    layout=st.sampled_from(["NHWC", "NCHW"]),
    dtype=st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
)
def test_any_shape(n, image, channels, taps, dilations, padding, layout, dtype):
    c, k, groups = channels
    problem = Problem(
        n=n, h=image[0], w=image[1], c=c * groups, k=k * groups, groups=groups, r=taps[0], s=taps[1], dilations=dilations,
        padding=padding, layout=layout,
    )  # fmt: skip
    found = [name for name in accepting(OP, problem) if name in MIRRORED]
    assume(all(axis[1] > 0 for axis in problem.axes) and found)
    for name in found:
        check_shape(running(name), OP, problem, dtype)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("padding", ["VALID", "SAME", (2, 4, 1, 3)], ids=str)
def test_infinities_spread_no_farther_than_elsewhere(value, at, padding, level):
    problem = Problem(n=2, h=12, w=31, c=30, k=4, r=3, s=4, padding=padding, layout="NCHW")
    for mirrored in ways(problem):
        check_special(mirrored, OP, problem, value, at)


FEW = {"n": 8, "h": 28, "w": 40, "c": 64, "k": 3, "r": 3, "s": 3, "padding": "SAME"}
SHORT = FEW | {"w": SHORT_ROWS[False] - 1, "layout": "NCHW"}
LONE = INPUTS_OF_SHORT_ROWS * 3


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        (FEW, True),
        (FEW | {"layout": "NCHW"}, True),
        (FEW | {"k": FEW_OUTPUTS}, True),
        (FEW | {"k": FEW_OUTPUTS + 1}, False),
        (FEW | {"c": LEAST_INPUTS, "k": FEWER_OUTPUTS + 1}, True),
        (FEW | {"c": LEAST_INPUTS - 1, "k": FEWER_OUTPUTS + 1}, False),
        (FEW | {"c": LEAST_INPUTS - 1, "k": FEWER_OUTPUTS}, True),
        (FEW | {"c": 4, "k": 4}, False),
        (FEW | {"strides": (1, 2)}, False),
        (FEW | {"r": 1, "s": 1}, False),
        (FEW | {"padding": (3, 0, 0, 0)}, False),
        (FEW | {"padding": (2, 9, 2, 9)}, True),
        (FEW | {"c": 192, "k": 9, "groups": 3}, True),
        (FEW | {"c": 192, "k": 3, "groups": 3}, False),
        (SHORT | {"c": LONE - 1}, False),
        (SHORT | {"c": LONE}, True),
        (SHORT | {"c": LONE - 1, "w": SHORT_ROWS[False]}, True),
        (SHORT | {"c": LONE - 1, "k": OUTPUTS_OF_SHORT_ROWS}, True),
        (SHORT | {"c": LONE - 1, "h": 14, "n": 1}, True),
        (SHORT | {"c": LONE - 1, "layout": "NHWC"}, True),
    ],
    ids=str,
)
def test_few_outputs_take_it(options, taken):
    first = accepting(OP, Problem(**options))[0]
    assert (first in MIRRORED) == taken, first


def test_pairs_need_longer_rows_and_tiles_are_left():
    def taken(arithmetic, columns):
        rows, cols = (Axis(size, 3, 1, 1, 1, size) for size in (28, columns))
        return wins(Task("filter", False, rows, cols, 1, LONE - 1, 3, "NCHW", arithmetic, pixels=8 * 28 * columns))

    short, long = (SHORT_ROWS[paired] for paired in (False, True))
    assert taken(Arithmetic.FLOATS, short) and taken(Arithmetic.HALVES, short) and taken(Arithmetic.PAIRS, long)
    assert not (taken(Arithmetic.PAIRS, long - 1) or taken(Arithmetic.TILES, long))


def test_it_is_named_where_it_runs(capfd, monkeypatch):
    monkeypatch.setattr("gradops._call._VERBOSE", True)
    problem = Problem(**FEW)
    running("mirrored_conv")(OP, problem, *random_integers(OP.shapes(problem), np.float32, seed=1))
    assert " mirrored_conv:conv_reduce_f32_" in capfd.readouterr().err


def test_no_other_op_takes_it():
    others = [op for op in OPS.values() if op.kind == "dense" and op is not OP]
    assert len(others) == 2
    for op in others:
        assert not set(accepting(op, Problem(**FEW))) & set(MIRRORED)
