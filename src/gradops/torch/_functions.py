"""The functions that users call: arguments as PyTorch's own functions have them, checked, then handed to the ops."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from ._convolution import convolve
from ._pooling import average, sequences
from ._tensors import STORAGES

Tensor: TypeAlias = torch.Tensor
Pair: TypeAlias = int | Sequence[int]

_LARGEST_SEED = 2**62


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: str | Pair | Sequence[Sequence[int]] = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """The 2-D convolution of `torch.nn.functional.conv2d`, computed by gradops, with gradients of any order.

    Parameters
    ----------
    input : torch.Tensor, shape (N, C, H, W)
        Images on the CPU of dtype float16, bfloat16, float32 or float64; contiguous or channels_last, which the result is then, too.
    weight : torch.Tensor, shape (K, C / groups, R, S)
        Of the same dtype.
    bias : torch.Tensor, shape (K,), optional
        What is added to each output channel.
    stride, dilation : int or pair of int
        Step of the window and distance of its taps: one number, or (rows, columns).
    padding : "same", "valid", int, pair of int, or two pairs of int
        Rows above and below and columns left and right: one number, (rows, columns), or ((top, bottom), (left, right)). "same" gives
        ceil(H / stride) rows, the odd one below or right.
    groups : int
        Into how many groups the channels fall.

    Returns
    -------
    torch.Tensor, shape (N, K, P, Q)
        The output, of the inputs' dtype. float16 and bfloat16 are summed in float32 and rounded once.

    Raises
    ------
    TypeError
        If the dtypes are unsupported or differ, or a size is no integer.
    ValueError
        If the shapes and attributes do not fit together.

    Examples
    --------
    >>> import torch
    >>> import gradops.torch
    >>> image = torch.arange(9.0).reshape(1, 1, 3, 3).requires_grad_()
    >>> gradops.torch.conv2d(image, torch.ones(1, 1, 2, 2), padding=((1, 0), (0, 0))).sum().backward()
    >>> image.grad[0, 0]
    tensor([[2., 4., 2.],
            [2., 4., 2.],
            [1., 2., 1.]])
    """
    (stride_h, stride_w), (dilation_h, dilation_w) = _pair("stride", stride, 1), _pair("dilation", dilation, 1)
    groups = _integer("groups", groups, 1)
    input, weight = _checked(input, weight, groups)
    pads = _paddings(padding, input, weight, (stride_h, stride_w), (dilation_h, dilation_w))
    reach = [dilation_h * (weight.shape[2] - 1) + 1, dilation_w * (weight.shape[3] - 1) + 1]
    for at, name in enumerate(("rows", "columns")):
        if input.shape[2 + at] + pads[2 * at] + pads[2 * at + 1] < reach[at]:
            raise ValueError(
                f"weight must not reach over more {name} than the padded input has, got {reach[at]} {name}"
            )
    y = convolve(input, weight, [stride_h, stride_w], pads, [dilation_h, dilation_w], groups)
    return y if bias is None else y + _bias(bias, weight)[:, None, None].to(y.dtype)


def depthwise_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: str | Pair | Sequence[Sequence[int]] = 0,
    dilation: Pair = 1,
) -> Tensor:
    """The depthwise convolution: `conv2d` with a group for each channel.

    Parameters
    ----------
    input : torch.Tensor, shape (N, C, H, W)
        As for `conv2d`.
    weight : torch.Tensor, shape (C * M, 1, R, S)
        M filters for each channel, one channel after the other.
    bias : torch.Tensor, shape (C * M,), optional
        What is added to each output channel.
    stride, padding, dilation
        As for `conv2d`.

    Returns
    -------
    torch.Tensor, shape (N, C * M, P, Q)
        The output.

    Raises
    ------
    TypeError, ValueError
        As for `conv2d`.

    Examples
    --------
    >>> import torch
    >>> import gradops.torch
    >>> images = torch.ones(1, 2, 3, 3)
    >>> gradops.torch.depthwise_conv2d(images, torch.ones(4, 1, 3, 3), padding="same")[0, :, 1, 1]
    tensor([9., 9., 9., 9.])
    """
    _four("input", input)
    _four("weight", weight)
    channels = input.shape[1]
    if weight.shape[1] != 1 or channels == 0 or weight.shape[0] % channels:
        raise ValueError(
            f"weight must have shape (C * M, 1, R, S) with the {channels} channels of input, got {tuple(weight.shape)}"
        )
    return conv2d(input, weight, bias, stride, padding, dilation, channels)


def fractional_avg_pool2d(
    input: Tensor,
    ratio: float | Sequence[float],
    *,
    pseudo_random: bool = False,
    overlapping: bool = False,
    return_sequences: bool = False,
    generator: torch.Generator | None = None,
) -> Any:
    """The mean over cells whose sizes vary, so that images can shrink by a factor that is no integer.

    Every call draws new cells, from PyTorch's random numbers: `torch.manual_seed` repeats them.

    Parameters
    ----------
    input : torch.Tensor, shape (N, C, H, W)
        Images on the CPU of dtype float16, bfloat16, float32 or float64; contiguous or channels_last, which the result is then, too.
    ratio : float or pair of float
        By how much rows and columns shrink, at least 1: there are floor(H / ratio) rows of cells.
    pseudo_random : bool, optional
        Draw one number for each axis instead of shuffling its cells: sizes then alternate evenly.
    overlapping : bool, optional
        Whether a cell includes the first row and column of the next one.
    return_sequences : bool, optional
        Whether to return where the cells begin, too.
    generator : torch.Generator, optional
        Where the random numbers come from, instead of PyTorch's default.

    Returns
    -------
    torch.Tensor, shape (N, C, P, Q)
        The means, with gradients of any order. With `return_sequences`, a tuple of them and of two int64 tensors: where the rows
        and the columns of cells begin, and the size of the axis as last element.

    Raises
    ------
    TypeError
        If the dtype is unsupported, or an argument is not of its type.
    ValueError
        If a ratio is below 1 or exceeds the image.

    See Also
    --------
    gradops.fractional_avg_pool : the same on arrays, with TensorFlow's seeds.

    Examples
    --------
    >>> import torch
    >>> import gradops.torch
    >>> images = torch.arange(12.0).reshape(1, 1, 3, 4)
    >>> pooled, rows, columns = gradops.torch.fractional_avg_pool2d(images, (3, 2), return_sequences=True)
    >>> pooled, rows, columns
    (tensor([[[[4.5000, 6.5000]]]]), tensor([0, 3]), tensor([0, 2, 4]))
    """
    _four("input", input)
    _supported("input", input)
    ratios = (ratio, ratio) if isinstance(ratio, (int, float)) else tuple(ratio)
    if len(ratios) != 2:
        raise ValueError(f"ratio must be a number or a pair (rows, columns), got {ratio!r}")
    seeds = torch.randint(1, _LARGEST_SEED, (2,), generator=generator)
    height, width = input.shape[2:]
    rows, cols = sequences(height, width, float(ratios[0]), float(ratios[1]), bool(pseudo_random), seeds)
    pooled = average(input, rows, cols, bool(overlapping))
    return (pooled, rows, cols) if return_sequences else pooled


def _checked(input: Tensor, weight: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Both tensors, in the dtype of autocast if that is on."""
    _four("input", input)
    _four("weight", weight)
    if torch.is_autocast_enabled("cpu") and torch.float64 not in (input.dtype, weight.dtype):
        dtype = torch.get_autocast_dtype("cpu")
        input, weight = input.to(dtype), weight.to(dtype)
    _supported("input", input)
    if weight.dtype != input.dtype:
        raise TypeError(f"input and weight must have the same dtype, got {input.dtype} and {weight.dtype}")
    k, c, r, s = weight.shape
    if 0 in (c, r, s) or k % groups or input.shape[1] != groups * c:
        raise ValueError(
            f"weight must have shape (K, C / groups, R, S) with the {input.shape[1]} channels of input and K a multiple of "
            f"groups, {groups}, got {tuple(weight.shape)}"
        )
    return input, weight


def _four(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.dim() != 4:
        raise ValueError(f"{name} must have 4 dimensions, got shape {tuple(tensor.shape)}")


def _supported(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in STORAGES:
        raise TypeError(f"{name} must have dtype {', '.join(map(str, STORAGES))}, got {tensor.dtype}")
    if tensor.device.type not in ("cpu", "meta"):
        raise ValueError(f"{name} must be on the CPU, got a tensor on {tensor.device}")


def _bias(bias: Tensor, weight: Tensor) -> Tensor:
    if not isinstance(bias, torch.Tensor) or bias.shape != weight.shape[:1]:
        shape = tuple(bias.shape) if isinstance(bias, torch.Tensor) else type(bias).__name__
        raise ValueError(f"bias must be a tensor of shape {(weight.shape[0],)}, got {shape}")
    return bias


def _paddings(
    padding: Any, input: Tensor, weight: Tensor, stride: tuple[int, int], dilation: tuple[int, int]
) -> list[int]:
    """Top, bottom, left, right."""
    if padding == "valid":
        return [0, 0, 0, 0]
    if padding == "same":
        pads = []
        for n, taps, s, d in zip(input.shape[2:], weight.shape[2:], stride, dilation, strict=True):
            total = max(0, ((n + s - 1) // s - 1) * s + d * (taps - 1) + 1 - n)
            pads += [total // 2, total - total // 2]
        return pads
    if isinstance(padding, str):
        raise ValueError(f"padding must be 'same', 'valid' or numbers, got {padding!r}")
    if isinstance(padding, Sequence) and len(padding) == 2 and all(isinstance(side, Sequence) for side in padding):
        return [value for side in padding for value in _pair("padding", side, 0)]
    rows, cols = _pair("padding", padding, 0)
    return [rows, rows, cols, cols]


def _pair(name: str, value: Any, least: int) -> tuple[int, int]:
    values = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
    if len(values) != 2:
        raise ValueError(f"{name} must be an integer or a pair of them, got {value!r}")
    return _integer(name, values[0], least), _integer(name, values[1], least)


def _integer(name: str, value: Any, least: int) -> int:
    if isinstance(value, torch.SymInt):
        return value
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number
