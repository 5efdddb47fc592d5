"""Images that are cut into patches, whose rows, or all of whose numbers, `conv` reads or writes at once."""

from __future__ import annotations

from .task import Axis, Task

LEAST_PATCH = 16
"""Numbers of a row of a patch from which on the gradient of patches that lie side by side is left to `conv`, which writes such a row at once: time of
`stem` over that of `conv`, float32, bfloat16 and float64, NHWC, 8 images of 224x224, 2 threads of a Zen 4.

============  ====================  =======
patch         time                  numbers
============  ====================  =======
2x2x4         0.99  0.75  1.45      8
4x4x3         1.10  1.30  0.58      12
4x4x4         1.41  2.28  0.85      16
2x2x8         1.54  4.19  1.16      16
16x16x1       4.90  6.45  2.84      16
8x8x3         1.20  2.36  1.28      24
16x16x3       2.00  4.20  1.47      48
============  ====================  =======

One tap (1x1) shares nothing that `stem` could use twice: 1.0 to 2.5 times that of `conv`.
"""

PATCH_COLUMNS, MOST_PATCH = {False: range(8, 65), True: range(4, 65)}, 1024
"""The same of planes, where only gradients are folded: columns of a patch, without and with products of pairs, and all of its numbers, at most (MOST_RUN of
conv_gather_fold.pxi and CHANNELS of conv_gather_plan.pxi). Time of `stem` over that of `conv`, float32, bfloat16, float64, and float32 with AVX2, NCHW, 8 images of
224x224, 2 threads of a Zen 4.

===================  ======================
patch, outputs       time
===================  ======================
4x4x3, 96            0.73  1.19  0.64  0.91
5x5x3, 96            0.80  1.22  0.70  0.91
7x7x3, 96            0.82  1.55  0.80  1.40
8x8x3, 96            1.30  2.03  1.05  1.47
8x8x3, 384           1.35  2.25  1.07  1.93
8x8x1, 16            1.34  1.61  1.40  1.21
14x14x3, 1024        2.09  3.78  1.38  1.80
16x16x3, 32          2.00  2.96  1.41  1.64
16x16x3, 768         2.39  4.62  1.19  2.03
===================  ======================

`gemv` would have to read the filter for each row and column of few patches: of one image of 16x16, 32x32, 48x48 and 64x64, it takes 0.8, 10, 16 and 11 times
as long (16x16x3, 768, float32; float64 0.4, 2.0, 4.4, 11), so images of one patch, 0.4 to 0.8 however many, are left to it.
"""


def favour_conv(task: Task) -> bool:
    """Whether an output or the gradient of an input is left to `conv` for the sake of its patches."""
    if not task.last:
        return folds_patches(task)
    return task.groups == 1 and side_by_side(task.cols) and task.cols.taps * task.inputs >= LEAST_PATCH


def folds_patches(task: Task) -> bool:
    """Whether planes are patches all of whose numbers `conv` computes at once (`are_patches` of conv_gather_fold.pxi)."""
    beside = task.result == "input" and task.groups == 1 and side_by_side(task.rows) and side_by_side(task.cols)
    few = task.rows.taps * task.cols.taps * task.inputs <= MOST_PATCH and not (task.paired and task.outputs % 2)
    return beside and few and task.cols.taps in PATCH_COLUMNS[task.paired]


def side_by_side(axis: Axis) -> bool:
    """Whether patches lie side by side, with nothing between or beyond them."""
    return axis.taps == axis.stride and axis.dilation == 1 and axis.before == 0 and axis.size == axis.out * axis.stride
