# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, j] = sum_slot patches(src)[pixel, slot] filter[slot, j]: conv2d and conv2d_backprop_input, an implicit GEMM.

In parallel: blocks of (lane pair, groups, pixels, channels j), of two pairs where their columns take turns and of all where they read one band; each
is summed by one thread in the order of the slots.
Packed: the filter once; patches block by block, KC slots deep, unless they can be read where they lie, or a band of rows of src is short, from which each tap reads its own. Two forms: *pixel rows* (a = patches, b = filter) vectorises over the
channels of dst, *channel rows* (a = filter, b = patches) over its pixels: where channels come first and make no band.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is not empty.
"""
from libc.stdint cimport int64_t
from _band cimport LEAST_COLUMNS, MOST_TAPS, Band, band_index, band_lines, extent, fits_band, has_band, pack_band, place_band, place_taps, taps_inside, within
from _blocks cimport FIRST_FREE, do_blocks
from _entry cimport exported, outcome
from _gemm cimport KC, LD, NOTHING, READ_WRITE, TAPS, Operands, Stream, Taps, begin_of, operands, stream, gemm_block, gemm_tile, tile_t
from _lines cimport Lines, lines_left, lines_of, no_lines, take_lines
from _patches cimport Patches, Pixel, Rows, advance, dst_in_planes, dst_in_rows, has_pairs, patches, pixel, pixels, pack_pairs, pack_pixels, pack_run_pairs, pack_slot_pairs, pack_slots, slots, src_in_planes, src_in_rows
from _problem cimport Lane, Problem, row_lanes, col_lanes, clear_dst, divide_up, even_parts, hull, larger, part, smaller, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, LINE, MR, NR, NV, PACKED_STORAGE, PAIR, REAL_STORAGE, VL, all_finite, item_size, clear, fetch_lines, interleave, narrow, widen_block, narrow_block, pair_columns, pair_lines, pair_rows, pairs_finite, place_halves

cdef enum:
    PIXELS = 128                                        # that are packed at a time; in pixel rows rounded down to register tiles
    SPAN = 8                                            # times as many pixels a block has at most
    CHANNELS = 1024                                     # of a block, at most; in pixel rows twice that where their packed filter stays small
    FILTER = KC * CHANNELS                              # reals of a packed filter that is small: 2 MiB of float32
    NEAR = 1 << 15                                      # bytes of pixels of planes that stay in a first cache from one tile to the next
    MOST_BANDED = 64                                    # channels of planes that are copied into a band, at most
    LONG_ROW = 64                                       # pixels of a row of so few channels that it is not
    MOST_PHASES = 4                                     # phases whose results are put in order before planes of them are written, at most,
    MOST_IMAGE = 128                                    # and channels of them
    LEAST_PLANE = 64                                    # pixels of a plane that is used in place, at least
    FEW_SLOTS = 64                                      # so few that a tile takes less time than to plan what it fetches
    LAST_CACHE = 24 << 20                               # bytes of images that a last cache is likely to hold
    WAY = 1 << 17                                       # of the second cache: 2048 sets of 64 bytes
    CROWDED = 2048                                      # multiples of this distance, in bytes, fall on two sets of a cache of 4 KiB a way
    PAD = 16                                            # added to distances that would be powers of two, which crowd a few cache sets
    LDP = PIXELS + PAD                                  # distance of packed slots in channel rows
    CHANNEL_PART = 32                                   # channels whose filter is packed at a time in channel rows,
    FILTER_PART = 64                                    # and their pairs of slots
    TOGETHER = 512                                      # bytes of a pixel of dst, about, whose groups one thread computes, side by side: 0.95 of the time
    BLOCKS = 4                                          # of a thread: blocks shrink until there are as many, so that all are busy to the end
    FEW_PIXELS = 64                                     # below, packing the filter of an input gradient without turning it pays


cdef extern from "kernels.h" nogil:
    int64_t cache_ways()

cdef int64_t WAYS = cache_ways()                        # of the first cache: asked once, which takes a virtual machine long


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    bint channel_rows
    bint in_turns                                       # whether blocks of a lane of columns have those of the next one, too
    bint shared                                         # whether blocks are those of all lane pairs, which read one band: that of `row` and `col`
    Lane row, col
    int64_t pixels, groups, channels                    # block sizes, at most
    int64_t threads
    int64_t *panels                                     # where the packed filter of each lane pair begins, in reals of one group
    int64_t *blocks                                     # how many blocks lie before each lane pair
    int64_t group_panels                                # reals of the packed filter of one group
    Lane rest                                           # of planes that are used in place: the pixels that whole vectors leave
    bint *finite                                        # cleared if the filter holds an infinity or NaN
    real *filter_panels


cdef Patches pair_patches(const Gather *w, int64_t pair, int64_t group) noexcept nogil:
    return patches(w.g, row_lanes(w.g) + pair // w.g.col_lanes, col_lanes(w.g) + pair % w.g.col_lanes, w.src, w.storage, group)


cdef const char *group_src(const Gather *w, int64_t group) noexcept nogil:
    return w.src + group * w.g.src_channels * w.g.src_c * item_size(w.storage)


cdef Patches block_patches(const Gather *w, int64_t pair, int64_t group) noexcept nogil:
    """What a block's pixels are counted by."""
    return patches(w.g, &w.row, &w.col, w.src, w.storage, group) if w.shared else pair_patches(w, pair, group)


cdef int64_t panel_distance(const Patches *p) noexcept nogil:
    """Reals from panel to panel: their length, unless panels would share half of the sets of a cache of WAY bytes a way."""
    cdef int64_t size = slots(p) * NR
    return size + KC * NR if size * <int64_t> sizeof(real) % WAY == 0 else size


cdef int64_t panel_size(const Gather *w, const Patches *p) noexcept nogil:
    """Reals of the packed filter of one group and lane pair: [KC block][channel][LD] or [panel][slot][NR]."""
    if w.channel_rows:
        return divide_up(slots(p), KC) * w.g.dst_channels * LD
    return divide_up(w.g.dst_channels, NR) * panel_distance(p)


cdef bint reads_planes(const Gather *w, const Patches *p) noexcept nogil:
    """Whether channels' planes are an operand as they lie: not if they are small, since what whole vectors leave is packed, or cannot be. Of 9x9 to 17x17
    pixels they take 0.86 to 1.0 of the time, of 7x7 1.0 to 1.1; of 32x32 to 128x128 pixels, whose rows share a set of the first cache, 0.6 to 0.95, but
    with narrow tiles 1.15 to 1.3 (float32 and float64, Zen 5)."""
    cdef int64_t size = w.g.src_c
    if not w.channel_rows or w.storage != REAL_STORAGE or not src_in_planes(p):
        return False
    if MR <= 6 and size * <int64_t> sizeof(real) % (2 * CROWDED) == 0:
        return False
    return size >= LEAST_PLANE and (size % VL == 0 or (w.g.dst_rows == 1 and dst_in_planes(p)))


cdef bint planes_in_place(const Gather *w, const Patches *p) noexcept nogil:
    """Whether planes are operand and result as they lie."""
    return reads_planes(w, p) and dst_in_planes(p)


cdef int64_t unit(const Gather *w) noexcept nogil:
    """Pixels that are not split, which a register tile computes at once."""
    return VL if w.channel_rows else MR


cdef int64_t cut(const Gather *w, int64_t count, int64_t index, int64_t parts) noexcept nogil:
    """Where part `index` of so many pixels begins."""
    return smaller(part(divide_up(count, unit(w)), index, parts) * unit(w), count)


cdef int64_t span_blocks(const Gather *w) noexcept nogil:
    """How many blocks a span has."""
    return divide_up(w.g.groups, w.groups) * divide_up(w.g.dst_channels, w.channels)


cdef int64_t shares(const Gather *w, int64_t count, int64_t times) noexcept nogil:
    """Into how many spans so many pixels fall, of which there are so many."""
    return even_parts(divide_up(count, w.pixels), divide_up(count, unit(w)), times * span_blocks(w), w.threads)


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
    return shares(w, pixels(p), 1)


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
        w.blocks[i + 1] = w.blocks[i] + (0 if (w.in_turns and i % 2) or (w.shared and i) else spans(w, &p) * span_blocks(w))
    w.group_panels = w.panels[pairs]


cdef void plan(Gather *w, int threads) noexcept nogil:
    """Chooses the form, by the problem alone, and the block sizes, which no sum depends on."""
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes, all_pixels = w.g.images * w.g.dst_rows * w.g.dst_cols
    w.shared = shares_band(w)
    w.channel_rows = (w.g.dst_c != 1 and not bands_planes(w)) or w.g.dst_channels < 8 or (w.g.filter_dst != 1 and all_pixels < FEW_PIXELS)
    w.in_turns = w.channel_rows and has_turns(w.g)
    w.shared = w.shared and not w.channel_rows
    if pairs:
        w.rest = col_lanes(w.g)[0]
    w.rest.count = w.g.src_c % VL
    w.rest.out_start = w.rest.src_start = whole_plane(w)
    w.threads = threads
    w.pixels = SPAN * (PIXELS if w.channel_rows else PIXELS // MR * MR)
    w.channels = CHANNELS // 2 if w.in_turns else CHANNELS if w.channel_rows or most_slots(w) * 2 * CHANNELS > FILTER else 2 * CHANNELS
    w.channels = in_panels(w.g.dst_channels, divide_up(w.g.dst_channels, w.channels))
    w.groups = 1 if w.g.dst_c != 1 else smaller(divide_up(TOGETHER, w.g.dst_channels * item_size(w.storage)), w.g.groups)
    plan_blocks(w)
    while threads > 1 and w.blocks[pairs] < BLOCKS * threads:
        if w.channels > larger(2 * w.pixels, 2 * NR):
            w.channels = in_panels(w.channels, 2)
        elif w.pixels > 2 * MR:
            w.pixels = w.pixels // 2
        elif w.groups > 1:
            w.groups = divide_up(w.groups, 2)
        else:
            break
        plan_blocks(w)


cdef bint bands_planes(const Gather *w) noexcept nogil:
    """Whether rows of planes become a band, whose products become planes again, instead of patches, copied for each tap: of one lane pair, or of several that
    share it, and if the channels of dst fill enough of their vectors.

    Time of patches over that of a band, 2 threads of a Zen 4 (float32, bfloat16): groups of 16, 14x14 1.5 and 1.9, with strides 1.5 and 0.9, their gradients
    1.5 to 2 and 1.6; of 32 with strides 1.6 and 1.6, their gradients 1.9 and 2.6; 5x5 taps, 32 and 64 channels 1.1 to 1.4; 16 to 16, 3x3 taps, 14x14 1.9, 56x56
    1.1 and 1.0, 112x112 1.0 and 0.8. Without this rule: groups of 8 0.8, 16 to 20 channels 0.9, 41 to 37 0.85, 8 to 48 with strides 0.8, 128 to 128 with strides 0.95.
    """
    cdef int64_t pairs = w.g.row_lanes * w.g.col_lanes, lanes = divide_up(w.g.dst_channels, VL) * VL
    cdef Patches p
    cdef bint strided
    if pairs == 0:
        return False
    p = pair_patches(w, 0, 0)
    strided = p.row.z_step > 1 or p.col.z_step > 1
    if (w.g.src_channels > MOST_BANDED and not keeps_band(w, &p)) or 4 * (lanes - w.g.dst_channels) > VL or (strided and w.g.src_channels < VL * PAIR):
        return False
    if PAIR > 1 and w.g.src_channels <= VL and p.col.count > LONG_ROW:
        return False
    return w.shared if pairs > 1 else has_band(&p) or keeps_band(w, &p)


cdef bint keeps_band(const Gather *w, const Patches *p) noexcept nogil:
    """Whether a band of pairs is copied for all passes at once, however many channels it has: if it fits, wherever it begins, and as much again as one row.

    Time without over that with it, channels first, 3x3 taps, 2 threads of a Zen 4: 64 channels 1.1, 96 of 14x14 pixels 1.2, 128 of 28x28 1.1, 256 of 14x14
    1.1 to 1.2, 512 of 7x7 1.0 to 1.3; channels last, 256 1.03, others 1.0.
    """
    cdef const Problem *g = w.g
    cdef int64_t rows = (PIXELS - 2) // p.col.count + 2, images = (rows - 2) // p.row.count + 2
    if PAIR == 1 or (g.src_x != 1 and g.src_c != 1) or g.row_lanes * g.col_lanes > 1 or p.col.src_unit > 1 or g.src_channels % PAIR:
        return False
    if p.col.count < LEAST_COLUMNS or p.row.taps * p.col.taps == 1 or not fits_band(p, PIXELS * LD, p.col.count, PAIR):
        return False
    rows = rows * p.row.z_step + images * larger(extent(p.row, 1, p.row.taps) - p.row.z_step, 0) + 1
    return rows * extent(p.col, p.col.count, p.col.taps) * (g.src_channels // PAIR) <= PIXELS * LD


cdef bint orders_phases(const Gather *w) noexcept nogil:
    """Whether results of all lane pairs are put in order in scratch, as rows of dst, before they become planes."""
    return w.shared and w.g.dst_c != 1


cdef int64_t band_room(const Gather *w) noexcept nogil:
    """Reals of a band, at most: those of planes need as many again to become pairs."""
    return PIXELS * LD // (1 if w.g.src_c == 1 else PAIR)


cdef bint shares_band(Gather *w) noexcept nogil:
    """Whether lane pairs are phases that read one band, which is then copied once: that of `row` and `col`. Groups of 16 and 32 channels, with blocks of
    several groups, take 0.8 to 1.0 of the time (float32, float64), 0.6 to 0.9 (bfloat16), 128 channels 1.0 (2 threads of a Zen 4)."""
    cdef const Problem *g = w.g
    cdef int64_t taps = phase_taps(row_lanes(g), g.row_lanes, &w.row) * phase_taps(col_lanes(g), g.col_lanes, &w.col), rows
    cdef Patches p
    if not 0 < taps * g.src_channels <= KC or (g.dst_c != 1 and not fits_image(g)):
        return False
    p = patches(g, &w.row, &w.col, w.src, w.storage, 0)
    if not has_band(&p) or not fits_band(&p, band_room(w), w.col.count, PAIR):
        return False
    rows = PIXELS // w.col.count + 2 + (PIXELS // (w.row.count * w.col.count) + 2) * (w.row.taps - 1)
    return rows * extent(&w.col, w.col.count, w.col.taps) * g.src_channels // PAIR <= band_room(w)


cdef bint fits_image(const Problem *g) noexcept nogil:
    """Whether lane pairs have all pixels of dst, and those of a block are few enough to be put in order before planes of them are written."""
    return g.covered and g.row_lanes * g.col_lanes <= MOST_PHASES and g.dst_channels <= MOST_IMAGE


cdef int64_t phase_taps(const Lane *lanes, int64_t count, Lane *h) noexcept nogil:
    """The most taps of a lane, h being the hull of all; 0 if they are no phases of as many pixels, but for one more."""
    cdef int64_t most = 0, i
    if not hull(lanes, count, h):
        return 0
    for i in range(count):
        if lanes[i].count < h.count - 1:
            return 0
        most = larger(most, lanes[i].taps)
    return most


cdef bint has_turns(const Problem *g) noexcept nogil:
    """Whether columns of dst, side by side, fall into two lanes of as many."""
    cdef const Lane *even = col_lanes(g)
    cdef const Lane *odd = even + 1
    return g.dst_x == 1 and g.col_lanes == 2 and even.count == odd.count and even.out_step == odd.out_step == 2 and even.out_start == 0 and odd.out_start == 1


cdef int64_t in_panels(int64_t channels, int64_t parts) noexcept nogil:
    """The channels of each of so many parts, whole panels."""
    return divide_up(divide_up(channels, parts), NR) * NR


cdef int64_t filter_parts(const Gather *w) noexcept nogil:
    """Into how many parts the packing of a lane pair's filter falls: panels in pixel rows, tiles of channels in channel rows."""
    return divide_up(w.g.dst_channels, CHANNEL_PART if w.channel_rows else NR)


cdef bint has_filter_pairs(const Gather *w) noexcept nogil:
    """Whether slots of the filter are packed as pairs from where they lie: side by side, or with the channels of dst so, an even number in each tap."""
    cdef const Problem *g = w.g
    if PAIR == 1 or g.src_channels % PAIR:
        return False
    return g.filter_dst == 1 or (g.filter_src == 1 and (w.channel_rows or g.filter_dst % PAIR == 0))


cdef void pack_filter(const void *work, int64_t index, void *_) noexcept nogil:
    """Packs one part of the filter of one lane pair and group, tap by tap."""
    cdef const Gather *w = <const Gather *> work
    cdef const Problem *g = w.g
    cdef int64_t parts = filter_parts(w), pairs = g.row_lanes * g.col_lanes, pair = index // parts % pairs, group = index // parts // pairs
    cdef Patches p = pair_patches(w, pair, group)
    cdef int64_t i, j, channel = index % parts * (CHANNEL_PART if w.channel_rows else NR)
    cdef int64_t channels = smaller(CHANNEL_PART if w.channel_rows else NR, g.dst_channels - channel), slot = 0
    cdef real *dst = w.filter_panels + group * w.group_panels + w.panels[pair]
    cdef const char *tap
    if not w.channel_rows:
        dst += channel // NR * panel_distance(&p)
        if channels < NR:
            clear(dst, NR * slots(&p))
    for i in range(p.row.taps):
        for j in range(p.col.taps):
            tap = w.filter + (group * g.filter_group + (p.row.filter_start + p.row.filter_step * i) * g.filter_y
                              + (p.col.filter_start + p.col.filter_step * j) * g.filter_x + channel * g.filter_dst) * item_size(w.storage)
            if w.channel_rows:
                pack_tap_rows(w, tap, channel, channels, slot, dst)
            else:
                pack_tap_panel(w, tap, channels, dst + slot // (PAIR if has_filter_pairs(w) else 1) * NR)
            slot += g.src_channels
    finish_filter(w, channel, channels, slot, dst)


cdef void finish_filter(const Gather *w, int64_t channel, int64_t channels, int64_t slots, real *dst) noexcept nogil:
    """Looks for infinities and NaN in what was packed, and pairs it, if it is not pairs yet."""
    cdef int64_t blocks = divide_up(slots, KC) if w.channel_rows else 1, rows = channels if w.channel_rows else 1, block, i, count = NR * slots
    cdef bint paired = has_filter_pairs(w), finite = True
    cdef real *part
    for block in range(blocks):
        part = dst + (block * w.g.dst_channels + channel) * LD if w.channel_rows else dst
        if w.channel_rows:
            count = smaller(KC, slots - block * KC)
        for i in range(rows):
            finite = finite and (pairs_finite(part + i * LD, count // PAIR) if paired else all_finite(part + i * LD, count))
        if w.channel_rows and not paired:
            pair_columns(part, channels, count, LD)
        elif not paired:
            pair_rows(part, slots, NR, NR)
    if not finite:
        w.finite[0] = False


cdef void pack_tap_panel(const Gather *w, const char *tap, int64_t channels, real *dst) noexcept nogil:
    """dst[slot][NR], or [slot / 2][NR] of pairs."""
    cdef const Problem *g = w.g
    if not has_filter_pairs(w):
        widen_block(w.storage, tap, g.filter_src, g.filter_dst, g.src_channels, channels, dst, NR)
    elif g.filter_dst == 1:
        pair_lines(tap, g.filter_src * item_size(w.storage), g.src_channels, channels, dst, NR)
    else:
        widen_block(REAL_STORAGE, tap, 1, g.filter_dst // PAIR, g.src_channels // PAIR, channels, dst, NR)


cdef void pack_tap_rows(const Gather *w, const char *tap, int64_t channel, int64_t channels, int64_t slot, real *dst) noexcept nogil:
    """dst[KC block][channel][LD], or pairs of slots there: a tap's slots may end in the next KC block."""
    cdef const Problem *g = w.g
    cdef int64_t c = 0, size = item_size(w.storage), take
    cdef real[FILTER_PART * CHANNEL_PART] stage
    cdef real *rows
    cdef const char *src
    while c < g.src_channels:
        take = smaller(smaller(g.src_channels - c, KC - slot % KC), FILTER_PART * PAIR if PAIR > 1 else KC)
        rows = dst + (slot // KC * g.dst_channels + channel) * LD + slot % KC // (PAIR if has_filter_pairs(w) else 1)
        src = tap + c * g.filter_src * size
        if not has_filter_pairs(w):
            widen_block(w.storage, src, g.filter_dst, g.filter_src, channels, take, rows, LD)
        elif g.filter_dst == 1:
            pair_lines(src, g.filter_src * size, take, channels, stage, CHANNEL_PART)
            widen_block(REAL_STORAGE, <const char *> stage, 1, CHANNEL_PART, channels, take // PAIR, rows, LD)
        else:
            place_halves(src, g.filter_dst * size, channels, 1, 0, take, take, <char *> rows, LD)
        c += take
        slot += take


cdef struct Block:
    int64_t group, first, count, channel, channels      # pixels first.. and channels of dst channel..
    int64_t end                                         # where the thread's pixels end, of which these are the next
    int64_t first_group, end_group                      # of the bundle
    bint in_plane                                       # whether they are whole vectors of one plane of src
    real *patch
    real *c


cdef char *dst_pixel(const Gather *w, const Patches *p, const Block *b, const Pixel *at) noexcept nogil:
    """A pixel of dst at the block's first channel."""
    cdef const Problem *g = w.g
    return w.dst + (at.n * g.dst_n + (p.row.out_start + p.row.out_step * at.u) * g.dst_y + (p.col.out_start + p.col.out_step * at.v) * g.dst_x
                    + (b.group * g.dst_channels + b.channel) * g.dst_c) * item_size(w.storage)


cdef void store_pixels(const Gather *w, const Patches *p, const Block *b, Pixel *at, int64_t count) noexcept nogil:
    """Writes the next pixels of a block, row by row or, where those of a channel are contiguous, plane by plane; c holds them from its beginning on."""
    cdef const Problem *g = w.g
    cdef int64_t take, left, done = 0, step = p.col.out_step * g.dst_x, ldc = w.channels + PAD
    cdef bint in_planes = dst_in_planes(p)
    cdef char *dst
    while done < count:
        left = p.col.count - at.v + (p.row.count - at.u - 1) * p.col.count if in_planes else p.col.count - at.v
        take = smaller(left, count - done)
        dst = dst_pixel(w, p, b, at)
        narrow_block(w.storage, b.c + done * (1 if w.channel_rows else ldc), LDP if w.channel_rows else ldc, b.channels if w.channel_rows else take,
                     take if w.channel_rows else b.channels, dst, g.dst_c if w.channel_rows else step, step if w.channel_rows else g.dst_c)
        if in_planes:
            at[0] = pixel(p, (at.n * p.row.count + at.u) * p.col.count + at.v + take)
        else:
            advance(p, at, take)
        done += take


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block: as many pixels as are packed at a time, of one group after the other."""
    cdef const Gather *w = <const Gather *> work
    cdef real *scratch = <real *> slab
    cdef int64_t pair = 0, parts = divide_up(w.g.dst_channels, w.channels), bundles = divide_up(w.g.groups, w.groups), bundle, first, steps, i
    cdef Patches p
    cdef Block b
    while w.blocks[pair + 1] <= index:
        pair += 1
    index -= w.blocks[pair]
    b.channel = index % parts * w.channels
    b.channels = smaller(w.channels, w.g.dst_channels - b.channel)
    b.patch, b.c = scratch, scratch + patch_size(w)
    bundle = index // parts % bundles
    b.first_group, b.end_group = part(w.g.groups, bundle, bundles), part(w.g.groups, bundle + 1, bundles)
    p = block_patches(w, pair, 0)
    b.in_plane = place_span(w, &p, index // parts // bundles, &first, &b.end)
    steps = divide_up(divide_up(b.end - first, unit(w)), step_pixels(w, &p) // unit(w))
    for i in range(steps):
        b.first = first + cut(w, b.end - first, i, steps)
        b.count = first + cut(w, b.end - first, i + 1, steps) - b.first
        for b.group in range(b.first_group, b.end_group):
            p.src = group_src(w, b.group)
            gather_pixels(w, &p, pair, &b)


cdef int64_t step_pixels(const Gather *w, const Patches *p) noexcept nogil:
    """Pixels that are multiplied at a time, at most: of planes in place, which need no scratch, as many as stay in a first cache, since results are the
    sooner written the longer their rows. Of 2 channels they take 0.65 of the time, of 16 to 24 0.8 to 1.0 (float32, Zen 5)."""
    cdef int64_t times = NEAR // (slots(p) * PIXELS * <int64_t> sizeof(real)) if planes_in_place(w, p) else 1
    return PIXELS * larger(smaller(times, SPAN), 1)


cdef void gather_pixels(const Gather *w, const Patches *p, int64_t pair, const Block *b) noexcept nogil:
    """Multiplies patches, KC slots after the other; stores what was not computed in place."""
    cdef Pixel at = pixel(p, b.first)
    cdef Patches next
    cdef Block odd
    cdef int64_t k
    if w.in_turns:
        next, odd = pair_patches(w, pair + 1, b.group), b[0]
        odd.c += result_size(w) // 2
        sum_channels(w, p, pair, b)
        sum_channels(w, &next, pair + 1, &odd)
        store_in_turns(w, p, b, &at, odd.c)
    elif w.channel_rows:
        sum_channels(w, p, pair, b)
        if not planes_in_place(w, p):
            store_pixels(w, p, b, &at, b.count)
    elif w.shared:
        multiply_phases(w, p, b)
    elif at_once(w, p):
        multiply_at_once(w, p, pair, b)
    else:
        for k in range(divide_up(slots(p), KC)):
            if not multiply_band(w, p, pair, b, k):
                multiply_pixels(w, p, pair, b, k, &at)


cdef void sum_channels(const Gather *w, const Patches *p, int64_t pair, const Block *b) noexcept nogil:
    """c[channel][pixel] = filter patch."""
    cdef int64_t k
    for k in range(divide_up(slots(p), KC)):
        multiply_channels(w, p, pair, b, k)


cdef void store_in_turns(const Gather *w, const Patches *p, const Block *b, Pixel *at, const real *odd) noexcept nogil:
    """store_pixels for the columns of two lanes, so that lines are written once: with 2x2 taps 0.7 to 0.9 of the time, with 4x4
    0.95, with 3x3 1.0 (Zen 5)."""
    cdef int64_t take, done = 0, size = item_size(w.storage), r
    cdef real[2 * PIXELS] line
    cdef char *dst
    while done < b.count:
        take = smaller(p.col.count - at.v, b.count - done)
        dst = dst_pixel(w, p, b, at)
        for r in range(b.channels):
            if w.storage == REAL_STORAGE:
                interleave(b.c + r * LDP + done, odd + r * LDP + done, take, <real *> dst + r * w.g.dst_c)
            else:
                interleave(b.c + r * LDP + done, odd + r * LDP + done, take, line)
                narrow(w.storage, line, 2 * take, dst + r * w.g.dst_c * size)
        advance(p, at, take)
        done += take


cdef const real *packed_filter(const Gather *w, int64_t pair, int64_t group) noexcept nogil:
    """The packed filter of the lane pair and group."""
    return w.filter_panels + group * w.group_panels + w.panels[pair]


cdef const real *panels(const real *filter, int64_t distance, int64_t slot, int64_t channel) noexcept nogil:
    """The panels from a slot and a channel, a multiple of VL, on."""
    return filter + channel // NR * distance + slot // PAIR * NR + channel % NR


cdef void multiply_channels(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k) noexcept nogil:
    """c[channel][pixel] (+)= filter patch for KC slots."""
    cdef int64_t kc = smaller(KC, slots(p) - k * KC), i
    cdef const real *filter = packed_filter(w, pair, b.group) + (k * w.g.dst_channels + b.channel) * LD
    if b.in_plane and reads_planes(w, p):
        multiply_planes(w, p, b, k, kc, filter)
        return
    if PAIR > 1 and has_pairs(p):
        pack_slot_pairs(p, b.first, b.count, k * KC, kc, b.patch, LDP)
    else:
        pack_slots(p, b.first, b.count, k * KC, kc, b.patch, LDP)
        pair_rows(b.patch, kc, b.count, LDP)
    for i in range(divide_up(kc, PAIR) if b.count % NR else 0):
        clear(b.patch + i * LDP + b.count, NR - b.count % NR)
    multiply_tiles(w, p, b, k, kc, filter)


cdef void multiply_tiles(const Gather *w, const Patches *p, const Block *b, int64_t k, int64_t kc, const real *filter) noexcept nogil:
    """c[channel][pixel] (+)= filter patch of packed operands. Fetches the next pixels of planes, and what is going to be written: one tap, 64 to 256
    channels of 56x56 pixels 1.2 in 16 bits, whatever lies in a cache 1.0 (2 threads of a Zen 4)."""
    cdef int64_t size = item_size(w.storage), row = w.g.dst_c * size, tiles = divide_up(b.channels, MR), done = 0, j, t, i, end, r
    cdef Operands product = operands(divide_up(kc, PAIR), NULL, LD, LDP, LDP, k > 0)
    cdef Stream read = next_pixels(w, p, b, k * KC)
    cdef Pixel at = pixel(p, b.first)
    cdef char *dst = dst_pixel(w, p, b, &at)
    cdef bint last = (k + 1) * KC >= slots(p) and dst_in_planes(p)
    cdef tile_t tile
    product.one, product.two = read.step, 0
    for j in range(divide_up(b.count, NR)):
        for t in range(tiles):
            i, end = part(b.channels, t, tiles), part(b.channels, t + 1, tiles)
            for r in range(i, end if last else i):
                fetch_lines(dst + r * row + j * NR * size, NR * size, True)
            tile = fetching_tile if read.step and done < read.tiles * PAIR else packed_tile
            tile(<int> (end - i), NV if b.count - j * NR > VL else 1, &product, filter + i * LD, b.patch + j * NR, b.c + i * LDP + j * NR, begin_of(&read, done), <const char *> b.c)
            done += 1


cdef Stream next_pixels(const Gather *w, const Patches *p, const Block *b, int64_t slot) noexcept nogil:
    """Those of planes after a block's, for the slots from `slot` on."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), next = b.first + b.count, plane = g.src_c, count = smaller(smaller(b.count, b.end - next), plane - next % plane)
    cdef Stream following
    if not src_in_planes(p) or next >= b.end:
        return stream(b.c, 0, 0, 1)
    following = stream(p.src + (next // plane * g.src_n + slot * plane + next % plane) * size, LINE, plane * size * PAIR, divide_up(count * size, LINE) + 1)
    following.far = plane * size
    return following


cdef void multiply_planes(const Gather *w, const Patches *p, const Block *b, int64_t k, int64_t kc, const real *filter) noexcept nogil:
    """multiply_channels for pixels of an image of src as they lie, a register tile of channels after the other; in dst itself, if its planes lie so, too.
    Fetches the next pixels of src."""
    cdef const Problem *g = w.g
    cdef int64_t n = b.first // g.src_c, start = b.first % g.src_c, tiles = divide_up(b.channels, MR), panels = divide_up(b.count, NR), ldc = LDP, t, i, end
    cdef const real *src = <const real *> p.src + n * g.src_n + start + k * KC * g.src_c
    cdef real *c = b.c
    cdef Stream read, none = stream(c, 0, 0, 1)
    if planes_in_place(w, p):
        c, ldc = <real *> w.dst + n * g.dst_n + start + (b.group * g.dst_channels + b.channel) * g.dst_c, g.dst_c
    for t in range(tiles):
        i, end = part(b.channels, t, tiles), part(b.channels, t + 1, tiles)
        read = none
        if t * panels * LINE < b.count * <int64_t> sizeof(real):
            read = stream(<const char *> (src + b.count) + t * panels * LINE, LINE, g.src_c * <int64_t> sizeof(real), panels)
        multiply(True, end - i, b.count, kc, filter + i * LD, LD, src, g.src_c, NR, c + i * ldc, ldc, k > 0, read, none)


cdef void multiply_pixels(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k, Pixel *at) noexcept nogil:
    """c[pixel][channel] (+)= patch filter for KC slots, a register tile of pixels after the other. Whole vectors of dst are computed where they lie if its
    pixels are rows, or the tile's are a step apart. If all channels end within a vector, it may spill into the next pixel of rows as long as that is
    computed afterwards: the last panel comes first."""
    cdef const Problem *g = w.g
    cdef int64_t depth = slots(p), kc = smaller(KC, depth - k * KC), tiles = divide_up(b.count, MR), ldc = w.channels + PAD, t, i, end, whole
    cdef int64_t dst_row = g.dst_x * item_size(w.storage), src_row = g.src_x * item_size(w.storage)
    cdef bint in_rows = dst_in_rows(p), last = (k + 1) * KC >= depth, dst_follows = in_rows and b.channels == g.dst_x, src_follows = src_in_rows(p) and k == 0
    cdef int64_t vectors = b.channels // VL * VL if g.dst_c == 1 and w.storage == REAL_STORAGE else 0
    cdef int64_t distance = panel_distance(p), ld = g.dst_x * p.col.out_step
    cdef const real *filter = packed_filter(w, pair, b.group)
    cdef Rows src = pixel_rows(p, b, k * KC, kc)
    cdef Block rest = b[0]
    cdef Stream read, write
    cdef Stream next_src = sweep(p.src, MR * src_row, divide_up(b.channels, NR), kc), next_dst = sweep(w.dst, MR * dst_row, divide_up(b.channels, NR), kc)
    cdef bint spills = dst_follows and w.storage == REAL_STORAGE and vectors < b.channels and depth <= KC
    cdef int64_t begun = (b.channels - 1) // NR * NR, steps = divide_up(kc, PAIR)
    cdef bint fetches
    cdef const real *a
    cdef real *dst = <real *> w.dst + b.first * g.dst_x + b.group * g.dst_channels + b.channel
    for t in range(tiles):
        i, end = part(b.count, t, tiles), part(b.count, t + 1, tiles)
        whole = vectors
        if not in_rows:
            at[0] = pixel(p, b.first + i)
            whole = vectors if at.v + end - i <= p.col.count else 0
            dst = <real *> dst_pixel(w, p, b, at) - i * ld
        read = following(&next_src, src_row, b.first + (end if src.in_place else b.count + i), src_follows, b)
        write = following(&next_dst, dst_row, b.first + end, dst_follows and (k == 0 if whole else last), b)
        a, fetches = src.at + i * src.ld, src.in_place or read.step or write.step
        if whole and write.step > LINE:                 # more cache lines than steps: all at once takes down to a quarter of the time (Zen 5)
            fetch_lines(write.at, MR * dst_row, True)
        if spills and b.first + end < b.end:
            multiply(fetches, end - i, b.channels - begun, steps, a, src.ld, panels(filter, distance, 0, begun), NR, distance, dst + i * ld + begun, ld, False, read, write)
            multiply(fetches, end - i, begun, steps, a, src.ld, filter, NR, distance, dst + i * ld, ld, False, read, write)
            continue
        if whole:
            multiply(fetches, end - i, whole, steps, a, src.ld, panels(filter, distance, k * KC, b.channel), NR, distance, dst + i * ld, ld, k > 0, read, write)
        if whole < b.channels:
            rest.channel, rest.channels = b.channel + whole, b.channels - whole
            rest.c = b.c + (0 if depth <= KC else i * ldc)
            multiply(fetches, end - i, rest.channels, steps, a, src.ld, panels(filter, distance, k * KC, rest.channel), NR, distance, rest.c, ldc, k > 0, read, write)
            if spills:
                at[0] = pixel(p, b.first + i)           # those before were not stored one by one
            if last:
                store_pixels(w, p, &rest, at, end - i)


cdef bint at_once(const Gather *w, const Patches *p) noexcept nogil:
    """Whether a block's pixels are one product: one panel holds all channels, and images are likely to be in a cache or a pixel is one line, since results of
    several are not fetched as evenly."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), depth = slots(p)
    if w.channels > NR or depth > FEW_SLOTS or depth > g.src_channels or not dst_in_rows(p):
        return False
    return g.images * (g.src_n + g.dst_n) * size <= LAST_CACHE or larger(g.src_x, g.dst_x) * size <= LINE


cdef int64_t count_in_place(const Gather *w, const Block *b) noexcept nogil:
    """How many of a block's pixels can be computed where dst lies, from the first on: unless vectors are whole, each spills into the next ones, which
    have to be computed afterwards, by the same thread."""
    if w.storage != REAL_STORAGE:
        return 0
    if b.channels % VL == 0:
        return b.count
    if b.channels < w.g.dst_x:
        return 0
    return b.count if b.first + b.count < b.end else larger(b.count - MR, 0)


cdef void multiply_at_once(const Gather *w, const Patches *p, int64_t pair, const Block *b) noexcept nogil:
    """multiply_pixels for a block's pixels at once, which saves planning each tile. Fetches as many of the next ones. 16 to 16 channels take 0.7 of the time,
    24 to 24 and 16 to 32 0.9, 144 to 24 1.0, whether they lie in a cache or not (float32, Zen 5)."""
    cdef int64_t depth = divide_up(slots(p), PAIR), whole = count_in_place(w, b), row = w.g.dst_x, tiles = divide_up(whole, MR)
    cdef const real *filter = panels(packed_filter(w, pair, b.group), panel_distance(p), 0, b.channel)
    cdef Rows src = pixel_rows(p, b, 0, slots(p))
    cdef Pixel at = pixel(p, b.first)
    cdef real *dst = <real *> dst_pixel(w, p, b, &at)
    cdef Stream read = stream(b.c, 0, 0, 1), write = read
    if whole:
        if b.first + b.count < b.end:
            write = sweep(<const char *> (dst + b.count * row), b.count * row * sizeof(real), tiles, slots(p))
            if src.in_place:
                read = sweep(<const char *> (src.at + b.count * src.ld), b.count * src.ld * sizeof(real), tiles, slots(p))
        multiply(True, whole, b.channels, depth, src.at, src.ld, filter, NR, 0, dst, row, False, read, write)
    if whole < b.count:
        at = pixel(p, b.first + whole)
        multiply(False, b.count - whole, b.channels, depth, src.at + whole * src.ld, src.ld, filter, NR, 0, b.c, w.channels + PAD, False, read, write)
        store_pixels(w, p, b, &at, b.count - whole)


cdef struct Ahead:                                      # what a block reads and writes next
    Lines src, dst
    int64_t burst                                       # lines to fetch with each tap of a tile


cdef Ahead nothing() noexcept nogil:
    cdef Ahead a
    a.src, a.dst, a.burst = no_lines(), no_lines(), 0
    return a


cdef Ahead next_band(const Gather *w, const Patches *p, const Block *b, const Band *band, int64_t taps) noexcept nogil:
    """For the next group, or the first one and the next pixels; to be fetched while the tiles of all pixels are computed, each of so many taps. Strides and
    groups of 16 and 32 channels gain 1.05 to 1.4, on a disturbed machine 1.2 to 1.6, others 1.0 to 1.05 (2 threads of a Zen 4)."""
    cdef int64_t next = b.first + b.count, group = b.group + 1
    cdef Band following = band[0]
    cdef Ahead a = nothing()
    if group == b.end_group:
        group = b.first_group
        if next == b.end:
            return a
        place_band(p, next, smaller(b.count, b.end - next), 0, slots(p), PAIR, &following)
    a.src, a.dst = band_lines(p, &following, group_src(w, group)), dst_lines(w, p, b, &following, group)
    a.burst = divide_up(lines_left(&a.src) + lines_left(&a.dst), divide_up(b.count, MR) * divide_up(b.channels, NR) * taps)
    return a


cdef Lines dst_lines(const Gather *w, const Patches *p, const Block *b, const Band *band, int64_t group) noexcept nogil:
    """Those of the block's channels in the rows of dst that a band is copied for, if channels come last."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), first = band.first.n * g.dst_rows + band.first.u * p.row.out_step
    cdef int64_t end = band.last.n * g.dst_rows + smaller((band.last.u + 1) * p.row.out_step, g.dst_rows)
    if g.dst_c != 1:
        return no_lines()
    return lines_of(w.dst + (first * g.dst_y + group * g.dst_channels + b.channel) * size, g.dst_x * size, (end - first) * g.dst_cols, b.channels * size)


cdef bint multiply_band(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k) noexcept nogil:
    """multiply_pixels with each row of src copied once, from where all of its taps read it: tiles do not go beyond a row. False, and nothing is done,
    where there is no band."""
    cdef int64_t kc = smaller(KC, slots(p) - k * KC)
    cdef bint kept = keeps_band(w, p)
    cdef Band band
    cdef Ahead ahead
    if not kept and not has_band(p):
        return False
    place_band(p, b.first, b.count, 0 if kept else k * KC, slots(p) if kept else kc, PAIR, &band)
    if not kept and not within(p, &band, band_room(w)):
        return False
    if k == 0 or not kept:
        pack_band(p, &band, b.patch)
    ahead = next_band(w, p, b, &band, divide_up(kc, w.g.src_channels)) if k == 0 else nothing()
    multiply_taps(w, p, p, pair, b, k, kc, &band, &ahead)
    return True


cdef void multiply_phases(const Gather *w, const Patches *p, const Block *b) noexcept nogil:
    """multiply_band for all lane pairs: their taps read one band, that of p."""
    cdef int64_t pair
    cdef Band band
    cdef Ahead ahead
    cdef Patches phase
    place_band(p, b.first, b.count, 0, slots(p), PAIR, &band)
    pack_band(p, &band, b.patch)
    ahead = next_band(w, p, b, &band, w.g.filter_rows * w.g.filter_cols)
    for pair in range(w.g.row_lanes * w.g.col_lanes):
        phase = pair_patches(w, pair, b.group)
        multiply_taps(w, p, &phase, pair, b, 0, slots(&phase), &band, &ahead)
    if orders_phases(w):
        store_phases(w, p, b)


cdef void store_phases(const Gather *w, const Patches *p, const Block *b) noexcept nogil:
    """store_pixels for all lane pairs, row by row of dst, where channels come first. c has the rows of dst that a row of a band is for one after the other."""
    cdef const Problem *g = w.g
    cdef int64_t rows = g.row_lanes, cols = g.col_lanes, done = 0, ldc = w.channels + PAD, run, r
    cdef Pixel now = pixel(p, b.first)
    cdef char *dst
    while done < b.count:
        run = smaller(p.col.count - now.v, b.count - done)
        for r in range(smaller(rows, g.dst_rows - rows * now.u)):
            dst = w.dst + (now.n * g.dst_n + (rows * now.u + r) * g.dst_y + cols * now.v + (b.group * g.dst_channels + b.channel) * g.dst_c) * item_size(w.storage)
            narrow_block(w.storage, b.c + (done * rows + r * run) * cols * ldc, ldc, smaller(cols * run, g.dst_cols - cols * now.v), b.channels, dst, 1, g.dst_c)
        advance(p, &now, run)
        done += run


cdef void multiply_taps(const Gather *w, const Patches *p, const Patches *phase, int64_t pair, const Block *b, int64_t k, int64_t kc, const Band *band, Ahead *ahead) noexcept nogil:
    """The products of kc slots of a lane pair, as far as it has pixels: those of p, whose band it reads, may be more."""
    cdef int64_t begin = ((phase.row.src_start - p.row.src_start) * band.width + phase.col.src_start - p.col.src_start) * band.pixel
    cdef int64_t done = 0, run, own, tiles, t, i, end
    cdef int64_t[MOST_TAPS] at, depth
    cdef Pixel now = band.first, tile
    cdef Taps taps, some
    cdef int64_t slot, rows = 1, cols = 1, ldc = w.channels + PAD
    cdef real *c
    if orders_phases(w):
        rows, cols = w.g.row_lanes, w.g.col_lanes
    taps.at, taps.depth = at, depth
    taps.count = place_taps(phase, band, k * KC, kc, at, depth)
    while done < b.count:
        run = smaller(p.col.count - now.v, b.count - done)
        own = smaller(run, phase.col.count - now.v) if now.u < phase.row.count else 0
        tiles = divide_up(own, MR)
        some = taps_inside(phase, &taps, k * KC, now.u, &slot)
        c = b.c + ((done * rows + (phase.row.out_start * run if rows > 1 else 0)) * cols + (phase.col.out_start if cols > 1 else 0)) * ldc
        for t in range(tiles):
            i, end = part(own, t, tiles), part(own, t + 1, tiles)
            tile = now
            tile.v += i
            multiply_tile(w, phase, pair, b, k, &tile, end - i, ahead, &some, slot, b.patch + begin + band_index(p, band, &tile), p.col.z_step * band.pixel,
                          b.c if slots(phase) <= KC and w.g.dst_c == 1 else c + i * cols * ldc, cols * ldc)
        advance(p, &now, run)
        done += run
    if w.g.dst_c != 1 and not w.shared and k * KC + kc == slots(phase):
        now = band.first
        store_pixels(w, phase, b, &now, b.count)


cdef void multiply_tile(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k, Pixel *at, int64_t count, Ahead *ahead, const Taps *taps, int64_t slot, const real *a, int64_t lda, real *c, int64_t ldc) noexcept nogil:
    """A register tile of pixels of one row: whole vectors where dst lies, the rest in c."""
    cdef const Problem *g = w.g
    cdef int64_t whole = b.channels // VL * VL if g.dst_c == 1 and w.storage == REAL_STORAGE else 0, distance = panel_distance(p)
    cdef const real *filter = packed_filter(w, pair, b.group)
    cdef Block rest = b[0]
    if whole:
        tap_product(count, whole, ahead, taps, a, lda, panels(filter, distance, slot, b.channel), distance, <real *> dst_pixel(w, p, b, at), g.dst_x * p.col.out_step, k > 0)
    if whole < b.channels:
        rest.channel, rest.channels, rest.c = b.channel + whole, b.channels - whole, c
        tap_product(count, rest.channels, ahead, taps, a, lda, panels(filter, distance, slot, rest.channel), distance, c, ldc, k > 0)
        if (k + 1) * KC >= slots(p) and g.dst_c == 1:
            store_pixels(w, p, &rest, at, count)


cdef void tap_product(int64_t m, int64_t n, Ahead *ahead, const Taps *taps, const real *a, int64_t lda, const real *filter, int64_t panel, real *c, int64_t ldc, bint accumulate) noexcept nogil:
    """c (+)= band filter for a register tile of pixels."""
    cdef Operands p = operands(0, taps, lda, NR, ldc, accumulate)
    cdef int64_t j
    cdef Lines *lines
    for j in range(divide_up(n, NR)):
        lines = &ahead.src if ahead.src.left else &ahead.dst
        p.one, p.two = lines.step, ahead.burst if lines.left else 0
        band_tile(<int> m, NV if n - j * NR > VL else 1, &p, a, filter + j * panel, c + j * NR, take_lines(lines, taps.count * ahead.burst), NULL)


cdef Stream following(const Stream *rows, int64_t row, int64_t first, bint wanted, const Block *b) noexcept nogil:
    """The stream of the next rows, from pixel `first` on, if they are wanted and the thread's."""
    if not wanted or first >= b.end:
        return stream(b.c, 0, 0, 1)
    return stream(rows.at + first * row, rows.tile, rows.step, rows.tiles)


cdef void band_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, True, TAPS, m, nv, p, a, b, c, one, two)


cdef void packed_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef void fetching_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, READ_WRITE, m, nv, p, a, b, c, one, two)


cdef void multiply(bint fetches, int64_t m, int64_t n, int64_t depth, const real *a, int64_t lda, const real *b, int64_t ldb, int64_t panel, real *c, int64_t ldc, bint accumulate, Stream read, Stream write) noexcept nogil:
    """c (+)= a b, fetching what is needed next or not."""
    cdef Operands p = operands(depth, NULL, lda, ldb, ldc, accumulate)
    p.ahead = fetches and (accumulate or write.step == 0)
    gemm_block(fetching_tile, packed_tile, False, False, m, n, &p, a, b, panel, c, read, write)


cdef Stream sweep(const char *at, int64_t size, int64_t tiles, int64_t kc) noexcept nogil:
    """All of `size` successive bytes, fetched evenly over the steps of all tiles."""
    return stream(at, size // tiles, divide_up(size, tiles * divide_up(kc, PAIR)), tiles)


cdef bint crowded(int64_t distance) noexcept nogil:
    """Whether a tile's rows, so many bytes apart, are better packed. At multiples of 4 KiB they share a set of the first cache: packed, those of float32 and
    float64 take 0.75 to 0.8 of the time with its 8 ways (Zen 4), but 1.0 to 1.2 with 12 (Zen 5). Pairs of bfloat16 at multiples of 2 KiB 0.87 to 0.98 (Zen 5)."""
    if PAIR > 1:
        return distance % CROWDED == 0
    return distance % (2 * CROWDED) == 0 and MR > WAYS + WAYS // 2


cdef Rows pixel_rows(const Patches *p, const Block *b, int64_t slot, int64_t count) noexcept nogil:
    """Patches [pixel][slot] of the pixels at hand, packed if need be."""
    cdef const Problem *g = p.g
    cdef int64_t size = item_size(p.storage)
    cdef Rows rows
    rows.lies, rows.row, rows.panel = NULL, 0, 0
    rows.in_place = src_in_rows(p) and p.storage == PACKED_STORAGE and g.src_channels % PAIR == 0 and not crowded(g.src_x * size)
    if rows.in_place:
        rows.at, rows.ld = <const real *> (p.src + (b.first * g.src_x + slot) * size), g.src_x // PAIR
    else:
        rows.at, rows.ld = b.patch, LD
        if PAIR > 1 and g.src_c == 1 and g.src_channels % PAIR == 0:
            pack_pairs(p, b.first, b.count, slot, count, b.patch, LD)
        elif PAIR > 1 and p.runs:
            pack_run_pairs(p, b.first, b.count, slot, count, b.patch, LD)
        else:
            pack_pixels(p, b.first, b.count, slot, count, b.patch, LD)
            pair_columns(b.patch, b.count, count, LD)
    return rows


cdef int64_t most_slots(const Gather *w) noexcept nogil:
    """Slots of a lane pair, at most."""
    return w.g.filter_rows * w.g.filter_cols * w.g.src_channels


cdef int64_t patch_size(const Gather *w) noexcept nogil:
    return KC * LDP if w.channel_rows else PIXELS * LD


cdef int64_t result_size(const Gather *w) noexcept nogil:
    """Reals of c: all that is computed at a time where sums of several passes meet in it or channels are few, else the rows of a register tile."""
    cdef int64_t each = (PIXELS + PAD if w.channel_rows or w.g.dst_c != 1 or most_slots(w) > KC or w.channels <= NR else MR) * (w.channels + PAD)
    return 2 * each if w.in_turns else w.g.row_lanes * w.g.col_lanes * each if orders_phases(w) else each


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
    threads = useful_threads(g, threads, threads)
    plan(w, threads)
    threads = <int> larger(smaller(threads, w.blocks[pairs]), 1)
    scratch_size = padded(patch_size(w) + result_size(w))
    slab = allocate(g.groups * w.group_panels + threads * scratch_size)
    if slab == NULL:
        release(table)
        return 1
    w.filter_panels = slab
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    do_blocks(pack_filter, w, pairs * g.groups * filter_parts(w), threads, FIRST_FREE, NULL, 0)
    do_blocks(gather_block, w, w.blocks[pairs], threads, FIRST_FREE, slab + g.groups * w.group_panels, scratch_size * sizeof(real))
    release(slab)
    release(table)
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
    w.finite = &finite
    return outcome(drive(&w, num_threads), &finite)


entry = exported(compute)
