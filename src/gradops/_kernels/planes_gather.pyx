# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[c, pixel] = sum_tap src[c, pixel + tap] filter[tap, c]: depthwise_conv2d_native and its input gradient, channels first.

In parallel: channels of images. Packed: what cannot be read where it lies (`_planes.pxd`). A register tile is one vector of neighbouring pixels in some
rows, which share what they load for a column of taps; of two lanes of columns one vector each, whose pixels are stored in turns.

*Assumes:* src, filter and dst are contiguous and aligned, pixels of a channel contiguous, one lane a channel; the problem is not empty; lanes have
z_step 1 or 2, those of rows tap_step 1 and at most TAPS taps; columns are one lane of all of them, or two with out_step 2, and have src_unit 1.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER, do_blocks
from _entry cimport exported, outcome
from _planes cimport ROWS, TAPS, Reader, View, column, first_cell, lanes_together, largest_reader, masks_size, reader, share, shared_size, view, view_size
from _problem cimport Lane, Problem, row_lanes, col_lanes, clear_dst, divide_up, smaller, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, MR, REAL_STORAGE, VL, all_finite, copy, item_size, keep, load, multiply_add, narrow, store, store_pair, widen_block, zero


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    Reader r                                            # of the first lanes of rows that are read together
    int64_t together                                    # how many
    int64_t size, lines                                 # reals of scratch for what is read, and for results of one lane of columns
    int64_t taps                                        # of the filter
    real *weights                                       # [channel][tap]
    int64_t shared                                      # reals of masks and zeros
    real *masks


cdef void plan(Gather *w) noexcept nogil:
    cdef Reader largest = largest_reader(w.g)
    w.r, w.together, w.taps = reader(w.g, 0), lanes_together(w.g), w.g.filter_rows * w.g.filter_cols
    w.size, w.lines, w.shared = view_size(w.g, &largest), largest.rows * largest.line, shared_size(w.g, &largest)


cdef bint pack_filter(const Gather *w) noexcept nogil:
    """Returns whether the filter is finite."""
    widen_block(w.storage, w.filter, w.g.filter_group, w.g.filter_x, w.g.groups, w.taps, w.weights, w.taps)
    return all_finite(w.weights, w.g.groups * w.taps)


cdef struct Columns:                                    # a lane of columns
    int64_t x, unit, taps                               # the column that the first pixel's first tap reads, from tap to tap, how many
    const real *masks                                   # [vector][tap][VL]
    const real *weights                                 # of the first tap
    int64_t weight_step


cdef struct Tile:                                       # some rows of a lane of rows
    View v
    Columns[2] lanes                                    # the one of even results first
    int64_t weight_row
    int64_t out_row                                     # distance of rows of results


cdef inline void sum_columns(int rows, int taps, int step, const Tile *s, const Columns *col, const real *const *x, const real *masks, vec *acc) noexcept nogil:
    """acc[r] = sum_(i, j) x[r step + i][j] weights[i, j] for a lane of columns. The loop is left at its end, as in gemm_ukr."""
    cdef real[TAPS] tap
    cdef vec v, mask
    cdef const real *weights = col.weights
    cdef int64_t j = 0, at
    cdef int i, k, m, r
    for r in range(rows):
        acc[r] = zero()
    while True:
        at = column(&s.v, col.x + j * col.unit)
        mask = load(masks + j * VL)
        for i in range(taps):
            tap[i] = weights[i * s.weight_row]
        for m in range((rows - 1) * step + taps):
            v = keep(load(x[m] + at), mask)
            for k in range((taps + step - 1) // step):  # the rows whose tap i it is
                i, r = m % step + k * step, m // step - k
                if i < taps and 0 <= r < rows:
                    acc[r] = multiply_add(tap[i], v, acc[r])
        weights += col.weight_step
        j += 1
        if j == col.taps:
            break


cdef inline void planes_ukr(int lanes, int rows, int taps, int step, const Tile *s, int64_t first, int64_t vector, int64_t cell, real *out) noexcept nogil:
    """out[r] = sum_(i, j) src[r step + i][j] weights[i, j] for r < rows, counted from `first`, one vector of pixels from `cell` on, of each lane, in
    turns; i < taps.

    *Assumes:* lanes, rows, taps and step are compile-time constants of the caller.
    """
    cdef vec[ROWS] acc, odd
    cdef const real *x[2 * ROWS + TAPS]
    cdef int64_t y = first * step
    cdef int m, r
    for m in range((rows - 1) * step + taps):
        x[m] = s.v.cells + (y + m) * s.v.row + cell if s.v.low <= y + m < s.v.high else s.v.zeros
    sum_columns(rows, taps, step, s, s.lanes, x, s.lanes[0].masks + vector * s.lanes[0].taps * VL, acc)
    if lanes == 2:
        sum_columns(rows, taps, step, s, s.lanes + 1, x, s.lanes[1].masks + vector * s.lanes[1].taps * VL, odd)
    for r in range(rows):
        if lanes == 2:
            store_pair(out + r * s.out_row, acc[r], odd[r])
        else:
            store(out + r * s.out_row, acc[r])


cdef inline bint few_rows(int64_t lanes, int64_t rows) noexcept nogil:
    """Whether there is such a register tile for more than 4 rows of taps, too: two lanes of columns seldom have them."""
    return lanes == 1 or rows <= 4


cdef inline void planes_tile(int lanes, int rows, int step, int64_t taps, const Tile *s, int64_t first, int64_t vector, int64_t cell, real *out) noexcept nogil:
    """planes_ukr for any taps <= TAPS."""
    if taps == 3: planes_ukr(lanes, rows, 3, step, s, first, vector, cell, out)
    elif taps == 1: planes_ukr(lanes, rows, 1, step, s, first, vector, cell, out)
    elif taps == 2: planes_ukr(lanes, rows, 2, step, s, first, vector, cell, out)
    elif taps == 4: planes_ukr(lanes, rows, 4, step, s, first, vector, cell, out)
    elif few_rows(lanes, rows) and taps == 5: planes_ukr(lanes, rows, 5, step, s, first, vector, cell, out)
    elif few_rows(lanes, rows) and taps == 6: planes_ukr(lanes, rows, 6, step, s, first, vector, cell, out)
    elif few_rows(lanes, rows) and taps == 7: planes_ukr(lanes, rows, 7, step, s, first, vector, cell, out)


cdef int64_t tile_rows(int64_t lanes, int64_t rows, int64_t step, int64_t taps) noexcept nogil:
    """Rows of the register tiles that cover a strip: 8, 7, 4 or 1."""
    if step == 1 and rows >= 7 and (lanes == 1 or (MR > 6 and taps <= 4)):
        return 8 if rows >= 8 and divide_up(rows, 8) * 8 <= divide_up(rows, 7) * 7 else 7
    return 4 if rows >= 4 else 1


cdef inline void tile_of(int64_t lanes, int64_t height, int64_t step, int64_t taps, const Tile *s, int64_t first, int64_t vector, int64_t cell, real *out) noexcept nogil:
    """planes_tile for the lanes and rows that there are for a step."""
    if lanes == 2:
        if MR > 6 and height == 8: planes_tile(2, 8, 1, taps, s, first, vector, cell, out)
        elif MR > 6 and height == 7: planes_tile(2, 7, 1, taps, s, first, vector, cell, out)
        elif height == 4: planes_tile(2, 4, 1, taps, s, first, vector, cell, out)
        else: planes_tile(2, 1, 1, taps, s, first, vector, cell, out)
    elif step == 1 and height == 8: planes_tile(1, 8, 1, taps, s, first, vector, cell, out)
    elif step == 1 and height == 7: planes_tile(1, 7, 1, taps, s, first, vector, cell, out)
    elif step == 1 and height == 4: planes_tile(1, 4, 1, taps, s, first, vector, cell, out)
    elif step == 1: planes_tile(1, 1, 1, taps, s, first, vector, cell, out)
    elif height == 4: planes_tile(1, 4, 2, taps, s, first, vector, cell, out)
    else: planes_tile(1, 1, 2, taps, s, first, vector, cell, out)


cdef void aim(Tile *s, const Gather *w, const View *v, int64_t y, const Lane *row, const real *weights, int64_t out_row) noexcept nogil:
    """At a lane of rows, whose first tap reads row y of the view. Number by number: vectors of what has just been written would have to wait for it."""
    cdef const real *masks = w.masks
    cdef const Lane *col
    cdef Columns *columns
    cdef int64_t i
    s.weight_row, s.out_row = row.filter_step * w.g.filter_cols, out_row
    s.v.cells, s.v.row, s.v.zeros = v.cells + y * v.row, v.row, v.zeros
    s.v.low, s.v.high, s.v.odd, s.v.half = v.low - y, v.high - y, v.odd, v.half
    for i in range(w.g.col_lanes):
        col = col_lanes(w.g) + i
        columns = s.lanes + (col.out_start if w.g.col_lanes == 2 else 0)
        columns.x, columns.unit, columns.taps = col.src_start, col.tap_step, col.taps
        columns.weights, columns.weight_step = weights + row.filter_start * w.g.filter_cols + col.filter_start, col.filter_step
        columns.masks = masks
        masks += masks_size(&w.r, col)


cdef void compute_rows(const Gather *w, const Tile *s, const Lane *row, int64_t rows, real *out) noexcept nogil:
    """out[r out_row + q] for the pixels q of a strip, up to a vector of each lane; the last tile begins early enough to be full."""
    cdef int64_t lanes = w.g.col_lanes, height = tile_rows(lanes, rows, row.z_step, row.taps), i, r, v, cell
    for v in range(divide_up(w.r.col.count, VL)):
        cell = first_cell(&w.r, v)
        for i in range(divide_up(rows, height)):
            r = smaller(i * height, rows - height)
            tile_of(lanes, height, row.z_step, row.taps, s, r, v, cell, out + r * s.out_row + lanes * cell)


cdef void store_rows(const Gather *w, const real *lines, int64_t line, int64_t rows, real *spare, char *dst, int64_t step) noexcept nogil:
    """Narrows rows of results; those that lie side by side in dst all at once."""
    cdef int64_t size = item_size(w.storage), cols = w.g.dst_cols, r
    if w.storage == REAL_STORAGE:
        for r in range(rows):
            copy(lines + r * line, cols, <real *> dst + r * step)
        return
    if step != cols:
        for r in range(rows):
            narrow(w.storage, lines + r * line, cols, dst + r * step * size)
        return
    for r in range(rows):
        copy(lines + r * line, cols, spare + r * cols)
    narrow(w.storage, spare, rows * cols, dst)


cdef void gather_strip(const Gather *w, const View *v, int64_t y, const Lane *row, const real *weights, int64_t t, int64_t rows, char *dst, real *lines) noexcept nogil:
    """Rows t.. of a lane of rows: where they lie, if their vectors are full."""
    cdef int64_t step = row.out_step * w.g.dst_y, line = w.g.col_lanes * w.r.line
    cdef char *at = dst + (row.out_start * w.g.dst_y + t * step) * item_size(w.storage)
    cdef bint full = w.storage == REAL_STORAGE and w.g.col_lanes * w.r.col.count == w.g.dst_cols and w.r.col.count >= VL
    cdef Tile s
    aim(&s, w, v, y, row, weights, step if full else line)
    if full:
        compute_rows(w, &s, row, rows, <real *> at)
        return
    compute_rows(w, &s, row, rows, lines)
    store_rows(w, lines, line, rows, lines + w.g.col_lanes * w.lines, at, step)


cdef void gather_lanes(const Gather *w, const Reader *r, int64_t first, int64_t plane, real *scratch) noexcept nogil:
    """The lanes of rows of one plane that are read together, strip by strip."""
    cdef const Problem *g = w.g
    cdef const Lane *row
    cdef const real *weights = w.weights + plane % g.groups * w.taps
    cdef char *dst = w.dst + plane * g.dst_rows * g.dst_cols * item_size(w.storage)
    cdef int64_t t = 0, rows, own, i
    cdef View v
    while t < r.row.count:
        rows = smaller(r.rows, r.row.count - t)
        v = view(g, w.storage, r, w.src, plane, t, rows, w.masks, scratch)
        for i in range(first, first + w.together):
            row = row_lanes(g) + i
            own = smaller(rows, row.count - t)
            if own > 0:
                gather_strip(w, &v, row.src_start - r.row.src_start, row, weights, t, own, dst, scratch + w.size)
        t += rows


cdef void gather_plane(const void *work, int64_t plane, void *slab) noexcept nogil:
    """One channel of one image."""
    cdef const Gather *w = <const Gather *> work
    cdef real *scratch = <real *> slab
    cdef int64_t i
    cdef Reader r
    gather_lanes(w, &w.r, 0, plane, scratch)
    for i in range(1, w.g.row_lanes // w.together):
        r = reader(w.g, i)
        gather_lanes(w, &r, i, plane, scratch)


cdef int drive(Gather *w, int threads, bint *finite) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef int64_t panels, scratch_size
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    if g.row_lanes == 0:                                # no pixel has a tap
        return 0
    plan(w)
    threads = useful_threads(g, g.images * g.groups, threads)
    panels = padded(g.groups * w.taps)
    scratch_size = padded(w.size + 2 * g.col_lanes * w.lines)
    w.weights = allocate(panels + w.shared + threads * scratch_size)
    if w.weights == NULL:
        return 1
    w.masks = w.weights + panels
    finite[0] = pack_filter(w)
    share(g, &w.r, False, w.shared, w.masks)
    do_blocks(gather_plane, w, g.images * g.groups, threads, IN_ORDER, w.masks + w.shared, scratch_size * sizeof(real))
    release(w.weights)
    return 0


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dst. MIXED if the filter is not finite: its products with the zeros of the padding are NaN."""
    cdef Gather w
    cdef bint finite = True
    w.g = <const Problem *> problem
    w.storage = storage
    w.src = <const char *> inputs[0]
    w.filter = <const char *> inputs[1]
    w.dst = <char *> out
    return outcome(drive(&w, num_threads, &finite), &finite)


entry = exported(compute)
