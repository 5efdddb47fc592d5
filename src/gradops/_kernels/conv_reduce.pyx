# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[slot, k] = sum_pixel patches(x)[pixel, slot] dy[pixel, k]: conv2d_backprop_filter, an implicit GEMM that reduces over pixels.

In parallel: blocks of (span of pixels, group, slots, channels k). Few blocks get more spans: each span sums into its own partial dw, and
the partials are added in order. Packed: patches and dy, DEPTH pixels at a time, unless they can be read where they lie; of few channels not patches
but a band of rows of x, in which they overlap. Where channels are contiguous, both are rows of a pixel each. Else the operand with more columns
has a row of pixels for each of them, and the other is turned.
What is summed is dw turned where patches have the fewer columns then, or where dy, if its channels are contiguous, has few.

*Assumes:* x, dy and dw are contiguous and aligned; the problem is that of the forward op and not empty, its lanes have out_step and
filter_step 1; dw is [slots][groups][k] or [groups][k][slots], as the strides of the filter say.
"""
from libc.stdint cimport int64_t
from _blocks cimport FIRST_FREE
from _entry cimport exported, outcome
from _band cimport Band, band_index, band_rows, band_run, band_size, fits_band, pack_band, place_band, slot_index
from _gemm cimport NOTHING, READS, ROWS, ROWS_READS, Operands, Stream, Taps, operands, stream, gemm_block, gemm_packed, gemm_tile
from _partials cimport Total, aim_total, first_wave, store_block, sum_spans
from _patches cimport Patches, Pixel, Rows, advance, dst_in_planes, dst_in_rows, has_pairs, patches, pixel, pixels, pack_pairs, pack_pixel_pairs, pack_pixels, pack_run_pairs, pack_slots, slots as slots_of, src_in_planes, src_in_rows, src_index
from _problem cimport Problem, row_lanes, col_lanes, divide_up, even_parts, smaller, larger, part, useful_threads
from _storage cimport real, LINE, MR, NR, PACKED_STORAGE, PAIR, VL, REAL_STORAGE, item_size, clear, widen_block, pair_columns, pair_lines, pair_rows, place_halves, prefetch_soon

cdef enum:
    DEPTH = 256                                         # pixels that are packed at a time, at most,
    LONG_DEPTH = 1024                                   # unless they are those of planes and few channels are packed
    SLOTS = 252                                         # of a block, at most, or as many as there is room for the sums of if a band serves them all,
    BAND_SLOTS = 504                                    # and no more than these: fewer blocks copy the same band
    CHANNELS = 256                                      # of a block, at most
    MIN_BLOCKS = 32                                     # pixels are split into spans until there are as many blocks
    BLOCKS = 3                                          # of a thread: blocks shrink until there are as many
    LARGE = 1 << 21                                     # bytes of a filter whose partial sums would take more memory than they are worth
    MIN_SPAN = 1024                                     # pixels of a span, at least
    SHORT_SPAN = 512                                    # the same where there would be fewer blocks than SHORT_BLOCKS, and operands are packed:
    SHORT_BLOCKS = 6                                    # of blocks beside each other, each packs what they share
    MOST_CHANNELS = 64                                  # of a band, at most
    MOST_COPIED = 128                                   # reals of a band for each pixel, at most
    FEW_PLANES = 8                                      # channels of x that are put side by side, at least, unless those of dy are many:
    MANY_PLANES = 80
    WIDEST_RUN = 64                                     # slots that lie side by side in a band, at most, if dy fills less than a vector,
    WIDEST_RUN_OF_PAIRS = 20                            # and if they are pairs
    SHORTEST_ROW = 6                                    # pixels of a row of a band, at least
    BAND_DEPTH = 128                                    # pixels of a band, at least, if it has room for their rows
    NEAR = 12 * 1024                                    # reals of a band that stays in a first cache, about
    PIECES = 64                                         # that are fetched with a panel, at most
    LEAST_PLANE = 128                                   # pixels of a plane that is read by itself, at least
    FORESEEN = 2048                                     # bytes from row to row below which CPUs foresee the next ones
    PAD = 16                                            # added to distances that would be powers of two, which crowd a few cache sets
    LD = DEPTH + PAD                                    # distance of all packed rows
    BAND = DEPTH * LD                                   # reals of a band, at most
    SCRATCH = (3 * DEPTH + NR) * LD                     # patches, dy and the sums, as many numbers each as DEPTH by DEPTH, and a panel to be turned


cdef struct Reduce:
    const Problem *g
    int storage
    const char *x
    const char *dy
    Total dw
    int64_t slots, slot_blocks, panels, channel_blocks  # panels of NR channels
    bint turned                                         # whether blocks are [k][slot]
    int64_t ldc                                         # distance of their rows
    bint wide                                           # whether they have twice as many channels, whose sums lie where dy would be packed


cdef void plan(Reduce *w, int threads) noexcept nogil:
    """Chooses the spans, by the problem alone, and the blocks, which no sum depends on."""
    cdef const Problem *g = w.g
    cdef int64_t spans
    w.slots, w.panels = g.filter_rows * g.filter_cols * g.src_channels, divide_up(g.dst_channels, NR)
    w.turned = whole(g) and is_turned(w)
    w.wide = w.turned and is_wide(w)
    w.ldc = distance_of_sums(w)
    w.slot_blocks, w.channel_blocks = divide_up(w.slots, most_slots(w)), divide_up(g.dst_channels, 2 * CHANNELS if w.wide else CHANNELS)
    w.dw.size = w.slots * g.groups * g.dst_channels
    w.dw.spans = larger(smaller(MIN_BLOCKS // blocks(w), most_spans(w)), 1)
    if w.dw.size * <int64_t> sizeof(real) > LARGE:
        w.dw.spans = 1
    spans = first_wave(&w.dw, threads).count            # side by side
    while threads > 1 and spans * blocks(w) < BLOCKS * threads:
        if w.slots // w.slot_blocks >= 4 * MR:
            w.slot_blocks *= 2
        elif w.channel_blocks < w.panels:
            w.channel_blocks = smaller(2 * w.channel_blocks, w.panels)
        else:
            break
    w.slot_blocks = even_parts(w.slot_blocks, w.slots // (2 * MR), spans * g.groups * w.channel_blocks, threads)


cdef Patches first_patches(const Reduce *w) noexcept nogil:
    """Those of the first group and lane pair."""
    return patches(w.g, row_lanes(w.g), col_lanes(w.g), w.x, w.storage, 0)


cdef int64_t most_spans(const Reduce *w) noexcept nogil:
    """Short ones take 0.7 to 0.95 of the time of none, of 8 images of 14x14 pixels, channels first; where x lies in rows of pixels, 1.03 (2 threads of a Zen 5)."""
    cdef Patches p = first_patches(w)
    cdef int64_t all_pixels = w.g.images * w.g.dst_rows * w.g.dst_cols, few = 0 if src_in_rows(&p) else SHORT_BLOCKS // blocks(w)
    return larger(all_pixels // MIN_SPAN, smaller(all_pixels // SHORT_SPAN, few))


cdef int64_t blocks(const Reduce *w) noexcept nogil:
    """Of a span."""
    return w.g.groups * w.slot_blocks * w.channel_blocks


cdef bint is_turned(const Reduce *w) noexcept nogil:
    """Whether dw is summed as [k][slot]. Channels last: where dy fills so little of its vectors that patches had better be the vectors, unless they are
    read where they lie: of 5x5 taps, 1 to 4 channels take 0.4 of the time, 8 take 0.6, 16 take 0.8 (float32, Zen 5). Channels first: where dy has more columns."""
    cdef Patches p = first_patches(w)
    if by_band(&p):
        return False
    if w.g.src_c != 1:
        return w.g.dst_channels > w.slots
    return w.g.dst_channels <= VL and w.slots > VL and not src_in_rows(&p)


cdef int64_t distance_of_sums(const Reduce *w) noexcept nogil:
    """From row to row of a block: where a band serves all slots, no more than its channels need, which leaves room for more slots."""
    cdef Patches p = first_patches(w)
    return smaller(divide_up(w.g.dst_channels, NR) * NR + PAD, LD) if whole(w.g) and by_band(&p) else LD


cdef int64_t most_slots(const Reduce *w) noexcept nogil:
    """Of a block. Groups of 32 channels, 3x3 taps with stride 2, take 0.65 to 0.85 of the time, of 20, 5x5 taps, 0.85 to 0.95, layers without groups 0.95 to
    1.0 (float32 and float64, Zen 4)."""
    return smaller(DEPTH * LD // w.ldc, BAND_SLOTS) if w.ldc < LD else SLOTS


cdef bint is_wide(const Reduce *w) noexcept nogil:
    """Whether planes of dy are read where they lie. Of half as many blocks beside each other, each packs x: 1x1 layers with strides take 0.9 of the time
    (float32, Zen 5)."""
    cdef Patches p = first_patches(w)
    return planes(w, &p) and planes_in_place(w)


cdef bint whole(const Problem *g) noexcept nogil:
    """Whether the only lane pair has all taps."""
    return g.row_lanes * g.col_lanes == 1 and row_lanes(g).taps == g.filter_rows and col_lanes(g).taps == g.filter_cols


cdef void pack_dy(const Reduce *w, const Patches *p, int64_t channel, int64_t channels, int64_t first, int64_t count, bint by_row, real *dst, int64_t distance) noexcept nogil:
    """dst[panel][i][j] = dy[pixel first + i, channel + panel NR + j], zero beyond the channels. By row, no pair has pixels of two rows."""
    cdef int64_t size = item_size(w.storage), done = 0, step = 0, panel, width, take
    cdef bint at_once = dst_in_rows(p) and not by_row, lines = PAIR > 1 and w.g.dst_c == 1 and (by_row or at_once)
    cdef Pixel at = pixel(p, first)
    cdef const char *src
    cdef real *rows
    if channels % NR:
        clear(dst + channels // NR * distance, count * NR)
    while done < count:
        take = count if at_once else smaller(p.col.count - at.v, count - done)
        for panel in range(divide_up(channels, NR)):
            width = smaller(channels - panel * NR, NR)
            src = w.dy + dy_index(w, p, &at, channel + panel * NR) * size
            rows = dst + panel * distance + step * NR
            if lines:
                pair_lines(src, w.g.dst_x * size, take, width, rows, NR)
            else:
                widen_block(w.storage, src, w.g.dst_x, w.g.dst_c, take, width, rows, NR)
            if by_row and not lines:
                pair_rows(rows, take, NR, NR)
        advance(p, &at, take)
        done += take
        step += divide_up(take, PAIR) if by_row or lines else take
    for panel in range(divide_up(channels, NR) if not (by_row or lines) else 0):
        pair_rows(dst + panel * distance, count, NR, NR)


cdef inline int64_t dy_index(const Reduce *w, const Patches *p, const Pixel *at, int64_t channel) noexcept nogil:
    return at.n * w.g.dst_n + (p.row.out_start + at.u) * w.g.dst_y + (p.col.out_start + at.v) * w.g.dst_x + channel * w.g.dst_c


cdef struct Panel:                                      # what a thread works on: a block of dw and its scratch
    int64_t span, group, slot, slots, channel, channels
    real *patch
    real *dy
    real *c
    real *turn


cdef Rows patch_rows(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots) noexcept nogil:
    """Patches as [pixel][slot], whose panels lie beside each other."""
    cdef Rows rows = rows_of(p.src, w.g.src_x, item_size(w.storage), first, slot, src_in_rows(p))
    rows.in_place = usable(w, &rows)
    if rows.in_place:
        rows.at, rows.ld = <const real *> rows.lies, w.g.src_x
    else:
        rows.at, rows.ld, rows.panel = b.patch, LD, NR
        if PAIR > 1 and rows.lies != NULL:
            pair_lines(rows.lies, rows.row, depth, slots, b.patch, LD)
        elif PAIR > 1 and w.g.src_c == 1 and w.g.src_channels % PAIR == 0 and slot % PAIR == 0 and slots % PAIR == 0:
            pack_pairs(p, first, depth, slot, slots, b.patch + DEPTH // 2 * LD, LD // 2)
            pair_lines(<const char *> (b.patch + DEPTH // 2 * LD), LD // 2 * sizeof(real), depth, slots, b.patch, LD)
        elif PAIR > 1 and p.runs:
            pack_run_pairs(p, first, depth, slot, slots, b.patch + DEPTH // 2 * LD, LD // 2)
            pair_lines(<const char *> (b.patch + DEPTH // 2 * LD), LD // 2 * sizeof(real), depth, slots, b.patch, LD)
        else:
            pack_pixels(p, first, depth, slot, slots, b.patch, LD)
            pair_rows(b.patch, depth, slots, LD)
    return rows


cdef Rows dy_rows(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, bint by_row) noexcept nogil:
    """Panels of dy, by row as pack_dy does. In place, the last panel reads on into the next pixels, for columns that no one uses; the last pixels have none."""
    cdef int64_t channel = b.group * w.g.dst_channels + b.channel
    cdef Rows rows = rows_of(w.dy, w.g.dst_x, item_size(w.storage), first, channel, dst_in_rows(p))
    rows.in_place = usable(w, &rows) and (b.channels % VL == 0 or (pixels(p) - first - depth) * w.g.dst_x >= NR)
    if rows.in_place:
        rows.at, rows.ld, rows.panel = <const real *> rows.lies, w.g.dst_x, NR
    else:
        rows.at, rows.ld, rows.panel = b.dy, NR, DEPTH * NR
        pack_dy(w, p, channel, b.channels, first, depth, by_row, b.dy, DEPTH * NR)
    return rows


cdef Rows rows_of(const char *array, int64_t pixel_step, int64_t size, int64_t first, int64_t column, bint in_rows) noexcept nogil:
    """An operand that begins with pixel `first` and a column of an array, neither packed nor used in place yet."""
    cdef Rows rows
    rows.at, rows.ld, rows.panel, rows.in_place = NULL, 0, 0, False
    rows.lies, rows.row = array + (first * pixel_step + column) * size if in_rows else NULL, pixel_step * size
    return rows


cdef bint usable(const Reduce *w, const Rows *rows) noexcept nogil:
    """Whether rows can be an operand where they lie."""
    return rows.lies != NULL and in_place(w)


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


cdef void multiply_rows(int64_t m, int64_t n, int64_t depth, const Rows *a, const Rows *b, real *c, bint accumulate, Stream one, Stream two) noexcept nogil:
    """c[m, n] (+)= a' b, fetching what is needed next. Rows of a that lie far apart are fetched by each tile, which CPUs do not do by themselves: 1x1 layers
    with 512 channels or more take 0.75 to 0.95 of the time (float32, Emerald Rapids), 0.95 to 1.0 (Zen 4); those with fewer would take up to 1.04."""
    cdef Operands p = operands(divide_up(depth, PAIR), NULL, a.ld, b.ld, LD, accumulate)
    if PAIR == 1 and MR > 6 and a.in_place and a.row >= FORESEEN:
        gemm_block(fetching_far_tile, far_tile, True, True, m, n, &p, a.at, b.at, b.panel, c, one, two)
    else:
        multiply(True, m, n, &p, a.at, b.at, b.panel, c, one, two)


cdef Stream next_rows(const Rows *rows, int64_t width, int64_t depth, bint more, const real *c) noexcept nogil:
    """The rows after an operand's, `width` bytes each, column by column of cache lines, if they lie in rows and are needed next."""
    cdef Stream following
    if rows.lies == NULL or not more:
        return stream(c, 0, 0, 1)
    following = stream(rows.lies + depth * rows.row, LINE, rows.row * PAIR, divide_up(width, LINE))
    following.far = rows.row
    return following


cdef void multiply_pixels(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, real *c, bint accumulate, bint more) noexcept nogil:
    """c (+)= x' dy or, turned, dy' x. Fetches the pixels after these, if there are more."""
    cdef Rows x = patch_rows(w, p, b, first, depth, slot, slots), dy = dy_rows(w, p, b, first, depth, False)
    cdef Stream next_x = next_rows(&x, slots * item_size(w.storage), depth, more, c), next_dy = next_rows(&dy, b.channels * item_size(w.storage), depth, more, c)
    if w.turned:
        multiply_rows(b.channels, slots, depth, &dy, &x, c, accumulate, next_x, next_dy)
    else:
        multiply_rows(slots, b.channels, depth, &x, &dy, c, accumulate, next_x, next_dy)


cdef Rows planes_of(const char *array, int64_t image_step, int64_t size, int64_t plane, int64_t first, int64_t channel, bint in_planes) noexcept nogil:
    """An operand of channels that begins with pixel `first` of all images, neither packed nor used in place yet."""
    cdef Rows rows
    rows.at, rows.ld, rows.panel, rows.in_place = NULL, 0, 0, False
    rows.lies, rows.row = array + (first // plane * image_step + channel * plane + first % plane) * size if in_planes else NULL, plane * size
    return rows


cdef Rows patch_planes(const Reduce *w, const Patches *p, int64_t first, int64_t slot) noexcept nogil:
    return planes_of(p.src, w.g.src_n, item_size(w.storage), w.g.src_c, first, slot, src_in_planes(p) and planes(w, p))


cdef Rows dy_planes(const Reduce *w, const Patches *p, const Panel *b, int64_t first) noexcept nogil:
    return planes_of(w.dy, w.g.dst_n, item_size(w.storage), w.g.dst_c, first, b.group * w.g.dst_channels + b.channel, planes(w, p))


cdef bint planes(const Reduce *w, const Patches *p) noexcept nogil:
    """Whether channels come first, and those of dy are planes large enough to be multiplied by themselves."""
    return w.g.src_c != 1 and dst_in_planes(p) and w.g.dst_c >= LEAST_PLANE


cdef bint planes_in_place(const Reduce *w) noexcept nogil:
    """Whether planes are used where they lie: bfloat16 as the pairs that neighbouring pixels are, of an even number of them."""
    return w.storage == PACKED_STORAGE and MR > 6 and w.g.dst_c % PAIR == 0


cdef int64_t plane_part(const Reduce *w, int64_t first, int64_t most) noexcept nogil:
    """Pixels from `first` to the end of its part of a plane, which falls into even parts."""
    cdef int64_t size = w.g.dst_c, each = divide_up(divide_up(size, divide_up(size, most)), VL) * VL, at = first % size
    return smaller(each - at % each, size - at)


cdef int64_t plane_depth(const Reduce *w, const Patches *p) noexcept nogil:
    """Pixels of a part of a plane, at most, by the problem alone. The longer planes are read where they lie, the better CPUs fetch what comes next by
    themselves; few channels of the other operand are turned for as many. 16 to 96 channels of 112x112 take 0.75 of the time, 64 to 64 of 56x56 0.95, 64 to
    256 1.0 (float32, Zen 5)."""
    cdef int64_t panels = divide_up(w.slots if w.turned else w.g.dst_channels, NR)
    if not planes_in_place(w) or not src_in_planes(p):
        return DEPTH
    return larger(smaller(DEPTH * LD // (panels * NR), LONG_DEPTH) // VL * VL, DEPTH)


cdef void rows_by_channel(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, Rows *rows) noexcept nogil:
    """The operand with more columns, as [column][pixel]. Planes of 32x32 to 128x128, whose rows share a set of the first cache, as well: packed, they take
    1.0 to 1.7 of the time (float32 and float64, Zen 5)."""
    rows.in_place = rows.lies != NULL and planes_in_place(w)
    if rows.in_place:
        rows.at, rows.ld = <const real *> rows.lies, rows.row // <int64_t> sizeof(real)
        return
    rows.ld = LD
    if has_halves(p, w.turned):
        rows.at = b.dy if w.turned else b.patch
        halves_by_column(w, p, b, first, depth, 0 if w.turned else slot, b.channels if w.turned else slots, w.turned, b.dy if w.turned else b.patch)
    elif w.turned:
        rows.at = b.dy
        copy_dy(w, p, b, first, depth)
        pair_columns(b.dy, b.channels, depth, LD)
    else:
        rows.at = b.patch
        pack_slots(p, first, depth, slot, slots, b.patch, LD)
        pair_columns(b.patch, slots, depth, LD)


cdef void turned_panels(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, Rows *rows) noexcept nogil:
    """The operand with fewer columns, as panels [pixel][NR]; no one uses what lies beyond the columns."""
    cdef int64_t panel, columns = slots if w.turned else b.channels
    cdef real *dst = b.patch if w.turned else b.dy
    rows.ld, rows.panel = NR, larger(depth, DEPTH) * NR
    if (PAIR > 1 and rows.lies != NULL and planes_in_place(w)) or has_halves(p, not w.turned):
        rows.at = dst
        for panel in range(divide_up(columns, NR)):
            turn_pairs(w, p, b, first, depth, slot, panel * NR, smaller(columns - panel * NR, NR), rows, dst + panel * rows.panel)
        return
    if not w.turned:
        rows.at = b.dy
        pack_dy(w, p, b.group * w.g.dst_channels + b.channel, b.channels, first, depth, False, b.dy, rows.panel)
        return
    rows.at = b.patch
    for panel in range(divide_up(slots, NR)):
        turn_panel(w, p, b, first, depth, slot + panel * NR, smaller(slots - panel * NR, NR), rows.lies + panel * NR * rows.row if rows.lies != NULL else NULL, rows.row, b.patch + panel * rows.panel)


cdef bint has_halves(const Patches *p, bint of_dy) noexcept nogil:
    """Whether pixels of an operand are copied as the pairs that they are in planes."""
    return PAIR > 1 and (of_dy or has_pairs(p))


cdef void halves_by_column(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t count, int64_t column, int64_t columns, bint of_dy, real *dst) noexcept nogil:
    """dst[j] = the pairs of pixels of slot column + j or, of dy, of the block's channel column + j, an odd one with a zero beside it."""
    cdef int64_t done = 0, take
    cdef Pixel at = pixel(p, first)
    if not of_dy:
        pack_pixel_pairs(p, first, count, column, columns, dst, LD)
    while of_dy and done < count:
        take = p.col.count - at.v if not dst_in_planes(p) else (p.row.count - at.u) * p.col.count - at.v
        take = smaller(take, count - done)
        place_halves(w.dy + dy_index(w, p, &at, b.group * w.g.dst_channels + b.channel + column) * item_size(w.storage), w.g.dst_c * item_size(w.storage), columns,
                     1, 0, take, take, <char *> dst + done * item_size(w.storage), LD)
        done += take
        at = pixel(p, first + done)
    if count % PAIR:
        place_halves(NULL, 0, columns, 1, 0, 0, 1, <char *> dst + count * item_size(w.storage), LD)


cdef void turn_pairs(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t column, int64_t columns, const Rows *rows, real *dst) noexcept nogil:
    """A panel of pairs of pixels, from where they lie in planes or by way of columns of them, which have room for DEPTH."""
    cdef int64_t done = 0, some
    if rows.lies != NULL and planes_in_place(w):
        widen_block(REAL_STORAGE, rows.lies + column * rows.row, 1, rows.row // <int64_t> sizeof(real), depth // PAIR, columns, dst, NR)
        done = depth
    while done < depth:
        some = smaller(depth - done, DEPTH)
        halves_by_column(w, p, b, first + done, some, column + (slot if w.turned else 0), columns, not w.turned, b.turn)
        widen_block(REAL_STORAGE, <const char *> b.turn, 1, LD, divide_up(some, PAIR), columns, dst + done // PAIR * NR, NR)
        done += some


cdef void turn_panel(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, const char *lies, int64_t row, real *dst) noexcept nogil:
    """dst[i][j] = the value of pixel first + i at slot + j < slots, from where it lies in planes or by way of rows of pixels, which have room for DEPTH."""
    cdef int64_t done = 0, some, j
    if lies != NULL and slots >= VL:
        widen_block(w.storage, lies, 1, row // item_size(w.storage), depth, slots, dst, NR)
        done = depth
    while done < depth:
        some = smaller(depth - done, DEPTH)
        pack_slots(p, first + done, some, slot, slots, b.turn, LD)
        for j in range(slots, NR):
            clear(b.turn + j * LD, some)
        widen_block(REAL_STORAGE, <const char *> b.turn, 1, LD, some, NR, dst + done * NR, NR)
        done += some
    pair_rows(dst, depth, NR, NR)


cdef void copy_dy(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t count) noexcept nogil:
    """b.dy[k][i] = dy[pixel first + i, k] for the channels k of the block."""
    cdef int64_t done = 0, take
    cdef Pixel at = pixel(p, first)
    while done < count:
        take = smaller(p.col.count - at.v, count - done)
        widen_block(w.storage, w.dy + dy_index(w, p, &at, b.group * w.g.dst_channels + b.channel) * item_size(w.storage), w.g.dst_c, w.g.dst_x,
                    b.channels, take, b.dy + done, LD)
        advance(p, &at, take)
        done += take


cdef Stream next_plane_rows(const Reduce *w, const Rows *now, const Rows *next, int64_t columns, int64_t depth, bint more, const real *c) noexcept nogil:
    """The pixels that an operand's planes have next. Few planes are fetched at once, since a tile has as many steps as pixels."""
    cdef int64_t lines = divide_up(depth * item_size(w.storage), LINE), i, j
    cdef Stream following
    if now.lies == NULL or not more:
        return stream(c, 0, 0, 1)
    if 4 * columns >= 3 * depth:
        following = stream(next.lies, LINE, next.row * PAIR, lines)
        following.far = next.row
        return following
    if depth > DEPTH:                                   # CPUs fetch long rows by themselves
        return stream(c, 0, 0, 1)
    for i in range(columns):
        for j in range(lines):
            prefetch_soon(next.lies + i * next.row + j * LINE)
    return stream(c, 0, 0, 1)


cdef void multiply_planes(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, real *c, bint accumulate, bint more) noexcept nogil:
    """c (+)= x' dy or, turned, dy' x. Fetches the pixels after these, if there are more."""
    cdef Rows x = patch_planes(w, p, first, slot), dy = dy_planes(w, p, b, first), next_x, next_dy
    cdef Rows *tall = &dy if w.turned else &x
    cdef Rows *flat = &x if w.turned else &dy
    cdef int64_t rows = b.channels if w.turned else slots, columns = slots if w.turned else b.channels
    cdef Operands product
    rows_by_channel(w, p, b, first, depth, slot, slots, tall)
    turned_panels(w, p, b, first, depth, slot, slots, flat)
    next_x, next_dy = patch_planes(w, p, first + depth, slot), dy_planes(w, p, b, first + depth)
    product = operands(divide_up(depth, PAIR), NULL, tall.ld, NR, LD, accumulate)
    multiply(False, rows, columns, &product, tall.at, flat.at, flat.panel, c,
             next_plane_rows(w, &x, &next_x, slots, depth, more, c), next_plane_rows(w, &dy, &next_dy, b.channels, depth, more, c))


cdef bint by_band(const Patches *p) noexcept nogil:
    """Whether slots are read where they lie in a band of x: where rows are not short and less is copied than for patches.

    Time of a band over that of patches, 3x3 taps, channels last (float32, 2 threads of a Zen 5): groups of 8 0.69, with stride 2 0.58, groups of 16 0.84
    and 0.68, of 32 0.88 and 0.98 (0.85 to 0.95 on a Zen 4); first layers 0.69 to 1; 5x5 taps, 64 and 96 channels 0.94 and 1.04; 35 channels with stride 3
    1.63; 31 to 4 and to 8 1.65 and 1.33, to 16 0.89, but 16 to 1 and to 4 0.85. Channels first, those of x are put side by side, and pixels of dy turned, as
    they are for patches if there are more slots than channels of dy: groups of 16 0.67, with stride 2 0.55; 19 to 23, 4x4 taps 0.75; 64 to 64, 5x5 taps
    0.9; alexnet's first layer 0.87, but resnet's 1.02, inception's 1.57; 3 to 128 1.04 to 1.55.

    Pairs of bfloat16, channels last: groups of 16 0.78, first layers 0.8 to 0.9, 64 and 32 channels 0.95 and 0.9; beside a band of float32, first layers 0.55
    to 0.8 (Zen 4). Channels first, patches of pairs are copied as they lie: 64 channels 0.85 of the time of a band, groups of 16 1.0, with strides 0.8.
    """
    cdef int64_t columns = smaller(p.col.count, DEPTH), rows
    if (PAIR > 1 and p.g.src_c != 1) or p.row.taps * p.col.taps == 1 or p.g.src_channels > MOST_CHANNELS:
        return False
    if p.g.dst_channels < VL and band_run(p) > (WIDEST_RUN if PAIR == 1 else WIDEST_RUN_OF_PAIRS):
        return False
    if p.g.src_c != 1 and p.g.src_channels > 1 and (p.g.dst_channels > slots_of(p) or (p.g.src_channels < FEW_PLANES and p.g.dst_channels < MANY_PLANES)):
        return False
    if p.col.count < SHORTEST_ROW or not fits_band(p, BAND, columns, 1):
        return False
    rows = smaller(rows_of_band(p), p.row.count)
    if band_size(p, rows, columns, 1) > rows * columns * slots_of(p):
        return False
    return p.row.z_step * p.col.z_step * p.g.src_channels <= smaller(slots_of(p), MOST_COPIED)


cdef int64_t rows_of_band(const Patches *p) noexcept nogil:
    """As many rows of pixels as a first cache has room for, or as make a band long enough."""
    return smaller(larger(band_rows(p, NEAR, 1), BAND_DEPTH // p.col.count), band_rows(p, BAND, 1))


cdef int64_t span_begin(const Reduce *w, const Patches *p, int64_t span) noexcept nogil:
    """Where a span of pixels begins: where no pair of them is cut."""
    return smaller(part(divide_up(pixels(p), PAIR), span, w.dw.spans) * PAIR, pixels(p))


cdef int64_t band_depth(const Patches *p, int64_t first, int64_t end) noexcept nogil:
    """Pixels of a band: to the end of a row, or an even part of it, and more rows."""
    cdef int64_t columns = p.col.count, row = smaller(columns - first % columns, end - first), depth = divide_up(row, divide_up(row, DEPTH))
    return depth + smaller((smaller(end - first, DEPTH) - depth) // columns, rows_of_band(p) - 1) * columns if depth == row else depth


cdef void reduce_band(const Reduce *w, const Patches *p, const Panel *b, int64_t pair_slot, int64_t slots, real *c, bint accumulate) noexcept nogil:
    """reduce_run with each row of x copied once: windows overlap there, a step of pixels apart, so nothing is copied per tap."""
    cdef int64_t first = span_begin(w, p, b.span), end = span_begin(w, p, b.span + 1), depth, panel
    cdef int64_t[DEPTH] at, depths
    cdef Band band
    cdef Rows dy
    cdef Taps rows
    rows.at, rows.depth = at, depths
    while first < end:
        depth = band_depth(p, first, end)
        place_band(p, first, depth, pair_slot, slots, 1, &band)
        dy = dy_rows(w, p, b, first, depth, True)
        pack_band(p, &band, b.patch)
        rows.count = place_rows(p, &band, depth, at, depths)
        for panel in range(divide_up(b.channels, NR)):
            multiply_band(w, p, b, &band, &rows, depth, panel, pair_slot, slots, &dy, c, accumulate, first + depth < end)
        first += depth
        accumulate = True


cdef int64_t place_rows(const Patches *p, const Band *band, int64_t depth, int64_t *at, int64_t *depths) noexcept nogil:
    """Where each row of pixels begins in a band, and how many steps it has. Returns how many rows there are."""
    cdef int64_t count = 0, run
    cdef Pixel now = band.first
    while depth > 0:
        run = smaller(p.col.count - now.v, depth)
        at[count], depths[count] = band_index(p, band, &now), divide_up(run, PAIR)
        advance(p, &now, run)
        depth -= run
        count += 1
    return count


cdef struct Pieces:                                     # memory that is needed next: each has as many lines as there are pixels, a step apart
    int64_t count
    const char *at[PIECES]
    int64_t step[PIECES]


cdef void add_pieces(Pieces *pieces, const char *at, int64_t distance, int64_t step, int64_t count) noexcept nogil:
    """So many more, as far as there is room, a distance apart."""
    cdef int64_t i
    for i in range(smaller(count * PAIR, PIECES - pieces.count)):
        pieces.at[pieces.count], pieces.step[pieces.count] = at + i // PAIR * distance + i % PAIR * step, step * PAIR
        pieces.count += 1


cdef void add_next_rows(const Reduce *w, const Patches *p, const Band *band, int64_t depth, Pieces *pieces) noexcept nogil:
    """What follows on a band in x: as many pixels as there are, for each step between them."""
    cdef int64_t size = item_size(w.storage), row = w.g.src_x * size, width = band.pixel * size, i
    cdef int64_t steps = smaller(p.row.src_unit * p.row.z_step, PIECES) * smaller(p.col.src_unit * p.col.z_step, PIECES)
    cdef int64_t y = larger(smaller(src_index(p.row, band.last.u, p.row.taps - 1) + 1, w.g.src_rows), 0)
    cdef const char *at = p.src + (band.last.n * w.g.src_n + y * w.g.src_y) * size
    if row == width:
        add_pieces(pieces, at, depth * LINE, LINE, divide_up(steps * width, LINE))
        return
    for i in range(smaller(steps, PIECES)):
        add_pieces(pieces, at + i * depth * row, LINE, row, divide_up(width, LINE))


cdef void multiply_band(const Reduce *w, const Patches *p, const Panel *b, const Band *band, const Taps *rows, int64_t depth, int64_t panel, int64_t slot, int64_t slots, const Rows *dy, real *c, bint accumulate, bint more) noexcept nogil:
    """Adds the products of one panel of dy, which stays in the cache, and a band, run by run, the first of which fetch what is needed next."""
    cdef int64_t end = slot + slots, piece = 0, run = band_run(p), columns = smaller(b.channels - panel * NR, NR), take
    cdef Stream one, two = stream(c, 0, 0, 1)
    cdef Pieces next
    cdef bint both
    next.count = 0
    if more and dy.lies != NULL:
        add_pieces(&next, dy.lies + depth * dy.row + panel * NR * item_size(w.storage), LINE, dy.row, divide_up(columns * item_size(w.storage), LINE))
    if more and panel == 0:
        add_next_rows(w, p, band, depth, &next)
    c += panel * NR
    both = next.count * run > slots
    while slot < end:
        take = smaller(run - slot % run, end - slot)
        one = piece_of(&next, piece, c)
        if both:
            two = piece_of(&next, piece + 1, c)
        multiply_run(take, columns, depth, rows, b.patch + slot_index(p, band, slot), PAIR * p.col.z_step * band.pixel, dy.at + panel * dy.panel, dy.ld, c, w.ldc, accumulate, one, two)
        slot, piece, c = slot + take, piece + 1 + both, c + take * w.ldc


cdef inline Stream piece_of(const Pieces *pieces, int64_t piece, const real *c) noexcept nogil:
    """The stream of a piece, or of nothing."""
    if piece < pieces.count:
        return stream(pieces.at[piece], 0, pieces.step[piece], 1)
    return stream(c, 0, 0, 1)


cdef void multiply_run(int64_t m, int64_t n, int64_t depth, const Taps *rows, const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc, bint accumulate, Stream one, Stream two) noexcept nogil:
    """c (+)= band' dy for slots that lie side by side. The first tile fetches what is needed next: narrow ones are bound by their loads."""
    cdef Operands p = operands(depth, rows, lda, ldb, ldc, accumulate)
    cdef int64_t count = divide_up(m, divide_up(m, MR)) if one.step else 0
    if count:
        multiply(True, count, n, &p, a, b, NR, c, one, two)
    if count < m:
        gemm_packed(column_tile, True, m - count, n, &p, a + count, b, NR, c + count * ldc)


cdef int64_t pass_depth(const Reduce *w, const Patches *p) noexcept nogil:
    """Pixels of a pass. Over rows, as many bytes in each type. Half as many leave the second cache to the rows that are fetched for the next one: of 1x1
    layers with more channels of dy than of x, where both lie, 0.8 to 1.0 of the time, of the others 1.02; of narrow tiles, which pack both, 0.98 (float32, Zen 5)."""
    cdef int64_t most = DEPTH * 4 // <int64_t> sizeof(real)
    if planes(w, p):
        return plane_depth(w, p)
    if w.storage == REAL_STORAGE and (MR <= 6 or (src_in_rows(p) and w.g.dst_channels > w.slots)):
        return most // 2
    return most


cdef void reduce_run(const Reduce *w, const Patches *p, const Panel *b, int64_t pair_slot, int64_t slots, real *c, bint accumulate) noexcept nogil:
    """c (+)= the lane pair's slots from pair_slot on, summed over the block's span of pixels, some at a time."""
    cdef int64_t first = span_begin(w, p, b.span), end = span_begin(w, p, b.span + 1), most = pass_depth(w, p), depth
    if by_band(p):
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


cdef void store_panel(const Reduce *w, const Panel *b) noexcept nogil:
    """Writes a block, turned or not."""
    cdef const Problem *g = w.g
    cdef int64_t at = b.slot * g.filter_src + b.group * g.filter_group + b.channel * g.filter_dst
    if w.turned:
        store_block(&w.dw, b.span, b.c, w.ldc, b.channels, b.slots, at, g.filter_dst, g.filter_src)
    else:
        store_block(&w.dw, b.span, b.c, w.ldc, b.slots, b.channels, at, g.filter_src, g.filter_dst)


cdef void reduce_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block of dw, summed over one span of pixels."""
    cdef const Reduce *w = <const Reduce *> work
    cdef real *scratch = <real *> slab
    cdef int64_t slot_block = index % w.slot_blocks, i, pairs = w.g.row_lanes * w.g.col_lanes
    cdef Patches p
    cdef Panel b
    index = index // w.slot_blocks
    b.slot = part(divide_up(w.slots, PAIR), slot_block, w.slot_blocks) * PAIR
    b.slots = smaller(part(divide_up(w.slots, PAIR), slot_block + 1, w.slot_blocks) * PAIR, w.slots) - b.slot
    b.channel = part(w.panels, index % w.channel_blocks, w.channel_blocks) * NR
    b.channels = smaller(part(w.panels, index % w.channel_blocks + 1, w.channel_blocks) * NR, w.g.dst_channels) - b.channel
    b.group = index // w.channel_blocks % w.g.groups
    b.span = w.dw.wave.first + index // w.channel_blocks // w.g.groups
    b.patch, b.dy, b.c, b.turn = scratch, scratch + DEPTH * LD, scratch + (1 if w.wide else 2) * DEPTH * LD, scratch + 3 * DEPTH * LD
    if not whole(w.g):
        clear(b.c, SLOTS * LD)
    for i in range(pairs):
        p = patches(w.g, row_lanes(w.g) + i // w.g.col_lanes, col_lanes(w.g) + i % w.g.col_lanes, w.x, w.storage, b.group)
        if whole(w.g):
            reduce_run(w, &p, &b, b.slot, b.slots, b.c, False)
        else:
            reduce_pair(w, &p, &b)
    store_panel(w, &b)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    threads = useful_threads(w.g, threads, threads)
    plan(w, threads)
    return sum_spans(&w.dw, reduce_block, w, blocks(w), <int> smaller(threads, w.dw.spans * blocks(w)), FIRST_FREE, SCRATCH)


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dw. MIXED if it is not finite: infinities of dy may have met the zeros of the padding of x."""
    cdef Reduce w
    cdef bint finite = True
    w.g, w.storage = <const Problem *> problem, storage
    w.x, w.dy = <const char *> inputs[0], <const char *> inputs[1]
    aim_total(&w.dw, storage, out, &finite)
    return outcome(drive(&w, num_threads), &finite)


entry = exported(compute)
