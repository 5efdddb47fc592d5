"""Shapes and attributes of the convolution ops: from what the caller wrote to a cached plan or a clear error.

Letters: N batch, H W input rows and columns, C input channels, K output channels, R S filter rows and columns, P Q
output rows and columns, G groups. Filters are [R, S, C/G, K] for the dense ops and [R, S, C, K/C] for the depthwise
ones, which have G = C; both are the same memory.

All arithmetic is on Python's unbounded integers. What a kernel is told fits 64 bits, because `_limited` and `_axis` say
no otherwise.
"""

from __future__ import annotations

import operator
import reprlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from math import gcd, prod
from typing import Any, NamedTuple, TypeAlias

Shape: TypeAlias = tuple[int, ...]
Numbers: TypeAlias = int | Shape
Attributes: TypeAlias = tuple[Numbers, str | tuple[Shape, ...], Numbers, str, Numbers]
"""strides, padding, explicit_paddings, data_format, dilations, normalised by `attributes`"""

MOST_ELEMENTS = 2**63 - 1
LONGEST_AXIS = 2**62
LARGEST_STEP = 2**31 - 1
WIDEST_LINE = 1024
"""Source columns that a depthwise kernel holds in one line for a row of taps; wider ones are split by residue."""


class Layout(NamedTuple):
    """Where each dimension stands in a four-vector of one data_format."""

    n: int
    h: int
    w: int
    c: int

    def arranged(self, n: int, h: int, w: int, c: int) -> Shape:
        """The four values in this layout's order."""
        values = dict(zip(self, (n, h, w, c), strict=True))
        return tuple(values[i] for i in range(4))


LAYOUTS = {"NHWC": Layout(0, 1, 2, 3), "NCHW": Layout(0, 2, 3, 1)}


class Op(NamedTuple):
    """What tells one convolution op from another: its kernel, its arrays, and what the other arguments are called."""

    kernel: str
    arguments: tuple[str, str]
    input: str = "input"
    filter: str = "filter"
    depthwise: bool = False
    two_sizes: bool = False

    @property
    def forward(self) -> bool:
        """Whether the result is the output."""
        return self.arguments == ("input", "filter")

    @property
    def scatters(self) -> bool:
        """Whether the result is the gradient of the input, which is gathered from the output grid."""
        return self.arguments == ("out_backprop", "filter")


_FORWARD = Op("gather", ("input", "filter"))
_INPUT = Op("gather", ("out_backprop", "filter"), input="input_sizes")
_FILTER = Op("reduce", ("input", "out_backprop"), filter="filter_sizes")
OPS = {
    "conv2d": _FORWARD,
    "conv2d_backprop_input": _INPUT._replace(two_sizes=True),
    "conv2d_backprop_filter": _FILTER,
    "Conv2DBackpropInputV2": _INPUT._replace(input="input"),
    "Conv2DBackpropFilterV2": _FILTER._replace(filter="filter"),
    "depthwise_conv2d_native": _FORWARD._replace(depthwise=True),
    "depthwise_conv2d_native_backprop_input": _INPUT._replace(depthwise=True),
    "depthwise_conv2d_native_backprop_filter": _FILTER._replace(depthwise=True),
}
STEMS = {
    f"{family}_{verb}": (f"{family}_{verb}_f32",) * 3 + (f"{family}_{verb}_f64",)
    for family in ("conv", "depthwise")
    for verb in ("gather", "reduce")
}


MOST_MULTIPLIERS = 64
"""What the depthwise kernels hold in one block of lanes (LANES of _ring.pxd); more go to the kernels of grouped convolution."""


class Axis(NamedTuple):
    """One spatial dimension. Output `o` and tap `k` meet at input position ``o*stride - before + k*dilation``."""

    size: int
    taps: int
    stride: int
    dilation: int
    before: int
    out: int


class Lane(NamedTuple):
    """Destinations along an axis that all use the same taps, in the order in which the kernels read the fields.

    Destination t is at ``out_start + out_step*t``, its k-th tap is number ``filter_start + filter_step*k`` of the
    filter and reads the source at ``src_start + src_unit*(z_step*t + tap_step*k)``, or nothing where that lies outside
    the source.
    """

    count: int  # type: ignore[assignment]
    out_start: int
    out_step: int
    src_start: int
    src_unit: int
    z_step: int
    tap_step: int
    taps: int
    filter_start: int
    filter_step: int


class Problem(NamedTuple):
    """What every convolution kernel is told, in this order as 64-bit integers; the lanes of rows and columns follow.

    A *dst* pixel is where a patch is centred, *src* is what the patch reads. For the forward op and the gradient of the
    filter, src is the input and dst the output grid; for the gradient of the input, src is out_backprop and dst the
    input grid. Channels are those of one group, strides count elements.
    """

    images: int
    groups: int
    src_channels: int
    dst_channels: int
    src_rows: int
    src_cols: int
    dst_rows: int
    dst_cols: int
    src_n: int
    src_y: int
    src_x: int
    src_c: int
    dst_n: int
    dst_y: int
    dst_x: int
    dst_c: int
    filter_rows: int
    filter_cols: int
    filter_y: int
    filter_x: int
    filter_src: int
    filter_dst: int
    filter_group: int
    covered: int
    row_lanes: int
    col_lanes: int


@dataclass(frozen=True, eq=False)
class Plan:
    """One convolution whose shapes and attributes have been found right. Shapes of images are in data_format order."""

    op: str
    arguments: tuple[str, str]
    data_format: str
    input_shape: Shape
    filter_shape: Shape
    output_shape: Shape
    result_shape: Shape
    groups: int
    rows: Axis
    cols: Axis
    zero: bool
    stems: tuple[str, ...]

    @cached_property
    def problem(self) -> bytes:
        """The kernel's view; made when a kernel first runs, so that its lanes never outgrow arrays that exist."""
        return b"" if self.zero else _packed(self, False)

    @cached_property
    def unpadded_problem(self) -> bytes:
        """The same in smaller lanes, none of whose taps lies in the padding: for infinities, whose product with zero is NaN."""
        return _packed(self, True)


# Normalising: what the caller wrote -> hashable values in which 1, True and 1.0 cannot be mistaken for each other.


def integers(name: str, value: Any, expected: str = "an integer or a sequence of integers") -> Numbers:
    """`value` as an int or a tuple of ints."""
    kind = type(value)
    if kind is tuple or kind is list:
        for item in value:
            if type(item) is not int:
                break
        else:
            return tuple(value)
    elif kind is int:
        return value
    return _converted(name, value, expected)


def _converted(name: str, value: Any, expected: str) -> Numbers:
    try:
        return _integer(value)
    except TypeError:
        pass
    try:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError
        return tuple(_integer(item) for item in value)
    except TypeError:
        raise TypeError(f"{name} must be {expected}, got {reprlib.repr(value)}") from None


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def sizes(name: str, value: object) -> Shape:
    """A vector of sizes."""
    vector = integers(name, value, "a sequence of integers")
    if isinstance(vector, int):
        raise ValueError(f"{name} must be a sequence of 4 integers, got the single integer {vector}")
    return vector


def attributes(strides: Any, padding: Any, explicit_paddings: Any, data_format: Any, dilations: Any) -> Attributes:
    """The attributes of a call as a key for `plan`."""
    if not isinstance(data_format, str):
        raise TypeError(f"data_format must be a string, {_either(LAYOUTS)}, got {reprlib.repr(data_format)}")
    return (
        integers("strides", strides, _STEPS),
        padding if isinstance(padding, str) else _pairs(padding),
        integers("explicit_paddings", explicit_paddings, "a sequence of 8 integers"),
        data_format,
        integers("dilations", dilations, _STEPS),
    )


_STEPS = "an integer, a pair of integers (rows, columns) or four integers in data_format order"
_PADDING = "'SAME', 'VALID', 'EXPLICIT' or four pairs (before, after) of integers in data_format order"


def _pairs(padding: Any) -> tuple[Shape, ...]:
    if not isinstance(padding, Iterable) or isinstance(padding, (bytes, bytearray)):
        raise TypeError(f"padding must be {_PADDING}, got {reprlib.repr(padding)}")
    pairs = []
    for item in padding:
        pair = integers("padding", item, _PADDING)
        pairs.append((pair,) if isinstance(pair, int) else pair)
    if [len(pair) for pair in pairs] != [2, 2, 2, 2]:
        raise ValueError(f"padding must be {_PADDING}, got {reprlib.repr(padding)}")
    return tuple(pairs)


# Planning


@lru_cache(maxsize=1024)
def plan(op: str, input_shape: Shape, filter_shape: Shape, out_backprop_shape: Shape | None, given: Attributes) -> Plan:
    """The plan for an op, the shapes of its tensors (or its size vectors) and its normalised `attributes`."""
    kind = OPS[op]
    strides, padding, explicit_paddings, data_format, dilations = given
    layout = _layout(data_format)
    stride = _steps("strides", strides, layout, data_format)
    dilation = _steps("dilations", dilations, layout, data_format)
    mode, pads = _paddings(padding, explicit_paddings, layout, data_format)

    _check_tensor(
        kind, "filter", filter_shape, "(filter rows, filter columns, input channels, output channels or multiplier)"
    )
    if out_backprop_shape is not None:
        _check_tensor(kind, "out_backprop", out_backprop_shape, f"({data_format})")
        if kind.two_sizes and len(input_shape) == 2:
            input_shape = layout.arranged(out_backprop_shape[layout.n], *input_shape, filter_shape[2])
    _check_tensor(kind, "input", input_shape, f"({data_format})")

    groups, out_channels = (_depthwise if kind.depthwise else _grouped)(kind, input_shape, filter_shape, layout)
    rows, row_formula = _axis("rows", input_shape[layout.h], filter_shape[0], stride[0], dilation[0], mode, *pads[:2])
    cols, col_formula = _axis(
        "columns", input_shape[layout.w], filter_shape[1], stride[1], dilation[1], mode, *pads[2:]
    )
    output_shape = layout.arranged(input_shape[layout.n], rows.out, cols.out, out_channels)

    if out_backprop_shape is None:
        _limited("the output", output_shape)
    elif out_backprop_shape != output_shape:
        raise ValueError(
            f"out_backprop must have shape {output_shape} ({data_format}), got {out_backprop_shape}: "
            f"batch {input_shape[0]} of {kind.input}, {row_formula}, {col_formula}, "
            f"{out_channels} output channels of {kind.filter} {filter_shape}"
        )
    stencil = kind.depthwise or (groups > 1 and filter_shape[2] == 1)
    family = "depthwise" if stencil and out_channels <= groups * MOST_MULTIPLIERS else "conv"
    return Plan(
        op=op,
        arguments=kind.arguments,
        data_format=data_format,
        input_shape=input_shape,
        filter_shape=filter_shape,
        output_shape=output_shape,
        result_shape=output_shape if kind.forward else input_shape if kind.scatters else filter_shape,
        groups=groups,
        rows=rows,
        cols=cols,
        zero=0 in (*input_shape, *filter_shape, *output_shape),
        stems=STEMS[f"{family}_{kind.kernel}"],
    )


def _layout(data_format: str) -> Layout:
    if data_format not in LAYOUTS:
        raise ValueError(f"data_format must be {_either(LAYOUTS)}, got {data_format!r}")
    return LAYOUTS[data_format]


def _either(names: Iterable[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _steps(name: str, value: Numbers, layout: Layout, data_format: str) -> tuple[int, int]:
    """The row and column entries of strides or dilations."""
    if isinstance(value, int):
        h = w = value
    elif len(value) == 2:
        h, w = value
    elif len(value) == 4:
        h, w = value[layout.h], value[layout.w]
        if value[layout.n] != 1 or value[layout.c] != 1:
            raise ValueError(f"{name} must be 1 for batch and channels, got {value} with data_format {data_format!r}")
    else:
        raise ValueError(f"{name} must be {_STEPS}, got {len(value)} integers: {_short(value)}")
    if not (1 <= h <= LARGEST_STEP and 1 <= w <= LARGEST_STEP):
        raise ValueError(f"{name} must be at least 1 and at most {LARGEST_STEP}, got {value}")
    return h, w


def _paddings(
    padding: str | tuple[Shape, ...], explicit_paddings: Numbers, layout: Layout, data_format: str
) -> tuple[str, Shape]:
    """The padding's name, and the explicit one: (top, bottom, left, right)."""
    if padding != "EXPLICIT" and explicit_paddings != ():
        raise ValueError(
            f"explicit_paddings must be empty unless padding is 'EXPLICIT', "
            f"got {_short(explicit_paddings)} with padding {padding!r}"
        )
    if padding in ("SAME", "VALID"):
        return str(padding), (0, 0, 0, 0)
    if isinstance(padding, tuple):
        name, values = "padding", tuple(value for pair in padding for value in pair)
    elif padding == "EXPLICIT":
        name, values = (
            "explicit_paddings",
            (explicit_paddings,) if isinstance(explicit_paddings, int) else explicit_paddings,
        )
    else:
        raise ValueError(f"padding must be {_PADDING}, got {padding!r}")
    if len(values) != 8:
        raise ValueError(
            f"explicit_paddings must be 8 integers when padding is 'EXPLICIT', got {_short(explicit_paddings)}"
        )
    if min(values) < 0:
        raise ValueError(f"{name} must not be negative, got {values}")
    n, h, w, c = (values[2 * i : 2 * i + 2] for i in layout)
    if any((*n, *c)):
        raise ValueError(f"{name} must be 0 for batch and channels, got {values} with data_format {data_format!r}")
    return "EXPLICIT", (*h, *w)


def _check_tensor(kind: Op, role: str, shape: Shape, order: str) -> None:
    """Four sizes, none negative, and not too many elements: for the shape of an array as well as for a size vector."""
    name = {"input": kind.input, "filter": kind.filter}.get(role, role)
    if len(shape) != 4:
        if name.endswith("_sizes"):
            lengths = "4 or 2" if kind.two_sizes and role == "input" else "4"
            raise ValueError(f"{name} must have {lengths} elements, got {len(shape)}: {_short(shape)}")
        raise ValueError(f"{name} must have 4 dimensions {order}, got shape {_short(shape)}")
    if min(shape) < 0:
        raise ValueError(f"{name} must not be negative, got {shape}")
    _limited(name, shape)


def _limited(name: str, shape: Shape) -> None:
    """Empty dimensions count as 1, as they do for NumPy."""
    if prod([size or 1 for size in shape]) > MOST_ELEMENTS:
        raise ValueError(f"{name} must have at most 2**63 - 1 elements, got shape {shape}")


def _short(values: object) -> str:
    return reprlib.repr(values)


def _grouped(kind: Op, input_shape: Shape, filter_shape: Shape, layout: Layout) -> tuple[int, int]:
    """Groups and output channels of a dense op."""
    in_channels, depth, out_channels = input_shape[layout.c], filter_shape[2], filter_shape[3]
    if depth == 0:
        raise ValueError(f"{kind.filter} must have at least 1 input channel, got shape {filter_shape}")
    if kind.forward:
        if 0 in filter_shape[:2]:
            raise ValueError(f"filter must have at least 1 row and 1 column, got shape {filter_shape}")
        if in_channels == 0:
            return 1, out_channels
    if in_channels == 0 or in_channels % depth:
        raise ValueError(
            f"{kind.input} must have a positive multiple of the {depth} input channels of "
            f"{kind.filter} {filter_shape}, got {in_channels} channels in {input_shape}"
        )
    groups = in_channels // depth
    if out_channels % groups:
        raise ValueError(
            f"{kind.filter} must have a multiple of {groups} output channels, got {out_channels} in {filter_shape}: "
            f"{in_channels} input channels / {depth} of the filter = {groups} groups"
        )
    return groups, out_channels


def _depthwise(kind: Op, input_shape: Shape, filter_shape: Shape, layout: Layout) -> tuple[int, int]:
    """Groups and output channels of a depthwise op."""
    channels = input_shape[layout.c]
    if filter_shape[2] != channels:
        raise ValueError(
            f"{kind.filter} must have the {channels} channels of {kind.input} {input_shape} as its third dimension, "
            f"got {filter_shape[2]} in {filter_shape}"
        )
    return channels, channels * filter_shape[3]


def _axis(
    name: str, n: int, taps: int, stride: int, dilation: int, mode: str, before: int, after: int
) -> tuple[Axis, str]:
    """One spatial dimension, and its output size as a formula. As in TensorFlow, division truncates toward zero."""
    reach = (taps - 1) * dilation + 1
    if mode == "SAME":
        out = (n + stride - 1) // stride
        before = max(0, (out - 1) * stride + reach - n) // 2
        formula = f"output {name} ({n} input + {stride} stride - 1) / {stride} = {out}"
    else:
        steps = n + before + after - reach + stride
        out = steps // stride if steps >= 0 else -(-steps // stride)
        terms = f"{n} input + {before} + {after} padding - {reach} dilated filter + {stride} stride"
        formula = f"output {name} ({terms}) / {stride} = {out}"
    if n + before + after + abs(reach) + stride > LONGEST_AXIS:
        raise ValueError(f"padded input and dilated filter must have less than 2**62 {name}, got {formula}")
    if out < 0:
        raise ValueError(f"the filter must not be larger than the padded input, got {formula}, which is negative")
    return Axis(n, taps, stride, dilation if taps > 1 else 1, before, out), formula


# The kernel's view


def _packed(plan: Plan, unpadded: bool) -> bytes:
    kind, layout = OPS[plan.op], LAYOUTS[plan.data_format]
    depthwise = plan.stems[0].startswith("depthwise")
    src, dst = (plan.output_shape, plan.input_shape) if kind.scatters else (plan.input_shape, plan.output_shape)
    filter_rows, filter_cols = plan.filter_shape[:2]
    out_channels = plan.output_shape[layout.c]
    in_group, out_group = plan.input_shape[layout.c] // plan.groups, out_channels // plan.groups
    row_lanes = _row_lanes(plan.rows, kind.scatters, depthwise)
    col_lanes = _col_lanes(plan.cols, kind.scatters, depthwise)
    if unpadded:
        row_lanes = without_padding(row_lanes, src[layout.h])
        col_lanes = without_padding(col_lanes, src[layout.w])
    problem = Problem(
        images=plan.input_shape[0],
        groups=plan.groups,
        src_channels=out_group if kind.scatters else in_group,
        dst_channels=in_group if kind.scatters else out_group,
        src_rows=src[layout.h],
        src_cols=src[layout.w],
        dst_rows=dst[layout.h],
        dst_cols=dst[layout.w],
        **_strides("src", src, layout),
        **_strides("dst", dst, layout),
        filter_rows=filter_rows,
        filter_cols=filter_cols,
        filter_y=filter_cols * in_group * out_channels,
        filter_x=in_group * out_channels,
        filter_src=1 if kind.scatters else out_channels,
        filter_dst=out_channels if kind.scatters else 1,
        filter_group=out_group,
        covered=int(_count(row_lanes) == dst[layout.h] and _count(col_lanes) == dst[layout.w]),
        row_lanes=len(row_lanes),
        col_lanes=len(col_lanes),
    )
    fields = [*problem, *(field for lane in (*row_lanes, *col_lanes) for field in lane)]
    return struct.pack(f"={len(fields)}q", *fields)


def _strides(prefix: str, shape: Shape, layout: Layout) -> dict[str, int]:
    """Element strides of a contiguous array."""
    return {f"{prefix}_{letter}": prod(shape[i + 1 :]) for letter, i in zip("nyxc", layout, strict=True)}


def _count(lanes: list[Lane]) -> int:
    """Destinations in all lanes, which share none."""
    return sum(lane.count for lane in lanes)


def _row_lanes(axis: Axis, scatters: bool, depthwise: bool) -> list[Lane]:
    """Lanes of rows. The depthwise kernels keep source rows in a ring, so their taps must be neighbours."""
    return (gradient_lanes if scatters else forward_lanes)(axis, depthwise)


def _col_lanes(axis: Axis, scatters: bool, depthwise: bool) -> list[Lane]:
    """Lanes of columns. The depthwise kernels load them as lines, and split those that would get too long."""
    make = gradient_lanes if scatters else forward_lanes
    whole = make(axis, False)
    if depthwise and any((lane.taps - 1) * lane.tap_step >= WIDEST_LINE for lane in whole):
        return make(axis, True)
    return whole


def forward_lanes(axis: Axis, split: bool) -> list[Lane]:
    """Outputs as destinations: one lane, or one for each residue by which the taps of an output become neighbours."""
    _, taps, s, d, p, out = axis
    if not split:
        return [Lane(out, 0, 1, -p, 1, s, d, taps, 0, 1)]
    period, step = d // gcd(s, d), s // gcd(s, d)
    return [Lane(-((r - out) // period), r, period, s * r - p, d, step, 1, taps, 0, 1) for r in range(min(period, out))]


def gradient_lanes(axis: Axis, split: bool) -> list[Lane]:
    """Inputs as destinations: one lane for each set of taps that reaches them, ascending in what the taps read."""
    n, taps, s, d, p, _ = axis
    period, phases = d // gcd(s, d), s // gcd(s, d)
    lanes = []
    for first_tap in range(min(phases, taps)):
        first = (first_tap * d - p) % s
        if first >= n:
            continue
        count = -((first - n) // s)
        used = -((first_tap - taps) // phases)
        last_tap = first_tap + (used - 1) * phases
        base = (first + p - first_tap * d) // s - (used - 1) * period
        if not split:
            lanes.append(Lane(count, first, s, base, 1, 1, period, used, last_tap, -phases))
            continue
        lanes += [
            Lane(-((r - count) // period), first + s * r, s * period, base + r, period, 1, 1, used, last_tap, -phases)
            for r in range(min(period, count))
        ]
    return lanes


def without_padding(lanes: list[Lane], size: int) -> list[Lane]:
    """The same lanes, cut where the taps that lie inside a source of `size` change, and rid of the other taps."""
    pieces = []
    for lane in lanes:
        unit = lane.src_unit * lane.tap_step

        def inside(t: int, lane: Lane = lane, unit: int = unit) -> tuple[int, int]:
            first = lane.src_start + lane.src_unit * lane.z_step * t
            return max(0, -(first // unit)), min(lane.taps, (size - 1 - first) // unit + 1)

        for (begin, end), run in groupby(range(lane.count), inside):
            indices = list(run)
            if begin < end:
                pieces.append(
                    lane._replace(
                        count=len(indices),
                        out_start=lane.out_start + lane.out_step * indices[0],
                        src_start=lane.src_start + lane.src_unit * lane.z_step * indices[0] + unit * begin,
                        taps=end - begin,
                        filter_start=lane.filter_start + lane.filter_step * begin,
                    )
                )
    return pieces
