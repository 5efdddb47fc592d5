"""Where the stencil over packed rows computes what is not depthwise.

That are groups of a few inputs and as many outputs, whose channels change places within a vector, groups of one output, and images of one channel, of which all
channels of the result are products.
"""

from __future__ import annotations

from .multipliers import MOST_MULTIPLIERS
from .patches import side_by_side
from .task import WHOLE_VECTOR, WIDEST_VECTOR, Arithmetic, Task

EXCHANGED_CHANNELS = {"output": (2, 4, 8, 16), "input": (2, 4, 8, 16), "filter": (2, 4, 8)}
"""Inputs and as many outputs of a group that `depthwise` accepts, by the result: they change places within a vector."""

EVERY = 1 << 62

_FLOATS = {
    "output": {2: (56, EVERY), 4: (56, EVERY), 8: (12, EVERY)},
    "input": {2: (56, 56), 4: (56, EVERY), 8: (12, 14)},
    "filter": {2: (EVERY, EVERY), 4: (48, EVERY), 8: (EVERY, EVERY)},
}
_PAIRS = {
    "output": {2: (56, EVERY), 4: (8, EVERY), 8: (7, 16)},
    "input": {2: (56, 56), 4: (8, EVERY), 8: (7, 16)},
    "filter": {2: (EVERY, EVERY), 4: (EVERY, EVERY), 8: (0, 0)},
}
_DOUBLES = {
    "output": {2: (40, EVERY), 4: (12, EVERY), 8: (0, 0)},
    "input": {2: (40, 56), 4: (12, EVERY), 8: (0, 0)},
    "filter": {2: (EVERY, EVERY), 4: (20, EVERY), 8: (0, EVERY)},
}
LONGEST_EXCHANGED = {
    Arithmetic.FLOATS: _FLOATS,
    Arithmetic.HALVES: _FLOATS,
    Arithmetic.PAIRS: _PAIRS,
    Arithmetic.DOUBLES: _DOUBLES,
}
LONGEST_HALVED, FEW_SUMMED_PIXELS = 20, 256
"""Rows of dy, channels first, up to which it is taken, with a stride of 1 and with others, by the result and the channels of a group; and the longest, but of
outputs with strides, if all groups together fill no vector or, of 4 channels without strides and but for filters, if rows fill those of `stem`: 32 and 48
pixels 0.64 to 0.97, 28 to 56 others 0.9 to 1.6. Pixels of all images up to which it is taken for each gradient of a filter where pairs are multiplied, which
`conv` has to turn: of 8 channels 1.0 to 2.7, of more pixels 0.4 to 1.3. Channels last it always is, but for groups of a whole vector of float64, of which
filters with strides alone are.

Time of what is taken otherwise over that of `depthwise`, channels first, geometric means of 130 random problems (2x2 to 7x7 taps, strides to 3, 1 to 16 images
of 7x7 to 224x224, 2 to 512 groups), of outputs, gradients of inputs and of filters, 2 threads of a Zen 5:

========  =======  ================  ================  ================  ================
channels  rows     float32           bfloat16          float64           AVX2
========  =======  ================  ================  ================  ================
2         to 20    2.8   2.9   13    2.1   2.0   10
2         to 56    1.56  1.55  1.16  1.24  1.13  1.21  1.00  0.96  0.94  1.16  1.08  0.99
2         beyond   0.81  0.77  1.11  0.88  0.85  1.11  0.85  0.85  1.29  0.94  0.91  1.10
4         to 20    1.35  1.30  4.9   1.02  0.94  3.5
4         to 56    1.10  1.16  1.01  0.75  0.76  1.03  0.90  0.90  0.93  0.91  0.91  0.75
4         beyond   0.82  0.94  0.92  0.64  0.66  0.93
8         to 20    1.21  1.23  1.45  0.83  0.78  0.80
8         to 56    0.81  0.71  1.02  0.47  0.45  0.67
8         beyond   0.64  0.65  0.96  0.40  0.37  0.82
strides:
2         to 20    6.3   1.79  5.7   5.0   1.81  4.4   3.7   1.14  3.4   4.4   1.14  4.5
2         to 56    3.0   1.11  1.74  2.4   1.12  1.50
4         to 20    3.6   1.59  4.0   2.5   1.65  2.4   1.80  0.96  2.0   2.8   1.04  2.8
4         to 56    2.2   1.15  1.34  1.44  1.02  1.18  1.77  0.91  1.36  2.1   0.97  1.04
8         to 20    2.2   1.50  1.35  1.47  1.41  0.95  0.79  0.79  0.95  1.03  0.84  1.04
8         to 56    1.22  0.74  1.21  0.79  0.71  0.66  0.89  0.84  1.16  1.21  0.77  0.94
========  =======  ================  ================  ================  ================

float16 as float32. Channels last 1.1 to 39 (float32 and bfloat16), 16 channels 0.5 to 0.9 in both layouts; vectors that are not full 0.34 to 1.3, outputs with strides 1.16
and more. One tap: channels last 1.6 to 12, channels first 0.4 to 1.2.
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
    if task.tiled:
        return _wins_beside_tiles(task)
    if not task.last:
        return not task.one_tap and task.cols.out <= _longest(task)
    whole = task.doubles and task.outputs == WHOLE_VECTOR
    few = task.outputs <= WHOLE_VECTOR
    return few and (not whole or (task.result == "filter" and task.strided))


def _wins_beside_tiles(task: Task) -> bool:
    """The same of groups where tiles are multiplied."""
    return not task.last and not task.one_tap and task.result != "filter" and task.outputs <= MOST_TILED


def _longest(task: Task) -> int:
    """Rows up to which it is, channels first."""
    if task.paired and task.result == "filter" and task.pixels <= FEW_SUMMED_PIXELS:
        return EVERY
    longest = LONGEST_EXCHANGED[task.arithmetic][task.result].get(task.outputs, (0, 0))[task.strided]
    if task.outputs == 4 and task.result != "filter" and not task.strided and task.cols.out % task.vector == 0:
        longest = min(longest, LONGEST_HALVED)
    fills = task.groups * task.outputs >= task.vector
    return longest if fills or (task.result == "output" and task.strided) else min(longest, LONGEST_HALVED)


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
