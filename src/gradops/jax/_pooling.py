"""Fractional average pooling: linear, its gradient is its transpose."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from gradops import _xla
from gradops._values import Shape

from ._batching import into, out_of, scaled
from ._primitives import primitive_of


class FractionalAvgPool(NamedTuple):
    """What `fractional_avg_pool` returns.

    Attributes
    ----------
    output : jax.Array
    row_pooling_sequence, col_pooling_sequence : numpy.ndarray
        Where the cells begin, and the end of the last one.
    """

    output: jax.Array
    row_pooling_sequence: np.ndarray
    col_pooling_sequence: np.ndarray


class Pool(NamedTuple):
    """The cells of a pooling."""

    rows: Shape
    cols: Shape
    overlapping: bool
    data_format: str

    def means(self, sequence: Shape, size: int, dtype: Any) -> jax.Array:
        """The matrix that takes an axis of `size` to the means of its cells."""
        cells = np.zeros((len(sequence) - 1, size))
        for i, (start, end) in enumerate(pairwise(sequence)):
            cells[i, start : end + self.overlapping] = 1
        return jnp.asarray(cells / cells.sum(1, keepdims=True), dtype)

    def native(self, x: jax.Array) -> jax.Array:
        """What any platform computes."""
        height, width = (x.shape[self.data_format.index(letter)] for letter in "HW")
        matrices = self.means(self.rows, height, x.dtype), self.means(self.cols, width, x.dtype)
        terms = "nhwc,ph,qw->npqc" if self.data_format == "NHWC" else "nchw,ph,qw->ncpq"
        return jnp.einsum(terms, x, *matrices, precision=lax.Precision.HIGHEST)


def _spread(dy: jax.Array, pool: Pool, shape: Shape) -> jax.Array:
    return _spread_p.bind(dy, pool=pool, shape=shape)


def native_spread(dy: jax.Array, pool: Pool, shape: Shape) -> jax.Array:
    """The transpose of `Pool.native`."""
    return jax.linear_transpose(pool.native, jax.ShapeDtypeStruct(shape, dy.dtype))(dy)[0]


def _pool(x: jax.Array, pool: Pool) -> jax.Array:
    counts = {"H": len(pool.rows) - 1, "W": len(pool.cols) - 1}
    shape = tuple(counts.get(letter, size) for letter, size in zip(pool.data_format, x.shape, strict=True))
    return _pool_p.bind(x, pool=pool, shape=shape)


_pool_p = primitive_of(
    "fractional_avg_pool", lambda x, pool, shape: _xla.pooled(x, *pool), lambda x, pool, shape: pool.native(x)
)
_spread_p = primitive_of(
    "fractional_avg_pool_grad", lambda dy, pool, shape: _xla.pooling_gradient(shape, dy, *pool), native_spread
)
ad.deflinear2(_pool_p, lambda ct, x, pool, shape: [_spread(ct, pool, x.aval.shape)])
ad.deflinear2(_spread_p, lambda ct, dy, pool, shape: [_pool(ct, pool)])


def _batched_pool(primitive: Primitive, operands: Any, dims: Any, pool: Pool, shape: Shape) -> Any:
    size = operands[0].shape[dims[0]]
    out = primitive.bind(into(operands[0], 0, dims[0], size), pool=pool, shape=scaled(shape, 0, size))
    return out_of(out, 0, size), 0


for _each in (_pool_p, _spread_p):
    batching.primitive_batchers[_each] = partial(_batched_pool, _each)


def fractional_avg_pool(
    value: Any,
    pooling_ratio: Any,
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    *,
    data_format: str = "NHWC",
) -> FractionalAvgPool:
    """`gradops.fractional_avg_pool`, differentiable. The cells are drawn when the function is traced: under ``jit`` they are the same each call.

    Parameters
    ----------
    value : array, shape (N, H, W, C) or (N, C, H, W)
        Of dtype float16, bfloat16, float32 or float64.
    pooling_ratio, pseudo_random, overlapping, deterministic, seed, seed2, data_format
        As for `gradops.fractional_avg_pool`.

    Returns
    -------
    FractionalAvgPool
        A named tuple (output, row_pooling_sequence, col_pooling_sequence).

    Raises
    ------
    TypeError, ValueError
        Those of `gradops.fractional_avg_pool`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import gradops.jax
    >>> row = jnp.array([20.0, 5, 16, 3, 7]).reshape(1, 1, 5, 1)
    >>> def mean_of_last(row):
    ...     return gradops.jax.fractional_avg_pool(row, (1, 1, 1.6, 1), deterministic=True, seed=1).output[0, 0, 2, 0]
    >>> jax.grad(mean_of_last)(row).ravel()
    Array([0. , 0. , 0. , 0.5, 0.5], dtype=float32)
    """
    x = jnp.asarray(value)
    if x.dtype.name not in _xla.DTYPES:
        raise TypeError(f"value must have dtype {', '.join(_xla.DTYPES)}, got {x.dtype.name}")
    rows, cols = _xla.sequences(
        x.shape, pooling_ratio, pseudo_random, overlapping, deterministic, seed, seed2, data_format
    )
    output = _pool(x, Pool(rows, cols, bool(overlapping), data_format))
    return FractionalAvgPool(output, np.array(rows, np.int64), np.array(cols, np.int64))
