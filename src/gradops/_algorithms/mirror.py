"""Where the gradient of a filter exchanges its images: without strides, x is to dy as dy is to x, seen in a mirror.

With p = i - before + r dilation, the pixel of x that output i and tap r meet at, dw[r, c, k] = sum_i x[p, c] dy[i, k] is a sum over p, too: that of the filter
with R - 1 - r in the place of r, whose input is dy and whose output gradient is x. So the vectors of `conv` and `winograd` are filled with inputs instead of
outputs, and what is packed for each tap has the fewer channels.
"""

from __future__ import annotations

from .stem import LEAST_SHEET_PIXELS
from .task import Axis, Task

MIRRORED = {f"mirrored_{kernel}": kernel for kernel in ("conv", "winograd", "stem")}
"""The algorithms that exchange images, and those whose kernels they run."""

FEW_OUTPUTS, FEWER_OUTPUTS, LEAST_INPUTS = 24, 12, 32
"""Outputs of a group up to which images are exchanged if it has more inputs, and if it has fewer than so many of these.

Time of what is taken otherwise over that of the same with images exchanged, 3x3 taps, 8 images of 28x28, 2 threads of a Zen 4, for 1, 2, 3, 4, 8, 12, 16, 24 and
32 outputs:

======  ========================================================  ========================================================
inputs  float32                                                   bfloat16
------  --------------------------------------------------------  --------------------------------------------------------
        NHWC
======  ========================================================  ========================================================
16      4.73 5.00  3.68 3.16  1.81 1.08  0.96                     2.47 2.18  1.99 1.71  1.33       1.07
64      2.88 2.49  2.29 1.87  1.67 1.19  1.01 1.28                3.03 2.62  2.80 1.83  1.55       1.63 1.54  1.08
256     3.29 4.03  2.00 2.10  1.43 1.31  1.03 1.25                3.12 3.05  2.63 2.21  1.64       1.30 1.39  1.05
======  ========================================================  ========================================================
        NCHW
------  --------------------------------------------------------  --------------------------------------------------------
16      1.92 1.87  1.44 1.36  0.96 0.95  1.00                     1.24 0.99  0.93 0.84  0.88       1.00
64      2.53 2.05  1.64 1.51  1.14 1.26  1.08 1.28                1.28 1.24  1.31 0.89  0.99       1.08 0.99  0.99
256     2.78 1.69  2.25 1.24  1.28 1.46  1.07 1.26                1.97 1.98  1.92 1.30  0.99       1.12 1.12  0.98
======  ========================================================  ========================================================

4 images of 128x128 1.0 to 6.9; 5x5 and 7x7 taps 0.95 to 7.5; AVX2 1.0 to 4.7, float64 0.92 to 5.1, groups of 4 to 64 inputs and 2 to 16 outputs 0.97 to 5.1. More
outputs 0.9 to 1.15, but 20 of float32 1.26 to 1.65; as many outputs as inputs 1. One tap, which shares nothing, 0.86 to 1.29.
"""

SHORT_ROWS, INPUTS_OF_SHORT_ROWS, OUTPUTS_OF_SHORT_ROWS = {False: 16, True: 32}, 32, 8
"""Pixels of a row of x below which, channels first, images are exchanged only if there are so many inputs for each output, so many outputs, or few pixels
in all: of float32, and of bfloat16 that is multiplied in pairs. The same time for 1, 2, 3, 4 and 8 outputs:

======  ====================================  ====================================
inputs  float32, 14x14                        bfloat16, 14x14
======  ====================================  ====================================
8       0.96  0.55  0.48  0.41  1.00          0.62  0.52  0.47  0.40  1.00
32      2.26  0.93  0.93  0.86  1.21          1.15  0.93  1.02  0.84  0.98
64      2.22  1.11  0.83  0.77  1.22          1.23  1.00  1.03  0.79  1.08
256     2.58  1.57  1.70  1.21  1.14          1.88  1.37  1.39  0.96  1.05
======  ====================================  ====================================

One image: 1.3 to 9.4. bfloat16, 28x28, groups of 8 and 16 inputs 0.53 to 0.98.
"""


def mirrored_axis(axis: Axis) -> Axis:
    """What an axis looks like with images exchanged."""
    reach = (axis.taps - 1) * axis.dilation
    return axis._replace(size=axis.out, before=reach - axis.before, out=axis.size)


def mirrored(task: Task) -> Task:
    """The gradient of a filter with images exchanged."""
    images = task.pixels // max(task.rows.out * task.cols.out, 1)
    return task._replace(
        rows=mirrored_axis(task.rows),
        cols=mirrored_axis(task.cols),
        inputs=task.outputs,
        outputs=task.inputs,
        pixels=images * task.rows.size * task.cols.size,
    )


def accepts(task: Task) -> bool:
    """Whether it is the gradient of a filter that has fewer outputs than inputs, without strides and with no more padding than taps reach."""
    if task.result != "filter" or task.strided or task.one_tap or (task.groups > 1 and task.outputs == 1):
        return False
    return task.outputs < task.inputs and min(mirrored_axis(axis).before for axis in (task.rows, task.cols)) >= 0


def wins(task: Task) -> bool:
    """Whether it is preferred to what does not exchange images; where tiles are multiplied it was not measured."""
    if task.tiled or task.outputs > (FEW_OUTPUTS if task.inputs >= LEAST_INPUTS else FEWER_OUTPUTS):
        return False
    if task.last or task.cols.size >= SHORT_ROWS[task.paired]:
        return True
    many = task.outputs >= OUTPUTS_OF_SHORT_ROWS or task.inputs >= INPUTS_OF_SHORT_ROWS * task.outputs
    return many or task.pixels <= LEAST_SHEET_PIXELS
