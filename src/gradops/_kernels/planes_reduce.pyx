# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[tap, c] = sum_pixel x[c, pixel + tap] dy[c, pixel]: depthwise_conv2d_native_backprop_filter, channels first, or few of them last.

In parallel: blocks of (span of images, channels); each span sums into its own partial dw, and the partials are added in order. Packed: what
cannot be read where it lies (`_planes.pxd`). A register tile is one vector of neighbouring pixels of some taps; what it loads of a row of x serves all
taps of a column, for which it remembers the rows of dy before. The lanes of its sums are added when a block ends.

*Assumes:* x, dy and dw are contiguous and aligned, one lane a channel; the problem is that of the forward op and not
empty; lanes have a z_step up to MOST_STEP, those of rows at most TAPS taps, neighbours or all apart; columns are one lane with src_unit 1.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER
from _entry cimport exported, outcome
from _partials cimport Total, aim_total, store_block, sum_spans
from _planes cimport SQUARE, TAPS, Reader, View, alike, as_planes, comes_last, copied_rows, copy_run, copy_size, held_planes, is_apart, largest_reader, load_columns, planes_together, reader, row_of, share, shared_size, turned_channels, view, view_size, walks_down
from _problem cimport Lane, Problem, divide_up, fetches_planes, larger, smaller, part, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, BFLOAT16, FLOAT16, MR, REAL_STORAGE, VL, WIDE, borrow_blocks, cache_ways, clear, fetch_lines, item_size, keep, load, load_stored, load_stored_twins, prefetch_soon, store, transpose, twin_lanes, unknown, upper_half, widen_block, zero

cdef enum:
    BLOCKS = 32                                         # channels, then images, are split until there are as many
    TURNS = 4                                           # blocks of channels of images that are turned, at least: each image by as few as possible
    SUMS = 25                                           # of a register tile, at most


cdef int64_t WAYS = cache_ways()                        # of the first cache


cdef struct Tile                                        # a strip of a channel


# Adds a strip to the sums of all taps.
ctypedef void (*walk_t)(const Tile *s, real *sums) noexcept nogil


cdef struct Reduce:
    const Problem *g
    int storage, held                                   # what planes are stored as, and computed from
    const char *x
    const char *dy
    Total dw
    Reader r                                            # of the first lane of rows
    int64_t taps                                        # of the filter
    int64_t channels, blocks                            # of a block, at most; how many
    int64_t size, lines                                 # reals of scratch for what is read of x, and of dy
    int64_t shared                                      # reals of masks and zeros
    real *masks
    walk_t walk
    bint fetch                                          # whether the planes of the next image are fetched
    bint each                                           # whether that is for one row of taps, where they are apart or steps wide
    const Problem *given                                # whose channels come last, so that g is that of planes that are turned; else NULL
    int stored                                          # what it is stored as
    int64_t margin, cells, results                      # reals of scratch before planes that are turned, for those of x, and of dy


cdef void plan(Reduce *w) noexcept nogil:
    """Chooses blocks and spans; by the problem alone, never by the number of threads."""
    cdef const Problem *g = w.g
    cdef Reader largest = largest_reader(g)
    w.r, w.taps = reader(g, 0), g.filter_rows * g.filter_cols
    w.held = held_planes(g, w.storage, &w.r)
    w.walk = walker(g, &w.r)
    w.fetch = not comes_last(g) and fetches_planes(g, item_size(w.storage), WAYS)
    w.each = not walks_down(g) and w.walk != walk_square
    w.size, w.lines, w.shared = view_size(g, &largest), padded(copied_rows(&largest, largest.rows, g.dst_rows) * g.dst_cols + VL), shared_size(g, &largest)
    w.channels = smaller(divide_up(g.groups, divide_up(TURNS, g.images) if comes_last(g) else BLOCKS), VL)
    if comes_last(g):
        w.channels = smaller(w.channels, turned_channels(g))
        w.margin, w.cells, w.results = largest.before, padded(w.channels * g.src_rows * g.src_cols + largest.after), padded(w.channels * g.dst_rows * g.dst_cols + VL)
    w.blocks = divide_up(g.groups, w.channels)
    w.dw.size = w.taps * g.groups
    w.dw.spans = smaller(g.images, divide_up(BLOCKS, w.blocks))


cdef struct Tile:
    View v
    int64_t x, unit                                     # the column that the first pixel's first tap reads, from tap to tap, in bytes
    int64_t rows, vectors                               # of dy
    int held                                            # what planes are computed from
    const char *dy
    int64_t dy_row                                      # in bytes
    int64_t tap_rows, tap_cols, tap_step                # the last one of rows
    const real *masks                                   # [vector][tap][VL]
    int64_t sums_row, sums_col                          # distances of the sums of taps
    int64_t x_ahead, dy_ahead                           # how far ahead rows are fetched, in bytes
    int64_t twin_x, twin_dy                             # of twins: to those of the next plane, or 0 if there is none, in bytes


cdef inline void store_sum(bint twins, bint both, real *sum, vec v) noexcept nogil:
    """Stores a tap's lanes: of twins, the second half belongs to the next channel, unless there is none."""
    store(sum, v if not twins or both else twin_lanes(v, upper_half(load(sum))))


cdef inline void planes_ukr(int held, bint twins, int taps, int wide, int step, int by, const Tile *s, int64_t tap, real *sums) noexcept nogil:
    """sums[i][j] += sum_(r, q) x[r step + i][q by + tap + j] dy[r][q] for i < taps, j < wide and all rows and columns of a strip. The first columns of taps
    fetch what lies ahead.

    Loops are left at their ends, as in `gemm_ukr`, so that sums stay in registers.

    *Assumes:* held, twins, taps, wide, step and by are compile-time constants of the caller; taps by two are neighbours unless wide is 1; a strip has vectors, and rows
    inside the image.
    """
    cdef vec[SUMS] acc
    cdef vec[TAPS] d                                    # rows of dy: that of tap 0 and those before
    cdef vec[TAPS] mask
    cdef vec[TAPS] column
    cdef const char *x[2]
    cdef const char *other[2]
    cdef const char *dy
    cdef const char *twin = NULL
    cdef int64_t first = s.v.low // step, rows = divide_up(s.v.high, step), begin = s.x + tap * s.unit, unit = s.unit, q = 0, r, end, dy_row
    cdef int64_t x_ahead = s.x_ahead if tap == 0 else 0, dy_ahead = s.dy_ahead if tap == 0 else 0, x_row = step * s.v.row
    cdef int64_t sums_row = s.sums_row, sums_col = s.sums_col, line = VL * item_size(held)
    cdef int window = (taps + step - 1) // step, i, j, k, p
    cdef bint both = s.twin_x != 0
    for i in range(taps):
        for j in range(wide):
            acc[i * wide + j] = load(sums + i * sums_row + j * sums_col)
    while True:
        for j in range(wide):
            mask[j] = load(s.masks + (q * s.tap_cols + tap + j) * VL)
        for k in range(1, window):
            dy = row_of(s.dy + q * line, s.dy_row, first - k, 0, s.rows, s.v.zeros)
            d[k - 1] = load_stored_twins(held, dy, row_of(s.dy + s.twin_dy, s.dy_row, first - k, 0, s.rows, s.v.zeros)) if twins else load_stored(held, dy)
        r = first
        while True:                                     # as many rows as lie inside, of dy and for all steps, or none of them
            end = alike(&s.v, first * step, step, r - first) + first
            if r < s.rows:
                end = smaller(end, s.rows)
            dy, dy_row = row_of(s.dy + q * line, s.dy_row, r, 0, s.rows, s.v.zeros), s.dy_row if r < s.rows else 0
            if twins:
                twin = row_of(s.dy + s.twin_dy, s.dy_row, r, 0, s.rows, s.v.zeros)
            for p in range(step):
                x[p] = row_of(s.v.cells + q * by * line, s.v.row, r * step + p, s.v.low, s.v.high, s.v.zeros) + begin
                other[p] = row_of(s.v.cells + s.twin_x, s.v.row, r * step + p, s.v.low, s.v.high, s.v.zeros) + begin if twins else x[p] + line
            while True:
                dy = <const char *> unknown(<const real *> dy)
                for k in range(window - 1, 0, -1):
                    d[k] = d[k - 1]
                if twins:
                    twin = <const char *> unknown(<const real *> twin)
                    d[0] = load_stored_twins(held, dy, twin)
                    twin += dy_row
                else:
                    d[0] = load_stored(held, dy)
                    prefetch_soon(dy + dy_ahead)
                for p in range(step):
                    x[p] = <const char *> unknown(<const real *> x[p])
                    if twins:
                        other[p] = <const char *> unknown(<const real *> other[p])
                    else:
                        prefetch_soon(x[p] + x_ahead)
                    if by == 2 and not twins:
                        other[p] = x[p] + line
                    for k in range(1, by if not twins else 1):
                        prefetch_soon(x[p] + k * line + x_ahead)
                    load_columns(held, twins, wide, by, unit, x[p], other[p], column)
                    for j in range(wide):
                        column[j] = keep(column[j], mask[j])
                        for k in range((taps + step - 1 - p) // step):
                            i = p + k * step
                            acc[i * wide + j] += column[j] * d[k]
                    x[p] += x_row
                    if twins:
                        other[p] += x_row
                dy += dy_row
                r += 1
                if r == end:
                    break
            if r == rows:
                break
        q += 1
        if q == s.vectors:
            break
    for i in range(taps):
        for j in range(wide):
            store_sum(twins, both, sums + i * sums_row + j * sums_col, acc[i * wide + j])


cdef inline void apart_ukr(int held, const Tile *s, real *sums) noexcept nogil:
    """planes_ukr for square filters whose taps are apart: each row of x meets the rows of dy that read it.

    *Assumes:* held is a compile-time constant of the caller; rows have no step.
    """
    cdef vec[SQUARE * SQUARE] acc
    cdef vec[SQUARE] mask
    cdef vec[SQUARE] column
    cdef vec d
    cdef const char *x
    cdef const char *at
    cdef int64_t low = s.v.low, high = s.v.high, rows = s.rows, x_row = s.v.row, dy_row = s.dy_row, unit = s.unit, tap_step = s.tap_step
    cdef int64_t x_ahead = s.x_ahead, dy_ahead = s.dy_ahead, line = VL * item_size(held), q, y, r
    cdef int i, j
    for i in range(SQUARE):
        for j in range(SQUARE):
            acc[i * SQUARE + j] = load(sums + i * s.sums_row + j * s.sums_col)
    for q in range(s.vectors):
        for j in range(SQUARE):
            mask[j] = load(s.masks + (q * SQUARE + j) * VL)
        x = s.v.cells + q * line + s.x + low * x_row
        for y in range(low, high):
            x = <const char *> unknown(<const real *> x)
            prefetch_soon(x + x_ahead)
            for j in range(SQUARE):
                column[j] = keep(load_stored(held, x + j * unit), mask[j])
            for i in range(SQUARE):
                r = y - i * tap_step
                if 0 <= r < rows:
                    at = s.dy + q * line + r * dy_row
                    if i == SQUARE // 2:
                        prefetch_soon(at + dy_ahead)
                    d = load_stored(held, at)
                    for j in range(SQUARE):
                        acc[i * SQUARE + j] += column[j] * d
            x += x_row
    for i in range(SQUARE):
        for j in range(SQUARE):
            store(sums + i * s.sums_row + j * s.sums_col, acc[i * SQUARE + j])


cdef inline int tile_cols(int taps) noexcept nogil:
    """Columns of taps of a register tile with so many rows of them: enough for an addition to end before the next one to its sum, if they fit."""
    if taps > 4 and MR <= 6:
        return 1
    if taps == 5:
        return 5
    return 4 if taps < 3 else 3


cdef inline void planes_tile(int held, int taps, bint wide, int step, int by, const Tile *s, real *sums) noexcept nogil:
    """planes_ukr for all columns of taps, several at once if wide: of one or two rows also the three of a row that are left, which one by one take 1.05 to 1.5 times
    as long (float32 and bfloat16, Zen 4)."""
    cdef int64_t tap = 0
    while wide and s.tap_cols - tap >= tile_cols(taps):
        planes_ukr(held, False, taps, tile_cols(taps), step, by, s, tap, sums + tap * s.sums_col)
        tap += tile_cols(taps)
    if wide and taps < SQUARE and s.tap_cols - tap == SQUARE:
        planes_ukr(held, False, taps, SQUARE, step, by, s, tap, sums + tap * s.sums_col)
        return
    while tap < s.tap_cols:
        planes_ukr(held, False, taps, 1, step, by, s, tap, sums + tap * s.sums_col)
        tap += 1


cdef inline void planes_by_more(int by, const Tile *s, real *sums) noexcept nogil:
    """planes_tile for one row of taps and a wide step: as many neighbours are picked from the same vectors."""
    cdef int64_t tap = 0
    while s.unit == sizeof(real) and s.tap_cols - tap >= by:
        planes_ukr(REAL_STORAGE, False, 1, by, 1, by, s, tap, sums + tap * s.sums_col)
        tap += by
    while tap < s.tap_cols:
        planes_ukr(REAL_STORAGE, False, 1, 1, 1, by, s, tap, sums + tap * s.sums_col)
        tap += 1


cdef inline void planes_taps(int held, bint wide, int step, int by, const Tile *s, real *sums) noexcept nogil:
    """planes_tile for any rows of taps <= TAPS."""
    if s.tap_rows == 3: planes_tile(held, 3, wide, step, by, s, sums)
    elif s.tap_rows == 1: planes_tile(held, 1, wide, step, by, s, sums)
    elif s.tap_rows == 2: planes_tile(held, 2, wide, step, by, s, sums)
    elif s.tap_rows == 4: planes_tile(held, 4, wide, step, by, s, sums)
    elif s.tap_rows == 5: planes_tile(held, 5, wide, step, by, s, sums)
    elif s.tap_rows == 6: planes_tile(held, 6, wide, step, by, s, sums)
    elif s.tap_rows == 7: planes_tile(held, 7, wide, step, by, s, sums)


cdef inline void held_taps(int step, const Tile *s, real *sums) noexcept nogil:
    """planes_taps for what planes are computed from."""
    if s.held == REAL_STORAGE: planes_taps(REAL_STORAGE, True, step, step, s, sums)
    elif WIDE > 1 and s.held == BFLOAT16: planes_taps(BFLOAT16, True, step, step, s, sums)
    elif WIDE > 1 and s.held == FLOAT16: planes_taps(FLOAT16, True, step, step, s, sums)


cdef inline void held_twins(int step, const Tile *s, real *sums) noexcept nogil:
    """planes_ukr for twins and what planes are computed from."""
    if s.held == REAL_STORAGE: planes_ukr(REAL_STORAGE, True, SQUARE, SQUARE, step, step, s, 0, sums)
    elif WIDE > 1 and s.held == BFLOAT16: planes_ukr(BFLOAT16, True, SQUARE, SQUARE, step, step, s, 0, sums)
    elif WIDE > 1 and s.held == FLOAT16: planes_ukr(FLOAT16, True, SQUARE, SQUARE, step, step, s, 0, sums)


cdef void walk_ones(const Tile *s, real *sums) noexcept nogil:
    held_taps(1, s, sums)


cdef void walk_twos(const Tile *s, real *sums) noexcept nogil:
    held_taps(2, s, sums)


cdef void walk_rows_by_two(const Tile *s, real *sums) noexcept nogil:
    planes_taps(REAL_STORAGE, True, 2, 1, s, sums)


cdef void walk_columns_by_two(const Tile *s, real *sums) noexcept nogil:
    planes_taps(REAL_STORAGE, False, 1, 2, s, sums)


cdef void walk_square(const Tile *s, real *sums) noexcept nogil:
    if s.held == REAL_STORAGE: apart_ukr(REAL_STORAGE, s, sums)
    elif WIDE > 1 and s.held == BFLOAT16: apart_ukr(BFLOAT16, s, sums)
    elif WIDE > 1 and s.held == FLOAT16: apart_ukr(FLOAT16, s, sums)


cdef void walk_dilated_twos(const Tile *s, real *sums) noexcept nogil:
    planes_taps(REAL_STORAGE, False, 2, 2, s, sums)


cdef void walk_by_three(const Tile *s, real *sums) noexcept nogil:
    planes_by_more(3, s, sums)


cdef void walk_by_four(const Tile *s, real *sums) noexcept nogil:
    planes_by_more(4, s, sums)


cdef void walk_twins(const Tile *s, real *sums) noexcept nogil:
    held_twins(1, s, sums)


cdef void walk_twins_by_two(const Tile *s, real *sums) noexcept nogil:
    held_twins(2, s, sums)


cdef walk_t walker(const Problem *g, const Reader *r) noexcept nogil:
    """For the steps of rows and columns: both by two, of which taps are neighbours or not, or one of them. Rows of taps that are apart, or wide steps, are walked one by one."""
    if r.twins:
        return walk_twins if r.col.z_step == 1 else walk_twins_by_two
    if is_apart(g) and r.row.taps == r.col.taps == SQUARE and r.row.z_step == r.col.z_step == 1:
        return walk_square
    if r.col.z_step > 2:
        return walk_by_three if r.col.z_step == 3 else walk_by_four
    if r.col.z_step == 1:
        return walk_ones if r.row.z_step == 1 or not walks_down(g) else walk_rows_by_two
    if r.row.z_step == 1 or not walks_down(g):
        return walk_columns_by_two
    return walk_twos if r.col.tap_step == 1 else walk_dilated_twos


cdef void walk_each(const Reduce *w, const Lane *row, const Tile *s, real *sums) noexcept nogil:
    """Adds a strip to the sums of one row of taps after the other. The middle one, which meets most rows, fetches what lies ahead, or as many as meet all rows do."""
    cdef int64_t i, y
    cdef Tile one
    for i in range(row.taps):
        y = i * row.tap_step
        one = s[0]
        one.tap_rows, one.v.cells, one.v.row = 1, s.v.cells + y * s.v.row, row.z_step * s.v.row
        one.v.low, one.v.high = divide_up(larger(s.v.low - y, 0), row.z_step), smaller(divide_up(larger(s.v.high - y, 0), row.z_step), s.rows)
        if i != row.taps // 2:
            one.dy_ahead = 0
        if i != row.taps // 2 if row.z_step == 1 else i >= row.z_step:
            one.x_ahead = 0
        if one.v.low < one.v.high:
            w.walk(&one, sums + i * s.sums_row)


cdef bint dy_lies(const Reduce *w, int64_t plane) noexcept nogil:
    """Whether rows of dy are read where they lie: none that the last vector would reach over the end of the array from."""
    return w.storage == w.held and (w.g.images * w.g.groups - 1 - plane) * w.g.dst_rows * w.g.dst_cols >= VL


cdef const char *rows_of_dy(const Reduce *w, const Lane *row, int64_t plane, int64_t planes, int64_t t, int64_t rows, int64_t *step, char *lines) noexcept nogil:
    """Rows t.. of a lane, at a distance, and of the planes after it; copied to `lines` unless they lie as they are read."""
    cdef const Problem *g = w.g
    cdef int64_t cols = g.dst_cols, size = g.dst_rows * cols, each = item_size(w.held), r
    cdef const char *dy = w.dy + (plane * size + (row.out_start + row.out_step * t) * cols) * item_size(w.storage)
    step[0] = row.out_step * cols * each
    if dy_lies(w, plane + planes - 1):
        return dy
    if row.out_step == 1:
        rows += (planes - 1) * g.dst_rows
        copy_run(w.storage, w.held, dy, rows * cols, lines)
    for r in range(rows if row.out_step > 1 else 0):
        copy_run(w.storage, w.held, dy + r * row.out_step * cols * item_size(w.storage), cols, lines + r * cols * each)
    store(<real *> (lines + rows * cols * each), zero())
    step[0] = cols * each
    return lines


cdef void reduce_lane(const Reduce *w, const Reader *r, int64_t plane, int64_t planes, real *sums, real *scratch) noexcept nogil:
    """Adds one lane of rows of some planes, strip by strip."""
    cdef const Problem *g = w.g
    cdef int64_t t = 0, done, some, each = item_size(w.held), size = item_size(w.storage)
    cdef Tile s
    s.x, s.unit, s.vectors, s.tap_rows, s.tap_cols = r.col.src_start * each, r.col.tap_step * each, r.line // VL, r.row.taps, r.col.taps
    s.held, s.masks, s.sums_col, s.tap_step = w.held, w.masks, w.channels * VL, r.row.tap_step
    s.sums_row = g.filter_cols * s.sums_col
    while t < r.row.count:
        s.rows = smaller(r.rows, r.row.count - t)
        s.v = view(g, w.storage, w.held, r, w.x, plane, planes, t, s.rows, w.masks, scratch)
        s.dy = rows_of_dy(w, &r.row, plane, planes, t, s.rows, &s.dy_row, <char *> (scratch + w.size))
        s.x_ahead = s.dy_ahead = 0
        if w.storage == w.held:
            s.x_ahead, s.dy_ahead = s.rows * r.row.z_step * s.v.row, s.rows * s.dy_row
        done = 0 if s.v.low < s.v.high else planes
        while done < planes:
            some = smaller(planes - done, 2) if r.twins else 1
            if w.fetch:
                fetch_lines(w.x + ((plane + done) * g.src_rows * g.src_cols + g.src_n) * size, some * g.src_rows * g.src_cols * size, False)
                fetch_lines(w.dy + ((plane + done) * g.dst_rows * g.dst_cols + g.dst_n) * size, some * g.dst_rows * g.dst_cols * size, False)
            s.twin_x, s.twin_dy = (some - 1) * g.src_rows * g.src_cols * each, (some - 1) * g.dst_rows * g.dst_cols * each
            if w.each:
                walk_each(w, &r.row, &s, sums + done * VL)
            else:
                w.walk(&s, sums + done * VL)
            s.v.cells += some * g.src_rows * g.src_cols * each
            s.dy += some * g.dst_rows * g.dst_cols * each
            done += some
        t += s.rows


cdef int64_t planes_at_once(const Reduce *w, int64_t plane, int64_t left) noexcept nogil:
    """How many of so many planes have the same strip from one on."""
    if w.r.rows < w.r.row.count or w.g.row_lanes > 1:
        return 1
    left = planes_together(w.g, w.storage, w.held, &w.r, plane, left)
    while w.storage == w.held and left > 1 and not dy_lies(w, plane + left - 1):
        left -= 1
    return left


cdef void reduce_planes(const Reduce *w, int64_t plane, int64_t planes, real *sums, real *scratch) noexcept nogil:
    """Adds some channels of one image."""
    cdef int64_t i, c = 0, count
    cdef Reader r
    while c < planes:
        count = planes_at_once(w, plane + c, planes - c)
        reduce_lane(w, &w.r, plane + c, count, sums + c * VL, scratch)
        for i in range(1, w.g.row_lanes):
            r = reader(w.g, i)
            reduce_lane(w, &r, plane + c, 1, sums + c * VL, scratch)
        c += count


cdef void reduce_turned(const Reduce *w, int64_t n, int64_t first, int64_t channels, real *sums, real *scratch) noexcept nogil:
    """Adds some channels of one image that come last. Beyond dy, which the last vector may reach over, there are zeros."""
    cdef const Problem *g = w.given
    cdef int64_t x_size = g.src_rows * g.src_cols, dy_size = g.dst_rows * g.dst_cols, plane = g.groups + first, size = item_size(w.stored)
    cdef real *x = scratch + w.margin
    cdef real *dy = x + w.cells
    cdef Reduce near = w[0]
    near.x, near.dy = <const char *> (x - plane * x_size), <const char *> (dy - plane * dy_size)
    widen_block(w.stored, w.x + (n * g.src_n + first) * size, 1, g.src_x, channels, x_size, x, x_size)
    widen_block(w.stored, w.dy + (n * g.dst_n + first) * size, 1, g.dst_x, channels, dy_size, dy, dy_size)
    clear(dy + channels * dy_size, VL)
    reduce_planes(&near, plane, channels, sums, dy + w.results)


cdef void add_lanes(const Reduce *w, int64_t channels, const real *sums, real *dw) noexcept nogil:
    """dw[tap][channel] = sum_i sums[tap][channel][i], VL channels a tap; of twins, the second half of the channel before instead of its own."""
    cdef int64_t tap, c, i
    cdef real[256] block, turned
    cdef const real *sum
    cdef vec total
    clear(block, VL * VL)
    for tap in range(w.taps):
        for c in range(channels):
            sum = sums + (tap * w.channels + c) * VL
            store(block + c * VL, twin_lanes(load(sum), upper_half(load(sum - VL)) if c else zero()) if w.r.twins else load(sum))
        transpose(block, VL, turned, VL)
        total = load(turned)
        for i in range(1, VL):
            total += load(turned + i * VL)
        store(dw + tap * VL, total)


cdef void reduce_block(const void *work, int64_t index, void *scratch) noexcept nogil:
    """Some channels, summed over one span."""
    cdef const Reduce *w = <const Reduce *> work
    cdef int64_t block = index % w.blocks, span = w.dw.wave.first + index // w.blocks, images = (w.given if w.given != NULL else w.g).images, step = w.g.filter_group, n
    cdef int64_t first = block * w.channels, channels = smaller(w.channels, w.g.groups - first)
    cdef real *sums = <real *> scratch
    cdef real *dw = sums + padded(w.taps * w.channels * VL)
    clear(sums, w.taps * w.channels * VL)
    for n in range(part(images, span, w.dw.spans), part(images, span + 1, w.dw.spans)):
        if w.given != NULL:
            reduce_turned(w, n, first, channels, sums, dw + padded(w.taps * VL))
        else:
            reduce_planes(w, n * w.g.groups + first, channels, sums, dw + padded(w.taps * VL))
    add_lanes(w, channels, sums, dw)
    store_block(&w.dw, span, dw, VL, w.taps, channels, first * step, w.g.filter_x, step)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef int64_t scratch_size
    cdef int failed
    w.stored, w.given, w.margin, w.cells, w.results = w.storage, NULL, 0, 0, 0
    if comes_last(g):
        w.storage = REAL_STORAGE
    plan(w)
    threads = useful_threads(g, w.dw.spans * w.blocks, threads)
    scratch_size = padded(w.taps * w.channels * VL) + padded(w.taps * VL) + w.margin + w.cells + w.results + w.size + w.lines
    w.masks = allocate(w.shared + copy_size(g))
    if w.masks == NULL:
        return 1
    share(g, &w.r, True, w.shared, w.masks)
    if comes_last(g):
        w.given, w.g = g, as_planes(g, w.masks + w.shared)
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


borrow_blocks()
entry = exported(compute)
