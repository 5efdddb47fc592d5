"""Pooling sequences as TensorFlow draws them, written from the description of its generator in plain Python."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

import numpy as np

from ._problems import PoolProblem

_MASK = 0xFFFFFFFF


def pooling_sequences(problem: PoolProblem) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the row and the column sequence of a problem: those given, or those of its seeds."""
    if problem.sequences is not None:
        return problem.sequences
    rows, used = pooling_sequence(problem.h, problem.ratio[0], problem.pseudo_random, problem.seed, problem.seed2)
    cols, _ = pooling_sequence(problem.w, problem.ratio[1], problem.pseudo_random, problem.seed, problem.seed2, used)
    return rows, cols


def pooling_sequence(
    size: int, ratio: float, pseudo_random: bool, seed: int, seed2: int, block: int = 0
) -> tuple[tuple[int, ...], int]:
    """Draw one sequence from generator block `block` on; return it with the block at which the next one starts."""
    out = int(np.float32(size) / np.float32(ratio))
    words = _philox(seed, seed2, block)
    if pseudo_random:
        return _pseudo_random(size, out, _unit(next(words), next(words))), block + 1
    steps = [size // out + 1] * (size % out) + [size // out] * (out - size % out)
    for i in range(out - 1):
        j = i + next(words) % (out - i)
        steps[i], steps[j] = steps[j], steps[i]
    return (0, *np.cumsum(steps).tolist()), block + -(-out // 4)


def _pseudo_random(size: int, out: int, unit: float) -> tuple[int, ...]:
    alpha, k = size / out, size // out
    u = unit * min((k + 2) / alpha - 1, (size + 1 - k) / alpha - (out - 1))
    inner = [math.ceil(alpha * (i + u)) - 1 for i in range(1, out)]
    return (0, *inner, size)


def _unit(low: int, high: int) -> float:
    """A double in [0, 1): 20 bits of the first word above the 32 bits of the second, under the exponent of one."""
    return struct.unpack("<d", struct.pack("<Q", 1023 << 52 | (low & 0xFFFFF) << 32 | high))[0] - 1.0


def _philox(seed: int, seed2: int, block: int) -> Iterator[int]:
    while True:
        counter = [block & _MASK, block >> 32 & _MASK, seed2 & _MASK, seed2 >> 32 & _MASK]
        key = [seed & _MASK, seed >> 32 & _MASK]
        for _ in range(10):
            high0, low0 = divmod(0xD2511F53 * counter[0], 1 << 32)
            high1, low1 = divmod(0xCD9E8D57 * counter[2], 1 << 32)
            counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
            key = [key[0] + 0x9E3779B9 & _MASK, key[1] + 0xBB67AE85 & _MASK]
        yield from counter
        block += 1
