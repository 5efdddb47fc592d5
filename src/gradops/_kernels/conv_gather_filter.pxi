"""Part of `conv_gather`: the filter, packed once. In pixel rows it is panels of NR channels, in channel rows a row for each; of pairs, where slots are multiplied two at once."""
from libc.stdint cimport int64_t
from _gemm cimport KC, LD
from _patches cimport Patches, slots
from _problem cimport Problem, divide_up, larger, smaller
from _storage cimport real, NR, PAIR, REAL_STORAGE, all_finite, item_size, clear, widen_block, pair_columns, pair_lines, pair_rows, pairs_finite, place_halves

cdef enum:
    WAY = 1 << 17                                       # of the second cache: 2048 sets of 64 bytes
    CHANNEL_PART = 32                                   # channels whose filter is packed at a time in channel rows,
    FILTER_PART = 64                                    # and their pairs of slots


cdef int64_t panel_distance(const Patches *p) noexcept nogil:
    """Reals from panel to panel: their length, unless panels would share half of the sets of a cache of WAY bytes a way. Of tiles, zeros follow."""
    cdef int64_t size = (larger(slots(p), divide_up(slots(p), PAIR) + TILE) if TILE > 1 else slots(p)) * NR
    return size + KC * NR if size * <int64_t> sizeof(real) % WAY == 0 else size


cdef int64_t panel_size(const Gather *w, const Patches *p) noexcept nogil:
    """Reals of the packed filter of one group, chunk and lane pair: [KC block][channel][LD] or [panel][slot][NR]."""
    if w.channel_rows:
        return divide_up(slots(p), KC) * w.g.dst_channels * LD
    return divide_up(w.g.dst_channels, NR) * panel_distance(p)


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
    """Packs one part of the filter of one lane pair, group and chunk, tap by tap."""
    cdef const Gather *w = <const Gather *> work
    cdef const Problem *g = w.g
    cdef int64_t pairs = g.row_lanes * g.col_lanes, each = pairs * g.groups * w.chunks, pair = index % pairs, chunk = index % each // pairs, group = chunk // w.chunks
    cdef Patches p = pair_patches(w, pair, group)
    cdef int64_t i, j, channel = index // each * (CHANNEL_PART if w.channel_rows else NR)
    cdef int64_t channels = smaller(CHANNEL_PART if w.channel_rows else NR, g.dst_channels - channel), slot = 0
    cdef real *dst = w.filter_panels + chunk * w.group_panels + w.panels[pair]
    cdef const char *tap
    if not w.channel_rows:
        dst += channel // NR * panel_distance(&p)
        if channels < NR:
            clear(dst, NR * slots(&p))
    for i in range(p.row.taps):
        for j in range(p.col.taps):
            tap = w.filter + (group * g.filter_group + (p.row.filter_start + p.row.filter_step * i) * g.filter_y
                              + (p.col.filter_start + p.col.filter_step * j) * g.filter_x + chunk % w.chunks * g.src_channels * g.filter_src + channel * g.filter_dst) * item_size(w.storage)
            if w.channel_rows:
                pack_tap_rows(w, tap, channel, channels, slot, dst)
            else:
                pack_tap_panel(w, tap, channels, dst + slot // (PAIR if has_filter_pairs(w) else 1) * NR)
            slot += g.src_channels
    finish_filter(w, channel, channels, slot, dst)
    if TILE > 1 and not w.channel_rows:
        clear(dst + divide_up(slot, PAIR) * NR, TILE * NR)


cdef void finish_filter(const Gather *w, int64_t channel, int64_t channels, int64_t depth, real *dst) noexcept nogil:
    """Looks for infinities and NaN in what was packed, and pairs it, if it is not pairs yet."""
    cdef int64_t blocks = divide_up(depth, KC) if w.channel_rows else 1, rows = channels if w.channel_rows else 1, block, i, count = NR * depth
    cdef bint paired = has_filter_pairs(w), finite = True
    cdef real *packed
    for block in range(blocks):
        packed = dst + (block * w.g.dst_channels + channel) * LD if w.channel_rows else dst
        if w.channel_rows:
            count = smaller(KC, depth - block * KC)
        for i in range(rows):
            finite = finite and (pairs_finite(packed + i * LD, count // PAIR) if paired else all_finite(packed + i * LD, count))
        if w.channel_rows and not paired:
            pair_columns(packed, channels, count, LD)
        elif not paired:
            pair_rows(packed, depth, NR, NR)
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


cdef const real *packed_filter(const Gather *w, int64_t pair, const Block *b) noexcept nogil:
    """The packed filter of the lane pair and a block's group and chunk."""
    return w.filter_panels + (b.group * w.chunks + b.chunk) * w.group_panels + w.panels[pair]


cdef const real *panels(const real *filter, int64_t distance, int64_t slot, int64_t channel) noexcept nogil:
    """The panels from a slot and a channel, a multiple of VL, on."""
    return filter + channel // NR * distance + slot // PAIR * NR + channel % NR
