"""Shapes and attributes of the convolution ops: from what the caller wrote to a cached plan or a clear error.

Letters: N batch, H W input rows and columns, C input channels, K output channels, R S filter rows and columns, P Q
output rows and columns, G groups. Filters are [R, S, C/G, K] for the dense ops and [R, S, C, K/C] for the depthwise
ones, which have G = C; both are the same memory.

All arithmetic is on Python's unbounded integers. What a kernel is told fits 64 bits, because `limited` and `_axis` say
no otherwise.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from gradops._algorithms import UNKNOWN, Arithmetic, Axis, Task, algorithms
from gradops._problem import Plan, laid_down, seen_format, sharing
from gradops._values import LAYOUTS, Layout, Numbers, Shape, either, integers, layout_of, limited, short

Attributes: TypeAlias = tuple[Numbers, str | tuple[Shape, ...], Numbers, str, Numbers]
"""strides, padding, explicit_paddings, data_format, dilations, normalised by `attributes`"""

LONGEST_AXIS = 2**62
LARGEST_STEP = 2**31 - 1


class Op(NamedTuple):
    """What tells one convolution op from another: what its kernels do, its arrays, and what the other arguments are called."""

    work: str
    arguments: tuple[str, str]
    input: str = "input"
    filter: str = "filter"
    depthwise: bool = False
    two_sizes: bool = False

    @property
    def result(self) -> str:
        """What the result is, or is the gradient of: "output", "input" or "filter"."""
        return "output" if self.forward else "input" if self.scatters else "filter"

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


def attributes(strides: Any, padding: Any, explicit_paddings: Any, data_format: Any, dilations: Any) -> Attributes:
    """The attributes of a call as a key for `plan`."""
    if not isinstance(data_format, str):
        raise TypeError(f"data_format must be a string, {either(LAYOUTS)}, got {reprlib.repr(data_format)}")
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
def plan(
    op: str,
    input_shape: Shape,
    filter_shape: Shape,
    out_backprop_shape: Shape | None,
    given: Attributes,
    filter_format: str = "RSCK",
) -> Plan:
    """The plan for an op, the shapes of its tensors (or its size vectors) and its normalised `attributes`.

    `filter_format` says how the filter lies in memory, "RSCK", "KRSC" or, of dense ones, "KCRS"; its shape is [R, S, C/G, K] in any case.
    """
    kind = OPS[op]
    strides, padding, explicit_paddings, data_format, dilations = given
    layout = layout_of(data_format)
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
        limited("the output", output_shape)
    elif out_backprop_shape != output_shape:
        raise ValueError(
            f"out_backprop must have shape {output_shape} ({data_format}), got {out_backprop_shape}: "
            f"batch {input_shape[0]} of {kind.input}, {row_formula}, {col_formula}, "
            f"{out_channels} output channels of {kind.filter} {filter_shape}"
        )
    counts = not kind.depthwise and kind.result != "filter"
    seen_rows, seen_cols = laid_down(rows, cols)
    task = Task(
        kind.result,
        kind.depthwise,
        seen_rows,
        seen_cols,
        groups=groups,
        inputs=1 if kind.depthwise else filter_shape[2],
        outputs=out_channels // max(groups, 1),
        data_format=seen_format(data_format, input_shape[layout.c], out_channels, seen_cols),
        sharing=sharing(kind.scatters, rows, cols, input_shape[layout.n]) if counts else UNKNOWN,
        by_slots=kind.scatters == (filter_format == "RSCK"),
        pixels=input_shape[layout.n] * rows.out * cols.out,
        innermost=filter_format == "KCRS",
    )
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
        scatters=kind.scatters,
        zero=0 in (*input_shape, *filter_shape, *output_shape),
        work=kind.work,
        algorithms=tuple(algorithms(task._replace(arithmetic=arithmetic)) for arithmetic in Arithmetic),
        filter_format=filter_format,
    )


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
        raise ValueError(f"{name} must be {_STEPS}, got {len(value)} integers: {short(value)}")
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
            f"got {short(explicit_paddings)} with padding {padding!r}"
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
            f"explicit_paddings must be 8 integers when padding is 'EXPLICIT', got {short(explicit_paddings)}"
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
            raise ValueError(f"{name} must have {lengths} elements, got {len(shape)}: {short(shape)}")
        raise ValueError(f"{name} must have 4 dimensions {order}, got shape {short(shape)}")
    if min(shape) < 0:
        raise ValueError(f"{name} must not be negative, got {shape}")
    limited(name, shape)


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
