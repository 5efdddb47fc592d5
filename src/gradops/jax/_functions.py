"""Convolutions as users call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ._convolution import forward, input_gradient, native
from ._matching import Match, Request, matched
from ._stats import declined, taken


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> jax.Array:
    """`jax.lax.conv_general_dilated`, on the CPU computed by gradops where it can.

    That is where there are two spatial dimensions, images are NHWC or NCHW and remain it, the dtype is float16, bfloat16, float32 or float64,
    and the padding crops nothing; with `lhs_dilation` if `window_strides` is 1. All other calls are JAX's own; `stats` counts them.

    Parameters
    ----------
    lhs, rhs : array
        Images and filters, as `dimension_numbers` says.
    window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count, batch_group_count
        As for JAX.
    precision
        Has no effect on what gradops computes: float16 and bfloat16 are summed in float32, others in themselves.
    preferred_element_type
        As for JAX; another dtype than that of the arrays is left to it.
    out_sharding
        As for JAX; left to it if given.

    Returns
    -------
    jax.Array

    Raises
    ------
    TypeError, ValueError
        Those of JAX.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import gradops.jax
    >>> x, w = jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 1))
    >>> def loss(w):
    ...     y = gradops.jax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    ...     return y.sum()
    >>> jax.jit(jax.grad(loss))(w)[:, :, 0, 0]
    Array([[ 9., 12.,  9.],
           [12., 16., 12.],
           [ 9., 12.,  9.]], dtype=float32)
    """
    request = Request(
        _frozen(window_strides),
        padding if isinstance(padding, str) else _frozen(padding),
        _frozen(lhs_dilation),
        _frozen(rhs_dilation),
        dimension_numbers if isinstance(dimension_numbers, lax.ConvDimensionNumbers) else _frozen(dimension_numbers),
        feature_group_count,
        batch_group_count,
        preferred_element_type,
    )
    found = "out_sharding" if out_sharding is not None else _found(lhs, rhs, request)
    if isinstance(found, str):
        declined[found] += 1
        others = request._asdict() | ({} if out_sharding is None else {"out_sharding": out_sharding})
        return native(lhs, rhs, precision=precision, **others)
    taken["conv_general_dilated"] += 1
    x = jnp.asarray(lhs)
    w = jnp.transpose(rhs, found.order)
    if found.input_shape is None:
        return forward(x, w, found.conv)
    return input_gradient(x, _turned(w, feature_group_count), found.conv, found.input_shape)


def _frozen(value: Any) -> Any:
    """`value` with tuples in the place of its sequences."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple, np.ndarray)) else value


def _found(lhs: Any, rhs: Any, request: Request) -> Match | str:
    shapes = [np.shape(array) for array in (lhs, rhs)]
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        return "symbolic shape"
    lhs_dtype, rhs_dtype = (jax.dtypes.canonicalize_dtype(jax.dtypes.result_type(array)).name for array in (lhs, rhs))
    return matched(*shapes, (lhs_dtype, rhs_dtype), request)


def _turned(w: jax.Array, groups: int) -> jax.Array:
    """The filter of the convolution that a transposed one, with filter `w`, is the gradient of."""
    rows, cols, into, out = w.shape
    grouped = jnp.flip(w, (0, 1)).reshape(rows, cols, into, groups, out // groups)
    return grouped.transpose(0, 1, 4, 3, 2).reshape(rows, cols, out // groups, groups * into)


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: int | tuple[int, int] = 1,
    padding: str | Sequence[tuple[int, int]] = "SAME",
    *,
    data_format: str = "NHWC",
    dilations: int | tuple[int, int] = 1,
) -> jax.Array:
    """Each channel of images convolved with filters of its own, as `gradops.depthwise_conv2d_native` does, and differentiable.

    Parameters
    ----------
    input : array, shape (N, H, W, C) or (N, C, H, W)
    filter : array, shape (R, S, C, M)
        M filters for each channel; output channel ``c * M + m`` is channel c under its m-th filter.
    strides, dilations : int or pair of int, optional
        For rows and columns.
    padding : {"SAME", "VALID"} or two pairs of int, optional
        Pairs are (before, after) of rows and of columns.
    data_format : {"NHWC", "NCHW"}, optional
        The order of the dimensions of images.

    Returns
    -------
    jax.Array, shape (N, P, Q, C * M) or (N, C * M, P, Q)

    Raises
    ------
    TypeError, ValueError
        If shapes or attributes do not fit together.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import gradops.jax
    >>> image = jnp.arange(8.0).reshape(1, 2, 2, 2)
    >>> gradops.jax.depthwise_conv2d(image, jnp.array([1.0, -1.0]).reshape(1, 1, 2, 1))[0, 0]
    Array([[ 0., -1.],
           [ 2., -3.]], dtype=float32)
    """
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError(f"data_format must be 'NHWC' or 'NCHW', got {data_format!r}")
    shape, channels = np.shape(filter), np.shape(input)[data_format.index("C")] if np.ndim(input) == 4 else None
    if len(shape) != 4 or shape[2] != channels:
        raise ValueError(
            f"filter must have shape (rows, columns, channels of input, multiplier), got {shape} for input {np.shape(input)}"
        )
    return conv_general_dilated(
        input,
        jnp.reshape(filter, (*shape[:2], 1, shape[2] * shape[3])),
        _pair("strides", strides),
        padding,
        rhs_dilation=_pair("dilations", dilations),
        dimension_numbers=(data_format, "HWIO", data_format),
        feature_group_count=channels,
    )


def _pair(name: str, value: int | Sequence[int]) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or min(pair) < 1:
        raise ValueError(f"{name} must be a positive integer or a pair of them, got {value!r}")
    return pair[0], pair[1]
