"""Where Winograd's F(2x2, 3x3) is preferred to the implicit GEMM."""

from __future__ import annotations

from functools import partial
from math import prod

from .task import WIDEST_VECTOR, Axis, Task

CHANNELS = range(8, 1 << 62)
"""Input and output channels of a group, the fewer of both, that `winograd` is taken for: of few, the transforms cost more than they save.

Time of `conv` over that of `winograd`, float32, NHWC, 2 threads of a Zen 4 (the forward op, the gradients of input and filter):

==================  ==================  ==================  ==================
channels            8 images of 56x56   8 images of 7x7     1 image of 7x7
==================  ==================  ==================  ==================
4 to 4              0.94  0.91  1.38    1.25  1.22  0.73    1.16  1.12  0.61
3 to 64             1.15  0.74  1.07    0.68  1.53  0.65    0.90  1.31  0.58
8 to 8              1.60  1.58  1.51    1.04  1.02  1.02    1.04  1.06  0.99
64 to 8             2.10  1.48  2.34    1.63  0.93  1.82    1.36  0.99  1.26
64 to 64            2.05  2.03  2.21    1.49  1.49  1.61    1.98  1.98  0.79
256 to 256          1.80  1.89  2.29    1.45  1.42  1.38    1.40  1.31  1.08
==================  ==================  ==================  ==================

It is not taken where `conv` multiplies two bfloat16 at once, which it would widen. Time of `winograd` over that of `conv` then, 8 images, 2 threads of a
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
"""

LEAST_PART, LEAST_CUT_PART = 3.5, 8
"""Rows and columns of an image for each step of a dilation, from which on `winograd` is taken: the pixels of each step have tiles of their own. Then of
channels below LEAST_CUT_PLANE that do not fill their vectors: `winograd` takes 1.05 to 1.6 times as long as `conv`, channels last, and 1.15 to 1.4 times for
filters, channels first, of 35 to 57 and 40 to 40 channels, 33x33 by 5, 28x28 by 4, 14x14 by 2, 17x17 by 3 (float32, 2 threads of a Granite Rapids; 33x33
by 4 and 65x65 by 9 0.9 to 1.15).

Time of `conv` over that of `winograd`, float32, NHWC, 2 threads of a Zen 5 (the gradients of input and filter):

==============  ========  ========  ==========
images          channels  dilation  time
==============  ========  ========  ==========
8 of 28x28      256       2         1.8   1.8
4 of 33x33      256       6         1.3   1.4
8 of 14x14      512       4         1.3   1.3
8 of 9x9        256       3         1.0   0.8
4 of 33x33      256       12        0.7   0.8
4 of 65x65      64        24        0.7   0.3
8 of 14x14      64        6         1.0   0.6
4 of 33x33      256       18        0.4   0.6
==============  ========  ========  ==========
"""

MOST_NARROW, MOST_SUMMED, MOST_BANDED = 16, 8, 64
"""Channels of outputs and of gradients of inputs, or that are summed for them, up to which `conv` is taken: its tiles need one vector, and taps read rows
that are copied once. Channels first, no more than the third may be summed then (as in conv_gather_band.pxi): 16 and 32 to 8 and 16 gain 1.1 to 1.7, 96 to 16
0.87 (Zen 4). For the gradient of a filter the first bounds both of its channels, in either layout; channels last the second bounds its inputs, whatever
its outputs. In float64, of which a vector holds half as many, half of the first counts, and nothing bounds inputs alone.

Time of `conv` over that of `winograd`, 8 images of 56x56 and of 14x14, 2 threads of a Zen 5; gradients of inputs with as many sums as the forward op:

==========  ==========  ==========  ==========  ==========
channels    forward op              filter
----------  ----------------------  ----------------------
            float32     float64     float32     float64
==========  ==========  ==========  ==========  ==========
8 to 8      0.66  0.67  0.62  0.63  0.60  0.60  0.65  0.67
8 to 32     0.87  0.96  0.92  0.96  0.79  0.88  1.05  1.00
12 to 12    0.76  0.77  1.30  1.19  0.80  0.92  1.05  0.98
16 to 16    0.73  0.85  1.28  1.21  0.92  0.94  1.32  1.23
32 to 8     0.97  1.03  0.85  0.84  0.92  0.85  1.25  1.11
32 to 16    0.93  0.97  1.29  1.26  1.32  1.18  1.49  1.32
16 to 32    1.17  1.24  1.19  1.25  1.19  1.23  1.37  1.32
24 to 24    1.56  1.28              1.41  1.11  1.32  1.25
==========  ==========  ==========  ==========  ==========

Of filters, channels first, float32: 12 to 12 0.76, 16 to 16 0.88, 17 to 33 1.09, 8 to 32 0.82, 8 to 64 0.98 and 1.15.
"""

LEAST_DILATED, LEAST_DILATED_PLANE, LEAST_CUT_PLANE = 24, 32, 64
"""The same as CHANNELS of dilated taps, whose tiles are gathered and written a number at a time; then of outputs and gradients of inputs, channels
first, and of those whose channels do not fill their vectors, which `conv` fills with pixels.

Time of `conv` over that of `winograd`, float32, 2 threads of a Zen 5, 8 images (56x56, 28x28 dilated by 2, 33x33 by 4; gradients of input and filter):

==========  ========================================  ========================================
channels    NHWC                                      NCHW
==========  ========================================  ========================================
16 to 16    0.88  0.88  0.77    1.01  0.88  0.70      0.67  0.71  0.66    0.85  0.80  0.64
24 to 24    1.49  1.43  1.26    1.57  1.38  1.13      0.94  0.97  0.83    1.11  1.02  0.89
32 to 32    1.71  1.70  1.56    1.81  1.62  1.42      1.14  1.23  1.18    1.25  1.17  1.12
35 to 37    1.26  1.25  1.12    1.75  1.54  1.31      0.75  0.76  0.70    1.27  1.15  1.01
40 to 40    1.30  1.26  1.13    1.74  1.58  1.32      0.82  0.84  0.77    1.31  1.23  1.05
48 to 48    1.35  1.33  1.22    1.75  1.57  1.34      1.11  1.08  1.01    1.36  1.18  1.09
64 to 64                                              1.57  1.59  1.41    1.39  1.50  1.36
==========  ========================================  ========================================

In 16 bits `conv` is taken for all planes. Its time over that of `winograd` then, float16, 2 threads of a Granite Rapids, 8 images of as many channels
(56x56 and 28x28 dilated by 2, 33x33 by 4, 14x14 by 2):

===========  ======================  ======================
channels     input                   filter
===========  ======================  ======================
32 to 32     0.55  0.53  0.59  0.51  0.48  0.44  0.48  0.46
64 to 64     0.79  0.71  0.79  0.45  0.73  0.69  0.72  0.64
128 to 128   0.81  0.83  0.76  0.73  0.91  0.89  0.88  0.77
256 to 256   0.78  0.85  0.77        0.91  0.84  0.79
512 to 512                     0.70                    0.77
===========  ======================  ======================

bfloat16 with AVX-512, but without its products, 0.44 to 0.9; float16 with AVX2 0.53 to 1.02.
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


MOST_TAPS = 7
"""Along an axis: three windows of up to three."""

LEAST_GAIN, COST = {"output": (1.2, 1.1), "input": (1.3, 1.1), "filter": (1.15, 1.1)}, 6
"""Of other filters than 3x3 ones, and with strides: the *gain*, the products of `conv` over those of `winograd`, from which on it is taken, without strides
and with, times 1 and COST over the inputs and outputs, which share what is transformed.

Time of what was preferred before, nearly always `conv`, over that of `winograd`, by gain, from 32 channels on, float32, 2 threads of a Zen 4; 6,600 random
problems (4 to 512 channels, images of 7x7 to 128x128, filters of 3x3 to 6x6 with stride 2 in one or both directions, of 1x2 to 7x7 without, groups, all
paddings; NHWC and NCHW):

============  ==========  ==========  ==========  ==========  ==========  ==========
gain          stride 2                            stride 1
------------  ----------------------------------  ----------------------------------
              output      input       filter      output      input       filter
============  ==========  ==========  ==========  ==========  ==========  ==========
to 1.2        0.76  0.84  0.93  0.96  0.70  0.77  0.85  0.89  0.85  0.67  0.77  0.84
1.2 to 1.4    0.94  1.07  1.13  1.23  0.87  0.96  0.95  0.85  0.90  0.89  0.96  0.94
1.4 to 1.7    1.05  1.10  1.11  1.23  1.01  1.07  1.07  1.06  0.99  0.99  1.11  1.10
1.7 to 1.9    1.28  1.34  1.26  1.32  1.25  1.29  1.22  1.15  1.21  1.17  1.28  1.20
from 1.9      1.48  1.70  1.46  1.58  1.43  1.48  1.43  1.35  1.36  1.35  1.52  1.43
============  ==========  ==========  ==========  ==========  ==========  ==========

Of those that it is taken for, fewer channels among them, 1.24 and 1.30, 1.23 and 1.28, 1.17 and 1.21, 1.29 and 1.23, 1.27 and 1.18, 1.31 and 1.23; float64,
stride 2, 1.15 to 1.30; float16 1.20 to 1.37.
"""


def accepts(task: Task) -> bool:
    """Whether the filter has 2 to 7 neighbouring taps along an axis, or 3 to 6 and a stride of 2, whose windows of three fit the kernel."""
    plain = not (task.strided or task.dilated)
    return (
        not task.one_tap
        and not (task.strided and task.dilated)
        and all(_fits(axis, plain) for axis in (task.rows, task.cols))
    )


def _fits(axis: Axis, plain: bool) -> bool:
    """Whether taps, or every second one, lie in one window of three for all pixels, or without strides and dilations in up to three."""
    if axis.stride == 1:
        return 1 <= axis.taps <= (MOST_TAPS if plain else 3)
    return axis.stride == 2 and (3 <= axis.taps <= 5 or (axis.taps == 6 and axis.before % 2 == 0))


def wins(task: Task) -> bool:
    """Whether it is preferred to `conv`."""
    if task.paired:
        return False
    if task.strided or not task.rows.taps == task.cols.taps == 3:
        return _gains(task)
    if min(task.inputs, task.outputs) not in CHANNELS:
        return False
    few = task.result == "filter" and task.pixels <= MOST_SUMMED_PIXELS
    return not (few or _parted(task) or _few_dilated(task) or _narrow(task))


def reads_innermost(task: Task) -> bool:
    """Whether it is preferred where taps lie innermost: others than 3x3 are read one by one."""
    dense = not task.strided and task.rows.taps == task.cols.taps == 3
    return dense or (task.result == "filter" and wins(task))


def products(task: Task) -> float:
    """The products of whole tiles over those of `conv`."""
    return prod(_points(axis) / (2 * axis.taps) for axis in (task.rows, task.cols))


def _points(axis: Axis) -> int:
    """Products for two pixels: one more than there are taps in each window."""
    return axis.taps + max(axis.stride, -(-axis.taps // 3))


def _gains(task: Task) -> bool:
    """Whether enough products are left out."""
    least = LEAST_GAIN[task.result][task.strided] * (1 + COST / max(task.inputs, 1) + COST / max(task.outputs, 1))
    return prod(map(partial(_whole, task), (task.rows, task.cols))) / products(task) >= least


def _whole(task: Task, axis: Axis) -> float:
    """How many of the pixels of tiles along an axis there are: of the result, or with strides of the output."""
    pixels = axis.size if task.result == "input" and axis.stride == 1 else axis.out
    return pixels / (pixels + pixels % 2) if pixels > 0 else 1


def _narrow(task: Task) -> bool:
    """Whether a result has so few channels, or so few are summed, that `conv` is taken."""
    narrow = MOST_NARROW // 2 if task.doubles else MOST_NARROW
    if task.result == "filter":
        return max(task.inputs, task.outputs) <= narrow or (
            task.last and task.inputs <= MOST_SUMMED and not task.doubles
        )
    banded = task.last or task.summed <= MOST_BANDED
    return task.summed <= MOST_SUMMED or (task.channels <= narrow and banded)


def _few_dilated(task: Task) -> bool:
    """Whether dilated taps have so few channels that `conv` is taken: of 16-bit planes, which are converted a number at a time, however many there are."""
    if not task.dilated:
        return False
    if task.halves and not task.last:
        return True
    least = LEAST_DILATED
    if not task.last and task.result != "filter":
        least = LEAST_CUT_PLANE if _cut(task) else LEAST_DILATED_PLANE
    return min(task.inputs, task.outputs) < least


def _parted(task: Task) -> bool:
    """Whether too few pixels have the same step of a dilation."""
    least = LEAST_CUT_PART if _cut(task) and min(task.inputs, task.outputs) < LEAST_CUT_PLANE else LEAST_PART
    return any(axis.dilation > 1 and axis.size < least * axis.dilation for axis in (task.rows, task.cols))


def _cut(task: Task) -> bool:
    """Whether channels do not fill their vectors."""
    return bool(task.inputs % WIDEST_VECTOR or task.outputs % WIDEST_VECTOR)
