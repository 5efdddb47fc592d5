# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, j] = sum_slot patches(src)[pixel, slot] filter[slot, j] for few pixels: conv2d and conv2d_backprop_input, a matrix times some vectors.

In parallel: blocks of (lane pair, group, channels j). Packed: patches, some slots of a tap at a time. The filter, of which each number is used once
for each pixel, is read where it lies, widened if it has 16 bits. Two forms: *rows*, vectors of channels j, where those are contiguous; *dots*, vectors
of slots, the lanes of whose sums are added at the end, where slots are.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is unpadded and not empty; filter_src or filter_dst is 1.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER, do_blocks
from _entry cimport DONE, NO_MEMORY, exported
from _gemm cimport NOTHING, READS, Operands, operands, stream, gemm_block, gemm_packed, gemm_tile
from _patches cimport Patches, Pixel, advance, patches, pixel, pixels as all_pixels, pack_pixels
from _problem cimport Problem, row_lanes, col_lanes, clear_dst, divide_up, larger, smaller, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, MR, NR, REAL_STORAGE, VL, clear, item_size, load, narrow_block, prefetch_soon, store, transpose, widen_block

cdef enum:
    DEPTH = 512                                         # slots that are packed at a time, at most
    STEP = 32                                           # slots of a row form's product: their rows are read side by side
    BLOCKS = 4                                          # of a thread: blocks shrink until there are as many
    ROW_CHANNELS = 512                                  # of a block, at most
    DOT_CHANNELS = 96                                   # of a block of dots, at most: their sums stay in the second cache
    PIXELS = 8                                          # of a register tile of dots, at most; of a level with 16 registers, 4
    ROWS = 6                                            # of a register tile of dots, at most: six streams of memory
    SUMS = 24                                           # of a register tile of dots, at most; of a level with 16 registers, 12
    FAR = 16 << 20                                      # bytes of a filter from which on it is fetched ahead: 0.6 to 0.8 of the time, of smaller ones 1.0 to 1.5


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    bint dots
    int64_t channels, channel_blocks                    # j of a block, at most
    int64_t pixels                                      # of a lane pair, at most
    bint far                                            # whether the filter is fetched ahead


cdef struct Block:                                      # what a thread works on, and its scratch
    int64_t group, channel, channels
    int64_t pixels                                      # whole tiles of dots, the last of which are zeros
    real *patch                                         # [pixel][ld()]
    real *rows                                          # of the filter, widened
    real *sums                                          # [pixel][channel] or, of dots, [channel][pixel][VL]
    real *turned                                        # VL sums of VL lanes


cdef Patches pair_patches(const Gather *w, int64_t pair, int64_t group) noexcept nogil:
    return patches(w.g, row_lanes(w.g) + pair // w.g.col_lanes, col_lanes(w.g) + pair % w.g.col_lanes, w.src, w.storage, group)


cdef inline int64_t dot_pixels(int64_t pixels) noexcept nogil:
    """Of a register tile, where there are so many in all."""
    cdef int64_t most = PIXELS if MR > 6 else PIXELS // 2
    return most if pixels > most // 2 else 4 if pixels > 2 else pixels


cdef inline int64_t dot_rows(int64_t pixels, int64_t left) noexcept nogil:
    """Of the next register tile of so many pixels, if so many rows are left."""
    cdef int64_t most = smaller((SUMS if MR > 6 else SUMS // 2) // pixels, ROWS)
    return most if left >= most else 1


cdef int64_t whole_tiles(const Gather *w, int64_t count) noexcept nogil:
    """So many pixels, rounded up to register tiles."""
    return divide_up(count, dot_pixels(count)) * dot_pixels(count) if w.dots else count


cdef void plan(Gather *w, int threads) noexcept nogil:
    """Chooses the form and the blocks, which no sum depends on."""
    cdef const Problem *g = w.g
    cdef int64_t pairs = g.row_lanes * g.col_lanes, unit = 4 if g.filter_dst != 1 else NR, i
    cdef Patches p
    w.dots = g.filter_dst != 1
    w.far = g.filter_rows * g.filter_cols * g.src_channels * g.dst_channels * g.groups * item_size(w.storage) > FAR
    w.pixels = 0
    for i in range(pairs):
        p = pair_patches(w, i, 0)
        w.pixels = larger(w.pixels, whole_tiles(w, all_pixels(&p)))
    w.channel_blocks = divide_up(g.dst_channels, DOT_CHANNELS if w.dots else ROW_CHANNELS)
    w.channel_blocks = larger(w.channel_blocks, smaller(divide_up(BLOCKS * threads, larger(pairs * g.groups, 1)), divide_up(g.dst_channels, unit)))
    w.channels = divide_up(divide_up(g.dst_channels, w.channel_blocks), unit) * unit
    w.channel_blocks = divide_up(g.dst_channels, w.channels)


cdef inline int64_t ld(const Gather *w) noexcept nogil:
    """Reals from a packed pixel to the next."""
    return padded(smaller(DEPTH, w.g.src_channels)) + 16


cdef inline void dot_ukr(int pixels, int rows, int64_t vectors, const real *patch, int64_t ldp, const real *filter, int64_t ldf, int64_t ahead, const real *tail, real *sums) noexcept nogil:
    """sums[r][i] += patch[i] filter[r], vector by vector, then that of the tails. Fetches the rows of the filter `ahead`.

    *Assumes:* pixels and rows are compile-time constants of the caller.
    """
    cdef vec[SUMS] acc
    cdef vec[PIXELS] operand
    cdef vec f
    cdef const real *at[SUMS]
    cdef int64_t _v, x = 0
    cdef int i, r
    for r in range(rows):
        at[r] = filter + r * ldf
        for i in range(pixels):
            acc[r * pixels + i] = load(sums + (r * pixels + i) * VL)
    for _v in range(vectors):
        for i in range(pixels):
            operand[i] = load(patch + i * ldp + x)
        for r in range(rows):
            prefetch_soon(at[r] + ahead + x)
            f = load(at[r] + x)
            for i in range(pixels):
                acc[r * pixels + i] += operand[i] * f
        x += VL
    if tail != NULL:
        for i in range(pixels):
            operand[i] = load(patch + i * ldp + x)
        for r in range(rows):
            f = load(tail + r * VL)
            for i in range(pixels):
                acc[r * pixels + i] += operand[i] * f
    for r in range(rows):
        for i in range(pixels):
            store(sums + (r * pixels + i) * VL, acc[r * pixels + i])


cdef void dot_tile(int64_t pixels, int64_t rows, int64_t vectors, const real *patch, int64_t ldp, const real *filter, int64_t ldf, int64_t ahead, const real *tail, real *sums) noexcept nogil:
    """dot_ukr for the tiles that dot_pixels and dot_rows choose."""
    if MR > 6:
        if pixels == 8 and rows == 3: dot_ukr(8, 3, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
        elif pixels == 8: dot_ukr(8, 1, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
        elif pixels == 4 and rows == 6: dot_ukr(4, 6, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    if pixels == 4 and rows == 3: dot_ukr(4, 3, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 4 and rows == 1: dot_ukr(4, 1, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 2 and rows == 6: dot_ukr(2, 6, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 2: dot_ukr(2, 1, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 1 and rows == 6: dot_ukr(1, 6, vectors, patch, ldp, filter, ldf, ahead, tail, sums)
    elif pixels == 1: dot_ukr(1, 1, vectors, patch, ldp, filter, ldf, ahead, tail, sums)


cdef const char *filter_at(const Gather *w, const Patches *p, const Block *b, int64_t tap, int64_t slot, int64_t channel) noexcept nogil:
    """The filter from a slot of a tap and a channel of the block on."""
    cdef const Problem *g = w.g
    return w.filter + (b.group * g.filter_group + (p.row.filter_start + p.row.filter_step * (tap // p.col.taps)) * g.filter_y
                       + (p.col.filter_start + p.col.filter_step * (tap % p.col.taps)) * g.filter_x
                       + slot * g.filter_src + (b.channel + channel) * g.filter_dst) * item_size(w.storage)


cdef void add_dots(const Gather *w, const Patches *p, const Block *b, int64_t tap, int64_t slot, int64_t depth) noexcept nogil:
    """sums[j][pixel] += patch[pixel] filter[j] for `depth` slots of a tap, tile by tile; what is left of whole vectors is copied beside zeros."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), j = 0, i, rows, row = g.filter_dst, whole = depth // VL, rest = depth % VL
    cdef real *tail = b.rows + ROWS * ld(w)
    cdef int64_t tile = dot_pixels(b.pixels)
    cdef const char *lies
    cdef const real *at
    cdef real *sums = b.sums
    while j < b.channels:
        rows = dot_rows(tile, b.channels - j)
        lies = filter_at(w, p, b, tap, slot, j)
        if w.storage == REAL_STORAGE:
            at = <const real *> lies
        else:
            widen_block(w.storage, lies, row, 1, rows, whole * VL, b.rows, ld(w))
            at, row = b.rows, ld(w)
        if rest:
            clear(tail, rows * VL)
            widen_block(w.storage, lies + whole * VL * size, g.filter_dst, 1, rows, rest, tail, VL)
        for i in range(b.pixels // tile):
            dot_tile(tile, rows, whole, b.patch + i * tile * ld(w), ld(w), at, row, rows * row if w.far else 0, tail if rest else NULL, sums)
            sums += rows * tile * VL
        row = g.filter_dst
        j += rows


cdef void packed_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef void fetching_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, READS, m, nv, p, a, b, c, one, two)


cdef void multiply_rows(const Gather *w, const Block *b, int64_t channels, int64_t depth, const real *patch, const real *filter, int64_t row, real *sums, bint accumulate, bint far) noexcept nogil:
    """sums (+)= patch filter, whose next rows are fetched where they are far, both cache lines of a panel."""
    cdef int64_t panels = divide_up(channels, NR)
    cdef const real *next = filter + depth * row
    cdef Operands p = operands(depth, NULL, ld(w), row, padded(w.channels) + 16, accumulate)
    if far:
        gemm_block(fetching_tile, packed_tile, False, True, b.pixels, channels, &p, patch, filter, NR, sums,
                   stream(next, NR * sizeof(real), row * sizeof(real), panels), stream(next + NR - VL, NR * sizeof(real), row * sizeof(real), panels))
    else:
        gemm_packed(packed_tile, False, b.pixels, channels, &p, patch, filter, NR, sums)


cdef void add_rows(const Gather *w, const Patches *p, const Block *b, int64_t tap, int64_t slot, int64_t depth, bint accumulate) noexcept nogil:
    """sums[pixel][j] (+)= patch[pixel] filter for `depth` slots of a tap, STEP at a time; what is left of whole vectors is copied."""
    cdef const Problem *g = w.g
    cdef int64_t whole = b.channels // VL * VL if w.storage == REAL_STORAGE else 0, rest = b.channels - whole, done = 0, step, width = padded(w.channels) + 16
    cdef const char *lies
    while done < depth:
        step = smaller(STEP, depth - done)
        if whole:
            lies = filter_at(w, p, b, tap, slot + done, 0)
            multiply_rows(w, b, whole, step, b.patch + done, <const real *> lies, g.filter_src, b.sums, accumulate, w.far)
        if rest:
            widen_block(w.storage, filter_at(w, p, b, tap, slot + done, whole), g.filter_src, 1, step, rest, b.rows, width)
            multiply_rows(w, b, rest, step, b.patch + done, b.rows, width, b.sums + whole, accumulate, False)
        done += step
        accumulate = True


cdef void add_lanes(const Gather *w, const Block *b, real *result) noexcept nogil:
    """result[pixel][j] = the sum of the lanes of each of the sums."""
    cdef int64_t total = b.channels * b.pixels, tile = dot_pixels(b.pixels), i, k, j = 0, rows, r
    cdef real *sums = b.sums
    cdef vec sum
    for i in range(divide_up(total, VL)):
        transpose(sums + i * VL * VL, VL, b.turned, VL)
        sum = load(b.turned)
        for k in range(1, VL):
            sum += load(b.turned + k * VL)
        store(sums + i * VL, sum)
    while j < b.channels:
        rows = dot_rows(tile, b.channels - j)
        for i in range(b.pixels // tile):
            for r in range(rows):
                for k in range(tile):
                    result[(i * tile + k) * w.channels + j + r] = sums[r * tile + k]
            sums += rows * tile
        j += rows


cdef void store_pixels(const Gather *w, const Patches *p, const Block *b, const real *result, int64_t width) noexcept nogil:
    """Writes the pixels of a block, row by row."""
    cdef const Problem *g = w.g
    cdef int64_t take, done = 0, count = all_pixels(p)
    cdef Pixel at = pixel(p, 0)
    while done < count:
        take = smaller(p.col.count, count - done)
        narrow_block(w.storage, result + done * width, width, take, b.channels,
                     w.dst + (at.n * g.dst_n + (p.row.out_start + p.row.out_step * at.u) * g.dst_y + p.col.out_start * g.dst_x
                              + (b.group * g.dst_channels + b.channel) * g.dst_c) * item_size(w.storage), p.col.out_step * g.dst_x, g.dst_c)
        advance(p, &at, take)
        done += take


cdef int64_t sums_size(const Gather *w) noexcept nogil:
    if not w.dots:
        return w.pixels * (padded(w.channels) + 16)
    return divide_up(w.channels * w.pixels, VL) * VL * VL


cdef int64_t rows_size(const Gather *w) noexcept nogil:
    """Reals of widened rows, or of the result of dots, and of their tails."""
    if not w.dots:
        return STEP * (padded(w.channels) + 16) + NR
    return larger(ROWS * ld(w) + ROWS * VL, padded(w.pixels * w.channels))


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """Some channels of the pixels of one lane pair."""
    cdef const Gather *w = <const Gather *> work
    cdef const Problem *g = w.g
    cdef int64_t tap, slot, depth, i
    cdef Patches p
    cdef Block b
    b.channel = index % w.channel_blocks * w.channels
    b.channels = smaller(w.channels, g.dst_channels - b.channel)
    index = index // w.channel_blocks
    b.group = index % g.groups
    p = pair_patches(w, index // g.groups, b.group)
    b.pixels = whole_tiles(w, all_pixels(&p))
    b.patch = <real *> slab
    b.rows = b.patch + w.pixels * ld(w)
    b.sums = b.rows + padded(rows_size(w))
    b.turned = b.sums + padded(sums_size(w))
    clear(b.patch, w.pixels * ld(w))
    if w.dots:
        clear(b.sums, sums_size(w))
    for tap in range(p.row.taps * p.col.taps):
        slot = 0
        while slot < g.src_channels:
            depth = smaller(DEPTH, g.src_channels - slot)
            pack_pixels(&p, 0, all_pixels(&p), tap * g.src_channels + slot, depth, b.patch, ld(w))
            if w.dots:
                for i in range(b.pixels if depth % VL else 0):
                    clear(b.patch + i * ld(w) + depth, VL - depth % VL)
                add_dots(w, &p, &b, tap, slot, depth)
            else:
                add_rows(w, &p, &b, tap, slot, depth, tap + slot > 0)
            slot += depth
    if w.dots:
        add_lanes(w, &b, b.rows)
    store_pixels(w, &p, &b, b.rows if w.dots else b.sums, w.channels if w.dots else padded(w.channels) + 16)


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef int64_t blocks, scratch_size
    cdef real *slab
    threads = useful_threads(g, threads, threads)
    plan(w, threads)
    blocks = g.row_lanes * g.col_lanes * g.groups * w.channel_blocks
    threads = <int> larger(smaller(threads, blocks), 1)
    scratch_size = padded(w.pixels * ld(w) + padded(rows_size(w)) + padded(sums_size(w)) + VL * VL)
    slab = allocate(threads * scratch_size)
    if slab == NULL:
        return 1
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    do_blocks(gather_block, w, blocks, threads, IN_ORDER, slab, scratch_size * sizeof(real))
    release(slab)
    return 0


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dst."""
    cdef Gather w
    w.g, w.storage = <const Problem *> problem, storage
    w.src, w.filter, w.dst = <const char *> inputs[0], <const char *> inputs[1], <char *> out
    return NO_MEMORY if drive(&w, num_threads) else DONE


entry = exported(compute)
