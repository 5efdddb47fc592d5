# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel, c] = sum_tap src[pixel + tap, c] filter[tap, c]: depthwise_conv2d_native and its input gradient, images read where they lie.

In parallel: blocks of (image, part of its rows, vectors of channels). Packed: the filter, as [vector][tap][VL]. A register tile is one vector of some
pixels of a row; each column beside them is loaded once for a row of taps, those outside the image from a vector of zeros. Tiles walk
down a few rows or across the channels, then come the next pixels, those of all lanes of columns in turns. For taps and steps that no tiles are made for, there are
some in which each pixel loads what its own taps need. Where pixels crowd the sets of a cache, so that
what is read a second time is no longer there, a tile holds the sums of three rows instead of one, and each row of src is read once.

*Assumes:* src, filter and dst are contiguous and aligned, one lane a channel and at least VL of them; channels are the last axis, or come first in small
images, which are turned; the problem is not empty; lanes have tap_step 1, and every column of dst has a tap inside the image.
"""
from libc.stdint cimport int64_t
from _blocks cimport IN_ORDER, do_blocks
from _entry cimport exported, outcome
from _inplace cimport ACROSS, ALONG, ALONG_ROWS, CROWDED_RUN, DOWN, FEW_TAPS, MOST_TAPS, PAGE, SWEEP, TALL, TALL_TAPS, TAPS, PIXELS, ROWS, WHOLE_ROW, Lanes, Walk, aim, along_rows, begins_line, comes_first, copy_size, fetch_columns, fetch_next_lines, fetch_pixels, fetch_third, fetches_far, first_channel, go_along, has_pairs, has_tiles, held_storage, into_registers, is_across, is_along, is_nowhere, is_swept, is_outside, is_tall, lanes_of_turn, lines_in_order, longest_lane, next_column, next_lines, next_tile_lines, pages_apart, place_tile, registers, row_ahead, rows_of_strip, share_nothing, stage, staging_size, tall_pixels, taps_inside, tile_columns, tile_pixels, turned, turned_size, turns, unstage, vectors_at_once, walk_down
from _problem cimport Lane, Problem, row_lanes, col_lanes, clear_dst, divide_up, fetches_planes, image_size, is_distant, larger, smaller, part, useful_threads
from _scratch cimport allocate, apart, padded, release
from _storage cimport real, vec, LINE, MR, VL, WIDE, BFLOAT16, FLOAT16, REAL_PAIR, REAL_STORAGE, borrow_blocks, all_finite, cache_ways, clear, fetch_lines, is_intel, item_size, load, load_wide, narrow_block, prefetch_now, settle_past, store, store_past, store_wide, store_wide_past, widen_block, zero

cdef enum:
    BLOCKS_PER_THREAD = 4                               # rows, then channels, are split until there are as many
    LEAST_VECTORS = 4                                   # of channels that are split for that
    NEAR_IMAGES = 6 << 20                               # bytes of images that Intel's second caches and what lies between them hold, about
    NEAR_DOUBLES = 16 << 20                             # the same of float64, for filters of many taps,
    LONG_ROW = 28                                       # and pixels of rows that are long then
    FEW_RESULTS = 4096                                  # bytes of results of turned planes that are fetched ahead, too: in larger ones, 0.8 to 1.05
    MANY_ROWS = 24                                      # of a pair of lanes, which tall tiles walk down even in images that no cache holds


cdef int64_t WAYS = cache_ways()                        # of the first cache
cdef bint INTEL = is_intel()
cdef bint FETCHES_FAR = fetches_far(WAYS)


# Computes a vector of a tile from numbers as they are held.
ctypedef void (*walk_t)(const Walk *s, const Lane *col, int64_t pixels, const char *src, const real *filter, char *dst) noexcept nogil


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    int64_t vectors                                     # of channels; the last one begins early enough to be full
    int64_t count                                       # pixels of the longest row lane
    int64_t parts, blocks                               # of the rows of a turn, of the vectors
    int64_t turns                                       # parts of the lanes that are computed one after the other
    int held                                            # what vectors are computed from
    int way                                             # of tiles
    bint far, fetch, past                               # whether images are found in no cache, tiles fetch what comes next, and write past all caches
    int64_t lanes                                       # channels of a vector
    walk_t walk
    real *filter_panels                                 # [vector][tap][lane], lanes as they are in registers
    const Problem *near                                 # of a vector of channels, where those come first


cdef void plan(Gather *w, int threads) noexcept nogil:
    cdef const Problem *g = w.g
    cdef int64_t enough = BLOCKS_PER_THREAD * threads
    w.far = leaves_cache(g, item_size(w.storage)) and not comes_first(g)
    w.way = way_of(w)
    w.held = REAL_PAIR if w.way == DOWN and has_pairs(g, w.storage, w.far) else held_storage(g, w.storage)
    w.lanes, w.walk = registers(w.held) * VL, walker(w.held, w.way)
    w.vectors, w.count = divide_up(g.groups, w.lanes), longest_lane(g)
    if w.way == DOWN and not comes_first(g) and is_across(g, w.storage, w.held, w.far):
        w.way = ACROSS
    w.fetch, w.past = (w.far and not is_foreseen(g, w.storage)) or (comes_first(g) and fetches_planes(g, item_size(w.storage), WAYS)), writes_past(w)
    w.turns = turns(g, item_size(w.storage), w.way)
    if comes_first(g):
        w.parts, w.blocks = 1, w.vectors
        return
    w.blocks = smaller(divide_up(enough, g.images), divide_up(w.vectors, LEAST_VECTORS)) if w.way == TALL else 1
    w.parts = smaller(divide_up(enough, g.images * w.turns * w.blocks), w.count)
    if w.way == DOWN or w.way == ACROSS:
        w.blocks = smaller(divide_up(enough, g.images * w.turns * w.parts), divide_up(w.vectors, LEAST_VECTORS))


cdef bint writes_past(const Gather *w) noexcept nogil:
    """Whether results are written past all caches, since none would hold them until they are read: whole cache lines. Through caches, each is read from memory before: images of
    more than 30 MiB take 1.0 to 1.9 times as long, with strides 0.85 to 1.4, with one thread 1.0 to 1.7; in 16 bits 1.0 to 1.15; of 26 MiB 0.85 to 1.05 (Zen 4). On
    Intel's CPUs 0.95 to 1.9, with one thread 1.0 to 2.3, float64 1.05 to 2.2, but 16 bits 0.75 to 1.05 (Emerald Rapids)."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage)
    if w.held != w.storage or (INTEL and w.held != REAL_STORAGE) or VL * sizeof(real) != LINE or comes_first(g) or not is_nowhere(g, size):
        return False
    return g.groups * size % LINE == 0 and <int64_t> w.dst % LINE == 0


cdef bint leaves_cache(const Problem *g, int64_t size) noexcept nogil:
    """Whether images are found in no cache, or in Intel's last ones, which are as far. Images of 6 to 20 MiB take 0.65 to 1.0 of the time then, filters of many taps
    if rows are long, too, 0.75 to 1.0; other filters, and smaller images, 1.0 to 1.2; float64 of 16 MiB 0.6, of fewer 0.75 to 1.3 (Granite Rapids)."""
    cdef int64_t bytes = g.images * image_size(g, size), taps = g.filter_rows * g.filter_cols
    if is_distant(g, size, WAYS):
        return True
    if not INTEL or bytes <= NEAR_IMAGES or taps > MOST_TAPS:
        return False
    return taps <= FEW_TAPS or (larger(g.src_cols, g.dst_cols) >= LONG_ROW and bytes > (NEAR_DOUBLES if size > 4 else NEAR_IMAGES))


cdef int way_of(const Gather *w) noexcept nogil:
    """Of tiles, unless they go across for what vectors are computed from. Of far images, tall ones take 0.7 to 0.9 of the time of one pair of lanes after the other with
    33 rows each, of 9 to 17 rows 1.0 to 1.1 (Zen 4)."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage)
    cdef bint by_row = w.far and (not share_nothing(g) or row_lanes(g).count < MANY_ROWS)
    if is_tall(g, w.storage, w.far) and has_tall_rows(g) and not by_row and lie_apart(g, w.src, w.dst, size):
        return TALL
    if w.storage == REAL_STORAGE and is_along(g, w.storage, w.far, TALL_TAPS) and writes_along(g, w.storage) and not is_foreseen(g, w.storage):
        return ALONG
    return SWEEP if is_swept(g, w.storage, WAYS) else DOWN


cdef bint writes_along(const Problem *g, int storage) noexcept nogil:
    """Whether tiles along a row also write faster: not those of few channels in long rows, which take 1.2 times as long then, others 0.7 to 1.0 (Zen 4). Nor do, of images
    that no cache holds, those of pixels that crowd the first cache, if a row is one piece: 0.95 to 1.3 times as long as down; in segments 0.7 to 0.85, of images
    of 20 to 30 MiB 0.65 to 1.75, of other pixels 0.9 to 1.25 (Zen 5)."""
    cdef int64_t size = item_size(storage), pixel = g.groups * size
    if FETCHES_FAR and pixel % CROWDED_RUN == 0 and g.src_y * size <= WHOLE_ROW and is_nowhere(g, size):
        return False
    return pixel >= PIXELS * LINE or along_rows(g, size, 1) == ALONG_ROWS


cdef bint is_foreseen(const Problem *g, int storage) noexcept nogil:
    """Whether the CPU fetches what comes next itself: Intel's do where pixels that are read lie a page apart or more, as those of many channels or with large
    dilations. What a program fetches, also along rows, takes 1.0 to 2.5 times as long then, and where they lie half a page apart 0.4 to 1.0 (Granite Rapids)."""
    return INTEL and pages_apart(g, item_size(storage)) >= 1


cdef bint has_tall_rows(const Problem *g) noexcept nogil:
    """Whether all lanes of rows have as many taps as tiles that read each row once."""
    cdef int64_t i
    for i in range(g.row_lanes):
        if row_lanes(g)[i].taps != TALL_TAPS:
            return False
    return True


cdef bint lie_apart(const Problem *g, const char *src, const char *dst, int64_t size) noexcept nogil:
    """Whether a pixel's results lie elsewhere in a page than pixels that are read soon, which would wait for them: crowded ones all lie at the same few places.
    CPUs compare stores and loads by where in a page they are. Tiles of one row, which the sums do not differ from, wait less: of 7x7x1024, 147 us there and 123
    apart, tall ones 219 and 111 (Zen 4)."""
    cdef int64_t places = PAGE, gap
    while col_lanes(g).src_unit * g.src_x * size % places:
        places //= 2
    gap = (<int64_t> dst - <int64_t> src) % places
    gap += places if gap < 0 else 0
    return 2 * LINE <= gap <= places - LINE


cdef bint pack_filter(const Gather *w) noexcept nogil:
    """Returns whether the filter is finite."""
    cdef const Problem *g = w.g
    cdef int64_t taps = g.filter_rows * g.filter_cols, v, i
    cdef const char *filter
    cdef real *panel
    for v in range(w.vectors):
        filter, panel = w.filter + first_channel(g, v, w.lanes) * g.filter_group * item_size(w.storage), w.filter_panels + v * taps * w.lanes
        widen_block(w.storage, filter, g.filter_x, g.filter_group, taps, w.lanes, panel, w.lanes)
        for i in range(taps):
            into_registers(w.held, panel + i * w.lanes)
    return all_finite(w.filter_panels, w.vectors * taps * w.lanes)


cdef inline void add_row(int held, int pixels, int taps, int step, int first, int end, const Walk *s, const char *x, const real *weights, vec *acc) noexcept nogil:
    """acc[q] += sum_j x[q step + j] weights[j] for a row of taps, registers first <= h < end of each vector.

    *Assumes:* all but s, x, weights and acc are compile-time constants of the caller.
    """
    cdef vec[2 * TAPS] tap
    cdef vec[2] v
    cdef int c, h, j, k, n = registers(held), q
    for j in range(taps):
        for h in range(first, end):
            tap[j * n + h] = load(weights + j * s.filter_col + h * VL)
    for c in range((pixels - 1) * step + taps):
        load_wide(held, s.zeros if is_outside(s, c, taps, (pixels - 1) * step) else x, v)
        x = next_column(x, s.src_x)
        for k in range((taps + step - 1) // step):      # the pixels whose tap j it is
            j, q = c % step + k * step, c // step - k
            if j < taps and 0 <= q < pixels:
                for h in range(first, end):
                    acc[q * n + h] += v[h] * tap[j * n + h]


cdef inline void fetch_row(const Walk *s, const char *src, const char *dst, int64_t y, int64_t v, int pixels, int columns) noexcept nogil:
    """Fetches what the like of a row that reads from row y on will need, in its vector v or as its share. Called, or for shares apart from the loop, as in
    inplace_reduce, what GCC makes of all tiles takes 1.0 to 1.15 times as long (Zen 4)."""
    cdef int64_t i
    if not s.past:
        fetch_share(s, dst + s.dst_ahead, s.dst_x, v, pixels)
    for i in range(s.fresh):
        fetch_share(s, row_ahead(s, src, y, i), s.src_x, v, columns)


cdef inline void fetch_share(const Walk *s, const char *first, int64_t step, int64_t v, int count) noexcept nogil:
    """Fetches vector v of so many pixels, a step apart, or its share of all vectors: as many lines, pixel by pixel."""
    cdef int64_t line, pixel, left, gap
    cdef const char *at
    cdef int q
    if s.lines == 0:
        fetch_pixels(first, step, count)
        return
    line = v * s.vector // LINE * count
    pixel, gap = line // s.lines, step - s.lines * LINE
    left = (pixel + 1) * s.lines - line                 # lines of that pixel; of 8 or more, 14 lie in three pixels at most
    at = first - v * s.vector + pixel * gap + line * LINE
    for q in range(count):
        prefetch_now(at + q * LINE + (0 if q < left else gap if q < left + s.lines else 2 * gap))


cdef inline void walk_ukr(int held, bint along, int pixels, int taps, int step, const Walk *s, const char *src, const real *filter, char *dst) noexcept nogil:
    """dst[r, q] = sum_(i, j) src[r + i, q step + j] filter[i, j] for all vectors and rows of the strip and q < pixels. The registers of a vector at once,
    unless there are too few for that and the taps. Of all tiles along the strip, if `along`, which fetch the next one in the order of memory.

    *Assumes:* held, along, pixels, taps and step are compile-time constants of the caller.
    """
    cdef vec[2 * PIXELS] acc
    cdef const char *x
    cdef const char *columns
    cdef const real *weights
    cdef char *at
    cdef int64_t y, begin, end, offset = 0, _r, _t, _v, i
    cdef bint fetch
    cdef int n = registers(held), q
    cdef const char *next_src = NULL
    cdef const char *next_dst = NULL
    cdef Walk tile = s[0]
    for _v in range(s.vectors):
        fetch = held != REAL_PAIR and s.fetch and begins_line(s, dst)
        if along:
            next_dst, next_src = next_lines(s, s.next_dst, s.from_vector + _v, pixels), next_lines(s, s.next_src, s.from_vector + _v, pixels)
        for _t in range(s.tiles if along else 1):
            if along:
                offset = place_tile(s, _t, pixels, step, &tile)
            at, columns, y = dst + offset * s.dst_x, src + offset * step * s.src_x, s.y
            for _r in range(s.rows):
                for q in range(pixels * n):
                    acc[q] = zero()
                if along:
                    if not s.past:
                        next_dst = fetch_next_lines(s, next_dst, pixels, s.dst_y)
                    next_src = fetch_next_lines(s, next_src, pixels, s.src_y)
                elif fetch:
                    fetch_row(s, columns, at, y, _v, pixels, pixels * step)
                taps_inside(s, y, &begin, &end)
                for i in range(begin, end):
                    x = columns + (y + i * s.unit) * s.src_y
                    weights = filter + i * s.filter_row
                    if held == BFLOAT16 and taps == TAPS:
                        add_row(held, pixels, taps, step, 0, 1, &tile, x, weights, acc)
                        add_row(held, pixels, taps, step, 1, 2, &tile, x, weights, acc)
                    else:
                        add_row(held, pixels, taps, step, 0, n, &tile, x, weights, acc)
                if held != REAL_PAIR and VL * sizeof(real) == LINE and s.past:
                    for q in range(pixels):
                        store_wide_past(held, at + q * s.dst_x, acc + q * n)
                else:
                    for q in range(pixels):
                        store_wide(held, at + q * s.dst_x, acc + q * n)
                at += s.dst_y
                y += s.step
            if along:
                next_dst, next_src = next_tile_lines(s, next_dst, pixels, s.dst_y), next_tile_lines(s, next_src, pixels, s.src_y)
        src, dst, filter = src + s.vector, dst + s.vector, filter + s.panel


cdef inline void tall_ukr(int pixels, int step, const Walk *s, const char *src, const real *filter, char *dst) noexcept nogil:
    """walk_ukr that reads each row of src once: registers hold the sums of all rows that it has to do with, which are dropped beyond the strip.

    *Assumes:* pixels and step are compile-time constants of the caller; rows and columns have TALL_TAPS taps, and the step of rows is `step`, too.
    """
    cdef vec[TALL_TAPS * PIXELS] acc
    cdef vec[TALL_TAPS * TALL_TAPS] tap
    cdef vec v
    cdef const char *x
    cdef char *at
    cdef int64_t y, r, _v
    cdef bint fetch
    cdef int c, i, j, k, p, q, slot, slots = (TALL_TAPS + step - 1) // step
    for _v in range(s.vectors):
        at, y = dst, s.y
        fetch = s.fetch and begins_line(s, dst)
        for i in range(TALL_TAPS):
            for j in range(TALL_TAPS):
                tap[i * TALL_TAPS + j] = load(filter + i * s.filter_row + j * s.filter_col)
        for q in range(slots * pixels):
            acc[q] = zero()
        for r in range(1 - slots, s.rows):
            if fetch and r >= 0:
                if not s.past:
                    fetch_pixels(at + s.dst_ahead, s.dst_x, pixels)
                fetch_columns(s, src, y - (slots - 1) * s.step, pixels * step)
            for p in range(step):
                if 0 <= y + p * s.unit < s.limit:
                    x = src + (y + p * s.unit) * s.src_y
                    for c in range((pixels - 1) * step + TALL_TAPS):
                        v = load(<const real *> (s.zeros if is_outside(s, c, TALL_TAPS, (pixels - 1) * step) else x))
                        x = next_column(x, s.src_x)
                        for slot in range(slots):
                            i = p + step * slot
                            for k in range((TALL_TAPS + step - 1) // step):  # the pixels whose tap j it is
                                j, q = c % step + k * step, c // step - k
                                if i < TALL_TAPS and j < TALL_TAPS and 0 <= q < pixels:
                                    acc[slot * pixels + q] += v * tap[i * TALL_TAPS + j]
            if r >= 0:
                for q in range(pixels):
                    if VL * sizeof(real) == LINE and s.past:
                        store_past(<real *> (at + q * s.dst_x), acc[(slots - 1) * pixels + q])
                    else:
                        store(<real *> (at + q * s.dst_x), acc[(slots - 1) * pixels + q])
                at += s.dst_y
            for q in range(slots * pixels - 1, -1, -1):
                acc[q] = acc[q - pixels] if q >= pixels else zero()
            y += s.step
        src, dst, filter = src + s.vector, dst + s.vector, filter + s.panel


include "inplace_gather_general.pxi"


cdef inline int most_pixels(int64_t step) noexcept nogil:
    """Pixels of a register tile made for that step, at most, for which it has registers, about."""
    return PIXELS if step == 1 else 4


cdef inline void walk_tile(int held, int pixels, int taps, int step, const Walk *s, const char *src, const real *filter, char *dst) noexcept nogil:
    """walk_ukr for the pixels of `tile_pixels`."""
    if most_pixels(step) == PIXELS and pixels == 8: walk_ukr(held, False, 8, taps, step, s, src, filter, dst)
    elif most_pixels(step) == PIXELS and pixels == 7: walk_ukr(held, False, 7, taps, step, s, src, filter, dst)
    elif pixels == 4: walk_ukr(held, False, 4, taps, step, s, src, filter, dst)
    elif taps == TALL_TAPS and step == 1 and pixels == 3: walk_ukr(held, False, 3, taps, step, s, src, filter, dst)
    elif taps == TALL_TAPS and step == 1 and pixels == 2: walk_ukr(held, False, 2, taps, step, s, src, filter, dst)
    elif pixels == 1: walk_ukr(held, False, 1, taps, step, s, src, filter, dst)


cdef inline void walk_taps(int held, int taps, int step, int pixels, const Walk *s, const char *src, const real *filter, char *dst) noexcept nogil:
    """walk_tile for the taps that there are for a step."""
    if taps == 3: walk_tile(held, pixels, 3, step, s, src, filter, dst)
    elif held == REAL_PAIR: return
    elif taps == 5: walk_tile(held, pixels, 5, step, s, src, filter, dst)
    elif taps == 7: walk_tile(held, pixels, 7, step, s, src, filter, dst)
    elif step == 1 and taps == 1: walk_tile(held, pixels, 1, step, s, src, filter, dst)
    elif step == 1 and taps == 2: walk_tile(held, pixels, 2, step, s, src, filter, dst)
    elif step == 1 and taps == 4: walk_tile(held, pixels, 4, step, s, src, filter, dst)


cdef inline void walk_steps(int held, const Lane *col, int64_t pixels, const Walk *s, const char *src, const real *filter, char *dst) noexcept nogil:
    """walk_taps for steps 1 and 2, and three taps that as many pixels are apart; or tiles for any."""
    if held != REAL_PAIR and not has_tiles(col):
        walk_general(held, s, col, pixels, src, filter, dst)
    elif col.z_step == 1:
        walk_taps(held, <int> col.taps, 1, <int> pixels, s, src, filter, dst)
    elif col.z_step == 2:
        walk_taps(held, <int> col.taps, 2, <int> pixels, s, src, filter, dst)
    else:
        walk_tile(held, <int> pixels, 3, 3, s, src, filter, dst)


cdef void walk_reals(const Walk *s, const Lane *col, int64_t pixels, const char *src, const real *filter, char *dst) noexcept nogil:
    walk_steps(REAL_STORAGE, col, pixels, s, src, filter, dst)


cdef void walk_pairs(const Walk *s, const Lane *col, int64_t pixels, const char *src, const real *filter, char *dst) noexcept nogil:
    if MR > 6:
        walk_steps(REAL_PAIR, col, pixels, s, src, filter, dst)


cdef void walk_float16s(const Walk *s, const Lane *col, int64_t pixels, const char *src, const real *filter, char *dst) noexcept nogil:
    if WIDE > 1:
        walk_steps(FLOAT16, col, pixels, s, src, filter, dst)


cdef void walk_bfloat16s(const Walk *s, const Lane *col, int64_t pixels, const char *src, const real *filter, char *dst) noexcept nogil:
    if WIDE > 1:
        walk_steps(BFLOAT16, col, pixels, s, src, filter, dst)


cdef void walk_along(const Walk *s, const Lane *col, int64_t pixels, const char *src, const real *filter, char *dst) noexcept nogil:
    """walk_ukr for tiles along a row."""
    if VL * sizeof(real) != LINE: return
    elif pixels == 8: walk_ukr(REAL_STORAGE, True, 8, TALL_TAPS, 1, s, src, filter, dst)
    elif pixels == 7: walk_ukr(REAL_STORAGE, True, 7, TALL_TAPS, 1, s, src, filter, dst)


cdef inline void tall_tile(int step, const Walk *s, int64_t pixels, const char *src, const real *filter, char *dst) noexcept nogil:
    """tall_ukr for the pixels of `tall_pixels`."""
    if pixels == 7: tall_ukr(7, step, s, src, filter, dst)
    else: tall_ukr(4, step, s, src, filter, dst)


cdef void walk_tall(const Walk *s, const Lane *col, int64_t pixels, const char *src, const real *filter, char *dst) noexcept nogil:
    if MR > 6 and col.z_step == 1:
        tall_tile(1, s, pixels, src, filter, dst)
    elif MR > 6:
        tall_tile(2, s, pixels, src, filter, dst)


cdef walk_t walker(int held, int way) noexcept nogil:
    if way == TALL or way == ALONG:
        return walk_tall if way == TALL else walk_along
    return walk_pairs if held == REAL_PAIR else walk_reals if held == REAL_STORAGE else walk_float16s if held == FLOAT16 else walk_bfloat16s


cdef void gather_tile(walk_t walk, const Walk *s, const Lane *col, int64_t pixels, const char *src, const real *filter, char *dst, real *scratch) noexcept nogil:
    """Vectors of a tile, as they are stored."""
    cdef Walk near
    cdef char *window = <char *> (scratch + ROWS * PIXELS * VL)
    if not s.staged:
        walk(s, col, pixels, src, filter, dst)
        return
    near = stage(s, src, tile_columns(col, pixels), <real *> window)
    near.dst_x, near.fetch = VL * sizeof(real), False
    near.dst_y = pixels * near.dst_x
    walk(&near, col, pixels, window, filter, <char *> scratch)
    unstage(s, scratch, pixels, dst)


cdef void gather_tiles(const Gather *w, Walk *s, const Lane *row, const Lane *col, int64_t n, int64_t t, int64_t pixels, int64_t first, int64_t end, real *scratch) noexcept nogil:
    """Vectors first.. of a tile."""
    cdef const real *filter = w.filter_panels + s.weights
    cdef int64_t v = first, c
    while v < end:
        s.vectors = vectors_at_once(s, w.g, v, end)
        s.lines = lines_in_order(s, w.way == SWEEP)
        if w.way == ALONG:
            go_along(s, w.g, row, col, w.turns == 1, n, t, pixels, v, w.src, w.dst)
        c = first_channel(w.g, v, w.lanes) * item_size(w.storage)
        gather_tile(w.walk, s, col, pixels, w.src + s.src + c, filter + v * s.panel, w.dst + s.dst + c, scratch)
        v += s.vectors


cdef void gather_rows(const Gather *w, const Lane *row, const Lanes *lanes, int64_t n, int64_t t, int64_t rows, int64_t first, int64_t end, real *scratch) noexcept nogil:
    """Vectors first.. of a strip of a row lane, all lanes of columns."""
    cdef const Problem *g = w.g
    cdef real[2 * VL] zeros
    cdef Walk s = walk_down(g, w.storage, w.held, w.fetch, w.way != SWEEP and w.way != TALL, row, t, rows, <const char *> zeros)
    cdef const Lane *col
    cdef int64_t pixels, i = 0, j
    cdef bint left = True
    clear(zeros, 2 * VL)
    s.past = w.past
    while left:
        left = False
        for j in range(lanes.cols):
            col = lanes.col + j
            pixels = tall_pixels(col) if w.way == TALL else tile_pixels(col, most_pixels(col.z_step) if has_tiles(col) else PIXELS, w.far)
            if i * pixels < col.count:
                aim(&s, g, row, col, n, t, pixels, i)
                gather_tiles(w, &s, row, col, n, t, pixels, first, end, scratch)
                left = w.way != ALONG
        i += 1


cdef void gather_part(const Gather *w, int64_t n, int64_t turn, int64_t t, int64_t end, int64_t first, int64_t last, real *scratch) noexcept nogil:
    """Some vectors of some rows of a turn of one image, strip by strip. Row lanes take turns, so that they find what others have read."""
    cdef const Problem *g = w.g
    cdef int64_t most = rows_of_strip(g, w.storage, w.held, w.way, w.far, w.way != TALL, w.turns), i, rows
    cdef Lane segment
    cdef Lanes lanes = lanes_of_turn(g, w.way, w.turns, turn, &segment)
    while t < end:
        for i in range(lanes.rows):
            rows = smaller(smaller(most, end - t), lanes.row[i].count - t)
            if rows > 0:
                gather_rows(w, lanes.row + i, &lanes, n, t, rows, first, last, scratch)
        t += most


cdef inline void fetch_next(const Gather *w, int64_t n, int64_t c, int64_t third) noexcept nogil:
    """Fetches a third of the planes after those from channel c on, and of their results, which are written there."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage)
    if w.fetch:
        fetch_third(w.src + (n * g.src_n + (c + VL) * g.src_c) * size, VL * g.src_c * size, False, third)
    if w.fetch and VL * g.dst_c * size <= FEW_RESULTS:
        fetch_third(w.dst + (n * g.dst_n + (c + VL) * g.dst_c) * size, VL * g.dst_c * size, True, third)


cdef void gather_turned(const Gather *w, int64_t n, int64_t v, real *scratch) noexcept nogil:
    """One vector of channels of one image, whose planes are turned before and after. Intel's CPUs fetch what is going to be written: 0.7 to 1.0 of the time with
    strides, 0.7 to 1.1 without, but of 16 bits 1.0 to 1.08 (Granite Rapids); others would take 1.06 to 1.1 (Zen 4)."""
    cdef const Problem *g = w.g
    cdef int64_t c = first_channel(g, v, VL), size = item_size(w.storage)
    cdef real *results = scratch + padded(g.src_rows * g.src_cols * VL)
    cdef Gather near = w[0]
    near.g, near.storage, near.vectors, near.fetch = w.near, REAL_STORAGE, 1, False
    near.src, near.dst, near.filter_panels = <const char *> scratch, <char *> results, w.filter_panels + v * g.filter_rows * g.filter_cols * VL
    fetch_next(w, n, c, 0)
    widen_block(w.storage, w.src + (n * g.src_n + c * g.src_c) * size, 1, g.src_c, g.src_rows * g.src_cols, VL, scratch, VL)
    fetch_next(w, n, c, 1)
    if not g.covered:
        clear(results, g.dst_rows * g.dst_cols * VL)
    if INTEL and w.storage == REAL_STORAGE:
        fetch_lines(w.dst + (n * g.dst_n + c * g.dst_c) * size, VL * g.dst_c * size, True)
    gather_part(&near, 0, 0, 0, w.count, 0, 1, NULL)
    fetch_next(w, n, c, 2)
    narrow_block(w.storage, results, VL, g.dst_rows * g.dst_cols, VL, w.dst + (n * g.dst_n + c * g.dst_c) * size, 1, g.dst_c)


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """Some vectors of one part of the rows of a turn of one image."""
    cdef const Gather *w = <const Gather *> work
    cdef int64_t block = index % w.blocks, part_ = index // w.blocks % w.parts, turn = index // w.blocks // w.parts % w.turns, n = index // w.blocks // w.parts // w.turns
    if comes_first(w.g):
        gather_turned(w, n, block, <real *> slab)
    else:
        gather_part(w, n, turn, part(w.count, part_, w.parts), part(w.count, part_ + 1, w.parts), part(w.vectors, block, w.blocks), part(w.vectors, block + 1, w.blocks), <real *> slab)
    if w.past:
        settle_past()


cdef int drive(Gather *w, int threads, bint *finite) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef int64_t panels, scratch_size, copied = copy_size(g)
    if not g.covered and (not comes_first(g) or g.row_lanes == 0 or g.col_lanes == 0):
        clear_dst(g, w.dst, item_size(w.storage), threads)
    if g.row_lanes == 0 or g.col_lanes == 0:            # no pixel has a tap
        return 0
    threads = useful_threads(g, threads, threads)
    plan(w, threads)
    threads = <int> smaller(threads, g.images * w.turns * w.parts * w.blocks)
    panels = padded(g.filter_rows * g.filter_cols * w.vectors * w.lanes)
    scratch_size = apart(larger(staging_size(g, w.storage, w.held), turned_size(g)), threads)
    w.filter_panels = allocate(panels + copied + threads * scratch_size)
    if w.filter_panels == NULL:
        return 1
    if comes_first(g):
        w.near = turned(g, w.filter_panels + panels)
    finite[0] = pack_filter(w)
    do_blocks(gather_block, w, g.images * w.turns * w.parts * w.blocks, threads, IN_ORDER, w.filter_panels + panels + copied, scratch_size * sizeof(real))
    release(w.filter_panels)
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
    return outcome(drive(&w, num_threads, &finite), &finite)


borrow_blocks()
entry = exported(compute)
