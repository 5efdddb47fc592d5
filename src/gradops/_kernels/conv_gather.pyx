# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, j] = sum_slot patches(src)[pixel, slot] filter[slot, j]: conv2d and conv2d_backprop_input, an implicit GEMM.

In parallel: blocks of (lane pair, group, pixels, channels j); each is summed by one thread in the order of the slots.
Packed: the filter once; patches block by block, KC slots deep. Two forms: *pixel rows* (a = patches, b = filter) vectorises over the
channels of dst, *channel rows* (a = filter, b = patches) over its pixels.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is not empty.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
from libc.stdlib cimport free
cimport numpy as cnp
from _gemm cimport KC, LD, gemm_block
from _patches cimport Patches, Pixel, patches, pixel, pixels, slots, advance, pack_pixels, pack_slots
from _problem cimport Problem, row_lanes, col_lanes, clear_dst, divide_up, part, smaller, useful_threads
from _scratch cimport allocate, padded
from _storage cimport real, MR, NR, all_finite, item_size, clear, widen_block, narrow_block

cnp.import_array()

cdef enum:
    PIXELS = 128                                        # of a block, at most; in pixel rows rounded down to register tiles
    CHANNELS = 512                                      # of a block, at most
    PAD = 16                                            # added to distances that would be powers of two, which crowd a few cache sets
    LDP = PIXELS + PAD                                  # distance of packed slots in channel rows
    CHANNEL_PART = 32                                   # channels whose filter is packed at a time in channel rows
    BLOCKS = 6                                          # of a thread: blocks shrink until there are as many, so that all are busy to the end
    FEW_PIXELS = 64                                     # below, packing the filter of an input gradient without turning it pays


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    bint channel_rows
    int64_t pixels, channels                            # block sizes
    int64_t *panels                                     # where the packed filter of each lane pair begins, in reals of one group
    int64_t *blocks                                     # how many blocks lie before each lane pair
    int64_t group_panels                                # reals of the packed filter of one group
    bint *finite                                        # cleared if the filter holds an infinity or NaN
    real *filter_panels


cdef Patches pair_patches(const Gather *w, int64_t pair, int64_t group) noexcept nogil:
    return patches(w.g, row_lanes(w.g) + pair // w.g.col_lanes, col_lanes(w.g) + pair % w.g.col_lanes, w.src, w.storage, group)


cdef int64_t panel_size(const Gather *w, const Patches *p) noexcept nogil:
    """Reals of the packed filter of one group and lane pair: [KC block][channel][LD] or [panel][slot][NR]."""
    if w.channel_rows:
        return divide_up(slots(p), KC) * w.g.dst_channels * LD
    return divide_up(w.g.dst_channels, NR) * NR * slots(p)


cdef void plan_blocks(Gather *w) noexcept nogil:
    """Counts the blocks and places the packed filters of all lane pairs."""
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes, i
    cdef Patches p
    w.panels[0] = w.blocks[0] = 0
    for i in range(pairs):
        p = pair_patches(w, i, 0)
        w.panels[i + 1] = w.panels[i] + padded(panel_size(w, &p))
        w.blocks[i + 1] = w.blocks[i] + w.g.groups * divide_up(pixels(&p), w.pixels) * divide_up(w.g.dst_channels, w.channels)
    w.group_panels = w.panels[pairs]


cdef void plan(Gather *w, int threads) noexcept nogil:
    """Chooses the form, by the problem alone, and the block sizes, which no sum depends on."""
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes, all_pixels = w.g.images * w.g.dst_rows * w.g.dst_cols
    w.channel_rows = w.g.dst_c != 1 or w.g.dst_channels < 8 or (w.g.filter_dst != 1 and all_pixels < FEW_PIXELS)
    w.pixels = PIXELS if w.channel_rows else PIXELS // MR * MR
    w.channels = CHANNELS
    plan_blocks(w)
    while w.blocks[pairs] < BLOCKS * threads and w.channels > 64:
        if w.channels > 2 * w.pixels:
            w.channels = w.channels // 2
        else:
            w.pixels = w.pixels // 2
        plan_blocks(w)


cdef int64_t filter_parts(const Gather *w) noexcept nogil:
    """Into how many parts the packing of a lane pair's filter falls: panels in pixel rows, tiles of channels in channel rows."""
    return divide_up(w.g.dst_channels, CHANNEL_PART if w.channel_rows else NR)


cdef void pack_filter(const Gather *w, int64_t pair, int64_t group, int64_t index) noexcept nogil:
    """Packs one part of the filter of one lane pair and group, tap by tap."""
    cdef const Problem *g = w.g
    cdef Patches p = pair_patches(w, pair, group)
    cdef int64_t i, j, channel = index * (CHANNEL_PART if w.channel_rows else NR)
    cdef int64_t channels = smaller(CHANNEL_PART if w.channel_rows else NR, g.dst_channels - channel), slot = 0
    cdef real *dst = w.filter_panels + group * w.group_panels + w.panels[pair]
    cdef const char *tap
    if not w.channel_rows:
        dst += channel * slots(&p)
        if channels < NR:
            clear(dst, NR * slots(&p))
    for i in range(p.row.taps):
        for j in range(p.col.taps):
            tap = w.filter + (group * g.filter_group + (p.row.filter_start + p.row.filter_step * i) * g.filter_y
                              + (p.col.filter_start + p.col.filter_step * j) * g.filter_x + channel * g.filter_dst) * item_size(w.storage)
            if w.channel_rows:
                pack_tap_rows(w, tap, channel, channels, slot, dst)
            else:
                widen_block(w.storage, tap, g.filter_src, g.filter_dst, g.src_channels, channels, dst + slot * NR, NR)
            slot += g.src_channels
    if not w.channel_rows and not all_finite(dst, NR * slots(&p)):
        w.finite[0] = False


cdef void pack_tap_rows(const Gather *w, const char *tap, int64_t channel, int64_t channels, int64_t slot, real *dst) noexcept nogil:
    """dst[KC block][channel][LD]: a tap's slots may end in the next KC block."""
    cdef const Problem *g = w.g
    cdef int64_t c = 0, take, i
    cdef real *rows
    while c < g.src_channels:
        take = smaller(g.src_channels - c, KC - slot % KC)
        rows = dst + (slot // KC * g.dst_channels + channel) * LD + slot % KC
        widen_block(w.storage, tap + c * g.filter_src * item_size(w.storage), g.filter_dst, g.filter_src, channels, take, rows, LD)
        for i in range(channels):
            if not all_finite(rows + i * LD, take):
                w.finite[0] = False
        c += take
        slot += take


cdef struct Block:
    int64_t group, first, count, channel, channels      # pixels first.. and channels of dst channel..
    real *patch
    real *c


cdef void store_pixels(const Gather *w, const Patches *p, const Block *b, Pixel *at, int64_t count) noexcept nogil:
    """Writes the next pixels of a block, row by row; c holds them from its beginning on."""
    cdef const Problem *g = w.g
    cdef int64_t take, done = 0, step = p.col.out_step * g.dst_x, ldc = w.channels + PAD
    cdef char *dst
    while done < count:
        take = smaller(p.col.count - at.v, count - done)
        dst = w.dst + (at.n * g.dst_n + (p.row.out_start + p.row.out_step * at.u) * g.dst_y
                       + (p.col.out_start + p.col.out_step * at.v) * g.dst_x
                       + (b.group * g.dst_channels + b.channel) * g.dst_c) * item_size(w.storage)
        if w.channel_rows:
            narrow_block(w.storage, b.c + done, LDP, b.channels, take, dst, g.dst_c, step)
        else:
            narrow_block(w.storage, b.c + done * ldc, ldc, take, b.channels, dst, step, g.dst_c)
        advance(p, at, take)
        done += take


cdef void gather_block(const Gather *w, int64_t index, real *scratch) noexcept nogil:
    """One block: for each KC slots packs patches and multiplies; then stores."""
    cdef int64_t pair = 0, parts = divide_up(w.g.dst_channels, w.channels), spans, k
    cdef Patches p
    cdef Block b
    cdef Pixel at
    while w.blocks[pair + 1] <= index:
        pair += 1
    index -= w.blocks[pair]
    b.channel = index % parts * w.channels
    index = index // parts
    b.group = index % w.g.groups
    p = pair_patches(w, pair, b.group)
    index, spans = index // w.g.groups, divide_up(pixels(&p), w.pixels)
    b.first = part(pixels(&p), index, spans)
    b.count = part(pixels(&p), index + 1, spans) - b.first
    b.channels = smaller(w.channels, w.g.dst_channels - b.channel)
    b.patch, b.c = scratch, scratch + patch_size(w)
    at = pixel(&p, b.first)
    if slots(&p) <= KC and not w.channel_rows:
        multiply_tiles(w, &p, pair, &b, &at)
        return
    for k in range(divide_up(slots(&p), KC)):
        if w.channel_rows:
            multiply_channels(w, &p, pair, &b, k)
        else:
            multiply_pixels(w, &p, pair, &b, k)
    store_pixels(w, &p, &b, &at, b.count)


cdef const real *panels(const Gather *w, int64_t pair, const Block *b) noexcept nogil:
    """The packed filter of the lane pair and group."""
    return w.filter_panels + b.group * w.group_panels + w.panels[pair]


cdef void multiply_channels(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k) noexcept nogil:
    """c[channel][pixel] (+)= filter patch for KC slots."""
    cdef int64_t kc = smaller(KC, slots(p) - k * KC), i, pad = divide_up(b.count, NR) * NR - b.count
    pack_slots(p, b.first, b.count, k * KC, kc, b.patch, LDP)
    if pad:
        for i in range(kc):
            clear(b.patch + i * LDP + b.count, pad)
    gemm_block(False, b.channels, b.count, kc, panels(w, pair, b) + (k * w.g.dst_channels + b.channel) * LD, LD, b.patch, LDP, NR, b.c, LDP, k > 0, False, NULL)


cdef void multiply_pixels(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k) noexcept nogil:
    """c[pixel][channel] (+)= patch filter for KC slots."""
    cdef int64_t depth = slots(p), kc = smaller(KC, depth - k * KC)
    pack_pixels(p, b.first, b.count, k * KC, kc, b.patch, LD)
    gemm_block(False, b.count, b.channels, kc, b.patch, LD, panels(w, pair, b) + (b.channel // NR * depth + k * KC) * NR, NR, depth * NR, b.c, w.channels + PAD, k > 0, False, NULL)


cdef void multiply_tiles(const Gather *w, const Patches *p, int64_t pair, const Block *b, Pixel *at) noexcept nogil:
    """All slots at once, and the pixels stored, so that a register tile's rows can be stored while they are in the nearest cache."""
    cdef int64_t depth = slots(p), tiles = divide_up(b.count, MR), t, i, end
    pack_pixels(p, b.first, b.count, 0, depth, b.patch, LD)
    for t in range(tiles):
        i, end = part(b.count, t, tiles), part(b.count, t + 1, tiles)
        gemm_block(False, end - i, b.channels, depth, b.patch + i * LD, LD, panels(w, pair, b) + b.channel * depth, NR, depth * NR, b.c, w.channels + PAD, False, False, NULL)
        store_pixels(w, p, b, at, end - i)


cdef int64_t patch_size(const Gather *w) noexcept nogil:
    return KC * LDP if w.channel_rows else PIXELS * LD


cdef void pack_filters(const Gather *w, int threads) noexcept nogil:
    cdef int64_t job, pairs = w.g.row_lanes * w.g.col_lanes, parts = filter_parts(w)
    for job in prange(pairs * w.g.groups * parts, num_threads=threads, schedule="dynamic", use_threads_if=threads > 1):
        pack_filter(w, job // parts % pairs, job // parts // pairs, job % parts)


cdef void gather_blocks(const Gather *w, int threads, real *scratch, int64_t scratch_size) noexcept nogil:
    cdef int64_t block, pairs = w.g.row_lanes * w.g.col_lanes
    for block in prange(w.blocks[pairs], num_threads=threads, schedule="dynamic", use_threads_if=threads > 1):
        gather_block(w, block, scratch + threadid() * scratch_size)


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes, tables = padded(2 * (pairs + 1) * 2), scratch_size
    cdef const Problem *g = w.g
    cdef real *table = allocate(tables)
    cdef real *slab
    if table == NULL:
        return 1
    w.panels = <int64_t *> table
    w.blocks = w.panels + pairs + 1
    plan(w, threads)
    threads = useful_threads(g, w.blocks[pairs], threads)
    scratch_size = patch_size(w) + (PIXELS + PAD) * (CHANNELS + PAD)
    slab = allocate(g.groups * w.group_panels + threads * scratch_size)
    if slab == NULL:
        free(table)
        return 1
    w.filter_panels = slab
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    pack_filters(w, threads)
    gather_blocks(w, threads, slab + g.groups * w.group_panels, scratch_size)
    free(slab)
    free(table)
    return 0


def run(bytes problem not None, int storage, cnp.ndarray src not None, cnp.ndarray filter not None, cnp.ndarray dst not None, int num_threads):
    """Computes dst. Returns whether the filter is finite: if not, its products with the zeros of the padding are NaN."""
    cdef Gather w
    cdef int failed
    cdef bint finite = True
    w.g = <const Problem *> PyBytes_AS_STRING(problem)
    w.storage = storage
    w.src = <const char *> cnp.PyArray_DATA(src)
    w.filter = <const char *> cnp.PyArray_DATA(filter)
    w.dst = <char *> cnp.PyArray_DATA(dst)
    w.finite = &finite
    with nogil:
        failed = drive(&w, num_threads)
    if failed:
        raise MemoryError("no memory for the packed filter and scratch")
    return finite
