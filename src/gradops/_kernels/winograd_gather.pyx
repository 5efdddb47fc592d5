# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst = A' [sum_channel (G w G') * (B' src B)] A: conv2d and conv2d_backprop_input with up to 7x7 taps, or 6x6 and a stride of 2, by Winograd's F(2x2, 3x3).

In parallel: blocks of (family of lane pairs, group, panels of channels of dst, tiles of 2x2 pixels of each pair); each is summed by one thread in the
order of the channels and pairs. Packed: DEPTH channels or half as many at a time, the transformed tiles of a block and the transformed filter of a
panel. Each block transforms them again: that costs less than to fetch transformed ones, 4 and 16/9 times as large, from memory.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is not empty and covers dst; every lane has z_step 1, tap_step 1
and up to 3 taps; lanes that read the same tiles do so in one window of 3.
"""
from libc.stdint cimport int64_t
from _blocks cimport FIRST_FREE, do_blocks
from _entry cimport exported, outcome
from _families cimport LINE, Family, Run, Tiles, families, family, has, packed_plane, packed_planes, plane_of, planes, run_at, tile_count
from _gemm cimport NOTHING, Operands, operands, gemm_packed, gemm_tile
from _problem cimport Problem, Lane, divide_up, even_parts, larger, part, smaller, taps_innermost, useful_threads
from _scratch cimport allocate, apart, padded, release
from _storage cimport real, MR, NR, REAL_STORAGE, VL, borrow_blocks, clear, item_size, narrow_block, rows_finite, widen_block
from _winograd cimport PLANES, pack_src, restore_dst, transform_filter

cdef enum:
    TILES = 84                                          # of a block, at most
    PANELS = 2                                          # of NR channels of dst, of a block: one where a panel has more planes than 16
    DEPTH = 64                                          # channels of src that are transformed at a time, or half as many
    FEW_TILES = 56                                      # where there is room for fewer tiles of so many: each block transforms the filter again
    STAGED = 16                                         # of them, how many of the filter are staged at a time
    BLOCKS = 6                                          # of a thread: blocks have one panel where there are fewer, so that all are busy to the end,
    LEAST_TILES = 12                                    # and fewer tiles, at least these, where that gives each thread as many blocks
    PAD = 16                                            # more than transformed tiles and planes need lies between them, so that they spread over the cache sets
    SRC = PLANES * (TILES * (DEPTH + PAD) + PAD)        # so many numbers of tiles
    FILTER_PLANE = DEPTH * 32 + PAD
    DST = PANELS * PLANES * (TILES * 32 + PAD)          # so many sums; where there are more planes, blocks have fewer tiles
    SCRATCH = SRC + PLANES * FILTER_PLANE + DST + 4 * LINE * 32


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    int64_t depth                                       # channels of src that are transformed at a time
    int64_t tiles                                       # of a block, at most
    int64_t panels                                      # of a block
    int64_t all_panels                                  # of the channels of dst of a group
    int64_t parts                                       # of the tiles of a family, at least
    int64_t *blocks                                     # how many blocks lie before each family
    bint *finite                                        # cleared if dst holds an infinity or NaN


cdef int64_t panel_planes(const Family *f) noexcept nogil:
    """Sums of a panel: of each pair, or of all."""
    return planes(&f.hull) if f.shares_dst else f.sums[f.rows * f.cols]


cdef int64_t tile_blocks(const Gather *w, const Family *f) noexcept nogil:
    return larger(divide_up(tile_count(f), w.tiles), smaller(w.parts, tile_count(f) // LEAST_TILES))


cdef void plan_blocks(Gather *w) noexcept nogil:
    cdef int64_t i
    cdef Family f
    w.blocks[0] = 0
    for i in range(families(w.g)):
        f = family(w.g, i)
        w.blocks[i + 1] = w.blocks[i] + w.g.groups * tile_blocks(w, &f) * divide_up(w.all_panels, w.panels)


cdef int64_t room(int64_t packed, int64_t depth) noexcept nogil:
    """For how many tiles, of which so many planes are packed."""
    return (SRC // packed - PAD) // (depth + PAD)


cdef void plan(Gather *w, int threads) noexcept nogil:
    """Chooses the block sizes, which no sum depends on."""
    cdef int64_t count = families(w.g)
    cdef Family f = family(w.g, 0)
    w.all_panels, w.parts = divide_up(w.g.dst_channels, NR), 1
    w.panels = PANELS if panel_planes(&f) <= PLANES else 1
    w.depth = DEPTH if room(packed_planes(&f), DEPTH) >= FEW_TILES else DEPTH // 2
    w.tiles = smaller((DST // (w.panels * panel_planes(&f)) - PAD) // NR, room(packed_planes(&f), w.depth))
    w.tiles = smaller(w.tiles // MR * MR, TILES)
    plan_blocks(w)
    if w.blocks[count] >= BLOCKS * threads:
        return
    w.panels = 1
    plan_blocks(w)
    if w.blocks[count] < BLOCKS * threads:
        w.parts = even_parts(tile_blocks(w, &f), tile_count(&f) // LEAST_TILES, count * w.g.groups * w.all_panels, threads)
        plan_blocks(w)


cdef struct Block:
    int64_t group, first, count                         # tiles
    int64_t panel, panels
    real *src                                           # transformed: [plane][tile][w.depth + PAD]
    int64_t src_plane                                   # distance
    real *filter                                        # transformed: [plane][channel of src][NR]
    real *dst                                           # to be restored: [panel][plane][tile][NR]
    int64_t dst_plane, dst_panel                        # distances
    real *stage


cdef void pack_tiles(const Gather *w, const Family *f, int64_t row, const Block *b, int64_t c, int64_t depth) noexcept nogil:
    """Transforms channels c.. of the block's tiles of a lane of rows."""
    cdef const char *src = w.src + (b.group * w.g.src_channels + c) * w.g.src_c * item_size(w.storage)
    pack_src(f, row, w.storage, src, b.first, b.count, depth, b.stage, b.src, w.depth + PAD, b.src_plane)


cdef void stage_taps(const Gather *w, const Tiles *t, int64_t at, int64_t count, int64_t channels, real *taps) noexcept nogil:
    """taps[place in the window][channel of src][NR] = the filter from `at` on, of so many channels of src and dst."""
    cdef const Problem *g = w.g
    cdef const Lane *row = t.row.lane
    cdef const Lane *col = t.col.lane
    cdef int64_t i, j, place, tap
    if taps_innermost(g) and g.filter_rows == g.filter_cols == row.taps == col.taps == 3:
        for i in range(count):
            widen_block(w.storage, w.filter + (at + i * g.filter_src) * item_size(w.storage), 1, g.filter_dst, 9, channels,
                        taps + i * NR + (8 * STAGED * NR if row.filter_step < 0 else 0), STAGED * NR * row.filter_step)
        return
    for i in range(row.taps):
        for j in range(col.taps):
            place = 3 * (t.row.at + i) + t.col.at + j
            tap = (row.filter_start + row.filter_step * i) * g.filter_y + (col.filter_start + col.filter_step * j) * g.filter_x
            widen_block(w.storage, w.filter + (at + tap) * item_size(w.storage), g.filter_src, g.filter_dst, count, channels, taps + place * STAGED * NR, NR)


cdef void pack_filter(const Gather *w, const Tiles *t, const Block *b, int64_t panel, int64_t c, int64_t count) noexcept nogil:
    """Transforms the filter of a lane pair, a panel and channels c.. of src."""
    cdef const Problem *g = w.g
    cdef real taps[9 * STAGED * 32]
    cdef int64_t channels = smaller(NR, g.dst_channels - panel * NR), done = 0, take, i, v
    if channels < NR or t.row.lane.taps < 3 or t.col.lane.taps < 3:
        clear(taps, 9 * STAGED * NR)
    while done < count:
        take = smaller(STAGED, count - done)
        stage_taps(w, t, b.group * g.filter_group + (c + done) * g.filter_src + panel * NR * g.filter_dst, take, channels, taps)
        for i in range(take):
            for v in range(divide_up(channels, VL)):
                transform_filter(taps + i * NR + v * VL, STAGED * NR, b.filter + (done + i) * NR + v * VL, FILTER_PLANE, t.row.points, t.col.points)
        done += take


cdef void packed_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef bint is_begun(const Family *f, int64_t pair, int i, int j) noexcept nogil:
    """Whether pairs before this one are added to the same plane."""
    cdef int64_t q
    for q in range(pair if f.shares_dst else 0):
        if has(f.pairs[q].row.points, i) and has(f.pairs[q].col.points, j):
            return True
    return False


cdef void multiply_pair(const Gather *w, const Family *f, int64_t row, int64_t col, const Block *b, int64_t c, int64_t depth) noexcept nogil:
    """Sums the products of channels c.. of a lane pair."""
    cdef int64_t pair = row * f.cols + col, panel, channels, plane
    cdef const Tiles *t = &f.pairs[pair]
    cdef int i, j
    cdef Operands product = operands(depth, NULL, w.depth + PAD, NR, NR, False)
    for panel in range(b.panels):
        channels = smaller(NR, w.g.dst_channels - (b.panel + panel) * NR)
        pack_filter(w, t, b, b.panel + panel, c, depth)
        for i in range(t.row.points.first, t.row.points.end):
            for j in range(t.col.points.first, t.col.points.end):
                plane = plane_of(&f.hull, i, j) if f.shares_dst else f.sums[pair] + plane_of(t, i, j)
                product.accumulate = c > 0 or is_begun(f, pair, i, j)
                gemm_packed(packed_tile, False, b.count, channels, &product, b.src + packed_plane(f, row, col, i, j) * b.src_plane,
                            b.filter + plane_of(t, i, j) * FILTER_PLANE, 0, b.dst + panel * b.dst_panel + plane * b.dst_plane)


cdef void multiply(const Gather *w, const Family *f, const Block *b) noexcept nogil:
    """Sums the products of all channels of src."""
    cdef int64_t c = 0, depth, row, col
    while c < w.g.src_channels:
        depth = smaller(w.depth, w.g.src_channels - c)
        for row in range(f.rows):
            if row == 0 or not f.shares_src:
                pack_tiles(w, f, row, b, c, depth)
            for col in range(f.cols):
                multiply_pair(w, f, row, col, b, c, depth)
        c += depth


cdef struct Pixels:                                     # where the pixels of a run go: the staged lines, or dst
    real *at
    int64_t line, pixel, col                            # from one to the next of a lane, and of out_start


cdef void restore_run(const Family *f, const Block *b, const real *sums, int64_t channels, int64_t row, int64_t first, int64_t count, const Pixels *p) noexcept nogil:
    """Restores two lines of a lane of rows: pixels of all lanes of columns, in turns."""
    cdef int64_t cols = 1 if f.shares_dst else f.cols, j, i, v
    cdef const Tiles *t
    cdef const real *src
    cdef real *dst
    for j in range(cols):
        t = &f.hull if f.shares_dst else &f.pairs[row * cols + j]
        src = sums + (0 if f.shares_dst else f.sums[row * cols + j]) * b.dst_plane + first * NR
        dst = p.at + t.col.lane.out_start * p.col
        for i in range(count):
            for v in range(divide_up(channels, VL)):
                restore_dst(src + i * NR + v * VL, b.dst_plane, t.row.points, t.col.points, dst + 2 * i * p.pixel + v * VL, p.line, p.pixel)


cdef void store_run(const Gather *w, const Family *f, const Block *b, const real *sums, int64_t channel, int64_t channels, int64_t row_lane, const Run *r, int64_t first) noexcept nogil:
    """Restores a run of a lane of rows, and writes it."""
    cdef const Problem *g = w.g
    cdef const Lane *col = f.hull.col.lane
    cdef const Lane *row = f.pairs[row_lane * f.cols].row.lane
    cdef bint turns = f.shares_src and f.cols > 1
    cdef int64_t per = 2 * f.cols if turns else 2, step = 1 if turns else col.out_step, x = (0 if turns else col.out_start) + r.j * per * step
    cdef int64_t pixels = smaller(per * r.count, (g.dst_cols if turns else col.count) - per * r.j), rows = smaller(2, row.count - 2 * r.i), i
    cdef char *dst = w.dst + (r.n * g.dst_n + (row.out_start + row.out_step * 2 * r.i) * g.dst_y + x * g.dst_x + (b.group * g.dst_channels + channel) * g.dst_c) * item_size(w.storage)
    cdef bint direct = w.storage == REAL_STORAGE and g.dst_c == 1 and channels % VL == 0 and rows == 2 and pixels == per * r.count
    cdef Pixels p
    p.at, p.line, p.pixel, p.col = b.stage, 2 * LINE * NR, (f.cols if turns else 1) * NR, NR if turns else 0
    if direct:
        p.at, p.line, p.pixel, p.col = <real *> dst, row.out_step * g.dst_y, col.out_step * g.dst_x, g.dst_x if turns else 0
    restore_run(f, b, sums, channels, row_lane, first, r.count, &p)
    for i in range(rows):
        if not rows_finite(p.at + i * p.line, step * g.dst_x if direct else NR, pixels, channels):
            w.finite[0] = False
        if not direct:
            narrow_block(w.storage, b.stage + i * p.line, NR, pixels, channels, dst + i * row.out_step * g.dst_y * item_size(w.storage), step * g.dst_x, g.dst_c)


cdef void store_panel(const Gather *w, const Family *f, const Block *b, int64_t panel) noexcept nogil:
    """Restores the pixels of a panel and writes them, row by row."""
    cdef int64_t channel = (b.panel + panel) * NR, channels = smaller(NR, w.g.dst_channels - channel), done = 0, row
    cdef Run r
    while done < b.count:
        r = run_at(f, b.first + done, b.count - done)
        for row in range(1 if f.shares_dst else f.rows):
            store_run(w, f, b, b.dst + panel * b.dst_panel, channel, channels, row, &r, done)
        done += r.count


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block: sums, then stores."""
    cdef const Gather *w = <const Gather *> work
    cdef real *scratch = <real *> slab
    cdef int64_t number = 0, panel, parts
    cdef Family f
    cdef Block b
    while w.blocks[number + 1] <= index:
        number += 1
    index -= w.blocks[number]
    f = family(w.g, number)
    parts = tile_blocks(w, &f)
    b.first = part(tile_count(&f), index % parts, parts)
    b.count = part(tile_count(&f), index % parts + 1, parts) - b.first
    index = index // parts
    b.group = index % w.g.groups
    b.panel = index // w.g.groups * w.panels
    b.panels = smaller(w.panels, w.all_panels - b.panel)
    b.src, b.src_plane, b.filter = scratch, w.tiles * (w.depth + PAD) + PAD, scratch + SRC
    b.dst, b.dst_plane = b.filter + PLANES * FILTER_PLANE, w.tiles * NR + PAD
    b.dst_panel, b.stage = panel_planes(&f) * b.dst_plane, b.dst + DST
    multiply(w, &f, &b)
    for panel in range(b.panels):
        store_panel(w, &f, &b, panel)


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef int64_t count = families(w.g), scratch_size
    cdef real *table = allocate(padded(2 * (count + 1)))
    cdef real *slab
    if table == NULL:
        return 1
    w.blocks = <int64_t *> table
    plan(w, threads)
    threads = useful_threads(w.g, w.blocks[count], threads)
    scratch_size = apart(SCRATCH, threads)
    slab = allocate(threads * scratch_size)
    if slab == NULL:
        release(table)
        return 1
    do_blocks(gather_block, w, w.blocks[count], threads, FIRST_FREE, slab, scratch_size * sizeof(real))
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
