# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, j] = sum_slot patches(src)[pixel, slot] filter[slot, j] for few pixels: conv2d and conv2d_backprop_input, a matrix times some vectors.

In parallel: blocks of (lane pair, group, channels j). Packed: patches, once, unless they are rows as they lie. The filter, of which each number is
used once for each pixel, is read where it lies, widened if it has 16 bits. Three forms: *rows*, vectors of channels j, where those are contiguous; where
slots are, *columns*, vectors of pixels, as many as are filled, and *dots*, vectors of slots, the lanes of whose sums are added at the end, for few other pixels.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is unpadded and not empty; filter_src or filter_dst is 1.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER, do_blocks, do_both, stage
from _entry cimport DONE, NO_MEMORY, exported
from _gemm cimport NOTHING, READS, Operands, operands, stream, gemm_block, gemm_packed, gemm_tile
from _patches cimport Patches, Pixel, advance, patches, pixel, pixels as all_pixels, pack_pixels, src_in_rows
from _problem cimport Problem, row_lanes, col_lanes, clear_dst, divide_up, larger, part, smaller, useful_threads
from _scratch cimport allocate, apart, padded, release
from _storage cimport real, MR, NR, REAL_STORAGE, VL, borrow_blocks, clear, item_size, narrow_block, widen_block

cdef enum:
    DEPTH = 512                                         # slots that are packed at a time, at most, and multiplied by dots, which keeps them in the first cache
    STEP = 64                                           # slots of a row form's product: their rows are read side by side
    BLOCKS = 4                                          # of a thread: blocks shrink until there are as many
    ROW_CHANNELS = 512                                  # of a block, at most
    ALONE = 1 << 13                                     # numbers that one thread packs sooner than it wakes another
    CROWDED = 1 << 12                                   # multiples of this distance, in bytes, fall on one set of the first cache
    FAR = 16 << 20                                      # bytes of a filter from which on it is fetched ahead: 0.6 to 0.8 of the time, of smaller ones 1.0 to 1.5


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    bint rows                                           # whether that is the form
    int64_t unit, channels, channel_blocks              # j that no block splits, and of a block, at most
    int64_t pixels, columns, dots                       # of a lane pair, at most: all, and those of the other forms, with the zeros that fill vectors and tiles
    bint far                                            # whether the filter is fetched ahead
    real *patches                                       # [group][lane pair]: columns, then [pixel][ld()]
    int64_t *begins                                     # of each lane pair, in reals of one group
    int64_t group_patches                               # reals of one group


cdef struct Block:                                      # what a thread works on, and its scratch
    int64_t group, channel, channels
    int64_t pixels, columns, dots                       # as in Gather
    const real *column                                  # [slot][column_ld()]
    const real *patch                                   # [pixel][ld]
    int64_t ld
    real *rows                                          # of the filter, widened
    real *column_sums                                   # [channel][column_ld()]
    real *sums                                          # [pixel][channel] or, of dots, [channel][pixel][VL]
    real *turned                                        # VL sums of VL lanes


cdef Patches pair_patches(const Gather *w, int64_t pair, int64_t group) noexcept nogil:
    return patches(w.g, row_lanes(w.g) + pair // w.g.col_lanes, col_lanes(w.g) + pair % w.g.col_lanes, w.src, w.storage, group)


include "gemv_gather_columns.pxi"
include "gemv_gather_dots.pxi"


cdef void plan(Gather *w, int threads) noexcept nogil:
    """Chooses the form and the blocks, which no sum depends on."""
    cdef const Problem *g = w.g
    cdef int64_t pairs = g.row_lanes * g.col_lanes, units, i
    cdef Patches p
    w.rows = g.filter_dst == 1
    w.unit = NR if w.rows else 4
    w.far = g.filter_rows * g.filter_cols * g.src_channels * g.dst_channels * g.groups * item_size(w.storage) > FAR
    w.pixels = w.columns = w.dots = w.begins[0] = 0
    for i in range(pairs):
        p = pair_patches(w, i, 0)
        w.pixels = larger(w.pixels, all_pixels(&p))
        w.columns, w.dots = larger(w.columns, columns(w, all_pixels(&p))), larger(w.dots, dots(w, all_pixels(&p)))
        w.begins[i + 1] = w.begins[i] + (0 if lies(w, &p) else columns_size(w, &p) + packed_pixels(w, &p) * ld(&p))
    w.group_patches = w.begins[pairs]
    units = divide_up(g.dst_channels, w.unit)
    w.channel_blocks = divide_up(g.dst_channels, ROW_CHANNELS if w.rows else DOT_CHANNELS)
    w.channel_blocks = smaller(larger(w.channel_blocks, divide_up(BLOCKS * threads, larger(pairs * g.groups, 1))), units)
    w.channels = divide_up(units, w.channel_blocks) * w.unit


cdef bint lies(const Gather *w, const Patches *p) noexcept nogil:
    """Whether patches are rows that lie as they are multiplied, and do not crowd a few sets of the first cache."""
    return w.rows and w.storage == REAL_STORAGE and src_in_rows(p) and p.g.src_x * item_size(w.storage) % CROWDED != 0


cdef inline int64_t tap_slots(const Patches *p) noexcept nogil:
    """Packed slots of a tap: zeros fill the last vector."""
    return padded(p.g.src_channels)


cdef inline int64_t ld(const Patches *p) noexcept nogil:
    """Reals from a packed pixel to the next."""
    return p.row.taps * p.col.taps * tap_slots(p) + 16


cdef int64_t packed_pixels(const Gather *w, const Patches *p) noexcept nogil:
    """How many pixels are packed side by side in rows or dots."""
    return all_pixels(p) if w.rows else dots(w, all_pixels(p))


cdef int64_t tap_parts(const Gather *w) noexcept nogil:
    """How many parts of a tap's slots are packed one by one."""
    return divide_up(w.g.src_channels, DEPTH)


cdef void pack_part(const void *work, int64_t index, void *_) noexcept nogil:
    """Packs some slots of a tap, for all pixels of a lane pair, with zeros for those that whole vectors and tiles have besides."""
    cdef const Gather *w = <const Gather *> work
    cdef const Problem *g = w.g
    cdef int64_t parts = tap_parts(w), taps = g.filter_rows * g.filter_cols, slot = index % parts * DEPTH, tap = index // parts % taps
    cdef int64_t group = index // parts // taps % g.groups, pair = index // parts // taps // g.groups, first, count, take, i
    cdef Patches p = pair_patches(w, pair, group)
    cdef real *dst
    if lies(w, &p) or tap >= p.row.taps * p.col.taps:
        return
    take, dst = smaller(DEPTH, g.src_channels - slot), w.patches + group * w.group_patches + w.begins[pair]
    pack_columns(w, &p, tap * g.src_channels + slot, take, dst)
    first = smaller(columns(w, all_pixels(&p)), all_pixels(&p))
    count, dst = all_pixels(&p) - first, dst + columns_size(w, &p) + tap * tap_slots(&p) + slot
    pack_pixels(&p, first, count, tap * g.src_channels + slot, take, dst, ld(&p))
    for i in range(packed_pixels(w, &p)):
        clear(dst + i * ld(&p) + (take if i < count else 0), padded(take) - (take if i < count else 0))


cdef const char *filter_at(const Gather *w, const Patches *p, const Block *b, int64_t tap, int64_t slot, int64_t channel) noexcept nogil:
    """The filter from a slot of a tap and a channel of the block on."""
    cdef const Problem *g = w.g
    return w.filter + (b.group * g.filter_group + (p.row.filter_start + p.row.filter_step * (tap // p.col.taps)) * g.filter_y
                       + (p.col.filter_start + p.col.filter_step * (tap % p.col.taps)) * g.filter_x
                       + slot * g.filter_src + (b.channel + channel) * g.filter_dst) * item_size(w.storage)


cdef void packed_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef void fetching_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, READS, m, nv, p, a, b, c, one, two)


cdef void multiply_rows(const Gather *w, const Block *b, int64_t channels, int64_t depth, const real *patch, const real *filter, int64_t row, real *sums, bint accumulate, bint far) noexcept nogil:
    """sums (+)= patch filter, whose next rows are fetched where they are far, both cache lines of a panel."""
    cdef int64_t panels = divide_up(channels, NR)
    cdef const real *next = filter + depth * row
    cdef Operands p = operands(depth, NULL, b.ld, row, padded(w.channels) + 16, accumulate)
    if far:
        gemm_block(fetching_tile, packed_tile, False, True, b.pixels, channels, &p, patch, filter, NR, sums,
                   stream(next, NR * sizeof(real), row * sizeof(real), panels), stream(next + NR - VL, NR * sizeof(real), row * sizeof(real), panels))
    else:
        gemm_packed(packed_tile, False, b.pixels, channels, &p, patch, filter, NR, sums)


cdef void add_rows(const Gather *w, const Patches *p, const Block *b, int64_t tap) noexcept nogil:
    """sums[pixel][j] (+)= patch[pixel] filter for the slots of a tap, STEP at a time; what is left of whole vectors is copied."""
    cdef const Problem *g = w.g
    cdef int64_t whole = b.channels // VL * VL if w.storage == REAL_STORAGE else 0, rest = b.channels - whole, slot = 0, step, width = padded(w.channels) + 16
    cdef const char *line
    cdef const real *patch = b.patch + tap * tap_slots(p)
    while slot < g.src_channels:
        step = smaller(STEP, g.src_channels - slot)
        line = filter_at(w, p, b, tap, slot, 0)
        if whole:
            multiply_rows(w, b, whole, step, patch + slot, <const real *> line, g.filter_src, b.sums, tap + slot > 0, w.far)
        if rest:
            widen_block(w.storage, line + whole * item_size(w.storage), g.filter_src, 1, step, rest, b.rows, width)
            multiply_rows(w, b, rest, step, patch + slot, b.rows, width, b.sums + whole, tap + slot > 0, False)
        slot += step


cdef void store_pixels(const Gather *w, const Patches *p, const Block *b, int64_t first, int64_t count, bint by_channel, const real *result, int64_t ld) noexcept nogil:
    """Writes some pixels of a block, row by row, from [channel][ld] or [pixel][ld]."""
    cdef const Problem *g = w.g
    cdef int64_t take, done = 0, step = p.col.out_step * g.dst_x
    cdef Pixel at = pixel(p, first)
    cdef char *dst
    while done < count:
        take = smaller(p.col.count - at.v, count - done)
        dst = w.dst + (at.n * g.dst_n + (p.row.out_start + p.row.out_step * at.u) * g.dst_y + (p.col.out_start + p.col.out_step * at.v) * g.dst_x
                       + (b.group * g.dst_channels + b.channel) * g.dst_c) * item_size(w.storage)
        if by_channel:
            narrow_block(w.storage, result + done, ld, b.channels, take, dst, g.dst_c, step)
        else:
            narrow_block(w.storage, result + done * ld, ld, take, b.channels, dst, step, g.dst_c)
        advance(p, &at, take)
        done += take


cdef int64_t sums_size(const Gather *w) noexcept nogil:
    return w.pixels * (padded(w.channels) + 16) if w.rows else divide_up(w.channels * w.dots, VL) * VL * VL


cdef int64_t rows_size(const Gather *w) noexcept nogil:
    """Reals of widened rows, or of the result of dots, and of their tails."""
    return STEP * (padded(w.channels) + 16) + NR if w.rows else larger(MR * rows_ld(w) + ROWS * VL, padded(w.dots * w.channels))


cdef void sum_rows(const Gather *w, const Patches *p, const Block *b) noexcept nogil:
    """Computes a block of vectors of channels."""
    cdef int64_t tap
    for tap in range(p.row.taps * p.col.taps):
        add_rows(w, p, b, tap)
    store_pixels(w, p, b, 0, b.pixels, False, b.sums, padded(w.channels) + 16)


cdef void sum_slots(const Gather *w, const Patches *p, const Block *b) noexcept nogil:
    """Computes a block of vectors of pixels and of slots."""
    cdef int64_t tap, i, slot, depth, first = smaller(b.columns, b.pixels)
    clear(b.sums, divide_up(b.channels * b.dots, VL) * VL * VL)
    for tap in range(p.row.taps * p.col.taps):
        for i in range(tap_parts(w)):
            slot, depth = i * DEPTH, smaller(DEPTH, w.g.src_channels - i * DEPTH)
            add_columns(w, p, b, tap, slot, depth)
            if b.dots:
                add_dots(w, p, b, tap, slot, depth)
    store_pixels(w, p, b, 0, first, True, b.column_sums, column_ld(b.columns))
    if b.dots:
        add_lanes(w, b, b.rows)
    store_pixels(w, p, b, first, b.pixels - first, False, b.rows, w.channels)


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """Some channels of the pixels of one lane pair."""
    cdef const Gather *w = <const Gather *> work
    cdef const Problem *g = w.g
    cdef int64_t units = divide_up(g.dst_channels, w.unit), block = index % w.channel_blocks, pair = index // w.channel_blocks // g.groups
    cdef Patches p
    cdef Block b
    b.channel = part(units, block, w.channel_blocks) * w.unit
    b.channels = smaller(part(units, block + 1, w.channel_blocks) * w.unit, g.dst_channels) - b.channel
    b.group = index // w.channel_blocks % g.groups
    p = pair_patches(w, pair, b.group)
    b.pixels = all_pixels(&p)
    b.columns, b.dots = columns(w, b.pixels), dots(w, b.pixels)
    b.column = w.patches + b.group * w.group_patches + w.begins[pair]
    b.patch, b.ld = b.column + columns_size(w, &p), ld(&p)
    if lies(w, &p):
        b.patch, b.ld = <const real *> p.src, g.src_x
    b.rows = <real *> slab
    b.column_sums = b.rows + padded(rows_size(w))
    b.sums = b.column_sums + padded(w.channels * column_ld(w.columns))
    b.turned = b.sums + padded(sums_size(w))
    if w.rows:
        sum_rows(w, &p, &b)
    else:
        sum_slots(w, &p, &b)


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef int64_t pairs = g.row_lanes * g.col_lanes, packed, parts, blocks, scratch_size
    cdef real *table = allocate(padded(2 * (pairs + 1)))
    cdef real *slab
    if table == NULL:
        return 1
    w.begins = <int64_t *> table
    threads = useful_threads(g, threads, threads)
    plan(w, threads)
    packed, blocks = g.groups * w.group_patches, pairs * g.groups * w.channel_blocks
    parts = pairs * g.groups * g.filter_rows * g.filter_cols * tap_parts(w) if packed else 0
    threads = <int> larger(smaller(threads, blocks), 1)
    scratch_size = apart(padded(rows_size(w)) + padded(w.channels * column_ld(w.columns)) + padded(sums_size(w)) + VL * VL, threads)
    slab = allocate(packed + threads * scratch_size)
    if slab == NULL:
        release(table)
        return 1
    w.patches = slab
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    if packed <= ALONE:
        do_blocks(pack_part, w, parts, 1, IN_ORDER, NULL, 0)
        parts = 0
    do_both(stage(pack_part, w, parts, IN_ORDER, NULL, 0), stage(gather_block, w, blocks, IN_ORDER, slab + packed, scratch_size * sizeof(real)), threads)
    release(slab)
    release(table)
    return 0


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dst."""
    cdef Gather w
    w.g, w.storage = <const Problem *> problem, storage
    w.src, w.filter, w.dst = <const char *> inputs[0], <const char *> inputs[1], <char *> out
    return NO_MEMORY if drive(&w, num_threads) else DONE


borrow_blocks()
entry = exported(compute)
