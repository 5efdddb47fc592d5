"""`aten::convolution_backward` over PyTorch's stable C interface, from PyTorch 2.13 on: Python is asked once for all calls that are alike.

The kernel (`gradops._kernels.torch_convolution`) finds what becomes of a call without Python's lock, and computes without it. Within steps of training with
small images, where little is in caches, the way through Python took 15 to 90 us a layer, as long as the layer itself.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradops import _threads
from gradops._arrays import KEPT
from gradops._arrays import empty as allocate
from gradops._kernels import torch_convolution

from ._answers import Decision, decide
from ._case import Call
from ._tensors import STORAGES, Outline, strides_of

_OP = "aten::convolution_backward"
_LIBRARIES = ("torch_cpu", "c10")
_ONES = {torch.bfloat16: 0x3F80, torch.float16: 0x3C00}
_FIRST = ("not 2-d", "not a dense tensor on the CPU")
"""The reasons that the kernel itself finds, gradient by gradient."""

Outcome = tuple[tuple[str, ...], tuple[str, ...]]


def available() -> bool:
    """Whether PyTorch has what the kernel calls, and no other kernel is registered for the CPU, which would have to be the one for what is declined."""
    return _addresses() is not None and not torch._C._dispatch_has_kernel_for_dispatch_key(_OP, "CPU")


class Registration:
    """The op, until `remove`. There is one at a time."""

    def __init__(self, ops: tuple[str, ...] | str) -> None:
        self.ops = ops
        self.outcomes: dict[Outcome, int] = {((), (reason,)): i for i, reason in enumerate(_FIRST)}
        self.numbers = itertools.count(len(_FIRST))
        addresses = _addresses()
        if addresses is None:
            raise RuntimeError("PyTorch lacks what the kernel calls")
        _watch_forks()
        torch_convolution.connect(addresses, self.answer, _memory, KEPT)
        torch_convolution.register()

    def answer(self, key: tuple[int, ...]) -> tuple[object, ...]:
        """What the kernel is told about calls that have this key."""
        x, w, dy = (_outline(key[i : i + 9]) for i in (0, 9, 18))
        stride, padding, dilation = (list(key[i : i + 2]) for i in (27, 29, 31))
        transposed, groups, asked = key[33:]
        decision = decide(
            self.ops,
            Call(dy, x, w, stride, padding, dilation, bool(transposed), groups),
            (bool(asked & 1), bool(asked & 2), bool(asked & 4)),
        )
        outcome = decision.taken, decision.declined
        counter = self.outcomes.get(outcome)
        if counter is None:  # two threads may be here: each takes a number of its own, and the first one's is kept
            counter = self.outcomes.setdefault(outcome, next(self.numbers))
        return (*_computed(decision, x, w, dy), counter)

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """The gradients that were taken, and those that were declined, by reason."""
        taken: Counter[str] = Counter()
        declined: Counter[str] = Counter()
        calls = torch_convolution.counts()
        for (names, reasons), i in self.outcomes.items():
            for name in names if calls[i] else ():
                taken[name] += calls[i]
            for reason in reasons if calls[i] else ():
                declined[reason] += calls[i]
        return dict(taken), dict(declined)

    def remove(self) -> None:
        """Gives the op back."""
        torch_convolution.unregister()


def _computed(decision: Decision, x: Outline, w: Outline, dy: Outline) -> tuple[object, ...]:
    """Recipes; how x, dy, w and dw lie for them, and dw at last; what is copied for that; a one of 16 bits."""
    case = decision.case
    if case is None or x.dtype is None:
        nothing = (0, 0, 0, 0)
        return (None, None, None), (nothing,) * 5, (False,) * 4, 0
    recipes = (case.input if decision.input else None, case.filter if decision.filter else None, case.bias)
    orders = [strides_of(image.shape, case.format) for image in (x, dy)]
    read, written, final = (
        strides_of(w.shape, memory_format) for memory_format in (case.filters, case.gradients, case.format)
    )
    turned = not Outline(w.shape, written, w.dtype).lies(case.format)
    copied = (not x.lies(case.format), not dy.lies(case.format), not w.lies(case.filters), turned)
    return recipes, (*orders, read, written, final), copied, _ONES.get(x.dtype, 0)


def _outline(key: tuple[int, ...]) -> Outline:
    """The part of a key that tells a tensor: dtype, sizes and strides."""
    return Outline(key[1:5], key[5:9], _dtypes().get(key[0]))


def _memory(size: int) -> tuple[Any, int]:
    """Memory that is kept for the next result when this one dies, and where it lies."""
    array = allocate((size,), np.dtype(np.uint8))
    return array, array.__array_interface__["data"][0]


@cache
def _libraries() -> list[ctypes.CDLL]:
    """The libraries that the import of PyTorch has loaded."""
    folder = Path(torch.__file__).parent / "lib"
    found = [path for name in _LIBRARIES for path in folder.glob(f"lib{name}.*") if path.suffix in (".so", ".dylib")]
    return [ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL | getattr(os, "RTLD_NOLOAD", 0)) for path in found]


@cache
def _addresses() -> tuple[int, ...] | None:
    """Where the functions lie that the kernel calls; None where PyTorch has not all of them."""
    found = [
        next((_address(library, name) for library in _libraries() if hasattr(library, name)), None)
        for name in torch_convolution.SYMBOLS
    ]
    return None if None in found else tuple(address or 0 for address in found)


def _address(library: ctypes.CDLL, name: str) -> int | None:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


@cache
def _dtypes() -> dict[int, torch.dtype]:
    """The dtypes that are computed, by PyTorch's numbers for them."""
    numbers: dict[int, torch.dtype] = {}
    for dtype in STORAGES:
        name = f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}"
        numbers[next(getattr(library, name)() for library in _libraries() if hasattr(library, name))] = dtype
    return numbers


@cache
def _watch_forks() -> None:
    """Has children that are forked after kernels ran on several threads use one, as they do everywhere."""
    _threads.keep_asking(lambda: torch_convolution.most_threads() > 1)
    os.register_at_fork(after_in_child=lambda: torch_convolution.limit_threads(_threads.is_limited()))
