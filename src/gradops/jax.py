"""JAX: 2-d convolutions and fractional average pooling with all their gradients, computed by gradops on the CPU.

`conv_general_dilated` is `jax.lax.conv_general_dilated`, argument for argument. What gradops computes becomes a custom call of XLA, without
Python in its path, under ``jit``, ``grad`` (of any order and mode), ``vmap``, ``pmap`` and ``shard_map``. Everything else, and every other
platform, gets the plain operation. `enable` puts it in the place of JAX's own, where layers of Flax and Keras find it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

if find_spec("jax") is None:
    raise ImportError("gradops.jax needs JAX, which is not installed: pip install gradops[jax]")

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from gradops import _xla

OLDEST = (0, 10)
if jax.__version_info__ < OLDEST:
    raise ImportError(f"gradops.jax needs JAX {'.'.join(map(str, OLDEST))} or newer, got {jax.__version__}")

__all__ = [
    "FractionalAvgPool",
    "conv_general_dilated",
    "depthwise_conv2d",
    "disable",
    "enable",
    "enabled",
    "fractional_avg_pool",
    "stats",
]

Shape: TypeAlias = tuple[int, ...]

_TARGET = "gradops_follow"
jax.ffi.register_ffi_target(_TARGET, _xla.handler(), platform="cpu")

_native = lax.conv_general_dilated
_taken: Counter[str] = Counter()
_declined: Counter[str] = Counter()


# Primitives: a convolution and both of its gradients, each bilinear, each the other two's derivative


class _Conv(NamedTuple):
    """The attributes of a convolution, for rows and columns; a filter is [rows, columns, channels in / groups, channels out]."""

    strides: Shape
    padding: tuple[Shape, ...]
    dilations: Shape
    data_format: str

    @property
    def channels(self) -> int:
        """The dimension of images that holds channels."""
        return self.data_format.index("C")

    def output_shape(self, x: Shape, w: Shape) -> Shape:
        """The shape of the output for the shapes of image and filter."""
        shape = [x[0], w[3], w[3], w[3]]
        for i, axis in enumerate((self.data_format.index("H"), self.data_format.index("W"))):
            reach = (w[i] - 1) * self.dilations[i] + 1
            shape[axis] = (x[axis] + sum(self.padding[i]) - reach) // self.strides[i] + 1
        return tuple(shape)

    def native(self, x: jax.Array, w: jax.Array) -> jax.Array:
        """What any platform computes."""
        groups = x.shape[self.channels] // w.shape[2]
        order = (self.data_format, "HWIO", self.data_format)
        return _native(
            x, w, self.strides, self.padding, None, self.dilations, dimension_numbers=order, feature_group_count=groups
        )


def _forward(x: jax.Array, w: jax.Array, conv: _Conv) -> jax.Array:
    return _forward_p.bind(*_alike(x, w), conv=conv, shape=conv.output_shape(x.shape, w.shape))


def _input_gradient(dy: jax.Array, w: jax.Array, conv: _Conv, shape: Shape) -> jax.Array:
    return _input_p.bind(*_alike(dy, w), conv=conv, shape=shape)


def _filter_gradient(x: jax.Array, dy: jax.Array, conv: _Conv, shape: Shape) -> jax.Array:
    return _filter_p.bind(*_alike(x, dy), conv=conv, shape=shape)


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    """Both as values that vary over the same axes of a `shard_map`, so that the gradient of what did not is summed over them."""
    axes = [jax.typeof(value).manual_axis_type.varying for value in (a, b)]
    both = axes[0] | axes[1]
    missing = [tuple(sorted(both - own)) for own in axes]
    return tuple(
        lax.pcast(value, names, to="varying") if names else value for value, names in zip((a, b), missing, strict=True)
    )


def _native_input_gradient(dy: jax.Array, w: jax.Array, conv: _Conv, shape: Shape) -> jax.Array:
    x = jax.ShapeDtypeStruct(shape, dy.dtype)
    return jax.linear_transpose(lambda x: conv.native(x, w), x)(dy)[0]


def _native_filter_gradient(x: jax.Array, dy: jax.Array, conv: _Conv, shape: Shape) -> jax.Array:
    w = jax.ShapeDtypeStruct(shape, x.dtype)
    return jax.linear_transpose(lambda w: conv.native(x, w), w)(dy)[0]


def _native_forward(x: jax.Array, w: jax.Array, conv: _Conv, shape: Shape) -> jax.Array:
    return conv.native(x, w)


_Plan: TypeAlias = Callable[..., Any]


def _primitive(name: str, plan: _Plan, native: Callable[..., jax.Array]) -> Primitive:
    """A primitive that is the custom call of a plan on the CPU and `native` elsewhere. Its parameter `shape` is that of the result."""
    primitive = Primitive(f"gradops_{name}")

    @lru_cache(maxsize=1024)
    def compiled(parameters: tuple[tuple[str, Any], ...]) -> Callable[..., jax.Array]:
        return jax.jit(lambda *operands: primitive.bind(*operands, **dict(parameters)))

    def lowered(context: mlir.LoweringRuleContext, *operands: Any, **parameters: Any) -> Any:
        avals = context.avals_in
        recipe = _xla.packed(plan(*(aval.shape for aval in avals), **parameters), avals[0].dtype.name)
        return jax.ffi.ffi_lowering(_TARGET)(context, *operands, recipe=np.frombuffer(recipe, np.int64))

    primitive.def_impl(lambda *operands, **parameters: compiled(tuple(parameters.items()))(*operands))
    primitive.def_abstract_eval(lambda first, *_, shape, **__: first.update(shape=shape, weak_type=False))
    mlir.register_lowering(primitive, mlir.lower_fun(native, multiple_results=False))
    mlir.register_lowering(primitive, lowered, platform="cpu")
    return primitive


_forward_p = _primitive(
    "conv2d", lambda x, w, conv, shape: _xla.convolution("conv2d", x, w, shape, *conv), _native_forward
)
_input_p = _primitive(
    "conv2d_backprop_input",
    lambda dy, w, conv, shape: _xla.convolution("conv2d_backprop_input", shape, w, dy, *conv),
    _native_input_gradient,
)
_filter_p = _primitive(
    "conv2d_backprop_filter",
    lambda x, dy, conv, shape: _xla.convolution("conv2d_backprop_filter", x, shape, dy, *conv),
    _native_filter_gradient,
)

ad.defbilinear(
    _forward_p,
    lambda ct, x, w, conv, shape: _input_gradient(ct, w, conv, x.aval.shape),
    lambda ct, x, w, conv, shape: _filter_gradient(x, ct, conv, w.aval.shape),
)
ad.defbilinear(
    _input_p,
    lambda ct, dy, w, conv, shape: _forward(ct, w, conv),
    lambda ct, dy, w, conv, shape: _filter_gradient(ct, dy, conv, w.aval.shape),
)
ad.defbilinear(
    _filter_p,
    lambda ct, x, dy, conv, shape: _input_gradient(dy, ct, conv, x.aval.shape),
    lambda ct, x, dy, conv, shape: _forward(x, ct, conv),
)


# Batches: more images where the filter is shared, else more groups


def _into(array: jax.Array, axis: int, batch: int | None, size: int) -> jax.Array:
    """An array whose dimension `batch`, or copies of it, are merged into its dimension `axis`, outermost."""
    if batch is None:
        array, batch = jnp.broadcast_to(array, (size, *array.shape)), 0
    moved = jnp.moveaxis(array, batch, axis)
    return moved.reshape(*moved.shape[:axis], size * moved.shape[axis + 1], *moved.shape[axis + 2 :])


def _out_of(array: jax.Array, axis: int, size: int) -> jax.Array:
    """The inverse: dimension `axis` becomes the batch and what is left of it."""
    return array.reshape(*array.shape[:axis], size, array.shape[axis] // size, *array.shape[axis + 1 :])


def _scaled(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], shape[axis] * size, *shape[axis + 1 :])


def _batched(primitive: Primitive, operands: Sequence[Any], dims: Sequence[Any], conv: _Conv, shape: Shape) -> Any:
    size = next(a.shape[dim] for a, dim in zip(operands, dims, strict=True) if dim is not None)
    if primitive is not _filter_p and dims[1] is None:
        images = _into(operands[0], 0, dims[0], size)
        out = primitive.bind(images, operands[1], conv=conv, shape=_scaled(shape, 0, size))
        return _out_of(out, 0, size), 0
    axes = (conv.channels, conv.channels if primitive is _filter_p else 3)
    merged = [_into(a, axis, dim, size) for a, axis, dim in zip(operands, axes, dims, strict=True)]
    axis = 3 if primitive is _filter_p else conv.channels
    return _out_of(primitive.bind(*_alike(*merged), conv=conv, shape=_scaled(shape, axis, size)), axis, size), axis


for _each in (_forward_p, _input_p, _filter_p):
    batching.primitive_batchers[_each] = partial(_batched, _each)


# lax.conv_general_dilated


class _Declined(Exception):
    """Why the plain operation is taken."""


class _Request(NamedTuple):
    """A call of `conv_general_dilated` but its arrays, hashable."""

    window_strides: Shape
    padding: str | tuple[Shape, ...]
    lhs_dilation: Shape | None
    rhs_dilation: Shape | None
    dimension_numbers: Any
    feature_group_count: int
    batch_group_count: int
    preferred_element_type: Any


class _Match(NamedTuple):
    """How gradops computes it: `order` turns the filter to rows, columns, in, out; `input_shape` is that of a transposed convolution."""

    conv: _Conv
    order: Shape
    input_shape: Shape | None


_FORMATS = {(0, 3, 1, 2): "NHWC", (0, 1, 2, 3): "NCHW"}


@lru_cache(maxsize=1024)
def _matched(lhs: Shape, rhs: Shape, dtypes: tuple[str, str], request: _Request) -> _Match | str:
    """How gradops computes a call, or why it does not; what JAX refuses is refused by JAX."""
    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip((lhs, rhs), dtypes, strict=True)]
    result = jax.eval_shape(lambda x, w: _native(x, w, **request._asdict()), *arrays)
    try:
        return _match(lhs, rhs, dtypes[0], request, result)
    except _Declined as reason:
        return str(reason)


def _match(lhs: Shape, rhs: Shape, dtype: str, request: _Request, result: jax.ShapeDtypeStruct) -> _Match:
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
    return _Match(_Conv(strides, pads, dilations, data_format), (*taps, into, out), input_shape)


def _transposed_padding(size: int, out: int, stride: int, reach: int, pads: tuple[int, int]) -> tuple[int, int]:
    """The padding with which a convolution of `stride` takes `out` pixels to `size`."""
    before = reach - 1 - pads[0]
    after = max(0, reach - 1 - pads[1])
    _require((out + before + after - reach) // stride + 1 == size, "padding that crops")
    return before, after


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise _Declined(reason)


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
    request = _Request(
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
        _declined[found] += 1
        others = request._asdict() | ({} if out_sharding is None else {"out_sharding": out_sharding})
        return _native(lhs, rhs, precision=precision, **others)
    _taken["conv_general_dilated"] += 1
    x = jnp.asarray(lhs)
    w = jnp.transpose(rhs, found.order)
    if found.input_shape is None:
        return _forward(x, w, found.conv)
    return _input_gradient(x, _turned(w, feature_group_count), found.conv, found.input_shape)


def _frozen(value: Any) -> Any:
    """`value` with tuples in the place of its sequences."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple, np.ndarray)) else value


def _found(lhs: Any, rhs: Any, request: _Request) -> _Match | str:
    shapes = [np.shape(array) for array in (lhs, rhs)]
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        return "symbolic shape"
    lhs_dtype, rhs_dtype = (jax.dtypes.canonicalize_dtype(jax.dtypes.result_type(array)).name for array in (lhs, rhs))
    return _matched(*shapes, (lhs_dtype, rhs_dtype), request)


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


# Fractional pooling: linear, its gradient is its transpose


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


class _Pool(NamedTuple):
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


def _spread(dy: jax.Array, pool: _Pool, shape: Shape) -> jax.Array:
    return _spread_p.bind(dy, pool=pool, shape=shape)


def _native_spread(dy: jax.Array, pool: _Pool, shape: Shape) -> jax.Array:
    return jax.linear_transpose(pool.native, jax.ShapeDtypeStruct(shape, dy.dtype))(dy)[0]


def _pool(x: jax.Array, pool: _Pool) -> jax.Array:
    counts = {"H": len(pool.rows) - 1, "W": len(pool.cols) - 1}
    shape = tuple(counts.get(letter, size) for letter, size in zip(pool.data_format, x.shape, strict=True))
    return _pool_p.bind(x, pool=pool, shape=shape)


_pool_p = _primitive(
    "fractional_avg_pool", lambda x, pool, shape: _xla.pooled(x, *pool), lambda x, pool, shape: pool.native(x)
)
_spread_p = _primitive(
    "fractional_avg_pool_grad", lambda dy, pool, shape: _xla.pooling_gradient(shape, dy, *pool), _native_spread
)
ad.deflinear2(_pool_p, lambda ct, x, pool, shape: [_spread(ct, pool, x.aval.shape)])
ad.deflinear2(_spread_p, lambda ct, dy, pool, shape: [_pool(ct, pool)])


def _batched_pool(primitive: Primitive, operands: Any, dims: Any, pool: _Pool, shape: Shape) -> Any:
    size = operands[0].shape[dims[0]]
    out = primitive.bind(_into(operands[0], 0, dims[0], size), pool=pool, shape=_scaled(shape, 0, size))
    return _out_of(out, 0, size), 0


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
    output = _pool(x, _Pool(rows, cols, bool(overlapping), data_format))
    return FractionalAvgPool(output, np.array(rows, np.int64), np.array(cols, np.int64))


# In JAX's place


def enable() -> None:
    """Put `conv_general_dilated` in the place of ``jax.lax.conv_general_dilated``, where layers of Flax and Keras look it up.

    Whatever JAX has compiled is forgotten, so that functions under ``jit`` are traced again. JAX's own ``conv_transpose``, ``conv`` and
    ``conv_with_general_padding``, and names imported from ``jax.lax`` before, stay as they are.

    Examples
    --------
    >>> import jax, gradops.jax
    >>> with gradops.jax.enabled():
    ...     jax.lax.conv_general_dilated is gradops.jax.conv_general_dilated
    True
    """
    _install(_native, conv_general_dilated)


def disable() -> None:
    """Undo `enable`: ``jax.lax`` is as it was, and what JAX has compiled is forgotten."""
    _install(conv_general_dilated, _native)


def _install(before: Callable[..., Any], after: Callable[..., Any]) -> None:
    if lax.conv_general_dilated is after:
        return
    if lax.conv_general_dilated is not before:
        raise RuntimeError(
            f"jax.lax.conv_general_dilated must be JAX's own or that of gradops, got {lax.conv_general_dilated!r}: "
            "whoever has replaced it must restore it first"
        )
    lax.conv_general_dilated = after
    jax.clear_caches()


@contextmanager
def enabled() -> Iterator[None]:
    """`enable` inside the block; afterwards as it was before."""
    before = lax.conv_general_dilated
    enable()
    try:
        yield
    finally:
        (enable if before is conv_general_dilated else disable)()


def stats() -> dict[str, dict[str, int]]:
    """How often convolutions were taken and declined, by reason, since the import. A function under ``jit`` counts once for each trace.

    Returns
    -------
    dict
        ``"taken"`` by name and ``"declined"`` by reason.
    """
    return {"taken": dict(_taken), "declined": dict(_declined)}
