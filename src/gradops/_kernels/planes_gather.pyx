# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[c, pixel] = sum_tap src[c, pixel + tap] filter[tap, c]: depthwise_conv2d_native and its input gradient, channels first, or few of them last.

In parallel: channels of images. Packed: what cannot be read where it lies (`_planes.pxd`). A register tile is one vector of neighbouring pixels in as many
rows as there are taps in a column, to which each row of src is added as it is loaded, or one row if taps are apart or steps wide; of several lanes of columns one
vector each, whose pixels are stored in turns. Of 3x3 and 5x5 taps with stride 2 the four phases of the input gradient are computed together.

*Assumes:* src, filter and dst are contiguous and aligned, one lane a channel; the problem is not empty, and covered; lanes have a z_step up to MOST_STEP, those
of rows at most TAPS taps, neighbours or all apart, or none; columns are one lane of all of them, or as many with that out_step, and have src_unit 1.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER, do_blocks
from _entry cimport exported, outcome
from _planes cimport AHEAD, SQUARE, TAPS, Reader, View, alike, as_planes, comes_last, copy_size, first_cell, held_planes, lanes_together, largest_reader, load_columns, masks_size, planes_together, reach, reader, row_of, share, shared_size, turned_channels, view, view_size, walks_down
from _problem cimport Lane, Problem, row_lanes, col_lanes, divide_up, fetches_planes, larger, part, smaller, useful_threads
from _scratch cimport allocate, apart, padded, release
from _storage cimport real, vec, BFLOAT16, FLOAT16, MOST_STEP, REAL_STORAGE, MR, VL, WIDE, borrow_blocks, all_finite, cache_ways, fetch_lines, item_size, keep, load, multiply_add, narrow, narrow_block, prefetch_soon, spread_once, spread_twins, store_stored, store_stored_pairs, store_stored_twin_pairs, store_stored_twins, store_woven, unknown, widen_block, zero


cdef enum:
    HELD = 15                                           # weights that are held in registers, at most,
    MOST_WEIGHTS = 25                                   # and of filters whose taps are known
    PLANES = 16                                         # of a block, at most,
    BLOCKS = 16                                         # of which each thread has so many, at least
    TURNS = 2                                           # images, or parts of their channels, that each thread turns, at least


cdef int64_t WAYS = cache_ways()                        # of the first cache


cdef struct Tile                                        # some rows of a lane of rows, of one plane


ctypedef void (*walk_t)(const Tile *s) noexcept nogil


cdef struct Gather:
    const Problem *g
    int storage, held                                   # what planes are stored as, and computed from
    const char *src
    const char *filter
    char *dst
    Reader r                                            # of the first lanes of rows that are read together
    int64_t together                                    # how many
    int64_t size, lines                                 # reals of scratch for what is read, and for results of 16 bits
    int64_t taps                                        # of the filter
    real *weights                                       # [channel][tap]
    int64_t shared                                      # reals of masks and zeros
    real *masks
    int64_t planes                                      # of a block, at most
    bint phases                                         # whether all lanes of rows are computed at once
    walk_t walk, walk_none                              # the last one of rows without taps
    const Problem *given                                # whose channels come last, so that g is that of planes that are turned; else NULL
    int stored                                          # what it is stored as
    int64_t parts                                       # of the channels of an image,
    bint fetch                                          # whether later planes are fetched
    int64_t margin, cells, results                      # and reals of scratch before planes that are turned, for these, and for results


cdef void plan(Gather *w) noexcept nogil:
    cdef Reader largest = largest_reader(w.g)
    w.r, w.together, w.taps = reader(w.g, 0), lanes_together(w.g), w.g.filter_rows * w.g.filter_cols
    w.held = held_planes(w.g, w.storage, &w.r)
    w.phases = has_phases(w)
    w.fetch = w.r.twins and w.g.src_n != w.g.dst_n and not comes_last(w.g) and fetches_planes(w.g, item_size(w.storage), WAYS)
    w.walk, w.walk_none = walker(w), apart_walker(w.g, &w.r, w.held != REAL_STORAGE)
    w.size, w.shared = view_size(w.g, &largest), shared_size(w.g, &largest)
    w.lines = larger(largest.rows, w.r.planes * w.g.dst_rows if is_whole(w) else 0) * w.g.dst_cols if w.storage != w.held else 0


cdef bint pack_filter(const Gather *w) noexcept nogil:
    """Returns whether the filter is finite."""
    widen_block(w.stored, w.filter, w.g.filter_group, w.g.filter_x, w.g.groups, w.taps, w.weights, w.taps)
    return all_finite(w.weights, w.g.groups * w.taps)


cdef struct Columns:                                    # a lane of columns
    int64_t x, unit                                     # the column that the first pixel's first tap reads, from tap to tap, in bytes
    int64_t taps                                        # how many
    const real *masks                                   # [vector][tap][VL]
    const real *weights                                 # of the first tap
    int64_t weight_step


cdef struct Tile:
    View v
    Columns[MOST_STEP] lanes                            # in the order of their results
    int64_t weight_row
    int64_t tap_rows
    int64_t z_step, tap_step                            # of rows
    int64_t rows, pixels, cols                          # of the lanes; numbers of a row that are written
    int held                                            # what planes are computed from, and results
    char *out
    int64_t out_row                                     # distance of rows of results, in bytes
    int64_t twin_src, twin_weights, twin_out            # of twins: to those of the next plane, in bytes, but of weights
    int64_t ahead, out_ahead                            # how far ahead rows are fetched, in bytes


cdef inline void add_taps(int taps, int step, int rows, const vec *v, bint holds, const vec *held_weights, const real *weights, int64_t weight_row, vec *acc) noexcept nogil:
    """Adds what rows hold at a tap to the sums of the rows that have a tap there: acc[k] is row k before the last one. Two rows share a weight that is loaded."""
    cdef vec weight
    cdef int i, k, p
    for i in range(taps):
        if holds:
            weight = held_weights[i]
        elif rows > 1:
            weight = spread_once(weights + i * weight_row)
        for p in range(step * rows):
            if (i - p) % step == 0:
                k = (i - p) // step if step > 1 else rows - 1 - p + i
                acc[k] = acc[k] + weight * v[p] if holds or rows > 1 else multiply_add(weights[i * weight_row], v[p], acc[k])


cdef inline void add_lane(int held, bint twins, int taps, int cols, int step, int by, int rows, const char *const *x, const char *const *other, int64_t start, int64_t unit, const vec *mask, bint holds, const vec *held_weights, const real *weights, vec *acc) noexcept nogil:
    """Adds all rows of a step to the sums of a lane of columns that has so many taps in a row; start and unit are bytes, weights are [cols][taps]."""
    cdef vec[2 * TAPS] column
    cdef vec[2] v
    cdef int j, p
    for p in range(step * rows):
        load_columns(held, twins, cols, by, unit, x[p] + start, other[p] + start, column + p * cols)
    for j in range(cols):
        for p in range(step * rows):
            v[p] = keep(column[p * cols + j], mask[j])
        add_taps(taps, step, rows, v, holds, held_weights + j * taps, weights + j * taps, 1, acc)


cdef inline void add_any_lane(int held, int taps, int step, int by, int rows, const char *const *x, const char *const *other, const Columns *col, int64_t weight_row, const real *masks, vec *acc) noexcept nogil:
    """add_lane for any number of taps in a row."""
    cdef const real *weights = col.weights
    cdef vec[2] v
    cdef int64_t tap = 0
    cdef int p
    while True:
        for p in range(step * rows):
            load_columns(held, False, 1, by, 0, x[p] + col.x + tap * col.unit, other[p] + col.x + tap * col.unit, v + p)
            v[p] = keep(v[p], load(masks + tap * VL))
        add_taps(taps, step, rows, v, False, NULL, weights, weight_row, acc)
        weights += col.weight_step
        tap += 1
        if tap == col.taps:
            break


cdef inline void store_row(int held, bint twins, int lanes, int64_t some, int64_t ahead, int64_t twin, char *out, vec even, vec odd) noexcept nogil:
    """Writes one vector of results of each lane, as far as there are so many numbers, and fetches what lies ahead; or those of two planes, a distance of `twin`
    apart, which CPUs foresee."""
    if twins and lanes == 2:
        store_stored_twin_pairs(held, out, out + twin, some, even, odd)
    elif twins:
        store_stored_twins(held, out, out + twin, some, even)
    else:
        prefetch_soon(out + ahead)
        if lanes == 2:
            prefetch_soon(out + ahead + VL * item_size(held))
            store_stored_pairs(held, out, smaller(some, 2 * VL), even, odd)
        else:
            store_stored(held, out, smaller(some, VL), even)


cdef inline void store_turns(int lanes, int64_t some, int64_t ahead, char *out, const vec *sums) noexcept nogil:
    """store_row of any number of lanes."""
    cdef int lane
    for lane in range(lanes):
        prefetch_soon(out + ahead + lane * VL * <int64_t> sizeof(real))
    store_woven(lanes, <real *> out, some, sums)


cdef inline void shift(int window, int rows, vec *acc) noexcept nogil:
    """Makes place for the sums of so many new rows."""
    cdef int k
    for k in range(window - 1, -1, -1):
        acc[k] = acc[k - rows] if k >= rows else zero()


cdef inline void walk_down(int held, bint twins, int lanes, int taps, int one, int two, int step, int by, int rows, const Tile *s, int64_t cell, const Columns *col, const vec *mask, const real *const *masks, bint holds, const vec *held_weights, const real *weights) noexcept nogil:
    """planes_ukr for the vector of pixels from `cell` on. Some rows a step are added to the sums of all rows of out that have a tap there; for each of them, one
    is completed. What the loop needs is read before, since for all that compilers know, a tile lies in `out`."""
    cdef vec[2 * (TAPS + 1)] acc
    cdef const char *x[2]
    cdef const char *other[2]
    cdef int window = (taps + step - 1) // step + rows - 1, reads = step * rows, k, lane, p
    cdef int64_t first = s.v.low // step * step, steps = divide_up(s.v.high - first, reads) if s.v.low < s.v.high else 0, t = 0, end
    cdef int64_t size = item_size(held), some = s.cols - lanes * cell, ahead = s.ahead, out_ahead = s.out_ahead, out_row = s.out_row, src_row = reads * s.v.row, all_rows = s.rows, twin_out = s.twin_out
    cdef int64_t weight_row = s.weight_row, row = (first // step if steps else 0) - (window - rows)     # what step 0 completes
    cdef char *out = s.out + lanes * cell * size + row * out_row
    for k in range(lanes * window):
        acc[k] = zero()
    for t in range(smaller(row, all_rows)):
        store_row(held, twins, lanes, some, out_ahead, twin_out, out + (t - row) * out_row, zero(), zero())
    t = 0
    while t < steps:                                    # as many as read rows that lie inside, or one that does not
        end = alike(&s.v, first, reads, t)
        for p in range(reads):
            x[p] = row_of(s.v.cells + by * cell * size, s.v.row, first + t * reads + p, s.v.low, s.v.high, s.v.zeros)
            other[p] = row_of(s.v.cells + s.twin_src, s.v.row, first + t * reads + p, s.v.low, s.v.high, s.v.zeros) if twins else x[p] + VL * size
        while True:
            for p in range(reads):
                x[p] = <const char *> unknown(<const real *> x[p])
                if twins:
                    other[p] = <const char *> unknown(<const real *> other[p])
                else:
                    prefetch_soon(x[p] + ahead)
                if by == 2 and not twins:
                    other[p] = x[p] + VL * size
                    prefetch_soon(other[p] + ahead)
            if one:
                add_lane(held, twins, taps, one, step, by, rows, x, other, col[0].x, col[0].unit, mask, holds, held_weights, weights, acc)
            else:
                add_any_lane(held, taps, step, by, rows, x, other, col, weight_row, masks[0], acc)
            if two:
                add_lane(held, twins, taps, two, step, by, rows, x, other, col[1].x, col[1].unit, mask + one, holds, held_weights + taps * one, weights + taps * one, acc + window)
            elif lanes == 2:
                add_any_lane(held, taps, step, by, rows, x, other, col + 1, weight_row, masks[1], acc + window)
            for p in range(reads):
                x[p] += src_row
                if twins:
                    other[p] += src_row
            for k in range(window - 1, window - 1 - rows, -1):
                if 0 <= row < all_rows:
                    store_row(held, twins, lanes, some, out_ahead, twin_out, out, acc[k], acc[(lanes - 1) * window + k])
                row, out = row + 1, out + out_row
            for lane in range(lanes):
                shift(window, rows, acc + lane * window)
            t += 1
            if t == end:
                break
    while row < all_rows:
        if row >= 0:
            store_row(held, twins, lanes, some, out_ahead, twin_out, out, acc[window - 1], acc[lanes * window - 1])
        row, out = row + 1, out + out_row
        for lane in range(lanes):
            shift(window, 1, acc + lane * window)


cdef inline void planes_ukr(int held, bint twins, int lanes, int taps, int one, int two, int step, int by, int rows, const Tile *s) noexcept nogil:
    """out[r][q] = sum_(i, j) src[r step + i][q by + j] weights[i, j] for all rows and pixels of each lane, in turns; i < taps: walks down src, a vector of pixels
    after the other. Loops are left at their ends, as in `gemm_ukr`, so that sums stay in registers. Where taps are apart or steps wide, step is 0, and taps is 0 for
    any number of them.

    *Assumes:* held, twins, lanes, taps, one, two, step, by and rows are compile-time constants of the caller; one and two are the taps in a row of each lane, which
    are neighbours if by two, or 0 for any; rows is 1 if step is 2. Of twins, registers hold the weights.
    """
    cdef vec[HELD] held_weights
    cdef vec[2 * TAPS] mask
    cdef real[MOST_WEIGHTS] weights
    cdef Columns[MOST_STEP] col
    cdef const real *square = unknown(weights) if rows > 1 else weights     # two rows a step read them from memory, and need the registers
    cdef const real *masks[MOST_STEP]
    cdef const real *at
    cdef bint holds = MR > 6 and 0 < taps * (one + two) <= HELD
    cdef int64_t vector = 0
    cdef int i, j, lane
    for lane in range(lanes):
        col[lane] = s.lanes[lane]
    for j in range(one + two):
        lane = j >= one
        for i in range(taps):
            at = col[lane].weights + i * s.weight_row + (j - one if lane else j) * col[lane].weight_step
            if twins:
                held_weights[j * taps + i] = spread_twins(at, at + s.twin_weights)
            else:
                weights[j * taps + i] = at[0]
    for i in range(taps * (one + two) if holds and not twins else 0):
        held_weights[i] = spread_once(weights + i)
    while True:
        for lane in range(lanes):
            masks[lane] = col[lane].masks + vector * col[lane].taps * VL
        for j in range(one + two):
            mask[j] = load(masks[0] + j * VL if j < one else masks[1] + (j - one) * VL)
        if step == 0:
            walk_apart(held, lanes, taps, one, by, s, first_cell(s.pixels, vector), col, mask, masks, holds, held_weights, square)
        else:
            walk_down(held, twins, lanes, taps, one, two, step, by, rows, s, first_cell(s.pixels, vector), col, mask, masks, holds, held_weights, square)
        vector += 1
        if vector * VL >= s.pixels:
            break


cdef inline bint has_taps(const Tile *s, int by, int64_t one, int64_t two) noexcept nogil:
    """Whether lanes have so many taps in a row, which are neighbours if by two."""
    return s.lanes[0].taps == one and (two == 0 or s.lanes[1].taps == two) and (by == 1 or s.lanes[0].unit == item_size(s.held))


cdef inline void planes_cols(int held, int lanes, int taps, int step, int by, const Tile *s) noexcept nogil:
    """planes_ukr for any number of taps in a row; that of square filters is known."""
    cdef int rows = 2 if step == 1 and lanes == 1 and taps > 4 else 1
    if lanes == 1 and step == by and taps == 3 and has_taps(s, by, 3, 0): planes_ukr(held, False, 1, 3, 3, 0, step, by, rows, s)
    elif lanes == 1 and step == by and taps == 5 and has_taps(s, by, 5, 0): planes_ukr(held, False, 1, 5, 5, 0, step, by, rows, s)
    else: planes_ukr(held, False, lanes, taps, 0, 0, step, by, rows, s)


cdef inline void planes_taps(int held, int lanes, int step, int by, const Tile *s) noexcept nogil:
    """planes_cols for any rows of taps <= TAPS."""
    if s.tap_rows == 3: planes_cols(held, lanes, 3, step, by, s)
    elif s.tap_rows == 1: planes_cols(held, lanes, 1, step, by, s)
    elif s.tap_rows == 2: planes_cols(held, lanes, 2, step, by, s)
    elif s.tap_rows == 4: planes_cols(held, lanes, 4, step, by, s)
    elif s.tap_rows == 5: planes_cols(held, lanes, 5, step, by, s)
    elif s.tap_rows == 6: planes_cols(held, lanes, 6, step, by, s)
    elif s.tap_rows == 7: planes_cols(held, lanes, 7, step, by, s)


cdef inline void half_taps(int lanes, int step, int by, const Tile *s) noexcept nogil:
    """planes_taps for numbers of 16 bits."""
    if WIDE > 1 and s.held == BFLOAT16: planes_taps(BFLOAT16, lanes, step, by, s)
    elif WIDE > 1: planes_taps(FLOAT16, lanes, step, by, s)


cdef inline void held_twins(int step, const Tile *s) noexcept nogil:
    """planes_ukr for twins and what planes are computed from."""
    if s.held == REAL_STORAGE: planes_ukr(REAL_STORAGE, True, 1, SQUARE, SQUARE, 0, step, step, 1, s)
    elif WIDE > 1 and s.held == BFLOAT16: planes_ukr(BFLOAT16, True, 1, SQUARE, SQUARE, 0, step, step, 1, s)
    elif WIDE > 1 and s.held == FLOAT16: planes_ukr(FLOAT16, True, 1, SQUARE, SQUARE, 0, step, step, 1, s)


cdef void walk_ones(const Tile *s) noexcept nogil:
    planes_taps(REAL_STORAGE, 1, 1, 1, s)


cdef void walk_half_ones(const Tile *s) noexcept nogil:
    half_taps(1, 1, 1, s)


cdef void walk_twos(const Tile *s) noexcept nogil:
    planes_taps(REAL_STORAGE, 1, 2, 2, s)


cdef void walk_half_twos(const Tile *s) noexcept nogil:
    half_taps(1, 2, 2, s)


cdef void walk_rows_by_two(const Tile *s) noexcept nogil:
    planes_taps(REAL_STORAGE, 1, 2, 1, s)


cdef void walk_columns_by_two(const Tile *s) noexcept nogil:
    planes_taps(REAL_STORAGE, 1, 1, 2, s)


cdef void walk_lanes(const Tile *s) noexcept nogil:
    planes_taps(REAL_STORAGE, 2, 1, 1, s)


cdef void walk_half_lanes(const Tile *s) noexcept nogil:
    half_taps(2, 1, 1, s)


cdef void walk_twins(const Tile *s) noexcept nogil:
    held_twins(1, s)


cdef void walk_twins_by_two(const Tile *s) noexcept nogil:
    held_twins(2, s)


include "planes_gather_apart.pxi"
include "planes_gather_phases.pxi"


cdef walk_t walker(const Gather *w) noexcept nogil:
    """For lanes of columns, the steps of rows and columns, and numbers of 16 bits or real ones, which have functions of their own: in one of both, real ones took
    1.03 times as long (Zen 4)."""
    cdef const Problem *g = w.g
    cdef const Reader *r = &w.r
    cdef bint halves = w.held != REAL_STORAGE
    if w.phases:
        return walk_twin_phases if r.twins else walk_phases if g.filter_rows == SQUARE else walk_more_phases
    if r.twins:
        return walk_twins if r.col.z_step == 1 else walk_twins_by_two
    if not walks_down(g):
        return apart_walker(g, r, halves)
    if g.col_lanes == 2:
        return walk_half_lanes if halves else walk_lanes
    if r.col.z_step == 1 and r.row.z_step == 1:
        return walk_half_ones if halves else walk_ones
    if r.col.z_step == 1:
        return walk_rows_by_two
    if r.row.z_step == 1:
        return walk_columns_by_two
    return walk_half_twos if halves else walk_twos


cdef void aim(Tile *s, const Gather *w, const Reader *r, const View *v, const Lane *row, const real *weights, int64_t rows) noexcept nogil:
    """At rows of a lane of rows, of which the view has those of the reader."""
    cdef const real *masks = w.masks
    cdef const Lane *col
    cdef Columns *columns
    cdef int64_t y = row.src_start - r.row.src_start, i
    s.held, s.rows, s.pixels, s.tap_rows, s.weight_row = w.held, rows, w.r.col.count, row.taps, row.filter_step * w.g.filter_cols
    s.v.cells, s.v.row, s.v.zeros = v.cells + y * v.row, v.row, v.zeros
    s.z_step, s.tap_step = row.z_step, row.tap_step
    s.v.low, s.v.high = larger(v.low - y, 0), smaller(v.high - y, reach(row, rows))
    for i in range(w.g.col_lanes):
        col = col_lanes(w.g) + i
        columns = s.lanes + (col.out_start if w.g.col_lanes > 1 else 0)
        columns.x, columns.unit, columns.taps = col.src_start * item_size(w.held), col.tap_step * item_size(w.held), col.taps
        columns.weights, columns.weight_step = weights + row.filter_start * w.g.filter_cols + col.filter_start, col.filter_step
        columns.masks = masks
        masks += masks_size(&w.r, col)


cdef bint is_whole(const Gather *w) noexcept nogil:
    """Whether planes are computed at once: they are one strip, for all lanes of rows, which have all rows."""
    return w.r.rows == w.r.row.count and w.together == w.g.row_lanes


cdef void aim_results(Tile *s, const Gather *w, const Lane *row, char *dst, int64_t t, real *lines) noexcept nogil:
    """At rows t.. of a plane of dst, of one like it in scratch, or at lines of scratch."""
    cdef bint direct = w.storage == w.held
    cdef int64_t size = item_size(w.held)
    s.out, s.out_row, s.cols = <char *> lines, w.g.dst_cols * size, w.g.dst_cols
    if direct or is_whole(w):
        s.out, s.out_row = (dst if direct else <char *> lines) + (row.out_start + t * row.out_step) * w.g.dst_y * size, row.out_step * w.g.dst_y * size
    s.out_ahead = s.rows * s.out_row if direct else 0


cdef void store_rows(const Gather *w, const Lane *row, int64_t t, int64_t rows, const real *lines, char *dst) noexcept nogil:
    """Narrows rows of a lane of rows to a plane of dst, from lines."""
    cdef int64_t r
    for r in range(rows):
        narrow(w.storage, lines + r * w.g.dst_cols, w.g.dst_cols, dst + (row.out_start + (t + r) * row.out_step) * w.g.dst_y * item_size(w.storage))


cdef void gather_lanes(const Gather *w, const Reader *r, int64_t first, int64_t plane, int64_t planes, real *scratch) noexcept nogil:
    """The lanes of rows of some planes that are read together, strip by strip."""
    cdef const Problem *g = w.g
    cdef const Lane *row
    cdef char *dst = w.dst + plane * g.dst_rows * g.dst_cols * item_size(w.storage)
    cdef real *lines = scratch + w.size
    cdef int64_t t = 0, rows, i, done, some
    cdef int64_t size = item_size(w.held), stored = item_size(w.storage)
    cdef bint direct = w.storage == w.held, whole = is_whole(w)
    cdef View v
    cdef Tile[MOST_STEP] tiles
    cdef Tile *s
    while t < r.row.count:
        rows = smaller(r.rows, r.row.count - t)
        v = view(g, w.storage, w.held, r, w.src, plane, planes, t, rows, w.masks, scratch)
        for i in range(w.together):
            s, row = tiles + i, row_lanes(g) + first + i
            aim(s, w, r, &v, row, w.weights + plane % g.groups * w.taps, smaller(rows, row.count - t))
            aim_results(s, w, row, dst, t, lines)
            s.ahead = 0 if i else rows * r.row.z_step * v.row
        done = 0
        while done < planes:
            some = smaller(planes - done, 2) if r.twins else 1
            if w.fetch:
                fetch_lines(w.src + (plane + done + AHEAD) * g.src_rows * g.src_cols * stored, some * g.src_rows * g.src_cols * stored, False)
                fetch_lines(w.dst + (plane + done + AHEAD) * g.dst_rows * g.dst_cols * stored, some * g.dst_rows * g.dst_cols * stored, True)
            for i in range(w.together):
                s = tiles + i
                s.twin_src, s.twin_weights, s.twin_out = (some - 1) * g.src_rows * g.src_cols * size, (some - 1) * w.taps, (some - 1) * g.dst_rows * g.dst_cols * size
            if w.phases:
                w.walk(tiles)
            for i in range(w.together):
                s = tiles + i
                if s.rows > 0 and not w.phases:
                    (w.walk if s.tap_rows else w.walk_none)(s)
                    if not direct and not whole:
                        store_rows(w, row_lanes(g) + first + i, t, s.rows, lines, dst)
                advance(s, w, some)
            done += some
        t += rows
    if whole and not direct:
        narrow(w.storage, lines, planes * g.dst_rows * g.dst_cols, dst)


cdef inline void advance(Tile *s, const Gather *w, int64_t planes) noexcept nogil:
    """By so many planes."""
    cdef int64_t i
    s.v.cells += planes * w.g.src_rows * w.g.src_cols * item_size(w.held)
    s.out += planes * w.g.dst_rows * w.g.dst_cols * item_size(w.held)
    for i in range(w.g.col_lanes):
        s.lanes[i].weights += planes * w.taps


cdef int64_t planes_at_once(const Gather *w, int64_t plane, int64_t end) noexcept nogil:
    """How many planes have the same tiles from one on: of one image."""
    return planes_together(w.g, w.storage, w.held, &w.r, plane, smaller(end - plane, w.g.groups - plane % w.g.groups)) if is_whole(w) else 1


cdef void gather_some(const Gather *w, int64_t plane, int64_t end, real *scratch) noexcept nogil:
    """Some planes."""
    cdef int64_t count, i
    cdef Reader r
    while plane < end:
        count = planes_at_once(w, plane, end)
        gather_lanes(w, &w.r, 0, plane, count, scratch)
        for i in range(1, w.g.row_lanes // w.together):
            r = reader(w.g, i)
            gather_lanes(w, &r, i, plane, 1, scratch)
        plane += count


cdef void gather_turned(const Gather *w, int64_t index, real *scratch) noexcept nogil:
    """Some channels of an image that come last."""
    cdef const Problem *g = w.given
    cdef int64_t n = index // w.parts, first = part(g.groups, index % w.parts, w.parts), count = part(g.groups, index % w.parts + 1, w.parts) - first
    cdef int64_t src_size = g.src_rows * g.src_cols, dst_size = g.dst_rows * g.dst_cols, plane = g.groups + first, size = item_size(w.stored)
    cdef real *cells = scratch + w.margin
    cdef real *results = cells + w.cells
    cdef Gather near = w[0]
    near.src, near.dst = <const char *> (cells - plane * src_size), <char *> (results - plane * dst_size)
    widen_block(w.stored, w.src + (n * g.src_n + first) * size, 1, g.src_x, count, src_size, cells, src_size)
    gather_some(&near, plane, plane + count, results + w.results)
    narrow_block(w.stored, results, dst_size, count, dst_size, w.dst + (n * g.dst_n + first) * size, 1, g.dst_x)


cdef void gather_planes(const void *work, int64_t index, void *scratch) noexcept nogil:
    """Some channels of images."""
    cdef const Gather *w = <const Gather *> work
    if w.given != NULL:
        gather_turned(w, index, <real *> scratch)
    else:
        gather_some(w, index * w.planes, smaller((index + 1) * w.planes, w.g.images * w.g.groups), <real *> scratch)


cdef int64_t place_turned(Gather *w, int threads) noexcept nogil:
    """Chooses the channels that are turned at once, and where they lie; returns how many blocks there are."""
    cdef const Problem *g = w.g
    cdef int64_t most = smaller(turned_channels(g), divide_up(g.groups, divide_up(TURNS * threads, g.images)))
    cdef Reader largest = largest_reader(g)
    w.parts = divide_up(g.groups, most)
    most = divide_up(g.groups, w.parts)
    w.margin, w.cells, w.results = largest.before, padded(most * g.src_rows * g.src_cols + largest.after), padded(most * g.dst_rows * g.dst_cols)
    return g.images * w.parts


cdef int drive(Gather *w, int threads, bint *finite) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef bint last = comes_last(g)
    cdef int64_t panels, copied = copy_size(g), blocks, scratch_size
    w.stored, w.given = w.storage, NULL
    if last:
        w.storage = REAL_STORAGE
    plan(w)
    threads = useful_threads(g, g.images * g.groups, threads)
    w.planes = larger(smaller(g.images * g.groups // (BLOCKS * threads), PLANES), 1)
    w.margin = w.cells = w.results = 0
    blocks = place_turned(w, threads) if last else divide_up(g.images * g.groups, w.planes)
    threads = <int> smaller(threads, blocks)
    panels = padded(g.groups * w.taps)
    scratch_size = apart(padded(w.size + w.lines) + w.margin + w.cells + w.results, threads)
    w.weights = allocate(panels + w.shared + copied + threads * scratch_size)
    if w.weights == NULL:
        return 1
    w.masks = w.weights + panels
    finite[0] = pack_filter(w)
    share(g, &w.r, False, w.shared, w.masks)
    if last:
        w.given, w.g = g, as_planes(g, w.masks + w.shared)
    do_blocks(gather_planes, w, blocks, threads, IN_ORDER, w.masks + w.shared + copied, scratch_size * sizeof(real))
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


borrow_blocks()
entry = exported(compute)
