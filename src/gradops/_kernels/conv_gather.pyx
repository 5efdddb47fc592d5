# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, j] = sum_slot patches(src)[pixel, slot] filter[slot, j]: conv2d and conv2d_backprop_input, an implicit GEMM.

In parallel: blocks of (lane pair, groups, pixels, channels j), of two pairs where their columns take turns and of all where they read one band; each
is summed by one thread in the order of the slots, or of one vector's rows of taps channel by channel, which reads what taps share once. Of a filter
larger than src each thread has its own channels. Packed: the filter once; patches block by block, KC slots deep, unless they can be read where they
lie, or a band of rows of src is short, from which each tap reads its own. Two forms: *pixel rows* (a = patches, b = filter) vectorises over the
channels of dst, *channel rows* (a = filter, b = patches) over its pixels: where channels come first and make no band, or patches are packed for few
channels of dst; there, one thread computes all lanes of columns of some rows. Tiles multiply groups in bundles, few channels of dst in blocks of pixels,
many channels of src in chunks, odd ones beside zeros, and long rows of a band in strips. Patches in planes of dst are one product, of pixel rows or, if
they have two columns, channel rows.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is not empty.
"""
from libc.stdint cimport int64_t
from libc.string cimport memset
from _blocks cimport FIRST_FREE, IN_ORDER, Order, do_both, stage
from _entry cimport exported, outcome
from _gemm cimport KC, LD, NOTHING, READS, READ_WRITE, Operands, Stream, at_result, operands, stream, gemm_block, gemm_tile
from _patches cimport Patches, Pixel, Rows, advance, dst_in_planes, dst_in_rows, lie_in_pairs, patches, pixel, pixels, pack_pairs, pack_pixels, slots, src_in_planes, src_in_rows
from _problem cimport Lane, Problem, row_lanes, col_lanes, clear_dst, divide_up, even_parts, image_size, is_far, larger, part, smaller, takes_turns, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, LINE, MR, NR, PACKED_STORAGE, PAIR, REAL_STORAGE, TILE, VL, begin_tiles, cache_ways, end_tiles, is_intel, item_size, fetch_lines, narrow_block, pair_columns

cdef enum:
    PIXELS = 128 + TILE // 2 * 16                       # that are packed at a time, of tiles 256; in pixel rows rounded down to register tiles
    SPAN = 8                                            # times as many pixels a block has at most
    CHANNELS = 1024                                     # of a block, at most; in pixel rows twice that where their packed filter stays small
    DEEP = 2304                                         # slots of a pass over a band of pairs that is kept: 256 channels times 3x3 taps are one
    FILTER = KC * CHANNELS                              # reals of a packed filter that is small: 2 MiB of float32
    NEAR_CHANNELS = 256                                 # of a block in pixel rows on Intel's CPUs, at most, where more of the filter than this is read again and
    NEAR_FILTER = (1 << 19) + (TILE > 1) * (1 << 19)    # again: half of the second cache for tiles, or a quarter, in bytes
    NEAR = 1 << 15                                      # bytes of pixels of planes that stay in a first cache from one tile to the next
    LEAST_PLANE = 64                                    # pixels of a plane that is used in place, at least
    MANY_PLANES = 256                                   # that are packed on Intel's CPUs, at least, if with the channels of dst they are twice as many
    FAR = 64 << 20                                      # bytes of images, beyond which they are packed there, too,
    FAR_PLANES = 24 << 20                               # and of those that have as many channels in all
    LARGE_PLANE = 1 << 16                               # bytes of a plane, beyond which those of half as many channels in all are packed
    FEW_WAYS = 8                                        # of a first cache, at most, where planes that begin within a line are packed for as many channels
    LEAST_SLOTS = 512                                   # of dst, and so many slots, at least
    MANY_CHANNELS = 8                                   # of dst, which are vectors even if patches have to be packed
    FEW_CHANNELS = 3                                    # below, they fill less of a vector of float32 than turning takes, of few slots
    FEW_SLOTS = 64                                      # so few that a tile takes less time than to plan what it fetches
    BURST = 2                                           # cache lines of dst for each step, beyond which all are fetched at once, before: fewer are left out
    NEAR_BURST = 8                                      # the same of images that are likely to be found in a cache
    CROWDED = 2048                                      # multiples of this distance, in bytes, fall on two sets of a cache of 4 KiB a way
    LEAST_CROWDED = 256                                 # channels of dst that are worth packing crowded rows for on Intel's CPUs
    PAD = 16                                            # added to distances that would be powers of two, which crowd a few cache sets
    TOGETHER = 512                                      # bytes of a pixel of dst, about, whose groups one thread computes: 0.95 of the time, of planes 0.8 to 0.95
    BLOCKS = 4                                          # of a thread: blocks shrink until there are as many, so that all are busy to the end
    FEW_BLOCKS = 2                                      # the same of channel rows in tiles, which read the filter for each: 4 take 1.0 to 1.4 of the time (Granite Rapids)
    MOST_FOLDED = 4 * TILE                              # channels of a block of pixels in tiles, at most
    MORE_TILES = 4                                      # one for as many is few: of 72 steps, 6 times 12 instead of 4 times 16 and 8
    FEW_PIXELS = 64                                     # below, packing the filter of an input gradient without turning it pays


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
    bint shared                                         # whether blocks are those of all lane pairs, which read one band: that of `row` and `col`
    Lane row, col
    int64_t pixels, groups, channels                    # block sizes, at most
    int64_t step                                        # pixels that are packed at a time in channel rows, at most,
    int64_t ldp                                         # and the distance of their slots, and of sums
    int64_t unit, tile_rows                             # pixels that blocks do not split, and of a tile (TILE), of which a register tile has two rows
    int64_t tile_steps                                  # slots of it, or pairs
    int64_t strips                                      # that columns are computed in, one after the other
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


cdef bint reads_planes(const Gather *w, const Patches *p) noexcept nogil:
    """Whether channels' planes are an operand as they lie: not if they are small, since what whole vectors leave is packed, or cannot be. Of 9x9 to 17x17
    pixels they take 0.86 to 1.0 of the time, of 7x7 1.0 to 1.1; of 32x32 to 128x128 pixels, whose rows share a set of the first cache, 0.6 to 0.95, but
    with narrow tiles 1.15 to 1.3 (float32 and float64, Zen 5)."""
    cdef int64_t size = w.g.src_c
    if not w.channel_rows or w.storage != REAL_STORAGE or not src_in_planes(p):
        return False
    if (MR <= 6 and size * <int64_t> sizeof(real) % (2 * CROWDED) == 0) or (INTEL and lie_far_apart(w, p)) or cross_lines(w, p):
        return False
    return size >= LEAST_PLANE and (size % VL == 0 or (w.g.dst_rows == 1 and dst_in_planes(p)))


cdef bint lie_far_apart(const Gather *w, const Patches *p) noexcept nogil:
    """Whether planes are better packed on Intel's CPUs. Rows of many channels lie in a page each, which they look up again for each register tile:
    packed, 256 to 2048 channels take 0.75 to 1.0 of the time, where rows are multiples of 4 KiB apart 0.4, fewer 1.0 to 1.2, unless images are in no cache: plane
    by plane, CPUs foresee them, 0.55 to 0.95, of 24 MiB with 256 channels in all 0.75 to 1.0, with fewer, and smaller images, 0.95 to 1.2 (float32, Granite Rapids).
    Of planes beyond 64 KiB, 128 channels in all and more take 0.65 to 1.0, float64 0.75 to 1.05 (Emerald Rapids)."""
    cdef int64_t plane = w.g.src_c * sizeof(real), channels = slots(p) + w.g.dst_channels, bytes = w.g.images * image_size(w.g, sizeof(real))
    if bytes > FAR or (slots(p) >= MANY_PLANES and channels >= 2 * MANY_PLANES):
        return True
    return (bytes > FAR_PLANES and channels >= MANY_PLANES) or (plane > LARGE_PLANE and channels >= MANY_PLANES // 2)


cdef bint cross_lines(const Gather *w, const Patches *p) noexcept nogil:
    """Whether planes are better packed where a first cache has few ways, since many of their vectors lie in two cache lines: from 512 slots and to 256 channels of
    dst on, 14x14 to 65x65 pixels take 0.86 to 1.0 of the time, float64 0.84 to 1.0, fewer 1.0 to 1.1, whole lines 1.02 to 1.3; with narrow tiles half as many
    are enough: 0.73 to 1.0 (Zen 4)."""
    cdef int64_t plane = w.g.src_c, times = 1 if MR > 6 else 2
    if WAYS > FEW_WAYS or plane < PIXELS or plane * <int64_t> sizeof(real) % LINE == 0:
        return False
    return times * slots(p) >= LEAST_SLOTS and times * w.g.dst_channels >= MANY_PLANES


cdef bint planes_in_place(const Gather *w, const Patches *p) noexcept nogil:
    """Whether planes are operand and result as they lie."""
    return reads_planes(w, p) and dst_in_planes(p)


cdef int64_t cut(const Gather *w, int64_t count, int64_t index, int64_t parts) noexcept nogil:
    """Where part `index` of so many pixels begins."""
    return smaller(part(divide_up(count, w.unit), index, parts) * w.unit, count)


cdef int64_t span_blocks(const Gather *w) noexcept nogil:
    """How many blocks a span has."""
    return divide_up(w.g.groups, w.groups) * divide_up(w.g.dst_channels, w.channels)


cdef int64_t shares(const Gather *w, int64_t count, int64_t times) noexcept nogil:
    """Into how many spans so many pixels fall, of which there are so many."""
    return even_parts(divide_up(count, w.pixels), divide_up(count, w.unit), times * span_blocks(w), w.threads)


cdef int64_t whole_plane(const Gather *w) noexcept nogil:
    """Pixels of a plane that fill whole vectors."""
    return w.g.src_c // VL * VL


cdef int64_t plane_spans(const Gather *w) noexcept nogil:
    """Into how many spans all planes fall, as far as they fill whole vectors; none has pixels of two."""
    return w.g.images * shares(w, whole_plane(w), w.g.images)


cdef int64_t spans(const Gather *w, const Patches *p) noexcept nogil:
    """Into how many spans of pixels a lane pair falls. After those of planes that are read where they lie comes what all planes leave."""
    cdef int64_t left = w.g.images * w.rest.count
    if reads_planes(w, p):
        return plane_spans(w) + (shares(w, left, 1) if left else 0)
    return shares(w, pixels(p), w.strips)


cdef Lane strip_of(const Lane *col, int64_t strips, int64_t index) noexcept nogil:
    """Columns of one of some strips, of which the last one may have fewer."""
    cdef Lane strip = col[0]
    cdef int64_t width = divide_up(col.count, strips), begin = index * width
    strip.count = smaller(width, col.count - begin)
    strip.out_start += col.out_step * begin
    strip.src_start += col.src_unit * col.z_step * begin
    return strip


cdef int64_t strip_spans(const Gather *w, const Patches *p) noexcept nogil:
    """Into how many spans each strip of a lane pair's columns falls, or all of them."""
    cdef Patches first = p[0]
    cdef Lane strip = strip_of(p.col, w.strips, 0)
    first.col = &strip
    return spans(w, &first)


cdef bint place_span(const Gather *w, Patches *p, int64_t index, int64_t *first, int64_t *end) noexcept nogil:
    """The pixels first <= i < end of a span. Of what planes leave, p becomes the patches. Returns whether planes are read where they lie."""
    cdef int64_t parts = spans(w, p), count = pixels(p), begin = 0
    if reads_planes(w, p) and index < plane_spans(w):
        parts, count = plane_spans(w) // w.g.images, whole_plane(w)
        begin, index = index // parts * w.g.src_c, index % parts
    elif reads_planes(w, p):
        index, parts = index - plane_spans(w), parts - plane_spans(w)
        p.col, count = &w.rest, w.g.images * w.rest.count
    first[0], end[0] = begin + cut(w, count, index, parts), begin + cut(w, count, index + 1, parts)
    return reads_planes(w, p)


cdef void plan_blocks(Gather *w) noexcept nogil:
    """Counts the blocks and places the packed filters of all lane pairs."""
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes, i
    cdef Patches p
    w.panels[0] = w.blocks[0] = 0
    for i in range(pairs):
        p = pair_patches(w, i, 0)
        w.panels[i + 1] = w.panels[i] + padded(panel_size(w, &p))
        p = block_patches(w, i, 0)
        w.blocks[i + 1] = w.blocks[i] + (0 if ((w.in_turns or w.beside) and i % w.g.col_lanes) or (w.shared and i) else strip_spans(w, &p) * w.strips * span_blocks(w))
    w.group_panels = w.panels[pairs]


cdef void plan(Gather *w, int threads) noexcept nogil:
    """Chooses the form, by the problem alone, and the block sizes, which no sum depends on."""
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes, all_pixels = w.g.images * w.g.dst_rows * w.g.dst_cols
    w.shared = shares_band(w)
    w.channel_rows = (w.g.dst_c != 1 and not bands_planes(w)) or has_few_channels(w) or folds_turns(w) or (w.g.filter_dst != 1 and all_pixels < FEW_PIXELS and w.fold.rows == 0)
    w.in_turns = w.channel_rows and has_turns(w)
    w.beside = w.channel_rows and not w.in_turns and w.g.col_lanes > 1 and w.g.dst_x == 1
    w.unit, w.tile_rows = NR if w.channel_rows else MR, TILE
    w.tile_steps, w.strips = even_steps(w), 1
    if TILE > 1 and pairs == 1 and not w.channel_rows:
        fit_rows(w)
    w.shared = w.shared and not w.channel_rows
    if pairs:
        w.rest = col_lanes(w.g)[0]
    w.rest.count = w.g.src_c % VL
    w.rest.out_start = w.rest.src_start = whole_plane(w)
    w.threads = threads
    w.pixels = SPAN * (PIXELS if w.channel_rows else PIXELS // MR * MR)
    w.channels = CHANNELS // 2 if w.in_turns else CHANNELS if w.channel_rows or TILE > 1 or most_slots(w) * 2 * CHANNELS > FILTER else 2 * CHANNELS
    if not w.channel_rows and w.fold.rows == 0 and (leaves_cache(w) or w.chunks > 1):
        w.channels = near_channels(w)
    w.channels = in_panels(w.g.dst_channels, divide_up(w.g.dst_channels, w.channels))
    w.groups = 1 if w.g.dst_c != 1 and w.channel_rows else smaller(divide_up(TOGETHER, w.g.dst_channels * item_size(w.storage)), w.g.groups)
    plan_blocks(w)
    while threads > 1 and w.blocks[pairs] < (FEW_BLOCKS if TILE > 1 and w.channel_rows else BLOCKS) * threads:
        if w.channels > larger(2 * w.pixels, 2 * NR) and w.fold.rows == 0:
            w.channels = in_panels(w.channels, 2)
        elif w.pixels > 2 * MR:
            w.pixels = w.pixels // 2
        elif w.groups > 1:
            w.groups = divide_up(w.groups, 2)
        else:
            break
        plan_blocks(w)
    w.filter_first = shares_filter(w, threads)
    w.step = most_pixels(w)
    w.ldp = w.step + PAD


cdef int64_t most_pixels(const Gather *w) noexcept nogil:
    """Pixels that are packed at a time in channel rows: more of few slots where images are in no near cache, so that Intel's CPUs foresee what a plane has next;
    others take 1.0 to 1.1 of the time then (1x1 taps, Zen 4)."""
    cdef int64_t depth = larger(smaller(most_slots(w), KC), 1), channels = CHANNELS // 2 if w.in_turns else CHANNELS
    cdef int64_t most = smaller(KC * (PIXELS + PAD) // depth, (channels + PAD) * (PIXELS + PAD) // (w.channels + PAD)) - PAD
    return PIXELS if TILE > 1 or not INTEL or not is_far(w.g, item_size(w.storage)) else larger(smaller(most, SPAN * PIXELS) // NR * NR, PIXELS)


cdef bint shares_filter(const Gather *w, int threads) noexcept nogil:
    """Whether each thread packs and reads its own part of the filter, which is larger than src, and has all pixels instead: what another one has just packed
    takes long to arrive. Lane pairs differ in size, so there have to be blocks enough, and parts. Layers of 7x7 pixels take 0.7 to 1.0 of the time (bfloat16),
    0.9 to 1.0 (float32, 2 threads of a Granite Rapids), 1x1 layers of one image 0.4 to 0.6 (float32, 16 threads)."""
    cdef const Problem *g = w.g
    cdef int64_t pairs = g.row_lanes * g.col_lanes
    if most_slots(w) * g.dst_channels <= g.images * g.src_rows * g.src_cols * g.src_channels:
        return False
    return pairs == 1 or (w.channels < g.dst_channels and w.blocks[pairs] >= BLOCKS * threads)


cdef bint leaves_cache(const Gather *w) noexcept nogil:
    """Whether what each register tile reads of the filter is more than the second cache keeps beside the pixels, which Intel's CPUs wait for. Fewer channels at a
    time, from 512 to 2048, take 0.85 to 1.0 of the time (float32 and float64, 1x1 and 3x3 taps), 0.78 to 0.95 (AVX2), of tiles 0.83 to 1.03; where that is 1 MiB,
    tiles would take 1.05 to 1.35, since pixels are then read as often (Granite Rapids)."""
    cdef int64_t each = smaller(most_slots(w), 2 * KC) * <int64_t> sizeof(real) // PAIR
    return INTEL and each * smaller(w.g.dst_channels, w.channels) > NEAR_FILTER


cdef int64_t near_channels(const Gather *w) noexcept nogil:
    """Channels of a block of which each register tile reads what leaves the second cache: twice as many if rows have to be packed for each block, 0.95 to 1.0 of the time
    (float32 and float16, Granite Rapids), but of patches, with few pixels, 1.1."""
    cdef Patches p
    if w.g.row_lanes * w.g.col_lanes != 1:
        return NEAR_CHANNELS
    p = pair_patches(w, 0, 0)
    return 2 * NEAR_CHANNELS if src_in_rows(&p) and not rows_in_place(&p) else NEAR_CHANNELS


cdef int64_t even_steps(const Gather *w) noexcept nogil:
    """Steps of a tile: TILE, or fewer of which the channels of src have a whole number, or all slots if channels are odd, if that makes few more tiles. None goes
    through edges then."""
    cdef int64_t depth = divide_up(most_slots(w) if w.g.src_channels % PAIR else w.g.src_channels, PAIR), least = divide_up(depth, TILE), tiles
    if TILE == 1 or most_slots(w) > KC:
        return TILE
    for tiles in range(least, least + least // MORE_TILES + 1):
        if depth % tiles == 0:
            return depth // tiles
    return TILE


cdef bint has_few_channels(const Gather *w) noexcept nogil:
    """Whether so few channels of dst would be vectors that pixels are, though patches have to be turned for that. Time of that over patches in rows, which are read
    where they lie, 1 to 7 channels: float64 1.5 to 2.4, pairs of bfloat16 1.2 to 1.9, of 512 slots 5, float32 0.9 to 1.4, of 256 to 2048 slots 1.3 to 2.2, but
    0.6 to 0.8 of 1 or 2 channels and up to 128 slots; over rows of a band, with strides: pairs 1.4 to 2.3, float64 1.1, float32 0.65 (Zen 5)."""
    cdef Patches p
    if w.fold.rows or w.g.dst_channels >= MANY_CHANNELS or w.g.row_lanes * w.g.col_lanes == 0:
        return False
    p = pair_patches(w, 0, 0)
    if PAIR > 1:
        return not (rows_in_place(&p) or has_band(&p))
    return not rows_in_place(&p) or (sizeof(real) == 4 and w.g.dst_channels < FEW_CHANNELS and slots(&p) <= 2 * FEW_SLOTS)


cdef bint has_turns(const Gather *w) noexcept nogil:
    """Whether columns of dst, side by side, fall into two lanes of as many. Of 16-bit numbers, one of them may be zeros: 0.9 of the time of storing every
    second one (bfloat16; float16 1.0, float32 1.02; 1x1 taps, 2 threads of a Zen 4)."""
    cdef const Problem *g = w.g
    cdef const Lane *one = col_lanes(g)
    if g.col_lanes == 1 and g.dst_x == 1 and w.storage != REAL_STORAGE:
        return one.out_step == 2 and one.out_start == 0 and 2 * one.count == g.dst_cols
    return takes_turns(g)


cdef int64_t in_panels(int64_t channels, int64_t parts) noexcept nogil:
    """The channels of each of so many parts, whole panels."""
    return divide_up(divide_up(channels, parts), NR) * NR


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
        b.strip, index = strip_of(p.col, w.strips, index // each), index % each
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


cdef int64_t pass_slots(const Gather *w, const Patches *p) noexcept nogil:
    """Slots that are multiplied at a time: where they lie, twice as many take 0.96 to 1.0 of the time, since sums are kept half as often (Zen 5). Of a band of
    pairs that is kept, 3x3 taps, DEEP ones take 0.9 to 0.96 of the time of KC, which are half as many steps then (64 to 512 channels, 2 threads of a Zen 4)."""
    if rows_in_place(p):
        return 2 * KC
    return DEEP if PAIR > 1 and TILE == 1 and p.row.taps * p.col.taps <= MOST_TAPS and keeps_band(w, p) else KC


cdef void multiply_pixels(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k, Pixel *at) noexcept nogil:
    """c[pixel][channel] (+)= patch filter for the slots of pass k, a register tile of pixels after the other. Whole vectors of dst are computed where they lie
    if its pixels are rows, or the tile's are a step apart. If all channels end within a vector, it may spill into the next pixel of rows as long as that is
    computed afterwards: the last panel comes first."""
    cdef const Problem *g = w.g
    cdef int64_t depth = slots(p), slot = k * pass_slots(w, p), kc = smaller(pass_slots(w, p), depth - slot), most = tile_pixels(p), tiles = divide_up(b.count, most), t, i, end
    cdef int64_t ldc = w.channels + PAD, whole
    cdef int64_t dst_row = g.dst_x * item_size(w.storage), src_row = g.src_x * item_size(w.storage)
    cdef bint in_rows = dst_in_rows(p), last = slot + kc == depth, dst_follows = in_rows and b.channels == g.dst_x, src_follows = src_in_rows(p) and k == 0
    cdef bint writes = writes_results(w, p)
    cdef int64_t vectors = b.channels // VL * VL if writes else 0
    cdef int64_t distance = panel_distance(w, p), ld = g.dst_x * p.col.out_step
    cdef const real *filter = packed_filter(w, pair, b)
    cdef Rows src = pixel_rows(p, b, slot, kc)
    cdef Block rest = b[0]
    cdef Stream read, write
    cdef Stream next_src = sweep(p.src, most * src_row, divide_up(b.channels, NR), kc), next_dst = sweep(w.dst, most * dst_row, divide_up(b.channels, NR), kc)
    cdef bint spills = dst_follows and writes and vectors < b.channels and kc == depth
    cdef int64_t begun = (b.channels - 1) // NR * NR, steps = divide_up(kc, PAIR), burst = (BURST if is_far(g, item_size(w.storage)) else NEAR_BURST) * LINE
    cdef bint fetches
    cdef const real *a
    cdef real *dst = at_result(PAIR > 1, <real *> w.dst, b.first * g.dst_x + b.group * g.dst_channels + b.channel)
    for t in range(tiles):
        i, end = part(b.count, t, tiles), part(b.count, t + 1, tiles)
        whole = vectors
        if not in_rows:
            at[0] = pixel(p, b.first + i)
            whole = vectors if at.v + end - i <= p.col.count else 0
            dst = at_result(PAIR > 1, <real *> dst_pixel(w, p, b, at), -i * ld)
        read = following(&next_src, src_row, b.first + (end if src.in_place else b.count + i), src_follows, b)
        write = following(&next_dst, dst_row, b.first + end, dst_follows and (k == 0 if whole else last), b)
        a, fetches = src.at + i * src.ld, src.in_place or read.step or write.step
        if TILE == 1 and whole and write.step > burst:  # more cache lines than steps: all at once takes down to a quarter of the time (Zen 5)
            fetch_lines(write.at, most * dst_row, True)
        if spills and b.first + end + spilled_pixels(w) <= b.end:
            multiply(fetches, end - i, b.channels - begun, steps, a, src.ld, src.end, w, panels(filter, distance, 0, begun), NR, distance, at_result(PAIR > 1, dst, i * ld + begun), ld, False, PAIR > 1, read, write)
            multiply(fetches, end - i, begun, steps, a, src.ld, src.end, w, filter, NR, distance, at_result(PAIR > 1, dst, i * ld), ld, False, PAIR > 1, read, write)
            continue
        if whole:
            multiply(fetches, end - i, whole, steps, a, src.ld, src.end, w, panels(filter, distance, slot, b.channel), NR, distance, at_result(PAIR > 1, dst, i * ld), ld, k > 0, PAIR > 1, read, write)
        if whole < b.channels:
            rest.channel, rest.channels = b.channel + whole, b.channels - whole
            rest.c = b.c + (0 if kc == depth else i * ldc)
            multiply(fetches, end - i, rest.channels, steps, a, src.ld, src.end, w, panels(filter, distance, slot, rest.channel), NR, distance, rest.c, ldc, k > 0, False, read, write)
            if spills:
                at[0] = pixel(p, b.first + i)           # those before were not stored one by one
            if last:
                store_pixels(w, p, &rest, at, end - i)


cdef bint *told(const Gather *w) noexcept nogil:
    """Who is told of sums that are not finite."""
    return w.finite if w.sparse else NULL


cdef bint at_once(const Gather *w, const Patches *p) noexcept nogil:
    """Whether a block's pixels are one product: one panel holds all channels, and images are likely to be in a cache or a pixel is one line, since results of
    several are not fetched as evenly."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), depth = slots(p)
    if w.channels > NR or depth > FEW_SLOTS or depth > g.src_channels or not dst_in_rows(p):
        return False
    return not is_far(g, size) or larger(g.src_x, g.dst_x) * size <= LINE


cdef bint writes_results(const Gather *w, const Patches *p) noexcept nogil:
    """Whether whole vectors of results are written where they belong as soon as they are computed: real ones or, of pairs, rounded ones that are no partial sums."""
    return w.g.dst_c == 1 and w.fold.rows == 0 and w.chunks == 1 and (w.storage == REAL_STORAGE or (PAIR > 1 and slots(p) <= pass_slots(w, p)))


cdef int64_t spilled_pixels(const Gather *w) noexcept nogil:
    """Into how many next pixels the last vector of one spills, where results are rows."""
    return (divide_up(w.g.dst_channels, VL) * VL - w.g.dst_channels + w.g.dst_x - 1) // w.g.dst_x


cdef int64_t count_in_place(const Gather *w, const Patches *p, const Block *b) noexcept nogil:
    """How many of a block's pixels can be computed where dst lies, from the first on: unless vectors are whole, each spills into the next ones, which
    have to be computed afterwards, by the same thread."""
    if not writes_results(w, p) or (b.channels % VL and b.channels < w.g.dst_x):
        return 0
    return larger(smaller(b.count, b.end - b.first - spilled_pixels(w)), 0)


cdef bint is_in_place(const Gather *w, const Patches *p) noexcept nogil:
    """Whether a block's pixels are read, and all but some of its last ones written, where they lie."""
    cdef const Problem *g = w.g
    return writes_results(w, p) and rows_in_place(p) and (g.dst_channels % VL == 0 or g.dst_x == g.dst_channels <= w.channels)


cdef void multiply_at_once(const Gather *w, const Patches *p, int64_t pair, const Block *b) noexcept nogil:
    """multiply_pixels for a block's pixels at once, which saves planning each tile. Fetches as many of the next ones. 16 to 16 channels take 0.7 of the time,
    24 to 24 and 16 to 32 0.9, 144 to 24 1.0, whether they lie in a cache or not (float32, Zen 5)."""
    cdef int64_t depth = divide_up(slots(p), PAIR), whole = count_in_place(w, p, b), row = w.g.dst_x, tiles = divide_up(whole, MR)
    cdef const real *filter = panels(packed_filter(w, pair, b), panel_distance(w, p), 0, b.channel)
    cdef Rows src = pixel_rows(p, b, 0, slots(p))
    cdef Pixel at = pixel(p, b.first)
    cdef real *dst = <real *> dst_pixel(w, p, b, &at)
    cdef Stream read = stream(b.c, 0, 0, 1), write = read
    if whole:
        if b.first + b.count < b.end:
            write = sweep(<const char *> at_result(PAIR > 1, dst, b.count * row), b.count * row * item_size(w.storage), tiles, slots(p))
            if src.in_place:
                read = sweep(<const char *> (src.at + b.count * src.ld), b.count * src.ld * sizeof(real), tiles, slots(p))
        multiply(True, whole, b.channels, depth, src.at, src.ld, src.end, w, filter, NR, 0, dst, row, False, PAIR > 1, read, write)
    if whole < b.count:
        at = pixel(p, b.first + whole)
        multiply(False, b.count - whole, b.channels, depth, src.at + whole * src.ld, src.ld, src.end, w, filter, NR, 0, b.c, w.channels + PAD, False, False, read, write)
        store_pixels(w, p, b, &at, b.count - whole)


cdef Stream following(const Stream *rows, int64_t row, int64_t first, bint wanted, const Block *b) noexcept nogil:
    """The stream of the next rows, from pixel `first` on, if they are wanted and the thread's."""
    if not wanted or first >= b.end:
        return stream(b.c, 0, 0, 1)
    return stream(rows.at + first * row, rows.tile, rows.step, rows.tiles)


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


cdef Stream sweep(const char *at, int64_t size, int64_t tiles, int64_t kc) noexcept nogil:
    """All of `size` successive bytes, fetched evenly over the steps of all tiles."""
    return stream(at, size // tiles, divide_up(size, tiles * divide_up(kc, PAIR)), tiles)


cdef bint crowded(const Problem *g, int64_t distance) noexcept nogil:
    """Whether a tile's rows, so many bytes apart, are better packed, since more share a set of the first cache than it has ways. At multiples of 4 KiB those of
    float32 and float64 take 0.75 to 0.8 of the time then with 8 ways (Zen 4), but 1.0 to 1.2 with 12, pairs of bfloat16 at multiples of 2 KiB 1.0 to 1.3 (Zen 5);
    on Intel's CPUs, with 12, 0.7 to 1.0 of 256 channels of dst and more, of fewer 1.0 to 1.2 (Granite Rapids)."""
    if distance % (CROWDED if PAIR > 1 else 2 * CROWDED) or TILE > 1:
        return False
    return MR > WAYS + WAYS // 2 or (INTEL and MR > WAYS and PAIR == 1 and g.dst_channels >= LEAST_CROWDED)


cdef int64_t tile_pixels(const Patches *p) noexcept nogil:
    """Of a register tile, at most: of rows that share a set of the first cache, and are read where they lie, one fewer than it has ways. Gradients of 1x1
    layers from 1024 and 2048 channels take 0.93 to 0.98 of the time (float32, Zen 5)."""
    return smaller(MR, larger(WAYS - 1, 1)) if TILE == 1 and rows_in_place(p) and p.g.src_x * item_size(p.storage) % (2 * CROWDED) == 0 else MR


cdef bint rows_in_place(const Patches *p) noexcept nogil:
    """Whether patches are rows that lie as they are multiplied, and are not better packed."""
    cdef const Problem *g = p.g
    return src_in_rows(p) and p.storage == PACKED_STORAGE and g.src_channels % PAIR == 0 and not crowded(g, g.src_x * item_size(p.storage))


cdef Rows pixel_rows(const Patches *p, const Block *b, int64_t slot, int64_t count) noexcept nogil:
    """Patches [pixel][slot] of the pixels at hand, packed if need be."""
    cdef const Problem *g = p.g
    cdef int64_t size = item_size(p.storage)
    cdef Rows rows
    rows.lies, rows.row, rows.panel, rows.end = NULL, 0, 0, NULL
    rows.in_place = rows_in_place(p)
    if rows.in_place:
        rows.at, rows.ld = <const real *> (p.src + (b.first * g.src_x + slot) * size), g.src_x // PAIR
        rows.end = <const real *> (p.src + pixels(p) * g.src_x * size)
    else:
        rows.at, rows.ld = b.patch, LD
        if PAIR > 1 and lie_in_pairs(p, slot, count):
            pack_pairs(p, b.first, b.count, slot, count, b.patch, LD)
        else:
            pack_pixels(p, b.first, b.count, slot, count, b.patch, LD)
            pair_columns(b.patch, b.count, count, LD)
    return rows


cdef int64_t most_slots(const Gather *w) noexcept nogil:
    """Slots of a lane pair, at most."""
    return w.g.filter_rows * w.g.filter_cols * w.g.src_channels


cdef int64_t patch_size(const Gather *w) noexcept nogil:
    return smaller(padded(most_slots(w)), KC) * w.ldp if w.channel_rows else PIXELS * LD


cdef int64_t result_size(const Gather *w) noexcept nogil:
    """Reals of c: all that is computed at a time where sums of several passes meet in it or channels are few, else the rows of a register tile."""
    cdef int64_t each = (w.ldp if w.channel_rows else PIXELS + PAD if w.g.dst_c != 1 or most_slots(w) > KC or w.chunks > 1 or w.channels <= NR or w.fold.rows else MR) * (w.channels + PAD)
    return 2 * each if w.in_turns else w.g.row_lanes * w.g.col_lanes * each if orders_phases(w) else each


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
    scratch_size = patch_size(w) + padded(result_size(w)) + plans_size(w)
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


include "conv_gather_channels.pxi"
include "conv_gather_bundle.pxi"
include "conv_gather_chunk.pxi"
include "conv_gather_fold.pxi"


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


entry = exported(compute)
