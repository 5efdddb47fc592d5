"""Where few pixels share their taps: a matrix times some vectors."""

from __future__ import annotations

from .patches import folds_patches
from .sharing import MOST_READS
from .task import Axis, Task

MOST_VECTORS, MOST_POINTS, MOST_PAIRED = 16, 63, {False: 1, True: 4}
"""Pixels that share their taps, at most, of what `gemv` accepts; the same where one tap reads every pixel, unless two bfloat16 are multiplied at once, and of what
it is taken for if they are, by whether what is summed, and not the result, lies side by side in the filter."""

MOST_DOTS, LEAST_SLOTS = 8, 32
"""Pixels for which it multiplies vectors of what is summed (FEW of gemv_gather_columns.pxi), for each of which it takes so many of those channels to be
preferred. The filter is read again for pixels that use other taps, MOST_READS times at most.

Time of `conv` over that of `gemv`, one tap, 2 threads of a Zen 4, of outputs and gradients of inputs (which it sums vectors of), for 1, 4, 8, 9, 16, 18, 32, 49
and 60 pixels; filters in the order RSCK:

==================  =========================================================
float32, output
-----------------------------------------------------------------------------
20 to 480           1.39  1.34  2.02  1.25  1.21  1.20  1.11  1.03  0.99
64 to 64            1.18  1.20  1.14  1.16  1.10  1.11  1.11  1.08  1.08
480 to 20           1.39  1.36  1.31  1.30  1.57  1.60  1.39  1.12  1.10
512 to 512          2.30  1.90  1.94  1.87  1.54  1.48  1.28  1.19  1.15
2048 to 1000        4.28  3.84  2.84  2.66  1.98  1.78  1.47  1.42  1.30
------------------  ---------------------------------------------------------
float32, input
-----------------------------------------------------------------------------
20 to 480           2.29  2.09  1.66  1.47  1.46  1.59  1.23  1.41  1.11
64 to 64            1.36  1.17  0.95  1.20  1.20  1.22  1.14  1.19  1.09
480 to 20           1.28  0.74  0.44  1.41  1.41  1.02  1.30  1.13  1.19
512 to 512          6.10  3.96  2.07  1.70  1.75  2.11  1.35  1.44  1.12
2048 to 1000        7.07  4.51  1.90  1.83  1.80  2.27  1.46  1.63  1.29
------------------  ---------------------------------------------------------
bfloat16 in pairs, output
-----------------------------------------------------------------------------
64 to 64            0.99  0.96  0.91  0.85  0.85
512 to 512          0.88  0.80  0.82  0.80  0.69
2048 to 1000        1.16  0.94  0.81  0.80  0.64
------------------  ---------------------------------------------------------
bfloat16 in pairs, input
-----------------------------------------------------------------------------
64 to 64            1.25  1.05  0.53  0.64  0.99
512 to 512          3.44  2.16  1.25  1.07  1.05
2048 to 1000        2.95  1.98  0.90  0.94  0.97
==================  =========================================================

Channels first, and in float64 up to 49 pixels, 1.0 to 8; with AVX2 1.0 to 2.8; float16 1.0 to 2.0, of 49 pixels channels last 0.95 to 1.35. 98 pixels: 0.94 to 1.14 in
float32, 0.63 to 1.22 in float64, 0.74 to 1.3 in float16. One tap with strides, 49 pixels: 0.4 to 1.3. Padded 3x3 taps over images of 2x2 pixels, whose taps
are read 1.8 times, 1.8 and 2.5; of 4x4 pixels, 5.4 times, 0.7 and 0.9 (Zen 5).
"""


def accepts(task: Task) -> bool:
    """Whether so few pixels of an output or the gradient of an input share their taps."""
    points = not task.paired and all(_point(axis) for axis in (task.rows, task.cols))
    return task.result != "filter" and task.sharing.pixels <= (MOST_POINTS if points else MOST_VECTORS)


def wins(task: Task, first: str) -> bool:
    """Whether it is preferred to all others, of which one is the first."""
    pixels = task.sharing.pixels
    if task.sharing.reads > MOST_READS or (pixels > MOST_VECTORS and first != "conv"):
        return False
    few = task.by_slots and pixels <= MOST_DOTS and task.summed < LEAST_SLOTS * pixels
    many = task.paired and pixels > MOST_PAIRED[task.by_slots]
    several = not task.last and task.rows.out * task.cols.out > 1
    return not (few or many or (several and folds_patches(task)))


def _point(axis: Axis) -> bool:
    """Whether one tap reads every pixel."""
    return axis.taps == axis.stride == 1 and axis.size == axis.out
