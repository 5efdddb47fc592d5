"""Part of `conv_gather`: how a problem is computed, and the blocks that it falls into."""
from libc.stdint cimport int64_t
from _gemm cimport KC
from _patches cimport Patches, pixels, slots, src_in_rows
from _problem cimport Lane, Problem, row_lanes, col_lanes, divide_up, even_parts, is_far, larger, part, smaller, takes_turns
from _scratch cimport padded
from _storage cimport real, MR, NR, PAIR, REAL_STORAGE, TILE, VL, item_size

cdef enum:
    CHANNELS = 1024                                     # of a block, at most; in pixel rows twice that where their packed filter stays small
    FILTER = KC * CHANNELS                              # reals of a packed filter that is small: 2 MiB of float32
    NEAR_CHANNELS = 256                                 # of a block in pixel rows on Intel's CPUs, at most, where more of the filter than this is read again and
    NEAR_FILTER = (1 << 19) + (TILE > 1) * (1 << 19)    # again: half of the second cache for tiles, or a quarter, in bytes
    MANY_CHANNELS = 8                                   # of dst, which are vectors even if patches have to be packed
    FEW_CHANNELS = 3                                    # below, they fill less of a vector of float32 than turning takes, of few slots:
    FEW_SLOTS = 128                                     # so many, at most
    TOGETHER = 512                                      # bytes of a pixel of dst, about, whose groups one thread computes: 0.95 of the time, of planes 0.8 to 0.95
    BLOCKS = 4                                          # of a thread: blocks shrink until there are as many, so that all are busy to the end
    MANY_BLOCKS = 16                                    # the same of strips, whose blocks differ in size: 4 take 1.0 to 1.08 of the time (bfloat16, 2 threads of a Zen 4)
    FEW_BLOCKS = 2                                      # the same of channel rows in tiles, which read the filter for each: 4 take 1.0 to 1.4 of the time (Granite Rapids)
    MORE_TILES = 4                                      # one for as many is few: of 72 steps, 6 times 12 instead of 4 times 16 and 8
    FEW_PIXELS = 64                                     # below, packing the filter of an input gradient without turning it pays


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
    return sheet_spans(w) if w.sheets else shares(w, pixels(p), w.strips)


cdef Lane strip_of(const Lane *col, int64_t width, int64_t index) noexcept nogil:
    """One of some strips of so many columns, of which the last one may have fewer."""
    cdef Lane strip = col[0]
    cdef int64_t begin = index * width
    strip.count = smaller(width, col.count - begin)
    strip.out_start += col.out_step * begin
    strip.src_start += col.src_unit * col.z_step * begin
    return strip


cdef int64_t strip_spans(const Gather *w, const Patches *p) noexcept nogil:
    """Into how many spans each strip of a lane pair's columns falls, or all of them."""
    cdef Patches first = p[0]
    cdef Lane strip
    if w.strips > 1:
        strip = strip_of(p.col, w.strip, 0)
        first.col = &strip
    return spans(w, &first)


cdef bint place_span(const Gather *w, Patches *p, int64_t index, int64_t *first, int64_t *end) noexcept nogil:
    """The pixels first <= i < end of a span. Of what planes leave, p becomes the patches. Returns whether planes are read where they lie."""
    cdef int64_t parts = spans(w, p), count = w.g.images * w.sheets if w.sheets else pixels(p), begin = 0
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
    cdef Patches p
    w.shared = shares_band(w)
    w.sheets = makes_sheets(w)
    w.channel_rows = w.sheets or (w.g.dst_c != 1 and not bands_planes(w)) or has_few_channels(w) or folds_turns(w) or (w.g.filter_dst != 1 and all_pixels < FEW_PIXELS and w.fold.rows == 0)
    w.in_turns = w.channel_rows and has_turns(w)
    w.beside = w.channel_rows and not w.in_turns and w.g.col_lanes > 1 and w.g.dst_x == 1
    w.unit, w.tile_rows = NR if w.channel_rows else MR, TILE
    w.tile_steps, w.strips, w.strip = even_steps(w), 1, 0
    if TILE > 1 and pairs == 1 and not w.channel_rows:
        fit_rows(w)
    elif pairs == 1 and not w.channel_rows and w.fold.rows == 0:
        fit_band(w)
    w.shared = w.shared and not w.channel_rows
    if pairs:
        w.rest = col_lanes(w.g)[0]
    w.rest.count = w.g.src_c % VL
    w.rest.out_start = w.rest.src_start = whole_plane(w)
    w.threads = threads
    w.pixels = SPAN * (PIXELS if w.channel_rows else PIXELS // MR * MR)
    if w.sheets:
        p = pair_patches(w, 0, 0)
        w.sheets, w.unit, w.pixels = image_sheets(&p, threads), 1, 1
    w.channels = CHANNELS // 2 if w.in_turns else CHANNELS if w.channel_rows or TILE > 1 or most_slots(w) * 2 * CHANNELS > FILTER else 2 * CHANNELS
    if not w.channel_rows and w.fold.rows == 0 and (leaves_cache(w) or w.chunks > 1):
        w.channels = near_channels(w)
    w.channels = in_panels(w.g.dst_channels, divide_up(w.g.dst_channels, w.channels))
    w.groups = 1 if w.g.dst_c != 1 and w.channel_rows else smaller(divide_up(TOGETHER, w.g.dst_channels * item_size(w.storage)), w.g.groups)
    plan_blocks(w)
    while threads > 1 and w.blocks[pairs] < (FEW_BLOCKS if w.sheets or (TILE > 1 and w.channel_rows) else BLOCKS) * threads:
        if w.channels > larger(2 * w.pixels, 2 * NR) and w.fold.rows == 0:
            w.channels = in_panels(w.channels, 2)
        elif w.pixels > 2 * MR:
            w.pixels = w.pixels // 2
        elif w.groups > 1:
            w.groups = divide_up(w.groups, 2)
        else:
            break
        plan_blocks(w)
    while TILE == 1 and threads > 1 and w.strips > 1 and w.pixels > 2 * PIXELS and w.blocks[pairs] < MANY_BLOCKS * threads:
        w.pixels = w.pixels // 2
        plan_blocks(w)
    w.filter_first = shares_filter(w, threads)
    w.step = all_pixels if w.sheets else most_pixels(w)
    w.ldp = (sheet_results(w, &p) if w.sheets else w.step) + PAD


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
    return not rows_in_place(&p) or (sizeof(real) == 4 and w.g.dst_channels < FEW_CHANNELS and slots(&p) <= FEW_SLOTS)


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
