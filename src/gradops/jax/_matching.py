"""Which calls of `conv_general_dilated` gradops computes, and how."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
from jax import lax

from gradops import _xla
from gradops._values import Shape

from ._convolution import Conv, native


class _Declined(Exception):
    """Why the plain operation is taken."""


class Request(NamedTuple):
    """A call of `conv_general_dilated` but its arrays, hashable."""

    window_strides: Shape
    padding: str | tuple[Shape, ...]
    lhs_dilation: Shape | None
    rhs_dilation: Shape | None
    dimension_numbers: Any
    feature_group_count: int
    batch_group_count: int
    preferred_element_type: Any


class Match(NamedTuple):
    """How gradops computes it: `order` turns the filter to rows, columns, in, out; `input_shape` is that of a transposed convolution."""

    conv: Conv
    order: Shape
    input_shape: Shape | None


_FORMATS = {(0, 3, 1, 2): "NHWC", (0, 1, 2, 3): "NCHW"}


@lru_cache(maxsize=1024)
def matched(lhs: Shape, rhs: Shape, dtypes: tuple[str, str], request: Request) -> Match | str:
    """How gradops computes a call, or why it does not; what JAX refuses is refused by JAX."""
    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip((lhs, rhs), dtypes, strict=True)]
    result = jax.eval_shape(lambda x, w: native(x, w, **request._asdict()), *arrays)
    try:
        return _match(lhs, rhs, dtypes[0], request, result)
    except _Declined as reason:
        return str(reason)


def _match(lhs: Shape, rhs: Shape, dtype: str, request: Request, result: jax.ShapeDtypeStruct) -> Match:
    _require(len(lhs) == 4, "not two-dimensional")
    _require(dtype in _xla.DTYPES and result.dtype == dtype, "dtype")
    _require(0 not in (*lhs, *rhs, *result.shape), "empty")
    _require(request.batch_group_count == 1, "batch_group_count")
    numbers = lax.conv_dimension_numbers(lhs, rhs, request.dimension_numbers)
    data_format = _FORMATS.get(tuple(numbers.lhs_spec), "")
    _require(bool(data_format) and numbers.lhs_spec == numbers.out_spec, "dimension_numbers")
    out, into, *taps = numbers.rhs_spec
    sizes = [[shape[data_format.index(letter)] for letter in "HW"] for shape in (lhs, result.shape)]
    strides, dilations = tuple(request.window_strides), request.rhs_dilation or (1, 1)
    reaches = [(rhs[axis] - 1) * dilation + 1 for axis, dilation in zip(taps, dilations, strict=True)]
    padding = request.padding
    pads = lax.padtype_to_pads(sizes[0], reaches, strides, padding) if isinstance(padding, str) else padding
    pads = tuple((int(low), int(high)) for low, high in pads)
    input_shape = None
    if request.lhs_dilation not in (None, (1, 1)):
        _require(strides == (1, 1), "window_strides beside lhs_dilation")
        strides, input_shape = request.lhs_dilation, result.shape
        pads = tuple(map(_transposed_padding, *sizes, strides, reaches, pads))
    _require(min(min(pair) for pair in pads) >= 0, "padding that crops")
    return Match(Conv(strides, pads, dilations, data_format), (*taps, into, out), input_shape)


def _transposed_padding(size: int, out: int, stride: int, reach: int, pads: tuple[int, int]) -> tuple[int, int]:
    """The padding with which a convolution of `stride` takes `out` pixels to `size`."""
    before = reach - 1 - pads[0]
    after = max(0, reach - 1 - pads[1])
    _require((out + before + after - reach) // stride + 1 == size, "padding that crops")
    return before, after


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise _Declined(reason)
