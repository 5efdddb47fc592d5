# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[tap, lane] = sum_pixel x[pixel + tap, lane] dy[pixel, lane]: depthwise_conv2d_native_backprop_filter; and conv2d_backprop_filter of groups of as
many outputs as inputs, where lanes of dy change places (`_groups.pxd`).

In parallel: blocks of (span of images and rows, lanes); each span sums into its own partial dw, and the partials are added in order. Packed:
rows of x in a ring, rows of dy as they come. A register holds one vector of lanes of one tap; all taps, or a row of them, are summed along the
rows of a strip.

*Assumes:* x, dy and dw are contiguous and aligned; the problem is that of the forward op and not empty; row lanes have tap_step 1; at most
LANES multipliers, or groups that `_groups.pxd` takes, of at most 8; dw is [tap][lane] or [lane][tap], as the strides of the filter say.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER
from _entry cimport exported, outcome
from _groups cimport WIDEST, exchanges, group_lanes, group_vectors, is_grouped, join_ways, tap_vectors
from _partials cimport Total, aim_total, store_block, sum_spans
from _problem cimport Problem, row_lanes, col_lanes, divide_up, larger, smaller, part, useful_threads
from _ring cimport MIN_BLOCKS, Block, Blocking, Ring, at_column, blocking, chunk_pixels, fill_ring, is_direct, load_column, next_row, open_ring, pack_line, ring_height, ring_row, ring_width, set_lanes
from _scratch cimport padded
from _storage cimport real, vec, MR, VL, borrow_blocks, exchange, item_size, clear, load, prefetch_soon, store, zero

cdef enum:
    TAPS = 8                                            # of a register tile with one row of them, at most
    ROWS = 5                                            # of a register tile, at most
    ROW = 64                                            # pixels that are summed for one tile after the other, about
    GROUP_SUMS = 24                                     # of a register tile of groups, at most
    ENOUGH = 9                                          # sums, so many that an addition has ended when the next one to the same sum begins


cdef struct Reduce:
    const Problem *g
    int storage
    const char *x
    const char *dy
    Total dw
    Blocking k
    int64_t sums                                        # reals of a block's dw


cdef void plan(Reduce *w) noexcept nogil:
    """Chooses blocks and spans; by the problem alone, never by the number of threads."""
    cdef const Problem *g = w.g
    w.k = blocking(g, row_lanes(g), g.row_lanes, col_lanes(g), g.col_lanes)
    w.dw.size = g.filter_rows * g.filter_cols * w.k.total * group_lanes(g)
    w.dw.spans = smaller(divide_up(MIN_BLOCKS, w.k.blocks), g.images * w.k.parts)   # some of the images' parts each
    w.sums = padded(g.filter_rows * g.filter_cols * tap_vectors(g, w.k.vectors) * VL)


cdef struct Strip:                                      # some rows of a chunk
    const Block *b
    const Ring *ring
    int64_t t, rows, pixels
    const real *dy                                      # at vector v of row r and pixel q: dy[v vector + r row + q step]
    int64_t vector, row, step
    int64_t ahead                                       # the same of the next strip


cdef inline void reduce_ukr(int rows, int taps, int pitch, int64_t tap_step, int64_t step, const Strip *s, int64_t v, int64_t tap_row, int64_t tap, int64_t begin, int64_t end, bint fetch, real *sums, int64_t row_ld, int64_t ld) noexcept nogil:
    """sums[i row_ld + j ld] += sum_(t, q) x[step t + tap_row + i][step q + (tap + j) tap_step] dy[t][q] for i < rows, j < taps, vector v of each, over
    rows begin <= t < end of a strip. Few sums have registers of their own for odd q, since each addition waits for the one before. Fetches the next
    strip's dy, if told to.

    *Assumes:* rows, taps and pitch are compile-time constants of the caller.
    """
    cdef vec even[ROWS * ROWS]
    cdef vec odd[ROWS * ROWS]
    cdef const real *x[ROWS]
    cdef const real *first = ring_row(s.ring, s.b.row.z_step * (s.t + begin) + tap_row) + at_column(s.b, s.ring, v, tap * tap_step)
    cdef const real *next
    cdef const real *dy
    cdef int64_t ahead = s.ahead if fetch else 0, t, _q
    cdef vec d
    cdef int i, j
    for i in range(rows):
        for j in range(taps):
            even[i * taps + j] = load(sums + i * row_ld + j * ld)
            odd[i * taps + j] = zero()
    for t in range(begin, end):
        next = first
        for i in range(rows):
            x[i] = next
            next = next_row(s.ring, next)
        for _q in range(s.b.row.z_step):
            first = next_row(s.ring, first)
        dy = s.dy + v * s.vector + t * s.row
        for _q in range(s.pixels // 2):
            prefetch_soon(dy + ahead)
            d = load(dy)
            for i in range(rows):
                for j in range(taps):
                    even[i * taps + j] += load_column(pitch, x[i] + j * tap_step * pitch) * d
            dy += s.step
            prefetch_soon(dy + ahead)
            d = load(dy)
            for i in range(rows):
                for j in range(taps):
                    if rows * taps < ENOUGH:
                        odd[i * taps + j] += load_column(pitch, x[i] + (step + j * tap_step) * pitch) * d
                    else:
                        even[i * taps + j] += load_column(pitch, x[i] + (step + j * tap_step) * pitch) * d
            dy += s.step
            for i in range(rows):
                x[i] += 2 * step * pitch
        if s.pixels % 2:
            prefetch_soon(dy + ahead)
            d = load(dy)
            for i in range(rows):
                for j in range(taps):
                    even[i * taps + j] += load_column(pitch, x[i] + j * tap_step * pitch) * d
    for i in range(rows):
        for j in range(taps):
            store(sums + i * row_ld + j * ld, even[i * taps + j] + odd[i * taps + j] if rows * taps < ENOUGH else even[i * taps + j])


cdef inline void reduce_tile(int rows, int taps, int pitch, int64_t tap_step, int64_t step, const Strip *s, int64_t v, int64_t tap_row, int64_t tap, int64_t begin, int64_t end, bint fetch, real *sums, int64_t row_ld, int64_t ld) noexcept nogil:
    """reduce_ukr for 3 x 3 and 5 x 5 taps, and for one row of any taps <= TAPS."""
    if rows == 3: reduce_ukr(3, 3, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)
    elif rows == 5: reduce_ukr(5, 5, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)
    elif taps == 8: reduce_ukr(1, 8, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)
    elif taps == 7: reduce_ukr(1, 7, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)
    elif taps == 6: reduce_ukr(1, 6, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)
    elif taps == 5: reduce_ukr(1, 5, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)
    elif taps == 4: reduce_ukr(1, 4, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)
    elif taps == 3: reduce_ukr(1, 3, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)
    elif taps == 2: reduce_ukr(1, 2, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)
    elif taps == 1: reduce_ukr(1, 1, pitch, tap_step, step, s, v, tap_row, tap, begin, end, fetch, sums, row_ld, ld)


cdef inline void group_ukr(int taps, int ways, int64_t tap_step, int64_t step, const Strip *s, int64_t v, int64_t from_, int64_t tap_row, int64_t tap, int64_t begin, int64_t end, bint fetch, real *sums, int64_t ld) noexcept nogil:
    """reduce_ukr of groups, one row of taps, for vector `from_` of x and v of dy: sums[j ld + s] += x[.. + j] dy with lanes at a distance of s in each
    other's place.

    *Assumes:* taps and ways are compile-time constants of the caller.
    """
    cdef vec acc[GROUP_SUMS]
    cdef vec operand[TAPS]
    cdef vec d, moved
    cdef const real *x
    cdef const real *dy
    cdef int64_t ahead = s.ahead if fetch else 0, t, _q
    cdef int j, i
    for j in range(taps):
        for i in range(ways):
            acc[j * ways + i] = load(sums + j * ld + i * VL)
    for t in range(begin, end):
        x = ring_row(s.ring, s.b.row.z_step * (s.t + t) + tap_row) + (from_ * s.ring.width + tap * tap_step) * VL
        dy = s.dy + v * s.vector + t * s.row
        for _q in range(s.pixels):
            prefetch_soon(dy + ahead)
            d = load(dy)
            for j in range(taps):
                operand[j] = load(x + j * tap_step * VL)
            for i in range(ways):
                moved = exchange(d, i) if i else d
                for j in range(taps):
                    acc[j * ways + i] += operand[j] * moved
            dy += s.step
            x += step * VL
    for j in range(taps):
        for i in range(ways):
            store(sums + j * ld + i * VL, acc[j * ways + i])


cdef inline int64_t group_taps(int64_t ways) noexcept nogil:
    """Taps of a register tile of groups, at most."""
    if MR > 6:
        return 8 if ways == 2 else 5 if ways == 4 else 3
    return 4 if ways == 2 else 2 if ways == 4 else 1


cdef inline void group_tile(int64_t taps, int64_t ways, int64_t tap_step, int64_t step, const Strip *s, int64_t v, int64_t from_, int64_t tap_row, int64_t tap, int64_t begin, int64_t end, bint fetch, real *sums, int64_t ld) noexcept nogil:
    """group_ukr for any taps <= group_taps."""
    if ways == 2:
        if MR > 6 and taps == 8: group_ukr(8, 2, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif MR > 6 and taps == 7: group_ukr(7, 2, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif MR > 6 and taps == 6: group_ukr(6, 2, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif MR > 6 and taps == 5: group_ukr(5, 2, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif taps == 4: group_ukr(4, 2, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif taps == 3: group_ukr(3, 2, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif taps == 2: group_ukr(2, 2, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif taps == 1: group_ukr(1, 2, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
    elif VL >= 4 and ways == 4:
        if MR > 6 and taps == 5: group_ukr(5, 4, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif MR > 6 and taps == 4: group_ukr(4, 4, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif MR > 6 and taps == 3: group_ukr(3, 4, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif taps == 2: group_ukr(2, 4, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif taps == 1: group_ukr(1, 4, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
    elif VL >= 8 and ways == 8:
        if MR > 6 and taps == 3: group_ukr(3, 8, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif MR > 6 and taps == 2: group_ukr(2, 8, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)
        elif taps == 1: group_ukr(1, 8, tap_step, step, s, v, from_, tap_row, tap, begin, end, fetch, sums, ld)


cdef int rows_of_tile(const Block *b) noexcept nogil:
    """Rows of taps whose sums fit into registers together."""
    if is_grouped(b.g):
        return 1
    if b.row.taps == b.col.taps and (b.row.taps == 3 or (b.row.taps == 5 and MR > 6)):
        return <int> b.row.taps
    return 1


cdef inline void reduce_rows(int pitch, const Reduce *w, const Strip *s, int64_t v, int rows, int64_t begin, int64_t end, real *sums) noexcept nogil:
    """Adds rows begin.. of a strip to vector v of all taps; sums are [tap row][tap column][vector][VL]. *Assumes:* pitch is a
    compile-time constant of the caller."""
    cdef const Block *b = s.b
    cdef int64_t ld = b.vectors * VL, row_ld = w.g.filter_cols * ld, tiles = 1 if rows > 1 else divide_up(b.col.taps, TAPS), i, j, k
    cdef int taps
    cdef bint fetch = True
    cdef real *tap
    for i in range(b.row.taps // rows):
        for k in range(tiles):
            j = part(b.col.taps, k, tiles)
            taps = <int> (part(b.col.taps, k + 1, tiles) - j)
            tap = sums + (b.row.filter_start + i) * row_ld + (b.col.filter_start + j) * ld + v * VL
            if pitch == VL and b.col.tap_step == 1 and b.col.z_step == 1:
                reduce_tile(rows, taps, pitch, 1, 1, s, v, i, j, begin, end, fetch, tap, row_ld, ld)
            else:
                reduce_tile(rows, taps, pitch, b.col.tap_step, b.col.z_step, s, v, i, j, begin, end, fetch, tap, row_ld, ld)
            fetch = False


cdef void reduce_strip(const Reduce *w, const Strip *s, real *sums) noexcept nogil:
    """Adds a strip to all taps, vector by vector; rows that several tiles need are short enough to stay in the first cache."""
    cdef int rows = rows_of_tile(s.b)
    cdef int64_t parts = 1 if rows > 1 else divide_up(s.rows * s.pixels, ROW), v, i
    parts = smaller(parts, s.rows)
    for v in range(divide_up(s.b.lanes, VL)):
        for i in range(parts):
            if is_grouped(w.g):
                reduce_groups(w, s, v, part(s.rows, i, parts), part(s.rows, i + 1, parts), sums)
            elif s.b.pitch == 1:
                reduce_rows(1, w, s, v, rows, part(s.rows, i, parts), part(s.rows, i + 1, parts), sums)
            else:
                reduce_rows(VL, w, s, v, rows, part(s.rows, i, parts), part(s.rows, i + 1, parts), sums)


cdef void reduce_groups(const Reduce *w, const Strip *s, int64_t v, int64_t begin, int64_t end, real *sums) noexcept nogil:
    """Adds rows begin.. of a strip to what vector v of dy shares with its groups; sums are [tap row][tap column][vector of dy][vector of x][exchange][VL]."""
    cdef const Block *b = s.b
    cdef int64_t ways = exchanges(w.g), wide = group_vectors(w.g), ld = tap_vectors(w.g, b.vectors) * VL, tiles = divide_up(b.col.taps, group_taps(ways)), i, j, k, u
    cdef bint fetch = True
    cdef real *tap
    for i in range(b.row.taps):
        for k in range(tiles):
            j = part(b.col.taps, k, tiles)
            tap = sums + ((b.row.filter_start + i) * w.g.filter_cols + b.col.filter_start + j) * ld + v * wide * ways * VL
            for u in range(wide):
                group_tile(part(b.col.taps, k + 1, tiles) - j, ways, b.col.tap_step, b.col.z_step, s, v, v // wide * wide + u, i, j, begin, end, fetch,
                           tap + u * ways * VL, ld)
                fetch = False


cdef void pack_dy(const Reduce *w, const Strip *s, const char *dy, int64_t step, int64_t row, int64_t ahead, real *dst) noexcept nogil:
    """dst[vector][row][pixel][VL], as a strip has it. Fetches what lies `ahead`."""
    cdef int64_t runs = 1 if row == s.pixels * step else s.rows, pixels = s.rows * s.pixels // runs, r
    for r in range(runs):
        pack_line(w.storage, dy + r * row * item_size(w.storage), step, w.g.dst_c, pixels, s.b.lanes, 1, ahead, dst + r * s.row, s.vector)


cdef void reduce_chunk(const Reduce *w, const Block *b, int64_t index, const char *dy, int64_t first, int64_t pixels, real *sums, real *scratch) noexcept nogil:
    """Pixels first.. of each row of one part of an image, strip by strip."""
    cdef const Problem *g = w.g
    cdef bint direct = is_direct(g, w.storage, b.lanes)
    cdef int64_t step = b.col.out_step * g.dst_x, row = b.row.out_step * g.dst_y, end = part(b.row.count, index + 1, w.k.parts), ahead
    cdef const char *src
    cdef Ring ring
    cdef Strip s
    ring.rows = scratch
    open_ring(b, &ring, ring_height(b.row, &w.k), ring_width(b.col, pixels))
    s.b, s.ring, s.pixels, s.t = b, &ring, pixels, part(b.row.count, index, w.k.parts)
    while s.t < end:
        s.rows = smaller(w.k.rows, end - s.t)
        ahead = w.k.rows if s.t + s.rows < end else 0
        fill_ring(b, &ring, s.t, s.rows, b.col.z_step * first, ahead)
        src = dy + ((b.row.out_start + b.row.out_step * s.t) * g.dst_y + (b.col.out_start + b.col.out_step * first) * g.dst_x) * item_size(w.storage)
        if direct:
            s.dy, s.vector, s.row, s.step, s.ahead = <const real *> src, VL, row, step, ahead * row
        else:
            s.dy, s.vector, s.row, s.step, s.ahead = scratch + w.k.ring, s.rows * pixels * VL, pixels * VL, VL, 0
            pack_dy(w, &s, src, step, row, ahead * row, scratch + w.k.ring)
        reduce_strip(w, &s, sums)
        s.t += s.rows


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


cdef void store_groups(const Reduce *w, int64_t span, int64_t lane, int64_t lanes, const real *sums, real *group) noexcept nogil:
    """Writes a block of groups from its sums, tap by tap, by way of [channel][lane]."""
    cdef const Problem *g = w.g
    cdef int64_t size = group_lanes(g), ways = exchanges(g), wide = group_vectors(g), ld = w.k.vectors * VL, tap, v
    for tap in range(g.filter_rows * g.filter_cols):
        for v in range(w.k.vectors):
            join_ways(sums, ways, wide, group + v * VL, ld)
            sums += wide * ways * VL
        store_block(&w.dw, span, group, ld, size, lanes, tap * g.filter_x + lane // size * g.filter_group, g.filter_src, g.filter_dst)


cdef void reduce_block(const void *work, int64_t index, void *scratch) noexcept nogil:
    """One block of lanes, summed over one span."""
    cdef const Reduce *w = <const Reduce *> work
    cdef int64_t block = index % w.k.blocks, span = w.dw.wave.first + index // w.k.blocks, lane = block * w.k.lanes
    cdef int64_t parts = w.g.images * w.k.parts, step = w.g.filter_group // w.k.multiplier, i
    cdef real *sums = <real *> scratch
    cdef Block b
    b.g, b.storage = w.g, w.storage
    set_lanes(&b, smaller(w.k.lanes, w.k.total - lane), w.k.vectors, w.k.multiplier, w.k.pitch)
    clear(sums, w.sums)
    for i in range(part(parts, span, w.dw.spans), part(parts, span + 1, w.dw.spans)):
        reduce_part(w, &b, lane, i // w.k.parts, i % w.k.parts, sums, sums + w.sums)
    if is_grouped(w.g):
        store_groups(w, span, lane, b.lanes, sums, sums + w.sums)
        return
    store_block(&w.dw, span, sums, b.vectors * VL, w.g.filter_rows * w.g.filter_cols, b.lanes, lane * step, w.g.filter_x, step)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    plan(w)
    threads = useful_threads(w.g, w.dw.spans * w.k.blocks, threads)
    return sum_spans(&w.dw, reduce_block, w, w.k.blocks, threads, IN_ORDER, padded(w.sums + larger(w.k.ring + w.k.line, WIDEST * w.k.vectors * VL)))


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dw. MIXED if it is not finite: infinities of dy may have met the zeros of the padding of x."""
    cdef Reduce w
    cdef bint finite = True
    w.g, w.storage = <const Problem *> problem, storage
    w.x, w.dy = <const char *> inputs[0], <const char *> inputs[1]
    aim_total(&w.dw, storage, out, &finite)
    return outcome(drive(&w, num_threads), &finite)


borrow_blocks()
entry = exported(compute)
