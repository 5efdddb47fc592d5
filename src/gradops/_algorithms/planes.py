"""Where a stencil runs over planes, whose rows fill its vectors: channels first, one filter a channel."""

from __future__ import annotations

from math import gcd

from . import inplace
from .task import WIDEST_VECTOR, Axis, Task

MOST_PLANE_STEP, MOST_PLANE_ROWS, MOST_PLANE_COLUMNS, MOST_PLANE_MASKS = 4, 7, 4096, 1 << 16
"""Strides that vectors of `planes` are picked and woven by; rows of taps that a register tile has; columns of an image and between the taps of a row, which its
scratch grows with; numbers of its masks, one for each pixel of a row and each tap in a row."""

LEAST_PIXELS, LEAST_PIXELS_A_TAP = {1: 7, 2: 6}, 2
"""Pixels of a row, of those that use the same taps, from which on `planes` is taken, by the stride of columns; and for the gradient of the filter, pixels
of a row for each row of taps.

The stencil over packed rows transposes; this one fills its vectors as far as a row goes. Times of `depthwise` over those of `planes`, 8 images of 256
channels, 2 threads of a Zen 5, of the gradient of the input with strides of 1 and 2 and of the filter with strides of 1 and 2, over 3x3, 5x5, 7x7:

======  ==================  ==================  ==================  ==================
pixels  float32, input, 1   float32, input, 2   float32, filter, 1  float32, filter, 2
======  ==================  ==================  ==================  ==================
5       1.12  0.99  0.92    0.68  0.59  0.49    0.81  1.12  0.95    0.82  0.57  0.62
6       1.10  1.09  1.03    0.80  0.69  0.62    0.93  0.80  0.69    0.99  0.66  0.72
7       1.11  1.01  0.86    0.82  0.73  0.67    1.03  0.85  0.76    1.20  0.76  0.80
10      1.79  1.44  1.17    1.24  1.07  0.90    1.41  1.11  1.01    1.71  0.96  1.14
14      2.48  1.86  1.47    1.42  1.26  0.93    1.96  1.44  1.41    2.39  1.39  1.65
======  ==================  ==================  ==================  ==================

In bfloat16 they are 0.7 to 1.1 times as large.
"""

LEAST_TURNED_PIXELS, LEAST_TURNED_PIXELS_A_TAP = {1: 10, 2: 9}, 2.5
"""The same where `inplace` accepts, too. Times of `inplace` over those of `planes`, 8 images of 256 channels, 2 threads of a Zen 5, over 3x3, 5x5, 7x7; those
of `depthwise` are 1.1 to 2.7 times as long as those of `inplace`.

========  ========  ==================  ==================  ==================  ==================
type      pixels    input, 1            input, 2            filter, 1           filter, 2
========  ========  ==================  ==================  ==================  ==================
float32   7         0.56  0.50  0.41    0.48  0.39  0.39    0.61  0.53  0.41    0.73  0.45  0.41
float32   9         0.97  1.00  0.86    0.48  0.61  0.49    1.20  1.04  0.85    2.02  1.09  0.95
float32   10        1.15  1.16  1.01    0.59  0.69  0.61    1.28  1.16  0.91    2.07  1.13  1.08
float32   12        1.50  1.24  1.18    0.61  0.75  0.61    1.52  1.22  0.96    2.65  1.34  1.17
float32   14        2.31  1.89  1.67    0.58  0.76  0.61    1.73  1.38  1.06    2.79  1.52  1.35
float32   18        2.08  1.61  1.27    1.76  1.52  1.22    2.27  1.47  0.98          1.37  1.59
float32   28        2.84  1.98  1.62    2.39  1.98  1.44    3.05  2.17  1.41
========  ========  ==================  ==================  ==================  ==================

Pixels of an input with a stride of 2 are half as many in each of its lanes of columns; here they are those of a lane (a Zen 4):

========  ========  ==================  ==================  ==================  ==================
type      pixels    input, 1            input, 2            filter, 1           filter, 2
========  ========  ==================  ==================  ==================  ==================
float32   9         1.06  0.73  0.72    1.13  1.02  0.82    0.88  0.68  0.56    1.15  0.68  0.61
float32   10        1.02  0.82  0.79    1.22  1.08  0.87    0.97  0.72  0.60    1.32  0.74  0.66
float32   12        1.18  0.88  0.83    1.46  1.30  0.92    1.16  0.84  0.67    1.36  0.83  0.74
float32   14        1.60  1.13  1.03    1.55  1.35  1.00    1.51  0.83  0.74    1.43  0.86  0.84
bfloat16  9         0.88  0.67  0.65    1.49  1.53  1.29    1.38  1.03  0.80    2.94  1.44  1.10
bfloat16  10        1.10  0.77  0.75    1.60  1.57  1.32    1.68  1.07  0.82    3.08  1.64  1.39
bfloat16  12        1.28  0.97  1.05    1.83  1.75  1.34    1.86  1.31  0.96    3.18  1.87  1.47
bfloat16  14        1.72  1.37  1.11    1.96  1.86  1.52    1.96  1.49  1.13    3.30  1.75  1.69
float16   10        1.01  0.85  0.77    1.68  1.70  1.33    1.48  1.15  0.86    2.17  1.36  1.11
float16   14        1.76  1.09  0.94    1.56  1.43  1.06    1.63  1.04  0.84    1.75  1.01  0.88
float64   9         1.24  0.83  0.71    1.40  1.26  0.89    1.23  0.87  0.78    1.33  0.75  0.77
========  ========  ==================  ==================  ==================  ==================
"""

FEW_CHANNELS, LEAST_WIDE_PIXELS, LEAST_TURNED_WIDE_PIXELS = 4, 14, 32
"""Of wide strides: channels up to which it is always taken; pixels of a row of results with the same taps from which on it is for up to three taps in a row,
where `inplace` does not accept, but not for gradients of inputs whose channels come last; and the same where it does, for gradients of filters and, unless columns
have a stride, all results. Times of `depthwise` and `inplace` over those of `planes`, 8 images, 2 threads of a Zen 4, of gradients of inputs and of filters, and
outputs, of bfloat16 of the last two:

==================  ======  ==================  ==================  ==================
channels, pixels    taps    stride 3            stride 4            bfloat16, stride 3
==================  ======  ==================  ==================  ==================
depthwise, NCHW
3 of 112x112        3x3     1.18  7.25  6.18    1.50  6.11  4.72          3.9   6.2
3 of 112x112        7x7     1.71  2.99  2.50    1.99  3.76  3.41
8 of 56x56          3x3     1.31  1.75  1.90    1.48  3.80  3.54
8 of 56x56          7x7     0.66  1.03  0.77    1.23  1.12  1.50
12 of 112x112       3x3     1.01  2.03  1.62    1.08  2.60  1.79
12 of 112x112       5x5     0.74  0.90  1.02
96 of 56x56         3x3     0.69  1.83  1.17    0.92  1.73  1.54          1.3   1.6
96 of 56x56         5x5     0.53  0.57  0.71
48 of 28x28         3x3     0.50  1.08  1.39    0.57  0.79  1.13          1.1   1.3
16 of 172x172       3x3     1.02                1.05
16 of 228x228       3x3                         1.32
depthwise, NHWC
3 of 112x112        3x3     2.34  4.84  4.32    2.10  4.80  4.03
8 of 56x56          3x3     0.73  1.65  1.90          1.70  2.41
inplace, NCHW
96 of 56x56         3x3     0.48  1.06  0.73
32 of 112x112       3x3     0.64  1.33  0.92
96, stride of rows  3x3     1.02  1.06  1.28
32 of 112x112, so   3x3     1.25  1.09  1.51
48 of 28x28, so     3x3     0.85  0.85  1.09
==================  ======  ==================  ==================  ==================
"""

MOST_LAST_PIXELS, MOST_LAST_CHANNELS, WHOLE_DOUBLES = 1 << 17, {"output": 15, "input": 15, "filter": 12}, 8
"""Pixels of a plane of channels that come last, and of its results, for which there is scratch; how many channels are better turned into planes than each
computed in a lane; and how many leave `depthwise` no lane of float64 empty. Times of `depthwise` over those of `planes`, 8 images, 2 threads of a Zen 4,
of gradients of the input and of the filter:

========  =======  ==========  ==========  ==========  ==========
channels  pixels   float32     bfloat16    float64     AVX2
========  =======  ==========  ==========  ==========  ==========
2         64x64    6.42  6.16                          4.43  5.30
3         224x224  4.64  4.76  4.19  5.77  1.97  2.09
4         64x64    3.05  3.23                          1.14  1.10
7         14x14    1.85  1.55  1.59  1.18  1.45  1.26  1.04  0.90
8         64x64    2.24  2.32  1.67  1.26  0.94  0.67  0.85  0.64
10        20x20    1.58  1.53  1.41  1.08  1.47  1.27  1.51  1.28
12        64x64    1.54  1.46                          1.18  0.90
15        28x28    1.26  1.21  1.08  1.03  1.06  1.16
15        14x14    1.16  0.87  1.00  0.75  1.11  0.85
========  =======  ==========  ==========  ==========  ==========
"""

SQUARE_TAPS, TWIN_PIXELS = 3, {1: range(6, 9), 2: range(5, 9)}
"""Rows and columns of a filter, and pixels of a row by its stride, of which `planes` computes two planes with a vector, so that it is taken where `inplace`
accepts, too. Times of `inplace` over those of `planes`, 8 images of 768 channels, 2 threads of a Zen 4, of outputs, gradients of inputs and of filters:

======  ======  ====================  ====================  ====================  ====================
stride  pixels  float32               float64               bfloat16              float32, AVX2
======  ======  ====================  ====================  ====================  ====================
1       4       0.66  0.66  0.52      1.40  1.29  1.00      0.78  0.90  0.56      0.64  0.64  0.58
1       5       1.09  0.85  0.98      1.09  1.02  1.36      0.82  0.83  0.81      0.96  0.96  1.22
1       6       0.98  0.97  1.07      1.23  1.29  1.39      1.22  1.22  1.07      0.98  0.98  1.28
1       7       0.97  0.95  1.10      1.19  1.22  1.17      1.01  1.01  0.95      0.89  0.89  1.30
1       8       1.02  1.01  1.18      1.38  1.42  1.26      1.13  1.15  0.98      1.00  1.01  1.47
2       4       0.80  1.03  0.64      1.34  1.82  1.22      0.78  0.73  0.65      0.56  0.84  0.57
2       5       1.13  1.76  1.23      1.56  2.18  1.39      1.10  1.21  1.00      0.86  1.24  1.12
2       6       1.50  2.21  1.38      1.51  2.01  1.26      1.05  1.87  1.10      0.98  1.51  1.22
2       7       1.88  1.68  1.33      2.11  1.77  1.29      1.12  1.51  1.09      1.11  1.16  1.21
2       8       2.14  1.89  1.53      2.22  2.35  1.59      1.34  1.59  0.98      1.29  1.71  1.40
======  ======  ====================  ====================  ====================  ====================

Of 128 images, which no cache holds, 7 pixels: 2.5, 2.5 and 1.4 (float32). 5x5 taps lose: 0.5 to 0.9 (input, 2: 0.5 to 0.95, float64 0.9 to 1.6).
Of bfloat16, all but gradients of inputs with a stride of 2 were measured while planes were widened in memory.
"""

LEAST_WALK_ROWS, LEAST_WALK_ROWS_SQUARE, MOST_APART_PIXELS = 3, 8.5, 96 * 96
"""Rows for each step of a dilation from which on a tile of `planes` walks down those that use the same taps, and reads each once, instead of reading what
dilated taps need for each row anew; the second of 3x3 taps (SQUARE_TAPS) without strides; and pixels of an image from which on it always does, since a first cache does
not hold it. Times of walking over reading apart, 3x3 taps, 128 channels, 34,000 pixels in all images, 2 threads of a Zen 4, gradients of input and filter:

=============  ====  ==========  ==========  ==========  ==========
image          rows  float32     bfloat16    float64     AVX2
=============  ====  ==========  ==========  ==========  ==========
17x17          2.8   3.28  2.05  2.49  3.61  2.24  2.03  2.45  2.75
17x17          4.2   2.11  2.16  1.65  2.30  1.58  1.85  2.22  2.39
33x33          8.2   1.38  1.44  0.94  1.60  1.11  1.46  1.33  1.81
65x65          8.1   1.22  1.28  0.78  1.14  1.23  1.01  1.06  1.20
33x33          16    1.05  1.14  0.73  1.09  1.16  1.09  1.14  1.15
65x65          11    0.76  1.09  0.79  1.03  0.98  0.95  0.95  1.07
65x65          32    0.69  0.98  0.62  0.94  1.10  1.23  0.83  1.00
129x129        5.4   0.76  0.68                          0.84  0.72
=============  ====  ==========  ==========  ==========  ==========

Of other filters, float32: 2x2 taps 2.54 and 2.08 with 2.8 rows, 1.08 and 0.72 with 5.4; 5x5 1.37 and 1.41, 0.60 and 0.64; 7x7 1.45 and 2.11, 0.63 and 0.72.
Walking down larger planes, of 97 to 300 pixels a row with lanes of two rows, takes 0.35 to 0.95 of the time of `depthwise`.
"""


def accepts(task: Task) -> bool:
    """Whether it has lanes for the strides, tiles for the rows of taps, and room for the columns."""
    rows, cols = task.rows, task.cols
    has_tiles = max(rows.stride, cols.stride) <= MOST_PLANE_STEP and rows.taps <= MOST_PLANE_ROWS
    if not has_tiles or (task.last and not _turns(task)):
        return False
    widest = max(cols.size, cols.out)
    fits = max(widest, (cols.taps - 1) * cols.dilation) <= MOST_PLANE_COLUMNS
    return fits and widest * cols.taps <= MOST_PLANE_MASKS


def wins(task: Task) -> bool:
    """Whether it is preferred to `inplace` and `depthwise`."""
    if task.last and (task.groups > MOST_LAST_CHANNELS[task.result] or (task.doubles and task.groups == WHOLE_DOUBLES)):
        return False
    if task.wide:
        return _wins_wide(task)
    if inplace.leads(task):
        return False
    if inplace.accepts(task) and inplace.wins(task):
        return _long(task, LEAST_TURNED_PIXELS, LEAST_TURNED_PIXELS_A_TAP) or _twins(task)
    return _long(task, LEAST_PIXELS, LEAST_PIXELS_A_TAP)


def _wins_wide(task: Task) -> bool:
    """The same where a stride is wide: of few channels, and of few taps that are picked; then, beside `inplace`, long rows."""
    rows, cols = task.rows, task.cols
    if task.groups <= FEW_CHANNELS:
        return True
    if cols.taps > SQUARE_TAPS or (task.result != "filter" and rows.taps > SQUARE_TAPS):
        return False
    if task.last or not inplace.accepts(task):
        return _width(task) >= LEAST_WIDE_PIXELS and not (task.last and task.result == "input")
    return _width(task) >= LEAST_TURNED_WIDE_PIXELS and (cols.stride == 1 or task.result == "filter")


def _turns(task: Task) -> bool:
    """Whether images whose channels come last become planes: few channels, and no large planes."""
    rows, cols = task.rows, task.cols
    return task.groups < WIDEST_VECTOR and rows.size * cols.size + rows.out * cols.out <= MOST_LAST_PIXELS


def _long(task: Task, least: dict[int, int], a_tap: float) -> bool:
    """Whether rows of results fill enough of its vectors."""
    pixels = least[task.cols.stride]
    if task.result == "filter":
        return task.cols.out >= max(pixels, a_tap * task.rows.taps)
    return _width(task) >= pixels


def _twins(task: Task) -> bool:
    """Whether rows fill half of a vector, which has two of them."""
    rows, cols = task.rows, task.cols
    square = rows.taps == cols.taps == SQUARE_TAPS and not task.dilated and rows.stride == cols.stride
    return square and _width(task) in TWIN_PIXELS[cols.stride]


def _width(task: Task) -> int:
    """Pixels of a row of results that have the same taps, or of dy."""
    return task.cols.size // task.cols.stride if task.result == "input" else task.cols.out


def reads_apart(rows: Axis, cols: Axis, scatters: bool) -> bool:
    """Whether `planes` reads what dilated rows of taps need for each row anew."""
    period = rows.dilation // gcd(rows.stride, rows.dilation)
    height = rows.size // rows.stride if scatters else rows.out
    square = rows.taps == cols.taps == SQUARE_TAPS and rows.stride == cols.stride == 1
    small = max(rows.size * cols.size, rows.out * cols.out) <= MOST_APART_PIXELS
    return small and period > 1 and height < period * (LEAST_WALK_ROWS_SQUARE if square else LEAST_WALK_ROWS)
