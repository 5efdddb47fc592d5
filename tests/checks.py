"""What every algorithm has to show on a problem that it accepts. `run` is an op with the algorithm forced."""

import numpy as np
from problems import exact_case, normal_operands, rounded_case

from gradops._dispatch import PARTIAL, selected
from gradops.testing import accepting, assert_close, assert_exact, dtype_named, forced, random_integers, random_normal


def besides_col2im(op, problem, halves=False):
    """Algorithms that accept a problem, the preferred one first, but for `col2im`, which is compared with whatever that is."""
    return tuple(name for name in accepting(op, problem, halves) if name != "col2im")


def own_dtypes(op):
    """The types that kernels of the level in use compute by themselves: all of them, or at a partial level bfloat16."""
    return ("bfloat16",) if selected() in PARTIAL else op.dtypes


def running(algorithm=None):
    """A function that runs an op with an algorithm, or else the one that it chooses."""

    def run(op, problem, *operands, **options):
        with forced(algorithm=algorithm):
            return op(problem, *operands, **options)

    return run


def assert_same_bits(got, expected):
    """Two results are the same, bit by bit."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    bits = np.dtype(f"u{got.itemsize}")
    if not np.array_equal(got.view(bits), expected.view(bits)):
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))  # which says where
        raise AssertionError("zeros of other signs, or other NaNs")


def check_integers(run, op, problem):
    """Small integers give exact results in every dtype."""
    for dtype in own_dtypes(op):
        operands, expected = exact_case(op, problem, dtype)
        got = run(op, problem, *operands)
        assert got.dtype == dtype_named(dtype)
        assert_exact(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=problem.strides != (1, 1))


def check_shape(run, op, problem, dtype):
    """The same of one dtype and any shape, however many results are zeros."""
    operands = random_integers(op.shapes(problem), np.float64, seed=problem.h)
    got = run(op, problem, *(operand.astype(dtype_named(dtype)) for operand in operands))
    assert_exact(got, op.expect(problem, *operands), label=f"{op} {problem} {dtype}", mostly_zero_ok=True)


def check_random(run, op, problem):
    """Random numbers lie within the rounding error in every dtype."""
    for dtype in own_dtypes(op):
        operands, expected = rounded_case(op, problem, dtype)
        got = run(op, problem, *operands)
        assert_close(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=problem.strides != (1, 1))


def check_threads(run, op, problem, dtype=None):
    """Threads do not change a bit, of float32, or at a partial level bfloat16, unless a dtype is named."""
    dtype = dtype or ("bfloat16" if selected() in PARTIAL else "float32")
    operands = normal_operands(op, problem, dtype)
    one, *others = (run(op, problem, *operands, num_threads=threads) for threads in (1, 2, 3, 8))
    for other in others:
        assert_same_bits(one, other)


def check_edge(run, op, problem, dtype, at_the_edge):
    """Nothing is read before the first element, or beyond the last."""
    operands = normal_operands(op, problem, dtype)
    expected = run(op, problem, *operands)
    for begins in False, True:
        moved = [at_the_edge(operand, begins) for operand in operands]
        assert_same_bits(run(op, problem, *moved), expected)


def check_special(run, op, problem, value, at):
    """An infinity or NaN spreads no farther than with the implicit GEMM."""
    operands = random_normal(op.shapes(problem), np.float32, seed=11)
    operands[at].flat[0] = value
    with forced(algorithm="conv"):
        expected = op(problem, *operands)
    np.testing.assert_allclose(run(op, problem, *operands), expected, rtol=1e-4, atol=1e-4)
    assert np.isfinite(expected).any() and not np.isfinite(expected).all()


def check_spread(run, op, problem, dtype, value, at, place):
    """An infinity or NaN at a place of an operand reaches what its products reach, and no more. Returns what came, what is right, and where that is finite."""
    operands = random_integers(op.shapes(problem), dtype_named(dtype), seed=11)
    operands[at].flat[place(operands[at].size)] = value
    with np.errstate(invalid="ignore"):
        expected = op.expect(problem, *operands).value
    got, finite = run(op, problem, *operands).astype(np.float64), np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(got), finite)
    assert finite.any()
    return got, expected, finite
