"""What the rules look at: the geometry of one convolution, and how its numbers are multiplied."""

from __future__ import annotations

from enum import IntEnum
from math import gcd
from typing import NamedTuple

from .sharing import UNKNOWN, Sharing

WIDEST_VECTOR = 16
"""Numbers. `inplace` computes whole vectors of channels, `planes` of pixels."""

WHOLE_VECTOR = 8
"""Channels of float64 that fill a vector. For groups of so many `depthwise` is not taken, but for filters with strides; nor is `stem`, channels last.

Time of `stem` over that of `conv` then, 3x3 taps, outputs and gradients of inputs, 1 thread of a Zen 5: 8 to 8 1.2 to 1.4, with stride 2 1.15; 64 to 8 1.0
to 1.1; 8 groups 1.5 and 2.3, 32 groups 3.2. Channels first 0.95 to 1.0, 32 groups 0.84.
"""


MOST_SHEET_SLOTS = 300
"""Taps and channels that are summed, multiplied, up to which `conv` gains by copying planes once for all taps (LEAST_SHEET_CHANNELS of `stem`)."""

WIDE_STRIDE = 2
"""Up to which `planes` loads what it reads once for all results."""


class Axis(NamedTuple):
    """One spatial dimension. Output `o` and tap `k` meet at input position ``o*stride - before + k*dilation``."""

    size: int
    taps: int
    stride: int
    dilation: int
    before: int
    out: int


class Arithmetic(IntEnum):
    """How numbers are multiplied."""

    FLOATS = 0
    HALVES = 1
    """Of 16 bits, as float32."""
    PAIRS = 2
    """bfloat16, two at once."""
    TILES = 3
    """bfloat16, tiles of pairs."""
    DOUBLES = 4


class Task(NamedTuple):
    """One convolution."""

    result: str
    """"output", "input" or "filter": gradients are named by what they are of."""

    depthwise: bool
    rows: Axis
    cols: Axis
    groups: int

    inputs: int
    """Channels of a group; 1 if depthwise."""

    outputs: int
    """The same of outputs, or the multiplier."""

    data_format: str
    arithmetic: Arithmetic = Arithmetic.FLOATS
    sharing: Sharing = UNKNOWN

    by_slots: bool = False
    """Whether what is summed, and not the result, lies side by side in the filter."""

    pixels: int = UNKNOWN.pixels
    """Of the output, in all images."""

    innermost: bool = False
    """Whether the taps of the filter are, which only `conv` and `winograd` read, and all kernels of dense gradients write."""

    @property
    def stencil(self) -> bool:
        """Whether each group has one input."""
        return self.depthwise or (self.groups != 1 and self.inputs <= 1)

    @property
    def channels(self) -> int:
        """Of an output or the gradient of an input, in a group."""
        return self.inputs if self.result == "input" else self.outputs

    @property
    def summed(self) -> int:
        """Channels that are summed for them."""
        return self.outputs if self.result == "input" else self.inputs

    @property
    def slots(self) -> int:
        """Taps and channels that are summed for them."""
        return self.rows.taps * self.cols.taps * self.summed

    @property
    def vector(self) -> int:
        """Numbers that fill the widest vector."""
        return WHOLE_VECTOR if self.doubles else WIDEST_VECTOR

    @property
    def last(self) -> bool:
        """Whether channels come last."""
        return self.data_format == "NHWC"

    @property
    def strided(self) -> bool:
        """Whether it has a stride."""
        return max(self.rows.stride, self.cols.stride) > 1

    @property
    def wide(self) -> bool:
        """Whether a stride is wider than two, or leaves columns of the input without a tap."""
        cols = self.cols
        skips = cols.taps < cols.stride or cols.size < cols.stride or gcd(cols.stride, cols.dilation) > 1
        return max(self.rows.stride, cols.stride) > WIDE_STRIDE or (self.result == "input" and skips)

    @property
    def dilated(self) -> bool:
        """Whether its taps have gaps."""
        return max(self.rows.dilation, self.cols.dilation) > 1

    @property
    def one_tap(self) -> bool:
        """Whether the filter is 1x1."""
        return self.rows.taps == self.cols.taps == 1

    @property
    def doubles(self) -> bool:
        """Whether numbers are float64."""
        return self.arithmetic is Arithmetic.DOUBLES

    @property
    def halves(self) -> bool:
        """Whether numbers have 16 bits."""
        return self.arithmetic in (Arithmetic.HALVES, Arithmetic.PAIRS, Arithmetic.TILES)

    @property
    def paired(self) -> bool:
        """Whether two are multiplied at once."""
        return self.arithmetic in (Arithmetic.PAIRS, Arithmetic.TILES)

    @property
    def tiled(self) -> bool:
        """Whether tiles are."""
        return self.arithmetic is Arithmetic.TILES
