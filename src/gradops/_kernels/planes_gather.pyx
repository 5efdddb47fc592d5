# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[c, pixel] = sum_tap src[c, pixel + tap] filter[tap, c]: depthwise_conv2d_native and its input gradient, channels first.

In parallel: channels of images. Packed: rows of src as a *window*, [row][phase][cell], where a tap is a load at a distance; of columns that a stride
skips each residue is a phase with cells of its own, and cells outside the image are zeros. A register tile is one vector of neighbouring pixels in
some rows, which share what they load for a column of taps. The next channel is fetched meanwhile.

*Assumes:* src, filter and dst are contiguous and aligned, pixels of a channel contiguous, one lane a channel; the problem is not empty; lanes have
src_unit 1, tap_step 1, z_step 1 or 2, at most TAPS rows of taps; columns are one lane, or two with out_step 2, of at least VL pixels.
"""
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
from _entry cimport exported, outcome
from _problem cimport Lane, Problem, row_lanes, col_lanes, clear_dst, divide_up, larger, smaller, useful_threads
from _ring cimport hull
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, BFLOAT16, FLOAT16, LINE, REAL_STORAGE, VL, all_finite, clear, interleave, item_size, load, load_once, narrow, prefetch_soon, store, widen, widen_block, widen_strided, zero

cdef enum:
    ROWS = 8                                            # of a register tile, at most
    TAPS = 7                                            # rows of taps, at most (MOST_PLANE_ROWS of gradops._algorithms)
    WINDOW = 16 * 1024                                  # bytes of a window, about: half of a first cache


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    Lane row, col                                       # what all lanes read
    int64_t phases
    int64_t[2] first, inside                            # cells of each phase that lie in the image: the first one, how many
    int64_t length                                      # cells of a row and phase
    int64_t rows                                        # of dst lanes in a strip, at most
    int64_t window, line                                # reals of a window, and of a row of results of one lane of columns
    int64_t taps                                        # of the filter
    real *weights                                       # [channel][tap]


cdef void plan(Gather *w) noexcept nogil:
    cdef const Problem *g = w.g
    cdef int64_t phase, x
    w.taps = g.filter_rows * g.filter_cols
    if not hull(row_lanes(g), g.row_lanes, &w.row):
        w.row = row_lanes(g)[0]
    if not hull(col_lanes(g), g.col_lanes, &w.col):
        w.col = col_lanes(g)[0]
    w.phases = w.col.z_step
    for phase in range(w.phases):
        x = w.col.src_start + phase
        w.first[phase] = divide_up(-x, w.phases) if x < 0 else 0
        w.inside[phase] = larger(divide_up(g.src_cols - x, w.phases) - w.first[phase], 0) if x < g.src_cols else 0
    w.line = divide_up(w.col.count, VL) * VL
    w.length = larger(w.line, larger(w.first[0] + w.inside[0], w.first[w.phases - 1] + w.inside[w.phases - 1])) + w.col.taps
    w.rows = divide_up(larger(WINDOW // (w.length * w.phases * w.row.z_step * <int64_t> sizeof(real)), 1), ROWS) * ROWS
    w.rows = smaller(w.rows, w.row.count)
    w.window = (w.row.z_step * (w.rows - 1) + w.row.taps) * w.length * w.phases


cdef bint pack_filter(const Gather *w) noexcept nogil:
    """Returns whether the filter is finite."""
    widen_block(w.storage, w.filter, w.g.filter_group, w.g.filter_x, w.g.groups, w.taps, w.weights, w.taps)
    return all_finite(w.weights, w.g.groups * w.taps)


cdef inline void stage_rows(int storage, const Gather *w, const char *src, int64_t y, int64_t rows, real *window) noexcept nogil:
    """Widens rows y.. of a plane, all in the image; the storage is a compile-time constant of the caller."""
    cdef int64_t size = item_size(storage), row = w.length * w.phases, m
    cdef const char *at = src + (y * w.g.src_y + w.col.src_start + w.first[0] * w.phases) * size
    cdef const char *odd = src + (y * w.g.src_y + w.col.src_start + 1 + w.first[1] * w.phases) * size
    for m in range(rows):
        if w.phases == 1:
            widen(storage, at + m * w.g.src_y * size, w.inside[0], window + m * row + w.first[0])
        else:
            widen_strided(storage, at + m * w.g.src_y * size, 2, w.inside[0], window + m * row + w.first[0])
            widen_strided(storage, odd + m * w.g.src_y * size, 2, w.inside[1], window + m * row + w.length + w.first[1])


cdef void fill_window(const Gather *w, const char *src, int64_t t, int64_t rows, real *window) noexcept nogil:
    """Widens what rows t.. of dst lanes read of a plane, and fetches the same of the next one. *Assumes:* other cells are zeros already."""
    cdef int64_t row = w.length * w.phases, y = w.row.src_start + w.row.z_step * t, count = w.row.z_step * (rows - 1) + w.row.taps
    cdef int64_t begin = smaller(larger(-y, 0), count), end = larger(smaller(w.g.src_rows - y, count), begin), size = item_size(w.storage), i
    cdef const char *next = src + ((y + begin) * w.g.src_y + w.g.src_c) * size
    clear(window, begin * row)
    clear(window + end * row, (count - end) * row)
    for i in range(divide_up((end - begin) * w.g.src_y * size, LINE)):
        prefetch_soon(next + i * LINE)
    if w.storage == FLOAT16:
        stage_rows(FLOAT16, w, src, y + begin, end - begin, window + begin * row)
    elif w.storage == BFLOAT16:
        stage_rows(BFLOAT16, w, src, y + begin, end - begin, window + begin * row)
    else:
        stage_rows(REAL_STORAGE, w, src, y + begin, end - begin, window + begin * row)


cdef struct Tile:                                       # some rows of a lane pair
    const real *cells                                   # of the first row's first tap, phase 0
    int64_t row, phase                                  # distances of rows and phases of the window
    int64_t odd, cols                                   # 1 if there are two phases, else 0; columns of taps
    const real *weights                                 # of the first tap, as vectors
    int64_t weight_row, weight_col
    int64_t out_row                                     # distance of rows of results


cdef inline void planes_ukr(int rows, int taps, int step, const Tile *s, int64_t first, int64_t cell, real *out) noexcept nogil:
    """out[r] = sum_(i, j) cells[r step + i][j] weights[i, j] for r < rows, counted from `first`, one vector of cells each; i < taps.

    *Assumes:* rows, taps and step are compile-time constants of the caller.
    """
    cdef vec[ROWS] acc
    cdef vec[TAPS] tap
    cdef vec v
    cdef const real *x
    cdef const real *weights = s.weights
    cdef int64_t j
    cdef int i, k, m, r
    for r in range(rows):
        acc[r] = zero()
    for j in range(s.cols):
        x = s.cells + first * step * s.row + cell + (j & s.odd) * s.phase + (j >> s.odd)
        for i in range(taps):
            tap[i] = load(weights + i * s.weight_row)
        for m in range((rows - 1) * step + taps):
            v = load_once(x + m * s.row)
            for k in range((taps + step - 1) // step):  # the rows whose tap i it is
                i, r = m % step + k * step, m // step - k
                if i < taps and 0 <= r < rows:
                    acc[r] += v * tap[i]
        weights += s.weight_col
    for r in range(rows):
        store(out + r * s.out_row, acc[r])


cdef inline void planes_tile(int rows, int step, int64_t taps, const Tile *s, int64_t first, int64_t cell, real *out) noexcept nogil:
    """planes_ukr for any taps <= TAPS."""
    if taps == 3: planes_ukr(rows, 3, step, s, first, cell, out)
    elif taps == 1: planes_ukr(rows, 1, step, s, first, cell, out)
    elif taps == 2: planes_ukr(rows, 2, step, s, first, cell, out)
    elif taps == 4: planes_ukr(rows, 4, step, s, first, cell, out)
    elif taps == 5: planes_ukr(rows, 5, step, s, first, cell, out)
    elif taps == 6: planes_ukr(rows, 6, step, s, first, cell, out)
    elif taps == 7: planes_ukr(rows, 7, step, s, first, cell, out)


cdef void tile_rows(const Tile *s, int64_t taps, int64_t step, int64_t rows, int64_t cell, real *out) noexcept nogil:
    """All rows of a strip, one vector of cells."""
    cdef int64_t r = 0
    while step == 1 and rows - r >= 8:
        planes_tile(8, 1, taps, s, r, cell, out + r * s.out_row)
        r += 8
    while rows - r >= 4:
        if step == 1:
            planes_tile(4, 1, taps, s, r, cell, out + r * s.out_row)
        else:
            planes_tile(4, 2, taps, s, r, cell, out + r * s.out_row)
        r += 4
    while r < rows:
        if step == 1:
            planes_tile(1, 1, taps, s, r, cell, out + r * s.out_row)
        else:
            planes_tile(1, 2, taps, s, r, cell, out + r * s.out_row)
        r += 1


cdef void compute_lane(const Gather *w, const Lane *row, const Lane *col, const real *window, const real *weights, int64_t rows, int64_t out_row, real *out) noexcept nogil:
    """Rows of a lane pair: out[r out_row + q] for its pixels q; the last vector of a row begins early enough to be full."""
    cdef int64_t i, cell
    cdef Tile s
    s.row, s.phase, s.odd, s.cols = w.length * w.phases, w.length, w.phases - 1, col.taps
    s.cells = window + (row.src_start - w.row.src_start) * s.row + col.src_start - w.col.src_start
    s.weights = weights + (row.filter_start * w.g.filter_cols + col.filter_start) * VL
    s.weight_row, s.weight_col, s.out_row = row.filter_step * w.g.filter_cols * VL, col.filter_step * VL, out_row
    for i in range(divide_up(col.count, VL)):
        cell = smaller(i * VL, col.count - VL)
        tile_rows(&s, row.taps, row.z_step, rows, cell, out + cell)


cdef void store_lines(const Gather *w, const real *lines, int64_t rows, char *dst, int64_t step) noexcept nogil:
    """Narrows rows of results."""
    cdef int64_t line = w.line * w.g.col_lanes, r
    for r in range(rows):
        narrow(w.storage, lines + r * line, w.g.dst_cols, dst + r * step)


cdef void gather_strip(const Gather *w, const Lane *row, const real *window, const real *weights, int64_t t, int64_t rows, char *dst, real *lines) noexcept nogil:
    """Rows t.. of a lane of rows."""
    cdef const Lane *col = col_lanes(w.g)
    cdef int64_t step = row.out_step * w.g.dst_y, size = item_size(w.storage)
    cdef char *at = dst + (row.out_start * w.g.dst_y + t * step) * size
    cdef real *second = lines + w.rows * w.line
    cdef real *both = second + w.rows * w.line
    if w.g.col_lanes == 1 and w.storage == REAL_STORAGE and col.count == w.g.dst_cols:
        compute_lane(w, row, col, window, weights, rows, step, <real *> at)
        return
    compute_lane(w, row, col, window, weights, rows, w.line, lines)
    if w.g.col_lanes == 1:
        store_lines(w, lines, rows, at, step * size)
        return
    compute_lane(w, row, col + 1, window, weights, rows, w.line, second)
    if col.out_start == 0:
        interleave(lines, second, rows * w.line, both)
    else:
        interleave(second, lines, rows * w.line, both)
    store_lines(w, both, rows, at, step * size)


cdef void gather_plane(const Gather *w, int64_t index, real *weights) noexcept nogil:
    """One channel of one image, strip by strip."""
    cdef const Problem *g = w.g
    cdef int64_t n = index // g.groups, c = index % g.groups, size = item_size(w.storage), t = 0, rows, own, i
    cdef real *window = weights + w.taps * VL
    cdef real *lines = window + w.window
    cdef const char *src = w.src + (n * g.src_n + c * g.src_c) * size
    for i in range(w.taps):
        store(weights + i * VL, zero() + w.weights[c * w.taps + i])
    while t < w.row.count:
        rows = smaller(w.rows, w.row.count - t)
        fill_window(w, src, t, rows, window)
        for i in range(g.row_lanes):
            own = smaller(rows, row_lanes(g)[i].count - t)
            if own > 0:
                gather_strip(w, row_lanes(g) + i, window, weights, t, own, w.dst + (n * g.dst_n + c * g.dst_c) * size, lines)
        t += rows


cdef void gather_planes(const Gather *w, int threads, real *scratch, int64_t scratch_size) noexcept nogil:
    cdef int64_t i
    if threads == 1:
        for i in range(w.g.images * w.g.groups):
            gather_plane(w, i, scratch)
        return
    for i in prange(w.g.images * w.g.groups, num_threads=threads, schedule="static"):
        gather_plane(w, i, scratch + threadid() * scratch_size)


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
    scratch_size = padded(w.taps * VL + w.window + (4 if g.col_lanes > 1 else 1) * w.rows * w.line)
    w.weights = allocate(panels + threads * scratch_size)
    if w.weights == NULL:
        return 1
    finite[0] = pack_filter(w)
    clear(w.weights + panels, threads * scratch_size)
    gather_planes(w, threads, w.weights + panels, scratch_size)
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
