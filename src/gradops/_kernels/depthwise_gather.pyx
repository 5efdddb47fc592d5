# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, c] = sum_(m, tap) src[pixel + tap, lane] filter[tap, lane]: depthwise_conv2d_native and its input gradient, one stencil.

In parallel: blocks of (image, span of rows, lanes). Packed: the filter once, as [block][tap][lane]; rows of src in a ring. A register holds
one vector of lanes of one pixel; a tap's filter vector serves up to TILE pixels. Forward, a channel is repeated for its multipliers while
it is packed; backward, the lanes of a channel are added up when they are stored.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is not empty; row lanes have tap_step 1; at most LANES multipliers.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
cimport numpy as cnp
from _problem cimport Problem, row_lanes, col_lanes, clear_dst, divide_up, smaller, larger, part, useful_threads
from _ring cimport Block, Blocking, Ring, blocking, chunk_pixels, chunk_width, fill_ring, is_direct, next_row, ring_row
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, VL, MR, all_finite, item_size, clear, load, store, zero, widen, narrow_block

cnp.import_array()

cdef enum:
    TILE = 14                                           # pixels of a register tile, at most
    MIN_BLOCKS = 32                                     # rows are split until there are as many blocks
    ROWS_PER_TAP = 4                                    # rows of a span, at least: its first rows pack a filter's height of src alone


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    Blocking k
    int64_t blocks, spans
    real *filter_panels                                 # [block][tap][vector][VL]


cdef void plan(Gather *w) noexcept nogil:
    """Chooses blocks and spans; by the problem alone, never by the number of threads."""
    w.k = blocking(w.g, row_lanes(w.g), col_lanes(w.g))
    w.blocks = divide_up(w.k.total, w.k.lanes)
    w.spans = larger(smaller(divide_up(MIN_BLOCKS, w.blocks * w.g.images), w.g.dst_rows // (ROWS_PER_TAP * w.g.filter_rows)), 1)


cdef bint pack_filter(const Gather *w) noexcept nogil:
    """Returns whether the filter is finite."""
    cdef int64_t taps = w.g.filter_rows * w.g.filter_cols, row = w.k.vectors * VL, block, tap, lanes
    cdef real *dst
    for block in range(w.blocks):
        lanes = smaller(w.k.lanes, w.k.total - block * w.k.lanes)
        for tap in range(taps):
            dst = w.filter_panels + (block * taps + tap) * row
            clear(dst, row)
            widen(w.storage, w.filter + (tap * w.k.total + block * w.k.lanes) * item_size(w.storage), lanes, dst)
    return all_finite(w.filter_panels, w.blocks * taps * row)


cdef inline void stencil_ukr(int pixels, int64_t step, const Block *b, const Ring *ring, const real *row, const real *filter, int64_t filter_row, int64_t filter_col, real *out, int64_t ld) noexcept nogil:
    """out[q ld] = sum_(i, j) row_i[q step + j tap_step] filter[i filter_row + j filter_col] for q < pixels, one vector each.

    *Assumes:* pixels is a compile-time constant of the caller; row_0 is `row`, the others follow in the ring.
    """
    cdef vec acc[TILE]
    cdef vec tap
    cdef const real *x
    cdef const real *weights
    cdef int64_t i, _j
    cdef int q
    for q in range(pixels):
        acc[q] = zero()
    for i in range(b.row.taps):
        x = row
        weights = filter + i * filter_row
        for _j in range(b.col.taps):
            tap = load(weights)
            for q in range(pixels):
                acc[q] += load(x + q * step * VL) * tap
            x += b.col.tap_step * VL
            weights += filter_col
        row = next_row(b, ring, row)
    for q in range(pixels):
        store(out + q * ld, acc[q])


cdef inline void stencil_tile(int pixels, int64_t step, const Block *b, const Ring *ring, const real *row, const real *filter, int64_t filter_row, int64_t filter_col, real *out, int64_t ld) noexcept nogil:
    """stencil_ukr for any pixels <= TILE."""
    if pixels == 14: stencil_ukr(14, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 13: stencil_ukr(13, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 12: stencil_ukr(12, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 11: stencil_ukr(11, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 10: stencil_ukr(10, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 9: stencil_ukr(9, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 8: stencil_ukr(8, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 7: stencil_ukr(7, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 6: stencil_ukr(6, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 5: stencil_ukr(5, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 4: stencil_ukr(4, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 3: stencil_ukr(3, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 2: stencil_ukr(2, step, b, ring, row, filter, filter_row, filter_col, out, ld)
    elif pixels == 1: stencil_ukr(1, step, b, ring, row, filter, filter_row, filter_col, out, ld)


cdef void compute_row(const Gather *w, const Block *b, const Ring *ring, int64_t t, int64_t pixels, const real *filter, real *out, int64_t ld) noexcept nogil:
    """out[pixel ld + lane] for one row of a chunk."""
    cdef int64_t taps = b.vectors * VL, tiles = divide_up(pixels, TILE if MR > 6 else 12), v, i, q
    cdef int64_t filter_row = b.row.filter_step * w.g.filter_cols * taps, filter_col = b.col.filter_step * taps
    cdef const real *row = ring_row(b, ring, b.row.z_step * t)
    cdef const real *x
    cdef int size
    filter += (b.row.filter_start * w.g.filter_cols + b.col.filter_start) * taps
    for v in range(divide_up(b.lanes, VL)):
        for i in range(tiles):
            q = part(pixels, i, tiles)
            size = <int> (part(pixels, i + 1, tiles) - q)
            x = row + (v * ring.width + q * b.col.z_step) * VL
            if b.col.z_step == 1:
                stencil_tile(size, 1, b, ring, x, filter + v * VL, filter_row, filter_col, out + q * ld + v * VL, ld)
            else:
                stencil_tile(size, b.col.z_step, b, ring, x, filter + v * VL, filter_row, filter_col, out + q * ld + v * VL, ld)


cdef void fold(real *out, int64_t pixels, int64_t row, int64_t channels, int64_t multiplier) noexcept nogil:
    """out[pixel][c] = sum_m out[pixel][c multiplier + m], in place."""
    cdef int64_t q, c, m
    cdef real total
    for q in range(pixels):
        for c in range(channels):
            total = 0
            for m in range(multiplier):
                total += out[q * row + c * multiplier + m]
            out[q * row + c] = total


cdef void store_row(const Gather *w, const Block *b, int64_t pixels, real *out, char *dst) noexcept nogil:
    """Adds up the lanes of a channel, if that is due, and writes a row."""
    cdef int64_t folded = w.k.multiplier if w.g.dst_channels == 1 else 1
    if folded > 1:
        fold(out, pixels, b.vectors * VL, b.lanes // folded, folded)
    narrow_block(w.storage, out, b.vectors * VL, pixels, b.lanes // folded, dst, b.col.out_step * w.g.dst_x, w.g.dst_c)


cdef void gather_chunk(const Gather *w, const Block *b, int64_t span, int64_t first, int64_t pixels, char *dst, const real *filter, real *scratch) noexcept nogil:
    """Pixels first.. of each row of the span."""
    cdef const Problem *g = w.g
    cdef bint direct = is_direct(g, w.storage, b.lanes) and (w.k.multiplier == 1 or g.dst_channels > 1)
    cdef int64_t t
    cdef char *row
    cdef Ring ring
    ring.rows, ring.width, ring.next = scratch, chunk_width(b.col, pixels), 0
    for t in range(part(b.row.count, span, w.spans), part(b.row.count, span + 1, w.spans)):
        fill_ring(b, &ring, t, b.col.z_step * first)
        row = dst + ((b.row.out_start + b.row.out_step * t) * g.dst_y + (b.col.out_start + b.col.out_step * first) * g.dst_x) * item_size(w.storage)
        if direct:
            compute_row(w, b, &ring, t, pixels, filter, <real *> row, b.col.out_step * g.dst_x)
        else:
            compute_row(w, b, &ring, t, pixels, filter, scratch + w.k.ring, b.vectors * VL)
            store_row(w, b, pixels, scratch + w.k.ring, row)


cdef void gather_block(const Gather *w, int64_t index, real *scratch) noexcept nogil:
    """One block of lanes of one span of rows of one image, lane pair by lane pair, chunk by chunk."""
    cdef const Problem *g = w.g
    cdef int64_t block = index % w.blocks, span = index // w.blocks % w.spans, n = index // w.blocks // w.spans
    cdef int64_t size = item_size(w.storage), lane = block * w.k.lanes, i, j, first, pixels
    cdef char *dst = w.dst + (n * g.dst_n + lane // (w.k.multiplier if g.dst_channels == 1 else 1) * g.dst_c) * size
    cdef const real *filter = w.filter_panels + block * g.filter_rows * g.filter_cols * w.k.vectors * VL
    cdef Block b
    b.g, b.storage, b.vectors = g, w.storage, w.k.vectors
    b.lanes = smaller(w.k.lanes, w.k.total - lane)
    b.repeat = w.k.multiplier if g.src_channels == 1 else 1
    b.src = w.src + (n * g.src_n + lane // b.repeat * g.src_c) * size
    for i in range(g.row_lanes):
        b.row = row_lanes(g) + i
        for j in range(g.col_lanes):
            b.col = col_lanes(g) + j
            first = 0
            while first < b.col.count:
                pixels = smaller(chunk_pixels(g, b.col), b.col.count - first)
                gather_chunk(w, &b, span, first, pixels, dst, filter, scratch)
                first += pixels


cdef void gather_blocks(const Gather *w, int threads, real *scratch, int64_t scratch_size) noexcept nogil:
    cdef int64_t i
    if threads == 1:
        for i in range(w.g.images * w.spans * w.blocks):
            gather_block(w, i, scratch)
        return
    for i in prange(w.g.images * w.spans * w.blocks, num_threads=threads, schedule="static"):
        gather_block(w, i, scratch + threadid() * scratch_size)


cdef int drive(Gather *w, int threads, bint *finite) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef int64_t panels, scratch_size
    plan(w)
    threads = useful_threads(g, g.images * w.spans * w.blocks, threads)
    panels = padded(w.blocks * g.filter_rows * g.filter_cols * w.k.vectors * VL)
    scratch_size = padded(w.k.ring + w.k.pixels * w.k.vectors * VL)
    w.filter_panels = allocate(panels + threads * scratch_size)
    if w.filter_panels == NULL:
        return 1
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    finite[0] = pack_filter(w)
    gather_blocks(w, threads, w.filter_panels + panels, scratch_size)
    release(w.filter_panels)
    return 0


def run(bytes problem not None, int storage, cnp.ndarray src not None, cnp.ndarray filter not None, cnp.ndarray dst not None, int num_threads):
    """Computes dst. Returns whether the filter is finite: if not, its products with the zeros of the padding are NaN."""
    cdef Gather w
    cdef int failed
    cdef bint finite
    w.g = <const Problem *> PyBytes_AS_STRING(problem)
    w.storage = storage
    w.src = <const char *> cnp.PyArray_DATA(src)
    w.filter = <const char *> cnp.PyArray_DATA(filter)
    w.dst = <char *> cnp.PyArray_DATA(dst)
    with nogil:
        failed = drive(&w, num_threads, &finite)
    if failed:
        raise MemoryError("no memory for the packed filter and scratch")
    return finite
