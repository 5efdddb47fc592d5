"""Part of `conv_gather`: pixel rows of a band, which are copied once, and from which each tap of a register tile reads its own."""
from libc.stdint cimport int64_t
from _band cimport MOST_TAPS, Band, band_index, band_lines, extent, fills_tiles, fits_band, has_band, has_few_taps, joins_taps, pack_band, place_band, place_taps, tap_run, taps_inside, within
from _gemm cimport KC, LD, TAPS, Operands, Taps, at_result, operands, gemm_tile
from _lines cimport Lines, lines_left, lines_of, no_lines, take_lines
from _patches cimport Patches, Pixel, advance, patches, pixel, slots
from _problem cimport Lane, Problem, row_lanes, col_lanes, divide_up, hull, larger, part, smaller
from _storage cimport real, MR, NR, NV, PAIR, TILE, VL, item_size, narrow_block
from _window cimport LEAST_PIXELS, gather_windows

cdef enum:
    MOST_BANDED = 64 + TILE // 2 * 8                    # channels of planes that are copied into a band, at most; for tiles 128
    LONG_ROW = 64                                       # pixels of a row of so few channels that it is not
    MOST_PHASES = 4                                     # phases whose results are put in order before planes of them are written, at most,
    MOST_IMAGE = 128                                    # and channels of them
    STRIP = 4 * MR                                      # columns of a strip of a band of pairs, at most, which is for so many channels
    MANY_PAIRED = 64
    LEAST_BANDED = 2 * MR                               # of pixels that are multiplied at a time
    MOST_TILES = PIXELS // 2                            # of a block: no row has fewer than LEAST_COLUMNS pixels, no tile fewer than half of MR but one of a row


cdef bint bands_planes(const Gather *w) noexcept nogil:
    """Whether rows of planes become a band, whose products become planes again, instead of patches, copied for each tap: of one lane pair, or of several that
    share it, and if the channels of dst fill enough of their vectors.

    Time of patches over that of a band, 2 threads of a Zen 4 (float32, bfloat16): groups of 16, 14x14 1.5 and 1.9, with strides 1.5 and 0.9, their gradients
    1.5 to 2 and 1.6; of 32 with strides 1.6 and 1.6, their gradients 1.9 and 2.6; 5x5 taps, 32 and 64 channels 1.1 to 1.4; 16 to 16, 3x3 taps, 14x14 1.9, 56x56
    1.1 and 1.0, 112x112 1.0 and 0.8. Without this rule: groups of 8 0.8, 16 to 20 channels 0.9, 41 to 37 0.85, 8 to 48 with strides 0.8, 128 to 128 with
    strides 0.95, in tiles 1.2 to 1.3 (Granite Rapids).
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
    return w.shared if pairs > 1 else keeps_band(w, &p) or (has_band(&p) and banded_pixels(w.g, p.row, p.col, band_room(w)) > 0)


cdef bint keeps_band(const Gather *w, const Patches *p) noexcept nogil:
    """Whether a band of pairs is copied for all passes at once, however many channels it has: if it fits, wherever it begins, and as much again as one row.

    Time without over that with it, channels first, 3x3 taps, 2 threads of a Zen 4: 64 channels 1.1, 96 of 14x14 pixels 1.2, 128 of 28x28 1.1, 256 of 14x14
    1.1 to 1.2, 512 of 7x7 1.0 to 1.3; channels last, 256 1.03, others 1.0. Of several lane pairs for tiles with few sums alone: gradients of first layers with
    strides 1.45 to 1.95, of 256 channels 0.8 to 0.9 (Granite Rapids).
    """
    cdef const Problem *g = w.g
    if PAIR == 1 or (g.src_x != 1 and g.src_c != 1) or (g.row_lanes * g.col_lanes > 1 and (TILE == 1 or g.dst_c != 1 or g.dst_channels > VL)) or p.col.src_unit > 1 or g.src_channels % PAIR:
        return False
    if not (fills_tiles(p.col.count) or divides_rows(g, p.col.count)) or not has_few_taps(p) or p.row.taps * p.col.taps == 1 or not fits_band(p, PIXELS * LD, p.col.count, PAIR):
        return False
    return longest_band(p.row, p.col, w.fold.pixels) * (g.src_channels // PAIR) <= PIXELS * LD


cdef bint divides_rows(const Problem *g, int64_t columns) noexcept nogil:
    """Whether rows of pixels are divided among several tiles (`fit_rows`). Of 17 to 35 pixels, 3x3 and 5x5 taps, a band takes 0.65 to 0.9 of the time then, of 7
    taps on one axis 0.85 to 0.95 (Granite Rapids)."""
    return TILE > 1 and g.row_lanes * g.col_lanes == 1 and columns > TILE


cdef void fit_band(Gather *w) noexcept nogil:
    """Has a band fall into strips or, of planes, have as many rows as there is room for, wherever it begins. Patches of what a band of more would read, 3x3 to 5x5 taps
    with strides of 3 and 4, 64 channels, take 1.05 to 1.15 times as long (float32), 1.4 to 2.3 (16 bits, 2 threads of a Zen 4)."""
    cdef Patches p = pair_patches(w, 0, 0)
    cdef int64_t columns = strip_columns(w, &p)
    if columns:
        w.strips, w.strip, w.unit = divide_up(p.col.count, columns), columns, columns
    elif has_band(&p) and not keeps_band(w, &p):
        w.fold.pixels = banded_pixels(w.g, p.row, p.col, band_room(w))


cdef bint keeps_strips(const Gather *w, const Patches *p, int64_t columns) noexcept nogil:
    """Whether bands of strips of so many columns are kept: of the first one, and of the last, which may be narrower."""
    cdef int64_t last = divide_up(p.col.count, columns) - 1
    cdef Patches some = p[0]
    cdef Lane strip = strip_of(p.col, columns, last)
    some.col = &strip
    if last and not keeps_band(w, &some):
        return False
    strip = strip_of(p.col, columns, 0)
    return keeps_band(w, &some)


cdef bint fills_strips(int64_t count, int64_t columns) noexcept nogil:
    """Whether so many columns fall into strips that are about as wide, of which threads get as much to do."""
    return count % columns == 0 or 3 * (count % columns) >= 2 * columns


cdef int64_t strip_columns(const Gather *w, const Patches *p) noexcept nogil:
    """How many columns strips of a band of pairs have, register tiles, up to STRIP; 0 if there are none. Channels last, many: blocks of one row, each of which copies
    all rows that its taps read, take 1.0 to 1.07 times as long as those of two rows of a strip, and so do patches where whole rows are not kept; on a disturbed machine
    up to 1.15 (64 to 512 channels; of 16, or in groups of 32, 0.92 to 0.95; planes 0.98 to 1.0; 2 threads of a Zen 4)."""
    cdef int64_t columns = STRIP, count = p.col.count
    cdef bint long_rows = count > w.fold.pixels
    if PAIR == 1 or w.g.src_c != 1 or w.g.src_channels < MANY_PAIRED or p.row.taps == 1 or (keeps_band(w, p) and not long_rows):
        return 0
    while columns and not ((long_rows or fills_strips(count, columns)) and keeps_strips(w, p, columns)):
        columns -= MR
    return columns


cdef void fit_rows(Gather *w) noexcept nogil:
    """Has blocks end with rows of pixels of a band that is kept, and tiles as many rows as divide those evenly: none goes through edges then. 3x3 taps take 0.8 to
    0.93 of the time of 14x14, 28x28 and 56x56 pixels, others 0.97 to 1.0. Rows that are longer than a block, of which bands would have three for parts of one, fall
    into strips, which takes 0.7 to 1.0 of the time; shorter ones are read faster as a whole (Granite Rapids)."""
    cdef Patches p = pair_patches(w, 0, 0)
    cdef int64_t columns = p.col.count
    if not keeps_band(w, &p):
        return
    w.strips = band_strips(w, &p)
    columns = w.strip = divide_up(columns, w.strips)
    if columns <= w.fold.pixels:
        w.unit, w.tile_rows = columns, divide_up(columns, divide_up(columns, TILE))


cdef int64_t band_strips(const Gather *w, const Patches *p) noexcept nogil:
    """Into how many strips columns fall: 1 if no row is longer than a block, or a strip's band would not be kept; else as many as have the fewest register tiles."""
    cdef int64_t columns = p.col.count, least = divide_up(columns, PIXELS), strips = least, i
    if least == 1 or w.fold.rows:
        return 1
    for i in range(least, 2 * least):
        if i * divide_up(divide_up(columns, i), MR) < strips * divide_up(divide_up(columns, strips), MR):
            strips = i
    strips = divide_up(columns, divide_up(columns, strips))
    return strips if keeps_strips(w, p, divide_up(columns, strips)) else 1


cdef int64_t longest_band(const Lane *row, const Lane *col, int64_t pixels) noexcept nogil:
    """Pixels of src of a band of so many pixels, wherever it begins, and of one row more."""
    cdef int64_t rows = (pixels - 2) // col.count + 2, images = (rows - 2) // row.count + 2
    return (rows * row.z_step + images * larger(extent(row, 1, row.taps) - row.z_step, 0) + 1) * extent(col, col.count, col.taps)


cdef int64_t banded_pixels(const Problem *g, const Lane *row, const Lane *col, int64_t room) noexcept nogil:
    """Of blocks that are multiplied at a time: so few that a band of so many reals has room for what they read, if it is planes, whose patches would take longer;
    0 if there is none."""
    cdef int64_t pixels = PIXELS // MR * MR
    if g.src_c == 1 or row.taps * col.taps == 1:
        return pixels
    if g.src_channels % PAIR or not fills_tiles(col.count):
        return 0
    while pixels >= LEAST_BANDED and longest_band(row, col, pixels) * (g.src_channels // PAIR) > room:
        pixels -= MR
    return pixels if pixels >= LEAST_BANDED else 0


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
    """Whether lane pairs have all pixels of dst, in turn, not as lanes that the border cuts, and those of a block are few enough to be put in order before planes of
    them are written."""
    if not g.covered or row_lanes(g).out_step != g.row_lanes or col_lanes(g).out_step != g.col_lanes:
        return False
    return g.row_lanes * g.col_lanes <= MOST_PHASES and g.dst_channels <= MOST_IMAGE


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


cdef struct Tile:                                       # of pixels of one row
    Pixel at
    int64_t count
    int64_t a, c                                        # where in a band their taps are counted from, and where in c their sums lie
    int64_t slot                                        # the first one of
    Taps taps                                           # those whose row of src lies inside


cdef struct Plan:                                       # of one lane pair's products of a block, the same for each group of a bundle
    Band band
    bint fits                                           # whether there is room for it
    int window                                          # of `window_of`
    int64_t tiles
    int64_t[MOST_TAPS] at, depth
    Tile[MOST_TILES] tile


cdef struct Ahead:                                      # what a block reads and writes next
    Lines src, dst
    int64_t burst                                       # lines to fetch with each tap of a tile


cdef Ahead nothing() noexcept nogil:
    cdef Ahead a
    a.src, a.dst, a.burst = no_lines(), no_lines(), 0
    return a


cdef Ahead next_band(const Gather *w, const Patches *p, const Block *b, const Band *band, int64_t taps) noexcept nogil:
    """For the next chunk, the next group, or the first one and the next pixels; to be fetched while the tiles of all pixels are computed, each of so many taps. Strides and
    groups of 16 and 32 channels gain 1.05 to 1.4, on a disturbed machine 1.2 to 1.6, others 1.0 to 1.05 (2 threads of a Zen 4). Tiles fetch parts of pixels alone, and
    not what they write: all of it takes 1.05 to 1.25 of the time of 64 channels, groups without any 1.1 (Granite Rapids)."""
    cdef int64_t next = b.first + b.count, group = b.group + 1
    cdef Band following = band[0]
    cdef Ahead a = nothing()
    if TILE > 1 and (w.g.src_x == p.present or w.strips > 1):
        return a
    if b.chunk + 1 < w.chunks:
        a.src = band_lines(p, band, p.src + chunk_step(w))
    else:
        if group == b.end_group:
            group = b.first_group
            if next == b.end:
                return a
            place_band(p, next, smaller(b.count, b.end - next), 0, slots(p), PAIR, &following)
        a.src, a.dst = band_lines(p, &following, group_src(w, group)), no_lines() if TILE > 1 else dst_lines(w, p, b, &following, group)
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
    cdef int64_t most = pass_slots(w, p), kc = smaller(most, slots(p) - k * most)
    cdef bint kept = keeps_band(w, p)
    cdef Plan *plan = b.plans
    cdef Ahead ahead
    cdef Block sliding
    if not kept and (TILE > 1 or not has_band(p)):
        return False
    if (b.group == b.first_group and b.chunk == 0) or slots(p) > most:
        place_band(p, b.first, b.count, 0 if kept else k * most, slots(p) if kept else kc, PAIR, &plan.band)
        plan.fits = kept or within(p, &plan.band, band_room(w))
        plan_tiles(w, p, p, b, k, &plan.band, plan)
    if not plan.fits:
        return False
    if TILE > 1 and slides(w, p):
        sliding = b[0]
        sliding.patch = slide_band(w, p, &plan.band, b) if k == 0 else b.slides[b.chunk].at
        b = &sliding
    elif k == 0 or not kept:
        pack_band(p, &plan.band, 0, b.patch)
    ahead = next_band(w, p, b, &plan.band, divide_up(kc, tap_run(p))) if k == 0 else nothing()
    multiply_taps(w, p, pair, b, k, plan, p.col.z_step * plan.band.pixel, &ahead)
    return True


cdef void multiply_phases(const Gather *w, const Patches *p, const Block *b) noexcept nogil:
    """multiply_band for all lane pairs: their taps read one band, that of p."""
    cdef int64_t pair
    cdef Band *band = &b.plans.band
    cdef Ahead ahead
    cdef Patches phase
    if b.group == b.first_group:
        place_band(p, b.first, b.count, 0, slots(p), PAIR, band)
    pack_band(p, band, 0, b.patch)
    ahead = next_band(w, p, b, band, w.g.filter_rows * w.g.filter_cols)
    for pair in range(w.g.row_lanes * w.g.col_lanes):
        phase = pair_patches(w, pair, b.group)
        if b.group == b.first_group:
            plan_tiles(w, p, &phase, b, 0, band, b.plans + pair)
        multiply_taps(w, &phase, pair, b, 0, b.plans + pair, p.col.z_step * band.pixel, &ahead)
    if orders_phases(w):
        store_phases(w, p, b)


cdef void store_phases(const Gather *w, const Patches *p, const Block *b) noexcept nogil:
    """store_pixels for all lane pairs where channels come first, row by row of dst, or all at once that follow each other. c has the rows of dst that a row of
    a band is for one after the other."""
    cdef const Problem *g = w.g
    cdef int64_t rows = g.row_lanes, cols = g.col_lanes, done = 0, ldc = w.channels + PAD, whole, run, r
    cdef bint follow = g.dst_y == g.dst_cols == cols * p.col.count and g.dst_rows == rows * p.row.count
    cdef Pixel now = pixel(p, b.first)
    cdef char *dst
    while done < b.count:
        run = smaller(p.col.count - now.v, b.count - done)
        whole = smaller((b.count - done) // p.col.count, p.row.count - now.u) if follow and now.v == 0 else 0
        for r in range(1 if whole else smaller(rows, g.dst_rows - rows * now.u)):
            dst = w.dst + (now.n * g.dst_n + (rows * now.u + r) * g.dst_y + cols * now.v + (b.group * g.dst_channels + b.channel) * g.dst_c) * item_size(w.storage)
            narrow_block(w.storage, b.c + (done * rows + r * run) * cols * ldc, ldc,
                         whole * rows * g.dst_cols if whole else smaller(cols * run, g.dst_cols - cols * now.v), b.channels, dst, 1, g.dst_c)
        done += larger(whole, 1) * run
        now = pixel(p, b.first + done)


cdef void plan_tiles(const Gather *w, const Patches *p, const Patches *phase, const Block *b, int64_t k, const Band *band, Plan *plan) noexcept nogil:
    """The register tiles of a lane pair for the slots of pass k, as far as it has pixels: those of p, whose band it reads, may be more. Planned once for all groups
    of a bundle: of 16 and 32 channels, they take 0.9 to 0.95 of the time (float32, Zen 5)."""
    cdef int64_t begin = ((phase.row.src_start - p.row.src_start) * band.width + phase.col.src_start - p.col.src_start) * band.pixel
    cdef int64_t rows = 1, cols = 1, ldc = w.channels + PAD, done = 0, run, own, count, i, t, slot
    cdef int64_t most = pass_slots(w, phase)
    cdef bint together = orders_phases(w), passes = slots(phase) > most or w.chunks > 1 or w.g.dst_c != 1 or w.fold.rows > 0
    cdef Pixel now = band.first
    cdef Taps taps, inside
    cdef Tile *tile
    if together:
        rows, cols = w.g.row_lanes, w.g.col_lanes
    taps.at, taps.depth = plan.at, plan.depth
    taps.count = place_taps(phase, band, k * most, smaller(most, slots(phase) - k * most), plan.at, plan.depth)
    plan.tiles, plan.window = 0, window_of(phase)
    while done < b.count:
        run = smaller(p.col.count - now.v, b.count - done)
        own = smaller(run, phase.col.count - now.v) if now.u < phase.row.count else 0
        count = divide_up(own, 2 * w.tile_rows if TILE > 1 else MR)
        inside = taps_inside(phase, &taps, k * most, now.u, &slot)
        for t in range(count):
            tile = &plan.tile[plan.tiles]
            i = tile_begin(own, t, count, w.tile_rows)
            tile.at, tile.taps, tile.slot, tile.count = now, inside, slot, tile_begin(own, t + 1, count, w.tile_rows) - i
            tile.at.v += i
            tile.a = begin + band_index(p, band, &tile.at)
            tile.c = ((done * rows + (phase.row.out_start * run if together else 0) + i) * cols + (phase.col.out_start if together else 0)) * ldc if passes else 0
            plan.tiles += 1
        advance(p, &now, run)
        done += run


cdef int64_t tile_begin(int64_t count, int64_t index, int64_t tiles, int64_t rows) noexcept nogil:
    """Where a register tile of so many pixels or channels begins: with a tile of so many rows."""
    return smaller(part(divide_up(count, rows), index, tiles) * rows, count)


cdef int window_of(const Patches *phase) noexcept nogil:
    """How many taps of a row read neighbouring pixels of a band, each what the next pixel does, if there are tiles for them and no pass cuts a tap; else 0.
    Groups of 16 channels, 3x3 taps, take 0.88 of the time, their gradient with strides 0.89 (float32, Zen 5)."""
    cdef int64_t taps = phase.col.taps
    if MR <= 6 or TILE > 1 or joins_taps(phase) or phase.col.count < LEAST_PIXELS or slots(phase) > KC or (phase.col.tap_step != phase.col.z_step and phase.col.tap_step != -phase.col.z_step):
        return 0
    return 3 if taps % 3 == 0 else 2 if taps % 2 == 0 and PAIR == 1 else 0


cdef void multiply_taps(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k, const Plan *plan, int64_t lda, Ahead *ahead) noexcept nogil:
    """The products of a lane pair's slots of pass k: whole vectors where dst lies, of several passes with the last one of tiles, the rest in c. A register tile
    after the other, or, of tiles, which a first cache can hardly feed, a panel of the filter after the other: 1.0 to 1.1 times as fast (bfloat16, Granite Rapids)."""
    cdef const Problem *g = w.g
    cdef bint writes = writes_results(w, p), there
    cdef int64_t whole = b.channels // VL * VL if writes or ends_in_dst(w) else 0, distance = panel_distance(w, p)
    cdef int64_t ldc = (w.channels + PAD) * (g.col_lanes if orders_phases(w) else 1), inner = divide_up(whole, NR), panels_all = inner + divide_up(b.channels - whole, NR), m, n, j, channel
    cdef const real *filter = packed_filter(w, pair, b)
    cdef bint begun = k > 0 or b.chunk > 0, last = (k + 1) * pass_slots(w, p) >= slots(p) and b.chunk == w.chunks - 1
    cdef Operands product = operands(0, NULL, lda, NR, ldc, begun)
    cdef const Tile *tile
    cdef real *c
    cdef Block rest = b[0]
    cdef Pixel at
    rest.channel, rest.channels = b.channel + whole, b.channels - whole
    product.rows, product.steps, product.trails, product.finite, product.before_ld = w.tile_rows, w.tile_steps, True, told(w), ldc
    for m in range(panels_all if TILE > 1 else plan.tiles):
        for n in range(plan.tiles if TILE > 1 else panels_all):
            tile, j = &plan.tile[n if TILE > 1 else m], m if TILE > 1 else n
            there = j < inner and (writes or last)
            channel = j * NR if j < inner else whole + (j - inner) * NR
            product.taps, product.before, product.ldc, product.narrow = &tile.taps, b.c + tile.c + channel, g.dst_x * p.col.out_step if there else ldc, PAIR > 1 and there
            c = at_result(True, <real *> dst_pixel(w, p, b, &tile.at), channel) if there else b.c + tile.c + channel
            tap_product(plan.window, tile, smaller(NR, (whole if j < inner else b.channels) - channel), &product, ahead, b.patch, panels(filter, distance, tile.slot, b.channel + channel), c)
            if j == panels_all - 1 and not there and last and g.dst_c == 1:
                rest.c, at = b.c + tile.c + whole, tile.at
                store_pixels(w, p, &rest, &at, tile.count)
    if g.dst_c != 1 and not w.shared and last:
        at = plan.band.first
        store_pixels(w, p, b, &at, b.count)


cdef bint ends_in_dst(const Gather *w) noexcept nogil:
    """Whether the last one of several passes of tiles writes whole vectors of results where they belong."""
    return TILE > 1 and w.g.dst_c == 1 and w.fold.rows == 0


cdef void tap_product(int window, const Tile *tile, int64_t n, Operands *p, Ahead *ahead, const real *band, const real *filter, real *c) noexcept nogil:
    """c (+)= band filter for a register tile of pixels and a panel of channels; of pairs, where they belong, c = sums + band filter."""
    cdef Lines *lines = &ahead.src if ahead.src.left else &ahead.dst
    cdef const char *one
    p.one, p.two = lines.step, ahead.burst if lines.left else 0
    one = take_lines(lines, tile.taps.count * ahead.burst)
    if TILE == 1 and window and n <= VL:
        window_tile(window, <int> tile.count, p, band + tile.a, filter, c, one)
    else:
        band_tile(<int> tile.count, NV if n > VL else 1, p, band + tile.a, filter, c, one, NULL)


cdef void window_tile(int window, int m, const Operands *p, const real *a, const real *b, real *c, const char *one) noexcept nogil:
    gather_windows(window, m, p, a, b, c, one)


cdef void band_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, True, TAPS, m, nv, p, a, b, c, one, two)
