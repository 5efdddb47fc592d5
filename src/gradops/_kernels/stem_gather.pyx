# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[c, pixel] = sum_(k, tap) filter[k, tap, c] src[k, pixel + tap] for few channels c of dst: conv2d_backprop_input of a network's first
layer, and conv2d with few outputs.

In parallel: blocks of (image, groups, span of rows, chunk of columns). Packed: the filter once; rows of src in a ring, channel by channel, so that
a register holds neighbouring pixels, a tap is a load at a distance, and no patch is ever copied. Channels last, groups that share lines of dst are those of one block, which
takes 0.41 to 0.98 of the time, of two groups 1.02 to 1.05 (float32; bfloat16 0.5 to 1.1; 2 threads of a Zen 5).

*Assumes:* src, filter and dst are contiguous and aligned; the problem is not empty; dst has at most CHANNELS channels a group; every lane has
z_step 1 and src_unit 1.
"""
from libc.stdint cimport int64_t
from _blocks cimport FIRST_FREE, do_blocks
from _entry cimport exported, outcome
from _patches cimport BY_SLOT, pack_line
from _problem cimport Problem, Lane, row_lanes, col_lanes, clear_dst, divide_up, larger, part, smaller, takes_turns, useful_threads
from _scratch cimport allocate, apart, padded, release
from _storage cimport real, vec, MR, VL, borrow_blocks, all_finite, fetch_lines, item_size, load_once, prefetch_soon, store, zero, narrow_block, narrow_in_turns, widen_block

cdef enum:
    CHANNELS = 8                                        # of dst in a group, at most
    VECTORS = 8                                         # of a register tile, at most
    TILE = 24                                           # accumulators of a register tile, at most; of a level with 16 registers, 9
    MIN_BLOCKS = 48                                     # rows are split until there are as many blocks
    MIN_ROWS = 4                                        # of a span, at least: its first rows pack a filter's height of src alone
    TOGETHER = 512                                      # bytes of a pixel of dst, about, whose groups one thread computes
    PAD = 16                                            # lines are longer than they need, so that they spread over the cache sets
    SUMS = CHANNELS * VECTORS * VL                      # of a row of a chunk and a lane of columns, at most


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    int64_t low, high                                   # src rows that pixel row 0 of any lane reads: low <= y <= high
    int64_t left, width                                 # src columns that a chunk of any lane reads: left + first.. , and how many
    int64_t vectors                                     # of a chunk
    int64_t chunks, spans, bundles                      # of columns, of rows, and of groups
    bint in_turns                                       # whether the columns of two lanes are stored together
    int64_t channel_bytes, tap_bytes                    # of the next src row, that a channel fetches while this one is computed, and each of its taps
    real *weights                                       # [group][row lane][column lane][tap row][k][tap column][c]


cdef int64_t rows_of(const Gather *w) noexcept nogil:
    """Pixel rows of the longest lane."""
    cdef int64_t i, most = 0
    for i in range(w.g.row_lanes):
        most = larger(most, row_lanes(w.g)[i].count)
    return most


cdef int most_vectors(int64_t channels) noexcept nogil:
    """Vectors of a register tile: as many accumulators as leave registers for the weights and an operand."""
    return <int> larger(smaller((TILE if MR > 6 else 9) // channels, VECTORS), 1)


cdef void plan(Gather *w) noexcept nogil:
    """Chooses chunks and spans; by the problem alone, never by the number of threads."""
    cdef const Problem *g = w.g
    cdef const Lane *lane
    cdef int64_t i, columns = 0, right = 0
    w.low, w.high, w.left = 1 << 62, -(1 << 62), 1 << 62
    for i in range(g.row_lanes):
        lane = row_lanes(g) + i
        w.low, w.high = smaller(w.low, lane.src_start), larger(w.high, lane.src_start + lane.tap_step * (lane.taps - 1))
    for i in range(g.col_lanes):
        lane = col_lanes(g) + i
        w.left, right = smaller(w.left, lane.src_start), larger(right, lane.src_start + lane.tap_step * (lane.taps - 1))
        columns = larger(columns, lane.count)
    w.chunks = divide_up(divide_up(columns, VL), most_vectors(g.dst_channels))
    w.vectors = divide_up(divide_up(columns, VL), w.chunks)
    w.width = w.vectors * VL + right - w.left
    w.channel_bytes = (g.src_c if g.src_x == 1 else w.width) * item_size(w.storage)
    w.tap_bytes = divide_up(w.width * item_size(w.storage), g.filter_rows * g.filter_cols)
    w.in_turns = takes_turns(g) and item_size(w.storage) < 8
    w.bundles = divide_up(g.groups, larger(TOGETHER // (g.dst_channels * item_size(w.storage)), 1)) if g.dst_c == 1 else g.groups
    w.spans = larger(smaller(divide_up(MIN_BLOCKS, g.images * w.bundles * w.chunks), rows_of(w) // MIN_ROWS), 1)


cdef int64_t weights_size(const Problem *g) noexcept nogil:
    return g.filter_rows * g.filter_cols * g.src_channels * g.dst_channels


cdef bint pack_weights(const Gather *w, int64_t group) noexcept nogil:
    """Returns whether they are finite."""
    cdef const Problem *g = w.g
    cdef const Lane *row
    cdef const Lane *col
    cdef int64_t r, s, i, j, at, step
    cdef real *begin = w.weights + group * weights_size(g)
    cdef real *dst = begin
    for r in range(g.row_lanes):
        row = row_lanes(g) + r
        for s in range(g.col_lanes):
            col = col_lanes(g) + s
            step = col.taps * g.dst_channels
            for i in range(row.taps):
                for j in range(col.taps):
                    at = (group * g.filter_group + (row.filter_start + row.filter_step * i) * g.filter_y
                          + (col.filter_start + col.filter_step * j) * g.filter_x)
                    widen_block(w.storage, w.filter + at * item_size(w.storage), g.filter_src, g.filter_dst, g.src_channels, g.dst_channels,
                                dst + j * g.dst_channels, step)
                dst += g.src_channels * step
    return all_finite(begin, dst - begin)


cdef struct Ring:                                       # the packed rows of src: [row][k][width]
    real *rows
    int64_t size, line                                  # reals of a row, and from a channel to the next
    int64_t height
    int64_t next                                        # the first row that has not been packed


cdef inline real *ring_row(const Ring *ring, int64_t y, int64_t low) noexcept nogil:
    return ring.rows + (y - low) % ring.height * ring.size


cdef inline void stem_ukr(int channels, int vectors, const Gather *w, const Ring *ring, const Lane *row, const Lane *col, int64_t t, int64_t first, const real *weights, const char *fetch, real *out, int64_t ld) noexcept nogil:
    """out[c ld + pixel] = sum_(i, k, j) row_i[k][pixel + j tap_step] weights[i][k][j][c], for `vectors` vectors of pixels. Each channel and tap
    fetches a line of what is packed next.

    Loops are left at their ends, as in `gemm_ukr`, so that sums stay in registers.

    *Assumes:* channels and vectors are compile-time constants of the caller; lanes have taps.
    """
    cdef vec acc[CHANNELS][VECTORS]
    cdef vec x
    cdef const real *line
    cdef const char *next
    cdef int64_t i = 0, k, j
    cdef int c, v
    for c in range(channels):
        for v in range(vectors):
            acc[c][v] = zero()
    while True:
        line = ring_row(ring, row.src_start + t + row.tap_step * i, w.low) + first
        k = w.g.src_channels
        while True:
            next = fetch
            j = 0
            while True:
                prefetch_soon(next)
                next += w.tap_bytes
                for v in range(vectors):
                    x = load_once(line + j * col.tap_step + v * VL)
                    for c in range(channels):
                        acc[c][v] += weights[c] * x
                weights += channels
                j += 1
                if j == col.taps:
                    break
            line += ring.line
            fetch += w.channel_bytes
            k -= 1
            if k == 0:
                break
        fetch += col.taps * w.tap_bytes - w.g.src_channels * w.channel_bytes
        i += 1
        if i == row.taps:
            break
    for c in range(channels):
        for v in range(vectors):
            store(out + c * ld + v * VL, acc[c][v])


cdef inline void stem_channels(int channels, int64_t vectors, const Gather *w, const Ring *ring, const Lane *row, const Lane *col, int64_t t, int64_t first, const real *weights, const char *fetch, real *out, int64_t ld) noexcept nogil:
    """stem_ukr for any number of vectors."""
    if channels * 8 <= TILE and vectors == 8: stem_ukr(channels, 8, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif channels * 7 <= TILE and vectors == 7: stem_ukr(channels, 7, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif channels * 6 <= TILE and vectors == 6: stem_ukr(channels, 6, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif channels * 5 <= TILE and vectors == 5: stem_ukr(channels, 5, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif channels * 4 <= TILE and vectors == 4: stem_ukr(channels, 4, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif channels * 3 <= TILE and vectors == 3: stem_ukr(channels, 3, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif channels * 2 <= TILE and vectors == 2: stem_ukr(channels, 2, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif channels * 1 <= TILE and vectors == 1: stem_ukr(channels, 1, w, ring, row, col, t, first, weights, fetch, out, ld)


cdef void stem_tile(const Gather *w, const Ring *ring, const Lane *row, const Lane *col, int64_t t, int64_t first, int64_t vectors, const real *weights, const char *fetch, real *out, int64_t ld) noexcept nogil:
    """stem_ukr for any number of channels, too."""
    if w.g.dst_channels == 1: stem_channels(1, vectors, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif w.g.dst_channels == 2: stem_channels(2, vectors, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif w.g.dst_channels == 3: stem_channels(3, vectors, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif w.g.dst_channels == 4: stem_channels(4, vectors, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif w.g.dst_channels == 5: stem_channels(5, vectors, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif w.g.dst_channels == 6: stem_channels(6, vectors, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif w.g.dst_channels == 7: stem_channels(7, vectors, w, ring, row, col, t, first, weights, fetch, out, ld)
    elif w.g.dst_channels == 8: stem_channels(8, vectors, w, ring, row, col, t, first, weights, fetch, out, ld)


cdef void fill_ring(const Gather *w, Ring *ring, int64_t last, int64_t x, const char *src) noexcept nogil:
    """Packs the rows up to `last` that the ring does not hold yet."""
    while ring.next <= last:
        pack_line(w.g, w.storage, src, ring.next, x, 1, w.width, w.g.src_channels, BY_SLOT, ring_row(ring, ring.next, w.low), ring.line)
        ring.next += 1


cdef void fetch_row(const Gather *w, const char *dst, int64_t pixels) noexcept nogil:
    """Fetches as many pixels of a row of dst, which are going to be written: those of two lanes, which are stored at once, as such, since they would wait
    where another core has written the lines before (1.4 times as long, 2 threads of a Zen 4)."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), c
    for c in range(g.dst_channels if g.dst_x == 1 else 1):
        if w.in_turns:
            fetch_lines(dst + c * g.dst_c * size, pixels * g.dst_x * size, True)
        else:
            fetch_lines(dst + c * g.dst_c * size, pixels * g.dst_x * size, False)


cdef void store_in_turns(const Gather *w, const real *sums, int64_t ld, int64_t pixels, char *dst) noexcept nogil:
    """Writes columns of both lanes, the even ones first in memory, so that each line of dst is written once: first layers with strides are 1.0 to 1.15 times as
    fast, groups of 8 1.1 to 1.2, of 16-bit numbers 1.7; float64, where this is not used, 0.9 to 1.1 (Zen 4)."""
    cdef int64_t c
    for c in range(w.g.dst_channels):
        narrow_in_turns(w.storage, sums + c * ld, sums + SUMS + c * ld, pixels, dst + c * w.g.dst_c * item_size(w.storage))


cdef void gather_rows(const Gather *w, int64_t t, int64_t chunk, const Ring *ring, const real *weights, const char *fetch, char *dst, real *out) noexcept nogil:
    """The chunk of pixel row t of every row lane and column lane. `out` has room for two of these."""
    cdef const Problem *g = w.g
    cdef const Lane *row
    cdef const Lane *col
    cdef int64_t r, s, pixels = 0, first = chunk * w.vectors * VL, ld = w.vectors * VL, step = col_lanes(g).out_step, size = item_size(w.storage)
    cdef char *begin
    cdef real *sums
    for r in range(g.row_lanes):
        row = row_lanes(g) + r
        begin = dst + ((row.out_start + row.out_step * t) * g.dst_y + step * first * g.dst_x) * size
        if t < row.count:
            fetch_row(w, begin, step * ld)
        for s in range(g.col_lanes):
            col = col_lanes(g) + s
            pixels, sums = smaller(col.count - first, ld), out + (SUMS * col.out_start if w.in_turns else 0)
            if t < row.count and pixels > 0:
                stem_tile(w, ring, row, col, t, col.src_start - w.left, divide_up(pixels, VL), weights, fetch, sums, ld)
                if not w.in_turns:
                    narrow_block(w.storage, sums, ld, g.dst_channels, pixels, begin + col.out_start * g.dst_x * size, g.dst_c, col.out_step * g.dst_x)
            weights += row.taps * col.taps * g.src_channels * g.dst_channels
            fetch += row.taps * col.taps * w.tap_bytes
        if w.in_turns and t < row.count and pixels > 0:
            store_in_turns(w, out, ld, pixels, begin)


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One chunk of columns of one span of rows of one image and some groups."""
    cdef const Gather *w = <const Gather *> work
    cdef int64_t chunk = index % w.chunks, span, bundle, n, group
    index = index // w.chunks
    span, index = index % w.spans, index // w.spans
    bundle, n = index % w.bundles, index // w.bundles
    for group in range(part(w.g.groups, bundle, w.bundles), part(w.g.groups, bundle + 1, w.bundles)):
        gather_group(w, n, group, span, chunk, <real *> slab)


cdef void gather_group(const Gather *w, int64_t n, int64_t group, int64_t span, int64_t chunk, real *scratch) noexcept nogil:
    """Those of one group."""
    cdef const Problem *g = w.g
    cdef int64_t x = w.left + chunk * w.vectors * VL, begin = part(rows_of(w), span, w.spans), size = item_size(w.storage), t
    cdef Ring ring
    cdef const char *src = w.src + (n * g.src_n + group * g.src_channels * g.src_c) * size
    cdef char *dst = w.dst + (n * g.dst_n + group * g.dst_channels * g.dst_c) * size
    cdef const char *next_row
    ring.line, ring.height = w.width + PAD, w.high - w.low + 1
    ring.size, ring.next = g.src_channels * ring.line, w.low + begin
    ring.rows = scratch + 2 * SUMS
    for t in range(begin, part(rows_of(w), span + 1, w.spans)):
        fill_ring(w, &ring, w.high + t, x, src)
        next_row = src + (ring.next * g.src_y + x * g.src_x) * size
        gather_rows(w, t, chunk, &ring, w.weights + group * weights_size(g), next_row, dst, scratch)


cdef int64_t blocks(const Gather *w) noexcept nogil:
    return w.g.images * w.bundles * w.spans * w.chunks


cdef int drive(Gather *w, int threads, bint *finite) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef int64_t weights, scratch_size, group
    plan(w)
    threads = useful_threads(g, blocks(w), threads)
    weights = padded(g.groups * weights_size(g))
    scratch_size = apart(2 * SUMS + (w.high - w.low + 1) * g.src_channels * (w.width + PAD) + VL, threads)
    w.weights = allocate(weights + threads * scratch_size)
    if w.weights == NULL:
        return 1
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    for group in range(g.groups):
        if not pack_weights(w, group):
            finite[0] = False
    do_blocks(gather_block, w, blocks(w), threads, FIRST_FREE, w.weights + weights, scratch_size * sizeof(real))
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
