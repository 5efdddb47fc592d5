"""Part of `conv_gather`: the filter, packed once: panels of NR channels in pixel rows, and in channel rows those of a register tile, MR at most, or a row for each in tiles
(TILE); of pairs, where slots are multiplied two at once."""
from libc.stdint cimport int64_t
from _gemm cimport KC, LD
from _patches cimport Patches, slots
from _problem cimport Problem, divide_up, larger, part, smaller
from _storage cimport real, MR, NR, PAIR, REAL_STORAGE, TILE, VL, all_finite, item_size, clear, widen_block, pair_columns, pair_lines, pair_rows, pairs_finite, place_halves

cdef enum:
    WAY = 1 << 17                                       # of the second cache: 2048 sets of 64 bytes
    CHANNEL_PART = 32                                   # channels whose filter is packed at a time in rows,
    FILTER_PART = 64                                    # and their pairs of slots


cdef struct Part:                                       # channels of dst whose filter is packed at a time
    int64_t channel, channels


cdef bint packs_rows(const Gather *w) noexcept nogil:
    """Whether each channel has a row, since tiles read some steps of several at once."""
    return TILE > 1 and w.channel_rows


cdef int64_t panel_width(const Gather *w) noexcept nogil:
    """Channels of a panel; pairs are made of whole vectors."""
    return NR if not w.channel_rows else MR if PAIR == 1 else VL


cdef int64_t panel_depth(const Gather *w, const Patches *p) noexcept nogil:
    """Slots of a panel, at most: in channel rows those of a pass, all panels of which lie beside each other."""
    return larger(smaller(slots(p), KC), 1) if w.channel_rows else larger(slots(p), 1)


cdef int64_t panel_distance(const Gather *w, const Patches *p) noexcept nogil:
    """Reals from panel to panel: their length, unless panels would share half of the sets of a cache of WAY bytes a way. Of tiles, zeros follow."""
    cdef int64_t depth = panel_depth(w, p), size = (larger(depth, divide_up(depth, PAIR) + TILE) if TILE > 1 else depth) * panel_width(w)
    return size + KC * panel_width(w) if size * <int64_t> sizeof(real) % WAY == 0 else size


cdef int64_t block_panels(const Gather *w) noexcept nogil:
    """Panels of a block's channels in channel rows, at most: register tiles."""
    return divide_up(w.channels, MR)


cdef int64_t filter_parts(const Gather *w) noexcept nogil:
    """Into how many parts the packing of a lane pair's filter falls: panels, or some rows."""
    if packs_rows(w):
        return divide_up(w.g.dst_channels, CHANNEL_PART)
    return divide_up(w.g.dst_channels, w.channels) * block_panels(w) if w.channel_rows else divide_up(w.g.dst_channels, NR)


cdef int64_t panel_size(const Gather *w, const Patches *p) noexcept nogil:
    """Reals of the packed filter of one group, chunk and lane pair: [pass][channel][LD] or [pass][panel][slot][width]."""
    if packs_rows(w):
        return divide_up(slots(p), KC) * w.g.dst_channels * LD
    return divide_up(slots(p), panel_depth(w, p)) * pass_distance(w, p)


cdef int64_t pass_distance(const Gather *w, const Patches *p) noexcept nogil:
    """Reals from a pass's panels to those of the next."""
    return filter_parts(w) * panel_distance(w, p)


cdef Part filter_part(const Gather *w, int64_t index) noexcept nogil:
    """The channels of a part: of panels of a register tile, as evenly as tiles are; none beyond the last panel of a block."""
    cdef int64_t width = CHANNEL_PART if packs_rows(w) else NR, first, channels, tiles
    cdef Part some
    if packs_rows(w) or not w.channel_rows:
        some.channel, some.channels = index * width, smaller(width, w.g.dst_channels - index * width)
        return some
    first = index // block_panels(w) * w.channels
    channels, index = smaller(w.channels, w.g.dst_channels - first), index % block_panels(w)
    tiles = divide_up(channels, MR)
    index = smaller(index, tiles)
    some.channel = first + part(channels, index, tiles)
    some.channels = first + part(channels, smaller(index + 1, tiles), tiles) - some.channel
    return some


cdef bint has_filter_pairs(const Gather *w) noexcept nogil:
    """Whether slots of the filter are packed as pairs from where they lie: side by side, or with the channels of dst so, an even number in each tap."""
    cdef const Problem *g = w.g
    if PAIR == 1 or g.src_channels % PAIR:
        return False
    return g.filter_dst == 1 or (g.filter_src == 1 and (packs_rows(w) or g.filter_dst % PAIR == 0))


cdef void pack_filter(const void *work, int64_t index, void *_) noexcept nogil:
    """Packs one part of the filter of one lane pair, group and chunk, tap by tap."""
    cdef const Gather *w = <const Gather *> work
    cdef const Problem *g = w.g
    cdef int64_t pairs = g.row_lanes * g.col_lanes, each = pairs * g.groups * w.chunks, pair = index % pairs, chunk = index % each // pairs, group = chunk // w.chunks
    cdef Patches p = pair_patches(w, pair, group)
    cdef Part some = filter_part(w, index // each)
    cdef int64_t i, j, slot = 0
    cdef real *dst = w.filter_panels + chunk * w.group_panels + w.panels[pair]
    cdef const char *tap
    if some.channels == 0:
        return
    if not packs_rows(w):
        dst += index // each * panel_distance(w, &p)
    for i in range(p.row.taps):
        for j in range(p.col.taps):
            tap = w.filter + (group * g.filter_group + (p.row.filter_start + p.row.filter_step * i) * g.filter_y
                              + (p.col.filter_start + p.col.filter_step * j) * g.filter_x + chunk % w.chunks * g.src_channels * g.filter_src + some.channel * g.filter_dst) * item_size(w.storage)
            if packs_rows(w):
                pack_tap_rows(w, tap, some.channel, some.channels, slot, dst)
            else:
                pack_tap_panel(w, &p, tap, some.channels, slot, dst)
            slot += g.src_channels
    if packs_rows(w):
        finish_rows(w, &some, slot, dst)
    else:
        finish_panel(w, &p, dst)


cdef void finish_panel(const Gather *w, const Patches *p, real *dst) noexcept nogil:
    """Looks for infinities and NaN in what was packed, and pairs it, if it is not pairs yet."""
    cdef int64_t width = panel_width(w), depth = panel_depth(w, p), i, count
    for i in range(divide_up(slots(p), depth)):
        count = smaller(depth, slots(p) - i * depth)
        if not (pairs_finite(dst, count // PAIR * width) if has_filter_pairs(w) else all_finite(dst, count * width)):
            w.finite[0] = False
        if not has_filter_pairs(w):
            pair_rows(dst, count, width, width)
        if TILE > 1:
            clear(dst + divide_up(count, PAIR) * width, TILE * width)
        dst += pass_distance(w, p)


cdef void finish_rows(const Gather *w, const Part *some, int64_t depth, real *dst) noexcept nogil:
    """finish_panel of rows."""
    cdef int64_t block, i, count
    cdef real *rows
    for block in range(divide_up(depth, KC)):
        rows, count = dst + (block * w.g.dst_channels + some.channel) * LD, smaller(KC, depth - block * KC)
        for i in range(some.channels):
            if not (pairs_finite(rows + i * LD, count // PAIR) if has_filter_pairs(w) else all_finite(rows + i * LD, count)):
                w.finite[0] = False
        if not has_filter_pairs(w):
            pair_columns(rows, some.channels, count, LD)


cdef void pack_tap_panel(const Gather *w, const Patches *p, const char *tap, int64_t channels, int64_t slot, real *dst) noexcept nogil:
    """dst[pass][slot][width], or pairs of slots there, zero beyond the channels."""
    cdef const Problem *g = w.g
    cdef int64_t width = panel_width(w), depth = panel_depth(w, p), size = item_size(w.storage), c = 0, pair = PAIR if has_filter_pairs(w) else 1, take
    cdef real *rows
    cdef const char *src
    while c < g.src_channels:
        take = smaller(g.src_channels - c, depth - slot % depth)
        rows, src = dst + slot // depth * pass_distance(w, p) + slot % depth // pair * width, tap + c * g.filter_src * size
        if channels < width:
            clear(rows, take // pair * width)
        if pair == 1:
            widen_block(w.storage, src, g.filter_src, g.filter_dst, take, channels, rows, width)
        elif g.filter_dst == 1:
            pair_lines(src, g.filter_src * size, take, channels, rows, width)
        else:
            widen_block(REAL_STORAGE, src, 1, g.filter_dst // PAIR, take // PAIR, channels, rows, width)
        c += take
        slot += take


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
