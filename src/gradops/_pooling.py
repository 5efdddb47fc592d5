"""Fractional average pooling: from what the caller wrote to a frozen plan with its sequences, or to an error that says why not.

A pooling sequence cuts an axis of n pixels into cells: cell i covers pixels ``sequence[i]`` to ``sequence[i + 1] - 1``, or to
``sequence[i + 1]`` if cells overlap, and never beyond n - 1. An output pixel is the mean over a row cell times a column cell.
"""

from __future__ import annotations

import math
import os
import secrets
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from numbers import Real
from typing import NamedTuple, TypeAlias, cast

from gradops._algorithms import Arithmetic
from gradops._values import LAYOUTS, Shape, integers, layout_of, limited, short, sizes

Cells: TypeAlias = list[tuple[int, int]]
"""The first pixel and the number of pixels of each cell of an axis."""

_WORD = 2**32 - 1
_SEED_BITS = 2**64 - 1
_SECRET = os.urandom(32)
_RATIO = "a sequence of 4 numbers in data_format order"


@dataclass(frozen=True, eq=False)
class Plan:
    """One pooling or gradient whose shapes, attributes and sequences have been found right."""

    op: str
    arguments: tuple[str]
    data_format: str
    result_shape: Shape
    row_sequence: Shape
    col_sequence: Shape
    zero: bool
    kernel: str
    packed: bytes

    @property
    def algorithms(self) -> tuple[tuple[str, ...], ...]:
        """There is one."""
        return (("pool",),) * len(Arithmetic)

    @property
    def exact(self) -> str:
        """The same."""
        return "pool"

    def stem(self, algorithm: str, storage: int) -> str:
        """The kernel, whatever the storage."""
        return self.kernel

    def problem(self, algorithm: str, unpadded: bool = False) -> bytes:
        """The kernel's view; nothing is padded."""
        return self.packed


class Problem(NamedTuple):
    """What both pooling kernels are told, in this order as 64-bit integers.

    The start and the size of each row cell and then of each column cell follow. An NCHW array is N*C planes of depth 1.
    """

    planes: int
    depth: int
    rows: int
    cols: int
    cell_rows: int
    cell_cols: int


class Attributes(NamedTuple):
    """The normalised attributes of a forward call. The ratio is in data_format order and in float32, as TensorFlow stores it."""

    pooling_ratio: tuple[float, ...]
    pseudo_random: bool
    overlapping: bool
    deterministic: bool
    seed: int
    seed2: int
    data_format: str


def attributes(
    pooling_ratio: object,
    pseudo_random: bool,
    overlapping: bool,
    deterministic: bool,
    seed: object,
    seed2: object,
    data_format: object,
) -> Attributes:
    """The attributes of a forward call, checked as far as that goes without the shape of the input."""
    numbers, seeds = _numbers(pooling_ratio), (_seed("seed", seed), _seed("seed2", seed2))
    return _attributes(
        Attributes(numbers, pseudo_random, overlapping, deterministic, *seeds, checked_format(data_format))
    )


@lru_cache(maxsize=256)
def _attributes(given: Attributes) -> Attributes:
    """`given` with the ratio rounded to float32."""
    layout, ratio = LAYOUTS[given.data_format], tuple(map(_float32, given.pooling_ratio))
    if len(ratio) != 4:
        raise ValueError(f"pooling_ratio must be {_RATIO}, got {len(ratio)}: {_spelled(ratio)}")
    if not all(number >= 1 for number in ratio):
        raise ValueError(f"pooling_ratio must be at least 1, got {_spelled(ratio)}")
    if ratio[layout.n] != 1 or ratio[layout.c] != 1:
        raise ValueError(
            f"pooling_ratio must be 1 for batch and channels, got {_spelled(ratio)} with data_format {given.data_format!r}"
        )
    if (given.seed or given.seed2) and not given.deterministic:
        raise ValueError(
            f"seed and seed2 must be 0 unless deterministic is True, got seed {given.seed} and seed2 {given.seed2}"
        )
    return given._replace(pooling_ratio=ratio)


def checked_format(data_format: object) -> str:
    """`data_format` if it is one."""
    if not isinstance(data_format, str):
        raise TypeError(f"data_format must be a string, 'NHWC' or 'NCHW', got {short(data_format)}")
    layout_of(data_format)
    return data_format


def _numbers(value: object) -> tuple[float, ...]:
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray)):
        numbers = tuple(value)
        if all(type(number) in (float, int) or _is_number(number) for number in numbers):
            return numbers
    raise TypeError(f"pooling_ratio must be {_RATIO}, got {short(value)}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _seed(name: str, value: object) -> int:
    seed = integers(name, value, "an integer")
    if not isinstance(seed, int):
        raise TypeError(f"{name} must be an integer, got {short(value)}")
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"{name} must fit a signed 64-bit integer, got {seed}")
    return seed


def _float32(value: float) -> float:
    """`value` rounded to float32. A quotient of two float32 in double precision, rounded so, is their float32 quotient."""
    try:
        return cast(float, struct.unpack("f", struct.pack("f", float(value)))[0])
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _spelled(ratio: tuple[float, ...]) -> str:
    return f"({', '.join(f'{item:g}' for item in ratio)})"


# The forward op


def forward(shape: Shape, given: Attributes) -> Plan:
    """The plan for pooling an array of `shape`, with its sequences drawn."""
    cells = _grid(shape, given)
    if not given.deterministic:
        return _drawn(shape, given, cells, secrets.randbits(64), secrets.randbits(64))
    if given.seed == given.seed2 == 0:
        return _remembered(shape, given, cells, *_process_seeds(given))
    return _remembered(shape, given, cells, given.seed, given.seed2)


@lru_cache(maxsize=256)
def _grid(shape: Shape, given: Attributes) -> tuple[int, int]:
    """Rows and columns of the output."""
    if len(shape) != 4:
        raise ValueError(f"value must have 4 dimensions ({given.data_format}), got shape {short(shape)}")
    layout = LAYOUTS[given.data_format]
    return _cells_of("rows", shape, given, layout.h), _cells_of("columns", shape, given, layout.w)


def _cells_of(name: str, shape: Shape, given: Attributes, axis: int) -> int:
    size, ratio = shape[axis], given.pooling_ratio[axis]
    if _float32(size) < ratio:
        raise ValueError(
            f"pooling_ratio must not exceed the {size} {name} of value {shape} ({given.data_format}), "
            f"got {ratio:g} in {_spelled(given.pooling_ratio)}"
        )
    return min(size, math.floor(_float32(_float32(size) / ratio)))


def _process_seeds(given: Attributes) -> tuple[int, int]:
    """Seeds that equal attributes share within this process, and that another process does not."""
    digest = blake2b(repr(given).encode(), key=_SECRET, digest_size=16).digest()
    return cast("tuple[int, int]", struct.unpack("2Q", digest))


def _drawn(shape: Shape, given: Attributes, cells: tuple[int, int], seed: int, seed2: int) -> Plan:
    layout = LAYOUTS[given.data_format]
    row_sequence, used = sequence(shape[layout.h], cells[0], given.pseudo_random, seed, seed2)
    col_sequence, _ = sequence(shape[layout.w], cells[1], given.pseudo_random, seed, seed2, used)
    return pooled(shape, row_sequence, col_sequence, given.overlapping, given.data_format)


def pooled(shape: Shape, row_sequence: Shape, col_sequence: Shape, overlapping: bool, data_format: str) -> Plan:
    """The plan for pooling an array of `shape` by two sequences."""
    layout = LAYOUTS[data_format]
    row_cells = _cells("row_pooling_sequence", row_sequence, "rows", shape[layout.h], overlapping)
    col_cells = _cells("col_pooling_sequence", col_sequence, "columns", shape[layout.w], overlapping)
    output_shape = layout.arranged(shape[layout.n], len(row_cells), len(col_cells), shape[layout.c])
    return Plan(
        op="fractional_avg_pool",
        arguments=("value",),
        data_format=data_format,
        result_shape=output_shape,
        row_sequence=row_sequence,
        col_sequence=col_sequence,
        zero=0 in output_shape,
        kernel="pool_gather",
        packed=_packed(shape, data_format, row_cells, col_cells),
    )


_remembered = lru_cache(maxsize=64)(_drawn)


# The gradient


@lru_cache(maxsize=64)
def gradient(
    input_shape: Shape,
    output_shape: Shape,
    row_sequence: Shape,
    col_sequence: Shape,
    overlapping: bool,
    data_format: str,
) -> Plan:
    """The plan for the gradient of an input of `input_shape`, given that of an output of `output_shape`."""
    layout = LAYOUTS[data_format]
    if len(input_shape) != 4:
        raise ValueError(f"orig_input_tensor_shape must have 4 elements, got {len(input_shape)}: {short(input_shape)}")
    if min(input_shape) < 0:
        raise ValueError(f"orig_input_tensor_shape must not be negative, got {input_shape}")
    limited("orig_input_tensor_shape", input_shape)
    if len(output_shape) != 4:
        raise ValueError(f"out_backprop must have 4 dimensions ({data_format}), got shape {short(output_shape)}")
    rows = _used("row_pooling_sequence", row_sequence, output_shape[layout.h], "rows")
    cols = _used("col_pooling_sequence", col_sequence, output_shape[layout.w], "columns")
    for axis, name in ((layout.n, "batch"), (layout.c, "channels")):
        if output_shape[axis] != input_shape[axis]:
            raise ValueError(
                f"out_backprop must have the {name} of orig_input_tensor_shape, {input_shape[axis]} in {input_shape} "
                f"({data_format}), got {output_shape[axis]} in {output_shape}"
            )
    row_cells = _cells("row_pooling_sequence", rows, "rows", input_shape[layout.h], overlapping)
    col_cells = _cells("col_pooling_sequence", cols, "columns", input_shape[layout.w], overlapping)
    return Plan(
        op="fractional_avg_pool_grad",
        arguments=("out_backprop",),
        data_format=data_format,
        result_shape=input_shape,
        row_sequence=row_sequence,
        col_sequence=col_sequence,
        zero=0 in input_shape or 0 in output_shape,
        kernel="pool_spread",
        packed=_packed(input_shape, data_format, row_cells, col_cells),
    )


def input_sizes(value: object) -> Shape:
    """`orig_input_tensor_shape` as a tuple."""
    return sizes("orig_input_tensor_shape", value)


def _used(name: str, sequence: Shape, count: int, things: str) -> Shape:
    """The part of a sequence that describes `count` cells; surplus elements are not looked at."""
    if len(sequence) <= count:
        raise ValueError(
            f"{name} must have at least {count + 1} elements, one more than out_backprop has {things}, "
            f"got {len(sequence)}: {short(sequence)}"
        )
    used = sequence[: count + 1]
    if min(used) < 0:
        raise ValueError(
            f"{name} must not be negative, got {min(used)} at index {used.index(min(used))} in {short(sequence)}"
        )
    return used


def _cells(name: str, sequence: Shape, things: str, size: int, overlapping: bool) -> Cells:
    """The cells of an axis of `size` pixels."""
    cells = []
    for i, (start, stop) in enumerate(pairwise(sequence)):
        end = stop + 1 if overlapping else stop
        if start >= size:
            raise ValueError(
                f"{name} must begin each cell inside the {size} {things} of orig_input_tensor_shape, "
                f"got {start} at index {i} in {short(sequence)}"
            )
        if end <= start:
            rule = "not decrease" if overlapping else "increase"
            raise ValueError(f"{name} must {rule}, got {start} and then {stop} at index {i + 1} in {short(sequence)}")
        cells.append((start, min(end, size) - start))
    return cells


def _packed(input_shape: Shape, data_format: str, row_cells: Cells, col_cells: Cells) -> bytes:
    layout = LAYOUTS[data_format]
    images, channels = input_shape[layout.n], input_shape[layout.c]
    planes, depth = (images, channels) if data_format == "NHWC" else (images * channels, 1)
    problem = Problem(planes, depth, input_shape[layout.h], input_shape[layout.w], len(row_cells), len(col_cells))
    fields = (*problem, *chain.from_iterable(row_cells), *chain.from_iterable(col_cells))
    return struct.pack(f"={len(fields)}q", *fields)


# Sequences


def sequence(size: int, cells: int, pseudo_random: bool, seed: int, seed2: int, block: int = 0) -> tuple[Shape, int]:
    """The sequence of `cells` cells for `size` pixels from generator block `block` on, and the block after those reserved."""
    words = _words(seed & _SEED_BITS, seed2 & _SEED_BITS, block)
    if pseudo_random:
        return _pseudo_random(size, cells, words), block + 1
    return _random(size, cells, words), block + -(-cells // 4)


def _random(size: int, cells: int, words: Iterator[int]) -> Shape:
    """Cells of k and k + 1 pixels, shuffled."""
    k, larger = divmod(size, cells)
    steps = [k + 1] * larger + [k] * (cells - larger)
    for i, word in zip(range(cells - 1), words):  # noqa: B905
        j = i + word % (cells - i)
        steps[i], steps[j] = steps[j], steps[i]
    return tuple(accumulate(steps, initial=0))


def _pseudo_random(size: int, cells: int, words: Iterator[int]) -> Shape:
    """Cells that begin at ``ceil(alpha*(i + u)) - 1`` for one random u, as in Graham, *Fractional max-pooling* (1412.6071)."""
    alpha, k = size / cells, size // cells
    limit = min((k + 2) / alpha - 1, (size + 1 - k) / alpha - (cells - 1))
    u = _uniform(next(words), next(words)) * limit
    return (0, *(math.ceil(alpha * (i + u)) - 1 for i in range(1, cells)), size)


def _uniform(high: int, low: int) -> float:
    """A number in [0, 1) of 52 bits, from two words."""
    return ((high & 0xFFFFF) << 32 | low) * 2.0**-52


def _words(seed: int, seed2: int, block: int) -> Iterator[int]:
    """The 32-bit words of Philox 4x32-10 with `seed` as key, from block (`block`, `seed2`) on; each block gives four.

    Salmon et al., *Parallel random numbers: as easy as 1, 2, 3* (2011).
    """
    keys = [(seed + i * 0x9E3779B9 & _WORD, (seed >> 32) + i * 0xBB67AE85 & _WORD) for i in range(10)]
    while True:
        a, b, c, d = block & _WORD, block >> 32, seed2 & _WORD, seed2 >> 32
        for low, high in keys:
            p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
            a, b, c, d = q >> 32 ^ b ^ low, q & _WORD, p >> 32 ^ d ^ high, p & _WORD
        yield from (a, b, c, d)
        block += 1
