"""The depthwise kernels that pack no ring of rows: on every shape that they accept they compute what the definition says."""

from dataclasses import replace
from math import gcd

import numpy as np
import pytest
from checks import assert_same_bits, besides_col2im, check_edge, check_threads, running
from hypothesis import assume, given
from hypothesis import strategies as st
from problems import exact_case, rounded_case

from gradops._algorithms import Axis
from gradops._algorithms.inplace import (
    CROWDED,
    FAR_TAPS,
    LEAST_CROWDED_PIXELS,
    LEAST_CROWDED_TAPS,
    MANY_TAPS,
    MOST_FAR_PIXELS,
    MOST_HALVES_A_STEP,
    MOST_LED,
    MOST_SMALL_PIXELS,
    MOST_STEP,
    MOST_TAPS,
    MOST_TAPS_A_STEP,
    MOST_TURNED_PIXELS,
)
from gradops._algorithms.planes import (
    FEW_CHANNELS,
    LEAST_PIXELS,
    LEAST_PIXELS_A_TAP,
    LEAST_TURNED_PIXELS,
    LEAST_TURNED_PIXELS_A_TAP,
    LEAST_TURNED_WIDE_PIXELS,
    LEAST_WALK_ROWS,
    LEAST_WALK_ROWS_SQUARE,
    LEAST_WIDE_PIXELS,
    MOST_APART_PIXELS,
    MOST_LAST_CHANNELS,
    MOST_LAST_PIXELS,
    MOST_PLANE_COLUMNS,
    MOST_PLANE_MASKS,
    MOST_PLANE_ROWS,
    MOST_PLANE_STEP,
    SQUARE_TAPS,
    TWIN_PIXELS,
    reads_apart,
)
from gradops._algorithms.task import WIDEST_VECTOR
from gradops.testing import (
    OPS,
    Problem,
    accepting,
    assert_close,
    assert_exact,
    dtype_named,
    forced,
    random_integers,
    random_normal,
)

OPS_OF_KIND = [op for op in OPS.values() if op.kind == "depthwise"]
INPLACE = [
    Problem(n=2, h=13, w=14, c=32, m=1, r=3, s=3, padding="SAME"),  # tiles of 7
    Problem(n=1, h=9, w=23, c=19, m=1, r=3, s=3, padding="SAME"),  # the last tile begins before the one before it ends
    Problem(n=3, h=12, w=9, c=24, m=1, r=5, s=5, strides=(2, 2), padding="SAME"),  # phases; the last vector overlaps
    Problem(n=1, h=17, w=16, c=40, m=1, r=7, s=7, padding="SAME"),  # rows of taps by twos
    Problem(n=2, h=11, w=6, c=48, m=1, r=2, s=4, padding=(0, 3, 2, 2)),
    Problem(n=1, h=31, w=30, c=37, m=1, r=3, s=3, dilations=(2, 3), padding="SAME"),
    Problem(n=1, h=20, w=19, c=50, m=1, r=3, s=3, strides=(3, 2), dilations=(2, 2), padding="SAME"),
    Problem(n=1, h=7, w=5, c=33, m=1, r=9, s=3, strides=(1, 1), padding=(9, 0, 2, 2)),  # rows without a tap
    Problem(n=1, h=6, w=12, c=20, m=1, r=1, s=3, strides=(1, 1), padding=(0, 0, 6, 7)),  # columns without a tap
    Problem(n=1, h=15, w=16, c=35, m=1, r=2, s=2, strides=(4, 3)),  # columns that nothing reads
    Problem(n=1, h=9, w=10, c=1024, m=1, r=3, s=3, padding="SAME"),  # pixels at a crowding distance
    Problem(n=40, h=3, w=3, c=16, m=1, r=3, s=3, padding="SAME"),  # more images than spans
    Problem(n=2, h=9, w=1, c=16, m=1, r=3, s=1, strides=(2, 1), padding="SAME"),  # one column, which becomes a row
    Problem(n=2, h=13, w=28, c=64, m=1, r=3, s=3, padding="SAME"),  # two registers a vector
    Problem(n=1, h=9, w=27, c=121, m=1, r=1, s=3, padding=(0, 0, 2, 0)),  # and the last one overlaps
    Problem(n=1, h=23, w=31, c=96, m=1, r=5, s=3, strides=(2, 2), padding="SAME"),
    Problem(n=1, h=12, w=33, c=32, m=1, r=3, s=3, dilations=(1, 2), padding="SAME"),
    Problem(n=3, h=5, w=10, c=512, m=1, r=3, s=3, padding="SAME"),
    Problem(
        n=2, h=11, w=17, c=512, m=1, r=3, s=3, strides=(2, 2), padding="SAME"
    ),  # tall tiles, which read each row once
    Problem(n=1, h=13, w=15, c=512, m=1, r=3, s=3, dilations=(2, 3), padding="SAME"),
    Problem(n=1, h=9, w=3, c=1024, m=1, r=3, s=3, padding="SAME"),
    Problem(n=2, h=8, w=11, c=256, m=1, r=5, s=3, padding="SAME"),  # more rows of taps than those have
    Problem(n=2, h=8, w=14, c=256, m=1, r=2, s=3, padding=(1, 0, 1, 1)),  # and fewer
    Problem(n=1, h=10, w=9, c=528, m=1, r=3, s=3, padding="SAME"),
    Problem(n=2, h=29, w=33, c=48, m=1, r=3, s=3, dilations=(13, 12), padding="SAME"),  # lanes of two and three pixels
    Problem(n=1, h=17, w=33, c=512, m=1, r=3, s=3, dilations=(3, 6), padding="SAME"),  # of five and six
    Problem(n=2, h=14, w=31, c=64, m=1, r=5, s=3, dilations=(2, 6), padding=(5, 2, 0, 9)),
    Problem(n=2, h=13, w=22, c=35, m=1, r=3, s=3, strides=(3, 3), padding="SAME"),  # taps that no two pixels share
    Problem(n=1, h=9, w=40, c=64, m=1, r=4, s=3, strides=(2, 3), padding=(3, 0, 2, 2)),
    Problem(n=1, h=8, w=27, c=512, m=1, r=3, s=3, strides=(3, 3), dilations=(2, 2), padding="SAME"),
]
TURNED = [
    Problem(n=2, h=7, w=7, c=35, m=1, r=3, s=3, padding="SAME", layout="NCHW"),  # the last vector overlaps
    Problem(n=1, h=14, w=15, c=32, m=1, r=5, s=5, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=1, h=16, w=9, c=40, m=1, r=3, s=7, dilations=(3, 2), padding="SAME", layout="NCHW"),
    Problem(n=1, h=15, w=16, c=35, m=1, r=2, s=2, strides=(4, 3), layout="NCHW"),  # columns that nothing reads
    Problem(n=2, h=2, w=3, c=20, m=1, r=1, s=3, padding=(0, 0, 4, 5), layout="NCHW"),  # fewer pixels than a vector
    Problem(n=40, h=3, w=3, c=16, m=1, r=3, s=3, padding="SAME", layout="NCHW"),  # more images than spans
    Problem(n=2, h=5, w=7, c=33, m=1, r=5, s=7, layout="NCHW"),  # one pixel, whose channels lie side by side
    Problem(n=2, h=1, w=1, c=33, m=1, r=3, s=3, padding=(2, 1, 2, 2), layout="NCHW"),
    Problem(n=2, h=6, w=6, c=16, m=1, r=3, s=3, strides=(2, 2), dilations=(2, 2), layout="NCHW"),
    Problem(n=1, h=41, w=43, c=21, m=1, r=3, s=3, strides=(3, 3), padding="SAME", layout="NCHW"),  # a large image
    Problem(n=1, h=9, w=10, c=20, m=1, r=3, s=1, strides=(2, 2), layout="NCHW"),  # columns without a tap
]
"""Channels first, which `inplace` turns."""
GENERAL = [
    Problem(n=2, h=14, w=37, c=40, m=1, r=5, s=5, strides=(3, 3), padding="SAME"),  # the last tile begins early
    Problem(n=1, h=9, w=60, c=19, m=1, r=3, s=3, strides=(4, 4), padding="SAME"),  # the last vector overlaps
    Problem(n=1, h=11, w=17, c=32, m=1, r=3, s=1, strides=(2, 2)),  # columns that nothing reads
    Problem(n=2, h=8, w=23, c=64, m=1, r=2, s=11, padding="SAME"),  # columns on both sides of a tile outside
    Problem(n=2, h=9, w=14, c=24, m=1, r=3, s=6, strides=(2, 1), dilations=(2, 3), padding="SAME"),
    Problem(n=1, h=10, w=5, c=33, m=1, r=1, s=9, padding=(0, 0, 11, 12)),  # columns without a tap
    Problem(n=1, h=13, w=50, c=512, m=1, r=3, s=6, strides=(2, 2), padding="SAME"),  # pixels at a crowding distance
    Problem(n=2, h=7, w=40, c=36, m=1, r=7, s=8, strides=(3, 4), padding=(3, 1, 6, 2), layout="NCHW"),
    Problem(n=2, h=6, w=9, c=20, m=1, r=2, s=13, padding="SAME", layout="NCHW"),
]
"""Taps in a row that no tiles are made for, but of filters."""
APART = [
    Problem(n=3, h=9, w=14, c=5, m=1, r=3, s=3, dilations=(2, 2), padding="SAME", layout="NCHW"),  # planes together
    Problem(n=2, h=17, w=41, c=3, m=1, r=3, s=3, dilations=(3, 1), padding=(9, 0, 1, 5), layout="NCHW"),
    Problem(n=1, h=18, w=19, c=3, m=1, r=3, s=3, dilations=(8, 9), layout="NCHW"),
    Problem(
        n=1, h=6, w=17, c=2, m=1, r=3, s=3, dilations=(5, 2), padding=(25, 3, 2, 9), layout="NCHW"
    ),  # rows without a tap
    Problem(n=2, h=9, w=20, c=3, m=1, r=5, s=2, dilations=(4, 1), padding="SAME", layout="NCHW"),
    Problem(n=2, h=7, w=18, c=4, m=1, r=2, s=5, dilations=(6, 3), padding="SAME", layout="NCHW"),
    Problem(n=2, h=9, w=11, c=3, m=1, r=3, s=3, strides=(1, 2), dilations=(4, 5), padding="SAME", layout="NCHW"),
    Problem(n=2, h=14, w=29, c=3, m=1, r=3, s=3, strides=(2, 2), dilations=(5, 3), padding="SAME", layout="NCHW"),
    Problem(
        n=2, h=10, w=11, c=6, m=1, r=3, s=3, strides=(2, 2), dilations=(3, 3), padding="SAME", layout="NCHW"
    ),  # no twins
    Problem(n=2, h=8, w=7, c=6, m=1, r=3, s=3, dilations=(3, 2), padding="SAME", layout="NCHW"),
    Problem(n=2, h=14, w=20, c=3, m=1, r=3, s=2, strides=(2, 1), dilations=(3, 2), padding="SAME", layout="NCHW"),
    Problem(n=2, h=12, w=30, c=2, m=1, r=3, s=4, strides=(1, 2), dilations=(5, 1), padding="SAME", layout="NCHW"),
]
"""Rows of taps that are read row by row, since few rows of images have them in common."""
WIDE = [
    Problem(n=2, h=13, w=52, c=3, m=1, r=3, s=3, strides=(3, 3), padding="SAME", layout="NCHW"),
    Problem(n=2, h=14, w=71, c=3, m=1, r=5, s=5, strides=(4, 4), padding="SAME", layout="NCHW"),
    Problem(n=1, h=11, w=70, c=4, m=1, r=7, s=7, strides=(3, 4), padding=(2, 4, 0, 5), layout="NCHW"),
    Problem(n=2, h=12, w=33, c=3, m=1, r=3, s=3, strides=(3, 1), padding="SAME", layout="NCHW"),
    Problem(n=2, h=15, w=38, c=3, m=1, r=3, s=2, strides=(4, 2), padding=(1, 3, 4, 0), layout="NCHW"),
    Problem(n=3, h=7, w=8, c=5, m=1, r=3, s=3, strides=(3, 3), padding="SAME", layout="NCHW"),  # planes together
    Problem(n=1, h=120, w=150, c=2, m=1, r=5, s=3, strides=(3, 3), padding="SAME", layout="NCHW"),  # strips
    Problem(n=2, h=11, w=50, c=3, m=1, r=2, s=1, strides=(3, 3), layout="NCHW"),  # rows and columns without a tap
    Problem(n=2, h=12, w=30, c=3, m=1, r=4, s=3, strides=(2, 2), dilations=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=2, h=14, w=60, c=3, m=1, r=3, s=3, strides=(3, 3), dilations=(2, 2), padding="SAME", layout="NCHW"),
    Problem(
        n=2, h=2, w=3, c=5, m=1, r=3, s=3, strides=(4, 4), padding=(3, 0, 2, 1), layout="NCHW"
    ),  # fewer than a step
    Problem(n=2, h=3, w=4, c=32, m=1, r=3, s=3, strides=(4, 2), padding=(1, 0, 1, 0), layout="NCHW"),
    Problem(n=2, h=9, w=2, c=24, m=1, r=3, s=3, strides=(2, 4), padding="SAME", layout="NCHW"),
]
"""Steps of more than two, and inputs that no tap reaches."""
PLANES = [
    Problem(n=2, h=13, w=17, c=3, m=1, r=3, s=3, padding="SAME", layout="NCHW"),
    Problem(n=1, h=9, w=16, c=5, m=1, r=3, s=3, padding="SAME", layout="NCHW"),
    Problem(n=2, h=30, w=41, c=3, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=1, h=31, w=64, c=2, m=1, r=5, s=5, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=1, h=11, w=33, c=2, m=1, r=5, s=4, strides=(1, 2), padding=(2, 1, 3, 0), layout="NCHW"),
    Problem(n=1, h=12, w=40, c=2, m=1, r=2, s=2, strides=(2, 1), layout="NCHW"),
    Problem(n=1, h=60, w=130, c=2, m=1, r=7, s=7, padding="SAME", layout="NCHW"),  # strips
    Problem(
        n=1, h=90, w=150, c=2, m=1, r=6, s=3, strides=(2, 2), padding=(9, 0, 1, 1), layout="NCHW"
    ),  # rows without a tap
    Problem(n=1, h=5, w=30, c=2, m=1, r=1, s=3, padding=(0, 0, 5, 7), layout="NCHW"),  # columns without a tap
    Problem(n=1, h=5, w=39, c=2, m=1, r=1, s=2, strides=(2, 2), layout="NCHW"),  # rows and columns that nothing reads
    Problem(n=1, h=6, w=1500, c=2, m=1, r=3, s=40, padding="SAME", layout="NCHW"),
    Problem(
        n=2, h=7, w=7, c=35, m=1, r=3, s=3, padding="SAME", layout="NCHW"
    ),  # rows below a vector, blocks of channels
    Problem(n=3, h=7, w=6, c=4, m=1, r=5, s=5, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=3, h=9, w=8, c=5, m=1, r=3, s=3, padding="SAME", layout="NCHW"),  # twins, and one without
    Problem(n=2, h=5, w=6, c=37, m=1, r=3, s=3, padding=(3, 0, 0, 2), layout="NCHW"),  # a row without a tap
    Problem(n=3, h=13, w=14, c=7, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=2, h=16, w=15, c=6, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=3, h=14, w=16, c=3, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),  # later rows, columns
    Problem(n=3, h=9, w=13, c=3, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),  # neither of them
    Problem(n=2, h=12, w=70, c=3, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),  # without twins
    Problem(n=2, h=11, w=35, c=3, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=2, h=10, w=41, c=3, m=1, r=3, s=3, strides=(2, 2), padding=(3, 2, 2, 1), layout="NCHW"),
    Problem(n=1, h=131, w=150, c=3, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),  # strips, the last
    Problem(n=2, h=10, w=40, c=3, m=1, r=5, s=5, strides=(2, 2), padding="SAME", layout="NCHW"),  # later rows, columns
    Problem(n=2, h=13, w=35, c=3, m=1, r=5, s=5, strides=(2, 2), padding="SAME", layout="NCHW"),  # neither of them
    Problem(n=1, h=133, w=146, c=2, m=1, r=5, s=5, strides=(2, 2), padding=(2, 3, 3, 2), layout="NCHW"),
    Problem(n=1, h=129, w=151, c=2, m=1, r=3, s=3, strides=(2, 2), padding=(0, 2, 2, 1), layout="NCHW"),  # one shorter
    Problem(n=2, h=14, w=12, c=5, m=1, r=3, s=3, strides=(2, 2), dilations=(1, 3), padding="SAME", layout="NCHW"),
    Problem(n=2, h=9, w=8, c=5, m=1, r=3, s=3, dilations=(1, 2), padding="SAME", layout="NCHW"),
    Problem(n=2, h=2, w=7, c=8, m=1, r=3, s=3, strides=(2, 1), padding="SAME", layout="NCHW"),
    Problem(n=2, h=3, w=4, c=40, m=1, r=3, s=3, strides=(2, 2), padding="SAME", layout="NCHW"),
    Problem(n=2, h=14, w=15, c=2, m=1, r=4, s=7, strides=(2, 1), padding=(3, 1, 0, 5), layout="NCHW"),
    Problem(
        n=5, h=3, w=1, c=3, m=1, r=2, s=1, padding="SAME", layout="NCHW"
    ),  # planes below what a vector reaches over an end
    Problem(n=40, h=5, w=8, c=1, m=1, r=3, s=2, padding="SAME", layout="NCHW"),  # more images than spans
    Problem(n=2, h=17, w=21, c=3, m=1, r=3, s=3, dilations=(2, 3), padding="SAME", layout="NCHW"),  # lanes of rows
    Problem(n=1, h=40, w=90, c=2, m=1, r=3, s=3, dilations=(12, 12), padding="SAME", layout="NCHW"),
    Problem(n=2, h=15, w=33, c=2, m=1, r=5, s=3, strides=(2, 2), dilations=(2, 3), padding="SAME", layout="NCHW"),
    Problem(
        n=1, h=95, w=98, c=2, m=1, r=3, s=3, dilations=(40, 30), padding="SAME", layout="NCHW"
    ),  # lanes of two or three rows
    *APART,
    *WIDE,
]
LAST = [
    *(replace(p, layout="NHWC") for p in PLANES if 1 < p.c < WIDEST_VECTOR and p not in WIDE[3:]),
    Problem(n=1, h=150, w=200, c=7, m=1, r=3, s=3, padding="SAME"),  # some channels at a time
    Problem(n=3, h=13, w=20, c=15, m=1, r=3, s=2, padding=(0, 2, 1, 1)),
    Problem(n=1, h=27, w=30, c=3, m=1, r=3, s=3, strides=(2, 2), padding="SAME"),  # a channel at a time
    Problem(n=2, h=12, w=12, c=9, m=1, r=1, s=2, strides=(2, 2)),  # pixels that nothing reads
]
"""Few channels last, which `planes` turns."""
LARGE = {
    "inplace": [
        Problem(n=1, h=150, w=140, c=252, m=1, r=1, s=3, padding="SAME"),
        Problem(n=1, h=200, w=224, c=128, m=1, r=2, s=3, strides=(2, 2), padding="SAME"),  # rows at a crowding distance
        Problem(n=1, h=70, w=72, c=528, m=1, r=3, s=3, dilations=(3, 4), padding="SAME"),  # lane after lane
        Problem(n=1, h=71, w=74, c=512, m=1, r=3, s=3, dilations=(2, 2), padding="SAME"),  # and down all rows
        Problem(n=2, h=49, w=50, c=560, m=1, r=3, s=3, dilations=(18, 24), padding="SAME"),
        Problem(
            n=2, h=49, w=50, c=560, m=1, r=3, s=3, dilations=(8, 9), padding="SAME"
        ),  # lanes of five and six pixels
        Problem(n=1, h=233, w=224, c=136, m=1, r=3, s=3, strides=(2, 2), padding="SAME"),  # in the order of memory
        Problem(n=2, h=75, w=223, c=128, m=1, r=2, s=3, padding="SAME"),  # and without strides
        Problem(n=1, h=171, w=162, c=268, m=1, r=2, s=3, strides=(2, 2), padding="SAME"),  # into the second cache
        Problem(n=2, h=150, w=224, c=128, m=1, r=2, s=5, strides=(3, 3), padding="SAME"),  # by tiles for any taps
        Problem(n=3, h=93, w=121, c=168, m=1, r=3, s=3, padding="SAME"),  # along rows, also in 16 bits
        Problem(n=2, h=131, w=123, c=172, m=1, r=5, s=5, padding=(2, 2, 1, 3)),  # several times
        Problem(n=2, h=131, w=125, c=292, m=1, r=4, s=7, strides=(2, 2), padding=(3, 0, 4, 2)),  # and with strides
        Problem(n=2, h=45, w=61, c=512, m=1, r=3, s=3, padding="SAME"),  # in tall tiles' place, but for 64 bits
        Problem(n=2, h=31, w=50, c=1000, m=1, r=3, s=3, padding="SAME"),  # and along segments of them
        Problem(n=1, h=40, w=18, c=4100, m=1, r=3, s=3, padding="SAME"),  # which have a tile's pixels at least
        Problem(n=2, h=61, w=63, c=140, m=1, r=5, s=5, padding="SAME"),  # along rows, in a cache, too
        Problem(n=3, h=63, w=61, c=140, m=1, r=5, s=7, strides=(2, 2), padding=(1, 2, 4, 3)),
    ],
    "planes": [Problem(n=1, h=150, w=140, c=126, m=1, r=1, s=3, padding="SAME", layout="NCHW")],
}
"""Too large for a cache: what comes next is fetched, which exact results on any number of threads say enough of; only the last eight of `inplace` have other tiles."""
UNREACHED = {
    "inplace": [
        Problem(n=2, h=1, w=9, c=16, m=1, r=1, s=1, strides=(2, 1), padding=(1, 0, 0, 0)),
        Problem(n=2, h=4, w=1, c=16, m=1, r=1, s=3, strides=(1, 2), dilations=(1, 3), padding=(0, 0, 1, 7)),
        Problem(n=2, h=4, w=1, c=32, m=1, r=1, s=3, strides=(1, 2), dilations=(1, 3), padding=(0, 0, 1, 7)),
    ],
    "planes": [Problem(n=1, h=1, w=20, c=2, m=1, r=1, s=1, strides=(2, 1), padding=(1, 0, 0, 0), layout="NCHW")],
}
"""Problems in which the filter meets nothing but padding."""


def cases(**problems):
    """Each problem with the ops that accept it for an algorithm."""
    return [
        pytest.param(algorithm, op, problem, id=f"{op}-{problem}")
        for algorithm in problems
        for op in OPS_OF_KIND
        for problem in problems[algorithm]
        if algorithm in accepting(op, problem)
    ]


CASES = cases(inplace=INPLACE + TURNED + GENERAL, planes=PLANES + LAST)
every_case = pytest.mark.parametrize(("algorithm", "op", "problem"), CASES)
every_tile = pytest.mark.parametrize(("algorithm", "op", "problem"), CASES + cases(inplace=LARGE["inplace"][-8:]))
every_size = pytest.mark.parametrize(("algorithm", "op", "problem"), CASES + cases(**LARGE))


def few(problem):
    """Whether strides, paddings or strides with dilations leave much of a result at zero."""
    apart = any(gcd(*both) > 1 for both in zip(problem.strides, problem.dilations, strict=True))
    return problem.strides[0] > 2 or problem.padding != "SAME" or apart


def test_cases_are_accepted():
    """All but, in place, filters with a stride of three and two taps, in each layout, with one of two and one tap, and those that have no tiles."""
    assert len(CASES) == 3 * (len(INPLACE) + len(TURNED)) - 3 + 2 * len(GENERAL) + 3 * (len(PLANES) + len(LAST))
    assert len(cases(**LARGE)) == 3 * sum(map(len, LARGE.values())) - 1
    assert len(cases(**UNREACHED)) == 3 * sum(map(len, UNREACHED.values()))


@pytest.mark.parametrize(("halves", "taken"), [(True, "inplace"), (False, "depthwise")])
def test_numbers_of_16_bits_are_computed_in_place_even_where_they_crowd(halves, taken):
    problem = Problem(h=14, w=14, c=CROWDED, m=1, s=5, padding="SAME")
    assert accepting(OPS["depthwise_conv2d_native_backprop_filter"], problem, halves)[0] == taken


def test_numbers_of_16_bits_take_what_is_preferred_for_them(level, capfd, monkeypatch):
    monkeypatch.setattr("gradops._call._VERBOSE", True)
    op, problem = (
        OPS["depthwise_conv2d_native_backprop_filter"],
        Problem(h=14, w=14, c=CROWDED, m=1, s=5, padding="SAME"),
    )
    assert [accepting(op, problem, halves)[0] for halves in (True, False)] == ["inplace", "depthwise"]
    operands = random_normal(op.shapes(problem), np.float64, seed=7)
    for dtype in op.dtypes:
        op(problem, *(operand.astype(dtype_named(dtype)) for operand in operands))
        taken = "inplace" if dtype in ("float16", "bfloat16") else "depthwise"
        assert f" {taken}_" in capfd.readouterr().err


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
def test_inplace_is_for_vectors_of_channels_and_few_taps(op):
    def accepted(**changed):
        return besides_col2im(op, Problem(**{"h": 90, "w": 9, "c": WIDEST_VECTOR, "m": 1, "padding": "SAME"} | changed))

    assert accepted() == accepted(r=MOST_TAPS) == accepted(c=CROWDED + 16) == ("inplace", "depthwise")
    assert accepted(r=MOST_TAPS + 1) == accepted(s=MOST_TAPS + 1) == ("depthwise",)
    for untiled in 6, 8:
        assert accepted(s=untiled) == (("depthwise",) if op.result == "filter" else ("depthwise", "inplace"))
    assert "inplace" not in accepted(c=WIDEST_VECTOR - 1)
    assert set(accepted(m=2)) <= {"depthwise", "stem"}
    assert "inplace" in accepted(layout="NCHW") and "inplace" not in accepted(
        layout="NCHW", h=MOST_TURNED_PIXELS // 18 + 1
    )
    packed = ("depthwise", "inplace") if op.sizes == "filter_sizes" else ("inplace", "depthwise")
    crowded = {"c": CROWDED, "s": LEAST_CROWDED_TAPS + 1}
    assert accepted(**crowded) == accepted(**crowded | {"c": CROWDED // 2, "dilations": (1, 2)}) == packed
    assert accepted(**crowded, w=LEAST_CROWDED_PIXELS) == packed
    assert accepted(**crowded, w=LEAST_CROWDED_PIXELS - 1) == accepted(c=2 * CROWDED, s=3) == ("inplace", "depthwise")
    crowded["c"] = 2 * CROWDED
    assert accepted(**crowded) == ("depthwise", "inplace")
    assert accepted(**crowded, w=LEAST_CROWDED_PIXELS - 1) == ("inplace", "depthwise")
    assert accepted(**crowded, w=2 * LEAST_CROWDED_PIXELS, strides=(1, 2)) == packed
    assert accepted(w=1, r=1, s=1, strides=(2, 1)) == (
        ("depthwise",) if op.result == "filter" else ("inplace", "depthwise")
    )
    assert (accepted(strides=(MOST_STEP + 1, 1)) == ("depthwise",)) == (op.sizes != "input_sizes")
    assert "inplace" in accepted(strides=(3, 3)) and ("inplace" in accepted(strides=(3, 3), s=4)) == (
        op.result != "filter"
    )


def test_tiles_for_any_taps_are_for_outputs_of_which_few_share_a_column():
    def taken(halves=False, **changed):
        problem = Problem(h=28, w=28, c=WIDEST_VECTOR, m=1, padding="SAME", **changed)
        return accepting(OPS["depthwise_conv2d_native"], problem, halves)[0]

    most = int(MOST_TAPS_A_STEP * 4)
    for layout in "NHWC", "NCHW":
        assert taken(strides=(4, 4), s=most, layout=layout) == "inplace"
        assert taken(strides=(4, 4), r=9, s=most + 1, layout=layout) == "depthwise"
        assert taken(True, strides=(4, 4), r=9, s=MOST_HALVES_A_STEP * 4 + 1, layout=layout) == "depthwise"
    assert taken(True, strides=(4, 4), s=MOST_HALVES_A_STEP * 4) == "inplace"
    assert taken(True, strides=(4, 4), r=9, s=MOST_HALVES_A_STEP * 4, layout="NCHW") == "depthwise"
    assert taken(strides=(2, 2), s=4) == "inplace"
    assert taken(strides=(2, 2), s=4, layout="NCHW") == "planes"
    assert taken(s=6) == taken(strides=(3, 1), s=6) == "depthwise"


def test_planes_are_preferred_for_long_rows():
    def accepted(op, **changed):
        given_ = {"h": 20, "w": 40, "c": 2, "m": 1, "padding": "SAME", "layout": "NCHW"} | changed
        return besides_col2im(OPS[f"depthwise_conv2d_native{op}"], Problem(**given_))

    preferred, accepting_ = ("planes", "depthwise"), ("depthwise", "planes")
    for op in "", "_backprop_input":
        for taken in {}, {"r": MOST_PLANE_ROWS}, {"w": LEAST_PIXELS[1]}, {"w": 2 * LEAST_PIXELS[2], "strides": (1, 2)}:
            assert accepted(op, **taken) == preferred
        for other in {"w": LEAST_PIXELS[1] - 1}, {"w": 2 * LEAST_PIXELS[2] - 2, "strides": (1, 2)}:
            assert accepted(op, **other) == accepting_
        assert accepted(op, dilations=(12, 12)) == preferred
    least = LEAST_PIXELS_A_TAP * 5
    assert accepted("_backprop_filter", r=5, w=least) == preferred
    assert accepted("_backprop_filter", r=5, w=least - 1) == accepting_
    for op in "", "_backprop_input", "_backprop_filter":
        for refused in (
            {"r": MOST_PLANE_ROWS + 1}, {"strides": (MOST_PLANE_STEP + 1, 1)}, {"w": MOST_PLANE_COLUMNS + 1}, {"dilations": (1, MOST_PLANE_COLUMNS)}, {"s": MOST_PLANE_MASKS // 40 + 1},
        ):  # fmt: skip
            assert accepted(op, **refused) == ("depthwise",)
        assert set(accepted(op, m=2)) <= {"depthwise", "stem"}


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
@pytest.mark.parametrize("problem", [*LAST[:3], Problem(n=3, h=33, w=37, c=9, m=1, padding="SAME")], ids=str)
def test_no_result_depends_on_what_scratch_held_before(op, problem, level):
    for dtype in ("float32", "bfloat16"):
        operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=5)
        with forced(algorithm="planes"):
            expected = op(problem, *operands)
            op(problem, *(np.full_like(operand, np.nan) for operand in operands))
            assert_same_bits(op(problem, *operands), expected)


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
def test_few_channels_that_come_last_become_planes(op):
    def accepted(c, **sizes):
        return besides_col2im(op, Problem(**{"h": 40, "w": 40, "c": c, "m": 1, "padding": "SAME"} | sizes))

    most = MOST_LAST_CHANNELS[op.result]
    assert accepted(2) == accepted(most) == ("planes", "depthwise")
    assert accepted(WIDEST_VECTOR - 1)[0] == ("planes" if most == WIDEST_VECTOR - 1 else "depthwise")
    assert "planes" not in accepted(WIDEST_VECTOR) and "planes" not in accepted(3, h=MOST_LAST_PIXELS // 80 + 1)
    assert "planes" in accepted(3, h=MOST_LAST_PIXELS // 80)


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
def test_rows_of_taps_are_apart_where_few_rows_of_small_images_have_them_in_common(op):
    def is_apart(problem):
        axes = [Axis(n, k, s, d, before, out) for n, out, k, s, d, before in problem.axes]
        return reads_apart(*axes, op.sizes == "input_sizes")

    def apart(h, **changed):
        return is_apart(replace(Problem(h=h, w=20, m=1, dilations=(2, 2), padding="SAME", layout="NCHW"), **changed))

    for least, changed in (LEAST_WALK_ROWS_SQUARE, {}), (LEAST_WALK_ROWS, {"s": 2}):
        assert apart(int(2 * least) - 1, **changed) and not apart(int(2 * least), **changed)
    assert not apart(2, dilations=(1, 2)) and not apart(2, strides=(2, 1)) and not apart(2, w=MOST_APART_PIXELS)
    assert all(map(is_apart, APART))


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
def test_small_planes_are_turned_where_rows_are_short(op):
    def first(w, stride=1, taps=3):
        sizes = {"n": 400, "h": 20, "w": w, "c": WIDEST_VECTOR, "m": 1, "r": taps, "strides": (1, stride)}
        return accepting(op, Problem(**sizes, padding="SAME", layout="NCHW"))[0]

    for stride, least in LEAST_TURNED_PIXELS.items():
        assert first(stride * least, stride) == "planes"
        assert first(stride * (least - 1), stride) == "inplace"
    if op.result == "filter":
        least = int(LEAST_TURNED_PIXELS_A_TAP * 7)
        assert first(least + 1, taps=7) == "planes" and first(least, taps=7) == "inplace"


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
def test_planes_of_few_pixels_and_many_taps_are_turned(op):
    def turned(taps, pixels=MOST_FAR_PIXELS, n=1, step=1, stride=1, height=0):
        sizes = {"h": (height or pixels) * stride, "w": pixels * stride, "c": WIDEST_VECTOR, "m": 1}
        taken = {"r": taps, "s": taps, "dilations": (step, step), "strides": (stride, stride)}
        return accepting(op, Problem(n=n, **sizes, **taken, padding="SAME", layout="NCHW"))[0] == "inplace"

    filters = op.result == "filter"
    for taps, (longest, most) in MOST_LED.items():
        assert turned(taps, longest) == filters and not turned(taps, longest + 1)
        enough = most // (WIDEST_VECTOR * longest * longest)
        assert turned(taps, longest, enough) == filters and not turned(taps, longest, enough + 1)
        assert turned(taps, n=400, step=2) == (taps >= FAR_TAPS or not filters)
        assert not turned(taps, MOST_FAR_PIXELS + 1, n=400, step=2) and not turned(taps, n=400, step=2, height=40)
    strided = MOST_LED[3][1] // (2 * WIDEST_VECTOR * 13 * 13)
    assert turned(3, 13, strided, stride=2) == filters and not turned(3, 13, strided + 1, stride=2)
    assert turned(FAR_TAPS, n=400, step=3, stride=2)
    assert turned(MANY_TAPS, n=400, stride=2) == (not filters) and not turned(FAR_TAPS, n=400, stride=2)
    assert not turned(MANY_TAPS, n=400) and not turned(MANY_TAPS, MOST_FAR_PIXELS + 1, n=400, stride=2)


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
def test_wide_strides_take_what_was_measured_to_be_faster(op):
    def first(c, w, strides=(3, 3), r=3, s=3, layout="NCHW"):
        return besides_col2im(
            op, Problem(h=60, w=w, c=c, m=1, r=r, s=s, strides=strides, padding="SAME", layout=layout)
        )[0]

    many, long, size = WIDEST_VECTOR, 3 * LEAST_TURNED_WIDE_PIXELS, 3 * LEAST_WIDE_PIXELS
    assert first(FEW_CHANNELS, 7, s=7) == first(FEW_CHANNELS, 7, s=7, layout="NHWC") == "planes"
    few = "depthwise" if op.result == "input" else "planes"
    assert first(FEW_CHANNELS + 1, size) == first(many, MOST_TURNED_PIXELS // 60) == "planes"
    assert first(FEW_CHANNELS + 1, size, layout="NHWC") == few
    assert first(FEW_CHANNELS + 1, size - 3) == first(FEW_CHANNELS + 1, size, s=4) == "depthwise"
    assert first(many, long) == ("planes" if op.result == "filter" else "inplace")
    assert first(many, long - 3) == "inplace"
    assert first(many, LEAST_TURNED_WIDE_PIXELS, (3, 1)) == "planes"
    assert (
        first(many, LEAST_TURNED_WIDE_PIXELS - 1, (3, 1))
        == first(many, LEAST_TURNED_WIDE_PIXELS, (3, 1), s=5)
        == "inplace"
    )
    if op.result == "input":
        assert first(many, long, (2, 2), s=1) == first(many, long, (4, 4), r=7, s=7) == "inplace"


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
def test_large_images_are_turned_only_for_wide_strides(op):
    def first(stride, w):
        sizes = {
            "h": MOST_SMALL_PIXELS // 8,
            "w": w,
            "c": WIDEST_VECTOR,
            "m": 1,
            "r": 9,
            "padding": "SAME",
            "layout": "NCHW",
        }
        return besides_col2im(op, Problem(strides=(stride, 1), **sizes))[0]

    assert first(1, 8) == first(3, 9) == "inplace" and first(1, 9) == first(2, 9) == "depthwise"


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
def test_planes_are_taken_where_two_share_a_vector(op):
    def first(w, stride, **changed):
        sizes = {"n": 400, "h": 14, "w": w, "c": WIDEST_VECTOR, "m": 1, "strides": (stride, stride)}
        return accepting(op, replace(Problem(**sizes, padding="SAME", layout="NCHW"), **changed))[0]

    for stride, pixels in TWIN_PIXELS.items():
        least = max(pixels[0], LEAST_PIXELS_A_TAP * SQUARE_TAPS) if op.result == "filter" else pixels[0]
        assert {first(stride * width, stride) for width in range(least, pixels[-1] + 1)} == {"planes"}
        assert first(stride * (pixels[0] - 1), stride) == "inplace"
        for changed in (
            {"s": 5},
            {"r": 5},
            {"dilations": (2, 1)},
            {"dilations": (1, 2)},
            {"strides": (3 - stride, stride)},
        ):
            assert first(stride * pixels[-1], stride, **changed) == "inplace"


@every_size
def test_small_integers_give_exact_results(algorithm, op, problem, whole_level):
    for dtype in op.dtypes:
        operands, expected = exact_case(op, problem, dtype)
        got = running(algorithm)(op, problem, *operands, num_threads=2)
        assert_exact(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=few(problem))


@every_case
def test_random_numbers_lie_within_the_rounding_error(algorithm, op, problem):
    for dtype in op.dtypes:
        operands, expected = rounded_case(op, problem, dtype)
        got = running(algorithm)(op, problem, *operands)
        assert_close(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=few(problem))


@every_size
def test_threads_do_not_change_a_bit(algorithm, op, problem):
    for dtype in "float32", "float16":
        check_threads(running(algorithm), op, problem, dtype)


@pytest.mark.parametrize("op", [op for op in OPS_OF_KIND if op.result != "filter"], ids=str)
@pytest.mark.parametrize("gap", [0, 64, 1024, 2048])
def test_where_results_lie_does_not_change_a_bit(op, gap, whole_level):
    """At the same place of a page as what is read, or apart from it, which decides which tiles compute them."""
    problem = Problem(n=2, h=9, w=13, c=512, m=1, r=3, s=3, padding="SAME")
    operands = random_normal(op.shapes(problem), np.float32, seed=4)
    image = max(operands, key=np.size)
    memory = np.empty(image.nbytes + 2 * 4096, np.uint8)
    start = (image.ctypes.data + gap - memory.ctypes.data) % 4096
    out = memory[start : start + image.nbytes].view(np.float32).reshape(image.shape)
    running("inplace")(op, problem, *operands, out=out)
    assert_same_bits(out, running("inplace")(op, problem, *operands))


@every_tile
def test_nothing_is_read_beyond_the_last_element(algorithm, op, problem, whole_level, at_the_edge):
    for dtype in "float32", "float16":
        check_edge(running(algorithm), op, problem, dtype, at_the_edge)


@pytest.mark.parametrize(("algorithm", "op", "problem"), cases(**UNREACHED))
def test_what_no_product_reaches_is_zero(algorithm, op, problem, whole_level):
    assert algorithm in accepting(op, problem)
    for dtype in op.dtypes:
        operands = random_integers(op.shapes(problem), dtype_named(dtype), seed=3)
        out = op(problem, *operands)
        out[...] = 5
        running(algorithm)(op, problem, *operands, out=out)
        np.testing.assert_array_equal(out.astype(np.float64), 0)


@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
@pytest.mark.parametrize("taps", range(1, 8))
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize(("algorithm", "layout"), [("inplace", "NHWC"), ("inplace", "NCHW"), ("planes", "NCHW")])
def test_every_width_and_number_of_taps(algorithm, layout, op, taps, stride, whole_level):
    for width in range(1, 20, 1 if stride < 3 else 3):
        problem = Problem(
            n=1, h=5, w=width, c=33, m=1, r=taps, s=taps, strides=(stride, stride), padding="SAME", layout=layout
        )
        if algorithm not in accepting(op, problem):
            continue
        for dtype in ("float32", "bfloat16"):
            operands, expected = exact_case(op, problem, dtype)
            got = running(algorithm)(op, problem, *operands)
            assert_exact(got, expected, label=f"{op} {problem} {dtype}", mostly_zero_ok=True)


@given(
    op=st.sampled_from(OPS_OF_KIND),
    layout=st.sampled_from(["NHWC", "NCHW"]),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 30), st.integers(1, 90), st.integers(1, 70)),
    taps=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    dilations=st.tuples(st.integers(1, 6), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", (0, 3, 2, 2), (6, 2, 0, 11)]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
)
def test_any_shape(op, layout, sizes, taps, strides, dilations, padding, dtype):
    n, h, w, c = sizes
    c = max(c, WIDEST_VECTOR) if layout == "NHWC" else min(c, 4)
    problem = Problem(
        n=n, h=h, w=w, c=c, m=1, r=taps[0], s=taps[1], strides=strides, dilations=dilations, padding=padding, layout=layout
    )  # fmt: skip
    assume(all(axis[1] > 0 for axis in problem.axes) and len(accepting(op, problem)) > 1)
    operands = random_integers(op.shapes(problem), np.float64, seed=h)
    expected = op.expect(problem, *operands)
    for algorithm in accepting(op, problem):
        got = running(algorithm)(op, problem, *(operand.astype(dtype_named(dtype)) for operand in operands))
        assert_exact(got, expected, label=f"{op} {problem} {algorithm}", mostly_zero_ok=True)


INFINITE = [
    ("inplace", Problem(n=1, h=6, w=9, c=16, m=1, r=3, s=3, padding="SAME")),
    ("inplace", Problem(n=1, h=6, w=9, c=16, m=1, r=3, s=3, padding="SAME", layout="NCHW")),
    ("planes", Problem(n=1, h=6, w=19, c=2, m=1, r=3, s=3, padding="SAME", layout="NCHW")),
    ("planes", Problem(n=1, h=6, w=19, c=2, m=1, r=3, s=3, dilations=(2, 2), padding="SAME", layout="NCHW")),
    ("planes", Problem(n=1, h=9, w=40, c=2, m=1, r=3, s=4, strides=(3, 3), padding="SAME", layout="NCHW")),
    ("inplace", Problem(n=1, h=9, w=14, c=16, m=1, r=3, s=3, strides=(3, 3), padding="SAME")),
]


@pytest.mark.parametrize(("algorithm", "problem"), INFINITE)
@pytest.mark.parametrize("op", OPS_OF_KIND, ids=str)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("element", [0, 17, 323, -1])
def test_infinities_do_not_spread(algorithm, problem, op, value, at, element, whole_level):
    """Not to the zeros beside the image, nor to pixels that two tiles compute or one leaves out."""
    operands = random_normal(op.shapes(problem), np.float32, seed=11)
    operands[at].reshape(-1)[element % operands[at].size] = value
    with np.errstate(invalid="ignore"):
        expected = op.reference(problem, *(operand.astype(np.float64) for operand in operands))
    np.testing.assert_allclose(running(algorithm)(op, problem, *operands), expected, rtol=1e-4, atol=1e-4)
    assert np.isfinite(expected).any() and not np.isfinite(expected).all()
