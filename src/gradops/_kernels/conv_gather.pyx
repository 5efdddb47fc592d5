# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, j] = sum_slot patches(src)[pixel, slot] filter[slot, j]: conv2d and conv2d_backprop_input, an implicit GEMM.

In parallel: blocks of (lane pair, groups, pixels, channels j), of two pairs where their columns take turns and of all where they read one band; each
is summed by one thread in the order of the slots, or of one vector's rows of taps channel by channel, which reads what taps share once. Of a filter
larger than src each thread has its own channels. Packed: the filter once; patches block by block, KC slots deep, unless they can be read where they
lie, or a band of rows of src is short, from which each tap reads its own. Two forms: *pixel rows* (a = patches, b = filter) vectorises over the
channels of dst, *channel rows* (a = filter, b = patches) over its pixels: where channels come first and make no band, or patches are packed for few
channels of dst; there, one thread computes all lanes of columns of some rows, or each tap reads its own from a sheet of planes. Tiles multiply
groups in bundles, few channels of dst in blocks of pixels, many channels of src in chunks, and odd ones beside zeros. Long rows of a band of
pairs fall into strips. Patches in planes of dst are one product, of pixel rows or, if they have two columns, channel rows.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is not empty.
"""
from libc.stdint cimport int64_t
from libc.string cimport memset
from _blocks cimport FIRST_FREE, IN_ORDER, Order, do_both, stage
from _entry cimport exported, outcome
from _gemm cimport KC, LD, NOTHING, READS, READ_WRITE, Operands, Stream, operands, stream, gemm_block, gemm_tile
from _patches cimport Patches, Pixel, advance, dst_in_planes, patches, pixel, pixels, slots
from _problem cimport Lane, Problem, row_lanes, col_lanes, clear_dst, divide_up, larger, part, smaller, useful_threads
from _scratch cimport allocate, apart, padded, release
from _storage cimport real, MR, NR, TILE, borrow_blocks, begin_tiles, cache_ways, end_tiles, is_intel, item_size, narrow_block

cdef enum:
    PIXELS = 128 + TILE // 2 * 16                       # that are packed at a time, of tiles 256; in pixel rows rounded down to register tiles
    SPAN = 8                                            # times as many pixels a block has at most
    NEAR = 1 << 15                                      # bytes of pixels of planes that stay in a first cache from one tile to the next
    CROWDED = 2048                                      # multiples of this distance, in bytes, fall on two sets of a cache of 4 KiB a way
    PAD = 16                                            # added to distances that would be powers of two, which crowd a few cache sets


cdef int64_t WAYS = cache_ways()                        # of the first cache: asked once, which takes a virtual machine long
cdef bint INTEL = is_intel()


cdef struct OnePair:                                    # a problem and its only lane pair
    Problem problem
    Lane row, col


cdef struct Fold:                                       # of `conv_gather_fold`: blocks of pixels whose channels are those of one
    const Problem *g                                    # the problem that has those pixels
    int64_t rows, cols                                  # of a block
    int64_t row, col, channel                           # distances in its channels
    int64_t pixels                                      # that are multiplied at a time, at most: blocks, if there are any


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    bint channel_rows
    bint in_turns                                       # whether blocks of a lane of columns have those of the next one, or zeros, too
    bint beside                                         # whether blocks of a lane of columns have those of all others beside them, too
    int64_t sheets                                      # into how many an image falls in channel rows, each copied once for all taps; 0 if it makes none
    bint shared                                         # whether blocks are those of all lane pairs, which read one band: that of `row` and `col`
    Lane row, col
    int64_t pixels, groups, channels                    # block sizes, at most
    int64_t step                                        # pixels that are packed at a time in channel rows, at most,
    int64_t ldp                                         # and the distance of their slots, and of sums
    int64_t unit, tile_rows                             # pixels that blocks do not split, and of a tile (TILE), of which a register tile has two rows
    int64_t tile_steps                                  # slots of it, or pairs
    int64_t strips, strip                               # that columns are computed in, one after the other, and how many all but the last one have
    int64_t threads
    int64_t *panels                                     # where the packed filter of each lane pair begins, in reals of one group
    bint filter_first                                   # whether blocks of the same channels follow each other, not of the same pixels
    int64_t *blocks                                     # how many blocks lie before each lane pair
    int64_t slices                                      # of slots that each part of the filter is packed in
    int64_t group_panels                                # reals of the packed filter of one group
    Lane rest                                           # of planes that are used in place: the pixels that whole vectors leave
    int64_t missing                                     # channels of src that are zeros
    int64_t chunks                                      # of the channels of src, of which the problem has those of one
    Fold fold                                           # of no rows if pixels are not folded; blocks have all of its channels
    bint sparse                                         # whether the filter has zeros that the problem's has not: sums tell if they are not finite
    bint *finite                                        # cleared if the filter holds an infinity or NaN
    real *filter_panels


cdef struct Plan                                        # of `conv_gather_band`
cdef struct Slide                                       # of `conv_gather_slide`


cdef struct Block:
    int64_t group, first, count, channel, channels      # pixels first.. and channels of dst channel..
    int64_t end                                         # where the thread's pixels end, of which these are the next
    int64_t first_group, end_group                      # of the bundle
    int64_t chunk
    bint in_plane                                       # whether they are whole vectors of one plane of src
    Lane strip                                          # the columns, if these are not all
    Slide *slides                                       # the last block's bands, of each chunk
    real *patch
    real *c
    Plan *plans                                         # of the lane pairs that read one band


include "conv_gather_slide.pxi"
include "conv_gather_filter.pxi"
include "conv_gather_band.pxi"
include "conv_gather_plan.pxi"
include "conv_gather_pixels.pxi"
include "conv_gather_channels.pxi"
include "conv_gather_sheet.pxi"
include "conv_gather_bundle.pxi"
include "conv_gather_chunk.pxi"
include "conv_gather_fold.pxi"


cdef Patches lane_patches(const Gather *w, const Lane *row, const Lane *col, int64_t group) noexcept nogil:
    cdef Patches p = patches(w.g, row, col, w.src, w.storage, 0)
    p.src, p.present = group_src(w, group), w.g.src_channels - w.missing
    return p


cdef Patches pair_patches(const Gather *w, int64_t pair, int64_t group) noexcept nogil:
    return lane_patches(w, row_lanes(w.g) + pair // w.g.col_lanes, col_lanes(w.g) + pair % w.g.col_lanes, group)


cdef const char *group_src(const Gather *w, int64_t group) noexcept nogil:
    return w.src + group * w.chunks * (w.g.src_channels - w.missing) * w.g.src_c * item_size(w.storage)


cdef Patches block_patches(const Gather *w, int64_t pair, int64_t group) noexcept nogil:
    """What a block's pixels are counted by."""
    return lane_patches(w, &w.row, &w.col, group) if w.shared else pair_patches(w, pair + (widest_lane(w) if w.beside else 0), group)


cdef char *dst_pixel(const Gather *w, const Patches *p, const Block *b, const Pixel *at) noexcept nogil:
    """A pixel of dst at the block's first channel."""
    cdef const Problem *g = w.g
    return w.dst + (at.n * g.dst_n + (p.row.out_start + p.row.out_step * at.u) * g.dst_y + (p.col.out_start + p.col.out_step * at.v) * g.dst_x
                    + (b.group * g.dst_channels + b.channel) * g.dst_c) * item_size(w.storage)


cdef void store_pixels(const Gather *w, const Patches *p, const Block *b, Pixel *at, int64_t count) noexcept nogil:
    """Writes the next pixels of a block, row by row or, where those of a channel are contiguous, plane by plane; c holds them from its beginning on."""
    if w.fold.rows:
        unfold(w, p, b, at, count)
    else:
        store_rows(w, p, b, at, count)


cdef void store_rows(const Gather *w, const Patches *p, const Block *b, Pixel *at, int64_t count) noexcept nogil:
    """store_pixels of pixels that are not folded."""
    cdef const Problem *g = w.g
    cdef int64_t take, left, done = 0, step = p.col.out_step * g.dst_x, ldc = w.channels + PAD
    cdef bint in_planes = dst_in_planes(p)
    cdef char *dst
    while done < count:
        left = p.col.count - at.v + (p.row.count - at.u - 1) * p.col.count if in_planes else p.col.count - at.v
        take = smaller(left, count - done)
        dst = dst_pixel(w, p, b, at)
        narrow_block(w.storage, b.c + done * (1 if w.channel_rows else ldc), w.ldp if w.channel_rows else ldc, b.channels if w.channel_rows else take,
                     take if w.channel_rows else b.channels, dst, g.dst_c if w.channel_rows else step, step if w.channel_rows else g.dst_c)
        if in_planes:
            at[0] = pixel(p, (at.n * p.row.count + at.u) * p.col.count + at.v + take)
        else:
            advance(p, at, take)
        done += take


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block: a span of pixels of some groups, some channels, and one lane pair or several."""
    cdef const Gather *w = <const Gather *> work
    cdef real *scratch = <real *> slab
    cdef int64_t pair = 0, parts = divide_up(w.g.dst_channels, w.channels), bundles = divide_up(w.g.groups, w.groups), bundle, each
    cdef Slide[MOST_SLIDING] last
    cdef Patches p
    cdef Block b
    if w.filter_first:
        each = w.blocks[w.g.row_lanes * w.g.col_lanes] // parts
        index = index % each * parts + index // each
    while w.blocks[pair + 1] <= index:
        pair += 1
    index -= w.blocks[pair]
    b.channel = index % parts * w.channels
    b.channels = smaller(w.channels, w.g.dst_channels - b.channel)
    b.chunk = 0
    b.patch, b.c, b.plans = scratch, scratch + patch_size(w), <Plan *> (scratch + patch_size(w) + padded(result_size(w)))
    bundle = index // parts % bundles
    b.first_group, b.end_group = part(w.g.groups, bundle, bundles), part(w.g.groups, bundle + 1, bundles)
    p = block_patches(w, pair, 0)
    index = index // parts // bundles
    if w.strips > 1:
        each = strip_spans(w, &p)
        b.strip, index = strip_of(p.col, w.strip, index // each), index % each
        p.col = &b.strip
    b.slides = last
    memset(last, 0, sizeof(last))
    begin_tiles(<int> w.tile_rows, <int> w.tile_steps)
    if w.beside:
        gather_beside(w, pair, index, spans(w, &p), divide_up(pixels(&p), w.unit), &b)
    else:
        gather_span(w, &p, pair, index, &b)
    end_tiles()


cdef void gather_span(const Gather *w, Patches *p, int64_t pair, int64_t index, Block *b) noexcept nogil:
    """A span of a lane pair's pixels, as many as are packed at a time after the other."""
    cdef int64_t first, steps, i
    b.in_plane = place_span(w, p, index, &first, &b.end)
    steps = divide_up(divide_up(b.end - first, w.unit), step_pixels(w, p) // w.unit)
    for i in range(steps):
        b.first = first + cut(w, b.end - first, i, steps)
        b.count = first + cut(w, b.end - first, i + 1, steps) - b.first
        gather_groups(w, p, pair, b)


cdef void gather_groups(const Gather *w, Patches *p, int64_t pair, Block *b) noexcept nogil:
    """Some pixels of each group."""
    for b.group in range(b.first_group, b.end_group):
        p.src = group_src(w, b.group)
        gather_pixels(w, p, pair, b)


cdef int64_t step_pixels(const Gather *w, const Patches *p) noexcept nogil:
    """Pixels that are multiplied at a time, at most: of planes in place, which need no scratch, as many as stay in a first cache, since results are the
    sooner written the longer their rows. Of 2 channels they take 0.65 of the time, of 16 to 24 0.8 to 1.0; of rows in place that are one product, a block's:
    0.92 to 0.97 (float32, Zen 5)."""
    cdef int64_t times = 1
    if planes_in_place(w, p):
        times = NEAR // (slots(p) * PIXELS * <int64_t> sizeof(real))
    elif not w.channel_rows and not w.shared and at_once(w, p) and is_in_place(w, p):
        times = SPAN
    elif w.channel_rows:
        return w.step
    return w.fold.pixels * larger(smaller(times, SPAN), 1)


cdef void gather_pixels(const Gather *w, const Patches *p, int64_t pair, const Block *b) noexcept nogil:
    """Multiplies patches, KC slots after the other; stores what was not computed in place."""
    cdef Pixel at = pixel(p, b.first)
    cdef int64_t k
    if w.in_turns:
        gather_in_turns(w, p, pair, b, &at)
    elif w.sheets:
        multiply_sheets(w, p, pair, b)
    elif w.channel_rows:
        sum_channels(w, p, pair, b)
        if TILE == 1 and not planes_in_place(w, p) and not writes_planes(w, p):
            store_pixels(w, p, b, &at, b.count)
    elif w.shared:
        multiply_phases(w, p, b)
    elif at_once(w, p):
        multiply_at_once(w, p, pair, b)
    elif w.chunks > 1:
        multiply_chunks(w, p, pair, b)
    else:
        for k in range(divide_up(slots(p), pass_slots(w, p))):
            if not multiply_band(w, p, pair, b, k):
                multiply_pixels(w, p, pair, b, k, &at)


cdef bint *told(const Gather *w) noexcept nogil:
    """Who is told of sums that are not finite."""
    return w.finite if w.sparse else NULL


cdef void packed_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef void fetching_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, READ_WRITE, m, nv, p, a, b, c, one, two)


cdef void column_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    if TILE == 1:
        gemm_tile(True, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef void fetching_column_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    if TILE == 1:
        gemm_tile(True, False, READS, m, nv, p, a, b, c, one, two)


cdef void multiply(bint fetches, int64_t m, int64_t n, int64_t depth, const real *a, int64_t lda, const real *end, const Gather *w, const real *b, int64_t ldb, int64_t panel, real *c, int64_t ldc, bint accumulate, bint narrow, Stream read, Stream write) noexcept nogil:
    """c (+)= a b, fetching what is needed next or not."""
    cdef Operands p = operands(depth, NULL, lda, ldb, ldc, accumulate)
    p.narrow, p.end, p.finite, p.trails, p.steps = narrow, end, told(w), True, w.tile_steps
    p.ahead = TILE == 1 and fetches and (accumulate or write.step == 0)
    gemm_block(fetching_tile, packed_tile, False, False, m, n, &p, a, b, panel, c, read, stream(c, 0, 0, 1) if TILE > 1 else write)


cdef int64_t most_slots(const Gather *w) noexcept nogil:
    """Slots of a lane pair, at most."""
    return w.g.filter_rows * w.g.filter_cols * w.g.src_channels


cdef int64_t patch_size(const Gather *w) noexcept nogil:
    if w.sheets:
        return SHEET_ROOM // sizeof(real)
    return smaller(padded(most_slots(w)), KC) * w.ldp if w.channel_rows else PIXELS * LD


cdef int64_t result_size(const Gather *w) noexcept nogil:
    """Reals of c: all that is computed at a time where sums of several passes meet in it or channels are few, else the rows of a register tile."""
    cdef int64_t each = (w.ldp if w.channel_rows else PIXELS + PAD if w.g.dst_c != 1 or most_slots(w) > KC or w.chunks > 1 or w.channels <= NR or w.fold.rows else MR) * (w.channels + PAD)
    return MR * w.ldp if w.sheets else 2 * each if w.in_turns else w.g.row_lanes * w.g.col_lanes * each if orders_phases(w) else each


cdef int64_t plans_size(const Gather *w) noexcept nogil:
    """Reals that plans take: of all lane pairs that are computed together."""
    cdef int64_t pairs = 0 if w.channel_rows else w.g.row_lanes * w.g.col_lanes if w.shared else 1
    return padded(divide_up(pairs * sizeof(Plan), sizeof(real)))


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes, tables = padded(2 * (pairs + 1) * 2), scratch_size
    cdef const Problem *g = w.g
    cdef real *table = allocate(tables)
    cdef real *slab
    cdef Order order
    if table == NULL:
        return 1
    w.panels = <int64_t *> table
    w.blocks = w.panels + pairs + 1
    threads = useful_threads(g, threads, threads)
    plan(w, threads)
    threads = <int> larger(smaller(threads, w.blocks[pairs]), 1)
    scratch_size = apart(patch_size(w) + padded(result_size(w)) + plans_size(w), threads)
    slab = allocate(g.groups * w.chunks * w.group_panels + threads * scratch_size)
    if slab == NULL:
        release(table)
        return 1
    w.filter_panels = slab
    order = IN_ORDER if w.filter_first else FIRST_FREE
    w.slices = filter_slices(w, threads)
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    do_both(stage(pack_filter, w, pairs * g.groups * w.chunks * filter_parts(w) * w.slices, order, NULL, 0),
            stage(gather_block, w, w.blocks[pairs], order, slab + g.groups * w.chunks * w.group_panels, scratch_size * sizeof(real)), threads)
    release(slab)
    release(table)
    return 0


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dst. MIXED if the filter is not finite: its products with the zeros of the padding are NaN."""
    cdef Gather w
    cdef bint finite = True
    cdef int64_t groups = bundled(<const Problem *> problem)
    cdef int failed
    w.g = <const Problem *> problem
    w.storage = storage
    w.src = <const char *> inputs[0]
    w.filter = <const char *> inputs[1]
    w.dst = <char *> out
    w.fold, w.sparse, w.finite, w.chunks, w.missing = fold_of(w.g), False, &finite, 1, 0
    if groups > 1:
        failed = drive_bundles(&w, groups, 0, num_threads)
    elif w.fold.rows:
        failed = drive_folded(&w, num_threads)
    elif chunk_channels(w.g):
        failed = drive_chunks(&w, num_threads)
    elif has_odd_channels(w.g):
        failed = drive_bundles(&w, 1, 1, num_threads)
    else:
        failed = drive(&w, num_threads)
    return outcome(failed, &finite)


borrow_blocks()
entry = exported(compute)
