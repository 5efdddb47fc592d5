"""Where a depthwise op of many outputs for one input is computed as a grouped convolution, whose products are matrices."""

from __future__ import annotations

from .task import Task

MOST_MULTIPLIERS = 64
"""What the stencil over packed rows holds in one block of lanes (LANES of _ring.pxd); more go to the kernels of grouped convolution."""

LEAST_MULTIPLIERS = 16
"""Outputs for one input that `conv` is offered from, though no more than `depthwise` could compute."""

LEAST = {("output", "NCHW"): 24}
LEAST_PAIRED = {("output", "NHWC"): 32, ("output", "NCHW"): 24, ("filter", "NHWC"): 24, ("filter", "NCHW"): 24}
"""From how many on it is taken, by the result and the layout: without strides, and with any of bfloat16 that `conv` multiplies in pairs. Time of `depthwise` over that of
`conv`, without strides and with strides of 2 and 3, geometric means of 5800 random problems (2x2 to 7x7 taps, 2 to 64 inputs of 7 to 80 pixels), 2 threads of a Zen 4:

============  ===========  ===========  ===========  ===========  ===========
outputs for   16           24           32           48           64
one input
============  ===========  ===========  ===========  ===========  ===========
float32
output, NHWC  0.20   0.21  0.29   0.49  0.35   0.40  0.48   0.51  0.54   0.58
output, NCHW  0.92   0.49  1.41   1.19  1.12   0.74  1.09   0.77  1.06   0.89
filter, NHWC  0.55   0.45  0.81   0.84  0.79   0.65  1.02   0.70  0.96   0.71
filter, NCHW  0.71   0.60  0.89   1.16  0.88   0.81  0.84   0.86  0.99   0.94
bfloat16
output, NHWC  0.88   0.74  0.84   1.13  1.29   1.18               1.57   1.31
output, NCHW  0.74   0.49  1.13   1.43  1.07   0.85               1.34   1.02
filter, NHWC  0.64   0.57  1.09   1.27  1.12   0.98               1.44   1.20
filter, NCHW  0.85   0.63  1.59   1.79  1.25   0.83               1.51   1.10
float64
output, NHWC  0.34   0.43  0.45   0.52  0.57   0.58               0.68   0.61
output, NCHW  1.36   0.85  1.20   0.87  1.41   1.05               1.36   1.14
filter, NHWC  0.84   0.69  1.32   0.72  1.12   0.73               0.84   0.72
filter, NCHW  0.91   0.88  0.82   0.80  0.98   0.85               0.95   0.86
float32, AVX2
output, NHWC  0.36   0.34  0.40   0.46  0.50   0.52               0.75   0.82
output, NCHW  1.22   0.62  1.30   0.71  1.29   0.84               1.25   1.01
filter, NHWC  0.95   0.72  0.85   0.86  1.06   0.90               1.14   1.31
filter, NCHW  1.00   0.94  0.90   0.87  1.13   1.09               1.08   1.27
============  ===========  ===========  ===========  ===========  ===========

Of 8 outputs 0.15 to 0.84. Gradients of inputs, one result a group, 0.1 to 0.8; they are those of `col2im`. Gradients of filters, channels first, that `stem` is preferred
for take it 0.7 to 0.95 of the time of the others, but of bfloat16 in pairs 1.15 times.
"""


def stencils(task: Task) -> tuple[str, ...]:
    """`depthwise`, `conv` or both, the preferred one first."""
    if task.outputs > MOST_MULTIPLIERS:
        return ("conv",)
    if task.outputs < LEAST_MULTIPLIERS:
        return ("depthwise",)
    least = LEAST_PAIRED if task.paired else {} if task.strided else LEAST
    many = task.outputs >= least.get((task.result, task.data_format), MOST_MULTIPLIERS + 1)
    return ("conv", "depthwise") if many else ("depthwise", "conv")
