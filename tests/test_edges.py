"""Zero-size dimensions, uncovered pixels, NaN and infinity, and values at the ends of the storage types."""

from functools import lru_cache
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from checks import own_dtypes
from problems import CONVOLUTIONS, COVERING, LARGER, rows

import gradops
from gradops._dispatch import PARTIAL
from gradops.testing import OPS, PoolProblem, Problem, accepting, dtype_named, forced, random_integers

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]

EMPTY = {
    "dense": [
        Problem(n=0, c=3, k=4),
        Problem(n=0, h=0, w=0, c=3, k=4, padding="SAME", layout="NCHW"),
        Problem(h=0, w=5, c=3, k=4, padding="SAME"),
        Problem(h=0, w=0, c=2, k=3, r=2, s=2, padding=(3, 0, 1, 2)),
        Problem(h=5, w=0, c=3, k=4, padding=(0, 0, 4, 0), layout="NCHW"),
        Problem(h=2, w=5, c=3, k=4, padding="VALID"),
        Problem(h=3, w=8, c=2, k=2, r=5, s=8, strides=(2, 3), padding="VALID"),
        Problem(h=3, w=3, c=2, k=2, r=8, s=3, strides=(3, 1), padding="VALID"),
        Problem(c=3, k=0),
        Problem(n=2, c=3, k=0, strides=(2, 1), padding="SAME", layout="NCHW"),
    ],
    "depthwise": [
        Problem(n=0, c=3, m=2),
        Problem(n=0, c=3, m=1, padding="SAME", layout="NCHW"),
        Problem(h=0, w=5, c=3, m=2, padding="SAME"),
        Problem(h=0, w=0, c=3, m=2, r=2, s=2, padding=(3, 0, 1, 2)),
        Problem(h=2, w=5, c=3, m=2, padding="VALID"),
        Problem(h=3, w=3, c=2, m=2, r=8, s=3, strides=(3, 1), padding="VALID"),
        Problem(c=3, m=0, padding="SAME"),
        Problem(c=0, m=2, padding="SAME"),
        Problem(c=0, m=0, padding="SAME", layout="NCHW"),
        Problem(c=3, m=2, r=0, s=2, padding="VALID"),
        Problem(c=3, m=2, r=0, s=0, padding="SAME", layout="NCHW"),
    ],
}


@pytest.mark.parametrize(("op", "problem"), rows(EMPTY, CONVOLUTIONS), ids=str)
def test_zero_sizes_give_zeros_of_the_right_shape(op, problem, level):
    for dtype in own_dtypes(op):
        operands = random_integers(op.shapes(problem), dtype_named(dtype), seed=1)
        expected = op.expect(problem, *operands).value
        assert not expected.any()
        out = np.full(expected.shape, 7, dtype_named(dtype))
        for got in (op(problem, *operands), op(problem, *operands, out=out)):
            assert got.dtype == dtype_named(dtype)
            np.testing.assert_array_equal(got.astype(np.float64), expected)


@pytest.mark.parametrize("op", [op for op in CONVOLUTIONS if op.sizes and op.kind == "dense"], ids=str)
@pytest.mark.parametrize(("taps", "padding"), [((0, 2), "VALID"), ((0, 0), "SAME"), ((2, 0), (1, 1, 0, 2))], ids=str)
def test_gradients_accept_a_filter_without_taps(op, taps, padding, level):
    problem = Problem(c=3, k=4, r=taps[0], s=taps[1], padding=padding)
    operands = random_integers(op.shapes(problem), np.float32, seed=1)
    got = op(problem, *operands)
    assert got.shape == (problem.input_shape if op.sizes == "input_sizes" else problem.filter_shape)
    assert not got.any()


PADDED = {  # most of whose outputs read the padding alone
    "dense": [
        Problem(n=4, h=1, w=48, c=24, k=16, r=1, s=1, padding=(4, 4, 2, 2), layout=layout)
        for layout in ("NCHW", "NHWC")
    ]
}
PADDED["depthwise"] = [Problem.parse(str(problem).replace("k16", "m2")) for problem in PADDED["dense"]]


@lru_cache(maxsize=32)
def spread_case(op, problem, value, at):
    """Small integers, one of them replaced, and what the reference says."""
    operands = random_integers(op.shapes(problem), np.float64, seed=2)
    operands[at].flat[operands[at].size // 3] = value
    with np.errstate(invalid="ignore"):
        return operands, op.expect(problem, *operands).value


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1])
def test_not_finite_values_spread_where_their_products_go_and_no_further(op, value, at, level):
    for problem in (*COVERING[op.kind][:24], *LARGER[op.kind][:2], *PADDED[op.kind]):
        operands, expected = spread_case(op, problem, value, at)
        for dtype, algorithm in product(("float32", "float64", "bfloat16"), accepting(op, problem)):
            with forced(algorithm=algorithm):
                got = op(problem, *(operand.astype(dtype_named(dtype)) for operand in operands)).astype(np.float64)
            label = f"{op} {problem} {dtype} {algorithm}"
            np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), err_msg=label)
            np.testing.assert_array_equal(got[np.isinf(got)], expected[np.isinf(got)], err_msg=label)
            finite = np.isfinite(expected)
            rounded = expected[finite].astype(dtype_named(dtype)).astype(np.float64)
            np.testing.assert_array_equal(got[finite], rounded, err_msg=label)


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
def test_every_nan_of_bfloat16_is_one_to_the_end(op, level):
    storage = dtype_named("bfloat16")
    for problem, bits, at in product(COVERING[op.kind][:6], (0x7F81, 0xFFFF), (0, 1)):
        operands, expected = spread_case(op, problem, np.nan, at)
        halves = [operand.astype(storage) for operand in operands]
        halves[at][np.isnan(operands[at])] = np.uint16(bits).view(storage)
        for algorithm in accepting(op, problem):
            with forced(algorithm=algorithm):
                got = op(problem, *halves).astype(np.float64)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), f"{op} {problem} {algorithm} {bits:x}")


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
def test_zeros_do_not_hide_a_nan(op, level):
    problem = COVERING[op.kind][3]
    for zeroed in (0, 1):
        operands = [np.full(shape, np.nan, np.float32) for shape in op.shapes(problem)]
        operands[zeroed][...] = 0
        reached = op.reference(problem, *(np.ones(shape) for shape in op.shapes(problem))) > 0
        assert reached.any()
        np.testing.assert_array_equal(np.isnan(op(problem, *operands)), reached)


SPARSE = {
    "dense": [
        Problem(h=9, w=10, c=3, k=4, r=2, s=2, strides=(4, 3), padding="VALID"),
        Problem(h=9, w=10, c=3, k=4, r=1, s=1, strides=(3, 5), padding="SAME", layout="NCHW"),
        Problem(h=3, w=2, c=3, k=4, r=5, s=5, dilations=(2, 3), padding="SAME"),
        Problem(h=3, w=2, c=3, k=4, r=2, s=2, padding=(7, 0, 0, 8)),
        Problem(h=8, w=8, c=2, k=2, r=2, s=2, strides=(2, 2), dilations=(2, 2), padding="SAME"),
    ],
}
SPARSE["depthwise"] = [Problem.parse(str(problem).replace(f"k{problem.k}", "m2")) for problem in SPARSE["dense"]]


@pytest.mark.parametrize(("op", "problem"), rows(SPARSE, CONVOLUTIONS), ids=str)
def test_what_no_product_reaches_is_exactly_zero(op, problem, level):
    untouched = op.reference(problem, *(np.ones(shape) for shape in op.shapes(problem))) == 0
    for dtype in own_dtypes(op):
        operands = random_integers(op.shapes(problem), dtype_named(dtype), seed=3)
        out = np.full(untouched.shape, 5, dtype_named(dtype))
        for got in (op(problem, *operands), op(problem, *operands, out=out)):
            np.testing.assert_array_equal(got[untouched].astype(np.float64), 0)
            assert np.count_nonzero(got) > 0.5 * np.count_nonzero(~untouched)


def test_sparse_problems_leave_something_untouched():
    sparse = [
        (op.reference(problem, *(np.ones(shape) for shape in op.shapes(problem))) == 0).any()
        for op, problem in rows(SPARSE, CONVOLUTIONS)
    ]
    assert sum(sparse) >= len(sparse) / 3


LONG_SUMS = {
    "conv2d": Problem(h=1, w=1, c=361, k=1, r=1, s=1),
    "conv2d_backprop_input": Problem(h=1, w=1, c=1, k=361, r=1, s=1),
    "conv2d_backprop_filter": Problem(h=19, w=19, c=1, k=1, r=1, s=1),
    "depthwise_conv2d_native": Problem(h=19, w=19, c=1, m=1, r=19, s=19),
    "depthwise_conv2d_native_backprop_input": Problem(h=1, w=1, c=1, m=361, r=1, s=1),
    "depthwise_conv2d_native_backprop_filter": Problem(h=19, w=19, c=1, m=1, r=1, s=1),
}


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize(
    ("dtype", "term", "total"), [("bfloat16", 2, 720), ("bfloat16", 1, 360), ("float16", 7, 2528), ("float16", 9, 3248)]
)
def test_long_sums_round_once(op, dtype, term, total, level):
    """361 terms: 722 rounds to 720 in bfloat16, where rounding partial sums gives 724 or stops at 256."""
    problem = LONG_SUMS[op.name]
    operands = [np.full(shape, 1, dtype_named(dtype)) for shape in op.shapes(problem)]
    operands[0] *= dtype_named(dtype).type(term)
    exact = np.array(361.0 * term).astype(dtype_named(dtype))
    assert op(problem, *operands).astype(np.float64).max() == float(exact) == pytest.approx(total, rel=2**-8)


def identity(values, weight):
    """Multiply by one weight in a 1x1 depthwise convolution of one row."""
    return gradops.depthwise_conv2d_native(
        values.reshape(1, 1, -1, 1), np.full((1, 1, 1, 1), weight, values.dtype), 1, "VALID"
    ).ravel()


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("kind", ["dense", "depthwise"])
def test_every_16_bit_pattern_passes_through(half, layout, kind, level):
    patterns = np.arange(1 << 16, dtype=np.uint16).view(half)
    shape = (4, 16, 16, 64)
    problem = Problem(
        n=4, h=16, w=16, c=64, r=1, s=1, layout=layout, **({"m": 1} if kind == "depthwise" else {"k": 64, "groups": 64})
    )
    values = np.ascontiguousarray(patterns.reshape(shape if layout == "NHWC" else problem.input_shape))
    name = "depthwise_conv2d_native" if kind == "depthwise" else "conv2d"
    one = np.ones(problem.filter_shape, half)
    got = OPS[name](problem, values, one).ravel()
    wide = patterns.astype(np.float32)
    np.testing.assert_array_equal(got.astype(np.float32), wide)


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("weight", [1.25, 0.6875, 3.0, 2.0**-9, -1.5 * 2.0**-7, 384.0])
def test_every_16_bit_product_is_rounded_to_nearest_even(half, weight, level):
    """The product of two 16-bit numbers is exact in float32, so the result is that product, rounded once."""
    values = np.arange(1 << 16, dtype=np.uint16).view(half)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = (values.astype(np.float32) * np.float32(weight)).astype(half)
    got = identity(values, weight)
    np.testing.assert_array_equal(got.astype(np.float32), rounded.astype(np.float32))


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_dense_products_are_rounded_to_nearest_even(half, level):
    """All but those of subnormal numbers where the CPU multiplies bfloat16 itself: there they are zeros."""
    values = np.arange(1 << 16, dtype=np.uint16).view(half)
    if level in PARTIAL and half == HALVES[1]:
        exponents = values.view(np.uint16) & 0x7F80
        values = np.where(exponents == 0, half.type(0), values)
    weight = np.full((1, 1, 1, 1), 1.25, half)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = (values.astype(np.float32) * np.float32(1.25)).astype(half)
    got = gradops.conv2d(values.reshape(1, 256, 256, 1), weight, 1, "VALID").ravel()
    np.testing.assert_array_equal(got.astype(np.float32), rounded.astype(np.float32))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_subnormal_sums_of_bfloat16_are_zeros_where_the_cpu_multiplies_it(layout, level):
    shape = (1, 9, 9, 70) if layout == "NHWC" else (1, 70, 9, 9)
    x, weight = np.full(shape, 2.0**-63), np.zeros((1, 1, 70, 70))
    weight[0, 0, 0], weight[0, 0, 33] = 1.5 * 2.0**-63, -(2.0**-63)
    got = gradops.conv2d(x.astype(HALVES[1]), weight.astype(HALVES[1]), 1, "VALID", data_format=layout)
    np.testing.assert_array_equal(got.astype(np.float32), np.float32(0 if level in PARTIAL else 2.0**-127))


def test_pooling_keeps_not_finite_values_in_their_cells(level):
    problem = PoolProblem(h=6, w=6, c=3, overlapping=False, sequences=((0, 2, 4, 6), (0, 3, 4, 6)))
    op = OPS["fractional_avg_pool_grad"]
    (dy,) = random_integers(op.shapes(problem), np.float32, seed=1)
    dy[0, 1, 1, 2], dy[0, 2, 0, 0] = np.nan, np.inf
    got, expected = op(problem, dy), op.expect(problem, dy).value
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
