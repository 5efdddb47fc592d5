"""Where a depthwise op of many outputs for one input is computed as a grouped convolution, whose products are matrices."""

from __future__ import annotations

from .task import Task

MOST_MULTIPLIERS = 64
"""What the stencil over packed rows holds in one block of lanes (LANES of _ring.pxd); more go to the kernels of grouped convolution."""

LEAST_MULTIPLIERS = 16
"""Outputs for one input that `conv` is offered from, though no more than `depthwise` could compute."""

LEAST = {("output", "NCHW"): 16, ("filter", "NCHW"): 16, ("filter", "NHWC"): 32}
LEAST_PAIRED = {**LEAST, ("output", "NHWC"): 32}
"""From how many on it is taken, by the result and the layout. Time of `depthwise` over that of `conv`, geometric means of 3400 random problems (2x2 to 7x7 taps, strides
to 3, 2 to 64 inputs of 7 to 80 pixels), 2 threads of a Zen 4; bfloat16 is multiplied in pairs by `conv`:

============  ======================  ======================  ======================
outputs for   float32                 bfloat16                float64
one input     16    24    32    64    16    24    32    64    16    24    32    64
============  ======================  ======================  ======================
output, NHWC  0.32  0.39  0.50  0.91  0.99  0.88  1.65  2.22  0.55  0.60  0.81  0.91
output, NCHW  1.11  1.26  1.38  1.50  1.02  1.28  1.75  2.45  1.65  1.61  1.87  2.09
filter, NHWC  0.58  0.90  1.11  1.34  0.79  1.13  1.48  1.76  0.76  1.08  1.35  1.28
filter, NCHW  1.15  1.16  1.61  1.74  0.83  1.17  1.73  2.22  1.24  1.67  1.42  1.72
============  ======================  ======================  ======================

Of 8 outputs 0.15 to 0.84. Gradients of inputs, one result a group, 0.1 to 0.8; they are those of `col2im`. Where `stem` is preferred, `conv` takes 1.2 to 3 times as long.
"""


def stencils(task: Task) -> tuple[str, ...]:
    """`depthwise`, `conv` or both, the preferred one first."""
    if task.outputs > MOST_MULTIPLIERS:
        return ("conv",)
    if task.outputs < LEAST_MULTIPLIERS:
        return ("depthwise",)
    least = (LEAST_PAIRED if task.paired else LEAST).get((task.result, task.data_format), MOST_MULTIPLIERS + 1)
    return ("conv", "depthwise") if task.outputs >= least else ("depthwise", "conv")
