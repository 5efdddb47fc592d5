# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[tap, c] = sum_pixel x[pixel + tap, c] dy[pixel, c]: depthwise_conv2d_native_backprop_filter, images read where they lie.

In parallel: blocks of (span of images and rows, vectors of channels); each span sums into its own partial dw, and the partials are added in
order. Packed: nothing. A register tile is one vector of some pixels of a row of dy and of 3 x 3 taps or one or two rows of them; each column of x beside
the pixels is loaded once for a row of taps, those outside the image from a vector of zeros. Tiles walk as in inplace_gather. Where pixels crowd the sets of a
cache, so that what is read a second time is no longer there, a tile holds three rows of dy instead of one, and each row of x is read once.

*Assumes:* x, dy and dw are contiguous and aligned, one lane a channel and at least VL of them; channels are the last axis, or come first in small
images, which are turned; the problem is that of the forward op and not empty; lanes have tap_step 1, in columns at most TAPS taps and z_step 1 or 2, or 3 of 3 taps,
and every column of dy has a tap inside the image.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER
from _entry cimport exported, outcome
from _inplace cimport ACROSS, ALONG, CROWDED_TILES, DOWN, FEW_CHANNELS, FEW_TAPS, MOST_RUN, PAGE, SWEEP, SWEPT_WAYS, PIXELS, ROWS, TALL, TALL_TAPS, TAPS, Lanes, Walk, aim, begins_line, can_sweep, column_at, comes_first, copy_size, fetch_columns, fetch_next_lines, fetch_pixels, fetch_third, fetches_far, first_channel, from_registers, go_along, has_pairs, held_storage, is_across, is_along, is_nowhere, is_outside, is_swept, is_tall, lanes_of_turn, lines_in_order, longest_lane, next_column, next_lines, next_tile_lines, pages_apart, place_tile, registers, row_ahead, rows_of_strip, share_nothing, stage, stage_row, staging_size, tall_pixels, taps_inside, tile_columns, tile_pixels, turned, turned_size, turns, vectors_at_once, walk_down
from _partials cimport Total, aim_total, store_block, sum_spans
from _problem cimport Lane, Problem, col_lanes, divide_up, fetches_planes, image_size, is_distant, is_far, larger, smaller, part, useful_threads
from _scratch cimport allocate, padded, release
from _storage cimport real, vec, LINE, VL, MR, WIDE, BFLOAT16, FLOAT16, REAL_PAIR, REAL_STORAGE, borrow_blocks, cache_ways, clear, is_intel, item_size, load, load_wide, prefetch_now, prefetch_soon, settle, store, unknown, widen_block, zero

cdef enum:
    SUMS = 14                                           # of a register tile, at most
    MOST_SPANS = 32                                     # about
    PIXELS_PER_SPAN = 1024                              # at least, where there are more spans than SPANS
    SPANS = 8                                           # as many, if each then has FEWEST_PIXELS and channels are too few to be split
    FEWEST_PIXELS = 48
    BLOCKS = 16                                         # channels are split until there are as many
    LEAST_RUN = 512                                     # bytes of a pixel of each, at least
    MOST_FAR_RUN = 6144                                 # bytes of a pixel whose tiles may fetch the next one into the second cache,
    MOST_NEAR_RUN = 8192                                # or into the first one where that is large
    MOST_ALONG_RUN = 1280                               # bytes of a pixel of images in a cache, along whose rows tiles go
    SECOND_CACHES = 3 << 20                             # bytes of images that second caches keep, about
    SHORT_ROW = 14                                      # pixels of a row that has large tiles with step 2, too: of longer ones, they read too many lines


# Adds a vector of a tile to all taps, from numbers as they are held.
ctypedef void (*walk_t)(const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil


cdef int64_t WAYS = cache_ways()                        # of the first cache,
cdef bint SWEEPS_NEAR = WAYS >= SWEPT_WAYS              # and whether tiles that sweep fetch into it, not into the second one
cdef bint INTEL = is_intel()
cdef bint FETCHES_FAR = fetches_far(WAYS)


cdef struct Reduce:
    const Problem *g
    int storage
    const char *x
    const char *dy
    Total dw
    int held                                            # what vectors are computed from
    int way                                             # of tiles
    bint far                                            # whether images are found in no cache
    bint fetch, strips                                  # whether tiles fetch what comes next, and that is the next strip
    int64_t lanes                                       # channels of a vector
    int64_t vectors                                     # of channels; the last one begins early enough to be full
    int64_t count                                       # pixels of the longest row lane
    int64_t parts, blocks                               # of an image's rows or pairs of lanes, of the vectors
    int64_t turns                                       # parts of the lanes that are computed one after the other
    int64_t taps                                        # of the filter
    walk_t walk
    const Problem *near                                 # of a vector of channels, where those come first


cdef void plan(Reduce *w) noexcept nogil:
    """Chooses blocks and spans; by the problem alone, never by the number of threads."""
    cdef const Problem *g = w.g
    cdef int64_t pixels = g.images * g.dst_rows * g.dst_cols, few, most, runs
    cdef bint whole
    w.taps = g.filter_rows * g.filter_cols
    w.dw.size = w.taps * g.groups
    w.far = is_distant(g, item_size(w.storage), WAYS) and not comes_first(g)
    w.way = way_of(w)
    w.held = REAL_PAIR if w.way == DOWN and has_pairs(g, w.storage, w.far) and fills_tiles(g, w.storage) else held_storage(g, w.storage)
    w.lanes, w.walk = registers(w.held) * VL, walker(w.held, w.way)
    w.vectors, w.count = divide_up(g.groups, w.lanes), longest_lane(g)
    if w.way == DOWN and w.count > 0 and w.held != REAL_PAIR and is_across(g, w.storage, w.held, w.far):
        w.way = ACROSS
    w.turns = turns(g, item_size(w.storage), w.way)
    w.strips = (share_nothing(g) and w.way != TALL) or w.way == ACROSS or (w.way != SWEEP and w.count > 0 and col_lanes(g).z_step > 1)
    w.fetch = (w.far and not is_foreseen(w)) or (comes_first(g) and fetches_planes(g, item_size(w.storage), WAYS))
    whole = w.way == SWEEP or w.way == ALONG            # pixels are read, for which channels are not split
    runs = divide_up(w.vectors * w.lanes * item_size(w.storage), LEAST_RUN)
    few = BLOCKS if whole else smaller(SPANS, divide_up(BLOCKS, runs))
    most = smaller(larger(larger(pixels // PIXELS_PER_SPAN, smaller(pixels // FEWEST_PIXELS, few)), 1), MOST_SPANS)
    w.parts = 1 if comes_first(g) else smaller(divide_up(most, g.images), w.turns if share_nothing(g) else w.count)
    w.dw.spans = g.images * w.parts if w.parts > 1 else even_spans(g.images, most)
    w.blocks = 1 if whole else smaller(divide_up(BLOCKS, w.dw.spans), w.vectors if comes_first(g) else runs)


cdef int way_of(const Reduce *w) noexcept nogil:
    """Of tiles, unless they go across for what vectors are computed from. Where both would do, tall ones take 1.0 to 1.55 times as long as those along a row, of pixels
    of a page and more 0.6 to 1.15 (Zen 4)."""
    cdef const Problem *g = w.g
    cdef bint swept = is_swept(g, w.storage, WAYS) or is_swept_far(g, w.storage), along = is_along(g, w.storage, w.far or is_along_near(w), TAPS)
    if swept and (FETCHES_FAR or (SWEEPS_NEAR and col_lanes(g).z_step > 1)):
        return SWEEP
    if is_tall(g, w.storage, w.far) and not (along and g.groups * item_size(w.storage) < PAGE):
        return TALL
    return ALONG if along else SWEEP if swept else DOWN


cdef bint is_swept_far(const Problem *g, int storage) noexcept nogil:
    """Whether tiles sweep of further images that no cache holds, of few taps: read with strides, they fetch the next one into the second cache where the first one does not
    keep it. Other tiles take 0.95 to 1.9 times as long, AVX2 1.0 to 1.8, of shorter pixels 0.8 to 1.1, of 5x5 taps 0.9 to 1.25; with dilations 0.7 to 1.7, without strides
    along rows 1.0 to 1.1. Fetched two or three tiles ahead, 1.0 to 1.4 times as long (Zen 4).

    Where the first cache keeps it, long pixels read with strides, from 20 MiB on: 1.0 to 1.9, of 15 to 19 MiB 0.65 to 0.8; without strides all but the shortest pixels, also
    where they crowd its sets: 1.0 to 1.8, 1-D filters 1.0 to 1.9, AVX2 0.8 to 2.0; of 20 to 30 MiB 0.7 to 1.2 (Zen 5)."""
    cdef int64_t size = item_size(storage), pixel = g.groups * size
    cdef bint strided
    if not can_sweep(g, storage) or g.filter_rows * g.filter_cols > FEW_TAPS:
        return False
    strided = col_lanes(g).z_step > 1
    if FETCHES_FAR and strided:
        return MOST_RUN < pixel <= MOST_NEAR_RUN and is_far(g, size)
    if FETCHES_FAR:
        return FEW_CHANNELS <= pixel <= MOST_NEAR_RUN and is_nowhere(g, size)
    return strided and not SWEEPS_NEAR and MOST_RUN <= pixel <= MOST_FAR_RUN and is_nowhere(g, size)


cdef bint is_along_near(const Reduce *w) noexcept nogil:
    """Whether tiles go along rows of images in the last cache, too: of 5x5 and 7x7 taps and pixels of few lines. Others take 0.95 to 1.8 times as long, float64 0.75 to 1.3,
    of pixels of up to 256 bytes 0.7 to 1.3, of long ones 0.55 to 1.4, of images in second caches 0.75 to 1.4 (Zen 5)."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage)
    if not FETCHES_FAR or g.filter_rows * g.filter_cols <= FEW_TAPS or not FEW_CHANNELS < g.groups * size <= MOST_ALONG_RUN:
        return False
    return g.images * image_size(g, size) > SECOND_CACHES


cdef bint is_foreseen(const Reduce *w) noexcept nogil:
    """Whether the CPU fetches what comes next itself: Intel's do where pixels that are read lie two pages apart or more, with large dilations or if tiles go across
    them. What a program fetches takes 1.1 to 1.5 times as long then, with smaller distances and other tiles 0.6 to 1.3, numbers of 64 bits with dilation 4
    0.8 to 0.95 (Granite Rapids)."""
    if not INTEL or pages_apart(w.g, item_size(w.storage)) < 2:
        return False
    return col_lanes(w.g).src_unit > 4 or (w.way == ACROSS and sizeof(real) < 8)


cdef int64_t even_spans(int64_t images, int64_t most) noexcept nogil:
    """So many spans, at most, as have the same number of images, but for the last."""
    return divide_up(images, divide_up(images, most))


cdef bint fills_tiles(const Problem *g, int storage) noexcept nogil:
    """Whether tiles of four pixels, the largest of pairs, cover a row about as well as larger ones, or pixels crowd few sets of a cache."""
    cdef int64_t count = col_lanes(g).count, covered = divide_up(count, 4) * 4
    return 8 * (covered - count) <= count or (count >= 8 and col_lanes(g).src_unit * g.src_x * item_size(storage) % CROWDED_TILES == 0)


cdef inline void add_columns(int held, int first, int end, int taps, int pixels, int step, const Walk *tile, const char **x, const vec *d, vec *acc) noexcept nogil:
    """acc[i, j] += sum_q x[i][q step + j] d[q] for rows first <= i < end. Column by column of two rows, more additions can begin at once: 5x5 and 7x7 taps take 0.9
    to 1.0 of the time, with 16 registers 0.95 to 1.04 (Granite Rapids).

    *Assumes:* all but tile, x, d and acc are compile-time constants of the caller.
    """
    cdef vec[2] v
    cdef int c, h, i, j, k, q, n = registers(held)
    for c in range((pixels - 1) * step + taps):
        for i in range(first, end):
            load_wide(held, tile.zeros if is_outside(tile, c, taps, (pixels - 1) * step) else x[i], v)
            x[i] = next_column(x[i], tile.src_x)
            for k in range((taps + step - 1) // step):  # the pixels whose tap j it is
                j, q = c % step + k * step, c // step - k
                if j < taps and 0 <= q < pixels:
                    for h in range(n):
                        acc[(i * taps + j) * n + h] += v[h] * d[q * n + h]


cdef void fetch_in_order(const Walk *s, const char *src, const char *dy, int64_t v, int64_t pixels, int64_t columns) noexcept nogil:
    """Fetches the share that vector v, at src and dy, has of what the like of a row will need, if the vector is the first one of a cache line. Called, so that tiles do not
    each have the code, before their sums are in registers."""
    cdef int64_t i
    if not begins_line(s, dy):
        return
    fetch_share(s, dy + s.dst_ahead, s.dst_x, v, pixels)
    for i in range(s.fresh):
        fetch_share(s, row_ahead(s, src, s.y, i), s.src_x, v, columns)
    settle()                                            # compilers leave out calls of what does nothing but fetch


cdef inline void fetch_share(const Walk *s, const char *first, int64_t step, int64_t v, int64_t count) noexcept nogil:
    """Of all vectors of so many pixels, a step apart, vector v of the first one lying there: as many lines as there are pixels, pixel by pixel."""
    cdef int64_t line = v * s.vector // LINE * count, pixel = line // s.lines, left = (pixel + 1) * s.lines - line, gap = step - s.lines * LINE, _i
    cdef const char *at = first - v * s.vector + pixel * gap + line * LINE
    for _i in range(count):
        if SWEEPS_NEAR:
            prefetch_now(at)
        else:
            prefetch_soon(at)
        at += LINE
        left -= 1
        if left == 0:
            at, left = at + gap, s.lines


cdef inline void walk_ukr(int held, bint along, int rows, int taps, int pixels, int step, const Walk *s, int64_t first, const char *src, const char *dy, real *sums) noexcept nogil:
    """sums[i, j] += sum_(r, q) src[r + i, q step + j] dy[r, q] for all vectors and rows of the strip and s.skip <= q < pixels; i < rows counts from
    `first`. Rows beyond the filter are read and written back as they are. Of all tiles along the strip, if `along`, which fetch the next one in the order of memory: each
    of the walks for a vector its share.

    *Assumes:* held, along, rows, taps, pixels and step are compile-time constants of the caller.
    """
    cdef vec[2 * SUMS] acc
    cdef vec[2 * PIXELS] d
    cdef const char *x[3]
    cdef const char *at
    cdef const char *columns
    cdef int64_t y, begin, end, offset = 0, walk, _r, _t, _v
    cdef bint fetch
    cdef int walks = (taps + rows - 1) // rows          # of a square filter, which share what is fetched
    cdef int dst_lines = (pixels + walks - 1) // walks, src_lines = (pixels * step * step + walks - 1) // walks
    cdef int h, i, j, n = registers(held), q
    cdef const char *next_src = NULL
    cdef const char *next_dst = NULL
    cdef Walk tile = s[0]
    for _v in range(s.vectors):
        fetch = held != REAL_PAIR and s.fetch and first == 0 and s.lines == 0 and begins_line(s, dy)
        if held == REAL_STORAGE and not along and first == 0 and s.lines:
            fetch_in_order(s, src, dy, _v, pixels, pixels * step)
        for i in range(rows):
            for j in range(taps):
                for h in range(n):
                    acc[(i * taps + j) * n + h] = load(sums + ((first + i) * s.filter_row + j * s.filter_col) + h * VL)
        if along:
            walk = (s.from_vector + _v) * walks + first // rows
            next_dst, next_src = next_lines(s, s.next_dst, walk, dst_lines), next_lines(s, s.next_src, walk, src_lines)
        for _t in range(s.tiles if along else 1):
            if along:
                offset = place_tile(s, _t, pixels, step, &tile)
            at, columns, y = dy + offset * s.dst_x, src + offset * step * s.src_x, s.y
            for _r in range(s.rows):
                if along:
                    next_dst = fetch_next_lines(s, next_dst, dst_lines, s.dst_y)
                    next_src = fetch_next_lines(s, next_src, src_lines, s.src_y)
                elif fetch:
                    fetch_pixels(at + s.dst_ahead, s.dst_x, pixels)
                    fetch_columns(s, columns, y, pixels * step)
                taps_inside(s, y, &begin, &end)
                for q in range(pixels):
                    load_wide(held, s.zeros if q < pixels - 1 and q < tile.skip else at + q * s.dst_x, d + q * n)
                for i in range(rows):
                    x[i] = <const char *> unknown(<const real *> (columns + (y + (first + i) * s.unit) * s.src_y))
                if MR > 6 and taps > 3 and begin <= first and first + rows <= end:
                    add_columns(held, 0, rows, taps, pixels, step, &tile, x, d, acc)
                else:
                    for i in range(rows):
                        if begin <= first + i < end:
                            add_columns(held, i, i + 1, taps, pixels, step, &tile, x, d, acc)
                at += s.dst_y
                y += s.step
            if along:
                next_dst, next_src = next_tile_lines(s, next_dst, dst_lines, s.dst_y), next_tile_lines(s, next_src, src_lines, s.src_y)
        for i in range(rows):
            for j in range(taps):
                for h in range(n):
                    store(sums + ((first + i) * s.filter_row + j * s.filter_col) + h * VL, acc[(i * taps + j) * n + h])
        src, dy, sums = src + s.vector, dy + s.vector, sums + s.panel


cdef inline void tall_ukr(int rows, int taps, int pixels, int step, const Walk *s, int64_t first, const char *src, const char *dy, real *sums) noexcept nogil:
    """walk_ukr that reads each row of x once: registers hold those of dy that it has to do with, zeros beyond the strip.

    *Assumes:* rows, taps, pixels and step are compile-time constants of the caller; the step of rows is `step`, too.
    """
    cdef vec[SUMS] acc
    cdef vec[TALL_TAPS * PIXELS] d
    cdef vec v
    cdef const char *x
    cdef const char *at
    cdef int64_t y, r, _v
    cdef bint fetch
    cdef int c, i, j, k, p, q, slot, slots = (rows + step - 1) // step
    for _v in range(s.vectors):
        at, y = dy, s.y + first * s.unit
        fetch = s.fetch and first == 0 and begins_line(s, dy)
        for i in range(rows):
            for j in range(taps):
                acc[i * taps + j] = load(sums + ((first + i) * s.filter_row + j * s.filter_col))
        for q in range(slots * pixels):
            d[q] = zero()
        for r in range(s.rows + slots - 1):
            for q in range(slots * pixels - 1, pixels - 1, -1):
                d[q] = d[q - pixels]
            if r < s.rows:
                if fetch:
                    fetch_pixels(at + s.dst_ahead, s.dst_x, pixels)
                    fetch_columns(s, src, y, pixels * step)
                for q in range(pixels):
                    d[q] = load(<const real *> (s.zeros if q < pixels - 1 and q < s.skip else at + q * s.dst_x))
            else:
                for q in range(pixels):
                    d[q] = zero()
            for p in range(step):
                if 0 <= y + p * s.unit < s.limit:
                    x = <const char *> unknown(<const real *> (src + (y + p * s.unit) * s.src_y))
                    for c in range((pixels - 1) * step + taps):
                        v = load(<const real *> column_at(s, x, c, taps, (pixels - 1) * step))
                        for slot in range(slots):
                            i = p + step * slot
                            for k in range((taps + step - 1) // step):  # the pixels whose tap j it is
                                j, q = c % step + k * step, c // step - k
                                if i < rows and j < taps and 0 <= q < pixels:
                                    acc[i * taps + j] += v * d[slot * pixels + q]
            at += s.dst_y
            y += s.step
        for i in range(rows):
            if first + i < s.taps:
                for j in range(taps):
                    store(sums + ((first + i) * s.filter_row + j * s.filter_col), acc[i * taps + j])
        src, dy, sums = src + s.vector, dy + s.vector, sums + s.panel


cdef inline int most_pixels(int held, int64_t taps) noexcept nogil:
    """Pixels of a register tile, at most, for which it has registers beside its sums, about."""
    return 4 if held != REAL_STORAGE and taps == 3 else PIXELS


cdef inline int64_t lane_pixels(const Lane *col, int64_t most, bint far) noexcept nogil:
    """Pixels of the register tiles of a lane of columns: with step 2 either 7 or few."""
    if col.z_step == 1:
        return tile_pixels(col, most, far)
    return 7 if most == PIXELS and col.count <= SHORT_ROW and col.count % 7 == 0 else tile_pixels(col, 4, far)


cdef inline void walk_tile(int held, bint along, int rows, int taps, int step, int pixels, const Walk *s, int64_t first, const char *src, const char *dy, real *sums) noexcept nogil:
    """walk_ukr for the pixels of `lane_pixels`, of rows that have 14 at least, if `along`."""
    if step == 1 and most_pixels(held, taps) == PIXELS and pixels == 8: walk_ukr(held, along, rows, taps, 8, step, s, first, src, dy, sums)
    elif most_pixels(held, taps) == PIXELS and pixels == 7: walk_ukr(held, along, rows, taps, 7, step, s, first, src, dy, sums)
    elif along and step == 1 and most_pixels(held, taps) == PIXELS: return
    elif pixels == 4: walk_ukr(held, along, rows, taps, 4, step, s, first, src, dy, sums)
    elif along: return
    elif taps == TALL_TAPS and step == 1 and pixels == 3: walk_ukr(held, False, rows, taps, 3, step, s, first, src, dy, sums)
    elif taps == TALL_TAPS and step == 1 and pixels == 2: walk_ukr(held, False, rows, taps, 2, step, s, first, src, dy, sums)
    elif pixels == 1: walk_ukr(held, False, rows, taps, 1, step, s, first, src, dy, sums)


cdef inline int rows_of_tile(int held, int64_t taps) noexcept nogil:
    """Rows of so many taps whose sums fit into registers: enough for an addition to end before the next one to its sum. The last tile of a filter may have
    more than are left."""
    return 3 if taps == 3 else 2 if (taps == 5 or (taps == 7 and MR > 6)) and held == REAL_STORAGE else 1


cdef inline void walk_taps(int held, bint along, int taps, int step, int pixels, const Walk *s, int64_t first, const char *src, const char *dy, real *sums) noexcept nogil:
    """walk_tile for the taps that there are for a step, rows of them from `first` on."""
    if taps == 3: walk_tile(held, along, 3, 3, step, pixels, s, first, src, dy, sums)
    elif held == REAL_PAIR: return
    elif taps == 5: walk_tile(held, along, rows_of_tile(held, 5), 5, step, pixels, s, first, src, dy, sums)
    elif taps == 7: walk_tile(held, along, rows_of_tile(held, 7), 7, step, pixels, s, first, src, dy, sums)
    elif along: return
    elif step == 1 and taps == 1: walk_tile(held, along, 1, 1, step, pixels, s, first, src, dy, sums)
    elif step == 1 and taps == 2: walk_tile(held, along, 1, 2, step, pixels, s, first, src, dy, sums)
    elif step == 1 and taps == 4: walk_tile(held, along, 1, 4, step, pixels, s, first, src, dy, sums)


cdef inline void walk_steps(int held, bint along, const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    """walk_taps for all taps, for steps 1 and 2, and three that as many pixels are apart."""
    cdef int64_t first = 0
    while first < s.taps:
        if col.z_step == 1:
            walk_taps(held, along, <int> col.taps, 1, <int> pixels, s, first, src, dy, sums)
        elif col.z_step == 2:
            walk_taps(held, along, <int> col.taps, 2, <int> pixels, s, first, src, dy, sums)
        elif not along:
            walk_tile(held, False, 3, 3, 3, <int> pixels, s, first, src, dy, sums)
        first += rows_of_tile(held, col.taps)


cdef void walk_reals(const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    walk_steps(REAL_STORAGE, False, s, col, pixels, src, dy, sums)


cdef void walk_pairs(const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    if MR > 6:
        walk_steps(REAL_PAIR, False, s, col, pixels, src, dy, sums)


cdef void walk_float16s(const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    if WIDE > 1:
        walk_steps(FLOAT16, False, s, col, pixels, src, dy, sums)


cdef void walk_bfloat16s(const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    if WIDE > 1:
        walk_steps(BFLOAT16, False, s, col, pixels, src, dy, sums)


cdef void walk_along(const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    """walk_ukr for tiles along a row."""
    if VL * sizeof(real) == LINE:
        walk_steps(REAL_STORAGE, True, s, col, pixels, src, dy, sums)


cdef void walk_float16s_along(const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    if VL * sizeof(real) == LINE and WIDE > 1:
        walk_steps(FLOAT16, True, s, col, pixels, src, dy, sums)


cdef void walk_bfloat16s_along(const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    if VL * sizeof(real) == LINE and WIDE > 1:
        walk_steps(BFLOAT16, True, s, col, pixels, src, dy, sums)


cdef inline void tall_tile(int step, const Walk *s, int64_t first, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    """tall_ukr for the pixels of `tall_pixels`."""
    if pixels == 7: tall_ukr(TALL_TAPS, TALL_TAPS, 7, step, s, first, src, dy, sums)
    else: tall_ukr(TALL_TAPS, TALL_TAPS, 4, step, s, first, src, dy, sums)


cdef void walk_tall(const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums) noexcept nogil:
    cdef int64_t first = 0
    while MR > 6 and first < s.taps:
        if col.z_step == 1:
            tall_tile(1, s, first, pixels, src, dy, sums)
        else:
            tall_tile(2, s, first, pixels, src, dy, sums)
        first += TALL_TAPS


cdef walk_t walker(int held, int way) noexcept nogil:
    if way == TALL:
        return walk_tall
    if way == ALONG:
        return walk_along if held == REAL_STORAGE else walk_float16s_along if held == FLOAT16 else walk_bfloat16s_along
    return walk_pairs if held == REAL_PAIR else walk_reals if held == REAL_STORAGE else walk_float16s if held == FLOAT16 else walk_bfloat16s


cdef void reduce_tile(walk_t walk, const Walk *s, const Lane *col, int64_t pixels, const char *src, const char *dy, real *sums, real *scratch) noexcept nogil:
    """Adds vectors of a tile to all taps, of an image as it is stored."""
    cdef int64_t r
    cdef char *window = <char *> (scratch + ROWS * PIXELS * VL)
    cdef Walk beside, near
    if not s.staged:
        walk(s, col, pixels, src, dy, sums)
        return
    near = stage(s, src, tile_columns(col, pixels), <real *> window)
    beside = s[0]
    beside.src_x, beside.src_ahead = s.dst_x, s.dst_ahead
    for r in range(s.rows):
        stage_row(&beside, dy + r * s.dst_y, pixels, s.fetch and begins_line(s, dy), scratch + r * pixels * VL)
    near.dst_x, near.fetch = VL * sizeof(real), False
    near.dst_y = pixels * near.dst_x
    walk(&near, col, pixels, window, <const char *> scratch, sums)


cdef int64_t vectors_of_line(const Walk *s, int held, bint along, const Lane *col, int64_t most) noexcept nogil:
    """Vectors that narrow ones and those along rows walk at once: those of a cache line where rows of taps need several walks, which find in the first cache then what
    the one before has read, otherwise `most`. Of 5x5 to 7x7 taps that takes 0.55 to 0.9 of the time (Zen 2)."""
    return LINE // s.vector if (s.vector < LINE or along) and s.taps > rows_of_tile(held, col.taps) else most


cdef void reduce_rows(const Reduce *w, const Lane *row, const Lanes *lanes, int64_t n, int64_t t, int64_t rows, int64_t first, int64_t end, real *sums, real *scratch) noexcept nogil:
    """Adds a strip of a row lane, all lanes of columns, to the sums [vector][tap][lane] of vectors first.."""
    cdef const Problem *g = w.g
    cdef real[2 * VL] zeros
    cdef Walk s = walk_down(g, w.storage, w.held, w.fetch, w.strips, row, t, rows, <const char *> zeros)
    cdef const Lane *col
    cdef int64_t pixels, i, j, v, c
    clear(zeros, 2 * VL)
    for j in range(lanes.cols):
        col = lanes.col + j
        pixels = tall_pixels(col) if w.way == TALL else lane_pixels(col, most_pixels(w.held, col.taps), w.far)
        for i in range(1 if w.way == ALONG else divide_up(col.count, pixels)):
            aim(&s, g, row, col, n, t, pixels, i)
            v = first
            while v < end:
                s.vectors = smaller(vectors_at_once(&s, g, v, end), vectors_of_line(&s, w.held, w.way == ALONG, col, end))
                s.lines = lines_in_order(&s, w.way == SWEEP)
                if w.way == ALONG:
                    go_along(&s, g, row, col, w.turns == 1, n, t, pixels, v, w.x, w.dy)
                c = first_channel(g, v, w.lanes) * item_size(w.storage)
                reduce_tile(w.walk, &s, col, pixels, w.x + s.src + c, w.dy + s.dst + c, sums + (v - first) * s.panel, scratch)
                v += s.vectors


cdef void reduce_strips(const Reduce *w, int64_t n, int64_t turn, int64_t t, int64_t last, int64_t first, int64_t end, real *sums, real *scratch) noexcept nogil:
    """Adds some rows of a turn of one image, strip by strip."""
    cdef const Problem *g = w.g
    cdef Lane segment
    cdef Lanes lanes
    cdef int64_t most, i, rows
    if t >= last:                                       # no pixel has a tap
        return
    most = rows_of_strip(g, w.storage, w.held, w.way, w.far, w.strips, w.turns)
    lanes = lanes_of_turn(g, w.way, w.turns, turn, &segment)
    while t < last:
        for i in range(lanes.rows):
            rows = smaller(smaller(most, last - t), lanes.row[i].count - t)
            if rows > 0:
                reduce_rows(w, lanes.row + i, &lanes, n, t, rows, first, end, sums, scratch)
        t += most


cdef inline void fetch_next(const Reduce *w, int64_t n, int64_t c, int64_t third) noexcept nogil:
    """Fetches a third of the planes after those from channel c on."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage)
    if w.fetch:
        fetch_third(w.x + (n * g.src_n + (c + VL) * g.src_c) * size, VL * g.src_c * size, False, third)
        fetch_third(w.dy + (n * g.dst_n + (c + VL) * g.dst_c) * size, VL * g.dst_c * size, False, third)


cdef void reduce_turned(const Reduce *w, int64_t n, int64_t v, real *sums, real *scratch) noexcept nogil:
    """Adds one vector of channels of one image, whose planes are turned before."""
    cdef const Problem *g = w.g
    cdef int64_t c = first_channel(g, v, VL), size = item_size(w.storage)
    cdef real *dy = scratch + padded(g.src_rows * g.src_cols * VL)
    cdef Reduce near = w[0]
    near.g, near.storage, near.vectors, near.x, near.dy, near.fetch = w.near, REAL_STORAGE, 1, <const char *> scratch, <const char *> dy, False
    fetch_next(w, n, c, 0)
    widen_block(w.storage, w.x + (n * g.src_n + c * g.src_c) * size, 1, g.src_c, g.src_rows * g.src_cols, VL, scratch, VL)
    fetch_next(w, n, c, 1)
    widen_block(w.storage, w.dy + (n * g.dst_n + c * g.dst_c) * size, 1, g.dst_c, g.dst_rows * g.dst_cols, VL, dy, VL)
    fetch_next(w, n, c, 2)
    reduce_strips(&near, 0, 0, 0, w.count, 0, 1, sums, NULL)


cdef void reduce_part(const Reduce *w, int64_t index, int64_t first, int64_t end, real *sums, real *scratch) noexcept nogil:
    """Adds one part of the rows of one image, or of its pairs of lanes."""
    cdef int64_t n = index // w.parts, i = index % w.parts, turn, v
    if comes_first(w.g):
        for v in range(first, end):
            reduce_turned(w, n, v, sums + (v - first) * w.taps * VL, scratch)
    elif share_nothing(w.g):
        for turn in range(part(w.turns, i, w.parts), part(w.turns, i + 1, w.parts)):
            reduce_strips(w, n, turn, 0, w.count, first, end, sums, scratch)
    else:
        for turn in range(w.turns):
            reduce_strips(w, n, turn, part(w.count, i, w.parts), part(w.count, i + 1, w.parts), first, end, sums, scratch)


cdef void store_sums(const Reduce *w, int64_t span, int64_t v, real *sums) noexcept nogil:
    """Writes a vector of dw; the lanes that the vector before has are left out."""
    cdef int64_t overlap = v * w.lanes - first_channel(w.g, v, w.lanes), step = w.g.filter_group, i
    for i in range(w.taps):
        from_registers(w.held, sums + i * w.lanes)
    store_block(&w.dw, span, sums + overlap, w.lanes, w.taps, w.lanes - overlap, v * w.lanes * step, w.g.filter_x, step)


cdef void reduce_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """Some vectors, summed over one span."""
    cdef const Reduce *w = <const Reduce *> work
    cdef int64_t block = index % w.blocks, span = w.dw.wave.first + index // w.blocks, parts = w.g.images * w.parts, i
    cdef int64_t first = part(w.vectors, block, w.blocks), end = part(w.vectors, block + 1, w.blocks), size = w.taps * w.lanes
    cdef real *sums = <real *> slab
    cdef real *scratch = sums + sums_size(w)
    clear(sums, (end - first) * size)
    for i in range(part(parts, span, w.dw.spans), part(parts, span + 1, w.dw.spans)):
        reduce_part(w, i, first, end, sums, scratch)
    for i in range(first, end):
        store_sums(w, span, i, sums + (i - first) * size)


cdef int64_t sums_size(const Reduce *w) noexcept nogil:
    """Reals of the sums of a block, and of the rows beyond the filter that the last tile has."""
    return padded((divide_up(w.vectors, w.blocks) * w.taps + 2 * w.g.filter_cols) * w.lanes)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef real *memory = NULL
    cdef int failed
    plan(w)
    if comes_first(g):
        memory = allocate(copy_size(g))
        if memory == NULL:
            return 1
        w.near = turned(g, memory)
    threads = useful_threads(g, w.dw.spans * w.blocks, threads)
    failed = sum_spans(&w.dw, reduce_block, w, w.blocks, threads, IN_ORDER, sums_size(w) + larger(staging_size(g, w.storage, w.held), turned_size(g)))
    if memory != NULL:
        release(memory)
    return failed


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dw. MIXED if it is not finite: infinities may have met the zeros of the padding, or of pixels that a tile leaves out."""
    cdef Reduce w
    cdef bint finite = True
    w.g, w.storage = <const Problem *> problem, storage
    w.x, w.dy = <const char *> inputs[0], <const char *> inputs[1]
    aim_total(&w.dw, storage, out, &finite)
    return outcome(drive(&w, num_threads), &finite)


borrow_blocks()
entry = exported(compute)
