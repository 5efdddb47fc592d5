"""Where Winograd's F(2x2, 3x3) is preferred to the implicit GEMM."""

from __future__ import annotations

from functools import partial
from math import prod

from .task import MOST_SHEET_SLOTS, Axis, Task

MOST_TAPS = 7
"""Along an axis: three windows of up to three."""

COST, STEP_COST = 6, 64
"""What transforms cost, in products: over the inputs and the outputs that share them, and for each step of a dilation, whose pixels have tiles of their own, over
the pixels."""

LEAST_GAIN = {"3x3": (1.2, 1.3), "strided": (1.1, 1.1), "dilated": (1.2, 1.8), "other": (1.2, 1.3)}
"""The *gain*, the products of `conv` over those of whole tiles, from which on it is taken, times 1 and these costs: channels last and first.

Time of what was preferred to it or came after it, nearly always `conv`, over that of `winograd`, by gain over costs, float32, 2 threads of a Zen 4: 9,400
random problems (4 to 512 channels, groups, 1 to 16 images of 7x7 to 128x128, all paddings; 3x3 taps, the same with steps of 2 to 4, filters of 3x3 to 6x6 with
stride 2 in one or both directions, of 1x2 to 7x7 without), each column the geometric mean of all three ops:

========  ==========  ==========  ==========  ==========
gain      3x3         strided     dilated     other
========  ==========  ==========  ==========  ==========
to 0.9    0.65  0.50  0.71  0.75  0.69  0.54  0.63  0.53
to 1.1    0.82  0.69  0.96  0.97  0.90  0.59  0.88  0.81
to 1.2    0.99  0.86  1.05  1.08  1.02  0.69  1.03  0.94
to 1.3    1.09  0.98  1.15  1.16  1.13  0.70  1.07  1.06
to 1.5    1.31  1.16  1.20  1.27  1.33  0.70  1.26  1.17
to 1.8    1.48  1.27  1.41  1.48  1.46  1.03  1.39  1.33
above     1.61  1.58  1.50  1.66  1.67  1.30  1.50  1.43
========  ==========  ==========  ==========  ==========

Of those for which it is taken, by kind, layout and op: float32 1.17 to 1.50, float64 1.15 to 1.50, float16 1.20 to 1.55.

It is not taken where `conv` multiplies two bfloat16 at once, which it would widen. Time of `winograd` over that of `conv` then, 3x3 taps, 8 images, 2 threads of a
Zen 4 (the forward op, the gradients of input and filter; NHWC on a Zen 5, where a filter of 64 to 64 has 1.0):

============  =======  ==================  ==================
channels      images   NHWC                NCHW
============  =======  ==================  ==================
8 to 8        56x56    2.9   2.9   3.7
32 to 32      56x56    1.2   1.2   0.9     1.1   1.1   1.1
64 to 64      56x56    1.1   1.2   1.0     1.0   1.0   1.1
96 to 96      28x28    1.2   1.2   1.2     1.1   1.1   1.1
128 to 128    28x28    1.2   1.2   1.0     1.1   1.2   1.0
256 to 256    14x14    1.1   1.2   1.2     1.1   1.2   1.2
512 to 512    7x7      1.4   1.4   1.4     1.2   1.2   1.2
============  =======  ==================  ==================

Nor is it for dilated planes of 16 bits, which it gathers and writes a number at a time: 0.4 to 0.9 of the speed (float16, 2 threads of a Granite
Rapids and of a Zen 4).
"""

MOST_SUMMED_PIXELS = 16
"""Pixels that a filter's gradient sums up to which `conv` is taken: it writes the sums at once, 9 numbers where `winograd` has 16 sums.

Time of `winograd` over that of `conv`, 3x3 taps, as many inputs as outputs, 2 threads of a Zen 4:

============  ========  ==================  ==================
images        channels  float32             float64, NHWC
============  ========  ==================  ==================
                        NHWC      NCHW
------------  --------  --------  --------  ------------------
1 of 2x2      512       1.96      1.87      2.04
2 of 2x2      512       1.80      1.56      1.57
1 of 3x3      512       1.96      1.77
1 of 4x4      512       1.29      1.33      1.31
1 of 4x4      64        1.34      1.07      1.41
2 of 4x4      512       0.98      0.96
1 of 6x6      256       0.95      0.88
1 of 7x7      512       1.05      0.93
============  ========  ==================  ==================

float16 1.1 to 1.9, AVX2 1.1 to 2.4; 16 to 16 channels of 4x4 pixels, channels first, 0.8 to 0.9.
"""

LEAST_SHEET_ROW = 20
"""Pixels of a row from which on planes that `conv` copies once for all taps, channels first, of up to MOST_SHEET_SLOTS taps and channels, fill its vectors, so that
the *gain* is that of filled vectors. Time of `conv` over that of `winograd`, 3x3 taps, 8 images, gradients of inputs and outputs, 2 threads of a Zen 5: 17 to 33
channels of 28x28 and 29x29 0.62 to 0.76, 20 to 40 0.73 and 0.83, 24 to 24 0.95, 24 to 48 of 56x56 0.98 and 1.13, 40 to 40 of 20x20 1.05, 32 to 32 1.3.

Groups of up to a vector of channels, channels last, need as much gain as channels first: 16 to 16 0.86 to 0.92, gradients of filters 0.73 to 0.89, of few pixels 1.1; 20
to 20 and more 1.1 to 1.5.
"""


def accepts(task: Task) -> bool:
    """Whether the filter has 2 to 7 neighbouring taps along an axis, or 3 to 6 and a stride of 2, whose windows of three fit the kernel."""
    plain = not (task.strided or task.dilated)
    fit = all(_fits(axis, plain) for axis in (task.rows, task.cols))
    return fit and not (task.one_tap or (task.strided and task.dilated))


def _fits(axis: Axis, plain: bool) -> bool:
    """Whether taps, or every second one, lie in one window of three for all pixels, or without strides and dilations in up to three."""
    if axis.stride == 1:
        return 1 <= axis.taps <= (MOST_TAPS if plain else 3)
    return axis.stride == 2 and (3 <= axis.taps <= 5 or (axis.taps == 6 and axis.before % 2 == 0))


def wins(task: Task) -> bool:
    """Whether it is preferred to `conv`."""
    if task.paired or (task.result == "filter" and task.pixels <= MOST_SUMMED_PIXELS):
        return False
    if task.dilated and task.halves and not task.last:
        return False
    kind = "strided" if task.strided else "dilated" if task.dilated else "3x3" if _dense(task) else "other"
    steps = task.rows.dilation * task.cols.dilation if task.dilated else 0
    costs = COST / max(task.inputs, 1) + COST / max(task.outputs, 1) + STEP_COST * steps / max(task.pixels, 1)
    narrow = task.groups > 1 and max(task.inputs, task.outputs) <= task.vector
    return _gain(task) * _fill(task) >= LEAST_GAIN[kind][narrow or not task.last] * (1 + costs)


def _fill(task: Task) -> float:
    """The share of its vectors of channels that is filled, where those of `conv` are pixels of planes that are copied once for all taps."""
    copied = task.slots <= MOST_SHEET_SLOTS and task.cols.out >= LEAST_SHEET_ROW
    if task.last or task.result == "filter" or task.strided or not copied:
        return 1
    return task.channels / (-(-task.channels // task.vector) * task.vector)


def reads_innermost(task: Task) -> bool:
    """Whether it is preferred where taps lie innermost: others than dense 3x3 ones are read one by one."""
    if task.result == "filter":
        return wins(task) or (_dense(task) and not task.paired)
    return _dense(task)


def _dense(task: Task) -> bool:
    return not task.strided and task.rows.taps == task.cols.taps == 3


def _gain(task: Task) -> float:
    """The products of `conv` over those of whole tiles."""
    return prod(map(partial(_gain_along, task), (task.rows, task.cols)))


def _gain_along(task: Task, axis: Axis) -> float:
    """The same of an axis: for two pixels, there is one product more than taps in each window; with a stride there is one window for each remainder."""
    points = axis.taps + max(axis.stride, -(-axis.taps // 3))
    pixels = axis.size if task.result == "input" and axis.stride == 1 else axis.out
    return 2 * axis.taps / points * pixels / max(_in_tiles(pixels, axis.dilation), 1)


def _in_tiles(pixels: int, steps: int) -> int:
    """How many pixels tiles have, those of each step by themselves."""
    each, more = divmod(pixels, steps)
    return more * (each + 1 + (each + 1) % 2) + (steps - more) * (each + each % 2)
