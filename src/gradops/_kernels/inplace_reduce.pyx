# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[tap, c] = sum_pixel x[pixel + tap, c] dy[pixel, c]: depthwise_conv2d_native_backprop_filter, images read where they lie.

In parallel: blocks of (span of images and rows, vectors of channels); each span sums into its own partial dw, and the partials are added in
order. Packed: nothing. A register tile is one vector of some pixels of a row of dy and of all taps or a row of them; each column of x beside
the pixels is loaded once for a row of taps, those outside the image from a vector of zeros. Tiles walk down a few rows, as in inplace_gather.

*Assumes:* x, dy and dw are contiguous and aligned, channels the last axis, one lane a channel and at least VL of them; the problem is that of the
forward op and not empty; lanes have tap_step 1, in columns at most TAPS taps and z_step 1 or 2, and every column of dy has a tap inside
the image.
"""
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
from _entry cimport exported, outcome
from _inplace cimport PIXELS, Walk, columns_inside, first_channel, rows_of_strip, is_far, taps_inside, tile_pixels
from _partials cimport Wave, add_wave, first_wave, next_wave, place
from _problem cimport Lane, Problem, row_lanes, col_lanes, divide_up, larger, smaller, part, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, VL, MR, REAL_STORAGE, all_finite, clear, load, load_once, narrow_block, prefetch_soon, store, unknown, zero

cdef enum:
    SUMS = 14                                           # of a register tile, at most
    MOST_SPANS = 32
    PIXELS_PER_SPAN = 256                               # at least, where there are more than SPANS
    SPANS = 8
    FEWEST_PIXELS = 48                                  # of a span
    BLOCKS = 16                                         # channels are split until there are as many
    LEAST_VECTORS = 8                                   # of channels that are split


cdef struct Reduce:
    const Problem *g
    const real *x
    const real *dy
    char *dw
    int64_t vectors                                     # of channels; the last one begins early enough to be full
    int64_t count                                       # pixels of the longest row lane
    int64_t parts, blocks                               # of an image's rows, of the vectors
    int64_t spans                                       # each is some of the images' parts
    int64_t taps                                        # of the filter
    Wave wave                                           # the spans at hand
    real *partials                                      # of each span of the wave, as dw lies
    bint *finite                                        # cleared if dw holds an infinity or NaN


cdef void plan(Reduce *w) noexcept nogil:
    """Chooses blocks and spans; by the problem alone, never by the number of threads."""
    cdef const Problem *g = w.g
    cdef int64_t pixels, i
    w.taps = g.filter_rows * g.filter_cols
    w.vectors = divide_up(g.groups, VL)
    w.count = 0
    for i in range(g.row_lanes):
        w.count = larger(w.count, row_lanes(g)[i].count)
    pixels = g.images * g.dst_rows * g.dst_cols
    w.spans = larger(larger(pixels // PIXELS_PER_SPAN, smaller(pixels // FEWEST_PIXELS, SPANS)), 1)
    w.parts = smaller(divide_up(smaller(w.spans, MOST_SPANS), g.images), w.count)
    w.spans = g.images * w.parts if w.parts > 1 else smaller(w.spans, smaller(g.images, MOST_SPANS))
    w.blocks = smaller(divide_up(BLOCKS, w.spans), divide_up(w.vectors, LEAST_VECTORS))


cdef inline void walk_ukr(int rows, int taps, int pixels, int step, const Walk *s, int64_t tap_row, const real *src, const real *dy, int64_t skip, int64_t low, int64_t high, real *sums) noexcept nogil:
    """sums[i, j] += sum_(r, q) src[r + i, q step + j] dy[r, q] for all rows of the strip and skip <= q < pixels, one vector each; i < rows counts from
    tap_row; columns from low to high lie inside the image.

    *Assumes:* rows, taps, pixels and step are compile-time constants of the caller.
    """
    cdef vec[SUMS] acc
    cdef vec[PIXELS] d
    cdef vec v
    cdef const real *x
    cdef const real *column
    cdef int64_t y = s.y, begin, end, _r
    cdef int c, i, j, k, q
    for i in range(rows):
        for j in range(taps):
            acc[i * taps + j] = load(sums + ((tap_row + i) * s.filter_row + j * s.filter_col))
    for _r in range(s.rows):
        if s.far:
            for q in range(pixels):
                prefetch_soon(dy + s.dst_ahead + q * s.dst_x)
            for i in range(s.fresh):
                for q in range(pixels * step):
                    prefetch_soon(src + (y + i * s.unit) * s.src_y + s.src_ahead + q * s.src_x)
        taps_inside(s, y, &begin, &end)
        for q in range(pixels):
            d[q] = load_once(s.zeros if q < pixels - 1 and q < skip else dy + q * s.dst_x)
        for i in range(rows):
            if begin <= tap_row + i < end:
                x = unknown(src + (y + (tap_row + i) * s.unit) * s.src_y)
                for c in range((pixels - 1) * step + taps):
                    column = x + c * s.src_x
                    if (c < taps - 1 and c < low) or (c > (pixels - 1) * step and c >= high):
                        column = s.zeros
                    v = load_once(column)
                    for k in range((taps + step - 1) // step):  # the pixels whose tap j it is
                        j, q = c % step + k * step, c // step - k
                        if j < taps and 0 <= q < pixels:
                            acc[i * taps + j] += v * d[q]
        dy += s.dst_y
        y += s.step
    for i in range(rows):
        for j in range(taps):
            store(sums + ((tap_row + i) * s.filter_row + j * s.filter_col), acc[i * taps + j])


cdef inline void walk_tile(int rows, int taps, int step, int pixels, const Walk *s, int64_t tap_row, const real *src, const real *dy, int64_t skip, int64_t low, int64_t high, real *sums) noexcept nogil:
    """walk_ukr for the pixels of `tile_pixels`."""
    if step == 1 and pixels == 8: walk_ukr(rows, taps, 8, step, s, tap_row, src, dy, skip, low, high, sums)
    elif step == 1 and pixels == 7: walk_ukr(rows, taps, 7, step, s, tap_row, src, dy, skip, low, high, sums)
    elif pixels == 4: walk_ukr(rows, taps, 4, step, s, tap_row, src, dy, skip, low, high, sums)
    elif pixels == 2: walk_ukr(rows, taps, 2, step, s, tap_row, src, dy, skip, low, high, sums)
    elif pixels == 1: walk_ukr(rows, taps, 1, step, s, tap_row, src, dy, skip, low, high, sums)


cdef inline void walk_taps(int rows, int taps, int step, int pixels, const Walk *s, int64_t tap_row, const real *src, const real *dy, int64_t skip, int64_t low, int64_t high, real *sums) noexcept nogil:
    """walk_tile for the taps of `rows_of_tile`."""
    if rows == 3: walk_tile(3, 3, step, pixels, s, tap_row, src, dy, skip, low, high, sums)
    elif rows == 2 and taps == 5: walk_tile(2, 5, step, pixels, s, tap_row, src, dy, skip, low, high, sums)
    elif rows == 2: walk_tile(2, 7, step, pixels, s, tap_row, src, dy, skip, low, high, sums)
    elif taps == 1: walk_tile(1, 1, step, pixels, s, tap_row, src, dy, skip, low, high, sums)
    elif taps == 2: walk_tile(1, 2, step, pixels, s, tap_row, src, dy, skip, low, high, sums)
    elif taps == 3: walk_tile(1, 3, step, pixels, s, tap_row, src, dy, skip, low, high, sums)
    elif taps == 4: walk_tile(1, 4, step, pixels, s, tap_row, src, dy, skip, low, high, sums)
    elif taps == 5: walk_tile(1, 5, step, pixels, s, tap_row, src, dy, skip, low, high, sums)
    elif taps == 7: walk_tile(1, 7, step, pixels, s, tap_row, src, dy, skip, low, high, sums)


cdef inline int rows_of_tile(int64_t taps, int64_t left) noexcept nogil:
    """Rows of taps whose sums fit into registers together, of those that are left: enough for an addition to end before the next one to its sum."""
    if taps == 3 and left == 3:
        return 3
    return 2 if (taps == 5 or taps == 7) and left > 1 and MR > 6 else 1


cdef void reduce_tile(const Reduce *w, Walk *s, const Lane *col, int pixels, const real *src, const real *dy, int64_t skip, int64_t low, int64_t high, real *sums) noexcept nogil:
    """Adds a vector of a tile to all taps."""
    cdef bint far = s.far
    cdef int64_t row = 0
    cdef int rows
    while row < s.taps:
        rows = rows_of_tile(col.taps, s.taps - row)
        if col.z_step == 1:
            walk_taps(rows, <int> col.taps, 1, pixels, s, row, src, dy, skip, low, high, sums)
        else:
            walk_taps(rows, <int> col.taps, 2, pixels, s, row, src, dy, skip, low, high, sums)
        row += rows
        s.far = False
    s.far = far


cdef void reduce_strip(const Reduce *w, Walk *s, const Lane *row, const Lane *col, int64_t n, int64_t t, int64_t first, int64_t end, real *sums) noexcept nogil:
    """Adds a strip's rows, of one lane of columns, to the sums [vector][tap][VL] of vectors first.."""
    cdef const Problem *g = w.g
    cdef int64_t size = tile_pixels(col, PIXELS if MR > 6 else 4), tiles = divide_up(col.count, size), i, q, v, x, low, high, c
    cdef const real *src
    cdef const real *dy
    for i in range(tiles):
        q = smaller(i * size, col.count - size)
        x = col.src_start + col.src_unit * col.z_step * q
        columns_inside(g, col, x, &low, &high)
        src = w.x + n * g.src_n + x * g.src_x
        dy = w.dy + n * g.dst_n + (row.out_start + row.out_step * t) * g.dst_y + (col.out_start + col.out_step * q) * g.dst_x
        for v in range(first, end):
            c = first_channel(g, v)
            reduce_tile(w, s, col, <int> size, src + c, dy + c, i * size - q, low, high, sums + (v - first) * w.taps * VL)


cdef void reduce_rows(const Reduce *w, const Lane *row, int64_t n, int64_t t, int64_t rows, int64_t first, int64_t end, real *sums) noexcept nogil:
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
    s.filter_row, s.filter_col = g.filter_cols * VL, VL
    s.far = is_far(g)
    s.src_ahead, s.dst_ahead = (row.src_unit * (row.taps - 1) + stride * rows) * g.src_y, rows * s.dst_y
    for j in range(g.col_lanes):
        col = col_lanes(g) + j
        s.src_x, s.dst_x = col.src_unit * g.src_x, col.out_step * g.dst_x
        reduce_strip(w, &s, row, col, n, t, first, end, sums)


cdef void reduce_part(const Reduce *w, int64_t index, int64_t first, int64_t end, real *sums) noexcept nogil:
    """Adds one part of the rows of one image, strip by strip."""
    cdef const Problem *g = w.g
    cdef int64_t n = index // w.parts, t = part(w.count, index % w.parts, w.parts), last = part(w.count, index % w.parts + 1, w.parts)
    cdef int64_t most = rows_of_strip(g), i, rows
    while t < last:
        for i in range(g.row_lanes):
            rows = smaller(smaller(most, last - t), row_lanes(g)[i].count - t)
            if rows > 0:
                reduce_rows(w, row_lanes(g) + i, n, t, rows, first, end, sums)
        t += most


cdef void store_sums(const Reduce *w, int64_t span, int64_t v, const real *sums) noexcept nogil:
    """Writes a vector of dw to the result or, of several spans, to its partial; the lanes that the vector before has are left out."""
    cdef int64_t overlap = v * VL - first_channel(w.g, v), step = w.g.filter_group
    cdef real *out = <real *> w.dw
    if w.spans > 1:
        out = w.partials + place(&w.wave, span) * w.taps * w.g.groups
    narrow_block(REAL_STORAGE, sums + overlap, VL, w.taps, VL - overlap, <char *> (out + v * VL * step), w.g.filter_x, step)
    if w.spans == 1 and not all_finite(sums, w.taps * VL):
        w.finite[0] = False


cdef void reduce_block(const Reduce *w, int64_t index, real *sums) noexcept nogil:
    """Some vectors, summed over one span."""
    cdef int64_t block = index % w.blocks, span = w.wave.first + index // w.blocks, parts = w.g.images * w.parts, i
    cdef int64_t first = part(w.vectors, block, w.blocks), end = part(w.vectors, block + 1, w.blocks)
    clear(sums, (end - first) * w.taps * VL)
    for i in range(part(parts, span, w.spans), part(parts, span + 1, w.spans)):
        reduce_part(w, i, first, end, sums)
    for i in range(first, end):
        store_sums(w, span, i, sums + (i - first) * w.taps * VL)


cdef void reduce_blocks(const Reduce *w, int threads, real *scratch, int64_t scratch_size) noexcept nogil:
    cdef int64_t i
    if threads == 1:
        for i in range(w.wave.count * w.blocks):
            reduce_block(w, i, scratch)
        return
    for i in prange(w.wave.count * w.blocks, num_threads=threads, schedule="static"):
        reduce_block(w, i, scratch + threadid() * scratch_size)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef int64_t size, partials, scratch_size
    plan(w)
    threads = useful_threads(w.g, w.spans * w.blocks, threads)
    size = w.taps * w.g.groups
    w.wave = first_wave(w.spans, size, threads)
    partials = padded(w.wave.slots * size) if w.spans > 1 else 0
    scratch_size = padded(divide_up(w.vectors, w.blocks) * w.taps * VL)
    w.partials = allocate(partials + threads * scratch_size)
    if w.partials == NULL:
        return 1
    while True:
        reduce_blocks(w, threads, w.partials + partials, scratch_size)
        if w.spans > 1:
            add_wave(w.partials, &w.wave, size, REAL_STORAGE, w.dw, threads, w.finite)
        if not next_wave(&w.wave):
            break
    release(w.partials)
    return 0


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dw. MIXED if it is not finite: infinities may have met the zeros of the padding, or of pixels that a tile leaves out."""
    cdef Reduce w
    cdef bint finite = True
    w.g = <const Problem *> problem
    w.x = <const real *> inputs[0]
    w.dy = <const real *> inputs[1]
    w.dw = <char *> out
    w.finite = &finite
    return outcome(drive(&w, num_threads), &finite)


entry = exported(compute)
