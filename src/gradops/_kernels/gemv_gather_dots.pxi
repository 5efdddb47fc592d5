"""Part of `gemv_gather`: dots, vectors of slots. A register tile has the sums of some pixels with some rows of the filter, a vector each, whose lanes are added at the end."""
from libc.stdint cimport int64_t
from _patches cimport Patches
from _problem cimport divide_up, larger, smaller
from _scratch cimport padded
from _storage cimport real, vec, MR, REAL_STORAGE, VL, clear, item_size, load, prefetch_soon, store, transpose, widen_block

cdef enum:
    DOT_CHANNELS = 96                                   # of a block of dots, at most: their sums stay in the second cache
    PIXELS = 8                                          # of a register tile of dots, at most; of a level with 16 registers, 4
    ROWS = 6                                            # of a register tile of dots, at most: six streams of memory
    SUMS = 24                                           # of a register tile of dots, at most; of a level with 16 registers, 12


cdef inline int64_t dot_pixels(int64_t pixels) noexcept nogil:
    """Of a register tile, where there are so many in all."""
    cdef int64_t most = PIXELS if MR > 6 else PIXELS // 2
    return most if pixels > most // 2 else 4 if pixels > 2 else pixels


cdef inline int64_t dot_rows(int64_t pixels, int64_t left) noexcept nogil:
    """Of the next register tile of so many pixels, if so many rows are left."""
    cdef int64_t most = smaller((SUMS if MR > 6 else SUMS // 2) // pixels, ROWS)
    return most if left >= most else 1


cdef int64_t dots(const Gather *w, int64_t pixels) noexcept nogil:
    """How many of so many pixels are dots, rounded up to register tiles."""
    cdef int64_t count = 0 if w.rows else larger(pixels - columns(w, pixels), 0)
    return divide_up(count, dot_pixels(count)) * dot_pixels(count) if count else 0


cdef inline void dot_ukr(int pixels, int rows, int64_t vectors, const real *patch, int64_t ldp, const real *filter, int64_t ldf, int64_t ahead, const real *tail, real *sums) noexcept nogil:
    """sums[r][i] += patch[i] filter[r], vector by vector, then that of the tails. Fetches the rows of the filter `ahead`.

    *Assumes:* pixels and rows are compile-time constants of the caller.
    """
    cdef vec[SUMS] acc
    cdef vec[PIXELS] operand
    cdef vec f
    cdef const real *at[SUMS]
    cdef int64_t _v, x = 0
    cdef int i, r
    for r in range(rows):
        at[r] = filter + r * ldf
        for i in range(pixels):
            acc[r * pixels + i] = load(sums + (r * pixels + i) * VL)
    for _v in range(vectors):
        for i in range(pixels):
            operand[i] = load(patch + i * ldp + x)
        for r in range(rows):
            prefetch_soon(at[r] + ahead + x)
            f = load(at[r] + x)
            for i in range(pixels):
                acc[r * pixels + i] += operand[i] * f
        x += VL
    if tail != NULL:
        for i in range(pixels):
            operand[i] = load(patch + i * ldp + x)
        for r in range(rows):
            f = load(tail + r * VL)
            for i in range(pixels):
                acc[r * pixels + i] += operand[i] * f
    for r in range(rows):
        for i in range(pixels):
            store(sums + (r * pixels + i) * VL, acc[r * pixels + i])


cdef void dot_tile(int64_t pixels, int64_t rows, int64_t vectors, const real *patch, int64_t ldp, const real *filter, int64_t ldf, int64_t ahead, const real *tail, real *sums) noexcept nogil:
    """dot_ukr for the tiles that dot_pixels and dot_rows choose."""
    if MR > 6:
        if pixels == 8 and rows == 3: dot_ukr(8, 3, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
        elif pixels == 8: dot_ukr(8, 1, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
        elif pixels == 4 and rows == 6: dot_ukr(4, 6, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    if pixels == 4 and rows == 3: dot_ukr(4, 3, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 4 and rows == 1: dot_ukr(4, 1, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 2 and rows == 6: dot_ukr(2, 6, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 2: dot_ukr(2, 1, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 1 and rows == 6: dot_ukr(1, 6, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 1: dot_ukr(1, 1, vectors, patch, ldp, filter, ldf, ahead, tail, sums)


cdef inline int64_t rows_ld(const Gather *w) noexcept nogil:
    """Reals from a widened row of the filter to the next."""
    return padded(smaller(DEPTH, w.g.src_channels)) + 16


cdef void add_dots(const Gather *w, const Patches *p, const Block *b, int64_t tap, int64_t slot, int64_t depth) noexcept nogil:
    """sums[j][pixel] += patch[pixel] filter[j] for `depth` slots of a tap, tile by tile; what is left of whole vectors is copied beside zeros."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), j = 0, i, rows, row = g.filter_dst, whole = depth // VL, rest = depth % VL
    cdef real *tail = b.rows + ROWS * rows_ld(w)
    cdef int64_t tile = dot_pixels(b.dots)
    cdef const char *line
    cdef const real *at
    cdef const real *patch = b.patch + tap * tap_slots(p) + slot
    cdef real *sums = b.sums
    while j < b.channels:
        rows = dot_rows(tile, b.channels - j)
        line = filter_at(w, p, b, tap, slot, j)
        if w.storage == REAL_STORAGE:
            at = <const real *> line
        else:
            widen_block(w.storage, line, row, 1, rows, whole * VL, b.rows, rows_ld(w))
            at, row = b.rows, rows_ld(w)
        if rest:
            clear(tail, rows * VL)
            widen_block(w.storage, line + whole * VL * size, g.filter_dst, 1, rows, rest, tail, VL)
        for i in range(b.dots // tile):
            dot_tile(tile, rows, whole, patch + i * tile * b.ld, b.ld, at, row, rows * row if w.far else 0, tail if rest else NULL, sums)
            sums += rows * tile * VL
        row = g.filter_dst
        j += rows


cdef void add_lanes(const Gather *w, const Block *b, real *result) noexcept nogil:
    """result[pixel][j] = the sum of the lanes of each of the sums."""
    cdef int64_t total = b.channels * b.dots, tile = dot_pixels(b.dots), i, k, j = 0, rows, r
    cdef real *sums = b.sums
    cdef vec sum
    for i in range(divide_up(total, VL)):
        transpose(sums + i * VL * VL, VL, b.turned, VL)
        sum = load(b.turned)
        for k in range(1, VL):
            sum += load(b.turned + k * VL)
        store(sums + i * VL, sum)
    while j < b.channels:
        rows = dot_rows(tile, b.channels - j)
        for i in range(b.dots // tile):
            for r in range(rows):
                for k in range(tile):
                    result[(i * tile + k) * w.channels + j + r] = sums[r * tile + k]
            sums += rows * tile
        j += rows
