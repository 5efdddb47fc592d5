"""Operands: small integers, which make every sum exact, and normal numbers, which do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
"""Names of all storage types."""

_DIGITS = np.array([-1, 1, 2, 3])


def dtype_named(name: str) -> np.dtype:
    """Return the NumPy dtype of a name in `DTYPES`; bfloat16 is that of the ml_dtypes package."""
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def random_integers(shapes: Sequence[tuple[int, ...]], dtype: DTypeLike, seed: int) -> list[NDArray]:
    """Draw arrays of -1, 1, 2 and 3: exact in every storage type, and so uneven that few sums cancel.

    Parameters
    ----------
    shapes : sequence of shapes
    dtype : dtype
        The same seed draws the same numbers for every dtype.
    seed : int

    Returns
    -------
    list of ndarray
    """
    rng, digits = np.random.default_rng(seed), _DIGITS.astype(dtype)
    return [digits[rng.integers(len(digits), size=shape, dtype=np.uint8)] for shape in shapes]


def random_normal(shapes: Sequence[tuple[int, ...]], dtype: DTypeLike, seed: int) -> list[NDArray]:
    """Draw arrays of standard normal numbers, rounded to `dtype`; integers are drawn from -99 to 99.

    Parameters
    ----------
    shapes : sequence of shapes
    dtype : dtype
        The same seed draws the same numbers for all floating-point types but float64, which has its own.
    seed : int

    Returns
    -------
    list of ndarray
    """
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        return [rng.integers(-99, 100, size=shape).astype(dtype) for shape in shapes]
    drawn = np.float64 if dtype == np.float64 else np.float32
    return [rng.standard_normal(size=shape, dtype=drawn).astype(dtype, copy=False) for shape in shapes]
