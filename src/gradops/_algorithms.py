"""Which kernel computes a convolution: what each one accepts, and the one that is taken.

======================  ==============================================================================
`conv`                  an implicit GEMM over the taps; accepts everything that is not depthwise
`winograd`              F(2x2, 3x3): 16 products where `conv` needs 36; 3x3 taps with stride 1
`gemv`                  a matrix times some vectors: outputs and gradients of inputs, few of whose pixels share their taps
`stem`                  vectors of pixels; few channels: of the result, or, channels first, on a side of the filter
`depthwise`             a stencil over packed rows; one input channel a group and few multipliers, or few inputs and as many outputs
`planes`                the same over planes: channels first, one filter for each, strides 1 and 2
`inplace`               the same over images where they lie, or small ones that are turned; whole vectors of channels, one filter for each
======================  ==============================================================================

`algorithms` chooses. ``GRADOPS_ALGORITHM`` names another one, which is then taken wherever it accepts the problem;
``GRADOPS_VERBOSE`` shows what ran.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple, Protocol


class Axis(Protocol):
    """What is asked of one spatial dimension."""

    @property
    def taps(self) -> int: ...

    @property
    def stride(self) -> int: ...

    @property
    def dilation(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def before(self) -> int: ...

    @property
    def out(self) -> int: ...


ALGORITHMS = ("conv", "gemv", "winograd", "stem", "inplace", "planes", "depthwise")
"""All of them. A stem is one of these, what it does ("gather" or "reduce"), and the precision."""

MOST_MULTIPLIERS = 64
"""What the stencil over packed rows holds in one block of lanes (LANES of _ring.pxd); more go to the kernels of grouped convolution."""

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
that are copied once. Channels first, no more than the third may be summed then (as in conv_gather.pyx): 16 and 32 to 8 and 16 gain 1.1 to 1.7, 96 to 16
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

TILE_TAPS = {1: (1, 2, 3, 4, 5, 7), 2: (3, 5, 7)}
"""Taps in a row that the register tiles of `inplace` have, by the step from pixel to pixel of what they read."""

MOST_ROWS, MOST_STEP = 64, 4
"""Rows of taps, and steps from row to row, that the window of `inplace` holds."""

MOST_PLANE_ROWS, MOST_PLANE_COLUMNS, MOST_PLANE_MASKS = 7, 4096, 1 << 16
"""Rows of taps that a register tile of `planes` has; columns of an image and between the taps of a row, which its scratch grows with; numbers of its
masks, one for each pixel of a row and each tap in a row."""

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

MOST_TURNED_PIXELS = 1024
"""Of an image of channels first that `inplace` accepts, which it turns, a vector of channels at a time."""

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
2       4       0.80  0.65  0.64      1.34  1.33  1.22      0.78  0.71  0.65      0.56  0.64  0.57
2       5       1.13  1.18  1.23      1.56  1.49  1.39      1.10  1.10  1.00      0.86  0.99  1.12
2       6       1.50  1.93  1.38      1.51  1.39  1.26      1.05  1.09  1.10      0.98  1.08  1.22
2       7       1.88  1.84  1.33      2.11  1.29  1.29      1.12  1.00  1.09      1.11  0.94  1.21
2       8       2.14  2.27  1.53      2.22  1.62  1.59      1.34  1.10  0.98      1.29  1.23  1.40
======  ======  ====================  ====================  ====================  ====================

Of 128 images, which no cache holds, 7 pixels: 2.5, 2.5 and 1.4 (float32). 5x5 taps lose: 0.5 to 0.9.
bfloat16 was measured while its planes were widened in memory.
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

WIDEST_VECTOR = 16
"""Numbers. `inplace` computes whole vectors of channels, `planes` of pixels."""

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

MOST_VECTORS, MOST_POINTS, MOST_PAIRED = 16, 63, {False: 1, True: 4}
"""Pixels that share their taps, at most, of what `gemv` accepts; the same where one tap reads every pixel, unless two bfloat16 are multiplied at once, and of what
it is taken for if they are, by whether what is summed, and not the result, lies side by side in the filter."""

MOST_DOTS, LEAST_SLOTS, MOST_READS = 8, 32, 2
"""Pixels for which it multiplies vectors of what is summed (FEW of gemv_gather_columns.pxi), for each of which it takes so many of those channels to be
preferred; and how many times it reads the filter then, which it reads again for pixels that use other taps.

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

LEAST_INSIDE = 0.5
"""Share of all taps that lie inside, up to which `conv` leaves the others out: a filter that covers its whole input computes 49 times as much with them
if it has 7x7 taps (its gradient of the input took 16 to 24 times as long)."""

WINOGRAD_PRODUCTS = 16 / 36
"""Of `winograd` over those of `conv`, which has fewer of images of 1x1 pixels: 32 of 512 channels take 0.07 to 0.14 of the time."""


class Sharing(NamedTuple):
    """How pixels of a result share taps that lie inside of what they read."""

    pixels: int
    """That use the same taps, at most."""

    reads: float
    """How many times each tap is read on average, if pixels that differ in theirs read them by themselves."""

    inside: float
    """The share of all taps of all pixels that lie inside."""

    @property
    def splits(self) -> bool:
        """Whether to leave out taps that lie outside is worth reading some others again."""
        return self.inside <= LEAST_INSIDE and self.reads <= MOST_READS


UNKNOWN = Sharing(1 << 62, 1 << 62, 1)
"""Of large images."""

EXCHANGED_CHANNELS = {"output": (2, 4, 8, 16), "input": (2, 4, 8, 16), "filter": (2, 4, 8)}
"""Inputs and as many outputs of a group that `depthwise` accepts, by the result: they change places within a vector."""

EXCHANGES: dict[str, dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "NHWC": {"output": ((2, 4, 8), (2, 4, 8)), "input": ((2, 4, 8), (2, 4, 8)), "filter": ((2, 4, 8), (2, 4, 8))},
    "NCHW": {"output": ((), (4, 8)), "input": ((), (4,)), "filter": ((8,), (2, 4, 8))},
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

WHOLE_VECTOR = 8
"""Channels of float64 that fill a vector. For groups of so many `depthwise` is not taken, but for filters with strides; nor is `stem`, channels last.

Time of `stem` over that of `conv` then, 3x3 taps, outputs and gradients of inputs, 1 thread of a Zen 5: 8 to 8 1.2 to 1.4, with stride 2 1.15; 64 to 8 1.0
to 1.1; 8 groups 1.5 and 2.3, 32 groups 3.2. Channels first 0.95 to 1.0, 32 groups 0.84.
"""

LEAST_STEM_COLUMNS = dict.fromkeys(range(1, 8), 4) | {8: 12}
"""Pixels of a row from which on `stem` fills enough of its vectors, by the channels of a result.

Time of `conv` or `winograd`, whichever is preferred to it, over that of `stem`, 3x3 taps, gradient of the input, float32, NHWC, 1 and 8 images, 1
thread of a Zen 4:

==============  ============  ============  ============  ============
channels        4 pixels      7 pixels      10 pixels     14 pixels
==============  ============  ============  ============  ============
1 of 4          1.16  3.05    1.33  2.29    1.49  3.07
3 of 4          1.40  1.22    1.62  2.98    1.55  2.59
3 of 64         1.34  1.69    1.79  2.92    1.84  2.42
6 of 64         1.37  0.99    1.77  2.28    1.74  1.61
8 of 8          1.18  0.93    2.00  0.91    1.20  1.04          1.74
8 of 64         0.89  0.46    1.08  0.87    0.91  0.82          1.21
==============  ============  ============  ============  ============
"""

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
conv_gather_fold.pxi and CHANNELS of conv_gather.pyx). Time of `stem` over that of `conv`, float32, bfloat16, float64, and float32 with AVX2, NCHW, 8 images of
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

MOST_STEM_SCRATCH = 400_000
"""Numbers that the ring of rows of `stem` may hold: 2 MiB with the rest of its scratch, and what stays in a cache."""

MOST_STEM_ROWS, MOST_STEM_TAPS = 100_000, 2048
"""The same for the gradient of the filter: numbers of the rows of a pass, and taps, each of which has a sum of its own in every lane."""

PASS_VECTORS, PASS_OUTPUTS = 28, 4
"""Of a pass of the gradient of the filter: vectors of pixels, which may become twice as many, and outputs (VECTORS and CHANNELS of stem_reduce.pyx)."""

FEW_STEM_OUTPUTS, FEW_STEM_INPUTS, FEW_STEM_FILTERS, LEAST_STEM_PIXELS, MOST_STEM_STRIDE = 4, 4, 128, 28, 2
"""Channels of a group from which on `conv` takes longer than `stem` to compute the gradient of a filter, channels first: so few outputs, so few inputs
where rows fill enough of the vectors and strides leave rows close together, or so few of both, multiplied. For each, `conv` has to turn an operand
or copies it for each tap.

Time of `conv` or `winograd`, whichever is shorter, over that of `stem`, 3x3 taps, float32, 8 or 16 images, 2 threads of a Zen 5, for 4, 8, 16, 32 and 128
outputs:

======  ========  ========================  ========================  ========================  ========================
stride  pixels    1 input                   4 inputs                  16 inputs                 64 inputs
======  ========  ========================  ========================  ========================  ========================
1       112       8.9  5.7  2.9  2.0  2.6   5.6  3.2  1.7  1.4  1.5   4.2  2.5  1.3  0.9  0.9   3.3  1.8  1.0  0.8  0.6
1       28        5.9  4.5  2.3  1.7  1.9   4.0  2.6  1.5  1.1  1.0   2.4  1.4  0.8  0.5  0.5   1.7  1.0  0.5  0.4  0.4
1       18        4.5  3.6  2.2  1.5  1.4   3.8  2.3  1.3  0.9  0.7   1.6  1.0  0.5  0.4  0.3   1.1  0.7  0.4  0.3  0.3
2       112       4.5  3.6  2.1  1.7  2.3   3.3  2.4  1.4  1.3  1.2   2.0  1.8  1.3  1.1  1.0   1.9  1.6  1.3  1.1  1.0
2       28        2.9  2.5  1.6  1.3  1.7   2.4  1.8  1.2  1.0  1.0   1.8  1.4  0.9  0.8  0.7   1.9  1.5  1.0  0.8  0.8
======  ========  ========================  ========================  ========================  ========================

In float64 and 16 bits they are 0.7 to 1.5 times as large. 7x7 taps gain 1.0 to 1.5 at 112 pixels whatever the channels, and lose at 18. Stride 4: 3
inputs, 64 and 96 outputs 1.0 and 0.8. Groups of 4 to 4 5.7, of 8 to 8 2.2. One tap: 3 to 8 5.2, 3 to 64 1.9, 16 to 8 1.8, but 64 to 2 0.8.

Where `conv` multiplies two bfloat16 at once, whose pixels are pairs as they lie, and planes are short, `stem` is only taken if outputs or taps and
inputs, multiplied, fill no vector. The same time, bfloat16, 8 images, 2 threads of a Zen 4, for 4, 8, 16 and 32 outputs:

======  ========  ====================  ====================  ====================
stride  pixels    1 input               3 inputs              16 inputs
======  ========  ====================  ====================  ====================
1       28        2.6  2.1  1.6  1.3    2.2  1.4  0.9  0.7    1.8  0.9  0.6  0.5
2       28        1.6  1.5  1.3  0.9    1.5  1.0  0.7  0.7    0.9  0.6  0.4  0.4
======  ========  ====================  ====================  ====================
"""

LEAST_DOT_PIXELS, LEAST_DOT_ROWS, FEW_BESIDE_PAIRS = {False: 384, True: 1024}, 4, {False: 12, True: 4}
"""Pixels of a plane from which on `conv` turns no operand (`conv_reduce_dots`), of float32 and of bfloat16 that is multiplied in pairs, rows that fill a
tile of it, and inputs and outputs, multiplied, up to which `stem` is taken nevertheless, without strides and with.

Time of `conv` over that of `stem` then, channels first, 8 images, 3x3 taps, bfloat16, 2 threads of a Zen 4, for 1, 2, 4, 8, 16 and 32 outputs:

======  ========  ==============================  ==============================  ==============================
stride  pixels    1 input                         3 inputs                        16 inputs
======  ========  ==============================  ==============================  ==============================
1       112       2.5  1.5  1.7  1.3  0.9  0.7    1.6  1.1  1.1  0.8  0.7  0.6    1.1  0.7  0.9  0.7  0.6  0.5
2       112       1.4  1.2  1.1  0.9  0.8  0.7    1.0  0.8  0.9  0.7  0.6  0.5    0.9  0.8  0.8  0.8  0.6  0.5
======  ========  ==============================  ==============================  ==============================

34 and 48 pixels alike; 5x5 taps 1.0 to 1.3 times that. One tap, 1 to 16 inputs, 4 to 64 outputs: float32 0.44 to 1.1, bfloat16 0.3 to 0.4, but
float32 5.7 and 6.6 for 3 and 1 inputs to 1 output; float16, of which `conv` copies both operands, 0.9 to 1.4, float64 0.6 to 6.
"""

MANY_STEM_SLOTS, MANY_STEM_OUTPUTS, LEAST_FILLED_PIXELS = 64, 64, 64
"""Taps and inputs, multiplied, and outputs, from which on rows have to have so many pixels for `stem` then. Time of `conv` over that of `stem`, 5x5 taps with
stride 2, 3 inputs to 64 and 128 outputs, 2 threads of a Granite Rapids: 28 pixels 0.76 and 0.71, 32 0.87 and 0.88, 40 0.77 and 0.80, 48 0.92 and 0.95, 64 0.98
and 1.04, 112 1.02 and 1.06; 3x3 taps 0.8 to 1.2, to 32 outputs 0.95 to 1.1; float64 0.8 to 1.0.
"""

LEAST_FOLDED, LEAST_FOLDED_PLANES, LONGEST_FOLDED, LEAST_FOLDED_PIXELS = 4, (16, 32), 1 << 14, 12
"""Channels that are summed from which on tiles compute few channels sooner than `stem` does, of a block of pixels at once (`conv_gather_fold`), and the same
of planes, up to 2 channels and of more; as many numbers, at most, of a row that is summed, where they are planes; pixels of a row, at least.

Time of `stem` over that of `conv`, bfloat16, 8 images of 112x112, gradients of inputs, 3x3 taps, 2 threads of a Granite Rapids, for 8, 16, 32, 64, 128 and 256
outputs:

======  ======  ============================  ============================
stride  inputs  NHWC                          NCHW
======  ======  ============================  ============================
1       1       1.9  1.9  2.2  2.5  2.4  2.1  0.7  1.3  1.7  1.5  1.2  0.6
1       3       1.3  1.6  2.3  2.4  2.1  1.6  0.4  0.7  1.3  1.4  1.4  0.8
1       8       1.6  2.1  3.2  3.2  3.0  2.3  0.5  0.9  1.5  1.8  2.4  1.3
2       1       1.4  1.7  2.3  2.7  2.9  3.5  0.8  1.2  1.9  2.1  2.2  2.3
2       3       1.4  1.7  2.1  2.8  3.0  3.1  0.5  0.9  1.5  1.8  2.2  2.4
======  ======  ============================  ============================

Forward 1.2 to 2.4 alike. 1 to 4 outputs, channels last, 0.6 to 1.6; 9x9 taps 2.5 to 5.7; 8x8 pixels 0.5 to 0.6, channels first 1.0 to 1.1; a plane of 572x572
pixels, 64 outputs, 0.8.
"""

TILE, MOST_FOLDED_TILES = 16, 4
"""Columns of a tile, and tiles of a block (TILE and MOST_FOLDED of conv_gather.pyx)."""

TILED_OUTPUTS = {False: range(32, 193), True: range(64, 193)}
"""Of layers without and with strides that are not folded, channels last, and have at least two inputs. Time of `stem` over that of `conv` for 32 to 4 channels, 3x3
taps, 1.55, 48 to 3 1.4, 64 and 128 to 3 2.0 (224x224 pixels 1.2), 64 to 1 0.65; with strides 32 and 48 to 3 0.75 to 0.85, 64 and 96 to 3 to 6 1.1 to
1.9, 256 to 3 0.3; if patches lie side by side (4x4 and 2x2 taps) 1.7 to 2.5, 16x16 taps 1.0.
"""

LEAST_STEM_MULTIPLIER = 4
"""Of a depthwise op, from which on `stem` is taken for the gradient of a filter, channels first. `depthwise` fills its vectors with channels, so that
of fewer than a vector `stem` is taken for any multiplier and gradient; for outputs and gradients of inputs, which are not packed, twice the multiplier.

Time of `depthwise` over that of `stem`, float32, NCHW, 8 images, 3x3 taps, 2 threads of a Zen 5; multipliers of 3 and 32 channels:

==========  ======  ==========================  ==========================
gradient    pixels  stride 1                    stride 2
==========  ======  ==========================  ==========================
            of dy   2 of 3, 2, 3, 4, 8, 32      2 of 3, 2, 3, 4, 8, 32
filter      56      2.9  1.0  1.0  1.6  1.7  1.5  2.8  0.8  0.8  1.1  1.5  2.2
filter      28      2.1  0.8  0.9  1.4  1.9  2.2  2.0  0.6  0.7  1.1  1.9  3.1
input       56      1.9  0.8  0.9  0.8  1.0  1.3  2.6  0.9  1.0  1.0  1.4  2.3
input       28      1.2  0.5  0.6  0.5  0.6  0.7  1.4  0.7  1.0  0.8  1.1  1.6
==========  ======  ==========================  ==========================

Channels last, the gradient of the input with stride 2: 3 channels times 2 to 32 1.2 to 1.7, 32 channels 0.1 to 0.9.
"""


def algorithms(
    result: str,
    depthwise: bool,
    rows: Axis,
    cols: Axis,
    groups: int,
    per_group: int,
    out_channels: int,
    data_format: str,
    paired: bool = False,
    tiled: bool = False,
    doubles: bool = False,
    halves: bool = False,
    sharing: Sharing = UNKNOWN,
    by_slots: bool = False,
    pixels: int = UNKNOWN.pixels,
    innermost: bool = False,
) -> tuple[str, ...]:
    """The algorithms that accept a problem, the one that is preferred first.

    `result` is "output", "input" or "filter", the gradients being named by what they are of. `per_group` input channels
    belong to a group of a dense op, `out_channels` output channels to all groups together. `halves` says that numbers have 16
    bits, `paired` that they are bfloat16, two of which are multiplied at once, `tiled` tiles of them, `doubles` that they are float64, `by_slots`
    that what is summed, and not the result, lies side by side in the filter. `pixels` are those of the output, in all images. `innermost`
    says that the taps of a filter do, as only `winograd` reads them well, and `conv` writes them, channels first.
    """
    outputs = out_channels // max(groups, 1)
    if not depthwise and (groups == 1 or per_group > 1):
        others = _dense(result, rows, cols, groups, per_group, outputs, data_format, paired, tiled, doubles, halves)
        if innermost:
            return tuple(name for name in ("winograd", "conv") if name in others)
        others = _exchanged(result, rows, cols, groups, (per_group, outputs), data_format, doubles, tiled, others)
        if result == "filter":
            return _conv_first(others) if pixels <= MOST_SUMMED_PIXELS and others[0] == "winograd" else others
        points = not paired and others[0] == "conv" and all(_point(axis) for axis in (rows, cols))
        summed = outputs if result == "input" else per_group
        several = data_format == "NCHW" and rows.out * cols.out > 1
        folded = several and _folds_patches(result, rows, cols, groups, per_group, outputs, paired)
        return _few_pixels(sharing, points, folded, paired, by_slots, summed, others)
    if outputs != 1:
        return _multiplied(result, rows, cols, groups, outputs, data_format)
    inplace = groups >= WIDEST_VECTOR and _inplace(result, rows, cols)
    if data_format == "NCHW":
        return _first(result, rows, cols, inplace)
    if not inplace:
        return ("depthwise",)
    crowded = not halves and _crowded(result, cols, groups)
    return ("depthwise", "inplace") if crowded else ("inplace", "depthwise")


def _dense(
    result: str,
    rows: Axis,
    cols: Axis,
    groups: int,
    per_group: int,
    outputs: int,
    data_format: str,
    paired: bool,
    tiled: bool,
    doubles: bool,
    halves: bool,
) -> tuple[str, ...]:
    """The algorithms for several channels a group."""
    others: tuple[str, ...] = ("conv",)
    if all(axis.taps == 3 and axis.stride == 1 for axis in (rows, cols)):
        parted = any(
            axis.dilation > 1 and axis.size < _least_part(per_group, outputs) * axis.dilation for axis in (rows, cols)
        )
        few = max(rows.dilation, cols.dilation) > 1 and _few_dilated(result, per_group, outputs, data_format, halves)
        narrow = _narrow(result, per_group, outputs, data_format, doubles)
        wins = min(per_group, outputs) in CHANNELS and not (paired or parted or few or narrow)
        others = ("winograd", "conv") if wins else ("conv", "winograd")
    if result == "filter":
        accepts, few = _stem_reduces(rows, cols, data_format), _few(rows, cols, per_group, outputs, paired)
        if (paired or not (doubles or halves)) and not tiled and _dots(rows, cols, paired):
            few = _few_beside_dots(rows, cols, per_group, outputs, paired, few)
    else:
        accepts = _stem_gathers(result, rows, cols, per_group, outputs)
        if data_format == "NHWC":
            patches = groups == 1 and side_by_side(cols) and cols.taps * per_group >= LEAST_PATCH
        else:
            patches = _folds_patches(result, rows, cols, groups, per_group, outputs, paired)
        fills = doubles and data_format == "NHWC" and (per_group if result == "input" else outputs) == WHOLE_VECTOR
        few = not (rows.taps == cols.taps == 1 or patches or fills)
    if not accepts:
        return others
    if tiled and result != "filter":
        channels, summed = (per_group, outputs) if result == "input" else (outputs, per_group)
        few = few and not _fills_tiles(rows, cols, channels, summed, data_format)
    if tiled and groups > 1:
        few = False
    return ("stem", *others) if few else (*others, "stem")


def _fills_tiles(rows: Axis, cols: Axis, channels: int, summed: int, data_format: str) -> bool:
    """Whether tiles compute few channels of a result sooner than vectors of pixels do."""
    last, strided = data_format == "NHWC", max(rows.stride, cols.stride) > 1
    if last and side_by_side(rows) and side_by_side(cols):
        return True
    if not _folds(rows, cols, channels):
        return last and channels > 1 and summed in TILED_OUTPUTS[strided]
    if last:
        return summed >= LEAST_FOLDED
    banded = summed % 2 == 0 and any(_fills_rows(-(-cols.size // (cols.stride * times))) for times in range(1, 5))
    return banded and summed >= LEAST_FOLDED_PLANES[channels > 2] and summed * cols.out <= LONGEST_FOLDED


def _fills_rows(columns: int) -> bool:
    """Whether a row of blocks is long enough for a band, and fills most of its tiles (`fills_tiles` of _band.pxd)."""
    return columns >= 6 and 4 * columns >= 3 * TILE * -(-columns // TILE)


def _folds(rows: Axis, cols: Axis, channels: int) -> bool:
    """Whether `conv_gather_fold` multiplies blocks of pixels: about, if patches are not centred on steps of the stride."""
    taps, phases = rows.taps * cols.taps, rows.stride * cols.stride
    if max(rows.dilation, cols.dilation) > 1 or cols.size < LEAST_FOLDED_PIXELS or taps == 1:
        return False
    windows = -(-rows.taps // rows.stride) * -(-cols.taps // cols.stride)
    tiles = -(-phases * channels // TILE)
    return phases == 1 or (tiles <= MOST_FOLDED_TILES and 4 * windows * tiles <= 3 * taps)


def _narrow(result: str, per_group: int, outputs: int, data_format: str, doubles: bool) -> bool:
    """Whether a result has so few channels, or so few are summed, that `conv` is taken."""
    narrow, last = MOST_NARROW // 2 if doubles else MOST_NARROW, data_format == "NHWC"
    if result == "filter":
        return max(per_group, outputs) <= narrow or (last and per_group <= MOST_SUMMED and not doubles)
    channels, summed = (per_group, outputs) if result == "input" else (outputs, per_group)
    return summed <= MOST_SUMMED or (channels <= narrow and (last or summed <= MOST_BANDED))


def _few_dilated(result: str, per_group: int, outputs: int, data_format: str, halves: bool) -> bool:
    """Whether dilated taps have so few channels that `conv` is taken: of 16-bit planes, which are converted a number at a time, however many there are."""
    if halves and data_format == "NCHW":
        return True
    least = LEAST_DILATED
    if data_format == "NCHW" and result != "filter":
        least = LEAST_CUT_PLANE if _cut(per_group, outputs) else LEAST_DILATED_PLANE
    return min(per_group, outputs) < least


def _least_part(per_group: int, outputs: int) -> float:
    """Pixels of a row or column with the same step of a dilation, for which `winograd` is taken."""
    return LEAST_CUT_PART if _cut(per_group, outputs) and min(per_group, outputs) < LEAST_CUT_PLANE else LEAST_PART


def _cut(per_group: int, outputs: int) -> bool:
    """Whether channels do not fill their vectors."""
    return bool(per_group % WIDEST_VECTOR or outputs % WIDEST_VECTOR)


def _conv_first(others: tuple[str, ...]) -> tuple[str, ...]:
    """`others` with `conv` preferred."""
    return ("conv", *(other for other in others if other != "conv"))


def _point(axis: Axis) -> bool:
    """Whether one tap reads every pixel."""
    return axis.taps == axis.stride == 1 and axis.size == axis.out


def _few_pixels(
    sharing: Sharing, points: bool, folded: bool, paired: bool, by_slots: bool, summed: int, others: tuple[str, ...]
) -> tuple[str, ...]:
    """`others`, `conv` first where it has the fewest products, with `gemv` in its place if it accepts; so many channels are summed."""
    if sharing.splits and sharing.inside < WINOGRAD_PRODUCTS:
        others = _conv_first(others)
    if sharing.pixels > (MOST_POINTS if points else MOST_VECTORS):
        return others
    few = by_slots and sharing.pixels <= MOST_DOTS and summed < LEAST_SLOTS * sharing.pixels
    many = paired and sharing.pixels > MOST_PAIRED[by_slots]
    taken = sharing.reads <= MOST_READS and not (few or many or folded)
    return ("gemv", *others) if taken else (others[0], "gemv", *others[1:])


def _exchanged(
    result: str,
    rows: Axis,
    cols: Axis,
    groups: int,
    channels: tuple[int, int],
    data_format: str,
    doubles: bool,
    tiled: bool,
    others: tuple[str, ...],
) -> tuple[str, ...]:
    """`others`, with `depthwise` in its place if it accepts groups of so many inputs and outputs."""
    inputs, outputs = channels
    if groups == 1 or inputs != outputs or outputs not in EXCHANGED_CHANNELS[result]:
        return others
    strided = max(rows.stride, cols.stride) > 1
    short = data_format == "NCHW" and result != "filter" and cols.out < EXCHANGED_ROW
    taken = outputs in (EXCHANGES["NHWC"] if short else EXCHANGES[data_format])[result][strided]
    if tiled:
        taken = data_format == "NCHW" and result != "filter" and outputs <= MOST_TILED
    if doubles and outputs == WHOLE_VECTOR and not (result == "filter" and strided):
        taken = False
    if data_format == "NCHW" and rows.taps == cols.taps == 1:
        taken = False
    return ("depthwise", *others) if taken else (*others, "depthwise")


def _multiplied(result: str, rows: Axis, cols: Axis, groups: int, outputs: int, data_format: str) -> tuple[str, ...]:
    """The algorithms for one input channel a group and several outputs."""
    other = "conv" if outputs > MOST_MULTIPLIERS else "depthwise"
    narrow = groups * outputs < WIDEST_VECTOR
    accepts = (
        _stem_reduces(rows, cols, data_format) if result == "filter" else _stem_gathers(result, rows, cols, 1, outputs)
    )
    if not accepts:
        return (other,)
    if result == "filter":
        few = narrow or outputs >= LEAST_STEM_MULTIPLIER
    elif data_format == "NCHW" and narrow:
        few = cols.size >= LEAST_STEM_PIXELS
    elif data_format == "NCHW":
        few = cols.size >= 2 * LEAST_STEM_PIXELS and outputs >= 2 * LEAST_STEM_MULTIPLIER
    else:
        strided = result == "input" and cols.stride > 1
        few = cols.size >= 2 * LEAST_STEM_PIXELS and groups <= FEW_STEM_INPUTS and strided
    return ("stem", other) if few else (other, "stem")


def side_by_side(axis: Axis) -> bool:
    """Whether patches lie side by side, with nothing between or beyond them."""
    return axis.taps == axis.stride and axis.dilation == 1 and axis.before == 0 and axis.size == axis.out * axis.stride


def _folds_patches(
    result: str, rows: Axis, cols: Axis, groups: int, per_group: int, outputs: int, paired: bool
) -> bool:
    """Whether planes are patches all of whose numbers `conv` computes at once (`are_patches` of conv_gather_fold.pxi)."""
    beside = result == "input" and groups == 1 and side_by_side(rows) and side_by_side(cols)
    few = rows.taps * cols.taps * per_group <= MOST_PATCH and not (paired and outputs % 2)
    return beside and few and cols.taps in PATCH_COLUMNS[paired]


def _stem_gathers(result: str, rows: Axis, cols: Axis, per_group: int, outputs: int) -> bool:
    """Whether `stem` accepts an output or the gradient of an input: all of its lanes have to read neighbouring pixels."""
    channels, summed = (per_group, outputs) if result == "input" else (outputs, per_group)
    if result == "output" and (rows.stride > 1 or cols.stride > 1):
        return False
    columns = -(-cols.size // cols.stride) if result == "input" else cols.out
    height, width = ((axis.taps - 1) * axis.dilation // axis.stride + 2 for axis in (rows, cols))
    fits = height * summed * (width + 8 * 16 + 16) <= MOST_STEM_SCRATCH
    return columns >= LEAST_STEM_COLUMNS.get(channels, columns + 1) and fits


def _stem_reduces(rows: Axis, cols: Axis, data_format: str) -> bool:
    """Whether `stem` accepts the gradient of a filter: rows have to fill a vector, and what a pass reads has to fit."""
    if data_format != "NCHW" or cols.out < WIDEST_VECTOR:
        return False
    together = min(2 * -(-PASS_VECTORS // -(-cols.out // WIDEST_VECTOR)), rows.out)
    height, width = (
        (count - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1
        for axis, count in ((rows, together), (cols, cols.out))
    )
    return (height + PASS_OUTPUTS * together) * width <= MOST_STEM_ROWS and rows.taps * cols.taps <= MOST_STEM_TAPS


def _few(rows: Axis, cols: Axis, per_group: int, outputs: int, paired: bool) -> bool:
    """Whether a filter has so few channels that `stem` is taken for its gradient."""
    if paired:
        return min(outputs, rows.taps * cols.taps * per_group) < WIDEST_VECTOR
    few = per_group * outputs <= FEW_STEM_FILTERS
    many = rows.taps * cols.taps * per_group >= MANY_STEM_SLOTS and outputs >= MANY_STEM_OUTPUTS
    least = LEAST_FILLED_PIXELS if many else LEAST_STEM_PIXELS
    near = cols.out >= least and max(rows.stride, cols.stride) <= MOST_STEM_STRIDE
    if rows.taps == cols.taps == 1:
        few = few and per_group <= 4 * FEW_STEM_INPUTS
    else:
        few = few or outputs <= FEW_STEM_OUTPUTS
    return few or (per_group <= FEW_STEM_INPUTS and near)


def _dots(rows: Axis, cols: Axis, paired: bool) -> bool:
    """Whether planes are long enough for `conv` to turn no operand."""
    return rows.out * cols.out >= LEAST_DOT_PIXELS[paired]


def _few_beside_dots(rows: Axis, cols: Axis, per_group: int, outputs: int, paired: bool, few: bool) -> bool:
    """`_few` then."""
    if rows.taps == cols.taps == 1:
        return max(per_group, outputs) < LEAST_DOT_ROWS
    return per_group * outputs <= FEW_BESIDE_PAIRS[max(rows.stride, cols.stride) > 1] if paired else few


def _crowded(result: str, cols: Axis, groups: int) -> bool:
    """Whether rows, channels last, are packed rather than read where their pixels share few sets of a cache."""
    distance = groups * cols.dilation
    if cols.out < LEAST_CROWDED_PIXELS or cols.taps < LEAST_CROWDED_TAPS:
        return False
    return distance % CROWDED == 0 if result == "filter" else cols.stride == 1 and distance % (2 * CROWDED) == 0


def _first(result: str, rows: Axis, cols: Axis, inplace: bool) -> tuple[str, ...]:
    """The algorithms for channels first, one filter for each."""
    planes = ("planes",) if _planes(result, rows, cols) else ()
    turned = ("inplace",) if inplace and max(rows.size * cols.size, rows.out * cols.out) <= MOST_TURNED_PIXELS else ()
    least = LEAST_TURNED_PIXELS if turned else LEAST_PIXELS
    a_tap = LEAST_TURNED_PIXELS_A_TAP if turned else LEAST_PIXELS_A_TAP
    if planes and (_long(result, rows, cols, least[cols.stride], a_tap) or (turned and _twins(result, rows, cols))):
        return (*planes, *turned, "depthwise")
    return (*turned, "depthwise", *planes)


def _planes(result: str, rows: Axis, cols: Axis) -> bool:
    """Whether `planes` accepts one filter a channel."""
    if rows.stride > 2 or cols.stride > 2 or rows.taps > MOST_PLANE_ROWS:
        return False
    lanes = cols.stride if result == "input" else 1
    every = cols.taps >= lanes and cols.size >= lanes and gcd(lanes, cols.dilation) == 1
    widest = max(cols.size, cols.out)
    fits = max(widest, (cols.taps - 1) * cols.dilation) <= MOST_PLANE_COLUMNS
    return every and fits and widest * cols.taps <= MOST_PLANE_MASKS


def _long(result: str, rows: Axis, cols: Axis, pixels: int, a_tap: float) -> bool:
    """Whether rows of results fill enough of the vectors of `planes`."""
    width = cols.size if result == "input" else cols.out
    if result == "filter":
        return width >= max(pixels, a_tap * rows.taps)
    return (width // cols.stride if result == "input" else width) >= pixels


def reads_apart(rows: Axis, cols: Axis, scatters: bool) -> bool:
    """Whether `planes` reads what dilated rows of taps need for each row anew."""
    period = rows.dilation // gcd(rows.stride, rows.dilation)
    height = rows.size // rows.stride if scatters else rows.out
    square = rows.taps == cols.taps == SQUARE_TAPS and rows.stride == cols.stride == 1
    small = max(rows.size * cols.size, rows.out * cols.out) <= MOST_APART_PIXELS
    return small and period > 1 and height < period * (LEAST_WALK_ROWS_SQUARE if square else LEAST_WALK_ROWS)


def _twins(result: str, rows: Axis, cols: Axis) -> bool:
    """Whether rows of `planes` fill half of a vector, which has two of them."""
    width = cols.size // cols.stride if result == "input" else cols.out
    square = (
        rows.taps == cols.taps == SQUARE_TAPS and rows.dilation == cols.dilation == 1 and rows.stride == cols.stride
    )
    return square and width in TWIN_PIXELS[cols.stride]


def _inplace(result: str, rows: Axis, cols: Axis) -> bool:
    """Whether the register tiles of `inplace` have so many taps in a row, for each lane of columns, and its window so many rows."""
    row_step, col_step = (axis.stride // gcd(axis.stride, axis.dilation) for axis in (rows, cols))
    if result != "input":
        return cols.taps in TILE_TAPS.get(col_step, ()) and row_step <= MOST_STEP and rows.taps <= MOST_ROWS
    lanes = (-(-(cols.taps - phase) // col_step) for phase in range(min(col_step, cols.taps)))
    return all(taps in TILE_TAPS[1] for taps in lanes) and rows.taps <= MOST_ROWS


def stem_of(algorithm: str, work: str, storage: int) -> str:
    """The kernel of an algorithm for a storage code."""
    return _STEMS[algorithm, work][storage]


_STEMS = {
    (algorithm, work): tuple(
        f"{algorithm}_{work}_{real}" for real in ("f32", "bf16" if algorithm == "conv" else "f32", "f32", "f64")
    )
    for algorithm in ALGORITHMS
    for work in ("gather", "reduce")
    if (algorithm, work) != ("gemv", "reduce")
}

STEMS = frozenset(stem for stems in _STEMS.values() for stem in stems)
"""The kernels of all algorithms."""
