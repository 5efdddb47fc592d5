# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[tap, c, k] = sum_pixel x[c, pixel + tap] dy[k, pixel]: conv2d_backprop_filter of few channels, channels first.

In parallel: blocks of (span of rows of dy, group, channels c, channels k); each span sums into its own partial dw, and the partials are added in
order. Packed: rows of x with their padding, the columns of each phase of a stride side by side, so that a tap is a load at a distance. Both operands of
a register tile are vectors of neighbouring pixels, dy from where it lies; the lanes of its sums are added when a block ends.

*Assumes:* x, dy and dw are contiguous and aligned, pixels of a channel contiguous; the problem is that of the forward op, or mirrored, and not empty; it has one lane
of rows and one of columns, with src_unit 1, out_step 1, all taps, and at least VL columns.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER
from _entry cimport exported, outcome
from _partials cimport Total, aim_total, store_block, sum_spans
from _patches cimport BY_SLOT, pack_line
from _problem cimport Lane, Problem, row_lanes, col_lanes, divide_up, larger, part, smaller, useful_threads
from _scratch cimport padded
from _storage cimport real, vec, LINE, MR, REAL_STORAGE, VL, borrow_blocks, clear, item_size, keep, lane_mask, load, prefetch_soon, store, transpose, widen

cdef enum:
    BLOCKS = 16                                         # rows are split into spans until there are as many blocks
    MIN_SPAN = 1024                                     # pixels of a span, at least
    CHANNELS = 4                                        # k of a register tile, at most (PASS_OUTPUTS of gradops._algorithms.stem)
    SLOTS = 6                                           # of a register tile, at most; of a level with 16 registers, 3
    TILE = CHANNELS * SLOTS                             # sums of a register tile, at most
    VECTORS = 28                                        # of a pass, as long as sums stay in registers; up to twice as many if their x is NEAR (PASS_VECTORS)
    NEAR = 32 * 1024                                    # bytes of x that a pass reads, about: they stay in a first cache
    PACKED = 32 * 1024                                  # reals of x that are packed together, about
    SUMS = 128 * 1024                                   # reals of the sums of a block, about


cdef struct Reduce:
    const Problem *g
    const Lane *row
    const Lane *col
    int storage
    const char *x
    const char *dy
    Total dw
    int64_t src_channels, src_blocks                    # c of a block, at most
    int64_t dst_channels, dst_blocks                    # k of a block, at most
    int64_t phases, phase, line                         # of a row of x; reals of one, and of all
    int64_t rows, together                              # of dy in a pass, and of those whose x is packed together, at most


cdef inline int64_t reach(const Lane *lane, int64_t count) noexcept nogil:
    """Neighbours of x that `count` pixels read."""
    return (count - 1) * lane.z_step + (lane.taps - 1) * lane.tap_step + 1


cdef inline int64_t row_size(const Reduce *w) noexcept nogil:
    """Reals from a packed row to the next."""
    return padded(w.src_channels * w.line) + 16


cdef inline int64_t rows_of(const Reduce *w, int64_t reals) noexcept nogil:
    """Rows of pixels that read so many reals of x."""
    return (reals // row_size(w) - reach(w.row, 1)) // w.row.z_step + 1


cdef void plan(Reduce *w) noexcept nogil:
    """Chooses blocks, spans and passes; by the problem alone, never by the number of threads."""
    cdef const Problem *g = w.g
    cdef int64_t taps = g.filter_rows * g.filter_cols, near = NEAR // <int64_t> sizeof(real), spans
    w.row, w.col = row_lanes(g), col_lanes(g)
    w.phases = smaller(w.col.z_step, reach(w.col, 1))
    w.phase = w.col.count + (w.col.taps - 1) * w.col.tap_step // w.col.z_step
    w.line = w.phases * w.phase
    w.rows = divide_up(VECTORS, divide_up(w.col.count, VL))
    w.src_blocks = divide_up(g.src_channels, larger(near // (reach(w.row, w.rows) * w.line), 1))
    w.src_channels = divide_up(g.src_channels, w.src_blocks)
    w.rows = smaller(larger(smaller(rows_of(w, near), 2 * w.rows), w.rows), w.row.count)
    w.dst_blocks = divide_up(g.dst_channels, larger(SUMS // (taps * w.src_channels * VL), CHANNELS))
    w.dst_channels = divide_up(divide_up(g.dst_channels, w.dst_blocks), CHANNELS) * CHANNELS
    w.dst_blocks = divide_up(g.dst_channels, w.dst_channels)
    w.together = smaller(larger(rows_of(w, PACKED), w.rows), w.row.count)
    spans = smaller(divide_up(BLOCKS, g.groups * w.src_blocks * w.dst_blocks), g.images * w.row.count * w.col.count // MIN_SPAN)
    w.dw.size, w.dw.spans = taps * g.src_channels * g.groups * g.dst_channels, larger(spans, 1)


cdef struct Tile:
    int64_t rows, row                                   # of pixels; the distance of what they read of x
    int64_t last, before                                # where the last vector of a row begins, and how many there are before
    int64_t dy_row, plane
    const real *mask                                    # of what the last vector does not share with the one before
    const char *next_dy                                 # what is needed next, of which each vector of pixels fetches a cache line
    const char *next_x
    int64_t dy_step, x_step                             # a cache line, or nothing


cdef inline void stem_ukr(int channels, int slots, const Tile *s, const real *x, const int64_t *offsets, const real *dy, real *sums) noexcept nogil:
    """sums[t][c] += x[row][offsets[t] + v] dy[c][row][v], vector by vector v of all rows.

    Loops are left at their ends, as in `gemm_ukr`, so that sums stay in registers.

    *Assumes:* channels and slots are compile-time constants of the caller.
    """
    cdef vec[TILE] acc
    cdef vec[SLOTS] operand
    cdef const real *at[SLOTS]
    cdef vec d, mask = load(s.mask)
    cdef const char *next_dy = s.next_dy
    cdef const char *next_x = s.next_x
    cdef int64_t q, left, r = s.rows
    cdef int c, t
    for t in range(slots):
        at[t] = x + offsets[t]
        for c in range(channels):
            acc[t * channels + c] = load(sums + (t * channels + c) * VL)
    while True:
        q = 0
        left = s.before
        while left > 0:
            prefetch_soon(next_dy)
            prefetch_soon(next_x)
            next_dy += s.dy_step
            next_x += s.x_step
            for t in range(slots):
                operand[t] = load(at[t] + q)
            for c in range(channels):
                d = load(dy + c * s.plane + q)
                for t in range(slots):
                    acc[t * channels + c] += operand[t] * d
            q += VL
            left -= 1
        prefetch_soon(next_dy)
        prefetch_soon(next_x)
        next_dy += s.dy_step
        next_x += s.x_step
        for t in range(slots):
            operand[t] = load(at[t] + s.last)
            at[t] += s.row
        for c in range(channels):
            d = keep(load(dy + c * s.plane + s.last), mask)
            for t in range(slots):
                acc[t * channels + c] += operand[t] * d
        dy += s.dy_row
        r -= 1
        if r == 0:
            break
    for t in range(slots):
        for c in range(channels):
            store(sums + (t * channels + c) * VL, acc[t * channels + c])


cdef inline void stem_slots(int channels, int64_t slots, const Tile *s, const real *x, const int64_t *offsets, const real *dy, real *sums) noexcept nogil:
    """stem_ukr for any slots <= SLOTS."""
    if MR > 6:
        if slots == 6: stem_ukr(channels, 6, s, x, offsets, dy, sums)
        elif slots == 5: stem_ukr(channels, 5, s, x, offsets, dy, sums)
        elif slots == 4: stem_ukr(channels, 4, s, x, offsets, dy, sums)
    if slots == 3: stem_ukr(channels, 3, s, x, offsets, dy, sums)
    elif slots == 2: stem_ukr(channels, 2, s, x, offsets, dy, sums)
    elif slots == 1: stem_ukr(channels, 1, s, x, offsets, dy, sums)


cdef void stem_tile(int64_t channels, int64_t slots, const Tile *s, const real *x, const int64_t *offsets, const real *dy, real *sums) noexcept nogil:
    """stem_slots for the channels that a tile has."""
    if channels == 4: stem_slots(4, slots, s, x, offsets, dy, sums)
    elif channels == 2: stem_slots(2, slots, s, x, offsets, dy, sums)
    elif channels == 1: stem_slots(1, slots, s, x, offsets, dy, sums)


cdef inline int64_t tile_channels(int64_t left) noexcept nogil:
    """Of the next register tile, if so many channels are left."""
    return 4 if left >= 4 else 2 if left >= 2 else 1


cdef struct Block:                                      # what a thread works on, and its scratch
    int64_t group, src, src_channels, slots, dst, dst_channels
    real *x
    real *dy
    real *sums                                          # [tile of k][slot][k of the tile][VL]
    real *mask
    int64_t *offsets                                    # of the slots


cdef void fill_offsets(const Reduce *w, const Block *b) noexcept nogil:
    """Where the slots [tap][c] of a pixel lie, from those of its first tap."""
    cdef int64_t i, j, c, x, slot = 0
    for i in range(w.row.taps):
        for j in range(w.col.taps):
            x = j * w.col.tap_step
            for c in range(b.src_channels):
                b.offsets[slot] = i * w.row.tap_step * row_size(w) + c * w.line + x % w.col.z_step * w.phase + x // w.col.z_step
                slot += 1


cdef void pack_rows(const Reduce *w, const Block *b, int64_t n, int64_t u, int64_t rows) noexcept nogil:
    """What `rows` rows of pixels read: [row][c][phase][column]."""
    cdef const Problem *g = w.g
    cdef const char *image = w.x + (n * g.src_n + (b.group * g.src_channels + b.src) * g.src_c) * item_size(w.storage)
    cdef int64_t y, f
    for y in range(reach(w.row, rows)):
        for f in range(w.phases):
            pack_line(g, w.storage, image, w.row.src_start + u * w.row.z_step + y, w.col.src_start + f, w.col.z_step, w.phase, b.src_channels, BY_SLOT,
                      b.x + y * row_size(w) + f * w.phase, w.line)


cdef const real *rows_of_dy(const Reduce *w, const Block *b, int64_t n, int64_t u, int64_t rows, int64_t k, int64_t channels, int64_t *plane) noexcept nogil:
    """Rows of `channels` channels from k on, a `plane` apart; copied where they are stored otherwise."""
    cdef const Problem *g = w.g
    cdef const char *dy = w.dy + (n * g.dst_n + (b.group * g.dst_channels + k) * g.dst_c + u * g.dst_y) * item_size(w.storage)
    cdef int64_t c
    plane[0] = g.dst_c
    if w.storage == REAL_STORAGE:
        return <const real *> dy
    plane[0] = w.rows * g.dst_y
    for c in range(channels):
        widen(w.storage, dy + c * g.dst_c * item_size(w.storage), rows * g.dst_y, b.dy + c * plane[0])
    return b.dy


cdef const char *next_x(const Reduce *w, const Block *b, int64_t n, int64_t u, int64_t rows, int64_t k, int64_t c) noexcept nogil:
    """What is packed next: of channel c, what `rows` rows of pixels read first, after all that is packed; each k fetches a part."""
    cdef const Problem *g = w.g
    return w.x + (n * g.src_n + (b.group * g.src_channels + b.src + c) * g.src_c + (reach(w.row, u + w.together) + w.row.src_start) * g.src_y
                  + part(rows * w.row.z_step * g.src_y, k, b.dst_channels)) * item_size(w.storage)


cdef void multiply_pass(const Reduce *w, const Block *b, int64_t n, int64_t u, int64_t rows, const real *x) noexcept nogil:
    """Adds the products of some rows of pixels, tile by tile."""
    cdef int64_t k = 0, channels, t, slot, tiles = divide_up(b.slots, SLOTS if MR > 6 else 3)
    cdef const real *dy
    cdef real *sums = b.sums
    cdef Tile s
    s.rows, s.row, s.dy_row, s.mask = rows, w.row.z_step * row_size(w), w.g.dst_y, b.mask
    s.last, s.before = w.col.count - VL, divide_up(w.col.count, VL) - 1
    while k < b.dst_channels:
        channels = tile_channels(b.dst_channels - k)
        dy = rows_of_dy(w, b, n, u, rows, b.dst + k, channels, &s.plane)
        for t in range(tiles):
            slot = part(b.slots, t, tiles)
            s.next_dy, s.next_x, s.dy_step, s.x_step = <const char *> sums, <const char *> sums, 0, 0
            if w.storage == REAL_STORAGE and t < channels:
                s.next_dy, s.dy_step = <const char *> (dy + (channels + t) * s.plane), LINE
            if t < b.src_channels:
                s.next_x, s.x_step = next_x(w, b, n, u, rows, k, t), LINE
            stem_tile(channels, part(b.slots, t + 1, tiles) - slot, &s, x, b.offsets + slot, dy, sums + slot * channels * VL)
        sums += b.slots * channels * VL
        k += channels


cdef void multiply_rows(const Reduce *w, const Block *b, int64_t n, int64_t u, int64_t rows) noexcept nogil:
    """Packs what some rows of pixels read, and adds their products pass by pass."""
    cdef int64_t passes = divide_up(rows, w.rows), i, first
    pack_rows(w, b, n, u, rows)
    for i in range(passes):
        first = part(rows, i, passes)
        multiply_pass(w, b, n, u + first, part(rows, i + 1, passes) - first, b.x + first * w.row.z_step * row_size(w))


cdef void add_lanes(const Block *b) noexcept nogil:
    """Adds the lanes of each sum; the totals take the places of the first ones."""
    cdef int64_t i, j
    cdef real[256] turned
    cdef vec total
    for i in range(divide_up(b.slots * b.dst_channels, VL)):
        transpose(b.sums + i * VL * VL, VL, turned, VL)
        total = load(turned)
        for j in range(1, VL):
            total += load(turned + j * VL)
        store(b.sums + i * VL, total)


cdef void store_sums(const Reduce *w, const Block *b, int64_t span, real *dw) noexcept nogil:
    """Writes a block from its totals [tile of k][slot][k of the tile], by way of [slot][k]."""
    cdef const Problem *g = w.g
    cdef int64_t k = 0, slot, channels, tap, c, at = g.filter_first + b.src * g.filter_src + b.group * g.filter_group + b.dst * g.filter_dst
    while k < b.dst_channels:
        channels = tile_channels(b.dst_channels - k)
        for slot in range(b.slots):
            for c in range(channels):
                dw[slot * b.dst_channels + k + c] = b.sums[k * b.slots + slot * channels + c]
        k += channels
    for tap in range(w.row.taps * w.col.taps):
        store_block(&w.dw, span, dw + tap * b.src_channels * b.dst_channels, b.dst_channels, b.src_channels, b.dst_channels,
                    at + tap * g.filter_x, g.filter_src, g.filter_dst)


cdef inline int64_t most_slots(const Reduce *w) noexcept nogil:
    """Of a block."""
    return w.row.taps * w.col.taps * w.src_channels


cdef inline int64_t x_size(const Reduce *w) noexcept nogil:
    """Reals of the packed rows, or of the result of a block, which takes their place."""
    return padded(larger(reach(w.row, w.together) * row_size(w), most_slots(w) * w.dst_channels))


cdef inline int64_t dy_size(const Reduce *w) noexcept nogil:
    return 0 if w.storage == REAL_STORAGE else padded(CHANNELS * w.rows * w.g.dst_y)


cdef inline int64_t sums_size(const Reduce *w) noexcept nogil:
    """Reals of whole blocks of VL sums."""
    return divide_up(most_slots(w) * w.dst_channels, VL) * VL * VL


cdef void reduce_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """Some channels of x and of dy, summed over one span of rows."""
    cdef const Reduce *w = <const Reduce *> work
    cdef const Problem *g = w.g
    cdef Block b
    cdef int64_t span, first, end, rows
    b.src = part(g.src_channels, index % w.src_blocks, w.src_blocks)
    b.src_channels = part(g.src_channels, index % w.src_blocks + 1, w.src_blocks) - b.src
    index = index // w.src_blocks
    b.dst = index % w.dst_blocks * w.dst_channels
    b.dst_channels, b.slots = smaller(w.dst_channels, g.dst_channels - b.dst), w.row.taps * w.col.taps * b.src_channels
    index = index // w.dst_blocks
    b.group, span = index % g.groups, w.dw.wave.first + index // g.groups
    b.x = <real *> slab
    b.dy = b.x + x_size(w)
    b.sums = b.dy + dy_size(w)
    b.mask = b.sums + sums_size(w)
    b.offsets = <int64_t *> (b.mask + 16)
    fill_offsets(w, &b)
    lane_mask((VL - w.col.count % VL) % VL, VL, b.mask)
    clear(b.sums, sums_size(w))
    first, end = part(g.images * w.row.count, span, w.dw.spans), part(g.images * w.row.count, span + 1, w.dw.spans)
    while first < end:
        rows = smaller(smaller(w.row.count - first % w.row.count, end - first), w.together)
        multiply_rows(w, &b, first // w.row.count, first % w.row.count, rows)
        first += rows
    add_lanes(&b)
    store_sums(w, &b, span, b.x)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef int64_t blocks, scratch_size
    plan(w)
    blocks = w.g.groups * w.src_blocks * w.dst_blocks
    threads = useful_threads(w.g, w.dw.spans * blocks, threads)
    scratch_size = x_size(w) + dy_size(w) + sums_size(w) + 16 + padded(2 * most_slots(w))
    return sum_spans(&w.dw, reduce_block, w, blocks, threads, IN_ORDER, scratch_size)


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dw. MIXED if it is not finite: infinities may have met the zeros of the padding, or those of a row's last vector."""
    cdef Reduce w
    cdef bint finite = True
    w.g, w.storage = <const Problem *> problem, storage
    w.x, w.dy = <const char *> inputs[w.g.mirrored], <const char *> inputs[1 - w.g.mirrored]
    aim_total(&w.dw, storage, out, &finite)
    return outcome(drive(&w, num_threads), &finite)


borrow_blocks()
entry = exported(compute)
