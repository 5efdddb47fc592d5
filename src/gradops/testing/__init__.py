"""Problems, naive references, inputs and comparisons for testing convolutions and pooling.

The tests and the benchmarks of gradops are written against this package; it is public, like
`numpy.testing`, for whoever writes a kernel, a binding or a network on top of gradops.

==================  ==========================================================================
`Problem`           one convolution, dense or depthwise, as a value with a readable name
`PoolProblem`       one fractional pooling, with its sequences
`OPS`               one row per op: what it reads, what it returns, its kernels, its reference
`random_integers`   operands whose products and sums are exact
`random_normal`     operands that round
`assert_exact`      equal to the reference, rounded once to the storage type
`assert_close`      within the error that the accumulation type permits
`runnable`          whether this CPU runs an instruction set level; `forced` pins one, or an algorithm
`accepting`         the algorithms that compute an op on a problem
==================  ==========================================================================

Examples
--------
>>> import numpy as np
>>> from gradops.testing import OPS, Problem, assert_exact, random_integers
>>> problem = Problem.parse("n2h7w9c3k5r3s3_u2x1_same")
>>> op = OPS["conv2d_backprop_input"]
>>> operands = random_integers(op.shapes(problem), np.float32, seed=0)
>>> assert_exact(op(problem, *operands), op.expect(problem, *operands))
"""

from ._compare import Expected, MistrustedComparison, assert_close, assert_exact, error_bound
from ._inputs import DTYPES, dtype_named, random_integers, random_normal
from ._levels import LEVELS, accepting, forced, runnable
from ._ops import OPS, Op
from ._problems import PoolProblem, Problem
from ._sequences import pooling_sequence, pooling_sequences

__all__ = [
    "DTYPES",
    "LEVELS",
    "OPS",
    "Expected",
    "MistrustedComparison",
    "Op",
    "PoolProblem",
    "Problem",
    "accepting",
    "assert_close",
    "assert_exact",
    "dtype_named",
    "error_bound",
    "forced",
    "pooling_sequence",
    "pooling_sequences",
    "random_integers",
    "random_normal",
    "runnable",
]
