"""What a kernel is told: a plan's tensors, strides and lanes, packed as the structs of `_kernels/_problem.pxd`.

Strides and dilations die here. A *lane* is a progression of pixels along one axis that all use the same taps: a forward op has one, a
strided input gradient one for each remainder modulo the stride, and none multiplies by a tap that does not reach it. For Winograd's algorithm
lanes have up to three neighbouring taps, and several may be the same pixels, with some taps each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from math import gcd, prod
from typing import NamedTuple

from gradops._algorithms import (
    MIRRORED,
    UNKNOWN,
    Arithmetic,
    Axis,
    Sharing,
    mirrored_axis,
    reads_apart,
    side_by_side,
    stem_of,
)
from gradops._values import LAYOUTS, Layout, Shape

WIDEST_LINE = 1024
"""Source columns that a depthwise kernel holds in one line for a row of taps; wider ones are split by residue."""


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
    input grid. Mirrored, src is out_backprop and dst the input. Channels are those of one group, strides count elements.
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
    filter_first: int
    mirrored: int
    covered: int
    unpadded: int
    row_lanes: int
    col_lanes: int


@dataclass(frozen=True, eq=False)
class Plan:
    """One convolution whose shapes and attributes have been found right. Shapes of images are in data_format order.

    A filter's shape is (R, S, C/G, K), whatever its `filter_format`: the order in memory, "RSCK", "KRSC" or, of
    dense ones, "KCRS". Its `algorithms` are those that accept it, the preferred one first, for each `Arithmetic`.
    """

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
    scatters: bool
    work: str
    algorithms: tuple[tuple[str, ...], ...]
    filter_format: str = "RSCK"
    problems: dict[tuple[str, bool], bytes] = field(default_factory=dict)

    @property
    def exact(self) -> str:
        """The algorithm that also computes unpadded problems, and mixes no neighbours."""
        return "conv" if "conv" in self.algorithms[Arithmetic.FLOATS] else "depthwise"

    def stem(self, algorithm: str, storage: int) -> str:
        """The kernel of an algorithm for a storage code."""
        return stem_of(algorithm, self.work, storage)

    def problem(self, algorithm: str, unpadded: bool = False) -> bytes:
        """The kernel's view; made when a kernel first runs, so that its lanes never outgrow arrays that exist.

        Unpadded, in smaller lanes, none of whose taps lies in the padding: for infinities, whose product with zero is NaN.
        """
        packed = self.problems.get((algorithm, unpadded))
        if packed is None:
            packed = self.problems[algorithm, unpadded] = _packed(self, algorithm, unpadded)
        return packed


def _packed(plan: Plan, algorithm: str, unpadded: bool) -> bytes:
    view = _laid_down(plan)
    layout = LAYOUTS[view.data_format]
    mirrored = algorithm in MIRRORED
    if mirrored:
        view, algorithm = _mirrored(view), MIRRORED[algorithm]
    if algorithm == "conv":
        view = _merged(view, plan)
    if algorithm in ("conv", "gemv") and not unpadded:
        view = _flattened(view)
    src, dst = (view.output, view.input) if plan.scatters else (view.input, view.output)
    filter_rows, filter_cols = view.rows.taps, view.cols.taps
    in_group, out_group = view.input[layout.c] // plan.groups, view.output[layout.c] // plan.groups
    row_lanes = _row_lanes(view.rows, view.cols, plan.scatters, algorithm)
    col_lanes = _col_lanes(view.cols, plan.scatters, algorithm)
    if algorithm == "inplace":
        col_lanes = reached(col_lanes, src[layout.w])
    splits = algorithm == "conv" and plan.work == "gather" and sharing(plan.scatters, view.rows, view.cols, 1).splits
    if unpadded or splits or algorithm == "gemv":
        row_lanes = without_padding(row_lanes, src[layout.h])
        col_lanes = without_padding(col_lanes, src[layout.w])
    problem = Problem(
        images=src[layout.n],
        groups=plan.groups,
        src_channels=out_group if plan.scatters else in_group,
        dst_channels=in_group if plan.scatters else out_group,
        src_rows=src[layout.h],
        src_cols=src[layout.w],
        dst_rows=dst[layout.h],
        dst_cols=dst[layout.w],
        **_strides("src", src, layout),
        **_strides("dst", dst, layout),
        filter_rows=filter_rows,
        filter_cols=filter_cols,
        **_filter_strides(plan, view, mirrored),
        mirrored=int(mirrored),
        covered=int(_count(row_lanes) == dst[layout.h] and _count(col_lanes) == dst[layout.w]),
        unpadded=int(unpadded),
        row_lanes=len(row_lanes),
        col_lanes=len(col_lanes),
    )
    fields = [*problem, *(field for lane in (*row_lanes, *col_lanes) for field in lane)]
    return struct.pack(f"={len(fields)}q", *fields)


class _View(NamedTuple):
    """Shapes and axes as a kernel sees them: others may fit the same memory and the same sums."""

    input: Shape
    output: Shape
    rows: Axis
    cols: Axis
    data_format: str


def seen_format(data_format: str, channels: int, out_channels: int, cols: Axis) -> str:
    """The data_format that kernels see: images of one channel are planes in either, which are read along rows, unless `_merged` makes channels of columns.

    Channels last, filter gradients take 4 to 6 times as long, 5x5 depthwise ones 20 times (float32 and bfloat16, 2 threads of a Zen 4).
    """
    merges = cols.taps > 1 and side_by_side(cols)
    return "NCHW" if channels == out_channels == 1 and not merges else data_format


def laid_down(rows: Axis, cols: Axis) -> tuple[Axis, Axis]:
    """The axes that kernels see: an image of one column becomes one of one row, since they work along rows."""
    if not cols.size == cols.out == cols.taps == 1 or cols.before:
        return rows, cols
    return Axis(1, 1, 1, 1, 0, 1), rows


def _laid_down(plan: Plan) -> _View:
    rows, cols = laid_down(plan.rows, plan.cols)
    given = LAYOUTS[plan.data_format]
    data_format = seen_format(plan.data_format, plan.input_shape[given.c], plan.output_shape[given.c], cols)

    def seen(shape: Shape) -> Shape:
        n, h, w, c = (shape[axis] for axis in given)
        return LAYOUTS[data_format].arranged(n, *((h, w) if cols is plan.cols else (1, h)), c)

    return _View(seen(plan.input_shape), seen(plan.output_shape), rows, cols, data_format)


def _merged(view: _View, plan: Plan) -> _View:
    """Where filters lie side by side, the columns of each become channels of one pixel.

    So a layer that cuts an image into patches reads or writes each row of a patch at once.
    """
    cols = view.cols
    if not side_by_side(cols) or view.data_format != "NHWC" or plan.groups > 1:
        return view
    n, h, _, c = view.input
    return view._replace(input=(n, h, cols.out, c * cols.stride), cols=Axis(cols.out, 1, 1, 1, 0, cols.out))


def _mirrored(view: _View) -> _View:
    """With images exchanged."""
    rows, cols = mirrored_axis(view.rows), mirrored_axis(view.cols)
    return view._replace(input=view.output, output=view.input, rows=rows, cols=cols)


def _flattened(view: _View) -> _View:
    """Where one tap reads every pixel, an image becomes one row, or all images do where channels come last: nothing is beside or below."""
    if not all(axis.taps == axis.stride == 1 and axis.size == axis.out for axis in (view.rows, view.cols)):
        return view
    layout = LAYOUTS[view.data_format]
    images, pixels = view.input[layout.n], view.rows.size * view.cols.size
    if view.data_format == "NHWC":
        images, pixels = 1, images * pixels
    before, after = (layout.arranged(images, 1, pixels, shape[layout.c]) for shape in (view.input, view.output))
    return _View(before, after, Axis(1, 1, 1, 1, 0, 1), Axis(pixels, 1, 1, 1, 0, pixels), view.data_format)


def _strides(prefix: str, shape: Shape, layout: Layout) -> dict[str, int]:
    """Element strides of a contiguous array."""
    return {f"{prefix}_{letter}": prod(shape[i + 1 :]) for letter, i in zip("nyxc", layout, strict=True)}


def _filter_strides(plan: Plan, view: _View, mirrored: bool) -> dict[str, int]:
    """Element strides of a filter in the plan's order, and where its first tap lies: mirrored, behind the others."""
    channel = LAYOUTS[view.data_format].c
    images = (view.output, view.input) if mirrored else (view.input, view.output)
    inputs, outputs = (image[channel] for image in images)
    inputs, columns, taps = inputs // plan.groups, view.cols.taps, view.rows.taps * view.cols.taps
    tap, c, k = {
        "RSCK": (inputs * outputs, outputs, 1),
        "KRSC": (inputs, 1, taps * inputs),
        "KCRS": (1, taps, taps * inputs),
    }[plan.filter_format]
    src, dst = (k, c) if plan.scatters or mirrored else (c, k)
    group = outputs // plan.groups * k
    first, step = ((taps - 1) * tap, -tap) if mirrored else (0, tap)
    ends = {"filter_group": group, "filter_first": first}
    return {"filter_y": columns * step, "filter_x": step, "filter_src": src, "filter_dst": dst, **ends}


def _count(lanes: list[Lane]) -> int:
    """Destinations in all lanes, which share none unless they share all."""
    return sum({lane.out_start: lane.count for lane in lanes}.values())


def _row_lanes(rows: Axis, cols: Axis, scatters: bool, algorithm: str) -> list[Lane]:
    """Lanes of rows. Where source rows serve several taps, as in a ring or a tile, the taps must be neighbours."""
    walks = algorithm == "planes" and not reads_apart(rows, cols, scatters)
    lanes = _maker(scatters, algorithm)(rows, walks or algorithm in ("depthwise", "inplace", "winograd"))
    return with_all(lanes, rows) if algorithm == "planes" and scatters else lanes


def _col_lanes(axis: Axis, scatters: bool, algorithm: str) -> list[Lane]:
    """Lanes of columns. The depthwise kernels load them as lines, and split those that would get too long."""
    make = _maker(scatters, algorithm)
    whole = make(axis, algorithm in ("inplace", "winograd"))
    if algorithm == "depthwise" and any((lane.taps - 1) * lane.tap_step >= WIDEST_LINE for lane in whole):
        return make(axis, True)
    return with_all(whole, axis) if algorithm == "planes" and scatters else whole


def _maker(scatters: bool, algorithm: str) -> Callable[[Axis, bool], list[Lane]]:
    """What makes lanes: of an axis, and whether they are split until taps are neighbours."""
    if algorithm == "winograd":
        return lambda axis, _: in_windows(gradient_lanes(axis, True) if scatters else tap_lanes(axis))
    return gradient_lanes if scatters else forward_lanes


def forward_lanes(axis: Axis, split: bool) -> list[Lane]:
    """Outputs as destinations: one lane, or one for each residue by which the taps of an output become neighbours."""
    _, taps, s, d, p, out = axis
    if not split:
        return [Lane(out, 0, 1, -p, 1, s, d, taps, 0, 1)]
    period, step = d // gcd(s, d), s // gcd(s, d)
    return [Lane(-((r - out) // period), r, period, s * r - p, d, step, 1, taps, 0, 1) for r in range(min(period, out))]


def tap_lanes(axis: Axis) -> list[Lane]:
    """Outputs as destinations: with a stride, one lane of all of them for each remainder of taps modulo it, to be summed. *Assumes:* no dilation then."""
    _, taps, s, _, p, out = axis
    if s == 1:
        return forward_lanes(axis, True)
    return [Lane(out, 0, 1, r - p, s, 1, 1, -((r - taps) // s), r, s) for r in range(min(s, taps))]


def in_windows(lanes: list[Lane]) -> list[Lane]:
    """The same lanes, each as often as it has windows of up to three neighbouring taps, to be summed: four are two and two, since one alone has two products."""
    found = []
    for lane in lanes:
        done = 0
        while done < lane.taps:
            taps = 2 if lane.taps - done == 4 else min(lane.taps - done, 3)
            src_start = lane.src_start + lane.src_unit * lane.tap_step * done
            filter_start = lane.filter_start + lane.filter_step * done
            found.append(lane._replace(src_start=src_start, taps=taps, filter_start=filter_start))
            done += taps
    return found


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


def with_all(lanes: list[Lane], axis: Axis) -> list[Lane]:
    """The same lanes and, without taps, those of the inputs that no tap reaches."""
    n, s = axis.size, axis.stride
    others = sorted(set(range(min(s, n))) - {lane.out_start % s for lane in lanes})
    like = lanes[0] if lanes else Lane(0, 0, s, 0, 1, 1, 1, 0, 0, 0)
    return lanes + [like._replace(count=-((r - n) // s), out_start=r, out_step=s, taps=0) for r in others]


def reached(lanes: list[Lane], size: int) -> list[Lane]:
    """The same lanes without the pixels none of whose taps lies inside a source of `size`."""
    kept = []
    for lane in lanes:
        step = lane.src_unit * lane.z_step
        first = max(0, -((lane.src_start + lane.src_unit * lane.tap_step * (lane.taps - 1)) // step))
        end = min(lane.count, (size - 1 - lane.src_start) // step + 1)
        if first < end:
            out_start, src_start = lane.out_start + lane.out_step * first, lane.src_start + step * first
            kept.append(lane._replace(count=end - first, out_start=out_start, src_start=src_start))
    return kept


LONGEST_COUNTED_AXIS = 64
"""Sizes up to which `sharing` counts."""


def sharing(scatters: bool, rows: Axis, cols: Axis, images: int) -> Sharing:
    """How destinations share the taps that lie inside their source."""
    if max(rows.size, rows.out, cols.size, cols.out) > LONGEST_COUNTED_AXIS:
        return UNKNOWN
    pixels, reads, inside = (
        prod(both) for both in zip(*(_shared(scatters, axis) for axis in (rows, cols)), strict=True)
    )
    return Sharing(images * pixels, reads, inside)


@lru_cache(maxsize=1024)
def _shared(scatters: bool, axis: Axis) -> tuple[int, float, float]:
    """`Sharing` along one axis."""
    lanes = (gradient_lanes if scatters else forward_lanes)(axis, False)
    cut = without_padding(lanes, axis.out if scatters else axis.size)
    reads = sum(lane.taps for lane in cut) / max(axis.taps, 1)
    inside = sum(lane.count * lane.taps for lane in cut) / max(sum(lane.count * lane.taps for lane in lanes), 1)
    return max((lane.count for lane in cut), default=0), reads, inside


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
