"""Part of `conv_gather`: the filter, packed once: panels of NR channels in pixel rows, and in channel rows those of a register tile, MR at most, or a row for each in tiles
(TILE); of pairs, where slots are multiplied two at once."""
from libc.stdint cimport int64_t
from _gemm cimport KC, LD
from _patches cimport Patches, slots
from _problem cimport Problem, divide_up, larger, part, smaller
from _storage cimport real, MR, NR, PAIR, REAL_STORAGE, TILE, VL, all_finite, item_size, clear, widen_block, pair_columns, pair_lines, pair_rows, pairs_finite, place_halves, rows_finite

cdef enum:
    WAY = 1 << 17                                       # of the second cache: 2048 sets of 64 bytes
    SLICES = 4                                          # of a thread: parts are cut until there are as many
    LEAST_SLICE = 128                                   # slots of one, at least, and a multiple of
    SLICE_UNIT = 16                                     # so many
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
    return larger(smaller(slots(p), SHEET_SLOTS if w.sheets else KC), 1) if w.channel_rows else larger(slots(p), 1)


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


cdef int64_t filter_slices(const Gather *w, int threads) noexcept nogil:
    """Into how many slices of slots each part falls, so that all threads pack few channels, too: unless slots become pairs where they were packed. Of 16 threads,
    64 and 96 channels of one image take 0.8 to 0.9 of the time (an Intel Xeon with tiles)."""
    cdef int64_t parts = w.g.row_lanes * w.g.col_lanes * w.g.groups * w.chunks * filter_parts(w)
    if threads == 1 or packs_rows(w) or (PAIR > 1 and not has_filter_pairs(w)):
        return 1
    return larger(smaller(divide_up(SLICES * threads, larger(parts, 1)), most_slots(w) // LEAST_SLICE), 1)


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
    """Packs a slice of a part of the filter of one lane pair, group and chunk, tap by tap."""
    cdef const Gather *w = <const Gather *> work
    cdef const Problem *g = w.g
    cdef int64_t pairs = g.row_lanes * g.col_lanes, each = pairs * g.groups * w.chunks, pair = index % pairs, chunk = index % each // pairs, group = chunk // w.chunks
    cdef Patches p = pair_patches(w, pair, group)
    cdef int64_t part_index = index // each // w.slices, slice = index // each % w.slices, units = divide_up(slots(&p), SLICE_UNIT), tap, c, count
    cdef int64_t first = part(units, slice, w.slices) * SLICE_UNIT, end = smaller(part(units, slice + 1, w.slices) * SLICE_UNIT, slots(&p)), slot = first
    cdef Part some = filter_part(w, part_index)
    cdef real *dst = w.filter_panels + chunk * w.group_panels + w.panels[pair]
    cdef const char *src
    if some.channels == 0:
        return
    if not packs_rows(w):
        dst += part_index * panel_distance(w, &p)
    while slot < end:
        tap, c = slot // g.src_channels, slot % g.src_channels
        count = smaller(g.src_channels - c, end - slot)
        src = w.filter + (group * g.filter_group + (p.row.filter_start + p.row.filter_step * (tap // p.col.taps)) * g.filter_y
                          + (p.col.filter_start + p.col.filter_step * (tap % p.col.taps)) * g.filter_x
                          + (chunk % w.chunks * g.src_channels + c) * g.filter_src + some.channel * g.filter_dst) * item_size(w.storage)
        if packs_rows(w):
            pack_tap_rows(w, src, some.channel, some.channels, slot, count, dst)
        else:
            pack_tap_panel(w, &p, src, smaller(panel_width(w), g.dst_channels - some.channel) if PAIR > 1 else some.channels, slot, count, dst)
        slot += count
    if packs_rows(w):
        finish_rows(w, &some, end, dst)
    else:
        finish_panel(w, &p, first, end, dst)


cdef void finish_panel(const Gather *w, const Patches *p, int64_t first, int64_t end, real *dst) noexcept nogil:
    """Looks for infinities and NaN in slots that were packed, and pairs them, if they are not pairs yet."""
    cdef int64_t width = panel_width(w), depth = panel_depth(w, p), slot = first, count
    cdef bint paired = has_filter_pairs(w)
    cdef real *rows
    while slot < end:
        count = smaller(depth - slot % depth, end - slot)
        rows = dst + slot // depth * pass_distance(w, p) + slot % depth // (PAIR if paired else 1) * width
        if not (pairs_finite(rows, count // PAIR * width) if paired else all_finite(rows, count * width)):
            w.finite[0] = False
        if not paired:
            pair_rows(rows, count, width, width)
        slot += count
        if TILE > 1 and (slot % depth == 0 or slot == slots(p)):
            clear(rows + divide_up(count, PAIR) * width, TILE * width)


cdef void finish_rows(const Gather *w, const Part *some, int64_t depth, real *dst) noexcept nogil:
    """finish_panel of rows."""
    cdef int64_t block, i, count
    cdef real *rows
    for block in range(divide_up(depth, KC)):
        rows, count = dst + (block * w.g.dst_channels + some.channel) * LD, smaller(KC, depth - block * KC)
        for i in range(some.channels if has_filter_pairs(w) else 0):
            if not pairs_finite(rows + i * LD, count // PAIR):
                w.finite[0] = False
        if not has_filter_pairs(w):
            if not rows_finite(rows, LD, some.channels, count):
                w.finite[0] = False
            pair_columns(rows, some.channels, count, LD)


cdef void pack_tap_panel(const Gather *w, const Patches *p, const char *tap, int64_t channels, int64_t slot, int64_t count, real *dst) noexcept nogil:
    """dst[pass][slot][width], or pairs of slots there, zero beyond the channels. Those of pairs go on into the next panel, so that whole vectors are turned."""
    cdef const Problem *g = w.g
    cdef int64_t width = panel_width(w), depth = panel_depth(w, p), size = item_size(w.storage), c = 0, pair = PAIR if has_filter_pairs(w) else 1, take
    cdef real *rows
    cdef const char *src
    while c < count:
        take = smaller(count - c, depth - slot % depth)
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


cdef void pack_tap_rows(const Gather *w, const char *tap, int64_t channel, int64_t channels, int64_t slot, int64_t count, real *dst) noexcept nogil:
    """dst[KC block][channel][LD], or pairs of slots there: a tap's slots may end in the next KC block."""
    cdef const Problem *g = w.g
    cdef int64_t c = 0, size = item_size(w.storage), take
    cdef real[FILTER_PART * CHANNEL_PART] stage
    cdef real *rows
    cdef const char *src
    while c < count:
        take = smaller(smaller(count - c, KC - slot % KC), FILTER_PART * PAIR if PAIR > 1 else KC)
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
