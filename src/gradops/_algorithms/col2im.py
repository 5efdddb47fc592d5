"""Where each tap's products with all pixels of dy are added to where they belong: few channels, short rows, and filters most of whose taps lie outside."""

from __future__ import annotations

from .patches import favour_conv
from .task import Task

MOST_PIXELS, MOST_NUMBERS = 2048, 1 << 16
"""Pixels of the rows of dy that one row of a gradient reads, and numbers of such a row of one channel, at most: what `col2im` keeps of them."""

SUM = 48
"""Products that take as long as it takes to add their sum to where it belongs."""

LEAST_GAIN = {2: (0, 0.1, 0.2), 8: (0.2, 0.4, 0.6), 32: (0.4, 0.5, 0.6), 1 << 62: (1, 1.2, 1.2)}
"""Its *gain*: products that others take for each that has a place, times the share of its own time that products are. From which one on it is taken, by the
channels of the gradient, up to so many, for rows of up to SHORT_ROWS pixels of dy and longer ones. Channels last, more than FEW_LAST take MANY_LAST times as
much, groups of 3 to LONE_LAST GROUPED_GAIN; `conv` that multiplies pairs PAIRED_GAIN. Groups of up to FEW_LAST channels with strides of which a pixel has one
tap at most take it, channels first for rows of up to LONE_ROWS pixels, and channels last up to LONE_LAST ones of few taps.

Time of `conv` or `stem`, whichever is preferred to it, over that of `col2im`, geometric means of 9000 random problems (1x1 to 11x11 taps, strides to 4, dilations
to 3, 7 to 128 pixels), float32, 2 threads of a Zen 4:

==================  ==========  ======  ======  ======  ======  ======  ======  ======
channels            row of dy   to 0.1  to 0.2  to 0.4  to 0.6  to 1    to 2    beyond
==================  ==========  ======  ======  ======  ======  ======  ======  ======
NCHW, to 2          to 16       1.24    1.71    2.29    2.95    4.29    6.15    9.19
..                  to 30       1.09    1.20    1.64    1.83    2.61
..                  beyond      0.53    0.93    1.18    1.32    1.36
NCHW, to 8          to 16       0.79    0.99    1.44    1.75    2.20    2.91    4.48
..                  to 30       0.53    0.86    1.03    1.31    1.44    2.47
..                  beyond      0.43    0.70    0.85    0.99    1.13
NCHW, to 32         to 16       0.55    0.68    0.86    1.10    1.55    2.17    3.55
..                  to 30       0.48    0.65    0.89    1.04    1.27
..                  beyond      0.41    0.56    0.80    0.91    1.16
NCHW, beyond        to 16       0.41    0.52    0.66    0.79    1.14    1.17    2.24
NHWC, to 8          to 16       0.74    0.91    1.26    1.50    1.97    2.81    6.18
NHWC, to 32         to 16       0.54    0.63    0.74    0.94    1.09    1.38    2.56
NHWC, beyond        to 16       0.25    0.36    0.48    0.64    0.79    1.02    2.09
==================  ==========  ======  ======  ======  ======  ======  ======  ======

Groups of few channels, channels last, 110 random problems, Zen 5: to 2 channels with strides and few taps 0.93 to 3.0, else from a gain of 0.06 on 1.5 to 3.6
to 16 pixels, 0.65 to 1.8 beyond; 3 and 4 with strides 0.9 to 3.2, else from 0.1 on 0.93 to 3.9, beyond 30 pixels 0.76 to 1.35; to 8 0.45 to 1.6. Channels first
with strides and one tap at most 1.2 to 2.9, rows of 27 to 74 pixels 0.73 to 1.4.

float64 alike. Where `gemv` is preferred, or `conv` leaves out taps that lie outside (`Sharing.splits`), up to 8 channels 1.4 to 6, more 0.5 to 1; 1x1 taps 0.3 to 1.2.
Beside `conv` in pairs of bfloat16 0.14 to 0.7, but where most taps lie outside.
"""

LARGE_MULTIPLIER, SOME_TAPS = 16, 6.3
"""From so many outputs for one input on also with more taps, channels first with any number, and channels last from twice as many on. Time of `depthwise` over that
of `col2im`, geometric means of 2000 random problems (`multipliers`), float32, bfloat16 and float64, for multipliers of 16, 24, 32 and 64:

====================  ======================  ======================  ======================
NHWC, 1x1             1.56  1.56  1.64  1.55  1.37  1.61  1.86  1.78  1.29  1.26  1.29  1.29
NHWC, to 6.3 taps     1.42  1.79  1.80  1.66  1.33  1.53  1.72  1.67  1.62  1.62  1.59
NHWC, more            1.02  1.06  1.09  1.28  0.96  1.00  1.19  1.52  1.17  1.54  1.26
NCHW, 2.8 to 6.3      1.77  2.36  2.96  2.39  1.18  2.52        2.02
NCHW, more            1.61  1.80  2.82  2.52  1.54  1.57  1.82  2.53        3.04  2.04
====================  ======================  ======================  ======================
"""

SHORT_ROWS, FEW_LAST, MANY_LAST, LONE_LAST, LONE_ROWS, GROUPED_GAIN, PAIRED_GAIN = (
    (16, 30),
    8,
    1.5,
    4,
    20,
    (0.1, 0.1, 0.4),
    2,
)

(
    FEW_TAPS,
    ONE_TAP,
    LEAST_MULTIPLIER,
    MULTIPLIER,
    FAR_APART,
    LEAST_ROW,
    LONG_ROWS,
    FEW_GROUPS,
    SOME_GROUPS,
    LONGEST_ROWS,
) = (
    2.8,
    1,
    3,
    6,
    2,
    8,
    40,
    8,
    24,
    64,
)
"""The same of depthwise ops, channels first: up to FEW_TAPS of a pixel (all of them over the strides) from LEAST_MULTIPLIER on; up to SOME_TAPS from MULTIPLIER
on if groups are few or `stem` is preferred to `depthwise`, and for dilations beyond FAR_APART, both for rows of dy of LEAST_ROW pixels and more. Channels last
from MULTIPLIER on, of few taps, or some with FEW_GROUPS. Not beside `stem` for rows beyond LONGEST_ROWS of one tap or fewer outputs than LARGE_MULTIPLIER. For
a multiplier of 1 it is taken, channels first, where `planes` is refused and a pixel has one tap, of FEW_GROUPS or long rows.

Time of `depthwise` over that of `col2im`, geometric means of 3000 random problems, float32, 2 threads of a Zen 4, for multipliers of 1, 2, 3, 4 and 8:

======================  ====  ====  ====  ====  ====
NCHW, to 1 tap          0.78  0.99  1.57  1.69  1.82
.., rows beyond 40      1.61              1.14
.., 8 channels          1.81
NCHW, to 2.8 taps       0.64  1.00  1.51  1.46  1.91
NCHW, more, 9 channels  0.73  0.75  1.21  1.11  1.19
.., 24 channels         0.38  0.67  0.90  0.99  1.26
.., beyond              0.34  0.65  0.83  0.71  0.88
.., dilated by 3              1.02  1.66  1.23  2.35
.., rows to 8           0.34  0.61  0.70  0.52  0.98
NHWC, to 2.8 taps       0.61  0.66        1.16  1.89
NHWC, more              0.36  0.57        0.68  0.86
======================  ====  ====  ====  ====  ====

`stem` 1.2 to 1.8 of multipliers of 2 to 8, but of long rows 0.8 to 1.1; `planes` and `inplace` 0.15 to 0.5.

What is shortest without it over it, 220 random problems, Zen 5, for multipliers of 2, 3, 4, 6, 8 and 32:

======================  ====  ====  ====  ====  ====  ====
NCHW, to 2.8 taps       1.07  1.22  1.37  1.59  1.79  2.3
NCHW, to 6.3 taps       0.67  0.78  0.74  2.14  1.45  4.6
NCHW, more              0.50  0.71  0.57  0.79  0.87  1.44
NHWC, to 2.8 taps       0.90  1.11  1.20  1.77  1.61  2.1
NHWC, to 6.3 taps       0.58  0.77  0.81  1.67  1.44  4.5
NHWC, more              0.40  0.54  0.44  0.78  0.63  1.05
NHWC, bfloat16, to 2.8  0.53  0.58  0.72  1.47  1.33  1.8
======================  ====  ====  ====  ====  ====  ====

Rows of up to 8 pixels 0.8 to 1.3 of few taps and multipliers of 2 to 4, 2.9 to 5.8 of 32; of 112, 3 groups and 8 outputs, with stride 2 0.75.
"""


def accepts(task: Task) -> bool:
    """Whether it is the gradient of an input, of whose rows some fit."""
    rows, cols = task.rows, task.cols
    if task.result != "input":
        return False
    height = min((rows.taps - 1) * rows.dilation // rows.stride + 2, rows.out)
    return height * cols.out <= MOST_PIXELS and rows.stride * (cols.size + 32 * cols.stride) <= MOST_NUMBERS


def wins(task: Task, first: str) -> bool:
    """Whether it is preferred to all others, of which one is the first."""
    if task.stencil:
        return _wins_multiplied(task, first)
    few = task.channels <= FEW_LAST
    if first in ("conv", "stem") and task.groups > 1 and few and _lone(task, first):
        return True
    if first in ("winograd", "depthwise") or ((first == "gemv" or task.sharing.splits) and not few):
        return False
    if first == "conv" and (task.one_tap or task.tiled or favour_conv(task)):
        return False
    grouped = {LONE_LAST: GROUPED_GAIN} if task.last and task.groups > 1 and task.channels > 2 else {}
    gains = next(gains for most, gains in (grouped | LEAST_GAIN).items() if task.channels <= most)
    least = gains[sum(task.cols.out > row for row in SHORT_ROWS)]
    if task.last and not few:
        least *= MANY_LAST
    return _gain(task) > (PAIRED_GAIN if task.paired and first == "conv" else least)


def _lone(task: Task, first: str) -> bool:
    """Whether a pixel has one tap at most, or few, channels last."""
    taps = _taps(task)
    if not task.strided or (task.paired and first == "conv"):
        return False
    if task.last:
        return taps <= (FEW_TAPS if task.channels <= LONE_LAST else ONE_TAP)
    return taps <= ONE_TAP and not task.one_tap and task.cols.out <= LONE_ROWS


def _taps(task: Task) -> float:
    """Of a pixel."""
    return task.rows.taps / task.rows.stride * task.cols.taps / task.cols.stride


def _gain(task: Task) -> float:
    """Products that others take for each that has a place, times the share of time that products are."""
    rows, cols = task.rows, task.cols
    others = rows.size / rows.stride * cols.size / cols.stride
    return others / max(rows.out * cols.out, 1) * task.summed / (task.summed + SUM)


def _wins_multiplied(task: Task, first: str) -> bool:
    """The same of several outputs for one input, or of one."""
    rows, cols, taps = task.rows, task.cols, _taps(task)
    if task.outputs == 1:
        long = task.groups <= FEW_GROUPS or cols.out > LONG_ROWS
        return not task.last and first == "depthwise" and taps <= ONE_TAP and long
    large, few = task.outputs >= LARGE_MULTIPLIER, taps <= FEW_TAPS
    if first == "stem" and cols.out > LONGEST_ROWS and not (large and rows.taps * cols.taps > 1):
        return False
    if task.last:
        some = taps <= SOME_TAPS and (few or large or task.groups <= FEW_GROUPS)
        some = some or task.outputs >= 2 * LARGE_MULTIPLIER
        return some and task.outputs >= MULTIPLIER and (large or rows.taps * cols.taps > 2)
    if large or (few and task.outputs >= LEAST_MULTIPLIER):
        return True
    some = taps <= SOME_TAPS and task.outputs >= MULTIPLIER and (task.groups <= SOME_GROUPS or first == "stem")
    return cols.out >= LEAST_ROW and (some or max(rows.dilation, cols.dilation) > FAR_APART)
