"""Where vectors of pixels are taken: few channels of the result, or, channels first, on a side of the filter."""

from __future__ import annotations

from .patches import favour_conv
from .task import MOST_SHEET_SLOTS, WHOLE_VECTOR, WIDEST_VECTOR, Arithmetic, Task
from .tiles import fills_tiles

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

MOST_STEM_SCRATCH = 400_000
"""Numbers that the ring of rows of `stem` may hold: 2 MiB with the rest of its scratch, and what stays in a cache."""

MOST_STEM_ROWS, MOST_STEM_TAPS = 100_000, 2048
"""The same for the gradient of the filter: numbers of the rows of a pass, and taps, each of which has a sum of its own in every lane."""

PASS_VECTORS, PASS_OUTPUTS = 28, 4
"""Of a pass of the gradient of the filter: vectors of pixels, which may become twice as many, and outputs (VECTORS and CHANNELS of stem_reduce.pyx)."""

FEW_STEM_OUTPUTS, FEW_STEM_INPUTS, FEW_STEM_FILTERS, LEAST_STEM_PIXELS, MOST_STEM_STRIDE = 4, 4, 128, 28, 2
"""Channels of a group from which on `conv` takes longer than `stem` to compute the gradient of a filter, channels first: so few outputs, so few inputs
where rows fill enough of the vectors and strides leave rows close together, or so few of both, multiplied. For each, `conv` has to turn an operand
or copies it for each tap, unless it multiplies sheets (LEAST_SHEET_INPUTS), which the table was taken without.

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

MOST_SKIPPING = 8
"""Channels that are summed of one tap with strides, up to which `stem` is taken for gradients of inputs: pixels between those that have the tap are zeros. Time
of `conv` over that of `stem` with 4 and 8 inputs, 1 to 8 outputs, 2 threads of a Zen 5: channels last 1.6 to 2.6 (bfloat16 1.1 to 2.3), first 0.93 to 1.2; 64
outputs 0.25 to 0.9. """

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

LEAST_SHEET_CHANNELS, LEAST_SHEET_GROUP, LONG_SHEET, SHORT_SHEET = 4, 6, 64, 12
"""Channels of outputs and of gradients of inputs from which on `conv` is taken, channels first, without strides, for which it copies planes once for all taps
(`conv_gather_sheet`); then of one of several groups. Of bfloat16 that is multiplied in pairs it is so with fewer channels, too, of rows that are shorter than
the third number, in pixels. Of other numbers it is not with rows shorter than the fourth, nor with more taps and channels that are summed than MOST_SHEET_SLOTS.

Time of `conv` over that of `stem`, NCHW, gradient of the input, 8 images, 3x3 taps but for the last lines, 2 threads of a Zen 4:

===========  ================================================  ================================================
pixels       bfloat16                                          float32
-----------  ------------------------------------------------  ------------------------------------------------
             1 of 4, 64  3 of 4, 64  4 of 4, 64  8 of 4, 64    1 of 4, 64  4 of 4, 16, 64    8 of 8, 16, 64
===========  ==========  ==========  ==========  ==========    ==========  ================  ================
8            0.66        0.65        0.62                      0.82        0.78  1.29
14           0.56  0.36  0.64  0.45  0.53  0.36  0.56  0.45    0.77  0.65  0.76        0.74              1.55
28           0.49  0.40  0.66  0.59  0.53  0.42  0.49  0.43    0.77  0.75  0.72  0.75  0.88  0.55  0.72  0.89
56           0.59  0.52  0.77  0.76  0.48  0.47  0.37  0.44    1.01  1.04  0.80  0.75  0.96  0.52  0.64  0.88
112          0.85  0.77  1.07  1.05  0.47  0.56  0.42  0.51    1.43  1.66  0.82  0.75  1.22  0.55  0.68  1.04
56, 5x5                                                                          0.81        0.64  1.14
112, 9x9     1.01  0.81  1.24  1.05  0.60  0.54  0.51  0.78
===========  ==========  ==========  ==========  ==========    ==========  ================  ================

float64, 4 and 8 of 4 to 64: 0.64 to 1.17; float32 with AVX2: 0.32 to 0.9; float16 as float32. 32 groups of 4: 1.0 to 1.07, of 6 0.91 to 0.96 (float32).
"""

LEAST_SHEET_INPUTS, LEAST_SHEET_SLOTS, LEAST_SHEET_PIXELS, LONG_SHEET_STRIDE = 8, 60, 256, 4
FEW_SHEET_OUTPUTS, LONGEST_SHEET_ROWS = 5, (24, 40, 128)
"""Inputs, taps and inputs, multiplied, and pixels of all images from which on `conv` multiplies sheets of planes for the gradient of a filter, channels first, of
strides up to the last (`conv_reduce_sheet`); and rows up to which that takes less time than `stem`, of up to so many outputs, of more,
and of any that leave one row of its register tiles of 4, for which `stem` has two. Pairs are taken whatever the rows.

Time of `conv` over that of `stem`, 8 images, 3x3 taps, 2 threads of a Zen 4, for 8 and 32 inputs to 2, 3, 4, 5 and 8 outputs:

==================  ==================================================  ==================================================
pixels              float32                                             bfloat16
==================  ==================================================  ==================================================
20                  .90 .87   .63 .59   .76 .75   .79 .86   .70 .70     .50 .49   .34 .35   .64 .55   .47 .47   .53 .45
28                  1.05 .98  .76 .69   .95 .89   1.02 .98  .90 .81     .74 .51   .51 .36   .77 .59   .65 .53   .70 .49
40                  1.07 1.05 .77 .69   .92 .90   1.06 1.03 .86 .83     .91 .54   .68 .35   .76 .62   .85 .53   .55 .46
56                  1.08 1.07 .76 .72   .96 .98   1.11 1.12 .91 .91     .78 .54   .58 .36   .72 .58   .79 .56   .57 .46
28, with stride 2                       .83 .81             .76 .78                         .48 .41             .45 .36
==================  ==================================================  ==================================================

16 to 20 pixels, 3x3 to 5x5 taps with strides of 3 and 4, 2 to 12 outputs 0.52 to 0.78, bfloat16 0.32 to 0.5. 224x224, 64 to 3: 1.02, bfloat16 0.51; float16 as float32, float64 0.75 to 1.5; 1 output 1.1 to 1.5, bfloat16 0.6 to 1.2. AVX2: 0.6 to 1.0 of 20 and 28 pixels, but
4 outputs of 40 and 56 1.35 to 1.5.
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


def accepts(task: Task) -> bool:
    """Whether rows fill its vectors, and what it keeps of them fits."""
    return _reduces(task) if task.result == "filter" else _gathers(task)


def wins(task: Task) -> bool:
    """Whether it is preferred to `conv`, `winograd` and `depthwise`."""
    if task.stencil:
        return _wins_multiplied(task)
    if task.tiled and task.groups > 1:
        return False
    if task.result == "filter":
        if _sheet_dots(task):
            return False
        beside_dots = task.arithmetic in (Arithmetic.FLOATS, Arithmetic.PAIRS) and _dots(task)
        return _few_beside_dots(task) if beside_dots else _few(task)
    fills = task.doubles and task.last and task.channels == WHOLE_VECTOR
    return not (
        (task.one_tap and not _skips(task))
        or favour_conv(task)
        or fills
        or (task.tiled and fills_tiles(task))
        or _sheets(task)
    )


def _skips(task: Task) -> bool:
    """Whether one tap leaves out pixels of a gradient of few channels, which are zeros, and few are summed."""
    few = task.summed <= MOST_SKIPPING and (task.last or task.channels <= FEW_STEM_OUTPUTS)
    return task.result == "input" and task.strided and few


def _sheets(task: Task) -> bool:
    """Whether `conv` copies planes once for all taps, and takes less time then."""
    if task.tiled or task.last or task.strided:
        return False
    many = task.channels >= (LEAST_SHEET_CHANNELS if task.groups == 1 else LEAST_SHEET_GROUP)
    if task.paired:
        return task.summed % 2 == 0 and (many or task.cols.size < LONG_SHEET)
    return many and task.cols.size >= SHORT_SHEET and task.slots <= MOST_SHEET_SLOTS


def _wins_multiplied(task: Task) -> bool:
    """The same of several outputs for one input."""
    narrow = task.groups * task.outputs < WIDEST_VECTOR
    if task.result == "filter":
        return narrow or task.outputs >= LEAST_STEM_MULTIPLIER
    if not task.last and narrow:
        return task.cols.size >= LEAST_STEM_PIXELS
    long = task.cols.size >= 2 * LEAST_STEM_PIXELS
    if not task.last:
        return long and task.outputs >= 2 * LEAST_STEM_MULTIPLIER
    return long and task.groups <= FEW_STEM_INPUTS and task.result == "input" and task.cols.stride > 1


def _gathers(task: Task) -> bool:
    """Whether it accepts an output or the gradient of an input: all of its lanes have to read neighbouring pixels."""
    rows, cols = task.rows, task.cols
    if task.result == "output" and task.strided:
        return False
    columns = -(-cols.size // cols.stride) if task.result == "input" else cols.out
    height, width = ((axis.taps - 1) * axis.dilation // axis.stride + 2 for axis in (rows, cols))
    fits = height * task.summed * (width + 8 * 16 + 16) <= MOST_STEM_SCRATCH
    return columns >= LEAST_STEM_COLUMNS.get(task.channels, columns + 1) and fits


def _reduces(task: Task) -> bool:
    """Whether it accepts the gradient of a filter: rows have to fill a vector, and what a pass reads has to fit."""
    rows, cols = task.rows, task.cols
    if task.last or cols.out < WIDEST_VECTOR:
        return False
    together = min(2 * -(-PASS_VECTORS // -(-cols.out // WIDEST_VECTOR)), rows.out)
    height, width = (
        (count - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1
        for axis, count in ((rows, together), (cols, cols.out))
    )
    return (height + PASS_OUTPUTS * together) * width <= MOST_STEM_ROWS and rows.taps * cols.taps <= MOST_STEM_TAPS


def _few(task: Task) -> bool:
    """Whether a filter has few channels."""
    slots = task.rows.taps * task.cols.taps * task.inputs
    if task.paired:
        return min(task.outputs, slots) < WIDEST_VECTOR
    few = task.inputs * task.outputs <= FEW_STEM_FILTERS
    many = slots >= MANY_STEM_SLOTS and task.outputs >= MANY_STEM_OUTPUTS
    least = LEAST_FILLED_PIXELS if many else LEAST_STEM_PIXELS
    near = task.cols.out >= least and max(task.rows.stride, task.cols.stride) <= MOST_STEM_STRIDE
    few = few and task.inputs <= 4 * FEW_STEM_INPUTS if task.one_tap else few or task.outputs <= FEW_STEM_OUTPUTS
    return few or (task.inputs <= FEW_STEM_INPUTS and near)


def _sheet_dots(task: Task) -> bool:
    """Whether `conv` multiplies sheets of planes, and takes less time then."""
    rows, cols = task.rows, task.cols
    slots = rows.taps * cols.taps * task.inputs
    if task.tiled or task.doubles or task.one_tap or max(rows.stride, cols.stride) > LONG_SHEET_STRIDE:
        return False
    few = task.inputs < LEAST_SHEET_INPUTS or slots < LEAST_SHEET_SLOTS or task.pixels <= LEAST_SHEET_PIXELS
    if few or task.paired:
        return not few and task.inputs * task.outputs > FEW_BESIDE_PAIRS[False]
    many = 2 if task.outputs % 4 == 3 else int(task.outputs > FEW_SHEET_OUTPUTS)
    return task.outputs > 1 and cols.out <= LONGEST_SHEET_ROWS[many]


def _dots(task: Task) -> bool:
    """Whether planes are long enough for `conv` to turn no operand."""
    return task.rows.out * task.cols.out >= LEAST_DOT_PIXELS[task.paired]


def _few_beside_dots(task: Task) -> bool:
    """`_few` then."""
    if task.one_tap:
        return max(task.inputs, task.outputs) < LEAST_DOT_ROWS
    return task.inputs * task.outputs <= FEW_BESIDE_PAIRS[task.strided] if task.paired else _few(task)
