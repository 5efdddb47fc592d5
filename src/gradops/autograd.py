"""HIPS autograd: the ops of gradops as primitives, so that code written with ``autograd.numpy`` differentiates through them.

The convolutions and their gradients are bilinear and each other's derivatives, in both modes and of any order. Arguments are those of the
functions of the same name in `gradops`, but for ``out``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

if find_spec("autograd") is None:
    raise ImportError(
        "gradops.autograd needs the package autograd, which is not installed: pip install gradops[autograd]"
    )

from autograd.extend import defjvp, defvjp, primitive
from autograd.tracer import getval

import gradops

__all__ = [
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "depthwise_conv2d_native",
    "depthwise_conv2d_native_backprop_filter",
    "depthwise_conv2d_native_backprop_input",
    "fractional_avg_pool",
    "fractional_avg_pool_grad",
]

_Function: TypeAlias = Callable[..., Any]
_primitive: Callable[[_Function], _Function] = primitive


def _differentiable(function: _Function) -> _Function:
    """A primitive of a function of gradops; a result cannot go to `out`, since the tape keeps it."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if named.get("out") is not None:
            raise TypeError(
                f"{function.__name__} of gradops.autograd takes no out, since results must last until the backward pass"
            )
        return function(*arguments, **named)

    return _primitive(call)


conv2d = _differentiable(gradops.conv2d)
conv2d_backprop_input = _differentiable(gradops.conv2d_backprop_input)
conv2d_backprop_filter = _differentiable(gradops.conv2d_backprop_filter)
depthwise_conv2d_native = _differentiable(gradops.depthwise_conv2d_native)
depthwise_conv2d_native_backprop_input = _differentiable(gradops.depthwise_conv2d_native_backprop_input)
depthwise_conv2d_native_backprop_filter = _differentiable(gradops.depthwise_conv2d_native_backprop_filter)


def _define(forward: _Function, of_input: _Function, of_filter: _Function) -> None:
    """Derivatives of a convolution y(x, w), of dx(dy, w) and of dw(x, dy); `given` and `named` are the other arguments."""
    defvjp(
        forward,
        lambda y, x, w, *given, **named: lambda g: of_input(np.shape(x), w, g, *given, **named),
        lambda y, x, w, *given, **named: lambda g: of_filter(x, np.shape(w), g, *given, **named),
        argnums=(0, 1),
    )
    defjvp(
        forward,
        lambda g, y, x, w, *given, **named: forward(g, w, *given, **named),
        lambda g, y, x, w, *given, **named: forward(x, g, *given, **named),
        argnums=(0, 1),
    )
    defvjp(
        of_input,
        lambda dx, sizes, w, dy, *given, **named: lambda g: of_filter(g, np.shape(w), dy, *given, **named),
        lambda dx, sizes, w, dy, *given, **named: lambda g: forward(g, w, *given, **named),
        argnums=(1, 2),
    )
    defjvp(
        of_input,
        lambda g, dx, sizes, w, dy, *given, **named: of_input(sizes, g, dy, *given, **named),
        lambda g, dx, sizes, w, dy, *given, **named: of_input(sizes, w, g, *given, **named),
        argnums=(1, 2),
    )
    defvjp(
        of_filter,
        lambda dw, x, sizes, dy, *given, **named: lambda g: of_input(np.shape(x), g, dy, *given, **named),
        lambda dw, x, sizes, dy, *given, **named: lambda g: forward(x, g, *given, **named),
        argnums=(0, 2),
    )
    defjvp(
        of_filter,
        lambda g, dw, x, sizes, dy, *given, **named: of_filter(g, sizes, dy, *given, **named),
        lambda g, dw, x, sizes, dy, *given, **named: of_filter(x, sizes, g, *given, **named),
        argnums=(0, 2),
    )


_define(conv2d, conv2d_backprop_input, conv2d_backprop_filter)
_define(
    depthwise_conv2d_native, depthwise_conv2d_native_backprop_input, depthwise_conv2d_native_backprop_filter
)  # fmt: skip


def fractional_avg_pool(value: Any, *given: Any, **named: Any) -> Any:
    """`gradops.fractional_avg_pool`, whose output is differentiable with respect to `value`.

    Parameters
    ----------
    value : array_like
        As for `gradops.fractional_avg_pool`, of floating-point numbers.
    given, named
        Its other arguments, but for ``out``.

    Returns
    -------
    FractionalAvgPool
        A named tuple (output, row_pooling_sequence, col_pooling_sequence).

    Examples
    --------
    >>> import autograd
    >>> import numpy as np
    >>> import gradops.autograd
    >>> row = np.array([20.0, 5, 16, 3, 7]).reshape(1, 1, 5, 1)
    >>> def mean_of_last(row):
    ...     return gradops.autograd.fractional_avg_pool(row, (1, 1, 1.6, 1), deterministic=True, seed=1).output[0, 0, 2, 0]
    >>> autograd.grad(mean_of_last)(row).ravel()
    array([0. , 0. , 0. , 0.5, 0.5])
    """
    if named.get("out") is not None:
        raise TypeError(
            "fractional_avg_pool of gradops.autograd takes no out, since results must last until the backward pass"
        )
    plain = value
    while getval(plain) is not plain:
        plain = getval(plain)
    pooled = gradops.fractional_avg_pool(plain, *given, **named)
    overlapping = bool(named.get("overlapping", given[2] if len(given) > 2 else False))
    cells = pooled.row_pooling_sequence, pooled.col_pooling_sequence, overlapping, named.get("data_format", "NHWC")
    return pooled._replace(output=_known(value, pooled.output, *cells))


@_primitive
def _known(value: Any, output: Any, rows: Any, cols: Any, overlapping: bool, data_format: str) -> Any:
    """A pooling that has been computed."""
    return output


@_primitive
def _pool(value: Any, rows: Any, cols: Any, overlapping: bool, data_format: str) -> Any:
    """A pooling by known cells, for derivatives of derivatives."""
    height, width = (value.shape[data_format.index(letter)] for letter in "HW")
    terms = "nhwc,ph,qw->npqc" if data_format == "NHWC" else "nchw,ph,qw->ncpq"
    means = _means(rows, height, overlapping), _means(cols, width, overlapping)
    return np.einsum(terms, value.astype(np.float64), *means).astype(value.dtype)


def _means(sequence: Any, size: int, overlapping: bool) -> Any:
    cells = np.zeros((len(sequence) - 1, size))
    for i, (start, end) in enumerate(pairwise(sequence)):
        cells[i, start : end + overlapping] = 1
    return cells / cells.sum(1, keepdims=True)


fractional_avg_pool_grad = _differentiable(gradops.fractional_avg_pool_grad)


def _spread(shape: Any, g: Any, rows: Any, cols: Any, overlapping: bool, data_format: str) -> Any:
    return fractional_avg_pool_grad(shape, g, rows, cols, overlapping, data_format=data_format)


def _pool_of_gradient(
    g: Any, shape: Any, dy: Any, rows: Any, cols: Any, overlapping: bool = False, name: Any = None, **named: Any
) -> Any:
    return _pool(g, rows, cols, overlapping, named.get("data_format", "NHWC"))


defvjp(_known, lambda y, x, output, *cells: lambda g: _spread(np.shape(x), g, *cells), argnums=(0,))
defjvp(_known, lambda g, y, x, output, *cells: _pool(g, *cells), argnums=(0,))
defvjp(_pool, lambda y, x, *cells: lambda g: _spread(np.shape(x), g, *cells), argnums=(0,))
defjvp(_pool, lambda g, y, x, *cells: _pool(g, *cells), argnums=(0,))
defvjp(
    fractional_avg_pool_grad,
    lambda dx, *given, **named: lambda g: _pool_of_gradient(g, *given, **named),
    argnums=(1,),
)
defjvp(
    fractional_avg_pool_grad,
    lambda g, dx, shape, dy, *given, **named: fractional_avg_pool_grad(shape, g, *given, **named),
    argnums=(1,),
)
