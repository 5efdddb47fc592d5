"""A backward convolution of PyTorch as gradops knows it: its plans, or the reason why there are none."""

from __future__ import annotations

from math import prod
from typing import NamedTuple, TypeAlias

import torch

from gradops._arrays import NUMBERS
from gradops._call import compute, follow, recipe
from gradops._dispatch import TILED, selected, widens
from gradops._geometry import plan
from gradops._problem import Plan
from gradops._values import Shape

from ._table import Layer, keeps_order
from ._tensors import CHANNELS_LAST, DATA_FORMATS, STORAGES, Outline, empty, format_of, memory

Sizes: TypeAlias = list[int]


FILTER_FORMATS = {CHANNELS_LAST: "KRSC", torch.contiguous_format: "KCRS"}
"""The `filter_format` of `plan`, by how PyTorch calls it."""

MANY = 1 << 21
"""Numbers of 16 bits from which on the gradient of a filter over ones takes 0.05 to 0.7 of the time of PyTorch's sum, the way to the kernel included."""


class Declined(Exception):
    """Why a convolution is left to PyTorch."""


class Call(NamedTuple):
    """What `aten::convolution_backward` is asked, without the numbers."""

    dy: Outline
    x: Outline
    w: Outline
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool
    groups: int


class Case(NamedTuple):
    """How the gradients of one convolution are computed: how images, filters and gradients of these lie, recipes for `follow`, and what they are for.

    A bias has no recipe where PyTorch sums as fast. A transposed convolution from x to y is the input gradient of one from y to x with the
    same filter: in its gradients, x and dy change places.
    """

    layer: Layer
    format: torch.memory_format
    filters: torch.memory_format
    gradients: torch.memory_format
    input: object
    filter: object
    bias: object

    def input_gradient(self, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """The gradient of the input."""
        dy, w = dense(dy, self.format), dense(w, self.filters)
        dx = empty(x.shape, x.dtype, self.format)
        follow(self.input, (dy.data_ptr(), w.data_ptr()), dx.data_ptr(), torch.get_num_threads())
        return dx

    def filter_gradient(self, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """The gradient of the filter, in the order of the images as PyTorch has it."""
        dw = torch.empty(w.shape, dtype=w.dtype, memory_format=self.gradients)
        first, second = (dy, x) if self.layer.kind == "transposed" else (x, dy)
        first, second = dense(first, self.format), dense(second, self.format)
        follow(self.filter, (first.data_ptr(), second.data_ptr()), dw.data_ptr(), torch.get_num_threads())
        return dw.contiguous(memory_format=self.format)

    def bias_gradient(self, dy: torch.Tensor) -> torch.Tensor:
        """The sums of all pixels."""
        if self.bias is None:
            return dy.sum((0, 2, 3))
        dy, (n, channels, h, w) = dense(dy, self.format), dy.shape
        ones, sums = torch.ones((n, 1, h, w), dtype=dy.dtype), torch.empty(channels, dtype=dy.dtype)
        follow(self.bias, (ones.data_ptr(), dy.data_ptr()), sums.data_ptr(), torch.get_num_threads())
        return sums


def dense(tensor: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """The tensor in this order, itself if it is."""
    return tensor.contiguous(memory_format=memory_format)


def run(plan: Plan, storage: int, first: torch.Tensor, second: torch.Tensor, result: torch.Tensor) -> None:
    """Computes a plan with PyTorch's number of threads."""
    compute(plan, [memory(first), memory(second)], storage, memory(result), torch.get_num_threads())


def case_of(call: Call) -> Case:
    """How gradops computes what a call is asked. Raises `Declined` where it does not."""
    dy, x, w, stride, padding, dilation, transposed, groups = call
    if not (len(dy.shape) == len(x.shape) == len(w.shape) == 4 and len(stride) == len(padding) == len(dilation) == 2):
        raise Declined("not 2-d")
    if x.dtype is None or not dy.dtype == x.dtype == w.dtype:
        raise Declined("dtype")
    if 0 in (*x.shape, *w.shape, *dy.shape):
        raise Declined("empty")
    if min(padding) < 0:
        raise Declined("negative padding")
    if min(*stride, *dilation, groups) < 1:
        raise Declined("not a stride, dilation or number of groups")
    memory_format = format_of(x[:2], w[:2])
    images = (dy, x) if transposed else (x, dy)
    source, grid = (arranged(image.shape, memory_format) for image in images)
    k, c, r, s = w.shape
    given = attributes(stride, ((padding[0],) * 2, (padding[1],) * 2), dilation, memory_format)
    kind = "transposed" if transposed else "dense" if groups == 1 else "depthwise" if c == 1 else "grouped"
    after = images[1]
    layer = Layer(
        dtype=NUMBERS[STORAGES[x.dtype]],
        channels_last=memory_format is CHANNELS_LAST,
        kind=kind,
        groups=groups,
        channels=c,
        outputs=k // groups,
        taps=(r, s),
        stride=(stride[0], stride[1]),
        dilation=(dilation[0], dilation[1]),
        images=images[0].shape[0],
        plane=images[0].shape[2] * images[0].shape[3],
        whole=all(map(meets_all, images[0].shape[2:], images[1].shape[2:], (r, s), stride, padding, dilation)),
        work=prod(after.shape) * c * r * s,
        tiled=x.dtype is torch.bfloat16 and selected() == TILED,
        widened=x.dtype is torch.bfloat16 and widens(),
    )
    read, written = (
        torch.contiguous_format if keeps_order(layer, gradient) else CHANNELS_LAST for gradient in ("input", "filter")
    )
    try:
        filters = plan("conv2d_backprop_filter", source, (r, s, c, k), grid, given, FILTER_FORMATS[written])
        inputs = (
            plan("conv2d", source, (r, s, c, k), None, given, FILTER_FORMATS[read])
            if transposed
            else plan("conv2d_backprop_input", source, (r, s, c, k), grid, given, FILTER_FORMATS[read])
        )
    except ValueError:
        raise Declined("shapes do not fit, or fit in PyTorch alone") from None
    if filters.groups != groups or inputs.output_shape != grid:
        raise Declined("shapes do not fit, or fit in PyTorch alone")
    storage = STORAGES[x.dtype]
    many = x.dtype.itemsize == 2 and prod(dy.shape) >= MANY
    sums = recipe(sums_of(dy.shape, memory_format), storage) if many else None
    return Case(layer, memory_format, read, written, recipe(inputs, storage), recipe(filters, storage), sums)


def meets_all(size: int, out: int, taps: int, stride: int, padding: int, dilation: int) -> bool:
    """Whether each tap of a dimension meets a pixel."""
    offsets = [tap * dilation - padding for tap in range(taps)]
    first = [max(-(offset // stride), 0) for offset in offsets]
    return all(at < out and at * stride + offset < size for at, offset in zip(first, offsets, strict=True))


def sums_of(shape: Shape, memory_format: torch.memory_format) -> Plan:
    """How the gradient of a bias is computed as that of a filter over ones."""
    n, channels, h, w = shape
    ones, images = (arranged((n, depth, h, w), memory_format) for depth in (1, channels))
    given = attributes([1, 1], ((0, 0), (0, 0)), [1, 1], memory_format)
    return plan("conv2d_backprop_filter", ones, (1, 1, 1, channels), images, given, "KRSC")


def arranged(shape: Shape, memory_format: torch.memory_format) -> Shape:
    """The shape (N, C, H, W) of a tensor as it lies in memory."""
    n, c, h, w = shape
    return (n, h, w, c) if memory_format is CHANNELS_LAST else (n, c, h, w)


def attributes(
    stride: Sizes, padding: tuple[Shape, Shape], dilation: Sizes, memory_format: torch.memory_format
) -> tuple[Shape, tuple[Shape, ...], tuple[int, ...], str, Shape]:
    """The key that `plan` takes, of pairs for rows and columns."""
    pairs = arranged(((0, 0), (0, 0), *padding), memory_format)  # type: ignore[arg-type]
    return tuple(stride), pairs, (), DATA_FORMATS[memory_format], tuple(dilation)  # type: ignore[return-value]
