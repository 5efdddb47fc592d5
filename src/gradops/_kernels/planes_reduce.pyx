# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[tap, c] = sum_pixel x[c, pixel + tap] dy[c, pixel]: depthwise_conv2d_native_backprop_filter, channels first.

In parallel: blocks of (span of images, channels); each span sums into its own partial dw, and the partials are added in order. Packed: what
cannot be read where it lies (`_planes.pxd`). A register tile is one vector of neighbouring pixels of some taps; what it loads of a row of x serves all
taps of a column, for which it remembers the rows of dy before. The lanes of its sums are added when a block ends.

*Assumes:* x, dy and dw are contiguous and aligned, pixels of a channel contiguous, one lane a channel; the problem is that of the forward op and not
empty; lanes have z_step 1 or 2, those of rows tap_step 1 and at most TAPS taps; columns are one lane with src_unit 1.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER
from _entry cimport exported, outcome
from _partials cimport Total, aim_total, store_block, sum_spans
from _planes cimport TAPS, Reader, View, column, fetch, largest_reader, reader, share, shared_size, view, view_size, widened
from _problem cimport Lane, Problem, divide_up, smaller, part, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, MR, REAL_STORAGE, VL, clear, copy, item_size, keep, load, store, transpose, zero

cdef enum:
    BLOCKS = 32                                         # channels, then images, are split until there are as many
    SUMS = 25                                           # of a register tile, at most


cdef struct Reduce:
    const Problem *g
    int storage
    const char *x
    const char *dy
    Total dw
    Reader r                                            # of the first lane of rows
    int64_t taps                                        # of the filter
    int64_t channels, blocks                            # of a block, at most; how many
    int64_t size, lines                                 # reals of scratch for what is read of x, and of dy
    int64_t shared                                      # reals of masks and zeros
    real *masks


cdef void plan(Reduce *w) noexcept nogil:
    """Chooses blocks and spans; by the problem alone, never by the number of threads."""
    cdef const Problem *g = w.g
    cdef Reader largest = largest_reader(g)
    w.r, w.taps = reader(g, 0), g.filter_rows * g.filter_cols
    w.size, w.lines, w.shared = view_size(g, &largest), padded(largest.rows * g.dst_cols + VL), shared_size(g, &largest)
    w.channels = smaller(divide_up(g.groups, BLOCKS), VL)
    w.blocks = divide_up(g.groups, w.channels)
    w.dw.size = w.taps * g.groups
    w.dw.spans = smaller(g.images, divide_up(BLOCKS, w.blocks))


cdef struct Tile:                                       # a strip of a channel
    View v
    int64_t x, unit                                     # the column that the first pixel's first tap reads, from tap to tap
    int64_t rows, vectors                               # of dy
    const real *dy
    int64_t dy_row
    int64_t tap_rows, tap_cols
    const real *masks                                   # [vector][tap][VL]
    int64_t sums_row, sums_col                          # distances of the sums of taps


cdef inline void planes_ukr(int taps, int wide, int step, const Tile *s, int64_t tap, real *sums) noexcept nogil:
    """sums[i][j] += sum_(r, q) x[r step + i][tap + j of q] dy[r][q] for i < taps, j < wide and all rows and columns of a strip.

    Loops are left at their ends, as in `gemm_ukr`, so that sums stay in registers.

    *Assumes:* taps, wide and step are compile-time constants of the caller; a strip has rows and vectors.
    """
    cdef vec[SUMS] acc
    cdef vec[TAPS] d
    cdef vec v
    cdef vec[TAPS] mask
    cdef int64_t[TAPS] at
    cdef const real *x
    cdef const real *dy
    cdef int64_t q = 0, r, y
    cdef int i, j, k, p
    for i in range(taps):
        for j in range(wide):
            acc[i * wide + j] = load(sums + i * s.sums_row + j * s.sums_col)
    while True:
        for k in range((taps + step - 1) // step):
            d[k] = zero()
        for j in range(wide):
            at[j] = column(&s.v, s.x + (tap + j) * s.unit)
            mask[j] = load(s.masks + (q * s.tap_cols + tap + j) * VL)
        dy, y, r = s.dy + q * VL, 0, s.rows + (taps + step - 1) // step - 1
        while True:
            for k in range((taps + step - 1) // step - 1, 0, -1):
                d[k] = d[k - 1]
            d[0] = load(dy) if r >= (taps + step - 1) // step else zero()
            for p in range(step):
                x = s.v.cells + y * s.v.row + q * VL if s.v.low <= y < s.v.high else s.v.zeros
                for j in range(wide):
                    v = keep(load(x + at[j]), mask[j])
                    for k in range((taps + step - 1 - p) // step):
                        i = p + k * step
                        acc[i * wide + j] += v * d[k]
                y += 1
            dy += s.dy_row
            r -= 1
            if r == 0:
                break
        q += 1
        if q == s.vectors:
            break
    for i in range(taps):
        for j in range(wide):
            store(sums + i * s.sums_row + j * s.sums_col, acc[i * wide + j])


cdef inline int tile_cols(int taps) noexcept nogil:
    """Columns of taps of a register tile with so many rows of them: enough for an addition to end before the next one to its sum, if they fit."""
    if taps > 4 and MR <= 6:
        return 1
    if taps == 5:
        return 5
    return 4 if taps < 3 else 3


cdef inline void planes_tile(int taps, int step, const Tile *s, real *sums) noexcept nogil:
    """planes_ukr for all columns of taps."""
    cdef int64_t tap = 0
    while s.tap_cols - tap >= tile_cols(taps):
        planes_ukr(taps, tile_cols(taps), step, s, tap, sums + tap * s.sums_col)
        tap += tile_cols(taps)
    while tap < s.tap_cols:
        planes_ukr(taps, 1, step, s, tap, sums + tap * s.sums_col)
        tap += 1


cdef inline void planes_taps(int step, const Tile *s, real *sums) noexcept nogil:
    """planes_tile for any rows of taps <= TAPS."""
    if s.tap_rows == 3: planes_tile(3, step, s, sums)
    elif s.tap_rows == 1: planes_tile(1, step, s, sums)
    elif s.tap_rows == 2: planes_tile(2, step, s, sums)
    elif s.tap_rows == 4: planes_tile(4, step, s, sums)
    elif s.tap_rows == 5: planes_tile(5, step, s, sums)
    elif s.tap_rows == 6: planes_tile(6, step, s, sums)
    elif s.tap_rows == 7: planes_tile(7, step, s, sums)


cdef const real *rows_of_dy(const Reduce *w, const Lane *row, int64_t plane, int64_t t, int64_t rows, int64_t *step, real *lines) noexcept nogil:
    """Rows t.. of a lane, at a distance; copied to `lines` where they are stored otherwise, or where the last vector would reach over the end of the array."""
    cdef const Problem *g = w.g
    cdef int64_t cols = g.dst_cols, r
    cdef const char *dy = w.dy + (plane * g.dst_rows + row.out_start + row.out_step * t) * cols * item_size(w.storage)
    cdef const real *reals = widened(w.storage, dy, row.out_step * cols, rows, cols, lines)
    fetch(g, w.storage, dy, rows * row.out_step * cols)
    step[0] = row.out_step * cols
    if w.storage == REAL_STORAGE and (g.images * g.groups - 1 - plane) * g.dst_rows * cols >= VL:
        return reals
    if w.storage == REAL_STORAGE:
        for r in range(rows):
            copy(reals + r * step[0], cols, lines + r * cols)
    store(lines + rows * cols, zero())
    step[0] = cols
    return lines


cdef void reduce_lane(const Reduce *w, const Reader *r, int64_t plane, real *sums, real *scratch) noexcept nogil:
    """Adds one lane of rows of a plane, strip by strip."""
    cdef const Problem *g = w.g
    cdef int64_t t = 0
    cdef Tile s
    s.x, s.unit, s.vectors, s.tap_rows, s.tap_cols = r.col.src_start, r.col.tap_step, r.line // VL, r.row.taps, r.col.taps
    s.masks, s.sums_col = w.masks, w.channels * VL
    s.sums_row = g.filter_cols * s.sums_col
    while t < r.row.count:
        s.rows = smaller(r.rows, r.row.count - t)
        s.v = view(g, w.storage, r, w.x, plane, t, s.rows, w.masks, scratch)
        s.dy = rows_of_dy(w, &r.row, plane, t, s.rows, &s.dy_row, scratch + w.size)
        if r.row.z_step == 1:
            planes_taps(1, &s, sums)
        else:
            planes_taps(2, &s, sums)
        t += s.rows


cdef void reduce_plane(const Reduce *w, int64_t plane, real *sums, real *scratch) noexcept nogil:
    """Adds one channel of one image."""
    cdef int64_t i
    cdef Reader r
    reduce_lane(w, &w.r, plane, sums, scratch)
    for i in range(1, w.g.row_lanes):
        r = reader(w.g, i)
        reduce_lane(w, &r, plane, sums, scratch)


cdef void add_lanes(const Reduce *w, int64_t channels, const real *sums, real *dw) noexcept nogil:
    """dw[tap][channel] = sum_i sums[tap][channel][i], VL channels a tap."""
    cdef int64_t tap, c, i
    cdef real[256] block, turned
    cdef vec total
    clear(block, VL * VL)
    for tap in range(w.taps):
        for c in range(channels):
            store(block + c * VL, load(sums + (tap * w.channels + c) * VL))
        transpose(block, VL, turned, VL)
        total = load(turned)
        for i in range(1, VL):
            total += load(turned + i * VL)
        store(dw + tap * VL, total)


cdef void reduce_block(const void *work, int64_t index, void *scratch) noexcept nogil:
    """Some channels, summed over one span."""
    cdef const Reduce *w = <const Reduce *> work
    cdef int64_t block = index % w.blocks, span = w.dw.wave.first + index // w.blocks, images = w.g.images, step = w.g.filter_group, n, c
    cdef int64_t first = block * w.channels, channels = smaller(w.channels, w.g.groups - first)
    cdef real *sums = <real *> scratch
    cdef real *dw = sums + padded(w.taps * w.channels * VL)
    clear(sums, w.taps * w.channels * VL)
    for n in range(part(images, span, w.dw.spans), part(images, span + 1, w.dw.spans)):
        for c in range(channels):
            reduce_plane(w, n * w.g.groups + first + c, sums + c * VL, dw + padded(w.taps * VL))
    add_lanes(w, channels, sums, dw)
    store_block(&w.dw, span, dw, VL, w.taps, channels, first * step, w.g.filter_x, step)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef int64_t scratch_size
    cdef int failed
    plan(w)
    threads = useful_threads(w.g, w.dw.spans * w.blocks, threads)
    scratch_size = padded(w.taps * w.channels * VL) + padded(w.taps * VL) + w.size + w.lines
    w.masks = allocate(w.shared)
    if w.masks == NULL:
        return 1
    share(w.g, &w.r, True, w.shared, w.masks)
    failed = sum_spans(&w.dw, reduce_block, w, w.blocks, threads, IN_ORDER, scratch_size)
    release(w.masks)
    return failed


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dw. MIXED if it is not finite: infinities may have met the zeros of the padding, or those beside a row."""
    cdef Reduce w
    cdef bint finite = True
    w.g, w.storage = <const Problem *> problem, storage
    w.x, w.dy = <const char *> inputs[0], <const char *> inputs[1]
    aim_total(&w.dw, storage, out, &finite)
    return outcome(drive(&w, num_threads), &finite)


entry = exported(compute)
