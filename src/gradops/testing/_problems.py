"""What a test or a benchmark asks for: geometry as a value, with a name that can be parsed back.

The sizes are worked out here from the definitions, on purpose not with `gradops._geometry`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

Pair: TypeAlias = tuple[int, int]
Layout: TypeAlias = Literal["NHWC", "NCHW"]
Padding: TypeAlias = Literal["SAME", "VALID"] | tuple[int, int, int, int]
Axis: TypeAlias = tuple[int, int, int, int, int, int]
"""Input size, output size, taps, stride, dilation, padding before."""

T = TypeVar("T")

_NAME = re.compile(
    r"n(?P<n>\d+)h(?P<h>\d+)w(?P<w>\d+)c(?P<c>\d+)(?:k(?P<k>\d+)|m(?P<m>\d+))r(?P<r>\d+)s(?P<s>\d+)"
    r"(?:_u(?P<strides>\d+x\d+))?(?:_d(?P<dilations>\d+x\d+))?(?:_g(?P<groups>\d+))?"
    r"(?:_(?P<padding>same|valid|p\d+\.\d+\.\d+\.\d+))?(?:_(?P<layout>nchw|nhwc))?"
)


def in_layout(layout: str, n: T, h: T, w: T, c: T) -> tuple[T, T, T, T]:
    """Order the four entries of an image tensor, or of one of its attributes, as `layout` says."""
    return (n, h, w, c) if layout == "NHWC" else (n, c, h, w)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One convolution, whichever of its three ops is asked for.

    With `k` it is dense: the filter is [r, s, c / groups, k]. With `m` it is depthwise: [r, s, c, m].

    Parameters
    ----------
    n, h, w, c : int
        Batch, input rows, input columns, input channels.
    k : int, optional
        Output channels of a dense convolution.
    m : int, optional
        Depth multiplier of a depthwise convolution.
    r, s : int
        Filter rows and columns.
    strides, dilations : pair of int
        Rows, then columns.
    groups : int
        Groups of a dense convolution.
    padding : "SAME", "VALID" or (top, bottom, left, right)
    layout : "NHWC" or "NCHW"
    """

    n: int = 1
    h: int = 5
    w: int = 5
    c: int = 1
    k: int | None = None
    m: int | None = None
    r: int = 3
    s: int = 3
    strides: Pair = (1, 1)
    dilations: Pair = (1, 1)
    groups: int = 1
    padding: Padding = "VALID"
    layout: Layout = "NHWC"

    def __post_init__(self) -> None:
        if (self.k is None) == (self.m is None):
            raise ValueError(f"a problem is dense, with k, or depthwise, with m; got k={self.k}, m={self.m}")
        if self.k is not None and (self.c % self.groups or self.k % self.groups):
            raise ValueError(f"{self.groups} groups do not divide c={self.c} and k={self.k}")
        if self.m is not None and self.groups != 1:
            raise ValueError("groups belong to dense problems")

    @classmethod
    def parse(cls, name: str) -> Problem:
        """Read a problem from its name, for example ``n8h56w56c64k64r3s3_u2x2_same``."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"not the name of a problem: {name!r}")
        given: dict[str, Any] = {
            key: _READERS.get(key, int)(text) for key, text in match.groupdict().items() if text is not None
        }
        return cls(**given)

    def __str__(self) -> str:
        outputs = f"m{self.m}" if self.depthwise else f"k{self.k}"
        parts = [f"n{self.n}h{self.h}w{self.w}c{self.c}{outputs}r{self.r}s{self.s}"]
        parts += [f"u{self.strides[0]}x{self.strides[1]}"] * (self.strides != (1, 1))
        parts += [f"d{self.dilations[0]}x{self.dilations[1]}"] * (self.dilations != (1, 1))
        parts += [f"g{self.groups}"] * (self.groups != 1)
        parts += [self.padding.lower() if isinstance(self.padding, str) else "p" + ".".join(map(str, self.padding))]
        return "_".join([*parts, self.layout.lower()])

    @property
    def depthwise(self) -> bool:
        """Whether the filter has a multiplier in place of output channels."""
        return self.m is not None

    @property
    def output_channels(self) -> int:
        """All output channels."""
        return self.c * self.m if self.m is not None else self.k or 0

    @property
    def filter_groups(self) -> tuple[int, int, int]:
        """Input channels per group, groups, output channels per group."""
        if self.m is not None:
            return 1, self.c, self.m
        return self.c // self.groups, self.groups, self.output_channels // self.groups

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Rows, then columns: input size, output size, taps, stride, dilation, padding before."""
        rows, cols = (self.padding,) * 2 if isinstance(self.padding, str) else (self.padding[:2], self.padding[2:])
        return (
            _axis(self.h, self.r, self.strides[0], self.dilations[0], rows),
            _axis(self.w, self.s, self.strides[1], self.dilations[1], cols),
        )

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """Shape of the input, in the problem's layout."""
        return in_layout(self.layout, self.n, self.h, self.w, self.c)

    @property
    def filter_shape(self) -> tuple[int, int, int, int]:
        """Shape of the filter, the same in both layouts."""
        per_group, groups, outputs = self.filter_groups
        shape = (groups, outputs) if self.depthwise else (per_group, groups * outputs)
        return self.r, self.s, *shape

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """Shape of the output and of its gradient, in the problem's layout."""
        (_, p, *_), (_, q, *_) = self.axes
        return in_layout(self.layout, self.n, p, q, self.output_channels)

    @property
    def attributes(self) -> dict[str, object]:
        """The keyword arguments, as gradops' functions and TensorFlow's raw ops take them."""
        attributes: dict[str, object] = {
            "strides": in_layout(self.layout, 1, *self.strides, 1),
            "padding": self.padding if isinstance(self.padding, str) else "EXPLICIT",
            "data_format": self.layout,
            "dilations": in_layout(self.layout, 1, *self.dilations, 1),
        }
        if not isinstance(self.padding, str):
            sides = in_layout(self.layout, (0, 0), self.padding[:2], self.padding[2:], (0, 0))
            attributes["explicit_paddings"] = tuple(size for side in sides for size in side)
        return attributes

    @property
    def flops(self) -> int:
        """Floating-point operations of each of the three ops, taps in the padding included."""
        (_, p, *_), (_, q, *_) = self.axes
        per_group, groups, outputs = self.filter_groups
        return 2 * self.n * p * q * self.r * self.s * per_group * groups * outputs


def _axis(size: int, taps: int, stride: int, dilation: int, padding: str | Pair) -> Axis:
    reach = (taps - 1) * dilation + 1
    if padding == "SAME":
        out = -(-size // stride)
        return size, out, taps, stride, dilation, max(0, (out - 1) * stride + reach - size) // 2
    before, after = (0, 0) if isinstance(padding, str) else padding
    room = size + before + after - reach + stride
    return size, room // stride if room >= 0 else -(-room // stride), taps, stride, dilation, before


def _pair(text: str) -> Pair:
    first, second = text.split("x")
    return int(first), int(second)


def _padding(text: str) -> str | tuple[int, ...]:
    return text.upper() if text[0] != "p" else tuple(map(int, text[1:].split(".")))


_READERS: dict[str, Callable[[str], object]] = {
    "strides": _pair,
    "dilations": _pair,
    "padding": _padding,
    "layout": str.upper,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolProblem:
    """One fractional average pooling and its gradient.

    Parameters
    ----------
    n, h, w, c : int
        Batch, input rows, input columns, channels.
    ratio : pair of float
        Pooling ratio of the rows and of the columns.
    pseudo_random, overlapping : bool
        As `gradops.fractional_avg_pool` takes them.
    seed, seed2 : int
        Seeds of the sequences; the op is always asked to be deterministic.
    layout : "NHWC" or "NCHW"
    sequences : pair of tuple of int, optional
        Sequences to use for the gradient, in place of those that the seeds give.
    """

    n: int = 1
    h: int = 6
    w: int = 6
    c: int = 1
    ratio: tuple[float, float] = (1.5, 1.5)
    pseudo_random: bool = False
    overlapping: bool = False
    seed: int = 1
    seed2: int = 2
    layout: Layout = "NHWC"
    sequences: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def __str__(self) -> str:
        flags = [name for name in ("pseudo_random", "overlapping") if getattr(self, name)]
        ratio = "x".join(f"{side:g}" for side in self.ratio)
        given = [f"rows{_dotted(self.sequences[0])}", f"cols{_dotted(self.sequences[1])}"] if self.sequences else []
        return "_".join([f"n{self.n}h{self.h}w{self.w}c{self.c}", f"ratio{ratio}", *flags, *given, self.layout.lower()])

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """Shape of the input, in the problem's layout."""
        return in_layout(self.layout, self.n, self.h, self.w, self.c)

    def output_shape(self, p: int, q: int) -> tuple[int, int, int, int]:
        """Shape of an output of p rows and q columns, in the problem's layout."""
        return in_layout(self.layout, self.n, p, q, self.c)


def _dotted(sequence: tuple[int, ...]) -> str:
    return ".".join(map(str, sequence))
