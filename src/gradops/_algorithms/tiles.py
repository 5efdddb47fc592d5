"""Where tiles of bfloat16 compute few channels of a result sooner than vectors of pixels do."""

from __future__ import annotations

from .patches import side_by_side
from .task import Task

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
"""Columns of a tile, and tiles of a block (TILE of vectors.h and MOST_FOLDED of conv_gather_fold.pxi)."""

TILED_OUTPUTS = {False: range(32, 193), True: range(64, 193)}
"""Of layers without and with strides that are not folded, channels last, and have at least two inputs. Time of `stem` over that of `conv` for 32 to 4 channels, 3x3
taps, 1.55, 48 to 3 1.4, 64 and 128 to 3 2.0 (224x224 pixels 1.2), 64 to 1 0.65; with strides 32 and 48 to 3 0.75 to 0.85, 64 and 96 to 3 to 6 1.1 to
1.9, 256 to 3 0.3; if patches lie side by side (4x4 and 2x2 taps) 1.7 to 2.5, 16x16 taps 1.0.
"""


def fills_tiles(task: Task) -> bool:
    """Whether few channels of an output or the gradient of an input are left to `conv`."""
    if task.last and side_by_side(task.rows) and side_by_side(task.cols):
        return True
    if not _folds(task):
        return task.last and task.channels > 1 and task.summed in TILED_OUTPUTS[task.strided]
    if task.last:
        return task.summed >= LEAST_FOLDED
    cols = task.cols
    banded = task.summed % 2 == 0 and any(_fills_rows(-(-cols.size // (cols.stride * times))) for times in range(1, 5))
    least = LEAST_FOLDED_PLANES[task.channels > 2]
    return banded and task.summed >= least and task.summed * cols.out <= LONGEST_FOLDED


def _fills_rows(columns: int) -> bool:
    """Whether a row of blocks is long enough for a band, and fills most of its tiles (`fills_tiles` of _band.pxd)."""
    return columns >= 6 and 4 * columns >= 3 * TILE * -(-columns // TILE)


def _folds(task: Task) -> bool:
    """Whether `conv_gather_fold` multiplies blocks of pixels: about, if patches are not centred on steps of the stride."""
    rows, cols = task.rows, task.cols
    taps, phases = rows.taps * cols.taps, rows.stride * cols.stride
    if task.dilated or cols.size < LEAST_FOLDED_PIXELS or taps == 1:
        return False
    windows = -(-rows.taps // rows.stride) * -(-cols.taps // cols.stride)
    tiles = -(-phases * task.channels // TILE)
    return phases == 1 or (tiles <= MOST_FOLDED_TILES and 4 * windows * tiles <= 3 * taps)
