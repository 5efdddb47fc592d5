"""The machine's roof: how fast it multiplies and adds in registers, and how fast it reads and copies memory.

Measured by the kernel `roof` in the run that is compared with it, per precision, level and number of threads. A row's share of the
roof is the time that the roof alone would permit, over the time that the row took.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from gradops import _dispatch, _threads

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_PEAK, _READ, _COPY = 0, 1, 2
_BLOCK = 8192
_LEAST_BYTES, _MOST_BYTES = 1 << 26, 1 << 28
_TURNS, _SECONDS = 5, 0.15  # both at least


@dataclass(frozen=True)
class Roof:
    """What a precision, a level and a number of threads permit at most.

    Attributes
    ----------
    gflops : float
        Operations in registers, in 1e9 a second; a multiply-add is two.
    read, copy : float
        Memory traffic in 1e9 bytes a second; a copy counts what it reads and what it writes.
    """

    gflops: float
    read: float
    copy: float

    def __str__(self) -> str:
        return f"{self.gflops:.0f} GFLOP/s, {self.bandwidth:.1f} GB/s"

    @property
    def bandwidth(self) -> float:
        """The faster of the two."""
        return max(self.read, self.copy)

    def milliseconds(self, flops: float, nbytes: float) -> float:
        """Return the time below which nothing with so many operations and compulsory bytes can stay."""
        return 1e-6 * max(flops / self.gflops, nbytes / self.bandwidth)

    def share(self, flops: float, nbytes: float, milliseconds: float) -> float:
        """Return which part of the roof a time of so many milliseconds reaches; above 1 where caches hold the data."""
        return self.milliseconds(flops, nbytes) / milliseconds

    def better(self, other: Roof) -> Roof:
        """Return the higher of both in each: measured twice, the machine permits at least that."""
        return Roof(max(self.gflops, other.gflops), max(self.read, other.read), max(self.copy, other.copy))

    def record(self) -> dict[str, float]:
        """Return the numbers by name, for the JSON report."""
        return asdict(self)


def real_of(dtype: str) -> str:
    """Return the precision that computes for a storage type."""
    return {"float64": "f64", "int64": "f64", "bfloat16": "bf16"}.get(dtype, "f32")


def measure(dtype: str, threads: int, clock: Callable[[], float] = perf_counter) -> Roof:
    """Measure the roof of the level in use, in about a second: the best of many short turns, as other processes can only slow them.

    Parameters
    ----------
    dtype : str
        A storage type; float16 is computed in float32, and so is bfloat16 where the level cannot multiply it.
    threads : int
    clock : callable, optional
        Gives seconds.
    """
    real = np.float64 if real_of(dtype) == "f64" else np.float32
    threads = _threads.resolve(threads)
    kernel = _dispatch.kernel(f"roof_{real_of(dtype)}")
    count = _array_bytes() // real().itemsize // _BLOCK * _BLOCK
    src, dst = np.full(count, 0.5, real), np.empty(count, real)

    def rate(what: int, rounds: int) -> tuple[float, float]:
        start = clock()
        work = run(kernel, what, rounds, src, dst, threads)
        seconds = clock() - start
        return 1e-9 * work / seconds if seconds > 0 else 0.0, seconds

    rounds = 1000
    while rounds < 1 << 30 and rate(_PEAK, rounds)[1] < 0.003:
        rounds *= 2

    def best(what: int) -> float:
        rates: list[float] = []
        seconds = 0.0
        while len(rates) < _TURNS or seconds < _SECONDS:
            one, took = rate(what, rounds)
            rates.append(one)
            seconds += took
        return max(rates)

    return Roof(best(_PEAK), best(_READ), best(_COPY))


def run(kernel: ModuleType, what: int, rounds: int, src: Array, dst: Array, threads: int) -> int:
    """Have a build of `roof` do the work once and return how many operations or bytes that were."""
    problem = struct.pack("=3q", what, rounds, src.size // _BLOCK)
    _dispatch.entry.run(kernel.entry, problem, 0, [src], dst, threads)
    operations: int = rounds * threads * kernel.OPERATIONS
    return operations if what == _PEAK else src.nbytes if what == _READ else 2 * src.nbytes


def _array_bytes() -> int:
    """Twice the largest cache, between 64 and 256 MiB."""
    sizes = [
        int(text[:-1]) << {"K": 10, "M": 20}[text[-1]]
        for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
        if (text := path.read_text().strip())[-1:] in ("K", "M")
    ]
    return min(max(_LEAST_BYTES, 2 * max(sizes, default=0)), _MOST_BYTES)
