# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[tap, lane] = sum_pixel x[pixel + tap, lane] dy[pixel, lane]: depthwise_conv2d_native_backprop_filter.

In parallel: blocks of (span of images and rows, lanes); each span sums into its own partial dw, and the partials are added in order. Packed:
rows of x in a ring, rows of dy as they come. A register holds one vector of lanes of one tap; a row of taps is summed along a row of pixels.

*Assumes:* x, dy and dw are contiguous and aligned; the problem is that of the forward op and not empty; row lanes have tap_step 1; at most
LANES multipliers.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
cimport numpy as cnp
from _partials cimport Wave, add_wave, first_wave, next_wave, place
from _problem cimport Problem, row_lanes, col_lanes, divide_up, smaller, larger, part, useful_threads
from _ring cimport Block, Blocking, Ring, blocking, chunk_pixels, chunk_width, fill_ring, is_direct, next_row, pack_line, ring_row
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, VL, all_finite, item_size, clear, load, store, zero, narrow, copy

cnp.import_array()

cdef enum:
    TAPS = 8                                            # of a register tile, at most
    MIN_BLOCKS = 32                                     # spans get shorter until there are as many blocks
    ROWS_PER_TAP = 4                                    # rows of a span, at least: its first rows pack a filter's height of src alone


cdef struct Reduce:
    const Problem *g
    int storage
    const char *x
    const char *dy
    char *dw
    Blocking k
    int64_t blocks, spans, parts                        # a span is some of the images' parts; a part, some rows of an image
    int64_t sums                                        # reals of a block's dw
    Wave wave                                           # the spans at hand
    real *partials                                      # [span of the wave][tap][lane]
    bint *finite                                        # cleared if dw holds an infinity or NaN


cdef void plan(Reduce *w) noexcept nogil:
    """Chooses blocks and spans; by the problem alone, never by the number of threads."""
    cdef const Problem *g = w.g
    w.k = blocking(g, row_lanes(g), col_lanes(g))
    w.blocks = divide_up(w.k.total, w.k.lanes)
    w.parts = larger(smaller(divide_up(MIN_BLOCKS, w.blocks * g.images), g.dst_rows // (ROWS_PER_TAP * g.filter_rows)), 1)
    w.spans = smaller(divide_up(MIN_BLOCKS, w.blocks), g.images * w.parts)
    w.sums = padded(g.filter_rows * g.filter_cols * w.k.vectors * VL)


cdef inline void reduce_ukr(int taps, int64_t tap_step, int64_t step, int64_t pixels, const real *x, const real *dy, int64_t dy_step, real *sums, int64_t ld) noexcept nogil:
    """sums[j ld] += sum_q x[q step + j tap_step] dy[q dy_step] for j < taps, one vector each; even and odd q in registers of their own.

    *Assumes:* taps is a compile-time constant of the caller.
    """
    cdef vec even[TAPS]
    cdef vec odd[TAPS]
    cdef vec d
    cdef int64_t _q
    cdef int j
    for j in range(taps):
        even[j] = load(sums + j * ld)
        odd[j] = zero()
    for _q in range(pixels // 2):
        d = load(dy)
        for j in range(taps):
            even[j] += load(x + j * tap_step * VL) * d
        d = load(dy + dy_step)
        x += step * VL
        for j in range(taps):
            odd[j] += load(x + j * tap_step * VL) * d
        x += step * VL
        dy += 2 * dy_step
    if pixels % 2:
        d = load(dy)
        for j in range(taps):
            even[j] += load(x + j * tap_step * VL) * d
    for j in range(taps):
        store(sums + j * ld, even[j] + odd[j])


cdef inline void reduce_tile(int taps, int64_t tap_step, int64_t step, int64_t pixels, const real *x, const real *dy, int64_t dy_step, real *sums, int64_t ld) noexcept nogil:
    """reduce_ukr for any taps <= TAPS."""
    if taps == 8: reduce_ukr(8, tap_step, step, pixels, x, dy, dy_step, sums, ld)
    elif taps == 7: reduce_ukr(7, tap_step, step, pixels, x, dy, dy_step, sums, ld)
    elif taps == 6: reduce_ukr(6, tap_step, step, pixels, x, dy, dy_step, sums, ld)
    elif taps == 5: reduce_ukr(5, tap_step, step, pixels, x, dy, dy_step, sums, ld)
    elif taps == 4: reduce_ukr(4, tap_step, step, pixels, x, dy, dy_step, sums, ld)
    elif taps == 3: reduce_ukr(3, tap_step, step, pixels, x, dy, dy_step, sums, ld)
    elif taps == 2: reduce_ukr(2, tap_step, step, pixels, x, dy, dy_step, sums, ld)
    elif taps == 1: reduce_ukr(1, tap_step, step, pixels, x, dy, dy_step, sums, ld)


cdef void reduce_row(const Reduce *w, const Block *b, const Ring *ring, int64_t t, int64_t pixels, const real *dy, int64_t dy_vector, int64_t dy_step, real *sums) noexcept nogil:
    """Adds one row of a chunk to all taps; dy is at [vector dy_vector + pixel dy_step], sums are [tap row][tap column][vector][VL]."""
    cdef int64_t taps_row = b.vectors * VL, tiles = divide_up(b.col.taps, TAPS), v, i, k, j
    cdef const real *row
    cdef real *tap
    cdef int taps
    for v in range(divide_up(b.lanes, VL)):
        row = ring_row(b, ring, b.row.z_step * t) + v * ring.width * VL
        for i in range(b.row.taps):
            for k in range(tiles):
                j = part(b.col.taps, k, tiles)
                taps = <int> (part(b.col.taps, k + 1, tiles) - j)
                tap = sums + ((b.row.filter_start + i) * w.g.filter_cols + b.col.filter_start + j) * taps_row + v * VL
                if b.col.tap_step == 1:
                    reduce_tile(taps, 1, b.col.z_step, pixels, row + j * VL, dy + v * dy_vector, dy_step, tap, taps_row)
                else:
                    reduce_tile(taps, b.col.tap_step, b.col.z_step, pixels, row + j * b.col.tap_step * VL, dy + v * dy_vector, dy_step, tap, taps_row)
            row = next_row(b, ring, row)


cdef void reduce_chunk(const Reduce *w, const Block *b, int64_t index, const char *dy, int64_t first, int64_t pixels, real *sums, real *scratch) noexcept nogil:
    """Pixels first.. of each row of one part of an image."""
    cdef const Problem *g = w.g
    cdef bint direct = is_direct(g, w.storage, b.lanes)
    cdef int64_t step = b.col.out_step * g.dst_x, t
    cdef real *line = scratch + w.k.ring
    cdef const char *src
    cdef Ring ring
    ring.rows, ring.width, ring.next = scratch, chunk_width(b.col, pixels), 0
    for t in range(part(b.row.count, index, w.parts), part(b.row.count, index + 1, w.parts)):
        fill_ring(b, &ring, t, b.col.z_step * first)
        src = dy + ((b.row.out_start + b.row.out_step * t) * g.dst_y + (b.col.out_start + b.col.out_step * first) * g.dst_x) * item_size(w.storage)
        if direct:
            reduce_row(w, b, &ring, t, pixels, <const real *> src, VL, step, sums)
        else:
            pack_line(w.storage, src, step, g.dst_c, pixels, b.lanes, 1, line, pixels * VL)
            reduce_row(w, b, &ring, t, pixels, line, pixels * VL, VL, sums)


cdef void reduce_part(const Reduce *w, Block *b, int64_t lane, int64_t n, int64_t index, real *sums, real *scratch) noexcept nogil:
    """Adds one part of one image, lane pair by lane pair, chunk by chunk."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), i, j, first, pixels
    cdef const char *dy = w.dy + (n * g.dst_n + lane * g.dst_c) * size
    b.src = w.x + (n * g.src_n + lane // b.repeat * g.src_c) * size
    for i in range(g.row_lanes):
        b.row = row_lanes(g) + i
        for j in range(g.col_lanes):
            b.col = col_lanes(g) + j
            first = 0
            while first < b.col.count:
                pixels = smaller(chunk_pixels(g, b.col), b.col.count - first)
                reduce_chunk(w, b, index, dy, first, pixels, sums, scratch)
                first += pixels


cdef void store_sums(const Reduce *w, const Block *b, int64_t span, int64_t lane, const real *sums) noexcept nogil:
    """Writes a block's dw to the result or, of several spans, to its partial."""
    cdef int64_t taps = w.g.filter_rows * w.g.filter_cols, tap
    for tap in range(taps):
        if w.spans == 1:
            if not all_finite(sums + tap * b.vectors * VL, b.lanes):
                w.finite[0] = False
            narrow(w.storage, sums + tap * b.vectors * VL, b.lanes, w.dw + (tap * w.k.total + lane) * item_size(w.storage))
        else:
            copy(sums + tap * b.vectors * VL, b.lanes, w.partials + (place(&w.wave, span) * taps + tap) * w.k.total + lane)


cdef void reduce_block(const Reduce *w, int64_t index, real *scratch) noexcept nogil:
    """One block of lanes, summed over one span."""
    cdef int64_t block = index % w.blocks, span = w.wave.first + index // w.blocks, lane = block * w.k.lanes, parts = w.g.images * w.parts, i
    cdef real *sums = scratch
    cdef Block b
    b.g, b.storage, b.vectors = w.g, w.storage, w.k.vectors
    b.lanes = smaller(w.k.lanes, w.k.total - lane)
    b.repeat = w.k.multiplier
    clear(sums, w.sums)
    for i in range(part(parts, span, w.spans), part(parts, span + 1, w.spans)):
        reduce_part(w, &b, lane, i // w.parts, i % w.parts, sums, scratch + w.sums)
    store_sums(w, &b, span, lane, sums)


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
    size = w.g.filter_rows * w.g.filter_cols * w.k.total
    w.wave = first_wave(w.spans, size, threads)
    partials = padded(w.wave.slots * size) if w.spans > 1 else 0
    scratch_size = padded(w.sums + w.k.ring + w.k.pixels * w.k.vectors * VL)
    w.partials = allocate(partials + threads * scratch_size)
    if w.partials == NULL:
        return 1
    while True:
        reduce_blocks(w, threads, w.partials + partials, scratch_size)
        if w.spans > 1:
            add_wave(w.partials, &w.wave, size, w.storage, w.dw, threads, w.finite)
        if not next_wave(&w.wave):
            break
    release(w.partials)
    return 0


def run(bytes problem not None, int storage, cnp.ndarray x not None, cnp.ndarray dy not None, cnp.ndarray dw not None, int num_threads):
    """Computes dw. Returns whether it is finite: if not, infinities of dy may have met the zeros of the padding of x."""
    cdef Reduce w
    cdef int failed
    cdef bint finite = True
    w.g = <const Problem *> PyBytes_AS_STRING(problem)
    w.storage = storage
    w.x = <const char *> cnp.PyArray_DATA(x)
    w.dy = <const char *> cnp.PyArray_DATA(dy)
    w.dw = <char *> cnp.PyArray_DATA(dw)
    w.finite = &finite
    with nogil:
        failed = drive(&w, num_threads)
    if failed:
        raise MemoryError("no memory for partial sums and scratch")
    return finite
