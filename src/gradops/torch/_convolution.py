"""The convolution as three PyTorch ops, each linear in both tensors, so that each one's gradients are the other two.

`convolution`, `input_gradient` and `filter_gradient` take paddings (top, bottom, left, right) and filters (K, C/G, R, S); the number
of threads is PyTorch's. `Convolution`, `InputGradient` and `FilterGradient` are the same under autograd, to any order, and under
`torch.func`: in a batch of vmap, images are more images, and filters more groups. Neither an op nor a function alone would do: ops
have no gradients under `torch.func`, and compilers do not trace a function in another one's backward pass.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from gradops._geometry import plan
from gradops._problem import Plan

from ._case import arranged, attributes, dense, run
from ._tensors import CHANNELS_LAST, STORAGES, common_format

Tensor: TypeAlias = torch.Tensor
Sizes: TypeAlias = list[int]


def _plan(
    op: str, image: Sizes, grid: Sizes | None, filter: Sizes, how: tuple[Sizes, Sizes, Sizes], memory_format: Any
) -> Plan:
    """The plan of one of the three, all sizes in PyTorch's order."""
    stride, (top, bottom, left, right), dilation = how
    given = attributes(stride, ((top, bottom), (left, right)), dilation, memory_format)
    k, c, r, s = filter
    out = None if grid is None else arranged(tuple(grid), memory_format)
    return plan(op, arranged(tuple(image), memory_format), (r, s, c, k), out, given, "KRSC")


def _computed(plan: Plan, first: Tensor, second: Tensor, result: Tensor) -> Tensor:
    run(plan, STORAGES[first.dtype], first, second, result)
    return result


@torch.library.custom_op("gradops::convolution", mutates_args=(), device_types="cpu")
def convolution(x: Tensor, w: Tensor, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Tensor:
    """The output of a convolution."""
    memory_format = common_format(x, w)
    found = _plan("conv2d", x.shape, None, w.shape, (stride, padding, dilation), memory_format)
    y = _new(x, _output_shape(x, w, stride, padding, dilation), memory_format)
    return _computed(found, dense(x, memory_format), dense(w, CHANNELS_LAST), y)


@torch.library.custom_op("gradops::convolution_input_gradient", mutates_args=(), device_types="cpu")
def input_gradient(
    dy: Tensor, w: Tensor, size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Tensor:
    """The gradient of the input, which has this size."""
    memory_format = common_format(dy, w)
    found = _plan("conv2d_backprop_input", size, dy.shape, w.shape, (stride, padding, dilation), memory_format)
    return _computed(found, dense(dy, memory_format), dense(w, CHANNELS_LAST), _new(dy, size, memory_format))


@torch.library.custom_op("gradops::convolution_filter_gradient", mutates_args=(), device_types="cpu")
def filter_gradient(
    dy: Tensor, x: Tensor, size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Tensor:
    """The gradient of the filter, which has this size."""
    memory_format = common_format(x, dy)
    found = _plan("conv2d_backprop_filter", x.shape, dy.shape, size, (stride, padding, dilation), memory_format)
    dw = _new(dy, size, CHANNELS_LAST)
    _computed(found, dense(x, memory_format), dense(dy, memory_format), dw)
    return dw.contiguous(memory_format=memory_format)


def _new(like: Tensor, size: Any, memory_format: Any) -> Tensor:
    return torch.empty(size, dtype=like.dtype, device=like.device, memory_format=memory_format)


def _output_shape(x: Tensor, w: Tensor, stride: Sizes, padding: Sizes, dilation: Sizes) -> list[Any]:
    """The shape of the output; sizes may be symbols."""
    rows, cols = (
        (x.shape[2 + i] + padding[2 * i] + padding[2 * i + 1] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    )
    return [x.shape[0], w.shape[0], rows, cols]


@convolution.register_fake
def _(x: Tensor, w: Tensor, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Tensor:
    return _new(x, _output_shape(x, w, stride, padding, dilation), common_format(x, w))


@input_gradient.register_fake
def _(dy: Tensor, w: Tensor, size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Tensor:
    return _new(dy, size, common_format(dy, w))


@filter_gradient.register_fake
def _(dy: Tensor, x: Tensor, size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Tensor:
    return _new(dy, size, common_format(x, dy))


class _Linear(torch.autograd.Function):
    """What the three have in common: they keep both tensors, and what comes after these and after a size."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the gradients need."""
        ctx.save_for_backward(*inputs[:2])
        ctx.how = inputs[-4:]


class Convolution(_Linear):
    """`convolution` with gradients."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, *how: Any) -> Tensor:
        """Compute the output."""
        return convolution(x, w, *how)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of both tensors."""
        x, w = ctx.saved_tensors
        dx = differentiate_input(dy, w, list(x.shape), *ctx.how) if ctx.needs_input_grad[0] else None
        dw = differentiate_filter(dy, x, list(w.shape), *ctx.how) if ctx.needs_input_grad[1] else None
        return dx, dw, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], images: Tensor, w: Tensor, *given: Any) -> tuple[Tensor, int]:
        """Compute all of a batch at once."""
        *how, groups = given
        batch = info.batch_size
        if in_dims[1] is None:
            return Convolution.apply(_as_images(images, in_dims[0]), w, *how, groups).unflatten(0, (batch, -1)), 0
        parts = _as_channels(images, in_dims[0], batch), _as_filters(w, in_dims[1])
        return Convolution.apply(*parts, *how, groups * batch).unflatten(1, (batch, -1)), 1


class InputGradient(_Linear):
    """`input_gradient` with gradients."""

    @staticmethod
    def forward(dy: Tensor, w: Tensor, size: Sizes, *how: Any) -> Tensor:
        """Compute the gradient of the input."""
        return input_gradient(dy, w, size, *how)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of both tensors."""
        dy, w = ctx.saved_tensors
        first = convolve(g, w, *ctx.how) if ctx.needs_input_grad[0] else None
        second = differentiate_filter(dy, g, list(w.shape), *ctx.how) if ctx.needs_input_grad[1] else None
        return first, second, None, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], images: Tensor, w: Tensor, size: Sizes, *given: Any
    ) -> tuple[Tensor, int]:
        """Compute all of a batch at once."""
        (n, c, *others), (*how, groups) = size, given
        batch = info.batch_size
        if in_dims[1] is None:
            whole = [batch * n, c, *others]
            return InputGradient.apply(_as_images(images, in_dims[0]), w, whole, *how, groups).unflatten(
                0, (batch, -1)
            ), 0
        parts = _as_channels(images, in_dims[0], batch), _as_filters(w, in_dims[1])
        return InputGradient.apply(*parts, [n, batch * c, *others], *how, groups * batch).unflatten(1, (batch, -1)), 1


class FilterGradient(_Linear):
    """`filter_gradient` with gradients."""

    @staticmethod
    def forward(dy: Tensor, x: Tensor, size: Sizes, *how: Any) -> Tensor:
        """Compute the gradient of the filter."""
        return filter_gradient(dy, x, size, *how)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of both tensors."""
        dy, x = ctx.saved_tensors
        first = convolve(x, g, *ctx.how) if ctx.needs_input_grad[0] else None
        second = differentiate_input(dy, g, list(x.shape), *ctx.how) if ctx.needs_input_grad[1] else None
        return first, second, None, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], dy: Tensor, x: Tensor, size: Sizes, *given: Any
    ) -> tuple[Tensor, int]:
        """Compute all of a batch at once."""
        (k, *others), (*how, groups) = size, given
        batch = info.batch_size
        parts = (_as_channels(tensor, dim, batch) for tensor, dim in zip((dy, x), in_dims[:2], strict=True))
        return FilterGradient.apply(*parts, [batch * k, *others], *how, groups * batch).unflatten(0, (batch, -1)), 0


def convolve(*arguments: Any) -> Tensor:
    """`convolution` with gradients, also where a compiler traces it."""
    return convolution(*arguments) if torch.compiler.is_compiling() else Convolution.apply(*arguments)


def differentiate_input(*arguments: Any) -> Tensor:
    """`input_gradient` in the same way."""
    return input_gradient(*arguments) if torch.compiler.is_compiling() else InputGradient.apply(*arguments)


def differentiate_filter(*arguments: Any) -> Tensor:
    """`filter_gradient` in the same way."""
    return filter_gradient(*arguments) if torch.compiler.is_compiling() else FilterGradient.apply(*arguments)


convolution.register_autograd(Convolution.backward, setup_context=Convolution.setup_context)
input_gradient.register_autograd(InputGradient.backward, setup_context=InputGradient.setup_context)
filter_gradient.register_autograd(FilterGradient.backward, setup_context=FilterGradient.setup_context)


def _as_images(tensor: Tensor, dim: int) -> Tensor:
    """Images of a batch as more images."""
    return tensor.movedim(dim, 0).flatten(0, 1)


def _as_channels(tensor: Tensor, dim: int | None, batch: int) -> Tensor:
    """Images (N, C, H, W) of a batch, or the same for all, as (N, batch * C, H, W), for as many groups."""
    return tensor.repeat(1, batch, 1, 1) if dim is None else tensor.movedim(dim, 1).flatten(1, 2)


def _as_filters(tensor: Tensor, dim: int) -> Tensor:
    """Filters (K, ...) of a batch as (batch * K, ...)."""
    return tensor.movedim(dim, 0).flatten(0, 1)
