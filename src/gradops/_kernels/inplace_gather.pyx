# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, c] = sum_tap src[pixel + tap, c] filter[tap, c]: depthwise_conv2d_native and its input gradient, images read where they lie.

In parallel: blocks of (image, part of its rows, vectors of channels). Packed: the filter, as [vector][tap][VL]. A register tile is one vector of some
pixels of a row; each column beside them is loaded once for a row of taps, those outside the image from a vector of zeros. Tiles walk
down a few rows, so that most of what a row reads is in the first cache, then come the next channels, then the next pixels.

*Assumes:* src, filter and dst are contiguous and aligned, channels the last axis, one lane a channel and at least VL of them; the problem is not
empty; lanes have tap_step 1, in columns at most TAPS taps and z_step 1 or 2, and every column of dst has a tap inside the image.
"""
from cython.parallel cimport prange
from libc.stdint cimport int64_t
from _entry cimport exported, outcome
from _inplace cimport TAPS, PIXELS, Walk, columns_inside, first_channel, rows_of_strip, is_far, taps_inside, tile_pixels
from _problem cimport Lane, Problem, row_lanes, col_lanes, clear_dst, divide_up, larger, smaller, part, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, VL, MR, REAL_STORAGE, all_finite, load, load_once, prefetch_soon, prefetch_to_write, store, widen_block, zero

cdef enum:
    BLOCKS_PER_THREAD = 4                               # rows, then channels, are split until there are as many
    LEAST_VECTORS = 4                                   # of channels that are split for that


cdef struct Gather:
    const Problem *g
    const real *src
    const char *filter
    real *dst
    int64_t vectors                                     # of channels; the last one begins early enough to be full
    int64_t count                                       # pixels of the longest row lane
    int64_t parts, blocks                               # of an image's rows, of the vectors
    real *filter_panels                                 # [vector][tap][VL]


cdef void plan(Gather *w, int threads) noexcept nogil:
    cdef const Problem *g = w.g
    cdef int64_t enough = BLOCKS_PER_THREAD * threads, i
    w.vectors = divide_up(g.groups, VL)
    w.count = 0
    for i in range(g.row_lanes):
        w.count = larger(w.count, row_lanes(g)[i].count)
    w.parts = smaller(divide_up(enough, g.images), w.count)
    w.blocks = smaller(divide_up(enough, g.images * w.parts), divide_up(w.vectors, LEAST_VECTORS))


cdef bint pack_filter(const Gather *w) noexcept nogil:
    """Returns whether the filter is finite."""
    cdef int64_t taps = w.g.filter_rows * w.g.filter_cols, v
    cdef const real *filter = <const real *> w.filter
    for v in range(w.vectors):
        widen_block(REAL_STORAGE, <const char *> (filter + first_channel(w.g, v) * w.g.filter_group), w.g.filter_x, w.g.filter_group, taps, VL, w.filter_panels + v * taps * VL, VL)
    return all_finite(w.filter_panels, w.vectors * taps * VL)


cdef inline void walk_ukr(int pixels, int taps, int step, const Walk *s, const real *src, const real *filter, real *dst, int64_t low, int64_t high) noexcept nogil:
    """dst[r, q] = sum_(i, j) src[r + i, q step + j] filter[i, j] for all rows of the strip and q < pixels, one vector each; columns from low to high
    lie inside the image.

    *Assumes:* pixels, taps and step are compile-time constants of the caller.
    """
    cdef vec[PIXELS] acc
    cdef vec[TAPS] tap
    cdef vec v
    cdef const real *x
    cdef const real *column
    cdef const real *weights
    cdef int64_t y = s.y, begin, end, _r, i
    cdef int c, j, k, q
    for _r in range(s.rows):
        for q in range(pixels):
            acc[q] = zero()
        if s.far:
            for q in range(pixels):
                prefetch_to_write(dst + s.dst_ahead + q * s.dst_x)
            for i in range(s.fresh):
                for q in range(pixels * step):
                    prefetch_soon(src + (y + i * s.unit) * s.src_y + s.src_ahead + q * s.src_x)
        taps_inside(s, y, &begin, &end)
        for i in range(begin, end):
            x = src + (y + i * s.unit) * s.src_y
            weights = filter + i * s.filter_row
            for j in range(taps):
                tap[j] = load(weights + j * s.filter_col)
            for c in range((pixels - 1) * step + taps):
                column = x + c * s.src_x
                if (c < taps - 1 and c < low) or (c > (pixels - 1) * step and c >= high):
                    column = s.zeros
                v = load_once(column)
                for k in range((taps + step - 1) // step):  # the pixels whose tap j it is
                    j, q = c % step + k * step, c // step - k
                    if j < taps and 0 <= q < pixels:
                        acc[q] += v * tap[j]
        for q in range(pixels):
            store(dst + q * s.dst_x, acc[q])
        dst += s.dst_y
        y += s.step


cdef inline void walk_tile(int pixels, int taps, int step, const Walk *s, const real *src, const real *filter, real *dst, int64_t low, int64_t high) noexcept nogil:
    """walk_ukr for any pixels <= PIXELS, half as many for step 2."""
    if step == 1 and pixels == 8: walk_ukr(8, taps, step, s, src, filter, dst, low, high)
    elif step == 1 and pixels == 7: walk_ukr(7, taps, step, s, src, filter, dst, low, high)
    elif pixels == 4: walk_ukr(4, taps, step, s, src, filter, dst, low, high)
    elif pixels == 2: walk_ukr(2, taps, step, s, src, filter, dst, low, high)
    elif pixels == 1: walk_ukr(1, taps, step, s, src, filter, dst, low, high)


cdef inline void walk_taps(int taps, int step, int pixels, const Walk *s, const real *src, const real *filter, real *dst, int64_t low, int64_t high) noexcept nogil:
    """walk_tile for any taps <= TAPS."""
    if taps == 3: walk_tile(pixels, 3, step, s, src, filter, dst, low, high)
    elif taps == 1: walk_tile(pixels, 1, step, s, src, filter, dst, low, high)
    elif taps == 2: walk_tile(pixels, 2, step, s, src, filter, dst, low, high)
    elif taps == 4: walk_tile(pixels, 4, step, s, src, filter, dst, low, high)
    elif taps == 5: walk_tile(pixels, 5, step, s, src, filter, dst, low, high)
    elif taps == 7: walk_tile(pixels, 7, step, s, src, filter, dst, low, high)


cdef void gather_strip(const Gather *w, const Walk *s, const Lane *row, const Lane *col, int64_t n, int64_t t, int64_t first, int64_t end) noexcept nogil:
    """Vectors first.. of all pixels of a strip's rows, of one lane of columns."""
    cdef const Problem *g = w.g
    cdef int64_t size = tile_pixels(col, PIXELS if MR > 6 or col.taps < 7 else 4), tiles = divide_up(col.count, size), i, q, v, x, low, high, c
    cdef int64_t panel = g.filter_rows * g.filter_cols * VL
    cdef const real *src
    cdef const real *filter = w.filter_panels + (row.filter_start * g.filter_cols + col.filter_start) * VL
    cdef real *dst
    cdef int pixels = <int> size
    for i in range(tiles):
        q = smaller(i * size, col.count - size)
        x = col.src_start + col.src_unit * col.z_step * q
        columns_inside(g, col, x, &low, &high)
        src = w.src + n * g.src_n + x * g.src_x
        dst = w.dst + n * g.dst_n + (row.out_start + row.out_step * t) * g.dst_y + (col.out_start + col.out_step * q) * g.dst_x
        for v in range(first, end):
            c = first_channel(w.g, v)
            if col.z_step == 1:
                walk_taps(<int> col.taps, 1, pixels, s, src + c, filter + v * panel, dst + c, low, high)
            else:
                walk_taps(<int> col.taps, 2, pixels, s, src + c, filter + v * panel, dst + c, low, high)


cdef void gather_rows(const Gather *w, const Lane *row, int64_t n, int64_t t, int64_t rows, int64_t first, int64_t end) noexcept nogil:
    """A strip of a row lane, all lanes of columns."""
    cdef const Problem *g = w.g
    cdef int64_t stride = row.src_unit * row.z_step, j
    cdef real[VL] zeros
    cdef const Lane *col
    cdef Walk s
    store(zeros, zero())
    s.zeros = zeros
    s.rows, s.y, s.step, s.unit, s.taps, s.limit = rows, row.src_start + stride * t, stride, row.src_unit, row.taps, g.src_rows
    s.fresh = row.z_step
    s.src_y, s.dst_y = g.src_y, row.out_step * g.dst_y
    s.filter_row = row.filter_step * g.filter_cols * VL
    s.far = is_far(g)
    s.src_ahead, s.dst_ahead = (row.src_unit * (row.taps - 1) + stride * rows) * g.src_y, rows * s.dst_y
    for j in range(g.col_lanes):
        col = col_lanes(g) + j
        s.src_x, s.dst_x = col.src_unit * g.src_x, col.out_step * g.dst_x
        s.filter_col = col.filter_step * VL
        gather_strip(w, &s, row, col, n, t, first, end)


cdef void gather_block(const Gather *w, int64_t index) noexcept nogil:
    """Some vectors of one part of the rows of one image, strip by strip. Row lanes take turns, so that they find what others have read."""
    cdef const Problem *g = w.g
    cdef int64_t block = index % w.blocks, part_ = index // w.blocks % w.parts, n = index // w.blocks // w.parts
    cdef int64_t t = part(w.count, part_, w.parts), end = part(w.count, part_ + 1, w.parts), most = rows_of_strip(g), i, rows
    while t < end:
        for i in range(g.row_lanes):
            rows = smaller(smaller(most, end - t), row_lanes(g)[i].count - t)
            if rows > 0:
                gather_rows(w, row_lanes(g) + i, n, t, rows, part(w.vectors, block, w.blocks), part(w.vectors, block + 1, w.blocks))
        t += most


cdef void gather_blocks(const Gather *w, int threads) noexcept nogil:
    cdef int64_t i
    if threads == 1:
        for i in range(w.g.images * w.parts * w.blocks):
            gather_block(w, i)
        return
    for i in prange(w.g.images * w.parts * w.blocks, num_threads=threads, schedule="static"):
        gather_block(w, i)


cdef int drive(Gather *w, int threads, bint *finite) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    plan(w, threads)
    threads = useful_threads(g, g.images * w.parts * w.blocks, threads)
    w.filter_panels = allocate(padded(g.filter_rows * g.filter_cols * w.vectors * VL))
    if w.filter_panels == NULL:
        return 1
    if not g.covered:
        clear_dst(g, <char *> w.dst, sizeof(real), threads)
    finite[0] = pack_filter(w)
    gather_blocks(w, threads)
    release(w.filter_panels)
    return 0


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dst. MIXED if the filter is not finite: its products with the zeros of the padding are NaN."""
    cdef Gather w
    cdef bint finite = True
    w.g = <const Problem *> problem
    w.src = <const real *> inputs[0]
    w.filter = <const char *> inputs[1]
    w.dst = <real *> out
    return outcome(drive(&w, num_threads, &finite), &finite)


entry = exported(compute)
