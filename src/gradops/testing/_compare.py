"""Comparisons with a reference, and the bounds that they rest on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}


class MistrustedComparison(ValueError):
    """A comparison that would say little: nothing to compare, mostly zeros, or sums that are not exact."""


class Expected(NamedTuple):
    """What a reference says.

    Attributes
    ----------
    value : ndarray
        The result in float64, or in the op's integer type.
    absolute : ndarray
        The same sums over the magnitudes of their terms.
    depth : int
        The largest number of roundings on the way to one element.
    accumulation : str
        The type in which the op has to sum.
    """

    value: NDArray
    absolute: NDArray
    depth: int
    accumulation: str


def error_bound(expected: Expected, dtype: np.dtype) -> NDArray:
    """Return the error that each element may have.

    A sum of `depth` terms in a type of unit roundoff u errs by at most depth * u times the sum of the magnitudes, and,
    roundings being independent, by no more than a few sqrt(depth) * u [1]_; 8 is taken for "a few". The float64 reference
    is allowed the same in its own roundoff, and a storage type narrower than the accumulation one more rounding.

    References
    ----------
    .. [1] N. J. Higham and T. Mary, "A new approach to probabilistic rounding error analysis",
       SIAM J. Sci. Comput. 41 (2019).
    """
    growth = min(expected.depth, 8.0 * np.sqrt(expected.depth))
    roundoff, storage = _ROUNDOFF[expected.accumulation], _ROUNDOFF[dtype.name]
    summed = growth * (roundoff + _ROUNDOFF["float64"]) * expected.absolute
    if storage <= roundoff:
        return summed + _SMALLEST[dtype.name]
    return summed + np.maximum(storage * (np.abs(expected.value) + summed), _SMALLEST[dtype.name] / 2)


def assert_close(got: NDArray, expected: Expected, *, mostly_zero_ok: bool = False, label: object = "") -> None:
    """Raise AssertionError unless every element lies within its `error_bound`.

    Parameters
    ----------
    got : ndarray
        A result; its dtype is the storage type.
    expected : Expected
    mostly_zero_ok : bool
        Accept a reference that is empty or at least half zeros, as uncovered pixels make it.
    label : object
        Named in the message.

    Raises
    ------
    MistrustedComparison
        The comparison would say little.
    """
    _trust(expected.value, mostly_zero_ok, label)
    _same_shape(got, expected.value, label)
    if np.issubdtype(got.dtype, np.integer):
        return _report(got, expected.value, got != expected.value, label)
    error = np.abs(got.astype(np.float64) - expected.value)
    _report(got, expected.value, ~(error <= error_bound(expected, got.dtype)), label)
    return None


def assert_exact(got: NDArray, expected: Expected, *, mostly_zero_ok: bool = False, label: object = "") -> None:
    """Raise AssertionError unless every element is the reference, rounded once to the storage type.

    Parameters
    ----------
    got : ndarray
        A result; its dtype is the storage type.
    expected : Expected
        Of integers so small that no order of summation rounds.
    mostly_zero_ok : bool
        Accept a reference that is empty or at least half zeros, as uncovered pixels make it.
    label : object
        Named in the message.

    Raises
    ------
    MistrustedComparison
        The comparison would say little.
    """
    _trust(expected.value, mostly_zero_ok, label)
    _same_shape(got, expected.value, label)
    if expected.absolute.size and expected.absolute.max() * _ROUNDOFF[expected.accumulation] > 1:
        raise MistrustedComparison(f"{label}: sums up to {expected.absolute.max():g} need not be exact")
    rounded = expected.value.astype(got.dtype)
    _report(got, rounded, got != rounded, label)


def _trust(value: NDArray, mostly_zero_ok: bool, label: object) -> None:
    zeros = 1.0 - np.count_nonzero(value) / value.size if value.size else 1.0
    if zeros > 0.5 and not mostly_zero_ok:
        raise MistrustedComparison(f"{label}: {zeros:.0%} of the {value.size} reference values are zero")


def _same_shape(got: NDArray, value: NDArray, label: object) -> None:
    if got.shape != value.shape:
        raise AssertionError(f"{label}: got the shape {got.shape}, expected {value.shape}")


def _report(got: NDArray, value: NDArray, wrong: NDArray, label: object) -> None:
    if not wrong.any():
        return
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    raise AssertionError(
        f"{label}: {np.count_nonzero(wrong)} of {wrong.size} {got.dtype} values differ; "
        f"the first at {where}: got {got[where]!s}, expected {value[where]!s}"
    )
