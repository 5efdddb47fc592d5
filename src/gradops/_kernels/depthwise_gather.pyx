# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, c] = sum_(m, tap) src[pixel + tap, lane] filter[tap, lane]: depthwise_conv2d_native and its input gradient, one stencil; conv2d and its input
gradient of groups of one output, the same the other way around; and of as many outputs as inputs, whose lanes are channels that change places (`_groups.pxd`).

In parallel: blocks of (image, part of its rows, lanes). Packed: the filter once, as [block][tap][lane]; rows of src in a ring, one for all lane
pairs where these can share it. A register holds one vector of lanes of one pixel; a tap's filter vector serves up to TILE pixels. The only channel of src in a
group is repeated for those of dst while it is packed, or when it is read, if they are whole vectors; lanes of the only one of dst are added up when they are stored.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is not empty; row lanes have tap_step 1; at most LANES multipliers, or groups that
`_groups.pxd` takes.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER, do_blocks
from _entry cimport exported, outcome
from _groups cimport WIDEST, exchanges, group_lanes, group_vectors, is_grouped, part_ways, tap_vectors
from _problem cimport Lane, Problem, row_lanes, col_lanes, clear_dst, divide_up, hull, larger, smaller, part, useful_threads
from _ring cimport LANES, Block, Blocking, Ring, at_column, blocking, chunk_pixels, fill_ring, is_direct, load_column, next_row, open_ring, ring_height, ring_row, ring_width, set_lanes
from _scratch cimport allocate, apart, padded, release
from _storage cimport real, vec, VL, MR, REAL_STORAGE, borrow_blocks, all_finite, exchange, item_size, clear, load, load_once, prefetch_soon, store, zero, narrow_block, widen_block

cdef enum:
    TILE = 14                                           # pixels of a register tile, at most
    GROUP_TILE = 10                                     # the same of groups
    GROUP_SUMS = 24                                     # of a register tile of groups, at most
    CROWDED = 1024                                      # pixels at multiples of this distance, in bytes, fall on four sets of a cache of 4 KiB a way


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    Blocking k
    bint shared                                         # whether all lane pairs find what they read in one ring, that of hull_row and hull_col
    Lane hull_row, hull_col
    real *filter_panels                                 # [block][tap][vector][VL]


cdef int64_t panel_size(const Gather *w) noexcept nogil:
    """Reals of a block's filter."""
    return w.g.filter_rows * w.g.filter_cols * tap_vectors(w.g, w.k.vectors) * VL


cdef bint pack_filter(const Gather *w) noexcept nogil:
    """Returns whether the filter is finite."""
    cdef int64_t taps = w.g.filter_rows * w.g.filter_cols, row = w.k.vectors * VL, m = w.k.multiplier, block, lane, first, lanes
    cdef int64_t step = w.g.filter_dst if w.g.dst_channels > 1 else w.g.filter_src if m > 1 else w.g.filter_group, at_once = m if w.g.filter_group != m * step else w.k.lanes
    cdef real *dst
    for block in range(w.k.blocks):
        lane, dst = block * w.k.lanes, w.filter_panels + block * panel_size(w)
        clear(dst, panel_size(w))
        if is_grouped(w.g):
            pack_groups(w, lane, smaller(w.k.lanes, w.k.total - lane), dst)
            continue
        lanes, first = smaller(w.k.lanes, w.k.total - lane), 0
        while first < lanes:                            # all of a block, or those of a group
            widen_block(w.storage, w.filter + (lane + first) // m * w.g.filter_group * item_size(w.storage), w.g.filter_x, step, taps, smaller(at_once, lanes - first), dst + first, row)
            first += at_once
    return all_finite(w.filter_panels, w.k.blocks * panel_size(w))


cdef void pack_groups(const Gather *w, int64_t lane, int64_t lanes, real *dst) noexcept nogil:
    """dst[tap][vector of dst][vector of src][s][l] = filter[tap, lane l of that vector of src -> lane l ^ s of that of dst], for lanes from `lane` on."""
    cdef const Problem *g = w.g
    cdef int64_t size = group_lanes(g), ways = exchanges(g), wide = group_vectors(g), take = smaller(size, VL), tap, v, i, to
    cdef real[WIDEST * WIDEST] rows
    for tap in range(g.filter_rows * g.filter_cols):
        for v in range(w.k.vectors):
            clear(rows, WIDEST * VL)
            for i in range(smaller(VL, lanes - v * VL) // take):
                to = lane + v * VL + i * take
                widen_block(w.storage, w.filter + (tap * g.filter_x + to // size * g.filter_group + to % size * g.filter_dst) * item_size(w.storage),
                            g.filter_src, g.filter_dst, size, take, rows + i * take, VL)
            part_ways(rows, VL, ways, wide, dst)
            dst += wide * ways * VL


cdef inline void stencil_ukr(int pixels, int pitch, int64_t step, const Block *b, const Ring *ring, const real *row, const real *filter, int64_t filter_row, int64_t filter_col, real *out, int64_t ld, int64_t ahead) noexcept nogil:
    """out[q ld] = sum_(i, j) row_i[q step + j tap_step] filter[i filter_row + j filter_col] for q < pixels, one vector each. Fetches what is written `ahead`.

    *Assumes:* pixels and pitch are compile-time constants of the caller; row_0 is `row`, the others follow in the ring.
    """
    cdef vec acc[TILE]
    cdef vec tap
    cdef const real *x
    cdef const real *weights
    cdef int64_t i, _j
    cdef int q
    for q in range(pixels):
        acc[q] = zero()
        prefetch_soon(out + q * ld + ahead)
    for i in range(b.row.taps):
        x = row
        weights = filter + i * filter_row
        for _j in range(b.col.taps):
            tap = load(weights)
            for q in range(pixels):
                acc[q] += load_column(pitch, x + q * step * pitch) * tap
            x += b.col.tap_step * pitch
            weights += filter_col
        row = next_row(ring, row)
    for q in range(pixels):
        store(out + q * ld, acc[q])


cdef inline void change_places(int pixels, int ways, int distance, vec *acc) noexcept nogil:
    """Adds the sums of half the ways, whose lanes change places, to those of the other half."""
    cdef int q, s
    for q in range(pixels):
        for s in range(distance):
            acc[q * ways + s] += exchange(acc[q * ways + distance + s], distance)


cdef inline void group_ukr(int pixels, int ways, int64_t wide, int64_t step, const Block *b, const Ring *ring, const real *row, const real *filter, int64_t filter_row, int64_t filter_col, real *out, int64_t ld, int64_t ahead) noexcept nogil:
    """stencil_ukr of groups, from the first of the `wide` vectors of src that a vector of dst needs on. What is written `ahead` is a row, not a strip: 8
    channels with stride 2 take 0.75 of the time (2 threads of a Zen 4).

    *Assumes:* pixels and ways are compile-time constants of the caller.
    """
    cdef vec acc[GROUP_SUMS]
    cdef vec operand[GROUP_TILE]
    cdef vec tap
    cdef const real *x
    cdef const real *at
    cdef const real *weights
    cdef const real *way
    cdef int64_t i, _j, _u
    cdef int q, s
    for q in range(pixels * ways):
        acc[q] = zero()
    for q in range(pixels):
        prefetch_soon(out + q * ld + ahead)
    for i in range(b.row.taps):
        x = row
        weights = filter + i * filter_row
        for _j in range(b.col.taps):
            at, way = x, weights
            for _u in range(wide):
                for q in range(pixels):
                    operand[q] = load(at + q * step * VL)
                for s in range(ways):
                    tap = load_once(way + s * VL) if pixels > 1 else load(way + s * VL)
                    for q in range(pixels):
                        acc[q * ways + s] += operand[q] * tap
                at += ring.width * VL
                way += ways * VL
            x += b.col.tap_step * VL
            weights += filter_col
        row = next_row(ring, row)
    if ways >= 16: change_places(pixels, ways, 8, acc)
    if ways >= 8: change_places(pixels, ways, 4, acc)
    if ways >= 4: change_places(pixels, ways, 2, acc)
    change_places(pixels, ways, 1, acc)
    for q in range(pixels):
        store(out + q * ld, acc[q * ways])


cdef inline int64_t group_pixels(int64_t ways, int64_t pixels) noexcept nogil:
    """Pixels of the register tiles of groups that cover so many with the least beside them."""
    cdef int64_t most = larger((GROUP_SUMS if MR > 6 else GROUP_SUMS // 2) // ways, 1), other
    most = smaller(most, GROUP_TILE if MR > 6 else 5)
    other = 4 if most > 4 else 2 if most > 2 else 1
    if pixels >= most and divide_up(pixels, most) * most <= divide_up(pixels, other) * other:
        return most
    return other if pixels >= other else 1


cdef inline void group_tile(int64_t pixels, int64_t ways, int64_t wide, int64_t step, const Block *b, const Ring *ring, const real *row, const real *filter, int64_t filter_row, int64_t filter_col, real *out, int64_t ld, int64_t ahead) noexcept nogil:
    """group_ukr for the pixels of `group_pixels`."""
    if ways == 2:
        if MR > 6 and pixels == 10: group_ukr(10, 2, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
        elif pixels == 5: group_ukr(5, 2, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
        elif pixels == 4: group_ukr(4, 2, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
        elif pixels == 1: group_ukr(1, 2, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
    elif VL >= 4 and ways == 4:
        if MR > 6 and pixels == 6: group_ukr(6, 4, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
        elif pixels == 4: group_ukr(4, 4, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
        elif pixels == 3: group_ukr(3, 4, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
        elif pixels == 2: group_ukr(2, 4, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
        elif pixels == 1: group_ukr(1, 4, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
    elif VL >= 8 and ways == 8:
        if MR > 6 and pixels == 3: group_ukr(3, 8, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
        elif MR > 6 and pixels == 2: group_ukr(2, 8, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
        elif pixels == 1: group_ukr(1, 8, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
    elif VL >= 16 and ways == 16:
        group_ukr(1, 16, wide, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)


cdef inline int64_t tile_pixels(int64_t pixels) noexcept nogil:
    """Pixels of the register tiles that cover so many with the least beside them; the last one begins early enough to be full."""
    cdef int64_t most = TILE if MR > 6 else 10
    if pixels >= most and divide_up(pixels, most) * most <= divide_up(pixels, 10) * 10:
        return most
    if pixels >= 10 and divide_up(pixels, 10) * 10 <= divide_up(pixels, 7) * 7 + 4:
        return 10
    return 7 if pixels >= 7 else 4 if pixels >= 4 else 1


cdef inline void stencil_tile(int64_t pixels, int pitch, int64_t step, const Block *b, const Ring *ring, const real *row, const real *filter, int64_t filter_row, int64_t filter_col, real *out, int64_t ld, int64_t ahead) noexcept nogil:
    """stencil_ukr for the pixels of `tile_pixels`."""
    if pixels == TILE: stencil_ukr(TILE, pitch, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
    elif pixels == 10: stencil_ukr(10, pitch, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
    elif pixels == 7: stencil_ukr(7, pitch, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
    elif pixels == 4: stencil_ukr(4, pitch, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)
    elif pixels == 1: stencil_ukr(1, pitch, step, b, ring, row, filter, filter_row, filter_col, out, ld, ahead)


cdef struct Strip:                                      # some rows of a chunk
    const Block *b
    const Ring *ring
    int64_t t, rows, pixels
    real *out                                           # at row r and pixel q: out[r row + q step + lane]
    int64_t row, step
    int64_t ahead                                       # the same of the next strip
    int64_t row_shift, col_shift                        # from the ring's first row and column to those that the lane pair reads first


cdef void compute_strip(const Gather *w, const Strip *s, const real *filter) noexcept nogil:
    """Computes a strip: vector by vector of lanes, each of which stays in the first cache, or row by row where the pixels of a vector crowd a few of
    its sets."""
    cdef int64_t vectors = divide_up(s.b.lanes, VL), i, j
    cdef bint crowded = s.step * <int64_t> sizeof(real) % CROWDED == 0
    for i in range(s.rows if crowded else vectors):
        for j in range(vectors if crowded else s.rows):
            if is_grouped(w.g):
                compute_groups(w, s, i if crowded else j, j if crowded else i, filter)
            else:
                compute_row(w, s, i if crowded else j, j if crowded else i, filter)


cdef void compute_groups(const Gather *w, const Strip *s, int64_t r, int64_t v, const real *filter) noexcept nogil:
    """Vector v of row r of a strip of groups."""
    cdef const Block *b = s.b
    cdef int64_t ways = exchanges(w.g), wide = group_vectors(w.g), pixels = group_pixels(ways, s.pixels), taps = tap_vectors(w.g, b.vectors) * VL, i, q
    cdef int64_t filter_row = b.row.filter_step * w.g.filter_cols * taps, filter_col = b.col.filter_step * taps
    cdef const real *row = ring_row(s.ring, b.row.z_step * (s.t + r) + s.row_shift) + (v // wide * wide * s.ring.width + s.col_shift) * VL
    cdef real *out = s.out + r * s.row + v * VL
    filter += (b.row.filter_start * w.g.filter_cols + b.col.filter_start) * taps + v * wide * ways * VL
    for i in range(divide_up(s.pixels, pixels)):
        q = smaller(i * pixels, s.pixels - pixels)
        group_tile(pixels, ways, wide, b.col.z_step, b, s.ring, row + q * b.col.z_step * VL, filter, filter_row, filter_col, out + q * s.step, s.step, s.row)


cdef void compute_row(const Gather *w, const Strip *s, int64_t r, int64_t v, const real *filter) noexcept nogil:
    """Vector v of row r of a strip."""
    cdef const Block *b = s.b
    cdef int64_t taps = b.vectors * VL, pixels = tile_pixels(s.pixels), i, q
    cdef int64_t filter_row = b.row.filter_step * w.g.filter_cols * taps, filter_col = b.col.filter_step * taps
    cdef const real *row = ring_row(s.ring, b.row.z_step * (s.t + r) + s.row_shift) + at_column(b, s.ring, v, s.col_shift)
    cdef real *out = s.out + r * s.row + v * VL
    filter += (b.row.filter_start * w.g.filter_cols + b.col.filter_start) * taps + v * VL
    for i in range(divide_up(s.pixels, pixels)):
        q = smaller(i * pixels, s.pixels - pixels)
        if b.pitch == 1:
            stencil_tile(pixels, 1, b.col.z_step, b, s.ring, row + q * b.col.z_step, filter, filter_row, filter_col, out + q * s.step, s.step, s.ahead)
        elif b.col.z_step == 1:
            stencil_tile(pixels, VL, 1, b, s.ring, row + q * VL, filter, filter_row, filter_col, out + q * s.step, s.step, s.ahead)
        else:
            stencil_tile(pixels, VL, b.col.z_step, b, s.ring, row + q * b.col.z_step * VL, filter, filter_row, filter_col, out + q * s.step, s.step, s.ahead)


cdef void fold(const real *lanes, int64_t channels, int64_t multiplier, real *sums) noexcept nogil:
    """sums[c] = sum_m lanes[c multiplier + m], rows of VL pixels."""
    cdef vec total
    cdef int64_t c, m
    for c in range(channels):
        total = zero()
        for m in range(multiplier):
            total += load(lanes + (c * multiplier + m) * VL)
        store(sums + c * VL, total)


cdef void store_folded(const Gather *w, const Block *b, int64_t pixels, int64_t step, const real *out, char *dst) noexcept nogil:
    """Adds up the lanes of each channel, for VL pixels at a time, which are turned into vectors, and writes them."""
    cdef int64_t row = b.vectors * VL, size = item_size(w.storage), channels = b.lanes // w.k.multiplier, done = 0, take
    cdef real[LANES * VL] lanes
    while done < pixels:
        take = smaller(pixels - done, VL)
        widen_block(REAL_STORAGE, <const char *> (out + done * row), 1, row, b.lanes, take, lanes, VL)
        fold(lanes, channels, w.k.multiplier, lanes)
        narrow_block(w.storage, lanes, VL, channels, take, dst + done * step * w.g.dst_x * size, w.g.dst_c, step * w.g.dst_x)
        done += take


cdef void store_row(const Gather *w, const Block *b, int64_t pixels, int64_t step, const real *out, char *dst) noexcept nogil:
    """Writes a row of results, whose lanes are channels or, backward, summands of channels."""
    if w.g.dst_channels == 1 and w.k.multiplier > 1:
        store_folded(w, b, pixels, step, out, dst)
    else:
        narrow_block(w.storage, out, b.vectors * VL, pixels, b.lanes, dst, step * w.g.dst_x, w.g.dst_c)


cdef bint is_direct_gather(const Gather *w, const Block *b) noexcept nogil:
    return is_direct(w.g, w.storage, b.lanes) and (w.k.multiplier == 1 or w.g.dst_channels > 1)


cdef void fill(const Block *b, Ring *ring, int64_t t, int64_t rows, int64_t first, int64_t ahead) noexcept nogil:
    """fill_ring, compiled once."""
    fill_ring(b, ring, t, rows, first, ahead)


cdef void gather_strip(const Gather *w, const Block *b, Ring *ring, int64_t t, int64_t rows, int64_t ahead, int64_t first, int64_t pixels, char *dst, const real *filter, real *line) noexcept nogil:
    """Pixels first.. of each row of a strip; the next one is `ahead` rows further. With several lanes of columns, results that are not written where
    they belong are left in whole rows of the line."""
    cdef const Problem *g = w.g
    cdef int64_t row = b.row.out_step * g.dst_y, column = b.col.out_start + b.col.out_step * first
    cdef Strip s
    s.row_shift = s.col_shift = 0
    if w.shared:
        s.row_shift, s.col_shift = b.row.src_start - w.hull_row.src_start, b.col.src_start - w.hull_col.src_start
    else:
        fill(b, ring, t, rows, b.col.z_step * first, ahead)
    s.b, s.ring, s.t, s.rows, s.pixels = b, ring, t, rows, pixels
    if is_direct_gather(w, b):
        dst += (b.row.out_start * g.dst_y + t * row + column * g.dst_x) * item_size(w.storage)
        s.out, s.row, s.step, s.ahead = <real *> dst, row, b.col.out_step * g.dst_x, ahead * row
    elif w.k.merged:
        s.out, s.row, s.step, s.ahead = line + column * b.vectors * VL, g.dst_cols * b.vectors * VL, b.col.out_step * b.vectors * VL, 0
    else:
        s.out, s.row, s.step, s.ahead = line, pixels * b.vectors * VL, b.vectors * VL, 0
    compute_strip(w, &s, filter)


cdef void store_strip(const Gather *w, const Block *b, int64_t t, int64_t rows, int64_t column, int64_t step, int64_t pixels, real *line, char *dst) noexcept nogil:
    """Writes the rows of the line to columns column, column + step, ... of dst; rows that follow each other at once."""
    cdef const Problem *g = w.g
    cdef int64_t row = b.row.out_step * g.dst_y, runs = 1 if row == pixels * step * g.dst_x else rows, r
    dst += (b.row.out_start * g.dst_y + t * row + column * g.dst_x) * item_size(w.storage)
    for r in range(runs):
        store_row(w, b, rows * pixels // runs, step, line + r * pixels * b.vectors * VL, dst + r * row * item_size(w.storage))


cdef void gather_rows(const Gather *w, Block *b, Ring *ring, int64_t *owner, int64_t t, int64_t rows, int64_t ahead, char *dst, const real *filter, real *line) noexcept nogil:
    """A strip of a row lane: all lanes of columns, chunk by chunk. A chunk that comes again at once finds its ring as it left it."""
    cdef const Problem *g = w.g
    cdef bint direct = is_direct_gather(w, b)
    cdef int64_t j, first, pixels, chunk
    for j in range(g.col_lanes):
        b.col = col_lanes(g) + j
        first = 0
        while first < b.col.count:
            pixels = smaller(chunk_pixels(g, b.col), b.col.count - first)
            chunk = ((b.row - row_lanes(g)) * g.col_lanes + j) * g.dst_cols + first
            if not w.shared and owner[0] != chunk:
                owner[0] = chunk
                open_ring(b, ring, ring_height(b.row, &w.k), ring_width(b.col, pixels))
            gather_strip(w, b, ring, t, rows, ahead, first, pixels, dst, filter, line)
            if not direct and not w.k.merged:
                store_strip(w, b, t, rows, b.col.out_start + b.col.out_step * first, b.col.out_step, pixels, line, dst)
            first += pixels
    if not direct and w.k.merged:
        store_strip(w, b, t, rows, 0, 1, g.dst_cols, line, dst)


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block of lanes of one part of the rows of one image, strip by strip. Row lanes take turns, so that they find what others have read."""
    cdef const Gather *w = <const Gather *> work
    cdef real *scratch = <real *> slab
    cdef const Problem *g = w.g
    cdef int64_t block = index % w.k.blocks, part_ = index // w.k.blocks % w.k.parts, n = index // w.k.blocks // w.k.parts
    cdef int64_t size = item_size(w.storage), lane = block * w.k.lanes, i, t, rows, ahead, end, owner = -1
    cdef char *dst = w.dst + (n * g.dst_n + lane // (w.k.multiplier if g.dst_channels == 1 else 1) * g.dst_c) * size
    cdef const real *filter = w.filter_panels + block * panel_size(w)
    cdef Block b
    cdef Ring ring
    ring.rows = scratch
    b.g, b.storage = g, w.storage
    set_lanes(&b, smaller(w.k.lanes, w.k.total - lane), w.k.vectors, w.k.multiplier if g.src_channels == 1 else 1, w.k.pitch)
    b.src = w.src + (n * g.src_n + lane // b.repeat * g.src_c) * size
    if w.k.merged:
        clear(scratch + w.k.ring, w.k.line)
    t, end = part(w.k.count, part_, w.k.parts), part(w.k.count, part_ + 1, w.k.parts)
    if w.shared:
        open_ring(&b, &ring, ring_height(&w.hull_row, &w.k), ring_width(&w.hull_col, w.hull_col.count))
    while t < end:
        ahead = w.k.rows if t + w.k.rows < end else 0
        if w.shared:
            b.row, b.col = &w.hull_row, &w.hull_col
            fill(&b, &ring, t, smaller(w.k.rows, end - t), 0, ahead)
        for i in range(g.row_lanes):
            b.row = row_lanes(g) + i
            rows = smaller(smaller(w.k.rows, end - t), b.row.count - t)
            if rows > 0:
                gather_rows(w, &b, &ring, &owner, t, rows, ahead, dst, filter, scratch + w.k.ring)
        t += w.k.rows


cdef int drive(Gather *w, int threads, bint *finite) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef int64_t panels, scratch_size
    w.shared = hull(row_lanes(g), g.row_lanes, &w.hull_row) and hull(col_lanes(g), g.col_lanes, &w.hull_col)
    w.shared = w.shared and w.hull_col.count <= chunk_pixels(g, &w.hull_col)
    if w.shared:
        w.k = blocking(g, &w.hull_row, 1, &w.hull_col, 1)
    else:
        w.k = blocking(g, row_lanes(g), g.row_lanes, col_lanes(g), g.col_lanes)
    threads = useful_threads(g, g.images * w.k.parts * w.k.blocks, threads)
    panels = padded(w.k.blocks * panel_size(w))
    scratch_size = apart(w.k.ring + w.k.line, threads)
    w.filter_panels = allocate(panels + threads * scratch_size)
    if w.filter_panels == NULL:
        return 1
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    finite[0] = pack_filter(w)
    do_blocks(gather_block, w, g.images * w.k.parts * w.k.blocks, threads, IN_ORDER, w.filter_panels + panels, scratch_size * sizeof(real))
    release(w.filter_panels)
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
