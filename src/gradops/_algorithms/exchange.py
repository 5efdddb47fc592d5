"""Where the stencil over packed rows computes what is not depthwise.

That are groups of a few inputs and as many outputs, whose channels change places within a vector, groups of one output, and images of one channel, of which all
channels of the result are products.
"""

from __future__ import annotations

from .multipliers import MOST_MULTIPLIERS
from .patches import side_by_side
from .task import WHOLE_VECTOR, WIDEST_VECTOR, Task

EXCHANGED_CHANNELS = {"output": (2, 4, 8, 16), "input": (2, 4, 8, 16), "filter": (2, 4, 8)}
"""Inputs and as many outputs of a group that `depthwise` accepts, by the result: they change places within a vector."""

EXCHANGES: dict[str, dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "NHWC": {"output": ((2, 4, 8), (2, 4, 8)), "input": ((2, 4, 8), (2, 4, 8)), "filter": ((2, 4, 8), (2, 4, 8))},
    "NCHW": {"output": ((), (2, 4, 8)), "input": ((), (4,)), "filter": ((8,), (2, 4, 8))},
}
EXCHANGED_ROW = 20
"""Those that it is taken for, by the layout and the result, with a stride of 1 and with others; channels first, not for one tap, and of outputs and
gradients of inputs all of 2 to 8 if so few pixels of a row have the same taps that vectors of them would not be full.

Time of what is taken otherwise over that of `depthwise`, 3x3 taps, 8 images of 56x56 (2 and 4 channels), 28x28 (8) and 14x14 (16), with stride 2 twice as
high and wide where there are more than 4, 2 threads of a Zen 5, of outputs, gradients of inputs and of filters:

==========  ======  ==============  ==============  ==============  ==============
channels    stride  float32, NHWC   bfloat16, NHWC  float32, NCHW   bfloat16, NCHW
==========  ======  ==============  ==============  ==============  ==============
2           1       19   39   16    13   12   22    1.3  1.2  0.9   0.9  0.9  0.8
4           1       9.8  17   7.2   9.2  6.5  9.1   0.9  0.9  0.9   0.8  0.8  0.8
4           2       12   45   6.1   8.2  23   4.4   3.0  1.2  1.8   1.7  1.2  1.2
8           1       3.5  8.0  3.6   8.8  8.8  10    1.0  1.0  1.4   1.1  1.1  1.2
8           2       2.9  13   3.4   1.8  18   6.8   1.7  0.9  1.6   0.9  1.0  1.2
16          1       0.7  0.8        0.5  0.5        0.7  0.7        0.5  0.5
16          2       0.7  0.9        0.5  0.6        0.7  0.7        0.8  0.9
==========  ======  ==============  ==============  ==============  ==============

Channels first, 16 were measured on a Zen 4, as were 14x14 pixels: 2 channels 1.5 to 2.2, 4 1.4 and 1.6, 8 1.1 and 1.2 (float32, bfloat16), and the gradient of
a filter of 2 with stride 2: 1.7 and 1.2.

Outputs of 2, channels first, with stride 2, 9 problems of 1 to 8 images of 48x48 to 128x128, Zen 5: 1.8 to 3.5 (geometric mean 2.8; bfloat16 2.2, AVX2 2.3), gradients of
inputs 0.65 to 1.5 (1.1), of inputs of 8 0.5 to 1.0 (0.75).

One tap: channels last 1.6 to 12, channels first 0.4 to 1.2. In float64 0.4 to 1.0 times as large, so of 8 channels, a vector, 0.7 to 0.95, of filters with
strides 1.1.
"""

MOST_TILED = 4
"""Channels of a group, at most, for which `depthwise` is taken where tiles are multiplied: of planes, and not for gradients of filters. `conv` bundles groups then.

Time of `depthwise` over that of `conv`, bfloat16, 8 images, 3x3 taps, 2 threads of a Granite Rapids (the gradients of input and filter; stride 2 at 14x14 of dy):

========  ======  ==========  ==========
channels  of dy   NHWC        NCHW
========  ======  ==========  ==========
2         56      1.14  1.04  0.93  1.0
2         14, /2  1.71  1.22  1.33  1.1
4         56      1.34  1.0   0.77  1.0
4         14      1.29  1.15  0.92  1.0
8         56      2.5   2.3   1.03  2.0
8         14      1.71  1.59  1.30  1.62
8         14, /2  1.83  1.18  1.37  1.0
========  ======  ==========  ==========
"""


LONE_CHANNELS, MOST_STRIDED_OUTPUTS = {False: WIDEST_VECTOR, True: WHOLE_VECTOR}, 32
"""Channels whose multiples, up to 64, are outputs of one input, or inputs of one output, that `depthwise` is taken for, of float32 and of float64: channels last, or
with strides, but for one tap, patches that lie side by side, and pairs; and outputs with strides, at most.

Time of what is taken otherwise over that of `depthwise`, geometric means of 1500 random problems (2x2 to 11x11 taps, strides to 4, 1 to 8 images of 7x7 to 224x224), 2
threads of a Zen 4:

================  ===========  ===========  ===========  ===========  ===========
.                 float32      float16      float64      AVX2         bfloat16
----------------  -----------  -----------  -----------  -----------  -----------
.                 whole  else  whole  else  whole  else  whole  else  whole  else
================  ===========  ===========  ===========  ===========  ===========
input, NHWC       1.47   0.85  1.61   1.01  1.84         1.28         0.87   0.60
.., strides       1.78   1.14  1.52   1.15  1.46         1.25         0.91   0.98
output, NHWC      1.73   0.85  1.53   0.77  1.63         1.18         0.94   0.60
.., strides       1.16   0.70  1.27   0.74  1.09         0.97         0.92   0.55
input, NCHW       0.94   0.59  1.05   0.65  0.90         0.91         0.88   0.53
.., strides       1.47   1.02  1.49   0.77  1.06         1.28         1.3    0.75
output, NCHW      0.87   0.53  1.20   0.60  1.07         0.73         1.02   0.78
.., strides       1.48   0.90  1.72   1.0   1.39         1.09         1.2    0.78
================  ===========  ===========  ===========  ===========  ===========

One tap 0.4 to 1.3, patches 0.45 to 4. Outputs with strides, channels last, 16 and 32 1.23 (AVX2 1.08), 48 and 64 1.07 (AVX2 0.85).
"""

MOST_STRIDED_INPUTS, LEAST_FIRST_INPUTS = 16, 8
"""Inputs of groups of one output, channels first, up to which `depthwise` is taken for gradients of inputs with strides, and from which on it is for outputs without.
Channels last it always is, but for gradients of more inputs where pairs are multiplied. Time of what is taken otherwise over that of `depthwise`, geometric
means of 700 random problems (2x2 to 7x7 taps, strides to 3, 2 to 64 groups), 2 threads of a Zen 4; those of one tap 0.2 to 1.1:

===================  ==================  ==================  ==================
.                    float32             bfloat16            float64
inputs of a group    to 4  to 16  to 64  to 4  to 16  to 64  to 4  to 16  to 64
===================  ==================  ==================  ==================
output, NHWC         2.5   2.2    1.7    4.0   2.3    1.6    1.9   1.5    1.1
.., strides          8.2   3.3    3.2    13    2.1    2.4    8.7   3.6    2.2
output, NCHW         1.0   1.2    1.2    1.2   1.2    1.1    1.0   1.0    1.0
.., strides          4.6   2.8    2.7    2.9   1.7    1.2    3.9   2.4    2.5
input, NHWC          3.5   3.5    1.7    2.5   1.1    0.6    5.1   2.4    1.6
.., strides          6.2   2.7    1.6    5.9   3.0    0.9    3.1   2.5    1.2
input, NCHW          1.0   0.7    0.6    0.6   1.8    0.6    0.8   0.5    0.5
.., strides          1.4   1.6    1.1    1.2   1.6    0.9    0.7   1.2    1.1
===================  ==================  ==================  ==================
"""


def accepts(task: Task) -> bool:
    """Whether groups have as many inputs as outputs, and so few, or one output, whose products with many inputs are lanes, as are those of one channel without groups."""
    if task.groups == 1:
        return task.summed == 1 and task.result != "filter" and task.channels <= MOST_MULTIPLIERS
    if task.outputs == 1:
        return task.result != "filter" and task.inputs <= MOST_MULTIPLIERS
    return task.inputs == task.outputs and task.outputs in EXCHANGED_CHANNELS[task.result]


def wins(task: Task) -> bool:
    """Whether it is preferred to `conv`, `winograd` and `stem`."""
    if task.groups == 1:
        return _wins_ungrouped(task)
    if task.outputs == 1:
        return _wins_alone(task)
    filters = task.result == "filter"
    if task.doubles and task.outputs == WHOLE_VECTOR and not (filters and task.strided):
        return False
    if not task.last and task.one_tap:
        return False
    if task.tiled:
        return not task.last and not filters and task.outputs <= MOST_TILED
    short = not task.last and not filters and task.cols.out < EXCHANGED_ROW
    return task.outputs in EXCHANGES["NHWC" if short else task.data_format][task.result][task.strided]


def _wins_alone(task: Task) -> bool:
    """The same of groups of one output."""
    if task.one_tap or task.tiled:
        return False
    if task.result == "output":
        return task.last or task.strided or task.inputs >= LEAST_FIRST_INPUTS
    few = task.inputs <= MOST_STRIDED_INPUTS
    return (few or not task.paired) if task.last else (few and task.strided)


def _wins_ungrouped(task: Task) -> bool:
    """The same of one channel without groups."""
    patches = side_by_side(task.rows) and side_by_side(task.cols)
    if task.paired or task.one_tap or patches or task.channels % LONE_CHANNELS[task.doubles]:
        return False
    few = task.result == "input" or task.channels <= MOST_STRIDED_OUTPUTS
    return few if task.strided else task.last
