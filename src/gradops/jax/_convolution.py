"""A convolution and both of its gradients as primitives: each bilinear, each the derivative of the other two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from gradops import _xla
from gradops._values import Shape

from ._batching import into, out_of, scaled
from ._primitives import primitive_of

native = lax.conv_general_dilated
"""JAX's own, whoever has replaced it since."""


class Conv(NamedTuple):
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
        return native(
            x, w, self.strides, self.padding, None, self.dilations, dimension_numbers=order, feature_group_count=groups
        )


def forward(x: jax.Array, w: jax.Array, conv: Conv) -> jax.Array:
    """The convolution of images with a filter."""
    return _forward_p.bind(*_alike(x, w), conv=conv, shape=conv.output_shape(x.shape, w.shape))


def input_gradient(dy: jax.Array, w: jax.Array, conv: Conv, shape: Shape) -> jax.Array:
    """The gradient of the images, which have this shape."""
    return _input_p.bind(*_alike(dy, w), conv=conv, shape=shape)


def filter_gradient(x: jax.Array, dy: jax.Array, conv: Conv, shape: Shape) -> jax.Array:
    """The gradient of the filter, which has this shape."""
    return _filter_p.bind(*_alike(x, dy), conv=conv, shape=shape)


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    """Both as values that vary over the same axes of a `shard_map`, so that the gradient of what did not is summed over them."""
    axes = [jax.typeof(value).manual_axis_type.varying for value in (a, b)]
    both = axes[0] | axes[1]
    missing = [tuple(sorted(both - own)) for own in axes]
    return tuple(
        lax.pcast(value, names, to="varying") if names else value for value, names in zip((a, b), missing, strict=True)
    )


def native_input_gradient(dy: jax.Array, w: jax.Array, conv: Conv, shape: Shape) -> jax.Array:
    """`input_gradient` on any platform."""
    x = jax.ShapeDtypeStruct(shape, dy.dtype)
    return jax.linear_transpose(lambda x: conv.native(x, w), x)(dy)[0]


def native_filter_gradient(x: jax.Array, dy: jax.Array, conv: Conv, shape: Shape) -> jax.Array:
    """`filter_gradient` on any platform."""
    w = jax.ShapeDtypeStruct(shape, x.dtype)
    return jax.linear_transpose(lambda w: conv.native(x, w), w)(dy)[0]


def _native_forward(x: jax.Array, w: jax.Array, conv: Conv, shape: Shape) -> jax.Array:
    return conv.native(x, w)


_forward_p = primitive_of(
    "conv2d", lambda x, w, conv, shape: _xla.convolution("conv2d", x, w, shape, *conv), _native_forward
)
_input_p = primitive_of(
    "conv2d_backprop_input",
    lambda dy, w, conv, shape: _xla.convolution("conv2d_backprop_input", shape, w, dy, *conv),
    native_input_gradient,
)
_filter_p = primitive_of(
    "conv2d_backprop_filter",
    lambda x, dy, conv, shape: _xla.convolution("conv2d_backprop_filter", x, shape, dy, *conv),
    native_filter_gradient,
)

ad.defbilinear(
    _forward_p,
    lambda ct, x, w, conv, shape: input_gradient(ct, w, conv, x.aval.shape),
    lambda ct, x, w, conv, shape: filter_gradient(x, ct, conv, w.aval.shape),
)
ad.defbilinear(
    _input_p,
    lambda ct, dy, w, conv, shape: forward(ct, w, conv),
    lambda ct, dy, w, conv, shape: filter_gradient(ct, dy, conv, w.aval.shape),
)
ad.defbilinear(
    _filter_p,
    lambda ct, x, dy, conv, shape: input_gradient(dy, ct, conv, x.aval.shape),
    lambda ct, x, dy, conv, shape: forward(x, ct, conv),
)


def _batched(primitive: Primitive, operands: Sequence[Any], dims: Sequence[Any], conv: Conv, shape: Shape) -> Any:
    size = next(a.shape[dim] for a, dim in zip(operands, dims, strict=True) if dim is not None)
    if primitive is not _filter_p and dims[1] is None:
        images = into(operands[0], 0, dims[0], size)
        out = primitive.bind(images, operands[1], conv=conv, shape=scaled(shape, 0, size))
        return out_of(out, 0, size), 0
    axes = (conv.channels, conv.channels if primitive is _filter_p else 3)
    merged = [into(a, axis, dim, size) for a, axis, dim in zip(operands, axes, dims, strict=True)]
    axis = 3 if primitive is _filter_p else conv.channels
    return out_of(primitive.bind(*_alike(*merged), conv=conv, shape=scaled(shape, axis, size)), axis, size), axis


for _each in (_forward_p, _input_p, _filter_p):
    batching.primitive_batchers[_each] = partial(_batched, _each)
