"""Tensors as a kernel finds them: which order they lie in, and their memory as arrays."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from gradops._arrays import KEPT, STORAGE
from gradops._arrays import empty as allocate

STORAGES = {getattr(torch, name): STORAGE[name] for name in ("float16", "bfloat16", "float32", "float64")}
"""The dtypes that are computed, and the codes by which the kernels know them."""

_BITS = {size: np.dtype(f"i{size}") for size in (2, 4, 8)}

CONTIGUOUS, CHANNELS_LAST = torch.contiguous_format, torch.channels_last
DATA_FORMATS = {CONTIGUOUS: "NCHW", CHANNELS_LAST: "NHWC"}

Strides: TypeAlias = tuple[int, int, int, int]


class Outline(NamedTuple):
    """What is known of a tensor without its numbers; no dtype if it is none that is computed."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype | None

    def lies(self, memory_format: torch.memory_format) -> bool:
        """Whether it is contiguous in this order."""
        wanted = strides_of(self.shape, memory_format)
        return all(size == 1 or one == other for size, one, other in zip(self.shape, self.strides, wanted, strict=True))


def outline(tensor: torch.Tensor) -> Outline:
    """A tensor's outline."""
    return Outline(tuple(tensor.shape), tensor.stride(), tensor.dtype if tensor.dtype in STORAGES else None)


def strides_of(shape: tuple[int, ...], memory_format: torch.memory_format) -> Strides:
    """The strides of contiguous images in this order."""
    _, c, h, w = shape
    return (h * w * c, 1, w * c, c) if memory_format is CHANNELS_LAST else (c * h * w, h * w, w, 1)


def common_format(*tensors: torch.Tensor) -> torch.memory_format:
    """The order in which PyTorch computes: channels last if one tensor suggests that."""
    return format_of(*((tuple(tensor.shape), tensor.stride()) for tensor in tensors))


def format_of(*lying: tuple[tuple[int, ...], tuple[int, ...]]) -> torch.memory_format:
    """`common_format` of tensors with such shapes and strides."""
    return CHANNELS_LAST if any(suggests_channels_last(*each) for each in lying) else CONTIGUOUS


def suggests_channels_last(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """What `Tensor.suggest_memory_format` of PyTorch's C++ interface says: strides alone decide, and ties are contiguous."""
    least = 0
    if strides[1] == 0:
        return False
    for axis in (1, 3, 2, 0):
        if strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * max(sizes[axis], 1)
    return True


def empty(shape: tuple[int, ...], dtype: torch.dtype, memory_format: torch.memory_format) -> torch.Tensor:
    """New images; large ones in memory that gradops keeps for the next ones when they die, since the system clears new pages slowly."""
    if math.prod(shape) * dtype.itemsize < KEPT:
        return torch.empty(shape, dtype=dtype, memory_format=memory_format)
    n, c, h, w = shape
    lying = (n, h, w, c) if memory_format is CHANNELS_LAST else shape
    tensor = torch.from_numpy(allocate(tuple(lying), _BITS[dtype.itemsize])).view(dtype)
    return tensor.permute(0, 3, 1, 2) if memory_format is CHANNELS_LAST else tensor


def memory(tensor: torch.Tensor) -> NDArray[Any]:
    """The memory of a dense tensor as an array, without a copy; bfloat16 as its bits."""
    tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.int16)
    array: np.ndarray[Any, np.dtype[Any]] = tensor.numpy()
    return array
