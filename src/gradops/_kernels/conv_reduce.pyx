# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[slot, k] = sum_pixel patches(x)[pixel, slot] dy[pixel, k]: conv2d_backprop_filter, an implicit GEMM that reduces over pixels.

In parallel: blocks of (span of pixels, group, slots, channels k). Few blocks get more spans: each span sums into its own partial dw, and the partials are added in
order. Sums of few pixels are written where dw lies. Packed: patches and dy, DEPTH pixels at a time, unless they can be read where they lie; of few channels not patches but
a band of rows of x, in which they overlap; rows of 3 taps share what is read there if dy is one vector. Where channels are contiguous, both are rows of a pixel each. Else
rows of planes of x are copied once for all taps (sheets), or the operand with more columns has a row of pixels for each of them, and so has the other one if planes are long
and one of both is narrow (dots), or else it is turned; blocks have all taps of some channels in sheets, where x is read from far, or where taps lie innermost in dw, and of
one where rows of many are copied. What is summed is dw turned then or where patches have the fewer columns, or where dy, if its channels are contiguous, has few or fills
tiles worse.

*Assumes:* x, dy and dw are contiguous and aligned; the problem is that of the forward op, or mirrored, and not empty, its lanes have out_step and
filter_step 1.
"""
from libc.stdint cimport int64_t
from _blocks cimport FIRST_FREE, IN_ORDER
from _bundle cimport bundle_groups, bundled_groups
from _entry cimport exported, outcome
from _gemm cimport NOTHING, READS, ROWS, ROWS_READS, Operands, Stream, operands, rows_stream, stream, gemm_block, gemm_tile
from _partials cimport Total, aim_total, check_block, first_wave, leave_room, store_block, sum_spans
from _patches cimport Patches, Pixel, Rows, dst_in_planes, dst_in_rows, lie_in_pairs, patches, pixel, pixels, pack_pairs, pack_pixels, src_in_rows, take_channels
from _problem cimport Problem, row_lanes, col_lanes, divide_up, even_parts, smaller, larger, part, problem_size, taps_innermost, useful_threads
from _scratch cimport allocate_bytes, padded, release
from _sheet cimport Axis
from _storage cimport real, LINE, MR, NR, NV, PAIR, TILE, VL, REAL_STORAGE, borrow_blocks, begin_tiles, cache_ways, clear, end_tiles, is_intel, item_size, widen_block, pair_lines, pair_rows

cdef enum:
    DEPTH = 256                                         # pixels that are packed at a time, at most
    SLOTS = 256                                         # of a block, at most, or as many as there is room for the sums of if a band serves them all,
    BAND_SLOTS = 504                                    # and no more than these: fewer blocks copy the same band
    CHANNELS = 256                                      # of a block, at most
    MIN_BLOCKS = 32                                     # pixels are split into spans until there are as many blocks
    BLOCKS = 3                                          # of a thread: blocks shrink until there are as many
    LARGE = 1 << 21 - TILE // 8                         # bytes of a filter whose partial sums would take more memory than they are worth: of tiles 512 KiB
    MIN_SPAN = 1024                                     # pixels of a span, at least
    SHORT_SPAN = 512                                    # the same where there would be fewer blocks than SHORT_BLOCKS, and operands are packed:
    SHORT_BLOCKS = 6                                    # of blocks beside each other, each packs what they share
    FORESEEN = 2048                                     # bytes from row to row below which CPUs foresee the next ones
    FAR = 1 << 21                                       # bytes of images that no second cache keeps
    CROWDED = 4096                                      # bytes at whose multiples rows fall on one set of a first cache
    PAD = 16                                            # added to distances that would be powers of two, which crowd a few cache sets
    LD = DEPTH + PAD                                    # distance of all packed rows
    SCRATCH = (3 * DEPTH + NR) * LD                     # patches, dy and the sums, as many numbers each as DEPTH by DEPTH, and a panel to be turned


cdef bint INTEL = is_intel()
cdef int64_t WAYS = cache_ways()                        # of the first cache


cdef struct Strips:
    bint used
    int64_t rows, parts                                 # rows of dst of a strip, and strips of an image
    int64_t height, pitch                               # of each phase: its rows, and how many pixels they are apart
    int64_t margin                                      # pairs of zeros on either side of dy
    int64_t ld                                          # reals from channel to channel
    int64_t inputs, outputs                             # channels of a block
    int64_t input_blocks, output_blocks


cdef struct Sheets:                                     # of x, in all phases, and what is read of dy with them
    bint dots                                           # whether blocks are dots, else tiles
    Axis row, col
    int64_t passes, images, rows                        # so many, each of some rows of an image or of all of some images, at most
    int64_t plane                                       # numbers of a phase
    int64_t ld, dy_ld                                   # reals from channel to channel
    int64_t inputs                                      # channels of x of a block, at most; 0 if there are no sheets


cdef struct Reduce:
    const Problem *g
    int storage
    const char *x
    const char *dy
    Total dw
    int64_t slots, slot_blocks, panels, channel_blocks  # panels of NR channels
    bint turned                                         # whether blocks are [k][slot]
    bint direct                                         # whether they are summed where dw lies
    int64_t ldc                                         # distance of their rows
    int64_t unit                                        # slots that no block splits
    bint by_channel                                     # whether these are all taps of a channel of x,
    bint innermost                                      # which lie side by side in dw, too
    Strips strips                                       # of tiles
    bint dots                                           # whether blocks are dots,
    Sheets sheets
    int64_t pass_pixels                                 # of so many pixels at a time
    int64_t bundled                                     # groups that are one of the problem
    bint packed                                         # whether blocks pack both operands as tiles read them
    bint wide                                           # whether they have twice as many channels, whose sums lie where dy would be packed


cdef struct Panel:                                      # what a thread works on: a block of dw and its scratch
    int64_t span, group, slot, slots, channel, channels
    int64_t input, inputs                               # channels of x: slots are those of their taps
    real *patch
    real *dy
    real *c
    real *turn


include "conv_reduce_planes.pxi"
include "conv_reduce_band.pxi"
include "conv_reduce_dots.pxi"
include "conv_reduce_sheet.pxi"
include "conv_reduce_sheet_dots.pxi"
include "conv_reduce_sheet_lines.pxi"
include "conv_reduce_strips.pxi"
include "conv_reduce_packed.pxi"
include "conv_reduce_pairs.pxi"


cdef void plan(Reduce *w, int threads) noexcept nogil:
    """Chooses the spans, by the problem alone, and the blocks, which no sum depends on. The squarer blocks are, the less they pack."""
    cdef const Problem *g = w.g
    cdef int64_t spans, slots, channels
    w.slots, w.panels = g.filter_rows * g.filter_cols * g.src_channels, divide_up(g.dst_channels, NR)
    if TILE > 1 and w.strips.used:
        plan_strips(w, threads)
        return
    w.packed = is_packed(w)
    plan_sheets(w)
    w.direct = not w.packed and not w.sheets.inputs and is_direct(w)
    w.dots = not w.sheets.inputs and are_dots(w)
    w.pass_pixels = pass_pixels(w) if w.dots else 0
    w.turned = whole(g) and not w.sheets.inputs and (g.filter_src == 1 if w.direct else turns_dots(w) if w.dots else is_turned(w))
    w.wide = w.turned and not w.dots and is_wide(w)
    w.ldc = distance_of_sums(w)
    w.by_channel = is_by_channel(w)
    w.innermost = w.by_channel and taps_innermost(g) and not g.mirrored
    w.unit = g.filter_rows * g.filter_cols if w.by_channel else NR if w.direct and w.turned else PAIR
    w.dw.size = w.slots * g.groups * g.dst_channels
    w.slot_blocks, w.channel_blocks = divide_up(slot_units(w), most_slots(w) // w.unit), divide_up(g.dst_channels, most_channels(w))
    if w.packed:
        w.ldc = block_columns(w) + PAD
        leave_room(&w.dw, packed_scratch(w) * sizeof(real))
    if w.sheets.inputs:
        leave_room(&w.dw, sheet_scratch(w) * sizeof(real))
    w.dw.spans = larger(smaller(MIN_BLOCKS // blocks(w), most_spans(w)), 1)
    if w.dw.size * <int64_t> sizeof(real) >= LARGE:
        w.dw.spans = 1
    spans = first_wave(&w.dw, threads).count            # side by side
    while threads > 1 and spans * blocks(w) < (1 if w.packed else BLOCKS) * threads:
        slots, channels = w.slots // w.slot_blocks, g.dst_channels // w.channel_blocks
        if slots >= 4 * MR and (slots >= channels or w.dots or w.channel_blocks == w.panels):
            w.slot_blocks *= 2
        elif w.channel_blocks < w.panels:
            w.channel_blocks = smaller(2 * w.channel_blocks, w.panels)
        else:
            break
    w.slot_blocks = smaller(even_parts(w.slot_blocks, w.slots // (2 * MR), spans * g.groups * w.channel_blocks, threads), slot_units(w))


cdef int64_t slot_units(const Reduce *w) noexcept nogil:
    return divide_up(w.slots, w.unit)


cdef bint is_by_channel(const Reduce *w) noexcept nogil:
    """Whether blocks have all taps of some channels instead of some slots: planes of x are then read by one block, not by each. 3x3 taps with strides take 0.95
    to 0.98 of the time; images that a second cache keeps, whose rows are packed for fewer channels at a time, 1.0 to 1.08 (float32, Zen 4)."""
    cdef const Problem *g = w.g
    cdef Patches p = first_patches(w)
    cdef bint far = w.slots > SLOTS and g.images * g.src_n * item_size(w.storage) > FAR
    if w.sheets.inputs:
        return True
    if g.src_c == 1 or w.packed or w.direct or not whole(g) or g.filter_rows * g.filter_cols == 1 or by_band(&p):
        return False
    return reads_windows(&p) or ((far or taps_innermost(g)) and g.filter_rows * g.filter_cols <= SLOTS // 2)


cdef Patches first_patches(const Reduce *w) noexcept nogil:
    """Those of the first group and lane pair."""
    return patches(w.g, row_lanes(w.g), col_lanes(w.g), w.x, w.storage, 0)


cdef int64_t most_spans(const Reduce *w) noexcept nogil:
    """Short ones take 0.7 to 0.95 of the time of none, of 8 images of 14x14 pixels, channels first; where x lies in rows of pixels, 1.03 (2 threads of a Zen 5)."""
    cdef Patches p = first_patches(w)
    cdef int64_t all_pixels = pixels(&p) if whole(w.g) else w.g.images * w.g.dst_rows * w.g.dst_cols, few = 0 if src_in_rows(&p) else SHORT_BLOCKS // blocks(w), most
    if w.dots:
        return larger(passes(w) // PASSES, smaller(passes(w), SHORT_BLOCKS // blocks(w)))
    most = larger(all_pixels // MIN_SPAN, smaller(all_pixels // SHORT_SPAN, few))
    return smaller(most, w.sheets.passes) if w.sheets.inputs else most


cdef int64_t blocks(const Reduce *w) noexcept nogil:
    """Of a span."""
    return w.g.groups * w.slot_blocks * w.channel_blocks


cdef bint is_turned(const Reduce *w) noexcept nogil:
    """Whether dw is summed as [k][slot]. Channels last: where dy fills so little of its vectors that patches had better be the vectors: of 5x5 taps, 1 to 4
    channels take 0.4 of the time, 8 take 0.6, 16 take 0.8; of 1x1 taps, 96 to 24 and 240 to 40 0.8 in each type (float64 1.0), 32 to 16 0.85 (Zen 5).
    Channels first: where dy has more columns."""
    cdef Patches p = first_patches(w)
    if by_band(&p):
        return False
    if w.g.src_c != 1:
        return w.g.dst_channels > w.slots or reads_windows(&p)
    if src_in_rows(&p) and dst_in_rows(&p):
        return tile_steps(w.g.dst_channels, w.slots) * 10 < tile_steps(w.slots, w.g.dst_channels) * 9
    return w.g.dst_channels <= VL and w.slots > VL and not src_in_rows(&p)


cdef bint is_direct(const Reduce *w) noexcept nogil:
    """Whether blocks are summed where dw lies, in rows of whole vectors: of few pixels, to copy them would take longer than to sum them."""
    cdef const Problem *g = w.g
    cdef Patches p = first_patches(w)
    if w.storage != REAL_STORAGE or not whole(g) or g.mirrored or by_band(&p) or pixels(&p) > DEPTH:
        return False
    if g.filter_src == 1:                               # rows are channels of dy, side by side
        return w.slots % VL == 0 and (g.src_c != 1 or dst_in_rows(&p))
    return g.filter_dst == 1 and g.dst_channels % VL == 0


cdef int64_t tile_steps(int64_t m, int64_t n) noexcept nogil:
    """What a step of all tiles of m rows and n columns takes, about: multiply-adds or loads."""
    cdef int64_t tiles = divide_up(m, MR), rows = divide_up(m, tiles), left = n % NR, wide = NV if left > VL else 1
    return tiles * (n // NR * larger(rows * NV, rows + NV + 2) + (larger(rows * wide, rows + wide + 2) if left else 0))


cdef int64_t distance_of_sums(const Reduce *w) noexcept nogil:
    """From row to row of a block: where a band serves all slots, no more than its channels need, which leaves room for more slots."""
    cdef Patches p = first_patches(w)
    if w.direct:
        return w.g.filter_dst if w.turned else w.g.filter_src
    if w.sheets.inputs:
        return sums_distance(w)
    if w.dots:
        return padded(smaller(most_slots(w), w.slots) if w.turned else smaller(most_channels(w), w.g.dst_channels)) + PAD
    return smaller(divide_up(w.g.dst_channels, NR) * NR + PAD, LD) if whole(w.g) and by_band(&p) else LD


cdef int64_t most_slots(const Reduce *w) noexcept nogil:
    """Of a block. Groups of 32 channels, 3x3 taps with stride 2, take 0.65 to 0.85 of the time, of 20, 5x5 taps, 0.85 to 0.95, layers without groups 0.95 to
    1.0 (float32 and float64, Zen 4)."""
    if w.packed:
        return PACKED_COLUMNS if w.turned else packed_rows(w)
    if w.sheets.inputs:
        return w.sheets.inputs * w.g.filter_rows * w.g.filter_cols
    if w.dots:
        return FEW if packs_x(w) else SLOTS
    return smaller(DEPTH * LD // w.ldc, BAND_SLOTS) if w.ldc < LD and not w.direct else SLOTS


cdef int64_t most_channels(const Reduce *w) noexcept nogil:
    """Of a block."""
    if w.packed:
        return packed_rows(w) if w.turned else PACKED_COLUMNS
    if w.sheets.inputs:
        return sheet_outputs(w)
    return 2 * CHANNELS if w.wide or (w.dots and packs_x(w)) else CHANNELS


cdef bint is_wide(const Reduce *w) noexcept nogil:
    """Whether planes of dy are read where they lie. Of half as many blocks beside each other, each packs x: 1x1 layers with strides take 0.9 of the time
    (float32, Zen 5)."""
    cdef Patches p = first_patches(w)
    return planes(w, &p) and planes_in_place(w)


cdef bint whole(const Problem *g) noexcept nogil:
    """Whether the only lane pair has all taps."""
    return g.row_lanes * g.col_lanes == 1 and row_lanes(g).taps == g.filter_rows and col_lanes(g).taps == g.filter_cols


cdef void pack_dy(const Reduce *w, const Patches *p, int64_t channel, int64_t channels, int64_t first, int64_t count, bint by_row, real *dst, int64_t distance) noexcept nogil:
    """dst[panel][i][j] = dy[pixel first + i, channel + panel NR + j], zero beyond the channels. By row, no pair has pixels of two rows; channels of pairs come last
    then. Rows of a plane are turned together, which fills blocks: groups of 16 take 0.96 to 0.98 of the time (2 threads of a Zen 4)."""
    cdef int64_t size = item_size(w.storage), done = 0, step = 0, panel, width, left, take, steps
    cdef bint at_once = dst_in_rows(p) and not by_row, lines = PAIR > 1 and (by_row or at_once), in_planes = dst_in_planes(p) and (PAIR == 1 or not by_row)
    cdef Pixel at = pixel(p, first)
    cdef const char *src
    cdef real *rows
    while done < count:
        left = p.col.count - at.v + ((p.row.count - at.u - 1) * p.col.count if in_planes else 0)
        take = count if at_once else smaller(left, count - done)
        steps = divide_up(take, PAIR) if lines else take
        for panel in range(divide_up(channels, NR)):
            width = smaller(channels - panel * NR, NR)
            src = w.dy + dy_index(w, p, &at, channel + panel * NR) * size
            rows = dst + panel * distance + step * NR
            if width < NR:
                clear(rows, steps * NR)
            if lines:
                pair_lines(src, w.g.dst_x * size, take, width, rows, NR)
            else:
                widen_block(w.storage, src, w.g.dst_x, w.g.dst_c, take, width, rows, NR)
        done += take
        at = pixel(p, first + done)
        step += steps
    for panel in range(0 if lines else divide_up(channels, NR)):
        pair_rows(dst + panel * distance, count, NR, NR)


cdef inline int64_t dy_index(const Reduce *w, const Patches *p, const Pixel *at, int64_t channel) noexcept nogil:
    return at.n * w.g.dst_n + (p.row.out_start + at.u) * w.g.dst_y + (p.col.out_start + at.v) * w.g.dst_x + channel * w.g.dst_c


cdef Rows patch_rows(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots) noexcept nogil:
    """Patches as [pixel][slot], whose panels lie beside each other."""
    cdef Rows rows = rows_of(p.src, w.g.src_x, item_size(w.storage), first, slot, src_in_rows(p))
    rows.in_place = usable(w, &rows, not w.turned and b.channels > NR) and (not w.turned or slots % VL == 0 or (pixels(p) - first - depth) * w.g.src_x >= NR)
    if rows.in_place:
        rows.at, rows.ld, rows.panel = <const real *> rows.lies, w.g.src_x, NR
    else:
        rows.at, rows.ld, rows.panel = b.patch, LD, NR
        if PAIR > 1 and rows.lies != NULL:
            pair_lines(rows.lies, rows.row, depth, slots, b.patch, LD)
        elif PAIR > 1 and pairs_lines(p):
            pair_patches(p, first, depth, slot, slots, b.turn, b.patch)
        elif PAIR > 1 and lie_in_pairs(p):
            pack_pairs(p, first, depth, slot, slots, b.patch + DEPTH // 2 * LD, LD // 2)
            pair_lines(<const char *> (b.patch + DEPTH // 2 * LD), LD // 2 * sizeof(real), depth, slots, b.patch, LD)
        else:
            pack_pixels(p, first, depth, slot, slots, b.patch, LD)
            pair_rows(b.patch, depth, slots, LD)
    return rows


cdef Rows dy_rows(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, bint by_row) noexcept nogil:
    """Panels of dy, by row as pack_dy does. In place, the last panel reads on into the next pixels, for columns that no one uses; the last pixels have none."""
    cdef int64_t channel = b.group * w.g.dst_channels + b.channel
    cdef Rows rows = rows_of(w.dy, w.g.dst_x, item_size(w.storage), first, channel, dst_in_rows(p))
    rows.in_place = usable(w, &rows, b.slots > NR if w.turned else INTEL and w.slots >= SLOTS) and (w.turned or b.channels % VL == 0 or (pixels(p) - first - depth) * w.g.dst_x >= NR)
    if rows.in_place:
        rows.at, rows.ld, rows.panel = <const real *> rows.lies, w.g.dst_x, NR
    elif w.turned and rows.lies != NULL:
        rows.at, rows.ld = b.dy, LD
        if PAIR > 1:
            pair_lines(rows.lies, rows.row, depth, b.channels, b.dy, LD)
        else:
            widen_block(w.storage, rows.lies, w.g.dst_x, 1, depth, b.channels, b.dy, LD)
    else:
        rows.at, rows.ld, rows.panel = b.dy, NR, DEPTH * NR
        pack_dy(w, p, channel, b.channels, first, depth, by_row, b.dy, DEPTH * NR)
    return rows


cdef Rows rows_of(const char *array, int64_t pixel_step, int64_t size, int64_t first, int64_t column, bint in_rows) noexcept nogil:
    """An operand that begins with pixel `first` and a column of an array, neither packed nor used in place yet."""
    cdef Rows rows
    rows.at, rows.end, rows.ld, rows.panel, rows.in_place = NULL, NULL, 0, 0, False
    rows.lies, rows.row = array + (first * pixel_step + column) * size if in_rows else NULL, pixel_step * size
    return rows


cdef bint usable(const Reduce *w, const Rows *rows, bint again) noexcept nogil:
    """Whether rows are an operand where they lie: not if tiles read a few columns of them again and again, of which a cache does not keep as many. Of 1x1
    layers with 1024 or 2048 channels, packing them takes 0.85 to 0.9 of the time (7x7 pixels 1.0), in float64 with 512 and more 0.78 to 0.84, but 1.06
    where they are read once (Zen 5). Panels of dy, which all slots read, are kept by a second cache at most: on Intel's, of 256 slots and more, packing them takes
    0.67 to 0.94 of the time (float32, 1024 and 2048 channels), 0.86 to 0.97 (float64), of 128 slots 0.96 to 1.1 (Granite Rapids)."""
    return rows.lies != NULL and in_place(w) and not (again and rows.row % CROWDED == 0)


cdef bint in_place(const Reduce *w) noexcept nogil:
    """Whether operands are used where they lie: not by narrow tiles, which need a row again before the cache can bring it."""
    return w.storage == REAL_STORAGE and MR > 6


cdef void column_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(True, True, NOTHING, m, nv, p, a, b, c, one, two)


cdef void fetching_column_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(True, True, READS, m, nv, p, a, b, c, one, two)


cdef void far_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(True, False, ROWS, m, nv, p, a, b, c, one, two)


cdef void fetching_far_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(True, False, ROWS_READS, m, nv, p, a, b, c, one, two)


cdef void row_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef void fetching_row_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, READS, m, nv, p, a, b, c, one, two)


cdef void multiply(bint by_column, int64_t m, int64_t n, Operands *p, const real *a, const real *b, int64_t panel, real *c, Stream one, Stream two) noexcept nogil:
    """c[m, n] (+)= a' b, or a b, fetching what is needed next."""
    gemm_block(fetching_column_tile if by_column else fetching_row_tile, column_tile if by_column else row_tile, by_column, True, m, n, p, a, b, panel, c, one, two)


cdef void multiply_rows(const Reduce *w, int64_t m, int64_t n, int64_t depth, const Rows *a, const Rows *b, real *turned, real *c, bint accumulate, Stream one, Stream two) noexcept nogil:
    """c[m, n] (+)= a' b, fetching what is needed next. Rows of a that lie far apart are fetched by each tile, which CPUs do not do by themselves: 1x1 layers
    with 512 channels or more take 0.75 to 0.95 of the time (float32, Emerald Rapids), 0.95 to 1.0 (Zen 4); those with fewer would take up to 1.04."""
    cdef Operands p = operands(divide_up(depth, PAIR), NULL, a.ld, b.ld, w.ldc, accumulate)
    p.ahead = w.direct
    if TILE > 1:
        widen_block(REAL_STORAGE, <const char *> a.at, 1, a.ld, m, p.depth, turned, LD // 2)
        p.lda = LD // 2
        multiply(False, m, n, &p, turned, b.at, b.panel, c, one, two)
    elif PAIR == 1 and MR > 6 and a.in_place and a.row >= FORESEEN:
        gemm_block(fetching_far_tile, far_tile, True, True, m, n, &p, a.at, b.at, b.panel, c, one, two)
    else:
        multiply(True, m, n, &p, a.at, b.at, b.panel, c, one, two)


cdef Stream next_rows(const Rows *rows, int64_t width, int64_t depth, bint more, const real *c) noexcept nogil:
    """The rows after an operand's, `width` bytes each, column by column of cache lines, if they lie in rows and are needed next."""
    if rows.lies == NULL or not more:
        return stream(c, 0, 0, 1)
    return rows_stream(rows.lies + depth * rows.row, width, rows.row, depth, divide_up(depth, PAIR))


cdef void multiply_pixels(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, real *c, bint accumulate, bint more) noexcept nogil:
    """c (+)= x' dy or, turned, dy' x. Fetches the pixels after these, if there are more."""
    cdef Rows x = patch_rows(w, p, b, first, depth, slot, slots), dy = dy_rows(w, p, b, first, depth, False)
    cdef Stream next_x = next_rows(&x, slots * item_size(w.storage), depth, more, c), next_dy = next_rows(&dy, b.channels * item_size(w.storage), depth, more, c)
    if w.turned:
        multiply_rows(w, b.channels, slots, depth, &dy, &x, b.dy + DEPTH // 2 * LD, c, accumulate, next_x, next_dy)
    else:
        multiply_rows(w, slots, b.channels, depth, &x, &dy, b.patch + DEPTH // 2 * LD, c, accumulate, next_x, next_dy)


cdef int64_t span_begin(const Reduce *w, const Patches *p, int64_t span) noexcept nogil:
    """Where a span of pixels begins: where no pair of them is cut."""
    return smaller(part(divide_up(pixels(p), PAIR), span, w.dw.spans) * PAIR, pixels(p))


cdef int64_t pass_depth(const Reduce *w, const Patches *p) noexcept nogil:
    """Pixels of a pass. Over rows, as many bytes in each type. Where x lies in rows, and narrow tiles, which pack both, take half as many, which leaves the second
    cache to the rows that are fetched for the next pass: 1x1 layers take 0.8 to 1.0 of the time, 7x7 pixels of 1024 channels 1.06 (float32, Zen 5)."""
    cdef int64_t most = DEPTH * 4 // <int64_t> sizeof(real)
    if planes(w, p):
        return plane_depth(w, p)
    if w.storage == REAL_STORAGE and (MR <= 6 or src_in_rows(p)):
        return most // 2
    return most


cdef void reduce_run(const Reduce *w, const Patches *p, const Panel *b, int64_t pair_slot, int64_t slots, real *c, bint accumulate) noexcept nogil:
    """c (+)= the lane pair's slots from pair_slot on, summed over the block's span of pixels, some at a time."""
    cdef int64_t first = span_begin(w, p, b.span), end = span_begin(w, p, b.span + 1), most = pass_depth(w, p), depth
    if TILE == 1 and w.dots:
        reduce_dots(w, p, b)
        return
    if not w.by_channel and by_band(p):
        reduce_band(w, p, b, pair_slot, slots, c, accumulate)
        return
    while first < end:
        depth = smaller(plane_part(w, first, most) if planes(w, p) else most, end - first)
        if w.g.src_c == 1:
            multiply_pixels(w, p, b, first, depth, pair_slot, slots, c, accumulate, first + depth < end)
        else:
            multiply_planes(w, p, b, first, depth, pair_slot, slots, c, accumulate, first + depth < end)
        first += depth
        accumulate = True


cdef void reduce_pair(const Reduce *w, const Patches *p, const Panel *b) noexcept nogil:
    """Adds a lane pair that has some of the taps: its filter rows one by one, as far as they lie in the block."""
    cdef int64_t cs = w.g.src_channels, width = p.col.taps * cs, i, begin, low, high
    for i in range(p.row.taps):
        begin = ((p.row.filter_start + i) * w.g.filter_cols + p.col.filter_start) * cs
        low, high = larger(begin, b.slot), smaller(begin + width, b.slot + b.slots)
        if low < high:
            reduce_run(w, p, b, i * width + low - begin, high - low, b.c + (low - b.slot) * LD, True)


cdef bint in_line(const Problem *g) noexcept nogil:
    """Whether the slots of all taps are equally far apart in dw."""
    return g.filter_rows * g.filter_cols == 1 or g.filter_x == g.src_channels * g.filter_src


cdef int64_t index_of(const Reduce *w, const Panel *b, int64_t slot) noexcept nogil:
    """Where a slot of a block's first channel lies in dw."""
    cdef const Problem *g = w.g
    cdef int64_t at = g.filter_first + b.input * g.filter_src + b.group * g.filter_group + b.channel * g.filter_dst
    return at + slot if w.innermost else at + slot // b.inputs * g.filter_x + slot % b.inputs * g.filter_src


cdef void store_panel(const Reduce *w, const Panel *b) noexcept nogil:
    """Writes a block, turned or not."""
    cdef int64_t slot = b.slot, take
    if w.direct:
        check_block(&w.dw, b.c, w.ldc, b.channels if w.turned else b.slots, b.slots if w.turned else b.channels)
        return
    while slot < b.slot + b.slots:
        take = b.slots if w.innermost or b.inputs == 1 or (in_line(w.g) and not w.by_channel) else smaller(b.inputs - slot % b.inputs, b.slot + b.slots - slot)
        store_slots(w, b, slot, take)
        slot += take


cdef void store_slots(const Reduce *w, const Panel *b, int64_t slot, int64_t count) noexcept nogil:
    """Writes some slots of a block: of one tap or one channel, or all."""
    cdef const Problem *g = w.g
    cdef int64_t at = index_of(w, b, slot), step = 1 if w.innermost else g.filter_x if b.inputs == 1 else g.filter_src
    if w.turned:
        store_block(&w.dw, b.span, b.c + slot - b.slot, w.ldc, b.channels, count, at, g.filter_dst, step)
    else:
        store_block(&w.dw, b.span, b.c + (slot - b.slot) * w.ldc, w.ldc, count, b.channels, at, step, g.filter_dst)


cdef void take_slots(const Reduce *w, int64_t index, Panel *b) noexcept nogil:
    """Those of one of the blocks beside each other."""
    cdef int64_t first = part(slot_units(w), index, w.slot_blocks), end = part(slot_units(w), index + 1, w.slot_blocks)
    b.input, b.inputs, b.slot, b.slots = 0, w.g.src_channels, first * w.unit, smaller(end * w.unit, w.slots) - first * w.unit
    if w.by_channel:
        b.input, b.inputs, b.slot = first, end - first, 0


cdef void reduce_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block of dw, summed over one span of pixels."""
    cdef const Reduce *w = <const Reduce *> work
    cdef real *scratch = <real *> slab
    cdef int64_t slot_block = index % w.slot_blocks, i, pairs = w.g.row_lanes * w.g.col_lanes
    cdef Patches p
    cdef Panel b
    cdef Problem some
    index = index // w.slot_blocks
    take_slots(w, slot_block, &b)
    b.channel = part(w.panels, index % w.channel_blocks, w.channel_blocks) * NR
    b.channels = smaller(part(w.panels, index % w.channel_blocks + 1, w.channel_blocks) * NR, w.g.dst_channels) - b.channel
    b.group = index // w.channel_blocks % w.g.groups
    b.span = w.dw.wave.first + index // w.channel_blocks // w.g.groups
    b.patch, b.dy, b.c, b.turn = scratch, scratch + DEPTH * LD, scratch + (1 if w.wide else 2) * DEPTH * LD, scratch + 3 * DEPTH * LD
    if w.dots:
        b.c = scratch + DOT_ROOM
    if w.packed:
        place_packed(w, &b)
    if w.sheets.inputs:
        place_sheet(w, &b)
    if w.direct:
        b.c = <real *> w.dw.out + index_of(w, &b, b.slot)
    if not whole(w.g):
        clear(b.c, SLOTS * LD)
    begin_tiles(TILE, TILE)
    for i in range(pairs):
        p = patches(w.g, row_lanes(w.g) + i // w.g.col_lanes, col_lanes(w.g) + i % w.g.col_lanes, w.x, w.storage, b.group)
        if w.by_channel:
            take_channels(&p, b.input, b.inputs, &some)
            p.by_channel = w.innermost
        if may_pack() and w.packed:
            reduce_packed(w, &p, &b)
        elif TILE == 1 and w.sheets.inputs:
            reduce_sheets(w, &p, &b)
        elif whole(w.g):
            reduce_run(w, &p, &b, b.slot, b.slots, b.c, False)
        else:
            reduce_pair(w, &p, &b)
    end_tiles()
    store_panel(w, &b)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    threads = useful_threads(w.g, threads, threads)
    plan(w, threads)
    if TILE > 1 and w.strips.used:
        return sum_spans(&w.dw, reduce_strips, w, strip_blocks(w), <int> smaller(threads, w.dw.spans * strip_blocks(w)), FIRST_FREE, strip_scratch(w))
    return sum_spans(&w.dw, reduce_block, w, blocks(w), <int> smaller(threads, w.dw.spans * blocks(w)), IN_ORDER if w.direct else FIRST_FREE, padded(packed_scratch(w)) if w.packed else padded(sheet_scratch(w)) if w.sheets.inputs else SCRATCH)


cdef int drive_bundles(Reduce *w, int threads) noexcept nogil:
    """drive with several groups as one, if they fall into strips."""
    cdef const Problem *given = w.g
    cdef Strips alone = w.strips
    cdef void *memory = allocate_bytes(problem_size(given))
    cdef int failed
    if memory == NULL:
        return 1
    w.bundled = bundled_groups(given)
    bundle_groups(given, w.bundled, <Problem *> memory)
    w.g = <const Problem *> memory
    w.strips = strips_of(w)
    if not w.strips.used:
        w.g, w.bundled, w.strips = given, 1, alone
    failed = drive(w, threads)
    release(memory)
    return failed


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dw. MIXED if it is not finite: infinities of dy may have met the zeros of the padding of x."""
    cdef Reduce w
    cdef bint finite = True
    w.g, w.storage = <const Problem *> problem, storage
    w.x, w.dy = <const char *> inputs[w.g.mirrored], <const char *> inputs[1 - w.g.mirrored]
    w.bundled, w.direct, w.strips = 1, False, strips_of(&w)
    aim_total(&w.dw, storage, out, &finite)
    return outcome(drive_bundles(&w, num_threads) if bundled_groups(w.g) > 1 else drive(&w, num_threads), &finite)


borrow_blocks()
entry = exported(compute)
