"""Fractional average pooling as PyTorch ops: sequences that are drawn, and two linear ops that are each other's gradients."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from gradops._call import compute
from gradops._pooling import Plan, attributes, forward, gradient, pooled

from ._case import arranged, dense
from ._tensors import DATA_FORMATS, STORAGES, common_format, memory

Tensor: TypeAlias = torch.Tensor


@torch.library.custom_op("gradops::fractional_sequences", mutates_args=(), device_types="cpu")
def sequences(
    height: int, width: int, row_ratio: float, col_ratio: float, pseudo_random: bool, seeds: Tensor
) -> tuple[Tensor, Tensor]:
    """Row and column positions at which cells begin, drawn by two seeds."""
    plan = forward((1, height, width, 1), _given(row_ratio, col_ratio, pseudo_random, *seeds.tolist()))
    rows, cols = (torch.tensor(sequence, dtype=torch.int64) for sequence in (plan.row_sequence, plan.col_sequence))
    return rows, cols


def _given(row_ratio: float, col_ratio: float, pseudo_random: bool, seed: int, seed2: int) -> Any:
    return attributes((1.0, row_ratio, col_ratio, 1.0), pseudo_random, False, True, seed, seed2, "NHWC")


@sequences.register_fake
def _(
    height: int, width: int, row_ratio: float, col_ratio: float, pseudo_random: bool, seeds: Tensor
) -> tuple[Tensor, Tensor]:
    plan = forward((1, int(height), int(width), 1), _given(float(row_ratio), float(col_ratio), pseudo_random, 1, 1))
    rows, cols = (seeds.new_empty(len(sequence)) for sequence in (plan.row_sequence, plan.col_sequence))
    return rows, cols


@torch.library.custom_op("gradops::fractional_avg_pool", mutates_args=(), device_types="cpu")
def pool(x: Tensor, rows: Tensor, cols: Tensor, overlapping: bool) -> Tensor:
    """The means over the cells that begin at these rows and columns."""
    memory_format = common_format(x)
    shape = arranged(tuple(x.shape), memory_format)
    plan = pooled(shape, _positions(rows), _positions(cols), overlapping, DATA_FORMATS[memory_format])
    return _computed(plan, x, _output_shape(x, rows, cols), memory_format)


@torch.library.custom_op("gradops::fractional_avg_pool_gradient", mutates_args=(), device_types="cpu")
def spread(dy: Tensor, rows: Tensor, cols: Tensor, size: list[int], overlapping: bool) -> Tensor:
    """The gradient of an input of this size: each element is shared among the pixels of its cell."""
    memory_format = common_format(dy)
    before, after = (arranged(tuple(shape), memory_format) for shape in (size, dy.shape))
    plan = gradient(before, after, _positions(rows), _positions(cols), overlapping, DATA_FORMATS[memory_format])
    return _computed(plan, dy, size, memory_format)


def _computed(plan: Plan, images: Tensor, size: list[int], memory_format: Any) -> Tensor:
    result = torch.empty(size, dtype=images.dtype, memory_format=memory_format)
    compute(
        plan, [memory(dense(images, memory_format))], STORAGES[images.dtype], memory(result), torch.get_num_threads()
    )
    return result


def _positions(sequence: Tensor) -> tuple[int, ...]:
    return tuple(sequence.tolist())


def _output_shape(x: Tensor, rows: Tensor, cols: Tensor) -> list[Any]:
    return [*x.shape[:2], rows.shape[0] - 1, cols.shape[0] - 1]


@pool.register_fake
def _(x: Tensor, rows: Tensor, cols: Tensor, overlapping: bool) -> Tensor:
    return x.new_empty(_output_shape(x, rows, cols)).contiguous(memory_format=common_format(x))


@spread.register_fake
def _(dy: Tensor, rows: Tensor, cols: Tensor, size: list[int], overlapping: bool) -> Tensor:
    return dy.new_empty(size).contiguous(memory_format=common_format(dy))


class Pool(torch.autograd.Function):
    """`pool` with gradients."""

    @staticmethod
    def forward(x: Tensor, rows: Tensor, cols: Tensor, overlapping: bool) -> Tensor:
        """Compute the means."""
        return pool(x, rows, cols, overlapping)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the gradient needs."""
        x, rows, cols, ctx.overlapping = inputs
        ctx.size = list(x.shape)
        ctx.save_for_backward(rows, cols)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradient of the images."""
        rows, cols = ctx.saved_tensors
        return distribute(dy, rows, cols, ctx.size, ctx.overlapping), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, rows: Tensor, cols: Tensor, overlapping: bool) -> tuple[Tensor, int]:
        """Compute all of a batch at once."""
        images = x.movedim(in_dims[0], 0).flatten(0, 1)
        return Pool.apply(images, rows, cols, overlapping).unflatten(0, (info.batch_size, -1)), 0


class Spread(torch.autograd.Function):
    """`spread` with gradients."""

    @staticmethod
    def forward(dy: Tensor, rows: Tensor, cols: Tensor, size: list[int], overlapping: bool) -> Tensor:
        """Compute the gradient of the images."""
        return spread(dy, rows, cols, size, overlapping)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the gradient needs."""
        _, rows, cols, _, ctx.overlapping = inputs
        ctx.save_for_backward(rows, cols)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradient of the gradient, which are means."""
        rows, cols = ctx.saved_tensors
        return average(g, rows, cols, ctx.overlapping), None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, dy: Tensor, rows: Tensor, cols: Tensor, size: list[int], overlapping: bool
    ) -> tuple[Tensor, int]:
        """Compute all of a batch at once."""
        batch = info.batch_size
        images, whole = dy.movedim(in_dims[0], 0).flatten(0, 1), [batch * size[0], *size[1:]]
        return Spread.apply(images, rows, cols, whole, overlapping).unflatten(0, (batch, -1)), 0


def average(*arguments: Any) -> Tensor:
    """`pool` with gradients, also where a compiler traces it."""
    return pool(*arguments) if torch.compiler.is_compiling() else Pool.apply(*arguments)


def distribute(*arguments: Any) -> Tensor:
    """`spread` in the same way."""
    return spread(*arguments) if torch.compiler.is_compiling() else Spread.apply(*arguments)


pool.register_autograd(Pool.backward, setup_context=Pool.setup_context)
spread.register_autograd(Spread.backward, setup_context=Spread.setup_context)
