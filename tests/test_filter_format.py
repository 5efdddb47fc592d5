"""Filters as adapters hand them over: with their output channels outermost, the other order gives the same bits, or but for rounding where it decides
what `gemv` has in a vector."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from checks import own_dtypes
from problems import CONVOLUTIONS, COVERING, LARGER, exact_case, normal_operands, rows

from gradops._algorithms import MIRRORED, Arithmetic
from gradops._arrays import STORAGE
from gradops._call import compute, follow, recipe
from gradops._geometry import attributes, plan
from gradops.testing import OPS, Problem, accepting, forced

DTYPES = ("float16", "bfloat16", "float32", "float64")


def planned(op, problem, filter_format):
    given = problem.attributes
    explicit = given.get("explicit_paddings", ())
    how = attributes(given["strides"], given["padding"], explicit, given["data_format"], given["dilations"])
    out = None if op.sizes == "" else problem.output_shape
    return plan(op.name, problem.input_shape, problem.filter_shape, out, how, filter_format)


def turned(array):
    """[R, S, C, K] as [K, R, S, C]; of a depthwise filter [R, S, C, M] as [C, M, R, S]."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 0))


def lying(problem, array, filter_format):
    """A filter as it lies with output channels outermost."""
    r, s, *_ = problem.filter_shape
    per_group = 1 if problem.depthwise else problem.filter_shape[2]
    outermost = turned(array.reshape(r, s, per_group, -1))
    return outermost if filter_format == "KRSC" else np.ascontiguousarray(np.moveaxis(outermost, -1, 1))


def check(op, problem, dtype, algorithm=None, filter_format="KRSC"):
    """`algorithm` is what runs; nothing is rounded in sums of small integers."""
    orders = {
        algorithm or planned(op, problem, order).algorithms[Arithmetic.FLOATS][0] for order in ("RSCK", filter_format)
    }
    first, second = exact_case(op, problem, dtype)[0] if "gemv" in orders else normal_operands(op, problem, dtype)
    named = dict(zip(op.operands, (first, second), strict=True))
    expected = op(problem, first, second)
    found = planned(op, problem, filter_format)
    if "filter" in named:
        named["filter"] = lying(problem, named["filter"], filter_format)
    else:
        expected = lying(problem, expected, filter_format)
    arrays = [np.ascontiguousarray(named[name]) for name in found.arguments]
    got = np.full_like(expected, 7)
    compute(found, arrays, STORAGE[dtype], got, 2)
    assert got.tobytes() == expected.tobytes()
    again = np.full_like(expected, 7)
    follow(recipe(found, STORAGE[dtype]), tuple(array.ctypes.data for array in arrays), again.ctypes.data, 2)
    assert again.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("op", "problem"), rows(COVERING, CONVOLUTIONS), ids=str)
def test_both_orders_give_the_same_bits(op, problem):
    for dtype in DTYPES:
        check(op, problem, dtype)


@pytest.mark.parametrize(("op", "problem"), rows(LARGER, CONVOLUTIONS), ids=str)
def test_both_orders_give_the_same_bits_at_every_level(op, problem, level):
    for dtype in own_dtypes(op):
        for algorithm in ("conv", "winograd", "stem", "depthwise", "col2im", *MIRRORED):
            with forced(algorithm=algorithm):
                check(op, problem, dtype)


DENSE = [row for row in rows(LARGER, CONVOLUTIONS) if row[0].kind == "dense"]
SQUARES = [
    Problem(n=2, h=5, w=6, c=70, k=41, r=3, s=3, padding="SAME"),
    Problem(n=1, h=3, w=3, c=33, k=130, r=3, s=3, padding=(0, 1, 1, 2)),
    Problem(n=2, h=20, w=23, c=18, k=20, r=3, s=3, groups=2, padding="SAME"),  # several spans
    Problem(n=1, h=12, w=17, c=54, k=3, r=3, s=2, strides=(2, 1), groups=3, padding="SAME"),  # one output a group
    Problem(n=2, h=9, w=11, c=20, k=20, r=3, s=2, groups=5, padding="SAME"),  # as many outputs as inputs
    Problem(n=2, h=9, w=20, c=40, k=3, r=3, s=4, padding="SAME"),  # few outputs
    Problem(n=1, h=9, w=8, c=40, k=35, r=3, s=3, dilations=(2, 2), padding="SAME"),
    Problem(n=2, h=9, w=11, c=70, k=41, r=3, s=3, strides=(2, 2), padding="SAME"),
    Problem(n=1, h=12, w=9, c=33, k=310, r=3, s=3, strides=(2, 2), padding="SAME"),  # fewer slots than outputs
]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("problem", SQUARES, ids=str)
@pytest.mark.parametrize("op", [op for op in OPS.values() if op.kind == "dense"], ids=str)
def test_taps_may_lie_innermost(op, problem, layout, level):
    problem = replace(problem, layout=layout)
    for dtype, algorithm in product(own_dtypes(op), planned(op, problem, "KCRS").algorithms[Arithmetic.FLOATS]):
        with forced(algorithm=algorithm):
            check(op, problem, dtype, filter_format="KCRS")


LARGE = [
    (OPS["conv2d_backprop_filter"], replace(problem, layout="NCHW"))
    for problem in (
        Problem(n=1, h=98, w=140, c=3, k=40, r=14, s=14, strides=(14, 14)),  # patch embeddings
        Problem(n=5, h=98, w=140, c=3, k=40, r=14, s=14, strides=(14, 14)),
        Problem(n=2, h=32, w=33, c=70, k=18, r=3, s=3, padding="SAME"),  # dots, of several blocks of slots,
        Problem(n=2, h=65, w=67, c=66, k=36, r=3, s=3, strides=(2, 2), padding="SAME"),
        Problem(n=2, h=33, w=32, c=9, k=140, r=2, s=3, padding="SAME"),  # and of one
    )
]


@pytest.mark.parametrize(("op", "problem"), DENSE + LARGE, ids=str)
def test_taps_of_any_filter_may_lie_innermost(op, problem):
    others = {"stem", *MIRRORED} if op.result == "filter" else set()
    assert set(planned(op, problem, "KCRS").algorithms[Arithmetic.FLOATS]) <= {"winograd", "conv"} | others
    for dtype in DTYPES:
        with forced(algorithm="conv"):
            check(op, problem, dtype, filter_format="KCRS")


PATCHES = [
    Problem(n=2, h=32, w=64, c=3, k=34, r=16, s=16, strides=(16, 16), layout="NCHW"),
    Problem(n=3, h=24, w=40, c=2, k=101, r=8, s=5, strides=(8, 5), layout="NCHW"),
]


@pytest.mark.parametrize("problem", PATCHES, ids=str)
def test_filters_of_patches_in_planes_have_all_orders(problem, level):
    for dtype, filter_format in product(DTYPES, ("KRSC", "KCRS")):
        with forced(algorithm="conv"):
            check(OPS["conv2d_backprop_input"], problem, dtype, filter_format=filter_format)


FEW_PIXELS = [
    Problem(n=2, h=3, w=3, c=48, k=41, r=3, s=3, padding="SAME"),
    Problem(n=1, h=4, w=4, c=304, k=300, r=1, s=1),
    Problem(n=3, h=5, w=7, c=160, k=70, r=2, s=3, strides=(1, 2), groups=2, padding=(1, 2, 0, 3)),
    Problem(n=1, h=16, w=16, c=336, k=47, r=1, s=1),
    Problem(n=5, h=1, w=1, c=256, k=40, r=1, s=1),
]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("problem", FEW_PIXELS, ids=str)
def test_filters_that_are_summed_where_they_lie_have_both_orders(problem, layout, level):
    for dtype in DTYPES:
        with forced(algorithm="conv"):
            check(OPS["conv2d_backprop_filter"], replace(problem, layout=layout), dtype)


@pytest.mark.parametrize(
    ("op", "problem"), [row for row in rows(COVERING, CONVOLUTIONS) if "gemv" in accepting(*row)], ids=str
)
def test_gemv_computes_both_orders(op, problem, whole_level):
    for dtype in DTYPES:
        with forced(algorithm="gemv"):
            check(op, problem, dtype, "gemv")
