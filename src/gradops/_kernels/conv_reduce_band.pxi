"""Part of `conv_reduce`: slots that are read where they lie in a band of x."""
from libc.stdint cimport int64_t
from _band cimport Band, band_index, band_rows, band_run, band_size, fits_band, pack_band, place_band, slot_index
from _gemm cimport Operands, Stream, Taps, operands, stream, gemm_packed
from _patches cimport Patches, Pixel, Rows, advance, reads_row, slots as slots_of, src_index
from _problem cimport Problem, divide_up, smaller, larger
from _storage cimport real, LINE, MR, NR, PAIR, TILE, VL, item_size
from _window cimport LEAST_CHANNELS, MOST_CHANNELS as MOST_WINDOWS, ROW_TAPS, Windows, sum_channels, sum_t

cdef enum:
    MOST_CHANNELS = 32 + 32 * PAIR                      # of a band, at most: 64, or 96 that are pairs
    MOST_COPIED = 128                                   # reals of a band for each pixel, at most
    FEW_PLANES = 8                                      # channels of x that are put side by side, at least, unless those of dy are many:
    MANY_PLANES = 80
    WIDEST_RUN = 64                                     # slots that lie side by side in a band, at most, if dy fills less than a vector,
    WIDEST_RUN_OF_PAIRS = 20                            # and if they are pairs
    SHORTEST_ROW = 6                                    # pixels of a row of a band, at least
    BAND_DEPTH = 128                                    # pixels of a band, at least, if it has room for their rows
    NEAR = 12 * 1024                                    # reals of a band that stays in a first cache, about
    PIECES = 64                                         # that are fetched with a panel, at most
    BAND = DEPTH * LD                                   # reals of a band, at most


cdef bint by_band(const Patches *p) noexcept nogil:
    """Whether slots are read where they lie in a band of x: where rows are not short and less is copied than for patches.

    Time of a band over that of patches, 3x3 taps, channels last (float32, 2 threads of a Zen 5): groups of 8 0.69, with stride 2 0.58, groups of 16 0.84
    and 0.68, of 32 0.88 and 0.98 (0.85 to 0.95 on a Zen 4); first layers 0.69 to 1; 5x5 taps, 64 and 96 channels 0.94 and 1.04; 35 channels with stride 3
    1.63; 31 to 4 and to 8 1.65 and 1.33, to 16 0.89, but 16 to 1 and to 4 0.85. Channels first, those of x are put side by side, and pixels of dy turned, as
    they are for patches if there are more slots than channels of dy: groups of 16 0.67, with stride 2 0.55; 19 to 23, 4x4 taps 0.75; 64 to 64, 5x5 taps
    0.9; alexnet's first layer 0.87, but resnet's 1.02, inception's 1.57; 3 to 128 1.04 to 1.55.

    The last pair of an odd row has a pixel beyond it, which meets a zero of dy, so not where an infinity must not. Pairs, channels last: groups of 16 0.78,
    first layers 0.8 to 0.9, 32 channels 0.9, 64 to 96 0.95, 128 0.97 to 1.2; beside a band of float32, first layers 0.55 to 0.8 (Zen 4). Channels first,
    patches of pairs are copied as they lie: 64 channels 0.85 of the time of a band, groups of 16 1.0, with strides 0.8.
    """
    cdef int64_t columns = smaller(p.col.count, DEPTH), rows
    if TILE > 1 or (PAIR > 1 and (p.g.src_c != 1 or p.g.unpadded)) or p.row.taps * p.col.taps == 1 or p.g.src_channels > MOST_CHANNELS:
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
        pack_band(p, &band, 0, b.patch)
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


cdef void add_next_planes(const char *planes, int64_t size, int64_t begin, int64_t all_pixels, int64_t depth, Pieces *pieces) noexcept nogil:
    """Of `size` bytes that planes have for all pixels, those of as many as a band has, from `begin` on."""
    cdef int64_t each = size // all_pixels
    add_pieces(pieces, planes + begin * each, depth * LINE, LINE, divide_up(each, LINE))


cdef void add_next_image(const Reduce *w, const Patches *p, const Panel *b, const Band *band, int64_t depth, Pieces *pieces) noexcept nogil:
    """add_next_rows, and what follows in dy, where channels come first: as large a part of the next image as the band is of its own, since rows are in too many
    places. Groups of 16 are 1.0 to 1.15 times as fast, others 1.0 (Zen 4)."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), n = band.first.n + 1, begin = band.first.u * p.col.count + band.first.v, all_pixels = p.row.count * p.col.count
    add_next_planes(p.src + n * g.src_n * size, g.src_channels * g.src_c * size, begin, all_pixels, depth, pieces)
    add_next_planes(w.dy + (n * g.dst_n + b.group * g.dst_channels * g.dst_c) * size, g.dst_channels * g.dst_c * size, begin, all_pixels, depth, pieces)


cdef void multiply_band(const Reduce *w, const Patches *p, const Panel *b, const Band *band, const Taps *rows, int64_t depth, int64_t panel, int64_t slot, int64_t slots, const Rows *dy, real *c, bint accumulate, bint more) noexcept nogil:
    """Adds the products of one panel of dy, which stays in the cache, and a band, run by run, the first of which fetch what is needed next."""
    cdef int64_t end = slot + slots, piece = 0, run = band_run(p), columns = smaller(b.channels - panel * NR, NR), take
    cdef Stream one, two = stream(c, 0, 0, 1)
    cdef Pieces next
    cdef bint both
    next.count = 0
    if more and dy.lies != NULL:
        add_pieces(&next, dy.lies + depth * dy.row + panel * NR * item_size(w.storage), LINE, dy.row, divide_up(columns * item_size(w.storage), LINE))
    if more and panel == 0 and w.g.src_c == 1:
        add_next_rows(w, p, band, depth, &next)
    elif more and panel == 0:
        add_next_image(w, p, b, band, depth, &next)
    c += panel * NR
    both = next.count * run > slots
    while slot < end:
        take = smaller(run - slot % run, end - slot)
        one = piece_of(&next, piece, c)
        if both:
            two = piece_of(&next, piece + 1, c)
        if take == run and slot % run == 0 and columns <= VL and has_windows(p):
            multiply_windows(p, band, rows, slot // run, b.patch + slot_index(p, band, slot), dy.at + panel * dy.panel, dy.ld, c, w.ldc, accumulate, one, two)
        else:
            multiply_run(take, columns, depth, rows, b.patch + slot_index(p, band, slot), PAIR * p.col.z_step * band.pixel, dy.at + panel * dy.panel, dy.ld, c, w.ldc, accumulate, one, two)
        slot, piece, c = slot + take, piece + 1 + both, c + take * w.ldc


cdef bint has_windows(const Patches *p) noexcept nogil:
    """Whether a row of taps is one that tiles are for, which multiply zeros beyond the ends of a row of dy. Groups of 16 channels take 0.8 to 0.85 of the time,
    with strides 0.9 (float32, Zen 5)."""
    return PAIR == 1 and MR > 6 and not p.g.unpadded and p.col.taps == ROW_TAPS and p.col.tap_step == 1 and p.col.z_step <= 2 and p.g.src_channels >= LEAST_CHANNELS


cdef void sum_next(int channels, const Windows *w, const real *x, const real *dy, real *c, int64_t row, int64_t ldc, bint accumulate, const char *one, const char *two, int64_t next_one, int64_t next_two) noexcept nogil:
    sum_channels(1, channels, w, x, dy, c, row, ldc, accumulate, one, two, next_one, next_two)


cdef void sum_second(int channels, const Windows *w, const real *x, const real *dy, real *c, int64_t row, int64_t ldc, bint accumulate, const char *one, const char *two, int64_t next_one, int64_t next_two) noexcept nogil:
    sum_channels(2, channels, w, x, dy, c, row, ldc, accumulate, one, two, next_one, next_two)


cdef void multiply_windows(const Patches *p, const Band *band, const Taps *rows, int64_t tap_row, const real *a, const real *b, int64_t ldb, real *c, int64_t ldc, bint accumulate, Stream one, Stream two) noexcept nogil:
    """multiply_run for a row of taps that share what they read, and one vector of dy: not what lies outside of the image."""
    cdef int64_t channels = p.g.src_channels, count = divide_up(channels, MOST_WINDOWS), i, first
    cdef int64_t[DEPTH] low, high
    cdef sum_t tile = sum_next if p.col.z_step == 1 else sum_second
    cdef Windows w
    cdef Pixel now = band.first
    w.count, w.at, w.depth, w.low, w.high, w.pixel = rows.count, rows.at, rows.depth, low, high, band.pixel
    w.ldb = ldb
    for i in range(rows.count):
        place_window(p, &now, tap_row, rows.depth[i], low + i, high + i)
        advance(p, &now, rows.depth[i])
    for i in range(count):
        first = part(channels, i, count)
        tile(<int> (part(channels, i + 1, count) - first), &w, a + first, b, c + first * ldc, channels * ldc, ldc, accumulate, one.at, two.at, one.step, two.step)
        one = two = stream(c, 0, 0, 1)


cdef void place_window(const Patches *p, const Pixel *at, int64_t tap_row, int64_t depth, int64_t *low, int64_t *high) noexcept nogil:
    """The steps of pixels from `at` on that read columns of the image with a row of taps; none if its row lies outside."""
    cdef int64_t step = p.col.z_step, begin = 0, end = divide_up((depth - 1) * step + ROW_TAPS, step)
    if not reads_row(p, at.u, tap_row):
        end = 0
    while begin < end and src_index(p.col, at.v + begin, step - 1) < 0:
        begin += 1
    while begin < end and src_index(p.col, at.v + end - 1, 0) >= p.g.src_cols:
        end -= 1
    low[0], high[0] = begin, end


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
