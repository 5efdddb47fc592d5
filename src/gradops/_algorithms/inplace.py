"""Where a stencil runs over images where they lie, or small planes that are turned: one filter a channel."""

from __future__ import annotations

from math import gcd

from .task import WIDEST_VECTOR, Axis, Task

TILE_TAPS = {1: (1, 2, 3, 4, 5, 7), 2: (3, 5, 7), 3: (3,)}
"""Taps in a row that register tiles of `inplace` are made for, by the step from pixel to pixel of what they read; filters have no others."""

MOST_TAPS, MOST_STEP = 64, 4
"""Rows of taps and, of tiles for any, taps in a row; and steps from pixel to pixel, that the window of `inplace` holds."""

MOST_TAPS_A_STEP, MOST_HALVES_A_STEP = 2.5, 3
"""Taps in a row for each step from pixel to pixel of outputs that are left to tiles for any; the second of 16 bits, channels last. Time of `depthwise` over that of
`inplace`, 8 images, 2 threads of a Zen 4 (most of them several times; single ones vary by a fifth):

==============  ==========  ==================  ==================  ==================  ==================
.                           NHWC                                    NCHW
taps            stride      float32   bfloat16  float64   AVX2      float32   bfloat16  float64   AVX2
==============  ==========  ==================  ==================  ==================  ==================
3x1 of 56x56    2, 3        2.3  3.7                                      2.1
7x1 of 56x56    3           2.9  3.2  6.1       5.3       2.5       1.7   1.5
1x7 of 56x56    3           1.8                                     1.1   1.4
2x2 of 28x28    2           1.1       4.4       2.1       2.6
4x4 of 28x28    2           1.2       2.9       1.2       1.1       0.8
3x3 of 56x56    4           2.5       4.9       1.8       2.2
5x5 of 56x56    3, 4        1.2  1.7  2.2       1.8       1.1       1.1  1.5  1.1
7x7 of 56x56    3, 4        1.1  1.6  1.9       1.2       0.8       1.2  1.4  1.1       1.1       1.0
5x5 of 14x14    3           1.1       2.3       1.5       1.0       1.2       1.3       1.4       1.3
5x5 of 7x7      3           1.5       2.4       1.6       1.4       1.4       1.7       1.4       1.8
6x6 of 28x28    2           1.0       2.0       1.2       0.9       0.8       0.7       0.7       0.7
9x9 of 56x56    3           0.9       1.5                           0.95      0.95
9x9 of 28x28    2           0.85      1.35      0.9       1.0       1.0       0.85      1.0       0.9
6x6 of 28x28    1           0.75      1.2       0.7       0.7       0.5       0.6       0.6       0.5
9x9 of 28x28    1           0.85      1.15      0.7       0.65      1.4       0.8       0.9       0.55
11x11 of 56x56  1           0.75      0.95      0.75      0.65      0.85      0.95      0.9       0.8
31x31 of 64x64  1           0.9       1.2       0.7       0.5       0.9
==============  ==========  ==================  ==================  ==================  ==================
"""

MOST_TURNED_PIXELS, MOST_SMALL_PIXELS = 30_000, 1024
"""Of an image of channels first and its results, which `inplace` turns, a vector of channels at a time, into 2 MB of scratch; and of one for which it is preferred to
`depthwise` where `planes` is not, but for wide strides. Time of `depthwise` over that of `inplace`, channels first, 8 images, 2 threads of a Zen 4, of gradients of
inputs, and of 3x3 taps also of filters and outputs:

==============  =====  ======  ======  =====  =====  =====  ======  ======  =====
.               stride 3                             stride 3 of rows alone
pixels          input  filter  output  5x5    7x7    input  filter  output  5x5
==============  =====  ======  ======  =====  =====  =====  ======  ======  =====
96 of 56x56     1.43   1.72    1.61    1.71   2.39   1.65   1.25    1.41    1.72
32 of 112x112   1.57   1.62    1.40    2.97          2.21   1.16    1.47    2.03
16 of 150x150   1.60   1.24    1.34    1.25
48 of 28x28     0.98   1.28    1.49    1.16          1.00   0.85    0.91    1.00
240 of 14x14    1.01   1.48    1.59    0.94
==============  =====  ======  ======  =====  =====  =====  ======  ======  =====

7x1 taps and 3x1 taps with stride 2, which leave columns without a tap, 2.10 and 2.36, 1.3 and 1.6 times those of `planes`. With strides up to 2, larger images take
1.1 to 2.4 times as long as by `planes`.
"""

MOST_LED, FAR_TAPS, MANY_TAPS, MOST_FAR_PIXELS = {3: (14, 60_000), 5: (20, 400_000), 7: (28, 500_000)}, 5, 7, 20
"""Channels first, where `inplace` is preferred to `planes`, too: gradients of filters of rows, and of all pixels and channels, up to these numbers, with
strides up to half of the second, by the taps in a row, since each channel of `planes` has its sums to bring together; rows of so many pixels, in both
directions, of dilated taps from the second number on, without strides of outputs and gradients of inputs of any; and these two with strides, from the third
number on.

Time of `planes` over that of `inplace`, 85 problems of 16 to 1152 channels, 1 to 16 images, float32 and bfloat16 alike, 2 threads of a Zen 5; filters by pixels and
channels, in thousands:

=====================  ======================================================================
filter, 3x3            to 14 pixels a row: 8 1.4 to 2.3, 20 1.3 to 2.6, 50 1.2 to 1.4, 62 0.9 to 1.0, 390 0.94, 750 0.72
filter, 5x5            to 20: 28 2.4, 94 1.0 to 1.2, 307 1.2 to 1.3, 752 0.96; 32 pixels 0.6 to 1.06
filter, 7x7            to 28: 28 1.6, 150 1.2 to 1.3, 301 1.15, 451 1.05, 1200 0.93; 32 pixels 0.76 to 0.9
filter, dilated        5x5 to 20: 1.1 to 2.5; 3x3 0.7 to 1.2
others, 3x3 dilated    to 20: 1.0 to 1.3; with strides 0.8 to 1.2; 32 pixels 0.56 to 0.8
others, 5x5 dilated    to 20: 0.93 to 2.1, with strides 1.2 to 2.2; 32 pixels 0.7 to 0.9
others, 7x7 dilated    to 20: 0.9 to 1.5, with strides 1.1 to 4.8
others, 7x7, stride 2  20: 1.4 to 1.6; 5x5 0.63 to 1.0
=====================  ======================================================================

Geometric mean of what is taken over the shortest time, before and after: float32 and bfloat16 1.06 and 1.015, AVX2 1.11 and 1.03, float64 1.055 and 1.02.
"""

CROWDED, LEAST_CROWDED_PIXELS, LEAST_CROWDED_TAPS = 512, 8, 4
"""Channels between pixels at multiples of this distance share few sets of a cache. There rows that are packed once (`depthwise`) are taken for the
gradient of the filter, if they have so many pixels and so many taps; for outputs and gradients of inputs at multiples of twice that distance, with a
stride of 1. Time of `depthwise` over that of `inplace`, 2 threads of a Zen 5:

==============================  ==========  ==========  ========
filter                          float32     float64     channels
==============================  ==========  ==========  ========
8 of 14x14                      1.17        1.09        512
8 of 14x14, stride 2            1.30        1.09        512
8 of 28x28                      1.01        1.03        512
8 of 28x28, stride 2            1.37        0.82        512
8 of 56x56                      1.41        1.12        512
8 of 16x16, 5x5 taps            0.71        0.58        512
8 of 14x14                      1.01        0.95        1024
2 of 65x65                      0.87        1.06        1024
2 of 65x65, dilated by 2        1.10        0.67        2048
==============================  ==========  ==========  ========

==============================  ==========  ==========  ========
input                           float32     float64     channels
==============================  ==========  ==========  ========
8 of 7x7                        1.52        1.52        1024
8 of 14x14                      1.25        0.83        1024
8 of 28x28                      1.13        1.07        1024
8 of 14x14, 5x5 taps            0.78        0.69        1024
8 of 28x28, 7x7 taps            0.47        0.41        1024
2 of 65x65                      1.38        1.20        1024
8 of 14x14                      0.82        0.89        2048
2 of 65x65, dilated by 2        1.14        0.79        2048
==============================  ==========  ==========  ========

Of 16-bit numbers the rows would have to be widened, too: 1.2 to 2.5 times as long, so `inplace` is taken.
"""


def accepts(task: Task) -> bool:
    """Whether it has whole vectors of channels, a window for the taps, planes that it turns and, of filters, tiles for the taps of a row."""
    rows, cols = task.rows, task.cols
    if (
        task.groups < WIDEST_VECTOR
        or max(rows.taps, cols.taps) > MOST_TAPS
        or (task.result == "filter" and not _has_tiles(task))
    ):
        return False
    turns = task.last or rows.size * cols.size + rows.out * cols.out <= MOST_TURNED_PIXELS
    return turns and (task.result == "input" or max(_step(rows), _step(cols)) <= MOST_STEP)


def wins(task: Task) -> bool:
    """Whether it is preferred to `depthwise`."""
    if not _has_tiles(task):
        return task.result == "output" and (task.last or task.wide) and _has_few_taps(task)
    if task.last:
        return task.halves or not _crowded(task)
    return (
        task.wide
        or leads(task)
        or max(task.rows.size * task.cols.size, task.rows.out * task.cols.out) <= MOST_SMALL_PIXELS
    )


def leads(task: Task) -> bool:
    """Whether planes are better turned than read as they are, channels first: few pixels, and many taps, or taps far apart."""
    taps = task.cols.taps
    if task.last or task.wide or task.rows.taps != taps or not (accepts(task) and _has_tiles(task)):
        return False
    far = taps >= FAR_TAPS or (task.dilated and not task.strided and task.result != "filter")
    if task.dilated and far and max(task.rows.out, task.cols.out) <= MOST_FAR_PIXELS:
        return True
    if task.result == "filter":
        longest, most = MOST_LED.get(taps, (0, 0))
        return task.cols.out <= longest and task.groups * task.pixels <= most // (2 if task.strided else 1)
    return taps >= MANY_TAPS and task.strided and task.cols.out <= MOST_FAR_PIXELS


def _has_tiles(task: Task) -> bool:
    """Whether register tiles are made for so many taps in a row, of each lane of columns."""
    step, taps = _step(task.cols), task.cols.taps
    if task.result != "input":
        return taps in TILE_TAPS.get(step, ())
    return all(-(-(taps - phase) // step) in TILE_TAPS[1] for phase in range(min(step, taps)))


def _has_few_taps(task: Task) -> bool:
    """Whether so few taps read a column that it may as well be loaded for each of them."""
    most = MOST_HALVES_A_STEP if task.halves and task.last else MOST_TAPS_A_STEP
    return task.cols.taps <= most * _step(task.cols)


def _step(axis: Axis) -> int:
    """From pixel to pixel, in pixels of those that the taps of an output use."""
    return axis.stride // gcd(axis.stride, axis.dilation)


def _crowded(task: Task) -> bool:
    """Whether rows are packed rather than read where their pixels share few sets of a cache."""
    distance, cols = task.groups * task.cols.dilation, task.cols
    if cols.out < LEAST_CROWDED_PIXELS or cols.taps < LEAST_CROWDED_TAPS:
        return False
    return distance % CROWDED == 0 if task.result == "filter" else cols.stride == 1 and distance % (2 * CROWDED) == 0
