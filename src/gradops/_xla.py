"""What XLA's custom call is told: a plan as an array of integers that may be stored with a compiled program, and the call itself."""

from __future__ import annotations

import struct
from functools import cache
from hashlib import blake2b
from math import prod
from typing import Any

from gradops import _pooling
from gradops._algorithms import STEMS
from gradops._arrays import FLOATS, ITEM_SIZES, STORAGE
from gradops._call import Plan, shared_threads, steps
from gradops._dispatch import kernel
from gradops._geometry import attributes, plan
from gradops._kernels import xla
from gradops._problem import Lane, Problem
from gradops._values import Shape
from gradops._version import __version__

DTYPES = FLOATS
"""What convolutions and pooling take here."""

KERNELS = (*sorted(STEMS), "pool_gather", "pool_spread")
"""By their place in the table of the custom call; each is the build for the level in use where the program runs."""

_FORMAT = repr((__version__, KERNELS, Problem._fields, Lane._fields, _pooling.Problem._fields))
KEY = int.from_bytes(blake2b(_FORMAT.encode(), digest_size=7).digest())
"""Which gradops understands a recipe: programs outlive the process that compiled them."""


@cache
def handler() -> object:
    """The custom call, a capsule for XLA. All kernels are loaded: a stored program may name any."""
    return xla.handler(KEY, [kernel(stem).entry for stem in KERNELS], shared_threads())


def packed(plan: Plan, dtype: str) -> bytes:
    """The recipe of a plan for arrays of `dtype`."""
    storage = STORAGE[dtype]
    found = steps(plan, storage)
    (first, problem), (second, unpadded) = found or (("", b""), ("", b""))
    places = [KERNELS.index(stem) if stem else -1 for stem in (first, second)]
    size = prod(plan.result_shape) * ITEM_SIZES[storage]
    return struct.pack("=7q", KEY, storage, size, *places, len(problem) // 8, len(unpadded) // 8) + problem + unpadded


def convolution(
    op: str,
    input_shape: Shape,
    filter_shape: Shape,
    output_shape: Shape,
    strides: Shape,
    padding: tuple[Shape, ...],
    dilations: Shape,
    data_format: str,
) -> Plan:
    """The plan of `conv2d` or a gradient of it; `padding` is that of rows and of columns."""
    pairs = dict(zip("HW", padding, strict=True))
    given = attributes(strides, [pairs.get(letter, (0, 0)) for letter in data_format], (), data_format, dilations)
    return plan(op, input_shape, filter_shape, None if op == "conv2d" else output_shape, given)


pooled, pooling_gradient = _pooling.pooled, _pooling.gradient


def sequences(shape: Shape, *given: Any) -> tuple[Shape, Shape]:
    """The sequences of rows and columns that a pooling of `shape` draws; `given` are the arguments of `gradops._pooling.attributes`."""
    found = _pooling.forward(shape, _pooling.attributes(*given))
    return found.row_sequence, found.col_sequence
