# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst = A' [sum_channel (G w G') * (B' src B)] A: conv2d and conv2d_backprop_input with 3x3 taps at distance 1, by Winograd's F(2x2, 3x3).

In parallel: blocks of (lane pair, group, panels of channels of dst, tiles of 2x2 pixels of dst); each is summed by one thread in the order of the
channels. Packed: DEPTH channels at a time, the transformed tiles of a block and the transformed filter of a panel. Each block transforms
them again: that costs less than to fetch transformed ones, 4 and 16/9 times as large, from memory.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is not empty and covers dst; every lane has z_step 1, tap_step 1
and all 3 taps.
"""
from libc.stdint cimport int64_t
from _blocks cimport FIRST_FREE, do_blocks
from _entry cimport exported, outcome
from _gemm cimport NOTHING, Operands, operands, gemm_packed, gemm_tile
from _problem cimport Problem, Lane, row_lanes, col_lanes, divide_up, even_parts, larger, part, smaller, taps_innermost, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, NV, NR, VL, borrow_blocks, all_finite, clear, item_size, narrow_block, widen_block
from _winograd cimport LINE, PLANES, RUN, Run, Tiles, pack_src, restore_dst, run_at, tile_count, tiles, transform_filter

cdef enum:
    TILES = 84                                          # of a block, at most
    PANELS = 2                                          # of NR channels of dst, of a block
    DEPTH = 64                                          # channels of src that are transformed at a time
    STAGED = 16                                         # of them, how many of the filter are staged at a time
    BLOCKS = 6                                          # of a thread: blocks have one panel where there are fewer, so that all are busy to the end,
    LEAST_TILES = 12                                    # and fewer tiles, at least these, where that gives each thread as many blocks
    LDT = DEPTH + 16                                    # distance of transformed tiles; planes are 16 more apart than they need,
    SRC_PLANE = TILES * LDT + 16                        # so that they spread over the cache sets
    FILTER_PLANE = DEPTH * 32 + 16
    DST_PLANE = TILES * 32 + 16
    SCRATCH = PLANES * (SRC_PLANE + FILTER_PLANE + PANELS * DST_PLANE) + 4 * LINE * 32


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    int64_t panels                                      # of a block
    int64_t all_panels                                  # of the channels of dst of a group
    int64_t parts                                       # of the tiles of a lane pair, at least
    int64_t *blocks                                     # how many blocks lie before each lane pair
    bint *finite                                        # cleared if dst holds an infinity or NaN


cdef Tiles pair_tiles(const Gather *w, int64_t pair) noexcept nogil:
    return tiles(w.g, row_lanes(w.g) + pair // w.g.col_lanes, col_lanes(w.g) + pair % w.g.col_lanes)


cdef int64_t tile_blocks(const Gather *w, const Tiles *t) noexcept nogil:
    return larger(divide_up(tile_count(t), TILES), smaller(w.parts, tile_count(t) // LEAST_TILES))


cdef void plan_blocks(Gather *w) noexcept nogil:
    cdef int64_t i
    cdef Tiles t
    w.blocks[0] = 0
    for i in range(w.g.row_lanes * w.g.col_lanes):
        t = pair_tiles(w, i)
        w.blocks[i + 1] = w.blocks[i] + w.g.groups * tile_blocks(w, &t) * divide_up(w.all_panels, w.panels)


cdef void plan(Gather *w, int threads) noexcept nogil:
    """Chooses the block sizes, which no sum depends on."""
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes
    cdef Tiles t = pair_tiles(w, 0)
    w.all_panels, w.panels, w.parts = divide_up(w.g.dst_channels, NR), PANELS, 1
    plan_blocks(w)
    if w.blocks[pairs] >= BLOCKS * threads:
        return
    w.panels = 1
    plan_blocks(w)
    if w.blocks[pairs] < BLOCKS * threads:
        w.parts = even_parts(tile_blocks(w, &t), tile_count(&t) // LEAST_TILES, pairs * w.g.groups * w.all_panels, threads)
        plan_blocks(w)


cdef struct Block:
    int64_t group, first, count                         # tiles
    int64_t panel, panels
    real *src                                           # transformed: [plane][tile][LDT]
    real *filter                                        # transformed: [plane][channel of src][NR]
    real *dst                                           # to be restored: [panel][plane][tile][NR]
    real *stage


cdef void pack_tiles(const Gather *w, const Tiles *t, const Block *b, int64_t c, int64_t depth) noexcept nogil:
    """Transforms channels c.. of the block's tiles."""
    cdef int64_t i, done = 0
    cdef Run r
    cdef const char *src
    while done < b.count:
        r = run_at(t, b.first + done, b.count - done)
        for i in range(divide_up(depth, NR)):
            src = w.src + (b.group * w.g.src_channels + c + i * NR) * w.g.src_c * item_size(w.storage)
            pack_src(t, w.storage, src, &r, smaller(NR, depth - i * NR), b.stage, b.src + done * LDT + i * NR, LDT, SRC_PLANE)
        done += r.count


cdef void pack_filter(const Gather *w, const Block *b, int64_t panel, int64_t c, int64_t count) noexcept nogil:
    """Transforms the filter of a panel and of channels c.. of src."""
    cdef const Problem *g = w.g
    cdef real taps[9 * STAGED * 32]
    cdef const Lane *row = row_lanes(g)
    cdef const Lane *col = col_lanes(g)
    cdef int64_t channels = smaller(NR, g.dst_channels - panel * NR), done = 0, take, i, j, v, at
    cdef bint innermost = taps_innermost(g)
    if channels < NR:
        clear(taps, 9 * STAGED * NR)
    while done < count:
        take = smaller(STAGED, count - done)
        for i in range(take if innermost else 0):
            at = b.group * g.filter_group + (c + done + i) * g.filter_src + panel * NR * g.filter_dst
            widen_block(w.storage, w.filter + at * item_size(w.storage), 1, g.filter_dst, 9, channels,
                        taps + i * NR + (8 * STAGED * NR if row.filter_step < 0 else 0), STAGED * NR * row.filter_step)
        for i in range(0 if innermost else 3):
            for j in range(3):
                at = (b.group * g.filter_group + (row.filter_start + row.filter_step * i) * g.filter_y
                      + (col.filter_start + col.filter_step * j) * g.filter_x + (c + done) * g.filter_src + panel * NR * g.filter_dst)
                widen_block(w.storage, w.filter + at * item_size(w.storage), g.filter_src, g.filter_dst, take, channels,
                            taps + (3 * i + j) * STAGED * NR, NR)
        for i in range(take):
            for v in range(NV):
                transform_filter(taps + i * NR + v * VL, STAGED * NR, b.filter + (done + i) * NR + v * VL, FILTER_PLANE)
        done += take


cdef void packed_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef void multiply(const Gather *w, const Tiles *t, const Block *b) noexcept nogil:
    """Sums the products of all channels of src."""
    cdef int64_t c = 0, depth, panel, p
    cdef Operands product
    while c < w.g.src_channels:
        depth = smaller(DEPTH, w.g.src_channels - c)
        product = operands(depth, NULL, LDT, NR, NR, c > 0)
        pack_tiles(w, t, b, c, depth)
        for panel in range(b.panels):
            pack_filter(w, b, b.panel + panel, c, depth)
            for p in range(PLANES):
                gemm_packed(packed_tile, False, b.count, NR, &product, b.src + p * SRC_PLANE, b.filter + p * FILTER_PLANE, 0,
                            b.dst + (panel * PLANES + p) * DST_PLANE)
        c += depth


cdef void store_panel(const Gather *w, const Tiles *t, const Block *b, int64_t panel) noexcept nogil:
    """Restores the pixels of a panel and writes them, row by row."""
    cdef const Problem *g = w.g
    cdef int64_t channel = (b.panel + panel) * NR, channels = smaller(NR, g.dst_channels - channel)
    cdef int64_t done = 0, i, v, pixels, line = 2 * RUN * NR
    cdef Run r
    cdef char *dst
    while done < b.count:
        r = run_at(t, b.first + done, b.count - done)
        for i in range(r.count):
            for v in range(NV):
                restore_dst(b.dst + panel * PLANES * DST_PLANE + (done + i) * NR + v * VL, DST_PLANE, b.stage + 2 * i * NR + v * VL, line, NR)
        pixels = smaller(2 * r.count, t.col.count - 2 * r.j)
        for i in range(smaller(2, t.row.count - 2 * r.i)):
            if not all_finite(b.stage + i * line, pixels * NR):
                w.finite[0] = False
            dst = w.dst + (r.n * g.dst_n + (t.row.out_start + t.row.out_step * (2 * r.i + i)) * g.dst_y
                           + (t.col.out_start + t.col.out_step * 2 * r.j) * g.dst_x
                           + (b.group * g.dst_channels + channel) * g.dst_c) * item_size(w.storage)
            narrow_block(w.storage, b.stage + i * line, NR, pixels, channels, dst, t.col.out_step * g.dst_x, g.dst_c)
        done += r.count


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block: sums, then stores."""
    cdef const Gather *w = <const Gather *> work
    cdef real *scratch = <real *> slab
    cdef int64_t pair = 0, panel, parts
    cdef Tiles t
    cdef Block b
    while w.blocks[pair + 1] <= index:
        pair += 1
    index -= w.blocks[pair]
    t = pair_tiles(w, pair)
    parts = tile_blocks(w, &t)
    b.first = part(tile_count(&t), index % parts, parts)
    b.count = part(tile_count(&t), index % parts + 1, parts) - b.first
    index = index // parts
    b.group = index % w.g.groups
    b.panel = index // w.g.groups * w.panels
    b.panels = smaller(w.panels, w.all_panels - b.panel)
    b.src, b.filter = scratch, scratch + PLANES * SRC_PLANE
    b.dst = b.filter + PLANES * FILTER_PLANE
    b.stage = b.dst + PANELS * PLANES * DST_PLANE
    multiply(w, &t, &b)
    for panel in range(b.panels):
        store_panel(w, &t, &b, panel)


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes
    cdef real *table = allocate(padded(2 * (pairs + 1)))
    cdef real *slab
    if table == NULL:
        return 1
    w.blocks = <int64_t *> table
    plan(w, threads)
    threads = useful_threads(w.g, w.blocks[pairs], threads)
    slab = allocate(threads * SCRATCH)
    if slab == NULL:
        release(table)
        return 1
    do_blocks(gather_block, w, w.blocks[pairs], threads, FIRST_FREE, slab, SCRATCH * sizeof(real))
    release(slab)
    release(table)
    return 0


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dst. MIXED if it is not finite: an infinity may have spread over its tile."""
    cdef Gather w
    cdef bint finite = True
    w.g = <const Problem *> problem
    w.storage = storage
    w.src = <const char *> inputs[0]
    w.filter = <const char *> inputs[1]
    w.dst = <char *> out
    w.finite = &finite
    return outcome(drive(&w, num_threads), &finite)


borrow_blocks()
entry = exported(compute)
