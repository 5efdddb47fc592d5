# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw = G' [sum_tile (B' x B) * (A dy A')] G: conv2d_backprop_filter with up to 7x7 taps, or 6x6 and a stride of 2, by Winograd's F(2x2, 3x3).

In parallel: blocks of (span of tiles, group, channels of x, channels of dy), smaller ones where there are fewer than threads. Few blocks get more
spans: each span sums into its own partial dw, and the partials are added in order. Packed: transformed tiles of x and dy, TILES at a time.

*Assumes:* x, dy and dw are contiguous and aligned; the problem is that of the forward op, or mirrored, and not empty; every lane has z_step 1,
tap_step 1 and up to 3 taps; dw is [slots][groups][k] or [groups][k][slots], as the strides of the filter say.
"""
from libc.stdint cimport int64_t
from _blocks cimport FIRST_FREE
from _entry cimport exported, outcome
from _families cimport LINE, Family, Run, Tiles, families, family, packed_plane, packed_planes, plane_of, run_at, tile_count
from _gemm cimport NOTHING, Operands, operands, gemm_packed, gemm_tile
from _partials cimport Total, aim_total, first_wave, store_block, sum_spans
from _problem cimport Lane, Problem, divide_up, smaller, larger, part, taps_innermost, useful_threads
from _storage cimport real, NR, NV, VL, borrow_blocks, clear, item_size, widen_block
from _winograd cimport PLANES, pack_src, restore_filter, transform_dst

cdef enum:
    TILES = 32                                          # that are transformed at a time
    X_CHANNELS = 64                                     # of a block, at most; half where more blocks make up for transforming more often,
    DY_CHANNELS = 128                                   # of a block, at most; half or a quarter; of more planes than 16 as many as fit
    TRANSFORM = 6                                       # multiply-adds of a plane that take as long as transforming a channel of a tile, about
    MIN_BLOCKS = 16                                     # tiles are split into spans until there are as many blocks
    MIN_SPAN = 64                                       # tiles of a span, at least
    PAD = 16                                            # planes are a vector more apart than they need, to spread over the cache sets
    SUMS = 4 * PLANES * (X_CHANNELS * DY_CHANNELS // 4 + PAD)    # of 64 planes as well, then a quarter of their channels
    X = 40 * (TILES * X_CHANNELS // 2 + PAD)            # of 16 planes, or of 40 and half of their channels
    DY_PLANE = TILES * DY_CHANNELS + PAD
    SCRATCH = SUMS + X + PLANES * DY_PLANE + 4 * LINE * 32


cdef struct Reduce:
    const Problem *g
    int storage
    const char *x
    const char *dy
    Total dw
    int64_t planes, x_planes                            # of sums and of x
    int64_t x_channels, dy_channels                     # of a block, at most


cdef int64_t blocks(const Reduce *w) noexcept nogil:
    """Of one span."""
    return w.g.groups * divide_up(w.g.src_channels, w.x_channels) * divide_up(w.g.dst_channels, w.dy_channels)


cdef int64_t longest(const Reduce *w, int threads) noexcept nogil:
    """What the thread with the most blocks has to do, for each tile."""
    cdef int64_t x_channels = smaller(w.x_channels, w.g.src_channels), dy_channels = smaller(w.dy_channels, w.g.dst_channels)
    cdef int64_t spans = first_wave(&w.dw, threads).count
    return (divide_up(w.dw.spans, spans) * divide_up(spans * blocks(w), threads)
            * (w.planes * (x_channels * dy_channels + TRANSFORM * x_channels) + PLANES * TRANSFORM * dy_channels))


cdef int64_t sums_plane(const Reduce *w) noexcept nogil:
    """Distance of planes of sums."""
    return w.x_channels * w.dy_channels + PAD


cdef int64_t x_plane(const Reduce *w) noexcept nogil:
    """Distance of planes of tiles of x."""
    return TILES * w.x_channels + PAD


cdef bint fits(const Reduce *w) noexcept nogil:
    """Whether blocks have room."""
    return w.planes * sums_plane(w) <= SUMS and w.x_planes * x_plane(w) <= X


cdef void plan(Reduce *w, int threads) noexcept nogil:
    """Chooses the spans, by the problem alone, and the blocks, which no sum depends on: smaller ones where that keeps more threads busy."""
    cdef const Problem *g = w.g
    cdef int64_t all_tiles = g.images * divide_up(g.dst_rows, 2) * divide_up(g.dst_cols, 2)
    cdef int i
    cdef Family f = family(g, 0)
    cdef Reduce other
    w.planes, w.x_planes = f.sums[f.rows * f.cols], packed_planes(&f)
    w.x_channels, w.dy_channels = X_CHANNELS, DY_CHANNELS
    while not fits(w):
        if w.dy_channels > w.x_channels:
            w.dy_channels = w.dy_channels // 2
        else:
            w.x_channels = w.x_channels // 2
    w.dw.size = g.filter_rows * g.filter_cols * g.src_channels * g.groups * g.dst_channels
    w.dw.spans = larger(smaller(divide_up(MIN_BLOCKS, blocks(w)), all_tiles // MIN_SPAN), 1)
    other = w[0]
    for i in range(6):
        other.x_channels, other.dy_channels = X_CHANNELS >> i // 3, DY_CHANNELS >> i % 3
        if fits(&other) and longest(&other, threads) < longest(w, threads):
            w.x_channels, w.dy_channels = other.x_channels, other.dy_channels


cdef struct Block:                                      # what a thread works on: a block of dw and its scratch
    int64_t span, group, x_channel, x_channels, dy_channel, dy_channels
    real *sums                                          # [plane][channel of x][w.dy_channels]
    real *x                                             # transformed: [plane][tile][w.x_channels]
    real *dy                                            # transformed: [plane][panel][tile][NR]
    real *stage


cdef void pack_x(const Reduce *w, const Family *f, int64_t row, const Block *b, int64_t first, int64_t count) noexcept nogil:
    """Transforms tiles of x of a lane of rows."""
    cdef const char *x = w.x + (b.group * w.g.src_channels + b.x_channel) * w.g.src_c * item_size(w.storage)
    pack_src(f, row, w.storage, x, first, count, b.x_channels, b.stage, b.x, w.x_channels, x_plane(w))


cdef void pack_dy(const Reduce *w, const Family *f, const Block *b, int64_t first, int64_t count) noexcept nogil:
    """Transforms tiles of dy; pixels beyond the lane pair are zero."""
    cdef const Problem *g = w.g
    cdef const Lane *row = f.hull.row.lane
    cdef const Lane *col = f.hull.col.lane
    cdef int64_t panel, k, done = 0, i, v, pixels, rows, size = item_size(w.storage)
    cdef Run r
    cdef const char *dy
    while done < count:
        r = run_at(f, first + done, count - done)
        rows, pixels = smaller(2, row.count - 2 * r.i), smaller(2 * r.count, col.count - 2 * r.j)
        for panel in range(divide_up(b.dy_channels, NR)):
            k = panel * NR
            if rows < 2 or pixels < 2 * r.count or b.dy_channels - k < NR:
                clear(b.stage, 2 * LINE * NR)
            for i in range(rows):
                dy = w.dy + (r.n * g.dst_n + (row.out_start + row.out_step * (2 * r.i + i)) * g.dst_y
                             + (col.out_start + col.out_step * 2 * r.j) * g.dst_x
                             + (b.group * g.dst_channels + b.dy_channel + k) * g.dst_c) * size
                widen_block(w.storage, dy, col.out_step * g.dst_x, g.dst_c, pixels, smaller(NR, b.dy_channels - k), b.stage + i * LINE * NR, NR)
            for i in range(r.count):
                for v in range(NV):
                    transform_dst(b.stage + 2 * i * NR + v * VL, LINE * NR, NR,
                                  b.dy + k * TILES + (done + i) * NR + v * VL, DY_PLANE, f.hull.row.points, f.hull.col.points)
        done += r.count


cdef void packed_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(True, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef void multiply(const Reduce *w, const Family *f, int64_t row, int64_t col, const Block *b, int64_t count, bint accumulate) noexcept nogil:
    """sums (+)= the products of so many tiles of a lane pair."""
    cdef int64_t pair = row * f.cols + col
    cdef const Tiles *t = &f.pairs[pair]
    cdef int i, j
    cdef Operands product = operands(count, NULL, w.x_channels, NR, w.dy_channels, accumulate)
    for i in range(t.row.points.first, t.row.points.end):
        for j in range(t.col.points.first, t.col.points.end):
            gemm_packed(packed_tile, True, b.x_channels, b.dy_channels, &product, b.x + packed_plane(f, row, col, i, j) * x_plane(w),
                        b.dy + plane_of(&f.hull, i, j) * DY_PLANE, TILES * NR, b.sums + (f.sums[pair] + plane_of(t, i, j)) * sums_plane(w))


cdef bint sum_tiles(const Reduce *w, const Family *f, const Block *b, bint accumulate) noexcept nogil:
    """sums (+)= the products of the tiles of the block's span, TILES at a time; returns whether sums holds anything."""
    cdef int64_t all_tiles = tile_count(f), begin = part(all_tiles, b.span, w.dw.spans), total = part(all_tiles, b.span + 1, w.dw.spans) - begin
    cdef int64_t parts = divide_up(total, TILES), i, first, count, row, col
    for i in range(parts):
        first = begin + part(total, i, parts)
        count = begin + part(total, i + 1, parts) - first
        pack_dy(w, f, b, first, count)
        for row in range(f.rows):
            pack_x(w, f, row, b, first, count)
            for col in range(f.cols):
                multiply(w, f, row, col, b, count, accumulate)
        accumulate = True
    return accumulate


cdef void restore_taps(const Reduce *w, const Tiles *t, const real *sums, const Block *b, real *taps) noexcept nogil:
    """taps[tap][channel of x][w.dy_channels] of a lane pair."""
    cdef const Lane *row = t.row.lane
    cdef const Lane *col = t.col.lane
    cdef int64_t c, v, ld = w.dy_channels, size = w.x_channels * ld
    taps += (row.filter_start * w.g.filter_cols + col.filter_start) * size
    for c in range(b.x_channels):
        for v in range(divide_up(b.dy_channels, VL)):
            restore_filter(sums + c * ld + v * VL, sums_plane(w), t.row.points, t.col.points, taps + c * ld + v * VL,
                           row.filter_step * w.g.filter_cols * size, col.filter_step * size)


cdef void store_filter(const Reduce *w, const Block *b, const real *taps) noexcept nogil:
    """Writes the taps of a block."""
    cdef const Problem *g = w.g
    cdef int64_t i, at = g.filter_first + b.x_channel * g.filter_src + b.group * g.filter_group + b.dy_channel * g.filter_dst
    cdef int64_t ld = w.dy_channels, size = w.x_channels * ld, count = g.filter_rows * g.filter_cols
    if taps_innermost(g):
        for i in range(b.x_channels):
            store_block(&w.dw, b.span, taps + i * ld, size, count, b.dy_channels, at + i * g.filter_src, g.filter_x, g.filter_dst)
        return
    for i in range(count):
        store_block(&w.dw, b.span, taps + i * size, ld, b.x_channels, b.dy_channels, at + i * g.filter_x, g.filter_src, g.filter_dst)


cdef void reduce_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block of dw, summed over one span of the tiles of every lane pair."""
    cdef const Reduce *w = <const Reduce *> work
    cdef real *scratch = <real *> slab
    cdef int64_t i
    cdef bint begun = False
    cdef Family f
    cdef Block b
    cdef int64_t x_blocks = divide_up(w.g.src_channels, w.x_channels), dy_blocks = divide_up(w.g.dst_channels, w.dy_channels)
    b.x_channel = index % x_blocks * w.x_channels
    b.x_channels = smaller(w.x_channels, w.g.src_channels - b.x_channel)
    index = index // x_blocks
    b.dy_channel = index % dy_blocks * w.dy_channels
    b.dy_channels = smaller(w.dy_channels, w.g.dst_channels - b.dy_channel)
    index = index // dy_blocks
    b.group, b.span = index % w.g.groups, w.dw.wave.first + index // w.g.groups
    b.sums, b.x = scratch, scratch + SUMS
    b.dy = b.x + X
    b.stage = b.dy + PLANES * DY_PLANE
    for i in range(families(w.g)):
        f = family(w.g, i)
        begun = sum_tiles(w, &f, &b, begun)
    if not begun:
        clear(b.sums, SUMS)
    for i in range(f.rows * f.cols):
        restore_taps(w, &f.pairs[i], b.sums + f.sums[i] * sums_plane(w), &b, b.x)
    store_filter(w, &b, b.x)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    threads = useful_threads(w.g, threads, threads)
    plan(w, threads)
    return sum_spans(&w.dw, reduce_block, w, blocks(w), <int> smaller(threads, w.dw.spans * blocks(w)), FIRST_FREE, SCRATCH)


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dw. MIXED if it is not finite: an infinity may have spread over its tile."""
    cdef Reduce w
    cdef bint finite = True
    w.g, w.storage = <const Problem *> problem, storage
    w.x, w.dy = <const char *> inputs[w.g.mirrored], <const char *> inputs[1 - w.g.mirrored]
    aim_total(&w.dw, storage, out, &finite)
    return outcome(drive(&w, num_threads), &finite)


borrow_blocks()
entry = exported(compute)
